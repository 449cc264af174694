//! The content of a lease, which describes its owner, and the expiry of leases.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::process::process_start;

use super::error::LockHolder;
use super::session_folder::{MachineId, open_without_links};

/// The time after its last heartbeat for which a lease is respected.
const LEASE_DURATION: Duration = Duration::from_secs(30);
/// The longest lease that is read.
const RECORD_BYTES_MAX: u64 = 4096;

/// Describes the process that holds or claims a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseRecord {
    /// Unique for each acquisition.
    owner: String,
    /// The fencing token: it rises with each process that owns the session.
    pub(super) epoch: u64,
    pub(super) host: String,
    /// The boot id of the machine, or the value of `OUTLAST_HOST_ID`.
    pub(super) boot_id: String,
    pub(super) pid: u32,
    /// The inode of the namespace that the pid belongs to.
    pid_namespace: u64,
    /// In clock ticks since the boot: distinguishes processes with the same pid.
    process_start: u64,
    /// RFC 3339.
    pub(super) since: String,
}

impl LeaseRecord {
    pub(super) fn new(machine: &MachineId, epoch: u64) -> Self {
        let pid = std::process::id();
        Self {
            owner: Uuid::new_v4().to_string(),
            epoch,
            host: machine.host.clone(),
            boot_id: machine.boot_id.clone(),
            pid,
            pid_namespace: pid_namespace(),
            process_start: process_start(pid).unwrap_or(0),
            since: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }

    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record of text and numbers is JSON")
    }

    /// Returns the state of its process; `Unknown` if the pid has no meaning on this machine.
    pub(super) fn process(&self, machine: &MachineId) -> HolderProcess {
        let is_here = self.boot_id == machine.boot_id && self.pid_namespace == pid_namespace();
        // Where processes cannot be looked up, their state is unknown.
        if !is_here || process_start(std::process::id()).is_none() {
            return HolderProcess::Unknown;
        }
        match process_start(self.pid) {
            Some(start) if start == self.process_start && self.pid == std::process::id() => {
                HolderProcess::ThisOne
            }
            Some(start) if start == self.process_start => HolderProcess::Alive,
            Some(_) | None => HolderProcess::Dead,
        }
    }

    pub(super) fn holder(&self, lease_left: Option<Duration>) -> LockHolder {
        let Self { pid, host, since, .. } = self.clone();
        LockHolder { pid, host, since, lease_left }
    }
}

/// The state of the process that holds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderProcess {
    Alive,
    Dead,
    ThisOne,
    /// It runs on another host, or cannot be seen from here.
    Unknown,
}

/// The present, by which the age of a heartbeat is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Present {
    /// By the clock that also sets the times of heartbeats.
    OfFileServer(SystemTime),
    /// By the clock of this host, which may differ from the former by any time.
    Here(SystemTime),
}

impl Present {
    /// Reads the clock that sets the times of files in the folder of a lease.
    pub(super) fn beside(lease: &Path) -> Self {
        let folder = lease.parent().unwrap_or(Path::new("."));
        let made = tempfile::tempfile_in(folder).and_then(|file| file.metadata()?.modified());
        made.map_or_else(|_read_only| Self::Here(SystemTime::now()), Self::OfFileServer)
    }
}

/// Returns the time until a lease expires without a heartbeat. `None`: it has expired, or is gone.
pub(super) fn time_left(path: &Path, present: Present) -> Option<Duration> {
    let renewed = fs::symlink_metadata(path).ok()?.modified().ok()?;
    let (Present::OfFileServer(now) | Present::Here(now)) = present;
    let age = match (now.duration_since(renewed), present) {
        (Ok(age), _) => age,
        // The clock was set back since: a living owner would have renewed it.
        (Err(ahead), Present::OfFileServer(_)) if ahead.duration() > LEASE_DURATION => return None,
        // A heartbeat in the future counts as fresh.
        (Err(_), Present::OfFileServer(_) | Present::Here(_)) => Duration::ZERO,
    };
    LEASE_DURATION.checked_sub(age).filter(|left| !left.is_zero())
}

/// Returns true if a process of another machine works on the session, which the file's lock cannot
/// show.
pub(super) fn is_held_elsewhere(journal: &Path) -> bool {
    let path = lease_path(journal);
    let Ok(Some(content)) = read_lease(&path) else { return false };
    let here = MachineId::this();
    LeaseRecord::parse(&content).is_some_and(|record| record.boot_id != here.boot_id)
        && time_left(&path, Present::beside(&path)).is_some()
}

/// Returns the path of the lease of a session's file.
pub(super) fn lease_path(journal: &Path) -> PathBuf {
    journal.with_extension("lease")
}

/// Reads a lease. `None`: there is none.
pub(super) fn read_lease(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // With space for all of it, so that it is read at once.
    let mut content = Vec::with_capacity(1_024);
    match open_without_links(path) {
        Ok(file) => file.take(RECORD_BYTES_MAX).read_to_end(&mut content)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(content))
}

/// Returns true if one read finds this record in a lease. The end of the file is not looked for:
/// the owner of a record is unique, so no other record begins with it.
pub(super) fn begins_with(path: &Path, record: &[u8]) -> bool {
    let mut beginning = vec![0; record.len()];
    let read = open_without_links(path).and_then(|mut file| file.read(&mut beginning));
    read.is_ok_and(|length| beginning[..length] == *record)
}

fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |facts| facts.ino())
}
