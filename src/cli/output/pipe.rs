//! Non-blocking line output: a slow reader does not delay the run.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::json::to_line;
use crate::messages::{HostMessage, StreamMessage};
use crate::process::spawn_detached;
use crate::secrets::{Redactor, StreamRedactor};

use super::shrink;

/// Maximum size of queued required output, in bytes. A reader further behind counts as gone.
const BACKLOG: usize = 64 << 20;

/// Size of the queue above which optional output is dropped, in bytes.
const SMALL_BACKLOG: usize = 1 << 20;

enum PipeJob {
    Line(String),
    /// The final line.
    Last(String),
    /// Reports that everything before it was written.
    Flushed(oneshot::Sender<()>),
    End,
}

/// Framing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeFraming {
    /// Each message is a line.
    Lines,
    /// The messages are the elements of a JSON array on one line, which the last message closes.
    Array,
}

/// The sender of lines.
#[derive(Clone)]
pub struct PipeSender {
    jobs: Sender<PipeJob>,
    redactor: Arc<Redactor>,
    backlog: Arc<PipeBacklog>,
}

/// Waits until all lines were written.
pub struct PipeDrain {
    jobs: Sender<PipeJob>,
    done: oneshot::Receiver<io::Result<()>>,
}

/// Output that was queued and is not yet written.
struct PipeBacklog {
    bytes: AtomicUsize,
    /// True if the last line was queued, or nothing more can be written.
    closed: AtomicBool,
    /// Called once when the reader is gone.
    broken: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The error of the sink, if it failed.
    failure: OnceLock<(io::ErrorKind, String)>,
}

impl PipeBacklog {
    /// Records why the sink failed. Only a broken pipe means that the reader is gone.
    fn fail(&self, error: &io::Error) {
        let _ = self.failure.set((error.kind(), error.to_string()));
        self.closed.store(true, Ordering::SeqCst);
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.give_up();
        }
    }

    fn failure(&self) -> io::Error {
        self.failure.get().map_or_else(
            || io::ErrorKind::BrokenPipe.into(),
            |(kind, text)| io::Error::new(*kind, text.clone()),
        )
    }

    fn give_up(&self) {
        let broken = self.broken.lock().take();
        if let Some(notify) = broken {
            notify();
        }
    }
}

/// Writes lines to `sink` on a thread of its own, flushing each. A reader that is gone or too far
/// behind is reported once by calling `broken`; any other failure of the sink is reported only by
/// the drain.
///
/// # Errors
/// The system has no room for the thread.
pub fn pipe(
    sink: impl Write + Send + 'static,
    redactor: Arc<Redactor>,
    broken: impl FnOnce() + Send + 'static,
) -> io::Result<(PipeSender, PipeDrain)> {
    framed_pipe(PipeFraming::Lines, sink, redactor, broken)
}

/// Like [`pipe`], with a choice of framing.
///
/// # Errors
/// As [`pipe`].
pub fn framed_pipe(
    framing: PipeFraming,
    sink: impl Write + Send + 'static,
    redactor: Arc<Redactor>,
    broken: impl FnOnce() + Send + 'static,
) -> io::Result<(PipeSender, PipeDrain)> {
    let (jobs, queue) = channel();
    let (notify, done) = oneshot::channel();
    let broken: Box<dyn FnOnce() + Send> = Box::new(broken);
    let broken = Mutex::new(Some(broken));
    let backlog = Arc::new(PipeBacklog {
        bytes: AtomicUsize::new(0),
        closed: AtomicBool::new(false),
        broken,
        failure: OnceLock::new(),
    });
    let waiting = Arc::clone(&backlog);
    spawn_detached(thread::Builder::new(), move || {
        let written = write(&queue, Framed { framing, sink, open: false }, &waiting.bytes);
        if let Err(error) = &written {
            waiting.fail(error);
        }
        // The receiver may be gone.
        let _ = notify.send(written);
    })?;
    Ok((PipeSender { jobs: jobs.clone(), redactor, backlog }, PipeDrain { jobs, done }))
}

fn write<S: Write>(
    queue: &Receiver<PipeJob>,
    mut sink: Framed<S>,
    backlog: &AtomicUsize,
) -> io::Result<()> {
    loop {
        let line = match queue.recv() {
            Ok(PipeJob::Line(line)) => {
                sink.put(&line)?;
                line
            }
            Ok(PipeJob::Last(line)) => {
                sink.put(&line)?;
                sink.close()?;
                line
            }
            Ok(PipeJob::Flushed(notify)) => {
                // The receiver has given up.
                let _ = notify.send(());
                continue;
            }
            Ok(PipeJob::End) | Err(_) => return sink.close(),
        };
        backlog.fetch_sub(line.len(), Ordering::Relaxed);
    }
}

/// Writes lines with their framing.
struct Framed<S> {
    framing: PipeFraming,
    sink: S,
    /// True if an array was begun and not closed.
    open: bool,
}

impl<S: Write> Framed<S> {
    fn put(&mut self, line: &str) -> io::Result<()> {
        match self.framing {
            PipeFraming::Lines => self.sink.write_all(line.as_bytes())?,
            PipeFraming::Array => {
                let before = if self.open { "," } else { "[" };
                self.open = true;
                self.sink.write_all(before.as_bytes())?;
                self.sink.write_all(line.trim_end_matches('\n').as_bytes())?;
            }
        }
        self.sink.flush()
    }

    fn close(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.open) {
            self.sink.write_all(b"]\n")?;
            self.sink.flush()?;
        }
        Ok(())
    }
}

impl PipeSender {
    /// Returns the text without secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        self.redactor.redact(text)
    }

    /// Returns the input of a tool call without secrets. The whole input must be redacted, since a
    /// key may not be recognisable in a part of it or in its JSON text.
    pub(super) fn redact_input(&self, input: &Value) -> Value {
        let mut call = json!({ "input": input });
        self.redactor.redact_json(&mut call);
        call["input"].take()
    }

    /// Queues a line. Never blocks: a run must be able to end regardless of the reader.
    pub fn send(&self, line: &str) {
        self.queue(self.redactor.redact(line));
    }

    /// Redacts an object, cuts its texts if it is longer than `longest`, in bytes, and queues it.
    /// If the object were cut first, a part of a secret could remain.
    pub fn send_json(&self, object: Value, longest: Option<usize>) {
        self.queue(self.masked(object, longest));
    }

    /// Queues a message, as [`Self::send_json`].
    pub fn send_message(&self, message: impl Into<StreamMessage>, longest: Option<usize>) {
        self.send_json(message.into().to_value(), longest);
    }

    /// Queues a request to the host without redacting it: tools, hooks and servers of the host need
    /// the values.
    pub fn send_unmasked(&self, message: HostMessage) {
        self.send_host_message(message, None);
    }

    /// Queues a reply to the host. Its texts are cut if it is longer than `longest`, in bytes.
    pub fn send_reply(&self, message: HostMessage, longest: usize) {
        self.send_host_message(message, Some(longest));
    }

    fn send_host_message(&self, message: HostMessage, longest: Option<usize>) {
        self.queue(bounded_line(StreamMessage::from(message).to_value(), longest));
    }

    /// Waits until everything queued so far is written, for at most `limit`. The sink stays open.
    ///
    /// # Errors
    /// The sink failed, or its reader was too slow.
    pub async fn flush(&self, limit: Duration) -> io::Result<()> {
        let (notify, notified) = oneshot::channel();
        // If the sink failed, the notification is missing, which is handled below.
        let _ = self.jobs.send(PipeJob::Flushed(notify));
        match tokio::time::timeout(limit, notified).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.backlog.failure()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Queues the final object; later messages of other senders are dropped.
    pub fn send_last(&self, object: Value, longest: Option<usize>) {
        self.enqueue(self.masked(object, longest), PipeJob::Last);
        self.backlog.closed.store(true, Ordering::SeqCst);
    }

    fn masked(&self, mut object: Value, longest: Option<usize>) -> String {
        self.redactor.redact_json(&mut object);
        bounded_line(object, longest)
    }

    /// Returns a redactor of text that arrives in pieces.
    pub(super) fn masking(&self) -> StreamRedactor {
        self.redactor.stream()
    }

    /// Returns true if everything has been written, or nothing more can be.
    pub fn is_idle(&self) -> bool {
        self.backlog.failure.get().is_some() || self.backlog.bytes.load(Ordering::SeqCst) == 0
    }

    /// Queues a line, or drops it when the reader is far behind.
    pub fn offer(&self, line: &str) {
        if self.backlog.bytes.load(Ordering::Relaxed) < SMALL_BACKLOG {
            self.send(line);
        }
    }

    /// Queues a redacted line, or drops it if the reader is too far behind, so that the queue does
    /// not grow without limit. The last line is not queued by this method.
    fn queue(&self, masked: String) {
        if self.backlog.bytes.load(Ordering::Relaxed) > BACKLOG {
            return;
        }
        self.enqueue(masked, PipeJob::Line);
        if self.backlog.bytes.load(Ordering::Relaxed) > BACKLOG {
            self.backlog.give_up();
        }
    }

    fn enqueue(&self, masked: String, job: impl FnOnce(String) -> PipeJob) {
        if self.backlog.closed.load(Ordering::SeqCst) {
            return;
        }
        let line = masked + "\n";
        self.backlog.bytes.fetch_add(line.len(), Ordering::Relaxed);
        // The error means that the sink failed, which was already reported.
        let _ = self.jobs.send(job(line));
    }
}

/// Formats an object as a line. Its texts are cut if it is longer than `longest`, in bytes.
fn bounded_line(object: Value, longest: Option<usize>) -> String {
    to_line(&match longest {
        Some(longest) => shrink(object, longest),
        None => object,
    })
}

impl PipeDrain {
    /// Waits until everything is written, for at most `limit`.
    ///
    /// # Errors
    /// The sink failed, or its reader was too slow.
    pub async fn finish(self, limit: Duration) -> io::Result<()> {
        let written = async {
            // If the sink failed, `done` reports that.
            let _ = self.jobs.send(PipeJob::End);
            self.done.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
        };
        tokio::time::timeout(limit, written)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink whose writes fail with this error.
    struct FailingSink(io::ErrorKind);

    impl Write for FailingSink {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A sink whose reader has stopped, until the sender is dropped.
    struct StuckSink(Receiver<()>);

    impl Write for StuckSink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_for_a_reader_that_has_stopped_are_dropped_beyond_a_limit() {
        let (release, released) = channel();
        let notified = Arc::new(AtomicBool::new(false));
        let notify = Arc::clone(&notified);
        let broken = move || notify.store(true, Ordering::SeqCst);
        let redactor = Arc::new(Redactor::default());
        let (sender, drain) = pipe(StuckSink(released), redactor, broken).expect("a thread");
        let line = "x".repeat(BACKLOG / 4);
        for _ in 0..20 {
            sender.send(&line);
        }
        let queued = sender.backlog.bytes.load(Ordering::SeqCst);
        assert!(queued <= BACKLOG + 2 * line.len(), "{queued}");
        assert!(notified.load(Ordering::SeqCst), "the reader counts as gone");
        sender.send_last(json!({}), None);
        drop(release);
        assert!(drain.finish(Duration::from_mins(1)).await.is_ok());
        assert!(sender.is_idle(), "everything was written");
    }

    #[tokio::test]
    async fn a_full_disk_is_distinguished_from_a_reader_that_is_gone() {
        for (kind, is_gone) in
            [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)]
        {
            let notified = Arc::new(AtomicBool::new(false));
            let notify = Arc::clone(&notified);
            let redactor = Arc::new(Redactor::default());
            let broken = move || notify.store(true, Ordering::SeqCst);
            let (sender, drain) = pipe(FailingSink(kind), redactor, broken).expect("a thread");
            sender.send("a line");
            let flushed = sender.flush(Duration::from_mins(1)).await;
            assert_eq!(flushed.map_err(|error| error.kind()), Err(kind));
            for _ in 0..100 {
                sender.send(&"x".repeat(BACKLOG / 64));
            }
            let end = drain.finish(Duration::from_mins(1)).await;
            assert_eq!(end.map_err(|error| error.kind()), Err(kind));
            assert!(sender.is_idle(), "nothing more can be written");
            assert_eq!(notified.load(Ordering::SeqCst), is_gone, "{kind}: also after more output");
        }
    }
}
