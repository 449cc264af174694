//! A git worktree for a run, at `.claude/worktrees/NAME` of its repository, on a branch of its own.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use uuid::Uuid;

use crate::config::environment::{Variables, config_dir, home};
use crate::process::LockedFile;
use crate::tools::{Confinement, owns_git_directory};

use super::git::{Git, GitError, GitStep};

/// Folder of the worktrees, below the root of a repository.
const FOLDER: &str = ".claude/worktrees";

/// Prefix of the names of branches of worktrees.
const BRANCH_PREFIX: &str = "worktree-";

/// Reason of git's lock of a worktree until its files are checked out. If a run is killed
/// meanwhile, the lock remains.
const INCOMPLETE: &str = "outlast checks out its files";

/// Polling interval for a worktree that another run adds.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(25);

const NAME_BYTES_MAX: usize = 64;

/// The name of a worktree: letters, digits, `.`, `_` and `-`, which are valid in a folder name and
/// in a branch name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorktreeName(String);

impl WorktreeName {
    /// Parses a name. An empty text gives a new random name. `None`: the text is not a valid name.
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() {
            let id = Uuid::new_v4().simple().to_string();
            return Some(Self(id[..8].to_owned()));
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let fits = text.len() <= NAME_BYTES_MAX
            && text.chars().all(is_plain)
            && !text.starts_with(['.', '-'])
            && !text.ends_with(['.', '-'])
            && !text.contains("..")
            // Git reserves names that end in `.lock`.
            && Path::new(text).extension().is_none_or(|end| end != "lock");
        fits.then(|| Self(text.to_owned()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    pub path: PathBuf,
    /// The branch of a worktree that was added. `None`: the worktree existed already.
    pub added: Option<AddedBranch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedBranch {
    pub name: String,
    /// False if the branch is that of an earlier worktree, with the commits made there.
    pub is_new: bool,
    /// The reference to the commit that the branch began at or was found at.
    pub base: String,
}

impl Worktree {
    /// Returns the name of the worktree at this path. `None`: it is not the root of a worktree.
    pub fn name_of(path: &Path) -> Option<&str> {
        let name = path.file_name()?.to_str()?;
        path.parent().filter(|above| above.ends_with(FOLDER)).map(|_| name)
    }

    /// Returns the main working tree of the repository that the worktree at this path belongs to.
    pub fn repository_of(path: &Path) -> Option<&Path> {
        Self::name_of(path)?;
        path.ancestors().nth(Path::new(FOLDER).components().count() + 1)
    }

    /// Opens the worktree with this name in the repository that contains `cwd`. If it does not
    /// exist, it is added on its branch. A branch that does not exist begins at
    /// `refs/remotes/origin/HEAD` if that exists, and otherwise at `HEAD`. Nothing is fetched.
    ///
    /// Runs that open one worktree at the same time wait for the one that adds it.
    ///
    /// Commands of earlier runs could write to the repository. Its hooks and filters therefore run
    /// only while the files are checked out, with the access of a command.
    ///
    /// # Errors
    /// `cwd` is not in a repository, the repository has no commit, a link leads out of it, or git
    /// could not add the worktree.
    pub async fn open(
        name: &WorktreeName,
        cwd: &Path,
        variables: &Variables,
    ) -> Result<Self, GitError> {
        let git = Git::find(&format!("in {}", cwd.display()), cwd, variables)?.without_fetching();
        let find = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir"];
        let found = git.run(GitStep::FindRoot, &within(cwd, &find)).await?;
        let mut lines = found.split(|byte| *byte == b'\n').map(OsStr::from_bytes).map(Path::new);
        let (top, common) = (lines.next().unwrap_or(cwd), lines.next().unwrap_or(cwd));
        // The main working tree, even if `cwd` is in another worktree of the repository.
        let main = common.parent().filter(|_| common.ends_with(".git"));
        let root = main.unwrap_or(top).to_owned();
        if main.is_some() && !owns_git_directory(cwd, common) {
            let (path, place) = (common.display().to_string(), cwd.display().to_string());
            return Err(GitError::Foreign { path, place });
        }
        let path = root.join(FOLDER).join(&name.0);
        let places = path.ancestors().take_while(|place| *place != root);
        if let Some(link) = places.filter(|place| place.is_symlink()).last() {
            return Err(GitError::Link { path: link.display().to_string() });
        }
        if !path.exists() {
            // Nothing is created in a repository in which it would remain of no use.
            find_base(&git, &root, name).await?;
        }
        let mut lock = lock(&path).await?;
        if path.join(".git").exists() {
            if !is_incomplete(&git, &root, &path).await? {
                return Ok(Self { path, added: None });
            }
            remove(&git, &root, &path).await?;
            // The folder that was locked is removed.
            lock = self::lock(&path).await?;
        }
        let branch = add(&git, &root, &path, name).await;
        let branch = branch.inspect_err(|_| drop(fs::remove_dir(&path)))?;
        if let Err(error) = fill(&git, &root, (&path, &branch), variables).await {
            let _ = remove(&git, &root, &path).await;
            if branch.is_new {
                let words = ["branch", "-D", "--quiet", &branch.name];
                let _ = git.run(GitStep::RemoveWorktree, &within(&root, &words)).await;
            }
            return Err(error);
        }
        drop::<LockedFile>(lock);
        Ok(Self { path, added: Some(branch) })
    }
}

/// Locks the folder of a worktree, and creates it if needed. Dropping the file ends the lock.
async fn lock(path: &Path) -> Result<LockedFile, GitError> {
    let error = |cause| GitError::Folder { path: path.display().to_string(), cause };
    loop {
        fs::create_dir_all(path).map_err(error)?;
        hide_worktrees(path);
        // Another run may have replaced the folder: only a lock of the present one counts.
        match File::open(path).map(LockedFile::from) {
            Ok(folder) => match folder.try_lock() {
                // Some network file systems cannot lock folders.
                Ok(()) | Err(TryLockError::Error(_)) if is_at(&folder, path) => return Ok(folder),
                Ok(()) | Err(TryLockError::Error(_) | TryLockError::WouldBlock) => {}
            },
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(error(cause)),
        }
        sleep(LOCK_POLL_INTERVAL).await;
    }
}

fn is_at(folder: &File, path: &Path) -> bool {
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let here = fs::symlink_metadata(path).map(identity).ok();
    here.is_some() && here == folder.metadata().map(identity).ok()
}

/// Makes git and the file tools ignore worktrees in the main working tree, so that it stays clean.
/// Errors are ignored, as worktrees work without that.
fn hide_worktrees(path: &Path) {
    let file = path.with_file_name(".gitignore");
    let _ = File::create_new(file).and_then(|mut file| file.write_all(b"*\n"));
}

/// True if the run that added this worktree was killed before its files were checked out.
async fn is_incomplete(git: &Git, root: &Path, path: &Path) -> Result<bool, GitError> {
    let list = within(root, &["worktree", "list", "--porcelain"]);
    let listed = git.run(GitStep::ListWorktrees, &list).await?;
    let listed = String::from_utf8_lossy(&listed);
    let (head, reason) = (format!("worktree {}", path.display()), format!("locked {INCOMPLETE}"));
    let entry = listed.split("\n\n").find(|entry| entry.lines().any(|line| line == head));
    Ok(entry.is_some_and(|entry| entry.lines().any(|line| line == reason)))
}

/// Finds the branch of a worktree, and the reference to the commit that it begins at.
async fn find_base(git: &Git, root: &Path, name: &WorktreeName) -> Result<AddedBranch, GitError> {
    let branch = format!("{BRANCH_PREFIX}{}", name.0);
    let is_new = !has_commit(git, root, &format!("refs/heads/{branch}")).await?;
    let remote = "refs/remotes/origin/HEAD";
    let base = if !is_new {
        branch.clone()
    } else if has_commit(git, root, remote).await? {
        remote.to_owned()
    } else if has_commit(git, root, "HEAD").await? {
        "HEAD".to_owned()
    } else {
        return Err(GitError::NoCommit { path: root.display().to_string() });
    };
    Ok(AddedBranch { name: branch, is_new, base })
}

/// Adds a worktree without its files, on its branch if that exists, and otherwise on a new one.
async fn add(
    git: &Git,
    root: &Path,
    path: &Path,
    name: &WorktreeName,
) -> Result<AddedBranch, GitError> {
    let AddedBranch { name: branch, is_new, base } = find_base(git, root, name).await?;
    // The first `--force` replaces a worktree whose folder was deleted, the second also a locked one.
    // As the first would accept a branch in use elsewhere, too, `fill` checks an existing branch out.
    let mut words = vec!["worktree", "add", "--quiet", "--no-checkout", "--force", "--force"];
    words.extend(["--lock", "--reason", INCOMPLETE]);
    if is_new {
        words.extend(["--no-track", "-b", branch.as_str(), "--"]);
    } else {
        words.extend(["--detach", "--"]);
    }
    let mut words = within(root, &words);
    words.extend([path.as_os_str(), OsStr::new(&base)]);
    git.run(GitStep::AddWorktree, &words).await?;
    let base = base.trim_start_matches("refs/remotes/").to_owned();
    Ok(AddedBranch { name: branch, is_new, base })
}

async fn has_commit(git: &Git, root: &Path, reference: &str) -> Result<bool, GitError> {
    let commit = format!("{reference}^{{commit}}");
    let words = ["rev-parse", "--verify", "--quiet", &commit];
    match git.run(GitStep::FindBase, &within(root, &words)).await {
        Ok(_) => Ok(true),
        Err(GitError::Failed { .. }) => Ok(false),
        Err(
            error @ (GitError::NotFound
            | GitError::NoResult(_)
            | GitError::Folder { .. }
            | GitError::Link { .. }
            | GitError::NoCommit { .. }
            | GitError::Foreign { .. }),
        ) => Err(error),
    }
}

async fn remove(git: &Git, root: &Path, path: &Path) -> Result<(), GitError> {
    let words = ["worktree", "remove", "--force", "--force", "--"];
    let mut words = within(root, &words);
    words.push(path.as_os_str());
    git.run(GitStep::RemoveWorktree, &words).await.map(drop)
}

/// Checks out the files of a new worktree, after which it is complete.
async fn fill(
    git: &Git,
    root: &Path,
    (path, branch): (&Path, &AddedBranch),
    variables: &Variables,
) -> Result<(), GitError> {
    let environment: Vec<_> =
        variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let (folder, home, config_dir) = (path.to_owned(), home(variables), config_dir(variables));
    let confinement = spawn_blocking(move || {
        Confinement::of_command(&folder, home.as_deref(), config_dir, &environment)
    });
    let confinement = confinement.await.map_err(io::Error::from).flatten();
    let confinement = confinement.map_err(|error| GitError::NoResult(error.into()))?;
    let words = ["-C".as_ref(), path.as_os_str(), "checkout".as_ref()];
    let words = [&words[..], &["--quiet", "--force", &branch.name, "--"].map(OsStr::new)].concat();
    git.run_within(GitStep::FillWorktree, &words, Some(&confinement)).await?;
    let mut unlock = within(root, &["worktree", "unlock", "--"]);
    unlock.push(path.as_os_str());
    git.run(GitStep::AddWorktree, &unlock).await.map(drop)
}

/// Returns the arguments of git for a command in a folder, without the programs that the
/// repository's own configuration names.
fn within<'a>(folder: &'a Path, words: &'a [&'a str]) -> Vec<&'a OsStr> {
    let quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-C"];
    let quiet = quiet.map(OsStr::new).into_iter().chain([folder.as_os_str()]);
    quiet.chain(words.iter().map(OsStr::new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_folders_and_parts_of_branches() {
        for name in ["a", "fix-12", "Fix_1.2", "x".repeat(64).as_str()] {
            assert_eq!(WorktreeName::new(name), Some(WorktreeName(name.to_owned())), "{name}");
        }
        for name in
            ["a b", "a/b", "..", ".a", "-a", "a..b", "a.lock", "a.", "#12", "é", &"x".repeat(65)]
        {
            assert_eq!(WorktreeName::new(name), None, "{name}");
        }
        let (first, second) = (WorktreeName::new(""), WorktreeName::new(""));
        assert!(first.is_some() && first != second, "{first:?} {second:?}");
    }

    #[test]
    fn a_worktree_is_known_by_its_path() {
        for (path, name) in [
            ("/a/.claude/worktrees/x", Some("x")),
            ("/a/.claude/worktrees/x/y", None),
            ("/a/.claude/worktrees", None),
            ("/a/worktrees/x", None),
            ("/", None),
        ] {
            assert_eq!(Worktree::name_of(Path::new(path)), name, "{path}");
        }
    }
}
