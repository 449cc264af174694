//! Follows a started command to its end: reads what it prints, minds its time, ends it.

use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::Running;

use super::capture::{Capture, Stream};

/// How long a command has to end by itself once it is asked to.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);

/// How long a killed command may take to be gone. Longer only if it hangs in the kernel.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How long output is still read when the command itself is over but others hold its pipe.
const DRAIN: Duration = Duration::from_millis(200);

const CHUNK: usize = 64 << 10;

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Itself,
    TimedOut,
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Ended {
    /// `None` when the command could not be killed, or the system does not tell.
    pub(super) status: Option<ExitStatus>,
    pub(super) cause: Cause,
    /// It left processes running, and they were ended.
    pub(super) left_behind: bool,
}

/// ```text
/// Running ── timeout, cancel ──► Terminating ── grace over ──► Killing ── grace over ──► given up
///    └──────────── leader exits ──────┴──────────────────────────┴──► Draining ──► done
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Terminating,
    Killing,
    Draining,
}

impl Stage {
    /// Whether a cancel changes anything. A command that is being ended is not ended faster.
    fn heeds_cancel(self) -> bool {
        matches!(self, Self::Running | Self::Draining)
    }
}

enum Happening {
    Cancelled,
    TimeUp,
    Exited(Option<ExitStatus>),
    Read(Stream, usize),
}

/// Sees a command through. Takes at most `limit` and what it takes to end it.
pub(super) async fn follow(
    mut running: Running,
    limit: Duration,
    cancel: &CancellationToken,
    capture: &mut Capture,
) -> Ended {
    let mut out = running.stdout.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let mut err = running.stderr.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let (mut out_chunk, mut err_chunk) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut exit = std::pin::pin!(running.exit());
    let mut stage = Stage::Running;
    let mut wake = Instant::now() + limit;
    let mut ended = Ended { status: None, cause: Cause::Itself, left_behind: false };
    let mut exited = false;
    while !exited || out.is_some() || err.is_some() {
        let happening = tokio::select! {
            biased;
            () = cancel.cancelled(), if stage.heeds_cancel() => Happening::Cancelled,
            () = tokio::time::sleep_until(wake) => Happening::TimeUp,
            status = &mut exit, if !exited => Happening::Exited(status),
            count = read(out.as_mut(), &mut out_chunk) => Happening::Read(Stream::Out, count),
            count = read(err.as_mut(), &mut err_chunk) => Happening::Read(Stream::Err, count),
        };
        match (happening, stage) {
            (Happening::Exited(status), _) => {
                exited = true;
                ended.status = status;
                (stage, wake) = (Stage::Draining, Instant::now() + DRAIN);
            }
            (Happening::Read(Stream::Out, 0), _) => out = None,
            (Happening::Read(Stream::Err, 0), _) => err = None,
            (Happening::Read(Stream::Out, count), _) => {
                capture.push(Stream::Out, &out_chunk[..count]).await;
            }
            (Happening::Read(Stream::Err, count), _) => {
                capture.push(Stream::Err, &err_chunk[..count]).await;
            }
            (Happening::Cancelled | Happening::TimeUp, Stage::Draining)
            | (Happening::TimeUp, Stage::Killing) => break,
            (Happening::Cancelled, _) => {
                ended.cause = Cause::Cancelled;
                running.terminate();
                (stage, wake) = (Stage::Terminating, Instant::now() + TERMINATION_GRACE);
            }
            (Happening::TimeUp, Stage::Running) => {
                ended.cause = Cause::TimedOut;
                running.terminate();
                (stage, wake) = (Stage::Terminating, Instant::now() + TERMINATION_GRACE);
            }
            (Happening::TimeUp, Stage::Terminating) => {
                running.kill();
                (stage, wake) = (Stage::Killing, Instant::now() + KILL_GRACE);
            }
        }
    }
    let held = out.is_some() || err.is_some();
    ended.left_behind = running.sweep().await || held;
    ended
}

/// Reads some bytes, none at the pipe's end. Without a pipe it never comes back.
async fn read(pipe: Option<&mut Receiver>, chunk: &mut [u8]) -> usize {
    match pipe {
        // A pipe that cannot be read has nothing more to say.
        Some(pipe) => pipe.read(chunk).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}
