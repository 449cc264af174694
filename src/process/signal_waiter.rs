//! Waits, in the supervisor process, for an order on a socket or for the end of a child.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signal of the supervisor to a job init process: the job takes too much memory. Its value is
/// the memory of the job, in MiB.
pub(super) const MEMORY_EXCEEDED: Signal = Signal::SIGUSR1;

/// Waits for `SIGCHLD`. Blocks every other signal of this thread that can be blocked.
pub(super) struct SignalWaiter {
    signals: SignalFd,
    memory_taken: Cell<Option<i32>>,
}

impl SignalWaiter {
    pub(super) fn new() -> nix::Result<Self> {
        SigSet::all().thread_set_mask()?;
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGCHLD);
        ends.add(MEMORY_EXCEEDED);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&ends, flags)?;
        Ok(Self { signals, memory_taken: Cell::new(None) })
    }

    /// The memory of the job in MiB, if the supervisor has reported since the last call that it is
    /// too much.
    pub(super) fn memory_exceeded(&self) -> Option<i32> {
        self.memory_taken.take()
    }

    /// Waits until the socket is readable, a child ended, or `limit` has passed. Returns true if
    /// the socket is readable.
    pub(super) fn wait_readable(&self, socket: &impl AsFd, limit: Option<Duration>) -> bool {
        let socket = PollFd::new(socket.as_fd(), PollFlags::POLLIN);
        let [.., socket] = self.poll([socket], limit);
        socket
    }

    /// Waits for the end of a child, but no longer than `limit`.
    pub(super) fn wait_for_child(&self, limit: Duration) {
        self.poll([], Some(limit));
    }

    fn poll<const N: usize>(&self, others: [PollFd<'_>; N], limit: Option<Duration>) -> [bool; N] {
        let mut all = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        all.extend(others);
        // An interruption is treated like an event: the caller checks again.
        let _ = poll(&mut all, timeout(limit));
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if u32::try_from(MEMORY_EXCEEDED as i32) == Ok(signal.ssi_signo) {
                self.memory_taken.set(Some(i32::try_from(signal.ssi_ptr).unwrap_or(i32::MAX)));
            }
        }
        std::array::from_fn(|index| has_event(&all[index + 1]))
    }
}

fn has_event(polled: &PollFd<'_>) -> bool {
    polled.any().unwrap_or(true)
}

fn timeout(limit: Option<Duration>) -> PollTimeout {
    limit
        .map_or(PollTimeout::NONE, |limit| PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX))
}
