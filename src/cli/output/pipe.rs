//! Writing lines without waiting for whoever reads them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Mask;

/// How many lines may wait for a slow reader.
const BACKLOG: usize = 4096;

enum Job {
    Line(String),
    End,
}

/// Where lines go in.
#[derive(Clone)]
pub struct Out {
    jobs: SyncSender<Job>,
    mask: Arc<Mask>,
}

/// Where one learns that they have all come out.
pub struct Drain {
    jobs: SyncSender<Job>,
    done: oneshot::Receiver<io::Result<()>>,
}

/// Writes lines to `sink` from a thread of its own, flushing each. A sink that fails is reported
/// once through `broken`, and nothing more is written to it.
pub fn pipe(
    sink: impl Write + Send + 'static,
    mask: Arc<Mask>,
    broken: impl FnOnce() + Send + 'static,
) -> (Out, Drain) {
    let (jobs, queue) = sync_channel(BACKLOG);
    let (tell, done) = oneshot::channel();
    thread::spawn(move || {
        let written = write(&queue, sink);
        if written.is_err() {
            broken();
        }
        // Nobody may be listening any more.
        let _ = tell.send(written);
    });
    (Out { jobs: jobs.clone(), mask }, Drain { jobs, done })
}

fn write(queue: &Receiver<Job>, mut sink: impl Write) -> io::Result<()> {
    while let Ok(Job::Line(line)) = queue.recv() {
        sink.write_all(line.as_bytes())?;
        sink.flush()?;
    }
    Ok(())
}

impl Out {
    /// The text without secrets.
    pub(super) fn hide(&self, text: &str) -> String {
        self.mask.hide(text)
    }

    /// Queues a line. Blocks only when the reader is thousands of lines behind.
    pub fn send(&self, line: &str) {
        // The error says that the sink broke, which has been told where it matters.
        let _ = self.jobs.send(Job::Line(self.mask.hide(line) + "\n"));
    }

    /// Queues a line, or drops it when the reader is thousands of lines behind.
    pub fn offer(&self, line: &str) {
        let _ = self.jobs.try_send(Job::Line(self.mask.hide(line) + "\n"));
    }
}

impl Drain {
    /// Waits until everything is written, for at most `patience`.
    ///
    /// # Errors
    /// The sink failed, or its reader was too slow.
    pub async fn finish(self, patience: Duration) -> io::Result<()> {
        let written = async {
            let jobs = self.jobs;
            // The queue may be full, so this may wait: on a thread where it may.
            let _ = tokio::task::spawn_blocking(move || jobs.send(Job::End)).await;
            self.done.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
        };
        tokio::time::timeout(patience, written)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
