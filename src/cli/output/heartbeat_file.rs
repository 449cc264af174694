//! The heartbeat file: its age shows whether the run is alive.

use std::fs::File;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::agent::{Observer, RunEvent};
use crate::cli::output_file::{OutputFile, OutputFileError};

/// The minimum interval between updates.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Updates the time of a file with every event of the run.
pub struct HeartbeatFile {
    file: File,
    touched: Instant,
}

impl HeartbeatFile {
    /// Creates the file, or touches it.
    ///
    /// # Errors
    /// It cannot be created or written.
    pub fn create(place: &OutputFile) -> Result<Self, OutputFileError> {
        let file = place.append()?;
        file.set_modified(SystemTime::now()).map_err(OutputFileError::Unusable)?;
        Ok(Self { file, touched: Instant::now() })
    }
}

impl Observer for HeartbeatFile {
    fn observe(&mut self, _: &RunEvent) {
        if self.touched.elapsed() >= MIN_INTERVAL {
            self.touched = Instant::now();
            // An error shows as an old file, which the liveness probe detects.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }
}
