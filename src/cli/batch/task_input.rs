//! Reads the tasks of a batch, from a file or from standard input, with the time limits of the
//! inputs of a run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{TaskFileError, TaskLine, read_tasks};
use crate::cli::args;
use crate::cli::error_report::mask_of;
use crate::cli::output::{PipeSender, TerminalFilter, pipe};
use crate::cli::prompt::{self, InputLabel, Waited};
use crate::cli::run::ProcessContext;
use crate::cli::startup::StartupSteps;
use crate::cli::stdin::{self, Pieces};
use crate::cli::timestamps::{format_duration, format_elapsed};
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::environment;
use crate::config::kinds::Span;
use crate::json;
use crate::process::file_reads::{self, OpenedInput};

/// Maximum size of the tasks of a batch, in bytes.
const BYTES_MAX: usize = 256 << 20;

/// Time limit of the wait for a slow reader of standard error.
const STDERR_WAIT_MAX: Duration = Duration::from_millis(200);

/// The source of the tasks.
pub(super) enum TaskSource {
    Stdin,
    File(PathBuf),
}

impl TaskSource {
    /// Returns the source that TASKS names.
    pub(super) fn named(named: &Path, cwd: &Path) -> Self {
        // Opening these names fails for a socket, and would read a file from its beginning.
        let stdin = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
        if stdin.iter().any(|name| named == Path::new(name)) {
            Self::Stdin
        } else {
            Self::File(cwd.join(named))
        }
    }

    /// Returns the path for the plan.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Stdin => Path::new("/dev/stdin"),
            Self::File(path) => path,
        }
    }

    /// Reads the tasks. `place` is the source in messages, `flags` are those after `--`.
    ///
    /// # Errors
    /// A mistake in the tasks; or the source cannot be read, or not in time.
    pub(super) async fn read(
        &self,
        place: &str,
        flags: &[String],
        context: &ProcessContext,
    ) -> Result<Vec<TaskLine>, UsageError> {
        let redactor = Arc::new(mask_of(&context.variables));
        let (stderr, drain) = pipe(TerminalFilter::messages(io::stderr()), redactor, || {})
            .map_err(|error| UsageError::no_thread(&error))?;
        let read = self.read_reporting(place, flags, context, &stderr).await;
        drop(stderr);
        // Standard error may not be read; the exit code is enough.
        let _ = drain.finish(STDERR_WAIT_MAX).await;
        read
    }

    async fn read_reporting(
        &self,
        place: &str,
        flags: &[String],
        context: &ProcessContext,
        stderr: &PipeSender,
    ) -> Result<Vec<TaskLine>, UsageError> {
        let steps = StartupSteps::new(&context.signals, stderr, None);
        let timeout = stdin_timeout(flags);
        let (bytes, base) = match self {
            Self::Stdin => {
                let pipe = ("standard input", stdin::start_reading());
                let bytes = read_pipe(pipe, timeout, context, stderr).await?;
                (bytes, Some(context.cwd.as_path()))
            }
            Self::File(path) => {
                let (file, name) = (path.clone(), format!("TASKS {place}"));
                let shown = name.clone();
                let opening = move || {
                    let opened = file_reads::open_bounded(&file, BYTES_MAX as u64);
                    opened.map_err(|error| {
                        UsageError::new(format!("{shown} cannot be read: {error}"))
                    })
                };
                match steps.step("reading the tasks", opening).await? {
                    OpenedInput::Content(bytes) => (bytes, path.parent()),
                    OpenedInput::Pipe(file) => {
                        let pipe = (&*name, stdin::start_reading_pipe(file));
                        let bytes = read_pipe(pipe, timeout, context, stderr).await?;
                        // Pipes of a shell have no folder.
                        let base = if path.starts_with("/dev/fd") || path.starts_with("/proc") {
                            Some(context.cwd.as_path())
                        } else {
                            path.parent()
                        };
                        (bytes, base)
                    }
                }
            }
        };
        let text = text(bytes, place)?;
        let base = base.unwrap_or(Path::new("/")).to_owned();
        let place = place.to_owned();
        // They may name files of prompts.
        let home = environment::home(&context.variables);
        let reading = move || {
            let folders = (&*base, home.as_deref());
            read_tasks(&place, &text, folders).map_err(|all| mistakes(&all))
        };
        steps.step("reading the prompts of the tasks", reading).await
    }
}

/// Reads the tasks from standard input or another pipe: their writer may take long, but is not
/// silent for longer than `timeout`.
async fn read_pipe(
    (name, pieces): (&str, Pieces),
    timeout: Duration,
    context: &ProcessContext,
    stderr: &PipeSender,
) -> Result<Vec<u8>, UsageError> {
    let notify_wait = |waited: Waited| {
        stderr.offer(&format!(
            "outlast: waiting for the tasks from {name}, {} so far, {} left",
            format_elapsed(waited.so_far),
            format_duration(waited.left)
        ));
    };
    let heartbeat = Config::default().limits.heartbeat;
    let limits = (timeout, BYTES_MAX);
    let label = InputLabel {
        name,
        instead: "write the tasks to a file and name it",
        if_large: "divide the tasks into several batches",
    };
    let reading = prompt::read_to_end((label, pieces), limits, heartbeat, notify_wait);
    tokio::select! {
        biased;
        interrupt = context.signals.first() => Err(UsageError::interrupted(interrupt)),
        read = reading => read,
    }
}

/// Returns the maximum wait for data on standard input or another pipe, which flags for the tasks
/// may set.
fn stdin_timeout(flags: &[String]) -> Duration {
    let words = [&["run".to_owned()], flags].concat();
    // Mistakes in them are reported once the tasks are known.
    let given = args::run_flags(&words).map(|run| run.flags.values(&mut Vec::new()));
    let mut given = given.unwrap_or_default().into_iter();
    let timeout = given.rfind(|flag| flag.setting.key == "stdinTimeout");
    let timeout = timeout.and_then(|flag| serde_json::from_value::<Span>(flag.value).ok());
    timeout.map_or(Config::default().stdin_timeout, |span| span.0)
}

/// Decodes the text: UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it.
fn text(bytes: Vec<u8>, place: &str) -> Result<String, UsageError> {
    String::from_utf8(bytes).or_else(|error| {
        let bytes = error.as_bytes();
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return Ok(json::decode(bytes).into_owned());
        }
        let before = &bytes[..error.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        Err(UsageError::new(format!("{place}:{line}: the text is not valid UTF-8; encode it so")))
    })
}

fn mistakes(all: &[TaskFileError]) -> UsageError {
    let more = match all.len() {
        0 | 1 => String::new(),
        2 => " (and 1 more mistake in this file)".to_owned(),
        count => format!(" (and {} more mistakes in this file)", count - 1),
    };
    let first = all.first().map(ToString::to_string).unwrap_or_default();
    UsageError::new(format!("{first}{more}"))
}
