//! Locates the repository, home folder, caches and credentials of a run. Reads the file system;
//! `policy` decides what is granted.

use std::cell::{LazyCell, OnceCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Uid, User, access};

use super::super::environment::names_secret_file;
use super::super::paths::PathSet;
use super::super::real_paths::{BaseFolder, LinkedPath, RealPaths};
use super::denied_paths::{RuleDenial, is_in_any};
use super::known_paths::{
    CACHE_VARIABLES, CACHES, CARGO_CACHES, CARGO_LOCKS, DEVICES, MOVED_FOLDERS, STANDARD_DEVICES,
    TEMPORARY,
};
use super::plain::PROGRAM_FOLDERS;
use super::repository;
use crate::text::in_home;

/// Files by which a step of a CI job changes the variables, programs and inputs of later steps,
/// which have secrets.
const STEP_FILES: [&str; 10] = [
    "CIRRUS_ENV",
    "DRONE_OUTPUT",
    "ENVMAN_ENVSTORE_PATH",
    "GITHUB_ENV",
    "GITHUB_PATH",
    "GITHUB_OUTPUT",
    "GITHUB_STATE",
    "BASH_ENV",
    "BITBUCKET_PIPELINES_VARIABLES_PATH",
    "BUILDKITE_ENV_FILE",
];

/// The lowest user id of people on most systems.
const FIRST_PERSON: u32 = 1000;

/// Maximum number of homes of other users that are closed to commands of root.
const OTHER_HOMES_MAX: usize = 16;

/// System folders that every program needs, besides the folders of programs.
const SYSTEM_FOLDERS: &[&str] = &["/etc", "/proc", "/dev", "/sys"];

/// The context of a sandbox, besides the user's settings.
pub(in super::super) struct SandboxContext<'a> {
    pub(in super::super) cwd: &'a Path,
    pub(in super::super) home: Option<&'a Path>,
    /// Further folders that the run may work in.
    pub(in super::super) folders: &'a [PathBuf],
    /// The folder of the run, for its temporary files.
    pub(in super::super) scratch: &'a Path,
    pub(in super::super) environment: &'a [(OsString, OsString)],
    /// The paths that permission rules deny.
    pub(in super::super) rules: Vec<RuleDenial>,
    lookups: CachedLookups,
}

/// The cached lookups of a context: a policy needs the same folders hundreds of times.
#[derive(Debug, Default)]
struct CachedLookups {
    paths: RealPaths,
    homes: OnceCell<Vec<PathBuf>>,
    tree: OnceCell<Vec<PathBuf>>,
    /// The folders in which the entries of the table of credentials are, by the first part of an
    /// entry.
    login_bases: OnceCell<HashMap<&'static str, Vec<BaseFolder>>>,
}

/// The reason that the sandbox cannot be set up as the settings require.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("sandbox.filesystem: {0:?} is a pattern; the sandbox takes names of folders and files")]
    Pattern(String),
    #[error("sandbox.filesystem: {0:?}: there is no home folder")]
    NoHome(String),
    #[error("commands cannot be held to sandbox.network.allowedDomains and deniedDomains: {gap}")]
    NoEgress { gap: String },
    #[error("the sandbox is required and is not enforced: {gap}")]
    NotEnforced { gap: String },
}

impl<'a> SandboxContext<'a> {
    /// Creates a context without further folders and rules.
    pub(in super::super) fn new(
        cwd: &'a Path,
        home: Option<&'a Path>,
        scratch: &'a Path,
        environment: &'a [(OsString, OsString)],
    ) -> Self {
        let (folders, rules, lookups) = (&[][..], Vec::new(), CachedLookups::default());
        Self { cwd, home, folders, scratch, environment, rules, lookups }
    }

    pub(super) fn variable(&self, wanted: &str) -> Option<&OsStr> {
        let found = self.environment.iter().rev().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_os_str())
    }

    /// Resolves the links of a path, as they were when it was first looked up.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        self.lookups.paths.resolve(path, self.homes())
    }

    /// False if a path was missing when it, or a folder above it, was first looked up.
    pub(super) fn may_exist(&self, path: &Path) -> bool {
        self.lookups.paths.may_exist(path, self.homes())
    }

    /// The absolute path in a variable, unless it is the root, or contains the home folder.
    pub(super) fn folder(&self, name: &str) -> Option<PathBuf> {
        let path = Some(Path::new(self.variable(name)?)).filter(|path| path.is_absolute())?;
        let path = self.real(path);
        let has_home = self.home.is_some_and(|home| self.real(home).starts_with(&path));
        (!has_home && path.parent().is_some()).then_some(path)
    }

    pub(super) fn resolve_setting_path(&self, text: &str) -> Result<PathBuf, SandboxError> {
        let bare = without_wildcard_end(text);
        if !is_sandbox_path(text, self.cwd, self.home) {
            return Err(SandboxError::Pattern(text.to_owned()));
        }
        if self.home.is_none() && (bare == "~" || bare.starts_with("~/")) {
            return Err(SandboxError::NoHome(text.to_owned()));
        }
        Ok(self.real(&path_of_setting(bare, self.cwd, self.home)))
    }

    /// The working folders, the repository around them, and its git directory, as they were when
    /// they were first looked up.
    pub(super) fn tree(&self) -> &[PathBuf] {
        self.lookups.tree.get_or_init(|| self.find_tree())
    }

    fn find_tree(&self) -> Vec<PathBuf> {
        let cwd = self.real(self.cwd);
        let mut tree = vec![];
        let home = || self.home.map(|home| self.real(home));
        if let Some(found) = repository::find_repository(&cwd, home) {
            tree.push(found.top);
            tree.extend(found.data);
        }
        if !is_in_any(&cwd, &tree) {
            tree.insert(0, cwd);
        }
        for folder in self.folders.iter().map(|folder| self.real(folder)) {
            if !is_in_any(&folder, &tree) {
                tree.push(folder);
            }
        }
        tree
    }

    /// True if the kernel can enforce a denial for commands: not if it is a pattern, and not if it
    /// covers folders that commands need.
    pub(super) fn can_enforce(&self, denial: &RuleDenial) -> bool {
        let denied = self.real(&denial.place);
        let within = |path: &Path| self.real(path).starts_with(&denied);
        let needs = PROGRAM_FOLDERS.iter().chain(SYSTEM_FOLDERS).map(Path::new).chain(self.home);
        denial.is_whole
            && !self.tree().iter().any(|folder| within(folder))
            && (denial.changes_only || !needs.into_iter().any(within))
    }

    /// The folders for temporary files that commands may write to: without `TMPDIR` if the runner
    /// of a CI job has its own files there.
    pub(super) fn temporary_folders(&self) -> Vec<PathBuf> {
        let usual = TEMPORARY.iter().map(|path| self.real(Path::new(path)));
        let tmpdir = self.folder("TMPDIR").filter(|folder| !self.has_step_files(folder));
        let mut all: Vec<PathBuf> = tmpdir.into_iter().chain(usual).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// True if `TMPDIR` is not one of the folders for temporary files of commands.
    pub(super) fn is_temporary_folder_closed(&self) -> bool {
        self.folder("TMPDIR").is_some_and(|folder| self.has_step_files(&folder))
    }

    fn has_step_files(&self, folder: &Path) -> bool {
        self.step_files().any(|path| path.starts_with(folder))
    }

    fn step_files(&self) -> impl Iterator<Item = PathBuf> {
        let files = STEP_FILES.iter().filter_map(|name| self.variable(name)).map(Path::new);
        files.filter(|path| path.is_absolute()).map(|path| self.real(path))
    }

    /// Lists the files of the CI job's runner that are in these folders.
    pub(super) fn open_step_files(&self, folders: &[PathBuf]) -> Vec<String> {
        let is_open = |path: &PathBuf| is_in_any(path, folders);
        let files = self.step_files().filter(is_open).filter(|path| path.is_file());
        files.map(|path| path.display().to_string()).collect()
    }

    /// Resolves paths in the home folder, or in the folder to which a variable moves their parent.
    fn movable_paths(&self, names: impl IntoIterator<Item = &'static str>) -> Vec<PathBuf> {
        let base = |path: &Path| self.lookups.paths.base(path, self.homes());
        let moved = MOVED_FOLDERS.iter();
        let moved = moved.filter_map(|(name, variable)| Some((*name, self.folder(variable)?)));
        let moved: Vec<_> = moved.map(|(name, folder)| (name, base(&folder))).collect();
        let home = self.home.map(base);
        let resolve = |name: &'static str| {
            let within = |(folder, base)| Some((base, Path::new(name).strip_prefix(folder).ok()?));
            let moved = moved.iter().map(|(folder, base)| (folder, base)).find_map(within);
            let (base, rest) = moved.or(home.as_ref().map(|home| (home, Path::new(name))))?;
            Some(self.lookups.paths.resolve_in(base, rest.to_str()?, self.homes()).into_real())
        };
        names.into_iter().filter_map(resolve).collect()
    }

    /// Folders of caches, whether or not they exist.
    pub(super) fn caches(&self) -> Vec<PathBuf> {
        let mut caches: Vec<PathBuf> =
            CACHE_VARIABLES.iter().filter_map(|name| self.folder(name)).collect();
        let known = CACHES.iter().chain(CARGO_CACHES).copied();
        let go = self.folder("GOPATH").map(|go| go.join("pkg"));
        caches.extend(self.movable_paths(known.chain(go.is_none().then_some("go/pkg"))));
        caches.extend(go);
        caches
    }

    pub(super) fn cache_locks(&self) -> Vec<PathBuf> {
        self.movable_paths(CARGO_LOCKS.iter().copied())
    }

    /// The folders of caches that may be created: none in a missing home folder, and `~/go`, which
    /// is not hidden, only if Go is installed.
    pub(super) fn creatable(&self, caches: Vec<PathBuf>) -> PathSet {
        let Some(home) = self.home else { return caches.into_iter().collect() };
        let (real, go) = (self.real(home), self.real(&home.join("go")));
        let has_home = home.is_dir();
        let has_go =
            LazyCell::new(|| which::which_in("go", self.variable("PATH"), self.cwd).is_ok());
        let can_create = |folder: &PathBuf| {
            !folder.starts_with(&real) || has_home && (!folder.starts_with(&go) || *has_go)
        };
        caches.into_iter().filter(can_create).collect()
    }

    /// An absolute path with its real path.
    pub(super) fn linked(&self, path: &Path) -> LinkedPath {
        LinkedPath::new(path.components().collect(), self.real(path))
    }

    /// The paths of an entry of the table of credentials, whether or not they exist.
    pub(super) fn login_paths(&self, place: &str) -> Vec<LinkedPath> {
        if let Some(named) = place.strip_prefix('$') {
            let (variable, rest) = named.split_once('/').unwrap_or((named, ""));
            let named = self.named_paths(variable, rest);
            return named.iter().map(|path| self.linked(path)).collect();
        }
        let (folder, rest) = place.split_once('/').unwrap_or((place, ""));
        let found = self.login_folders(folder).iter().map(|base| self.login_path(base, rest));
        // System paths that file permissions deny anyway are left out, to keep the list short.
        let is_open = |path: &LinkedPath| {
            self.may_exist(&path.written) && access(&path.written, AccessFlags::R_OK).is_ok()
        };
        found.filter(|path| !place.starts_with('/') || is_open(path)).collect()
    }

    /// The folders in which the entries of the table of credentials are, by the first part of an
    /// entry.
    fn login_bases(&self) -> &HashMap<&'static str, Vec<BaseFolder>> {
        let folder = |path: PathBuf| self.lookups.paths.base(&path, self.homes());
        let xdg = |variable: &str, default: &str| {
            let usual = self.homes().iter().map(|home| home.join(default));
            self.folder(variable).into_iter().chain(usual).map(folder).collect()
        };
        self.lookups.login_bases.get_or_init(|| {
            HashMap::from([
                ("~", self.homes().iter().cloned().map(folder).collect()),
                ("@config", xdg("XDG_CONFIG_HOME", ".config")),
                ("@data", xdg("XDG_DATA_HOME", ".local/share")),
                ("@cache", xdg("XDG_CACHE_HOME", ".cache")),
                ("@runtime", self.folder("XDG_RUNTIME_DIR").into_iter().map(folder).collect()),
                ("", vec![folder(PathBuf::from("/"))]),
            ])
        })
    }

    /// The folders with entries of the table that begin with this part.
    pub(super) fn login_folders(&self, first: &str) -> &[BaseFolder] {
        self.login_bases().get(first).map_or(&[], Vec::as_slice)
    }

    /// False if an entry of the table was missing in a folder.
    pub(super) fn may_hold(&self, folder: &BaseFolder, entry: &str) -> bool {
        self.lookups.paths.may_hold(folder, entry)
    }

    /// The path of an entry of the table in a folder.
    pub(super) fn login_path(&self, folder: &BaseFolder, entry: &str) -> LinkedPath {
        self.lookups.paths.resolve_in(folder, entry, self.homes())
    }

    /// The home folders: that of `HOME`, and that of the user database, which some programs prefer.
    /// Root can read the logins of all users.
    fn homes(&self) -> &[PathBuf] {
        self.lookups.homes.get_or_init(|| {
            // The file is usually the first source of the user database, whose functions ask a
            // cache service first.
            let passwd = fs::read("/etc/passwd").unwrap_or_default();
            let listed = user_home(Uid::current(), &passwd);
            let of_user = self.home.map(Path::to_path_buf).into_iter().chain(listed);
            let is_root = Uid::effective().is_root();
            let others = listed_homes(&passwd).filter(|(uid, _)| is_root && *uid >= FIRST_PERSON);
            let others = others.map(|(_, home)| home).filter(|home| home.is_dir());
            let all = of_user.chain(others.take(OTHER_HOMES_MAX));
            let mut homes: Vec<PathBuf> = Vec::new();
            for home in all.filter(|home| home.is_absolute() && home.parent().is_some()) {
                if !homes.contains(&home) {
                    homes.push(home);
                }
            }
            homes
        })
    }

    /// The paths that a variable lists, joined with `rest`, except those that contain the home
    /// folder or the working directory.
    fn named_paths(&self, variable: &str, rest: &str) -> Vec<PathBuf> {
        let Some(value) = self.variable(variable).filter(|value| !value.is_empty()) else {
            return Vec::new();
        };
        let is_too_wide = |path: &Path| {
            let real = self.real(path);
            let contains = |folder: &Path| self.real(folder).starts_with(&real);
            self.home.is_some_and(contains) || contains(self.cwd)
        };
        let named = std::env::split_paths(value).filter(|path| !path.as_os_str().is_empty());
        let paths = named.map(|path| self.cwd.join(path).join(rest));
        // `join` with nothing leaves a slash at the end.
        let paths = paths.map(|path| path.components().collect::<PathBuf>());
        // Some variables name a device so that no file is written.
        let is_device =
            |path: &Path| STANDARD_DEVICES.iter().chain(DEVICES).any(|it| path == Path::new(it));
        paths.filter(|path| !is_device(path) && !is_too_wide(path)).collect()
    }

    /// The files that variables of any name point to as secrets.
    pub(super) fn secret_files(&self, writable: &[PathBuf]) -> Vec<LinkedPath> {
        let names_secret = |(name, value): &&(OsString, OsString)| {
            name.to_str().is_some_and(|name| names_secret_file(name, value))
        };
        let named = self.environment.iter().filter(names_secret);
        self.closable(named.map(|(_, value)| PathBuf::from(value)), writable)
    }

    /// Those of these absolute paths that are regular files and can be closed: not programs, and not
    /// in a folder of programs or a writable one.
    pub(super) fn closable(
        &self,
        paths: impl Iterator<Item = PathBuf>,
        writable: &[PathBuf],
    ) -> Vec<LinkedPath> {
        let is_open = |path: &LinkedPath| {
            is_in_any(path.real(), writable)
                || PROGRAM_FOLDERS.iter().any(|folder| path.real().starts_with(folder))
        };
        let is_program = |path: &LinkedPath| access(&path.written, AccessFlags::X_OK).is_ok();
        let files = paths.map(|path| self.linked(&path)).filter(|path| path.real().is_file());
        files.filter(|path| !is_open(path) && !is_program(path)).collect()
    }
}

/// The home folder of a user in the user database, first in the text of `/etc/passwd`.
fn user_home(uid: Uid, passwd: &[u8]) -> Option<PathBuf> {
    let listed = listed_homes(passwd).find(|(listed, _)| *listed == uid.as_raw());
    let listed = listed.map(|(_, home)| home);
    listed.or_else(|| User::from_uid(uid).ok().flatten().map(|user| user.dir))
}

/// The users in the text of `/etc/passwd`, each with the home folder.
fn listed_homes(passwd: &[u8]) -> impl Iterator<Item = (u32, PathBuf)> {
    passwd.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [_, _, number, _, _, home, _] = fields[..] else { return None };
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        Some((number, PathBuf::from(OsStr::from_bytes(home))))
    })
}

/// True if a path of the settings is accepted by the sandbox: it is not a pattern. A name with the
/// letters of a pattern is accepted if a file of that name exists.
pub fn is_sandbox_path(text: &str, cwd: &Path, home: Option<&Path>) -> bool {
    let bare = without_wildcard_end(text);
    let is_there = || fs::symlink_metadata(path_of_setting(bare, cwd, home)).is_ok();
    !bare.contains('\0') && !bare.is_empty() && (!bare.contains(['*', '?', '[']) || is_there())
}

fn path_of_setting(bare: &str, cwd: &Path, home: Option<&Path>) -> PathBuf {
    in_home(bare, home).unwrap_or_else(|| cwd.join(bare))
}

/// Strips `/**` and similar endings, which mean the whole folder.
fn without_wildcard_end(text: &str) -> &str {
    text.strip_suffix("/**").or_else(|| text.strip_suffix("/*")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_a_user_is_found_in_the_user_database() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/sh\nbroken:x:7\nme:x:1000:1000::/home/me:/bin/sh\n";
        let home = |uid| listed_homes(passwd).find(|(user, _)| *user == uid).map(|(_, home)| home);
        assert_eq!(home(0), Some(PathBuf::from("/root")));
        assert_eq!(home(1000), Some(PathBuf::from("/home/me")));
        assert_eq!([home(7), home(1)], [None, None]);
        let own = User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir);
        for passwd in [fs::read("/etc/passwd").expect("the system has users"), Vec::new()] {
            assert_eq!(user_home(Uid::current(), &passwd), own);
        }
        assert_eq!(user_home(Uid::from_raw(1000), passwd), Some(PathBuf::from("/home/me")));
    }

    /// Later steps of the job, which have secrets, obey the files of the runner.
    #[test]
    fn a_temporary_folder_with_the_files_of_a_ci_job_is_not_granted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("it is there");
        let is_granted = |environment: &[(OsString, OsString)]| {
            let context = SandboxContext::new(&top, None, &top, environment);
            let is_granted = context.temporary_folders().contains(&top.join("runner"));
            assert_eq!(context.is_temporary_folder_closed(), !is_granted);
            is_granted
        };
        let temporary = ("TMPDIR".into(), top.join("runner").into());
        assert!(is_granted(std::slice::from_ref(&temporary)));
        for (file, expected) in [("runner/_commands/env_1", false), ("runner_2/env_1", true)] {
            let file = ("GITHUB_ENV".into(), top.join(file).into());
            assert_eq!(is_granted(&[temporary.clone(), file]), expected);
        }
    }

    #[test]
    fn files_of_a_ci_job_in_folders_of_commands_are_listed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("it is there");
        let file = |name: &str| top.join(name);
        let named = [
            ("CIRRUS_ENV", "task"),
            ("DRONE_OUTPUT", "step"),
            ("ENVMAN_ENVSTORE_PATH", "store"),
            ("BASH_ENV", "env"),
            ("BUILDKITE_ENV_FILE", "job"),
        ];
        for (_, name) in named {
            fs::write(file(name), "").expect("a file");
        }
        let missing = [("GITHUB_ENV", "none")];
        let environment = named.iter().chain(&missing);
        let environment: Vec<_> =
            environment.map(|(name, path)| (name.into(), file(path).into())).collect();
        let context = SandboxContext::new(&top, None, &top, &environment);
        let expected = named.map(|(_, name)| name).map(|name| file(name).display().to_string());
        assert_eq!(context.open_step_files(std::slice::from_ref(&top)), expected);
        assert!(context.open_step_files(&[file("beside")]).is_empty());
    }

    #[test]
    fn no_cache_is_created_in_a_missing_home_and_none_of_go_without_go() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("it is there");
        let (home, bin) = (top.join("home"), top.join("bin"));
        fs::create_dir(&bin).expect("a folder");
        let environment = [("PATH".into(), bin.clone().into())];
        let created = || {
            let context = SandboxContext::new(&top, Some(&home), &top, &environment);
            let caches = [home.join(".npm"), home.join("go/pkg"), top.join("cache")];
            context.creatable(caches.to_vec()).as_slice().to_vec()
        };
        assert_eq!(created(), [top.join("cache")]);
        fs::create_dir(&home).expect("a folder");
        assert_eq!(created(), [top.join("cache"), home.join(".npm")]);
        fs::write(bin.join("go"), "").expect("a file");
        fs::set_permissions(bin.join("go"), fs::Permissions::from_mode(0o755)).expect("own file");
        assert_eq!(created(), [top.join("cache"), home.join(".npm"), home.join("go/pkg")]);
    }
}
