//! The users whose files may contain instructions for a run: in a shared folder, others can also
//! leave files.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

const ROOT: u32 = 0;

/// The user and root. Also the owner of the working directory, if the user trusts the repository,
/// or is root: root often works in a checkout of another user, in a container or with `sudo`.
#[derive(Clone, Debug)]
pub struct TrustedOwners(Vec<u32>);

impl TrustedOwners {
    pub fn new(cwd: &Path, is_trusted: bool) -> Self {
        let user = geteuid().as_raw();
        let of_cwd = fs::metadata(cwd).ok().filter(|_| is_trusted || user == ROOT);
        let of_cwd = of_cwd.map(|facts| facts.uid());
        Self([user, ROOT].into_iter().chain(of_cwd).collect())
    }

    /// Checks the owner of a file or folder, which `what` names.
    ///
    /// # Errors
    /// It belongs to another user: kind [`Other`](io::ErrorKind::Other), with a
    /// text that can follow "because".
    pub fn check(&self, what: &str, facts: &Metadata) -> io::Result<()> {
        if self.0.contains(&facts.uid()) {
            return Ok(());
        }
        Err(io::Error::other(format!("{what} belongs to another user (uid {})", facts.uid())))
    }
}
