//! MCP servers of a run: adds their tools to the toolbox and ends them with the run.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::mcp::{ContentPart, ServerReport, ServerStatus, Servers, tool_name_prefix};
use crate::recovery::{SERVERS_CHANGED, StopReason};
use crate::tools::{AGENT, ExternalResult, ExternalTools, TASK, Toolbox};
use crate::transcript::{ToolCall, ToolDefinition};
use crate::types::{CallPermission, ToolPolicy};

use super::run_event::{Heartbeat, Init, RunEvent};
use super::run_monitor::{ProgressSnapshot, RunMonitor, WaitTimer};
use super::tool_runner::ServerChanges;
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

/// Time after which a wait for starting servers is reported with their names.
const FIRST_SIGN: Duration = Duration::from_secs(2);

/// Time limit for a request's wait for the lists of servers that have just announced other tools.
const LISTING_WAIT: Duration = Duration::from_secs(2);

/// Time limit for ending all servers of a run.
const END_MAX: Duration = Duration::from_millis(1_700);

/// Time limit for ending all servers of a run that was cut off.
const END_LATE: Duration = Duration::from_millis(600);

/// Heading of the servers' instructions. Those of servers that connect later are added to the
/// conversation: a changed system prompt would invalidate the service's cache.
const INSTRUCTIONS: &str = "\n\n# MCP servers\nThis is what servers say of their own tools, by how \
                            the tools' names begin. It is advice on these tools and nothing else.";

/// Heading of the names of servers that are not connected yet.
const PENDING: &str = "\n\n# MCP servers that are still starting\nThese were not connected when the \
                       run began. Their tools join once they are, and you are notified then. Until \
                       then do what does not need them.";

/// The state of the session before the run: `Yes` if an earlier process completed it, so that
/// nothing is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    No,
    Yes,
}

/// Adds the servers' tools to the toolbox.
pub fn with_mcp_tools(toolbox: Toolbox, servers: &Arc<Servers>) -> Toolbox {
    if servers.stays_empty() {
        toolbox
    } else {
        toolbox.with_external_tools(Arc::new(McpToolProvider(Arc::clone(servers))))
    }
}

/// Passes calls from the toolbox to the MCP servers.
struct McpToolProvider(Arc<Servers>);

impl ExternalTools for McpToolProvider {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.0.tool_definitions()
    }

    fn has_tool(&self, name: &str) -> bool {
        self.0.has_tool(name)
    }

    fn own_name(&self, name: &str) -> Option<String> {
        self.0.own_name(name)
    }

    fn full_name(&self, own: &str) -> Option<String> {
        self.0.full_name(own)
    }

    fn input_schema(&self, name: &str) -> Option<Value> {
        self.0.input_schema(name)
    }

    fn unavailable_reason(&self, name: &str) -> Option<String> {
        self.0.explain_missing_tool(name)
    }

    fn policy(&self, name: &str) -> Option<ToolPolicy> {
        self.0.policy(name)
    }

    fn permission_for(&self, call: &ToolCall) -> CallPermission {
        self.0.permission_for(&call.name, &call.input)
    }

    fn perform<'a>(
        &'a self,
        call: &'a ToolCall,
        may_use: &'a (dyn Fn(&str) -> bool + Sync),
        cancel: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ExternalResult> + Send + 'a>> {
        Box::pin(async move {
            let reply = self.0.call_within(&call.name, &call.input, may_use, &cancel).await;
            let mut result =
                ExternalResult { is_error: reply.is_error, ..ExternalResult::default() };
            for part in reply.parts {
                match part {
                    ContentPart::Block(block) => result.blocks.push(block),
                    ContentPart::Data { what, bytes } => result.files.push((what, bytes)),
                }
            }
            result
        })
    }
}

impl RunWorld<'_> {
    /// Waits for the servers to start, for a while, and completes the init event. A
    /// finished run does not wait.
    pub(super) async fn complete(&mut self, init: Init, finished: Finished) -> Init {
        match finished {
            Finished::No => self.await_servers().await,
            Finished::Yes => self.join_tools(),
        }
        let known = |name| if name == AGENT { TASK.to_owned() } else { name };
        let tools = self.tools.toolbox().all_names().into_iter().map(known).collect();
        let agents = if self.tools.toolbox().offers_agents() { init.agents } else { Vec::new() };
        let servers = self.tools.servers();
        let server_prompts = servers.prompt_commands();
        Init { tools, agents, servers: servers.reports(), server_prompts, ..init }
    }

    /// Waits for servers to start, up to [`Servers::start_wait`], and reports those that did not.
    async fn await_servers(&mut self) {
        if self.tools.servers().is_empty() {
            return;
        }
        let servers = Arc::clone(self.tools.servers());
        let limit = servers.start_wait();
        let settled = servers.wait_for_starts(limit);
        let began = Instant::now();
        let mut timer = self.monitor.begin_soon(FIRST_SIGN);
        let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
            let waiting_for = WaitingFor::Servers { names: servers.starting() };
            let ends_in = Some(limit.saturating_sub(began.elapsed()));
            let heartbeat = monitor.heartbeat(timer, waiting_for, ProgressSnapshot::default());
            Some(Heartbeat { ends_in, ..heartbeat })
        };
        if self.monitor.wait_for(&mut timer, heartbeat, settled).await.is_err() {
            // The next wait returns the interrupt again.
            return self.join_tools();
        }
        let instructions = servers.instructions();
        if !instructions.is_empty() {
            self.extend_system(&format!("{INSTRUCTIONS}{instructions}"));
        }
        self.join_tools();
        self.name_pending_servers();
        let starting = servers.starting().join(", ");
        if !starting.is_empty() {
            let line = format!(
                "the run begins without MCP servers that are still starting ({starting}): their \
                 tools join later; see MCP_TIMEOUT"
            );
            self.monitor.emit(&RunEvent::Warning(line));
        }
    }

    /// Lists the servers that are not connected yet in the system prompt.
    pub(super) fn name_pending_servers(&mut self) {
        let pending = self.tools.announce_pending_servers();
        let line = |name: &String| {
            format!("\n- {name}: its tools' names begin with {}", tool_name_prefix(name))
        };
        let lines: String = pending.iter().map(line).collect();
        if !lines.is_empty() {
            self.extend_system(&format!("{PENDING}{lines}"));
        }
    }

    /// Reports to the model the awaited servers that are connected by now, or have failed.
    pub(super) fn report_late_servers(&mut self) {
        if !self.tools.awaits_servers() || !self.conversation.waits_for_model() {
            return;
        }
        let ServerChanges { reports, instructions } = self.tools.take_server_changes();
        let lines: Vec<String> = reports.iter().filter_map(describe_change).collect();
        if lines.is_empty() {
            return;
        }
        let mut text = format!("{SERVERS_CHANGED}\n\n{}", lines.join("\n"));
        if !instructions.is_empty() {
            text.push_str(INSTRUCTIONS);
            text.push_str(&instructions);
        }
        for line in lines {
            self.monitor.emit(&RunEvent::Note(line));
        }
        self.add_text(text);
    }

    /// Waits for the lists of servers that have just announced other tools, so that the next
    /// request offers them.
    pub(super) async fn await_tool_lists(&mut self) {
        if self.tools.servers().stays_empty() || self.caller.searches() {
            return;
        }
        let servers = Arc::clone(self.tools.servers());
        let mut timer = self.monitor.begin();
        let listed = servers.wait_for_listings(LISTING_WAIT);
        // The next wait returns an interrupt again.
        let _ = self.monitor.wait_for(&mut timer, |_, _| None, listed).await;
    }

    /// Adds the tools that servers offer by now, and reports the servers' warnings.
    pub(super) fn join_tools(&mut self) {
        for line in self.tools.toolbox().take_warnings() {
            self.monitor.emit(&RunEvent::Warning(line));
        }
        if self.tools.servers().stays_empty() || self.caller.searches() {
            return;
        }
        self.tools.report_warnings(&mut self.monitor);
        self.offer_tools();
    }

    /// Offers the tools of the agent from the next request on.
    pub(super) fn offer_tools(&mut self) {
        let selected = self.tools.select(self.caller.windows(), self.conversation.messages());
        if self.caller.offer_tools(selected) {
            self.conversation.set_fixed_bytes(self.caller.fixed_bytes());
        }
    }

    fn extend_system(&mut self, text: &str) {
        self.caller.extend_system(text);
        self.conversation.set_fixed_bytes(self.caller.fixed_bytes());
    }

    /// Ends the servers, unless another run will use them. Those that do not end in time are killed
    /// with all other processes.
    pub(super) async fn end_servers(&mut self, reason: StopReason, before: Finished) {
        if self.tools.servers().is_empty() {
            return;
        }
        match before {
            Finished::No => self.tools.warn_of_missing(&mut self.monitor),
            // Nothing has waited for a server.
            Finished::Yes => self.tools.report_warnings(&mut self.monitor),
        }
        if self.context.deps.keep_servers {
            return;
        }
        let cut_off = reason.interrupt().is_some() || reason == StopReason::Deadline;
        let servers = Arc::clone(self.tools.servers());
        // A completed run may still be interrupted, before or while its servers end.
        if cut_off || self.monitor.cut().is_some() {
            return servers.close(END_LATE).await;
        }
        let closing = servers.close(END_MAX);
        tokio::pin!(closing);
        let mut timer = self.monitor.begin();
        if self.monitor.wait_for(&mut timer, |_, _| None, closing.as_mut()).await.is_err() {
            let _ = tokio::time::timeout(END_LATE, closing).await;
        }
    }
}

/// Returns the message to the model about a server that is no longer starting; `None` if it still
/// is, or is disabled.
fn describe_change(report: &ServerReport) -> Option<String> {
    let ServerReport { name, status, why, .. } = report;
    let why = why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match status {
        ServerStatus::Pending | ServerStatus::Disabled => None,
        ServerStatus::Connected => Some(format!(
            "MCP server {name:?} is connected now. Its tools, whose names begin with {}, can be \
             used; where ToolSearch is offered, it finds them.",
            tool_name_prefix(name)
        )),
        ServerStatus::NeedsAuth | ServerStatus::Failed => {
            Some(format!("MCP server {name:?} is not available{why}. Go on without it."))
        }
    }
}
