//! Background tasks, as results and observers see them.

use std::path::PathBuf;
use std::time::Duration;

/// A command, or a sub-agent, that was started in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundTask {
    pub kind: BackgroundKind,
    /// The id that the model uses.
    pub id: String,
    /// The tool call that started it.
    pub call: String,
    /// The command line, possibly truncated; for a sub-agent, its kind.
    pub command: String,
    /// The model's description of the task.
    pub description: Option<String>,
    /// Its outcome. `None` while it runs.
    pub end: Option<BackgroundEnd>,
    /// The running time.
    pub took: Duration,
    /// The exit code as a shell reports it; `None` while it runs, or if it is not available.
    pub exit_code: Option<i32>,
    /// The exit code of its first process, if others go on.
    pub first_exit: Option<i32>,
    /// The size of the output in bytes. Known once it has ended.
    pub output_bytes: u64,
    /// The file with the output, if that is long.
    pub output_file: Option<PathBuf>,
}

impl BackgroundTask {
    pub(super) fn running(
        kind: BackgroundKind,
        id: String,
        call: String,
        command: String,
        description: Option<String>,
    ) -> Self {
        Self {
            kind,
            id,
            call,
            command,
            description,
            end: None,
            took: Duration::ZERO,
            exit_code: None,
            first_exit: None,
            output_bytes: 0,
            output_file: None,
        }
    }

    /// Marks a running task as ended together with the run.
    #[must_use]
    pub fn ended_with_run(self) -> Self {
        Self { end: self.end.or(Some(BackgroundEnd::RunEnded)), ..self }
    }

    /// The name of the current state.
    pub fn status(&self) -> &'static str {
        self.end.map_or("running", |end| end.into_str())
    }
}

/// The kind of a background task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundKind {
    Command,
    Agent,
}

/// The outcome of a background task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum BackgroundEnd {
    /// It ended with exit code 0; a sub-agent, with success.
    Completed,
    Failed,
    /// Stopped by `KillShell`.
    Killed,
    /// It reached its maximum lifetime.
    TimedOut,
    /// It was stopped because it used this many bytes of memory.
    MemoryExceeded(u64),
    /// The run ended first.
    #[strum(serialize = "cut")]
    RunEnded,
}

impl BackgroundEnd {
    /// True if neither the model, nor a host, nor the end of a run stopped the task.
    pub(super) fn came_by_itself(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::TimedOut | Self::MemoryExceeded(_) => true,
            Self::Killed | Self::RunEnded => false,
        }
    }
}
