//! Who we are to the service. A secret never leaves this module except as a header.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// A key or token. It is shown as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Whitespace around it is dropped: it comes from files and command output.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Replaces every occurrence of the secret in `text`.
    pub fn scrub(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "***") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How a request says who sends it.
#[derive(Clone, Debug)]
pub enum Credential {
    /// Not at all.
    None,
    /// `x-api-key`.
    ApiKey(Secret),
    /// `authorization: Bearer`.
    Bearer(Secret),
    /// By what a command prints, in both headers.
    Helper(HelperCommand),
}

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

    async fn run(&self) -> Result<Secret, String> {
        let child = Command::new("sh")
            .args(["-c", &self.command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot be started: {error}"))?;
        let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let Ok(output) = timeout(self.limit, child.wait_with_output()).await else {
            return Err(format!("did not end within {} s", self.limit.as_secs_f32()));
        };
        group.let_go();
        let output = output.map_err(|error| format!("cannot be read: {error}"))?;
        if !output.status.success() {
            return Err(format!("failed ({})", output.status));
        }
        let secret = Secret::new(&String::from_utf8_lossy(&output.stdout));
        if secret.0.is_empty() {
            return Err("printed nothing".to_owned());
        }
        if HeaderValue::from_str(&secret.0).is_err() {
            return Err("printed more than one line, or no plain text".to_owned());
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

/// The credential in use.
#[derive(Debug)]
pub(super) struct Keyring {
    credential: Credential,
    /// What the helper printed last. The lock is held while it runs, so that it runs once.
    printed: Mutex<Option<Printed>>,
}

#[derive(Debug)]
struct Printed {
    secret: Secret,
    at: Instant,
    /// The service rejected it.
    stale: bool,
}

impl Keyring {
    /// Refuses a key that no header can carry.
    pub(super) fn new(credential: Credential) -> Option<Self> {
        let fits = match &credential {
            Credential::None | Credential::Helper(_) => true,
            Credential::ApiKey(secret) | Credential::Bearer(secret) => {
                HeaderValue::from_str(&secret.0).is_ok()
            }
        };
        fits.then(|| Self { credential, printed: Mutex::new(None) })
    }

    /// Adds who we are to a request's headers, and returns what must not be shown.
    pub(super) async fn sign(&self, headers: &mut HeaderMap) -> Result<Option<Secret>, String> {
        let api_key = HeaderName::from_static("x-api-key");
        let secret = match &self.credential {
            Credential::None => return Ok(None),
            Credential::ApiKey(secret) => {
                headers.insert(api_key, secret_header(&secret.0)?);
                secret.clone()
            }
            Credential::Bearer(secret) => {
                headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {}", secret.0))?);
                secret.clone()
            }
            Credential::Helper(helper) => {
                let secret = self.printed_by(helper).await?;
                headers.insert(api_key, secret_header(&secret.0)?);
                headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {}", secret.0))?);
                secret
            }
        };
        Ok(Some(secret))
    }

    /// The service rejected the credential: what the helper printed is not used again.
    pub(super) async fn reject(&self) {
        if let Some(printed) = self.printed.lock().await.as_mut() {
            printed.stale = true;
        }
    }

    /// Fetches a credential anew. Returns whether it is another one.
    pub(super) async fn refresh(&self) -> bool {
        let Credential::Helper(helper) = &self.credential else { return false };
        let mut printed = self.printed.lock().await;
        let before = printed.take().map(|printed| printed.secret);
        let Ok(secret) = helper.run().await else { return false };
        let changed = before.as_ref() != Some(&secret);
        *printed = Some(Printed { secret, at: Instant::now(), stale: false });
        changed
    }

    async fn printed_by(&self, helper: &HelperCommand) -> Result<Secret, String> {
        let mut printed = self.printed.lock().await;
        if let Some(printed) = &*printed
            && !printed.stale
            && printed.at.elapsed() < helper.ttl
        {
            return Ok(printed.secret.clone());
        }
        let secret = helper.run().await?;
        *printed = Some(Printed { secret: secret.clone(), at: Instant::now(), stale: false });
        Ok(secret)
    }
}

fn secret_header(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text).map_err(|_| "fits no header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
