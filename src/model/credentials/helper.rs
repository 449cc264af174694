//! Runs the `apiKeyHelper` command, which prints an API key.

use std::env;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use crate::json;
use crate::process::{Job, ProgramTerms, Supervisor, absolute_path};
use crate::secrets::Redactor;

use super::secret::Secret;

/// Maximum size of the printed key, in bytes.
const PRINTED_MAX: u64 = 64 * 1024;

/// Time for which output is still read after the command has ended while other processes hold its
/// pipe.
const DRAIN: Duration = Duration::from_millis(200);

/// The part of standard error that is kept, in bytes.
const STDERR_MAX: usize = 4096;

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
    #[error("was killed together with its supervisor")]
    Killed,
    #[error("printed nothing")]
    NoOutput,
    #[error("printed more than one line, or no plain text")]
    InvalidOutput,
    #[error("cannot be started: {0}")]
    NotStarted(String),
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
}

fn quoted(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!("; it said: {message:?}") }
}

/// The output of a command that ended.
struct HelperOutput {
    /// `None`: the command was killed together with its supervisor.
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    /// The end of standard error.
    stderr: Vec<u8>,
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
        let ended = match timeout(self.limit, self.capture_output(supervisor)).await {
            Ok(ended) => ended?,
            Err(_) => return Err(HelperError::TimedOut(self.limit)),
        };
        let Some(ended) = ended else { return Err(HelperError::InvalidOutput) };
        match ended.status {
            Some(status) if status.success() => Ok(ended.stdout),
            Some(status) => Err(HelperError::Failed { status, message: last_line(&ended.stderr) }),
            None => Err(HelperError::Killed),
        }
    }

    /// Returns the exit status and the output, or `None` if the output is too large. Dropping the
    /// future kills the command, so that no process outlives the run.
    async fn capture_output(
        &self,
        supervisor: &Supervisor,
    ) -> Result<Option<HelperOutput>, HelperError> {
        let unread = HelperError::Unreadable;
        let started = supervisor.start(&self.job()).await;
        let mut running = started.map_err(|error| HelperError::NotStarted(error.to_string()))?;
        let stdout = running.stdout.take().expect("every job has one");
        let stderr = running.stderr.take().expect("every job has one");
        let stdout = Receiver::from_owned_fd(stdout.into()).map_err(unread)?;
        let stderr = Receiver::from_owned_fd(stderr.into()).map_err(unread)?;
        // It is read all the time, so that the command does not block on a full pipe.
        let stderr = tokio::spawn(last_bytes(stderr));
        let mut printed = Vec::new();
        let mut exit = std::pin::pin!(running.exit());
        let status = {
            let mut stdout = stdout.take(PRINTED_MAX + 1);
            let mut reading = std::pin::pin!(stdout.read_to_end(&mut printed));
            tokio::select! {
                read = &mut reading => match read.map_err(unread)? as u64 {
                    0..=PRINTED_MAX => exit.await,
                    // The command may block on its full pipe, so its exit is not awaited.
                    _ => return Ok(None),
                },
                status = &mut exit => {
                    // A background process of the command may hold the pipe; it is not awaited.
                    let _ = timeout(DRAIN, reading).await;
                    status
                }
            }
        };
        running.end_leftovers().await;
        if printed.len() as u64 > PRINTED_MAX {
            return Ok(None);
        }
        let stderr = timeout(DRAIN, stderr).await.ok().and_then(Result::ok).unwrap_or_default();
        Ok(Some(HelperOutput { status, stdout: printed, stderr }))
    }

    /// Returns the job that runs the command.
    pub fn job(&self) -> Job {
        // Programs in the working directory must not replace those in PATH.
        let path = absolute_path(env::var_os("PATH").as_deref());
        Job {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), self.command.clone().into()],
            cwd: env::current_dir().unwrap_or_else(|_| "/".into()),
            environment: env::vars_os()
                .chain([("PATH".into(), path)])
                .chain(self.variables.iter().map(|(name, value)| (name.into(), value.into())))
                .collect(),
            input: false,
            memory: None,
            landlock: None,
            terms: ProgramTerms::default(),
        }
    }
}

/// Reads a pipe to its end, and returns its last bytes.
async fn last_bytes(mut pipe: Receiver) -> Vec<u8> {
    let (mut last, mut chunk) = (Vec::new(), [0; STDERR_MAX]);
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        last.extend_from_slice(&chunk[..count]);
        let excess = last.len().saturating_sub(STDERR_MAX);
        last.drain(..excess);
    }
    last
}

/// Returns the last line of an output, without keys of known kinds. It is cut between words, so that
/// a secret that is masked later is cut as a whole.
fn last_line(output: &[u8]) -> String {
    let text = json::decode(output);
    // Its first word was cut, too, if there was more before it.
    let is_cut = output.len() == STDERR_MAX;
    let rest = text.split_once(char::is_whitespace).filter(|_| is_cut);
    let text = rest.map_or(&*text, |(_, rest)| rest);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = Redactor::default().redact(line).replace(char::is_control, " ");
    let Some((limit, _)) = line.char_indices().nth(MESSAGE_MAX) else { return line };
    let end = line[..limit].rfind(char::is_whitespace).unwrap_or_default();
    format!("{}...", &line[..end])
}
