//! Finds the git repository of a folder, and the location of its data.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::checkout_root;

use super::super::paths::resolve;
use super::denied_paths::is_in_any;

/// The maximum size of a git file that points to a folder, in bytes.
const POINTER_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repository {
    pub(super) top: PathBuf,
    /// The git directory, if it is elsewhere: for a linked working tree or a submodule.
    pub(super) data: Option<PathBuf>,
}

/// Finds the working tree around `cwd`, a real path. `home` returns the real path of the home
/// folder. `None` if the tree would be that folder, or a parent of it, unless that is the working
/// directory itself.
pub(super) fn find_repository(
    cwd: &Path,
    home: impl FnOnce() -> Option<PathBuf>,
) -> Option<Repository> {
    let top = checkout_root(cwd)?;
    let whole = top.parent().is_none() || home().is_some_and(|home| home.starts_with(top));
    if top != cwd && (whole || !same_owner(top, cwd)) {
        return None;
    }
    Some(Repository { top: top.to_path_buf(), data: git_dir(top) })
}

/// The folders above the working folder that hold settings for it. Real paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SettingsFolders {
    /// The top folder of its working tree, if that is another one.
    pub top: Option<PathBuf>,
    /// The top folder of the main working tree, if `git worktree add` made this one.
    pub main: Option<PathBuf>,
}

/// Finds the folders that hold settings for a working folder: never the home folder, whose settings
/// are those of the user, and never a folder of another owner.
pub fn settings_folders(cwd: &Path, home: Option<&Path>) -> SettingsFolders {
    let (cwd, home) = (resolve(cwd), || home.map(resolve));
    let Some(Repository { top, data }) = find_repository(&cwd, home) else {
        return SettingsFolders::default();
    };
    let main = data.filter(|data| data.ends_with(".git"));
    let main = main.and_then(|data| Some(data.parent()?.to_path_buf()));
    let is_ours = |main: &PathBuf| {
        !home().is_some_and(|home| home.starts_with(main)) && same_owner(main, &cwd)
    };
    SettingsFolders { main: main.filter(is_ours), top: Some(top).filter(|top| *top != cwd) }
}

/// Returns the repositories around working folders, which are real paths, and their data elsewhere,
/// as real paths.
pub(in super::super) fn repository_folders(roots: &[PathBuf], home: Option<&Path>) -> Vec<PathBuf> {
    let found = roots.iter().filter_map(|root| find_repository(root, || home.map(resolve)));
    let mut folders: Vec<PathBuf> =
        found.flat_map(|found| [found.top].into_iter().chain(found.data)).collect();
    folders.retain(|folder| !is_in_any(folder, roots));
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// True if the working tree around `cwd`, a real path, has its git directory at `common`: in the
/// tree itself, or elsewhere if that refers back to it. A file or a link in place of `.git` could
/// name the repository of another tree.
pub fn owns_git_directory(cwd: &Path, common: &Path) -> bool {
    checkout_root(cwd).is_some_and(|top| {
        let git_file = top.join(".git");
        let is_folder = fs::symlink_metadata(&git_file).is_ok_and(|facts| facts.is_dir());
        if is_folder { git_file == common } else { git_dir(top).is_some_and(|data| data == common) }
    })
}

/// True if both have one owner: a parent repository of another user must not become writable.
fn same_owner(top: &Path, cwd: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|facts| facts.uid()).ok();
    owner(top).is_some() && owner(top) == owner(cwd)
}

/// Follows a `.git` file. A checkout may contain any such file, so its target is only trusted if it
/// refers back to this working tree.
fn git_dir(top: &Path) -> Option<PathBuf> {
    let pointer = read_small_file(&top.join(".git"))?;
    let data = resolve(&top.join(pointer.strip_prefix("gitdir:")?.trim()));
    worktree_git_dir(top, &data).or_else(|| submodule_git_dir(top, &data))
}

/// For `git worktree add`: the data of the repository to which this tree was added.
fn worktree_git_dir(top: &Path, data: &Path) -> Option<PathBuf> {
    let back = read_small_file(&data.join("gitdir"))?;
    let common = resolve(&data.join(read_small_file(&data.join("commondir"))?.trim()));
    let is_ours = resolve(&data.join(back.trim())) == resolve(&top.join(".git"));
    (is_ours && data.parent()? == common.join("worktrees")).then_some(common)
}

fn submodule_git_dir(top: &Path, data: &Path) -> Option<PathBuf> {
    let config = read_small_file(&data.join("config"))?;
    let back = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "worktree").then(|| value.trim().trim_matches('"'))
    })?;
    (resolve(&data.join(back)) == resolve(top)).then(|| data.to_path_buf())
}

fn read_small_file(path: &Path) -> Option<String> {
    let is_small = |facts: fs::Metadata| facts.is_file() && facts.len() <= POINTER_BYTES_MAX;
    fs::metadata(path).is_ok_and(is_small).then(|| fs::read_to_string(path).ok())?
}
