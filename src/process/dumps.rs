//! Keeps outlast's own memory to itself.

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
