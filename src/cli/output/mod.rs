//! What a run says while it goes on and when it is over: standard output for programs, standard
//! error for people, files for whoever looks later.

mod agents;
mod bar;
mod categories;
mod deltas;
mod lines;
mod offers;
mod pipe;
mod probe;
mod result;
mod servers;
mod shrink;
mod stream_json;
mod witness;

pub use bar::StatusLine;
pub use lines::{ProgressLines, one_line};
pub use offers::Capabilities;
pub use pipe::{PipeDrain, PipeFraming, PipeSender, framed_pipe, pipe};
pub use probe::HeartbeatFile;
pub use result::{
    ResultReport, ResultRetention, Resumption, StagedResult, refused, remove_result_file,
    stage_result_file, write_result_file,
};
pub use shrink::shrink;
pub use stream_json::StreamJson;
pub use witness::SnapshotRecorder;

use crate::agent::{Observer, RunNotice};

/// Everybody who watches a run.
pub struct RunObservers {
    pub witness: SnapshotRecorder,
    /// Lines, or a bar on a terminal.
    pub people: Box<dyn Observer>,
    /// `text`, and `json` without `--verbose`, have nothing to say before the end.
    pub programs: Option<StreamJson>,
    pub probe: Option<HeartbeatFile>,
}

impl Observer for RunObservers {
    fn observe(&mut self, notice: &RunNotice<'_>) {
        self.witness.observe(notice);
        self.people.observe(notice);
        if let Some(programs) = &mut self.programs {
            programs.observe(notice);
        }
        if let Some(probe) = &mut self.probe {
            probe.observe(notice);
        }
    }
}
