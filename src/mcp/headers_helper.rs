//! The `headersHelper` of a server: a command of the user that prints the headers of its requests
//! as JSON, such as a token that expires after an hour.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::json;
use crate::process::{Job, ProgramTerms, timeout_while_running};

use super::environment::ServerEnvironment;

/// The time limit of the command.
const LIMIT: Duration = Duration::from_secs(10);

/// The largest output of the command, in bytes.
const PRINTED_MAX: usize = 64 << 10;

/// The shortest word of a header that is redacted, in bytes: shorter ones, such as `Bearer`, are
/// not secrets.
const SECRET_BYTES_MIN: usize = 12;

/// The headers of one run of the command.
#[derive(Clone, Debug, Default)]
pub(super) struct HelperHeaders {
    /// Counts the runs of the command.
    pub(super) version: u64,
    pub(super) headers: HeaderMap,
}

/// The command, and the headers that it printed last.
pub(super) struct HeadersHelper {
    job: Job,
    environment: Arc<ServerEnvironment>,
    /// Held while the command runs: requests that need new headers wait for the same run.
    last: Mutex<Option<HelperHeaders>>,
}

/// The reason that there are no headers.
#[derive(Debug, thiserror::Error)]
#[error("its \"headersHelper\" {0}")]
pub(super) struct HelperError(String);

impl HeadersHelper {
    pub(super) fn new(job: Job, environment: &Arc<ServerEnvironment>) -> Self {
        Self { job, environment: Arc::clone(environment), last: Mutex::default() }
    }

    /// The job of the command of a server.
    pub(super) fn job(
        command: &str,
        (server, url): (&str, &str),
        environment: &ServerEnvironment,
    ) -> Job {
        let facts = [("CLAUDE_CODE_MCP_SERVER_NAME", server), ("CLAUDE_CODE_MCP_SERVER_URL", url)];
        let facts = facts.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let variables = environment.program_environment().chain(facts);
        Job {
            terms: ProgramTerms { name: Some(server.to_owned()), ..ProgramTerms::default() },
            ..Job::shell(command, &environment.cwd, variables)
        }
    }

    /// Returns the headers that were printed last. Runs the command the first time.
    pub(super) async fn headers(&self) -> Result<HelperHeaders, HelperError> {
        let mut last = self.last.lock().await;
        match &*last {
            Some(known) => Ok(known.clone()),
            None => self.run_again(&mut last).await,
        }
    }

    /// Runs the command again, unless that was done since the version `refused` was printed.
    pub(super) async fn renew(&self, refused: u64) -> Result<HelperHeaders, HelperError> {
        let mut last = self.last.lock().await;
        match &*last {
            Some(known) if known.version != refused => Ok(known.clone()),
            Some(_) | None => self.run_again(&mut last).await,
        }
    }

    async fn run_again(
        &self,
        last: &mut Option<HelperHeaders>,
    ) -> Result<HelperHeaders, HelperError> {
        let late = || HelperError(format!("did not end within {} s", LIMIT.as_secs()));
        let printed = timeout_while_running(LIMIT, self.run()).await.ok_or_else(late)??;
        let invalid = || HelperError("did not print a JSON object of headers".to_owned());
        let Ok(Value::Object(fields)) = json::read::<Value>(&printed) else {
            return Err(invalid());
        };
        let pairs = fields.iter().map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        let pairs: Option<Vec<(&str, &str)>> = pairs.collect();
        let headers = pairs.and_then(header_map).ok_or_else(invalid)?;
        for word in fields.values().filter_map(Value::as_str).flat_map(str::split_whitespace) {
            if word.len() >= SECRET_BYTES_MIN {
                self.environment.login.secrets.add(word);
            }
        }
        let version = last.as_ref().map_or(0, |known| known.version) + 1;
        Ok(last.insert(HelperHeaders { version, headers }).clone())
    }

    /// Runs the command, and returns its standard output. Dropping the future ends it.
    async fn run(&self) -> Result<Vec<u8>, HelperError> {
        let ended = self.environment.supervisor.output(&self.job, PRINTED_MAX).await;
        let ended = ended.map_err(|error| HelperError(error.to_string()))?;
        // Standard error may contain the secret, so it is not shown.
        let failed = || HelperError(format!("failed ({})", ended.status));
        if ended.status.success() { Ok(ended.stdout) } else { Err(failed()) }
    }
}

/// Builds headers from names and values. `None`: one of them is invalid.
pub(super) fn header_map<'a>(
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        // Values from files and secret stores end with a line feed.
        let value = HeaderValue::try_from(value.trim()).ok()?;
        headers.insert(HeaderName::try_from(name).ok()?, value);
    }
    // Many configurations set them, and the protocol has its own values.
    headers.remove(CONTENT_TYPE);
    headers.remove(ACCEPT);
    Some(headers)
}
