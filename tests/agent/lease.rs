//! A file whose readers can be detected and blocked with a lease, which the kernel breaks when
//! a process opens the file; the open blocks until the lease is released.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::libc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout};

/// Much shorter than the kernel's patience with holders of leases.
const BOUND: Duration = Duration::from_secs(40);

/// Files under lease.
pub(super) struct FileLeases {
    held: Vec<File>,
    /// Comes when a lease is about to break.
    news: Signal,
}

impl FileLeases {
    /// Writes each file and takes a lease on it. The text is the file's name.
    pub(super) fn on(folder: &Path, names: &[String]) -> Self {
        // First of all: without a handler the signal would end the process.
        let news = signal(SignalKind::io()).expect("a handler can be installed");
        let take = |name: &String| {
            let path = folder.join(name);
            std::fs::write(&path, format!("{name}\n")).expect("the folder is ours");
            let file = File::open(&path).expect("it was just written");
            set(&file, libc::F_WRLCK);
            file
        };
        Self { held: names.iter().map(take).collect(), news }
    }

    /// Whether a thread is blocked on opening the file.
    #[expect(unsafe_code, reason = "no crate offers leases")]
    pub(super) fn has_blocked_reader(&self, index: usize) -> bool {
        // SAFETY: asks the kernel about an open descriptor, and touches no memory.
        let kind = unsafe { libc::fcntl(self.held[index].as_raw_fd(), libc::F_GETLEASE) };
        kind != libc::F_WRLCK
    }

    /// Counts the files on whose opening a thread is blocked.
    pub(super) fn count_blocked_readers(&self) -> usize {
        (0..self.held.len()).filter(|index| self.has_blocked_reader(*index)).count()
    }

    /// Waits until this many files are wanted. `false` when that does not happen in time.
    pub(super) async fn wait_for_blocked_readers(
        &mut self,
        count: usize,
        within: Duration,
    ) -> bool {
        let waiting = async {
            while self.count_blocked_readers() < count {
                self.news.recv().await;
            }
        };
        timeout(within, waiting).await.is_ok()
    }

    /// Waits until the file is wanted.
    pub(super) async fn wait_for(&mut self, index: usize) {
        let waiting = async {
            while !self.has_blocked_reader(index) {
                self.news.recv().await;
            }
        };
        timeout(BOUND, waiting).await.expect("a reader opens the file");
    }

    /// Lets the blocked reader open the file once, and waits until it has closed it.
    pub(super) async fn let_reader_through(&self, index: usize) {
        let file = &self.held[index];
        set(file, libc::F_UNLCK);
        let done = async {
            // A lease can be taken only while the file is not open elsewhere. There is no event.
            while !try_set(file, libc::F_WRLCK) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(BOUND, done).await.expect("the reader reads the file and closes it");
    }

    /// Releases the lease for good.
    pub(super) fn release(&self, index: usize) {
        set(&self.held[index], libc::F_UNLCK);
    }
}

/// A process that another test starts has copies of all descriptors until it executes its program.
/// The kernel refuses a lease meanwhile, so it is asked for again.
fn set(file: &File, kind: i32) {
    let begun = Instant::now();
    while !try_set(file, kind) {
        let error = Error::last_os_error();
        let is_shared = error.kind() == ErrorKind::WouldBlock && begun.elapsed() < BOUND;
        assert!(is_shared, "leases work on this file system: {error}");
        thread::yield_now();
    }
}

#[expect(unsafe_code, reason = "no crate offers leases")]
fn try_set(file: &File, kind: i32) -> bool {
    // SAFETY: changes the lease on an open descriptor, and touches no memory.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
}
