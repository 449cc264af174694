//! The observers of a run on standard error and in the file of `--debug-file`.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use anyhow::Context;

use crate::agent::{Observer, RunEvent};

use super::args::Verbosity;
use super::output::{
    DebugLog, LineMedium, LineStyle, ProgressLines, RunLimits, StatusLine, Styling,
    is_stderr_stdout, log_libraries,
};
use super::run::RunJob;
use super::timestamps::WallTime;
use super::usage::UsageError;

/// Reports nothing.
struct NoProgress;

impl Observer for NoProgress {
    fn observe(&mut self, _event: &RunEvent) {}
}

impl RunJob {
    /// Opens the file for all details, if a flag names it.
    pub(super) fn debug_log(&self) -> Result<Option<DebugLog>, UsageError> {
        let output = &self.settings.output;
        let Some(filter) = &output.library_log else { return Ok(None) };
        let Some(place) = &output.files.debug else {
            log_libraries(self.shared.stderr.clone(), filter);
            return Ok(None);
        };
        let name = || format!("--debug-file {}", place.path().display());
        let file = place.append().with_context(name)?;
        let clock = self.clock;
        let now = move || WallTime::from_clock(&clock);
        let redactor = Arc::clone(&self.shared.redactor);
        let log = DebugLog::new(file, redactor, now, self.run_limits(), filter);
        Ok(Some(log.map_err(|error| UsageError::no_thread(&error))?))
    }

    /// Returns the observer for standard error: a bar on a terminal, lines otherwise.
    pub(super) fn progress_observer(&self) -> Box<dyn Observer> {
        let output = &self.settings.output;
        if self.host.is_some() && output.verbosity != Some(Verbosity::Detail) {
            // The host reads the progress on standard output.
            return Box::new(NoProgress);
        }
        let (clock, verbosity) = (self.clock, self.verbosity());
        if verbosity == Verbosity::Failures {
            return Box::new(NoProgress);
        }
        let is_quiet = output.verbosity == Some(Verbosity::Waits);
        let is_shared = output.library_log.is_some() && output.files.debug.is_none();
        let is_plain = output.dumb_terminal || is_quiet || is_shared;
        let has_status = io::stderr().is_terminal() && !is_plain;
        let medium = if has_status { LineMedium::Terminal } else { LineMedium::Log };
        let style =
            LineStyle { verbosity, medium, styling: self.styling(), limits: self.run_limits() };
        let now = move || WallTime::from_clock(&clock);
        let lines = ProgressLines::new(self.shared.stderr.clone(), now, style);
        match medium {
            LineMedium::Terminal => Box::new(StatusLine::new(lines, self.scale)),
            LineMedium::Log => Box::new(lines),
        }
    }

    /// Returns the level of detail on standard error. In a pipe or a file only waits and problems
    /// are reported, so that a cron job that succeeds prints nothing. In CI calls are reported too,
    /// unless a caller captures standard error together with the result.
    pub(super) fn verbosity(&self) -> Verbosity {
        let output = &self.settings.output;
        let is_read_by_people = io::stderr().is_terminal() || output.is_ci && !is_stderr_stdout();
        let usual = if is_read_by_people { Verbosity::Calls } else { Verbosity::Waits };
        output.verbosity.unwrap_or(usual)
    }

    fn run_limits(&self) -> RunLimits {
        RunLimits { budget: self.settings.config.max_budget_usd, time: self.limit }
    }

    /// Returns the colours of standard error.
    pub(super) fn styling(&self) -> Styling {
        Styling::of(self.settings.output.colors, io::stderr().is_terminal())
    }
}
