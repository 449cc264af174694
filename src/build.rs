//! Notes which commit outlast is built from, where that can be known.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_owned());
    tell(&format!("rustc-env=OUTLAST_COMMIT={commit}"));
    // What the binary is made of, and where git notes that the commit is another.
    for path in ["src", "Cargo.toml", "Cargo.lock"] {
        tell(&format!("rerun-if-changed={root}/{path}"));
    }
    for name in ["HEAD", "logs/HEAD", "packed-refs"] {
        let path = git(&root, &["rev-parse", "--git-path", name]).unwrap_or_default();
        let path = Path::new(&root).join(path);
        // Cargo takes a file that is not there for one that has changed.
        if path.is_file() {
            tell(&format!("rerun-if-changed={}", path.display()));
        }
    }
}

/// The short name of the commit, with `-dirty` when what the binary is made of differs from it.
/// `None` without git, or in a copy of the sources that happens to lie in another repository.
fn commit(root: &str) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != Path::new(root).canonicalize().ok()? {
        return None;
    }
    let name = git(root, &["rev-parse", "--short=10", "HEAD"])?;
    let made_of = ["status", "--porcelain", "--", "src", "Cargo.toml", "Cargo.lock"];
    let dirty = if git(root, &made_of)?.is_empty() { "" } else { "-dirty" };
    Some(name + dirty)
}

/// What git prints. It writes nothing, and runs nothing that the repository names.
fn git(root: &str, args: &[&str]) -> Option<String> {
    let safe = ["--no-optional-locks", "-c", "core.fsmonitor=false"];
    let output = Command::new("git").args(safe).args(args).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// This is how cargo is told.
fn tell(what: &str) {
    println!("cargo::{what}");
}
