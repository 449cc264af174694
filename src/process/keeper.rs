//! The keeper: starts a warden for each job, and ends whatever is left when outlast is gone.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, dup2_stdin, fork, setsid};

use super::ear::SignalWaiter;
use super::signals;
use super::tree::{self, ChildChange};
use super::warden;
use super::wire::{self, JobReport};

/// What outlast calls itself with to become a keeper. The process number of whose keeper it is
/// follows, for people who look at a list of processes.
pub(super) const SUPERVISOR_ARGUMENT: &str = "__keeper";

/// How long the end of what is left may take. Longer only if it hangs in the kernel.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// How often what a killed warden left is looked for, and how long is waited in between.
const ORPHAN_SEARCHES: u32 = 200;
const ORPHAN_SEARCH_PAUSE: Duration = Duration::from_millis(10);

/// Becomes a keeper if the command line says so, until it is not needed any more. Belongs before
/// everything else: a keeper is a small process with one thread, and must be, since it forks.
pub fn run_supervisor_if_requested() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != SUPERVISOR_ARGUMENT || arguments.len() != 1 {
        return None;
    }
    // There is nobody to tell why: standard error is not the keeper's.
    Some(if run_supervisor().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_supervisor() -> io::Result<()> {
    let line = UnixStream::from(detach_from_parent()?);
    let ear = SignalWaiter::new()?;
    let (mut wardens, mut hunts) = (HashSet::new(), 0);
    loop {
        let ordered = ear.wait_readable(&line, (hunts > 0).then_some(ORPHAN_SEARCH_PAUSE));
        if reap_children(&mut wardens) {
            hunts = ORPHAN_SEARCHES;
        }
        if hunts > 0 {
            hunts = if tree::kill_descendants(&wardens).is_empty() { 0 } else { hunts - 1 };
        }
        if !ordered {
            continue;
        }
        let Some(control) = receive_job_socket(&line) else { break };
        // SAFETY: this process has one thread, so the child is whole: it may do anything.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                // Were the line kept open here, outlast could not see the keeper's end.
                drop((line, ear));
                return warden::run_job(&control);
            }
            Ok(ForkResult::Parent { child }) => drop(wardens.insert(child)),
            Err(errno) => warden::send_report(&control, JobReport::StartFailed(errno as i32)),
        }
    }
    let mut ended = tree::kill_until_gone(ENDING_MAX, &ear, || tree::reap(|_| ()));
    ended.retain(|process| !wardens.contains(process));
    warden::send_report(&line, JobReport::AllEnded(i32::try_from(ended.len()).unwrap_or(i32::MAX)));
    Ok(())
}

/// Leaves everything behind that came from outlast but the line to it, which is returned.
fn detach_from_parent() -> io::Result<OwnedFd> {
    // Not ours to keep open: whoever waits for its end waits for outlast's.
    let inherited = fs::read_dir("/proc/self/fd").map_or(Vec::new(), |entries| {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        entries.flatten().filter_map(number).filter(|number| *number > 2).collect()
    });
    for descriptor in inherited {
        // One of them was the folder's, and is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(fs::File::open("/dev/null")?)?;
    // It may lead a group already, if a shell started it; then it stays there.
    let _ = setsid();
    env::set_current_dir("/")?;
    signals::restore_default(Signal::SIGCHLD)?;
    #[cfg(target_os = "linux")]
    {
        use nix::sys::prctl;
        // Not to be taken along by whoever ends everything called outlast.
        prctl::set_name(c"keeper")?;
        prctl::set_child_subreaper(true)?;
        // Whoever stopped the keeper must not keep it from seeing outlast's end.
        prctl::set_pdeathsig(Signal::SIGCONT)?;
    }
    Ok(line)
}

/// Takes note of children's ends. Returns whether a warden may have left something.
fn reap_children(wardens: &mut HashSet<Pid>) -> bool {
    let mut left = false;
    tree::reap(|change| match change {
        // A child that is no warden was left by one, and may have left something in its turn.
        ChildChange::Ended(child, status) => left |= !wardens.remove(&child) || status != 0,
        ChildChange::Stopped(child) => {
            // A command can stop its warden. It must not get away with it.
            let _ = kill(child, Signal::SIGCONT);
        }
    });
    left
}

/// The socket of the next job. None at the end.
fn receive_job_socket(line: &UnixStream) -> Option<UnixStream> {
    let mut order = [0];
    match wire::receive(line, &mut order) {
        Ok((1, mut descriptors)) if order == [wire::JOB] => descriptors.pop().map(UnixStream::from),
        Ok(_) | Err(_) => None,
    }
}
