//! Runs git for outlast itself, with the user's environment and without prompts.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::environment::Variables;
use crate::process::{Job, JobOutput, OutputError, Supervisor, find_program};
use crate::tools::{Confinement, hook_environment};

/// Maximum length of git's output in an error message, in characters. The end is quoted.
const REPORT_MAX: usize = 600;

/// Maximum size of git's standard output, in bytes: a list of many worktrees.
const STDOUT_MAX: usize = 64 << 20;

/// A step of a checkout that runs git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitStep {
    Clone,
    /// The clone of a repository in the file system.
    CloneFolder,
    Checkout,
    FindRoot,
    FindBase,
    ListWorktrees,
    AddWorktree,
    FillWorktree,
    RemoveWorktree,
}

impl fmt::Display for GitStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clone | Self::CloneFolder => "clone",
            Self::Checkout | Self::FillWorktree => "checkout",
            Self::FindRoot | Self::FindBase => "rev-parse",
            Self::ListWorktrees => "worktree list",
            Self::AddWorktree => "worktree add",
            Self::RemoveWorktree => "worktree remove",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git was not found on PATH; install it")]
    NotFound,
    #[error("git {0}")]
    NoResult(OutputError),
    #[error("git {step} {place} failed: {output}")]
    Failed { step: GitStep, place: String, output: String },
    #[error("{path}: {cause}")]
    Folder { path: String, cause: io::Error },
    #[error("{path} is a link, which a worktree must not follow; replace it by a folder")]
    Link { path: String },
    #[error(
        "the repository {path} has no commit to begin at; make one, such as by \
             `git commit --allow-empty -m Begin`"
    )]
    NoCommit { path: String },
    #[error("the git directory {path} does not belong to the working tree {place}")]
    Foreign { path: String, place: String },
}

/// Returns the end of git's output, with the errors last.
fn report(stdout: &[u8], stderr: &[u8]) -> String {
    let end_of = |bytes: &[u8]| {
        // A character has four bytes at most.
        let end = &bytes[bytes.len().saturating_sub(4 * REPORT_MAX)..];
        String::from_utf8_lossy(end).trim().to_owned()
    };
    let both = format!("{}\n{}", end_of(stdout), end_of(stderr));
    let both = both.trim();
    let start = both.char_indices().rev().nth(REPORT_MAX - 1).map_or(0, |(start, _)| start);
    both[start..].to_owned()
}

/// Runs git for one repository. Dropping the future of a step ends git and its child processes.
pub(super) struct Git {
    program: PathBuf,
    /// The repository in error messages: "of URL" or "in FOLDER".
    place: String,
    supervisor: Supervisor,
    environment: Vec<(OsString, OsString)>,
}

impl Git {
    /// Finds git on `PATH`, but not inside `tree`.
    pub(super) fn find(place: &str, tree: &Path, variables: &Variables) -> Result<Self, GitError> {
        let path = variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let program = find_program(&["git"], &path, tree).ok_or(GitError::NotFound)?;
        let environment: Vec<_> =
            variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        // Git runs hooks and credential helpers, which never get the model's credentials.
        let mut environment = hook_environment(&environment, &[], "");
        environment.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
        let supervisor = Supervisor::default();
        Ok(Self { program, place: place.to_owned(), supervisor, environment })
    }

    /// Fetches no objects that a partial clone lacks: the repository names programs for that.
    #[must_use]
    pub(super) fn without_fetching(mut self) -> Self {
        self.environment.push(("GIT_NO_LAZY_FETCH".into(), "1".into()));
        self
    }

    /// Runs git, and returns what it printed to standard output.
    pub(super) async fn run(
        &self,
        step: GitStep,
        arguments: &[&OsStr],
    ) -> Result<Vec<u8>, GitError> {
        self.run_within(step, arguments, None).await
    }

    /// Like [`Self::run`], with the access of a command if a confinement is given.
    pub(super) async fn run_within(
        &self,
        step: GitStep,
        arguments: &[&OsStr],
        confinement: Option<&Confinement>,
    ) -> Result<Vec<u8>, GitError> {
        let environment = confinement.map_or(&self.environment, |it| &it.environment);
        let job = Job {
            landlock: confinement.and_then(|it| it.landlock.clone()),
            ..Job::new(&self.program, arguments, "/", environment.iter().cloned())
        };
        let output = self.supervisor.output(&job, STDOUT_MAX).await;
        let JobOutput { status, stdout, stderr } = output.map_err(GitError::NoResult)?;
        if status.success() {
            return Ok(stdout);
        }
        let output = report(&stdout, &stderr);
        Err(GitError::Failed { step, place: self.place.clone(), output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_git_is_quoted_after_its_other_output() {
        assert_eq!(report(b"", b"fatal: no\n"), "fatal: no");
        assert_eq!(report(b"one\n", b""), "one");
        let long = "é".repeat(100_000);
        let quoted = report(long.as_bytes(), b"fatal: no\n");
        assert_eq!(quoted.chars().count(), REPORT_MAX);
        assert!(quoted.ends_with("é\nfatal: no"), "{quoted}");
    }
}
