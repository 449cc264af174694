//! What asks a run to end, and who asks twice.
//!
//! Signals are listened to on the first thread, which does nothing else: the kernel prefers it,
//! so that a signal is heard even while the thread of the run hangs in the kernel.

use std::io;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::{self, InterruptReceiver, InterruptSender};
use crate::process::is_ignored;
use crate::recovery::Interrupt;

/// The signals that would end the process without a word if nobody listened, as far as they are
/// meant to end it: Slurm warns with SIGUSR1, a limit of processor time with SIGXCPU.
const ENDING: [(Signal, Interrupt); 8] = [
    (Signal::SIGINT, Interrupt::Sigint),
    (Signal::SIGTERM, Interrupt::Sigterm),
    (Signal::SIGHUP, Interrupt::Sighup),
    (Signal::SIGQUIT, Interrupt::Sigquit),
    (Signal::SIGUSR1, Interrupt::Sigusr1),
    (Signal::SIGUSR2, Interrupt::Sigusr2),
    (Signal::SIGALRM, Interrupt::Sigalrm),
    (Signal::SIGXCPU, Interrupt::Sigxcpu),
];

/// A second SIGINT within this time means: now.
const AGAIN: Duration = Duration::from_secs(3);

/// How long after the first interrupt a slow reader is waited for: all must be over within four
/// seconds (SPEC 12), and there may be a result to be rewritten.
const PATIENCE: Duration = Duration::from_millis(2500);

/// How long a reader gets in any case.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// When after the first interrupt, and after the second SIGINT, the process must be over. A
/// moment less than what is promised: it takes time to say so.
const OVER: Duration = Duration::from_millis(3200);
const OVER_AT_ONCE: Duration = Duration::from_millis(270);

/// The first interrupt, and whether it was meant even more seriously.
#[derive(Clone)]
pub(super) struct SignalState {
    first: InterruptSender,
    /// When the first interrupt came.
    since: watch::Receiver<Option<Instant>>,
    /// When SIGINT came for the second time.
    again: watch::Receiver<Option<Instant>>,
}

/// Takes over the signals that end a run, from now on. They arrive as long as the returned
/// runtime runs something.
///
/// What whoever started us has ignored stays ignored: `nohup`, or a job in the background.
///
/// # Errors
/// The system does not let us.
pub(super) fn listen() -> io::Result<(Runtime, SignalState)> {
    // Until somebody listens, they wait. Nor is anything kept blocked that was blocked before:
    // neither we nor our commands could be asked to end.
    let _ = SigSet::all().thread_block();
    let listening = install();
    let _ = SigSet::empty().thread_set_mask();
    listening
}

fn install() -> io::Result<(Runtime, SignalState)> {
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let inside = runtime.enter();
    let first = InterruptSender::new(None);
    let (insist, again) = watch::channel(None);
    let (note, since) = watch::channel(None);
    // Once it is listened to, a file that grows beyond `ulimit -f` is an error of the write, and
    // not the end of the process.
    drop(signal(SignalKind::from_raw(Signal::SIGXFSZ as i32))?);
    for (signal, meaning) in ENDING {
        if is_ignored(signal) {
            continue;
        }
        let incoming = unix::signal(SignalKind::from_raw(signal as i32))?;
        runtime.spawn(hear(incoming, meaning, first.clone()));
        if signal == Signal::SIGINT {
            let presses = unix::signal(SignalKind::interrupt())?;
            runtime.spawn(count(presses, insist.clone()));
        }
    }
    let mut interrupts = first.subscribe();
    runtime.spawn(async move {
        // The error says that the run is over.
        if interrupts.wait_for(Option::is_some).await.is_ok() {
            note.send_replace(Some(Instant::now()));
        }
        // A sender that is gone would look like news.
        note.closed().await;
    });
    // The same for this one, which has no sender where SIGINT is ignored.
    runtime.spawn(async move { insist.closed().await });
    drop(inside);
    Ok((runtime, SignalState { first, since, again }))
}

async fn hear(mut incoming: unix::Signal, meaning: Interrupt, first: InterruptSender) {
    while incoming.recv().await.is_some() {
        agent::interrupt(&first, meaning);
    }
}

/// Notes the second of two SIGINT that are close together.
async fn count(mut presses: unix::Signal, insist: watch::Sender<Option<Instant>>) {
    let mut last: Option<Instant> = None;
    while presses.recv().await.is_some() {
        let now = Instant::now();
        let soon = last.is_some_and(|last| now.duration_since(last) < AGAIN);
        insist.send_if_modified(|again| soon && again.is_none() && again.replace(now).is_none());
        last = Some(now);
    }
}

impl SignalState {
    pub(super) fn interrupts(&self) -> InterruptReceiver {
        self.first.subscribe()
    }

    /// What a broken standard output does.
    pub(super) fn stdout_closes(&self) -> impl FnOnce() + Send + 'static {
        let first = self.first.clone();
        move || agent::interrupt(&first, Interrupt::StdoutClosed)
    }

    /// Waits for the first interrupt.
    pub(super) async fn first(&self) -> Interrupt {
        come(self.first.subscribe()).await
    }

    /// What asked first, if anything did.
    pub(super) fn asked(&self) -> Option<Interrupt> {
        *self.first.borrow()
    }

    /// Waits until whoever asked for an end must not be kept waiting any longer.
    pub(super) async fn out_of_patience(&self) {
        let end = come(self.since.clone()).await + PATIENCE;
        tokio::select! {
            () = tokio::time::sleep_until(end) => {}
            () = self.second() => {}
        }
        tokio::time::sleep(LAST_WORDS).await;
    }

    /// Waits for a second SIGINT.
    pub(super) async fn second(&self) {
        come(self.again.clone()).await;
    }

    /// Waits until all should have been over.
    pub(super) async fn overdue(&self) -> Interrupt {
        let late = async { tokio::time::sleep_until(come(self.since.clone()).await + OVER).await };
        let again = async {
            tokio::time::sleep_until(come(self.again.clone()).await + OVER_AT_ONCE).await;
        };
        tokio::select! {
            () = late => {}
            () = again => {}
        }
        self.first().await
    }
}

/// Waits for a value; for ever, when nobody can send one any more.
async fn come<T: Copy>(mut values: watch::Receiver<Option<T>>) -> T {
    if let Ok(value) = values.wait_for(Option::is_some).await
        && let Some(value) = *value
    {
        return value;
    }
    std::future::pending().await
}
