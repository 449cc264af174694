//! Top level of the program: from the arguments to the exit code.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::builder::StyledStr;
use nix::errno::Errno;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::process::{catch_panic, forbid_dumps, hide_argument_texts, record_panics};

use super::args::{
    self, CliRequest, CommandWords, ProgramName, RequestedOutput, RunArgs, SchemaSubject,
    split_directory, wanted_colors,
};
use super::batch;
use super::checkouts::{enter_worktree, remove_result_before_worktree};
use super::chosen_session::use_folder_of_session;
use super::completions;
use super::config;
use super::doctor;
use super::error_report::report_usage_error;
use super::exit_watchdog::ExitWatchdog;
use super::host;
use super::inspect;
use super::manual;
use super::output::{Screen, TerminalFilter, is_result_alone};
use super::rehearse;
use super::report;
use super::run::{self, ExitCheck, ProcessContext, not_started_error};
use super::sessions;
use super::signals::{self, SignalState};
use super::stdout::{print, print_report};
use super::usage::UsageError;
use super::version;
use crate::config::environment::{COLOR, Variables};
use crate::config::schema::schema;
use crate::json::STACK_BYTES;
use crate::messages::{result_schema, stream_schema};
use crate::process::spawn_detached;
use crate::types::exit_code;

/// The time after which an idle thread of the runtime ends: longer than any wait.
const LONGEST_PAUSE: Duration = Duration::from_hours(24 * 365);

/// The command line of the process.
struct CommandLine {
    name: ProgramName,
    /// The folder to work in, if one is named before the command.
    directory: Option<PathBuf>,
    /// The value of `--color`.
    colors: Option<String>,
    /// The words after the program's name.
    words: Vec<OsString>,
}

/// The surroundings of a command. Flags of all commands (`--color`) are set among the variables.
struct Surroundings<'a> {
    signals: &'a SignalState,
    last: &'a ExitWatchdog,
    variables: Variables,
}

/// Executes the command line. Writes exactly one result in every case.
///
/// The main thread only handles signals and runs the exit watchdog. The run is on another thread:
/// if that one hangs, the main thread still writes the result.
pub fn main() -> ExitCode {
    if let Some(answered) = completions::answer() {
        return ExitCode::from(u8::from(answered.is_err()));
    }
    // From here on a signal leads to a result.
    let listening = signals::listen();
    record_panics();
    let mut words: Vec<OsString> = env::args_os().collect();
    hide_argument_texts();
    forbid_dumps();
    let whole = words.split_off(words.len().min(1));
    let name = ProgramName::of(words.first().map(OsString::as_os_str));
    let colors = wanted_colors(&whole);
    let (directory, raw) = split_directory(whole);
    let wanted = Arc::new(RequestedOutput::scan(&raw, name).within(directory.as_deref()));
    let code = match listening {
        Ok((runtime, signals)) => {
            let line = CommandLine { name, directory, colors, words: raw };
            run_with_watchdog(&runtime, &signals, line, &wanted)
        }
        Err(error) => {
            let error = UsageError::no_resources("signals cannot be received", &error);
            report_usage_error(&error, &wanted)
        }
    };
    ExitCode::from(code)
}

/// Starts the run's thread, and waits for it within the limits of the exit watchdog.
fn run_with_watchdog(
    runtime: &Runtime,
    signals: &SignalState,
    raw: CommandLine,
    wanted: &Arc<RequestedOutput>,
) -> u8 {
    let requested = Arc::clone(wanted);
    let exit_watchdog = ExitWatchdog::new(Box::new(move |why| {
        report_usage_error(&not_started_error(why), &requested);
    }));
    let (sender, outcome) = oneshot::channel();
    let (signal_state, last, wanted_output) =
        (signals.clone(), exit_watchdog.clone(), Arc::clone(wanted));
    let run = move || {
        if let Some(code) = run_guarded(raw, &wanted_output, &signal_state, &last) {
            // The receiver is gone if the watchdog has given up on the run.
            let _ = sender.send(code);
        }
    };
    let thread = thread::Builder::new().name("run".to_owned()).stack_size(STACK_BYTES);
    match spawn_detached(thread, run) {
        Ok(()) => exit_watchdog.watch(runtime, signals, outcome, wanted.exit_code_terms()),
        Err(error) => report_usage_error(&UsageError::no_thread(&error), wanted),
    }
}

/// Executes the command. `None`: the exit watchdog has written the result, and nothing may follow
/// it.
fn run_guarded(
    raw: CommandLine,
    wanted: &RequestedOutput,
    signals: &SignalState,
    last: &ExitWatchdog,
) -> Option<u8> {
    let error = match catch_panic(|| dispatch(raw, signals, last)) {
        Ok(Ok(code)) => return Some(code),
        Ok(Err(error)) => error.with_kept_tilde(env::args_os()),
        Err(_) => run::panic_error(),
    };
    let code = error.verdict().exit_code();
    last.claim(code).then(|| report_usage_error(&error, wanted))
}

fn dispatch(
    raw: CommandLine,
    signals: &SignalState,
    last: &ExitWatchdog,
) -> Result<u8, UsageError> {
    if let Some(directory) = &raw.directory {
        change_folder(directory)?;
    }
    let mut variables: Variables = env::vars_os().collect();
    if let Some(when) = raw.colors {
        variables.insert(COLOR.into(), when.into());
    }
    if raw.words.is_empty() && io::stdin().is_terminal() {
        // Without a prompt there is nothing to run, and a user at a terminal looks for help.
        let is_plain = Screen::of_stdout(&variables).styling.is_plain();
        let mut stderr = TerminalFilter::styled(io::stderr().lock());
        // If standard error is not read, the exit code is enough.
        let _ = stderr.write_all(render_help(&args::summary(), is_plain).as_bytes());
        return Ok(exit_code::USAGE);
    }
    let mut request = args::parse_process(&CommandWords::new(raw.words), raw.name)?;
    if let CliRequest::Run(args) = &mut request {
        args.session.names_folder = raw.directory.is_some() || args.session.directory.is_some();
    }
    perform(request, Surroundings { signals, last, variables })
}

fn perform(request: CliRequest, surroundings: Surroundings<'_>) -> Result<u8, UsageError> {
    match request {
        CliRequest::Version(name) => print(&version::line(name)).map(|()| 0),
        CliRequest::Print(text) => print(&text).map(|()| 0),
        CliRequest::Completions(shell) => print(&completions::script(shell)).map(|()| 0),
        CliRequest::Schema(subject) => print_schema(subject).map(|()| 0),
        CliRequest::Help(text) => {
            let is_plain = Screen::of_stdout(&surroundings.variables).styling.is_plain();
            print_report(&render_help(&text, is_plain)).map(|()| 0)
        }
        CliRequest::Manual(page) => manual::show(&page, &surroundings.variables).map(|()| 0),
        CliRequest::Run(mut args) => {
            if let Some(directory) = &args.session.directory {
                change_folder(directory)?;
            }
            let mut context = surroundings.process_context()?;
            prepare_context(&args, &mut context);
            if args.compatibility.worktree.is_some() {
                args.make_paths_absolute(&context.cwd);
            }
            let check: ExitCheck<'static> = &|_, _| Vec::new();
            with_runtime(async move {
                remove_result_before_worktree(&args, &context).await?;
                let context = enter_worktree(&args, context).await?;
                if let Some(prompt) = &args.session.rewind_files {
                    return host::rewind_files(&args, context, prompt).await;
                }
                if args.output.is_driven_by_host() {
                    return host::drive(&args, context, check).await;
                }
                run::run(&args, context, check).await
            })
        }
        CliRequest::Rehearse(args) => {
            let context = surroundings.process_context()?;
            with_runtime(async move { rehearse::rehearse(&args, context).await })
        }
        CliRequest::Doctor(args) => {
            let context = surroundings.process_context()?;
            match new_runtime() {
                Ok(runtime) => {
                    block_on(runtime, async move { doctor::doctor(&args, context).await })
                }
                Err(error) => doctor::report_no_runtime(&args, &context.variables, &error),
            }
        }
        CliRequest::Config(args) => {
            with_runtime(config::config(args, surroundings.process_context()?))
        }
        CliRequest::Sessions(args) => {
            with_runtime(sessions::sessions(args, surroundings.process_context()?))
        }
        CliRequest::Mcp(args) => {
            with_runtime(inspect::servers(args, surroundings.process_context()?))
        }
        CliRequest::Inspect(args) => {
            with_runtime(inspect::inspect(args, surroundings.process_context()?))
        }
        CliRequest::Report(args) => {
            with_runtime(report::report(args, surroundings.process_context()?))
        }
        CliRequest::Batch(args) => {
            let context = surroundings.process_context()?;
            with_runtime(async move { batch::batch(&args, context).await })
        }
    }
}

/// Chooses the folder of sessions, and whether messages are written to standard error.
fn prepare_context(args: &RunArgs, context: &mut ProcessContext) {
    use_folder_of_session(args, &mut context.variables, &context.cwd);
    // The result does not contain the requested details.
    let wants_details = args.output.log_detail || args.compatibility.logs_detail();
    context.is_result_alone = !wants_details && is_result_alone(args.output.output_format);
}

fn print_schema(subject: SchemaSubject) -> Result<(), UsageError> {
    let schema = match subject {
        SchemaSubject::Result => result_schema(),
        SchemaSubject::Stream => stream_schema(),
        SchemaSubject::Settings => schema(),
    };
    print(&format!("{schema:#}\n"))
}

fn render_help(text: &StyledStr, is_plain: bool) -> String {
    let text = if is_plain { text.to_string() } else { text.ansi().to_string() };
    format!("{}\n", text.trim_end())
}

/// Changes to the folder of `-C`: paths of the command line are relative to it, as with git and
/// make.
fn change_folder(directory: &Path) -> Result<(), UsageError> {
    env::set_current_dir(directory).map_err(|error| {
        UsageError::new(format!("-C {}: {error}; name a folder that exists", directory.display()))
    })
}

impl Surroundings<'_> {
    /// Returns the environment, the working folder and the other facts of the process.
    fn process_context(self) -> Result<ProcessContext, UsageError> {
        let cwd = env::current_dir().map_err(|error| {
            UsageError::new(format!(
                "the working folder cannot be read: {error}; change to another"
            ))
        })?;
        let (signals, exit_watchdog) = (self.signals.clone(), self.last.clone());
        let mut context = ProcessContext {
            began: Instant::now(),
            variables: self.variables,
            cwd: PathBuf::new(),
            signals,
            exit_watchdog,
            is_result_alone: false,
            host: None,
        };
        context.set_folder(cwd);
        Ok(context)
    }
}

fn with_runtime(work: impl CommandFuture) -> Result<u8, UsageError> {
    block_on(new_runtime().map_err(|error| UsageError::no_thread(&error))?, work)
}

/// Starts the threads of the runtime: its worker, and the first of those for blocking calls.
fn new_runtime() -> io::Result<Runtime> {
    let start = || {
        let runtime = runtime::Builder::new_multi_thread()
            // A second worker would be woken at each event and find no work, which takes a fifth of
            // the processor time of a turn (debug build).
            .worker_threads(1)
            // The threads for blocking calls are kept: the system may have no room for new ones.
            .thread_keep_alive(LONGEST_PAUSE)
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()?;
        drop(runtime.spawn_blocking(|| {}));
        Ok(runtime)
    };
    // The library panics if the system has no room for a thread.
    catch_panic(start).unwrap_or_else(|_panic| Err(Errno::EAGAIN.into()))
}

/// The work of a command.
trait CommandFuture: Future<Output = Result<u8, UsageError>> + Send + 'static {}

impl<F: Future<Output = Result<u8, UsageError>> + Send + 'static> CommandFuture for F {}

/// Executes the command on a worker, like most of the tasks that it waits for: on this thread, the
/// command would have to be woken by the worker for each chunk of a reply.
fn block_on(runtime: Runtime, work: impl CommandFuture) -> Result<u8, UsageError> {
    let ended = runtime.block_on(runtime.spawn(work));
    // A thread that is blocked reading standard input must not keep the process alive.
    runtime.shutdown_background();
    // The command is never cancelled, so an error is a panic, which continues here.
    ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}
