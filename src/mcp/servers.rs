//! All servers of a run.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonschema::Validator;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::process::Supervisor;
use crate::secrets::Redactor;
use crate::transcript::ToolDefinition;

use super::config::ServerConfig;
use super::content::CallReply;
use super::member::ServerTask;
use super::offer::{RemoteTool, tool_name_prefix};
use super::state::{ServerReport, ServerStatus, McpStats};

/// Makes the client for an address, or says why it cannot.
pub type HttpClientFactory = dyn Fn(&str) -> Result<reqwest::Client, String> + Send + Sync;

/// What servers are started with.
pub struct ServerEnvironment {
    /// Where programs start.
    pub cwd: PathBuf,
    /// Where else the run works: servers that ask are told of it.
    pub folders: Vec<PathBuf>,
    /// What programs see. A server's own variables come on top.
    pub environment: Vec<(OsString, OsString)>,
    pub supervisor: Supervisor,
    /// For what servers say: it is cut, and must be masked before.
    pub mask: Redactor,
    /// Makes the client for an address.
    pub http: Box<HttpClientFactory>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpTimers {
    /// How long a run waits for servers that start, in all; also the start of one over HTTP, which
    /// loses nothing by being tried anew.
    pub wait: Duration,
    /// The start of a program, its list of tools included: a half-done one, such as a package that
    /// is being downloaded, is worth waiting for beside the run.
    pub start: Duration,
    /// A call without a sign of progress, where the server has no time of its own.
    pub call: Duration,
    /// A call with any amount of progress.
    pub call_max: Duration,
    /// Each step of a server's end: by itself, when told to.
    pub end: Duration,
}

impl Default for McpTimers {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(30),
            start: Duration::from_mins(5),
            call: Duration::from_mins(10),
            call_max: Duration::from_hours(2),
            end: Duration::from_millis(500),
        }
    }
}

/// What leave a call takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallPermission {
    /// None at all.
    NotNeeded,
    /// A rule that speaks of this name.
    Rule {
        name: String,
        /// Somebody whom the user trusts says that it changes nothing.
        reads_only: bool,
    },
}

/// How much of a server's instructions is passed on, in characters.
const LONGEST_INSTRUCTIONS: usize = 2_000;

/// What stands for every server where servers are named.
const ALL: &str = "all";

/// How many of a server's tools are named to a model that named another.
const MOST_NAMED: usize = 50;

/// How much of all of them.
const ALL_INSTRUCTIONS: usize = 8_000;

/// The servers of a run. Dropped, they are left to the supervisor.
#[derive(Default)]
pub struct Servers {
    members: Vec<Arc<ServerTask>>,
    required: Vec<String>,
    around: Option<Arc<ServerEnvironment>>,
    timers: McpTimers,
    stop: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
    began: Mutex<Option<Instant>>,
    calls: AtomicU32,
    failed: AtomicU32,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.reports()).finish()
    }
}

impl Servers {
    /// Starts nothing yet. Of two servers whose tools would have the same names the later one is
    /// disabled.
    pub fn new(configs: Vec<ServerConfig>, around: ServerEnvironment, timers: McpTimers) -> Self {
        let mut members = Vec::<Arc<ServerTask>>::new();
        for mut config in configs {
            let own = tool_name_prefix(&config.name);
            let is_twin = members.iter().any(|member| tool_name_prefix(&member.config.name) == own);
            config.disabled |= is_twin;
            let member = ServerTask::new(config);
            if is_twin {
                member.warn("it is disabled: the names of its tools would be another server's");
            }
            members.push(Arc::new(member));
        }
        Self { members, around: Some(Arc::new(around)), timers, ..Self::default() }
    }

    /// Notes the names of those without which nothing is to be done; `all` for every one.
    #[must_use]
    pub fn with_required(self, required: Vec<String>) -> Self {
        Self { required, ..self }
    }

    /// Which are to be waited for with [`Self::require`], if any are.
    pub fn required(&self) -> Option<&[String]> {
        match self.required.as_slice() {
            [] => None,
            names if names.iter().any(|name| name == ALL) => Some(&[]),
            names => Some(names),
        }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Starts them all, side by side. Does nothing the second time.
    pub fn start(&self) {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(around) = self.around.as_ref().filter(|_| began.is_none()) else { return };
        *began = Some(Instant::now());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        for member in self.members.iter().filter(|member| !member.config.disabled) {
            let keeping =
                Arc::clone(member).run(Arc::clone(around), self.timers, self.stop.clone());
            tasks.spawn(keeping);
        }
    }

    /// Waits until each has been tried once, but no longer than `limit` since they were started.
    /// Cancel-safe.
    pub async fn wait_for_first_attempts(&self, limit: Duration) {
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = began.map(|began| began + limit) else { return };
        for member in &self.members {
            let mut watch = member.watch();
            // A closed channel is one more reason not to wait.
            let _ = timeout_at(end, watch.wait_for(|state| state.attempted)).await;
        }
    }

    /// How long a run waits for servers that start, in all.
    pub fn start_wait(&self) -> Duration {
        self.timers.wait
    }

    /// Waits until these are connected, or all of them if there is no name, but no longer than a run
    /// waits for servers.
    ///
    /// # Errors
    /// Which is not, and why.
    pub async fn wait_until_connected(&self, names: &[String]) -> Result<(), String> {
        let unknown =
            |name: &&String| !self.members.iter().any(|member| member.config.name == **name);
        if let Some(name) = names.iter().find(unknown) {
            return Err(format!("the MCP server {name:?} is required, and configured nowhere"));
        }
        let end = Instant::now() + self.timers.wait;
        for member in self.selected(names) {
            let mut watch = member.watch();
            let over = watch.wait_for(|state| state.status != ServerStatus::Pending);
            let _ = timeout_at(end, over).await;
            let standing = member.report();
            if standing.status != ServerStatus::Connected {
                let why = standing.why.map_or_else(String::new, |why| format!(": {why}"));
                return Err(format!(
                    "the MCP server {:?} is required and {}{why}",
                    standing.name,
                    match standing.status {
                        ServerStatus::Pending | ServerStatus::Connected => "not there in time",
                        ServerStatus::NeedsAuth => "wants a login",
                        ServerStatus::Failed => "cannot be had",
                        ServerStatus::Disabled => "disabled",
                    }
                ));
            }
        }
        Ok(())
    }

    fn selected<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a Arc<ServerTask>> {
        self.members.iter().filter(move |member| {
            if names.is_empty() {
                !member.config.disabled
            } else {
                names.contains(&member.config.name)
            }
        })
    }

    /// Which are being started.
    pub fn pending(&self) -> Vec<String> {
        let standings = self.reports().into_iter();
        let pending = standings.filter(|standing| standing.status == ServerStatus::Pending);
        pending.map(|standing| standing.name).collect()
    }

    /// Which are being started for the first time.
    pub fn starting(&self) -> Vec<String> {
        let untried = |member: &&Arc<ServerTask>| !member.watch().borrow().attempted;
        self.members.iter().filter(untried).map(|member| member.config.name.clone()).collect()
    }

    /// Which of these, or of all if there is no name, are not connected.
    pub fn missing(&self, names: &[String]) -> Vec<String> {
        let standings = self.selected(names).map(|member| member.report());
        let gone = standings.filter(|standing| standing.status != ServerStatus::Connected);
        gone.map(|standing| standing.name).collect()
    }

    /// What the model is told of their tools, in a fixed order. Those of a server that is lost
    /// for a while stay.
    pub fn tool_definitions(&self) -> Vec<ToolDefinition> {
        let (mut definitions, mut names) = (Vec::new(), HashSet::new());
        for member in &self.members {
            for offer in member.tools().iter() {
                // The service refuses a request with two tools of one name.
                if names.insert(offer.definition.name.clone()) {
                    definitions.push(offer.definition.clone());
                } else {
                    member.warn_once(&format!(
                        "the tool {:?} is left out: another server has one of its full name",
                        offer.name
                    ));
                }
            }
        }
        definitions.extend(self.resource_tools().iter().map(|offer| offer.definition.clone()));
        definitions
    }

    /// How those that are connected want to be used, in their own words. Empty if they have none.
    pub fn instructions(&self) -> String {
        self.instructions_of(&|_| true)
    }

    /// The same of those with a name that `wanted` takes.
    pub fn instructions_of(&self, wanted: &dyn Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for member in self.members.iter().filter(|member| wanted(&member.config.name)) {
            let about = member.about();
            let Some(own) = &about.instructions else { continue };
            let own: String = own.trim().chars().take(LONGEST_INSTRUCTIONS).collect();
            let section = format!("\n\n## {}\n{own}", tool_name_prefix(&member.config.name));
            if text.len() + section.len() <= ALL_INSTRUCTIONS {
                text.push_str(&section);
            }
        }
        text
    }

    /// What leave a call of theirs takes.
    pub fn permission_for(&self, tool: &str, input: &Value) -> CallPermission {
        if self.resource_tool(tool).is_some() {
            return Self::resource_tool_permission(tool, input);
        }
        let reads_only = self
            .find(tool)
            .is_some_and(|(member, offer)| member.config.trusted && offer.reads_only);
        CallPermission::Rule { name: tool.to_owned(), reads_only }
    }

    pub(super) fn members(&self) -> &[Arc<ServerTask>] {
        &self.members
    }

    pub(super) fn timers(&self) -> McpTimers {
        self.timers
    }

    /// Whether a tool is theirs, by the name that the model knows.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.find(tool).is_some() || self.resource_tool(tool).is_some()
    }

    /// What an input for a tool of theirs is checked against, if its schema can be read.
    pub fn validator(&self, tool: &str) -> Option<Arc<Validator>> {
        match self.find(tool) {
            Some((_, offer)) => offer.validator(),
            None => self.resource_tool(tool)?.validator(),
        }
    }

    /// Why a tool that is named like one of a server's is not there, in words for the model. None:
    /// no server has such a name, or the tool is there.
    pub fn explain_missing_tool(&self, tool: &str) -> Option<String> {
        if self.has_tool(tool) {
            return None;
        }
        let of = |member: &&Arc<ServerTask>| tool.starts_with(&tool_name_prefix(&member.config.name));
        // Of servers named `a` and `a__b` the longer name says more.
        let member = self.members.iter().filter(of).max_by_key(|it| it.config.name.len())?;
        let ServerReport { name, status, why } = member.report();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        Some(match status {
            ServerStatus::Connected => {
                let offers = member.tools();
                let names = offers.iter().map(|offer| offer.definition.name.as_str());
                let names: Vec<&str> = names.take(MOST_NAMED).collect();
                format!("MCP server {name:?} has no tool {tool}; it has: {}", names.join(", "))
            }
            ServerStatus::Pending => format!(
                "MCP server {name:?} is not connected yet{why}. Its tools join once it is: try \
                 later, or go on without it."
            ),
            ServerStatus::NeedsAuth => format!(
                "MCP server {name:?} is not connected{why}, and nobody is there to log in. Go on \
                 without it."
            ),
            ServerStatus::Failed => {
                format!("MCP server {name:?} is not connected{why}. Go on without it.")
            }
            ServerStatus::Disabled => format!("MCP server {name:?} is disabled. Go on without it."),
        })
    }

    fn find(&self, tool: &str) -> Option<(&Arc<ServerTask>, Arc<RemoteTool>)> {
        self.members.iter().find_map(|member| {
            let offers = member.tools();
            let offer = offers.iter().find(|offer| offer.definition.name == tool)?;
            Some((member, Arc::clone(offer)))
        })
    }

    /// Calls a tool by the name that the model knows. Never fails: every failure is a reply.
    pub async fn call(&self, tool: &str, input: &Value, cancel: &CancellationToken) -> CallReply {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let reply = match self.find(tool) {
            Some((member, offer)) => member.call(&offer.name, input, self.timers, cancel).await,
            None if self.resource_tool(tool).is_some() => {
                self.call_resource_tool(tool, input, cancel).await
            }
            None => CallReply::error(
                self.explain_missing_tool(tool).unwrap_or_else(|| format!("No such tool available: {tool}")),
            ),
        };
        if reply.is_error {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        reply
    }

    /// How each stands.
    pub fn reports(&self) -> Vec<ServerReport> {
        self.members.iter().map(|member| member.report()).collect()
    }

    /// How many tools each offers, in the order of the standings.
    pub fn tool_counts(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.tools().len()).collect()
    }

    /// What should be said about them and was not yet, a line each.
    pub fn take_warnings(&self) -> Vec<String> {
        self.members.iter().flat_map(|member| member.take_warnings()).collect()
    }

    /// What came of them so far.
    pub fn stats(&self) -> McpStats {
        let reconnects = self.members.iter().map(|member| &member.reconnects);
        McpStats {
            servers: self.reports(),
            calls: self.calls.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            reconnects: reconnects.map(|count| count.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Ends them all, side by side: their input is closed, they are told to end, and they are
    /// ended. No longer than `limit`; what is left then is the supervisor's.
    pub async fn close(&self, limit: Duration) {
        self.stop.cancel();
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await;
    }
}
