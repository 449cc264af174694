//! The duplicates of sockets that were handed to a job, on which outlast acts for it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::AddressFamily;
use nix::sys::stat::fstat;

/// How many duplicates are kept, if outlast may open four times as many files.
const KEPT_MAX: usize = 1024;
const SHARE_OF_FILES: u64 = 4;

/// The number of duplicates at which those that no process holds are searched for.
const FIRST_SWEEP: usize = 128;

/// How many sockets are remembered after their duplicates are closed.
const USED_MAX: usize = 4096;

/// A duplicate of a socket that is neither connected nor listening.
#[derive(Debug)]
pub(super) struct KeptSocket {
    pub(super) socket: OwnedFd,
    pub(super) family: AddressFamily,
    /// A thread that waited for its connection was interrupted, and may ask again.
    pub(super) is_interrupted: bool,
}

/// What became of a socket whose duplicate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketUse {
    Connected,
    Listening,
}

/// Duplicates by inode, which the copies of a socket share.
#[derive(Debug)]
pub(super) struct KeptSockets {
    kept: HashMap<u64, KeptSocket>,
    used: HashMap<u64, SocketUse>,
    most: usize,
    sweep_at: usize,
}

impl KeptSockets {
    pub(super) fn new() -> Self {
        let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((KEPT_MAX as u64, 0));
        let share = usize::try_from(files / SHARE_OF_FILES).unwrap_or(KEPT_MAX);
        let most = share.min(KEPT_MAX);
        let sweep_at = FIRST_SWEEP.min(most);
        Self { kept: HashMap::new(), used: HashMap::new(), most, sweep_at }
    }

    /// Keeps a new socket. Returns its inode.
    ///
    /// # Errors
    /// Processes of the job hold too many of them.
    pub(super) fn add(&mut self, socket: OwnedFd, family: AddressFamily) -> Result<u64, Errno> {
        if self.kept.len() >= self.sweep_at {
            self.sweep();
        }
        if self.kept.len() >= self.most {
            return Err(Errno::EMFILE);
        }
        let inode = fstat(&socket)?.st_ino;
        self.used.remove(&inode);
        self.kept.insert(inode, KeptSocket { socket, family, is_interrupted: false });
        Ok(inode)
    }

    pub(super) fn get(&self, inode: u64) -> Option<&KeptSocket> {
        self.kept.get(&inode)
    }

    pub(super) fn get_mut(&mut self, inode: u64) -> Option<&mut KeptSocket> {
        self.kept.get_mut(&inode)
    }

    pub(super) fn use_of(&self, inode: u64) -> Option<SocketUse> {
        self.used.get(&inode).copied()
    }

    /// Closes a duplicate whose socket is in use: it would hide the end of the connection.
    pub(super) fn release(&mut self, inode: u64, used: SocketUse) {
        self.kept.remove(&inode);
        if self.used.len() >= USED_MAX {
            self.used.clear();
        }
        self.used.insert(inode, used);
    }

    pub(super) fn discard(&mut self, inode: u64) {
        self.kept.remove(&inode);
    }

    /// Closes the duplicates of sockets that no other process holds.
    fn sweep(&mut self) {
        let held = sockets_of_processes();
        self.kept.retain(|inode, _| held.contains(inode));
        self.sweep_at = (2 * self.kept.len()).clamp(FIRST_SWEEP.min(self.most), self.most);
    }
}

/// The sockets that other processes hold.
fn sockets_of_processes() -> HashSet<u64> {
    let own = std::process::id().to_string();
    let mut held = HashSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || name == own.as_str() {
            continue;
        }
        // The first thread may have ended before the others.
        if sockets_in(&entry.path().join("fd"), &mut held) == 0 {
            for thread in fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
                sockets_in(&thread.path().join("fd"), &mut held);
            }
        }
    }
    held
}

/// Adds the sockets in a table of descriptors. Returns how many descriptors it has.
fn sockets_in(table: &Path, held: &mut HashSet<u64>) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(table).into_iter().flatten().flatten() {
        count += 1;
        held.extend(socket_inode(&entry.path()).ok());
    }
    count
}

/// The inode of the socket that a thread has as this descriptor.
///
/// # Errors
/// The error that the program gets.
pub(super) fn socket_of(thread: u32, descriptor: i32) -> Result<u64, Errno> {
    socket_inode(Path::new(&format!("/proc/{thread}/fd/{descriptor}")))
}

fn socket_inode(link: &Path) -> Result<u64, Errno> {
    let target = fs::read_link(link).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound { Errno::EBADF } else { Errno::EPERM }
    })?;
    let number = target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
    number.and_then(|number| number.parse().ok()).ok_or(Errno::ENOTSOCK)
}

/// The families whose sockets outlast makes.
pub(super) fn kept_family(family: i32) -> Option<AddressFamily> {
    match family {
        libc::AF_INET => Some(AddressFamily::Inet),
        libc::AF_INET6 => Some(AddressFamily::Inet6),
        libc::AF_UNIX => Some(AddressFamily::Unix),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn own_socket() -> OwnedFd {
        UnixStream::pair().expect("the system has sockets").0.into()
    }

    #[test]
    fn a_socket_is_found_by_its_inode_through_any_copy_of_it() {
        let mut sockets = KeptSockets::new();
        let socket = own_socket();
        let copy = socket.try_clone().expect("a copy");
        let inode = sockets.add(socket, AddressFamily::Unix).expect("there is room");
        assert_eq!(socket_of(std::process::id(), copy.as_raw_fd()), Ok(inode));
        assert!(sockets.get(inode).is_some());
        sockets.release(inode, SocketUse::Connected);
        assert!(sockets.get(inode).is_none());
        assert_eq!(sockets.use_of(inode), Some(SocketUse::Connected));
    }

    #[test]
    fn what_no_other_process_holds_is_closed_when_there_are_many() {
        let mut sockets = KeptSockets::new();
        for _ in 0..10 * FIRST_SWEEP {
            sockets.add(own_socket(), AddressFamily::Unix).expect("old ones are closed");
        }
        assert!(sockets.kept.len() <= FIRST_SWEEP, "{}", sockets.kept.len());
    }

    #[test]
    fn descriptors_that_are_no_sockets_have_no_inode() {
        let file = fs::File::open("/dev/null").expect("a device");
        let own = std::process::id();
        assert_eq!(socket_of(own, file.as_raw_fd()), Err(Errno::ENOTSOCK));
        assert_eq!(socket_of(own, -1), Err(Errno::EBADF));
        assert_eq!(socket_of(own, i32::MAX), Err(Errno::EBADF));
    }
}
