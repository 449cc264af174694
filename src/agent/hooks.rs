//! Hook calls: passes the events of a run to the user's hooks and applies their answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::hooks::{self, HookDecision, HookEvent, HookProgress, Hooks};
use crate::recovery::{CompactionTrigger, StopHookDecision};
use crate::tools::Toolbox;
use crate::transcript::{Block, ToolCall};

use super::conversation::Conversation;
use super::run_event::{RunEvent, WaitingFor};
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::setup::HookStats;
use super::shutdown::cancel_grace;
use super::world::RunWorld;

/// The hooks of a run, with the state of their answers.
#[derive(Debug, Default)]
pub(super) struct HookState {
    pub(super) hooks: Option<Arc<Hooks>>,
    pub(super) tally: HookStats,
    /// Hooks whose failure was already reported, by command line.
    reported_failures: BTreeSet<String>,
    /// Whether a Stop hook has objected to the end and no later stop was agreed to.
    pub(super) has_objection: bool,
    /// The last objection of a Stop hook.
    pub(super) objection: Option<StopObjection>,
    /// Why a hook wants the run to stop. It stops as soon as every call has its result.
    pub(super) halt: Option<String>,
    /// Blocks that the model reads beside the next results.
    pub(super) asides: Vec<Block>,
    /// Whether a hook has replaced a result that the journal already has.
    pub(super) replaced: bool,
    /// The stage of a compaction, for the hooks.
    pub(super) compaction: CompactionStage,
    /// Events of single hooks that are still to be reported.
    news: Option<UnboundedReceiver<HookProgress>>,
}

/// The objection of a Stop hook to the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StopObjection {
    pub(super) words: String,
    /// How many tool calls the run had made by then: more of them mean that work was done since.
    tool_calls: u32,
}

impl StopObjection {
    /// Compares an objection with the one before.
    fn counsel(&self, before: Option<&Self>) -> StopHookDecision {
        if before == Some(self) { StopHookDecision::BlockAgain } else { StopHookDecision::Block }
    }
}

/// The stage of a compaction, for the hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CompactionStage {
    #[default]
    No,
    /// The `PreCompact` hooks have agreed to it.
    Begun(CompactionTrigger),
    /// It is done, ahead of need, and the session hooks have not run since. After an overflow they
    /// do not run: what they add is what did not fit.
    Done,
}

/// The input of a hook: an event, and the tool call that it is about.
pub(super) struct HookInput {
    pub(super) occasion: hooks::HookOccasion,
    call: Option<ToolCall>,
}

impl HookState {
    /// `pressing` says whether an earlier process ended with an objection of a Stop hook.
    pub(super) fn new(hooks: Option<Hooks>, has_objection: bool) -> Self {
        let (witness, news) = unbounded_channel();
        let hooks = hooks.map(|hooks| Arc::new(hooks.with_progress(witness)));
        let news = hooks.is_some().then_some(news);
        Self { hooks, has_objection, news, ..Self::default() }
    }

    pub(super) fn listen_to(&self, event: HookEvent) -> bool {
        self.hooks.as_ref().is_some_and(|hooks| hooks.has_hooks_for(event))
    }

    /// Records the objection of Stop hooks after `tool_calls` tool calls.
    pub(super) fn record_objection(
        &mut self,
        words: Option<String>,
        tool_calls: u32,
    ) -> StopHookDecision {
        self.has_objection = words.is_some();
        self.tally.why.clone_from(&words);
        let objection = words.map(|words| StopObjection { words, tool_calls });
        let before = std::mem::replace(&mut self.objection, objection);
        self.objection.as_ref().map_or(StopHookDecision::Pass, |now| now.counsel(before.as_ref()))
    }

    /// Tells the hooks that all processes are about to be killed, detached hooks included.
    pub(super) fn prepare_kill(&self) {
        if let Some(hooks) = &self.hooks {
            hooks.mark_run_ended();
        }
    }

    /// The event at the start of the work.
    pub(super) fn opening(&self) -> HookEvent {
        self.hooks.as_ref().map_or(HookEvent::SessionStart, |hooks| hooks.start_event())
    }

    /// The event that asks whether the work may end.
    pub(super) fn closing(&self) -> HookEvent {
        self.hooks.as_ref().map_or(HookEvent::Stop, |hooks| hooks.stop_event())
    }

    /// The type of the sub-agent whose hooks they are; empty for the run's own.
    pub(super) fn kind(&self) -> &str {
        self.hooks.as_ref().and_then(|hooks| hooks.agent_type()).unwrap_or_default()
    }

    /// Records that a summary has replaced the older part of the conversation.
    pub(super) fn record_compaction(&mut self) {
        self.compaction = match self.compaction {
            CompactionStage::Begun(CompactionTrigger::Threshold) => CompactionStage::Done,
            CompactionStage::No
            | CompactionStage::Begun(CompactionTrigger::Overflow)
            | CompactionStage::Done => CompactionStage::No,
        };
    }

    /// The statistics of hooks for the result.
    pub(super) fn tally(self) -> HookStats {
        let log = self.hooks.as_ref().map(|hooks| hooks.log().path().to_path_buf());
        let past = self.hooks.as_ref().map_or(0, |hooks| hooks.past_failures());
        let tells: Option<PathBuf> = log.filter(|_| past > 0 || self.tally.failed > 0);
        HookStats { log: tells, ..self.tally }
    }
}

impl HookInput {
    pub(super) fn of(event: HookEvent, subject: &str, fields: Value) -> Self {
        let Value::Object(fields) = fields else { return Self::of(event, subject, json!({})) };
        let subject = subject.to_owned();
        Self { occasion: hooks::HookOccasion { event, subject, fields }, call: None }
    }

    /// The input for an event about a tool call. `more` holds additional fields.
    pub(super) fn about(event: HookEvent, call: &ToolCall, more: Map<String, Value>) -> Self {
        let fields = json!({
            "tool_name": call.name,
            "tool_input": call.input,
            "tool_use_id": call.id,
        });
        let mut matter = Self::of(event, &call.name, fields);
        matter.occasion.fields.extend(more);
        matter.call = Some(call.clone());
        matter
    }
}

impl HookState {
    /// Records that a hook was ended with the run.
    pub(super) fn note_cut(&mut self, event: HookEvent, which: &str, conversation: &Conversation) {
        let line = format!("{}: {}", event.name(), conversation.hook_words(which));
        self.tally.cut.push(line);
    }

    pub(super) fn start_telling(
        &self,
        matters: Vec<HookInput>,
        cancel: &CancellationToken,
        toolbox: &Arc<Toolbox>,
    ) -> JoinSet<(usize, HookDecision)> {
        let mut telling = JoinSet::new();
        let Some(hooks) = &self.hooks else { return telling };
        for (index, HookInput { occasion, call }) in matters.into_iter().enumerate() {
            let (hooks, toolbox) = (Arc::clone(hooks), Arc::clone(toolbox));
            let cancel = cancel.clone();
            telling.spawn(async move {
                let covers =
                    |rule: &str| call.as_ref().is_none_or(|call| toolbox.rule_covers(rule, call));
                (index, hooks.run(&occasion, &covers, &cancel).await)
            });
        }
        telling
    }

    /// Reports the pending events of single hooks.
    pub(super) fn emit_hook_events(&mut self, monitor: &mut RunMonitor<'_>) {
        while let Some(news) = self.news.as_mut().and_then(|news| news.try_recv().ok()) {
            monitor.emit(&RunEvent::Hook(Box::new(news)));
        }
    }

    /// Counts what the hooks did, and shows their messages to the user.
    pub(super) fn record_verdict(
        &mut self,
        event: HookEvent,
        verdict: &HookDecision,
        conversation: &Conversation,
        monitor: &mut RunMonitor<'_>,
    ) {
        self.emit_hook_events(monitor);
        let tally = &mut self.tally;
        tally.ran += verdict.ran;
        tally.failed += u32::try_from(verdict.failures.len()).unwrap_or(u32::MAX);
        tally.blocked += u32::from(verdict.halt.is_some() || verdict.denial().is_some());
        for (command, mishap) in &verdict.failures {
            if self.reported_failures.insert(command.clone()) {
                let warning = format!(
                    "the hook `{command}` ({}) failed: {}; see the crash log",
                    event.name(),
                    mishap.detail
                );
                monitor.emit(&RunEvent::Warning(warning));
            }
        }
        for command in &verdict.cancelled {
            self.note_cut(event, command, conversation);
        }
        for text in &verdict.messages {
            monitor.emit(&RunEvent::HookSays { event, text: text.clone() });
        }
    }

    /// Records that a hook wants the run to stop.
    pub(super) fn halt(&mut self, event: HookEvent, why: &str, conversation: &Conversation) {
        let why = if why.is_empty() {
            format!("a hook of {} stopped the run without a reason", event.name())
        } else {
            conversation.hook_words(why)
        };
        self.halt.get_or_insert(why.clone());
        self.tally.why.get_or_insert(why);
    }
}

impl RunWorld<'_> {
    /// Warns of hook failures in the crash log.
    pub(super) fn report_crash_log(&mut self) {
        let Some(hooks) = &self.hooks.hooks else { return };
        let (count, path) = (hooks.past_failures(), hooks.log().path().display());
        if count > 0 {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            let warning = format!(
                "hooks have failed {times} in this run or earlier ones, and were ignored: \
                 see {path}, and delete it once they are fixed"
            );
            self.monitor.emit(&RunEvent::Warning(warning));
        }
    }

    /// Runs the hooks of an event.
    pub(super) async fn run_hooks(
        &mut self,
        matter: HookInput,
    ) -> Result<HookDecision, CancelReason> {
        let event = matter.occasion.event;
        let mut verdicts = self.run_hooks_for_all(event, vec![matter]).await?;
        Ok(verdicts.pop().unwrap_or_default())
    }

    /// Runs the hooks of an event for several inputs in parallel. Returns a verdict for each.
    pub(super) async fn run_hooks_for_all(
        &mut self,
        event: HookEvent,
        matters: Vec<HookInput>,
    ) -> Result<Vec<HookDecision>, CancelReason> {
        if !self.hooks.listen_to(event) {
            return Ok(vec![HookDecision::default(); matters.len()]);
        }
        let mut verdicts: Vec<Option<HookDecision>> = vec![None; matters.len()];
        let (cancel, began) = (CancellationToken::new(), self.monitor.clock.now());
        let mut telling = self.hooks.start_telling(matters, &cancel, &self.tools.toolbox);
        let mut vigil = self.monitor.begin();
        let figures = self.caller.turn_progress();
        let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
            watch.emit_heartbeat(vigil, WaitingFor::Hook { event }, figures, None);
        };
        loop {
            let next = next_word(&mut self.hooks.news, &mut telling);
            match self.monitor.wait_for(&mut vigil, show, next).await {
                Ok(HookSignal::News(news)) => self.monitor.emit(&RunEvent::Hook(Box::new(news))),
                Ok(HookSignal::Told(told)) => verdicts[told.0] = Some(told.1),
                Ok(HookSignal::Lost) => {}
                Ok(HookSignal::Silence) => break,
                Err(cut) => {
                    cancel.cancel();
                    self.start_shutdown(cut);
                    let ended = async {
                        while let Some(told) = telling.join_next().await {
                            verdicts.extend(told.ok().map(|(_, verdict)| Some(verdict)));
                        }
                    };
                    // Hooks that do not end in time are killed when they are dropped.
                    let in_time = timeout(cancel_grace(cut), ended).await.is_ok();
                    self.hooks.tally.waited += began.until(self.monitor.clock.now());
                    self.hooks.emit_hook_events(&mut self.monitor);
                    for verdict in verdicts.iter().flatten() {
                        let (conversation, monitor) = (&self.conversation, &mut self.monitor);
                        self.hooks.record_verdict(event, verdict, conversation, monitor);
                    }
                    if !in_time {
                        self.hooks.note_cut(
                            event,
                            "one that did not end by itself",
                            &self.conversation,
                        );
                    }
                    return Err(cut);
                }
            }
        }
        self.hooks.tally.waited += began.until(self.monitor.clock.now());
        let hooks = self.hooks.hooks.clone();
        let break_down =
            || hooks.as_ref().map(|hooks| hooks.decision_after_crash(event)).unwrap_or_default();
        let verdicts: Vec<HookDecision> =
            verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(break_down)).collect();
        for verdict in &verdicts {
            self.hooks.record_verdict(event, verdict, &self.conversation, &mut self.monitor);
        }
        Ok(verdicts)
    }
}

/// What can arrive while hooks run.
enum HookSignal {
    News(HookProgress),
    /// A verdict for one of the inputs.
    Told(Box<(usize, HookDecision)>),
    /// A hook task ended without a verdict: a bug of outlast.
    Lost,
    /// All hooks have ended.
    Silence,
}

/// Waits for the next signal of a running hook. Cancel-safe.
async fn next_word(
    news: &mut Option<UnboundedReceiver<HookProgress>>,
    telling: &mut JoinSet<(usize, HookDecision)>,
) -> HookSignal {
    tokio::select! {
        biased;
        Some(news) = next_news(news) => HookSignal::News(news),
        told = telling.join_next() => match told {
            Some(Ok(told)) => HookSignal::Told(Box::new(told)),
            Some(Err(_)) => HookSignal::Lost,
            None => HookSignal::Silence,
        },
    }
}

/// The next event of a single hook, if events are reported.
async fn next_news(news: &mut Option<UnboundedReceiver<HookProgress>>) -> Option<HookProgress> {
    match news {
        Some(news) => news.recv().await,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objection_is_repeated_only_if_no_tool_was_called_in_between() {
        let say = |words: &str| Some(words.to_owned());
        let mut hooks = HookState::default();
        let story = [
            (say("tests fail"), 0, StopHookDecision::Block),
            (say("tests fail"), 1, StopHookDecision::Block),
            (say("tests fail"), 1, StopHookDecision::BlockAgain),
            (say("lint fails"), 1, StopHookDecision::Block),
            (None, 1, StopHookDecision::Pass),
            (say("lint fails"), 1, StopHookDecision::Block),
        ];
        for (words, tool_calls, wanted) in story {
            assert_eq!(
                hooks.record_objection(words.clone(), tool_calls),
                wanted,
                "{words:?} {tool_calls}"
            );
            assert_eq!(hooks.has_objection, words.is_some());
        }
    }
}
