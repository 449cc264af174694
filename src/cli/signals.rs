//! What asks a run to end, and who asks twice.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::{self, Interrupter, Interrupts};
use crate::recovery::Interrupt;

/// A second SIGINT within this time means: now.
const AGAIN: Duration = Duration::from_secs(3);

/// How long after the first interrupt a slow reader is waited for: all must be over within four
/// seconds (SPEC 12), and there may be a result to be rewritten.
const PATIENCE: Duration = Duration::from_millis(2500);

/// How long a reader gets in any case.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// The first interrupt, and whether it was meant even more seriously.
pub(super) struct Signals {
    first: Interrupter,
    /// When the first interrupt came.
    since: watch::Receiver<Option<Instant>>,
    again: watch::Receiver<bool>,
}

impl Signals {
    /// Takes over SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// The system does not let us.
    pub(super) fn listen() -> io::Result<Self> {
        let first = agent::listen()?;
        let (insist, again) = watch::channel(false);
        let mut presses = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            while presses.recv().await.is_some() {
                let soon = last.is_some_and(|last| last.elapsed() < AGAIN);
                insist.send_if_modified(|again| soon && !std::mem::replace(again, true));
                last = Some(Instant::now());
            }
        });
        let (note, since) = watch::channel(None);
        let mut interrupts = first.subscribe();
        tokio::spawn(async move {
            // The error says that the run is over.
            if interrupts.wait_for(Option::is_some).await.is_ok() {
                note.send_replace(Some(Instant::now()));
            }
            // A sender that is gone would look like news.
            note.closed().await;
        });
        Ok(Self { first, since, again })
    }

    pub(super) fn interrupts(&self) -> Interrupts {
        self.first.subscribe()
    }

    /// What a broken standard output does.
    pub(super) fn stdout_closes(&self) -> impl FnOnce() + Send + 'static {
        let first = self.first.clone();
        move || agent::interrupt(&first, Interrupt::StdoutClosed)
    }

    /// Waits for the first interrupt.
    pub(super) async fn first(&self) -> Interrupt {
        let mut first = self.first.subscribe();
        match first.wait_for(Option::is_some).await.map(|interrupt| *interrupt) {
            Ok(Some(interrupt)) => interrupt,
            // The sender is ours, so it is still there, and the value was just seen.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// What asked first, if anything did.
    pub(super) fn asked(&self) -> Option<Interrupt> {
        *self.first.borrow()
    }

    /// Waits until whoever asked for an end must not be kept waiting any longer.
    pub(super) async fn out_of_patience(&self) {
        let mut since = self.since.clone();
        let asked = match since.wait_for(Option::is_some).await.map(|since| *since) {
            Ok(Some(asked)) => asked,
            Ok(None) | Err(_) => std::future::pending().await,
        };
        let end = asked + PATIENCE;
        tokio::select! {
            () = tokio::time::sleep_until(end) => {}
            () = self.second() => {}
        }
        tokio::time::sleep(LAST_WORDS).await;
    }

    /// Waits for a second SIGINT.
    pub(super) async fn second(&self) {
        let mut again = self.again.clone();
        if again.wait_for(|again| *again).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
