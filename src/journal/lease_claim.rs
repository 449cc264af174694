//! The claim of a process that is taking a session over. At most one process can have it.
//!
//! A claim is a symbolic link without a target, whose text is the record. Creating one is atomic on
//! network file systems, too, and writes its content in the same step.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::error::LockHolder;
use super::lease_record::{HolderProcess, LeaseRecord, Present, time_left};
use super::session_folder::MachineId;

/// Maximum number of abandoned claims that are skipped.
const ABANDONED_MAX: u64 = 16;

/// The reason that a lease cannot be acquired.
#[derive(Debug)]
pub(super) enum LeaseRefusal {
    /// Another process holds it, or is acquiring it.
    Held(Option<LockHolder>),
    /// The folder cannot hold leases.
    Unavailable,
}

/// A claim, which is given up when this is dropped.
#[derive(Debug)]
pub(super) struct LeaseClaim {
    pub(super) record: LeaseRecord,
    /// The time of the claim, by the clock of the file server.
    pub(super) made_at: SystemTime,
    /// The link of this claim, and those of processes that died with theirs.
    links: Vec<PathBuf>,
}

impl LeaseClaim {
    /// Claims the first epoch from `first` on that no living process claims.
    ///
    /// # Errors
    /// Another process has a claim, or the file system has no symbolic links.
    pub(super) fn make(
        lease: &Path,
        first: u64,
        machine: &MachineId,
    ) -> Result<Self, LeaseRefusal> {
        let mut links = Vec::new();
        for epoch in first..first.saturating_add(ABANDONED_MAX) {
            let link = lease.with_extension(format!("lease.{epoch}"));
            let record = LeaseRecord::new(machine, epoch);
            match symlink(OsString::from_vec(record.json()), &link) {
                Ok(()) => {
                    links.push(link.clone());
                    let mut claim = Self { record, made_at: SystemTime::UNIX_EPOCH, links };
                    let facts = fs::symlink_metadata(&link);
                    let made_at = facts.and_then(|facts| facts.modified());
                    claim.made_at = made_at.map_err(|_unknown| LeaseRefusal::Unavailable)?;
                    return Ok(claim);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if let Some(held) = live_claim(&link, machine) {
                        return Err(held);
                    }
                    links.push(link);
                }
                Err(_no_links) => return Err(LeaseRefusal::Unavailable),
            }
        }
        Err(LeaseRefusal::Unavailable)
    }
}

impl Drop for LeaseClaim {
    fn drop(&mut self) {
        for link in &self.links {
            // A link that remains is skipped as abandoned.
            let _stays = fs::remove_file(link);
        }
    }
}

/// Returns the refusal because of another claim, unless its process is dead or has stalled.
fn live_claim(link: &Path, machine: &MachineId) -> Option<LeaseRefusal> {
    let content = fs::read_link(link).ok();
    let record = content.and_then(|it| LeaseRecord::parse(it.as_os_str().as_bytes()));
    if record.as_ref().map(|record| record.process(machine)) == Some(HolderProcess::Dead) {
        return None;
    }
    let left = time_left(link, Present::beside(link))?;
    Some(LeaseRefusal::Held(record.map(|record| record.holder(Some(left)))))
}
