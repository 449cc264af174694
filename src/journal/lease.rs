//! The lease on a session. Its owner is the only process that may write to the session, also across
//! the hosts of a shared file system, where file locks alone are not reliable.
//!
//! ```text
//! <session id>.lease          the owner and its epoch; the time of the file is its heartbeat
//! <session id>.lease.<epoch>  the claim of a process that is taking the session over
//!
//! free ─► claim ─► held, renewed every 5 s ─► removed
//!                   │ no heartbeat for 30 s, or the owner is known to be dead
//!                   └─► claim of the next epoch ─► held by another: the old owner may not write
//! ```
//!
//! An age is the difference of two times that the file server has set, so the clocks of the hosts
//! need not agree.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use tokio::sync::watch;
use uuid::Uuid;

use crate::process::spawn_detached;
use crate::recovery::Interrupt;

use super::lease_claim::{LeaseClaim, LeaseRefusal};
use super::lease_record::{
    HolderProcess, LeaseRecord, Present, begins_with, lease_path, read_lease, time_left,
};
use super::lock::FileLock;
use super::session_folder::MachineId;
use super::{JournalError, SessionId};

/// The interval at which an owner renews its lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The certainty that the previous owner of a lease no longer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takeover {
    /// No other process can write.
    Certain,
    /// The previous owner showed no heartbeat for too long. It may only be suspended.
    Presumed,
}

/// The parameters of an attempt to acquire a lease.
pub(super) struct LeaseRequest<'a> {
    pub(super) journal: &'a Path,
    pub(super) machine: &'a MachineId,
    /// The epoch of the last process that wrote to the journal.
    pub(super) epoch_before: u64,
    pub(super) lock: FileLock,
}

/// A lease that this process holds, and renews until it is dropped.
#[derive(Debug)]
pub(super) struct SessionLease {
    fence: Arc<LeaseFence>,
    _renewal: mpsc::Sender<()>,
}

/// The check of a lease before each write.
#[derive(Debug)]
pub(super) struct LeaseFence {
    path: PathBuf,
    record: LeaseRecord,
    content: Vec<u8>,
    /// The file of this lease, even if its name belongs to another lease by now.
    file: File,
    lost: watch::Sender<Option<Interrupt>>,
}

/// The reason that a line was not appended.
#[derive(Debug)]
pub(super) enum AppendError {
    /// The session belongs to another process now.
    TakenOver(String),
    /// The file could not be written, or the lease not be read.
    Io(io::Error),
}

impl From<io::Error> for AppendError {
    fn from(cause: io::Error) -> Self {
        Self::Io(cause)
    }
}

impl SessionLease {
    /// Acquires the lease of a session, if it is free.
    ///
    /// # Errors
    /// Another process holds it, or the folder cannot hold leases.
    pub(super) fn acquire(request: &LeaseRequest<'_>) -> Result<(Self, Takeover), LeaseRefusal> {
        let path = lease_path(request.journal);
        let before = read_lease(&path).map_err(|_unreadable| LeaseRefusal::Unavailable)?;
        let previous = before.as_deref().and_then(LeaseRecord::parse);
        let last = previous.as_ref().map_or(0, |record| record.epoch).max(request.epoch_before);
        let claim = match LeaseClaim::make(&path, last.saturating_add(1), request.machine) {
            Ok(claim) => claim,
            Err(held @ LeaseRefusal::Held(_)) => return Err(held),
            Err(LeaseRefusal::Unavailable) => {
                check_age(&path, previous.as_ref(), Present::beside(&path), request)?;
                return Err(LeaseRefusal::Unavailable);
            }
        };
        let takeover = match before {
            Some(_) => {
                let present = Present::OfFileServer(claim.made_at);
                check_age(&path, previous.as_ref(), present, request)?
            }
            None => Takeover::Certain,
        };
        // Another process may have claimed and published a lease since the first read.
        if read_lease(&path).ok().flatten() != before {
            return Err(LeaseRefusal::Held(None));
        }
        let fence = LeaseFence::publish(path, claim.record.clone())
            .map_err(|_unwritable| LeaseRefusal::Unavailable)?;
        if fence.check().is_err() {
            return Err(LeaseRefusal::Held(None));
        }
        let (stop, stopped) = mpsc::channel();
        let fence = Arc::new(fence);
        let renewed = Arc::clone(&fence);
        // If no thread can renew the lease, dropping it removes its file, so that no other process
        // waits for it.
        let lease = Self { fence, _renewal: stop };
        let thread = thread::Builder::new().name("lease".to_owned());
        spawn_detached(thread, move || renewed.renew_until(&stopped))
            .map_err(|_no_thread| LeaseRefusal::Unavailable)?;
        Ok((lease, takeover))
    }

    /// Acquires the lease of the session `id`. `None` if the folder cannot hold leases: then file
    /// locks are the only protection.
    ///
    /// # Errors
    /// [`JournalError::Locked`] if another process holds it.
    pub(super) fn acquire_if_available(
        id: &SessionId,
        request: &LeaseRequest<'_>,
    ) -> Result<Option<(Self, Takeover)>, JournalError> {
        match Self::acquire(request) {
            Ok(acquired) => Ok(Some(acquired)),
            Err(LeaseRefusal::Held(holder)) => Err(JournalError::Locked { id: id.clone(), holder }),
            Err(LeaseRefusal::Unavailable) => Ok(None),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.fence.record.epoch
    }

    pub(super) fn fence(&self) -> &Arc<LeaseFence> {
        &self.fence
    }
}

/// Releases the lease, unless another process has taken it over.
impl Drop for SessionLease {
    fn drop(&mut self) {
        if self.fence.check().is_ok() {
            // If this fails, the lease remains until it expires, like that of a dead process.
            let _stays = fs::remove_file(&self.fence.path);
        }
    }
}

impl LeaseFence {
    /// Publishes the lease under its name, in one step.
    fn publish(path: PathBuf, record: LeaseRecord) -> io::Result<Self> {
        let content = record.json();
        // A unique name: a process that was suspended here must not rename the file of its
        // successor.
        let staged = path.with_extension(format!("lease.{}.new", Uuid::new_v4().simple()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        if let Err(error) = file.write_all(&content).and_then(|()| fs::rename(&staged, &path)) {
            let _stays = fs::remove_file(&staged);
            return Err(error);
        }
        Ok(Self { path, record, content, file, lost: watch::Sender::new(None) })
    }

    /// Checks that the lease still belongs to this process. Opens one small file and reads it:
    /// opening it makes a network file system ask its server.
    ///
    /// # Errors
    /// Another process has taken the lease over, or it cannot be read.
    pub(super) fn check(&self) -> Result<(), AppendError> {
        if begins_with(&self.path, &self.content) {
            return Ok(());
        }
        let published = read_lease(&self.path).map_err(AppendError::Io)?;
        if published.as_ref() == Some(&self.content) {
            return Ok(());
        }
        if published.is_none() && !self.path.with_extension("jsonl").exists() {
            // A successor would have left the journal.
            let error = io::Error::new(io::ErrorKind::NotFound, "the session was deleted");
            return Err(AppendError::Io(error));
        }
        self.lost.send_replace(Some(Interrupt::SessionTakenOver));
        let successor = published.as_deref().and_then(LeaseRecord::parse);
        Err(AppendError::TakenOver(successor.map_or_else(
            || "another process took the session over, and has ended".to_owned(),
            |LeaseRecord { pid, host, since, epoch, .. }| {
                format!(
                    "process {pid} on {host} took the session over at {since} (epoch {epoch}; \
                     this process had epoch {})",
                    self.record.epoch
                )
            },
        )))
    }

    /// Returns the channel that reports the loss of the lease to the run.
    pub(super) fn losses(&self) -> watch::Receiver<Option<Interrupt>> {
        self.lost.subscribe()
    }

    /// Renews the lease until the sender is dropped, or the lease is lost.
    fn renew_until(&self, stopped: &mpsc::Receiver<()>) {
        while stopped.recv_timeout(RENEWAL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            match self.check() {
                Err(AppendError::TakenOver(_)) => return,
                // The next write fails for the same reason, and reports it.
                Err(AppendError::Io(_)) => {}
                // By the descriptor, so that the lease of another process is never renewed. The
                // file server sets the time.
                Ok(()) => {
                    let now = TimeSpec::UTIME_NOW;
                    let _retried = futimens(&self.file, &now, &now);
                }
            }
        }
    }
}

/// Checks that the last owner is dead, or has shown no heartbeat for too long.
fn check_age(
    path: &Path,
    previous: Option<&LeaseRecord>,
    present: Present,
    request: &LeaseRequest<'_>,
) -> Result<Takeover, LeaseRefusal> {
    let is_locked = request.lock == FileLock::Held;
    match previous.map(|record| (record, record.process(request.machine))) {
        Some((record, HolderProcess::Alive)) => {
            return Err(LeaseRefusal::Held(Some(record.holder(None))));
        }
        Some((_, HolderProcess::Dead)) => return Ok(Takeover::Certain),
        // This process has closed the file: otherwise the file could not be locked now.
        Some((_, HolderProcess::ThisOne)) if is_locked => return Ok(Takeover::Certain),
        // Both processes run on one kernel, which manages the lock, even in different containers.
        Some((record, HolderProcess::Unknown))
            if is_locked && record.boot_id == request.machine.boot_id =>
        {
            return Ok(Takeover::Certain);
        }
        Some((_, HolderProcess::ThisOne | HolderProcess::Unknown)) | None => {}
    }
    let Some(left) = time_left(path, present) else { return Ok(Takeover::Presumed) };
    Err(LeaseRefusal::Held(previous.map(|record| record.holder(Some(left)))))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::SystemTime;

    use super::super::lease_record::is_held_elsewhere;
    use super::*;

    fn machine(name: &str) -> MachineId {
        MachineId::named(name)
    }

    fn acquire(journal: &Path, host: &str) -> Result<(SessionLease, Takeover), LeaseRefusal> {
        let machine = machine(host);
        // The pid of a process on another host means nothing here.
        let lock = FileLock::Unsupported;
        SessionLease::acquire(&LeaseRequest { journal, machine: &machine, epoch_before: 0, lock })
    }

    fn let_expire(journal: &Path) {
        set_heartbeat(journal, SystemTime::now() - Duration::from_mins(1));
    }

    fn set_heartbeat(journal: &Path, time: SystemTime) {
        let file = File::options().append(true).open(lease_path(journal)).expect("a lease");
        file.set_modified(time).expect("a time");
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_lease_is_respected_until_it_expires_and_then_fences_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("session.jsonl");
        let (first, takeover) = acquire(&journal, "one").expect("free");
        assert_eq!((first.epoch(), takeover), (1, Takeover::Certain));
        let Err(LeaseRefusal::Held(Some(holder))) = acquire(&journal, "two") else {
            panic!("it is held")
        };
        assert_eq!(holder.pid, std::process::id());
        assert!(holder.lease_left.is_some_and(|left| left <= Duration::from_secs(30)));
        assert!(first.fence().check().is_ok());
        let_expire(&journal);
        let (second, takeover) = acquire(&journal, "two").expect("expired");
        assert_eq!((second.epoch(), takeover), (2, Takeover::Presumed));
        let Err(AppendError::TakenOver(why)) = first.fence().check() else { panic!("not fenced") };
        assert!(why.contains("(epoch 2; this process had epoch 1)"), "{why}");
        assert_eq!(*first.fence().losses().borrow(), Some(Interrupt::SessionTakenOver));
        drop(first);
        assert!(second.fence().check().is_ok(), "the first one does not release it");
        drop(second);
        assert_eq!(names(folder.path()), [""; 0], "nothing is left");
    }

    #[test]
    fn a_heartbeat_of_a_clock_that_was_set_back_expires() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("session.jsonl");
        let (first, _) = acquire(&journal, "one").expect("free");
        set_heartbeat(&journal, SystemTime::now() + Duration::from_secs(10));
        assert!(matches!(acquire(&journal, "two"), Err(LeaseRefusal::Held(Some(_)))));
        assert!(is_held_elsewhere(&journal));
        set_heartbeat(&journal, SystemTime::now() + Duration::from_hours(1));
        assert!(!is_held_elsewhere(&journal));
        let (_second, takeover) = acquire(&journal, "two").expect("its owner is gone");
        assert_eq!(takeover, Takeover::Presumed);
        assert!(first.fence().check().is_err(), "and may not write");
    }

    #[test]
    fn a_lease_whose_epoch_cannot_rise_is_not_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("session.jsonl");
        let record = LeaseRecord::new(&machine("one"), u64::MAX);
        fs::write(lease_path(&journal), record.json()).expect("a lease");
        let_expire(&journal);
        assert!(matches!(acquire(&journal, "two"), Err(LeaseRefusal::Unavailable)));
    }

    #[test]
    fn a_lease_that_was_released_by_its_successor_still_fences() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("session.jsonl");
        fs::write(&journal, "").expect("a file");
        let (first, _) = acquire(&journal, "one").expect("free");
        let_expire(&journal);
        drop(acquire(&journal, "two").expect("expired"));
        assert!(matches!(first.fence().check(), Err(AppendError::TakenOver(_))));
        fs::remove_file(&journal).expect("removed");
        assert!(matches!(first.fence().check(), Err(AppendError::Io(_))), "all is deleted");
    }

    #[test]
    fn of_four_that_take_an_expired_lease_over_exactly_one_gets_it() {
        let folder = tempfile::tempdir().expect("a folder");
        for round in 0..100 {
            let journal = folder.path().join(format!("{round}.jsonl"));
            let before = (round % 2 == 0).then(|| acquire(&journal, "one").expect("free"));
            if before.is_some() {
                let_expire(&journal);
            }
            let (start, end) = (Barrier::new(4), Barrier::new(4));
            let compete = |host: &str| {
                start.wait();
                let got = acquire(&journal, host);
                end.wait();
                got.is_ok_and(|(lease, _)| lease.fence().check().is_ok())
            };
            let winners = thread::scope(|scope| {
                let hosts = ["two", "three", "four", "five"];
                let all = hosts.map(|host| scope.spawn(move || compete(host)));
                all.map(|one| one.join().expect("no panic")).into_iter().filter(|won| *won).count()
            });
            assert_eq!(winners, 1, "round {round}");
        }
    }

    #[test]
    fn a_claim_of_a_dead_process_is_passed_over_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("session.jsonl");
        let here = MachineId::this();
        let mut record = LeaseRecord::new(&here, 1);
        record.pid = u32::MAX;
        let claim = folder.path().join("session.lease.1");
        let target = String::from_utf8(record.json()).expect("JSON");
        std::os::unix::fs::symlink(target, &claim).expect("a link");
        let lock = FileLock::Unsupported;
        let request = LeaseRequest { journal: &journal, machine: &here, epoch_before: 0, lock };
        let (lease, _) = SessionLease::acquire(&request).expect("its process is dead");
        assert_eq!(lease.epoch(), 2);
        drop(lease);
        assert_eq!(names(folder.path()), [""; 0], "nothing is left");
    }
}
