//! Interrupts: requests to a run to stop.

use tokio::sync::watch;

use crate::recovery::Interrupt;

/// Receives interrupts: the first value wins.
pub type InterruptReceiver = watch::Receiver<Option<Interrupt>>;

/// The other end of [`InterruptReceiver`].
pub type InterruptSender = watch::Sender<Option<Interrupt>>;

/// Signals that a call of a sub-agent was denied and the run must end.
pub(super) type DenialReceiver = watch::Receiver<bool>;

/// Asks the run to stop. The first request is the reason that the run reports.
pub fn interrupt(interrupter: &InterruptSender, by: Interrupt) {
    interrupter.send_if_modified(|current| {
        let first = current.is_none();
        current.get_or_insert(by);
        first
    });
}

/// Waits for an interrupt; forever once all senders are dropped.
pub(super) async fn interrupted(interrupts: &mut InterruptReceiver) -> Interrupt {
    if let Ok(value) = interrupts.wait_for(Option::is_some).await
        && let Some(by) = *value
    {
        return by;
    }
    std::future::pending().await
}
