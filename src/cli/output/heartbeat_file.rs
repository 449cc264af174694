//! The heartbeat file: its age says whether the run is alive.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::agent::{Observer, RunEvent};

/// The minimum interval between updates.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Updates the time of a file with every event of the run.
pub struct HeartbeatFile {
    file: File,
    touched: Instant,
}

impl HeartbeatFile {
    /// Makes the file, or touches it.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn create(path: &Path) -> io::Result<Self> {
        // A pipe would make us wait for its reader.
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(path)?;
        file.set_modified(SystemTime::now())?;
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
