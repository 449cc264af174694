//! Runs the hooks of an event side by side, each within its time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::Job;

use super::answer::{HookEnd, HookFailure, HookRun, HookOutput, interpret_result};
use super::config::{HookHandler, HookCommand};
use super::crash::CrashLog;
use super::event::HookEvent;
use super::exports::{ExportFile, VARIABLE, evaluate_exports};
use super::follow::{Awaited, Following, run_hook};
use super::news::{HookProgress, HookReporter};
use super::scene::HookEnvironment;
use super::verdict::HookDecision;

/// What happened.
#[derive(Clone, Debug)]
pub struct HookOccasion {
    pub event: HookEvent,
    /// What matchers are compared with: the tool, the source, the reason; empty if nothing is.
    pub subject: String,
    /// What hooks of this event are told beside the common fields.
    pub fields: Map<String, Value>,
}

/// The hooks of a run.
#[derive(Clone, Debug)]
pub struct Hooks {
    handlers: Vec<HookHandler>,
    environment: HookEnvironment,
    past_failures: usize,
    /// The sub-agent whose hooks they are, if they are not the run's own.
    agent: Option<HookAgent>,
    /// Where to tell of each hook that begins and ends.
    progress: Option<UnboundedSender<HookProgress>>,
    /// Once the run ends, so may hooks that nobody waits for.
    run_ended: CancellationToken,
}

#[derive(Clone, Debug)]
struct HookAgent {
    id: String,
    kind: String,
    transcript: PathBuf,
}

impl Hooks {
    /// Looks into the crash log.
    pub fn new(handlers: Vec<HookHandler>, environment: HookEnvironment) -> Self {
        let past_failures = environment.log.count();
        let run_ended = CancellationToken::new();
        Self { handlers, environment, past_failures, agent: None, progress: None, run_ended }
    }

    /// The same hooks for a sub-agent, `kind` being its type. They are told whose calls they see;
    /// of its beginning and its end, `SubagentStart` and `SubagentStop` hear.
    #[must_use]
    pub fn for_agent(&self, id: &str, kind: &str, transcript: PathBuf) -> Self {
        let agent = HookAgent { id: id.to_owned(), kind: kind.to_owned(), transcript };
        Self { agent: Some(agent), past_failures: 0, ..self.clone() }
    }

    /// The same hooks, with somebody who is told of each that begins and ends.
    #[must_use]
    pub fn with_progress(self, witness: UnboundedSender<HookProgress>) -> Self {
        Self { progress: Some(witness), ..self }
    }

    /// The event that says that the work begins: a run's, or a sub-agent's.
    pub fn start_event(&self) -> HookEvent {
        if self.agent.is_some() { HookEvent::SubagentStart } else { HookEvent::SessionStart }
    }

    /// The event that asks whether the work may end: a run's, or a sub-agent's.
    pub fn stop_event(&self) -> HookEvent {
        if self.agent.is_some() { HookEvent::SubagentStop } else { HookEvent::Stop }
    }

    /// The type of the sub-agent whose hooks they are.
    pub fn agent_type(&self) -> Option<&str> {
        self.agent.as_ref().map(|agent| agent.kind.as_str())
    }

    /// The run ends, and whatever it started is about to be killed: hooks that nobody waits for do
    /// not fail by that. A sub-agent's end is no such end.
    pub fn mark_run_ended(&self) {
        if self.agent.is_none() {
            self.run_ended.cancel();
        }
    }

    /// How many failures the crash log told of when this began.
    pub fn past_failures(&self) -> usize {
        self.past_failures
    }

    /// Whether any hook is there for an event at all.
    pub fn has_hooks_for(&self, event: HookEvent) -> bool {
        self.is_relevant(event) && self.applicable_hooks().any(|handler| handler.event == event)
    }

    /// Those that are for the run, or for the sub-agent, whose hooks they are.
    fn applicable_hooks(&self) -> impl Iterator<Item = &HookHandler> {
        let kind = self.agent_type();
        self.handlers.iter().filter(move |it| it.agent_type.is_none() || it.agent_type.as_deref() == kind)
    }

    /// Whether an event of this kind is one of the run's, or of the sub-agent's, at all.
    fn is_relevant(&self, event: HookEvent) -> bool {
        self.agent.is_none() || event.occurs_in_subagents()
    }

    /// What the crash log tells of.
    pub fn log(&self) -> &CrashLog {
        &self.environment.log
    }

    /// Tells the hooks what happened, and what they want. `covers` says whether a permission rule
    /// covers the call that it is about. Never fails: a hook that does is as good as none, unless
    /// it is a guard.
    pub async fn run(
        &self,
        occasion: &HookOccasion,
        covers: &(dyn Fn(&str) -> bool + Sync),
        cancel: &CancellationToken,
    ) -> HookDecision {
        let mut verdict = HookDecision::default();
        let handlers = self.matching_hooks(occasion, covers, &mut verdict);
        if handlers.is_empty() {
            return verdict;
        }
        let input = self.input(occasion);
        let file = offers_exports(occasion).then(ExportFile::create);
        let path = file.as_ref().and_then(|file| file.as_ref().ok()).map(ExportFile::path);
        let performances = self.run_parallel(&handlers, (&occasion.subject, &input), path, cancel).await;
        if cancel.is_cancelled() {
            // Nothing was wrong with them, and nobody listens any more.
            return cancelled_decision(&handlers, &performances);
        }
        let mask = self.environment.mask();
        for (handler, performance) in handlers.into_iter().zip(performances) {
            // One that nobody waited for has no say.
            let Some(performance) = performance else { continue };
            verdict.ran += 1;
            let judged = interpret_result(occasion.event, &performance, &mask);
            match (performance.runs_in_background(), judged) {
                (true, _) if handler.is_guard() => {
                    self.handle_failure(handler, HookFailure::background_guard(), &mut verdict);
                }
                (true, Ok(_)) => {}
                (false, Ok(say)) => verdict.add(say.with_default_reasons(|| handler.title())),
                (_, Err(mishap)) => self.handle_failure(handler, mishap, &mut verdict),
            }
        }
        verdict.exports = file.and_then(|file| match file.map(|file| file.read()) {
            Ok(Ok(text)) if text.trim().is_empty() => None,
            Ok(read) => Some(read),
            Err(error) => Some(Err(format!("it cannot be made: {error}"))),
        });
        verdict
    }

    /// The hooks that something is for. A guard is for whatever its matcher goes astray over: whoever
    /// can name a tool must not get past it by that.
    fn matching_hooks(
        &self,
        occasion: &HookOccasion,
        covers: &(dyn Fn(&str) -> bool + Sync),
        verdict: &mut HookDecision,
    ) -> Vec<&HookHandler> {
        let mut concerned = Vec::new();
        let own = self.applicable_hooks().filter(|handler| handler.event == occasion.event);
        for handler in own.filter(|_| self.is_relevant(occasion.event)) {
            let matches = handler.matcher.matches(&occasion.subject);
            if matches == Ok(false) || !handler.condition.as_deref().is_none_or(covers) {
                continue;
            }
            if matches.is_ok() || handler.fail_closed {
                concerned.push(handler);
            }
            if let Err(why) = matches {
                self.record_failure(handler, HookFailure::matcher_failed(why), verdict);
            }
        }
        concerned
    }

    /// The variables that differ once a shell with `environment` has run what hooks wrote for it.
    ///
    /// # Errors
    /// Why nothing is known of them.
    pub async fn exports(
        &self,
        text: &str,
        shell: &Path,
        environment: &[(OsString, OsString)],
        cancel: &CancellationToken,
    ) -> Result<Vec<(String, String)>, String> {
        let supervisor = self.environment.supervisor.clone();
        evaluate_exports(text, (shell, &self.environment.cwd), environment, supervisor, cancel).await
    }

    /// What is to be made of it when our own code broke down before the hooks were heard: no guard
    /// has agreed.
    pub fn decision_after_crash(&self, event: HookEvent) -> HookDecision {
        let mut verdict = HookDecision::default();
        for handler in self.applicable_hooks().filter(|handler| handler.event == event) {
            self.handle_failure(handler, HookFailure::internal(), &mut verdict);
        }
        verdict
    }

    /// A hook has failed, and has no say unless it is a guard.
    fn handle_failure(&self, handler: &HookHandler, mishap: HookFailure, verdict: &mut HookDecision) {
        if handler.is_guard() {
            let why = format!(
                "the guard `{}` failed ({}), and what it guards is forbidden then",
                handler.command.line(),
                mishap.detail
            );
            verdict.add(HookOutput { objection: Some(why), ..HookOutput::default() });
        }
        self.record_failure(handler, mishap, verdict);
    }

    /// Sees to it that people hear of something that went wrong.
    fn record_failure(&self, handler: &HookHandler, mishap: HookFailure, verdict: &mut HookDecision) {
        self.environment.log_failure(handler, &mishap);
        verdict.failures.push((handler.command.line(), mishap));
    }

    /// Runs them side by side; in the order of the settings, what they did.
    async fn run_parallel(
        &self,
        handlers: &[&HookHandler],
        (subject, input): (&str, &[u8]),
        exports: Option<&Path>,
        cancel: &CancellationToken,
    ) -> Vec<Option<HookRun>> {
        let budget = time_limit(handlers);
        let mut performances: Vec<Option<HookRun>> = vec![None; handlers.len()];
        let (mut tasks, mut awaited) = (JoinSet::new(), Vec::new());
        for (index, handler) in handlers.iter().enumerate() {
            let (mut job, limit) = (self.job(handler), handler.timeout);
            let path = exports.filter(|_| !handler.background);
            job.environment.extend(path.map(|path| (VARIABLE.into(), path.into())));
            let (input, stop) = (input.to_vec(), cancel.child_token());
            let supervisor = self.environment.supervisor.clone();
            let background = self.background(handler);
            if handler.background {
                tokio::spawn(async move {
                    background.end(&run_hook(supervisor, job, input, limit, stop).await);
                });
                continue;
            }
            awaited.push(index);
            let report = self.report_start(handler.event, subject);
            tasks.spawn(async move {
                let performance = match Following::begin(&supervisor, &job, input, limit).await {
                    Ok(following) => background.follow(following, &stop).await,
                    Err(performance) => performance,
                };
                report.end(&performance, stop.is_cancelled());
                (index, performance)
            });
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                if let Ok((index, performance)) = done {
                    performances[index] = Some(performance);
                }
            }
        };
        // Those still running are ended when they are dropped.
        let in_time = tokio::time::timeout(budget, all).await.is_ok();
        let unheard = match (cancel.is_cancelled(), in_time) {
            (true, _) => HookEnd::Cancelled,
            (false, true) => HookEnd::Crashed,
            (false, false) => HookEnd::TimedOut,
        };
        for index in awaited {
            performances[index].get_or_insert_with(|| HookRun::of(unheard.clone()));
        }
        performances
    }

    fn background(&self, handler: &HookHandler) -> Background {
        let (scene, handler) = (self.environment.clone(), handler.clone());
        Background { environment: scene, handler, run_ended: self.run_ended.clone() }
    }

    /// Tells whoever watches that a hook begins.
    fn report_start(&self, event: HookEvent, subject: &str) -> HookReporter {
        HookReporter::begin(event, subject, self.progress.clone(), &self.environment.secrets)
    }

    fn job(&self, handler: &HookHandler) -> Job {
        let (program, arguments) = match &handler.command {
            HookCommand::Script(script) => {
                (self.environment.shell.clone(), vec!["-c".into(), script.into()])
            }
            HookCommand::Program { path, arguments } => {
                let path = self.expand_project_dir(&path.to_string_lossy());
                (path.into(), arguments.iter().map(|one| self.expand_project_dir(one)).collect())
            }
        };
        Job {
            program,
            arguments,
            cwd: self.environment.cwd.clone(),
            environment: self.environment.environment.clone(),
            input: true,
            // It is the user's own program, and may do what the user may.
            landlock: None,
        }
    }

    /// A word of a command line that no shell sees.
    fn expand_project_dir(&self, word: &str) -> OsString {
        let project = self.environment.cwd.to_string_lossy();
        word.replace("${CLAUDE_PROJECT_DIR}", &project).into()
    }

    /// What a hook reads from its standard input.
    fn input(&self, occasion: &HookOccasion) -> Vec<u8> {
        let scene = &self.environment;
        let mut input = json!({
            "session_id": scene.session_id,
            "transcript_path": scene.transcript,
            "cwd": scene.cwd,
            "hook_event_name": occasion.event.name(),
            "permission_mode": scene.permission_mode,
        });
        if let Some(agent) = &self.agent {
            input["agent_id"] = json!(agent.id);
            input["agent_type"] = json!(agent.kind);
            if occasion.event == HookEvent::SubagentStop {
                input["agent_transcript_path"] = json!(agent.transcript);
            }
        }
        if let Some(input) = input.as_object_mut() {
            input.extend(occasion.fields.clone());
        }
        format!("{input}\n").into_bytes()
    }
}

/// What becomes of a hook that runs where it has no say: failures are logged, unless they are ours.
struct Background {
    environment: HookEnvironment,
    handler: HookHandler,
    run_ended: CancellationToken,
}

impl Background {
    /// Waits for a hook, or for its wish to run on in the background, where it is followed then.
    async fn follow(self, following: Following, stop: &CancellationToken) -> HookRun {
        match following.wait(stop).await {
            Awaited::Ended(performance) => performance,
            Awaited::Released(following) => {
                let performance = following.output_so_far(HookEnd::Released);
                let stop = stop.clone();
                tokio::spawn(async move { self.end(&following.finish(&stop).await) });
                performance
            }
        }
    }

    fn end(&self, performance: &HookRun) {
        let is_cut = performance.end == HookEnd::Cancelled || self.run_ended.is_cancelled();
        match interpret_result(self.handler.event, performance, &self.environment.mask()) {
            Err(mishap) if !is_cut => self.environment.log_failure(&self.handler, &mishap),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Whether hooks may export something for later commands. After a summary those of the model may be
/// running, and could write there.
fn offers_exports(occasion: &HookOccasion) -> bool {
    occasion.event == HookEvent::SessionStart && occasion.subject != "compact"
}

/// What is left to say of hooks when the run is cut off: which of them were.
fn cancelled_decision(handlers: &[&HookHandler], performances: &[Option<HookRun>]) -> HookDecision {
    let mut verdict = HookDecision::default();
    for (handler, performance) in handlers.iter().zip(performances) {
        let Some(performance) = performance else { continue };
        verdict.ran += 1;
        if performance.end == HookEnd::Cancelled {
            verdict.cancelled.push(handler.command.line());
        }
    }
    verdict
}

/// How long the hooks of an event may take together: twice the longest of their limits (SPEC 14).
fn time_limit(handlers: &[&HookHandler]) -> Duration {
    handlers.iter().map(|handler| handler.timeout).max().unwrap_or_default() * 2
}
