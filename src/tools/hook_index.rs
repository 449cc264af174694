//! The index of a hook of git that outlast runs in: `git commit -a` and `git commit FILE` prepare
//! one of their own, in which `git diff --cached` shows what is being committed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::process::checkout_root;

use super::paths::resolve;
use super::permission::may_only_read;
use super::shell_lexer::{self, SimpleCommand};

/// The variable that names the index.
pub(super) const VARIABLE: &str = "GIT_INDEX_FILE";

/// Options of git that lead to another repository.
const ELSEWHERE: [&str; 3] = ["-C", "--git-dir", "--work-tree"];

/// The index of a hook, and its repository.
#[derive(Debug)]
pub(super) struct HookIndex {
    path: PathBuf,
    git_dir: PathBuf,
}

impl HookIndex {
    /// Finds the index that the variable names. `None` if it is that of the repository. Relative
    /// paths are relative to the folder of the hook.
    pub(super) fn find(environment: &[(OsString, OsString)], cwd: &Path) -> Option<Self> {
        let named = environment.iter().rev().find(|(name, _)| name == VARIABLE);
        let path = resolve(&cwd.join(&named?.1));
        let git_dir = path.parent()?.to_path_buf();
        let is_default = path.file_name() == Some(OsStr::new("index"));
        (!is_default && path.is_file()).then_some(Self { path, git_dir })
    }

    /// Returns the index for a line whose commands are git in the same repository, and others that
    /// only read.
    pub(super) fn for_line(&self, line: &str, cwd: &Path) -> Option<&Path> {
        let git_dir = checkout_root(cwd)?.join(".git");
        let parts = shell_lexer::split(line).ok().filter(|_| git_dir == self.git_dir)?;
        let is_here = |part: &SimpleCommand| {
            let words = || part.words.iter().map(|word| word.plain.as_str());
            let leads = |word: &str| ELSEWHERE.iter().any(|option| word.starts_with(option));
            if words().any(|word| word == "git") && words().any(leads) {
                return false;
            }
            words().next() == Some("git") || may_only_read(std::slice::from_ref(part))
        };
        parts.iter().all(is_here).then_some(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_index_of_a_hook_is_for_lines_of_git_in_its_repository() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("it is there");
        for name in ["work/.git", "work/sub", "work/other/.git"] {
            fs::create_dir_all(top.join(name)).expect("a folder");
        }
        for name in ["index", "index.lock"] {
            fs::write(top.join("work/.git").join(name), "").expect("a file");
        }
        let work = top.join("work");
        let found = |path: &str| HookIndex::find(&[(VARIABLE.into(), path.into())], &work);
        assert!(found(".git/index").is_none() && found(".git/missing").is_none());
        assert!(HookIndex::find(&[], &work).is_none());
        let index = found(".git/index.lock").expect("an index");
        let rows = [
            ("git diff --cached", "work", true),
            ("git diff --cached --name-only | head -3 && git status", "work/sub", true),
            ("git add a && git commit -m x", "work", true),
            ("git diff --cached", "work/other", false),
            ("git diff --cached", "", false),
            ("cd other && git diff --cached", "work", false),
            ("git -C other diff --cached", "work", false),
            ("git --git-dir=other/.git diff --cached", "work", false),
            ("make lint", "work", false),
            ("GIT_DIR=x git diff --cached", "work", false),
            ("git log $(cat x)", "work", false),
        ];
        for (line, folder, is_for) in rows {
            let path = index.for_line(line, &top.join(folder));
            assert_eq!(path.is_some(), is_for, "{line} in {folder}");
            assert!(path.is_none_or(|path| path == work.join(".git/index.lock")));
        }
    }
}
