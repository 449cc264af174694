//! A background command as those outside see it.

use std::path::PathBuf;
use std::time::Duration;

/// A command, or a sub-agent, that was started in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundTask {
    pub kind: BackgroundKind,
    /// What the model calls it.
    pub id: String,
    /// The tool call that started it.
    pub call: String,
    /// Its beginning, when it is long. Of a sub-agent: what kind it is of.
    pub command: String,
    /// What the model said that it is for.
    pub description: Option<String>,
    /// How it ended. `None` while it runs.
    pub end: Option<BackgroundEnd>,
    /// For how long it ran.
    pub took: Duration,
    /// As a shell tells it; `None` when it runs, or the system does not tell.
    pub exit_code: Option<i32>,
    /// How much it printed, in bytes. Known once it has ended.
    pub output_bytes: u64,
    /// Where its output is kept, if that is long.
    pub output_file: Option<PathBuf>,
}

/// What works in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundKind {
    Command,
    Agent,
}

/// How a background command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundEnd {
    /// With exit code 0.
    Completed,
    Failed,
    /// By `KillShell`.
    Killed,
    /// It reached its longest running time.
    TimedOut,
    /// The run ended first.
    RunEnded,
}

impl BackgroundEnd {
    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
            Self::RunEnded => "cut",
        }
    }
}

impl BackgroundTask {
    /// The same after the run has ended with it.
    #[must_use]
    pub fn ended_with_run(self) -> Self {
        Self { end: self.end.or(Some(BackgroundEnd::RunEnded)), ..self }
    }

    /// The name of how it stands.
    pub fn status(&self) -> &'static str {
        self.end.map_or("running", BackgroundEnd::name)
    }
}
