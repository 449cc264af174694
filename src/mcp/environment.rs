//! The environment and the time limits that servers are started with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::process::Supervisor;
use crate::secrets::{KnownSecrets, Redactor};
use crate::types::HostChannel;

/// The reason that no HTTP client can be made. Its type belongs to another module.
pub type HttpClientFailure = Box<dyn std::error::Error + Send + Sync>;

/// Creates the HTTP client for an address, or returns the reason that it cannot.
pub type HttpClientFactory =
    dyn Fn(&str) -> Result<reqwest::Client, HttpClientFailure> + Send + Sync;

/// The environment of requests to servers, logins included.
pub struct LoginEnvironment {
    /// The folder of settings and sessions, where logins are kept.
    pub config_dir: PathBuf,
    /// Creates the HTTP client for an address.
    pub http: Arc<HttpClientFactory>,
    /// Receives tokens and other secrets that become available only during the run, which are
    /// redacted in all output.
    pub secrets: KnownSecrets,
    /// Masks secrets in the output of servers before the output is cut.
    pub redactor: Redactor,
}

/// The environment that servers are started in.
pub struct ServerEnvironment {
    /// The working folder of programs.
    pub cwd: PathBuf,
    /// Further folders of the run, sent as roots.
    pub folders: Vec<PathBuf>,
    /// The environment of programs. A server's own variables are added.
    pub environment: Vec<(OsString, OsString)>,
    pub supervisor: Supervisor,
    pub login: LoginEnvironment,
    /// The host that drives the run, if there is one: it may run servers.
    pub host: Option<Arc<dyn HostChannel>>,
    /// The host, if servers may ask it questions to the user.
    pub elicitation: Option<Arc<dyn HostChannel>>,
}

impl ServerEnvironment {
    /// The environment of a program of a server, without the server's own variables.
    pub(super) fn program_environment(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let project = ("CLAUDE_PROJECT_DIR".into(), self.cwd.clone().into());
        self.environment.iter().cloned().chain([project])
    }
}

/// The time limits of servers and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpTimers {
    /// The time for which the first request of a run waits for starting servers in total. Slower
    /// servers join later.
    pub begin: Duration,
    /// The time for which a run waits for required servers; also the connect timeout of an HTTP
    /// server, which can be retried at no cost.
    pub wait: Duration,
    /// The start of a program, and then its tool list. Long, since a package may be downloading;
    /// the run continues meanwhile.
    pub start: Duration,
    /// A call without progress, unless the server has its own timeout; also the host's answer to a
    /// question of the server.
    pub call: Duration,
    /// A call with any amount of progress.
    pub call_max: Duration,
    /// Each step of a server's shutdown: by itself, and after SIGTERM.
    pub end: Duration,
}

impl Default for McpTimers {
    fn default() -> Self {
        Self {
            begin: Duration::from_secs(5),
            wait: Duration::from_secs(30),
            start: Duration::from_mins(5),
            call: Duration::from_mins(10),
            call_max: Duration::from_hours(2),
            end: Duration::from_millis(500),
        }
    }
}
