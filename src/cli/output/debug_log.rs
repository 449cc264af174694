//! The file of `--debug-file`: the details of a run that `--log-detail` shows, and the log messages
//! of libraries.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::{Observer, RunEvent};
use crate::cli::args::{LogFilter, Verbosity};
use crate::cli::timestamps::WallTime;
use crate::secrets::Redactor;

use super::library_log::{log_libraries, stop_library_log};
use super::lines::{LineMedium, LineStyle, ProgressLines};
use super::pipe::{PipeDrain, pipe};
use super::style::Styling;
use super::summary::RunLimits;

/// Writes the details of a run to a file.
pub struct DebugLog {
    lines: ProgressLines,
    drain: PipeDrain,
}

impl DebugLog {
    /// Appends to an open file. `clock` returns the wall time.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub fn new(
        file: File,
        redactor: Arc<Redactor>,
        clock: impl Fn() -> WallTime + Send + Sync + 'static,
        limits: RunLimits,
        filter: &LogFilter,
    ) -> io::Result<Self> {
        let (out, drain) = pipe(file, redactor, || {})?;
        log_libraries(out.clone(), filter);
        let style = LineStyle {
            verbosity: Verbosity::Detail,
            medium: LineMedium::Log,
            styling: Styling::default(),
            limits,
        };
        Ok(Self { lines: ProgressLines::new(out, clock, style), drain })
    }

    /// Waits until everything is written, for at most `limit`.
    ///
    /// # Errors
    /// The file could not be written.
    pub async fn finish(self, limit: Duration) -> io::Result<()> {
        stop_library_log();
        drop(self.lines);
        self.drain.finish(limit).await
    }
}

impl Observer for DebugLog {
    fn observe(&mut self, event: &RunEvent) {
        self.lines.observe(event);
    }
}
