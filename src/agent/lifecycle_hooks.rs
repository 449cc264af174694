//! Lifecycle hooks: events of the session rather than of a tool.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::hooks::{HOOK_TEXT_MAX, HookDecision, HookEvent};
use crate::journal::ContentForm;
use crate::recovery::{
    CallPurpose, CompactionTrigger, ErrorClass, Event, StopHookDecision, StopReason,
};
use crate::text::shortened;
use crate::transcript::Block;

use super::hook_runner::{HookInput, HookPeers, HookRunner};
use super::journal_waits::ANSWER_MAX;
use super::run_event::RunEvent;
use super::run_monitor::CancelReason;
use super::setup::Prompt;
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

/// Time limit for all hooks of a session's end after an interrupt: the process has four seconds for
/// everything.
const END_HOOKS_INTERRUPTED: Duration = Duration::from_secs(2);

/// Time limit for all hooks of a session's end after the deadline or a denial, with two seconds for
/// everything.
const END_HOOKS_LATE: Duration = Duration::from_secs(1);

/// Time limit for saving a long text of a hook.
const SAVE_LIMIT: Duration = Duration::from_secs(5);

impl<'a> RunWorld<'a> {
    /// Runs the hooks for the start of the session and for the prompt, and adds the prompt.
    /// `source` is the reason of the start.
    ///
    /// # Errors
    /// The event with which the run ends instead.
    pub(super) async fn begin(&mut self, mut prompt: Prompt, source: &str) -> Result<(), Event> {
        let mut blocks = match self.start_session(source).await {
            Ok(blocks) => blocks,
            Err(event) => {
                // With such hooks, the prompt is not kept: none has checked it.
                let is_unchecked = self.hooks.listen_to(HookEvent::UserPromptSubmit);
                let is_kept = event != Event::HookStopped && !is_unchecked;
                if is_kept && !prompt.content.is_empty() {
                    self.conversation.add_prompt(prompt, &mut self.journal);
                }
                return Err(event);
            }
        };
        if !prompt.content.is_empty() {
            let texts: Vec<&str> = prompt.content.iter().filter_map(Block::as_text).collect();
            let text = texts.join("\n");
            let event = HookEvent::UserPromptSubmit;
            let input = HookInput::of(event, "", json!({ "prompt": text }));
            let decision = self.run_hooks(input).await.map_err(Event::from)?;
            if let Some(why) = decision.halt.as_ref().or(decision.objection.as_ref()) {
                self.hooks.halt(event, why, &self.conversation);
                return Err(Event::HookStopped);
            }
            blocks.extend(self.conversation.hook_blocks(&decision));
            let hidden = decision.hides_prompt && !blocks.is_empty();
            if hidden {
                prompt.content.clear();
                prompt.attached.clear();
                // What follows is not a text of the user.
                prompt.form = ContentForm::Blocks;
            }
            prompt.attached.extend(blocks);
            self.conversation.add_prompt(prompt, &mut self.journal);
        } else if !blocks.is_empty() && self.conversation.waits_for_model() {
            self.add_user_message(blocks, Vec::new());
        }
        Ok(())
    }

    /// Runs the hooks for the start of the session, unless an earlier run of the process has: its
    /// exports apply to this run too.
    async fn start_session(&mut self, source: &str) -> Result<Vec<Block>, Event> {
        let deps = Arc::clone(&self.context.deps);
        let is_of_session = self.hooks.opening() == HookEvent::SessionStart;
        let Some(lifecycle) = deps.lifecycle.as_ref().filter(|_| is_of_session) else {
            return self.session_starts(source).await;
        };
        if let Some(exports) = lifecycle.begin(deps.hooks.as_ref()) {
            self.tools.toolbox().adopt_exports(exports);
            return Ok(Vec::new());
        }
        let blocks = self.session_starts(lifecycle.source().unwrap_or(source)).await?;
        lifecycle.record_start();
        Ok(blocks)
    }

    async fn session_starts(&mut self, source: &str) -> Result<Vec<Block>, Event> {
        let event = self.hooks.opening();
        let input = if event == HookEvent::SubagentStart {
            HookInput::of(event, self.hooks.kind(), json!({}))
        } else {
            let model = self.caller.endpoint().label.clone();
            HookInput::of(event, source, json!({ "source": source, "model": model }))
        };
        let decision = self.run_hooks(input).await.map_err(Event::from)?;
        if self.hooks.record_halt(event, &decision, &self.conversation) {
            return Err(Event::HookStopped);
        }
        match &decision.exports {
            Some(Ok(text)) => self.take_exports(event, text).await?,
            Some(Err(why)) => self.skip_exports(&why.to_string()),
            None => {}
        }
        Ok(self.conversation.hook_blocks(&decision))
    }

    /// Passes the variables that hooks have exported on to later commands.
    async fn take_exports(&mut self, event: HookEvent, text: &str) -> Result<(), CancelReason> {
        let (toolbox, cancel) = (Arc::clone(self.tools.toolbox()), CancellationToken::new());
        let reading = self.hooks.exports(text, &toolbox, &cancel);
        let waiting_for = WaitingFor::Hook { event };
        let exports = match self.run_cancellable(waiting_for, &cancel, reading).await? {
            None => return Ok(()),
            Some(Ok(exports)) => exports,
            Some(Err(why)) => {
                self.skip_exports(&why.to_string());
                return Ok(());
            }
        };
        let redactor = self.conversation.redactor();
        let (open, secret): (Vec<_>, Vec<_>) =
            exports.into_iter().partition(|(_, value)| redactor.redact(value) == *value);
        if event == HookEvent::SessionStart
            && let Some(lifecycle) = &self.context.deps.lifecycle
        {
            lifecycle.keep_exports(&open);
        }
        let mut hidden: Vec<String> = secret.into_iter().map(|(name, _)| name).collect();
        hidden.extend(toolbox.adopt_exports(open));
        if !hidden.is_empty() {
            let why = format!("{}: no command sees credentials of the run", hidden.join(", "));
            self.skip_exports(&why);
        }
        Ok(())
    }

    fn skip_exports(&mut self, why: &str) {
        let why = self.conversation.hook_text(why);
        let warning = format!("what a hook wrote to CLAUDE_ENV_FILE has no effect: {why}");
        self.monitor.emit(&RunEvent::Warning(warning));
    }

    /// Runs the session hooks after a compaction, since the context that they add may be gone.
    ///
    /// # Errors
    /// The event with which the run ends instead.
    pub(super) async fn run_post_compaction_hooks(
        &mut self,
        purpose: CallPurpose,
    ) -> Result<(), Event> {
        if purpose != CallPurpose::Reply || !self.hooks.take_restart() {
            return Ok(());
        }
        let blocks = self.session_starts("compact").await?;
        if !blocks.is_empty() {
            self.add_user_message(blocks, Vec::new());
        }
        Ok(())
    }

    /// Runs the `PreCompact` hooks once before a compaction.
    ///
    /// # Errors
    /// The event that results instead: a hook objects, or stops the run.
    pub(super) async fn before_compaction(&mut self, why: CompactionTrigger) -> Result<(), Event> {
        if self.hooks.has_agreed_to_compaction() {
            self.hooks.agree_to_compaction(why);
            return Ok(());
        }
        let event = HookEvent::PreCompact;
        let fields = json!({ "trigger": "auto", "custom_instructions": "" });
        let decision = self.run_hooks(HookInput::of(event, "auto", fields)).await?;
        if self.hooks.record_halt(event, &decision, &self.conversation) {
            return Err(Event::HookStopped);
        }
        if let Some(why) = &decision.objection {
            let warning = format!(
                "a PreCompact hook objects, so the conversation is not compacted: {}",
                self.conversation.hook_text(why)
            );
            self.monitor.emit(&RunEvent::Warning(warning));
            return Err(Event::SummaryPrevented);
        }
        self.hooks.agree_to_compaction(why);
        Ok(())
    }

    /// Runs the Stop hooks.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn run_stop_hooks(&mut self) -> Result<Event, CancelReason> {
        let event = self.hooks.closing();
        let fields = json!({
            "stop_hook_active": self.hooks.has_objection(),
            "last_assistant_message": self.journal.recorded().last_words(),
            "background_tasks": self.running(),
            "session_crons": [],
        });
        let kind = self.hooks.kind().to_owned();
        let decision = self.run_hooks(HookInput::of(event, &kind, fields)).await?;
        if self.hooks.record_halt(event, &decision, &self.conversation) {
            return Ok(Event::Consulted(StopHookDecision::Halt));
        }
        let texts = decision.objection.iter().chain(&decision.context);
        let texts: Vec<_> = texts.map(|text| self.conversation.hook_text(text)).collect();
        let objection = (!texts.is_empty()).then(|| texts.join("\n\n"));
        let tool_calls = self.journal.recorded().tools().calls;
        Ok(Event::Consulted(self.hooks.record_objection(objection, tool_calls)))
    }

    /// Returns the background commands that are running.
    fn running(&self) -> Vec<Value> {
        let tasks = self.tools.toolbox().background().tasks().into_iter();
        let running = tasks.filter(|task| task.end.is_none()).map(|task| {
            json!({
                "id": task.id,
                "type": "shell",
                "status": "running",
                "description": task.description.unwrap_or_default(),
                "command": task.command,
            })
        });
        running.collect()
    }

    /// Runs the Notification hooks: the user has to act.
    pub(super) async fn notify(&mut self, kind: &str, message: &str) -> Result<(), CancelReason> {
        let event = HookEvent::Notification;
        let fields = json!({ "message": message, "title": "outlast", "notification_type": kind });
        let decision = self.run_hooks(HookInput::of(event, kind, fields)).await?;
        self.hooks.record_halt(event, &decision, &self.conversation);
        self.hooks.add_context(&decision.context, &self.conversation);
        Ok(())
    }

    /// Runs the hooks for the end of the run and, if no other run of the process follows, of the
    /// session. Their answers do not change the end, and their time is limited by that of the end.
    pub(super) async fn run_end_hooks(&mut self, reason: StopReason) {
        let info = reason.info();
        if let Some(error) = info.service_failure {
            let details = self.caller.last_fault().map(|fault| fault.detail().to_owned());
            let fields = json!({
                "error": error,
                "error_details": details,
                "last_assistant_message": self.journal.recorded().last_words(),
            });
            let mut input = HookInput::of(HookEvent::StopFailure, error, fields);
            input.context.alias = info.error_class.map(ErrorClass::name);
            let _ = self.run_hooks(input).await;
        }
        let event = HookEvent::SessionEnd;
        if self.context.deps.lifecycle.is_some() || !self.hooks.listen_to(event) {
            return;
        }
        let input = HookInput::of(event, "other", json!({ "reason": "other" }));
        // A hook may read the journal.
        let settled = self.await_journal().await;
        let Some((since, cut)) = self.monitor.cut() else {
            let _ = self.run_hooks(input).await;
            return;
        };
        let most = match cut {
            CancelReason::Interrupt(_) => END_HOOKS_INTERRUPTED,
            CancelReason::Deadline | CancelReason::Denial => END_HOOKS_LATE,
        };
        let end = since + most;
        if settled.is_err() {
            // The hooks need a part of the time. Whether the journal is lost is decided later.
            let limit = end.saturating_duration_since(Instant::now()) / 2;
            let _ = timeout(limit, self.journal.flush(ANSWER_MAX)).await;
        }
        let (hooks, peers) = self.hooks_and_peers();
        hooks.run_until(input, end, peers).await;
    }

    /// Runs the hooks of an event.
    pub(super) async fn run_hooks(
        &mut self,
        input: HookInput,
    ) -> Result<HookDecision, CancelReason> {
        let event = input.context.event;
        let mut decisions = self.run_hooks_for_all(event, vec![input]).await?;
        Ok(decisions.pop().unwrap_or_default())
    }

    /// Runs the hooks of an event for several inputs in parallel. Returns a decision for each.
    pub(super) async fn run_hooks_for_all(
        &mut self,
        event: HookEvent,
        inputs: Vec<HookInput>,
    ) -> Result<Vec<HookDecision>, CancelReason> {
        if self.hooks.listen_to(event) {
            // A hook may read the journal.
            self.await_journal_for_effect().await?;
        }
        let (hooks, peers) = self.hooks_and_peers();
        let mut decisions = hooks.run_all(event, inputs, peers).await?;
        for text in decisions.iter_mut().flat_map(HookDecision::texts_for_model) {
            if text.chars().nth(HOOK_TEXT_MAX).is_some() {
                let words = self.conversation.hook_text(text);
                let saved = self.tools.toolbox().beginning(&words, HOOK_TEXT_MAX);
                *text = timeout(SAVE_LIMIT, saved).await.unwrap_or_else(|_| {
                    shortened(&words, HOOK_TEXT_MAX, " [… the rest was not saved in time]")
                });
            }
        }
        Ok(decisions)
    }

    fn hooks_and_peers(&mut self) -> (&mut HookRunner, HookPeers<'_, 'a>) {
        let Self { hooks, tools, conversation, monitor, caller, .. } = self;
        let progress = caller.turn_progress();
        (hooks, HookPeers { tools, conversation, monitor, progress })
    }
}
