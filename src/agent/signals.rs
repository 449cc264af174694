//! How a run learns that it should stop.

use nix::sys::prctl;
use nix::sys::signal::Signal;
use tokio::sync::watch;

use crate::recovery::Interrupt;

/// Where a run learns that it should stop: the first value that is there wins.
pub type Interrupts = watch::Receiver<Option<Interrupt>>;

/// The other end of [`Interrupts`].
pub type Interrupter = watch::Sender<Option<Interrupt>>;

/// Asks the run to stop. What asked first is what the run says it ended of.
pub fn interrupt(interrupter: &Interrupter, meaning: Interrupt) {
    interrupter.send_if_modified(|current| {
        let first = current.is_none();
        current.get_or_insert(meaning);
        first
    });
}

/// Asks the kernel for SIGTERM when our parent dies.
///
/// CI systems often signal only the step's shell, which then leaves us behind. Only meant for
/// them: elsewhere it would break `nohup outlast &`.
pub fn die_with_parent() {
    // A kernel without it leaves things as they are, which is how they would be anyway.
    let _ = prctl::set_pdeathsig(Signal::SIGTERM);
}

/// Waits for an interrupt; for ever, when nobody can send one any more.
pub(super) async fn interrupted(interrupts: &mut Interrupts) -> Interrupt {
    if let Ok(value) = interrupts.wait_for(Option::is_some).await
        && let Some(meaning) = *value
    {
        return meaning;
    }
    std::future::pending().await
}
