//! The state of a prompt follows from its steps, and a process that resumes it does the remaining
//! work.

use outlast_core::recovery::{
    Action, Attempts, Budgets, CutKind, Event, Fast, FastMode, Incomplete, LeftOff, Limits,
    NewDemands, Nudge, ReplyKind, Run, StopHookDecision, StopReason, WorkStatus,
};

use super::super::{ANSWER, Story, TOOL_CALLS, TOOLS_DONE, limits, with_budgets};

const CUT: Event = Event::Replied(ReplyKind::CutShort(CutKind::Text));
const PAUSED: Event = Event::Replied(ReplyKind::Paused);
const EARLY: Event = Event::Replied(ReplyKind::Early { tokens: 100 });
const PASS: Event = Event::Consulted(StopHookDecision::Pass);
const BLOCK: Event = Event::Consulted(StopHookDecision::Block);
const UNMET: Event = Event::Checked { passed: false };

fn demanding(turns: Option<u32>) -> Limits {
    let budgets = Budgets { turns, requirement_tries: 3, objections: 2, ..limits().budgets };
    Limits { budgets, stop_hooks: true, requirement: true, ..limits() }
}

fn structured() -> Limits {
    Limits { structured: true, ..limits() }
}

fn turns(turns: u32) -> Limits {
    let budgets = Budgets { turns: Some(turns), ..limits().budgets };
    Limits { budgets, ..limits() }
}

fn left_off(story: &Story) -> LeftOff {
    story.told.iter().fold(LeftOff::default(), LeftOff::after)
}

#[test]
fn the_steps_of_a_prompt_tell_where_it_stands() {
    use LeftOff::{Answered, Consented, Continuing, Cut, Delivered, Finished, Paused, ReplyDue};
    let plain = || Story::begin(limits());
    let strict = || Story::begin(demanding(None));
    let last = || Story::begin(demanding(Some(1)));
    let escalated = || plain().then(CUT).then(CUT);
    let table = [
        ("asked", plain(), ReplyDue),
        ("tools run", plain().then(TOOL_CALLS), ReplyDue),
        ("tools have run", plain().then(TOOL_CALLS).then(TOOLS_DONE), ReplyDue),
        ("dropped for more room", plain().then(CUT), ReplyDue),
        ("told to go on", escalated(), Continuing),
        ("cut in the last turn", Story::begin(turns(1)).then(CUT).then(CUT), Cut(CutKind::Text)),
        ("paused", plain().then(PAUSED), Paused),
        ("paused in the last turn", Story::begin(turns(1)).then(PAUSED), Paused),
        ("done", plain().then(ANSWER), Finished(StopReason::Completed)),
        (
            "declined",
            plain().then(Event::Replied(ReplyKind::Refusal)),
            Finished(StopReason::Refusal),
        ),
        ("answered", strict().then(ANSWER), Answered),
        ("accepted by the hooks", strict().then(ANSWER).then(PASS), Consented),
        ("told of an objection", strict().then(ANSWER).then(BLOCK), ReplyDue),
        ("an objection in the last turn", last().then(ANSWER).then(BLOCK), Answered),
        ("told of a failed check", strict().then(ANSWER).then(PASS).then(UNMET), ReplyDue),
        ("a failed check in the last turn", last().then(ANSWER).then(PASS).then(UNMET), Consented),
        ("waits for background work", plain().then(EARLY), Answered),
        (
            "told of background work",
            plain().then(EARLY).then(Event::BackgroundWaited(WorkStatus::Unreported)),
            ReplyDue,
        ),
        (
            "text where a structure is wanted",
            Story::begin(Limits { structured: true, ..turns(1) }).then(ANSWER),
            Answered,
        ),
        (
            "delivered",
            Story::begin(Limits { structured: true, ..demanding(None) })
                .then(TOOL_CALLS)
                .then(Event::Delivered),
            Delivered,
        ),
    ];
    for (what, story, wanted) in table {
        assert_eq!(left_off(&story), wanted, "{what}");
    }
    let told = [(Answered, ReplyDue), (Delivered, ReplyDue), (Consented, ReplyDue)];
    for (before, after) in told {
        assert_eq!(before.after_message(), after);
    }
    for same in [ReplyDue, Continuing, Paused, Cut(CutKind::Text)] {
        assert_eq!(same.after_message(), same);
    }
}

#[test]
fn what_was_accepted_for_other_demands_is_open() {
    use LeftOff::{Answered, Consented, Delivered, Finished, Paused, ReplyDue};
    const DONE: LeftOff = Finished(StopReason::Completed);
    const DECLINED: LeftOff = Finished(StopReason::Refusal);
    let requirement = NewDemands { requirement: true, schema: false };
    let schema = NewDemands { requirement: false, schema: true };
    for (before, required, structured) in [
        (DONE, Consented, Answered),
        (DECLINED, DECLINED, DECLINED),
        (Consented, Consented, Answered),
        (Delivered, Delivered, Answered),
        (Answered, Answered, Answered),
        (ReplyDue, ReplyDue, ReplyDue),
        (Paused, Paused, Paused),
    ] {
        assert_eq!(before.with_demands(requirement), required, "{before:?}");
        assert_eq!(before.with_demands(schema), structured, "{before:?}");
        assert_eq!(before.with_demands(NewDemands::default()), before);
    }
    let limits = structured();
    let used = Run::new(7, &limits);
    let used =
        Run { has_output: true, budgets: Budgets { schema_tries: 0, ..used.budgets }, ..used };
    let again = used.with_demands(schema, &limits);
    assert_eq!(
        (again.has_output, again.budgets.schema_tries),
        (false, limits.budgets.schema_tries)
    );
    assert_eq!(used.with_demands(requirement, &limits), used);
}

#[test]
fn a_process_that_takes_a_prompt_up_does_what_is_left() {
    let takes_up = |limits: Limits, left| Story::unasked(limits).just(Event::Resumed(left));
    let asks = [
        (LeftOff::ReplyDue, None),
        (LeftOff::Continuing, None),
        (LeftOff::Paused, None),
        (LeftOff::Cut(CutKind::Text), Some(Nudge::Continue(CutKind::Text))),
        (
            LeftOff::Incomplete(Incomplete::UnknownReason),
            Some(Nudge::Complete(Incomplete::UnknownReason)),
        ),
    ];
    for (left, nudge) in asks {
        let story = takes_up(demanding(None), left);
        assert!(matches!(story.last(), Action::Estimate { .. }), "{left:?}");
        assert_eq!(story.transition().edit.say, nudge, "{left:?}");
        takes_up(turns(0), left).ends_as(StopReason::MaxTurns);
    }
    let story = takes_up(structured(), LeftOff::Answered);
    assert_eq!(story.transition().edit.say, Some(Nudge::UseStructuredOutput));
    for left in [LeftOff::Answered, LeftOff::Delivered] {
        assert_eq!(takes_up(demanding(None), left).last(), Action::RunStopHooks);
        takes_up(limits(), left).ends_as(StopReason::Completed);
    }
    assert_eq!(takes_up(demanding(None), LeftOff::Consented).last(), Action::RunRequirement);
    for reason in [StopReason::Completed, StopReason::Refusal] {
        takes_up(limits(), LeftOff::Finished(reason)).ends_as(reason);
    }
}

/// The run may be resumed with more turns: what the model was never told of is not used up.
#[test]
fn a_try_that_the_turn_limit_prevents_is_not_spent() {
    let full = demanding(Some(1));
    let unmet = Story::begin(full).then(ANSWER).then(PASS).then(UNMET);
    assert_eq!(unmet.run.budgets.requirement_tries, 3);
    unmet.ends_as(StopReason::MaxTurns);
    let objected = Story::begin(full).then(ANSWER).then(BLOCK);
    assert_eq!(objected.run.budgets.objections, 2);
    objected.ends_as(StopReason::MaxTurns);
}

/// A larger output limit that a reply has stays with it.
#[test]
fn a_reopened_run_keeps_its_output_limit() {
    let before = Story::begin(limits()).then(CUT).then(CUT).run;
    let after = before.reopened(None, &limits());
    assert_eq!((after.cap, after.budgets.escalations), (before.cap, 0));
    assert_eq!(after.budgets.continuations, limits().budgets.continuations);
}

/// A way to continue a session, from its earlier limits.
type Continuation = fn(Run, Option<&Limits>, &Limits) -> Run;

/// A limit of the session is not renewed by its prompts, or by resuming a prompt that ended without
/// success, unless the user sets another limit.
#[test]
fn a_new_prompt_and_a_reopened_one_keep_what_the_session_has_used_up() {
    let budgets = Budgets { compactions: Some(1), ..Budgets::DEFAULT };
    let rules = Limits { budgets, fast: Some(FastMode::default()), ..limits() };
    let begun = Story::begin(rules).run;
    assert_eq!(begun.fast, Fast::On);
    let spent = Budgets {
        compactions: Some(0),
        cool_downs: 2,
        fast_mode: 0,
        turns: Some(1),
        ..begun.budgets
    };
    let attempts = Attempts { failures: 3, ..begun.attempts };
    let before = Run { budgets: spent, fast: Fast::Off, attempts, ..begun };
    let more = with_budgets(Budgets { compactions: Some(2), ..Budgets::DEFAULT });
    let ways: [Continuation; 2] = [Run::for_new_prompt, Run::reopened];
    for (after, turns) in ways.into_iter().zip([None, Some(1)]) {
        let same = after(before, Some(&rules), &rules);
        assert_eq!((same.budgets.compactions, same.budgets.turns), (Some(0), turns));
        assert_eq!((same.budgets.cool_downs, same.budgets.fast_mode), (2, 0));
        assert_eq!((same.fast, same.attempts.failures), (Fast::Off, 0));
        assert_eq!(after(before, Some(&rules), &more).budgets.compactions, Some(2));
        let untouched = after(begun, Some(&rules), &rules);
        assert_eq!((untouched.budgets.compactions, untouched.fast), (Some(1), Fast::On));
    }
}
