//! A standard output that was closed before outlast started (`>&-`).
//!
//! Before `main`, the standard library opens `/dev/null` in its place, and writing the result there
//! would succeed. So the descriptor is checked earlier, and replaced by a pipe without a reader, to
//! which no write succeeds.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::unistd::{dup2_stdout, pipe};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn check() {
    // SAFETY: the call takes the number of a descriptor, and no memory.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
        WAS_CLOSED.store(true, Ordering::Relaxed);
    }
}

// SAFETY: functions in this section are called once, before `main`, while there is one thread. This
// function does not depend on the standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check;

/// Returns true if standard output was closed before outlast started.
pub fn was_stdout_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Makes writes to a standard output that was closed at the start fail, like those to a pipe whose
/// reader is gone.
pub fn break_closed_stdout() {
    if was_stdout_closed()
        && let Ok((_reader, writer)) = pipe()
    {
        // If this fails, the output is lost without an error.
        let _ = dup2_stdout(writer.as_fd());
    }
}
