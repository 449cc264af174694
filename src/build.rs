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
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        // 45,000 pointers are set at each start. Packed, their list is a hundredth as long. The
        // loader of a binary that is not static may be older where it runs, and not know the form.
        let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
        let is_static = features.split(',').any(|feature| feature == "crt-static");
        let packed = is_static.then(|| "-Wl,-z,pack-relative-relocs".to_owned());
        let args = [packed, link_order(&root)];
        for arg in args.into_iter().flatten().filter(|arg| is_usable(arg)) {
            print_instruction(&format!("rustc-link-arg-bins={arg}"));
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

/// The argument by which the linker places the functions that a run executes side by side. They are
/// a fifth of the code: so it needs less memory, and a start fewer page faults. The list names them
/// without the hashes in their symbols, which differ between builds.
fn link_order(root: &str) -> Option<String> {
    let recorded = fs::read_to_string(format!("{root}/src/link-order.txt")).ok()?;
    let names = recorded.lines().filter(|line| !line.starts_with('#'));
    let sections: Vec<String> =
        names.map(|name| format!(".text.{name} .text.unlikely.{name}")).collect();
    let sections = sections.join("\n");
    let script = format!("SECTIONS {{ .text.run : {{ *({sections}) }} }} INSERT BEFORE .text;\n");
    let path = format!("{}/link-order.ld", env::var("OUT_DIR").ok()?);
    fs::write(&path, script).ok()?;
    Some(format!("-Wl,-T,{path}"))
}

/// True if the linker takes this argument, and what it links can be started here: there is no other
/// way to find out which linker and which loader it is.
fn is_usable(link_arg: &str) -> bool {
    let variable = |name| env::var(name).unwrap_or_default();
    let folder = variable("OUT_DIR");
    let source = Path::new(&folder).join("probe.rs");
    if fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let linker = env::var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}"));
    let built = Command::new(variable("RUSTC"))
        .args(flags.split('\x1f').filter(|flag| !flag.is_empty()))
        .args(linker.ok())
        .args(["--target", &variable("TARGET"), "--out-dir", &folder])
        .arg(format!("-Clink-arg={link_arg}"))
        .arg(&source)
        .stderr(Stdio::null())
        .status();
    let started = || Command::new(source.with_extension("")).stderr(Stdio::null()).status();
    built.is_ok_and(|status| status.success()) && started().is_ok_and(|status| status.success())
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
