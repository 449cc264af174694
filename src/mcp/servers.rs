//! All MCP servers of a run.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::{RunningClock, timeout_while_running};
use crate::transcript::ToolDefinition;
use crate::types::{CallPermission, ToolPolicy};

use super::config::ServerConfig;
use super::connection::remember_job;
use super::content::CallReply;
use super::environment::{McpTimers, ServerEnvironment};
use super::remote_tool::{RemoteTool, call_prefixes, tool_name_prefix};
use super::required::RequiredServerError;
use super::server_task::{ServerState, ServerTask};
use super::state::{McpStats, ServerReport, ServerStatus};

/// The most characters of a server's instructions.
const LONGEST_INSTRUCTIONS: usize = 2_000;

/// The name that selects every server.
const ALL: &str = "all";

/// The most tools listed when the model calls an unknown one.
const MOST_NAMED: usize = 50;

/// The most characters of all instructions together.
const ALL_INSTRUCTIONS: usize = 8_000;

/// The servers of a run. When dropped, their processes are left to the supervisor.
#[derive(Default)]
pub struct Servers {
    pub(super) members: RwLock<Vec<Arc<ServerTask>>>,
    required: Vec<String>,
    /// Entries that are not valid: their names and defects.
    left_out: Vec<(String, String)>,
    pub(super) environment: Option<Arc<ServerEnvironment>>,
    pub(super) timers: McpTimers,
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
    /// Creates the servers without starting them, and records the current state of their programs.
    /// The later of two enabled servers with the same tool name prefix is disabled.
    pub fn new(
        configs: Vec<ServerConfig>,
        environment: ServerEnvironment,
        timers: McpTimers,
    ) -> Self {
        let (stop, mut members) = (CancellationToken::new(), Vec::<Arc<ServerTask>>::new());
        for mut config in configs {
            let is_twin = has_enabled_twin(&config, &members);
            config.disabled |= is_twin;
            remember_job(&config, &environment);
            let member = ServerTask::new(config, stop.child_token());
            if is_twin {
                member.warn("it is disabled: another server has the same tool name prefix");
            }
            members.push(Arc::new(member));
        }
        let (members, environment) = (RwLock::new(members), Some(Arc::new(environment)));
        Self { members, environment, timers, stop, ..Self::default() }
    }

    /// Sets the names of required servers; `all` for every one.
    #[must_use]
    pub fn with_required(self, required: Vec<String>) -> Self {
        Self { required, ..self }
    }

    /// Sets the entries that were left out, with their defects, for errors about required servers.
    #[must_use]
    pub fn with_left_out(self, left_out: Vec<(String, String)>) -> Self {
        Self { left_out, ..self }
    }

    /// The servers to wait for with [`Self::wait_until_connected`], if any are required.
    pub fn required(&self) -> Option<&[String]> {
        match self.required.as_slice() {
            [] => None,
            names if names.iter().any(|name| name == ALL) => Some(&[]),
            names => Some(names),
        }
    }

    /// Returns true if there are no servers.
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// Returns true if there are no servers, and no host can add some during a run.
    pub fn stays_empty(&self) -> bool {
        self.is_empty()
            && self.environment.as_ref().is_none_or(|environment| environment.host.is_none())
    }

    /// Starts all servers in parallel. Does nothing when called again.
    pub fn start(&self) {
        let mut began = self.began.lock();
        if self.environment.is_none() || began.is_some() {
            return;
        }
        *began = Some(Instant::now());
        drop(began);
        for member in self.members() {
            self.start_one(member);
        }
    }

    pub(super) fn new_task(&self, config: ServerConfig) -> Arc<ServerTask> {
        Arc::new(ServerTask::new(config, self.stop.child_token()))
    }

    /// Starts a server if it is enabled and the servers were started.
    pub(super) fn start_one(&self, member: Arc<ServerTask>) {
        let Some(environment) = &self.environment else { return };
        let mut began = self.began.lock();
        if began.is_some() && !member.config.disabled && !self.stop.is_cancelled() {
            // The next run waits for its start, too.
            *began = Some(Instant::now());
            let keeping = member.run(Arc::clone(environment), self.timers);
            let mut tasks = self.tasks.lock();
            tasks.spawn(keeping);
        }
    }

    /// Waits until each server is connected, is not tried again, or has failed twice, but at most
    /// `limit` after the start. Cancel-safe.
    pub async fn wait_for_starts(&self, limit: Duration) {
        let began = *self.began.lock();
        let Some(began) = began else { return };
        let over = async {
            for member in self.members() {
                // A closed channel also ends the wait.
                let _ = member.watch().wait_for(ServerState::is_settled).await;
            }
        };
        let _ = timeout_while_running(limit.saturating_sub(began.elapsed()), over).await;
    }

    /// The time for which the first request waits for starting servers in total.
    pub fn start_wait(&self) -> Duration {
        self.timers.begin
    }

    /// Waits until the lists of tools cover all changes that the servers have announced so far, but
    /// at most `limit`. Cancel-safe.
    pub async fn wait_for_listings(&self, limit: Duration) {
        let over = async {
            for member in self.members() {
                member.wait_for_listing().await;
            }
        };
        let _ = timeout_while_running(limit, over).await;
    }

    /// Waits until these servers, or all if there is no name, are connected, up to the wait limit.
    ///
    /// # Errors
    /// A server is not configured or not connected, with the reason.
    pub async fn wait_until_connected(&self, names: &[String]) -> Result<(), RequiredServerError> {
        let unknown = |name: &&String| !self.has_server(name);
        if let Some(name) = names.iter().find(unknown) {
            let left_out = self.left_out.iter().find(|(left_out, _)| left_out == name);
            let why = left_out.map(|(_, why)| why.clone());
            return Err(RequiredServerError::NotConfigured { name: name.clone(), why });
        }
        let mut clock = RunningClock::new();
        for member in self.selected(names) {
            let mut watch = member.watch();
            tokio::select! {
                biased;
                _ = watch.wait_for(|state| state.status != ServerStatus::Pending) => {}
                () = clock.wait_until(self.timers.wait) => {}
            }
            let report = member.report();
            if report.status != ServerStatus::Connected {
                let ServerReport { name, status, why, .. } = report;
                let why = why.map(|why| {
                    if status == ServerStatus::NeedsAuth {
                        format!("{why}; {}", member.config.place.login_advice(&name))
                    } else {
                        why
                    }
                });
                return Err(RequiredServerError::NotConnected { name, status, why });
            }
        }
        Ok(())
    }

    fn selected(&self, names: &[String]) -> impl Iterator<Item = Arc<ServerTask>> {
        self.members().into_iter().filter(move |member| {
            if names.is_empty() {
                !member.config.disabled
            } else {
                names.contains(&member.config.name)
            }
        })
    }

    /// The servers that are connecting.
    pub fn pending(&self) -> Vec<String> {
        let reports = self.reports().into_iter();
        let pending = reports.filter(|report| report.status == ServerStatus::Pending);
        pending.map(|report| report.name).collect()
    }

    /// The servers that [`Self::wait_for_starts`] waits for.
    pub fn starting(&self) -> Vec<String> {
        let starts = |member: &&Arc<ServerTask>| !member.watch().borrow().is_settled();
        self.members().iter().filter(starts).map(|member| member.config.name.clone()).collect()
    }

    /// The servers among these, or among all if there is no name, that are not connected.
    pub fn missing(&self, names: &[String]) -> Vec<String> {
        let reports = self.selected(names).map(|member| member.report());
        let gone = reports.filter(|report| report.status != ServerStatus::Connected);
        gone.map(|report| report.name).collect()
    }

    /// The tool definitions, in a stable order. Those of a disconnected server are kept.
    pub fn tool_definitions(&self) -> Vec<ToolDefinition> {
        let (mut definitions, mut names) = (Vec::new(), HashSet::new());
        for member in self.members() {
            for offer in member.tools().iter() {
                // The API rejects a request with two tools of one name.
                if names.insert(offer.definition.name.clone()) {
                    definitions.push(offer.definition.clone());
                } else {
                    member.warn_once(&format!(
                        "the tool {:?} is left out: another server has a tool of that full name",
                        offer.name
                    ));
                }
            }
        }
        definitions.extend(self.resource_tools().iter().map(|offer| offer.definition.clone()));
        definitions
    }

    /// The instructions of all connected servers. Empty if there are none.
    pub fn instructions(&self) -> String {
        self.instructions_of(&|_| true)
    }

    /// The instructions of servers whose names `wanted` accepts.
    pub fn instructions_of(&self, wanted: &dyn Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for member in self.members().iter().filter(|member| wanted(&member.config.name)) {
            let info = member.info();
            let Some(own) = &info.instructions else { continue };
            let own: String = own.trim().chars().take(LONGEST_INSTRUCTIONS).collect();
            let section = format!("\n\n## {}\n{own}", tool_name_prefix(&member.config.name));
            if text.len() + section.len() <= ALL_INSTRUCTIONS {
                text.push_str(&section);
            }
        }
        text
    }

    /// The permission that a call of a tool needs.
    pub fn permission_for(&self, tool: &str, input: &Value) -> CallPermission {
        if self.resource_tool(tool).is_some() {
            return self.resource_tool_permission(tool, input);
        }
        let name = tool.to_owned();
        let Some((member, offer)) = self.find(tool) else {
            return CallPermission::Rule {
                server: name.clone(),
                name,
                own: None,
                reads_only: false,
            };
        };
        let server = tool_name_prefix(&member.config.name);
        let own = Some(format!("{server}{}", offer.name));
        let reads_only = member.config.trusted && offer.reads_only;
        CallPermission::Rule { name, own, server, reads_only }
    }

    /// The strictest restriction of a tool in the entry of its server, which may name it as the
    /// server does or as it is offered.
    pub fn policy(&self, tool: &str) -> Option<ToolPolicy> {
        let (member, offer) = self.find(tool)?;
        let prefix = tool_name_prefix(&member.config.name);
        let is_meant = |name: &str| {
            name == offer.name || offer.definition.name.strip_prefix(&prefix) == Some(name)
        };
        let meant = member.config.policies.iter().filter(|(name, _)| is_meant(name));
        meant.map(|(_, policy)| *policy).max()
    }

    pub(super) fn members(&self) -> Vec<Arc<ServerTask>> {
        self.members.read().clone()
    }

    /// Returns true if the tool with this full name belongs to a server.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.find(tool).is_some() || self.resource_tool(tool).is_some()
    }

    /// The name that a server gives to a tool, with the server's prefix.
    pub fn own_name(&self, tool: &str) -> Option<String> {
        let (member, offer) = self.find(tool)?;
        Some(format!("{}{}", tool_name_prefix(&member.config.name), offer.name))
    }

    /// The full name of the tool with the name `own`: `mcp__`, the server's name, `__` and the
    /// tool's name, with any characters.
    pub fn full_name(&self, own: &str) -> Option<String> {
        let of = |member: Arc<ServerTask>| {
            let server = &member.config.name;
            let prefixes = call_prefixes(server);
            let name = prefixes.iter().find_map(|prefix| own.strip_prefix(prefix))?;
            let tools = member.tools();
            let offer = tools.iter().find(|offer| offer.name == name)?;
            Some(offer.definition.name.clone())
        };
        self.members().into_iter().find_map(of)
    }

    /// The schema of a tool's input.
    pub fn input_schema(&self, tool: &str) -> Option<Value> {
        match self.find(tool) {
            Some((_, offer)) => Some(offer.definition.input_schema.clone()),
            None => Some(self.resource_tool(tool)?.definition.input_schema.clone()),
        }
    }

    /// Explains to the model why a server's tool is missing. `None` if the tool exists, or no
    /// server has its prefix.
    pub fn explain_missing_tool(&self, tool: &str) -> Option<String> {
        if self.has_tool(tool) {
            return None;
        }
        let of =
            |member: &&Arc<ServerTask>| tool.starts_with(&tool_name_prefix(&member.config.name));
        // For servers named `a` and `a__b`, the longer match wins, and of two alike the enabled
        // one.
        let members = self.members();
        let rank = |it: &&Arc<ServerTask>| (it.config.name.len(), !it.config.disabled);
        let member = members.iter().filter(of).max_by_key(rank)?;
        let ServerReport { name, status, why, .. } = member.report();
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
                "MCP server {name:?} is not connected{why}, and an unattended run cannot log \
                 in. Go on without it."
            ),
            ServerStatus::Failed => {
                format!("MCP server {name:?} is not connected{why}. Go on without it.")
            }
            ServerStatus::Disabled => format!("MCP server {name:?} is disabled. Go on without it."),
        })
    }

    fn find(&self, tool: &str) -> Option<(Arc<ServerTask>, Arc<RemoteTool>)> {
        self.members().into_iter().find_map(|member| {
            let offers = member.tools();
            let offer = offers.iter().find(|offer| offer.definition.name == tool).cloned()?;
            Some((member, offer))
        })
    }

    /// Calls a tool by its full name. Never fails: every failure is a reply.
    pub async fn call(&self, tool: &str, input: &Value, cancel: &CancellationToken) -> CallReply {
        self.call_within(tool, input, &|_| true, cancel).await
    }

    /// Like [`Self::call`], but lists resources only of servers for whose tool name prefix
    /// `may_use` returns true.
    pub async fn call_within(
        &self,
        tool: &str,
        input: &Value,
        may_use: &(dyn Fn(&str) -> bool + Sync),
        cancel: &CancellationToken,
    ) -> CallReply {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let reply = match self.find(tool) {
            Some((member, offer)) => member.call(&offer.name, input, self.timers, cancel).await,
            None if self.resource_tool(tool).is_some() => {
                self.call_resource_tool(tool, input, may_use, cancel).await
            }
            None => CallReply::error(
                self.explain_missing_tool(tool)
                    .unwrap_or_else(|| format!("No such tool available: {tool}")),
            ),
        };
        if reply.is_error {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        reply
    }

    /// The server of a tool, if a question of that server is waiting for the host's answer.
    pub fn asking_host(&self, tool: &str) -> Option<String> {
        let (member, _) = self.find(tool)?;
        member.is_asking_host().then(|| member.config.name.clone())
    }

    /// Passes a message that a server in the host has sent on its own, such as
    /// `notifications/tools/list_changed`, to its connection. Returns true if it was accepted:
    /// there is such a server, it is connected, and the message is a notification or a request.
    pub fn deliver(&self, server: &str, message: Value) -> bool {
        let members = self.members();
        let member = members.iter().find(|member| member.config.name == server);
        member.is_some_and(|member| member.deliver(message))
    }

    /// The status of each server.
    pub fn reports(&self) -> Vec<ServerReport> {
        self.members().iter().map(|member| member.report()).collect()
    }

    /// The number of tools of each server, in the order of the reports.
    pub fn tool_counts(&self) -> Vec<usize> {
        self.members().iter().map(|member| member.tools().len()).collect()
    }

    /// Takes the pending warnings about servers, one line each.
    pub fn take_warnings(&self) -> Vec<String> {
        self.members().iter().flat_map(|member| member.take_warnings()).collect()
    }

    /// The statistics so far.
    pub fn stats(&self) -> McpStats {
        let members = self.members();
        let reconnects = members.iter().map(|member| &member.reconnects);
        McpStats {
            servers: self.reports(),
            calls: self.calls.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            reconnects: reconnects.map(|count| count.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Shuts all servers down in parallel: closes their input, then sends SIGTERM, then kills them.
    /// Takes at most `limit`; processes that are left then are killed by the supervisor.
    pub async fn close(&self, limit: Duration) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await;
    }
}

/// Returns true if a server is enabled, and another enabled one has the same tool name prefix.
pub(super) fn has_enabled_twin<'a>(
    config: &ServerConfig,
    others: impl IntoIterator<Item = &'a Arc<ServerTask>>,
) -> bool {
    let own = tool_name_prefix(&config.name);
    let mut enabled = others.into_iter().filter(|other| !other.config.disabled);
    !config.disabled && enabled.any(|other| tool_name_prefix(&other.config.name) == own)
}
