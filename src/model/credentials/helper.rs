//! Runs the `apiKeyHelper` command, which prints an API key.

use std::env;
use std::process::ExitStatus;
use std::time::Duration;

use crate::json;
use crate::process::{
    Job, JobOutput, OutputError, Supervisor, absolute_path, timeout_while_running,
};
use crate::secrets::Redactor;

use super::secret::Secret;

/// Maximum size of the printed key, in bytes.
const PRINTED_MAX: usize = 64 * 1024;

/// Maximum length of a quoted line of standard error, in characters.
const MESSAGE_MAX: usize = 200;

/// The reason why the command printed no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelperError {
    #[error("did not end within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    #[error("failed ({status}){}", quoted(message))]
    Failed {
        status: ExitStatus,
        /// The last line that it printed to standard error.
        message: String,
    },
    #[error("printed nothing")]
    NoOutput,
    #[error("printed more than one line, or no plain text")]
    InvalidOutput,
    #[error(transparent)]
    NoResult(#[from] OutputError),
}

fn quoted(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!("; it said: {message:?}") }
}

/// The `apiKeyHelper` command, which prints an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperCommand {
    /// Run by `sh -c`, with empty standard input.
    pub command: String,
    /// Time for which a printed key is reused before the command runs again.
    pub ttl: Duration,
    /// Timeout of the command.
    pub limit: Duration,
    /// Environment variables in addition to those of the process.
    pub variables: Vec<(&'static str, String)>,
}

impl HelperCommand {
    /// Creates the command with a key lifetime of five minutes and a timeout of 30 seconds.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            ttl: Duration::from_mins(5),
            limit: Duration::from_secs(30),
            variables: Vec::new(),
        }
    }

    pub(super) async fn run(&self, supervisor: &Supervisor) -> Result<Secret, HelperError> {
        let printed = self.output(supervisor).await?;
        let secret = Secret::new(&json::decode(&printed));
        if secret.is_empty() {
            return Err(HelperError::NoOutput);
        }
        if !secret.fits_header() {
            return Err(HelperError::InvalidOutput);
        }
        Ok(secret)
    }

    /// Runs the command and returns its standard output.
    pub(super) async fn output(&self, supervisor: &Supervisor) -> Result<Vec<u8>, HelperError> {
        let job = self.job();
        let ended = timeout_while_running(self.limit, supervisor.output(&job, PRINTED_MAX)).await;
        let ended = ended.ok_or(HelperError::TimedOut(self.limit))??;
        if ended.status.success() {
            return Ok(ended.stdout);
        }
        Err(HelperError::Failed { status: ended.status, message: last_line(&ended.stderr) })
    }

    /// Returns the job that runs the command.
    pub fn job(&self) -> Job {
        // Programs in the working directory must not replace those in PATH.
        let path = absolute_path(env::var_os("PATH").as_deref());
        let own = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = env::vars_os().chain([("PATH".into(), path)]).chain(own);
        let cwd = env::current_dir().unwrap_or_else(|_| "/".into());
        Job::shell(&self.command, cwd, environment)
    }
}

/// Returns the last line of an output, without keys of known kinds. It is cut between words, so
/// that a secret that is masked later is cut as a whole.
fn last_line(output: &[u8]) -> String {
    let text = json::decode(output);
    // A full buffer may begin within a word, which is dropped.
    let is_cut = output.len() == JobOutput::STDERR_MAX;
    let rest = text.split_once(char::is_whitespace).filter(|_| is_cut);
    let text = rest.map_or(&*text, |(_, rest)| rest);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = Redactor::default().redact(line).replace(char::is_control, " ");
    let Some((limit, _)) = line.char_indices().nth(MESSAGE_MAX) else { return line };
    let end = line[..limit].rfind(char::is_whitespace).unwrap_or_default();
    format!("{}...", &line[..end])
}
