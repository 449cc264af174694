//! A command that prints a key.

use std::env;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use crate::process::{Job, Supervisor, absolute_path};

use super::secret::Secret;

/// The longest thing that is taken for a key, in bytes.
const PRINTED_MAX: u64 = 64 * 1024;

/// How long output is still read when the command itself is over but others hold its pipe.
const DRAIN: Duration = Duration::from_millis(200);

const INVALID_OUTPUT: &str = "printed more than one line, or no plain text";

/// A command that prints a key: `apiKeyHelper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperCommand {
    /// Run by `sh -c`, with nothing on its standard input.
    pub command: String,
    /// How long its output is used before it is run again.
    pub ttl: Duration,
    /// How long it may take.
    pub limit: Duration,
}

impl HelperCommand {
    /// With a life of five minutes, and half a minute to run.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            ttl: Duration::from_mins(5),
            limit: Duration::from_secs(30),
        }
    }

    pub(super) async fn run(&self, supervisor: &Supervisor) -> Result<Secret, String> {
        let ended = match timeout(self.limit, self.capture_output(supervisor)).await {
            Ok(ended) => ended?,
            Err(_) => return Err(format!("did not end within {} s", self.limit.as_secs_f32())),
        };
        let Some((status, printed)) = ended else { return Err(INVALID_OUTPUT.to_owned()) };
        match status {
            Some(status) if status.success() => {}
            Some(status) => return Err(format!("failed ({status})")),
            None => return Err("was killed together with what looked after it".to_owned()),
        }
        let secret = Secret::new(&String::from_utf8_lossy(&printed));
        if secret.is_empty() {
            return Err("printed nothing".to_owned());
        }
        if !secret.fits_header() {
            return Err(INVALID_OUTPUT.to_owned());
        }
        Ok(secret)
    }

    /// How the command ended and what it printed, unless that is too much. Dropped before the
    /// end, it ends the command: a run that ends meanwhile leaves nothing behind.
    async fn capture_output(
        &self,
        supervisor: &Supervisor,
    ) -> Result<Option<(Option<ExitStatus>, Vec<u8>)>, String> {
        let unread = |error: io::Error| format!("cannot be read: {error}");
        let started = supervisor.start(&self.job()).await;
        let mut running = started.map_err(|error| format!("cannot be started: {error}"))?;
        let stdout = running.stdout.take().expect("every job has one");
        let stderr = running.stderr.take().expect("every job has one");
        let stdout = Receiver::from_owned_fd(stdout.into()).map_err(unread)?;
        let mut stderr = Receiver::from_owned_fd(stderr.into()).map_err(unread)?;
        // Nobody wants it, but whoever writes it must not be stopped by that.
        tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
        let mut printed = Vec::new();
        let mut exit = std::pin::pin!(running.exit());
        let status = {
            let mut stdout = stdout.take(PRINTED_MAX + 1);
            let mut reading = std::pin::pin!(stdout.read_to_end(&mut printed));
            tokio::select! {
                read = &mut reading => match read.map_err(unread)? as u64 {
                    0..=PRINTED_MAX => exit.await,
                    // Whoever has more to say would wait for us for ever.
                    _ => return Ok(None),
                },
                status = &mut exit => {
                    // Something that it started may hold its output, and is not waited for.
                    let _ = timeout(DRAIN, reading).await;
                    status
                }
            }
        };
        running.end_leftovers().await;
        Ok((printed.len() as u64 <= PRINTED_MAX).then_some((status, printed)))
    }

    fn job(&self) -> Job {
        // Nothing of the folder that the run works in stands in for a program.
        let path = absolute_path(env::var_os("PATH").as_deref());
        Job {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), self.command.clone().into()],
            cwd: env::current_dir().unwrap_or_else(|_| "/".into()),
            environment: env::vars_os().chain([("PATH".into(), path)]).collect(),
            input: false,
            landlock: None,
        }
    }
}
