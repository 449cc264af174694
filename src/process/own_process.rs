//! System calls about outlast's own process.

use nix::libc;

/// Makes this process undumpable, so that other processes of the same user cannot read its memory
/// or its initial environment, which hold API keys. It leaves no core dump either.
///
/// Child processes are not affected. Root with all capabilities still can read any process; only a
/// sandbox prevents that.
pub fn forbid_dumps() {
    // Where this is refused, the rest of the protection still stands.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// Asks the kernel for SIGTERM when our parent dies.
///
/// CI systems often signal only the step's shell, which then leaves us behind. Only meant for
/// them: elsewhere it would break `nohup outlast &`.
pub fn die_with_parent() {
    // Without kernel support there is simply no such signal.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
}

/// Asks the kernel for SIGTERM when the process `parent` dies, which started this one. Returns
/// whether it is still alive.
pub fn end_with(parent: u32) -> bool {
    die_with_parent();
    // It may have died before the signal was asked for.
    u32::try_from(nix::unistd::getppid().as_raw()).is_ok_and(|now| now == parent)
}

/// Ends the process now. Nothing is dropped or flushed, and no lock is taken: a thread that hangs
/// may hold any.
pub fn exit_without_cleanup(code: u8) -> ! {
    // SAFETY: it takes any number, touches no memory of ours, and does not return.
    unsafe { libc::_exit(libc::c_int::from(code)) }
}
