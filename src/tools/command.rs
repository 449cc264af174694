//! Follows a running command to its end: reads its output, enforces its timeout, terminates it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

use crate::process::{RunningClock, RunningJob, out_of_memory_kills};

use super::capture::OutputCapture;

/// The time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);

/// The maximum time for a killed command to exit. It takes longer if it hangs in the kernel, or on a
/// busy machine.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// The time for which output is still read when the command has exited but other processes hold its
/// pipe.
const DRAIN: Duration = Duration::from_millis(200);

const CHUNK: usize = 64 << 10;

/// The number of times that a pipe is read when its time is over: what it holds, and its end.
const READS_AT_END: usize = 2;

/// The cause of a command's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    Exited,
    TimedOut,
    Cancelled,
    /// It was terminated because it used this many bytes of memory.
    MemoryExceeded(u64),
    /// It was killed, and the kernel killed processes for lack of memory while it ran.
    KilledForMemory,
}

#[derive(Debug)]
pub(super) struct EndedCommand {
    /// `None` if the command could not be killed, or the status is not available.
    pub(super) status: Option<ExitStatus>,
    pub(super) cause: CommandEnd,
    /// True if it left processes running, which were killed.
    pub(super) left_behind: bool,
}

/// The process of a command whose end is awaited.
#[derive(Clone, Copy)]
pub(super) enum AwaitedEnd<'a> {
    /// The first one. Those that it leaves are ended.
    First,
    /// The last one: the first one may only start others. The status of the first one is reported
    /// if others are left.
    Last(&'a (dyn Fn(Option<ExitStatus>) + Sync)),
}

impl<'a> AwaitedEnd<'a> {
    /// Waits for the end. Returns the status of the first process.
    fn of(self, running: &mut RunningJob) -> impl Future<Output = Option<ExitStatus>> + use<'a> {
        let first = running.exit();
        let last = match self {
            Self::First => None,
            Self::Last(report) => Some((report, running.last_exit())),
        };
        async move {
            let status = first.await;
            let Some((report, last)) = last else { return status };
            let mut last = std::pin::pin!(last);
            tokio::select! {
                biased;
                () = &mut last => return status,
                () = std::future::ready(()) => report(status),
            }
            last.await;
            status
        }
    }
}

/// The stages of a command, from its start to the end of its output.
///
/// ```text
/// Running ── timeout, cancel ──► Terminating ── grace over ──► Killing ── grace over ──► given up
///    └──────────── leader exits ──────┴──────────────────────────┴──► Draining ──► done
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandStage {
    Running,
    Terminating,
    Killing,
    Draining,
}

/// True if a cancellation changes anything. A command that is being terminated is not terminated
/// sooner, and output printed before the cancellation is still read.
fn can_cancel(stage: CommandStage, ended: &EndedCommand) -> bool {
    let is_terminating = matches!(stage, CommandStage::Terminating | CommandStage::Killing);
    !is_terminating && ended.cause != CommandEnd::Cancelled
}

enum CommandEvent {
    Cancelled,
    TimeUp,
    Exited(Option<ExitStatus>),
    Read(usize),
}

/// Waits for a command to end. Takes at most `limit` plus the time to terminate it. Time in which
/// outlast itself is stopped does not count.
pub(super) async fn wait_for_end(
    mut running: RunningJob,
    limit: Duration,
    cancel: &CancellationToken,
    capture: &mut OutputCapture,
    awaited: AwaitedEnd<'_>,
) -> EndedCommand {
    let output = running.stdout.take();
    let mut output = output.and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let kills_before = out_of_memory_kills();
    let mut chunk = Vec::new();
    let mut exit = std::pin::pin!(awaited.of(&mut running));
    let mut stage = CommandStage::Running;
    let (mut clock, mut wake) = (RunningClock::new(), limit);
    let mut ended = EndedCommand { status: None, cause: CommandEnd::Exited, left_behind: false };
    let mut exited = false;
    while !exited || output.is_some() {
        let happening = tokio::select! {
            biased;
            () = cancel.cancelled(), if can_cancel(stage, &ended) => CommandEvent::Cancelled,
            () = clock.wait_until(wake) => CommandEvent::TimeUp,
            status = &mut exit, if !exited => CommandEvent::Exited(status),
            count = read_chunk(output.as_mut(), &mut chunk) => CommandEvent::Read(count),
        };
        match (happening, stage) {
            (CommandEvent::Exited(status), _) => {
                exited = true;
                ended.status = status;
                (stage, wake) = (CommandStage::Draining, clock.ran() + DRAIN);
            }
            (CommandEvent::Read(0), _) => output = None,
            (CommandEvent::Read(_), _) => capture.push(&chunk).await,
            (CommandEvent::Cancelled | CommandEvent::TimeUp, CommandStage::Draining)
            | (CommandEvent::TimeUp, CommandStage::Killing) => break,
            (CommandEvent::Cancelled, _) => {
                ended.cause = CommandEnd::Cancelled;
                running.terminate();
                (stage, wake) = (CommandStage::Terminating, clock.ran() + TERMINATION_GRACE);
            }
            (CommandEvent::TimeUp, CommandStage::Running) => {
                ended.cause = CommandEnd::TimedOut;
                running.terminate();
                (stage, wake) = (CommandStage::Terminating, clock.ran() + TERMINATION_GRACE);
            }
            (CommandEvent::TimeUp, CommandStage::Terminating) => {
                running.kill();
                (stage, wake) = (CommandStage::Killing, clock.ran() + KILL_GRACE);
            }
        }
    }
    if let Some(taken) = running.memory_taken() {
        ended.cause = CommandEnd::MemoryExceeded(taken);
    } else if ended.cause == CommandEnd::Exited && was_killed(ended.status) {
        // The kernel counts its kills, but does not name the processes.
        let is_short = out_of_memory_kills() > kills_before;
        ended.cause = if is_short { CommandEnd::KilledForMemory } else { CommandEnd::Exited };
    }
    let mut is_pipe_open = output.is_some();
    // On a busy machine the time may run out before the printed output, and its end, were read.
    for pipe in output.iter().cycle().take(READS_AT_END) {
        chunk.clear();
        chunk.reserve(CHUNK);
        match pipe.try_read_buf(&mut chunk) {
            Ok(0) => is_pipe_open = false,
            Ok(_) => capture.push(&chunk).await,
            Err(_) => break,
        }
    }
    ended.left_behind = running.end_leftovers().await || is_pipe_open;
    ended
}

/// Replaces a chunk by the next bytes and returns their number; 0 at the end of the pipe. Without a
/// pipe the future never completes.
async fn read_chunk(pipe: Option<&mut Receiver>, chunk: &mut Vec<u8>) -> usize {
    match pipe {
        Some(pipe) => {
            chunk.clear();
            chunk.reserve(CHUNK);
            // An error in reading counts as the end of the pipe.
            pipe.read_buf(chunk).await.unwrap_or(0)
        }
        None => std::future::pending().await,
    }
}

/// True if SIGKILL ended the command, or the last program of a shell.
fn was_killed(status: Option<ExitStatus>) -> bool {
    status.is_some_and(|status| exit_code(status) == 128 + Signal::SIGKILL as i32)
}

/// The exit code as a shell reports it: 128 plus the signal's number for a killed command.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
