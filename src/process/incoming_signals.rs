//! Receives signals, and determines whether a descendant of this process sent them.

use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use tokio::net::UnixDatagram;

use super::signal_sender::is_descendant;

/// The socket that the handler writes to; negative until there is one. It is never closed.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The process that installed the handler. A child has it too until it executes another program.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    pub signal: Signal,
    /// True if a descendant of this process sent it, rather than the user or the kernel.
    pub is_of_descendant: bool,
}

/// Receives signals in place of their default actions.
#[derive(Debug)]
pub struct IncomingSignals(UnixDatagram);

impl IncomingSignals {
    /// Handles these signals from now on. Must be called once, within a runtime.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn listen(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let (ours, theirs) = StdDatagram::pair()?;
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true)?;
        }
        let own = nix::unistd::getpid().as_raw();
        OWNER.store(own, Ordering::SeqCst);
        SOCKET.store(theirs.into_raw_fd(), Ordering::SeqCst);
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_RESTART;
        let action = SigAction::new(SigHandler::SigAction(record), flags, SigSet::empty());
        for signal in signals {
            // SAFETY: the handler calls only functions that are safe in a handler, and touches no
            // memory but its own and that of its arguments.
            unsafe { sigaction(signal, &action) }?;
        }
        Ok(Self(UnixDatagram::from_std(ours)?))
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn next(&self) -> io::Result<ReceivedSignal> {
        loop {
            let mut message = [0; MESSAGE_BYTES];
            if self.0.recv(&mut message).await? != MESSAGE_BYTES {
                continue;
            }
            let [number @ .., is_of_descendant] = message;
            if let Ok(signal) = Signal::try_from(i32::from_ne_bytes(number)) {
                let is_of_descendant = is_of_descendant != 0;
                return Ok(ReceivedSignal { signal, is_of_descendant });
            }
        }
    }
}

/// The size of a message: the number of a signal, and whether a descendant sent it.
const MESSAGE_BYTES: usize = 5;

/// The handler: passes the signal on through the socket.
extern "C" fn record(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let errno = nix::errno::Errno::last_raw();
    if nix::unistd::getpid().as_raw() == OWNER.load(Ordering::SeqCst) {
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&signal.to_ne_bytes());
        message[4] = is_of_descendant(info).into();
        // SAFETY: the descriptor stays open, and the message is a local variable. If the socket is
        // full, enough signals are waiting.
        unsafe {
            libc::send(
                SOCKET.load(Ordering::SeqCst),
                message.as_ptr().cast(),
                message.len(),
                libc::MSG_DONTWAIT,
            )
        };
    }
    nix::errno::Errno::set_raw(errno);
}

fn is_of_descendant(info: *mut siginfo_t) -> bool {
    // SAFETY: the kernel passes a valid structure to a handler with `SA_SIGINFO`. Its sender is set
    // only for signals of processes. A sender outside of our namespace is 0.
    let sender =
        unsafe { info.as_ref().filter(|info| info.si_code <= 0).map(|info| info.si_pid()) };
    sender.is_some_and(|sender| sender > 0 && is_descendant(sender))
}
