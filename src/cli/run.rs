//! One run, from its settings to its result.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, interval_at};

use crate::agent::{self, Clock, Observer, RunOutcome, Setup};
use crate::journal::delete_old_sessions;
use crate::process::die_with_parent;
use crate::recovery::{Interrupt, StopReason};
use crate::secrets::{KnownSecrets, Redactor};
use crate::tools::SandboxState;

use super::advice;
use super::args::{OutputFormat, RunArgs};
use super::assemble::{assemble, doubts_of_speed};
use super::environment::{self, Variables};
use super::mentions;
use super::output::{
    Capabilities, HeartbeatFile, PipeFraming, PipeSender, ProgressLines, Resumption, RunObservers,
    SnapshotRecorder, StatusLine, StreamJson, framed_pipe, one_line, pipe, remove_result_file,
};
use super::panics;
use super::prompt::{self, GatheredPrompt, Waited};
use super::prompts::{ExpandedCommand, Placeholders};
use super::session::Task;
use super::settings::{self, Settings};
use super::signals::SignalState;
use super::startup::StartupSteps;
use super::stdin;
use super::testament::ExitWatchdog;
use super::usage::{UsageError, UsageErrorKind};
use super::wall::{WallTime, passed, span};

/// How long a run may take to end by itself once it was asked to. Together with the writing of
/// the result this stays below four seconds.
const GRACE: Duration = Duration::from_secs(3);

/// How long required servers are waited for in silence.
const MOMENT: Duration = Duration::from_secs(2);

/// How long standard error is waited for, where nothing is worth waiting long for.
const SLOW_PERSON: Duration = Duration::from_secs(1);

/// What the process was started with.
pub(super) struct ProcessContext {
    pub variables: Variables,
    pub cwd: PathBuf,
    pub signals: SignalState,
    /// What is said should the run hang.
    pub testament: ExitWatchdog,
}

/// Judges a run from outside: given its exit code and terminal reason, what was wrong with it.
pub(super) type ExitCheck<'a> = &'a dyn Fn(u8, &str) -> Vec<String>;

/// Runs a task. Once it has begun there is a result, whatever happens.
///
/// # Errors
/// It could not be begun.
pub(super) async fn run(
    args: &RunArgs,
    world: ProcessContext,
    judge: ExitCheck<'_>,
) -> Result<u8, UsageError> {
    if environment::is_ci(&world.variables) {
        // A cancelled job often signals nothing but the shell that started us.
        die_with_parent();
    }
    // The secrets become known with the settings.
    let secrets = KnownSecrets::default();
    let mask = Arc::new(Redactor::new(secrets.clone()));
    let (voice, voice_drain) = pipe(io::stderr(), Arc::clone(&mask), || {});
    let shared = SharedOutput { secrets, mask, voice };
    let ended = Box::pin(prepare_and_begin(args, world, shared, judge)).await;
    // Nobody may be reading; the exit code says it all.
    let _ = voice_drain.finish(SLOW_PERSON).await;
    ended
}

async fn prepare_and_begin(
    args: &RunArgs,
    world: ProcessContext,
    shared: SharedOutput,
    judge: ExitCheck<'_>,
) -> Result<u8, UsageError> {
    let scale = args.timers.time_scale.unwrap_or(1.0);
    let clock = Clock::start(scale);
    let ProcessContext { variables, cwd, signals, testament } = world;
    let limit = args.limits.max_duration;
    let (wanted, around) = (args.clone(), (variables.clone(), cwd.clone()));
    let settings = StartupSteps::new(&signals, &shared.voice, limit)
        .step("reading the settings", move || settings::resolve(&wanted, variables, cwd))
        .await?;
    for secret in settings.secrets() {
        shared.secrets.add(&secret);
    }
    if let Some(deadline) = settings.limits.deadline {
        let left = clock.real(clock.now().until(deadline));
        if let Some(end) = Instant::now().checked_add(left) {
            testament.expect_end(end);
        }
    }
    let job =
        RunJob { settings: Arc::new(settings), clock, scale, limit, signals, testament, shared };
    let mut job = job;
    let GatheredPrompt { prompt: given, unused } = job.prompt().await?;
    if let Some(unused) = unused {
        Arc::make_mut(&mut job.settings).warnings.push(unused.warning());
    }
    let (job, task) = job.heed(given, args, around).await?;
    job.begin(task, judge).await
}

/// How what standard output carries stands together.
fn framing(output: &settings::OutputSettings) -> PipeFraming {
    if output.verbose && output.format == OutputFormat::Json {
        PipeFraming::Array
    } else {
        PipeFraming::Lines
    }
}

/// What there is to call by name.
fn offers(settings: &Settings) -> Capabilities {
    let library = &settings.library;
    Capabilities {
        commands: library.callable().map(|command| command.name.clone()).collect(),
        skills: library.skills().map(|skill| skill.name.clone()).collect(),
        skipped_servers: settings.mcp.skipped.clone(),
    }
}

pub(super) fn interrupted(interrupt: Interrupt) -> UsageError {
    let what = format!("{} before the run began", advice::cause(interrupt));
    UsageError::of(UsageErrorKind::Interrupted(interrupt), what)
}

/// What a result says beside how the run ended.
#[derive(Clone)]
pub(super) struct ResultSubject {
    pub session_id: String,
    pub sandbox: SandboxState,
    pub resumption: Resumption,
}

/// How a run ended that was stopped.
pub(super) fn stopped(witness: &SnapshotRecorder, by: Interrupt) -> StopReason {
    if witness.is_working() {
        StopReason::AbortedTools(by)
    } else {
        StopReason::AbortedStreaming(by)
    }
}

/// What all who say something share.
#[derive(Clone)]
pub(super) struct SharedOutput {
    pub secrets: KnownSecrets,
    pub mask: Arc<Redactor>,
    /// Standard error.
    pub voice: PipeSender,
}

/// One run.
#[derive(Clone)]
pub(super) struct RunJob {
    pub settings: Arc<Settings>,
    pub clock: Clock,
    scale: f64,
    /// How long the run may take.
    limit: Option<Duration>,
    pub signals: SignalState,
    pub testament: ExitWatchdog,
    pub shared: SharedOutput,
}

impl RunJob {
    /// Does what a command says with whose name the prompt begins.
    async fn heed(
        mut self,
        given: String,
        args: &RunArgs,
        (variables, cwd): (Variables, PathBuf),
    ) -> Result<(Self, Task), UsageError> {
        let (project, session) = (cwd.display().to_string(), self.settings.session_id());
        let placeholders =
            Placeholders { project: &project, session: &session, ..Placeholders::default() };
        let Some(called) = ExpandedCommand::by(&given, &self.settings.library, placeholders)?
        else {
            // What is piped in names nothing: a diff is full of such words.
            let names = self.settings.prompt.argument.clone().unwrap_or_else(|| given.clone());
            return Ok((self, Task { prompt: given.clone(), given, names }));
        };
        let home = environment::home(&variables);
        let called = called.vetted(&cwd, home.as_deref());
        let mut settings = Settings::clone(&self.settings);
        if called.model.is_some() || !called.grants.is_empty() {
            let mut wanted = args.clone();
            wanted.model.model = wanted.model.model.or(called.model);
            wanted.tools.allowed_tools.extend(called.grants);
            let session = settings.session;
            settings = StartupSteps::new(&self.signals, &self.shared.voice, self.limit)
                .step("reading the settings", move || settings::resolve(&wanted, variables, cwd))
                .await?;
            settings.session = session;
        }
        settings.warnings.extend(called.warnings);
        settings.ignored.extend(called.ignored);
        self.settings = Arc::new(settings);
        let names = called.prompt.clone();
        Ok((self, Task { given, prompt: called.prompt, names }))
    }

    async fn begin(&self, task: Task, judge: ExitCheck<'_>) -> Result<u8, UsageError> {
        let settings = &self.settings;
        let job = self.clone();
        let (setup, resumption, probe) =
            StartupSteps::new(&self.signals, &self.shared.voice, self.limit)
                .step("opening the session", move || job.open(&task))
                .await?;
        self.require_servers(&setup).await?;
        let sandbox = setup.toolbox.sandbox().clone();
        let subject = ResultSubject { session_id: setup.session_id.clone(), sandbox, resumption };
        self.clear_old_sessions();
        let mask = Arc::clone(&self.shared.mask);
        let framing = framing(&settings.output);
        let (out, drain) = framed_pipe(framing, io::stdout(), mask, self.signals.stdout_closes());
        let stream = || {
            let partial = settings.output.partial_messages;
            let stream = StreamJson::new(out.clone(), &subject.session_id, partial);
            match framing {
                PipeFraming::Lines => stream,
                PipeFraming::Array => stream.of_any_length(),
            }
        };
        let streams = settings.output.format == OutputFormat::StreamJson;
        let programs = (streams || framing == PipeFraming::Array)
            .then(stream)
            .map(|programs| programs.ignoring(&settings.ignored).offering(offers(settings)))
            .map(|programs| programs.telling_hooks(settings.output.hook_events))
            .map(|programs| programs.telling_agents(settings.output.subagent_text));
        let witness = SnapshotRecorder::default();
        self.testament.rewrite(self.last_words(witness.clone(), &subject, &out));
        let mut watchers = RunObservers { witness, people: self.people(), programs, probe };
        let doubts = doubts_of_speed(settings, &setup.endpoints);
        let unfenced = setup.toolbox.sandbox_warning().map(ToOwned::to_owned);
        let warnings = settings.warnings.iter().chain(&setup.warnings);
        for warning in warnings.chain(&doubts).chain(&unfenced) {
            watchers.observe(&agent::RunNotice::Warning(warning));
        }
        let mut ending = self.conduct(setup, &mut watchers).await;
        let reason = ending.reason;
        let faults = judge(super::exit::verdict(reason).exit_code(), reason.name());
        if !faults.is_empty() {
            ending.reason = StopReason::InternalError;
            ending.broken = Some(faults.join("; "));
        }
        Ok(self.finish(ending, &subject, watchers, &out, drain).await)
    }

    /// Starts the servers, and waits for those without which the run is not to begin.
    async fn require_servers(&self, setup: &Setup) -> Result<(), UsageError> {
        setup.servers.start();
        let Some(names) = setup.servers.required() else { return Ok(()) };
        let (began, limit) = (Instant::now(), self.settings.mcp.timers.wait);
        let missing = || setup.servers.missing(names).join(", ");
        let heartbeat = self.settings.limits.heartbeat.max(Duration::from_millis(1));
        // Who waits longer than a moment is told for whom and how long, and again with each beat.
        let mut beats = interval_at(began + heartbeat.min(MOMENT), heartbeat);
        let found = setup.servers.wait_until_connected(names);
        let late = self.late();
        tokio::pin!(found, late);
        loop {
            tokio::select! {
                biased;
                interrupt = self.signals.first() => return Err(interrupted(interrupt)),
                () = &mut late => {
                    let what = format!(
                        "time ran out while required MCP servers were waited for ({}); mend them, \
                         or raise --max-duration",
                        missing()
                    );
                    return Err(UsageError::of(UsageErrorKind::Late, what));
                }
                found = &mut found => return found.map_err(|why| {
                    let what = format!("{why}; mend it, or say --mcp-required none");
                    UsageError::of(UsageErrorKind::McpUnavailable, what)
                }),
                _ = beats.tick() => {
                    let line = format!(
                        "waiting for required MCP servers ({}), {} so far, {} left",
                        missing(),
                        passed(began.elapsed()),
                        span(limit.saturating_sub(began.elapsed()))
                    );
                    self.shared.voice.offer(&format!("outlast: {}", one_line(&line)));
                }
            }
        }
    }

    /// Waits until the time for the whole run is over.
    async fn late(&self) {
        match self.settings.limits.deadline {
            Some(deadline) => self.clock.sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Makes room, beside the run and without holding it up.
    fn clear_old_sessions(&self) {
        let (settings, now) = (&self.settings, SystemTime::now());
        let before = settings.keep_sessions.and_then(|kept| now.checked_sub(kept));
        let Some(before) = before.filter(|_| settings.persist) else { return };
        let folder = settings.config_dir.clone();
        drop(tokio::task::spawn_blocking(move || delete_old_sessions(&folder, before)));
    }

    /// Puts the run together. May block.
    fn open(&self, task: &Task) -> Result<(Setup, Resumption, Option<HeartbeatFile>), UsageError> {
        let (settings, now) = (&self.settings, WallTime::by(&self.clock));
        let secrets = &self.shared.secrets;
        let (mut setup, resumption) = assemble(settings, task, self.clock, &now, secrets)?;
        mentions::attach(&mut setup, &task.names);
        if let Some(path) = &settings.output.result_file {
            remove_result_file(path).map_err(|error| {
                let path = path.display();
                UsageError::new(format!("--result-file {path}: {error}; name another"))
            })?;
        }
        let probe = settings.output.heartbeat_file.as_deref().map(HeartbeatFile::begin).transpose();
        let probe = probe.map_err(|error| {
            UsageError::new(format!("--heartbeat-file cannot be written: {error}; name another"))
        })?;
        Ok((setup, resumption, probe))
    }

    /// Reads the prompt, and what standard input adds to it.
    async fn prompt(&self) -> Result<GatheredPrompt, UsageError> {
        let heard = |waited: Waited| {
            self.shared.voice.offer(&format!(
                "outlast: waiting for standard input, {} so far, {} left",
                passed(waited.so_far),
                span(waited.left)
            ));
        };
        let source = &self.settings.prompt;
        let kind = StartupSteps::new(&self.signals, &self.shared.voice, self.limit)
            .step("looking at standard input", || Ok(stdin::kind()))
            .await?;
        let plan = stdin::plan(kind, source.stdin, source.need());
        let heartbeat = self.settings.limits.heartbeat;
        tokio::select! {
            biased;
            interrupt = self.signals.first() => Err(interrupted(interrupt)),
            () = self.late() => {
                let what = "time ran out while standard input was waited for; close it, or raise \
                            --max-duration";
                Err(UsageError::of(UsageErrorKind::Late, what))
            }
            gathered = prompt::gather(source, plan, stdin::read, heartbeat, heard) => gathered,
        }
    }

    /// Who tells people what goes on: a bar on a terminal, lines anywhere else.
    fn people(&self) -> Box<dyn Observer> {
        let output = &self.settings.output;
        let clock = self.clock;
        let lines = ProgressLines::new(
            self.shared.voice.clone(),
            move || WallTime::by(&clock),
            output.log_detail,
        );
        if io::stderr().is_terminal() && !output.plain {
            Box::new(StatusLine::new(lines, self.scale))
        } else {
            Box::new(lines)
        }
    }

    /// Runs the agent, and answers for it when it cannot: after a panic, after a second SIGINT,
    /// and when it does not end in time.
    async fn conduct(&self, setup: Setup, watchers: &mut RunObservers) -> RunOutcome {
        let witness = watchers.witness.clone();
        let run = Box::pin(agent::run(setup, watchers, self.signals.interrupts()));
        let run = panics::caught_async(run);
        let reason = tokio::select! {
            biased;
            ended = run => match ended {
                Some(ending) => return ending,
                None => StopReason::InternalError,
            },
            interrupt = self.overdue() => stopped(&witness, interrupt),
        };
        self.as_seen(&witness, reason)
    }

    /// How the run ended, as far as it was seen.
    pub(super) fn as_seen(&self, witness: &SnapshotRecorder, reason: StopReason) -> RunOutcome {
        let mut ending = witness.ending(reason, self.settings.persist);
        ending.tally.duration = self.clock.elapsed();
        ending.budget = self.settings.budget;
        if reason == StopReason::InternalError {
            ending.broken = Some(panics::last());
        }
        ending
    }

    /// Waits until the run should have ended on request, or was told twice.
    async fn overdue(&self) -> Interrupt {
        let interrupt = self.signals.first().await;
        tokio::select! {
            () = tokio::time::sleep(GRACE) => {}
            () = self.signals.second() => {}
        }
        interrupt
    }
}
