//! Clones the repository of a task into its folder, once.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::config::environment::Variables;

use super::git::{Git, GitError, GitStep};

/// Clones into `work`, unless an earlier attempt did, and checks `reference` out. The clone is made
/// beside and renamed, so that an interrupted one is never worked on.
///
/// # Errors
/// Git is missing, or could not clone or find the reference.
pub async fn check_out(
    repository: &str,
    reference: Option<&str>,
    work: &Path,
    variables: &Variables,
) -> Result<(), GitError> {
    if work.is_dir() {
        return Ok(());
    }
    let beside = work.with_extension("new");
    let folder = |cause| GitError::Folder { path: beside.display().to_string(), cause };
    if beside.exists() {
        fs::remove_dir_all(&beside).map_err(folder)?;
    }
    let git = Git::find(&format!("of {repository}"), work, variables)?;
    let words = ["clone", "--quiet", "--", repository].map(OsStr::new);
    let clone = [&words[..], &[beside.as_os_str()]].concat();
    git.run(GitStep::Clone, &clone).await?;
    if let Some(reference) = reference {
        let words = ["checkout", "--quiet", reference, "--"].map(OsStr::new);
        let checkout = [&[OsStr::new("-C"), beside.as_os_str()], &words[..]].concat();
        git.run(GitStep::Checkout, &checkout).await?;
    }
    fs::rename(&beside, work).map_err(folder)
}
