//! The world of a run: performs the machine's actions, one arm per action.

use std::sync::Arc;

use crate::journal::{MessageMeta, UndoneCalls};
use crate::recovery::{
    Action, CallPurpose, Event, Interrupt, Limits, LoopDetector, Moment, Nudge, RecoveryRecord,
    ReplyDisposition, ReplyKind, StopReason, Transition,
};
use crate::tools::{BackgroundKind, Toolbox};
use crate::transcript::{Block, Message, describe_unknown_outcome, strip_thinking};

use super::compactor::{Compactor, ContextView};
use super::context_gauge::ContextSize;
use super::conversation::Conversation;
use super::delegate::AgentContext;
use super::drive::World;
use super::failed_checks::FailedChecks;
use super::final_reply::LeftOpen;
use super::hook_runner::HookRunner;
use super::messages::{is_unsigned_thinking, open_calls, says_something, synthetic};
use super::model_caller::ModelCaller;
use super::run_event::RunEvent;
use super::run_monitor::RunMonitor;
use super::tool_runner::ToolRunner;

/// A run in progress: the owners of its state, to which the machine's actions go.
pub(super) struct RunWorld<'a> {
    pub(super) conversation: Conversation,
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
    /// True if an earlier process began the session.
    pub(super) is_resumed: bool,
    /// The message of an internal error.
    pub(super) broken: Option<String>,
    /// Work that the last reply left open.
    pub(super) left_open: LeftOpen,
    /// The turn whose outcome was reported before the run waited for sub-agents.
    pub(super) yielded_in_turn: Option<u32>,
}

impl World for RunWorld<'_> {
    fn now(&self) -> Moment {
        self.monitor.clock.now()
    }

    fn record(&mut self, transition: &Transition) {
        self.monitor.emit_inbox();
        self.conversation.journal.begin_step();
        self.edit(transition);
        self.show_size();
        let ended = self.caller.accounting.record_transition(transition);
        self.conversation.journal.transition(transition);
        self.record_reported_ends();
        self.conversation.report_journal_loss(&mut self.monitor);
        let fault =
            matches!(transition.event, Event::Failed(_)).then_some(self.caller.last_fault());
        self.monitor.emit(&RunEvent::Step {
            transition: Box::new(*transition),
            fault: fault.flatten().cloned().map(Box::new),
        });
        if transition.next.model_index != self.caller.model_index {
            self.switch_model(transition.next.model_index);
        }
        if matches!(transition.action, Action::Estimate { purpose: CallPurpose::Reply, .. }) {
            self.compactor.summarising = None;
        }
        self.compactor.thrashed = transition.next.gave_up_compacting();
        self.caller.met.quota_ended = transition.next.quota_ended;
        if let Event::Estimated(estimate) = transition.event {
            self.caller.met.shortfall = estimate.shortfall(self.limits.caps.floor);
        }
        let (progress, fault) = (self.caller.progress(), self.caller.last_fault());
        self.monitor.follow_wait(transition, progress, fault);
        self.record_recoveries(ended);
    }

    async fn perform(&mut self, action: Action) -> Event {
        if !matches!(action, Action::Estimate { .. } | Action::Ask(_)) {
            self.caller.accounting.release_turn();
        }
        if self.conversation.is_taken_over() {
            return Event::Interrupted(Interrupt::SessionTakenOver);
        }
        match action {
            Action::Estimate { purpose, fast, .. } => {
                match self.run_post_compaction_hooks(purpose).await {
                    Ok(()) => {
                        self.await_tool_lists().await;
                        self.join_tools();
                        if purpose == CallPurpose::Reply {
                            self.report_late_servers();
                        }
                        self.estimate_in_turn(purpose, fast).await
                    }
                    Err(event) => event,
                }
            }
            Action::Ask(ask) => self.ask(ask).await,
            Action::Refresh => self.caller.refresh(&mut self.conversation, &mut self.monitor).await,
            Action::RunTools => self.run_tools().await,
            Action::RunStopHooks => self.run_stop_hooks().await,
            Action::RunRequirement => self.check().await,
            Action::AwaitWork { until } => self.await_work(until).await,
            Action::Wait { until } => self.monitor.wait(until, self.caller.progress()).await,
            Action::Probe { model_index } => {
                self.caller
                    .probe(model_index, &self.limits, &mut self.conversation, &mut self.monitor)
                    .await
            }
            Action::Finish(_) => Event::InternalError,
        }
    }
}

impl<'a> RunWorld<'a> {
    /// Puts the owners of an agent's state together, and offers its tools to the model.
    pub(super) fn new(
        context: AgentContext,
        limits: Limits,
        conversation: Conversation,
        caller: ModelCaller,
        tools: ToolRunner,
        hooks: HookRunner,
        monitor: RunMonitor<'a>,
    ) -> Self {
        report_commands(&tools.toolbox, &monitor);
        let mut world = Self {
            is_resumed: !conversation.messages().is_empty(),
            conversation,
            caller,
            tools,
            hooks,
            compactor: Compactor::default(),
            failed_checks: FailedChecks::default(),
            monitor,
            context,
            limits,
            broken: None,
            left_open: LeftOpen::default(),
            yielded_in_turn: None,
        };
        let definitions = world.select_tools();
        world.offer_tools(definitions);
        world
    }
}

/// Reports the background commands of the run.
fn report_commands(toolbox: &Toolbox, monitor: &RunMonitor<'_>) {
    let post = monitor.post.clone();
    toolbox.report_tasks_to(move |task| {
        if task.kind == BackgroundKind::Command {
            // The receiver is gone once the run is over.
            let _ = post.send(RunEvent::Task(Box::new(task)));
        }
    });
}

impl RunWorld<'_> {
    /// Publishes the size of the conversation to a host.
    fn show_size(&self) {
        let Conversation { history, gauge, last_usage, .. } = &self.conversation;
        gauge.set(ContextSize {
            messages: history.estimate().saturating_sub(history.fixed()),
            model: self.caller.endpoint().label.clone(),
            window: self.caller.window(),
            last_usage: *last_usage,
        });
    }

    /// Applies the changes that a step makes to the conversation.
    fn edit(&mut self, transition: &Transition) {
        match transition.edit.reply {
            ReplyDisposition::Keep => self.keep_reply(transition.event),
            ReplyDisposition::Drop => self.drop_reply(),
            ReplyDisposition::Summary => self.compact(),
            ReplyDisposition::Absent => {}
        }
        if let Some(trim) = transition.edit.trim {
            self.context_view().trim(trim);
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
            caller: &mut self.caller,
            limits: &self.limits,
        }
    }

    /// Replaces the older part of the conversation by the summary.
    fn compact(&mut self) {
        let Some((before, after)) = self.context_view().compact() else { return };
        // After a compaction, a model may legitimately repeat calls whose results it has forgotten.
        self.tools.loop_detector = LoopDetector::default();
        self.hooks.record_compaction();
        self.monitor.emit(&RunEvent::Compacted { before, after });
    }

    /// Adds the pending reply to the history.
    fn keep_reply(&mut self, event: Event) {
        let Some(mut answer) = self.conversation.pending.take() else { return };
        self.tools.malformed = std::mem::take(&mut answer.malformed);
        if !matches!(event, Event::Replied(ReplyKind::ToolCalls { .. })) {
            self.tools.early.discard();
        }
        answer.content.retain(|block| !is_unsigned_thinking(block));
        let model = self.caller.endpoint().label.clone();
        self.caller.accounting.record_turn(&model);
        self.conversation.paused = event == Event::Replied(ReplyKind::Paused);
        if !answer.content.iter().any(says_something) {
            self.conversation.history.observe_usage(&answer.usage);
            self.conversation.drop_emitted_blocks(&mut self.monitor);
            return;
        }
        let ids = self.conversation.emitted_blocks.ids_of(&answer.content);
        self.conversation.drop_emitted_blocks(&mut self.monitor);
        let message = Arc::new(Message::assistant(answer.content));
        self.conversation.last_usage = Some(answer.usage);
        self.conversation.history.push_reply(Message::clone(&message), &answer.usage);
        self.conversation.journal.message(
            &message,
            &MessageMeta {
                id: Some(&answer.id),
                model: Some(&answer.model),
                stop_reason: Some(&answer.stop_reason),
                usage: Some(answer.usage),
                request_id: answer.request_id.as_deref(),
                ids: &ids,
                ..MessageMeta::default()
            },
        );
        self.monitor.emit(&RunEvent::Assistant {
            message,
            ids,
            id: answer.id,
            model: answer.model,
            stop_reason: Some(answer.stop_reason),
            usage: answer.usage,
            request_id: answer.request_id,
            spent: self.caller.progress().spent,
        });
    }

    /// Drops the pending reply. Only its usage is kept, for size estimates.
    fn drop_reply(&mut self) {
        self.conversation.drop_emitted_blocks(&mut self.monitor);
        if let Some(answer) = self.conversation.pending.take() {
            self.conversation.history.observe_usage(&answer.usage);
        }
        self.tools.early.discard();
    }

    /// Adds a nudge for the model.
    fn add_nudge(&mut self, nudge: Nudge) {
        let report = match nudge {
            Nudge::Unmet | Nudge::UnmetAgain | Nudge::UnmetLast => self.failed_checks.report.take(),
            Nudge::StopHookObjection => {
                self.hooks.objection.as_ref().map(|objection| objection.words.clone())
            }
            Nudge::LeftOpen => Some(self.left_open.describe()),
            Nudge::Continue(_)
            | Nudge::ContinueLast
            | Nudge::Complete(_)
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
        self.conversation.add_user_message(vec![Block::text(text)], Vec::new(), &mut self.monitor);
    }

    /// Switches to another model. It did not sign the thinking in the history, which is removed.
    fn switch_model(&mut self, model_index: u8) {
        let from = self.caller.endpoint().label.clone();
        self.caller.model_index = model_index;
        let to = self.caller.endpoint().label.clone();
        self.conversation.history.edit(strip_thinking);
        self.conversation.thinking_stripped = true;
        self.compactor.forget_summary_request();
        self.monitor.emit(&RunEvent::ModelSwitched { from, to });
    }

    /// Records recoveries that have ended, and reports them.
    fn record_recoveries(&mut self, ended: Vec<RecoveryRecord>) {
        self.conversation.journal.recoveries(&ended);
        for record in ended {
            self.monitor.emit(&RunEvent::RecoveryEnds(Box::new(record)));
        }
    }

    /// Leaves the history valid and the journal closed.
    pub(super) fn close(&mut self, reason: StopReason) {
        self.warn_of_open_work(reason);
        self.tools.early.discard();
        self.record_agents_denials();
        self.caller.accounting.release_turn();
        let mut open = open_calls(self.conversation.messages());
        if reason == StopReason::ToolDeferred {
            // A resume decides on it.
            open.clear();
        }
        if !open.is_empty() {
            let abandoned = open.iter().map(|call| call.id.clone()).collect();
            let undone = UndoneCalls { abandoned, ..UndoneCalls::default() };
            self.conversation.journal.undone_calls(undone);
            let text = if reason == StopReason::InternalError {
                // They may have begun: the internal error does not show it.
                self.caller.accounting.record_cut(open.iter().map(describe_unknown_outcome));
                "Outcome unknown: outlast broke while this was asked for. Check before doing it \
                 again."
                    .to_owned()
            } else {
                format!("Not run: the run ended first ({}).", reason.name())
            };
            let results = open.into_iter().map(|call| synthetic(call.id, &text)).collect();
            self.conversation.add_user_message(results, Vec::new(), &mut self.monitor);
        }
        self.record_cut_work(reason);
        let ended = self.caller.accounting.end_recoveries(self.monitor.clock.now(), reason);
        self.record_recoveries(ended);
        self.conversation.journal.end(reason);
        self.conversation.report_journal_loss(&mut self.monitor);
    }
}
