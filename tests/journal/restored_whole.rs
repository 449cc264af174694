//! All that a resume restores, after each record of a session that has every kind of them: the
//! rendered state changes only with `UPDATE=1`.

use std::fmt::{Debug, Write as _};
use std::fs;

use outlast::journal::{
    BackgroundChanges, BackgroundWork, CarryOver, Contract, Denial, FailedCheck, FirstPrompt,
    Journal, LockedSession, MessageMeta, OnDamage, ProcessOpening, RestoredSession, SessionFolder,
    SessionId, SubagentHeader, UndoneCalls,
};
use outlast::recovery::{
    Action, CallEffect, Event, HistoryEdit, Limits, Moment, OptionalField, RefusedField,
    ReplyDisposition, ReplyKind, Run, StopReason, ToolCallRecord, Transition,
};
use outlast::secrets::KnownSecrets;
use outlast::transcript::{Block, HistoryRepair, Message, RepairStep, Usage};
use outlast::types::{FileStamp, ReadFile};
use serde_json::{Value, json};

use super::recoveries::{OVERLOAD, RecordedRun};
use super::session_fixture::{
    MODEL, Sandbox, TOOL_CALLS, call, calls, cents, opening, reply, result, says, usage, user,
    weighed,
};
use crate::cli::golden;

const SESSION: &str = "5e551017-0000-4000-8000-000000000001";

fn process(carry: CarryOver, model: &str, turns: u32) -> ProcessOpening {
    let mut limits = Limits { requirement: true, ..Limits::default() };
    limits.budgets.turns = Some(turns);
    let terms = json!({ "maxTurns": turns }).as_object().expect("an object").clone();
    ProcessOpening {
        carry,
        model: model.to_owned(),
        limits,
        required_servers: vec![format!("server-of-{model}")],
        contract: Some(Contract { version: 1, terms, ..Contract::default() }),
        prompt: Some(FirstPrompt::of("Fix it.")),
        title: Some(format!("with {model}")),
        ..opening()
    }
}

fn resume(place: &SessionFolder, id: &SessionId, opening: &ProcessOpening) -> Journal {
    let held = LockedSession::lock_and_read(place, id, OnDamage::Refuse).expect("free");
    held.open(place, opening).0
}

/// A step that changes nothing but what its event says.
fn step(millis: u64, event: Event) -> Transition {
    let (next, action) = (Run::new(7, &Limits::default()), Action::RunTools);
    let at = Moment::from_millis(millis);
    Transition { at, event, cause: None, plan: None, edit: HistoryEdit::default(), next, action }
}

/// The sub-agent of the call `t1`, which was cut off in a call.
fn tell_subagent(journal: &Journal) {
    let location = journal.subagent_journals().expect("a file");
    let header = SubagentHeader {
        id: "a1",
        call: "t1",
        kind: "general-purpose",
        description: "a part",
        parent: None,
        model: "claude-small",
        background: false,
        retries: None,
        limits: &Limits::default(),
        secrets: KnownSecrets::default(),
    };
    let mut agent = Journal::create_subagent(&location, &header);
    agent.message(&user("Do a part."), &MessageMeta::default());
    agent.spend(Some(cents(4)), &usage(40), "claude-small");
    agent.spend_upper_bound(Some(cents(1)), &usage(1), "claude-small");
    agent.message(&calls(&["s1", "s2"]), &reply());
    agent.intent(&[(call("s1"), false), (call("s2"), false)]);
    agent.outcome(&result("s1", "done"), &Value::Null);
    agent.transition(&step(7, weighed()));
    // The journal of this one came too late for it.
    Journal::create_subagent(&location, &SubagentHeader { id: "a2", ..header }).discard_subagent();
}

/// The first process: it is overloaded, runs tools, learns, is compacted, and dies in a request.
fn tell_first_process(place: &SessionFolder, id: &SessionId) {
    let mut journal =
        Journal::create(place, id, &process(CarryOver::Fresh, MODEL, 9)).expect("new");
    let mut live = RecordedRun::begin();
    journal.message(&user("Fix it."), &MessageMeta::default());
    live.record_events(&mut journal, &[Event::Begin, weighed(), OVERLOAD]);
    live.record_events(&mut journal, &[Event::WaitEnded, weighed()]);
    journal.spend(Some(cents(2)), &usage(10), MODEL);
    journal.message(&calls(&["t1", "t2", "t3", "t4"]), &reply());
    journal.transition(&Transition {
        edit: HistoryEdit { reply: ReplyDisposition::Keep, ..HistoryEdit::default() },
        ..step(100_000, TOOL_CALLS)
    });
    journal.tool_calls(&[
        ToolCallRecord::new("Bash", b"make", b"no rule", CallEffect::Failed),
        ToolCallRecord::new("Bash", b"make", b"no rule", CallEffect::Failed),
    ]);
    journal.intent(&[(call("t1"), false), (call("t2"), true), (call("t3"), false)]);
    tell_subagent(&journal);
    let denial = |id: &str, reason: &str| Denial {
        tool_name: "Bash".to_owned(),
        tool_use_id: id.to_owned(),
        tool_input: json!({}),
        reason: reason.to_owned(),
    };
    journal.undone_calls(UndoneCalls {
        denied: vec![denial("t4", "no rule")],
        of_agents: vec![denial("s3", "not for agents")],
        abandoned: Vec::new(),
    });
    journal.outcome(&result("t2", "two"), &json!({ "stdout": "two" }));
    journal.outcome(&result("t4", "denied"), &Value::Null);
    journal.outcome(&result("t1", "one"), &Value::Null);
    journal.outcome(&result("t3", "three"), &Value::Null);
    journal.window(MODEL, 9_000);
    journal.output_limit(MODEL, 4_000);
    let field = OptionalField::CacheControl;
    journal.refused_field(RefusedField {
        host: "127.0.0.1".to_owned(),
        model: MODEL.to_owned(),
        field,
    });
    let id = "bash_1".to_owned();
    let started = vec![
        BackgroundWork::Command { id, command: "make watch".to_owned() },
        BackgroundWork::Agent { id: "a2".to_owned(), description: "a part".to_owned() },
    ];
    let folder = Some("/work/part".into());
    let reported = Vec::new();
    journal.background(BackgroundChanges { commands: 3, started, reported, folder });
    journal.background(BackgroundChanges {
        reported: vec!["bash_1".to_owned()],
        ..BackgroundChanges::default()
    });
    let stamp = Some(FileStamp { bytes: 5, modified: Some(1) });
    let read = |stamp| ReadFile { path: "/work/a".to_owned(), stamp };
    journal.files_read(vec![read(stamp), ReadFile { path: "/work/b".to_owned(), stamp }]);
    journal.files_read(vec![read(None)]);
    journal.repairs(&[HistoryRepair { at: 1, step: RepairStep::DroppedMessage }]);
    journal.rewrite(&[user("A summary."), calls(&["t8"]), Message::user(vec![result("t8", "8")])]);
    journal.transition(&Transition {
        edit: HistoryEdit { reply: ReplyDisposition::Summary, ..HistoryEdit::default() },
        ..step(140_000, Event::Replied(ReplyKind::Answer { tokens: 3 }))
    });
    journal.tool_calls(&[ToolCallRecord::new("Read", b"a", b"b", CallEffect::ReadOnly)]);
    journal.failed_check(FailedCheck {
        command: "make test".to_owned(),
        end: "failed".to_owned(),
        output: "no".to_owned(),
    });
    journal.transition(&step(150_000, Event::Checked { passed: false }));
    journal.message(&says("So far."), &reply());
    journal.transition(&step(151_000, weighed()));
}

/// The second process continues the prompt with another model, calls tools, and dies in a call.
fn tell_second_process(place: &SessionFolder, id: &SessionId) {
    let mut journal = resume(place, id, &process(CarryOver::On, "claude-other", 8));
    journal.spend_upper_bound(None, &Usage::default(), "claude-other");
    journal.message(&user("Go on."), &MessageMeta::default());
    journal.spend(Some(cents(3)), &usage(20), "claude-other");
    let meta = MessageMeta { model: Some("claude-other"), ..reply() };
    journal.message(&calls(&["u1", "u2"]), &meta);
    journal.intent(&[(call("u1"), true)]);
}

/// The third process ends the prompt with a structured output, and begins another one, which a hook
/// defers.
fn tell_third_process(place: &SessionFolder, id: &SessionId) {
    let mut journal = resume(place, id, &process(CarryOver::On, MODEL, 8));
    journal.transition(&step(5_000, Event::Checked { passed: true }));
    let input = json!({ "answer": 42 });
    let name = "StructuredOutput".to_owned();
    let output = Block::call("v1", name, input.clone());
    journal.message(&Message::assistant(vec![output]), &reply());
    journal.transition(&Transition {
        edit: HistoryEdit { reply: ReplyDisposition::Keep, ..HistoryEdit::default() },
        ..step(6_000, TOOL_CALLS)
    });
    journal.outcome(&result("v1", "accepted"), &json!({ "structured_output": input }));
    journal.transition(&Transition {
        action: Action::Finish(StopReason::Completed),
        ..step(7_000, Event::Delivered)
    });
    journal.end(StopReason::Completed, None);
    journal.message(&user("And that?"), &MessageMeta::default());
    journal.spend(Some(cents(5)), &usage(5), MODEL);
    journal.message(&calls(&["w1"]), &reply());
    journal.transition(&step(9_000, Event::Deferred));
    journal.end(StopReason::ToolDeferred, None);
}

/// Writes the session.
pub(crate) fn tell_all(place: &SessionFolder) -> SessionId {
    let id = SessionId::parse(SESSION).expect("an id");
    tell_first_process(place, &id);
    tell_second_process(place, &id);
    tell_third_process(place, &id);
    id
}

/// Everything that is restored, a line for each part and message.
fn described(restored: &RestoredSession) -> Vec<String> {
    fn line(name: &str, value: &dyn Debug) -> String {
        format!("{name}: {value:?}")
    }
    let mut lines: Vec<String> = Vec::new();
    for (index, message) in restored.conversation.messages.iter().enumerate() {
        lines.push(format!("message {index}: {}", serde_json::to_string(message).expect("JSON")));
    }
    let opened = restored.contract.opened.as_ref();
    let limits = opened.map(|open| open.limits.budgets.turns);
    let servers = opened.map_or(&[][..], |open| &open.required_servers);
    let parts: [(&str, &dyn Debug); 28] = [
        ("repairs", &restored.conversation.repairs),
        ("run", &restored.work.run),
        ("recorded", &restored.conversation.recorded),
        ("left off", &restored.conversation.left_off),
        ("deferred", &restored.conversation.deferred),
        ("ended", &restored.work.ended),
        ("prompt", &restored.totals.prompt),
        ("session", &restored.totals.session),
        ("recovery", &restored.totals.recovery),
        ("loop detector", &restored.work.loop_detector),
        ("learned facts", &restored.learned_facts),
        ("in flight", &restored.totals.in_flight),
        ("in flight model", &restored.totals.in_flight_model),
        ("dropped records", &restored.totals.dropped_records),
        ("damage", &restored.contract.damage),
        ("terms", &restored.contract.terms),
        ("worked", &restored.totals.worked),
        ("unknown outcomes", &restored.totals.unknown_outcomes),
        ("cwd", &restored.contract.cwd),
        ("model", &opened.map(|open| &open.model)),
        ("answered by", &restored.conversation.answered_by),
        ("signed by", &restored.conversation.signed_by),
        ("permission mode", &opened.map(|open| &open.permission_mode)),
        ("turns", &limits),
        ("required servers", &servers),
        ("agents", &restored.work.agents),
        ("background", &restored.work.background),
        ("files read", &restored.work.files_read),
    ];
    lines.extend(parts.iter().map(|(name, value)| line(name, value)));
    lines
}

/// Writes the lines that are not in both.
pub(crate) fn add_changes(text: &mut String, before: &[String], after: &[String]) {
    for (sign, from, others) in [('-', before, after), ('+', after, before)] {
        for line in from.iter().filter(|line| !others.contains(line)) {
            let is_new_value = sign == '-'
                && line.split_once(':').is_some_and(|(name, _)| {
                    after.iter().any(|other| other.split_once(':').is_some_and(|it| it.0 == name))
                });
            if !is_new_value {
                writeln!(text, "{sign} {line}").expect("a string takes all");
            }
        }
    }
}

pub(crate) fn kind_of(line: &[u8]) -> String {
    let line: Value = serde_json::from_slice(line).expect("JSON");
    let kind = line["kind"].as_str().or(line["type"].as_str());
    kind.expect("a line has a type").to_owned()
}

#[test]
fn each_record_restores_the_same_state_as_ever() {
    let sandbox = Sandbox::new();
    let id = tell_all(&sandbox.place);
    let whole = sandbox.bytes(&id);
    let mut text = String::new();
    let mut before = Vec::new();
    let mut end = 0;
    for (index, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
        end += line.len();
        fs::write(sandbox.file(&id), &whole[..end]).expect("written");
        let restored = described(&sandbox.read(&id));
        writeln!(text, "\n# {} {}", index + 1, kind_of(line)).expect("a string takes all");
        add_changes(&mut text, &before, &restored);
        drop(resume(&sandbox.place, &id, &process(CarryOver::On, MODEL, 9)));
        writeln!(text, "## resumed").expect("a string takes all");
        add_changes(&mut text, &restored, &described(&sandbox.read(&id)));
        before = restored;
    }
    let (source, fork) = (sandbox.read(&id), SessionId::generate());
    let opening = process(CarryOver::On, MODEL, 9);
    drop(Journal::fork(&sandbox.place, &fork, &opening, (&id, &source)).expect("created"));
    writeln!(text, "\n# a fork").expect("a string takes all");
    add_changes(&mut text, &before, &described(&sandbox.read(&fork)));
    let root = sandbox.root.path().to_str().expect("text");
    golden::compare("tests/journal/restored_whole.txt", &text.replace(root, "ROOT"));
}
