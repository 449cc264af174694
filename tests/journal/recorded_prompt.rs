//! The texts that make the answer of a prompt, computed from its records.

use outlast::journal::{
    BackgroundChanges, CarryOver, Contract, Denial, FailedCheck, FirstPrompt, Journal,
    JournalRecord, LockedSession, MessageMeta, OnDamage, ProcessOpening, RecordedPrompt, SessionId,
    ToolStats, UndoneCalls,
};
use outlast::recovery::{
    Action, CallEffect, CutKind, Event, HistoryEdit, Incomplete, LeftOff, Limits, Moment,
    NewDemands, Nudge, OptionalField, Phase, RecoveryRecord, RefusedField, ReplyDisposition,
    ReplyKind, Run, StopHookDecision, StopReason, ToolCallRecord, Transition,
};
use outlast::transcript::{Block, HistoryRepair, Message, RepairStep, ToolCall, Usage};
use outlast::types::ReadFile;
use serde_json::{Value, json};

use super::session_fixture::{MODEL, Sandbox, opening, reply, says, user};

const ANSWER: ReplyKind = ReplyKind::Answer { tokens: 3 };
const TOOLS: ReplyKind = ReplyKind::ToolCalls { tokens: 3 };
const CUT: ReplyKind = ReplyKind::CutShort(CutKind::Text);
const GO_ON: Nudge = Nudge::Continue(CutKind::Text);

fn step(event: Event, reply: ReplyDisposition, say: Option<Nudge>) -> Transition {
    let (run, action) = (Run::new(1, &Limits::default()), Action::RunTools);
    let edit = HistoryEdit { reply, say, ..HistoryEdit::default() };
    Transition { at: Moment::default(), event, cause: None, plan: None, edit, next: run, action }
}

/// A reply that is kept, and what the model is told about it.
fn hears(prompt: &mut RecordedPrompt, texts: &[&str], kind: ReplyKind, say: Option<Nudge>) {
    if !texts.is_empty() {
        let blocks: Vec<Block> = texts.iter().map(|text| Block::text(*text)).collect();
        prompt.reply(&blocks, Some("a reason"));
    }
    prompt.step(&step(Event::Replied(kind), ReplyDisposition::Keep, say));
}

#[test]
fn the_answer_is_made_of_the_texts_that_were_given_as_one() {
    type Said = (&'static [&'static str], ReplyKind, Option<Nudge>);
    let complete = Some(Nudge::Complete(Incomplete::UnknownReason));
    let thinking = ReplyKind::CutShort(CutKind::Thinking);
    let table: [(&[Said], &str); 19] = [
        (&[(&["One", "two"], ANSWER, None)], "One\ntwo"),
        (&[(&["I look."], TOOLS, None), (&["Found."], ANSWER, None)], "Found."),
        (&[(&["I look."], TOOLS, None), (&[], TOOLS, None)], "I look."),
        (&[(&["Wo"], CUT, Some(GO_ON)), (&["rds"], ANSWER, None)], "Words"),
        (
            &[(&["I look."], TOOLS, None), (&["Wo"], CUT, Some(GO_ON)), (&["rd"], ANSWER, None)],
            "Word",
        ),
        // A reply that only thinks is no part of the text before it.
        (
            &[
                (&["I look."], TOOLS, None),
                (&[], thinking, Some(GO_ON)),
                (&["It is."], ANSWER, None),
            ],
            "It is.",
        ),
        (
            &[(&["Wo"], CUT, Some(GO_ON)), (&[], thinking, Some(GO_ON)), (&["rd"], ANSWER, None)],
            "Word",
        ),
        (&[(&["It says "], ReplyKind::Paused, None), (&["42."], ANSWER, None)], "It says 42."),
        (&[(&["It says:"], ReplyKind::Paused, None), (&["42."], ANSWER, None)], "It says:\n42."),
        (&[(&["42"], ANSWER, Some(Nudge::MoreEffort)), (&["Fine."], ANSWER, None)], "42\n\nFine."),
        (
            &[
                (&["42"], ANSWER, Some(Nudge::MoreEffort)),
                (&["I check."], TOOLS, None),
                (&["Fine."], ANSWER, Some(Nudge::MoreEffort)),
                (&["Fine."], ANSWER, None),
            ],
            "42\n\nFine.",
        ),
        (
            &[(&["42"], ANSWER, Some(Nudge::WorkEnded)), (&["42, and 43"], ANSWER, None)],
            "42, and 43",
        ),
        (&[(&["42"], ANSWER, Some(Nudge::StillRunning)), (&["42"], ANSWER, None)], "42"),
        (&[(&["42"], ANSWER, Some(Nudge::Unmet)), (&["43"], ANSWER, None)], "43"),
        (&[(&["42"], ANSWER, Some(Nudge::StopHookObjection)), (&[], TOOLS, None)], "42"),
        (
            &[
                (&["4"], ReplyKind::Incomplete(Incomplete::UnknownReason), complete),
                (&["42"], ANSWER, None),
            ],
            "42",
        ),
        // Only the incomplete reply after an answer is replaced.
        (
            &[
                (&["42"], ANSWER, Some(Nudge::MoreEffort)),
                (&["Let me"], ReplyKind::Incomplete(Incomplete::UnknownReason), complete),
                (&["Fine."], ANSWER, None),
            ],
            "42\n\nFine.",
        ),
        (
            &[
                (&["42"], ANSWER, Some(Nudge::LeftOpen)),
                (&["Let me"], ReplyKind::Incomplete(Incomplete::UnknownReason), complete),
                (&[], ANSWER, None),
            ],
            "42",
        ),
        (
            &[
                (&["42"], ANSWER, Some(Nudge::WorkEnded)),
                (&["I look."], TOOLS, Some(Nudge::StepBack)),
                (&["Fine."], ANSWER, None),
            ],
            "42\n\nFine.",
        ),
    ];
    for (said, wanted) in table {
        let mut prompt = RecordedPrompt::default();
        for (texts, kind, say) in said {
            hears(&mut prompt, texts, *kind, *say);
        }
        assert_eq!(prompt.answer(), wanted, "{said:?}");
        let stored: RecordedPrompt =
            serde_json::from_value(serde_json::to_value(&prompt).expect("JSON")).expect("the same");
        assert_eq!(stored, prompt, "{said:?}");
    }
}

/// If the work after an answer fails, its text is no part of the answer.
#[test]
fn text_of_failed_work_after_an_answer_is_left_out() {
    let stopped = |event: Event, reply: ReplyDisposition| {
        let step = step(event, reply, None);
        let next = Run { phase: Phase::Stopped(StopReason::Completed), ..step.next };
        Transition { next, action: Action::Finish(StopReason::Completed), ..step }
    };
    let refused = Event::Replied(ReplyKind::Refusal);
    for (event, wanted) in [
        (refused, "42"),
        (Event::DeadlinePassed, "42"),
        (Event::Resumed(LeftOff::ReplyDue), "42"),
        (Event::Consulted(StopHookDecision::Pass), "42\n\nI look."),
        (Event::Resumed(LeftOff::Answered), "42\n\nI look."),
    ] {
        let mut prompt = RecordedPrompt::default();
        hears(&mut prompt, &["42"], ANSWER, Some(Nudge::MoreEffort));
        hears(&mut prompt, &["I look."], TOOLS, None);
        let is_reply = event == refused;
        let reply = if is_reply { ReplyDisposition::Drop } else { ReplyDisposition::Absent };
        prompt.step(&stopped(event, reply));
        assert_eq!(prompt.answer(), wanted, "{event:?}");
    }
}

/// A reply is read with the parts before it that it continues, as its text will be recorded.
#[test]
fn the_last_part_of_a_reply_is_read_with_the_parts_before_it() {
    for kind in [CUT, ReplyKind::Paused, TOOLS] {
        let mut prompt = RecordedPrompt::default();
        hears(&mut prompt, &["One"], kind, None);
        let (last, blocks) = (["two", "three"], ["two", "three"].map(Block::text));
        let whole = prompt.text_with(&blocks);
        let unseparated = if kind == TOOLS { "two\nthree" } else { "Onetwo\nthree" };
        assert_eq!(prompt.unseparated_text_with(&blocks), unseparated, "{kind:?}");
        hears(&mut prompt, &last, ANSWER, None);
        assert_eq!(whole, prompt.answer(), "{kind:?}");
        assert_eq!(whole.contains("One"), kind != TOOLS, "{kind:?}");
    }
}

/// Words that were dropped, and the answer to another prompt, are no part of an answer.
#[test]
fn dropped_replies_and_earlier_prompts_are_left_out() {
    let mut prompt = RecordedPrompt::default();
    prompt.reply(&[Block::text("Lost.")], Some("max_tokens"));
    prompt.step(&step(Event::Replied(CUT), ReplyDisposition::Drop, None));
    hears(&mut prompt, &["Kept"], CUT, Some(GO_ON));
    assert_eq!((prompt.answer().as_str(), prompt.stop_reason()), ("Kept", Some("a reason")));
    hears(&mut prompt, &[], ReplyKind::CutShort(CutKind::Thinking), Some(GO_ON));
    assert_eq!(prompt.stop_reason(), Some("max_tokens"), "a reply without a message");
    hears(&mut prompt, &[" whole."], ANSWER, Some(Nudge::MoreEffort));
    prompt.add_user_message(&[Block::text("Something else.")], None);
    prompt.step(&step(Event::Begin, ReplyDisposition::Absent, None));
    assert_eq!(prompt.answer(), "Kept whole.", "until the model says more");
    hears(&mut prompt, &["Another."], ANSWER, None);
    assert_eq!(prompt.answer(), "Another.");
}

fn call(id: &str, name: &str) -> Block {
    Block::call(id, name, json!({}))
}

fn result(id: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.to_owned(), content: vec![Block::text("x")], is_error }
}

fn denial(id: &str) -> Denial {
    Denial {
        tool_name: "Bash".to_owned(),
        tool_use_id: id.to_owned(),
        tool_input: json!({}),
        reason: "not allowed".to_owned(),
    }
}

/// Every call counts once, when its result comes, by what was recorded of it before.
#[test]
fn calls_are_counted_by_their_outcome() {
    let mut prompt = RecordedPrompt::default();
    let names = ["done", "failed", "denied", "abandoned", "open"];
    prompt.reply(&names.map(|name| call(name, "Bash")), Some("tool_use"));
    prompt.step(&step(Event::Replied(TOOLS), ReplyDisposition::Keep, None));
    prompt.undone(&UndoneCalls {
        denied: vec![denial("denied")],
        // Its id is that of another call, and after a crash every open call is recorded again.
        of_agents: vec![denial("done")],
        abandoned: vec!["abandoned".to_owned(), "denied".to_owned()],
    });
    assert_eq!(prompt.tools(), ToolStats::default(), "they have no results");
    for _again in 0..2 {
        prompt.add_user_message(
            &names[..4].iter().map(|name| result(name, *name != "done")).collect::<Vec<_>>(),
            None,
        );
        let counts = ToolStats { calls: 4, failed: 1, denied: 1, abandoned: 1 };
        assert_eq!(prompt.tools(), counts);
    }
    assert_eq!(prompt.denials(), [denial("denied"), denial("done")]);
    // A call that an earlier prompt deferred runs before the prompt begins.
    let mut resumed = RecordedPrompt::default();
    resumed.started("deferred", "Bash");
    resumed.add_user_message(&[result("deferred", false)], None);
    resumed.undone(&UndoneCalls { denied: vec![denial("other")], ..UndoneCalls::default() });
    resumed.add_user_message(&[result("other", true)], None);
    assert_eq!(resumed.tools(), ToolStats { calls: 2, denied: 1, ..ToolStats::default() });
    prompt.step(&step(Event::Begin, ReplyDisposition::Absent, None));
    assert_eq!(
        (prompt.tools(), prompt.denials()),
        (ToolStats::default(), &[][..]),
        "another prompt"
    );
}

/// A structured output counts once all calls of its reply are done, and no other one failed.
#[test]
fn a_structured_output_counts_with_the_calls_beside_it() {
    let output = json!({ "a": 1 });
    let delivered = |other_fails: bool, results: &[&str]| {
        let mut prompt = RecordedPrompt::default();
        let calls = [call("other", "Bash"), call("output", "StructuredOutput")];
        prompt.reply(&calls, Some("tool_use"));
        prompt.step(&step(Event::Replied(TOOLS), ReplyDisposition::Keep, None));
        for id in results {
            let is_output = *id == "output";
            let detail: Option<&Value> = is_output.then_some(&output);
            prompt.add_user_message(&[result(id, other_fails && !is_output)], detail);
        }
        prompt.structured().map(|(answer, attempts)| (answer.clone(), attempts))
    };
    assert_eq!(delivered(false, &["other", "output"]), Some((output.clone(), 1)));
    assert_eq!(delivered(false, &["output", "other"]), Some((output.clone(), 1)));
    assert_eq!(delivered(false, &["output"]), None, "the other one was cut off");
    assert_eq!(delivered(true, &["other", "output"]), None);
    let mut prompt = RecordedPrompt::default();
    prompt.end(StopReason::Completed);
    assert_eq!(prompt.structured(), None);
}

fn write_message(journal: &mut Journal, message: &Message) {
    journal.message(message, &MessageMeta::default());
}

fn write_reply(journal: &mut Journal, blocks: Vec<Block>, kind: ReplyKind) {
    journal.begin_step();
    journal.message(&Message::assistant(blocks), &reply());
    journal.transition(&step(Event::Replied(kind), ReplyDisposition::Keep, None));
}

/// Writes one record.
type Write = fn(&mut Journal);

/// Records of every kind, in an order in which each that a prompt depends on changes its state.
const WRITES: &[(&str, Write)] = &[
    ("prompt", |journal| write_message(journal, &user("Go."))),
    ("begin", |journal| {
        journal.transition(&step(Event::Begin, ReplyDisposition::Absent, None));
    }),
    ("spending", |journal| journal.spend(None, &Usage::default(), MODEL)),
    ("undecided reply", |journal| _ = journal.message(&says("So "), &reply())),
    ("kept reply", |journal| {
        journal.transition(&step(Event::Replied(CUT), ReplyDisposition::Keep, Some(GO_ON)));
    }),
    ("calls", |journal| {
        let calls = [call("one", "Bash"), call("two", "StructuredOutput"), call("three", "Bash")];
        write_reply(journal, [&[Block::text("far.")], &calls[..]].concat(), TOOLS);
    }),
    ("tool calls", |journal| {
        journal.tool_calls(&[ToolCallRecord::new("Bash", b"a", b"b", CallEffect::ReadOnly)]);
    }),
    ("intent of a deferred call", |journal| {
        let input = json!({});
        let call = ToolCall { id: "zero".to_owned(), name: "Bash".to_owned(), input };
        journal.intent(&[(call, true)]);
    }),
    ("undone calls", |journal| {
        let (denied, abandoned) = (vec![denial("three")], vec!["four".to_owned()]);
        journal.undone_calls(UndoneCalls { denied, of_agents: Vec::new(), abandoned });
    }),
    ("structured output", |journal| {
        journal.outcome(&result("two", false), &json!({ "structured_output": { "a": 1 } }));
    }),
    ("results and a text", |journal| {
        let results = ["one", "two", "three", "zero"].map(|id| result(id, false));
        let text = [Block::text("By the way: work has ended.")];
        write_message(journal, &Message::user([&results[..], &text].concat()));
    }),
    ("delivery", |journal| {
        journal.transition(&step(Event::Delivered, ReplyDisposition::Absent, None));
    }),
    ("check", |journal| {
        let passed = Event::Checked { passed: true };
        journal.transition(&step(passed, ReplyDisposition::Absent, None));
    }),
    ("answer", |journal| write_reply(journal, vec![Block::text("Done.")], ANSWER)),
    ("message after the answer", |journal| write_message(journal, &user("And that?"))),
    ("repair", |journal| {
        journal.repairs(&[HistoryRepair { at: 0, step: RepairStep::DroppedMessage }]);
    }),
    ("recovery", |journal| journal.recoveries(&[RecoveryRecord::default()])),
    ("window", |journal| journal.window(MODEL, 9_000)),
    ("output limit", |journal| journal.output_limit(MODEL, 4_000)),
    ("refused field", |journal| {
        let (host, model) = ("127.0.0.1".to_owned(), MODEL.to_owned());
        journal.refused_field(RefusedField { host, model, field: OptionalField::CacheControl });
    }),
    ("failed check", |journal| {
        let [command, end, output] = ["make", "failed", "no"].map(str::to_owned);
        journal.failed_check(FailedCheck { command, end, output });
    }),
    ("background", |journal| {
        let reported = vec!["bash_1".to_owned()];
        journal.background(BackgroundChanges { reported, ..BackgroundChanges::default() });
    }),
    ("files", |journal| {
        journal.files_read(vec![ReadFile { path: "/work/a".to_owned(), stamp: None }]);
    }),
    ("attachment", |journal| journal.attachment("/work/a", "a")),
    ("end", |journal| journal.end(StopReason::Completed, None)),
    ("call of an agent after the end", |journal| {
        let of_agents = vec![denial("a1")];
        journal.undone_calls(UndoneCalls { of_agents, ..UndoneCalls::default() });
    }),
    ("spending after the end", |journal| journal.spend(None, &Usage::default(), MODEL)),
    ("reply after the end", |journal| write_reply(journal, vec![Block::text("Now.")], ANSWER)),
    ("second end", |journal| journal.end(StopReason::Completed, None)),
    ("rewrite after the end", |journal| journal.rewrite(&[user("A summary.")])),
    ("third end", |journal| journal.end(StopReason::Refusal, None)),
    ("step after the end", |journal| {
        journal.transition(&step(Event::Begin, ReplyDisposition::Absent, None));
    }),
    ("last reply", |journal| write_reply(journal, vec![Block::text("The end.")], CUT)),
    ("last end", |journal| journal.end(StopReason::MaxTurns, None)),
    ("message after the end", |journal| write_message(journal, &user("Go on."))),
];

/// The state that a process has of its prompt is the one that the next process reads, after every
/// line, in a new session, in a resumed one, and in a fork.
#[test]
fn the_writer_of_a_journal_folds_its_lines_as_a_reader_does() {
    let sandbox = Sandbox::new();
    let agree = |id: &SessionId, journal: &Journal, name: &str| {
        assert_eq!(journal.recorded(), &sandbox.read(id).conversation.recorded, "{name}");
    };
    let opening = |carry| ProcessOpening {
        carry,
        new_demands: NewDemands { requirement: true, schema: true },
        contract: Some(Contract::default()),
        prompt: Some(FirstPrompt::of("Go.")),
        ..opening()
    };
    let (id, mut lines) = (SessionId::generate(), Vec::new());
    let mut journal =
        Journal::create(&sandbox.place, &id, &opening(CarryOver::Fresh)).expect("created");
    for (index, (name, write)) in WRITES.iter().enumerate() {
        write(&mut journal);
        agree(&id, &journal, name);
        // A process that ends here is continued, followed by another prompt, or copied.
        let (next, write_next) = WRITES[(index + 1) % WRITES.len()];
        for carry in [CarryOver::On, CarryOver::Fresh] {
            let copy = sandbox.with_file(&sandbox.bytes(&id));
            let held = LockedSession::lock_and_read(&sandbox.place, &copy, OnDamage::Refuse);
            let (mut resumed, _) = held.expect("free").open(&sandbox.place, &opening(carry));
            agree(&copy, &resumed, &format!("resumed after {name}, {carry:?}"));
            write_next(&mut resumed);
            agree(&copy, &resumed, &format!("{next} of a process after {name}, {carry:?}"));
        }
        let (fork, source) = (SessionId::generate(), sandbox.read(&id));
        let opening = opening(CarryOver::On);
        let forked = Journal::fork(&sandbox.place, &fork, &opening, (&id, &source));
        agree(&fork, &forked.expect("a fork"), &format!("forked after {name}"));
        lines.extend(sandbox.bytes(&fork));
    }
    lines.extend(sandbox.bytes(&id));
    let text = String::from_utf8(lines).expect("JSON is UTF-8");
    let unknown = serde_json::from_value::<JournalRecord>(json!({ "kind": "" })).unwrap_err();
    let unknown = unknown.to_string();
    let kinds: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
    assert!(kinds.len() > 10, "{unknown}");
    for kind in kinds {
        assert!(text.contains(&format!(r#""kind":"{kind}""#)), "no record is of the kind {kind}");
    }
}
