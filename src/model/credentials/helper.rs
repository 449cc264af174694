//! A command that prints a key.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::secret::Secret;

/// The longest thing that is taken for a key, in bytes.
const PRINTED_MAX: u64 = 64 * 1024;
const NO_KEY: &str = "printed more than one line, or no plain text";

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

    pub(super) async fn run(&self) -> Result<Secret, String> {
        let mut child = Command::new("sh")
            .args(["-c", &self.command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot be started: {error}"))?;
        let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let stdout = child.stdout.take().expect("it was asked for");
        let mut printed = Vec::new();
        let running = async {
            stdout.take(PRINTED_MAX + 1).read_to_end(&mut printed).await?;
            // Whoever has more to say would wait for us for ever.
            let all = printed.len() as u64 <= PRINTED_MAX;
            if all { child.wait().await.map(Some) } else { Ok(None) }
        };
        let Ok(ended) = timeout(self.limit, running).await else {
            return Err(format!("did not end within {} s", self.limit.as_secs_f32()));
        };
        let Some(status) = ended.map_err(|error: io::Error| format!("cannot be read: {error}"))?
        else {
            return Err(NO_KEY.to_owned());
        };
        group.let_go();
        if !status.success() {
            return Err(format!("failed ({status})"));
        }
        let secret = Secret::new(&String::from_utf8_lossy(&printed));
        if secret.is_empty() {
            return Err("printed nothing".to_owned());
        }
        if !secret.fits_header() {
            return Err(NO_KEY.to_owned());
        }
        Ok(secret)
    }
}

/// A helper's process group. Dropped before the helper's end, it takes all of them with it: a run
/// that ends meanwhile leaves nothing behind.
struct Group(Option<Pid>);

impl Group {
    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may just have ended: then there is nobody left to stop.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}
