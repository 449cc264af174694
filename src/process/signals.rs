//! Signal dispositions: resets the inherited ones, and ignores signals that have no meaning for a
//! run.

use std::mem::MaybeUninit;
use std::ptr;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;

use super::signal_waiter::MEMORY_EXCEEDED;

/// Signals that have no meaning for a run. SIGTTIN and SIGTTOU would stop it for good when it uses
/// a terminal from the background, with no user to continue it; the others would kill it without a
/// message.
const IGNORED_SIGNALS: &[Signal] = &[
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGPROF,
    Signal::SIGVTALRM,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// Resets inherited signal dispositions: with SIGCHLD ignored, children could not be waited for.
/// Ignores signals that have no meaning for a run. Must be called before the first thread starts.
/// Signals that were blocked stay blocked until a handler is installed.
pub fn reset_inherited_signals() {
    // None of it fails: the signals are valid.
    let _ = restore_default(Signal::SIGCHLD);
    for signal in IGNORED_SIGNALS {
        let _ = set_action(*signal, SigHandler::SigIgn);
    }
}

/// Returns true if a signal is ignored, as `nohup` does with SIGHUP, and a shell without job
/// control with SIGINT for background commands. Only valid before a handler is installed.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the call changes nothing. It writes the current action to a
    // local variable of that type. Zero is a valid value of every field.
    let action = unsafe {
        let result = libc::sigaction(signal as libc::c_int, ptr::null(), action.as_mut_ptr());
        (result == 0).then(|| action.assume_init())
    };
    action.is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Reports to a job init process that its job takes too much memory: `taken` bytes.
pub(super) fn report_memory_exceeded(job_init: Pid, taken: u64) {
    let mebibytes = usize::try_from(taken >> 20).unwrap_or(usize::MAX);
    let value = libc::sigval { sival_ptr: ptr::without_provenance_mut(mebibytes) };
    // SAFETY: the call takes two numbers and a value that is not used as an address.
    unsafe { libc::sigqueue(job_init.as_raw(), MEMORY_EXCEEDED as libc::c_int, value) };
}

/// Resets every signal to its default, for all commands of a supervisor process. `SIGPIPE` stays
/// ignored: the end of outlast must not end it.
pub(super) fn reset_all_signals() -> nix::Result<()> {
    let fixed = [Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGPIPE];
    Signal::iterator().filter(|signal| !fixed.contains(signal)).try_for_each(restore_default)
}

/// Resets the signals of a command whose supervisor has called [`reset_all_signals`], and unblocks
/// all of them. Runs between fork and exec: neither allocates nor locks.
pub(super) fn reset_for_exec() -> nix::Result<()> {
    restore_default(Signal::SIGPIPE)?;
    SigSet::empty().thread_set_mask()
}

/// Restores the default action of a signal that has no handler in use.
pub fn restore_default(signal: Signal) -> nix::Result<()> {
    set_action(signal, SigHandler::SigDfl)
}

/// Sets the action of a signal that needs no handler.
fn set_action(signal: Signal, effect: SigHandler) -> nix::Result<()> {
    let action = SigAction::new(effect, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed, and none in use is replaced: this runs before there are any,
    // or in a process that is about to execute another program.
    unsafe { sigaction(signal, &action) }.map(drop)
}
