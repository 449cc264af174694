//! Determines the path and the installation method of this binary, and finds other copies of
//! outlast.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::super::DoctorContext;

/// Maximum number of bytes that are read of a package database.
const DATABASE_MAX: u64 = 64 << 20;

/// The installation method of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallKind {
    Development,
    Cargo,
    NpmLocal,
    NpmGlobal,
    Native,
    /// A package manager, by name.
    Package(&'static str),
}

impl InstallKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::Cargo => "cargo",
            Self::NpmLocal => "npm-local",
            Self::NpmGlobal => "npm-global",
            Self::Native => "native",
            Self::Package(name) => name,
        }
    }
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
    let mut files = [BufReader::new(File::open(one)?), BufReader::new(File::open(other)?)];
    loop {
        let [one, other] = &mut files;
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] || (length == 0 && left.len() != right.len()) {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        one.consume(length);
        other.consume(length);
    }
}

/// Returns every distinct outlast on a PATH: its path, and the path with links resolved.
pub fn all_on(path: &OsStr) -> Vec<(PathBuf, PathBuf)> {
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        let there = folder.join("outlast");
        let Ok(real) = fs::canonicalize(&there) else { continue };
        let runs = fs::metadata(&real)
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
        if runs && !found.iter().any(|(_, known)| *known == real) {
            found.push((there, real));
        }
    }
    found
}

/// Determines the installation method of `binary` from its path, the files around it, and the
/// package lists below `root`.
pub fn installation_kind(binary: &Path, root: &Path) -> InstallKind {
    by_folders(binary).or_else(|| by_package(binary, root)).unwrap_or(InstallKind::Native)
}

fn by_folders(binary: &Path) -> Option<InstallKind> {
    let names: Vec<String> = binary
        .components()
        .filter_map(|part| {
            if let Component::Normal(name) = part {
                Some(name.to_string_lossy().to_lowercase())
            } else {
                None
            }
        })
        .collect();
    let has = |name: &str| names.iter().any(|known| known == name);
    let pair = |one: &str, two: &str| names.windows(2).any(|pair| pair[0] == one && pair[1] == two);
    // A folder of the user can have any name, so the next component is checked, too.
    let ours = |one: &str| pair(one, "outlast");
    let in_store = names
        .windows(3)
        .any(|three| three[0] == "nix" && three[1] == "store" && three[2].contains("-outlast"));
    if has("node_modules") {
        return Some(npm(binary));
    }
    if in_store {
        return Some(InstallKind::Package("nix"));
    }
    if ours("cellar") || ours("caskroom") || has(".linuxbrew") || pair("opt", "homebrew") {
        return Some(InstallKind::Package("Homebrew"));
    }
    if pair("mise", "installs") || pair("mise", "shims") {
        return Some(InstallKind::Package("mise"));
    }
    if ["installs", "shims"].iter().any(|folder| pair(".asdf", folder) || pair("asdf", folder)) {
        return Some(InstallKind::Package("asdf"));
    }
    if pair("winget", "packages") || pair("winget", "links") {
        return Some(InstallKind::Package("winget"));
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
    let beside = target.and_then(Path::parent).is_some_and(|at| at.join("Cargo.toml").is_file());
    let above = binary.ancestors().skip(2).take(2);
    beside || above.map(|folder| folder.join(".rustc_info.json")).any(|note| note.is_file())
}

/// Distinguishes global and local npm modules. Global ones are in the prefix's `lib`, in npm's own
/// folder on Windows, or in the global folder of pnpm, yarn or bun, which looks like a project.
/// Local ones are beside the project's package.json.
fn npm(binary: &Path) -> InstallKind {
    let is_modules = |folder: &&Path| folder.ends_with("node_modules");
    let outermost = binary.ancestors().filter(is_modules).last().and_then(Path::parent);
    let Some(owner) = outermost else { return InstallKind::NpmLocal };
    let is_global = |folder: &Path| {
        let managers = ["pnpm/global", "yarn/global", "Yarn/Data/global", "bun/install/global"];
        managers.iter().chain(&[".bun/install/global"]).any(|end| folder.ends_with(end))
    };
    if owner.ancestors().any(is_global) {
        return InstallKind::NpmGlobal;
    }
    let prefix = owner.ends_with("lib") || owner.ends_with("npm");
    if prefix && !owner.join("package.json").is_file() {
        InstallKind::NpmGlobal
    } else {
        InstallKind::NpmLocal
    }
}

fn by_package(binary: &Path, root: &Path) -> Option<InstallKind> {
    let shown = binary.strip_prefix(root).unwrap_or(binary);
    let name = shown.to_str()?;
    // If /bin is a link to /usr/bin, a list may have either path.
    let names = [Some(name), name.strip_prefix("usr/")];
    let is_it = |line: &str| names.contains(&Some(line.trim_start_matches('/')));
    let lists = |folder: &str, file: fn(&Path) -> Option<PathBuf>| {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        entries.filter_map(|entry| file(&entry.path())).any(|list| {
            let text = read_start(&list);
            String::from_utf8_lossy(&text).lines().any(is_it)
        })
    };
    let about = |path: &Path| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("outlast"))
    };
    let deb = |path: &Path| {
        let list = path.extension().is_some_and(|extension| extension == "list");
        let ours = path.file_name()?.to_str()?.starts_with("outlast");
        (list && ours).then(|| path.to_path_buf())
    };
    if lists("var/lib/dpkg/info", deb) {
        return Some(InstallKind::Package("deb"));
    }
    let pacman = |path: &Path| {
        path.file_name()?.to_str()?.starts_with("outlast").then(|| path.join("files"))
    };
    if lists("var/lib/pacman/local", pacman) {
        return Some(InstallKind::Package("pacman"));
    }
    if apk_owns(&String::from_utf8_lossy(&read_start(&root.join("lib/apk/db/installed"))), shown) {
        return Some(InstallKind::Package("apk"));
    }
    // RPM databases hold file names as text, terminated by a zero byte.
    let system = shown.starts_with("usr") && !shown.starts_with("usr/local");
    let needle = b"\0outlast\0";
    let rpm = ["var/lib/rpm", "usr/lib/sysimage/rpm"].iter().any(|folder| {
        ["rpmdb.sqlite", "Packages", "Packages.db"].iter().any(|file| {
            let database = read_start(&root.join(folder).join(file));
            database.windows(needle.len()).any(|window| window == needle)
        })
    });
    (system && rpm && about(binary)).then_some(InstallKind::Package("rpm"))
}

/// True if apk's list has the binary: `F:` is a folder, `R:` a file in the last folder before it.
fn apk_owns(list: &str, binary: &Path) -> bool {
    let mut folder = Path::new("");
    list.lines().any(|line| match line.split_once(':') {
        Some(("F", name)) => {
            folder = Path::new(name);
            false
        }
        Some(("R", name)) => folder.join(name) == binary,
        Some(_) | None => false,
    })
}

fn read_start(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
    if is_file && let Ok(file) = File::open(path) {
        // A partial read is good enough.
        let _ = file.take(DATABASE_MAX).read_to_end(&mut bytes);
    }
    bytes
}
