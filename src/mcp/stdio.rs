//! Stdio transport: a server that is a program, its pipes, and its shutdown.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::Deserializer;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use crate::json::to_line;
use crate::process::{Job, RunningJob, Supervisor};

use super::call_error::ExchangeFault;
use super::rpc::{ClientMessage, ServerMessage};
use super::server_output::ServerOutput;
use super::transport::{Closing, Inbox, Sending, Transport};

/// The longest message, in bytes. A longer one ends the connection.
const LONGEST_LINE: usize = 32 << 20;

/// The most bytes of invalid lines between two messages.
const MOST_GARBAGE: usize = 8 << 20;

/// The most bytes of an incomplete message that are parsed at each line that may be its last one;
/// above that, only at lines that are indented as its first one.
const PARSED_ANYWHERE_MAX: usize = 1 << 20;

/// The most bytes that are parsed for one message over several lines.
const PARSED_MAX: usize = 64 << 20;

/// The most messages in the incoming queue.
pub(super) const WAITING_MAX: usize = 64;

/// The most bytes in the outgoing queue: requests of the server are answered at once, and a server
/// that sends many may not read the answers.
const OUTGOING_BYTES_MAX: usize = 8 << 20;

/// The wait for the remaining output of a program that has ended.
const FINAL_OUTPUT_WAIT: Duration = Duration::from_millis(200);

pub(super) struct ServerProcess {
    running: RunningJob,
    pub(super) output: ServerOutput,
    ended: tokio::task::JoinHandle<Option<ExitStatus>>,
}

impl ServerProcess {
    /// Starts the program, with pipes for the protocol.
    pub(super) async fn start(
        supervisor: &Supervisor,
        job: &Job,
        inbox: Inbox,
    ) -> io::Result<(Self, StdioTransport)> {
        let mut running = supervisor.start(job).await?;
        let missing = || io::Error::other("it has no pipes");
        let stdin = ChildStdin::from_std(running.stdin.take().ok_or_else(missing)?)?;
        let stdout = ChildStdout::from_std(running.stdout.take().ok_or_else(missing)?)?;
        let stderr = ChildStderr::from_std(running.stderr.take().ok_or_else(missing)?)?;
        let output = ServerOutput::default();
        let (over, is_over) = tokio::sync::watch::channel(());
        let exit = running.exit();
        let known = output.clone();
        let ended = tokio::spawn(async move {
            let status = exit.await;
            known.set_exit(status);
            drop(over);
            status
        });
        tokio::spawn(read_stderr(stderr, output.clone()));
        let pipes = StdioTransport::new(stdin, stdout, inbox, output.clone(), is_over);
        Ok((Self { running, output, ended }, pipes))
    }

    /// Waits until the program ends by itself, after its input was closed. Then sends SIGTERM, and
    /// finally kills it.
    pub(super) async fn end(mut self, limit: Duration) {
        if tokio::time::timeout(limit, &mut self.ended).await.is_err() {
            self.running.terminate();
            if tokio::time::timeout(limit, &mut self.ended).await.is_err() {
                self.running.kill();
            }
        }
        // Dropping it kills its descendants.
    }
}

async fn read_stderr(mut stderr: ChildStderr, output: ServerOutput) {
    let mut chunk = vec![0; 8192];
    while let Ok(count) = stderr.read(&mut chunk).await {
        if count == 0 {
            return;
        }
        output.append(&chunk[..count]);
    }
}

/// The message transport: lines of JSON over a program's pipes. Sending never blocks: a server that
/// does not read is detected by its missing answers.
pub(super) struct StdioTransport {
    /// `None` once nothing more is written.
    outgoing: Mutex<Option<mpsc::UnboundedSender<Vec<u8>>>>,
    /// The number of bytes that are not written yet.
    backlog: Arc<AtomicUsize>,
    inbox: Inbox,
    output: ServerOutput,
}

impl StdioTransport {
    fn new(
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
        inbox: Inbox,
        output: ServerOutput,
        is_over: tokio::sync::watch::Receiver<()>,
    ) -> Self {
        let (outgoing, lines) = mpsc::unbounded_channel();
        let backlog = Arc::new(AtomicUsize::new(0));
        tokio::spawn(write(stdin, lines, Arc::clone(&backlog)));
        tokio::spawn(read(stdout, inbox.clone(), output.clone(), is_over));
        Self { outgoing: Mutex::new(Some(outgoing)), backlog, inbox, output }
    }

    fn queue(&self, mut line: Vec<u8>) -> Result<(), ExchangeFault> {
        line.push(b'\n');
        let waiting = self.backlog.fetch_add(line.len(), Ordering::Relaxed);
        if waiting > OUTGOING_BYTES_MAX {
            self.output.set_fault("it does not read its input");
            self.stop_writing();
            self.inbox.closed.cancel();
        }
        let outgoing = self.outgoing.lock();
        let sent = outgoing.as_ref().is_some_and(|outgoing| outgoing.send(line).is_ok());
        let refused = || ExchangeFault::NotSent("its input is closed".to_owned());
        if sent { Ok(()) } else { Err(refused()) }
    }

    fn stop_writing(&self) {
        self.outgoing.lock().take();
    }
}

impl Transport for StdioTransport {
    fn send(&self, message: ClientMessage) -> Sending {
        Box::pin(std::future::ready(self.queue(to_line(&message.json).into_bytes())))
    }

    fn closing_reason(&self) -> Option<&'static str> {
        self.output.fault()
    }

    fn close(&self) -> Closing {
        self.stop_writing();
        Box::pin(std::future::ready(()))
    }
}

/// Writes queued lines until either side is closed, and then closes the program's input.
async fn write(
    mut stdin: impl AsyncWrite + Unpin,
    mut lines: mpsc::UnboundedReceiver<Vec<u8>>,
    backlog: Arc<AtomicUsize>,
) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
        backlog.fetch_sub(line.len(), Ordering::Relaxed);
    }
}

/// Reads messages until the program closes its output or ends.
async fn read(
    stdout: impl AsyncRead + Unpin,
    inbox: Inbox,
    output: ServerOutput,
    mut is_over: tokio::sync::watch::Receiver<()>,
) {
    let all = read_messages(stdout, &inbox, &output);
    // Descendants of the program may hold its stdout open forever.
    let over = async {
        while is_over.changed().await.is_ok() {}
        tokio::time::sleep(FINAL_OUTPUT_WAIT).await;
    };
    tokio::select! {
        () = all => {}
        () = over => {}
    }
    inbox.closed.cancel();
}

async fn read_messages(stdout: impl AsyncRead + Unpin, inbox: &Inbox, output: &ServerOutput) {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    let (mut line, mut garbage, mut open) = (Vec::new(), 0, OpenMessage::default());
    loop {
        line.clear();
        if read_line(&mut stdout, &mut line, &mut open).await.is_err() || line.is_empty() {
            return output.append(&open.text);
        }
        if line.len() > LONGEST_LINE && !line.ends_with(b"\n") {
            return output.set_fault("it sent a message that is longer than 32 MiB");
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let permit = inbox.reserve(open.text.len() + line.len()).await;
        let mut messages = ServerMessage::parse_all(&line);
        if messages.is_empty() {
            messages.extend(ServerMessage::find_answer(&line));
        }
        if messages.is_empty() {
            messages = open.add(&line, output);
        }
        if messages.is_empty() {
            garbage += line.len();
            if garbage > MOST_GARBAGE {
                output.set_fault("it prints lines that are not messages");
                return;
            }
            continue;
        }
        garbage = 0;
        open.end(output);
        if !inbox.put_all(messages, permit).await {
            return;
        }
    }
}

/// Reads a line with its line feed, of which at most one byte is beyond [`LONGEST_LINE`]. A line
/// that ends a message is complete without a line feed: some servers write none. It is empty at the
/// end of the output.
async fn read_line(
    stdout: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    open: &mut OpenMessage,
) -> io::Result<()> {
    loop {
        let available = stdout.fill_buf().await?;
        let end = memchr::memchr(b'\n', available).map_or(available.len(), |at| at + 1);
        let taken = end.min(LONGEST_LINE + 1 - line.len());
        line.extend_from_slice(&available[..taken]);
        stdout.consume(taken);
        let is_over = taken == 0 || line.ends_with(b"\n") || line.len() > LONGEST_LINE;
        if is_over || open.is_ended_by(line) {
            return Ok(());
        }
    }
}

/// The lines of an object that is not complete yet: some servers print messages over several lines.
#[derive(Debug, Default)]
struct OpenMessage {
    text: Vec<u8>,
    /// The bytes that were parsed in vain, since the object was not complete.
    parsed: usize,
}

impl OpenMessage {
    /// Adds a line that is not a message of its own. Returns the messages that it completes. Text
    /// that is not a message is added to `output`.
    fn add(&mut self, line: &[u8], output: &ServerOutput) -> Vec<ServerMessage> {
        if self.text.is_empty() && !line.trim_ascii_start().starts_with(b"{") {
            output.append(line);
            return Vec::new();
        }
        self.text.extend_from_slice(line);
        let is_outermost = indentation(line) <= indentation(&self.text);
        let may_parse = is_outermost || self.parsed < PARSED_ANYWHERE_MAX;
        if !may_parse || !line.trim_ascii_end().ends_with(b"}") {
            return Vec::new();
        }
        let parsed = serde_json::from_slice::<IgnoredAny>(&self.text);
        if parsed.is_err_and(|error| error.is_eof()) && self.parsed < PARSED_MAX {
            self.parsed += self.text.len();
            return Vec::new();
        }
        let messages = ServerMessage::parse_all(&self.text);
        if !messages.is_empty() {
            self.text.clear();
        }
        self.end(output);
        messages
    }

    /// True if a line completes a message, although its line feed has not come.
    fn is_ended_by(&mut self, line: &[u8]) -> bool {
        let is_end = matches!(line.trim_ascii_end().last(), Some(b'}' | b']'));
        if !is_end || self.parsed >= PARSED_MAX {
            return false;
        }
        let all = [&self.text, line].concat();
        let is_container = matches!(all.trim_ascii_start().first(), Some(b'{' | b'['));
        let mut values = Deserializer::from_slice(&all).into_iter::<IgnoredAny>();
        let is_whole = is_container && values.all(|value| value.is_ok());
        self.parsed += if is_whole { 0 } else { all.len() };
        is_whole
    }

    /// Begins anew.
    fn end(&mut self, output: &ServerOutput) {
        output.append(&self.text);
        *self = Self::default();
    }
}

fn indentation(line: &[u8]) -> usize {
    line.len() - line.trim_ascii_start().len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{DuplexStream, duplex, sink};
    use tokio::sync::watch;

    use super::super::transport::ReceivedMessage;
    use super::*;

    /// A transport, the output of its server, the messages received from that, and the guard of the
    /// server's process.
    fn connected(
        stdin: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (StdioTransport, DuplexStream, mpsc::Receiver<ReceivedMessage>, watch::Sender<()>) {
        let (server, stdout) = duplex(1 << 10);
        let (running, is_over) = watch::channel(());
        let (inbox, received) = Inbox::new(WAITING_MAX);
        let output = ServerOutput::default();
        (StdioTransport::new(stdin, stdout, inbox, output, is_over), server, received, running)
    }

    #[tokio::test(start_paused = true)]
    async fn unread_messages_of_a_server_stop_the_reader() {
        let (_pipes, mut server, mut received, _running) = connected(sink());
        let params = json!({ "level": "info", "data": "x".repeat(4 << 20) });
        let notification =
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params });
        let line = format!("{notification}\n");
        let mut arrived = 0;
        // The paused clock advances only when there is nothing else to do.
        while arrived < 64
            && let all = server.write_all(line.as_bytes())
            && let Ok(written) = tokio::time::timeout(Duration::from_secs(1), all).await
        {
            written.expect("the transport reads");
            arrived += 1;
        }
        assert!((5..=10).contains(&arrived), "{arrived}");
        assert!(received.recv().await.is_some());
    }

    #[tokio::test]
    async fn a_message_of_the_greatest_length_is_read_and_a_longer_one_is_not() {
        let message = |padding: usize| {
            json!({ "jsonrpc": "2.0", "method": "x", "params": "x".repeat(padding) }).to_string()
        };
        let padding = LONGEST_LINE - message(0).len();
        for (padding, is_read) in [(padding, true), (padding + 1, false)] {
            let (pipes, mut server, mut received, _running) = connected(sink());
            let line = message(padding) + "\n";
            tokio::spawn(async move { server.write_all(line.as_bytes()).await });
            let is_received = tokio::select! {
                biased;
                message = received.recv() => message.is_some(),
                () = pipes.inbox.closed.cancelled() => false,
            };
            assert_eq!(is_received, is_read);
            assert_eq!(pipes.closing_reason().is_none(), is_read);
        }
    }

    #[tokio::test]
    async fn a_line_that_cannot_be_read_answers_the_request_that_it_names() {
        let (_pipes, mut server, mut received, _running) = connected(sink());
        let lines =
            b"listening\n{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"caf\xe9 \\ud83d\"}}\n\
            {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{\"a\":\\x}}\n";
        server.write_all(lines).await.expect("the transport reads");
        let result = Ok(json!({ "a": "caf\u{fffd} \u{fffd}" }));
        let first = received.recv().await.expect("an answer").message;
        assert_eq!(first, ServerMessage::Response { id: json!(7), outcome: result });
        let second = received.recv().await.expect("an answer").message;
        let ServerMessage::Response { id, outcome: Err(error) } = second else {
            panic!("{second:?}");
        };
        assert!(id == 8 && error.message.contains("cannot be read"), "{error:?}");
    }

    #[tokio::test]
    async fn a_message_over_several_lines_is_read_between_other_lines() {
        let (_pipes, mut server, mut received, _running) = connected(sink());
        let answer = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "result": { "a": [{}, {}] } });
        let pretty = |id| serde_json::to_string_pretty(&answer(id)).expect("JSON");
        let several = [
            pretty(1).replace('\n', "\r\n"),
            "config {\n  {\n\"a\": 1,\n".to_owned() + &answer(2).to_string(),
            "{ not: 'JSON',\n}\n".to_owned() + &pretty(3),
            answer(4).to_string().replace(",\"result", ",\n \"result"),
            "\u{1b}[32m".to_owned() + &answer(5).to_string() + "\u{1b}[0m",
        ];
        let lines = several.join("\n") + "\n";
        server.write_all(lines.as_bytes()).await.expect("the transport reads");
        for id in 1..=5_u64 {
            let message = tokio::time::timeout(Duration::from_mins(1), received.recv()).await;
            let message = message.expect("in time").expect("an answer").message;
            let result = Ok(answer(id)["result"].clone());
            assert_eq!(message, ServerMessage::Response { id: json!(id), outcome: result });
        }
    }

    #[tokio::test]
    async fn a_message_without_a_line_feed_is_read() {
        let (_pipes, mut server, mut received, _running) = connected(sink());
        let answer = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "result": { "a": [{}, {}] } });
        let pretty = serde_json::to_string_pretty(&answer(3)).expect("JSON");
        let several = format!("{}{}", answer(4), answer(5));
        let texts = [answer(1).to_string(), format!("[{}]", answer(2)), pretty, several];
        let mut wanted = 1..=5_u64;
        for text in texts {
            // In pieces, each of which may end like a message.
            for piece in text.as_bytes().split_inclusive(|byte| b"}]\n".contains(byte)) {
                server.write_all(piece).await.expect("the transport reads");
            }
            for id in wanted.by_ref().take(text.matches("jsonrpc").count()) {
                let message = tokio::time::timeout(Duration::from_mins(1), received.recv()).await;
                let message = message.expect("in time").expect("an answer").message;
                let result = Ok(answer(id)["result"].clone());
                assert_eq!(message, ServerMessage::Response { id: json!(id), outcome: result });
            }
        }
    }

    #[test]
    fn an_object_that_never_ends_is_parsed_only_so_often() {
        let (mut open, output) = (OpenMessage::default(), ServerOutput::default());
        open.add(b"{\"a\":[{}\n", &output);
        for (line, count, limit) in
            [(&b"  ,{}\n"[..], 20_000, PARSED_ANYWHERE_MAX), (b",{}\n", 2_000, PARSED_MAX)]
        {
            for _ in 0..count {
                open.add(line, &output);
                assert!(open.parsed < limit + open.text.len().max(1), "{}", open.parsed);
            }
            assert!(open.parsed > 0 || limit == PARSED_MAX, "it was parsed");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_read_is_disconnected() {
        let (stdin, _unread) = duplex(1 << 10);
        let (pipes, _silent, _received, _running) = connected(stdin);
        let queued = (0..100).take_while(|_| pipes.queue(vec![b'x'; 1 << 20]).is_ok()).count();
        assert_eq!(queued, 8);
        assert_eq!(pipes.closing_reason(), Some("it does not read its input"));
        assert!(pipes.inbox.closed.is_cancelled());
    }
}
