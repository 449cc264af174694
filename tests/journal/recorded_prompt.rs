//! What the records of a prompt add up to: the texts that make its answer.

use outlast::journal::{Denial, RecordedPrompt, ToolStats, UndoneCalls};
use outlast::recovery::{
    Action, CutKind, Event, HistoryEdit, Incomplete, LeftOff, Limits, Moment, Nudge, Phase,
    ReplyDisposition, ReplyKind, Run, StopHookDecision, StopReason, Transition,
};
use outlast::transcript::Block;
use serde_json::{Value, json};

const ANSWER: ReplyKind = ReplyKind::Answer { tokens: 3 };
const TOOLS: ReplyKind = ReplyKind::ToolCalls { tokens: 3 };
const CUT: ReplyKind = ReplyKind::CutShort(CutKind::Text);
const GO_ON: Nudge = Nudge::Continue(CutKind::Text);

fn step(event: Event, reply: ReplyDisposition, say: Option<Nudge>) -> Transition {
    let (run, action) = (Run::new(1, &Limits::default()), Action::RunTools);
    let edit = HistoryEdit { reply, say, ..HistoryEdit::default() };
    Transition { at: Moment::default(), event, plan: None, edit, next: run, action }
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

/// Every call counts once, when its result comes, by what was recorded of it before.
#[test]
fn calls_are_counted_by_their_outcome() {
    let denial = |id: &str| Denial {
        tool_name: "Bash".to_owned(),
        tool_use_id: id.to_owned(),
        tool_input: json!({}),
        reason: "not allowed".to_owned(),
    };
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
