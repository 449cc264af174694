//! The supervisor process: finds or forks a job init process for each job, and kills whatever is
//! left when outlast is gone.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, dup2_stdin, fork, setsid};

use super::egress::{PROBE_ARGUMENT, run_probe};
use super::job_init;
use super::job_inits::JobInits;
use super::memory_watch::MemoryWatch;
use super::signal_waiter::SignalWaiter;
use super::signals;
use super::tree::{self, ChildChange};
use super::wire::{self, JobReport};

/// The argument that makes this binary a supervisor process. The process id of the parent follows
/// it, for people who read a process list.
pub(super) const SUPERVISOR_ARGUMENT: &str = "__supervisor";

/// The limit for killing what is left. Only processes that hang in the kernel take longer.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The most searches for processes left by a killed job init process, and the pause between two.
const ORPHAN_SEARCHES: u32 = 200;
const ORPHAN_SEARCH_PAUSE: Duration = Duration::from_millis(10);

/// Runs the supervisor process until it is no longer needed, or the probe of a list of domains, if
/// the command line requests one of them. Must be called before anything else: the supervisor
/// forks, so it must stay single-threaded.
pub fn run_supervisor_if_requested() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let (wanted, number) = (arguments.next()?, arguments.next()?);
    if arguments.next().is_some() {
        return None;
    }
    if wanted == PROBE_ARGUMENT {
        return number.to_str().map(run_probe);
    }
    if wanted != SUPERVISOR_ARGUMENT {
        return None;
    }
    // The error cannot be reported: standard error does not belong to the supervisor.
    Some(if run_supervisor().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_supervisor() -> io::Result<()> {
    let line = UnixStream::from(detach_from_parent()?);
    let waiter = SignalWaiter::new()?;
    let (mut job_inits, mut searches_left, mut memory) =
        (JobInits::default(), 0, MemoryWatch::default());
    loop {
        let search = (searches_left > 0).then_some(ORPHAN_SEARCH_PAUSE);
        let has_order = waiter.wait_readable(&line, search.into_iter().chain(memory.wait()).min());
        if reap_children(&mut job_inits) {
            searches_left = ORPHAN_SEARCHES;
        }
        job_inits.update();
        if searches_left > 0 {
            searches_left = if tree::kill_descendants(&job_inits.all()).is_empty() {
                0
            } else {
                searches_left - 1
            };
        }
        if let Some((job_init, taken)) = memory.check(|job_init| job_inits.is_busy(job_init)) {
            signals::report_memory_exceeded(job_init, taken);
        }
        if !has_order {
            continue;
        }
        let (control, bound) = match receive_job(&line) {
            Ok(Some(job)) => job,
            Ok(None) if is_replaceable(&job_inits) => break,
            Ok(None) => continue,
            Err(RunEnded) => break,
        };
        let job_init = if let Some(idle) = job_inits.pass_on(&control) {
            idle
        } else {
            let (socket, theirs) = match job_init_sockets() {
                Ok(pair) => pair,
                Err(error) => {
                    let report = JobReport::StartFailed(job_init::errno_of(&error));
                    job_init::send_report(&control, report);
                    if is_replaceable(&job_inits) {
                        break;
                    }
                    continue;
                }
            };
            // SAFETY: this process has one thread, so the child may call anything.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => {
                    // An open copy here would hide the end of the supervisor from outlast, or from
                    // another job init process.
                    drop((line, waiter, socket, job_inits));
                    return job_init::run_jobs(control, &theirs);
                }
                Ok(ForkResult::Parent { child }) => {
                    job_inits.add(child, socket);
                    child
                }
                Err(errno) => {
                    job_init::send_report(&control, JobReport::StartFailed(errno as i32));
                    continue;
                }
            }
        };
        if let Some(bound) = bound {
            memory.add(job_init, bound);
        }
    }
    job_inits.end_idle();
    let ended = tree::kill_until_gone(KILL_LIMIT, &waiter, || tree::reap(|_| ()));
    let ended = ended.difference(&job_inits.all()).count();
    let report = JobReport::AllEnded(i32::try_from(ended).unwrap_or(i32::MAX));
    job_init::send_report(&line, report);
    Ok(())
}

/// Closes everything that was inherited from outlast except the socket to it, which is returned.
fn detach_from_parent() -> io::Result<OwnedFd> {
    // An inherited pipe would stay open for its reader after outlast has ended.
    let inherited = fs::read_dir("/proc/self/fd").map_or(Vec::new(), |entries| {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        entries.flatten().filter_map(number).filter(|number| *number > 2).collect()
    });
    for descriptor in inherited {
        // One of them belonged to the folder listing, and is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(fs::File::open("/dev/null")?)?;
    // The process may already lead a group, if a shell started it; then it stays there.
    let _ = setsid();
    env::set_current_dir("/")?;
    signals::reset_all_signals()?;
    // Keeps `pkill outlast` from killing the supervisor too.
    prctl::set_name(c"supervisor")?;
    prctl::set_child_subreaper(true)?;
    // A stopped supervisor must continue when outlast ends.
    prctl::set_pdeathsig(Signal::SIGCONT)?;
    Ok(line)
}

/// Reaps children. Returns true if a job init process may have left processes behind.
fn reap_children(job_inits: &mut JobInits) -> bool {
    let mut may_leave_orphans = false;
    tree::reap(|change| match change {
        ChildChange::Ended(child, status) => {
            // A child that is not a job init process is an orphan of one, and may have left orphans
            // itself.
            may_leave_orphans |= !job_inits.remove(child) || status != 0;
        }
        ChildChange::Stopped(child) => {
            // A command can stop its job init process, which is continued therefore.
            let _ = kill(child, Signal::SIGCONT);
        }
    });
    may_leave_orphans
}

/// Returns true if this process can end because it may open no more files: it has no jobs, and
/// outlast starts another one, which may open more if the limit was raised.
fn is_replaceable(job_inits: &JobInits) -> bool {
    job_inits.all().is_empty()
}

/// Creates the socket to a new job init process, which does not block, and its other end.
fn job_init_sockets() -> io::Result<(UnixStream, UnixStream)> {
    let (socket, theirs) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    Ok((socket, theirs))
}

/// The run is over, or outlast is gone.
struct RunEnded;

/// Receives the socket of the next job, and its memory limit in bytes. `None` if this process may
/// open no more files: the kernel has closed the socket, which outlast notices.
fn receive_job(line: &UnixStream) -> Result<Option<(UnixStream, Option<u64>)>, RunEnded> {
    let mut order = [0; wire::JOB_BYTES];
    let (count, mut descriptors) = match wire::receive(line, &mut order) {
        Ok(received) => received,
        Err(error) if error.raw_os_error() == Some(Errno::EMFILE as i32) => return Ok(None),
        Err(_) => return Err(RunEnded),
    };
    let [wire::JOB, bound @ ..] = order else { return Err(RunEnded) };
    if count < order.len() {
        return Err(RunEnded);
    }
    let bound = u64::from_le_bytes(bound);
    let control = descriptors.pop().ok_or(RunEnded)?.into();
    Ok(Some((control, Some(bound).filter(|bound| *bound < u64::MAX))))
}
