//! The environment variables that `SessionStart` hooks export for later commands through
//! `CLAUDE_ENV_FILE`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use tempfile::TempPath;
use tokio_util::sync::CancellationToken;

use crate::process::{Job, ProgramTerms, Supervisor, create_private_folder};

use super::hook_process::run_hook;
use super::result::HookEnd;

/// The variable that names the file.
pub(super) const VARIABLE: &str = "CLAUDE_ENV_FILE";

/// The prefix of the file's name.
const PREFIX: &str = "outlast-env-";

/// The most bytes that are read from the file.
const BYTES_MAX: u64 = 64 << 10;

/// The timeout of the shell that evaluates it.
const SHELL_TIMEOUT: Duration = Duration::from_secs(10);

/// Evaluates standard input and prints the resulting environment. The status of its last command is
/// ignored; a syntax error fails.
const SCRIPT: &str = "eval \"$(cat)\n:\" > /dev/null || exit 1; exec /usr/bin/env -0";

/// Variables that every shell sets for itself.
const SHELL_VARIABLES: [&str; 5] = ["_", "OLDPWD", "PWD", "SHLVL", VARIABLE];

/// The reason that exported variables cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    #[error("it cannot be made: {0}")]
    NotMade(String),
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it was replaced, or is larger than {BYTES_MAX} bytes")]
    ReplacedOrTooLarge,
    #[error("the shell that ran it failed: {0}")]
    ShellFailed(String),
}

/// A file for the hooks of one event. Only this user can read or write it, and it is deleted before
/// any command of the model runs.
pub(super) struct ExportFile(TempPath);

impl ExportFile {
    /// Creates the file in a folder that is closed to commands, or among temporary files if that is
    /// not possible.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        // If this fails, so does the next step.
        let _ = create_private_folder(folder);
        let file = builder.tempfile_in(folder).or_else(|_| builder.tempfile())?;
        Ok(Self(file.into_temp_path()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the text that the hooks wrote.
    ///
    /// # Errors
    /// The content cannot be used.
    pub(super) fn read(&self) -> Result<String, ExportError> {
        let broken = |error: io::Error| ExportError::Unreadable(error.to_string());
        let metadata = self.0.symlink_metadata().map_err(broken)?;
        if !metadata.is_file() || metadata.len() > BYTES_MAX {
            return Err(ExportError::ReplacedOrTooLarge);
        }
        let mut text = String::new();
        let file = std::fs::File::open(&self.0).map_err(broken)?;
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(broken)?;
        Ok(text)
    }
}

/// Evaluates `text` in a shell with `environment`, and returns the variables that changed.
///
/// # Errors
/// The shell failed, so the variables are unknown.
pub(super) async fn evaluate_exports(
    text: &str,
    (shell, cwd): (&Path, &Path),
    environment: &[(OsString, OsString)],
    supervisor: Supervisor,
    cancel: &CancellationToken,
) -> Result<Vec<(String, String)>, ExportError> {
    let job = Job {
        input: true,
        // The file may have been written by a program that a command has changed.
        terms: ProgramTerms { is_confined: true, ..ProgramTerms::default() },
        ..Job::new(shell, ["-c", SCRIPT], cwd, environment.iter().cloned())
    };
    let input = text.as_bytes().to_vec();
    let done = run_hook(supervisor, job, input, SHELL_TIMEOUT, cancel.child_token()).await;
    if done.end != HookEnd::Exited(0) || done.stdout.is_empty() {
        let stderr_line = done.stderr.lines().next().unwrap_or("no message on stderr");
        return Err(ExportError::ShellFailed(stderr_line.to_owned()));
    }
    let known = |name: &str, value: &str| {
        let last = environment.iter().rev().find(|(known, _)| known == name);
        last.is_some_and(|(_, known)| known == value)
    };
    let variables = done.stdout.split('\0').filter_map(|line| line.split_once('='));
    let changed = variables.filter(|(name, value)| {
        let is_text = !value.contains(char::REPLACEMENT_CHARACTER);
        is_text && !SHELL_VARIABLES.contains(name) && !known(name, value)
    });
    Ok(changed.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}
