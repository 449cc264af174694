//! Cache of kernel rulesets, which are reused for later commands: opening hundreds of paths takes
//! longer than starting a command.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;

use super::landlock_policy::{LandlockPolicy, PathRule};
use super::syscall_filter::NetworkAccess;

/// The most rulesets that are kept: the commands of a run use only a few different policies.
const KEPT_MAX: usize = 4;

/// The rulesets that were used last.
#[derive(Debug, Default)]
pub(super) struct RulesetCache(Mutex<KeptRulesets>);

#[derive(Debug, Default)]
struct KeptRulesets {
    /// The file that reports changes of the mount table, which may put another file system over an
    /// inode.
    mounts: Option<File>,
    /// The number of changes seen.
    remounts: u64,
    /// The newest first.
    all: VecDeque<KeptRuleset>,
}

#[derive(Debug)]
struct KeptRuleset {
    rules: Arc<[PathRule]>,
    network: NetworkAccess,
    /// The identities of the files at the paths of the rules, before the ruleset was opened.
    found: Vec<FileIdentity>,
    ruleset: Arc<OwnedFd>,
}

/// The identity of the file at a path. The kernel keeps an inode as long as a rule refers to it, so
/// its number is not reused meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileIdentity {
    Missing,
    /// The inode of an entry, as its folder lists it.
    Listed(u64),
    /// The device and the inode.
    Found(u64, u64),
}

impl RulesetCache {
    /// Returns a ruleset for this policy and the current file system: a kept one grants access to
    /// the files that the paths led to, so it is used only while they lead to the same files.
    /// Blocks.
    ///
    /// # Errors
    /// The kernel refuses. The program must then not be started.
    pub(super) fn ruleset(&self, policy: &LandlockPolicy) -> io::Result<Arc<OwnedFd>> {
        // Read before the ruleset is opened: if a path is changed in between, the next use finds
        // the difference.
        let found: Vec<_> = policy.rules.iter().map(identity).collect();
        let is_same = |kept: &KeptRuleset| {
            kept.network == policy.network && kept.found == found && kept.rules == policy.rules
        };
        let (known, remounts) = {
            let mut kept = self.0.lock();
            kept.forget_if_remounted();
            (kept.find(is_same), kept.remounts)
        };
        if let Some(ruleset) = known {
            return Ok(ruleset);
        }
        // The lock is not held: a file system that hangs must delay only the jobs that use it.
        let ruleset = Arc::new(policy.open_ruleset()?);
        let mut kept = self.0.lock();
        if kept.remounts == remounts {
            let (rules, network) = (policy.rules.clone(), policy.network);
            let opened = KeptRuleset { rules, network, found, ruleset: Arc::clone(&ruleset) };
            kept.all.push_front(opened);
            kept.all.truncate(KEPT_MAX);
        }
        Ok(ruleset)
    }
}

impl KeptRulesets {
    /// Finds the kept ruleset for which `is_same` holds, and moves it to the front as the newest.
    fn find(&mut self, is_same: impl Fn(&KeptRuleset) -> bool) -> Option<Arc<OwnedFd>> {
        let at = self.all.iter().position(is_same)?;
        let kept = self.all.remove(at)?;
        let ruleset = Arc::clone(&kept.ruleset);
        self.all.push_front(kept);
        Some(ruleset)
    }

    fn forget_if_remounted(&mut self) {
        if self.mounts_changed() {
            self.remounts += 1;
            self.all.clear();
        }
    }

    /// Returns true if the mount table has changed since the last call, or if that is unknown.
    fn mounts_changed(&mut self) -> bool {
        let known = self.mounts.take().or_else(|| File::open("/proc/self/mountinfo").ok());
        let Some(mounts) = known else { return true };
        // See proc_pid_mounts(5): a change is an error and urgent data, once.
        let mut polled = [PollFd::new(mounts.as_fd(), PollFlags::POLLPRI)];
        let is_unchanged = poll(&mut polled, PollTimeout::ZERO) == Ok(0);
        self.mounts = Some(mounts);
        !is_unchanged
    }
}

fn identity(rule: &PathRule) -> FileIdentity {
    if let Some(inode) = rule.inode {
        return FileIdentity::Listed(inode);
    }
    let found = fs::symlink_metadata(&rule.path);
    found.map_or(FileIdentity::Missing, |found| FileIdentity::Found(found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount, umount};
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::{LandlockSupport, PathAccess};

    #[test]
    fn a_ruleset_is_used_again_until_a_path_leads_elsewhere() {
        if LandlockSupport::probe().abi == 0 {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let [known, other] = ["known", "other"].map(|name| folder.path().join(name));
        fs::create_dir(&known).expect("a folder");
        let policy = |rules: &[PathRule]| LandlockPolicy {
            rules: rules.into(),
            ..LandlockPolicy::default()
        };
        let narrow = policy(&[PathRule::new(&known, PathAccess::Read)]);
        let wide = policy(&[
            PathRule::new(&known, PathAccess::Change),
            PathRule::new(&other, PathAccess::Read),
        ]);
        let cache = RulesetCache::default();
        let again = |policy: &LandlockPolicy, before: &Arc<OwnedFd>| {
            let now = cache.ruleset(policy).expect("a ruleset");
            (Arc::ptr_eq(&now, before), now)
        };
        let narrow_first = cache.ruleset(&narrow).expect("a ruleset");
        let wide_first = cache.ruleset(&wide).expect("a ruleset");
        assert!(again(&narrow, &narrow_first).0 && again(&wide, &wide_first).0);
        let offline = LandlockPolicy { network: NetworkAccess::NoTcp, ..narrow.clone() };
        assert!(!again(&offline, &narrow_first).0);
        // A path of the wide one comes to be.
        fs::create_dir(&other).expect("a folder");
        let (is_same, wide_second) = again(&wide, &wide_first);
        assert!(!is_same && again(&narrow, &narrow_first).0);
        // Another folder takes the name of one, and one becomes a link to what it was.
        fs::rename(&other, folder.path().join("away")).expect("renamed");
        fs::create_dir(&other).expect("a folder");
        assert!(!again(&wide, &wide_second).0);
        fs::rename(&known, folder.path().join("real")).expect("renamed");
        std::os::unix::fs::symlink("real", &known).expect("a link");
        assert!(!again(&narrow, &narrow_first).0);
    }

    /// A mount over a listed entry leaves the inode in the listing as it was.
    #[test]
    fn a_changed_mount_table_renews_rulesets() {
        if LandlockSupport::probe().abi == 0 {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let own_mounts = || {
            if unshare(CloneFlags::CLONE_NEWNS).is_err() {
                eprintln!(
                    "WARNING: no mount namespace may be made: the mount table is not changed"
                );
                return;
            }
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).expect("private");
            let mounts = File::open("/proc/thread-self/mountinfo").expect("the own mount table");
            let kept = KeptRulesets { mounts: Some(mounts), ..KeptRulesets::default() };
            let cache = RulesetCache(Mutex::new(kept));
            let inode = fs::metadata(folder.path()).expect("it is there").ino();
            let rule = PathRule::listed(folder.path().to_owned(), PathAccess::Read, inode);
            let policy = LandlockPolicy { rules: [rule].into(), ..LandlockPolicy::default() };
            let ruleset = || cache.ruleset(&policy).expect("a ruleset");
            let first = ruleset();
            assert!(Arc::ptr_eq(&ruleset(), &first));
            mount(none, folder.path(), Some("tmpfs"), MsFlags::empty(), none).expect("mounted");
            let second = ruleset();
            assert!(!Arc::ptr_eq(&second, &first));
            assert!(Arc::ptr_eq(&ruleset(), &second));
            umount(folder.path()).expect("unmounted");
            assert!(!Arc::ptr_eq(&ruleset(), &second));
        };
        // Only this thread has the namespace.
        std::thread::scope(|scope| scope.spawn(own_mounts).join().expect("the thread succeeds"));
    }

    #[test]
    fn few_rulesets_are_kept() {
        if LandlockSupport::probe().abi == 0 {
            return;
        }
        let cache = RulesetCache::default();
        for number in 0..KEPT_MAX + 2 {
            let path = format!("/missing-{number}");
            let rules = [PathRule::new(path, PathAccess::Read)].into();
            cache.ruleset(&LandlockPolicy { rules, ..LandlockPolicy::default() }).expect("opened");
        }
        let kept = &cache.0.lock().all;
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(kept[0].rules[0].path.to_str(), Some("/missing-5"));
    }
}
