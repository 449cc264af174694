//! The hook runner: passes the events of a run to the user's hooks and records their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::hooks::{self, ExportError, HookDecision, HookEvent, HookProgress, HookRuns, Hooks};
use crate::recovery::{CompactionTrigger, StopHookDecision};
use crate::tools::{AGENT, PreparedCall, TASK, Toolbox, is_agent_tool, other_name};
use crate::transcript::{Block, ToolCall};

use super::conversation::Conversation;
use super::run_event::RunEvent;
use super::run_monitor::{CancelReason, ProgressSnapshot, RunMonitor, WaitTimer};
use super::session_lifecycle::failure_message;
use super::setup::HookStats;
use super::tool_runner::ToolRunner;
use super::waiting_for::WaitingFor;

/// The hooks of a run, with the state of their answers.
#[derive(Debug)]
pub(super) struct HookRunner {
    hooks: Option<Arc<Hooks>>,
    stats: HookStats,
    /// Hooks whose failure was already reported, by command line.
    reported_failures: BTreeSet<String>,
    /// True if a Stop hook has objected to the end and no later stop was agreed to.
    has_objection: bool,
    /// The last objection of a Stop hook.
    objection: Option<StopObjection>,
    /// The reason of a hook that stops the run. It stops as soon as every call has its result.
    halt: Option<String>,
    /// Blocks that the model reads beside the next results.
    pending_notices: Vec<Block>,
    compaction: CompactionStage,
    /// Events of single hooks that are still to be reported.
    hook_progress: UnboundedReceiver<HookProgress>,
}

/// The objection of a Stop hook to the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StopObjection {
    text: String,
    /// Number of tool calls that the run had made by then. More calls mean that work was done
    /// since.
    tool_calls: u32,
}

impl StopObjection {
    /// Compares an objection with the one before.
    fn decide(&self, before: Option<&Self>) -> StopHookDecision {
        if before == Some(self) { StopHookDecision::BlockAgain } else { StopHookDecision::Block }
    }
}

/// The stage of a compaction, for the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompactionStage {
    No,
    /// The `PreCompact` hooks have agreed to it.
    Begun(CompactionTrigger),
    /// It is done, before the window was full, and the session hooks have not run since. After an
    /// overflow they do not run: the context that they add did not fit.
    Done,
}

/// The parts of the run that hooks need while they run.
pub(super) struct HookPeers<'a, 'm> {
    pub(super) tools: &'a mut ToolRunner,
    pub(super) conversation: &'a Conversation,
    pub(super) monitor: &'a mut RunMonitor<'m>,
    pub(super) progress: ProgressSnapshot,
}

/// The input of a hook: an event, and the tool call that it is about.
pub(super) struct HookInput {
    pub(super) context: hooks::HookContext,
    call: Option<Arc<PreparedCall>>,
}

impl HookInput {
    pub(super) fn of(event: HookEvent, subject: &str, fields: Value) -> Self {
        let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
        Self { context: hooks::HookContext::new(event, subject, fields), call: None }
    }

    /// Returns the input for an event about a tool call. `more` holds additional fields.
    pub(super) fn about(
        event: HookEvent,
        prepared: &Arc<PreparedCall>,
        more: Map<String, Value>,
    ) -> Self {
        let ToolCall { id, name, input } = prepared.call();
        // The model may use either name of this tool; hooks see one, and may name either.
        let (name, alias) =
            if is_agent_tool(name) { (AGENT, Some(TASK)) } else { (&**name, other_name(name)) };
        let fields = json!({ "tool_name": name, "tool_input": input, "tool_use_id": id });
        let mut input = Self::of(event, name, fields);
        input.context.alias = alias;
        input.context.fields.extend(more);
        input.call = Some(Arc::clone(prepared));
        input
    }
}

impl HookRunner {
    /// Creates the runner. `has_objection` is true if an earlier process ended with an objection of
    /// a Stop hook.
    pub(super) fn new(hooks: Option<Hooks>, has_objection: bool) -> Self {
        let (sender, hook_progress) = unbounded_channel();
        Self {
            hooks: hooks.map(|hooks| Arc::new(hooks.with_progress(sender))),
            stats: HookStats::default(),
            reported_failures: BTreeSet::new(),
            has_objection,
            objection: None,
            halt: None,
            pending_notices: Vec::new(),
            compaction: CompactionStage::No,
            hook_progress,
        }
    }

    pub(super) fn is_halted(&self) -> bool {
        self.halt.is_some()
    }

    pub(super) fn has_objection(&self) -> bool {
        self.has_objection
    }

    pub(super) fn objection(&self) -> Option<&str> {
        self.objection.as_ref().map(|objection| objection.text.as_str())
    }

    /// Takes the reason of the hook that stopped the run, or that objects to its end.
    pub(super) fn take_reason(&mut self) -> Option<String> {
        self.stats.why.take()
    }

    pub(super) fn add_notice(&mut self, block: Block) {
        self.pending_notices.push(block);
    }

    pub(super) fn add_context<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t String>,
        conversation: &Conversation,
    ) {
        self.pending_notices.extend(texts.into_iter().map(|text| conversation.hook_block(text)));
    }

    pub(super) fn take_notices(&mut self) -> Vec<Block> {
        std::mem::take(&mut self.pending_notices)
    }

    /// Records that the `PreCompact` hooks have agreed to a compaction.
    pub(super) fn agree_to_compaction(&mut self, trigger: CompactionTrigger) {
        self.compaction = CompactionStage::Begun(trigger);
    }

    /// Returns true if the `PreCompact` hooks have agreed to a compaction that is not done yet.
    pub(super) fn has_agreed_to_compaction(&self) -> bool {
        matches!(self.compaction, CompactionStage::Begun(_))
    }

    /// Returns true if the session hooks have to run again: a compaction was done, and they have
    /// not run since. A sub-agent has only one start.
    pub(super) fn take_restart(&mut self) -> bool {
        let stage = std::mem::replace(&mut self.compaction, CompactionStage::No);
        stage == CompactionStage::Done && self.opening() == HookEvent::SessionStart
    }

    pub(super) fn listen_to(&self, event: HookEvent) -> bool {
        self.hooks.as_ref().is_some_and(|hooks| hooks.has_hooks_for(event))
    }

    /// Records the objection of Stop hooks after `tool_calls` tool calls.
    pub(super) fn record_objection(
        &mut self,
        text: Option<String>,
        tool_calls: u32,
    ) -> StopHookDecision {
        self.has_objection = text.is_some();
        self.stats.why.clone_from(&text);
        let objection = text.map(|text| StopObjection { text, tool_calls });
        let before = std::mem::replace(&mut self.objection, objection);
        self.objection.as_ref().map_or(StopHookDecision::Pass, |now| now.decide(before.as_ref()))
    }

    /// Marks the run as ended for its hooks: all processes are about to be killed, those of
    /// detached hooks included.
    pub(super) fn prepare_kill(&self) {
        if let Some(hooks) = &self.hooks {
            hooks.mark_run_ended();
        }
    }

    /// Returns the event at the start of the work.
    pub(super) fn opening(&self) -> HookEvent {
        self.hooks.as_ref().map_or(HookEvent::SessionStart, |hooks| hooks.start_event())
    }

    /// Returns the event at the end of the work, to which its hooks may object.
    pub(super) fn closing(&self) -> HookEvent {
        self.hooks.as_ref().map_or(HookEvent::Stop, |hooks| hooks.stop_event())
    }

    /// Returns the type of the sub-agent that the hooks belong to; empty for the run itself.
    pub(super) fn kind(&self) -> &str {
        self.hooks.as_ref().and_then(|hooks| hooks.agent_type()).unwrap_or_default()
    }

    /// Records that a summary has replaced the older part of the conversation.
    pub(super) fn record_compaction(&mut self) {
        let begun = CompactionStage::Begun(CompactionTrigger::Threshold);
        self.compaction =
            if self.compaction == begun { CompactionStage::Done } else { CompactionStage::No };
    }

    pub(super) fn stats(&self) -> HookStats {
        let hooks = self.hooks.as_ref();
        let logged = hooks.filter(|hooks| hooks.past_failures() > 0 || self.stats.failed > 0);
        let log = logged.map(|hooks| hooks.log().path().display().to_string());
        HookStats { log, ..self.stats.clone() }
    }

    /// Records that a hook was ended with the run, or not started because of its end.
    pub(super) fn note_cut(&mut self, event: HookEvent, which: &str, conversation: &Conversation) {
        let line = format!("{}: {}", event.name(), conversation.hook_text(which));
        self.stats.cut.push(line);
    }

    pub(super) fn spawn_all(
        &self,
        inputs: Vec<HookInput>,
        cancel: &CancellationToken,
        toolbox: &Arc<Toolbox>,
    ) -> JoinSet<(usize, HookDecision)> {
        let mut running = JoinSet::new();
        let Some(hooks) = &self.hooks else { return running };
        for (index, HookInput { context, call }) in inputs.into_iter().enumerate() {
            let (hooks, toolbox) = (Arc::clone(hooks), Arc::clone(toolbox));
            let cancel = cancel.clone();
            running.spawn(async move {
                let covers =
                    |rule: &str| call.as_ref().is_none_or(|call| toolbox.rule_covers(rule, call));
                (index, hooks.run(&context, &covers, &cancel).await)
            });
        }
        running
    }

    /// Reports the pending events of single hooks.
    pub(super) fn emit_hook_events(&mut self, monitor: &mut RunMonitor<'_>) {
        while let Ok(progress) = self.hook_progress.try_recv() {
            monitor.emit(&RunEvent::Hook(Box::new(progress)));
        }
    }

    /// Counts the outcomes of the hooks, and shows their messages to the user.
    pub(super) fn record_decision(
        &mut self,
        event: HookEvent,
        decision: &HookDecision,
        conversation: &Conversation,
        monitor: &mut RunMonitor<'_>,
    ) {
        self.emit_hook_events(monitor);
        let HookRuns { ran, failures, cancelled } = &decision.runs;
        let stats = &mut self.stats;
        stats.ran += ran;
        stats.failed += u32::try_from(failures.len()).unwrap_or(u32::MAX);
        stats.blocked += u32::from(decision.halt.is_some() || decision.denial().is_some());
        for (command, failure) in failures {
            if self.reported_failures.insert(command.clone()) {
                let warning = failure_message(event, command, failure);
                monitor.emit(&RunEvent::Warning(warning));
            }
        }
        for command in cancelled {
            self.note_cut(event, command, conversation);
        }
        for text in &decision.messages {
            monitor.emit(&RunEvent::HookSays { event, text: text.clone() });
        }
    }

    /// Records that a hook stops the run, if its decision does. Returns true if so.
    pub(super) fn record_halt(
        &mut self,
        event: HookEvent,
        decision: &HookDecision,
        conversation: &Conversation,
    ) -> bool {
        if let Some(why) = &decision.halt {
            self.halt(event, why, conversation);
        }
        decision.halt.is_some()
    }

    pub(super) fn halt(&mut self, event: HookEvent, why: &str, conversation: &Conversation) {
        let why = if why.is_empty() {
            format!("a hook of {} stopped the run without a reason", event.name())
        } else {
            conversation.hook_text(why)
        };
        self.halt.get_or_insert(why.clone());
        self.stats.why.get_or_insert(why);
    }

    /// Returns the variables that change when a shell evaluates the exports of hooks, if there are
    /// any hooks.
    pub(super) fn exports<'t>(
        &self,
        text: &'t str,
        toolbox: &'t Toolbox,
        cancel: &'t CancellationToken,
    ) -> impl Future<Output = Option<Result<Vec<(String, String)>, ExportError>>> + use<'t> {
        let hooks = self.hooks.clone();
        async move { Some(hooks?.exports(text, toolbox.shell(), toolbox.environment(), cancel).await) }
    }

    /// Warns of hook failures in the crash log.
    pub(super) fn report_crash_log(&self, monitor: &mut RunMonitor<'_>) {
        let Some(hooks) = &self.hooks else { return };
        let (count, path) = (hooks.past_failures(), hooks.log().path().display());
        if count > 0 {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            let warning = format!(
                "hooks have failed {times} in this run or earlier ones, and were ignored: \
                 see {path}, and delete it once they are fixed"
            );
            monitor.emit(&RunEvent::Warning(warning));
        }
    }

    /// Runs the hooks of an event for several inputs in parallel. Returns a decision for each.
    ///
    /// # Errors
    /// The run was cut off meanwhile. No hook runs any more.
    pub(super) async fn run_all(
        &mut self,
        event: HookEvent,
        inputs: Vec<HookInput>,
        peers: HookPeers<'_, '_>,
    ) -> Result<Vec<HookDecision>, CancelReason> {
        let count = inputs.len();
        if !self.listen_to(event) {
            return Ok(vec![HookDecision::default(); count]);
        }
        let HookPeers { tools, conversation, monitor, progress } = peers;
        let (cancel, began) = (CancellationToken::new(), monitor.now());
        let mut running = self.spawn_all(inputs, &cancel, tools.toolbox());
        let mut decisions = BTreeMap::new();
        let collected = self.collect(event, &mut running, &mut decisions, monitor, progress).await;
        if let Err(cut) = collected {
            cancel.cancel();
            self.prepare_kill();
            tools.start_shutdown(cut, monitor);
            let rest = async {
                while let Some(decided) = running.join_next().await {
                    decisions.extend(decided.ok());
                }
            };
            // Hooks that do not end in time are killed when they are dropped.
            let in_time = timeout(cut.grace(), rest).await.is_ok();
            self.stats.waited += began.until(monitor.now());
            self.emit_hook_events(monitor);
            for decision in decisions.values() {
                self.record_decision(event, decision, conversation, monitor);
            }
            if !in_time {
                self.note_cut(event, "one that did not end by itself", conversation);
            }
            return Err(cut);
        }
        self.stats.waited += began.until(monitor.now());
        if let Some(hooks) = &self.hooks {
            for index in 0..count {
                decisions.entry(index).or_insert_with(|| hooks.decision_after_crash(event));
            }
        }
        let decisions: Vec<HookDecision> = decisions.into_values().collect();
        for decision in &decisions {
            self.record_decision(event, decision, conversation, monitor);
        }
        Ok(decisions)
    }

    /// Collects the decisions of running hooks, by the index of their input, until all have ended.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    async fn collect(
        &mut self,
        event: HookEvent,
        running: &mut JoinSet<(usize, HookDecision)>,
        decisions: &mut BTreeMap<usize, HookDecision>,
        monitor: &mut RunMonitor<'_>,
        progress: ProgressSnapshot,
    ) -> Result<(), CancelReason> {
        let mut timer = monitor.begin();
        let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
            Some(monitor.heartbeat(timer, WaitingFor::Hook { event }, progress))
        };
        loop {
            let next = next_signal(&mut self.hook_progress, running);
            match monitor.wait_for(&mut timer, heartbeat, next).await? {
                HookSignal::Progress(progress) => {
                    monitor.emit(&RunEvent::Hook(Box::new(progress)));
                }
                HookSignal::Decided(decided) => decisions.extend([*decided]),
                HookSignal::Lost => {}
                HookSignal::AllEnded => return Ok(()),
            }
        }
    }

    /// Runs hooks until `end` at most, when the run is ending.
    pub(super) async fn run_until(
        &mut self,
        input: HookInput,
        end: Instant,
        peers: HookPeers<'_, '_>,
    ) {
        let event = input.context.event;
        if !self.listen_to(event) {
            return;
        }
        let HookPeers { tools, conversation, monitor, .. } = peers;
        if Instant::now() >= end {
            self.note_cut(event, "none was started, since the run had to end", conversation);
            return;
        }
        let cancel = CancellationToken::new();
        let mut running = self.spawn_all(vec![input], &cancel, tools.toolbox());
        match timeout_at(end, running.join_next()).await {
            Ok(Some(Ok((_, decision)))) => {
                self.record_decision(event, &decision, conversation, monitor);
            }
            // No call is left that the hook could deny.
            Ok(Some(Err(_)) | None) => {}
            Err(_) => self.note_cut(
                event,
                "one that took longer than the end of the run may",
                conversation,
            ),
        }
        drop(running);
        self.emit_hook_events(monitor);
    }
}

/// A signal that can arrive while hooks run.
enum HookSignal {
    Progress(HookProgress),
    /// The decision for the input of this index.
    Decided(Box<(usize, HookDecision)>),
    /// A hook task ended without a decision: a bug of outlast.
    Lost,
    AllEnded,
}

/// Waits for the next signal of a running hook. Cancel-safe.
async fn next_signal(
    hook_progress: &mut UnboundedReceiver<HookProgress>,
    running: &mut JoinSet<(usize, HookDecision)>,
) -> HookSignal {
    tokio::select! {
        biased;
        Some(progress) = hook_progress.recv() => HookSignal::Progress(progress),
        decided = running.join_next() => match decided {
            Some(Ok(decided)) => HookSignal::Decided(Box::new(decided)),
            Some(Err(_)) => HookSignal::Lost,
            None => HookSignal::AllEnded,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objection_is_repeated_only_if_no_tool_was_called_in_between() {
        let mut hooks = HookRunner::new(None, false);
        for (text, tool_calls, wanted) in [
            (Some("tests fail"), 0, StopHookDecision::Block),
            (Some("tests fail"), 1, StopHookDecision::Block),
            (Some("tests fail"), 1, StopHookDecision::BlockAgain),
            (Some("lint fails"), 1, StopHookDecision::Block),
            (None, 1, StopHookDecision::Pass),
            (Some("lint fails"), 1, StopHookDecision::Block),
        ] {
            let decision = hooks.record_objection(text.map(str::to_owned), tool_calls);
            assert_eq!(decision, wanted, "{text:?} {tool_calls}");
            assert_eq!(hooks.has_objection, text.is_some());
        }
    }
}
