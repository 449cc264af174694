//! One hook, from its start to its end.

use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::{Job, RunningJob, Supervisor};

use super::answer::{HookEnd, HookRun};
use super::release::{Opening, Release};

/// What is read of each stream of a hook, in bytes. The rest is thrown away.
const STREAM_BYTES_MAX: usize = 10_000_000;

const CHUNK: usize = 16 << 10;

/// How long what a hook printed last is still read once it has ended by itself. Nobody of its own
/// is left to hold its pipes, so that only a busy machine can take so long.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// The same when it was ended, and has no say any more.
const KILLED_DRAIN_MAX: Duration = Duration::from_millis(200);

/// How long a hook has to end by itself once it is asked to.
const GRACE: Duration = Duration::from_millis(500);

/// Runs one hook to its end.
pub(super) async fn run_hook(
    supervisor: Supervisor,
    job: Job,
    input: Vec<u8>,
    limit: Duration,
    cancel: CancellationToken,
) -> HookRun {
    match Following::begin(&supervisor, &job, input, limit).await {
        Ok(following) => following.finish(&cancel).await,
        Err(performance) => performance,
    }
}

/// A hook under way: told what happened, listened to, and bounded in time.
pub(super) struct Following {
    running: RunningJob,
    exit: Pin<Box<dyn Future<Output = Option<ExitStatus>> + Send>>,
    streams: JoinSet<()>,
    out: StreamTail,
    err: StreamTail,
    /// When it is ended.
    end: Instant,
}

/// What came of waiting for a hook.
pub(super) enum Awaited {
    Ended(HookRun),
    /// It asked to run on in the background, so that it has no say.
    Released(Box<Following>),
}

impl Following {
    /// Starts a hook.
    ///
    /// # Errors
    /// It cannot be started: what is known of it then.
    pub(super) async fn begin(
        supervisor: &Supervisor,
        job: &Job,
        input: Vec<u8>,
        limit: Duration,
    ) -> Result<Self, HookRun> {
        let started = supervisor.start(job).await;
        let mut running = started.map_err(|error| {
            HookRun::of(HookEnd::Failed(format!("cannot be started: {error}")))
        })?;
        let stdin = running.stdin.take().and_then(|pipe| Sender::from_owned_fd(pipe.into()).ok());
        let stdout =
            running.stdout.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
        let stderr =
            running.stderr.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
        let (out, err) = (StreamTail::default(), StreamTail::default());
        let mut streams = JoinSet::new();
        streams.spawn(async move {
            if let Some(mut stdin) = stdin {
                // One that does not read what it is told has ended, or does not care.
                let _ = stdin.write_all(&input).await;
            }
        });
        streams.spawn(out.clone().read_all(stdout));
        streams.spawn(err.clone().read_all(stderr));
        let exit = Box::pin(running.exit());
        Ok(Self { running, exit, streams, out, err, end: Instant::now() + limit })
    }

    /// Waits until the hook ends, or asks to run on in the background.
    pub(super) async fn wait(mut self, cancel: &CancellationToken) -> Awaited {
        let ended = tokio::select! {
            biased;
            status = &mut self.exit => Ok(ended(status)),
            () = cancel.cancelled() => Err(HookEnd::Cancelled),
            release = self.out.wait_for_background_request() => {
                if let Some(limit) = release.limit {
                    self.end = Instant::now() + limit;
                }
                return Awaited::Released(Box::new(self));
            }
            () = tokio::time::sleep_until(self.end) => Err(HookEnd::TimedOut),
        };
        Awaited::Ended(self.collect_output(ended).await)
    }

    /// Waits until the hook ends, whatever it asks for.
    pub(super) async fn finish(mut self, cancel: &CancellationToken) -> HookRun {
        let ended = tokio::select! {
            biased;
            status = &mut self.exit => Ok(ended(status)),
            () = cancel.cancelled() => Err(HookEnd::Cancelled),
            () = tokio::time::sleep_until(self.end) => Err(HookEnd::TimedOut),
        };
        self.collect_output(ended).await
    }

    /// What is known of it so far.
    pub(super) fn output_so_far(&self, end: HookEnd) -> HookRun {
        HookRun { end, stdout: self.out.text(), stderr: self.err.text() }
    }

    /// Ends a hook that did not end by itself, and reads what is left to read.
    async fn collect_output(mut self, ended: Result<HookEnd, HookEnd>) -> HookRun {
        if ended.is_err() {
            self.running.terminate();
            let _ = tokio::time::timeout(GRACE, self.exit).await;
        }
        // What it left behind would hold its pipes open.
        self.running.end_leftovers().await;
        let drained = async { while self.streams.join_next().await.is_some() {} };
        let patience = if ended.is_ok() { DRAIN_MAX } else { KILLED_DRAIN_MAX };
        let _ = tokio::time::timeout(patience, drained).await;
        let end = ended.unwrap_or_else(|end| end);
        HookRun { end, stdout: self.out.text(), stderr: self.err.text() }
    }
}

/// What was read of a stream so far.
#[derive(Clone, Debug, Default)]
struct StreamTail {
    bytes: Arc<Mutex<Vec<u8>>>,
    grown: Arc<Notify>,
}

impl StreamTail {
    /// Reads to the end, and keeps what may be of use.
    async fn read_all(self, pipe: Option<Receiver>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; CHUNK];
        // What cannot be read has nothing more to say.
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            {
                let mut heard = self.bytes();
                let room = STREAM_BYTES_MAX.saturating_sub(heard.len()).min(count);
                heard.extend_from_slice(&chunk[..room]);
            }
            self.grown.notify_one();
        }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Waits until it begins with a wish to run on in the background; for ever, once it begins with
    /// anything else. Cancel-safe.
    async fn wait_for_background_request(&self) -> Release {
        loop {
            let begun = Opening::classify(&self.bytes());
            match begun {
                Opening::Release(release) => return release,
                Opening::Other => std::future::pending::<()>().await,
                Opening::Incomplete => self.grown.notified().await,
            }
        }
    }
}

fn ended(status: Option<ExitStatus>) -> HookEnd {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => HookEnd::Exited(code),
        Some((None, Some(signal))) => HookEnd::Killed { signal },
        Some((None, None)) | None => HookEnd::Failed("its exit code is unknown".to_owned()),
    }
}
