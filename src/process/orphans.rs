//! The last net: what is orphaned when neither its warden nor the keeper is left.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::time::Instant;

use super::tree;

/// How long the death of what fell to us is waited for.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// How long before it is looked for again.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Whether all that is below this process came of what it started.
static INHERITS: AtomicBool = AtomicBool::new(false);

/// Has whatever is orphaned below this process fall to it, unless it has children already: what
/// comes of those is not ours to end, and could not be told apart. Belongs before the first child.
pub fn inherit_orphans() {
    #[cfg(target_os = "linux")]
    {
        use nix::errno::Errno;
        use nix::sys::prctl::set_child_subreaper;
        use nix::sys::wait::{Id, WaitPidFlag, waitid};

        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let is_alone = waitid(Id::All, look) == Err(Errno::ECHILD);
        INHERITS.store(is_alone && set_child_subreaper(true).is_ok(), Ordering::Relaxed);
    }
}

/// Kills everything below this process, but for these and what is below them. Returns how many
/// there were. None where strangers may be among them.
pub(super) fn kill_orphans(spared: &HashSet<Pid>) -> u32 {
    if !INHERITS.load(Ordering::Relaxed) {
        return 0;
    }
    let end = Instant::now() + ENDING_MAX;
    let mut ended = HashSet::new();
    loop {
        let killed = tree::kill_descendants(spared);
        if killed.is_empty() || Instant::now() >= end {
            return u32::try_from(ended.len()).unwrap_or(u32::MAX);
        }
        ended.extend(killed);
        thread::sleep(POLL_INTERVAL);
    }
}
