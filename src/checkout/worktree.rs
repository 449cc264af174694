//! A git worktree for a run, at `.claude/worktrees/NAME` of its repository, on a branch of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::config::environment::{Variables, config_dir, home};
use crate::tools::{Confinement, owns_git_directory};

use super::git::{Git, GitError, GitStep};

/// Folder of the worktrees, below the root of a repository.
const FOLDER: &str = ".claude/worktrees";

/// Prefix of the names of their branches.
const BRANCH_PREFIX: &str = "worktree-";

/// Maximum length of a name, in bytes.
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

/// A worktree that a run works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    pub path: PathBuf,
    /// The branch that was created. `None`: the worktree existed already.
    pub new_branch: Option<String>,
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
    /// exist, it is added on a new branch, which begins at `refs/remotes/origin/HEAD` if that
    /// exists, and otherwise at `HEAD`. Nothing is fetched.
    ///
    /// Commands of earlier runs could write to the repository. Its hooks and filters therefore run
    /// only while the files are checked out, with the access of a command.
    ///
    /// # Errors
    /// `cwd` is not in a repository, a link leads out of it, or git could not add the worktree.
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
        if path.join(".git").exists() {
            return Ok(Self { path, new_branch: None });
        }
        let remote = "refs/remotes/origin/HEAD";
        let known = ["rev-parse", "--verify", "--quiet", "refs/remotes/origin/HEAD^{commit}"];
        let base = match git.run(GitStep::FindBase, &within(&root, &known)).await {
            Ok(_) => remote,
            Err(GitError::Failed { .. }) => "HEAD",
            Err(
                error @ (GitError::NotFound
                | GitError::NotStarted(_)
                | GitError::Folder { .. }
                | GitError::Link { .. }
                | GitError::Foreign { .. }),
            ) => {
                return Err(error);
            }
        };
        let branch = format!("{BRANCH_PREFIX}{}", name.0);
        let words =
            ["worktree", "add", "--quiet", "--no-checkout", "--no-track", "-b", &branch, "--"];
        let mut add = within(&root, &words);
        add.extend([path.as_os_str(), OsStr::new(base)]);
        git.run(GitStep::AddWorktree, &add).await?;
        if let Err(error) = fill(&git, &path, variables).await {
            // A later run would take it for a worktree in which all files were deleted.
            let words = ["worktree", "remove", "--force", "--"];
            let mut undo = within(&root, &words);
            undo.push(path.as_os_str());
            let _ = git.run(GitStep::AddWorktree, &undo).await;
            let words = ["branch", "-D", "--quiet", &branch];
            let _ = git.run(GitStep::AddWorktree, &within(&root, &words)).await;
            return Err(error);
        }
        Ok(Self { path, new_branch: Some(branch) })
    }
}

/// Checks out the files of a new worktree.
async fn fill(git: &Git, path: &Path, variables: &Variables) -> Result<(), GitError> {
    let own: Vec<_> = variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let (folder, home, config_dir) = (path.to_owned(), home(variables), config_dir(variables));
    let confined =
        spawn_blocking(move || Confinement::of_command(&folder, home.as_deref(), config_dir, &own));
    let confined = confined.await.map_err(|error| GitError::NotStarted(error.into()))?;
    let confined = confined.map_err(GitError::NotStarted)?;
    let words = ["-C".as_ref(), path.as_os_str(), "checkout".as_ref()];
    let words = [&words[..], &["--quiet", "--force"].map(OsStr::new)].concat();
    git.run_within(GitStep::FillWorktree, &words, Some(&confined)).await.map(drop)
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
