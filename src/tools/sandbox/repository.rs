//! Finds the git repository that a folder is part of, and where its data really is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::places::resolve;

/// How much of a small file of git's is read, in bytes.
const POINTER_BYTES_MAX: u64 = 64 << 10;

/// A working tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// The top of it.
    pub(super) top: PathBuf,
    /// Where its data is, if that is elsewhere: a linked working tree, a submodule.
    pub(super) data: Option<PathBuf>,
}

/// Finds the working tree around `cwd`, which is a real path. None where that would be the home
/// folder, or a folder around it, unless the run works right there.
pub(super) fn find_repository(cwd: &Path, home: Option<&Path>) -> Option<Repository> {
    let top = cwd.ancestors().find(|folder| fs::symlink_metadata(folder.join(".git")).is_ok())?;
    let whole = top.parent().is_none() || home.is_some_and(|home| home.starts_with(top));
    if top != cwd && (whole || !same_owner(top, cwd)) {
        return None;
    }
    Some(Repository { top: top.to_path_buf(), data: git_dir(top) })
}

/// A repository of somebody else's around ours is not ours to write to.
fn same_owner(top: &Path, cwd: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|facts| facts.uid()).ok();
    owner(top).is_some() && owner(top) == owner(cwd)
}

/// Follows a `.git` that is a file. A checkout may hold any such file, so the place that it names
/// is only believed if it names this working tree in turn.
fn git_dir(top: &Path) -> Option<PathBuf> {
    let pointer = read_small_file(&top.join(".git"))?;
    let named = pointer.strip_prefix("gitdir:")?.trim();
    let place = resolve(&top.join(named));
    worktree_git_dir(top, &place).or_else(|| submodule_git_dir(top, &place))
}

/// `git worktree add`: the data is that of the repository that this tree was added to.
fn worktree_git_dir(top: &Path, place: &Path) -> Option<PathBuf> {
    let back = read_small_file(&place.join("gitdir"))?;
    let common = resolve(&place.join(read_small_file(&place.join("commondir"))?.trim()));
    let is_ours = resolve(&place.join(back.trim())) == resolve(&top.join(".git"));
    (is_ours && place.parent()? == common.join("worktrees")).then_some(common)
}

fn submodule_git_dir(top: &Path, place: &Path) -> Option<PathBuf> {
    let config = read_small_file(&place.join("config"))?;
    let back = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "worktree").then(|| value.trim().trim_matches('"'))
    })?;
    (resolve(&place.join(back)) == resolve(top)).then(|| place.to_path_buf())
}

fn read_small_file(path: &Path) -> Option<String> {
    let is_small = |facts: fs::Metadata| facts.is_file() && facts.len() <= POINTER_BYTES_MAX;
    fs::metadata(path).is_ok_and(is_small).then(|| fs::read_to_string(path).ok())?
}
