//! A host that speaks the protocol line by line.

use std::fs::{self, File};
use std::io;
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use outlast::rehearsal::RehearsalServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe::Sender;
use tokio::process::ChildStdout;

use crate::support::{FinishedProcess, RunBuilder, RunningProcess, schema, with_time_limit};

/// The flags that the SDKs always send.
pub(super) const FLAGS: [&str; 5] =
    ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"];

/// A host with the process that it drives.
pub(super) struct HostDriver {
    pub(super) process: RunningProcess,
    stdin: Option<Sender>,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Every frame that was read.
    pub(super) frames: Vec<Value>,
    requests: u32,
}

impl HostDriver {
    pub(super) fn start(server: &RehearsalServer, flags: &[&str]) -> Self {
        Self::with(RunBuilder::against(server), flags)
    }

    pub(super) fn with(run: RunBuilder, flags: &[&str]) -> Self {
        let (input, stdin) = io::pipe().expect("a pipe");
        // As hosts set it whose own event loop reads the pipe.
        fcntl(&input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("set");
        let stdin = Sender::from_owned_fd(stdin.into()).ok();
        Self::reading(run, flags, input.into(), stdin)
    }

    /// A host whose only message is this prompt, in a file: no copy of a pipe delays its end.
    pub(super) fn with_prompt_file(run: RunBuilder, flags: &[&str], text: &str) -> Self {
        let path = run.work().with_file_name("prompt.jsonl");
        fs::write(&path, format!("{}\n", prompt_frame(text))).expect("it is ours");
        let file = File::open(path).expect("it was just written");
        Self::reading(run, flags, file.into(), None)
    }

    fn reading(run: RunBuilder, flags: &[&str], input: Stdio, stdin: Option<Sender>) -> Self {
        let mut process = run.args(FLAGS).args(flags).stdin(input).start();
        let stdout = process.child.stdout.take().expect("standard output is a pipe");
        let stdout = BufReader::new(stdout).lines();
        Self { process, stdin, stdout, frames: Vec::new(), requests: 0 }
    }

    pub(super) async fn send(&mut self, frame: &Value) {
        self.send_line(&frame.to_string()).await;
    }

    pub(super) async fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        let line = format!("{line}\n");
        with_time_limit("room in the pipe", stdin.write_all(line.as_bytes()))
            .await
            .expect("outlast reads standard input");
    }

    pub(super) async fn prompt(&mut self, text: &str) {
        self.send(&prompt_frame(text)).await;
    }

    /// Sends a control request without waiting for its reply. Returns its id.
    pub(super) async fn request(&mut self, request: &Value) -> String {
        self.requests += 1;
        let id = format!("host-{}", self.requests);
        self.send(&json!({ "type": "control_request", "request_id": id, "request": request }))
            .await;
        id
    }

    /// Sends a control request, and returns the `response` of its reply.
    pub(super) async fn ask(&mut self, request: &Value) -> Value {
        let id = self.request(request).await;
        let reply = self
            .wait_for("the reply", |frame| {
                frame["type"] == "control_response" && frame["response"]["request_id"] == *id
            })
            .await;
        reply["response"].clone()
    }

    /// Reads the next frame. `None`: standard output has ended.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let line = with_time_limit("a frame", self.stdout.next_line()).await;
        let line = line.expect("standard output can be read")?;
        let frame: Value = serde_json::from_str(&line).expect("each line is JSON");
        schema::check_message(&frame);
        self.frames.push(frame.clone());
        Some(frame)
    }

    /// Reads frames up to the first one that `is_it`.
    pub(super) async fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("no {what}: {:#?}", self.frames));
            if is_it(&frame) {
                return frame;
            }
        }
    }

    pub(super) async fn wait_for_type(&mut self, kind: &str) -> Value {
        self.wait_for(kind, |frame| frame["type"] == kind).await
    }

    /// The result of the current turn.
    pub(super) async fn result(&mut self) -> Value {
        self.wait_for_type("result").await
    }

    /// Closes standard input and waits for the end. Returns the frames that were left, too.
    pub(super) async fn end(mut self) -> (FinishedProcess, Vec<Value>) {
        self.stdin = None;
        while self.next().await.is_some() {}
        (self.process.end().await, self.frames)
    }

    /// Ends without a word: both pipes are closed.
    pub(super) fn vanish(self) -> RunningProcess {
        self.process
    }
}

fn prompt_frame(text: &str) -> Value {
    json!({ "type": "user", "session_id": "", "parent_tool_use_id": null,
        "message": { "role": "user", "content": text } })
}

/// Waits until the model server has received so many requests: it sends no event.
pub(super) async fn wait_for_requests(server: &RehearsalServer, count: usize) {
    let arrived = async {
        while server.requests().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_time_limit("the request", arrived).await;
}

/// The texts of a request's messages, joined.
pub(super) fn conversation(body: &Value) -> String {
    body["messages"].to_string()
}
