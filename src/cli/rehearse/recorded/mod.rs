//! Makes a scenario that reproduces a recorded session: the same prompt, limits, replies and faults
//! in their order.
//!
//! ```text
//! SessionHistory ─► answers (replies, faults) ─┐
//!                ─► terms (flags, settings) ───┼─► Scenario ─► file
//!                ─► acceptance checks ─────────┘
//! ```
//! The tools run again, in a scratch folder, so their results may differ; the replies do not depend
//! on them. Parts that cannot be reproduced are listed.

mod acceptance;
mod answers;
mod paths;
mod terms;

use std::time::Duration;

use jiff::Timestamp;

use crate::history::{
    CallRecord, HistoryEvent, HistoryItem, MessageAuthor, SessionHistory, ToolRun, ToolRunState,
    TurnRecord, WaitRecord,
};
use crate::journal::CarryOver;
use crate::recovery::{
    CallPurpose, ConnectionChoice, ErrorClass, Event, FailureStage, RecoveryPlan, ReplyDisposition,
    StopReason,
};
use crate::rehearsal::{
    Expectation, Scenario, ScenarioComments, ScriptStep, ScriptedReply, ServerPart, StepAnswer,
    StepCondition,
};

use answers::{RecordedAnswer, Unanswered, answer, recorded_reply};
use paths::PathMask;

/// A scenario that reproduces a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedScenario {
    /// The scenario file.
    pub(super) text: String,
    /// The parts of the session that it does not reproduce, one line each.
    pub(super) skipped: Vec<String>,
}

/// The reason why a session cannot be rehearsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordingError {
    #[error("it has no prompt")]
    NoPrompt,
    #[error("nothing is recorded of requests to a model")]
    NoRequests,
}

/// Target for the sum of all waits of a rehearsal, in real time.
const WAIT_TARGET: Duration = Duration::from_secs(4);

/// Maximum time scale: with a larger one, a slow machine could look like a silent service.
const TIME_SCALE_MAX: f64 = 60.0;

/// Number of characters of a task that identify a sub-agent.
const TASK_CHARS: usize = 160;

/// The omission of failed requests that another process sent again.
const REPEATED: &str = "failures that ended a process: the request is answered as in the next one";

/// The last reply of a script if the end of the session cannot be reproduced.
const SESSION_ENDS: &str = "(The recorded session ends here.)";

impl RecordedScenario {
    /// Makes the scenario of the last prompt of a session.
    ///
    /// # Errors
    /// Nothing can be reproduced.
    pub(super) fn of(history: &SessionHistory) -> Result<Self, RecordingError> {
        let folder = history.project.as_ref().map(|folder| folder.to_string_lossy());
        let paths = PathMask::new(folder.as_deref());
        let prompt = history.prompts().last().ok_or(RecordingError::NoPrompt)?;
        let mut recording = Recording { history, paths, steps: Vec::new(), skipped: Vec::new() };
        recording.collect();
        if recording.steps.is_empty() {
            return Err(RecordingError::NoRequests);
        }
        Ok(recording.into_scenario(prompt))
    }
}

/// The answer to one recorded request.
struct RecordedStep {
    at: Option<Timestamp>,
    /// The number of the model in the chain.
    model_index: u8,
    purpose: CallPurpose,
    step: ScriptStep,
    note: String,
}

impl RecordedStep {
    /// A reply of the first model at an unknown time.
    fn untimed(when: StepCondition, step: ScriptStep) -> Self {
        let step = ScriptStep { when, ..step };
        Self { at: None, model_index: 0, purpose: CallPurpose::Reply, step, note: String::new() }
    }
}

/// A scenario under construction.
struct Recording<'a> {
    history: &'a SessionHistory,
    paths: PathMask<'a>,
    steps: Vec<RecordedStep>,
    skipped: Vec<String>,
}

impl Recording<'_> {
    fn omit(&mut self, what: &str) {
        if !self.skipped.iter().any(|known| known == what) {
            self.skipped.push(what.to_owned());
        }
    }

    /// Collects the answers of all requests, in the order in which they were sent.
    fn collect(&mut self) {
        let history = self.history;
        let prompt = history.calls.last().map_or(0, |call| call.prompt);
        self.collect_calls(history, prompt, &self.condition_of_main());
        let first = history.calls.iter().find(|call| call.prompt == prompt);
        let started = first.and_then(|call| call.at);
        for agent in &history.agents {
            // Those that started before belong to earlier prompts.
            if agent.history.started < started {
                continue;
            }
            let task = agent.history.prompts().next().unwrap_or_default();
            let task: String = self.paths.part_without(task).chars().take(TASK_CHARS).collect();
            let when = StepCondition {
                source: Some(format!("agent:{}", agent.meta.agent_type)),
                prompt: Some(task).filter(|task| !task.is_empty()),
                ..StepCondition::default()
            };
            let prompt = agent.history.calls.last().map_or(0, |call| call.prompt);
            self.collect_calls(&agent.history, prompt, &when);
        }
        // The sort is stable: requests without a time keep their order, and precede the others.
        self.steps.sort_by_key(|step| step.at);
        self.note_other_omissions(prompt);
    }

    /// Returns the condition that distinguishes requests of the run itself from those of
    /// sub-agents.
    fn condition_of_main(&self) -> StepCondition {
        let has_agents = !self.history.agents.is_empty();
        let source = has_agents.then(|| "main".to_owned());
        StepCondition { source, ..StepCondition::default() }
    }

    /// Collects the answers of one agent to the requests of one prompt.
    fn collect_calls(&mut self, history: &SessionHistory, prompt: u32, when: &StepCondition) {
        if history.calls.is_empty() {
            // Another program recorded it: only the replies are known.
            for turn in turns_of_last_prompt(history) {
                let step = recorded_reply(turn, &self.paths);
                self.steps.push(RecordedStep::untimed(when.clone(), step));
            }
            return;
        }
        let mut before: Option<usize> = None;
        let mut answered = self.steps.len();
        let mut calls = history.calls.iter().filter(|call| call.prompt == prompt).peekable();
        while let Some(record) = calls.next() {
            let is_repeated = calls.peek().is_some() && ended_process(record);
            if is_repeated && self.steps.len() > answered {
                self.steps.truncate(answered);
                before = None;
                self.omit(REPEATED);
            }
            let number = record.end.as_ref().and_then(|end| end.turn);
            let turn = history.turns().find(|turn| Some(turn.number) == number);
            let answer = match answer(record, turn, &self.paths) {
                Ok(_) if is_repeated => {
                    self.omit(REPEATED);
                    continue;
                }
                Ok(answer) => answer,
                Err(Unanswered::Skipped) => continue,
                Err(Unanswered::Omitted(what)) => {
                    self.omit(what);
                    continue;
                }
            };
            let RecordedAnswer { mut step, note, skipped } = answer;
            if let Some(skipped) = skipped {
                self.omit(&skipped);
            }
            if needs_new_connection(record)
                && let Some(before) = before
            {
                close_connection(&mut self.steps[before].step);
            }
            let (model_index, purpose) = (record.call.model_index, record.call.purpose);
            if purpose == CallPurpose::Reply {
                step.when = when.clone();
            }
            before = Some(self.steps.len());
            self.steps.push(RecordedStep { at: record.at, model_index, purpose, step, note });
            if was_kept(record) {
                answered = self.steps.len();
            }
        }
    }

    /// Adds omissions for recorded parts that are not reproduced.
    fn note_other_omissions(&mut self, prompt: u32) {
        let history = self.history;
        if prompt > 1 {
            self.omit("earlier prompts and their answers: only the last prompt is rehearsed");
        }
        let is_resumption = |item: &HistoryItem| matches!(&item.event, HistoryEvent::Process(start) if start.carry == CarryOver::On);
        let is_cut =
            |tool: &ToolRun| matches!(tool.state, ToolRunState::Unknown | ToolRunState::Running);
        for (is_omitted, what) in [
            (
                history.items.iter().any(is_resumption),
                "ends of processes: one run does the work of several",
            ),
            (
                history.tools().any(|tool| tool.name.starts_with("mcp__")),
                "MCP servers: calls of their tools fail",
            ),
            (
                history.tools().any(|tool| tool.is_changed),
                "hooks that changed the input of tools: the calls have the changed input",
            ),
            (history.tools().any(is_cut), "commands that were under way when their process ended"),
            (
                history.calls.iter().any(depends_on_size),
                "the sizes of tool results, on which summaries and overflows depend",
            ),
            (history.messages_with_media(), "images and documents of the prompt"),
            (
                !history.problems.is_empty() || history.is_torn,
                "lines of the session that cannot be read",
            ),
        ] {
            if is_omitted {
                self.omit(what);
            }
        }
    }

    fn into_scenario(mut self, prompt: &str) -> RecordedScenario {
        let history = self.history;
        let checks = acceptance::checks(history);
        let mut terms =
            terms::terms(history, &self.paths, checks.hooks.clone(), acceptance::REQUIREMENT);
        for skipped in std::mem::take(&mut terms.skipped) {
            self.omit(&skipped);
        }
        if prompt.starts_with('/') {
            // The prompt already contains the expansion of the command.
            terms.args.push("--disable-slash-commands".to_owned());
        }
        if self.has_plan(RecoveryPlan::DropThinking) {
            terms.args.extend(["--thinking", "enabled"].map(str::to_owned));
        }
        if self.has_plan(RecoveryPlan::Refresh) {
            // Another key each time, as from a helper that fetches a new one.
            let helper = ["--api-key-helper", "echo rehearsal-key-$(date +%s%N)"];
            terms.args.extend(helper.map(str::to_owned));
        }
        let recorded = history.end.as_ref().map(|end| end.reason);
        let reason = recorded.filter(|reason| is_reproducible(*reason));
        if reason.is_none() {
            let end = recorded.map_or("which is not recorded", StopReason::name);
            self.omit(&format!("the end, {end}"));
            self.add_last_reply();
        }
        let (time_scale, id) = (self.time_scale(), history.id.as_str());
        let mut scenario = Scenario {
            name: format!("session-{}", id.chars().take(8).collect::<String>()),
            summary: format!("A recording of session {id}"),
            prompt: self.paths.hide(prompt),
            args: terms.args,
            env: terms.env,
            time_scale,
            files: checks.files(terms.has_requirement),
            ..Scenario::new()
        };
        let mut comments = ScenarioComments { head: self.head(), steps: Vec::new() };
        for recorded in self.steps {
            let server = terms.servers.get(usize::from(recorded.model_index));
            let (part, notes) = match server.filter(|name| !name.is_empty()) {
                Some(name) => (scenario.servers.entry(name.clone()).or_default(), None),
                None => (&mut scenario.main, Some(&mut comments.steps)),
            };
            match recorded.purpose {
                CallPurpose::Reply => add_step(&mut part.steps, notes, recorded),
                CallPurpose::Summary(_) => add_step(&mut part.compactions, None, recorded),
            }
        }
        for part in scenario.servers.values_mut().chain([&mut scenario.main]) {
            // The files that tools read are missing, so that their results have other sizes.
            part.compactions_vary =
                !part.compactions.is_empty() && !reason.is_some_and(StopReason::is_context_full);
        }
        let requests = |part: &ServerPart| reason.and_then(|_| answer_count(part));
        for part in scenario.servers.values_mut() {
            part.requests = requests(part);
        }
        scenario.expect = Expectation {
            exit: reason.map(|reason| i32::from(reason.info().exit_code)),
            terminal_reason: reason.map(|reason| reason.name().to_owned()),
            requests: requests(&scenario.main),
            ..Expectation::default()
        };
        RecordedScenario { text: scenario.to_toml(&comments), skipped: self.skipped }
    }

    /// Adds a reply that ends the rehearsal where the session has no end that can be reproduced.
    fn add_last_reply(&mut self) {
        let text = Some(SESSION_ENDS.to_owned());
        let reply = ScriptedReply { text, ..ScriptedReply::default() };
        let step = ScriptStep::new(StepAnswer::Reply(reply));
        self.steps.push(RecordedStep::untimed(self.condition_of_main(), step));
    }

    fn has_plan(&self, wanted: RecoveryPlan) -> bool {
        let mut plans = self.history.calls.iter().filter_map(|call| call.end.as_ref()?.plan);
        plans.any(|plan| plan == wanted)
    }

    /// Returns the comments at the top of the file.
    fn head(&self) -> Vec<String> {
        let mut head = vec![format!(
            "Recorded from session {}. It reproduces the prompt, the limits, the model's replies \
             in their order, and the faults of the service. Tools run again, in a scratch folder \
             without the files of the session, so their results may differ.",
            self.history.id
        )];
        if !self.skipped.is_empty() {
            head.push("Not reproduced:".to_owned());
            head.extend(self.skipped.iter().map(|skipped| format!("- {skipped}")));
        }
        head
    }

    /// Returns the time scale, with which the recorded waits become short.
    fn time_scale(&self) -> f64 {
        let agents = self.history.agents.iter().map(|agent| &agent.history);
        let waits = [self.history].into_iter().chain(agents).map(|history| {
            let pauses = history.items.iter().filter_map(|item| {
                if let HistoryEvent::Wait(WaitRecord { waited, planned, .. }) = &item.event {
                    waited.or(Some(*planned))
                } else {
                    None
                }
            });
            let silent = history.calls.iter().filter_map(|call| {
                let end = call.end.as_ref()?;
                is_silence(end.event).then_some(end.took)
            });
            pauses.chain(silent).sum::<Duration>()
        });
        let waited = waits.max().unwrap_or_default();
        (waited.as_secs_f64() / WAIT_TARGET.as_secs_f64()).ceil().clamp(1.0, TIME_SCALE_MAX)
    }
}

/// Returns the replies to the last prompt.
fn turns_of_last_prompt(history: &SessionHistory) -> impl Iterator<Item = &TurnRecord> {
    let is_prompt = |item: &HistoryItem| matches!(&item.event, HistoryEvent::Message(it) if it.author == MessageAuthor::User);
    let start = history.items.iter().rposition(is_prompt).unwrap_or(0);
    history.items[start..].iter().filter_map(HistoryItem::turn)
}

/// Returns true if the reply to a request became part of the conversation.
fn was_kept(record: &CallRecord) -> bool {
    record
        .end
        .as_ref()
        .is_some_and(|end| matches!(end.reply, ReplyDisposition::Keep | ReplyDisposition::Summary))
}

/// Returns true if the process that sent a request ended without a reply to it. The next process
/// has full budgets for the failures of the same request; one run does not.
fn ended_process(record: &CallRecord) -> bool {
    let Some(end) = &record.end else { return true };
    matches!(end.plan, Some(RecoveryPlan::Stop(_))) && !was_kept(record)
}

/// Returns true if a request ended because nothing was received.
fn is_silence(event: Event) -> bool {
    let is_timeout = |class| matches!(class, ErrorClass::ApiTimeout | ErrorClass::StreamStalled);
    event == Event::DeadlinePassed || event.failure().is_some_and(|it| is_timeout(it.class))
}

/// Returns true if a script can bring a run to this end.
fn is_reproducible(reason: StopReason) -> bool {
    if let StopReason::ModelError(class) = reason {
        return !matches!(class, ErrorClass::SslCertError | ErrorClass::Aborted);
    }
    !matches!(
        reason,
        StopReason::AbortedStreaming(_)
            | StopReason::AbortedTools(_)
            | StopReason::HookStopped
            | StopReason::ToolDeferred
            | StopReason::OutputFailed
            | StopReason::RehearsalFailed
            | StopReason::InternalError
    )
}

/// Returns true if a request was made, or failed, because of the size of the conversation.
fn depends_on_size(record: &CallRecord) -> bool {
    let failure = record.end.as_ref().and_then(|end| end.event.failure());
    let is_overflow = failure.is_some_and(|failure| {
        matches!(failure.class, ErrorClass::PromptTooLong | ErrorClass::RequestTooLarge)
    });
    record.call.purpose != CallPurpose::Reply || is_overflow
}

/// Returns true if a request failed over a new connection, although it was allowed to use a pooled
/// one.
fn needs_new_connection(record: &CallRecord) -> bool {
    let failure = record.end.as_ref().and_then(|end| end.event.failure());
    record.call.connection == ConnectionChoice::Pooled
        && failure.is_some_and(|failure| failure.stage == FailureStage::FreshConnection)
}

/// Makes the next request need a new connection.
fn close_connection(step: &mut ScriptStep) {
    const CLOSE: (&str, &str) = ("connection", "close");
    if !step.headers.iter().any(|(name, _)| name == CLOSE.0) {
        step.headers.push((CLOSE.0.to_owned(), CLOSE.1.to_owned()));
    }
}

/// Adds a step, or increases the repeat count of the last one if they are equal.
fn add_step(steps: &mut Vec<ScriptStep>, notes: Option<&mut Vec<String>>, recorded: RecordedStep) {
    let RecordedStep { step, note, .. } = recorded;
    if let Some(last) = steps.last_mut()
        && (ScriptStep { repeat: 1, ..last.clone() }) == step
    {
        last.repeat += 1;
        return;
    }
    steps.push(step);
    if let Some(notes) = notes {
        notes.push(note);
    }
}

/// Returns the number of requests that the steps of a server answer. `None`: it depends on sizes.
fn answer_count(part: &ServerPart) -> Option<usize> {
    let steps = part.steps.iter().chain(&part.compactions);
    let count = steps.map(|step| usize::try_from(step.repeat).unwrap_or(usize::MAX)).sum();
    (!part.compactions_vary).then_some(count)
}
