//! Which paths commands may touch. Looks at the file system.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use crate::process::{PathAccess, PathRule};

use super::super::paths::resolve;
use super::context::{SandboxContext, SandboxError};
use super::denied_paths::{DeniedPlaces, RuleDenial};
use super::exposure::Exposure;
use super::known_paths::{DEVICE_PREFIX, DEVICES, MEMORY};
use super::network::Egress;
use crate::types::SandboxMode;

/// The user's settings for the sandbox. Paths are absolute, relative to the home folder (`~/`), or
/// relative to the working directory.
#[derive(Clone, Debug, Default)]
pub struct SandboxSettings {
    pub mode: SandboxMode,
    /// Commands have no network.
    pub no_network: bool,
    /// Commands reach the hosts of its lists only.
    pub egress: Option<Egress>,
    pub allow_write: Vec<String>,
    pub deny_write: Vec<String>,
    pub allow_read: Vec<String>,
    pub deny_read: Vec<String>,
    /// The folder with outlast's settings, logins and sessions, which commands may not access.
    pub config_dir: Option<PathBuf>,
}

/// What a policy is made from.
pub(super) struct PolicyInputs<'a> {
    pub(super) settings: &'a SandboxSettings,
    pub(super) around: &'a SandboxContext<'a>,
}

/// The paths of a run's sandbox. All are real.
#[derive(Debug, Default)]
pub(super) struct SandboxPolicy {
    /// Where the run works and what else the user allowed.
    working_tree: Vec<PathBuf>,
    /// Everything that may be written to.
    roots: Vec<PathBuf>,
    secrets: DeniedPlaces,
    /// What the user denied, so that it is never passed over in silence.
    denied_by_user: Vec<PathBuf>,
    /// Permission rules that the kernel does not enforce.
    rules_not_held: Vec<String>,
    /// Folders of caches that are made if they are missing: the kernel grants no other, and a tool
    /// that cannot create its cache fails.
    tool_caches: Vec<PathBuf>,
    own_temp: Option<PathBuf>,
}

impl SandboxPolicy {
    /// Reads links and the shape of the repository; changes nothing.
    ///
    /// # Errors
    /// A path in the settings that cannot be used.
    pub(super) fn new(inputs: &PolicyInputs<'_>) -> Result<Self, SandboxError> {
        let PolicyInputs { settings, around } = *inputs;
        let listed = |paths: &[String]| {
            paths
                .iter()
                .map(|path| around.resolve_setting_path(path))
                .collect::<Result<Vec<_>, _>>()
        };
        let (allow_write, mut deny_write) =
            (listed(&settings.allow_write)?, listed(&settings.deny_write)?);
        let (allow_read, mut deny_read) =
            (listed(&settings.allow_read)?, listed(&settings.deny_read)?);
        let kept: Vec<&RuleDenial> = around.rules.iter().filter(|it| around.can_hold(it)).collect();
        for rule in &kept {
            let list = if rule.changes_only { &mut deny_write } else { &mut deny_read };
            list.push(resolve(&rule.place));
        }
        let read_only = settings.mode == SandboxMode::ReadOnly;
        let scratch = resolve(around.scratch);
        let mut tree = around.tree();
        let temporary = around.temporary_folders();
        let mut policy =
            Self { denied_by_user: [&deny_read[..], &deny_write].concat(), ..Self::default() };
        if read_only {
            let holds_tree = |temp: &&PathBuf| !tree.iter().any(|part| part.starts_with(temp));
            policy.roots = temporary.iter().filter(holds_tree).cloned().collect();
            let lost = policy.roots.len() < temporary.len();
            policy.own_temp = lost.then(|| scratch.join("tmp"));
        } else {
            tree.extend(allow_write.iter().cloned());
            let is_open = |place: &PathBuf| {
                let mut denied = deny_read.iter().chain(&deny_write);
                !denied.any(|denied| place.starts_with(denied))
            };
            let caches: Vec<PathBuf> = around.caches().into_iter().filter(is_open).collect();
            policy.roots = [&tree[..], &caches, &temporary].concat();
            policy.roots.extend(around.cache_locks().filter(is_open));
            policy.tool_caches = caches.into_iter().filter(|it| around.may_make(it)).collect();
        }
        policy.roots.retain(|root| !deny_write.iter().any(|denied| root.starts_with(denied)));
        policy.roots.push(scratch.clone());
        policy.roots.sort_unstable();
        policy.roots.dedup();
        let mut denied = around.credentials(settings.config_dir.as_deref());
        denied.retain(|place| !allow_read.iter().any(|allowed| place.starts_with(allowed)));
        denied.extend(deny_read);
        let mut allowed = [allow_read, around.tree(), vec![scratch]].concat();
        allowed.extend(allow_write);
        allowed.retain(|place| denied.iter().any(|denied| place.starts_with(denied)));
        policy.secrets = DeniedPlaces { denied, allowed, write_protected: deny_write, read_only };
        policy.working_tree = tree;
        policy.rules_not_held = policy.not_held(&around.rules, &kept);
        Ok(policy)
    }

    pub(super) fn secrets(&self) -> &DeniedPlaces {
        &self.secrets
    }

    /// Everything that commands may write to.
    pub(super) fn writable(&self) -> &[PathBuf] {
        &self.roots
    }

    pub(super) fn own_temp(&self) -> Option<&Path> {
        self.own_temp.as_deref()
    }

    /// What should be denied and is not, for it is there and in a folder that is written to.
    fn exposed(&self) -> Vec<PathBuf> {
        let within = |place: &&PathBuf| self.roots.iter().any(|root| place.starts_with(root));
        let there = |place: &&PathBuf| fs::symlink_metadata(place).is_ok();
        let read = self.secrets.denied.iter().filter(|place| self.secrets.hides(place));
        let mut exposed: Vec<PathBuf> = read
            .chain(&self.secrets.write_protected)
            .filter(within)
            .filter(there)
            .cloned()
            .collect();
        exposed.sort_unstable();
        exposed.dedup();
        exposed
    }

    /// What commands should not access and can.
    pub(super) fn exposure(&self) -> Exposure {
        let (paths, rules) = (self.exposed(), self.rules_not_held.clone());
        Exposure { paths, rules, sockets: Vec::new() }
    }

    fn not_held(&self, rules: &[RuleDenial], kept: &[&RuleDenial]) -> Vec<String> {
        let open = |rule: &&RuleDenial| {
            let place = resolve(&rule.place);
            let is_kept = kept.iter().any(|kept| kept.rule == rule.rule);
            let mut roots = self.roots.iter();
            match (rule.changes_only, is_kept) {
                (true, true) => false,
                (true, false) => {
                    roots.any(|root| place.starts_with(root) || root.starts_with(&place))
                }
                (false, true) => roots.any(|root| root.starts_with(&place) && *root != place),
                (false, false) => {
                    !self.secrets.denied.iter().any(|denied| place.starts_with(denied))
                }
            }
        };
        rules.iter().filter(open).map(|rule| rule.rule.clone()).collect()
    }

    /// Whether that is worth a word: not when it merely lies among passing things.
    pub(super) fn exposes_in_tree(&self) -> bool {
        !self.rules_not_held.is_empty()
            || self.exposed().iter().any(|place| {
                self.denied_by_user.contains(place)
                    || self.working_tree.iter().any(|root| place.starts_with(root))
            })
    }

    /// Everything that is granted, as the file system is now.
    pub(super) fn grants(&self) -> Vec<PathRule> {
        let mut grants = vec![PathRule::new("/", PathAccess::List)];
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
        grant_siblings(Path::new("/"), &denied, &mut grants);
        for allowed in &self.secrets.allowed {
            let deeper: Vec<PathBuf> =
                denied.iter().filter(|place| *place != allowed).cloned().collect();
            let within: Vec<PathBuf> =
                deeper.into_iter().filter(|place| place.starts_with(allowed)).collect();
            grant_siblings(allowed, &within, &mut grants);
        }
        grants.extend(device_grants());
        grants.extend(self.roots.iter().map(|root| PathRule::new(root, PathAccess::Change)));
        grants
    }

    /// The same for a command that only reads: nothing may be written, temporary files included.
    pub(super) fn reading_grants(&self) -> Vec<PathRule> {
        let mut grants = self.grants();
        for grant in &mut grants {
            match grant.access {
                PathAccess::Change => grant.access = PathAccess::Read,
                PathAccess::List | PathAccess::Read | PathAccess::Use | PathAccess::Write => {}
            }
        }
        grants
    }

    /// Makes the folders of caches, and the temporary folder. What cannot be made is done without.
    pub(super) fn make_caches(&self) {
        for folder in self.tool_caches.iter().filter(|folder| fs::symlink_metadata(folder).is_err())
        {
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
            self.working_tree.iter().map(|folder| folder.display().to_string()).collect();
        names.dedup();
        format!("{}, temporary folders (/tmp) and tool caches", names.join(", "))
    }
}

/// Everything may be read and nothing written, for a command that only reads where the sandbox is
/// off.
pub(super) fn grants_to_read_all() -> Vec<PathRule> {
    let all = [PathAccess::List, PathAccess::Read].map(|access| PathRule::new("/", access));
    all.into_iter().chain(device_grants()).collect()
}

/// Grants the content of `folder` without the denied places in it, by granting what is beside
/// them. What comes to be there later is not granted before the next command.
fn grant_siblings(folder: &Path, denied: &[PathBuf], grants: &mut Vec<PathRule>) {
    let within: Vec<PathBuf> =
        denied.iter().filter(|place| place.starts_with(folder)).cloned().collect();
    if within.is_empty() {
        grants.push(PathRule::new(folder, PathAccess::Read));
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
    ways.sort_unstable();
    ways.dedup();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // What a link leads to is granted where it is, if it is. A disk holds every file.
        let Ok(kind) = entry.file_type() else { continue };
        if !kind.is_symlink() && !kind.is_block_device() && !ways.contains(&path) {
            grants.push(PathRule::new(path, PathAccess::Read));
        }
    }
    for way in ways.iter().filter(|way| way.is_dir()) {
        grant_siblings(way, &within, grants);
    }
}

fn device_grants() -> impl Iterator<Item = PathRule> {
    let further = fs::read_dir("/dev").into_iter().flatten().flatten();
    let further = further
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(DEVICE_PREFIX.as_bytes()))
        .map(|entry| entry.path());
    let known = DEVICES.iter().map(PathBuf::from);
    known.chain(further).map(|path| PathRule::new(path, PathAccess::Use))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use tempfile::TempDir;

    use super::super::known_paths::TEMPORARY;
    use super::*;

    /// A home, a repository and a folder beside it. All of them are among temporary things, so
    /// the policy is given a temporary folder of its own.
    struct Ground {
        folder: TempDir,
        environment: Vec<(OsString, OsString)>,
    }

    impl Ground {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a temporary folder");
            for name in ["home/.ssh", "home/.cache", "repo/.git", "repo/part", "beside", "config"] {
                fs::create_dir_all(folder.path().join(name)).expect("a folder");
            }
            fs::write(folder.path().join("home/.netrc"), "x").expect("a file");
            Self { folder, environment: Vec::new() }
        }

        fn at(&self, name: &str) -> PathBuf {
            resolve(self.folder.path()).join(name)
        }

        fn policy(&self, settings: SandboxSettings) -> Result<SandboxPolicy, SandboxError> {
            let settings = SandboxSettings { config_dir: Some(self.at("config")), ..settings };
            let around = SandboxContext {
                cwd: &self.at("repo/part"),
                home: Some(&self.at("home")),
                folders: &[],
                scratch: &self.at("config/scratch"),
                environment: &self.environment,
                rules: Vec::new(),
            };
            SandboxPolicy::new(&PolicyInputs { settings: &settings, around: &around })
        }

        fn made(&self, settings: SandboxSettings) -> SandboxPolicy {
            self.policy(settings).expect("good settings")
        }
    }

    fn list(paths: &[&str]) -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policy_grants_writing_to_checkout_caches_and_scratch_only() {
        let ground = Ground::new();
        let roots = ground.made(SandboxSettings::default()).roots;
        for name in ["repo", "home/.cache", "config/scratch", "home/.npm"] {
            assert!(roots.contains(&ground.at(name)), "{name}: {roots:?}");
        }
        for name in ["beside", "home", "config", "home/.ssh"] {
            assert!(!roots.contains(&ground.at(name)), "{name}: {roots:?}");
        }
    }

    #[test]
    fn missing_caches_are_made_but_not_where_they_are_denied_or_moved() {
        let mut ground = Ground::new();
        let moved = ground.at("data");
        ground.environment.push(("XDG_DATA_HOME".into(), moved.clone().into()));
        let policy = ground.made(SandboxSettings {
            deny_read: list(&["~/.gradle"]),
            deny_write: list(&["~/.m2"]),
            ..SandboxSettings::default()
        });
        policy.make_caches();
        for name in ["home/.npm", "home/.nuget/packages", "home/.cargo/registry", "data/uv"] {
            assert!(ground.at(name).is_dir() && policy.roots.contains(&ground.at(name)), "{name}");
        }
        for name in ["home/.gradle", "home/.m2", "home/.local/share", "home/.cargo/.package-cache"]
        {
            assert!(!ground.at(name).exists(), "{name}");
        }
        assert!(!policy.roots.iter().any(|root| root.starts_with(ground.at("home/.gradle"))));
        let read_only = SandboxSettings { mode: SandboxMode::ReadOnly, ..Default::default() };
        let fresh = Ground::new();
        fresh.made(read_only).make_caches();
        assert!(!fresh.at("home/.npm").exists());
    }

    #[test]
    fn read_only_policy_grants_writing_to_temporary_folders_only() {
        let ground = Ground::new();
        let mode = SandboxMode::ReadOnly;
        let policy = ground.made(SandboxSettings { mode, ..SandboxSettings::default() });
        assert!(!policy.roots.contains(&ground.at("repo")));
        assert!(policy.roots.contains(&ground.at("config/scratch")));
        assert!(policy.secrets().write_denial(&ground.at("repo/x")).is_some());
        // A checkout among temporary things takes these away from commands.
        let holds = |temp: &&str| ground.at("repo").starts_with(resolve(Path::new(temp)));
        assert_eq!(policy.own_temp().is_some(), TEMPORARY.iter().any(holds));
    }

    #[test]
    fn deny_write_overrides_allow_write() {
        let ground = Ground::new();
        let beside = ground.at("beside").display().to_string();
        let settings = SandboxSettings {
            allow_write: vec![beside.clone()],
            deny_write: vec![beside],
            ..SandboxSettings::default()
        };
        let policy = ground.made(settings);
        assert!(!policy.roots.contains(&ground.at("beside")));
        assert!(policy.secrets().write_denial(&ground.at("beside/x")).is_some());
    }

    #[test]
    fn credentials_are_hidden_until_they_are_allowed_and_the_deeper_path_decides() {
        let ground = Ground::new();
        let hides = |settings: SandboxSettings, name: &str| {
            ground.made(settings).secrets().hides(&ground.at(name))
        };
        let none = SandboxSettings::default;
        for name in ["home/.ssh/id", "home/.netrc", "config/x", "home/.config/gh/hosts.yml"] {
            assert!(hides(none(), name), "{name}");
        }
        for name in ["home/notes", "repo/x", "config/scratch/x"] {
            assert!(!hides(none(), name), "{name}");
        }
        let allowed = || SandboxSettings { allow_read: list(&["~/.ssh"]), ..none() };
        assert!(!hides(allowed(), "home/.ssh/id"));
        let deeper = SandboxSettings { deny_read: list(&["~/.ssh/id"]), ..allowed() };
        assert!(hides(deeper.clone(), "home/.ssh/id"));
        assert!(!hides(deeper, "home/.ssh/known_hosts"));
    }

    #[test]
    fn read_grants_exclude_denied_paths() {
        let ground = Ground::new();
        let mut grants = Vec::new();
        let denied = [ground.at("home/.ssh"), ground.at("home/.netrc")];
        grant_siblings(&ground.at("home"), &denied, &mut grants);
        assert_eq!(grants, [PathRule::new(ground.at("home/.cache"), PathAccess::Read)]);
        grants.clear();
        grant_siblings(&ground.at("beside"), &denied, &mut grants);
        assert_eq!(grants, [PathRule::new(ground.at("beside"), PathAccess::Read)]);
    }

    #[test]
    fn policy_rejects_patterns_and_a_missing_home_folder() {
        let ground = Ground::new();
        for path in ["~/*.txt", "", "a[b]", "x?"] {
            let settings =
                SandboxSettings { deny_read: list(&[path]), ..SandboxSettings::default() };
            assert!(ground.policy(settings).is_err(), "{path:?}");
        }
        let whole = SandboxSettings { deny_read: list(&["~/x/**"]), ..SandboxSettings::default() };
        assert!(ground.made(whole).secrets().hides(&ground.at("home/x/y")));
        let around = SandboxContext {
            cwd: &ground.at("repo"),
            home: None,
            folders: &[],
            scratch: &ground.at("config/scratch"),
            environment: &[],
            rules: Vec::new(),
        };
        let settings = SandboxSettings { deny_read: list(&["~/x"]), ..SandboxSettings::default() };
        let refused = SandboxPolicy::new(&PolicyInputs { settings: &settings, around: &around });
        assert!(refused.is_err_and(|why| why == SandboxError::NoHome("~/x".to_owned())));
    }

    #[test]
    fn a_writable_folder_is_granted_whole_without_listing_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["keys", "one", "two"] {
            fs::write(root.join(name), "").unwrap();
        }
        let secrets = DeniedPlaces { denied: vec![root.join("keys")], ..DeniedPlaces::default() };
        let policy =
            SandboxPolicy { roots: vec![root.clone()], secrets, ..SandboxPolicy::default() };
        let grants = policy.grants();
        assert!(grants.contains(&PathRule::new(&root, PathAccess::Change)));
        assert!(grants.iter().all(|grant| grant.path.parent() != Some(root.as_path())));
        // The same folder, merely read, is granted but for the key.
        let policy = SandboxPolicy { roots: Vec::new(), ..policy };
        let grants = policy.grants();
        assert!(grants.contains(&PathRule::new(root.join("one"), PathAccess::Read)));
        assert!(
            grants.iter().all(|grant| !root.join("keys").starts_with(&grant.path)
                || grant.access == PathAccess::List)
        );
    }
}
