//! One hook, from its start to its end.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::{Job, Running, Supervisor};

use super::answer::{HookEnd, Performance};

/// What is read of each stream of a hook, in bytes. The rest is thrown away.
const HEARD_MAX: usize = 10_000_000;

const CHUNK: usize = 16 << 10;

/// How long what a hook printed last is still read once it has ended by itself. Nobody of its own
/// is left to hold its pipes, so that only a busy machine can take so long.
const HEARING: Duration = Duration::from_secs(2);

/// The same when it was ended, and has no say any more.
const DRAIN: Duration = Duration::from_millis(200);

/// How long a hook has to end by itself once it is asked to.
const GRACE: Duration = Duration::from_millis(500);

/// Runs one hook to its end.
pub(super) async fn perform(
    supervisor: Supervisor,
    job: Job,
    input: Vec<u8>,
    limit: Duration,
    cancel: CancellationToken,
) -> Performance {
    let running = match supervisor.start(&job).await {
        Ok(running) => running,
        Err(error) => {
            return Performance::of(HookEnd::Failed(format!("cannot be started: {error}")));
        }
    };
    follow(running, input, limit, cancel).await
}

/// Sees a hook through: tells it what happened, hears what it says, minds its time.
async fn follow(
    mut running: Running,
    input: Vec<u8>,
    limit: Duration,
    cancel: CancellationToken,
) -> Performance {
    let stdin = running.stdin.take().and_then(|pipe| Sender::from_owned_fd(pipe.into()).ok());
    let out = running.stdout.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let err = running.stderr.take().and_then(|pipe| Receiver::from_owned_fd(pipe.into()).ok());
    let (told, said) = (Heard::default(), Heard::default());
    let mut streams = JoinSet::new();
    streams.spawn(async move {
        if let Some(mut stdin) = stdin {
            // One that does not read what it is told has ended, or does not care.
            let _ = stdin.write_all(&input).await;
        }
    });
    streams.spawn(told.clone().listen(out));
    streams.spawn(said.clone().listen(err));
    let mut exit = std::pin::pin!(running.exit());
    let exited = tokio::select! {
        biased;
        status = &mut exit => Ok(ended(status)),
        () = tokio::time::sleep(limit) => Err(HookEnd::TimedOut),
        () = cancel.cancelled() => Err(HookEnd::Cut),
    };
    if exited.is_err() {
        running.terminate();
        let _ = tokio::time::timeout(GRACE, exit).await;
    }
    // What it left behind would hold its pipes open.
    running.sweep().await;
    let drained = async { while streams.join_next().await.is_some() {} };
    let patience = if exited.is_ok() { HEARING } else { DRAIN };
    let _ = tokio::time::timeout(patience, drained).await;
    Performance { end: exited.unwrap_or_else(|end| end), out: told.text(), err: said.text() }
}

/// What was read of a stream so far.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    /// Reads to the end, and keeps what may be of use.
    async fn listen(self, pipe: Option<Receiver>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; CHUNK];
        // What cannot be read has nothing more to say.
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = HEARD_MAX.saturating_sub(heard.len()).min(count);
            heard.extend_from_slice(&chunk[..room]);
        }
    }

    fn text(&self) -> String {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&heard).into_owned()
    }
}

fn ended(status: Option<ExitStatus>) -> HookEnd {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => HookEnd::Exited(code),
        Some((None, Some(signal))) => HookEnd::Killed { signal },
        Some((None, None)) | None => HookEnd::Failed("its exit code is unknown".to_owned()),
    }
}
