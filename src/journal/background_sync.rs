//! Syncs a file on a thread of its own, while the run continues.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use parking_lot::Mutex;

use crate::process::spawn_detached;

/// Owns the thread, which ends when this is dropped. Requests are numbered, and one sync can
/// complete several.
#[derive(Debug)]
pub(super) struct BackgroundSync {
    requests: Sender<u64>,
    /// Never contended: it makes this type `Sync`.
    results: Mutex<Receiver<(u64, io::Result<()>)>>,
    /// The number of the last request.
    requested: u64,
    /// The number of the last request whose result has been received.
    finished: u64,
}

impl BackgroundSync {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for another descriptor or thread.
    pub(super) fn start(file: &File) -> io::Result<Self> {
        // The same open file: the kernel reports an error of the disk once for all its descriptors.
        let file = file.try_clone()?;
        let (requests, received) = mpsc::channel();
        let (answers, results) = mpsc::channel();
        spawn_detached(thread::Builder::new().name("journal-sync".to_owned()), move || {
            while let Ok(first) = received.recv() {
                let last = received.try_iter().last().unwrap_or(first);
                if answers.send((last, file.sync_data())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, results: Mutex::new(results), requested: 0, finished: 0 })
    }

    /// Begins to sync everything that has been written.
    pub(super) fn begin(&mut self) {
        self.requested += 1;
        // Without the thread, `finish` reports that there is no result.
        let _ = self.requests.send(self.requested);
    }

    /// Returns the error of a finished sync, if there is one. Does not wait.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let results = self.results.get_mut();
        while let Ok((number, result)) = results.try_recv() {
            self.finished = number;
            result?;
        }
        Ok(())
    }

    /// Waits for all syncs, and returns the first error.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let results = self.results.get_mut();
        while self.finished < self.requested {
            let ended = |_| io::Error::other("the thread that syncs the journal has ended");
            let (number, result) = results.recv().map_err(ended)?;
            self.finished = number;
            result?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn syncs_of(path: &str) -> BackgroundSync {
        let file = OpenOptions::new().append(true).open(path).expect("a file");
        BackgroundSync::start(&file).expect("there is room for a thread")
    }

    #[test]
    fn the_error_of_a_sync_is_returned_once_by_what_comes_first() {
        let mut syncs = syncs_of("/dev/null");
        assert!(syncs.finish().is_ok(), "nothing was requested");
        syncs.begin();
        assert!(syncs.finish().is_err(), "this file cannot be synced");
        assert!(syncs.finish().is_ok() && syncs.check().is_ok(), "it was returned");
    }

    #[test]
    fn all_requested_syncs_are_finished() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut syncs = syncs_of(file.path().to_str().expect("UTF-8"));
        for _ in 0..100 {
            syncs.begin();
            assert!(syncs.check().is_ok());
        }
        assert!(syncs.finish().is_ok());
        assert_eq!((syncs.requested, syncs.finished), (100, 100));
    }
}
