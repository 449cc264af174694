//! Replies that are not simply an answer: cut, empty, paused, or less than was asked for.

use outlast_core::recovery::{
    Action, Budgets, CutKind, ErrorClass, Event, Incomplete, Limits, LoopStatus, Money, Nudge,
    Pause, RecoveryPlan, ReplyDisposition, ReplyKind, StopReason, TokenEstimate,
};

use super::super::{ANSWER, FREE, Story, TOOL_CALLS, after, limits, with_budgets};

const CUT: Event = Event::Replied(ReplyKind::CutShort(CutKind::Text));
const EMPTY: Event = Event::Replied(ReplyKind::Empty);
const PAUSED: Event = Event::Replied(ReplyKind::Paused);

#[test]
fn a_reply_without_tool_calls_ends_the_run() {
    let story = Story::begin(limits()).then(ANSWER);
    story.ends_as(StopReason::Completed);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
    assert_eq!(story.requests(), 1);
}

#[test]
fn tools_run_and_the_model_is_asked_again() {
    let story = Story::begin(limits()).then(TOOL_CALLS);
    assert_eq!(
        (story.last(), story.transition().edit.reply),
        (Action::RunTools, ReplyDisposition::Keep)
    );
    let story = story.then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.requests(), 2);
    assert_eq!(story.decision().edit.say, None);
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn a_model_refusal_is_the_result_of_the_run() {
    let story = Story::begin(limits()).then(Event::Replied(ReplyKind::Refusal));
    story.ends_as(StopReason::Refusal);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
}

#[test]
fn a_hook_can_stop_the_run_after_its_tools() {
    let story = Story::begin(limits()).then(TOOL_CALLS).then(Event::HookStopped);
    story.ends_as(StopReason::HookStopped);
    let story = Story::begin(limits()).then(TOOL_CALLS).then(Event::Deferred);
    story.ends_as(StopReason::ToolDeferred);
    let story = Story::begin(limits()).then(TOOL_CALLS).then(Event::Denied);
    story.ends_as(StopReason::Denied);
}

// --- the output limit ---------------------------------------------------------------------------

#[test]
fn a_truncated_reply_is_first_retried_with_a_larger_output_cap() {
    let rules = with_budgets(Budgets { turns: Some(1), ..Budgets::DEFAULT });
    let story = Story::begin(rules);
    assert_eq!(story.asked().cap, 8_192);
    let story = story.then(CUT);
    assert_eq!(story.asked().cap, 64_000);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Escalate));
    assert_eq!((decision.edit.reply, decision.edit.say), (ReplyDisposition::Drop, None));
    assert_eq!(story.run.budgets.continuations, 3, "the counter is untouched");
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn a_reply_that_is_always_truncated_gets_three_continuations() {
    let mut story = Story::begin(limits()).then(CUT);
    for _ in 0..3 {
        story = story.then(CUT);
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::Continue));
        assert_eq!(decision.edit.reply, ReplyDisposition::Keep);
        assert_eq!(decision.edit.say, Some(Nudge::Continue(CutKind::Text)));
        assert_eq!(story.asked().cap, 64_000, "the turn keeps its cap");
    }
    let story = story.then(CUT);
    story.ends_as(StopReason::MaxOutputTokens);
    assert_eq!((story.requests(), story.transition().edit.reply), (5, ReplyDisposition::Keep));
}

#[test]
fn a_finished_turn_resets_the_truncation_budget() {
    for _ in 0..2 {
        let story = Story::begin(limits()).then(CUT).then(CUT).then(TOOL_CALLS);
        let story = story.then(Event::ToolsDone(LoopStatus::Fresh));
        assert_eq!(story.asked().cap, 8_192, "and starts at the default cap again");
        assert_eq!(story.run.budgets.continuations, 3);
        assert_eq!(story.then(CUT).asked().cap, 64_000);
    }
}

#[test]
fn each_kind_of_truncation_has_its_own_continuation() {
    let rules = with_budgets(Budgets { escalations: 0, ..Budgets::DEFAULT });
    for cut in [CutKind::Text, CutKind::ToolCall, CutKind::Thinking] {
        let story = Story::begin(rules).then(Event::Replied(ReplyKind::CutShort(cut)));
        assert_eq!(story.decision().edit.say, Some(Nudge::Continue(cut)));
    }
}

#[test]
fn the_output_cap_is_not_raised_above_the_models_maximum() {
    let small = TokenEstimate { ceiling: 8_192, ..FREE };
    let begin = |weight| {
        let story = Story::unasked(limits()).measure_with(weight).then(Event::Begin);
        story.then(CUT).decision().plan
    };
    assert_eq!(begin(small), Some(RecoveryPlan::Continue), "the model's limit is reached");
    let larger = TokenEstimate { ceiling: 8_193, ..FREE };
    assert_eq!(begin(larger), Some(RecoveryPlan::Escalate));
    let token = Money::from_pico_dollars(1);
    let poor = TokenEstimate { token, left: Some(token * 16_384), ..FREE };
    assert_eq!(begin(poor), Some(RecoveryPlan::Continue), "the money reaches no further");
    let rich = TokenEstimate { left: Some(token * 16_385), ..poor };
    assert_eq!(begin(rich), Some(RecoveryPlan::Escalate));
}

#[test]
fn a_continuation_counts_as_a_turn_and_the_last_one_says_so() {
    let rules = |turns| {
        let turns = Some(turns);
        with_budgets(Budgets { turns, escalations: 0, ..Budgets::DEFAULT })
    };
    let story = Story::begin(rules(1)).then(CUT);
    story.ends_as(StopReason::MaxTurns);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
    let plan = story.transition().plan;
    assert_eq!(
        plan,
        Some(RecoveryPlan::Stop(StopReason::MaxTurns)),
        "what was not done is not told"
    );
    let story = Story::begin(rules(2)).then(CUT);
    assert_eq!(story.decision().edit.say, Some(Nudge::ContinueLast));
    story.then(CUT).ends_as(StopReason::MaxTurns);
}

#[test]
fn a_truncated_reply_after_the_deadline_is_kept() {
    let rules = Limits { deadline: Some(after(10)), ..limits() };
    let story = Story::begin(rules).at(after(10)).then(CUT);
    story.ends_as(StopReason::Deadline);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
}

// --- nothing at all -----------------------------------------------------------------------------

#[test]
fn an_empty_reply_is_retried_three_times_with_pauses() {
    let mut story = Story::begin(limits());
    for retry in 1..=3 {
        story = story.then(EMPTY);
        assert_eq!(story.transition().edit.reply, ReplyDisposition::Drop);
        let why = Pause { class: ErrorClass::EmptyResponse, retry, of: Some(3) };
        assert_eq!(story.pause(), why);
        let bare = 250 << retry;
        assert!((bare..=bare + bare / 4).contains(&story.pause_millis()));
        story = story.wakes();
        assert_eq!(story.asked().attempt, retry + 1);
    }
    let story = story.then(EMPTY);
    story.ends_as(StopReason::EmptyResponse);
    assert_eq!((story.requests(), story.transition().edit.reply), (4, ReplyDisposition::Drop));
}

#[test]
fn empty_replies_and_failures_do_not_reset_each_others_budgets() {
    let mut story = Story::begin(limits());
    for _ in 0..3 {
        story = story.fails_and_waits(ErrorClass::ServerError, 1).then(EMPTY).wakes();
    }
    assert_eq!(story.run.budgets.retries, 7);
    assert_eq!(story.asked().attempt, 7);
    story.then(EMPTY).ends_as(StopReason::EmptyResponse);
}

#[test]
fn an_empty_reply_costs_no_turn_and_a_full_one_resets_its_budget() {
    let rules = with_budgets(Budgets { turns: Some(2), ..Budgets::DEFAULT });
    let story = Story::begin(rules).then(EMPTY).wakes().then(EMPTY).wakes();
    assert_eq!(story.run.budgets.turns, Some(1));
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.run.budgets.empty_replies, 3);
}

#[test]
fn an_empty_reply_ends_a_row_of_overloads() {
    let rules = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails_and_waits(ErrorClass::ServerOverload, 2);
    let story = story.then(EMPTY).wakes().fails(ErrorClass::ServerOverload).wakes();
    assert_eq!(story.asked().model_index, 0);
}

// --- a reply that nothing says is whole -------------------------------------------------------

const LACKS: [Incomplete; 4] = [
    Incomplete::MissingCall,
    Incomplete::Filtered,
    Incomplete::BrokenOff,
    Incomplete::UnknownReason,
];

/// The class of a reply that stays incomplete.
fn class_of(why: Incomplete) -> ErrorClass {
    let is_filtered = why == Incomplete::Filtered;
    if is_filtered { ErrorClass::ContentFiltered } else { ErrorClass::BadResponse }
}

fn incomplete(why: Incomplete) -> Event {
    Event::Replied(ReplyKind::Incomplete(why))
}

#[test]
fn an_incomplete_reply_is_retried_and_then_nudged_twice() {
    for why in LACKS {
        let story = Story::begin(limits()).then(incomplete(why));
        assert_eq!(story.transition().edit.reply, ReplyDisposition::Drop, "{why:?}");
        let pause = Pause { class: class_of(why), retry: 1, of: Some(1) };
        assert_eq!(story.pause(), pause);
        let mut story = story.wakes();
        for _ in 0..2 {
            story = story.then(incomplete(why));
            let decision = story.decision();
            assert_eq!(decision.plan, Some(RecoveryPlan::RequestCompletion), "{why:?}");
            assert_eq!(decision.edit.reply, ReplyDisposition::Keep);
            assert_eq!(decision.edit.say, Some(Nudge::Complete(why)));
        }
        let story = story.then(incomplete(why));
        story.ends_as(StopReason::ModelError(class_of(why)));
        assert_eq!((story.requests(), story.transition().edit.reply), (4, ReplyDisposition::Keep));
    }
}

#[test]
fn an_incomplete_reply_never_completes_a_run_whatever_budget_is_left() {
    let turns = Some(1);
    for budgets in [
        Budgets { incomplete_retries: 0, completions: 0, ..Budgets::DEFAULT },
        Budgets { incomplete_retries: 0, turns, ..Budgets::DEFAULT },
        Budgets { turns, ..Budgets::DEFAULT },
    ] {
        for why in LACKS {
            let mut story = Story::begin(with_budgets(budgets));
            while !matches!(story.last(), Action::Finish(_)) {
                let waits = story.is_pausing();
                story = if waits { story.wakes() } else { story.then(incomplete(why)) };
            }
            let Action::Finish(reason) = story.last() else { unreachable!() };
            let incomplete = StopReason::ModelError(class_of(why));
            assert!([incomplete, StopReason::MaxTurns].contains(&reason), "{why:?}: {reason:?}");
        }
    }
}

#[test]
fn a_complete_reply_resets_the_budget_for_incomplete_ones() {
    let cut_off = incomplete(Incomplete::BrokenOff);
    let story = Story::begin(limits()).then(cut_off).wakes().then(cut_off);
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!((story.run.budgets.incomplete_retries, story.run.budgets.completions), (1, 2));
    story.then(cut_off).wakes().then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn incomplete_replies_and_failures_do_not_reset_each_others_budgets() {
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerError, 3);
    let story = story.then(incomplete(Incomplete::Filtered)).wakes();
    assert_eq!((story.run.budgets.retries, story.asked().attempt), (7, 5));
}

#[test]
fn an_incomplete_reply_after_the_deadline_is_kept() {
    let rules = Limits { deadline: Some(after(10)), ..limits() };
    let story = Story::begin(rules).at(after(10)).then(incomplete(Incomplete::BrokenOff));
    story.ends_as(StopReason::Deadline);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
}

// --- a long turn, paused by the service ---------------------------------------------------------

#[test]
fn a_paused_turn_is_continued_eight_times_without_a_message() {
    let mut story = Story::begin(limits());
    for _ in 0..8 {
        story = story.then(PAUSED);
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::Resume));
        assert_eq!((decision.edit.reply, decision.edit.say), (ReplyDisposition::Keep, None));
        assert!(story.retried_without_pause());
    }
    let story = story.then(PAUSED);
    story.ends_as(StopReason::ModelError(ErrorClass::BadResponse));
    assert_eq!(story.requests(), 9);
}

#[test]
fn a_finished_turn_resets_the_pause_budget() {
    let pause_often = |mut story: Story| {
        for _ in 0..8 {
            story = story.then(PAUSED);
        }
        story
    };
    let story = pause_often(Story::begin(limits()))
        .then(TOOL_CALLS)
        .then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(pause_often(story).requests(), 1 + 8 + 1 + 8);
}

#[test]
fn a_paused_turn_is_charged_like_any_other() {
    let rules = with_budgets(Budgets { turns: Some(2), ..Budgets::DEFAULT });
    let story = Story::begin(rules).then(PAUSED);
    assert_eq!(story.decision().edit.say, None, "the service wants the conversation as it was");
    let story = story.then(PAUSED);
    story.ends_as(StopReason::MaxTurns);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
}

// --- effort -------------------------------------------------------------------------------------

fn effort(tokens: u32) -> Limits {
    Limits { effort: Some(tokens), ..limits() }
}

fn answer(tokens: u32) -> Event {
    Event::Replied(ReplyKind::Answer { tokens })
}

#[test]
fn a_run_that_ends_far_below_its_token_budget_gets_an_effort_nudge() {
    let story = Story::begin(effort(10_000)).then(answer(8_999));
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Nudge));
    assert_eq!(
        (decision.edit.reply, decision.edit.say),
        (ReplyDisposition::Keep, Some(Nudge::MoreEffort))
    );
    let story = Story::begin(effort(10_000)).then(answer(9_000));
    story.ends_as(StopReason::Completed);
}

#[test]
fn tool_calls_count_towards_the_token_budget() {
    let calls = Event::Replied(ReplyKind::ToolCalls { tokens: 8_000 });
    let story = Story::begin(effort(10_000)).then(calls).then(Event::ToolsDone(LoopStatus::Fresh));
    story.then(answer(1_000)).ends_as(StopReason::Completed);
}

#[test]
fn effort_nudges_stop_after_three_without_effect() {
    let mut story = Story::begin(effort(1_000_000)).then(answer(5_000));
    for _ in 0..3 {
        assert_eq!(story.decision().edit.say, Some(Nudge::MoreEffort));
        story = story.then(answer(499));
    }
    story.ends_as(StopReason::Completed);
}

#[test]
fn a_successful_effort_nudge_allows_three_more() {
    let mut story = Story::begin(effort(1_000_000)).then(answer(5_000));
    story = story.then(answer(10)).then(answer(10)).then(answer(500));
    for _ in 0..3 {
        assert_eq!(story.decision().edit.say, Some(Nudge::MoreEffort));
        story = story.then(answer(10));
    }
    story.ends_as(StopReason::Completed);
}

#[test]
fn the_setting_bounds_the_number_of_effort_nudges() {
    let budgets = Budgets { nudges: 1, ..Budgets::DEFAULT };
    let rules = Limits { budgets, ..effort(1_000_000) };
    let story = Story::begin(rules).then(answer(5_000)).then(answer(5_000));
    story.then(answer(10)).ends_as(StopReason::Completed);
}

#[test]
fn an_effort_nudge_is_not_sent_when_it_could_lose_the_answer() {
    let turns = Some(2);
    let last = Limits { budgets: Budgets { turns, ..Budgets::DEFAULT }, ..effort(9_000) };
    Story::begin(last).then(ANSWER).ends_as(StopReason::Completed);
    let deadline = Limits { deadline: Some(after(10)), ..effort(9_000) };
    Story::begin(deadline).at(after(10)).then(ANSWER).ends_as(StopReason::Completed);
    let wrap_up = Limits { wrap_up: Some(after(9)), ..deadline };
    Story::begin(wrap_up).at(after(9)).then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn without_a_token_budget_there_are_no_effort_nudges() {
    Story::begin(limits()).then(answer(0)).ends_as(StopReason::Completed);
}
