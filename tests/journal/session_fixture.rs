//! A folder for sessions, and runs to write down.

use std::fs;
use std::path::PathBuf;

use outlast::journal::{
    CarryOver, Journal, LockedSession, MessageMeta, OnDamage, ProcessOpening, RestoredSession,
    SessionFolder, SessionId,
};
use outlast::recovery::{
    Event, Limits, Moment, Money, ReplyKind, Run, StopReason, TokenEstimate, Transition,
};
use outlast::transcript::{Block, Message, ToolCall, Usage};
use serde_json::json;
use tempfile::TempDir;

use crate::support::scratch::scratch_folder;

pub(super) const MODEL: &str = "claude-test-1";

pub(super) struct Sandbox {
    pub(super) root: TempDir,
    pub(super) place: SessionFolder,
}

impl Sandbox {
    pub(super) fn new() -> Self {
        let root = scratch_folder();
        let cwd = root.path().join("work");
        fs::create_dir(&cwd).expect("a folder");
        let place = SessionFolder::new(&root.path().join("config"), &cwd);
        Self { root, place }
    }

    pub(super) fn file(&self, id: &SessionId) -> PathBuf {
        self.place.folder().join(format!("{id}.jsonl"))
    }

    pub(super) fn bytes(&self, id: &SessionId) -> Vec<u8> {
        fs::read(self.file(id)).expect("the session's file")
    }

    /// A session with `bytes` in its file.
    pub(super) fn with_file(&self, bytes: &[u8]) -> SessionId {
        let id = SessionId::generate();
        fs::create_dir_all(self.place.folder()).expect("a folder");
        fs::write(self.file(&id), bytes).expect("written");
        id
    }

    pub(super) fn create(&self) -> (SessionId, Journal) {
        let id = SessionId::generate();
        let journal = Journal::create(&self.place, &id, &opening()).expect("created");
        (id, journal)
    }

    pub(super) fn read(&self, id: &SessionId) -> RestoredSession {
        outlast::journal::read_session(&self.place, id, OnDamage::Refuse).expect("readable")
    }

    pub(super) fn resume(&self, id: &SessionId) -> (Journal, RestoredSession) {
        LockedSession::lock_and_read(&self.place, id, OnDamage::Refuse)
            .expect("free")
            .open(&self.place, &opening())
    }
}

pub(super) fn opening() -> ProcessOpening {
    ProcessOpening {
        version: "0.1.0".to_owned(),
        model: MODEL.to_owned(),
        permission_mode: "acceptEdits".to_owned(),
        carry: CarryOver::On,
        ..ProcessOpening::default()
    }
}

pub(super) fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

pub(super) fn says(text: &str) -> Message {
    Message::assistant(vec![Block::text(text)])
}

/// A reply that thinks, speaks and calls Bash once for each id.
pub(super) fn calls(ids: &[&str]) -> Message {
    let signature = "Eq+/abc==".to_owned();
    let thinking = Block::Thinking { thinking: "hm \u{1F914}\n".to_owned(), signature };
    let call = |id: &&str| Block::call(*id, "Bash", json!({ "command": "echo \"ü\"", "a": 1 }));
    let opening = [thinking, Block::text("Let me see.")];
    Message::assistant(opening.into_iter().chain(ids.iter().map(call)).collect())
}

pub(super) fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "Bash".to_owned(), input: json!({}) }
}

pub(super) fn result(id: &str, text: &str) -> Block {
    let content = vec![Block::text(text)];
    Block::ToolResult { tool_use_id: id.to_owned(), content, is_error: false }
}

pub(super) fn reply() -> MessageMeta<'static> {
    MessageMeta {
        id: Some("msg_1"),
        model: Some(MODEL),
        stop_reason: Some("tool_use"),
        usage: Some(usage(10)),
        ..MessageMeta::default()
    }
}

pub(super) fn usage(output: u64) -> Usage {
    Usage { input_tokens: 100, output_tokens: output, ..Usage::default() }
}

pub(super) fn cents(cents: u64) -> Money {
    Money::from_pico_dollars(cents * 10_000_000_000)
}

/// Steps of a real machine.
pub(super) fn steps(events: &[Event]) -> Vec<Transition> {
    let limits = Limits::default();
    let mut run = Run::new(7, &limits);
    let mut steps = Vec::new();
    for event in events {
        let step = run.step(Moment::from_millis(5), *event, &limits).expect("in order");
        run = step.next;
        steps.push(step);
    }
    steps
}

/// A call whose input costs a cent, and each of its 8,192 output tokens a hundredth of one.
pub(super) fn weighed() -> Event {
    let token = Money::from_pico_dollars(100_000_000);
    Event::Estimated(TokenEstimate {
        input: cents(1),
        token,
        ceiling: 100_000,
        ..TokenEstimate::FREE
    })
}

pub(super) const TOOL_CALLS: Event = Event::Replied(ReplyKind::ToolCalls { tokens: 10 });

/// Writes a run of two turns down, tools and all, up to its end.
pub(super) fn tell(journal: &mut Journal) -> Vec<Message> {
    let results = Message::user(vec![result("t1", "one"), result("t2", "two")]);
    let messages = vec![user("Fix it."), calls(&["t1", "t2"]), results, says("Fixed.")];
    journal.message(&messages[0], &MessageMeta::default());
    let steps = steps(&[Event::Begin, weighed(), TOOL_CALLS]);
    journal.transition(&steps[0]);
    journal.transition(&steps[1]);
    journal.spend(Some(cents(2)), &usage(10), MODEL);
    journal.message(&messages[1], &reply());
    journal.transition(&steps[2]);
    journal.intent(&[(call("t1"), false), (call("t2"), false)]);
    // The second call ends first.
    journal.outcome(&messages[2].content[1], &json!({ "stdout": "two" }));
    journal.outcome(&messages[2].content[0], &json!(null));
    journal.message(&messages[2], &MessageMeta::default());
    journal.spend(Some(cents(3)), &usage(4), MODEL);
    journal.message(&messages[3], &reply());
    journal.end(StopReason::Completed, None);
    messages
}
