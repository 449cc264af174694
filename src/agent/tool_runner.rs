//! The tool runner: the tools of a run, and the state of their calls.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::journal::{PastBackground, WorkInProgress};
use crate::mcp::ServerStatus;
use crate::mcp::Servers;
use crate::model::MalformedCall;
use crate::recovery::{
    CallEffect, Event, Interrupt, LoopDetector, Nudge, ReplyKind, WorkStatus, is_wait,
};
use crate::tools::{DeferredTools, Permit, TOOL_SEARCH, Toolbox};
use crate::transcript::{Block, ToolCall};

use super::delegate::SearchCosts;
use super::early_tools::EarlyTools;
use super::messages::{is_error, join_list};
use super::run_event::RunEvent;
use super::run_monitor::{CancelReason, RunMonitor};
use super::setup::{DeferredCall, MovedFolder};

/// Maximum number of read-only tools that run in parallel.
const SIDE_BY_SIDE: usize = 10;

/// A tool call with its result.
pub(super) struct CompletedCall<'a> {
    pub(super) call: &'a ToolCall,
    pub(super) result: &'a Block,
    /// The structured result, for programs.
    pub(super) detail: &'a Value,
}

/// A call that may run, with its index in its batch.
pub(super) type Admitted = (usize, Permit);

/// Splits admitted calls into groups that run in parallel: a hook may have changed a call into one
/// that has to run alone, and its permit may confine a command less than its batch assumed.
pub(super) fn groups(admitted: Vec<Admitted>) -> Vec<Vec<Admitted>> {
    let mut groups: Vec<Vec<Admitted>> = Vec::new();
    let mut joins = false;
    for one in admitted {
        let beside = one.1.runs_in_parallel();
        match groups.last_mut().filter(|_| joins && beside) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
        joins = beside;
    }
    groups
}

/// The tools, with the state of their calls.
pub(super) struct ToolRunner {
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) servers: Arc<Servers>,
    /// The servers that were reported to the model as not connected yet.
    pub(super) awaited_servers: Vec<String>,
    pub(super) early: EarlyTools,
    /// Concurrency permits for tools.
    pub(super) places: Arc<Semaphore>,
    /// Calls of the last reply that are answered without being run.
    pub(super) malformed: Vec<MalformedCall>,
    /// Instruction files, and warnings about them, that were added already.
    pub(super) folder_notes_known: HashSet<String>,
    /// True if a call was denied.
    pub(super) denied: bool,
    /// Number of calls in the last reply.
    pub(super) calls_in_reply: usize,
    /// True if the supervisor of commands was started.
    pub(super) supervisor_started: bool,
    /// The call that a hook has deferred.
    pub(super) deferred: Option<DeferredCall>,
    pub(super) loop_detector: LoopDetector,
    /// The background work of earlier processes, until the model is told of it.
    pub(super) past_background: PastBackground,
    /// The change of the working directory since the earlier process, until the model is told.
    pub(super) moved_folder: Option<MovedFolder>,
    /// True if the end of background commands was announced.
    pub(super) work_stop_announced: bool,
    /// The tools of servers that requests leave out.
    pub(super) deferred_tools: DeferredTools,
    /// The costs of web searches that are not counted yet.
    pub(super) search_costs: SearchCosts,
}

impl ToolRunner {
    /// Creates the runner of an agent that begins, or continues the work of an earlier process.
    pub(super) fn new(toolbox: Toolbox, servers: Arc<Servers>, work: WorkInProgress) -> Self {
        let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        Self {
            deferred_tools: toolbox.deferred_tools(),
            toolbox: Arc::new(toolbox),
            servers,
            awaited_servers: Vec::new(),
            early: EarlyTools::new(Arc::clone(&places)),
            places,
            malformed: Vec::new(),
            folder_notes_known: HashSet::new(),
            denied: false,
            calls_in_reply: 0,
            supervisor_started: false,
            deferred: None,
            loop_detector: work.loop_detector,
            past_background: work.background,
            moved_folder: None,
            work_stop_announced: false,
            search_costs: SearchCosts::default(),
        }
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
        let ToolCall { name, input, .. } = done.call;
        let command = input.get("command").and_then(Value::as_str);
        if is_wait(name, command) {
            CallEffect::Waited
        } else if is_error(done.result) {
            CallEffect::Failed
        } else if self.toolbox.effect(name).changes_nothing()
            || name == "TodoWrite"
            || name == TOOL_SEARCH
        {
            CallEffect::ReadOnly
        } else {
            CallEffect::Changed
        }
    }

    /// Warns of servers that were never connected, so that the gap is visible.
    pub(super) fn warn_of_missing(&mut self, monitor: &mut RunMonitor<'_>) {
        for line in self.servers.take_warnings() {
            monitor.emit(&RunEvent::Warning(line));
        }
        for report in self.servers.reports() {
            if report.status == ServerStatus::Pending {
                let line = format!("MCP server {:?} was not connected at the end", report.name);
                monitor.emit(&RunEvent::Warning(line));
            }
        }
    }

    /// Adjusts the event for a finished model to background work that is running or unreported.
    pub(super) fn check_background_work(&self, event: Event) -> Event {
        if self.toolbox.background_work() == WorkStatus::Over {
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
            self.toolbox.take_ended_work()
        } else if nudge == Nudge::StillRunning {
            Some(self.toolbox.list_running())
        } else {
            None
        }
    }

    /// Reports background commands that ended while the model worked, beside the tool results.
    pub(super) fn ended_work(&mut self) -> Option<Block> {
        let update = self.toolbox.take_ended_work()?;
        Some(Block::text(join_list(Nudge::WorkEnded.text(), &update)))
    }

    /// Begins to end background commands: the run was cut off.
    pub(super) fn start_shutdown(&mut self, cut: CancelReason, monitor: &mut RunMonitor<'_>) {
        monitor.emit_inbox();
        if let CancelReason::Interrupt(by) = cut
            && by != Interrupt::HostRequest
        {
            self.toolbox.end_commands_with_run();
        }
        let running = self.toolbox.list_running();
        self.toolbox.request_stop();
        let CancelReason::Interrupt(by) = cut else { return };
        if running.is_empty() || std::mem::replace(&mut self.work_stop_announced, true) {
            return;
        }
        let list = running.replace("\n- ", "; ");
        let list = list.trim_start_matches("- ");
        let is_sigint = by == Interrupt::Sigint;
        let again = if is_sigint { "; a second SIGINT within 3 s ends all at once" } else { "" };
        let warning = format!("background commands are being stopped: {list}{again}");
        monitor.emit(&RunEvent::Warning(warning));
    }
}
