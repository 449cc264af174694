//! What hooks of `SessionStart` export for later commands, by way of `CLAUDE_ENV_FILE`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use tempfile::{NamedTempFile, TempPath};
use tokio_util::sync::CancellationToken;

use crate::process::{Job, Supervisor};

use super::answer::HookEnd;
use super::follow::run_hook;

/// The variable that names the file.
pub(super) const VARIABLE: &str = "CLAUDE_ENV_FILE";

/// More than this is not read, in bytes.
const BYTES_MAX: u64 = 64 << 10;

/// How long a shell may take to read it.
const SHELL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs what stands on its standard input, and prints what is exported then. What the last command
/// of it returns says nothing; what is no script fails all the same.
const SCRIPT: &str = "eval \"$(cat)\n:\" > /dev/null || exit 1; exec /usr/bin/env -0";

/// What every shell sets for itself.
const SHELL_VARIABLES: [&str; 5] = ["_", "OLDPWD", "PWD", "SHLVL", VARIABLE];

/// A file for the hooks of one event, which nobody else may read or write, and which is gone
/// before anything of the model's runs.
pub(super) struct ExportFile(TempPath);

impl ExportFile {
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self(NamedTempFile::with_prefix("outlast-env-")?.into_temp_path()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What was written into it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn read(&self) -> Result<String, String> {
        let broken = |error: io::Error| format!("it cannot be read: {error}");
        let facts = self.0.symlink_metadata().map_err(broken)?;
        if !facts.is_file() || facts.len() > BYTES_MAX {
            return Err(format!("it is no file of at most {BYTES_MAX} bytes any more"));
        }
        let mut text = String::new();
        let file = std::fs::File::open(&self.0).map_err(broken)?;
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(broken)?;
        Ok(text)
    }
}

/// The variables that differ once a shell with `environment` has run `text`.
///
/// # Errors
/// Why nothing is known of them.
pub(super) async fn evaluate_exports(
    text: &str,
    (shell, cwd): (&Path, &Path),
    environment: &[(OsString, OsString)],
    supervisor: Supervisor,
    cancel: &CancellationToken,
) -> Result<Vec<(String, String)>, String> {
    let job = Job {
        program: shell.to_path_buf(),
        arguments: ["-c", SCRIPT].map(OsString::from).to_vec(),
        cwd: cwd.to_path_buf(),
        environment: environment.to_vec(),
        input: true,
        landlock: None,
    };
    let input = text.as_bytes().to_vec();
    let done = run_hook(supervisor, job, input, SHELL_TIMEOUT, cancel.child_token()).await;
    if done.end != HookEnd::Exited(0) || done.stdout.is_empty() {
        let said = done.stderr.lines().next().unwrap_or("it says nothing");
        return Err(format!("the shell that ran it failed: {said}"));
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
