//! Signal handling: the first interrupt, and a second SIGINT.
//!
//! Signals are handled on the main thread, which does nothing else: the kernel prefers it, so that
//! a signal is handled even while the run's thread is blocked in the kernel.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::{self, InterruptReceiver, InterruptSender};
use crate::process::{IncomingSignals, ReceivedSignal, is_ignored};
use crate::recovery::Interrupt;

/// Handled signals: those that request the end of a process, and by default end it without a
/// result. Slurm warns with SIGUSR1, a limit of processor time with SIGXCPU.
const TERMINATION_SIGNALS: [(Signal, Interrupt); 8] = [
    (Signal::SIGINT, Interrupt::Sigint),
    (Signal::SIGTERM, Interrupt::Sigterm),
    (Signal::SIGHUP, Interrupt::Sighup),
    (Signal::SIGQUIT, Interrupt::Sigquit),
    (Signal::SIGUSR1, Interrupt::Sigusr1),
    (Signal::SIGUSR2, Interrupt::Sigusr2),
    (Signal::SIGALRM, Interrupt::Sigalrm),
    (Signal::SIGXCPU, Interrupt::Sigxcpu),
];

/// A second SIGINT within this time ends the run at once.
const SECOND_SIGINT_WITHIN: Duration = Duration::from_secs(3);

/// The time limit of a slow reader after the first interrupt: the process must end within four
/// seconds, and the result may have to be rewritten.
const READER_LIMIT: Duration = Duration::from_millis(2500);

/// The minimum time for a reader of standard output.
const READER_TIME_MIN: Duration = Duration::from_millis(200);

/// Time after the first interrupt, and after the second SIGINT, at which the watchdog ends the
/// process. Less than the documented time, since writing the result takes some.
const EXIT_LIMIT: Duration = Duration::from_millis(3200);
const EXIT_LIMIT_AFTER_SECOND: Duration = Duration::from_millis(270);

/// Pairs of descriptors that have to be free before the first runtime is built. It opens four
/// descriptors and a pair for signals, and panics if there is no room for the pair.
const RUNTIME_PAIRS: usize = 3;

/// The first interrupt, and a second SIGINT.
#[derive(Clone)]
pub(super) struct SignalState {
    first: InterruptSender,
    /// Interrupts of the whole process. A turn has interrupts of its own in `first`.
    process: InterruptSender,
    /// Time of the first interrupt.
    since: watch::Receiver<Option<Instant>>,
    /// Time of the second SIGINT.
    again: watch::Receiver<Option<Instant>>,
    /// The first signal of a command of the run.
    disregarded: watch::Receiver<Option<ReceivedSignal>>,
}

/// Installs the signal handlers. Signals are received while the returned runtime runs something.
///
/// Signals that the parent has ignored stay ignored: `nohup`, or a background job of a shell.
///
/// # Errors
/// The handlers cannot be installed.
pub(super) fn listen() -> io::Result<(Runtime, SignalState)> {
    // Signals stay pending until the handlers are installed. Inherited blocks are cleared: with
    // them, neither outlast nor its commands could be ended by signals.
    let _ = SigSet::all().thread_block();
    let listening = install();
    let _ = SigSet::empty().thread_set_mask();
    listening
}

fn install() -> io::Result<(Runtime, SignalState)> {
    let spare: Vec<_> =
        (0..RUNTIME_PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<_>>()?;
    drop(spare);
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let inside = runtime.enter();
    let first = InterruptSender::new(None);
    let (insist, again) = watch::channel(None);
    let (note, since) = watch::channel(None);
    // With a handler for SIGXFSZ, a file beyond `ulimit -f` is a write error instead of the end of
    // the process.
    drop(signal(SignalKind::from_raw(Signal::SIGXFSZ as i32))?);
    let watched =
        TERMINATION_SIGNALS.iter().map(|(signal, _)| *signal).filter(|signal| !is_ignored(*signal));
    let incoming = IncomingSignals::listen(watched)?;
    let (disregard, disregarded) = watch::channel(None);
    tokio::spawn(forward(incoming, first.clone(), insist, disregard));
    let mut interrupts = first.subscribe();
    tokio::spawn(async move {
        // An error means that the run is over.
        if interrupts.wait_for(Option::is_some).await.is_ok() {
            note.send_replace(Some(Instant::now()));
        }
        // A dropped sender would look like a change.
        note.closed().await;
    });
    drop(inside);
    let process = first.clone();
    Ok((runtime, SignalState { first, process, since, again, disregarded }))
}

/// Forwards the first interrupt, and records the second of two SIGINT that are close together. A
/// signal that a command of the run sent is disregarded: it is not from the user.
async fn forward(
    incoming: IncomingSignals,
    first: InterruptSender,
    insist: watch::Sender<Option<Instant>>,
    disregard: watch::Sender<Option<ReceivedSignal>>,
) {
    let mut last: Option<Instant> = None;
    while let Ok(received) = incoming.next().await {
        let ReceivedSignal { signal, is_of_descendant } = received;
        let Some((_, meaning)) = TERMINATION_SIGNALS.iter().find(|(known, _)| *known == signal)
        else {
            continue;
        };
        if is_of_descendant {
            disregard
                .send_if_modified(|known| known.is_none() && known.replace(received).is_none());
            continue;
        }
        agent::interrupt(&first, *meaning);
        if signal != Signal::SIGINT {
            continue;
        }
        let now = Instant::now();
        let soon = last.is_some_and(|last| now.duration_since(last) < SECOND_SIGINT_WITHIN);
        insist.send_if_modified(|again| soon && again.is_none() && again.replace(now).is_none());
        last = Some(now);
    }
    // A dropped sender would look like a change.
    tokio::join!(insist.closed(), disregard.closed());
}

impl SignalState {
    /// Returns the signals of one turn of a host, and a sender that interrupts this turn alone.
    /// Must be called within a runtime.
    pub(super) fn for_turn(&self) -> (Self, InterruptSender) {
        let first = InterruptSender::new(None);
        let (note, since) = watch::channel(None);
        let (of_process, of_turn) = (self.clone(), first.clone());
        tokio::spawn(async move {
            tokio::select! {
                interrupt = of_process.first() => agent::interrupt(&of_turn, interrupt),
                _ = next_value(of_turn.subscribe()) => {}
                () = note.closed() => return,
            }
            note.send_replace(Some(Instant::now()));
            // A dropped sender would look like a change.
            note.closed().await;
        });
        let (again, disregarded) = (self.again.clone(), self.disregarded.clone());
        let process = self.process.clone();
        (Self { first: first.clone(), process, since, again, disregarded }, first)
    }

    pub(super) fn interrupts(&self) -> InterruptReceiver {
        self.first.subscribe()
    }

    /// Returns the callback for a broken standard output.
    pub(super) fn stdout_closes(&self) -> impl FnOnce() + Send + 'static {
        let first = self.first.clone();
        move || agent::interrupt(&first, Interrupt::StdoutClosed)
    }

    /// Waits for the first interrupt.
    pub(super) async fn first(&self) -> Interrupt {
        next_value(self.first.subscribe()).await
    }

    /// Waits for the first interrupt of the whole process, not of a turn alone.
    pub(super) async fn first_of_process(&self) -> Interrupt {
        next_value(self.process.subscribe()).await
    }

    /// Returns the first interrupt, if any.
    pub(super) fn interrupt(&self) -> Option<Interrupt> {
        *self.first.borrow()
    }

    /// Waits for a signal of a command of the run, and returns a warning.
    pub(super) async fn disregarded(&self) -> String {
        next_value(self.disregarded.clone()).await;
        self.disregarded_warning().unwrap_or_default()
    }

    /// Returns a warning about the first signal of a command of the run, if there was one.
    pub(super) fn disregarded_warning(&self) -> Option<String> {
        self.disregarded.borrow().map(|ReceivedSignal { signal, .. }| {
            format!("{signal} was sent by a command of the run itself, and is not obeyed")
        })
    }

    /// Waits until the time limit of a slow reader after an interrupt.
    pub(super) async fn reader_timeout(&self) {
        let end = next_value(self.since.clone()).await + READER_LIMIT;
        tokio::select! {
            () = tokio::time::sleep_until(end) => {}
            () = self.second() => {}
        }
        tokio::time::sleep(READER_TIME_MIN).await;
    }

    /// Waits for a second SIGINT.
    pub(super) async fn second(&self) {
        next_value(self.again.clone()).await;
    }

    /// Waits until the process should have ended after an interrupt.
    pub(super) async fn overdue(&self) -> Interrupt {
        let passed = async |time: &watch::Receiver<Option<Instant>>, limit| {
            tokio::time::sleep_until(next_value(time.clone()).await + limit).await;
        };
        tokio::select! {
            () = passed(&self.since, EXIT_LIMIT) => {}
            () = passed(&self.again, EXIT_LIMIT_AFTER_SECOND) => {}
        }
        self.first().await
    }
}

/// Waits for a value; for ever if the sender is gone.
async fn next_value<T: Copy>(mut values: watch::Receiver<Option<T>>) -> T {
    if let Ok(value) = values.wait_for(Option::is_some).await
        && let Some(value) = *value
    {
        return value;
    }
    std::future::pending().await
}
