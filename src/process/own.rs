//! What outlast asks of the system for its own process.

use nix::libc;

/// Makes this process one that its user's other processes cannot look into: not its memory, and
/// not the environment that it was started with, where keys are. It leaves no core dump either.
///
/// What it starts is not affected. Whoever may look into any process still can: root with all
/// capabilities, from which only a sandbox keeps these things.
pub fn forbid_dumps() {
    // Where it cannot be had, the rest of the protection still stands.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// Asks the kernel for SIGTERM when our parent dies.
///
/// CI systems often signal only the step's shell, which then leaves us behind. Only meant for
/// them: elsewhere it would break `nohup outlast &`.
pub fn die_with_parent() {
    // A kernel without it leaves things as they are, which is how they would be anyway.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
}

/// Ends the process now. Nothing is dropped or flushed, and no lock is taken: a thread that hangs
/// may hold any.
pub fn exit_without_cleanup(code: u8) -> ! {
    // SAFETY: it takes any number, touches no memory of ours, and does not return.
    unsafe { libc::_exit(libc::c_int::from(code)) }
}
