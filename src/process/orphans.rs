//! The last fallback: ends orphans when neither their job init process nor the supervisor is left.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::time::Instant;

use super::tree;

/// The limit of the wait for the end of inherited orphans.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// The pause between two searches.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// True if every process below this one is a descendant of a process that it started.
static INHERITS: AtomicBool = AtomicBool::new(false);

/// Makes this process a subreaper, unless it already has children: their orphans must not be
/// killed, and could not be distinguished from others. Must be called before the first child is
/// started.
pub fn inherit_orphans() {
    use nix::errno::Errno;
    use nix::sys::prctl::set_child_subreaper;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let is_childless = waitid(Id::All, flags) == Err(Errno::ECHILD);
    INHERITS.store(is_childless && set_child_subreaper(true).is_ok(), Ordering::Relaxed);
}

/// Kills everything below this process except `spared` and their descendants. Returns the number of
/// killed processes. Kills nothing if unrelated processes may be among them.
pub(super) fn kill_orphans(spared: &HashSet<Pid>) -> u32 {
    if !INHERITS.load(Ordering::Relaxed) {
        return 0;
    }
    let end = Instant::now() + KILL_LIMIT;
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
