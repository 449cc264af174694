//! How a process takes signals: what it has inherited of that, and how it gets rid of it.

use std::mem::MaybeUninit;
use std::ptr;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Signals that mean nothing to a run. Two would stop it for good where nobody is there to wake
/// it, when it writes to a terminal from the background, or reads; the others would end it without
/// a word.
const IGNORED_SIGNALS: &[Signal] = &[
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGPROF,
    Signal::SIGVTALRM,
    Signal::SIGIO,
    #[cfg(target_os = "linux")]
    Signal::SIGPWR,
];

/// Undoes what whoever started outlast may have set: ignored ends of children, which could not be
/// waited for. Ignores what means nothing to a run. Belongs before the first thread. Signals that
/// were blocked stay so until somebody listens to them.
pub fn reset_inherited_signals() {
    // None of it fails: the signals are valid.
    let _ = restore_default(Signal::SIGCHLD);
    for signal in IGNORED_SIGNALS {
        let _ = set_action(*signal, SigHandler::SigIgn);
    }
}

/// Whether a signal is ignored, as `nohup` does it with SIGHUP, and a shell without job control
/// with SIGINT for what it starts by `&`. Only asked before a handler is installed.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action nothing changes; the present one is written to memory of its
    // size that is ours. It was zeroed, which is a valid value of every field.
    let action = unsafe {
        let asked = libc::sigaction(signal as libc::c_int, ptr::null(), action.as_mut_ptr());
        (asked == 0).then(|| action.assume_init())
    };
    action.is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Has every signal do again what it does in a new process. Runs between fork and exec: neither
/// allocates nor locks.
pub(super) fn reset_all_signals() -> nix::Result<()> {
    for signal in Signal::iterator() {
        if !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            restore_default(signal)?;
        }
    }
    SigSet::empty().thread_set_mask()
}

/// Gives a signal its default effect.
pub(super) fn restore_default(signal: Signal) -> nix::Result<()> {
    set_action(signal, SigHandler::SigDfl)
}

/// Gives a signal an effect that needs no code of ours.
fn set_action(signal: Signal, effect: SigHandler) -> nix::Result<()> {
    let action = SigAction::new(effect, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed, and none that anybody relies on is replaced: this runs
    // before there are any, or in a process that is about to become another program.
    unsafe { sigaction(signal, &action) }.map(drop)
}
