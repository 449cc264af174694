//! The signals that end a run.

use std::io;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::recovery::Interrupt;

/// Where a run learns that it should stop: the first value that is there wins.
pub type Interrupts = watch::Receiver<Option<Interrupt>>;

/// The other end of [`Interrupts`].
pub type Interrupter = watch::Sender<Option<Interrupt>>;

/// Listens for SIGINT, SIGTERM and SIGHUP from now on. Must be called inside the runtime.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn listen() -> io::Result<Interrupter> {
    let (interrupter, _) = watch::channel(None);
    // Once it is listened to, a file that grows beyond `ulimit -f` is an error of the write, and
    // not the end of the process.
    drop(signal(SignalKind::from_raw(Signal::SIGXFSZ as i32))?);
    let sources = [
        (SignalKind::interrupt(), Interrupt::Sigint),
        (SignalKind::terminate(), Interrupt::Sigterm),
        (SignalKind::hangup(), Interrupt::Sighup),
    ];
    for (kind, meaning) in sources {
        let mut incoming = signal(kind)?;
        let interrupter = interrupter.clone();
        tokio::spawn(async move {
            while incoming.recv().await.is_some() {
                interrupt(&interrupter, meaning);
            }
        });
    }
    Ok(interrupter)
}

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
