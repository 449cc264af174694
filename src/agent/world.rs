//! The world of a run: performs the machine's actions, one arm per action.

use serde_json::Value;

use crate::journal::{Journal, UndoneCalls};
use crate::process::Panic;
use crate::recovery::{
    Action, CallPurpose, Event, InvalidEvent, Limits, Moment, Nudge, RecoveryPlan, RecoveryRecord,
    ReplyDisposition, ReplyKind, StopReason, Transition, Trim,
};
use crate::secrets::Redactor;
use crate::text::shortened;
use crate::tools::{BackgroundKind, Toolbox};
use crate::transcript::{Block, describe_unknown_outcome};

use super::compactor::{Compactor, ContextView};
use super::conversation::Conversation;
use super::delegate::AgentContext;
use super::drive::World;
use super::failed_checks::FailedChecks;
use super::hook_runner::HookRunner;
use super::messages::{open_calls, synthetic};
use super::model_caller::ModelCaller;
use super::run_event::RunEvent;
use super::run_monitor::RunMonitor;
use super::tool_runner::ToolRunner;

/// A defect of this program that ended the run.
#[derive(Debug, thiserror::Error)]
pub(super) enum InternalError {
    #[error(transparent)]
    Panic(#[from] Panic),
    #[error(transparent)]
    InvalidEvent(#[from] InvalidEvent),
    #[error("the budget changed after the cost check")]
    BudgetChanged,
    #[error("a `--require` check was planned without a command")]
    NoRequirement,
}

/// Maximum length of the recorded message of an error, in characters.
const END_ERROR_MAX: usize = 500;

/// The warning of a compaction without a summary.
const UNSUMMARISED: &str =
    "the model gave no summary of the older messages, which were removed without one";
/// The warning that the last permitted summary before the window is full has failed.
const COMPACTION_OFF: &str = "several summaries in a row failed, so older messages are now \
     summarised only when the conversation no longer fits the context window";

/// A run in progress: the owners of its state, to which the machine's actions go.
pub(super) struct RunWorld<'a> {
    pub(super) conversation: Conversation,
    pub(super) journal: Journal,
    pub(super) caller: ModelCaller,
    pub(super) tools: ToolRunner,
    pub(super) hooks: HookRunner,
    pub(super) compactor: Compactor,
    /// The failed checks of `--require`.
    pub(super) failed_checks: FailedChecks,
    pub(super) monitor: RunMonitor<'a>,
    /// The position of this run among the agents.
    pub(super) context: AgentContext,
    pub(super) limits: Limits,
    pub(super) broken: Option<InternalError>,
    /// The turn whose outcome was reported before the run waited for sub-agents.
    pub(super) yielded_in_turn: Option<u32>,
}

impl World for RunWorld<'_> {
    fn now(&self) -> Moment {
        self.monitor.now()
    }

    /// Records a transition, in this order: older events of sub-agents are reported first; the
    /// edits of the conversation go to the journal before the transition; then the observer
    /// receives the step, and the state for the action is set. The journal may still be writing:
    /// the action waits for it before it has an effect.
    fn record(&mut self, transition: &Transition) {
        self.monitor.emit_inbox();
        self.journal.begin_step();
        self.edit(transition);
        self.conversation.publish_size(&self.caller.endpoint().label, self.caller.window());
        let ended = self.caller.record_transition(transition, self.limits.caps.floor);
        self.warn_of_kept_answer(transition);
        self.journal.transition(transition);
        self.record_reported_ends();
        self.monitor.report_journal_health(self.journal.health());
        let is_failure = matches!(transition.event, Event::Failed(_));
        let fault = self.caller.last_fault().filter(|_| is_failure).cloned().map(Box::new);
        self.monitor.emit(&RunEvent::Step { transition: Box::new(*transition), fault });
        self.switch_model(transition.next.model_index);
        if matches!(transition.action, Action::Estimate { purpose: CallPurpose::Reply, .. }) {
            self.compactor.end_summary();
        }
        if transition.disables_compaction() {
            self.monitor.emit(&RunEvent::Warning(COMPACTION_OFF.to_owned()));
        }
        let (progress, fault) = (self.caller.progress(), self.caller.last_fault());
        self.monitor.follow_wait(transition, progress, fault);
        self.record_recoveries(ended);
    }

    async fn perform(&mut self, action: Action) -> Event {
        if !matches!(action, Action::Estimate { .. } | Action::Ask(_)) {
            self.caller.accounting.release_turn();
        }
        // Tools wait for the records of their intents, and hooks wait by themselves. An estimate
        // has no effect.
        let checked = if matches!(action, Action::Estimate { .. } | Action::RunTools) {
            self.check_ownership()
        } else {
            self.await_journal_for_effect().await
        };
        if let Err(cut) = checked {
            return cut.into();
        }
        self.perform_unless_cut(action).await.unwrap_or_else(|event| event)
    }
}

impl<'a> RunWorld<'a> {
    /// Puts the owners of an agent's state together, and offers its tools to the model.
    pub(super) fn new(
        context: AgentContext,
        limits: Limits,
        (conversation, journal): (Conversation, Journal),
        caller: ModelCaller,
        tools: ToolRunner,
        hooks: HookRunner,
        monitor: RunMonitor<'a>,
    ) -> Self {
        report_commands(tools.toolbox(), &monitor);
        let mut world = Self {
            conversation,
            journal,
            caller,
            tools,
            hooks,
            compactor: Compactor::default(),
            failed_checks: FailedChecks::default(),
            monitor,
            context,
            limits,
            broken: None,
            yielded_in_turn: None,
        };
        world.journal.start_thread();
        world.offer_tools();
        world.conversation.set_fixed_bytes(world.caller.fixed_bytes());
        world
    }
}

/// Reports the background commands of the run.
fn report_commands(toolbox: &Toolbox, monitor: &RunMonitor<'_>) {
    let sender = monitor.sender();
    toolbox.background().report_to(move |task| {
        if task.kind == BackgroundKind::Command {
            // The receiver is gone once the run is over.
            let _ = sender.send(RunEvent::Task(Box::new(task)));
        }
    });
}

impl RunWorld<'_> {
    /// Performs an action.
    ///
    /// # Errors
    /// The event that comes instead of a result: the run was cut off, or a hook prevents the
    /// action.
    async fn perform_unless_cut(&mut self, action: Action) -> Result<Event, Event> {
        Ok(match action {
            Action::Estimate { purpose, fast, .. } => {
                self.run_post_compaction_hooks(purpose).await?;
                self.await_tool_lists().await;
                self.join_tools();
                if purpose == CallPurpose::Reply {
                    self.report_late_servers();
                }
                Event::Estimated(self.estimate_in_turn(purpose, fast).await?)
            }
            Action::Ask(call) => self.ask(call).await?,
            Action::Refresh => self.caller.refresh(&mut self.monitor).await?,
            Action::RunTools => self.run_tools().await,
            Action::RunStopHooks => self.run_stop_hooks().await?,
            Action::RunRequirement => self.check().await?,
            Action::AwaitWork { until } => self.await_work(until).await?,
            Action::Wait { until } => self.monitor.wait(until, self.caller.progress()).await?,
            Action::Probe { model_index } => {
                let Self { caller, limits, journal, monitor, .. } = self;
                Event::Probed(caller.probe(model_index, limits, journal, monitor).await?)
            }
            Action::Finish(_) => Event::InternalError,
        })
    }

    /// Applies the changes that a step makes to the conversation.
    fn edit(&mut self, transition: &Transition) {
        match transition.edit.reply {
            ReplyDisposition::Keep => self.keep_reply(transition.event),
            ReplyDisposition::Drop => self.drop_reply(),
            ReplyDisposition::Summary => {
                self.compact(transition.plan == Some(RecoveryPlan::CompactUnsummarised));
            }
            ReplyDisposition::Absent => {}
        }
        if let Some(trim) = transition.edit.trim {
            self.trim(trim);
        }
        for nudge in [transition.edit.say, transition.edit.notice].into_iter().flatten() {
            self.add_nudge(nudge);
        }
    }

    /// Returns the parts of the run that its requests are made of.
    pub(super) fn context_view(&mut self) -> ContextView<'_> {
        ContextView {
            compactor: &mut self.compactor,
            conversation: &mut self.conversation,
            journal: &mut self.journal,
            caller: &mut self.caller,
            limits: &self.limits,
        }
    }

    /// Removes or repairs what the service refuses.
    fn trim(&mut self, trim: Trim) {
        let is_block = trim == Trim::Block;
        let tools = if is_block { self.caller.leave_out_refused_tools() } else { Vec::new() };
        if tools.is_empty() {
            return self.context_view().trim(trim);
        }
        self.conversation.set_fixed_bytes(self.caller.fixed_bytes());
        for tool in tools {
            let warning =
                format!("the service refuses the definition of the tool {tool}, which is left out");
            self.monitor.emit(&RunEvent::Warning(warning));
        }
    }

    /// Replaces the older part of the conversation by the summary, or by a note that there is none.
    fn compact(&mut self, is_unsummarised: bool) {
        if is_unsummarised {
            self.compactor.drop_summary();
            self.monitor.emit(&RunEvent::Warning(UNSUMMARISED.to_owned()));
        }
        let Some((before, after)) = self.context_view().compact() else { return };
        self.tools.record_compaction();
        self.hooks.record_compaction();
        self.monitor.emit(&RunEvent::Compacted { before, after });
    }

    /// Adds the pending reply to the history.
    fn keep_reply(&mut self, event: Event) {
        let Some(mut reply) = self.conversation.take_held_reply() else { return };
        let has_calls = matches!(event, Event::Replied(ReplyKind::ToolCalls { .. }));
        if has_calls && self.caller.record_arguments(&reply, &self.limits) {
            let warning =
                "the arguments of tool calls are lost in streams: asking without streaming";
            self.monitor.emit(&RunEvent::Warning(warning.to_owned()));
        }
        self.tools.take_malformed(&mut reply, has_calls);
        self.caller.record_turn();
        let is_paused = event == Event::Replied(ReplyKind::Paused);
        let spent = self.caller.progress().spent;
        let Self { conversation, journal, monitor, .. } = self;
        conversation.add_reply(reply, is_paused, spent, journal, monitor);
    }

    /// Drops the reply that streams or is pending, with the tools that it has started.
    pub(super) fn drop_reply(&mut self) {
        self.conversation.drop_reply(&mut self.monitor);
        self.tools.early.discard();
    }

    fn add_nudge(&mut self, nudge: Nudge) {
        let report = match nudge {
            Nudge::Unmet | Nudge::UnmetAgain | Nudge::UnmetLast => self.failed_checks.take_report(),
            Nudge::StopHookObjection => self.hooks.objection().map(str::to_owned),
            Nudge::LeftOpen => Some(self.conversation.left_open.describe()),
            Nudge::Continue(_)
            | Nudge::ContinueLast
            | Nudge::Complete(_)
            | Nudge::EmptyReply
            | Nudge::MoreEffort
            | Nudge::WrapUp
            | Nudge::LastTurn
            | Nudge::StepBack
            | Nudge::UseStructuredOutput
            | Nudge::WorkEnded
            | Nudge::StillRunning => self.tools.work_report(nudge),
        };
        // In one block, which compaction recognises by its beginning.
        let text = match report {
            Some(report) => format!("{}\n\n{report}", nudge.text()),
            None => nudge.text().to_owned(),
        };
        self.add_text(text);
    }

    /// Switches to another model, unless it is in use. The thinking in the history is removed:
    /// another model has signed it.
    fn switch_model(&mut self, model_index: u8) {
        let Some((from, to)) = self.caller.switch_to(model_index) else { return };
        self.conversation.adapt_to_other_model();
        self.compactor.forget_summary_request();
        self.monitor.emit(&RunEvent::ModelSwitched { from, to });
    }

    pub(super) fn add_user_message(&mut self, blocks: Vec<Block>, details: Vec<Value>) {
        let Self { conversation, journal, monitor, .. } = self;
        conversation.add_user_message(blocks, details, journal, monitor);
    }

    pub(super) fn add_text(&mut self, text: String) {
        self.add_user_message(vec![Block::text(text)], Vec::new());
    }

    /// Records recoveries that have ended, and reports them.
    fn record_recoveries(&mut self, ended: Vec<RecoveryRecord>) {
        self.journal.recoveries(&ended);
        for record in ended {
            self.monitor.emit(&RunEvent::RecoveryEnds(Box::new(record)));
        }
    }

    /// Answers open calls, so that the history is valid, and records the end of the run.
    pub(super) fn close(&mut self, reason: StopReason) {
        self.warn_of_open_work(reason);
        self.tools.early.discard();
        self.record_agents_denials();
        self.caller.accounting.release_turn();
        let mut open = open_calls(self.conversation.messages());
        if reason == StopReason::ToolDeferred {
            // The deferred call stays open: the resumed run decides on it.
            open.clear();
        }
        if !open.is_empty() {
            let abandoned = open.iter().map(|call| call.id.clone()).collect();
            let undone = UndoneCalls { abandoned, ..UndoneCalls::default() };
            self.journal.undone_calls(undone);
            let text = if reason == StopReason::InternalError {
                // The calls may have begun: the internal error does not show it.
                self.caller.accounting.record_cut(open.iter().map(describe_unknown_outcome));
                "Outcome unknown: outlast failed while this call was open. Check before doing it \
                 again."
                    .to_owned()
            } else {
                format!("Not run: the run ended first ({}).", reason.name())
            };
            let results = open.into_iter().map(|call| synthetic(call.id, &text)).collect();
            self.add_user_message(results, Vec::new());
        }
        self.add_interruption_notice(reason);
        self.record_cut_work(reason);
        let ended = self.caller.accounting.end_recoveries(self.monitor.now(), reason);
        self.record_recoveries(ended);
        let error = self.end_error(reason);
        self.journal.end(reason, error);
        self.monitor.report_journal_health(self.journal.health());
    }

    /// Returns the message of the service or of the defect that ended the run, for reports.
    pub(super) fn end_error(&self, reason: StopReason) -> Option<String> {
        let last = self.caller.last_failure().filter(|_| reason.info().reports_last_fault);
        let error = last.map(|last| last.fault.summary());
        let error = error.or_else(|| Some(self.broken.as_ref()?.to_string()));
        // Redacted before it is cut: a part of a secret would not be recognized.
        let redactor = Redactor::new(self.context.deps.secrets.clone());
        let error = redactor.redact(&error.filter(|error| !error.is_empty())?);
        Some(shortened(&error, END_ERROR_MAX, "..."))
    }
}
