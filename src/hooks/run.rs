//! Runs the hooks of an event in parallel, each with its timeout.

use std::ffi::OsString;
use std::iter;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::json::to_line;
use crate::process::{Job, PathAccess, PathRule, ProgramTerms, timeout_while_running};

use super::callback::CallbackCall;
use super::config::{HookCommand, HookHandler};
use super::crash_log::CrashLog;
use super::decision::{HookDecision, HookRuns};
use super::environment::HookEnvironment;
use super::event::HookEvent;
use super::exports::{ExportError, ExportFile, VARIABLE, evaluate_exports};
use super::failure::HookFailure;
use super::hook_process::{Awaited, Following, run_hook};
use super::output::HookOutput;
use super::progress::{HookProgress, HookReporter};
use super::result::{HookEnd, HookRun, interpret, interpret_result};

/// An event with its subject and fields.
#[derive(Clone, Debug)]
pub struct HookContext {
    pub event: HookEvent,
    /// The text that matchers are compared with: the tool, the source, the reason; empty if there
    /// is none.
    pub subject: String,
    /// Another name of the subject, which matchers may use too.
    pub alias: Option<&'static str>,
    /// Input fields of this event, in addition to the common ones.
    pub fields: Map<String, Value>,
}

impl HookContext {
    /// An event whose subject has one name.
    pub fn new(event: HookEvent, subject: impl Into<String>, fields: Map<String, Value>) -> Self {
        Self { event, subject: subject.into(), alias: None, fields }
    }

    /// The subject and its other name.
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(self.subject.as_str()).chain(self.alias)
    }
}

/// The hooks of a run.
#[derive(Clone, Debug)]
pub struct Hooks {
    handlers: Vec<HookHandler>,
    environment: HookEnvironment,
    past_failures: usize,
    /// The sub-agent that these hooks belong to. `None` for the run itself.
    agent: Option<HookAgent>,
    /// Receives a report when a hook starts and when it ends.
    progress: Option<UnboundedSender<HookProgress>>,
    /// Cancelled when the run ends: background hooks that are killed then have not failed.
    run_ended: CancellationToken,
}

#[derive(Clone, Debug)]
struct HookAgent {
    id: String,
    kind: String,
    transcript: PathBuf,
}

impl Hooks {
    /// Counts the failures in the crash log, and records the current state of the hooks' program
    /// files.
    pub fn new(handlers: Vec<HookHandler>, environment: HookEnvironment) -> Self {
        let past_failures = environment.log.count();
        let run_ended = CancellationToken::new();
        let hooks =
            Self { handlers, environment, past_failures, agent: None, progress: None, run_ended };
        for handler in &hooks.handlers {
            if let Some(job) = hooks.job(handler) {
                hooks.environment.supervisor.remember(&job);
            }
        }
        hooks
    }

    /// Returns the hooks for a sub-agent of type `kind`. Their input names the sub-agent; its start
    /// and end are the events `SubagentStart` and `SubagentStop`.
    #[must_use]
    pub fn for_agent(&self, id: &str, kind: &str, transcript: PathBuf) -> Self {
        let agent = HookAgent { id: id.to_owned(), kind: kind.to_owned(), transcript };
        Self { agent: Some(agent), past_failures: 0, ..self.clone() }
    }

    #[must_use]
    pub fn with_progress(self, receiver: UnboundedSender<HookProgress>) -> Self {
        Self { progress: Some(receiver), ..self }
    }

    /// The event for the start of the work: of the run, or of a sub-agent.
    pub fn start_event(&self) -> HookEvent {
        if self.agent.is_some() { HookEvent::SubagentStart } else { HookEvent::SessionStart }
    }

    /// The event that can prevent the end of the work: of the run, or of a sub-agent.
    pub fn stop_event(&self) -> HookEvent {
        if self.agent.is_some() { HookEvent::SubagentStop } else { HookEvent::Stop }
    }

    pub fn agent_type(&self) -> Option<&str> {
        self.agent.as_ref().map(|agent| agent.kind.as_str())
    }

    /// Marks the end of the run: background hooks are about to be killed, which is not a failure.
    /// Does nothing for a sub-agent.
    pub fn mark_run_ended(&self) {
        if self.agent.is_none() {
            self.run_ended.cancel();
        }
    }

    /// The number of failures in the crash log when the run began.
    pub fn past_failures(&self) -> usize {
        self.past_failures
    }

    /// Returns true if any hook is configured for an event.
    pub fn has_hooks_for(&self, event: HookEvent) -> bool {
        self.is_relevant(event) && self.applicable_hooks().any(|handler| handler.event == event)
    }

    /// The hooks that apply to the run, or to this sub-agent.
    fn applicable_hooks(&self) -> impl Iterator<Item = &HookHandler> {
        let kind = self.agent_type();
        self.handlers
            .iter()
            .filter(move |hook| hook.agent_type.is_none() || hook.agent_type.as_deref() == kind)
    }

    /// Returns true if the event occurs for the run, or for this sub-agent.
    fn is_relevant(&self, event: HookEvent) -> bool {
        self.agent.is_none() || event.occurs_in_subagents()
    }

    pub fn log(&self) -> &CrashLog {
        &self.environment.log
    }

    /// Runs the hooks of an event and returns their combined decision. `covers` returns true if a
    /// permission rule covers the tool call. Never fails: a failed hook is ignored, unless it is a
    /// guard.
    pub async fn run(
        &self,
        context: &HookContext,
        covers: &(dyn Fn(&str) -> bool + Sync),
        cancel: &CancellationToken,
    ) -> HookDecision {
        let mut decision = HookDecision::default();
        let handlers = self.matching_hooks(context, covers, &mut decision.runs);
        if handlers.is_empty() {
            return decision;
        }
        let input = HookInput::new(context, self.input(context));
        let file =
            offers_exports(context).then(|| ExportFile::create(&self.environment.state_folder));
        let path = file.as_ref().and_then(|file| file.as_ref().ok()).map(ExportFile::path);
        let hook_runs =
            self.run_parallel(&handlers, (&context.subject, &input), path, cancel).await;
        let cancelled_runs = cancelled_runs(&handlers, &hook_runs);
        let redactor = Arc::new(self.environment.redactor());
        let interpreted = async {
            let mut interpreted = Vec::new();
            // The output of a background hook has no effect.
            for (handler, hook_run) in handlers.into_iter().zip(hook_runs) {
                let Some(hook_run) = hook_run else { continue };
                // One after the other: all of them read the same files.
                let (input, redactor) = (Arc::clone(&input.json), Arc::clone(&redactor));
                let (released, output) = interpret(context.event, hook_run, input, redactor).await;
                let output = match output {
                    Err(failure) => {
                        Err(failure.with_cause(handler.command.line(), &self.environment.cwd).await)
                    }
                    Ok(output) => Ok(output),
                };
                interpreted.push((handler, (released, output)));
            }
            interpreted
        };
        let Some(interpreted) = cancel.run_until_cancelled(interpreted).await else {
            // The hooks are not at fault, and the result is no longer needed.
            return HookDecision { runs: cancelled_runs, ..HookDecision::default() };
        };
        for (handler, interpreted) in interpreted {
            decision.runs.ran += 1;
            match interpreted {
                (true, _) if handler.is_guard() => {
                    self.handle_failure(handler, HookFailure::background_guard(), &mut decision);
                }
                (true, Ok(_)) => {}
                (false, Ok(say)) => decision.add(say.with_default_reasons(|| handler.title())),
                (_, Err(failure)) => self.handle_failure(handler, failure, &mut decision),
            }
        }
        decision.exports = file.and_then(|file| match file.map(|file| file.read()) {
            Ok(Ok(text)) if text.trim().is_empty() => None,
            Ok(read) => Some(read),
            Err(error) => Some(Err(ExportError::NotMade(error.to_string()))),
        });
        decision
    }

    /// Selects the hooks that apply. A guard also applies when its matcher fails: a tool name
    /// chosen to break the pattern must not get past it.
    fn matching_hooks(
        &self,
        context: &HookContext,
        covers: &(dyn Fn(&str) -> bool + Sync),
        runs: &mut HookRuns,
    ) -> Vec<&HookHandler> {
        let mut matching = Vec::new();
        let of_event = self.applicable_hooks().filter(|handler| handler.event == context.event);
        for handler in of_event.filter(|_| self.is_relevant(context.event)) {
            let matches = handler.matcher.matches_any(context.names());
            if matches == Ok(false) || !handler.condition.as_deref().is_none_or(covers) {
                continue;
            }
            if matches.is_ok() || handler.fail_closed {
                matching.push(handler);
            }
            if let Err(why) = matches {
                self.record_failure(handler, HookFailure::matcher_failed(&why), runs);
            }
        }
        matching
    }

    /// Returns the variables that change when a shell with `environment` evaluates the exports.
    ///
    /// # Errors
    /// The shell failed, so the variables are unknown.
    pub async fn exports(
        &self,
        text: &str,
        shell: &Path,
        environment: &[(OsString, OsString)],
        cancel: &CancellationToken,
    ) -> Result<Vec<(String, String)>, ExportError> {
        let supervisor = self.environment.supervisor.clone();
        evaluate_exports(text, (shell, &self.environment.cwd), environment, supervisor, cancel)
            .await
    }

    /// The decision when outlast itself crashed before the hooks had run: guards deny.
    pub fn decision_after_crash(&self, event: HookEvent) -> HookDecision {
        let mut decision = HookDecision::default();
        for handler in self.applicable_hooks().filter(|handler| handler.event == event) {
            self.handle_failure(handler, HookFailure::internal(), &mut decision);
        }
        decision
    }

    /// Records a failed hook, and objects if it is a guard.
    fn handle_failure(
        &self,
        handler: &HookHandler,
        failure: HookFailure,
        decision: &mut HookDecision,
    ) {
        if handler.denies_on(failure.kind) {
            let why = format!(
                "the guard `{}` failed ({}), so the action is denied",
                handler.command.line(),
                failure.detail
            );
            decision.add(HookOutput { objection: Some(why), ..HookOutput::default() });
        }
        self.record_failure(handler, failure, &mut decision.runs);
    }

    /// Records a failure in the crash log and in `runs`.
    fn record_failure(&self, handler: &HookHandler, failure: HookFailure, runs: &mut HookRuns) {
        self.environment.log_failure(handler, &failure);
        runs.failures.push((handler.command.line(), failure));
    }

    /// Runs hooks in parallel. Returns their results in the order of the settings; `None` for those
    /// in the background.
    async fn run_parallel(
        &self,
        handlers: &[&HookHandler],
        (subject, input): (&str, &HookInput),
        exports: Option<&Path>,
        cancel: &CancellationToken,
    ) -> Vec<Option<HookRun>> {
        let mut hook_runs: Vec<Option<HookRun>> = vec![None; handlers.len()];
        let (mut tasks, mut awaited) = (JoinSet::new(), Vec::new());
        for (index, handler) in handlers.iter().enumerate() {
            let stop = cancel.child_token();
            if let Some(hook_run) = self.start(handler, (subject, input), exports, stop) {
                awaited.push(index);
                tasks.spawn(async move { (index, hook_run.await) });
            }
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                if let Ok((index, hook_run)) = done {
                    hook_runs[index] = Some(hook_run);
                }
            }
        };
        // Hooks that are still running are killed when they are dropped.
        let in_time = timeout_while_running(time_limit(handlers), all).await.is_some();
        let missing_end = match (cancel.is_cancelled(), in_time) {
            (true, _) => HookEnd::Cancelled,
            (false, true) => HookEnd::Crashed,
            (false, false) => HookEnd::TimedOut,
        };
        for index in awaited {
            hook_runs[index].get_or_insert_with(|| HookRun::of(missing_end.clone()));
        }
        hook_runs
    }

    /// Returns the work of a hook, to be spawned. `None`: it was started in the background.
    fn start(
        &self,
        handler: &HookHandler,
        (subject, input): (&str, &HookInput),
        exports: Option<&Path>,
        stop: CancellationToken,
    ) -> Option<Pin<Box<dyn Future<Output = HookRun> + Send>>> {
        let limit = handler.timeout;
        let Some(mut job) = self.job(handler) else {
            let call = self.callback_call(handler, input);
            return Some(Box::pin(async move { call.run(&stop).await }));
        };
        let (line, json) = (input.line(), Arc::clone(&input.json));
        let (supervisor, background) =
            (self.environment.supervisor.clone(), self.background(handler));
        if handler.background {
            tokio::spawn(async move {
                background.end(&run_hook(supervisor, job, line, limit, stop).await);
            });
            return None;
        }
        job.environment.extend(exports.map(|path| (VARIABLE.into(), path.into())));
        job.terms.grants.extend(exports.map(|path| PathRule::new(path, PathAccess::Use)));
        let (progress, secrets) = (self.progress.clone(), &self.environment.secrets);
        let report = HookReporter::begin(handler.event, subject, progress, secrets);
        Some(Box::pin(async move {
            let hook_run = match Following::begin(&supervisor, &job, (line, json), limit).await {
                Ok(following) => background.follow(following, &stop).await,
                Err(hook_run) => hook_run,
            };
            report.end(&hook_run, stop.is_cancelled());
            hook_run
        }))
    }

    fn background(&self, handler: &HookHandler) -> Background {
        let (environment, handler) = (self.environment.clone(), handler.clone());
        Background { environment, handler, run_ended: self.run_ended.clone() }
    }

    /// The process that a hook runs in. `None` for a callback of the host.
    fn job(&self, handler: &HookHandler) -> Option<Job> {
        let (program, arguments) = match &handler.command {
            HookCommand::Script(script) => {
                (self.environment.shell.clone(), vec!["-c".into(), script.into()])
            }
            HookCommand::Bash(script) => ("bash".into(), vec!["-c".into(), script.into()]),
            HookCommand::Program { path, arguments } => {
                let cwd = self.environment.cwd.to_string_lossy();
                let project = handler.project().unwrap_or(&cwd);
                // No shell expands the variable.
                let expand = |word: &str| word.replace("${CLAUDE_PROJECT_DIR}", project).into();
                let path: OsString = expand(&path.to_string_lossy());
                (path.into(), arguments.iter().map(|argument| expand(argument)).collect())
            }
            HookCommand::Callback { .. } => return None,
        };
        let variables = handler.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = self.environment.environment.iter().cloned().chain(variables);
        Some(Job {
            input: true,
            terms: self.terms(),
            ..Job::new(program, arguments, &self.environment.cwd, environment)
        })
    }

    /// The terms of hook programs, which may read the transcripts that their input names.
    fn terms(&self) -> ProgramTerms {
        let transcript = self.agent.as_ref().map(|agent| &agent.transcript);
        let transcripts = transcript.into_iter().chain([&self.environment.transcript]);
        let grants = transcripts.map(|path| PathRule::new(path, PathAccess::Read)).collect();
        ProgramTerms { grants, ..ProgramTerms::default() }
    }

    fn callback_call(&self, handler: &HookHandler, input: &HookInput) -> CallbackCall {
        let id = match &handler.command {
            HookCommand::Callback { id } => id.clone(),
            HookCommand::Script(_) | HookCommand::Bash(_) | HookCommand::Program { .. } => {
                handler.command.line()
            }
        };
        CallbackCall {
            host: self.environment.host.clone(),
            id,
            input: Value::clone(&input.json),
            tool_use_id: input.tool_use_id.clone(),
            limit: handler.timeout,
        }
    }

    /// The JSON that a hook reads.
    fn input(&self, context: &HookContext) -> Value {
        let environment = &self.environment;
        let mut input = json!({
            "session_id": environment.session_id,
            "transcript_path": environment.transcript.to_string_lossy(),
            "cwd": environment.cwd.to_string_lossy(),
            "hook_event_name": context.event.name(),
            "permission_mode": (environment.permission_mode)().name(),
        });
        if let Some(effort) = environment.effort {
            input["effort"] = json!({ "level": effort });
        }
        if let Some(agent) = &self.agent {
            input["agent_id"] = json!(agent.id);
            input["agent_type"] = json!(agent.kind);
            if context.event == HookEvent::SubagentStop {
                input["agent_transcript_path"] = json!(agent.transcript.to_string_lossy());
            }
        }
        if let Some(input) = input.as_object_mut() {
            input.extend(context.fields.clone());
        }
        input
    }
}

/// The input of all hooks of an event.
struct HookInput {
    json: Arc<Value>,
    /// The tool call, or for an event without one a unique identifier.
    tool_use_id: String,
}

impl HookInput {
    fn new(context: &HookContext, json: Value) -> Self {
        let tool_use_id = context.fields.get("tool_use_id").and_then(Value::as_str);
        let tool_use_id = tool_use_id.map_or_else(|| Uuid::new_v4().to_string(), ToOwned::to_owned);
        Self { json: Arc::new(json), tool_use_id }
    }

    /// The line for the standard input of a program.
    fn line(&self) -> Vec<u8> {
        format!("{}\n", to_line(&*self.json)).into_bytes()
    }
}

/// Waits for a background hook and logs its failure, except one caused by outlast.
struct Background {
    environment: HookEnvironment,
    handler: HookHandler,
    run_ended: CancellationToken,
}

impl Background {
    /// Waits until a hook ends, or requests to continue in the background. Then its end is awaited
    /// there.
    async fn follow(self, following: Following, stop: &CancellationToken) -> HookRun {
        match following.wait(stop).await {
            Awaited::Ended(hook_run) => hook_run,
            Awaited::Released(following) => {
                let hook_run = following.output_so_far(HookEnd::Released);
                let stop = stop.clone();
                tokio::spawn(async move { self.end(&following.finish(&stop).await) });
                hook_run
            }
        }
    }

    fn end(&self, hook_run: &HookRun) {
        let is_cut = hook_run.end == HookEnd::Cancelled || self.run_ended.is_cancelled();
        let redactor = self.environment.redactor();
        // Its decision does not count, so its input does not matter.
        match interpret_result(self.handler.event, hook_run, &Value::Null, &redactor) {
            Err(failure) if !is_cut => self.environment.log_failure(&self.handler, &failure),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Returns true if hooks get an export file. After a compaction, commands of the model may be
/// running and could write to it.
fn offers_exports(context: &HookContext) -> bool {
    context.event == HookEvent::SessionStart && context.subject != "compact"
}

/// Returns the runs of the hooks of a cancelled event, with the cancelled hooks only.
fn cancelled_runs(handlers: &[&HookHandler], hook_runs: &[Option<HookRun>]) -> HookRuns {
    let mut runs = HookRuns::default();
    for (handler, hook_run) in handlers.iter().zip(hook_runs) {
        let Some(hook_run) = hook_run else { continue };
        runs.ran += 1;
        if hook_run.end == HookEnd::Cancelled {
            runs.cancelled.push(handler.command.line());
        }
    }
    runs
}

/// The time limit of all hooks of an event: twice the longest of their timeouts.
fn time_limit(handlers: &[&HookHandler]) -> Duration {
    handlers.iter().map(|handler| handler.timeout).max().unwrap_or_default() * 2
}
