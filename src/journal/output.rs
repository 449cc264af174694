//! The way of a journal's lines to the disk: through a thread of their own, so that a slow disk
//! delays nothing but what waits for it.
//!
//! ```text
//!          lines, in order                    the lines so far, one sync for all of them
//! Journal ─────────────────► journal thread ───────────────────────────────────────────► file
//!    ▲                             │
//!    └─────────────────────────────┘ the number of finished appends, the health
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::process::{catch_panic, spawn_detached};

use super::lease::LeaseFence;
use super::mirror::JournalMirror;
use super::sink::{JournalHealth, JournalSink};
use super::writer::{Sync, UNSYNCED_BYTES_MAX};

/// The time after which a line is synced that must be synced `Soon`. The request that follows the
/// outcome of a call is mostly sent by then, and so it does not wait for this sync.
const SOON: Duration = Duration::from_millis(10);

/// Time limit of the wait for the thread of an earlier run of this process.
const EARLIER_THREAD_MAX: Duration = Duration::from_mins(1);

/// The pause between looks at a thread that is about to end.
const EARLIER_THREAD_PAUSE: Duration = Duration::from_millis(10);

/// The threads whose owner no longer waits for them, with the file that each of them writes.
static UNAWAITED: Mutex<Vec<(PathBuf, watch::Receiver<JournalProgress>)>> = Mutex::new(Vec::new());

/// Waits until no thread of an earlier run of this process writes this file any more: until then it
/// holds the session, as after an interrupt while the disk was slow. Blocks for a limited time.
pub(super) fn await_earlier_thread(path: &Path) {
    let began = Instant::now();
    while has_earlier_thread(path) && began.elapsed() < EARLIER_THREAD_MAX {
        thread::sleep(EARLIER_THREAD_PAUSE);
    }
}

fn has_earlier_thread(path: &Path) -> bool {
    UNAWAITED.lock().iter().any(|(file, progress)| file == path && !progress.is_closed())
}

/// The place at which the lines of a journal are appended.
#[derive(Debug)]
pub(super) enum JournalOutput {
    /// Before the run begins, or without a thread: an append waits for the disk.
    Direct(JournalSink),
    Thread(JournalThread),
}

impl Default for JournalOutput {
    fn default() -> Self {
        Self::Direct(JournalSink::default())
    }
}

impl JournalOutput {
    /// Appends whole lines to the file at `path`, and copies them to the mirror.
    pub(super) fn append(
        &mut self,
        target: (&Path, Option<&JournalMirror>),
        lines: Vec<u8>,
        sync: Sync,
    ) {
        match self {
            // Without the thread, nothing syncs the lines soon.
            Self::Direct(sink) => match sync {
                Sync::Soon | Sync::Now => append(sink, target, &lines, Sync::Now),
                Sync::Later => append(sink, target, &lines, Sync::Later),
            },
            Self::Thread(thread) => thread.append(lines, sync),
        }
    }

    pub(super) fn health(&self) -> JournalHealth {
        match self {
            Self::Direct(sink) => sink.health(),
            Self::Thread(thread) => thread.health(),
        }
    }

    /// Stops writing permanently.
    pub(super) fn fail(&mut self, path: &Path, cause: &io::Error) {
        match self {
            Self::Direct(sink) => sink.fail(path, cause),
            Self::Thread(thread) => thread.lose(u64::MAX, &cause.to_string()),
        }
    }

    /// Returns the fence of the session's lease. `None` without a lease.
    pub(super) fn fence(&self) -> Option<&Arc<LeaseFence>> {
        match self {
            Self::Direct(sink) => sink.fence(),
            Self::Thread(thread) => thread.fence.as_ref(),
        }
    }

    /// Continues on a thread, if lines are written and the system has room for a thread.
    pub(super) fn on_thread(self, path: &Path, mirror: Option<&JournalMirror>) -> Self {
        match self {
            Self::Direct(sink) if sink.keeps_lines() => JournalThread::start(sink, path, mirror),
            output @ (Self::Direct(_) | Self::Thread(_)) => output,
        }
    }

    /// Returns true if nothing is left to wait for: everything is written, and synced where that is
    /// required, or the disk does not answer.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Self::Direct(_) => true,
            Self::Thread(thread) => thread.is_finished() || thread.is_lost(),
        }
    }

    /// Waits until everything is written, and synced where that is required. After `limit` the
    /// journal is lost until the disk answers, and nothing waits for it. Cancel-safe.
    pub(super) async fn flush(&mut self, limit: Duration) {
        match self {
            Self::Thread(thread) if !thread.is_lost() => thread.flush(limit).await,
            Self::Direct(_) | Self::Thread(_) => {}
        }
    }

    /// Closes the file once everything is written. Waits for that for `limit` at most.
    pub(super) async fn close(&mut self, limit: Duration) {
        match self {
            Self::Direct(_) => {}
            Self::Thread(thread) => thread.close(limit).await,
        }
    }
}

/// Appends lines to the file, and then copies those to the mirror that the file has or will have.
fn append(
    sink: &mut JournalSink,
    (path, mirror): (&Path, Option<&JournalMirror>),
    lines: &[u8],
    sync: Sync,
) {
    sink.append(path, lines, sync);
    if let Some(mirror) = mirror.filter(|_| sink.keeps_lines()) {
        lines.split_inclusive(|byte| *byte == b'\n').for_each(|line| mirror.copy(path, line));
    }
}

/// The owner of the thread, which ends when this is dropped, once it has written everything.
#[derive(Debug)]
pub(super) struct JournalThread {
    /// `None` once the journal is closed.
    appends: Option<Sender<Append>>,
    /// Number of appends that were sent.
    sent: u64,
    /// Time of the first append that is not finished, if one is not.
    since: Instant,
    progress: watch::Receiver<JournalProgress>,
    /// The last wait for the disk that has failed.
    unanswered: Option<UnansweredWait>,
    path: PathBuf,
    fence: Option<Arc<LeaseFence>>,
}

/// Lines to append.
#[derive(Debug)]
struct Append {
    lines: Vec<u8>,
    sync: Sync,
}

/// The progress of the thread.
#[derive(Debug)]
struct JournalProgress {
    /// Number of appends that are finished: written, and synced if that was required at once.
    finished: u64,
    health: JournalHealth,
}

/// A wait for the disk that has failed.
#[derive(Debug)]
struct UnansweredWait {
    /// Number of appends that it was for, or that were sent before the disk answered. The journal
    /// is lost until they are finished; for ever if this is the largest number.
    appends: u64,
    why: String,
    /// The size of the lines that were sent since, in bytes.
    bytes: usize,
}

impl JournalThread {
    fn start(sink: JournalSink, path: &Path, mirror: Option<&JournalMirror>) -> JournalOutput {
        let (appends, received) = channel();
        let (hand_over, handed_over) = channel::<JournalSink>();
        let health = sink.health();
        let (publisher, progress) = watch::channel(JournalProgress { finished: 0, health });
        let (target, copies) = (path.to_owned(), mirror.cloned());
        let thread = thread::Builder::new().name("journal".to_owned());
        let started = spawn_detached(thread, move || {
            if let Ok(sink) = handed_over.recv() {
                serve(sink, (&target, copies.as_ref()), &received, &publisher);
            }
        });
        let fence = sink.fence().cloned();
        if started.is_err() {
            return JournalOutput::Direct(sink);
        }
        match hand_over.send(sink) {
            Ok(()) => JournalOutput::Thread(Self {
                appends: Some(appends),
                sent: 0,
                since: Instant::now(),
                progress,
                unanswered: None,
                path: path.to_owned(),
                fence,
            }),
            Err(SendError(sink)) => JournalOutput::Direct(sink),
        }
    }

    /// Sends lines to the thread. Does not wait.
    fn append(&mut self, lines: Vec<u8>, sync: Sync) {
        let is_lost = self.is_lost();
        if is_lost && let Some(wait) = &mut self.unanswered {
            wait.bytes = wait.bytes.saturating_add(lines.len());
            if wait.bytes > UNSYNCED_BYTES_MAX {
                // Nothing may follow lines that are left out.
                wait.appends = u64::MAX;
            }
            if wait.appends == u64::MAX {
                return;
            }
        }
        if self.is_finished() {
            self.since = Instant::now();
        }
        if let Some(appends) = &self.appends {
            // If the thread has ended, the next wait reports that.
            let _ = appends.send(Append { lines, sync });
            self.sent += 1;
            if is_lost && let Some(wait) = &mut self.unanswered {
                wait.appends = self.sent;
            }
        }
    }

    fn health(&self) -> JournalHealth {
        match &self.unanswered {
            Some(wait) if self.is_lost() => JournalHealth::Lost(wait.why.clone()),
            Some(_) | None => self.progress.borrow().health.clone(),
        }
    }

    fn is_finished(&self) -> bool {
        self.progress.borrow().finished >= self.sent
    }

    /// Returns true if the disk has not answered the last wait that failed.
    fn is_lost(&self) -> bool {
        let finished = self.progress.borrow().finished;
        self.unanswered.as_ref().is_some_and(|wait| finished < wait.appends)
    }

    fn lose(&mut self, appends: u64, cause: &str) {
        let why = format!("cannot write {}: {cause}", self.path.display());
        self.unanswered = Some(UnansweredWait { appends, why, bytes: 0 });
    }

    async fn flush(&mut self, limit: Duration) {
        let sent = self.sent;
        let finished = self.progress.wait_for(|progress| progress.finished >= sent);
        match timeout(limit, async { finished.await.map(drop) }).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => self.lose(u64::MAX, "its thread has ended"),
            Err(_elapsed) => {
                let since = self.since.elapsed();
                self.lose(sent, &format!("the disk has not answered for {since:.0?}"));
            }
        }
    }

    async fn close(&mut self, limit: Duration) {
        self.appends = None;
        if !self.is_lost() {
            let ended = async { while self.progress.changed().await.is_ok() {} };
            let _ = timeout(limit, ended).await;
        }
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        // The thread ends once it has written what was sent.
        self.appends = None;
        let mut unawaited = UNAWAITED.lock();
        unawaited.retain(|(_, progress)| !progress.is_closed());
        if !self.progress.is_closed() {
            unawaited.push((self.path.clone(), self.progress.clone()));
        }
    }
}

/// Appends what arrives until the sender is dropped, and then closes the file. Everything that has
/// arrived is written at once, and one sync is enough for it.
fn serve(
    mut sink: JournalSink,
    target: (&Path, Option<&JournalMirror>),
    appends: &Receiver<Append>,
    progress: &watch::Sender<JournalProgress>,
) {
    let mut sync_at: Option<Instant> = None;
    loop {
        let received = match sync_at {
            Some(at) => appends.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => appends.recv().map_err(RecvTimeoutError::from),
        };
        let (mut lines, mut sync, mut count) = match received {
            Ok(Append { lines, sync }) => (lines, sync, 1),
            Err(RecvTimeoutError::Timeout) => (Vec::new(), Sync::Now, 0),
            Err(RecvTimeoutError::Disconnected) if sync_at.is_some() => (Vec::new(), Sync::Now, 0),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for append in appends.try_iter() {
            lines.extend_from_slice(&append.lines);
            (sync, count) = (sync.max(append.sync), count + 1);
        }
        // Lines that arrive without pause do not delay a sync that is due.
        if sync_at.is_some_and(|at| at <= Instant::now()) {
            sync = Sync::Now;
        }
        // The sink holds the lock and the lease of the session, which the run keeps after a panic.
        if let Err(panic) = catch_panic(|| append(&mut sink, target, &lines, sync)) {
            sink.fail(target.0, &io::Error::other(panic.summary()));
        }
        sync_at = match sync {
            Sync::Now => None,
            Sync::Soon => sync_at.or_else(|| Some(Instant::now() + SOON)),
            Sync::Later => sync_at,
        };
        progress.send_modify(|progress| {
            progress.finished += count;
            progress.health = sink.health();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::{Read, Write};

    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use serde_json::Value;

    use crate::journal::writer::JournalWriter;
    use crate::journal::{Journal, MessageMeta, ProcessOpening, SessionFolder, SessionId};
    use crate::recovery::{Money, StopReason};
    use crate::transcript::{Block, Message, ToolCall, Usage};

    use super::*;

    /// A bound for waits that are expected to end.
    const BOUND: Duration = Duration::from_mins(2);

    fn thread_on(file: File) -> JournalOutput {
        let sink = JournalSink::File(JournalWriter::new(file, 0));
        JournalOutput::Direct(sink).on_thread(Path::new("/the/journal"), None)
    }

    fn append(output: &mut JournalOutput, lines: &[u8], sync: Sync) {
        output.append((Path::new("/the/journal"), None), lines.to_vec(), sync);
    }

    /// Returns a file whose writes hang until its other end is read.
    fn hanging() -> (File, File) {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        let (reader, mut writer) = (File::from(reader), File::from(writer));
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
        while writer.write(&[b' '; 4096]).is_ok() {}
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
        (reader, writer)
    }

    #[tokio::test]
    async fn a_flush_ends_once_everything_is_on_the_disk_in_order() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut output = thread_on(file.reopen().expect("the same"));
        let mut expected = String::new();
        for (number, sync) in
            [Sync::Later, Sync::Now, Sync::Soon].iter().cycle().take(99).enumerate()
        {
            let line = format!("{number}\n");
            append(&mut output, line.as_bytes(), *sync);
            expected += &line;
            if number % 7 == 0 {
                output.flush(BOUND).await;
                assert!(output.is_flushed());
                assert_eq!(fs::read_to_string(file.path()).expect("a file"), expected);
            }
        }
        output.close(BOUND).await;
        assert_eq!(fs::read_to_string(file.path()).expect("a file"), expected);
        assert_eq!(output.health(), JournalHealth::Durable);
    }

    #[tokio::test]
    async fn a_closed_file_is_unlocked() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let own = file.reopen().expect("the same");
        own.try_lock().expect("nothing else has it");
        let mut output = thread_on(own);
        append(&mut output, b"x\n", Sync::Soon);
        output.close(BOUND).await;
        file.as_file().try_lock().expect("it was released");
    }

    #[test]
    fn the_next_run_waits_for_a_thread_that_its_owner_no_longer_waits_for() {
        let path = Path::new("/the/slow/journal");
        let (mut reader, writer) = hanging();
        let sink = JournalSink::File(JournalWriter::new(writer, 0));
        let mut output = JournalOutput::Direct(sink).on_thread(path, None);
        append(&mut output, b"x\n", Sync::Later);
        assert!(!has_earlier_thread(path), "its owner may still write");
        drop(output);
        assert!(has_earlier_thread(path));
        let reading = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        await_earlier_thread(path);
        assert!(!has_earlier_thread(path));
        let read = reading.join().expect("no panic").expect("a pipe");
        assert!(read.ends_with(b" x\n"));
    }

    #[tokio::test]
    async fn the_lock_is_kept_after_a_panic_of_the_thread() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let own = file.reopen().expect("the same");
        own.try_lock().expect("nothing else has it");
        let sink = JournalSink::File(JournalWriter::new(own, 0));
        let mirror = JournalMirror::new(|_, _| panic!("no room for copies"));
        let mut output = JournalOutput::Direct(sink).on_thread(file.path(), Some(&mirror));
        for _ in 0..2 {
            append(&mut output, b"{}\n", Sync::Now);
            output.flush(BOUND).await;
            let JournalHealth::Lost(why) = output.health() else { panic!("it is not lost") };
            assert!(why.contains("no room for copies"), "{why}");
            file.as_file().try_lock().expect_err("it is held");
        }
        output.close(BOUND).await;
        file.as_file().try_lock().expect("it was released");
    }

    #[tokio::test]
    async fn the_journal_is_lost_while_the_disk_does_not_answer() {
        let (mut reader, writer) = hanging();
        let mut output = thread_on(writer);
        append(&mut output, b"x\n", Sync::Later);
        assert_eq!((output.is_flushed(), output.health()), (false, JournalHealth::Durable));
        output.flush(Duration::from_millis(1)).await;
        let JournalHealth::Lost(why) = output.health() else { panic!("it is not lost") };
        assert!(why.starts_with("cannot write /the/journal: the disk has not answered for "));
        append(&mut output, b"y\n", Sync::Later);
        assert!(output.is_flushed(), "nothing waits for it again");
        let JournalOutput::Thread(thread) = &mut output else { panic!("it has no thread") };
        let missing = thread.unanswered.as_ref().map(|wait| wait.appends);
        assert_eq!(missing, Some(2));
        let mut read = Vec::new();
        while !read.ends_with(b"y\n") {
            let mut some = [0; 4096];
            let length = reader.read(&mut some).expect("a pipe");
            read.extend_from_slice(&some[..length]);
        }
        assert!(read.ends_with(b" x\ny\n"));
        thread.progress.wait_for(|progress| progress.finished == 2).await.expect("it goes on");
        assert_eq!((output.is_flushed(), output.health()), (true, JournalHealth::Durable));
    }

    #[tokio::test]
    async fn lines_beyond_the_limit_of_memory_are_left_out_with_all_that_follow() {
        let (mut reader, writer) = hanging();
        let mut output = thread_on(writer);
        append(&mut output, b"x\n", Sync::Later);
        output.flush(Duration::from_millis(1)).await;
        append(&mut output, &vec![b'y'; UNSYNCED_BYTES_MAX + 1], Sync::Later);
        append(&mut output, b"z\n", Sync::Later);
        let JournalOutput::Thread(thread) = &mut output else { panic!("it has no thread") };
        thread.appends = None;
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("a pipe");
        assert!(read.ends_with(b" x\n"));
        assert!(matches!(output.health(), JournalHealth::Lost(_)));
    }

    /// Returns the sync that `append` requests.
    fn sync_of(append: impl FnOnce(&mut Journal)) -> Sync {
        let (sessions, id) =
            (SessionFolder::new(Path::new("/nowhere"), Path::new("/")), SessionId::generate());
        let null = OpenOptions::new().append(true).open("/dev/null").expect("a device");
        let writer = JournalWriter::new(null, 0);
        let mut journal = Journal::on_writer(writer, &sessions, &id, &ProcessOpening::default());
        let (appends, received) = channel();
        let (_, progress) =
            watch::channel(JournalProgress { finished: 0, health: JournalHealth::Durable });
        journal.output = JournalOutput::Thread(JournalThread {
            appends: Some(appends),
            sent: 0,
            since: Instant::now(),
            progress,
            unanswered: None,
            path: PathBuf::new(),
            fence: None,
        });
        append(&mut journal);
        received.recv().expect("one append").sync
    }

    #[test]
    fn journal_syncs_intents_and_messages_before_they_take_effect_and_outcomes_beside_it() {
        let call = ToolCall { id: "a".to_owned(), name: "Bash".to_owned(), input: Value::Null };
        let text = Block::text("x");
        let tool = Block::call("a", "B", Value::Null);
        let says = |block: &Block| Message::assistant(vec![block.clone()]);
        let user = Message::user(vec![text.clone()]);
        let meta = MessageMeta::default();
        let spend = |journal: &mut Journal| {
            journal.spend(Some(Money::ZERO), &Usage::default(), "m");
        };
        assert_eq!(sync_of(|journal| journal.intent(&[(call, false)])), Sync::Now);
        assert_eq!(sync_of(|journal| _ = journal.message(&user, &meta)), Sync::Now);
        assert_eq!(sync_of(|journal| _ = journal.message(&says(&text), &meta)), Sync::Now);
        assert_eq!(sync_of(|journal| journal.end(StopReason::Completed, None)), Sync::Now);
        assert_eq!(sync_of(|journal| _ = journal.outcome(&text, &Value::Null)), Sync::Soon);
        assert_eq!(sync_of(|journal| _ = journal.message(&says(&tool), &meta)), Sync::Later);
        assert_eq!(sync_of(spend), Sync::Later);
    }

    #[test]
    fn without_a_thread_lines_that_must_be_synced_soon_are_synced_at_once() {
        for (sync, is_synced) in [(Sync::Later, false), (Sync::Soon, true), (Sync::Now, true)] {
            let null = OpenOptions::new().append(true).open("/dev/null").expect("a device");
            let sink = JournalSink::File(JournalWriter::new(null, 0));
            let mut output = JournalOutput::Direct(sink);
            append(&mut output, b"x\n", sync);
            let is_lost = matches!(output.health(), JournalHealth::Lost(_));
            assert_eq!(is_lost, is_synced, "{sync:?}: the device cannot be synced");
        }
    }

    #[tokio::test]
    async fn the_error_of_a_sync_that_nothing_waits_for_reaches_the_next_flush() {
        let null = OpenOptions::new().append(true).open("/dev/null").expect("a device");
        let mut output = thread_on(null);
        append(&mut output, b"x\n", Sync::Soon);
        output.flush(BOUND).await;
        let JournalOutput::Thread(thread) = &mut output else { panic!("it has no thread") };
        let is_lost = |progress: &JournalProgress| progress.health != JournalHealth::Durable;
        thread.progress.wait_for(is_lost).await.expect("the file cannot be synced");
        append(&mut output, b"y\n", Sync::Later);
        output.flush(BOUND).await;
        assert!(matches!(output.health(), JournalHealth::Lost(_)));
    }
}
