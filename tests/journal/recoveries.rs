//! Recoveries are on record, and go on in the process that takes the run up.

use std::fs;

use outlast::journal::{
    CarryOver, Journal, LockedSession, MessageMeta, ModelSpan, OnDamage, ProcessOpening,
    RestoredTotals, SessionId,
};
use outlast::recovery::{
    CallEffect, ErrorClass, Event, Failure, FailureStage, Incomplete, LeftOff, Limits,
    LoopDetector, LoopStatus, Moment, RecoveryLog, ReplyDisposition, ReplyKind, Run, StopReason,
    ToolCallRecord,
};
use outlast::transcript::Usage;
use serde_json::Value;

use super::session_fixture::{
    MODEL, Sandbox, TOOL_CALLS, calls, cents, opening, reply, says, steps, tell, usage, user,
    weighed,
};

pub(super) const OVERLOAD: Event = Event::Failed(Failure::of(ErrorClass::ServerOverload));
const LOST_STREAM: Event = Event::Failed(Failure {
    stage: FailureStage::Stream,
    ..Failure::of(ErrorClass::StreamStalled)
});

/// A run that is written down as the agent does it.
pub(super) struct RecordedRun {
    run: Run,
    limits: Limits,
    chronicle: RecoveryLog,
    turns: u32,
    now: u64,
}

impl RecordedRun {
    pub(super) fn begin() -> Self {
        let limits = Limits::default();
        let (run, chronicle) = (Run::new(7, &limits), RecoveryLog::default());
        Self { run, limits, chronicle, turns: 0, now: 0 }
    }

    /// Twenty seconds later, this happens.
    fn record_event(&mut self, journal: &mut Journal, event: Event) {
        self.now += 20_000;
        let at = Moment::from_millis(self.now);
        let step = self.run.step(at, event, &self.limits).expect("in order");
        self.run = step.next;
        if step.edit.reply == ReplyDisposition::Keep {
            self.turns += 1;
            journal.message(&says("So."), &reply());
        }
        let ended = self.chronicle.observe(&step, self.turns);
        journal.transition(&step);
        journal.recoveries(&ended);
    }

    /// The call is answered, for two cents.
    fn answered(&mut self, journal: &mut Journal, event: Event) {
        journal.spend(Some(cents(2)), &usage(10), MODEL);
        self.chronicle.record_cost(cents(2), 110);
        self.record_event(journal, event);
    }

    pub(super) fn record_events(&mut self, journal: &mut Journal, events: &[Event]) {
        for event in events {
            self.record_event(journal, *event);
        }
    }
}

/// The records of recoveries in a session's file, in order.
fn recorded(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let values = lines.map(|line| serde_json::from_slice::<Value>(line).expect("JSON"));
    values.filter(|value| value["kind"] == "recovery").collect()
}

/// A run whose first request was refused by a crowded service, and waits for its second answer.
fn waited_out(sandbox: &Sandbox) -> (SessionId, Journal, RecordedRun) {
    let (id, mut journal) = sandbox.create();
    let mut live = RecordedRun::begin();
    journal.message(&user("go"), &MessageMeta::default());
    live.record_events(
        &mut journal,
        &[Event::Begin, weighed(), OVERLOAD, Event::WaitEnded, weighed()],
    );
    (id, journal, live)
}

#[test]
fn every_finished_recovery_is_one_journal_line() {
    let sandbox = Sandbox::new();
    let (id, mut journal, mut live) = waited_out(&sandbox);
    assert_eq!(recorded(&sandbox.bytes(&id)), [Value::Null; 0], "it is not over");
    live.answered(&mut journal, TOOL_CALLS);
    let lines = recorded(&sandbox.bytes(&id));
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["type"], &lines[0]["v"]), (&"outlast".into(), &1.into()));
    assert_eq!((&lines[0]["class"], &lines[0]["saved"]), (&"server_overload".into(), &true.into()));
    assert_eq!((&lines[0]["attempts"], &lines[0]["waited_ms"]), (&2.into(), &20_000.into()));
    assert_eq!(sandbox.read(&id).totals.recovery, live.chronicle.resumed());
}

#[test]
fn totals_and_the_open_recovery_survive_a_crash() {
    let sandbox = Sandbox::new();
    let (id, mut journal, mut live) = waited_out(&sandbox);
    live.answered(&mut journal, TOOL_CALLS);
    let tools_done = Event::ToolsDone(LoopStatus::Fresh);
    live.record_events(&mut journal, &[tools_done, weighed()]);
    // It is unknown whether this attempt was billed.
    journal.spend_upper_bound(Some(cents(1)), &Usage::default(), MODEL);
    live.chronicle.record_cost(cents(1), 0);
    live.record_events(&mut journal, &[LOST_STREAM, Event::WaitEnded, weighed()]);
    let before = live.chronicle.totals().clone();
    assert_eq!((before.requests, before.saved, before.strategies.sum()), (4, 1, 2));
    drop(journal);

    let (mut journal, restored) = sandbox.resume(&id);
    assert_eq!(restored.totals.recovery.totals(), &before, "all of it is carried over");
    assert_eq!(restored.totals.prompt.models, [model_from(1)]);
    let RestoredTotals { recovery, in_flight, .. } = restored.totals;
    let run = restored.work.run.expect("it was under way").resumed();
    let mut live = RecordedRun { run, chronicle: recovery, now: 0, ..live };
    live.record_events(&mut journal, &[Event::Begin, weighed()]);
    live.answered(&mut journal, Event::Replied(ReplyKind::Answer { tokens: 10 }));
    journal.end(StopReason::Completed, None);
    let totals = live.chronicle.totals();
    assert_eq!((totals.requests, totals.saved, totals.lost), (5, 2, 0));
    let last = live.chronicle.records().last().expect("there were two");
    assert_eq!((last.class.as_str(), last.attempts, last.turn), ("stream_stalled", 3, 2));
    assert_eq!(last.cost, cents(1) + in_flight, "both attempts that came to nothing");
    assert_eq!(recorded(&sandbox.bytes(&id)).len(), 2);
    assert_eq!(
        sandbox.read(&id).totals.recovery,
        live.chronicle.resumed(),
        "a third would know it all"
    );
}

fn model_from(from_turn: u32) -> ModelSpan {
    ModelSpan { model: MODEL.to_owned(), from_turn }
}

#[test]
fn a_new_prompt_begins_without_recoveries() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let mut live = RecordedRun::begin();
    live.record_events(&mut journal, &[Event::Begin, weighed(), OVERLOAD]);
    let ended = live.chronicle.end(Moment::from_millis(live.now), StopReason::InternalError);
    journal.recoveries(&ended);
    journal.end(StopReason::InternalError, None);
    assert_eq!(sandbox.read(&id).totals.recovery.totals().lost, 1, "also without a last step");
    journal.message(&user("and now?"), &MessageMeta::default());
    assert_eq!(sandbox.read(&id).totals.recovery, RecoveryLog::default());
    drop(journal);
    let (id, mut journal) = sandbox.create();
    RecordedRun::begin().record_events(&mut journal, &[Event::Begin, weighed(), OVERLOAD]);
    drop(journal);
    let fresh = ProcessOpening { carry: CarryOver::Fresh, ..opening() };
    drop(
        LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse)
            .expect("free")
            .open(&sandbox.place, &fresh),
    );
    assert_eq!(sandbox.read(&id).totals.recovery, RecoveryLog::default());
}

#[test]
fn the_model_of_each_turn_is_known_by_where_it_began() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    for model in ["first", "first", "second", "first"] {
        journal.message(&user("go"), &MessageMeta::default());
        journal.spend(Some(cents(1)), &usage(1), model);
        journal.message(&says("So."), &reply());
    }
    let models = sandbox.read(&id).totals.prompt.models;
    let spans: Vec<(&str, u32)> =
        models.iter().map(|span| (span.model.as_str(), span.from_turn)).collect();
    assert_eq!(spans, [("first", 1), ("second", 3), ("first", 4)]);
}

#[test]
fn unknown_words_in_a_recovery_record_do_not_break_resuming() {
    let sandbox = Sandbox::new();
    let (id, mut journal, mut live) = waited_out(&sandbox);
    live.answered(&mut journal, TOOL_CALLS);
    drop(journal);
    let text = String::from_utf8(sandbox.bytes(&id)).expect("text");
    let bent: String = text.lines().map(|line| reworded(line) + "\n").collect();
    assert_ne!(bent, text);
    fs::write(sandbox.file(&id), &bent).expect("written");
    assert_eq!(sandbox.read(&id).totals.recovery, live.chronicle.resumed());
}

/// A recovery record with unknown words and a valid checksum.
fn reworded(line: &str) -> String {
    if !line.contains(r#""kind":"recovery""#) {
        return line.to_owned();
    }
    let (body, _) = line.rsplit_once(r#","crc""#).expect("sealed");
    let body = body.replace(r#""attempts":2"#, r#""attempts":"a few""#);
    let crc = crc32c::crc32c(format!("{body}}}").as_bytes());
    format!(r#"{body},"crc":"{crc:08x}"}}"#)
}

/// The memory of the loop detector survives a crash during a prompt.
#[test]
fn the_memory_of_the_loop_detector_and_learned_windows_come_back() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    let deed = ToolCallRecord::new("Bash", b"make", b"no rule", CallEffect::Failed);
    let (mut spiral, loops) = (LoopDetector::default(), Limits::default().loops);
    for _ in 0..4 {
        spiral.observe(&[deed], loops);
        journal.tool_calls(&[deed]);
    }
    journal.window("model-a", 9_000);
    journal.window("model-b", 7_000);
    journal.window("model-a", 8_000);
    drop(journal);
    let (mut journal, restored) = sandbox.resume(&id);
    assert_eq!(restored.work.loop_detector, spiral);
    let windows = ["model-a", "model-b", "model-c"].map(|name| restored.learned_facts.window(name));
    assert_eq!(windows, [Some(8_000), Some(7_000), None]);
    // A new prompt may well begin with what the last one did; windows stay as they are.
    journal.end(StopReason::Completed, None);
    journal.message(&user("and now"), &MessageMeta::default());
    drop(journal);
    let restored = sandbox.read(&id);
    assert_eq!(restored.work.loop_detector, LoopDetector::default());
    assert_eq!(restored.learned_facts.window("model-a"), windows[0]);
}

/// Whether a prompt is done is told by its records, never by who had the last word.
#[test]
fn a_session_is_finished_when_its_records_say_so() {
    use LeftOff::{Finished, ReplyDue};
    let whole = MessageMeta { stop_reason: Some("end_turn"), ..reply() };
    let left_off = |tell: &dyn Fn(&mut Journal)| {
        let sandbox = Sandbox::new();
        let (id, mut journal) = sandbox.create();
        journal.message(&user("go"), &MessageMeta::default());
        tell(&mut journal);
        sandbox.read(&id).conversation.left_off
    };
    let answer = |journal: &mut Journal| _ = journal.message(&says("Done."), &whole);
    let replies = [Event::Begin, weighed(), Event::Replied(ReplyKind::Answer { tokens: 3 })];
    let step = steps(&replies).pop().expect("a step");
    assert_eq!(left_off(&|_| {}), Some(ReplyDue), "no answer came");
    let unknown = Some(LeftOff::Incomplete(Incomplete::UnknownReason));
    assert_eq!(left_off(&answer), unknown, "nothing says what it is");
    let calls_only = |journal: &mut Journal| _ = journal.message(&calls(&["t"]), &whole);
    assert_eq!(left_off(&calls_only), Some(ReplyDue), "it wants more");
    let decided = |journal: &mut Journal| {
        answer(journal);
        journal.transition(&step);
    };
    assert_eq!(left_off(&decided), Some(Finished(StopReason::Completed)));
    for (end, left) in [
        (StopReason::Completed, Some(Finished(StopReason::Completed))),
        (StopReason::Refusal, Some(Finished(StopReason::Refusal))),
        (StopReason::MaxTurns, unknown),
    ] {
        let ended = |journal: &mut Journal| {
            answer(journal);
            journal.end(end, None);
        };
        assert_eq!(left_off(&ended), left);
    }
    let goes_on = |journal: &mut Journal| {
        decided(journal);
        journal.end(StopReason::Completed, None);
        journal.message(&user("and now"), &MessageMeta::default());
    };
    assert_eq!(left_off(&goes_on), Some(ReplyDue));
}

/// A process that was killed before it could write its prompt down asked for something.
#[test]
fn an_answer_to_an_earlier_prompt_does_not_finish_a_new_one() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    assert_eq!(
        sandbox.read(&id).conversation.left_off,
        Some(LeftOff::Finished(StopReason::Completed))
    );
    let fresh = ProcessOpening { carry: CarryOver::Fresh, ..opening() };
    drop(
        LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse)
            .expect("free")
            .open(&sandbox.place, &fresh),
    );
    assert_eq!(sandbox.read(&id).conversation.left_off, None);
}
