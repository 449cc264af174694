//! Clones the repository of a task into its folder, once.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::config::environment::Variables;

use super::git::{Git, GitError, GitStep};

/// Clones the repository into `work` and checks out `reference`. Does nothing if an earlier attempt
/// has done so. The clone is made in another folder and then renamed, so that an interrupted clone
/// is never used.
///
/// # Errors
/// Git is missing, could not clone, or could not find the reference.
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
