//! Decides the paths that commands may access. Reads the file system.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use nix::unistd::geteuid;
use parking_lot::Mutex;

use crate::process::{CallFilter, PathAccess, PathRule, RootCapabilities};
use crate::types::SandboxMode;

use super::super::credentials::CredentialSet;
use super::super::paths::{FolderSet, PathSet};
use super::context::{SandboxContext, SandboxError};
use super::denied_paths::{DeniedPaths, DeniedPlaces, RuleDenial, is_in_any};
use super::exposure::{Exposure, OPEN_ARGUMENTS, OPEN_SHARED_MEMORY, OPEN_SHARED_OBJECTS};
use super::known_paths::{CACHES_BESIDE_CREDENTIALS, DEVICE_FOLDER, MESSAGE_QUEUES, SHARED_MEMORY};
use super::logins::{FoundLogins, LoginPlaces};
use super::mounts;
use super::path_grants::{DeniedTree, FolderListings, LastGrants, TerminalAccess};
use super::settings::{ListedPaths, SandboxSettings};

const APT_CONFIG: &[u8] = b"APT::Sandbox::User \"root\";\n";

/// The paths of a run's sandbox. All are real.
#[derive(Debug, Default)]
pub(super) struct SandboxPolicy {
    /// The working folders of the run, and others that the user allowed.
    working_tree: Vec<PathBuf>,
    /// All writable paths: first the caches that are granted in parts if they contain a credential,
    /// since programs have folders of their own there.
    roots: Vec<PathBuf>,
    /// The number of these caches.
    split_roots: usize,
    pub(super) secrets: Arc<DeniedPlaces>,
    /// The real paths of denied places, without the entries of folders in `found_logins`.
    denied: Vec<PathBuf>,
    /// See [`SandboxPolicy::closed`].
    closed: OnceLock<DeniedTree>,
    /// A denied folder that the run creates if it does not exist.
    created_by_run: Option<PathBuf>,
    /// Paths that the user denied: their exposure always causes a warning.
    denied_by_user: Vec<PathBuf>,
    /// The paths among them that the user denied even to read.
    denied_reads: Vec<PathBuf>,
    /// Permission rules that the kernel does not enforce.
    unenforced_rules: Vec<String>,
    /// Cache folders that are created if they are missing: the kernel grants only existing ones,
    /// and a tool that cannot create its cache fails.
    tool_caches: PathSet,
    /// The temporary folder of commands, if they cannot use the default one.
    pub(super) own_temp: Option<PathBuf>,
    found_logins: FoundLogins,
    /// See [`SandboxPolicy::logins`].
    logins: OnceLock<Vec<LoginPlaces>>,
    /// A configuration of apt for commands of root that cannot change users: by default, apt
    /// downloads as another user.
    pub(super) apt_config: Option<PathBuf>,
    terminals: TerminalAccess,
    last: Mutex<LastGrants>,
}

impl SandboxPolicy {
    /// Creates the policy. Reads links and the layout of the repository; changes nothing.
    ///
    /// # Errors
    /// A path in the settings that cannot be used.
    pub(super) fn new(
        settings: &SandboxSettings,
        context: &SandboxContext<'_>,
    ) -> Result<Self, SandboxError> {
        let can_enforce = |rule: &&RuleDenial| context.can_enforce(rule);
        let enforced: Vec<&RuleDenial> = context.rules.iter().filter(can_enforce).collect();
        let listed = ListedPaths::resolve(settings, context, &enforced)?;
        let mut policy = Self {
            denied_by_user: [&listed.deny_read[..], &listed.deny_write].concat(),
            denied_reads: listed.deny_read.clone(),
            ..Self::default()
        };
        policy.find_roots(settings.mode, context, &listed);
        // Without a sandbox, no path is closed.
        if settings.mode == SandboxMode::Off {
            return Ok(policy);
        }
        policy.move_split_roots_first();
        policy.deny(settings, context, listed);
        policy.terminals = settings.terminals;
        let is_limited = settings.capabilities == RootCapabilities::Files;
        let is_root = geteuid().is_root() && context.variable("APT_CONFIG").is_none();
        let apt_config = || context.real(context.scratch).join("apt.conf");
        policy.apt_config = (is_root && is_limited).then(apt_config);
        policy.unenforced_rules = policy.find_unenforced_rules(context, &enforced);
        Ok(policy)
    }

    /// Finds the working folders and all writable paths.
    fn find_roots(
        &mut self,
        mode: SandboxMode,
        context: &SandboxContext<'_>,
        listed: &ListedPaths,
    ) {
        let (scratch, temporary) = (context.real(context.scratch), context.temporary_folders());
        self.working_tree = context.tree().to_vec();
        if mode.is_read_only() {
            let has_tree =
                |folder: &Path| self.working_tree.iter().any(|working| working.starts_with(folder));
            self.roots = temporary.iter().filter(|folder| !has_tree(folder)).cloned().collect();
        } else {
            self.working_tree.extend(listed.allow_write.iter().cloned());
            let is_open = |path: &PathBuf| !is_in_any(path, &self.denied_by_user);
            let caches: Vec<PathBuf> = context.caches().into_iter().filter(is_open).collect();
            self.roots = [&self.working_tree[..], &caches, &temporary].concat();
            self.roots.extend(context.cache_locks().into_iter().filter(is_open));
            if mode != SandboxMode::Off {
                self.tool_caches = context.creatable(caches);
            }
        }
        let needs_own_temp = context.is_temporary_folder_closed()
            || !temporary.iter().all(|folder| self.roots.contains(folder));
        self.own_temp = needs_own_temp.then(|| scratch.join("tmp"));
        let is_closed = |root: &PathBuf| {
            // The system calls that create queues are closed to commands that only read.
            mode.is_read_only() && root == Path::new(MESSAGE_QUEUES)
                || is_in_any(root, &listed.deny_write)
        };
        self.roots.retain(|root| !is_closed(root));
        self.roots.push(scratch);
        self.roots = self.roots.drain(..).collect::<PathSet>().into_vec();
    }

    fn move_split_roots_first(&mut self) {
        let is_split = |root: &PathBuf| {
            self.tool_caches.contains(root) && !is_in_any(root, &self.working_tree)
        };
        let (split, whole) = self.roots.drain(..).partition::<Vec<_>, _>(is_split);
        (self.split_roots, self.roots) = (split.len(), [split, whole].concat());
    }

    /// Finds the denied paths, and the exceptions within them.
    fn deny(
        &mut self,
        settings: &SandboxSettings,
        context: &SandboxContext<'_>,
        listed: ListedPaths,
    ) {
        let config_dir = settings.config_dir.as_ref();
        let config_dir = config_dir.map(|folder| context.linked(&context.cwd.join(folder)));
        let created = config_dir.as_ref().filter(|_| settings.makes_config_dir);
        self.created_by_run = created.map(|folder| folder.real().to_owned());
        self.found_logins = FoundLogins::find(context, &self.roots);
        let ListedPaths { allow_write, deny_write, allow_read, deny_read } = listed;
        let logins = self.found_logins.listed().chain(config_dir);
        let folders = &self.found_logins.folders.real;
        let (mut denied, mut real) = DeniedPaths::new(logins, folders, &allow_read, deny_read);
        let aliases = mounts::aliases(&denied);
        real.extend(aliases.iter().map(|alias| context.real(alias)));
        denied.add(aliases);
        let scratch = context.real(context.scratch);
        let tree = context.tree().to_vec();
        let mut allowed = [allow_read, tree, vec![scratch], allow_write].concat();
        // A program in a container of its own (Flatpak) has its settings in a closed folder.
        allowed.extend(context.folder("XDG_CONFIG_HOME"));
        let is_closed = |path: &Path| path.starts_with(DEVICE_FOLDER) || denied.covers(path);
        allowed.retain(|path| is_closed(path));
        self.denied = real;
        let read_only = settings.mode.is_read_only();
        let secrets = DeniedPlaces { denied, allowed, write_protected: deny_write, read_only };
        self.secrets = Arc::new(secrets);
    }

    pub(super) fn writable(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The system calls that are closed to commands.
    pub(super) fn command_calls(&self) -> CallFilter {
        if self.secrets.read_only { CallFilter::Isolated } else { CallFilter::Commands }
    }

    /// Access that the kernel cannot deny to commands in this mode, and that has no remedy.
    pub(super) fn always_open(&self, filters_calls: bool) -> Vec<String> {
        let has_shared = !filters_calls || self.command_calls() == CallFilter::Commands;
        let has_memory = self.roots.iter().any(|root| Path::new(SHARED_MEMORY).starts_with(root));
        let open = [
            (true, OPEN_ARGUMENTS),
            (has_shared, OPEN_SHARED_OBJECTS),
            (has_memory, OPEN_SHARED_MEMORY),
        ];
        open.into_iter().filter(|(is_open, _)| *is_open).map(|(_, text)| text.to_owned()).collect()
    }

    /// Returns the access that commands should not have but do, without sockets.
    pub(super) fn exposure(&self, context: &SandboxContext<'_>) -> Exposure {
        let whole = self.granted_whole();
        let is_within = |path: &&PathBuf| whole.contains(path);
        let exists = |path: &&PathBuf| {
            self.created_by_run.as_ref() == Some(*path)
                || context.may_exist(path) && fs::symlink_metadata(path).is_ok()
        };
        let is_hidden = |path: &&PathBuf| self.secrets.hides(path);
        let denied = &self.secrets.denied;
        let roots = self.roots[self.split_roots..].iter();
        let listed = roots.flat_map(|root| denied.listed.all_in(root));
        let entries = self.found_logins.folders.existing.iter().filter(is_within);
        let read = listed.chain(entries).filter(exists).filter(is_hidden);
        let written = self.secrets.write_protected.iter().filter(is_within).filter(exists);
        let exposed: BTreeSet<&PathBuf> = read.chain(written).collect();
        let paths = exposed.into_iter().cloned().collect();
        Exposure { paths, rules: self.unenforced_rules.clone(), sockets: Vec::new() }
    }

    /// Returns the permission rules for paths that stay open to commands. A rule with a second
    /// meaning is judged by the first one.
    fn find_unenforced_rules(
        &self,
        context: &SandboxContext<'_>,
        enforced: &[&RuleDenial],
    ) -> Vec<String> {
        let is_first = |rule: &&RuleDenial| !rule.is_second_meaning;
        let is_open = |rule: &&RuleDenial| {
            let path = context.real(&rule.place);
            let mut same = enforced.iter().copied().filter(is_first);
            let is_enforced = same.any(|enforced| enforced.rule == rule.rule);
            let mut roots = self.roots.iter();
            match (rule.changes_only, is_enforced) {
                (true, true) => false,
                (true, false) => {
                    roots.any(|root| path.starts_with(root) || root.starts_with(&path))
                }
                (false, true) => roots.any(|root| root.starts_with(&path) && *root != path),
                (false, false) => !self.secrets.denied.covers(&path),
            }
        };
        let open = context.rules.iter().filter(is_first).filter(is_open);
        open.map(|rule| rule.rule.clone()).collect()
    }

    /// True if this exposure requires a warning: not if it is in temporary folders only.
    pub(super) fn exposes_in_tree(&self, exposure: &Exposure) -> bool {
        !exposure.rules.is_empty()
            || exposure.paths.iter().any(|path| {
                self.denied_by_user.contains(path) || is_in_any(path, &self.working_tree)
            })
    }

    /// The denied places that the kernel closes to commands, whether or not they exist: a login may
    /// be created while a command runs. In a folder that is granted whole, none can be closed.
    fn closed(&self) -> &DeniedTree {
        self.closed.get_or_init(|| {
            let whole = self.granted_whole();
            let is_open = |place: &Path| whole.contains(place);
            let listed = self.denied.iter().map(PathBuf::as_path).chain([Path::new(DEVICE_FOLDER)]);
            let mut closed: DeniedTree = listed.filter(|place| !is_open(place)).collect();
            let entries = self.secrets.denied.entries_in(Path::new("/"));
            let is_linked = |entry: &Path| self.found_logins.folders.is_linked(entry);
            for entry in entries.filter(|entry| !is_open(entry) && !is_linked(entry)) {
                closed.insert(&entry);
            }
            closed
        })
    }

    /// The folders that commands write to, except those that are granted in parts.
    fn granted_whole(&self) -> FolderSet {
        self.roots[self.split_roots..].iter().map(PathBuf::as_path).collect()
    }

    /// The login files of programs, except those that the user denied.
    fn logins(&self) -> &[LoginPlaces] {
        self.logins.get_or_init(|| self.found_logins.of_programs(&self.denied_reads))
    }

    /// Returns all grants of a command with these logins, for the current file system.
    pub(super) fn grants(&self, logins: &[&CredentialSet]) -> Arc<[PathRule]> {
        let is_passed =
            |login: &LoginPlaces| logins.iter().any(|set| std::ptr::eq(*set, login.set));
        let passed: Vec<bool> = self.logins().iter().map(is_passed).collect();
        let now = SystemTime::now();
        // The cache is moved out of the lock, so that other commands need not wait for the listing.
        let mut last = std::mem::take(&mut *self.last.lock());
        if last.logins.as_ref() != Some(&passed) || !last.listings.are_current(now) {
            last.listings.begin(now);
            let (rules, can_keep) = self.new_grants(&passed, &mut last.listings);
            (last.rules, last.logins) = (rules.into(), can_keep.then_some(passed));
        }
        let rules = Arc::clone(&last.rules);
        *self.last.lock() = last;
        rules
    }

    /// Returns the grants, and true if they depend on nothing but the listings.
    fn new_grants(&self, passed: &[bool], listings: &mut FolderListings) -> (Vec<PathRule>, bool) {
        let mut grants = vec![PathRule::new("/", PathAccess::List)];
        let passed = self.logins().iter().zip(passed).filter(|(_, is_passed)| **is_passed);
        let passed: Vec<&LoginPlaces> = passed.map(|(login, _)| login).collect();
        // Paths that the user denies stay closed, also within a login folder.
        let is_passed = |path: &PathBuf| {
            passed.iter().any(|login| is_in_any(path, &login.places))
                && !is_in_any(path, &self.denied_reads)
        };
        let mut denied = Cow::Borrowed(self.closed());
        if !passed.is_empty() {
            let closed = self.closed().places(Path::new("/"));
            denied = Cow::Owned(closed.iter().filter(|place| !is_passed(place)).collect());
        }
        // One of them may have become a link since the run began.
        let behind_links = listings.behind_links(Path::new("/"), &denied);
        for place in &behind_links {
            denied.to_mut().insert(place);
        }
        let (split, whole) = self.roots.split_at(self.split_roots);
        for root in split {
            listings.grant_cache(root, &denied, &mut grants);
        }
        grants.extend(whole.iter().map(|root| PathRule::new(root, PathAccess::Change)));
        listings.grant_siblings(Path::new("/"), &denied, &mut grants);
        for allowed in &self.secrets.allowed {
            listings.grant_siblings(allowed, &denied, &mut grants);
        }
        grants.extend(listings.device_grants(self.terminals));
        let is_open = |folder: &&PathBuf| {
            let overlaps =
                |denied: &PathBuf| denied.starts_with(folder) || folder.starts_with(denied);
            !self.secrets.read_only && !self.denied_by_user.iter().any(overlaps)
        };
        let state = passed.iter().flat_map(|login| &login.state).filter(is_open);
        grants.extend(state.map(|folder| PathRule::new(folder, PathAccess::Change)));
        (grants, behind_links.is_empty())
    }

    /// The login files of a program that exist and are closed.
    pub(super) fn closed_logins(&self, set: &CredentialSet) -> Vec<&Path> {
        let logins = self.logins().iter().filter(|login| std::ptr::eq(set, login.set));
        logins
            .flat_map(|login| &login.places)
            .filter(|place| self.secrets.hides(place) && fs::symlink_metadata(place).is_ok())
            .map(PathBuf::as_path)
            .collect()
    }

    /// The grants of a command that only reads: nothing may be written, temporary files included.
    pub(super) fn reading_grants(&self) -> Vec<PathRule> {
        let mut grants = self.grants(&[]).to_vec();
        for grant in &mut grants {
            match grant.access {
                PathAccess::Change => grant.access = PathAccess::Read,
                PathAccess::AddFolders => grant.access = PathAccess::List,
                PathAccess::List | PathAccess::Read | PathAccess::Use | PathAccess::Write => {}
            }
        }
        grants
    }

    /// Creates the cache folders, the temporary folder and the configuration of apt. Errors are
    /// ignored: a command without them fails by itself.
    pub(super) fn prepare_folders(&self) {
        let create = |folder: &Path, mode| {
            let _ = fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
        };
        let caches = self.tool_caches.as_slice();
        for folder in caches.iter().filter(|folder| fs::symlink_metadata(folder).is_err()) {
            create(folder, 0o755);
        }
        for folder in caches.iter().flat_map(|cache| self.caches_beside_credentials(cache)) {
            create(&folder, 0o755);
        }
        if let Some(path) = &self.apt_config {
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let _ = file.and_then(|mut file| file.write_all(APT_CONFIG));
        }
        if let Some(folder) = &self.own_temp {
            create(folder, 0o700);
        }
    }

    /// The folders to be created in a cache that is granted in parts.
    fn caches_beside_credentials(&self, cache: &Path) -> Vec<PathBuf> {
        let has_closed = |name: &str| self.closed().contains(&cache.join(name));
        let names = CACHES_BESIDE_CREDENTIALS.iter();
        if has_closed("token") {
            let names = names.filter_map(|name| name.strip_prefix("huggingface/"));
            return names.map(|name| cache.join(name)).collect();
        }
        let is_split = has_closed("huggingface/token") && cache.join("huggingface").is_dir();
        names.filter(|_| is_split).map(|name| cache.join(name)).collect()
    }

    /// Lists briefly the paths that commands may write to.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use tempfile::TempDir;

    use super::super::super::paths::resolve;
    use super::super::known_paths::TEMPORARY;
    use super::*;

    /// A home, a repository and a folder beside it. All of them are in a temporary folder, so the
    /// policy is given a temporary folder of its own.
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

        fn try_policy(&self, settings: SandboxSettings) -> Result<SandboxPolicy, SandboxError> {
            let settings = SandboxSettings { config_dir: Some(self.at("config")), ..settings };
            let [cwd, home, scratch] =
                ["repo/part", "home", "config/scratch"].map(|name| self.at(name));
            let context = SandboxContext::new(&cwd, Some(&home), &scratch, &self.environment);
            SandboxPolicy::new(&settings, &context)
        }

        fn policy(&self, settings: SandboxSettings) -> SandboxPolicy {
            self.try_policy(settings).expect("good settings")
        }
    }

    fn list(paths: &[&str]) -> Vec<String> {
        paths.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policy_grants_writing_to_checkout_caches_and_scratch_only() {
        let ground = Ground::new();
        let roots = ground.policy(SandboxSettings::default()).roots;
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
        let policy = ground.policy(SandboxSettings {
            deny_read: list(&["~/.gradle"]),
            deny_write: list(&["~/.m2"]),
            ..SandboxSettings::default()
        });
        policy.prepare_folders();
        for name in ["home/.npm", "home/.nuget/packages", "home/.cargo/registry", "data/uv/python"]
        {
            assert!(ground.at(name).is_dir() && policy.roots.contains(&ground.at(name)), "{name}");
        }
        for name in ["home/.gradle", "home/.m2", "home/.local/share", "home/.cargo/.package-cache"]
        {
            assert!(!ground.at(name).exists(), "{name}");
        }
        assert!(!policy.roots.iter().any(|root| root.starts_with(ground.at("home/.gradle"))));
        let read_only = SandboxSettings { mode: SandboxMode::ReadOnly, ..Default::default() };
        let fresh = Ground::new();
        fresh.policy(read_only).prepare_folders();
        assert!(!fresh.at("home/.npm").exists());
    }

    #[test]
    fn read_only_policy_grants_writing_to_temporary_folders_only() {
        let ground = Ground::new();
        let mode = SandboxMode::ReadOnly;
        let policy = ground.policy(SandboxSettings { mode, ..SandboxSettings::default() });
        assert!(!policy.roots.contains(&ground.at("repo")));
        assert!(policy.roots.contains(&ground.at("config/scratch")));
        assert!(policy.secrets.write_denial(&ground.at("repo/x")).is_some());
        // Commands cannot use a temporary folder that contains the checkout.
        let has_checkout = |temp: &&str| ground.at("repo").starts_with(resolve(Path::new(temp)));
        assert_eq!(policy.own_temp.is_some(), TEMPORARY.iter().any(has_checkout));
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
        let policy = ground.policy(settings);
        assert!(!policy.roots.contains(&ground.at("beside")));
        assert!(policy.secrets.write_denial(&ground.at("beside/x")).is_some());
    }

    #[test]
    fn credentials_are_hidden_until_they_are_allowed_and_the_deeper_path_decides() {
        let ground = Ground::new();
        let hides = |settings: SandboxSettings, name: &str| {
            ground.policy(settings).secrets.hides(&ground.at(name))
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
    fn policy_rejects_patterns_and_a_missing_home_folder() {
        let ground = Ground::new();
        for path in ["~/*.txt", "", "a[b]", "x?"] {
            let settings =
                SandboxSettings { deny_read: list(&[path]), ..SandboxSettings::default() };
            assert!(ground.try_policy(settings).is_err(), "{path:?}");
        }
        let whole = SandboxSettings { deny_read: list(&["~/x/**"]), ..SandboxSettings::default() };
        assert!(ground.policy(whole).secrets.hides(&ground.at("home/x/y")));
        let (cwd, scratch) = (ground.at("repo"), ground.at("config/scratch"));
        let context = SandboxContext::new(&cwd, None, &scratch, &[]);
        let settings = SandboxSettings { deny_read: list(&["~/x"]), ..SandboxSettings::default() };
        let refused = SandboxPolicy::new(&settings, &context);
        assert!(refused.is_err_and(|why| why == SandboxError::NoHome("~/x".to_owned())));
    }

    #[test]
    fn a_writable_folder_is_granted_whole_without_listing_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["keys", "one", "two"] {
            fs::write(root.join(name), "").unwrap();
        }
        let keys = [root.join("keys")];
        let granted = |roots: &[PathBuf]| {
            let (roots, denied) = (roots.to_vec(), keys.to_vec());
            SandboxPolicy { roots, denied, ..SandboxPolicy::default() }.grants(&[])
        };
        let grants = granted(std::slice::from_ref(&root));
        assert!(grants.contains(&PathRule::new(&root, PathAccess::Change)));
        assert!(grants.iter().all(|grant| grant.path.parent() != Some(root.as_path())));
        // If the folder is only read, it is granted without the key.
        let grants = granted(&[]);
        assert!(grants.contains(&PathRule::new(root.join("one"), PathAccess::Read)));
        assert!(
            grants.iter().all(|grant| !root.join("keys").starts_with(&grant.path)
                || grant.access == PathAccess::List)
        );
    }
}
