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

/// The first interrupt, and whether it was meant even more seriously.
pub(super) struct Signals {
    first: Interrupter,
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
        Ok(Self { first, again })
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

    /// Waits for a second SIGINT.
    pub(super) async fn second(&self) {
        let mut again = self.again.clone();
        if again.wait_for(|again| *again).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
