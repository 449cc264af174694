//! Errors of writing a journal or resuming a session.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::process::limit_to_raise;

use super::SessionId;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The run can continue without a journal.
    #[error("cannot write the journal {}: {cause}", path.display())]
    Unwritable { path: PathBuf, cause: io::Error },
    /// There is a session with this id already.
    #[error("session {id} exists already: {}", path.display())]
    Exists { id: SessionId, path: PathBuf },
    #[error("the session {id} was not found below {}", projects.display())]
    Unknown { id: SessionId, projects: PathBuf },
    #[error("the session {id} has no message {message}")]
    NoMessage { id: SessionId, message: String },
    /// Clients of the public SDKs search for the text before the colon.
    #[error("Resume rejected by --resume-drops-turn: {why}")]
    DropsMore { why: &'static str },
    /// Another process works on the session.
    #[error("session {id} is in use{}", LockedBy(holder.as_ref()))]
    Locked { id: SessionId, holder: Option<LockHolder> },
    #[error("cannot read the session's file {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    /// A record before the last one is broken, so what follows cannot be trusted.
    #[error("{}, line {line}: the session's file is damaged: {what}", path.display())]
    Damaged { id: SessionId, path: PathBuf, line: usize, what: String },
    #[error("{}, line {line}: written by a newer outlast: {what}", path.display())]
    Newer { path: PathBuf, line: usize, what: String },
}

/// The process that works on a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: u32,
    pub host: String,
    /// RFC 3339.
    pub since: String,
    /// Time until its lease expires without a heartbeat, if it runs on another machine.
    pub lease_left: Option<Duration>,
}

struct LockedBy<'a>(Option<&'a LockHolder>);

impl fmt::Display for LockedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(LockHolder { pid, host, since, lease_left }) => {
                write!(f, " by process {pid} on {host} since {since}")?;
                let Some(left) = lease_left else { return Ok(()) };
                write!(f, ", whose lease ends in {} s unless it is renewed", left.as_secs() + 1)
            }
            None => f.write_str(" by another process"),
        }
    }
}

impl JournalError {
    /// Returns advice for the user on fixing the cause.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::Damaged { id, .. } => {
                return format!(
                    "to go on from the last intact record before that line, use --resume {id} \
                     --to-last-intact: the rest is kept in a file beside it"
                );
            }
            Self::Unwritable { .. } => {
                "make the folder writable, set OUTLAST_CONFIG_DIR, or use --no-session-persistence"
            }
            Self::Exists { .. } => "use --resume to go on with it, or choose another --session-id",
            Self::Unknown { .. } => {
                "outlast sessions --all-projects lists the ids; check OUTLAST_CONFIG_DIR too"
            }
            Self::NoMessage { .. } => "give the id of one of its messages",
            Self::DropsMore { .. } => "resume without --resume-session-at to keep everything",
            Self::Locked { .. } => {
                "wait for that process to end, or use --fork-session to work on a copy"
            }
            Self::Unreadable { cause, .. } => unreadable_hint(cause),
            Self::Newer { .. } => "update outlast",
        };
        hint.to_owned()
    }
}

/// Returns advice for the user on a session's file that cannot be read.
pub fn unreadable_hint(cause: &io::Error) -> &'static str {
    if cause.kind() == io::ErrorKind::PermissionDenied {
        return "check that the file belongs to you";
    }
    limit_to_raise(cause).unwrap_or("check its disk, or restore the file from a backup")
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn the_advice_on_an_unreadable_file_fits_its_cause() {
        for (errno, advice) in [
            (Errno::EACCES, "belongs to you"),
            (Errno::EMFILE, "ulimit -n"),
            (Errno::EIO, "check its disk"),
            (Errno::ESTALE, "check its disk"),
        ] {
            assert!(unreadable_hint(&errno.into()).contains(advice), "{errno}");
        }
    }
}
