//! One run, from its settings to its result.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use uuid::Uuid;

use crate::agent::{self, Clock, Ending, Observer, Setup};
use crate::journal::clear_old;
use crate::recovery::{Interrupt, StopReason};
use crate::secrets::{KnownSecrets, Mask};
use crate::tools::SandboxState;

use super::advice;
use super::args::{OutputFormat, RunArgs};
use super::assemble::{assemble, doubts_of_speed, passing_folder};
use super::environment::{self, Variables};
use super::output::{
    Bar, Drain, Lines, Out, Probe, Report, StreamJson, Watchers, Witness, one_line, pipe,
    remove_result_file, write_result_file,
};
use super::panics;
use super::prompt::{self, Gathered};
use super::settings::{self, Settings};
use super::signals::Signals;
use super::usage::{Cause, UsageError};
use super::wall::{Now, passed, span};

/// How long a run may take to end by itself once it was asked to. Together with the writing of
/// the result this stays below four seconds.
const GRACE: Duration = Duration::from_millis(3500);

/// How long the settings and the files that flags name may take to be read: one of them may be a
/// pipe that nobody writes to.
const READING: Duration = Duration::from_secs(20);

/// How long a slow reader of standard output may take to read the result.
const SLOW_READER: Duration = Duration::from_secs(30);

/// And of standard error, where nothing is worth waiting long for.
const SLOW_PERSON: Duration = Duration::from_secs(1);

/// What the process was started with.
pub(super) struct World {
    pub variables: Variables,
    pub cwd: PathBuf,
}

/// Judges a run from outside: given its exit code and terminal reason, what was wrong with it.
pub(super) type Judge<'a> = &'a dyn Fn(u8, &str) -> Vec<String>;

/// Runs a task. Once it has begun there is a result, whatever happens.
///
/// # Errors
/// It could not be begun.
pub(super) async fn run(args: &RunArgs, world: World, judge: Judge<'_>) -> Result<u8, UsageError> {
    if environment::is_ci(&world.variables) {
        // A cancelled job often signals nothing but the shell that started us.
        agent::die_with_parent();
    }
    let clock = Clock::start(args.timers.time_scale.unwrap_or(1.0));
    let signals = Signals::listen().map_err(|error| {
        UsageError::of(Cause::Internal, format!("signals cannot be received: {error}"))
    })?;
    let settings = decide(args, world, &signals).await?;
    let secrets = KnownSecrets::new(settings.secrets());
    let mask = Arc::new(Mask::new(secrets.clone()));
    let (voice, voice_drain) = pipe(io::stderr(), Arc::clone(&mask), || {});
    let job = Job { settings, clock, signals, secrets, mask, voice };
    let ended = job.begin(args.timers.time_scale.unwrap_or(1.0), judge).await;
    // Nobody may be reading; the exit code says it all.
    let _ = voice_drain.finish(SLOW_PERSON).await;
    ended
}

/// Reads the settings. A thread that is still reading when patience ends is left behind.
async fn decide(args: &RunArgs, world: World, signals: &Signals) -> Result<Settings, UsageError> {
    let shortest = Duration::from_secs(1);
    let limit = args.limits.max_duration.map_or(READING, |all| all.clamp(shortest, READING));
    let args = args.clone();
    let reading =
        tokio::task::spawn_blocking(move || settings::resolve(&args, world.variables, world.cwd));
    tokio::select! {
        biased;
        interrupt = signals.first() => Err(interrupted(interrupt)),
        read = reading => read.unwrap_or_else(|_| {
            Err(UsageError::of(Cause::Internal, format!("outlast itself broke: {}", panics::last())))
        }),
        () = tokio::time::sleep(limit) => Err(UsageError::new(format!(
            "the settings, the login or a file that a flag names could not be read within {}; \
             see whether one of them is a pipe that nobody writes to, or on a disk that hangs",
            span(limit)
        ))),
    }
}

fn interrupted(interrupt: Interrupt) -> UsageError {
    let what = format!("{} before the run began", advice::cause(interrupt));
    UsageError::of(Cause::Interrupted(interrupt), what)
}

/// A run that is over, and what its result says beside how it ended.
struct Ran {
    ending: Ending,
    session_id: String,
    sandbox: SandboxState,
}

struct Job {
    settings: Settings,
    clock: Clock,
    signals: Signals,
    secrets: KnownSecrets,
    mask: Arc<Mask>,
    /// Standard error.
    voice: Out,
}

impl Job {
    async fn begin(&self, scale: f64, judge: Judge<'_>) -> Result<u8, UsageError> {
        let settings = &self.settings;
        let prompt = self.prompt().await?;
        let setup = assemble(settings, &prompt, self.clock, &Now::by(&self.clock), &self.secrets)?;
        let session_id = setup.session_id.clone();
        self.clear_old_sessions();
        if let Some(path) = &settings.output.result_file {
            remove_result_file(path).map_err(|error| {
                let path = path.display();
                UsageError::new(format!("--result-file {path}: {error}; name another"))
            })?;
        }
        let probe = settings.output.heartbeat_file.as_deref().map(Probe::begin).transpose();
        let probe = probe.map_err(|error| {
            UsageError::new(format!("--heartbeat-file cannot be written: {error}; name another"))
        })?;
        let (out, drain) = pipe(io::stdout(), Arc::clone(&self.mask), self.signals.stdout_closes());
        let programs = (settings.output.format == OutputFormat::StreamJson)
            .then(|| StreamJson::new(out.clone(), &session_id, settings.output.partial_messages))
            .map(|programs| programs.ignoring(&settings.ignored));
        let mut watchers =
            Watchers { witness: Witness::default(), people: self.people(scale), programs, probe };
        let doubts = doubts_of_speed(settings, &setup.rungs);
        let unfenced = setup.toolbox.doubts_of_sandbox().map(ToOwned::to_owned);
        let sandbox = setup.toolbox.sandbox().clone();
        for warning in settings.warnings.iter().chain(&doubts).chain(&unfenced) {
            watchers.observe(&agent::Notice::Warning(warning));
        }
        let mut ending = self.conduct(setup, &mut watchers).await;
        let reason = ending.reason;
        let faults = judge(super::exit::verdict(reason).exit_code(), reason.name());
        if !faults.is_empty() {
            ending.reason = StopReason::InternalError;
            ending.broken = Some(faults.join("; "));
        }
        let run = Ran { ending, session_id, sandbox };
        Ok(self.finish(run, watchers, &out, drain).await)
    }

    /// Makes room, beside the run and without holding it up.
    fn clear_old_sessions(&self) {
        let (settings, now) = (&self.settings, SystemTime::now());
        let before = settings.keep_sessions.and_then(|kept| now.checked_sub(kept));
        let Some(before) = before.filter(|_| settings.persist) else { return };
        let folder = settings.config_dir.clone();
        drop(tokio::task::spawn_blocking(move || clear_old(&folder, before)));
    }

    async fn prompt(&self) -> Result<String, UsageError> {
        let heard = |waited: Duration| {
            self.voice
                .offer(&format!("outlast: waiting for standard input, {} so far", passed(waited)));
        };
        let heartbeat = self.settings.limits.heartbeat;
        let late = async {
            match self.settings.limits.deadline {
                Some(deadline) => self.clock.sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let gathered = tokio::select! {
            biased;
            interrupt = self.signals.first() => {
                return Err(interrupted(interrupt));
            }
            () = late => {
                let what = "time ran out while standard input was waited for; close it, or raise \
                            --max-duration";
                return Err(UsageError::of(Cause::Late, what));
            }
            gathered = prompt::gather(&self.settings.prompt, prompt::stdin, heartbeat, heard) => {
                gathered
            }
        };
        let Gathered { prompt, left_unread } = gathered?;
        if left_unread {
            self.voice.send(&format!(
                "outlast: standard input is open but brought nothing for {}, so it is left unread \
                 (--stdin waits for it)",
                span(prompt::FIRST_BYTE)
            ));
        }
        Ok(prompt)
    }

    /// Who tells people what goes on: a bar on a terminal, lines anywhere else.
    fn people(&self, scale: f64) -> Box<dyn Observer> {
        let output = &self.settings.output;
        let clock = self.clock;
        let lines = Lines::new(self.voice.clone(), move || Now::by(&clock), output.verbose);
        if io::stderr().is_terminal() && !output.plain {
            Box::new(Bar::new(lines, scale))
        } else {
            Box::new(lines)
        }
    }

    /// Runs the agent, and answers for it when it cannot: after a panic, after a second SIGINT,
    /// and when it does not end in time.
    async fn conduct(&self, setup: Setup, watchers: &mut Watchers) -> Ending {
        let witness = watchers.witness.clone();
        let began = self.clock.now();
        let run = Box::pin(agent::run(setup, watchers, self.signals.interrupts()));
        let run = panics::caught_async(run);
        let reason = tokio::select! {
            biased;
            ended = run => match ended {
                Some(ending) => return ending,
                None => StopReason::InternalError,
            },
            interrupt = self.overdue() => if witness.is_working() {
                StopReason::AbortedTools(interrupt)
            } else {
                StopReason::AbortedStreaming(interrupt)
            },
        };
        let mut ending = witness.ending(reason, self.settings.persist);
        ending.tally.duration = began.until(self.clock.now());
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

    /// Tells everybody how it ended. The process ends with what the result says.
    async fn finish(&self, run: Ran, watchers: Watchers, out: &Out, drain: Drain) -> u8 {
        let Watchers { witness, people, programs, .. } = watchers;
        let Ran { ending, session_id, sandbox } = &run;
        if !self.settings.persist {
            // Mostly there is none.
            let _none = std::fs::remove_dir_all(passing_folder(session_id));
        }
        // Takes the bar off the terminal.
        drop(people);
        let (uuid, now) = (Uuid::new_v4().to_string(), Now::by(&self.clock));
        let mut warnings = witness.warnings();
        let ignored = &self.settings.ignored[..];
        let (uuid, now) = (uuid.as_str(), &now);
        let report =
            Report { ending, session_id, uuid, now, warnings: &warnings, sandbox, ignored };
        // First the file: nobody can hold that up.
        if let Err(warning) = self.keep(&report.object()) {
            self.voice.send(&format!("outlast: warning: {}", one_line(&warning)));
            warnings.push(warning);
        }
        let report =
            Report { ending, session_id, uuid, now, warnings: &warnings, sandbox, ignored };
        self.answer(&report, programs, out);
        let heard = self.heard(drain).await;
        // A success that nobody was told of is none.
        let unheard = self.signals.asked().unwrap_or(Interrupt::StdoutClosed);
        let reason = StopReason::AbortedStreaming(unheard);
        let lost = Ending { reason, ..ending.clone() };
        let report = if heard || report.verdict().is_error() {
            report
        } else {
            let report = Report { ending: &lost, ..report };
            // What was wrong with the file was said before.
            let _ = self.keep(&report.object());
            report
        };
        for error in report.errors() {
            self.voice.send(&format!("outlast: {}", one_line(&error)));
        }
        if let Some(command) = report.resume_command() {
            self.voice.send(&format!("outlast: to go on where it ended: {command}"));
        }
        report.verdict().exit_code()
    }

    /// Standard output's share of the end.
    fn answer(&self, report: &Report<'_>, programs: Option<StreamJson>, out: &Out) {
        match self.settings.output.format {
            OutputFormat::Text => {
                if !report.verdict().is_error() {
                    out.send(report.answer().trim_end_matches('\n'));
                }
            }
            OutputFormat::Json => out.send_json(report.object(), None),
            OutputFormat::StreamJson => {
                if let Some(programs) = programs {
                    programs.finish(report.object());
                }
            }
        }
    }

    /// Waits until standard output has been read. Whether it was.
    async fn heard(&self, drain: Drain) -> bool {
        tokio::select! {
            biased;
            drained = drain.finish(SLOW_READER) => drained.is_ok(),
            () = self.signals.out_of_patience() => false,
        }
    }

    /// The result file's share. The error is a warning.
    fn keep(&self, object: &Value) -> Result<(), String> {
        let Some(path) = &self.settings.output.result_file else { return Ok(()) };
        let mut object = object.clone();
        self.mask.hide_json(&mut object);
        write_result_file(path, &object.to_string()).map_err(|error| {
            format!("the result file {} could not be written: {error:#}", path.display())
        })
    }
}
