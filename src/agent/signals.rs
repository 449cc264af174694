//! How a run learns that it should stop.

use tokio::sync::watch;

use crate::recovery::Interrupt;

/// Where a run learns that it should stop: the first value that is there wins.
pub type InterruptReceiver = watch::Receiver<Option<Interrupt>>;

/// The other end of [`Interrupts`].
pub type InterruptSender = watch::Sender<Option<Interrupt>>;

/// Where a run learns that a call of a sub-agent was denied, and that this is its end.
pub(super) type DenialReceiver = watch::Receiver<bool>;

/// Asks the run to stop. What asked first is what the run says it ended of.
pub fn interrupt(interrupter: &InterruptSender, meaning: Interrupt) {
    interrupter.send_if_modified(|current| {
        let first = current.is_none();
        current.get_or_insert(meaning);
        first
    });
}

/// Waits for an interrupt; for ever, when nobody can send one any more.
pub(super) async fn interrupted(interrupts: &mut InterruptReceiver) -> Interrupt {
    if let Ok(value) = interrupts.wait_for(Option::is_some).await
        && let Some(meaning) = *value
    {
        return meaning;
    }
    std::future::pending().await
}
