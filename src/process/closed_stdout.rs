//! A standard output that was closed before outlast started (`>&-`).
//!
//! Before `main`, the standard library opens `/dev/null` in its place, which would take the result
//! without an error. So it is looked at earlier, and replaced by a pipe without a reader: what writes
//! to it fails as with a reader that is gone.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::unistd::{dup2_stdout, pipe};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: it asks about a descriptor by its number, and takes no memory.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
        WAS_CLOSED.store(true, Ordering::Relaxed);
    }
}

// SAFETY: functions in this section are called once, before `main`, while there is one thread. This
// one needs nothing of the standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Returns true if standard output was closed before outlast started.
pub fn was_stdout_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Lets writes to a standard output that was closed at the start fail, as those to a pipe whose
/// reader is gone do.
pub fn break_closed_stdout() {
    if was_stdout_closed()
        && let Ok((_reader, writer)) = pipe()
    {
        // If it fails, what is written is lost, as it would be without this.
        let _ = dup2_stdout(writer.as_fd());
    }
}
