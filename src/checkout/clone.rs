//! Clones the repository of a task into its folder, once.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::environment::Variables;

use super::git::{Git, GitError, GitStep};

/// Returns the path of a repository in the file system, which the tasks of a batch name by an
/// absolute path.
pub fn local_path(repository: &str) -> Option<&Path> {
    let path = Path::new(repository.strip_prefix("file://").unwrap_or(repository));
    path.is_absolute().then_some(path)
}

/// Returns true if git finds a repository or a bundle at a path, as `git clone` looks for it.
pub fn is_repository(path: &Path) -> bool {
    let with = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let is_folder = |path: &Path| path.join(".git").exists() || path.join("HEAD").is_file();
    let paths = [with(""), with(".git"), with(".bundle")];
    paths.iter().any(|path| path.is_file() || is_folder(path))
}

/// True if an earlier attempt has cloned the repository of a task into `work`.
pub fn is_checked_out(work: &Path) -> bool {
    work.is_dir()
}

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
    if is_checked_out(work) {
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
    let step = if local_path(repository).is_some() { GitStep::CloneFolder } else { GitStep::Clone };
    git.run(step, &clone).await?;
    if let Some(reference) = reference {
        let words = ["checkout", "--quiet", reference, "--"].map(OsStr::new);
        let checkout = [&[OsStr::new("-C"), beside.as_os_str()], &words[..]].concat();
        git.run(GitStep::Checkout, &checkout).await?;
    }
    fs::rename(&beside, work).map_err(folder)
}
