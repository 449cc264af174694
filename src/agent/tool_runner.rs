//! The tool runner: the tools of a run, and the state of their calls.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::journal::{BackgroundWork, PastBackground, WorkInProgress};
use crate::mcp::{ServerReport, ServerStatus, Servers, tool_name_prefix};
use crate::model::{MalformedCall, ModelReply};
use crate::recovery::{
    CallEffect, Event, Interrupt, LoopDetector, LoopLimits, LoopStatus, Nudge, ReplyKind,
    ToolCallRecord, WorkStatus, is_wait,
};
use crate::text::bullets;
use crate::tools::{
    DeferredTools, DelegatedCall, Effect, OnDenied, Permit, PreparedCall, ToolOutcome, ToolRefusal,
    Toolbox,
};
use crate::transcript::{Block, Message, ToolCall, ToolDefinition};

use super::delegate::{PendingSubagent, SearchCosts};
use super::early_tools::EarlyTools;
use super::messages::{is_error, join_list};
use super::run_event::RunEvent;
use super::run_monitor::{CancelReason, RunMonitor};
use super::setup::{DeferredCall, MovedFolder};

/// Maximum number of read-only tools that run in parallel.
const PARALLEL_MAX: usize = 10;

/// A tool call with its result.
pub(super) struct CompletedCall<'a> {
    pub(super) call: &'a Arc<PreparedCall>,
    pub(super) result: &'a Block,
    /// The structured result, for programs.
    pub(super) detail: &'a Value,
    /// Its duration, if it was run.
    pub(super) took: Option<Duration>,
}

/// A call that may run, with its index in its batch.
pub(super) type Admitted = (usize, Permit);

/// Splits admitted calls into groups that run in parallel: a hook may have changed a call into one
/// that has to run alone, and its permit may confine a command less than its batch assumed.
pub(super) fn groups(admitted: Vec<Admitted>) -> Vec<Vec<Admitted>> {
    let mut groups: Vec<Vec<Admitted>> = Vec::new();
    let mut joins = false;
    for call in admitted {
        let is_parallel = call.1.runs_in_parallel();
        match groups.last_mut().filter(|_| joins && is_parallel) {
            Some(group) => group.push(call),
            None => groups.push(vec![call]),
        }
        joins = is_parallel;
    }
    groups
}

/// The tools, with the state of their calls.
pub(super) struct ToolRunner {
    toolbox: Arc<Toolbox>,
    servers: Arc<Servers>,
    /// The calls of the streaming reply, with the concurrency slots of all tools.
    pub(super) early: EarlyTools,
    /// Calls of the last reply that are answered without being run.
    malformed: Vec<MalformedCall>,
    /// True if a call was denied.
    denied: bool,
    /// True if the supervisor of commands was started.
    supervisor_started: bool,
    /// The call that a hook has deferred.
    deferred: Option<DeferredCall>,
    loop_detector: LoopDetector,
    /// The tools of servers that requests leave out.
    pub(super) deferred_tools: DeferredTools,
    /// The costs of web searches that are not counted yet.
    search_costs: SearchCosts,
    since: ChangesSince,
    announced: Announced,
}

/// Changes since an earlier process of the session that the model has not been informed of.
#[derive(Default)]
struct ChangesSince {
    /// The background work of that process.
    background: PastBackground,
    /// The change of the working directory.
    folder: Option<MovedFolder>,
}

/// The facts that the model or the user was informed of.
#[derive(Default)]
struct Announced {
    /// The servers that were reported to the model as not connected yet.
    pending_servers: Vec<String>,
    /// Instruction files, and warnings about them.
    folder_notes: HashSet<String>,
    /// True for the end of background commands.
    work_stop: bool,
}

/// A change of servers, for the model.
pub(super) struct ServerChanges {
    /// The servers that are connected by now, or have failed.
    pub(super) reports: Vec<ServerReport>,
    /// The instructions of those that are connected.
    pub(super) instructions: String,
}

impl ToolRunner {
    /// Creates the runner of an agent that begins, or continues the work of an earlier process.
    pub(super) fn new(toolbox: Toolbox, servers: Arc<Servers>, work: WorkInProgress) -> Self {
        toolbox.restore_files_read(work.files_read);
        Self {
            deferred_tools: toolbox.deferred_tools(),
            toolbox: Arc::new(toolbox),
            servers,
            early: EarlyTools::new(Arc::new(Semaphore::new(PARALLEL_MAX))),
            malformed: Vec::new(),
            denied: false,
            supervisor_started: false,
            deferred: None,
            loop_detector: work.loop_detector,
            search_costs: SearchCosts::default(),
            since: ChangesSince { background: work.background, folder: None },
            announced: Announced::default(),
        }
    }

    /// Adds a notice that the working directory has changed.
    pub(super) fn with_moved_folder(mut self, folder: Option<MovedFolder>) -> Self {
        self.since.folder = folder;
        self
    }

    pub(super) fn toolbox(&self) -> &Arc<Toolbox> {
        &self.toolbox
    }

    pub(super) fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    // --- the calls of a reply ---------------------------------------------------------------

    /// Starts the call in a completed block of a streaming reply, if it may start early.
    pub(super) fn start_early(&mut self, block: &Block) {
        self.early.start_if_read_only(block, &self.toolbox);
    }

    /// Takes the calls of a reply that cannot be run. `has_calls` is false if none of its calls is
    /// run.
    pub(super) fn take_malformed(&mut self, reply: &mut ModelReply, has_calls: bool) {
        self.malformed = std::mem::take(&mut reply.malformed);
        if !has_calls {
            self.early.discard();
        }
    }

    /// Returns the refusal of a call whose arguments cannot be used.
    pub(super) fn refusal_of_malformed(&self, call: &ToolCall) -> Option<ToolRefusal> {
        let problem = &self.malformed.iter().find(|known| known.id == call.id)?.problem;
        Some(ToolRefusal::of_malformed_call(&call.name, problem))
    }

    /// Returns the work of a call, to be spawned. `delegated` is the work of a call that the
    /// toolbox does not run. The result is `None` if the work panicked.
    pub(super) fn work(
        &mut self,
        permit: Permit,
        delegated: Option<PendingSubagent>,
        cancel: CancellationToken,
    ) -> impl Future<Output = Option<ToolOutcome>> + Send + use<> {
        let early = self.early.take(&permit.call().id);
        let is_search = matches!(permit.delegated(), Some(DelegatedCall::WebSearch(_)));
        let (toolbox, slots) = (Arc::clone(&self.toolbox), self.early.slots());
        async move {
            if let Some(delegated) = delegated {
                let _slot = if is_search { slots.acquire().await.ok() } else { None };
                return Some(delegated.await);
            }
            if let Some((token, mut task)) = early {
                let ended = tokio::select! {
                    biased;
                    () = cancel.cancelled() => { token.cancel(); task.join_next().await }
                    ended = task.join_next() => ended,
                };
                if let Some(outcome) = ended?.ok()? {
                    return Some(outcome);
                }
            }
            let _slot = slots.acquire().await;
            Some(toolbox.run(permit, cancel).await)
        }
    }

    /// Returns the sum to which web searches add their cost.
    pub(super) fn search_costs(&self) -> SearchCosts {
        self.search_costs.clone()
    }

    pub(super) fn record_denial(&mut self) {
        self.denied = true;
    }

    /// Returns true if a call was denied, and the run must end because of it.
    pub(super) fn fails_for_denial(&self) -> bool {
        self.denied && self.toolbox.on_denied() == OnDenied::Fail
    }

    pub(super) fn defer(&mut self, call: ToolCall, reason: String) {
        self.deferred = Some(DeferredCall { call, reason });
    }

    pub(super) fn deferred(&self) -> Option<&DeferredCall> {
        self.deferred.as_ref()
    }

    // --- offered tools ----------------------------------------------------------------------

    /// Selects the tools that requests offer.
    pub(super) fn select(&mut self, windows: &[u64], messages: &[Message]) -> Vec<ToolDefinition> {
        self.deferred_tools.select(self.toolbox.all_definitions(), windows, messages)
    }

    // --- MCP servers ------------------------------------------------------------------------

    /// Returns the servers that are still connecting. The model is informed now, and again when
    /// they are connected.
    pub(super) fn announce_pending_servers(&mut self) -> &[String] {
        let offered = |name: &String| self.toolbox.may_use_server(&tool_name_prefix(name));
        self.announced.pending_servers =
            self.servers.pending().into_iter().filter(offered).collect();
        &self.announced.pending_servers
    }

    /// Returns the announced servers that are no longer starting.
    pub(super) fn take_server_changes(&mut self) -> ServerChanges {
        let announced = &mut self.announced.pending_servers;
        let mut reports = self.servers.reports();
        reports.retain(|report| announced.contains(&report.name));
        let has = |name: &str, status: ServerStatus| {
            reports.iter().any(|report| report.name == name && report.status == status)
        };
        let instructions =
            self.servers.instructions_of(&|name: &str| has(name, ServerStatus::Connected));
        announced.retain(|name| has(name, ServerStatus::Pending));
        ServerChanges { reports, instructions }
    }

    /// Returns true if servers were announced as not connected yet.
    pub(super) fn awaits_servers(&self) -> bool {
        !self.announced.pending_servers.is_empty()
    }

    // --- the state of the work --------------------------------------------------------------

    pub(super) fn observe(&mut self, records: &[ToolCallRecord], limits: LoopLimits) -> LoopStatus {
        self.loop_detector.observe(records, limits)
    }

    /// Records that a compaction has removed the results of earlier calls.
    pub(super) fn record_compaction(&mut self) {
        self.loop_detector.record_compaction();
    }

    /// Records that the instructions in a file, or a warning about it, were added. Returns false if
    /// they were before.
    pub(super) fn record_folder_note(&mut self, note: String) -> bool {
        self.announced.folder_notes.insert(note)
    }

    /// Takes the change of the working directory that the model has not been informed of.
    pub(super) fn take_moved_folder(&mut self) -> Option<MovedFolder> {
        self.since.folder.take()
    }

    /// Takes the background work that was lost with an earlier process, and continues in the folder
    /// of its shell. If that is not possible, the model gets a notice.
    pub(super) fn take_lost_work(&mut self) -> Vec<BackgroundWork> {
        let PastBackground { commands, mut lost, folder } =
            std::mem::take(&mut self.since.background);
        if let Some(before) = folder
            && let Some(now) = self.toolbox.go_on_in(&before)
        {
            self.since.folder.get_or_insert(MovedFolder { before, now });
        }
        self.toolbox.background().count_from(commands);
        lost.retain(|work| !self.toolbox.background().knows_command(work.id()));
        lost
    }

    /// Starts the supervisor of commands in the background, unless this was done.
    pub(super) fn start_supervisor(&mut self) {
        if !std::mem::replace(&mut self.supervisor_started, true) {
            let toolbox = Arc::clone(&self.toolbox);
            drop(tokio::task::spawn_blocking(move || toolbox.start_supervisor()));
        }
    }

    /// Classifies the effect of a call, as far as possible without reading the file it has written.
    pub(super) fn call_effect(&self, done: &CompletedCall<'_>) -> CallEffect {
        let ToolCall { name, input, .. } = done.call.call();
        let command = input.get("command").and_then(Value::as_str);
        if is_wait(name, command) {
            CallEffect::Waited
        } else if is_error(done.result) {
            CallEffect::Failed
        } else {
            match self.toolbox.effect(name) {
                Effect::ReadOnly | Effect::Network | Effect::Notes => CallEffect::ReadOnly,
                Effect::Changes => CallEffect::Changed,
            }
        }
    }

    /// Reports the warnings of the servers.
    pub(super) fn report_warnings(&self, monitor: &mut RunMonitor<'_>) {
        for line in self.servers.take_warnings() {
            monitor.emit(&RunEvent::Warning(line));
        }
    }

    /// Warns of servers that were never connected, so that the gap is visible.
    pub(super) fn warn_of_missing(&self, monitor: &mut RunMonitor<'_>) {
        self.report_warnings(monitor);
        for report in self.servers.reports() {
            if report.status == ServerStatus::Pending {
                let line = format!("MCP server {:?} was not connected at the end", report.name);
                monitor.emit(&RunEvent::Warning(line));
            }
        }
    }

    /// Adjusts the event for a finished model to background work that is running or unreported.
    pub(super) fn check_background_work(&self, event: Event) -> Event {
        if self.toolbox.background().work_state() == WorkStatus::Over {
            event
        } else if let Event::Replied(
            ReplyKind::Answer { tokens } | ReplyKind::LeftOpen { tokens },
        ) = event
        {
            Event::Replied(ReplyKind::Early { tokens })
        } else if event == Event::Delivered {
            Event::DeliveredEarly
        } else {
            event
        }
    }

    /// Returns the text of a nudge about background work, followed by the list of commands.
    pub(super) fn work_report(&mut self, nudge: Nudge) -> Option<String> {
        if nudge == Nudge::WorkEnded {
            self.toolbox.background().take_ended_work()
        } else if nudge == Nudge::StillRunning {
            Some(bullets(&self.toolbox.background().running_lines()))
        } else {
            None
        }
    }

    /// Reports background commands that ended while the model worked, beside the tool results.
    pub(super) fn ended_work(&mut self) -> Option<Block> {
        let update = self.toolbox.background().take_ended_work()?;
        Some(Block::text(join_list(Nudge::WorkEnded.text(), &update)))
    }

    /// Begins to end background commands: the run was cut off.
    pub(super) fn start_shutdown(&mut self, cut: CancelReason, monitor: &mut RunMonitor<'_>) {
        monitor.emit_inbox();
        if let CancelReason::Interrupt(by) = cut
            && by != Interrupt::HostRequest
        {
            self.toolbox.background().end_with_run();
        }
        let running = self.toolbox.background().running_lines();
        self.toolbox.background().request_stop_all();
        let CancelReason::Interrupt(by) = cut else { return };
        if running.is_empty() || std::mem::replace(&mut self.announced.work_stop, true) {
            return;
        }
        let list = running.join("; ");
        let is_sigint = by == Interrupt::Sigint;
        let again = if is_sigint { "; a second SIGINT within 3 s ends all at once" } else { "" };
        let warning = format!("background commands are being stopped: {list}{again}");
        monitor.emit(&RunEvent::Warning(warning));
    }
}
