//! What a process inherits of signals, and how it gets rid of it.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Undoes what whoever started outlast may have set: ignored ends of children, which could not be
/// waited for. Belongs before the first thread. Signals that were blocked stay so until somebody
/// listens to them.
pub fn begin_afresh() {
    // It does not fail: the signal is valid.
    let _ = heed(Signal::SIGCHLD);
}

/// Has every signal do again what it does in a new process. Runs between fork and exec: neither
/// allocates nor locks.
pub(super) fn forget() -> nix::Result<()> {
    for signal in Signal::iterator() {
        if !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            heed(signal)?;
        }
    }
    SigSet::empty().thread_set_mask()
}

/// Gives a signal its default effect.
pub(super) fn heed(signal: Signal) -> nix::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed, and none that anybody relies on is replaced: this runs
    // before there are any, or in a process that is about to become another program.
    unsafe { sigaction(signal, &default) }.map(drop)
}
