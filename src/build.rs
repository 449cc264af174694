//! Records the git commit that outlast is built from, or `unknown` if git cannot determine it, and
//! tells the linker how to place the code.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let commit = commit(&root).unwrap_or_else(|| "unknown".to_owned());
    print_instruction(&format!("rustc-env=OUTLAST_COMMIT={commit}"));
    // Tests start the binary hundreds of times. Without PIE it is not relocated at each start.
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_OS", "linux") {
        print_instruction("rustc-link-arg-bins=-no-pie");
    }
    // A run executes a fifth of the code. Placed side by side, it needs less memory, and a start
    // fewer page faults. The list is of symbols of this target; others would not match.
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        let list = format!("{root}/src/link-order.txt");
        let order = format!("-Wl,--symbol-ordering-file={list},--no-warn-symbol-ordering");
        if is_link_arg(&order) {
            print_instruction(&format!("rustc-link-arg-bins={order}"));
        }
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

/// True if the linker takes this argument: there is no other way to find out which linker it is.
fn is_link_arg(arg: &str) -> bool {
    let variable = |name| env::var(name).unwrap_or_default();
    let folder = variable("OUT_DIR");
    let program = Path::new(&folder).join("probe.rs");
    if fs::write(&program, "fn main() {}").is_err() {
        return false;
    }
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let linker = env::var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}"));
    let tried = Command::new(variable("RUSTC"))
        .args(flags.split('\x1f').filter(|flag| !flag.is_empty()))
        .args(linker.ok())
        .args(["--out-dir", &folder, &format!("-Clink-arg={arg}")])
        .arg(program)
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
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
