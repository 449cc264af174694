//! Runs one hook process, from its start to its end.

use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::json;
use crate::process::{
    Job, PipeName, ProgramChange, RunningJob, StartUnknown, Supervisor, has_filter, looks_denied,
    sleep_while_running, timeout_while_running,
};

use super::background::{Opening, Release, has_request};
use super::result::{HookEnd, HookRun};

/// The most bytes kept of each output stream of a hook; the rest is discarded.
const STREAM_BYTES_MAX: usize = 10_000_000;

const CHUNK: usize = 16 << 10;

/// The time limit for reading the remaining output after a hook has ended by itself, if the output
/// goes through a filter that is still running (`exec > >(jq .)`).
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// The slots of hooks whose processes keep running after the hook has ended.
static LEFT_RUNNING: Semaphore = Semaphore::const_new(32);

/// Like [`DRAIN_MAX`], for a hook that was killed, so that its output does not count, and for a
/// hook whose output seems complete: it has its answer, or only processes that it left in the
/// background hold its pipes.
const KILLED_DRAIN_MAX: Duration = Duration::from_millis(200);

/// The time limit for checking the programs of a hook that has ended, within that of all hooks of
/// the event.
const CHECK_MAX: Duration = Duration::from_secs(10);

/// The time that a hook has to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// Runs one hook until it ends.
pub(super) async fn run_hook(
    supervisor: Supervisor,
    job: Job,
    input: Vec<u8>,
    limit: Duration,
    cancel: CancellationToken,
) -> HookRun {
    match Following::begin(&supervisor, &job, (input, Arc::default()), limit).await {
        Ok(following) => following.finish(&cancel).await,
        Err(hook_run) => hook_run,
    }
}

type Exit = Pin<Box<dyn Future<Output = Option<ExitStatus>> + Send>>;
type TimeLimit = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A running hook: its input and output are piped, and its time is limited.
pub(super) struct Following {
    running: RunningJob,
    exit: Exit,
    /// Writes the input.
    writer: JoinSet<()>,
    /// Read the output.
    streams: JoinSet<()>,
    out: StreamHead,
    err: StreamHead,
    /// Its standard output and error.
    outputs: Vec<PipeName>,
    /// Its standard input.
    input_pipe: Option<PipeName>,
    /// Ends when its time is up.
    time: TimeLimit,
    /// The input that it was given.
    input: Arc<Value>,
}

/// The outcome of waiting for a hook.
pub(super) enum Awaited {
    Ended(HookRun),
    /// It requested to continue in the background, so its output has no effect.
    Released(Box<Following>),
}

impl Following {
    /// Starts a hook, which reads `text` on its standard input: the JSON of `input`.
    ///
    /// # Errors
    /// It cannot be started; the error is the result of the hook.
    pub(super) async fn begin(
        supervisor: &Supervisor,
        job: &Job,
        (text, input): (Vec<u8>, Arc<Value>),
        limit: Duration,
    ) -> Result<Self, HookRun> {
        let started = supervisor.start(job).await;
        let mut running = started.map_err(|error| {
            if StartUnknown::is_cause_of(&error) {
                return HookRun::of(HookEnd::Failed(format!("its exit code is unknown: {error}")));
            }
            let changed = error.get_ref().and_then(|cause| cause.downcast_ref::<ProgramChange>());
            let end = if changed.is_some() { HookEnd::ProgramChanged } else { HookEnd::Failed };
            HookRun::of(end(format!("cannot be started: {error}")))
        })?;
        let input_pipe = running.stdin.as_ref().and_then(PipeName::of);
        let stdout = running.stdout.as_ref().and_then(PipeName::of);
        let stderr = running.stderr.as_ref().and_then(PipeName::of);
        let outputs = stdout.into_iter().chain(stderr).collect();
        let stdin = running.stdin.take().and_then(|pipe| Sender::from_owned_fd(pipe.into()).ok());
        let stdout =
            running.stdout.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
        let stderr =
            running.stderr.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
        let (out, err) = (StreamHead::default(), StreamHead::default());
        let (mut writer, mut streams) = (JoinSet::new(), JoinSet::new());
        writer.spawn(async move {
            if let Some(mut stdin) = stdin {
                // An error means that the hook has ended, or does not read its input.
                let _ = stdin.write_all(&text).await;
            }
        });
        streams.spawn(out.clone().read_all(stdout));
        streams.spawn(err.clone().read_all(stderr));
        let exit = Box::pin(running.exit());
        let time = Box::pin(sleep_while_running(limit));
        Ok(Self { running, exit, writer, streams, out, err, outputs, input_pipe, time, input })
    }

    /// Waits until the hook ends, or requests to continue in the background.
    pub(super) async fn wait(mut self, cancel: &CancellationToken) -> Awaited {
        let ended = tokio::select! {
            biased;
            status = &mut self.exit => Ok(end_of(status)),
            () = cancel.cancelled() => Err(HookEnd::Cancelled),
            // Before the time limit, which a request that came in time replaces.
            release = self.out.wait_for_background_request(&self.input) => {
                if let Some(limit) = release.limit {
                    self.time = Box::pin(sleep_while_running(limit));
                }
                return Awaited::Released(Box::new(self));
            }
            () = &mut self.time => Err(HookEnd::TimedOut),
        };
        Awaited::Ended(self.collect_output(ended, cancel).await)
    }

    /// Waits until the hook ends, even if it requests to run in the background.
    pub(super) async fn finish(mut self, cancel: &CancellationToken) -> HookRun {
        let ended = wait_for_end(&mut self.exit, &mut self.time, cancel).await;
        self.collect_output(ended, cancel).await
    }

    /// Returns the output so far.
    pub(super) fn output_so_far(&self, end: HookEnd) -> HookRun {
        let (stdout, is_cut) = self.out.received().text();
        let (stderr, _) = self.err.received().text();
        HookRun { end, stdout, stderr, is_cut }
    }

    /// Kills a hook that has not ended by itself, and reads the remaining output. Processes that a
    /// hook left when it ended by itself, such as a service, run on until the run ends.
    async fn collect_output(
        mut self,
        ended: Result<HookEnd, HookEnd>,
        cancel: &CancellationToken,
    ) -> HookRun {
        if ended.is_err() {
            self.running.terminate();
            let _ = timeout_while_running(GRACE, &mut self.exit).await;
        }
        self.writer.abort_all();
        let ended = match ended {
            Ok(end) => self.check_programs(end, cancel).await,
            Err(end) => Err(end),
        };
        let confined = self.running.is_confined;
        if let Ok(end) = &ended {
            self.drain(end, cancel).await;
        }
        let may_leave = ended.is_ok() && !cancel.is_cancelled();
        let slot = may_leave.then(|| LEFT_RUNNING.try_acquire().ok()).flatten();
        let Self { mut running, mut streams, out, err, .. } = self;
        if slot.is_none() {
            running.end_leftovers().await;
            let drained = async { while streams.join_next().await.is_some() {} };
            let _ = timeout_while_running(KILLED_DRAIN_MAX, drained).await;
        } else {
            let last_exit = running.last_exit();
            tokio::spawn(async move {
                last_exit.await;
                // Dropped earlier, these would end the processes, or close their output.
                drop((running, streams, slot));
            });
        }
        let (Ok(end) | Err(end)) = ended;
        let (stdout, is_cut) = out.close();
        let (stderr, _) = err.close();
        let is_denied = confined && end != HookEnd::Exited(0) && looks_denied(&stderr);
        let stderr = if is_denied { with_sandbox_hint(&stderr) } else { stderr };
        HookRun { end, stdout, stderr, is_cut }
    }

    /// Checks the programs of a hook that has ended by itself. Their disk may hang, for which the
    /// hook is not at fault. `Err`: its output does not count, for this reason.
    async fn check_programs(
        &mut self,
        end: HookEnd,
        cancel: &CancellationToken,
    ) -> Result<HookEnd, HookEnd> {
        let found = timeout_while_running(CHECK_MAX, self.running.find_change());
        match cancel.run_until_cancelled(found).await {
            Some(Some(Ok(None))) => Ok(end),
            Some(Some(Ok(Some(why)))) => Ok(HookEnd::ProgramChanged(why.to_string())),
            Some(Some(Err(_panic))) => Err(HookEnd::Crashed),
            Some(None) => {
                let why = format!("its programs were not checked within {} s", CHECK_MAX.as_secs());
                Err(HookEnd::ProgramChanged(why))
            }
            None => Err(HookEnd::Cancelled),
        }
    }

    /// Reads the output of a hook that has ended by itself: to its end, or until it is complete
    /// although a process still holds the pipes.
    async fn drain(&mut self, end: &HookEnd, cancel: &CancellationToken) {
        let Self { streams, out, err, time, outputs, input_pipe, .. } = self;
        let drained = async { while streams.join_next().await.is_some() {} };
        let answered = async {
            while !has_answer(end, out, err) {
                tokio::select! {
                    () = out.grown().notified() => {}
                    () = err.grown().notified() => {}
                }
            }
            // The rest of what the hook itself wrote may still be in the pipe.
            sleep_while_running(KILLED_DRAIN_MAX).await;
        };
        let unfiltered = async {
            loop {
                sleep_while_running(KILLED_DRAIN_MAX).await;
                let (outputs, input) = (outputs.clone(), input_pipe.clone());
                let find = move || has_filter(&outputs, input.as_ref());
                if tokio::task::spawn_blocking(find).await.is_ok_and(|is_there| !is_there) {
                    return;
                }
            }
        };
        let read = async {
            tokio::select! {
                biased;
                () = drained => {}
                () = cancel.cancelled() => {}
                () = answered => {}
                () = unfiltered => {}
                () = time => {}
            }
        };
        let _ = timeout_while_running(DRAIN_MAX, read).await;
    }
}

/// Returns true if the output of a hook that has ended is complete: its reason for exit code 2, or
/// whole JSON objects.
fn has_answer(end: &HookEnd, out: &StreamHead, err: &StreamHead) -> bool {
    let has_reason = *end == HookEnd::Exited(2) && !err.received().bytes.trim_ascii().is_empty();
    let out = out.received();
    let out = out.bytes.trim_ascii();
    let is_object = out.starts_with(b"{") && out.ends_with(b"}");
    let mut values = Deserializer::from_slice(out).into_iter::<IgnoredAny>();
    has_reason || is_object && values.all(|value| value.is_ok())
}

/// Adds the possible cause and its remedy to the first line.
fn with_sandbox_hint(stderr: &str) -> String {
    let (first, rest) = stderr.trim_start().split_once('\n').unwrap_or((stderr, ""));
    let hint = "it runs in the sandbox of commands, which unconfinedPrograms lifts";
    format!("{} ({hint})\n{rest}", first.trim())
}

/// The beginning of an output stream, as far as it is read. Clones share it.
#[derive(Clone, Debug, Default)]
struct StreamHead(Arc<(Mutex<Received>, Notify)>);

#[derive(Debug, Default)]
struct Received {
    bytes: Vec<u8>,
    /// True if bytes were discarded.
    is_cut: bool,
    /// True if what follows is discarded.
    is_closed: bool,
}

impl Received {
    /// Returns the text so far, and whether bytes were discarded.
    fn text(&self) -> (String, bool) {
        (json::decode(&self.bytes).into_owned(), self.is_cut)
    }
}

impl StreamHead {
    /// Reads to the end, keeping the first [`STREAM_BYTES_MAX`] bytes.
    async fn read_all(self, pipe: Option<Receiver>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; CHUNK];
        // A read error ends the stream.
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            {
                let mut received = self.received();
                let most = if received.is_closed { 0 } else { STREAM_BYTES_MAX };
                let room = most.saturating_sub(received.bytes.len()).min(count);
                received.bytes.extend_from_slice(&chunk[..room]);
                received.is_cut |= room < count;
            }
            self.grown().notify_one();
        }
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.0.0.lock()
    }

    fn grown(&self) -> &Notify {
        &self.0.1
    }

    /// Returns the text, and whether bytes were discarded. What follows is discarded.
    fn close(&self) -> (String, bool) {
        let closed = Received { is_closed: true, ..Received::default() };
        std::mem::replace(&mut *self.received(), closed).text()
    }

    /// Waits until the output begins with a request to run in the background; never returns if it
    /// begins with anything else. Cancel-safe.
    async fn wait_for_background_request(&self, input: &Arc<Value>) -> Release {
        let release = loop {
            let opening = Opening::classify(&self.received().bytes);
            match opening {
                Opening::Release(release) => break release,
                Opening::Other => std::future::pending::<()>().await,
                Opening::Incomplete => self.grown().notified().await,
            }
        };
        // The disk of a file that the input names may hang.
        let input = Arc::clone(input);
        let is_repeated = tokio::task::spawn_blocking(move || has_request(&input));
        if is_repeated.await.unwrap_or(true) {
            std::future::pending::<()>().await;
        }
        release
    }
}

/// Waits until a hook ends. `Err`: it must be ended, for this reason. Cancel-safe.
async fn wait_for_end(
    exit: &mut Exit,
    time: &mut TimeLimit,
    cancel: &CancellationToken,
) -> Result<HookEnd, HookEnd> {
    tokio::select! {
        biased;
        status = exit => Ok(end_of(status)),
        () = cancel.cancelled() => Err(HookEnd::Cancelled),
        () = time => Err(HookEnd::TimedOut),
    }
}

fn end_of(status: Option<ExitStatus>) -> HookEnd {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => HookEnd::Exited(code),
        Some((None, Some(signal))) => HookEnd::Killed { signal },
        Some((None, None)) | None => HookEnd::Failed("its exit code is unknown".to_owned()),
    }
}
