//! The user's hooks, as the run sees them: told what happens, and heard.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::hooks::{HookEvent, Hooks, Occasion, Verdict};
use crate::recovery::{Counsel, Event, HOOK_SAYS, StopReason};
use crate::secrets::Mask;
use crate::transcript::{Block, ToolCall};

use super::observer::{Notice, WaitingFor};
use super::session::Session;
use super::setup::HookTally;
use super::watch::{CutBy, Disturbance};
use super::work::patience;

/// How long the hooks of a session's end have in all once somebody wants the process to end: it
/// has four seconds for everything.
const LAST_INTERRUPTED: Duration = Duration::from_millis(2_000);

/// The same after the deadline, with two seconds for everything.
const LAST_LATE: Duration = Duration::from_millis(1_000);

/// The hooks of a run, and what they have said so far.
#[derive(Debug, Default)]
pub(super) struct Counsellors {
    hooks: Option<Arc<Hooks>>,
    pub(super) tally: HookTally,
    /// The hooks of which it was said that they fail, by command line.
    minded: BTreeSet<String>,
    /// Whether a Stop hook has made the model go on since it was last agreed to.
    pressing: bool,
    /// What Stop hooks said last.
    pub(super) objection: Option<String>,
    /// Why a hook wants the run to stop. It does, as soon as every call has its result.
    pub(super) halt: Option<String>,
    /// What the model is to read beside the next results.
    pub(super) asides: Vec<Block>,
    /// Whether the conversation was compacted, ahead of need, and nobody was told.
    pub(super) compacted: bool,
}

/// Something that happened, and the tool call that it is about.
pub(super) struct Matter {
    occasion: Occasion,
    call: Option<ToolCall>,
}

impl Counsellors {
    /// `pressing` says whether an earlier process left a stop that a hook objects to.
    pub(super) fn new(hooks: Option<Hooks>, pressing: bool) -> Self {
        let hooks = hooks.map(Arc::new);
        Self { hooks, pressing, ..Self::default() }
    }

    pub(super) fn listen_to(&self, event: HookEvent) -> bool {
        self.hooks.as_ref().is_some_and(|hooks| hooks.listens_to(event))
    }

    /// What the result says of hooks.
    pub(super) fn tally(self) -> HookTally {
        let log = self.hooks.as_ref().map(|hooks| hooks.log().path().to_path_buf());
        let past = self.hooks.as_ref().map_or(0, |hooks| hooks.past_failures());
        let tells: Option<PathBuf> = log.filter(|_| past > 0 || self.tally.failed > 0);
        HookTally { log: tells, ..self.tally }
    }
}

impl Matter {
    pub(super) fn of(event: HookEvent, subject: &str, fields: Value) -> Self {
        let Value::Object(fields) = fields else { return Self::of(event, subject, json!({})) };
        Self { occasion: Occasion { event, subject: subject.to_owned(), fields }, call: None }
    }

    /// Something about a tool call. `more` is what hooks are told beside it.
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

impl Session<'_> {
    /// Says what earlier hooks left in the crash log.
    pub(super) fn mind_crash_log(&mut self) {
        let Some(hooks) = &self.counsellors.hooks else { return };
        let (count, path) = (hooks.past_failures(), hooks.log().path().display());
        if count > 0 {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            let warning = format!(
                "hooks have failed {times} in this run or earlier ones, and counted as not \
                 there: see {path}, and delete it when they are mended"
            );
            self.watch.tell(&Notice::Warning(&warning));
        }
    }

    /// Tells the hooks of one event.
    pub(super) async fn tell_hooks(&mut self, matter: Matter) -> Result<Verdict, CutBy> {
        let event = matter.occasion.event;
        let mut verdicts = self.tell_hooks_of_all(event, vec![matter]).await?;
        Ok(verdicts.pop().unwrap_or_default())
    }

    /// Tells the hooks of an event several matters, side by side, and hears a verdict on each.
    pub(super) async fn tell_hooks_of_all(
        &mut self,
        event: HookEvent,
        matters: Vec<Matter>,
    ) -> Result<Vec<Verdict>, CutBy> {
        let mut verdicts = vec![Verdict::default(); matters.len()];
        if !self.counsellors.listen_to(event) {
            return Ok(verdicts);
        }
        let cancel = CancellationToken::new();
        let mut telling = self.start_telling(matters, &cancel);
        let mut vigil = self.watch.begin();
        let figures = self.figures();
        loop {
            tokio::select! {
                biased;
                disturbance = self.watch.disturbance(&mut vigil) => match disturbance {
                    Disturbance::Cut(cut) => {
                        cancel.cancel();
                        self.begin_to_end(cut);
                        let ended = async { while telling.join_next().await.is_some() {} };
                        // Those that do not end are killed when they are dropped.
                        let _ = timeout(patience(cut), ended).await;
                        return Err(cut);
                    }
                    Disturbance::Tick => {
                        let waiting = WaitingFor::Hook { event: event.name() };
                        self.watch.beat(&vigil, waiting, figures, None);
                    }
                },
                told = telling.join_next() => match told {
                    Some(Ok((index, verdict))) => verdicts[index] = verdict,
                    // One that broke has said nothing.
                    Some(Err(_)) => {}
                    None => break,
                },
            }
        }
        verdicts.iter().for_each(|verdict| self.take_down(event, verdict));
        Ok(verdicts)
    }

    fn start_telling(
        &self,
        matters: Vec<Matter>,
        cancel: &CancellationToken,
    ) -> JoinSet<(usize, Verdict)> {
        let mut telling = JoinSet::new();
        let Some(hooks) = &self.counsellors.hooks else { return telling };
        for (index, Matter { occasion, call }) in matters.into_iter().enumerate() {
            let (hooks, toolbox) = (Arc::clone(hooks), Arc::clone(&self.toolbox));
            let cancel = cancel.clone();
            telling.spawn(async move {
                let covers =
                    |rule: &str| call.as_ref().is_none_or(|call| toolbox.covers(rule, call));
                (index, hooks.tell(&occasion, &covers, &cancel).await)
            });
        }
        telling
    }

    /// Counts what the hooks did, and tells people what is for them.
    fn take_down(&mut self, event: HookEvent, verdict: &Verdict) {
        let tally = &mut self.counsellors.tally;
        tally.ran += verdict.ran;
        tally.failed += u32::try_from(verdict.mishaps.len()).unwrap_or(u32::MAX);
        tally.blocked += u32::from(verdict.halt.is_some() || verdict.denial().is_some());
        for (command, mishap) in &verdict.mishaps {
            if self.counsellors.minded.insert(command.clone()) {
                let warning = format!(
                    "the hook `{command}` ({}) failed: {}; see the crash log",
                    event.name(),
                    mishap.detail
                );
                self.watch.tell(&Notice::Warning(&warning));
            }
        }
        for text in &verdict.messages {
            self.watch.tell(&Notice::HookSays { event: event.name(), text });
        }
    }

    /// What a hook says to the model, without the secrets of the run.
    pub(super) fn hook_words(&self, text: &str) -> String {
        Mask::toward_model(self.secrets.clone()).hide(text)
    }

    /// The same as a block of its own, which a compaction knows for ours by how it begins.
    pub(super) fn hook_block(&self, text: &str) -> Block {
        Block::text(format!("{HOOK_SAYS}\n\n{}", self.hook_words(text)))
    }

    fn hook_blocks(&self, verdict: &Verdict) -> Vec<Block> {
        verdict.context.iter().map(|text| self.hook_block(text)).collect()
    }

    /// A hook wants the run to stop.
    pub(super) fn halt(&mut self, event: HookEvent, why: &str) {
        let why = if why.is_empty() {
            format!("a hook of {} said so, and not why", event.name())
        } else {
            self.hook_words(why)
        };
        self.counsellors.halt.get_or_insert(why.clone());
        self.counsellors.tally.why.get_or_insert(why);
    }

    /// Tells the hooks that the session begins and what is asked, and asks it.
    ///
    /// # Errors
    /// The event with which the run ends instead.
    pub(super) async fn begin(&mut self, prompt: Vec<Block>, goes_on: bool) -> Result<(), Event> {
        let source = if goes_on { "resume" } else { "startup" };
        let mut blocks = self.session_starts(source).await?;
        if !prompt.is_empty() {
            let text = super::conversation::text_of(&prompt);
            let event = HookEvent::UserPromptSubmit;
            let matter = Matter::of(event, "", json!({ "prompt": text }));
            let verdict = self.tell_hooks(matter).await.map_err(Event::from)?;
            if let Some(why) = verdict.halt.as_ref().or(verdict.objection.as_ref()) {
                self.halt(event, why);
                return Err(Event::HookStopped);
            }
            blocks.extend(self.hook_blocks(&verdict));
            let hidden = verdict.hides_prompt && !blocks.is_empty();
            let prompt = if hidden { Vec::new() } else { prompt };
            self.ask_for(prompt.into_iter().chain(blocks).collect());
        } else if !blocks.is_empty() && self.waits_for_model() {
            self.say(blocks, &[]);
        }
        Ok(())
    }

    async fn session_starts(&mut self, source: &str) -> Result<Vec<Block>, Event> {
        let model = self.rung().label.clone();
        let event = HookEvent::SessionStart;
        let matter = Matter::of(event, source, json!({ "source": source, "model": model }));
        let verdict = self.tell_hooks(matter).await.map_err(Event::from)?;
        if let Some(why) = &verdict.halt {
            self.halt(event, why);
            return Err(Event::HookStopped);
        }
        Ok(self.hook_blocks(&verdict))
    }

    /// The conversation was compacted: whoever tells the model something at the start of a session
    /// may want to say it again.
    pub(super) async fn mind_compaction(&mut self) -> Result<(), Event> {
        if !std::mem::take(&mut self.counsellors.compacted) {
            return Ok(());
        }
        match self.session_starts("compact").await {
            Ok(blocks) if blocks.is_empty() => Ok(()),
            Ok(blocks) => {
                self.say(blocks, &[]);
                Ok(())
            }
            // No call is open here that could be stopped in between: the next tool does.
            Err(Event::HookStopped) => Ok(()),
            Err(event) => Err(event),
        }
    }

    /// Tells the hooks that a summary is about to be asked for.
    pub(super) async fn before_compaction(&mut self) -> Result<(), Event> {
        let fields = json!({ "trigger": "auto", "custom_instructions": "" });
        let matter = Matter::of(HookEvent::PreCompact, "auto", fields);
        let verdict = self.tell_hooks(matter).await.map_err(Event::from)?;
        if let Some(why) = &verdict.objection {
            let warning = format!(
                "a PreCompact hook objects, and the conversation is compacted all the same: {why}"
            );
            self.watch.tell(&Notice::Warning(&warning));
        }
        Ok(())
    }

    /// Hears the hooks of Stop.
    pub(super) async fn consult(&mut self) -> Event {
        let event = HookEvent::Stop;
        let fields = json!({
            "stop_hook_active": self.counsellors.pressing,
            "last_assistant_message": self.words.text,
            "background_tasks": [],
            "session_crons": [],
        });
        let verdict = match self.tell_hooks(Matter::of(event, "", fields)).await {
            Ok(verdict) => verdict,
            Err(cut) => return cut.into(),
        };
        if let Some(why) = &verdict.halt {
            self.halt(event, why);
            return Event::Consulted(Counsel::Halt);
        }
        let words: Vec<&String> = verdict.objection.iter().chain(&verdict.context).collect();
        let words = words.into_iter().map(|text| self.hook_words(text)).collect::<Vec<_>>();
        let said = (!words.is_empty()).then(|| words.join("\n\n"));
        self.counsellors.pressing = said.is_some();
        self.counsellors.tally.why.clone_from(&said);
        let before = std::mem::replace(&mut self.counsellors.objection, said);
        Event::Consulted(match &self.counsellors.objection {
            None => Counsel::Pass,
            now if *now == before => Counsel::BlockAgain,
            Some(_) => Counsel::Block,
        })
    }

    /// Tells the hooks how it ended. Nothing that they say changes that, and nobody waits longer
    /// for them than the end may take.
    pub(super) async fn tell_end(&mut self, reason: StopReason) {
        if let Some(error) = failure(reason) {
            let details = self.fault.as_ref().map(|fault| fault.detail().to_owned());
            let fields = json!({
                "error": error,
                "error_details": details,
                "last_assistant_message": self.words.text,
            });
            let _ = self.tell_hooks(Matter::of(HookEvent::StopFailure, error, fields)).await;
        }
        let matter = Matter::of(HookEvent::SessionEnd, "other", json!({ "reason": "other" }));
        let Some((since, cut)) = self.watch.cut() else {
            let _ = self.tell_hooks(matter).await;
            return;
        };
        let most = match cut {
            CutBy::Interrupt(_) => LAST_INTERRUPTED,
            CutBy::Deadline => LAST_LATE,
        };
        self.tell_in_a_hurry(matter, since + most).await;
    }

    /// Tells hooks until `end`, come what may.
    async fn tell_in_a_hurry(&mut self, matter: Matter, end: Instant) {
        let event = matter.occasion.event;
        if !self.counsellors.listen_to(event) || Instant::now() >= end {
            return;
        }
        let cancel = CancellationToken::new();
        let mut telling = self.start_telling(vec![matter], &cancel);
        if let Ok(Some(Ok((_, verdict)))) = tokio::time::timeout_at(end, telling.join_next()).await
        {
            self.take_down(event, &verdict);
        }
    }
}

/// What hooks of `StopFailure` are told, if the service failed the run.
fn failure(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::ModelError(class) => Some(class.name()),
        StopReason::PromptTooLong | StopReason::ImageError | StopReason::MaxOutputTokens => {
            Some(reason.name())
        }
        StopReason::Completed
        | StopReason::MaxTurns
        | StopReason::MaxBudgetUsd
        | StopReason::Deadline
        | StopReason::AbortedStreaming(_)
        | StopReason::AbortedTools(_)
        | StopReason::HookStopped
        | StopReason::StopHookPrevented
        | StopReason::StopHookBlocked
        | StopReason::BlockingLimit
        | StopReason::EmptyResponse
        | StopReason::Refusal
        | StopReason::Stalled
        | StopReason::BackgroundPending
        | StopReason::RequirementFailed
        | StopReason::StructuredOutputRetryExhausted
        | StopReason::InternalError => None,
    }
}
