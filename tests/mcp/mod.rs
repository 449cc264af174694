//! Servers of the Model Context Protocol: real programs and real HTTP, working and faulty.

mod calls;
mod configs;
mod elicitation;
mod faults;
pub(crate) mod host;
mod http;
mod oauth;
mod offers;
mod runs;
mod server_messages;
mod shutdown;
mod starts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast::mcp::{
    CallReply, ContentPart, LoginEnvironment, McpTimers, ServerAddress, ServerConfig,
    ServerEnvironment, ServerStatus, Servers,
};
use outlast::model::{ConnectionTerms, RequestTimers, http_client};
use outlast::secrets::{KnownSecrets, Redactor};
use outlast::transcript::Block;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::python::{python, search_path};
use crate::support::scratch::scratch_folder;
use crate::support::{supervisor, with_time_limit};

/// A secret that must not appear in any output.
const SECRET: &str = "correct-horse-battery";

/// The script of the server that misbehaves.
pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py")
}

/// Servers that are being tried, and a folder for what they leave.
struct McpFixture {
    servers: Servers,
    folder: TempDir,
}

/// Start timeout that a busy machine does not exceed, for tests that are not about it.
pub(crate) fn long_timers() -> McpTimers {
    let long = Duration::from_mins(4);
    McpTimers { wait: long, start: long, ..McpTimers::default() }
}

fn program(name: &str, arguments: &[&str], log: &Path) -> ServerConfig {
    let script = script().display().to_string();
    let arguments = arguments.iter().map(ToString::to_string);
    ServerConfig {
        name: name.to_owned(),
        place: ServerAddress::Program {
            command: python().to_owned(),
            arguments: ["-S".to_owned(), script].into_iter().chain(arguments).collect(),
            variables: [("SERVER_LOG".to_owned(), log.display().to_string())].into(),
            cwd: None,
        },
        timeout: None,
        disabled: false,
        trusted: true,
        policies: Vec::new(),
    }
}

fn server_environment(folder: &Path) -> ServerEnvironment {
    let secrets = KnownSecrets::new([SECRET]);
    ServerEnvironment {
        cwd: folder.to_path_buf(),
        folders: Vec::new(),
        environment: vec![("PATH".into(), search_path().into())],
        supervisor: supervisor(),
        login: LoginEnvironment {
            config_dir: folder.to_path_buf(),
            http: Arc::new(|url| {
                let terms = ConnectionTerms::default();
                http_client(url, RequestTimers::default(), &terms).map_err(Into::into)
            }),
            redactor: Redactor::new(secrets.clone()),
            secrets,
        },
        host: None,
        elicitation: None,
    }
}

/// The servers of a run: one program, `test`, whose supervisor is no other's.
pub(crate) fn program_servers() -> (Servers, TempDir) {
    let McpFixture { servers, folder } = McpFixture::of(&["well"]);
    (servers, folder)
}

impl McpFixture {
    /// One server named `test`, of that mode.
    fn of(mode: &[&str]) -> Self {
        Self::with(mode, long_timers(), |_, _| {})
    }

    fn with(
        mode: &[&str],
        timers: McpTimers,
        change: impl FnOnce(&mut ServerConfig, &Path),
    ) -> Self {
        let folder = scratch_folder();
        let mut config = program("test", mode, &folder.path().join("log"));
        change(&mut config, folder.path());
        let servers = Servers::new(vec![config], server_environment(folder.path()), timers);
        servers.start();
        Self { servers, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until its log says so.
    async fn wait_for_log(&self, words: &str) {
        with_time_limit(words, async {
            while !self.log().contains(words) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    async fn ready(self) -> Self {
        with_time_limit("the server", self.servers.wait_until_connected(&[]))
            .await
            .expect("it starts");
        self
    }

    async fn call(&self, tool: &str, text: &str) -> CallReply {
        let (name, input) = (format!("mcp__test__{tool}"), json!({ "text": text }));
        let cancel = CancellationToken::new();
        with_time_limit("an answer", self.servers.call(&name, &input, &cancel)).await
    }

    /// Waits until the server stands like this.
    async fn wait_for_status(&self, status: ServerStatus) {
        with_time_limit("its standing", async {
            while self.servers.reports()[0].status != status {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

fn words(reply: &CallReply) -> String {
    let text = |piece: &ContentPart| match piece {
        ContentPart::Block(Block::Text { text }) => text.clone(),
        ContentPart::Block(_) | ContentPart::Data { .. } => format!("{piece:?}"),
    };
    reply.parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn unavailable_reason(bench: &McpFixture) -> String {
    bench.servers.reports()[0].why.clone().unwrap_or_default()
}

fn entry(value: &Value) -> Result<(ServerConfig, Vec<String>), String> {
    let lookup = |name: &str| {
        let set = [("TOKEN", "abc"), ("HOME", "/h")];
        set.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    ServerConfig::parse("srv", value, &lookup).map_err(|error| error.to_string())
}
