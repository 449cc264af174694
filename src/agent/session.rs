//! The world of a run: performs the machine's actions, one arm per action.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::journal::{Journal, JournalHealth, MessageMeta};
use crate::mcp::Servers;
use crate::model::limits::SharedLimits;
use crate::model::{MalformedCall, ModelReply};
use crate::recovery::{
    Action, CallPurpose, Event, Fault, Limits, LoopDetector, Moment, Money, Nudge, Pause,
    RecoveryRecord, ReplyDisposition, ReplyKind, StopReason, Transition,
};
use crate::secrets::KnownSecrets;
use crate::tools::Toolbox;
use crate::transcript::{
    Block, History, Message, Role, ToolDefinition, describe_unknown_outcome, strip_thinking,
};

use super::accounting::Accounting;
use super::context::SummaryInProgress;
use super::conversation::{is_unsigned_thinking, open_calls, says_something, synthetic, text_of};
use super::delegate::AgentContext;
use super::drive::World;
use super::early_tools::EarlyTools;
use super::emitted_blocks::ToldBlocks;
use super::failed_checks::FailedChecks;
use super::final_text::FinalText;
use super::hooks::HookState;
use super::run_event::{Heartbeat, RunEvent, WaitingFor};
use super::run_monitor::{ProgressSnapshot, RunMonitor, WaitTimer};
use super::setup::ModelEndpoint;

/// A run in progress: the state that the machine's actions work on.
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(super) struct Session<'a> {
    pub(super) system: String,
    pub(super) definitions: Vec<ToolDefinition>,
    pub(super) endpoints: Vec<ModelEndpoint>,
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) servers: Arc<Servers>,
    /// The servers that the model was told are not connected yet.
    pub(super) awaited_servers: Vec<String>,
    pub(super) thinking: Option<u32>,
    pub(super) stream_events: bool,
    pub(super) history: History,
    pub(super) accounting: Accounting,
    /// The cost of the session before what the accounting covers.
    pub(super) cost_before: Money,
    pub(super) journal: Journal,
    pub(super) secrets: KnownSecrets,
    /// How many of the secrets the journal knows.
    pub(super) redacted_secrets: usize,
    pub(super) watch: RunMonitor<'a>,
    pub(super) hook_state: HookState,
    /// Whether an earlier process began the session.
    pub(super) is_resumed: bool,
    pub(super) early: EarlyTools,
    /// Concurrency permits for tools.
    pub(super) places: Arc<Semaphore>,
    /// The index of the model in use.
    pub(super) model_index: u8,
    /// The last reply, until the machine has decided about it.
    pub(super) pending: Option<ModelReply>,
    /// Calls of the last reply that are answered without being run.
    pub(super) malformed: Vec<MalformedCall>,
    /// The blocks of the streaming reply that were reported already.
    pub(super) emitted_blocks: ToldBlocks,
    /// Instruction files, and warnings about them, that were added already.
    pub(super) folder_notes_known: HashSet<String>,
    /// The facts of the last failure.
    pub(super) fault: Option<Fault>,
    /// When the service accepts requests again after its last fault, in Unix seconds.
    pub(super) retry_at: Option<u64>,
    pub(super) final_text: FinalText,
    pub(super) waiting: Option<AnnouncedWait>,
    /// Whether the last reply was a `pause_turn`, which is sent back as the last message.
    pub(super) paused: bool,
    /// Whether the loss of the journal was reported.
    pub(super) journal_loss_reported: bool,
    /// Rate limits that other runs on this host have met.
    pub(super) shared: Option<SharedLimits>,
    /// The message of an internal error.
    pub(super) broken: Option<String>,
    /// Whether a call was denied.
    pub(super) denied: bool,
    pub(super) limits: Limits,
    /// The context window of each model as far as it is known, in tokens.
    pub(super) windows: Vec<u64>,
    pub(super) summarising: Option<SummaryInProgress>,
    /// Whether thinking was removed from the history, here or in an earlier process.
    pub(super) thinking_stripped: bool,
    pub(super) loop_detector: LoopDetector,
    /// The failed checks of `--require`.
    pub(super) failed_checks: FailedChecks,
    /// Whether compaction had stopped helping when the run ended.
    pub(super) thrashed: bool,
    /// Whether the end of background commands was announced.
    pub(super) work_stop_announced: bool,
    /// The position of this run among the agents.
    pub(super) agent_context: AgentContext,
}

/// A retry wait that was announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnouncedWait {
    pause: Pause,
    pub(super) since: Moment,
    until: Moment,
}

/// Reports that a retry wait goes on.
pub(super) fn emit_wait_heartbeat(
    watch: &mut RunMonitor<'_>,
    waiting: Option<AnnouncedWait>,
    figures: ProgressSnapshot,
) {
    let Some(AnnouncedWait { pause, since, until }) = waiting else { return };
    let now = watch.clock.now();
    let elapsed = since.until(now);
    watch.emit(RunEvent::Heartbeat(Heartbeat {
        waiting_for: WaitingFor::Retry(pause),
        elapsed,
        ends_in: Some(now.until(until)),
        turn: figures.turn,
        waited_in_all: figures.waited + elapsed,
        spent: figures.spent,
        since_last_byte: None,
    }));
}

impl World for Session<'_> {
    fn now(&self) -> Moment {
        self.watch.clock.now()
    }

    fn record(&mut self, transition: &Transition) {
        self.show_tasks();
        self.edit(transition);
        let tally = &mut self.accounting.tally;
        let ended = tally.recovery.observe(transition, tally.turns);
        self.journal.transition(transition);
        self.journal.recoveries(&ended);
        self.report_journal_loss();
        let fault = matches!(transition.event, Event::Failed(_)).then_some(self.fault.as_ref());
        self.watch.emit(RunEvent::Step {
            transition: Box::new(*transition),
            fault: fault.flatten().cloned().map(Box::new),
        });
        if transition.next.model_index != self.model_index {
            self.switch_model(transition.next.model_index);
        }
        if matches!(transition.action, Action::Estimate { purpose: CallPurpose::Reply, .. }) {
            self.summarising = None;
        }
        self.thrashed = transition.next.gave_up_compacting();
        self.follow_wait(transition);
        self.tell_recoveries(ended);
    }

    async fn perform(&mut self, action: Action) -> Event {
        if !matches!(action, Action::Estimate { .. } | Action::Ask(_)) {
            self.accounting.turn = None;
        }
        match action {
            Action::Estimate { purpose, fast, .. } => {
                match self.run_post_compaction_hooks(purpose).await {
                    Ok(()) => {
                        self.join_tools();
                        if purpose == CallPurpose::Reply {
                            self.tell_of_late_servers();
                        }
                        self.estimate_in_turn(purpose, fast).await
                    }
                    Err(event) => event,
                }
            }
            Action::Ask(ask) => self.ask(ask).await,
            Action::Refresh => self.refresh().await,
            Action::RunTools => self.run_tools().await,
            Action::RunStopHooks => self.run_stop_hooks().await,
            Action::RunRequirement => self.check().await,
            Action::AwaitWork { until } => self.await_work(until).await,
            Action::Wait { until } => self.wait(until).await,
            Action::Probe { rung } => self.probe(rung).await,
            Action::Finish(_) => Event::InternalError,
        }
    }
}

impl Session<'_> {
    /// Applies what a step does to the conversation.
    fn edit(&mut self, transition: &Transition) {
        match transition.edit.reply {
            ReplyDisposition::Keep => self.keep_reply(transition.event),
            ReplyDisposition::Drop => self.drop_reply(),
            ReplyDisposition::Summary => self.compact(),
            ReplyDisposition::Absent => {}
        }
        if let Some(trim) = transition.edit.trim {
            self.trim(trim);
        }
        for nudge in [transition.edit.say, transition.edit.notice].into_iter().flatten() {
            self.add_nudge(nudge);
        }
    }

    /// Takes the pending reply into the history.
    fn keep_reply(&mut self, event: Event) {
        let Some(mut answer) = self.pending.take() else { return };
        self.malformed = std::mem::take(&mut answer.malformed);
        if !matches!(event, Event::Replied(ReplyKind::ToolCalls { .. })) {
            self.early.discard();
        }
        answer.content.retain(|block| !is_unsigned_thinking(block));
        self.accounting.tally.turns += 1;
        let model = self.endpoint().label.clone();
        self.accounting.tally.answered_by(&model);
        let text = text_of(&answer.content);
        let cut = matches!(event, Event::Replied(ReplyKind::CutShort(_)));
        self.final_text.record_reply(&text, cut, &answer.stop_reason);
        self.paused = event == Event::Replied(ReplyKind::Paused);
        if !answer.content.iter().any(says_something) {
            self.history.observe_usage(&answer.usage);
            self.drop_emitted_blocks();
            return;
        }
        let ids = self.emitted_blocks.ids_of(&answer.content);
        self.drop_emitted_blocks();
        let message = Arc::new(Message::assistant(answer.content));
        self.history.push_reply(Message::clone(&message), &answer.usage);
        self.journal.message(
            &message,
            &MessageMeta {
                id: Some(&answer.id),
                model: Some(&answer.model),
                stop_reason: Some(&answer.stop_reason),
                usage: Some(answer.usage),
                request_id: answer.request_id.as_deref(),
                detail: None,
                ids: &ids,
            },
        );
        self.watch.emit(RunEvent::Assistant {
            message,
            ids,
            id: answer.id,
            model: answer.model,
            stop_reason: Some(answer.stop_reason),
            usage: answer.usage,
            request_id: answer.request_id,
        });
    }

    /// Reports that emitted blocks are not part of the conversation.
    pub(super) fn drop_emitted_blocks(&mut self) {
        let ids = self.emitted_blocks.forget();
        if !ids.is_empty() {
            self.watch.emit(RunEvent::BlocksDropped { ids });
        }
    }

    /// Drops the pending reply. Only its usage is kept, for size estimates.
    fn drop_reply(&mut self) {
        self.drop_emitted_blocks();
        if let Some(answer) = self.pending.take() {
            self.history.observe_usage(&answer.usage);
        }
        self.early.discard();
    }

    /// Adds a nudge for the model.
    fn add_nudge(&mut self, nudge: Nudge) {
        let report = match nudge {
            Nudge::Unmet | Nudge::UnmetAgain | Nudge::UnmetLast => self.failed_checks.report.take(),
            Nudge::StopHookObjection => {
                self.hook_state.objection.as_ref().map(|objection| objection.words.clone())
            }
            Nudge::Continue(_)
            | Nudge::ContinueLast
            | Nudge::Complete(_)
            | Nudge::MoreEffort
            | Nudge::WrapUp
            | Nudge::LastTurn
            | Nudge::StepBack
            | Nudge::UseStructuredOutput
            | Nudge::WorkEnded
            | Nudge::StillRunning => self.work_report(nudge),
        };
        // In one block, which compaction recognises by its beginning.
        let text = match report {
            Some(report) => format!("{}\n\n{report}", nudge.text()),
            None => nudge.text().to_owned(),
        };
        self.add_user_message(vec![Block::text(text)], Vec::new());
    }

    /// Whether the model has to reply next.
    pub(super) fn waits_for_model(&self) -> bool {
        self.history.messages().last().is_some_and(|last| last.role == Role::User)
    }

    /// Adds the prompt. It is not reported: the user wrote it.
    pub(super) fn add_prompt(&mut self, prompt: Vec<Block>) {
        let message = Message::user(prompt);
        self.history.push(message.clone());
        self.journal.message(&message, &MessageMeta::default());
    }

    /// Adds a user message to the history.
    pub(super) fn add_user_message(&mut self, blocks: Vec<Block>, details: Vec<Value>) {
        self.paused = false;
        let message = Arc::new(Message::user(blocks));
        self.history.push(Message::clone(&message));
        let ids = self.journal.message(&message, &MessageMeta::default());
        self.watch.emit(RunEvent::User { message, details, ids });
    }

    /// Switches to another model. It did not sign the thinking in the history, which is removed.
    fn switch_model(&mut self, rung: u8) {
        let from = self.endpoint().label.clone();
        self.model_index = rung;
        let to = self.endpoint().label.clone();
        self.history.edit(strip_thinking);
        self.thinking_stripped = true;
        self.forget_summary_request();
        self.watch.emit(RunEvent::ModelSwitched { from, to });
    }

    /// The model in use. The chain is never empty and the machine never goes past its end; a wrong
    /// index means the last model.
    pub(super) fn endpoint(&self) -> &ModelEndpoint {
        self.endpoint_at(self.model_index)
    }

    pub(super) fn endpoint_at(&self, rung: u8) -> &ModelEndpoint {
        let last = self.endpoints.len() - 1;
        &self.endpoints[usize::from(rung).min(last)]
    }

    fn tell_recoveries(&mut self, ended: Vec<RecoveryRecord>) {
        for episode in ended {
            self.watch.emit(RunEvent::RecoveryEnds(Box::new(episode)));
        }
    }

    /// Reports each wait once when it begins or its end moves, with heartbeats while it lasts, and
    /// its end.
    fn follow_wait(&mut self, transition: &Transition) {
        let paused = transition.next.phase.pause();
        if let Some(waiting) = self.waiting {
            if paused.is_some_and(|(until, _)| until == waiting.until) {
                if transition.event == Event::WaitEnded && self.watch.is_silent() {
                    let figures = self.progress();
                    emit_wait_heartbeat(&mut self.watch, self.waiting, figures);
                }
                return;
            }
            self.waiting = None;
            let waited = waiting.since.until(transition.at);
            self.watch.emit(RunEvent::WaitEnds { pause: waiting.pause, waited });
        }
        let Some((until, pause)) = paused else { return };
        self.waiting = Some(AnnouncedWait { pause, since: transition.at, until });
        let (fault, spent) = (self.fault.clone().map(Box::new), self.progress().spent);
        self.watch.emit(RunEvent::WaitBegins { pause, until, now: transition.at, fault, spent });
    }

    /// Waits until `until`, or until the run is cut off. The machine cuts long waits into pieces no
    /// longer than a heartbeat.
    async fn wait(&mut self, until: Moment) -> Event {
        let (clock, waiting, figures) = (self.watch.clock, self.waiting, self.progress());
        let mut vigil = self.watch.begin();
        let woke = clock.sleep_until(until);
        let show = |watch: &mut RunMonitor<'_>, _: &WaitTimer| {
            emit_wait_heartbeat(watch, waiting, figures);
        };
        match self.watch.wait_for(&mut vigil, show, woke).await {
            Ok(()) => Event::WaitEnded,
            Err(cut) => cut.into(),
        }
    }

    pub(super) fn progress(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            turn: self.accounting.tally.turns + 1,
            waited: self.accounting.tally.recovery.totals().waited,
            spent: self.accounting.ledger.ledger().spent(),
        }
    }

    /// The progress of the turn of the last reply, if there was one.
    pub(super) fn turn_progress(&self) -> ProgressSnapshot {
        ProgressSnapshot { turn: self.accounting.tally.turns.max(1), ..self.progress() }
    }

    /// Leaves the history valid and the journal closed.
    pub(super) fn close(&mut self, reason: StopReason) {
        self.early.discard();
        self.accounting.turn = None;
        let open = open_calls(self.history.messages());
        if !open.is_empty() {
            self.accounting.tally.tools.abandoned += u32::try_from(open.len()).unwrap_or(u32::MAX);
            let text = if reason == StopReason::InternalError {
                // They may have begun: the internal error does not tell.
                self.accounting.tally.cut.extend(open.iter().map(describe_unknown_outcome));
                "Outcome unknown: outlast broke while this was asked for. Check before doing it \
                 again."
                    .to_owned()
            } else {
                format!("Not run: the run ended first ({}).", reason.name())
            };
            let results = open.into_iter().map(|call| synthetic(call.id, &text)).collect();
            self.add_user_message(results, Vec::new());
        }
        self.record_cut_work(reason);
        let ended = self.accounting.tally.recovery.end(self.watch.clock.now(), reason);
        self.journal.recoveries(&ended);
        self.journal.end(reason);
        self.report_journal_loss();
        self.tell_recoveries(ended);
    }

    /// Adds secrets that were fetched meanwhile to the journal's redaction.
    pub(super) fn redact_new_secrets(&mut self) {
        let count = self.secrets.count();
        if std::mem::replace(&mut self.redacted_secrets, count) != count {
            self.journal.redact(&self.secrets.plain_values());
        }
    }

    /// Warns once that the run goes on without a journal.
    fn report_journal_loss(&mut self) {
        let JournalHealth::Lost(why) = self.journal.health() else { return };
        if !std::mem::replace(&mut self.journal_loss_reported, true) {
            let warning = format!("the run goes on without a journal and cannot be resumed: {why}");
            self.watch.emit(RunEvent::Warning(warning));
        }
    }
}
