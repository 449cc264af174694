//! The job init process: starts the command of one job, and ends all its descendants.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid, setsid};
use tokio::time::Instant;

use super::job::ProcessSpec;
use super::landlock_policy::LandlockRuleset;
use super::signal_waiter::SignalWaiter;
use super::signals;
use super::tree::{self, ChildChange};
use super::wire::{self, JobReport};

/// The time that leftover processes of a command have to end after SIGTERM.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

/// The limit of the wait for the end of killed processes while outlast waits, too.
const KILLING_MAX: Duration = Duration::from_secs(1);

/// Like [`KILLING_MAX`], when outlast does not wait.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The OOM score of a command: the highest, so that the kernel kills it before anything else when
/// memory runs out.
#[cfg(target_os = "linux")]
const OUT_OF_MEMORY_SCORE: &str = "1000";

/// Runs one job to its end. Called in a process of its own, forked by the supervisor.
///
/// # Errors
/// Processes of the job may still run.
pub(super) fn run_job(control: &UnixStream) -> io::Result<()> {
    match start_command(control) {
        Ok((waiter, leader)) => {
            send_report(control, JobReport::Started);
            JobInit { control, signals: waiter, leader }.run()
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::EINVAL as i32);
            send_report(control, JobReport::StartFailed(errno));
            Ok(())
        }
    }
}

/// Sends a report to outlast. If outlast is gone, the next read of the socket fails.
pub(super) fn send_report(mut socket: &UnixStream, report: JobReport) {
    let _ = socket.write_all(&report.encode());
}

fn start_command(mut control: &UnixStream) -> io::Result<(SignalWaiter, Pid)> {
    // Signals to the supervisor's group must not reach this job.
    setsid()?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    let waiter = SignalWaiter::new()?;
    let mut length = [0; 4];
    let (count, descriptors) = wire::receive(control, &mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if count != 4 || length > wire::SPEC_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut spec = vec![0; length];
    control.read_exact(&mut spec)?;
    let mut spec: ProcessSpec = serde_json::from_slice(&spec)?;
    let mut descriptors = descriptors.into_iter();
    let barrier = spec
        .landlock
        .take()
        .map(|policy| policy.with_ruleset(descriptors.next().ok_or(io::ErrorKind::InvalidData)?));
    let child = spawn(spec.command(), descriptors, barrier.transpose()?, control)?;
    Ok((waiter, Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?)))
}

/// Starts the command. The descriptors are its stdout, its stderr, and its stdin if it has one.
/// Landlock restricts the command only: the job init process must be able to signal all
/// descendants.
fn spawn(
    mut command: Command,
    descriptors: impl Iterator<Item = OwnedFd>,
    barrier: Option<LandlockRuleset>,
    control: &UnixStream,
) -> io::Result<Child> {
    let mut descriptors = descriptors.map(Stdio::from);
    let (Some(output), Some(errors)) = (descriptors.next(), descriptors.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    command.stdout(output).stderr(errors);
    command.stdin(descriptors.next().unwrap_or_else(Stdio::null));
    let (job_init, control) = (getpid(), control.try_clone()?);
    // SAFETY: the forking process has one thread, so its child may call anything.
    unsafe { command.pre_exec(move || prepare_exec(job_init, barrier.as_ref(), &control)) };
    command.spawn()
}

/// Prepares the forked process, right before it executes the command.
fn prepare_exec(
    job_init: Pid,
    barrier: Option<&LandlockRuleset>,
    control: &UnixStream,
) -> io::Result<()> {
    setsid()?;
    signals::reset_for_exec()?;
    #[cfg(target_os = "linux")]
    {
        // Some systems do not let a process raise its own score.
        let _ = std::fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE);
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    // If the job init process died before the death signal was set, the command must not run.
    if getppid() != job_init {
        return Err(Errno::ESRCH.into());
    }
    match barrier.map(LandlockRuleset::restrict_self).transpose()?.flatten() {
        // Only outlast keeps the listener: the calls of a job fail when outlast is gone.
        Some(listener) => {
            let report = JobReport::Listener(job_init.as_raw());
            wire::send(control, &report.encode(), &[listener])
        }
        None => Ok(()),
    }
}

struct JobInit<'a> {
    control: &'a UnixStream,
    signals: SignalWaiter,
    /// The command.
    leader: Pid,
}

impl JobInit<'_> {
    fn run(&self) -> io::Result<()> {
        loop {
            let ordered = self.signals.wait_readable(self.control, None);
            if let Some(taken) = self.signals.memory_exceeded() {
                // Sent first, so that outlast has the reason before the end.
                send_report(self.control, JobReport::MemoryExceeded(taken));
                self.end_all(KILLING_MAX);
            }
            self.reap();
            if !ordered {
                continue;
            }
            let mut order = [0];
            let mut control = self.control;
            // An unreadable order means that outlast is gone.
            let order = control.read_exact(&mut order).ok().map(|()| order[0]);
            match order {
                Some(wire::TERMINATE) => tree::signal_descendants(Signal::SIGTERM),
                Some(wire::KILL) => self.end_all(KILLING_MAX),
                Some(wire::SWEEP) => self.end_leftovers(),
                Some(_) | None => break,
            }
        }
        self.end_all(KILL_LIMIT);
        if self.reap() { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
    }

    /// Ends the processes that the command left behind, and reports whether there were any.
    fn end_leftovers(&self) {
        let left = self.reap();
        if left {
            tree::signal_descendants(Signal::SIGTERM);
            let end = Instant::now() + LEFTOVER_GRACE;
            while self.reap() && Instant::now() < end {
                self.signals.wait_for_child(end - Instant::now());
            }
            self.end_all(KILLING_MAX);
        }
        send_report(self.control, JobReport::LeftoversEnded(left));
    }

    fn end_all(&self, limit: Duration) {
        tree::kill_until_gone(limit, &self.signals, || self.reap());
    }

    /// Reaps children. Returns true if any is left.
    fn reap(&self) -> bool {
        tree::reap(|change| match change {
            ChildChange::Ended(child, status) if child == self.leader => {
                send_report(self.control, JobReport::Exited(status));
            }
            ChildChange::Ended(..) | ChildChange::Stopped(_) => {}
        })
    }
}
