//! Connections that are not established at once.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    SockaddrLike, SockaddrStorage, UnixAddr, connect, getpeername, getsockopt, sockopt,
};

use super::unix_paths;

/// A socket on which a connection is being made.
#[derive(Debug)]
pub(super) struct PendingConnect {
    pub(super) inode: u64,
    /// The call that waits for the connection. `None` for a non-blocking socket, whose program does
    /// not wait.
    pub(super) call: Option<u64>,
    /// The Unix socket to connect to, which is retried as long as its queue is full.
    pub(super) unix: Option<OwnedFd>,
}

impl PendingConnect {
    /// Continues to connect. `None` if the connection is still in progress. `is_ready` is true if
    /// the socket reported an event.
    pub(super) fn proceed(&self, socket: &OwnedFd, is_ready: bool) -> Option<Result<(), Errno>> {
        if let Some(opened) = &self.unix {
            return match connect_unix(socket, opened) {
                Err(Errno::EAGAIN) => None,
                made => Some(made),
            };
        }
        is_ready.then(|| match self.call {
            Some(_) => match getsockopt(socket, sockopt::SocketError)? {
                0 => Ok(()),
                errno => Err(Errno::from_raw(errno)),
            },
            // Reading the error would clear it, and the program would consider the socket
            // connected.
            None => getpeername::<SockaddrStorage>(socket.as_raw_fd()).map(drop),
        })
    }
}

/// Connects to an opened Unix socket.
///
/// # Errors
/// The error of the kernel.
pub(super) fn connect_unix(socket: &OwnedFd, opened: &OwnedFd) -> Result<(), Errno> {
    connect_to(socket, &UnixAddr::new(&unix_paths::path_of(opened))?)
}

pub(super) fn connect_to(socket: &OwnedFd, address: &dyn SockaddrLike) -> Result<(), Errno> {
    connect(socket.as_raw_fd(), address)
}

/// Makes a socket non-blocking. Returns true if it was blocking.
pub(super) fn stop_blocking(socket: &OwnedFd) -> Result<bool, Errno> {
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    if flags.contains(OFlag::O_NONBLOCK) {
        return Ok(false);
    }
    fcntl(socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(true)
}

/// Makes a socket blocking again.
pub(super) fn restore_blocking(socket: &OwnedFd) {
    if let Ok(flags) = fcntl(socket, FcntlArg::F_GETFL) {
        let flags = OFlag::from_bits_retain(flags) & !OFlag::O_NONBLOCK;
        let _ = fcntl(socket, FcntlArg::F_SETFL(flags));
    }
}
