//! The rules for commands that need no permission rule: no network, writing only to the files that
//! they are known to change, and reading only of what Read may read and of what programs need to
//! start.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{PathAccess, PathRule};
use crate::types::Callback;

use super::super::paths::resolve;
use super::denied_paths::is_in_any;
use super::known_paths::STANDARD_DEVICES;
use super::path_grants::grant_reading;

/// The access of a command that needs no permission rule.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct PlainScope {
    /// Folders that are readable with everything below them that is not hidden.
    pub(in super::super) folders: Vec<PathBuf>,
    /// Files and folders that the command names, readable in the same way.
    pub(in super::super) named: Vec<PathBuf>,
    /// Files that outlast created for the command to write to.
    pub(in super::super) outputs: Vec<PathBuf>,
    /// Files and folders that the command changes. Their siblings are writable, too, as the kernel
    /// has no other way to allow that these files are created, renamed and removed.
    pub(in super::super) changed: Vec<PathBuf>,
    /// True if the command may end in another working directory.
    pub(in super::super) may_move: bool,
    /// Decides whether a path is hidden from Read. `None` if nothing below these folders is hidden.
    pub(in super::super) hides: Option<Hides>,
    /// The variable `PATH` of the command, without folders in which a run may write.
    pub(in super::super) path: OsString,
    /// Further folders and files of the programs on `path`, see [`program_places`].
    pub(in super::super) programs: Vec<PathBuf>,
    /// Decides which files that git's settings name are hidden. `None`: the command does not run
    /// git.
    pub(in super::super) git: Option<Hides>,
}

/// Decides whether a path is hidden.
pub(in super::super) type Hides = Callback<dyn Fn(&Path) -> bool + Send + Sync>;

/// Folders of programs, of their libraries and of their own data.
pub(super) const PROGRAM_FOLDERS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/ld.so.conf.d",
    "/proc/sys",
    "/sys/devices/system/cpu",
];

/// Files that programs read when they start: libraries, users, groups, time zone, kinds of files.
const PROGRAM_FILES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/ld.so.conf",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/gitconfig",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
];

/// Folders of libraries and parts of programs, beside the folder of programs of an installation.
const PROGRAM_LIBRARIES: &[&str] = &["lib", "lib64", "libexec", "share/git-core"];

/// Further folders of an installation, where it is not among files of the user.
const PROGRAM_DATA: &[&str] = &["share", "opt", "Cellar"];

/// The maximum number of files that are examined to find the hidden ones.
const FILES_MAX: usize = 20_000;

/// Returns the grants of a command for the current file system.
pub(super) fn grants(scope: &PlainScope) -> Vec<PathRule> {
    let mut grants = Vec::new();
    let programs = PROGRAM_FOLDERS.iter().map(PathBuf::from);
    let on_path = std::env::split_paths(&scope.path).filter(|folder| folder.is_absolute());
    for folder in programs.chain(on_path) {
        grants.extend(grant_reading(&resolve(&folder)));
    }
    grants.extend(scope.programs.iter().flat_map(|path| grant_reading(path)));
    let files = PROGRAM_FILES.iter().map(|file| resolve(Path::new(file)));
    grants.extend(files.map(|file| PathRule::new(file, PathAccess::Read)));
    grants.extend(STANDARD_DEVICES.iter().map(|device| PathRule::new(*device, PathAccess::Use)));
    grants.extend(scope.outputs.iter().map(|file| PathRule::new(file, PathAccess::Change)));
    for path in &scope.changed {
        let is_there = |path: &&Path| fs::symlink_metadata(path).is_ok();
        let beside = path.ancestors().skip(1).find(is_there);
        let places = [Some(path.as_path()), beside];
        grants.extend(places.into_iter().flatten().map(|it| PathRule::new(it, PathAccess::Write)));
    }
    for path in scope.folders.iter().chain(&scope.named) {
        match &scope.hides {
            Some(hides) if path.is_dir() => {
                grants.push(PathRule::new(path, PathAccess::List));
                // If there are too many files to examine, only the named ones are readable.
                grants.extend(visible(path, hides, &mut 0).unwrap_or_default());
            }
            _ => grants.extend(grant_reading(path)),
        }
    }
    grants
}

/// Returns the places of libraries and data of the programs on a `PATH`, as real paths: those
/// beside each folder of programs in an installation of its own, such as that of Homebrew or Conda,
/// and the folders that `LD_LIBRARY_PATH` lists.
pub(in super::super) fn program_places(
    path: &OsStr,
    libraries: Option<&OsStr>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let known: Vec<PathBuf> = PROGRAM_FOLDERS.iter().map(|it| resolve(Path::new(it))).collect();
    let home = home.map(resolve);
    let mut places: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        let folder = resolve(&folder);
        let is_programs = folder.ends_with("bin") || folder.ends_with("sbin");
        let Some(prefix) = folder.parent().filter(|_| is_programs) else { continue };
        let has_user_files = home
            .as_ref()
            .is_some_and(|home| home.starts_with(prefix) || prefix == home.join(".local"));
        places.extend(PROGRAM_LIBRARIES.iter().map(|name| prefix.join(name)));
        if !has_user_files {
            places.extend(PROGRAM_DATA.iter().map(|name| prefix.join(name)));
        }
    }
    let libraries = libraries.map(std::env::split_paths).into_iter().flatten();
    places.extend(libraries.filter(|folder| folder.is_absolute()));
    let mut places: Vec<PathBuf> = places.iter().map(|place| resolve(place)).collect();
    let is_new = |place: &PathBuf| {
        let has_home = home.as_ref().is_some_and(|home| home.starts_with(place));
        !has_home && !is_in_any(place, &known) && place.exists()
    };
    places.retain(is_new);
    places.sort_unstable();
    places.dedup();
    places
}

/// Grants reading below a folder, except hidden paths. `None` if there are too many files.
fn visible(folder: &Path, hides: &Hides, seen: &mut usize) -> Option<Vec<PathRule>> {
    let (mut grants, mut is_whole) = (Vec::new(), true);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        *seen += 1;
        if *seen > FILES_MAX {
            return None;
        }
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if hides(&path) {
            is_whole = false;
        } else if kind.is_dir() {
            let within = visible(&path, hides, seen)?;
            is_whole &= matches!(within.as_slice(), [only] if only.path == path);
            grants.extend(within);
        } else if !kind.is_symlink() {
            grants.push(PathRule::new(path, PathAccess::Read));
        }
    }
    Some(if is_whole { vec![PathRule::new(folder, PathAccess::Read)] } else { grants })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_writable_but_what_is_changed_and_what_is_beside_and_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::write(root.join("src/old"), "").unwrap();
        let at = |name: &str| root.join(name);
        // The changed path, and what is granted for it.
        for (changed, granted) in [
            ("src/old", vec!["src/old", "src"]),
            ("src/new", vec!["src/new", "src"]),
            ("src/deep", vec!["src/deep", "src"]),
            ("src/a/b/c", vec!["src/a/b/c", "src"]),
        ] {
            let (folders, changed_paths) = (vec![root.clone()], vec![at(changed)]);
            let scope = PlainScope { folders, changed: changed_paths, ..PlainScope::default() };
            let writable = |grant: &PathRule| match grant.access {
                PathAccess::Write | PathAccess::Change => Some(grant.path.clone()),
                PathAccess::List | PathAccess::AddFolders | PathAccess::Read | PathAccess::Use => {
                    None
                }
            };
            let found: Vec<PathBuf> = grants(&scope).iter().filter_map(writable).collect();
            let granted: Vec<PathBuf> = granted.into_iter().map(at).collect();
            assert_eq!(found, granted, "{changed}");
        }
    }

    #[test]
    fn libraries_beside_a_folder_of_programs_are_those_of_its_installation() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["brew", "home", "home/.local", "home/conda"] {
            for part in ["bin", "lib", "share/git-core", "Cellar"] {
                fs::create_dir_all(at(name).join(part)).unwrap();
            }
        }
        fs::create_dir(at("libraries")).unwrap();
        let found = |path: &[&str], libraries: &[&str]| {
            let join =
                |names: &[&str]| std::env::join_paths(names.iter().map(|it| at(it))).unwrap();
            let (path, libraries) = (join(path), join(libraries));
            let found = program_places(&path, Some(&libraries), Some(&at("home")));
            found.iter().map(|it| it.strip_prefix(&root).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let expected = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let whole = ["Cellar", "lib", "share", "share/git-core"];
        for name in ["brew", "home/conda"] {
            let whole = whole.map(|part| format!("{name}/{part}"));
            assert_eq!(
                found(&[&format!("{name}/bin")], &[]),
                expected(&whole.each_ref().map(String::as_str))
            );
        }
        for name in ["home", "home/.local"] {
            let parts = [format!("{name}/lib"), format!("{name}/share/git-core")];
            assert_eq!(
                found(&[&format!("{name}/bin")], &[]),
                expected(&parts.each_ref().map(String::as_str))
            );
        }
        assert_eq!(found(&["brew"], &["libraries", "missing", "home"]), expected(&["libraries"]));
        assert!(program_places(OsStr::new("/usr/bin:/bin:bin"), None, None).is_empty());
    }
}
