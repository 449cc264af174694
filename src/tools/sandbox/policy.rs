//! Which paths commands may touch. Looks at the file system.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, Uid, User, access};

use crate::process::{Access, Grant};

use super::super::places::resolve;
use super::known::{
    CACHE_VARIABLES, CACHES, CONFIG_CREDENTIALS, CREDENTIALS, DEVICE_PREFIX, DEVICES, MEMORY,
    SYSTEM_CREDENTIALS, TEMPORARY,
};
use super::repository;
use super::secrets::Secrets;
use super::{SandboxMode, SandboxSettings, Surroundings};

/// What a policy is made from.
pub(super) struct Inputs<'a> {
    pub(super) settings: &'a SandboxSettings,
    pub(super) around: &'a Surroundings<'a>,
}

/// The paths of a run's sandbox. All are real.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Where the run works and what else the user allowed.
    tree: Vec<PathBuf>,
    /// Everything that may be written to.
    roots: Vec<PathBuf>,
    secrets: Secrets,
    /// What the user denied, so that it is never passed over in silence.
    denied_by_user: Vec<PathBuf>,
    /// Caches of installed tools. Made if they are missing.
    wanted: Vec<PathBuf>,
    own_temp: Option<PathBuf>,
}

impl Policy {
    /// Reads links and the shape of the repository; changes nothing.
    ///
    /// # Errors
    /// A path in the settings that cannot be used.
    pub(super) fn new(inputs: &Inputs<'_>) -> Result<Self, String> {
        let Inputs { settings, around } = *inputs;
        let listed = |paths: &[String]| {
            paths.iter().map(|path| around.place(path)).collect::<Result<Vec<_>, _>>()
        };
        let (allow_write, deny_write) =
            (listed(&settings.allow_write)?, listed(&settings.deny_write)?);
        let (allow_read, deny_read) = (listed(&settings.allow_read)?, listed(&settings.deny_read)?);
        let read_only = settings.mode == SandboxMode::ReadOnly;
        let scratch = resolve(around.scratch);
        let mut tree = around.tree();
        let temporary = around.temporary();
        let mut policy =
            Self { denied_by_user: [&deny_read[..], &deny_write].concat(), ..Self::default() };
        if read_only {
            let holds_tree = |temp: &&PathBuf| !tree.iter().any(|part| part.starts_with(temp));
            policy.roots = temporary.iter().filter(holds_tree).cloned().collect();
            let lost = policy.roots.len() < temporary.len();
            policy.own_temp = lost.then(|| scratch.join("tmp"));
        } else {
            tree.extend(allow_write.iter().cloned());
            policy.wanted = around.wanted_caches();
            policy.roots = [&tree[..], &around.caches(), &policy.wanted, &temporary].concat();
        }
        policy.roots.retain(|root| !deny_write.iter().any(|denied| root.starts_with(denied)));
        policy.roots.push(scratch.clone());
        policy.roots.sort();
        policy.roots.dedup();
        let mut denied = around.credentials(settings.config_dir.as_deref());
        denied.retain(|place| !allow_read.iter().any(|allowed| place.starts_with(allowed)));
        denied.extend(deny_read);
        let mut allowed = [allow_read, around.tree(), vec![scratch]].concat();
        allowed.extend(allow_write);
        allowed.retain(|place| denied.iter().any(|denied| place.starts_with(denied)));
        policy.secrets = Secrets { denied, allowed, kept: deny_write, read_only };
        policy.tree = tree;
        Ok(policy)
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    pub(super) fn own_temp(&self) -> Option<&Path> {
        self.own_temp.as_deref()
    }

    /// What should be denied and is not, for it is there and in a folder that is written to.
    pub(super) fn exposed(&self) -> Vec<PathBuf> {
        let within = |place: &&PathBuf| self.roots.iter().any(|root| place.starts_with(root));
        let there = |place: &&PathBuf| fs::symlink_metadata(place).is_ok();
        let read = self.secrets.denied.iter().filter(|place| self.secrets.hides(place));
        let mut exposed: Vec<PathBuf> =
            read.chain(&self.secrets.kept).filter(within).filter(there).cloned().collect();
        exposed.sort();
        exposed.dedup();
        exposed
    }

    /// Whether that is worth a word: not when it merely lies among passing things.
    pub(super) fn exposes_in_tree(&self) -> bool {
        self.exposed().iter().any(|place| {
            self.denied_by_user.contains(place)
                || self.tree.iter().any(|root| place.starts_with(root))
        })
    }

    /// Everything that is granted, as the file system is now.
    pub(super) fn grants(&self) -> Vec<Grant> {
        let mut grants = vec![Grant::new("/", Access::List)];
        let mut denied: Vec<PathBuf> = self
            .secrets
            .denied
            .iter()
            .filter(|place| fs::symlink_metadata(place).is_ok())
            .map(|place| resolve(place))
            .collect();
        denied.extend(MEMORY.iter().map(PathBuf::from));
        // Below what is granted whole nothing can be taken out, nor need anything be granted.
        denied.retain(|place| !self.roots.iter().any(|root| place.starts_with(root)));
        read(Path::new("/"), &denied, &mut grants);
        for allowed in &self.secrets.allowed {
            let deeper: Vec<PathBuf> =
                denied.iter().filter(|place| *place != allowed).cloned().collect();
            let within: Vec<PathBuf> =
                deeper.into_iter().filter(|place| place.starts_with(allowed)).collect();
            read(allowed, &within, &mut grants);
        }
        grants.extend(devices());
        grants.extend(self.roots.iter().map(|root| Grant::new(root, Access::Change)));
        grants
    }

    /// Makes the caches of installed tools, and the temporary folder. What cannot be made is done
    /// without.
    pub(super) fn make_caches(&self) {
        for folder in self.wanted.iter().filter(|folder| fs::symlink_metadata(folder).is_err()) {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
        }
        if let Some(folder) = &self.own_temp {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
    }

    /// Where commands may write, in a few words.
    pub(super) fn summary(&self) -> String {
        if self.secrets.read_only {
            return match &self.own_temp {
                Some(folder) => format!("the temporary folder ({})", folder.display()),
                None => "temporary folders (/tmp)".to_string(),
            };
        }
        let mut names: Vec<String> =
            self.tree.iter().map(|folder| folder.display().to_string()).collect();
        names.dedup();
        format!("{}, temporary folders (/tmp) and tool caches", names.join(", "))
    }
}

/// Grants the content of `folder` without the denied places in it, by granting what is beside
/// them. What comes to be there later is not granted before the next command.
fn read(folder: &Path, denied: &[PathBuf], grants: &mut Vec<Grant>) {
    let within: Vec<PathBuf> =
        denied.iter().filter(|place| place.starts_with(folder)).cloned().collect();
    if within.is_empty() {
        grants.push(Grant::new(folder, Access::Read));
        return;
    }
    if within.iter().any(|place| place == folder) {
        return;
    }
    // A folder may be closed to lists and yet open to those who know the way.
    let mut ways: Vec<PathBuf> = within
        .iter()
        .filter_map(|place| place.strip_prefix(folder).ok()?.iter().next())
        .map(|name| folder.join(name))
        .collect();
    ways.sort();
    ways.dedup();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // What a link leads to is granted where it is, if it is. A disk holds every file.
        let Ok(kind) = entry.file_type() else { continue };
        if !kind.is_symlink() && !kind.is_block_device() && !ways.contains(&path) {
            grants.push(Grant::new(path, Access::Read));
        }
    }
    for way in ways.iter().filter(|way| way.is_dir()) {
        read(way, &within, grants);
    }
}

fn devices() -> impl Iterator<Item = Grant> {
    let further = fs::read_dir("/dev").into_iter().flatten().flatten();
    let further = further
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(DEVICE_PREFIX.as_bytes()))
        .map(|entry| entry.path());
    let known = DEVICES.iter().map(PathBuf::from);
    known.chain(further).map(|path| Grant::new(path, Access::Use))
}

impl Surroundings<'_> {
    fn variable(&self, wanted: &str) -> Option<&OsStr> {
        let found = self.environment.iter().rev().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_os_str())
    }

    /// A folder that a variable names, unless that is next to everything.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        let path = resolve(Path::new(self.variable(name).filter(|_| self.is_absolute(name))?));
        let whole = self.home.is_some_and(|home| resolve(home).starts_with(&path));
        (!whole && path.parent().is_some()).then_some(path)
    }

    fn is_absolute(&self, name: &str) -> bool {
        self.variable(name).is_some_and(|value| Path::new(value).is_absolute())
    }

    fn at_home(&self, name: &str) -> Option<PathBuf> {
        self.home.map(|home| resolve(&home.join(name)))
    }

    /// Reads a path of the settings.
    fn place(&self, text: &str) -> Result<PathBuf, String> {
        let bare = text.strip_suffix("/**").or_else(|| text.strip_suffix("/*")).unwrap_or(text);
        if bare.contains(['*', '?', '[', '\0']) || bare.is_empty() {
            return Err(format!(
                "sandbox.filesystem: {text:?} is a pattern; the sandbox takes folders and files"
            ));
        }
        let path = match (bare.strip_prefix('~'), self.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            (Some(rest), None) if rest.is_empty() || rest.starts_with('/') => {
                return Err(format!("sandbox.filesystem: {text:?}: there is no home folder"));
            }
            (_, _) => self.cwd.join(bare),
        };
        Ok(resolve(&path))
    }

    /// Where the run works: its folders, the repository around it, and where its data is.
    fn tree(&self) -> Vec<PathBuf> {
        let cwd = resolve(self.cwd);
        let home = self.home.map(resolve);
        let mut tree = vec![];
        if let Some(found) = repository::find(&cwd, home.as_deref()) {
            tree.push(found.top);
            tree.extend(found.data);
        }
        if !tree.iter().any(|folder| cwd.starts_with(folder)) {
            tree.insert(0, cwd);
        }
        for folder in self.folders.iter().map(|folder| resolve(folder)) {
            if !tree.iter().any(|there| folder.starts_with(there)) {
                tree.push(folder);
            }
        }
        tree
    }

    fn temporary(&self) -> Vec<PathBuf> {
        let usual = TEMPORARY.iter().map(|path| resolve(Path::new(path)));
        let mut all: Vec<PathBuf> = self.folder("TMPDIR").into_iter().chain(usual).collect();
        all.sort();
        all.dedup();
        all
    }

    fn cargo_home(&self) -> Option<PathBuf> {
        self.folder("CARGO_HOME").or_else(|| self.at_home(".cargo"))
    }

    /// Caches, there or not.
    fn caches(&self) -> Vec<PathBuf> {
        let mut caches: Vec<PathBuf> =
            CACHE_VARIABLES.iter().filter_map(|name| self.folder(name)).collect();
        caches.extend(CACHES.iter().filter_map(|name| self.at_home(name)));
        caches.extend(self.folder("XDG_CACHE_HOME").or_else(|| self.at_home(".cache")));
        let cargo = ["registry", "git", ".package-cache", ".package-cache-mutate"];
        let cargo_home = self.cargo_home();
        caches.extend(cargo_home.iter().flat_map(|home| cargo.map(|name| home.join(name))));
        let go = self.folder("GOPATH").or_else(|| self.at_home("go"));
        caches.extend(go.map(|go| go.join("pkg")));
        caches
    }

    /// Caches without which an installed tool does nothing.
    fn wanted_caches(&self) -> Vec<PathBuf> {
        let path = self.variable("PATH");
        let installed = |program: &str| which::which_in(program, path, self.cwd).is_ok();
        let is_home = self.home.is_some_and(Path::is_dir);
        let mut wanted = Vec::new();
        if !is_home {
            return wanted;
        }
        wanted.extend(self.folder("XDG_CACHE_HOME").or_else(|| self.at_home(".cache")));
        if let Some(cargo) = self.cargo_home().filter(|_| installed("cargo")) {
            wanted.extend([cargo.join("registry"), cargo.join("git")]);
        }
        wanted.extend(self.at_home(".npm").filter(|_| installed("npm")));
        wanted.extend(self.at_home("go/pkg").filter(|_| installed("go")));
        wanted
    }

    /// Where credentials may lie, there or not: as written, and where that leads.
    fn credentials(&self, config_dir: Option<&Path>) -> Vec<PathBuf> {
        // Some programs ask the system for the home folder, whatever the variable says.
        let system = User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir);
        let homes = self.home.map(Path::to_path_buf).into_iter().chain(system);
        let mut places = Vec::new();
        for home in homes.filter(|home| home.is_absolute()) {
            places.extend(CREDENTIALS.iter().map(|name| home.join(name)));
            let config = self.folder("XDG_CONFIG_HOME");
            for config in config.into_iter().chain([home.join(".config")]) {
                places.extend(CONFIG_CREDENTIALS.iter().map(|name| config.join(name)));
            }
        }
        // The rest is spared a long list when the system denies it anyway.
        let readable = |path: &&&str| access(**path, AccessFlags::R_OK).is_ok();
        places.extend(SYSTEM_CREDENTIALS.iter().filter(readable).map(PathBuf::from));
        places.extend(config_dir.map(|folder| self.cwd.join(folder)));
        places.extend(places.iter().map(|place| resolve(place)).collect::<Vec<_>>());
        places.sort();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_written_to_is_granted_whole_and_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["keys", "one", "two"] {
            fs::write(root.join(name), "").unwrap();
        }
        let secrets = Secrets { denied: vec![root.join("keys")], ..Secrets::default() };
        let policy = Policy { roots: vec![root.clone()], secrets, ..Policy::default() };
        let grants = policy.grants();
        assert!(grants.contains(&Grant::new(&root, Access::Change)));
        assert!(grants.iter().all(|grant| grant.path.parent() != Some(root.as_path())));
        // The same folder, merely read, is granted but for the key.
        let policy = Policy { roots: Vec::new(), ..policy };
        let grants = policy.grants();
        assert!(grants.contains(&Grant::new(root.join("one"), Access::Read)));
        assert!(grants.iter().all(
            |grant| !root.join("keys").starts_with(&grant.path) || grant.access == Access::List
        ));
    }
}
