//! From the process's arguments to its exit code.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::process::forbid_dumps;
use crate::secrets::{KnownSecrets, Redactor};
use crate::tools::secret_values;

use super::args::{self, CliRequest, OutputFormat, RequestedOutput};
use super::config;
use super::doctor;
use super::environment::Variables;
use super::output::{ResultRetention, refused, write_result_file};
use super::panics;
use super::rehearse;
use super::run::{self, ProcessContext};
use super::signals::{self, SignalState};
use super::testament::{ExitWatchdog, WatchdogReason};
use super::usage::{UsageError, UsageErrorKind};

/// The stack of the thread that the run is on: as much as a first thread has.
const STACK: usize = 8 << 20;

/// Does what the command line says. Whatever happens, there is exactly one result.
///
/// The first thread only listens to signals and watches over the run, which is on another: should
/// that hang, the first one still says how it ended.
pub fn main() -> ExitCode {
    // Before all else: whoever ends us from here on gets a result.
    let listening = signals::listen();
    panics::keep();
    forbid_dumps();
    let raw: Vec<OsString> = env::args_os().skip(1).collect();
    let wanted = Arc::new(RequestedOutput::of(&raw));
    let code = match listening {
        Ok((runtime, signals)) => watched(&runtime, &signals, raw, &wanted),
        Err(error) => {
            let what = format!("signals cannot be received: {error}");
            refuse(&UsageError::of(UsageErrorKind::Internal, what), &wanted)
        }
    };
    ExitCode::from(code)
}

/// Starts the thread of the run, and waits for it as long as it may take.
fn watched(
    runtime: &Runtime,
    signals: &SignalState,
    raw: Vec<OsString>,
    wanted: &Arc<RequestedOutput>,
) -> u8 {
    let told = Arc::clone(wanted);
    let testament = ExitWatchdog::new(Box::new(move |why| {
        refuse(&never_begun(why), &told);
    }));
    let (tell, outcome) = oneshot::channel();
    let (heard, last, asked) = (signals.clone(), testament.clone(), Arc::clone(wanted));
    let run = move || {
        if let Some(code) = act(raw, &asked, &heard, &last) {
            // Nobody waits for it any more when it took too long.
            let _ = tell.send(code);
        }
    };
    match thread::Builder::new().name("run".to_owned()).stack_size(STACK).spawn(run) {
        Ok(_) => testament.watch(runtime, signals, outcome),
        Err(error) => refuse(&no_thread(&error), wanted),
    }
}

/// Why a run that says nothing came to nothing.
fn never_begun(why: WatchdogReason) -> UsageError {
    match why {
        WatchdogReason::Asked(interrupt) => run::interrupted(interrupt),
        WatchdogReason::Late => {
            UsageError::of(UsageErrorKind::Late, "time ran out before the run began")
        }
        WatchdogReason::Broken => broken(),
    }
}

fn broken() -> UsageError {
    let what = format!("outlast itself broke: {}; please report this", panics::last());
    UsageError::of(UsageErrorKind::Internal, what)
}

fn no_thread(error: &io::Error) -> UsageError {
    UsageError::of(UsageErrorKind::Internal, format!("no thread could be started: {error}"))
}

/// Does it. `None`: the last words were said, and nothing may be added.
fn act(
    raw: Vec<OsString>,
    wanted: &RequestedOutput,
    signals: &SignalState,
    last: &ExitWatchdog,
) -> Option<u8> {
    let error = match panics::caught(|| obey(raw, signals, last)) {
        Some(Ok(code)) => return Some(code),
        Some(Err(error)) => error,
        None => broken(),
    };
    let code = error.verdict().exit_code();
    last.speak(code).then(|| refuse(&error, wanted))
}

fn obey(raw: Vec<OsString>, signals: &SignalState, last: &ExitWatchdog) -> Result<u8, UsageError> {
    match args::parse_process(&args::from_os(raw)?)? {
        CliRequest::Print(text) => {
            print(&text);
            Ok(0)
        }
        CliRequest::Run(args) => {
            let world = world(signals, last)?;
            with_runtime(run::run(&args, world, &|_, _| Vec::new()))
        }
        CliRequest::Rehearse(args) => {
            let world = world(signals, last)?;
            with_runtime(rehearse::rehearse(&args, world))
        }
        CliRequest::Doctor(args) => {
            let world = world(signals, last)?;
            with_runtime(doctor::doctor(&args, world))
        }
        CliRequest::Config(args) => {
            let world = world(signals, last)?;
            with_runtime(config::config(args, world))
        }
    }
}

/// What is read from the process, once.
fn world(signals: &SignalState, last: &ExitWatchdog) -> Result<ProcessContext, UsageError> {
    let variables: Variables = env::vars_os().collect();
    let cwd = env::current_dir().map_err(|error| {
        UsageError::new(format!("the working folder cannot be read: {error}; change to another"))
    })?;
    Ok(ProcessContext { variables, cwd, signals: signals.clone(), testament: last.clone() })
}

fn with_runtime(work: impl Future<Output = Result<u8, UsageError>>) -> Result<u8, UsageError> {
    let runtime: Runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| no_thread(&error))?;
    let ended = runtime.block_on(work);
    // A thread that still reads standard input must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Prints what was asked for. A reader that has gone has seen enough.
pub(super) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Says why nothing was begun: an object for programs, and a line for people, who may not be
/// there to read it.
fn refuse(error: &UsageError, wanted: &RequestedOutput) -> u8 {
    let mask = Redactor::new(KnownSecrets::new(secret_values(&env::vars_os().collect())));
    let mut object = refused(error, "", &Uuid::new_v4().to_string());
    mask.redact_json(&mut object);
    let object = object.to_string();
    // Neither a reader who does not read nor a disk that hangs holds the other up. That the file
    // cannot be written may be the very mistake that is told.
    let keeping = wanted.result_file.clone().map(|path| {
        let object = object.clone();
        thread::Builder::new()
            .spawn(move || write_result_file(&path, &object, ResultRetention::Synced))
    });
    match wanted.format {
        OutputFormat::Text => {}
        OutputFormat::Json if wanted.verbose => print(&format!("[{object}]\n")),
        OutputFormat::Json | OutputFormat::StreamJson => print(&format!("{object}\n")),
    }
    if let Some(Ok(keeping)) = keeping {
        let _ = keeping.join();
    }
    let _ = writeln!(io::stderr().lock(), "outlast: {}", mask.redact(&error.to_string()));
    error.verdict().exit_code()
}
