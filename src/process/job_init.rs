//! The job init process starts the command of a job, and ends all its descendants. It runs one job
//! after the other, as long as their commands leave no process behind.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid, setsid};
use tokio::time::Instant;

use super::command_process::{CommandStarter, CommandStreams};
use super::job::{ProcessSpec, SpecBytes};
use super::landlock_policy::LandlockRuleset;
use super::signal_waiter::SignalWaiter;
use super::signals;
use super::tree::{self, ChildChange};
use super::wire::{self, JobReport};

/// The time that leftover processes of a command have to end after SIGTERM.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

/// The limit of the wait for the end of killed processes while outlast waits, too.
const KILLING_MAX: Duration = Duration::from_secs(1);

/// Like [`KILLING_MAX`], while outlast does not wait.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The OOM score of a command: the highest, so that the kernel kills it before anything else when
/// memory runs out.
const OUT_OF_MEMORY_SCORE: &str = "1000";

/// Runs a job to its end, then those that follow. Called in a process of its own, forked by the
/// supervisor. `supervisor` is the socket to it.
///
/// # Errors
/// Processes of a job may still run.
pub(super) fn run_jobs(first: UnixStream, supervisor: &UnixStream) -> io::Result<()> {
    let signals = match prepare_job_init() {
        Ok(signals) => signals,
        Err(error) => {
            send_report(&first, JobReport::StartFailed(errno_of(&error)));
            return Ok(());
        }
    };
    let (mut starter, mut next) = (CommandStarter::default(), Some(first));
    while let Some(control) = next {
        let leader = match start_command(&control, &mut starter) {
            Ok(leader) => leader,
            Err(error) => {
                send_report(&control, JobReport::StartFailed(errno_of(&error)));
                return Ok(());
            }
        };
        send_report(&control, JobReport::Started);
        let job = RunningCommand { control: &control, signals: &signals, leader };
        let Some(status) = job.run()? else { return Ok(()) };
        // Sent first, so that the supervisor receives it before outlast can request the next job.
        let has_supervisor = { supervisor }.write_all(&[wire::IDLE]).is_ok();
        send_report(&control, JobReport::Ended(status));
        drop(control);
        next = if has_supervisor { receive_job(supervisor, &signals) } else { None };
    }
    Ok(())
}

fn prepare_job_init() -> io::Result<SignalWaiter> {
    // Signals to the supervisor's group must not reach this job.
    setsid()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(SignalWaiter::new()?)
}

/// Waits for the next job. `None` if there is none.
fn receive_job(supervisor: &UnixStream, signals: &SignalWaiter) -> Option<UnixStream> {
    while !signals.wait_readable(supervisor, None) {}
    // A report about the memory of the last job may have come late.
    let _ = signals.memory_exceeded();
    let (_, mut descriptors) = wire::receive(supervisor, &mut [0]).ok()?;
    Some(descriptors.pop()?.into())
}

/// Sends a report to outlast. If outlast is gone, the next read of the socket fails.
pub(super) fn send_report(mut socket: &UnixStream, report: JobReport) {
    let _ = socket.write_all(&report.encode());
}

pub(super) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::EINVAL as i32)
}

/// Receives the specification of the job, and starts its command. Landlock restricts the command
/// only: the job init process must be able to signal all descendants.
fn start_command(mut control: &UnixStream, starter: &mut CommandStarter) -> io::Result<Pid> {
    let mut length = [0; wire::LENGTH_BYTES];
    let (count, descriptors) = wire::receive(control, &mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if count != wire::LENGTH_BYTES || length > wire::SPEC_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = SpecBytes(vec![0; length]);
    control.read_exact(&mut bytes.0)?;
    let mut spec = ProcessSpec::decode(&bytes.0).ok_or(io::ErrorKind::InvalidData)?;
    let mut descriptors = descriptors.into_iter();
    let ruleset = spec
        .landlock
        .take()
        .map(|policy| policy.with_ruleset(descriptors.next().ok_or(io::ErrorKind::InvalidData)?));
    let ruleset = ruleset.transpose()?;
    let streams = streams(descriptors)?;
    // Without this report, outlast gives the job to another process. So if it cannot be sent, the
    // command does not run.
    control.write_all(&JobReport::Starting.encode())?;
    let job_init = getpid();
    let prepare = || prepare_exec(job_init, ruleset.as_ref(), control);
    // SAFETY: this process has one thread, no signal handler, and its own standard streams.
    // `prepare_exec` makes system calls, and frees what it allocates.
    unsafe { starter.start(&spec, &streams, prepare) }
}

/// The streams of a command. The descriptors are its stdout, its stderr, and its stdin if it has
/// one.
fn streams(mut descriptors: impl Iterator<Item = OwnedFd>) -> io::Result<CommandStreams> {
    let (Some(output), Some(errors)) = (descriptors.next(), descriptors.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let empty = || std::fs::File::open("/dev/null").map(OwnedFd::from);
    let input = descriptors.next().map_or_else(empty, Ok)?;
    Ok(CommandStreams { input, output, errors })
}

/// Prepares the new process, right before it executes the command.
fn prepare_exec(
    job_init: Pid,
    ruleset: Option<&LandlockRuleset>,
    control: &UnixStream,
) -> io::Result<()> {
    setsid()?;
    signals::reset_for_exec()?;
    // On some systems, a process may not raise its own score.
    let _ = std::fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE);
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // If the job init process died before the death signal was set, the command must not run.
    if getppid() != job_init {
        return Err(Errno::ESRCH.into());
    }
    match ruleset.map(LandlockRuleset::restrict_self).transpose()?.flatten() {
        // Only outlast keeps the listener: the calls of a job fail when outlast is gone.
        Some(listener) => {
            let report = JobReport::Listener(job_init.as_raw());
            wire::send(control, &report.encode(), &[listener])
        }
        None => Ok(()),
    }
}

/// A job whose command was started.
struct RunningCommand<'a> {
    control: &'a UnixStream,
    signals: &'a SignalWaiter,
    /// The command.
    leader: Pid,
}

impl RunningCommand<'_> {
    /// Runs the job to its end. Returns the wait status of its command if that ended by itself and
    /// left nothing behind, which is not reported yet.
    fn run(&self) -> io::Result<Option<i32>> {
        let mut is_undisturbed = true;
        loop {
            let has_order = self.signals.wait_readable(self.control, None);
            if let Some(taken) = self.signals.memory_exceeded() {
                is_undisturbed = false;
                // Sent first, so that outlast has the reason before the end.
                send_report(self.control, JobReport::MemoryExceeded(taken));
                self.end_all(KILLING_MAX);
            }
            let mut ended = None;
            let has_leftovers = self.reap_with(|status| ended = Some(status));
            if let Some(status) = ended {
                if is_undisturbed && !has_leftovers {
                    return Ok(ended);
                }
                send_report(self.control, JobReport::Exited(status));
            }
            if !has_leftovers {
                send_report(self.control, JobReport::LeftoversEnded(false));
            }
            if !has_order {
                continue;
            }
            is_undisturbed = false;
            let mut order = [0];
            let mut control = self.control;
            // An unreadable order means that outlast is gone.
            let order = control.read_exact(&mut order).ok().map(|()| order[0]);
            match order {
                Some(wire::TERMINATE) => tree::signal_descendants(Signal::SIGTERM),
                Some(wire::KILL) => {
                    self.end_all(KILLING_MAX);
                    if !self.reap() {
                        send_report(self.control, JobReport::LeftoversEnded(false));
                    }
                }
                Some(wire::SWEEP) => self.end_leftovers(),
                Some(_) | None => break,
            }
        }
        self.end_all(KILL_LIMIT);
        if self.reap() { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(None) }
    }

    /// Ends the processes that the command left behind, and reports whether there were any.
    fn end_leftovers(&self) {
        let has_leftovers = self.reap();
        if has_leftovers {
            tree::signal_descendants(Signal::SIGTERM);
            let end = Instant::now() + LEFTOVER_GRACE;
            while self.reap() && Instant::now() < end {
                self.signals.wait_for_child(end - Instant::now());
            }
            self.end_all(KILLING_MAX);
        }
        send_report(self.control, JobReport::LeftoversEnded(has_leftovers));
    }

    fn end_all(&self, limit: Duration) {
        tree::kill_until_gone(limit, self.signals, || self.reap());
    }

    /// Reaps children, and reports the end of the command. Returns true if any is left.
    fn reap(&self) -> bool {
        self.reap_with(|status| send_report(self.control, JobReport::Exited(status)))
    }

    /// Reaps children, and passes on the wait status of the command. Returns true if any is left.
    fn reap_with(&self, mut report_end: impl FnMut(i32)) -> bool {
        tree::reap(|change| match change {
            ChildChange::Ended(child, status) if child == self.leader => report_end(status),
            ChildChange::Ended(..) | ChildChange::Stopped(_) => {}
        })
    }
}
