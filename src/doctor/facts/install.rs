//! Determines the path and the installation method of this binary, and finds other copies of
//! outlast.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::super::DoctorContext;

/// Maximum number of bytes that are read of a list of installed files.
const LIST_MAX: u64 = 1 << 20;

/// The installation method of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum InstallKind {
    Development,
    Cargo,
    NpmLocal,
    NpmGlobal,
    Native,
    /// A package of Debian.
    Deb,
}

/// The location of the running binary, and the copies of outlast on PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The running binary, with links resolved.
    pub binary: PathBuf,
    pub kind: InstallKind,
    /// Every outlast on PATH, in PATH order.
    pub on_path: Vec<InstalledCopy>,
    /// True if this user may write to the binary's folder.
    pub writable: bool,
}

/// A program on PATH that is called outlast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledCopy {
    pub path: PathBuf,
    /// The path with links resolved.
    pub target: PathBuf,
    /// True if its content is that of the running binary.
    pub is_equal: bool,
}

/// Finds the running binary, and the copies of outlast on PATH.
pub fn find_installations(context: &DoctorContext) -> Installation {
    let exe = std::env::current_exe().unwrap_or_default();
    let binary = fs::canonicalize(&exe).unwrap_or(exe);
    let path = context.variables.get(OsStr::new("PATH"));
    let found = path.map(|path| all_on(path)).unwrap_or_default();
    let on_path = found.into_iter().map(|(path, target)| {
        let is_equal = target == binary || has_same_content(&target, &binary).unwrap_or(false);
        InstalledCopy { path, target, is_equal }
    });
    let on_path = on_path.collect();
    let writable = binary.parent().is_some_and(|folder| access(folder, AccessFlags::W_OK).is_ok());
    Installation { kind: installation_kind(&binary, Path::new("/")), binary, on_path, writable }
}

fn has_same_content(one: &Path, other: &Path) -> io::Result<bool> {
    if fs::metadata(one)?.len() != fs::metadata(other)?.len() {
        return Ok(false);
    }
    Ok(fs::read(one)? == fs::read(other)?)
}

/// Returns every distinct outlast on a PATH: its path, and the path with links resolved.
pub fn all_on(path: &OsStr) -> Vec<(PathBuf, PathBuf)> {
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        let path = folder.join("outlast");
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let is_program = fs::metadata(&real)
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
        if is_program && !found.iter().any(|(_, known)| *known == real) {
            found.push((path, real));
        }
    }
    found
}

/// Determines the installation method of `binary` from its path, the files around it, and the
/// package lists below `root`.
pub fn installation_kind(binary: &Path, root: &Path) -> InstallKind {
    by_folders(binary).unwrap_or_else(|| {
        if is_in_deb(binary, root) { InstallKind::Deb } else { InstallKind::Native }
    })
}

fn by_folders(binary: &Path) -> Option<InstallKind> {
    if binary.components().any(|part| part.as_os_str() == "node_modules") {
        return Some(npm(binary));
    }
    if is_cargo_build(binary) {
        return Some(InstallKind::Development);
    }
    let folder = binary.parent().filter(|folder| folder.ends_with("bin"))?;
    let list = folder.parent()?.join(".crates.toml");
    let installed = if list.is_file() {
        String::from_utf8_lossy(&read_start(&list)).contains("\"outlast ")
    } else {
        folder.ends_with(".cargo/bin")
    };
    installed.then_some(InstallKind::Cargo)
}

/// True if it is a cargo build: it is in the target folder of a package, or in another target
/// folder, which cargo marks with `.rustc_info.json`.
fn is_cargo_build(binary: &Path) -> bool {
    let target = binary.ancestors().find(|folder| folder.ends_with("target"));
    let package = target.and_then(Path::parent);
    package.is_some_and(|folder| folder.join("Cargo.toml").is_file())
        || binary.ancestors().skip(2).take(2).any(|it| it.join(".rustc_info.json").is_file())
}

/// Distinguishes global and local npm modules. Global ones are in the prefix's `lib`, or in the
/// global folder of pnpm, yarn or bun, which looks like a project. Local ones are beside the
/// project's package.json.
fn npm(binary: &Path) -> InstallKind {
    let is_modules = |folder: &&Path| folder.ends_with("node_modules");
    let outermost = binary.ancestors().filter(is_modules).last().and_then(Path::parent);
    let Some(owner) = outermost else { return InstallKind::NpmLocal };
    let is_global = |folder: &Path| {
        let managers = ["pnpm/global", "yarn/global", "bun/install/global", ".bun/install/global"];
        managers.iter().any(|end| folder.ends_with(end))
    };
    if owner.ancestors().any(is_global) {
        return InstallKind::NpmGlobal;
    }
    if owner.ends_with("lib") && !owner.join("package.json").is_file() {
        InstallKind::NpmGlobal
    } else {
        InstallKind::NpmLocal
    }
}

/// True if a package list of dpkg has the binary.
fn is_in_deb(binary: &Path, root: &Path) -> bool {
    let name = binary.strip_prefix(root).unwrap_or(binary).to_string_lossy();
    // If /bin is a link to /usr/bin, the list may have either path.
    let names = [Some(&*name), name.strip_prefix("usr/")];
    let is_binary = |line: &str| names.contains(&Some(line.trim_start_matches('/')));
    let files = fs::read_dir(root.join("var/lib/dpkg/info")).into_iter().flatten().flatten();
    let mut lists = files.map(|entry| entry.path()).filter(|path| {
        let is_list = path.extension().is_some_and(|extension| extension == "list");
        is_list && path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"outlast"))
    });
    lists.any(|list| String::from_utf8_lossy(&read_start(&list)).lines().any(is_binary))
}

fn read_start(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
    if is_file && let Ok(file) = File::open(path) {
        // A partial read is good enough.
        let _ = file.take(LIST_MAX).read_to_end(&mut bytes);
    }
    bytes
}
