//! Finds and ends everything below this process.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use tokio::time::Instant;

use super::kernel_files::read_kernel_text;
use super::signal_waiter::SignalWaiter;
use super::stat::{self, Stat};

/// The most rounds in which new processes are searched for and stopped before all are killed.
const STOP_ROUNDS: usize = 20;

/// The wait for killed processes before the next search.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A change of a child.
pub(super) enum ChildChange {
    /// Its end, with its wait status.
    Ended(Pid, i32),
    Stopped(Pid),
}

/// Reports children that ended or stopped. Returns true if any is left.
pub(super) fn reap(mut report: impl FnMut(ChildChange)) -> bool {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(child, code)) => report(ChildChange::Ended(child, code << 8)),
            Ok(WaitStatus::Signaled(child, signal, _)) => {
                report(ChildChange::Ended(child, signal as i32));
            }
            Ok(WaitStatus::Stopped(child, _)) => report(ChildChange::Stopped(child)),
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

/// All living processes below this one, except those spared and their descendants.
fn descendants(spared: &HashSet<Pid>) -> Vec<Pid> {
    below(getpid(), spared).into_iter().map(|(process, _)| process).collect()
}

/// All living processes below `root`.
pub(super) fn all_below(root: Pid) -> Vec<(Pid, Stat)> {
    below(root, &HashSet::new())
}

/// The living processes below `root`, by the kernel's lists of children: a process that starts or
/// ends meanwhile may be missing, with its neighbors. Does not read all processes of the machine.
pub(super) fn listed_below(root: Pid) -> Vec<(Pid, Stat)> {
    // Not every kernel has these lists.
    if !Path::new(&format!("/proc/{root}/task/{root}/children")).exists() {
        return all_below(root);
    }
    let (mut found, mut next) = (HashMap::new(), vec![root]);
    while let Some(parent) = next.pop() {
        for child in children(parent) {
            if let Some(stat) = stat::of(child)
                && found.insert(child, stat).is_none()
            {
                next.push(child);
            }
        }
    }
    found.into_iter().collect()
}

/// The children of all threads of a process.
fn children(process: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let lists =
        threads.flatten().filter_map(|it| read_kernel_text(it.path().join("children")).ok());
    let parse = |list: String| list.split_whitespace().map(str::parse).collect::<Vec<_>>();
    lists.flat_map(parse).flatten().map(Pid::from_raw).collect()
}

/// The living processes below `root`, except those spared and their descendants.
fn below(root: Pid, spared: &HashSet<Pid>) -> Vec<(Pid, Stat)> {
    let mut children: HashMap<Pid, Vec<(Pid, Stat)>> = HashMap::new();
    for (process, stat) in stat::all() {
        if !spared.contains(&process) {
            children.entry(stat.parent).or_default().push((process, stat));
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        let children = children.remove(&parent).unwrap_or_default();
        next.extend(children.iter().map(|(child, _)| *child));
        found.extend(children);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_processes_below_one_are_found_with_and_without_lists_of_children() {
        let (end, ended) = mpsc::channel::<()>();
        let (send_ids, ids) = mpsc::channel();
        // The child of a thread, and its child.
        let thread = std::thread::spawn(move || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
            let mut shell = shell.spawn().expect("a shell");
            let mut line = String::new();
            let stdout = shell.stdout.take().expect("a pipe");
            BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
            let grandchild: i32 = line.trim().parse().expect("a process");
            let ids = [shell.id().cast_signed(), grandchild].map(Pid::from_raw);
            send_ids.send(ids).expect("the test waits");
            let _ = ended.recv();
            let _ = kill(ids[1], Signal::SIGKILL);
            shell.wait().expect("it ends");
        });
        let ids = ids.recv().expect("both run");
        for found in [listed_below(getpid()), all_below(getpid())] {
            let of =
                |id| found.iter().find(|(process, _)| *process == id).map(|(_, stat)| stat.parent);
            assert_eq!(ids.map(of), [Some(getpid()), Some(ids[0])]);
        }
        assert_eq!(listed_below(ids[1]), []);
        drop(end);
        thread.join().expect("it ended");
    }
}
