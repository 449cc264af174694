//! What whoever started this process has left to it, and how it ends.

use std::mem::MaybeUninit;
use std::ptr;

use nix::libc;
use nix::sys::signal::Signal;

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

/// Ends the process now. Nothing is dropped or flushed, and no lock is taken: a thread that hangs
/// may hold any.
pub fn leave(code: u8) -> ! {
    // SAFETY: it takes any number, touches no memory of ours, and does not return.
    unsafe { libc::_exit(libc::c_int::from(code)) }
}
