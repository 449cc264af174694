//! Records the git commit that outlast is built from, or `unknown` if git cannot determine it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_owned());
    print_instruction(&format!("rustc-env=OUTLAST_COMMIT={commit}"));
    // Tests start the binary hundreds of times. Without PIE it is not relocated at each start.
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        print_instruction("rustc-link-arg-bins=-no-pie");
    }
    // The inputs of the binary, and the files that git changes with each commit.
    for path in ["src", "man", "Cargo.toml", "Cargo.lock"] {
        print_instruction(&format!("rerun-if-changed={root}/{path}"));
    }
    for name in ["HEAD", "logs/HEAD", "packed-refs"] {
        let path = git(&root, &["rev-parse", "--git-path", name]).unwrap_or_default();
        let path = Path::new(&root).join(path);
        // Cargo treats a missing file as changed, which would rebuild every time.
        if path.is_file() {
            print_instruction(&format!("rerun-if-changed={}", path.display()));
        }
    }
}

/// Returns the short commit id, with `-dirty` if the inputs of the binary differ from that commit.
/// `None`: git is missing, or the sources are a copy inside another repository.
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

/// Returns the output of git. Its options prevent writes, and programs that the repository
/// configures.
fn git(root: &str, args: &[&str]) -> Option<String> {
    let safe = ["--no-optional-locks", "-c", "core.fsmonitor=false"];
    let output = Command::new("git").args(safe).args(args).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Prints an instruction to cargo.
fn print_instruction(what: &str) {
    println!("cargo::{what}");
}
