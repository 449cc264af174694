//! Writing to readers that are slow, gone, or not to be trusted with secrets.

use std::io::{self, Write};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast::cli::output::{PipeFraming, PipeSender, framed_pipe, pipe};
use outlast::secrets::{KnownSecrets, Redactor};
use serde_json::json;

/// Keeps what is written to it.
#[derive(Clone, Default)]
pub(super) struct BufferWriter(Arc<Mutex<Vec<u8>>>);

impl BufferWriter {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("lines are text")
    }
}

impl Write for BufferWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text written while `work` holds the pipe.
pub(super) async fn written(work: impl FnOnce(PipeSender)) -> String {
    let paper = BufferWriter::default();
    let (out, drain) = pipe(paper.clone(), Arc::new(Redactor::default()), || {}).expect("a thread");
    work(out);
    drain.finish(Duration::from_secs(20)).await.expect("paper takes it");
    paper.text()
}

/// The same, as the elements of an array.
async fn array(work: impl FnOnce(PipeSender)) -> String {
    let paper = BufferWriter::default();
    let redactor = Arc::new(Redactor::default());
    let (out, drain) =
        framed_pipe(PipeFraming::Array, paper.clone(), redactor, || {}).expect("a thread");
    work(out);
    drain.finish(Duration::from_secs(20)).await.expect("paper takes it");
    paper.text()
}

#[tokio::test]
async fn a_json_array_is_closed_after_its_last_element() {
    let text = array(|out| {
        out.send_json(json!({ "n": 1 }), None);
        out.send_json(json!({ "n": "two\n" }), None);
        out.send_last(json!({ "n": 3 }), None);
        out.send_json(json!({ "n": 4 }), None);
    });
    assert_eq!(text.await, "[{\"n\":1},{\"n\":\"two\\n\"},{\"n\":3}]\n");
    assert_eq!(array(|out| out.send_last(json!({ "n": 1 }), None)).await, "[{\"n\":1}]\n");
    assert_eq!(array(|out| out.send_json(json!({ "n": 1 }), None)).await, "[{\"n\":1}]\n");
    assert_eq!(array(drop).await, "");
}

/// A writer whose reader has closed the pipe.
struct ClosedWriter;

impl Write for ClosedWriter {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Never takes the second line.
struct BlockedWriter(mpsc::Receiver<()>);

impl Write for BlockedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_closed_pipe_is_reported_once_without_a_panic() {
    let (tell, told) = mpsc::channel();
    let (out, drain) =
        pipe(ClosedWriter, Arc::new(Redactor::default()), move || tell.send(()).unwrap()).unwrap();
    for _ in 0..10_000 {
        out.send("a line");
    }
    let error = drain.finish(Duration::from_secs(20)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(told.iter().count(), 1);
}

#[tokio::test]
async fn a_reader_that_never_reads_does_not_block_the_writer_forever() {
    let (_hold, held) = mpsc::channel();
    let (out, drain) = pipe(BlockedWriter(held), Arc::new(Redactor::default()), || {}).unwrap();
    for _ in 0..100_000 {
        out.offer("a line");
    }
    let error = drain.finish(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn the_writer_emits_whole_lines_in_order() {
    let text = written(|out| (0..3000).for_each(|number| out.send(&number.to_string()))).await;
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
}

#[test]
fn secrets_are_redacted_and_ordinary_words_are_not() {
    let redactor = Redactor::new(KnownSecrets::new(["hunter2-hunter2", "sho"]));
    assert_eq!(redactor.redact("key hunter2-hunter2, sho"), "key [redacted], sho");
    assert_eq!(redactor.redact("got sk-ant-api03-AbC_9-xyz!"), "got [redacted]!");
    assert_eq!(redactor.redact("a prefix sk-ant- alone"), "a prefix sk-ant- alone");
}
