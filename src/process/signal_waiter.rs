//! Waits, in the supervisor process, for an order on a socket or for the end of a child.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signal by which the supervisor reports to a job init process that its job takes too much
/// memory. Its value is the memory of the job, in MiB.
pub(super) const MEMORY_EXCEEDED: Signal = Signal::SIGUSR1;

/// Waits for `SIGCHLD` and [`MEMORY_EXCEEDED`]. Blocks all signals of this thread.
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

    /// The memory of the job in MiB, if the supervisor has reported too much since the last call.
    pub(super) fn memory_exceeded(&self) -> Option<i32> {
        self.memory_taken.take()
    }

    /// Waits until the socket is readable, a child ended, or `limit` has passed. Returns true if
    /// the socket is readable.
    pub(super) fn wait_readable(&self, socket: &impl AsFd, limit: Option<Duration>) -> bool {
        self.poll(Some(socket.as_fd()), limit)
    }

    /// Waits for the end of a child, but no longer than `limit`.
    pub(super) fn wait_for_child(&self, limit: Duration) {
        self.poll(None, Some(limit));
    }

    /// Waits, and takes the signals that have come. Returns true if the socket has an event.
    fn poll(&self, socket: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> bool {
        let polled = [Some(self.signals.as_fd()), socket].into_iter().flatten();
        let mut polled: Vec<PollFd<'_>> =
            polled.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        let limit = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
        });
        // An interruption is treated like an event: the caller checks again.
        let _ = poll(&mut polled, limit);
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if u32::try_from(MEMORY_EXCEEDED as i32) == Ok(signal.ssi_signo) {
                self.memory_taken.set(Some(i32::try_from(signal.ssi_ptr).unwrap_or(i32::MAX)));
            }
        }
        polled.get(1).is_some_and(|socket| socket.any().unwrap_or(true))
    }
}
