//! The duplicates of sockets that were passed to a job. outlast makes the calls of the job on them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::AddressFamily;
use nix::sys::stat::fstat;
use nix::unistd::Pid;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::super::tree;

/// The number of duplicates from which outlast searches for those that no process holds.
const FIRST_SWEEP: usize = 128;

/// The pause after a search for a thread that freed no place: each search reads the descriptors of
/// all processes of a job. Other threads do not wait, as they may belong to newer programs.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The most rounds of a search: processes that are forked during a round are searched in the next.
const SEARCH_ROUNDS: usize = 5;

/// The most sockets that are remembered after their duplicates are closed.
const USED_MAX: usize = 4096;

/// A duplicate of a socket that is neither connected nor listening.
#[derive(Debug)]
pub(super) struct KeptSocket {
    pub(super) socket: OwnedFd,
    pub(super) family: AddressFamily,
    /// True if a thread was interrupted while it waited for the connection. It may retry.
    pub(super) is_interrupted: bool,
    _permit: OwnedSemaphorePermit,
}

/// The use of a socket whose duplicate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketUse {
    Connected,
    Listening,
}

/// Duplicates by inode, which the copies of a socket share.
pub(super) struct KeptSockets {
    kept: HashMap<u64, KeptSocket>,
    used: HashMap<u64, SocketUse>,
    /// The limit that all jobs share.
    limit: Arc<Semaphore>,
    sweep_at: usize,
    /// The last thread that was refused a socket, and the end of its pause.
    refused: Option<(u32, Instant)>,
    /// Finds the sockets that processes of the job hold.
    find_held: Box<dyn FnMut() -> HashSet<u64> + Send>,
}

impl KeptSockets {
    /// `limit` is the number of duplicates of all jobs together.
    pub(super) fn new(limit: Arc<Semaphore>, job_init: Pid) -> Self {
        Self {
            kept: HashMap::new(),
            used: HashMap::new(),
            limit,
            sweep_at: FIRST_SWEEP,
            refused: None,
            find_held: Box::new(move || sockets_below(job_init)),
        }
    }

    /// Keeps a new socket of a thread. Returns its inode.
    ///
    /// # Errors
    /// The jobs have too many sockets open; or the socket cannot be examined.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        family: AddressFamily,
        thread: u32,
        at: Instant,
    ) -> Result<u64, Errno> {
        if self.kept.len() >= self.sweep_at {
            self.sweep();
        }
        let permit = self.permit(thread, at).ok_or(Errno::EMFILE)?;
        let inode = fstat(&socket)?.st_ino;
        self.used.remove(&inode);
        let kept = KeptSocket { socket, family, is_interrupted: false, _permit: permit };
        self.kept.insert(inode, kept);
        Ok(inode)
    }

    /// Takes a place within the limit. If none is free, searches for duplicates that can be closed.
    fn permit(&mut self, thread: u32, at: Instant) -> Option<OwnedSemaphorePermit> {
        let take = |limit: &Arc<Semaphore>| Arc::clone(limit).try_acquire_owned().ok();
        if let Some(permit) = take(&self.limit) {
            return Some(permit);
        }
        if self.refused.is_some_and(|(refused, until)| thread == refused && at < until) {
            return None;
        }
        self.sweep();
        let permit = take(&self.limit);
        self.refused = permit.is_none().then(|| (thread, at + SWEEP_PAUSE));
        permit
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

    /// Closes the duplicate of a socket in use: an open duplicate would hide the end of the
    /// connection.
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

    /// Closes the duplicates of sockets that no process of the job holds.
    fn sweep(&mut self) {
        let held = (self.find_held)();
        self.kept.retain(|inode, _| held.contains(inode));
        self.sweep_at = (2 * self.kept.len()).max(FIRST_SWEEP);
    }
}

/// The sockets that the processes below this one hold.
fn sockets_below(root: Pid) -> HashSet<u64> {
    let (mut inodes, mut searched) = (HashSet::new(), HashSet::new());
    for _ in 0..SEARCH_ROUNDS {
        let before = searched.len();
        for (process, _) in tree::all_below(root) {
            if searched.insert(process) {
                sockets_of(process, &mut inodes);
            }
        }
        if searched.len() == before {
            break;
        }
    }
    inodes
}

/// Adds the sockets of a process.
fn sockets_of(process: Pid, inodes: &mut HashSet<u64>) {
    let folder = PathBuf::from(format!("/proc/{process}"));
    // The first thread may have ended before the others.
    if sockets_in(&folder.join("fd"), inodes) == 0 {
        for thread in fs::read_dir(folder.join("task")).into_iter().flatten().flatten() {
            sockets_in(&thread.path().join("fd"), inodes);
        }
    }
}

/// Adds the sockets in a table of descriptors. Returns the number of its descriptors.
fn sockets_in(table: &Path, inodes: &mut HashSet<u64>) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(table).into_iter().flatten().flatten() {
        count += 1;
        inodes.extend(socket_inode(&entry.path()).ok());
    }
    count
}

/// Returns the inode of the socket that a thread has as this descriptor.
///
/// # Errors
/// The error that the call of the program returns.
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

/// Returns the family, if outlast makes its sockets.
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
    use std::process::{Command, Stdio};
    use std::sync::Mutex;

    use nix::unistd::getpid;

    use super::*;

    fn own_socket() -> OwnedFd {
        UnixStream::pair().expect("the system has sockets").0.into()
    }

    /// Duplicates of a job whose processes hold the sockets that a function finds. Other tests fork
    /// meanwhile, and their children hold copies of everything.
    fn sockets_within(
        limit: usize,
        find_held: impl FnMut() -> HashSet<u64> + Send + 'static,
    ) -> KeptSockets {
        let sockets = KeptSockets::new(Arc::new(Semaphore::new(limit)), getpid());
        KeptSockets { find_held: Box::new(find_held), ..sockets }
    }

    fn add(sockets: &mut KeptSockets, at: Instant) -> Result<u64, Errno> {
        add_for(sockets, 1, at)
    }

    fn add_for(sockets: &mut KeptSockets, thread: u32, at: Instant) -> Result<u64, Errno> {
        sockets.add(own_socket(), AddressFamily::Unix, thread, at)
    }

    #[test]
    fn a_socket_is_found_by_its_inode_through_any_copy_of_it() {
        let mut sockets = sockets_within(1, HashSet::new);
        let socket = own_socket();
        let copy = socket.try_clone().expect("a copy");
        let inode =
            sockets.add(socket, AddressFamily::Unix, 1, Instant::now()).expect("there is room");
        assert_eq!(socket_of(std::process::id(), copy.as_raw_fd()), Ok(inode));
        assert!(sockets.get(inode).is_some());
        sockets.release(inode, SocketUse::Connected);
        assert!(sockets.get(inode).is_none());
        assert_eq!(sockets.use_of(inode), Some(SocketUse::Connected));
    }

    #[test]
    fn duplicates_that_no_process_holds_are_closed_when_there_are_many() {
        for limit in [FIRST_SWEEP / 2, 2 * FIRST_SWEEP] {
            let mut sockets = sockets_within(limit, HashSet::new);
            for _ in 0..10 * FIRST_SWEEP {
                add(&mut sockets, Instant::now()).expect("old ones are closed");
            }
            assert!(sockets.kept.len() <= FIRST_SWEEP, "{}", sockets.kept.len());
        }
    }

    #[test]
    fn without_room_processes_are_searched_once_a_second_for_a_thread() {
        let (held, searches) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(Mutex::new(0)));
        let (known, counter) = (Arc::clone(&held), Arc::clone(&searches));
        let mut sockets = sockets_within(3, move || {
            *counter.lock().expect("no test panicked") += 1;
            known.lock().expect("no test panicked").clone()
        });
        let began = Instant::now();
        let count = || *searches.lock().expect("no test panicked");
        for _ in 0..3 {
            let inode = add(&mut sockets, began).expect("there is room");
            held.lock().expect("no test panicked").insert(inode);
        }
        assert_eq!(count(), 0);
        for _ in 0..50 {
            assert_eq!(add(&mut sockets, began + SWEEP_PAUSE / 2), Err(Errno::EMFILE));
        }
        assert_eq!(count(), 1);
        assert_eq!(add_for(&mut sockets, 2, began + SWEEP_PAUSE / 2), Err(Errno::EMFILE));
        assert_eq!(count(), 2, "another thread may be of another program");
        held.lock().expect("no test panicked").clear();
        let paused = began + SWEEP_PAUSE;
        assert_eq!(add_for(&mut sockets, 2, paused), Err(Errno::EMFILE), "the pause is not over");
        assert!(add_for(&mut sockets, 2, began + 2 * SWEEP_PAUSE).is_ok());
        assert_eq!(count(), 3);
    }

    #[test]
    fn a_place_is_free_again_when_the_socket_is_in_use_discarded_or_of_an_ended_job() {
        let limit = Arc::new(Semaphore::new(2));
        let mut sockets = KeptSockets::new(Arc::clone(&limit), getpid());
        let one = add(&mut sockets, Instant::now()).expect("there is room");
        let other = add(&mut sockets, Instant::now()).expect("there is room");
        assert_eq!(limit.available_permits(), 0);
        sockets.release(one, SocketUse::Connected);
        assert_eq!(limit.available_permits(), 1);
        sockets.discard(other);
        assert_eq!(limit.available_permits(), 2);
        add(&mut sockets, Instant::now()).expect("there is room");
        drop(sockets);
        assert_eq!(limit.available_permits(), 2);
    }

    #[test]
    fn sockets_of_descendants_are_found() {
        let (mine, theirs) = UnixStream::pair().expect("the system has sockets");
        let inode = fstat(&theirs).expect("it is open").st_ino;
        let mut child = Command::new("cat")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .expect("cat is installed");
        assert!(sockets_below(getpid()).contains(&inode));
        let child_pid = Pid::from_raw(i32::try_from(child.id()).expect("a small number"));
        assert!(sockets_below(child_pid).is_empty(), "it has no children");
        drop(mine);
        assert!(child.wait().expect("it is a child").success());
    }

    #[test]
    fn other_descriptors_have_no_inode_of_a_socket() {
        let file = fs::File::open("/dev/null").expect("a device");
        let own = std::process::id();
        assert_eq!(socket_of(own, file.as_raw_fd()), Err(Errno::ENOTSOCK));
        assert_eq!(socket_of(own, -1), Err(Errno::EBADF));
        assert_eq!(socket_of(own, i32::MAX), Err(Errno::EBADF));
    }
}
