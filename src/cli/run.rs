//! One run, from its settings to its result.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use tokio::time::Instant;

use crate::agent::{self, Clock, Housekeeping, Observer, RunCosts, RunEvent, RunOutcome, Setup};
use crate::journal::delete_old_sessions;
use crate::process::{catch_async_panic, die_with_parent, is_shared_with_shell, last_panic};
use crate::recovery::{Interrupt, LeftOff, StopReason};
use crate::telemetry::{RunEnd, TelemetryExporter};
use crate::tools::{Acceptance, GrantSource, RequirementReport, SandboxState};

use super::args::{OutputArgs, OutputFormat, RunArgs, Verbosity};
use super::assemble::{assemble, fast_mode_warning};
use super::chosen_session::{ChosenSession, SessionChoice};
use super::exit_watchdog::{ExitWatchdog, WatchdogReason};
use super::host_turn::HostTurn;
use super::mentions;
use super::output::{
    Capabilities, HeartbeatFile, PipeDrain, PipeFraming, PipeSender, Resumption, RunObservers,
    ServiceNotifier, SnapshotRecorder, StreamJson, StreamOptions, TerminalFilter, framed_pipe,
};
use super::output_file::OutputFile;
use super::plugins::Plugin;
pub(super) use super::process_context::{ProcessContext, SharedOutput};
use super::prompt::{self, AddedInput, GatheredPrompt, Waited};
use super::prompts::{ExpandedCommand, Placeholders, RequestedSettings, ServerPromptCall};
use super::session::Task;
use super::settings::{self, Settings};
use super::signals::SignalState;
use super::startup::StartupSteps;
use super::stdin::{self, ReadPlan, StdinKind, StdinMode};
use super::telemetry;
use super::timestamps::{WallTime, format_duration, format_elapsed};
use super::usage::{UsageError, UsageErrorKind};
use crate::config::environment::{self, Variables};

/// Time limit for a run to end after an interrupt. Together with writing the result this stays
/// below four seconds.
const GRACE: Duration = Duration::from_secs(3);

/// Checks a run from outside: returns the deviations, given its exit code and terminal reason.
pub(super) type ExitCheck<'a> = &'a (dyn Fn(u8, &str) -> Vec<String> + Sync);

/// In CI, ends the process with its parent: a cancelled job often signals only the shell that
/// started outlast.
pub(super) fn prepare_process(variables: &Variables) {
    if environment::is_ci(variables) {
        die_with_parent();
    }
}

/// Runs a task. Once the run has begun, a result is always written.
///
/// # Errors
/// The run could not begin.
pub(super) async fn run(
    args: &RunArgs,
    context: ProcessContext,
    exit_check: ExitCheck<'_>,
) -> Result<u8, UsageError> {
    prepare_process(&context.variables);
    let (shared, stderr_drain) = SharedOutput::open(&context)?;
    let ended = Box::pin(prepare_and_begin(args, context, shared, exit_check)).await;
    // Standard error may not be read; the exit code is enough.
    let _ = stderr_drain.finish(SharedOutput::STDERR_LIMIT).await;
    ended
}

/// Resolves the settings, reads the prompt, and runs it.
///
/// # Errors
/// The run could not begin.
pub(super) async fn prepare_and_begin(
    args: &RunArgs,
    context: ProcessContext,
    shared: SharedOutput,
    exit_check: ExitCheck<'_>,
) -> Result<u8, UsageError> {
    let scale = args.timers.time_scale.unwrap_or(1.0);
    let ProcessContext { began, variables, cwd, signals, exit_watchdog, host, .. } = context;
    let clock = Clock::since(began, scale);
    let limit = args.time_limit();
    let environment = (variables.clone(), cwd.clone());
    let steps = StartupSteps::new(&signals, &shared.stderr, limit);
    let (args_copy, (variables_copy, cwd_copy)) = (args.clone(), environment.clone());
    let choose = move || SessionChoice::of(&args_copy, &variables_copy, &cwd_copy)?.lock();
    let session = steps.step("reading the session", choose).await?;
    // Not before: the result may be that of another worker of a batch, which has the session.
    let older = args.output.clone();
    let removal = move || remove_older_results(&older);
    steps.uninterrupted_step("removing the older result", removal).await?;
    let (args_copy, terms) = (args.clone(), session.terms());
    let resolve = move || settings::resolve(&args_copy, variables, cwd, &terms);
    let settings = steps.step("reading the settings", resolve).await?;
    settings.add_secrets(&shared.secrets);
    if let Some(deadline) = settings.config.limits.deadline {
        let left = clock.real(clock.now().until(deadline));
        if let Some(end) = Instant::now().checked_add(left) {
            exit_watchdog.set_deadline(end);
        }
    }
    let settings = Arc::new(settings);
    let added_input = None;
    let mut job =
        RunJob { settings, clock, scale, limit, signals, exit_watchdog, shared, host, added_input };
    let gathered = match &job.host {
        Some(host) => {
            GatheredPrompt { prompt: host.prompt.text.clone(), ..GatheredPrompt::default() }
        }
        None => job.prompt().await?,
    };
    let given = job.take_input(gathered);
    let (job, task) = match &job.host {
        Some(host) if host.prompt.is_verbatim => {
            (job, Task { prompt: given.clone(), given, ..Task::default() })
        }
        Some(_) | None => job.expand_command(given, args, environment, &session).await?,
    };
    let task = match &job.host {
        Some(host) => task.with_blocks_of(&host.prompt),
        None => task,
    };
    Box::pin(job.with_host_hooks().begin(task, session, exit_check)).await
}

/// Removes the result and the answer of an earlier run, before the first long wait: if this process
/// is killed during one, the files must not be taken for those of this run.
///
/// # Errors
/// One of them cannot be removed.
pub(super) fn remove_older_results(output: &OutputArgs) -> Result<(), UsageError> {
    let answer = ("--last-message-file", &output.files.last_message);
    for (flag, path) in [("--result-file", &output.files.result), answer] {
        let Some(path) = path else { continue };
        let removed = OutputFile::open(path).and_then(|file| file.remove());
        removed.with_context(|| format!("{flag} {}", path.display()))?;
    }
    Ok(())
}

/// Returns the framing of messages on standard output.
fn framing(output: &settings::OutputSettings) -> PipeFraming {
    if output.verbose && output.format == OutputFormat::Json {
        PipeFraming::Array
    } else {
        PipeFraming::Lines
    }
}

/// Returns the names of commands, skills and the output style.
pub(super) fn capabilities(settings: &Settings) -> Capabilities {
    let library = &settings.library;
    Capabilities {
        commands: library.callable().map(|command| command.name.clone()).collect(),
        skills: library.skills().map(|skill| skill.name.clone()).collect(),
        output_style: settings.config.output_style.clone(),
        plugins: settings.plugins.iter().map(Plugin::entry).collect(),
        skipped_servers: settings.mcp.skipped.clone(),
    }
}

/// The fields of a result that do not depend on how the run ended.
#[derive(Clone)]
pub(super) struct ResultSubject {
    pub session_id: String,
    pub sandbox: SandboxState,
    pub resumption: Resumption,
}

/// Returns the stop reason of an interrupted run.
pub(super) fn interrupted_reason(snapshots: &SnapshotRecorder, by: Interrupt) -> StopReason {
    if snapshots.is_working() {
        StopReason::AbortedTools(by)
    } else {
        StopReason::AbortedStreaming(by)
    }
}

/// Way to wait for the end of the output.
pub(super) enum OutputDrain {
    /// Standard output ends with the run.
    End(PipeDrain),
    /// Standard output continues with the next turn of a host.
    Flush(PipeSender),
}

impl OutputDrain {
    /// Waits until everything is written, for at most `limit`.
    ///
    /// # Errors
    /// The sink failed, or its reader was too slow.
    pub(super) async fn finish(self, limit: Duration) -> io::Result<()> {
        match self {
            Self::End(drain) => drain.finish(limit).await,
            Self::Flush(out) => out.flush(limit).await,
        }
    }
}

/// Returns the error for a run that ended before it could begin.
pub(super) fn not_started_error(why: WatchdogReason) -> UsageError {
    match why {
        WatchdogReason::Interrupted(interrupt) => UsageError::interrupted(interrupt),
        WatchdogReason::Late => {
            UsageError::of(UsageErrorKind::Late, "time ran out before the run began")
        }
        WatchdogReason::Broken => panic_error(),
    }
}

/// Returns the error for a bug of outlast.
pub(super) fn panic_error() -> UsageError {
    let what = format!("outlast has a defect: {}; please report this", last_panic());
    UsageError::of(UsageErrorKind::Internal, what)
}

/// One run.
#[derive(Clone)]
pub(super) struct RunJob {
    pub settings: Arc<Settings>,
    pub clock: Clock,
    pub scale: f64,
    /// Time limit of the run.
    pub limit: Option<Duration>,
    pub signals: SignalState,
    pub exit_watchdog: ExitWatchdog,
    pub shared: SharedOutput,
    pub host: Option<HostTurn>,
    /// Amount of standard input that was added to the prompt.
    pub added_input: Option<AddedInput>,
}

impl RunJob {
    /// Reports the use of standard input, and returns the prompt.
    fn take_input(&mut self, gathered: GatheredPrompt) -> String {
        let is_meant = self.settings.prompt.stdin == StdinMode::Insist;
        let warnings = gathered.warnings(|| !is_meant && is_shared_with_shell());
        Arc::make_mut(&mut self.settings).warnings.extend(warnings);
        self.added_input = gathered.added.filter(|added| !added.is_all);
        if let Some(added) = self.added_input
            && self.verbosity() > Verbosity::Waits
        {
            self.shared.stderr.send(&format!("outlast: {added}"));
        }
        gathered.prompt
    }

    fn steps(&self) -> StartupSteps<'_> {
        StartupSteps::new(&self.signals, &self.shared.stderr, self.limit)
    }

    /// Adds the hooks that run in the host.
    fn with_host_hooks(mut self) -> Self {
        if let Some(host) = &self.host {
            Arc::make_mut(&mut self.settings).hooks.extend(host.resources.hooks.iter().cloned());
        }
        self
    }

    /// Expands the command that the prompt begins with, if any.
    async fn expand_command(
        mut self,
        given: String,
        args: &RunArgs,
        (variables, cwd): (Variables, PathBuf),
        session: &ChosenSession,
    ) -> Result<(Self, Task), UsageError> {
        let servers = &self.settings.mcp.servers;
        if let Some(call) = ServerPromptCall::parse(&given, &self.settings.library, servers) {
            let (prompt, names, server_prompt) = (given.clone(), given.clone(), Some(call));
            return Ok((self, Task { given, prompt, names, server_prompt, ..Task::default() }));
        }
        let project = cwd.display().to_string();
        let session_id = session.id.as_str();
        let placeholders =
            Placeholders { project: &project, session: session_id, ..Placeholders::default() };
        let Some(called) = ExpandedCommand::expand(&given, &self.settings.library, placeholders)?
        else {
            // Standard input is not searched for mentions: a diff is full of words with `@`.
            let names = self.settings.prompt.argument.clone().unwrap_or_else(|| given.clone());
            return Ok((self, Task { prompt: given.clone(), given, names, ..Task::default() }));
        };
        let home = environment::home(&variables);
        let called = called.with_valid_rules(&cwd, home.as_deref());
        let mut settings = Settings::clone(&self.settings);
        let RequestedSettings { grants, denials, model, effort, withheld } = called.requested;
        let has_rules = !grants.is_empty() || !denials.is_empty();
        if model.is_some() || effort.is_some() || has_rules {
            let mut changed_args = args.clone();
            if let Some(model) = &model {
                changed_args.flags.give_default("model", model);
            }
            if let Some(effort) = effort {
                changed_args.flags.give_default("effort", &effort.name());
            }
            changed_args.flags.extend("allowed-tools", grants);
            changed_args.flags.extend("disallowed-tools", denials);
            let terms = session.terms();
            let resolve = move || settings::resolve(&changed_args, variables, cwd, &terms);
            settings = self.steps().step("reading the settings", resolve).await?;
        }
        settings.warnings.extend(called.warnings);
        settings.ignored.extend(withheld);
        self.settings = Arc::new(settings);
        let (prompt, names) = (called.prompt.clone(), called.prompt);
        Ok((self, Task { given, prompt, names, ..Task::default() }))
    }

    async fn begin(
        &self,
        task: Task,
        session: ChosenSession,
        exit_check: ExitCheck<'_>,
    ) -> Result<u8, UsageError> {
        let settings = &self.settings;
        let (job, call) = (self.clone(), task.server_prompt.clone());
        let open = move || job.open(&task, session);
        let (mut setup, resumption, probe) = self.steps().step("opening the session", open).await?;
        if setup.resumed.conversation.left_off.and_then(LeftOff::end).is_none() {
            self.require_servers(&setup).await?;
        }
        if let Some(call) = call {
            self.fill_server_prompt(&mut setup, &call).await?;
        }
        let sandbox = setup.toolbox.sandbox().clone();
        let subject = ResultSubject { session_id: setup.session_id.clone(), sandbox, resumption };
        self.clear_old_sessions(&setup.housekeeping);
        let framing = framing(&settings.output);
        let (out, drain) = self.stdout(framing)?;
        let programs = self.stream_observer(&out, framing, &subject);
        let snapshots = SnapshotRecorder::default();
        self.exit_watchdog.replace_writer(self.watchdog_writer(snapshots.clone(), &subject, &out));
        let (telemetry, without_effect) = telemetry::start(settings, &self.shared, self.clock);
        let spans = telemetry.as_ref().map(TelemetryExporter::recorder);
        let (service, unnotified) = self.notify_service();
        let people = self.progress_observer();
        let debug = self.debug_log()?;
        let mut watchers =
            RunObservers { snapshots, people, programs, probe, debug, spans, service };
        let no_fast_mode = fast_mode_warning(settings, &setup.endpoints);
        let withheld = setup.toolbox.withheld_despite_rules();
        let no_sandbox = setup.toolbox.sandbox_warning().map(ToOwned::to_owned);
        let no_bash = setup.toolbox.shell_warning();
        let warnings = settings.all_warnings().chain(&setup.warnings);
        let of_system = no_sandbox.iter().chain(&no_bash).chain(&unnotified).chain(&withheld);
        for warning in warnings.chain(&no_fast_mode).chain(of_system).chain(&without_effect) {
            watchers.observe(&RunEvent::Warning(warning.clone()));
        }
        let report_disregarded = async {
            let warning = self.signals.disregarded().await;
            self.shared.warn(&warning);
            std::future::pending::<Infallible>().await
        };
        let mut outcome = tokio::select! {
            biased;
            outcome = self.run_agent(setup, &mut watchers) => outcome,
            never = report_disregarded => match never {},
        };
        let reason = outcome.reason;
        let faults = exit_check(super::exit::exit_status(reason).exit_code(), reason.name());
        if !faults.is_empty() {
            outcome.reason = StopReason::RehearsalFailed;
            outcome.broken = Some(faults.join("; "));
        }
        let (spans, end) = (watchers.spans.take(), RunEnd::of(&outcome));
        let debug = watchers.debug.take();
        let code = self.deliver_result(outcome, &subject, watchers, &out, drain).await;
        // A failure is a warning: it does not change how the run ended.
        if let Some((telemetry, spans)) = telemetry.zip(spans)
            && let Err(error) = telemetry::finish(telemetry, spans, end(code), &self.signals).await
            && (self.host.is_none() || settings.output.verbosity == Some(Verbosity::Detail))
        {
            self.shared.warn(&format!("telemetry was not exported: {error}"));
        }
        if let Some(debug) = debug {
            // The result does not depend on this file.
            if let (Err(error), Some(place)) =
                (debug.finish(SharedOutput::STDERR_LIMIT).await, &settings.output.files.debug)
            {
                let path = place.path().display();
                self.shared.warn(&format!("--debug-file {path} is not complete: {error}"));
            }
        }
        Ok(code)
    }

    /// Returns the observer for standard output, if events are written there before the result.
    fn stream_observer(
        &self,
        out: &PipeSender,
        framing: PipeFraming,
        subject: &ResultSubject,
    ) -> Option<StreamJson> {
        let (settings, output) = (&self.settings, &self.settings.output);
        let is_array = framing == PipeFraming::Array;
        if output.format != OutputFormat::StreamJson && !is_array {
            return None;
        }
        let options = StreamOptions {
            ignored: settings.ignored.clone(),
            offers: capabilities(settings),
            stream: output.stream,
            interim_result: self.interim_results(subject),
            longest: (!is_array).then_some(StreamJson::LONGEST),
        };
        let (out, session_id) = (out.clone(), &subject.session_id);
        Some(StreamJson::new(out, session_id, options))
    }

    /// Notifies systemd that the run has begun, unless it is a turn of a host. Returns a warning if
    /// that fails.
    fn notify_service(&self) -> (Option<ServiceNotifier>, Option<String>) {
        if self.host.is_some() {
            return (None, None);
        }
        let heartbeat = self.settings.config.limits.heartbeat;
        match ServiceNotifier::begin(&self.settings.variables, heartbeat) {
            Ok(service) => (service, None),
            Err(error) => (None, Some(error.to_string())),
        }
    }

    /// Returns standard output: that of the process, or that of a host, which stays open.
    fn stdout(&self, framing: PipeFraming) -> Result<(PipeSender, OutputDrain), UsageError> {
        if let Some(host) = &self.host {
            return Ok((host.out.clone(), OutputDrain::Flush(host.out.clone())));
        }
        let (out, drain) = framed_pipe(
            framing,
            TerminalFilter::new(io::stdout()),
            Arc::clone(&self.shared.redactor),
            self.signals.stdout_closes(),
        )
        .map_err(|error| UsageError::no_thread(&error))?;
        Ok((out, OutputDrain::End(drain)))
    }

    /// Waits until the run's time limit has passed.
    pub(super) async fn wait_until_time_limit(&self) {
        match self.settings.config.limits.deadline {
            Some(deadline) => self.clock.sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Deletes old sessions in the background.
    fn clear_old_sessions(&self, housekeeping: &Housekeeping) {
        let (settings, now) = (&self.settings, SystemTime::now());
        let before = settings.keep_sessions().and_then(|kept| now.checked_sub(kept));
        let Some(before) = before.filter(|_| settings.persist) else { return };
        let folder = settings.session_dir.clone();
        housekeeping.add(move || _ = delete_old_sessions(&folder, before));
    }

    /// Builds the run. May block.
    fn open(
        &self,
        task: &Task,
        session: ChosenSession,
    ) -> Result<(Setup, Resumption, Option<HeartbeatFile>), UsageError> {
        let (settings, now) = (&self.settings, WallTime::from_clock(&self.clock));
        let secrets = &self.shared.secrets;
        let host = self.host.as_ref();
        let (mut setup, resumption) =
            assemble(settings, session, task, self.clock, &now, secrets, host)?;
        // A host is responsible for its prompts, so files that they name need no rule.
        let source = if self.host.is_some() { GrantSource::Prompt } else { GrantSource::Rules };
        mentions::prepare_images(&mut setup);
        mentions::attach(&mut setup, &task.names, source);
        mentions::attach_images(&mut setup, &settings.prompt.images);
        let create = |file: &OutputFile| {
            let place = || format!("--heartbeat-file {}", file.path().display());
            HeartbeatFile::create(file).with_context(place)
        };
        let probe = settings.output.files.heartbeat.as_ref().map(create).transpose()?;
        Ok((setup, resumption, probe))
    }

    /// Reads the prompt from the argument and standard input.
    async fn prompt(&self) -> Result<GatheredPrompt, UsageError> {
        let notify_wait = |waited: Waited| {
            self.shared.stderr.offer(&format!(
                "outlast: waiting for standard input, {} so far, {} left",
                format_elapsed(waited.so_far),
                format_duration(waited.left)
            ));
        };
        let source = &self.settings.prompt;
        let detect = || Ok(stdin::detect_kind());
        let kind = self.steps().step("checking standard input", detect).await?;
        let plan = stdin::plan(kind, source.stdin, source.need());
        if kind == StdinKind::Terminal && plan == ReadPlan::ToEnd {
            self.shared.stderr.send("outlast: reading the terminal until Ctrl-D");
        }
        let heartbeat = self.settings.config.limits.heartbeat;
        tokio::select! {
            biased;
            interrupt = self.signals.first() => Err(UsageError::interrupted(interrupt)),
            () = self.wait_until_time_limit() => {
                let what = "time ran out while standard input was waited for; close it, or raise \
                            --max-duration";
                Err(UsageError::of(UsageErrorKind::Late, what))
            }
            gathered = prompt::gather(source, plan, stdin::start_reading, heartbeat, notify_wait) => gathered,
        }
    }

    /// Runs the agent. After a panic, after a second SIGINT, and if the run does not end in time,
    /// returns an outcome from the last snapshot.
    async fn run_agent(&self, setup: Setup, watchers: &mut RunObservers) -> RunOutcome {
        let snapshots = watchers.snapshots.clone();
        let run = Box::pin(agent::run(setup, watchers, self.signals.interrupts()));
        let run = catch_async_panic(run);
        let reason = tokio::select! {
            biased;
            ended = run => match ended {
                Ok(outcome) => return outcome,
                Err(_) => StopReason::InternalError,
            },
            interrupt = self.wait_until_overdue() => interrupted_reason(&snapshots, interrupt),
        };
        self.outcome_from_snapshot(&snapshots, reason)
    }

    /// Returns the outcome from the last snapshot.
    pub(super) fn outcome_from_snapshot(
        &self,
        snapshots: &SnapshotRecorder,
        reason: StopReason,
    ) -> RunOutcome {
        let is_internal = reason == StopReason::InternalError;
        let outcome = snapshots.outcome(reason, self.settings.persist, self.clock.elapsed());
        let (attempts, passed) = snapshots.checks();
        let requirement = self.settings.demands.requirement.as_ref().map(|requirement| {
            RequirementReport::new(requirement.command.clone(), attempts, passed)
        });
        RunOutcome {
            acceptance: Acceptance { requirement, ..outcome.acceptance },
            costs: RunCosts { budget: self.settings.config.max_budget_usd, ..outcome.costs },
            broken: is_internal.then(|| last_panic().to_string()),
            ..outcome
        }
    }

    /// Waits until an interrupted run has used up its grace period, or a second SIGINT came.
    async fn wait_until_overdue(&self) -> Interrupt {
        let interrupt = self.signals.first().await;
        tokio::select! {
            () = tokio::time::sleep(GRACE) => {}
            () = self.signals.second() => {}
        }
        interrupt
    }
}
