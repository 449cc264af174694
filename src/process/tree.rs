//! Finds and ends everything below this process.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use tokio::time::Instant;

use super::signal_waiter::SignalWaiter;
use super::stat;

/// The most rounds in which new processes are searched for and stopped before all are killed.
const STOP_ROUNDS: usize = 20;

/// The wait for killed processes before the next search.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A change of a child: its end with a wait status, or a stop.
pub(super) enum ChildChange {
    Ended(Pid, i32),
    Stopped(Pid),
}

/// Reports children that ended or stopped. Returns true if any is left.
pub(super) fn reap(mut note: impl FnMut(ChildChange)) -> bool {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(child, code)) => note(ChildChange::Ended(child, code << 8)),
            Ok(WaitStatus::Signaled(child, signal, _)) => {
                note(ChildChange::Ended(child, signal as i32));
            }
            Ok(WaitStatus::Stopped(child, _)) => note(ChildChange::Stopped(child)),
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Sends a signal to everything below this process, and continues stopped processes so that they
/// receive it.
pub(super) fn signal_descendants(signal: Signal) {
    for process in descendants(&HashSet::new()) {
        let _ = kill(process, signal);
        let _ = kill(process, Signal::SIGCONT);
    }
}

/// Kills everything below this process except `spared` and their descendants. Returns the killed
/// processes.
///
/// All are stopped before any is killed: a program that forks faster than it can be killed would
/// escape otherwise.
pub(super) fn kill_descendants(spared: &HashSet<Pid>) -> HashSet<Pid> {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_ROUNDS {
        let before = stopped.len();
        for process in descendants(spared) {
            if stopped.insert(process) {
                let _ = kill(process, Signal::SIGSTOP);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    for process in &stopped {
        let _ = kill(*process, Signal::SIGKILL);
    }
    stopped
}

/// Kills until no child is left, or `limit` has passed: processes that hang in the kernel or belong
/// to another user cannot be waited for. `reap` returns true if a child is left. Returns the killed
/// processes.
pub(super) fn kill_until_gone(
    limit: Duration,
    waiter: &SignalWaiter,
    mut reap: impl FnMut() -> bool,
) -> HashSet<Pid> {
    let end = Instant::now() + limit;
    let mut killed = HashSet::new();
    while reap() && Instant::now() < end {
        killed.extend(kill_descendants(&HashSet::new()));
        if reap() {
            waiter.wait_for_child(POLL_INTERVAL);
        }
    }
    killed
}

/// Every living process below this one, except those spared and their descendants.
fn descendants(spared: &HashSet<Pid>) -> Vec<Pid> {
    let all = living().into_iter().map(|(process, parent)| (process, parent, ()));
    let found = below(getpid(), spared, all);
    found.into_iter().map(|(process, ())| process).collect()
}

/// The processes below `root`, except those spared and their descendants. `processes` gives each
/// with its parent and a fact about it.
pub(super) fn below<T>(
    root: Pid,
    spared: &HashSet<Pid>,
    processes: impl Iterator<Item = (Pid, Pid, T)>,
) -> Vec<(Pid, T)> {
    let mut children: HashMap<Pid, Vec<(Pid, T)>> = HashMap::new();
    for (process, parent, fact) in processes {
        if !spared.contains(&process) {
            children.entry(parent).or_default().push((process, fact));
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        let born = children.remove(&parent).unwrap_or_default();
        next.extend(born.iter().map(|(child, _)| *child));
        found.extend(born);
    }
    found
}

/// Every living process with its parent.
#[cfg(target_os = "linux")]
fn living() -> Vec<(Pid, Pid)> {
    stats().into_iter().map(|(process, stat)| (process, stat.parent)).collect()
}

/// Every living process. Empty outside Linux.
pub(super) fn stats() -> Vec<(Pid, stat::Stat)> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let one = |entry: std::fs::DirEntry| {
        let process = entry.file_name().to_str()?.parse().ok().map(Pid::from_raw)?;
        let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        Some((process, stat::parse(&stat)?))
    };
    processes.flatten().filter_map(one).collect()
}

/// Every process with its parent, as listed by `ps`.
#[cfg(not(target_os = "linux"))]
fn living() -> Vec<(Pid, Pid)> {
    let listed = std::process::Command::new("/bin/ps").args(["-axo", "pid=,ppid="]).output();
    let one = |line: &str| {
        let mut fields = line.split_whitespace().map(|field| field.parse().map(Pid::from_raw));
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    let text = listed.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(one).collect()
}
