//! Output of a run: messages and the result on standard output, progress on standard error, result
//! and heartbeat files.

mod agents;
mod bar;
mod calls;
mod capabilities;
mod debug_log;
mod deltas;
mod heartbeat_file;
mod heartbeat_line;
mod library_log;
mod lines;
mod paragraph;
mod pipe;
mod progress_snapshot;
mod recoveries;
mod result;
mod screen;
mod service_notifier;
mod shrink;
mod status_terminal;
mod stream_json;
mod style;
mod summary;
mod terminal_filter;

pub use agents::command_messages;
pub use bar::StatusLine;
pub use capabilities::Capabilities;
pub use debug_log::DebugLog;
pub use heartbeat_file::HeartbeatFile;
pub use library_log::log_libraries;
pub use lines::{LineMedium, LineStyle, ProgressLines, one_line, print_message};
pub use paragraph::{Paragraph, columns_of};
pub use pipe::{PipeDrain, PipeFraming, PipeSender, framed_pipe, pipe};
pub use progress_snapshot::SnapshotRecorder;
pub use result::{ResultReport, Resumption, empty_result, model_usage, usage_error_result};
pub use screen::{Screen, is_result_alone, is_stderr_stdout};
pub use service_notifier::ServiceNotifier;
pub use shrink::shrink;
pub use status_terminal::status_target;
pub use stream_json::{ResultBuilder, StreamJson, StreamOptions};
pub use style::{Styling, Tone};
pub use summary::{RunLimits, last_line};
pub use terminal_filter::TerminalFilter;
pub(in crate::cli) use terminal_filter::{break_at_separators, is_terminal_control};

use crate::agent::{Observer, RunEvent};
use crate::telemetry::SpanRecorder;

/// All observers of a run.
pub struct RunObservers {
    pub snapshots: SnapshotRecorder,
    /// Lines, or a bar on a terminal.
    pub people: Box<dyn Observer>,
    /// `None` for `text`, and for `json` without `--verbose`, which print nothing before the end.
    pub programs: Option<StreamJson>,
    pub probe: Option<HeartbeatFile>,
    pub debug: Option<DebugLog>,
    pub spans: Option<SpanRecorder>,
    pub service: Option<ServiceNotifier>,
}

impl Observer for RunObservers {
    fn observe(&mut self, event: &RunEvent) {
        self.snapshots.observe(event);
        self.people.observe(event);
        self.programs.observe(event);
        self.probe.observe(event);
        self.debug.observe(event);
        self.spans.observe(event);
        self.service.observe(event);
    }
}

impl<O: Observer> Observer for Option<O> {
    fn observe(&mut self, event: &RunEvent) {
        if let Some(observer) = self {
            observer.observe(event);
        }
    }
}
