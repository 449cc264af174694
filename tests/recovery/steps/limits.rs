//! Turns, money and time.

use std::time::Duration;

use outlast_core::recovery::{
    Action, Budgets, ErrorClass, Event, Interrupt, Limits, LoopStatus, Moment, Money, Nudge,
    RecoveryPlan, ReplyDisposition, StopReason, TokenEstimate,
};

use super::super::{ANSWER, FREE, Story, TOOL_CALLS, after, limits, with_budgets};

fn turns(turns: u32) -> Limits {
    with_budgets(Budgets { turns: Some(turns), ..Budgets::DEFAULT })
}

// --- turns ------------------------------------------------------------------------------------

#[test]
fn one_turn_is_one_reply_and_its_tools() {
    let story = Story::begin(turns(1));
    assert_eq!(story.decision().edit.notice, Some(Nudge::LastTurn));
    let story = story.then(TOOL_CALLS);
    assert_eq!(story.last(), Action::RunTools);
    let story = story.then(Event::ToolsDone(LoopStatus::Fresh));
    story.ends_as(StopReason::MaxTurns);
    assert_eq!(story.requests(), 1);
}

#[test]
fn an_answer_in_the_last_turn_is_a_success() {
    Story::begin(turns(1)).then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn the_last_turn_is_announced_and_no_other() {
    let mut story = Story::begin(turns(3));
    for turn in 1..=3 {
        let said = story.decision().edit.notice;
        assert_eq!(said, (turn == 3).then_some(Nudge::LastTurn), "turn {turn}");
        story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    }
    story.ends_as(StopReason::MaxTurns);
    assert_eq!(story.requests(), 3);
}

#[test]
fn a_failed_attempt_costs_no_turn() {
    let story = Story::begin(turns(2)).fails_and_waits(ErrorClass::ServerError, 5);
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    story.then(ANSWER).ends_as(StopReason::Completed);
}

// --- time -------------------------------------------------------------------------------------

#[test]
fn the_wrap_up_nudge_is_sent_once() {
    let rules = Limits { wrap_up: Some(after(90)), deadline: Some(after(100)), ..limits() };
    let story = Story::begin(rules)
        .at(after(89))
        .then(TOOL_CALLS)
        .then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.decision().edit.notice, None);
    let story = story.at(after(90)).then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.decision().edit.notice, Some(Nudge::WrapUp));
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.decision().edit.notice, None);
}

#[test]
fn a_resumed_run_gets_its_own_wrap_up_nudge() {
    let rules = Limits { wrap_up: Some(after(90)), ..limits() };
    let story = Story::begin(rules).at(after(90)).takes_a_turn();
    assert_eq!(story.decision().edit.notice, Some(Nudge::WrapUp));
    let story = Story::unasked(rules).goes_on_from(&story);
    assert_eq!(story.decision().edit.notice, None);
    let story = story.at(after(90)).takes_a_turn();
    assert_eq!(story.decision().edit.notice, Some(Nudge::WrapUp));
}

#[test]
fn the_last_turn_nudge_outranks_the_wrap_up_nudge() {
    let story = Story::begin(Limits { wrap_up: Some(after(0)), ..turns(1) });
    assert_eq!(story.decision().edit.notice, Some(Nudge::LastTurn));
}

#[test]
fn a_wait_past_the_deadline_is_not_started() {
    let rules = Limits { deadline: Some(after(60)), ..limits() };
    let mut story = Story::begin(rules).fails(ErrorClass::ServerError);
    while matches!(story.last(), Action::Wait { .. }) {
        story = story.wakes().fails(ErrorClass::ServerError);
    }
    story.ends_as(StopReason::Deadline);
    assert!((after(31)..after(60)).contains(&story.now), "what fitted was waited: {:?}", story.now);
    let plan = story.transition().plan;
    assert_eq!(plan, Some(RecoveryPlan::Stop(StopReason::Deadline)), "no retry is told of");
}

#[test]
fn a_wait_that_ends_exactly_at_the_deadline_is_not_started() {
    let free = Story::begin(limits()).fails(ErrorClass::ServerError);
    let ends = Moment::from_millis(free.pause_millis());
    let rules = |deadline| Limits { deadline: Some(deadline), ..limits() };
    Story::begin(rules(ends)).fails(ErrorClass::ServerError).ends_as(StopReason::Deadline);
    let later = ends.after(Duration::from_millis(1));
    assert!(Story::begin(rules(later)).fails(ErrorClass::ServerError).is_pausing());
}

#[test]
fn a_reply_after_the_deadline_is_still_used() {
    let rules = Limits { deadline: Some(after(60)), ..limits() };
    let story = Story::begin(rules).at(after(61)).then(ANSWER);
    story.ends_as(StopReason::Completed);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
}

#[test]
fn no_call_starts_at_or_after_the_deadline() {
    let rules = Limits { deadline: Some(after(60)), ..limits() };
    let late = after(60);
    Story::unasked(rules).at(late).then(Event::Begin).ends_as(StopReason::Deadline);
    Story::unasked(rules)
        .just(Event::Begin)
        .at(late)
        .just(Event::Estimated(FREE))
        .ends_as(StopReason::Deadline);
    let story = Story::begin(rules).at(late).then(TOOL_CALLS);
    story.ends_as(StopReason::Deadline);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
    let story =
        Story::begin(rules).then(TOOL_CALLS).at(late).then(Event::ToolsDone(LoopStatus::Fresh));
    story.ends_as(StopReason::Deadline);
    let story = Story::begin(rules).fails(ErrorClass::InvalidApiKey).at(late);
    story.then(Event::Refreshed).ends_as(StopReason::Deadline);
    let fallback = Limits { budgets: Budgets { switches: 1, ..Budgets::DEFAULT }, ..rules };
    let story = Story::begin(fallback).at(late).fails(ErrorClass::InvalidModel);
    story.ends_as(StopReason::Deadline);
}

#[test]
fn the_deadline_and_an_interrupt_end_a_run_wherever_it_is() {
    let by = Interrupt::Sigterm;
    let calling = || Story::begin(limits());
    let working = || calling().then(TOOL_CALLS);
    let pausing = || calling().fails(ErrorClass::ServerError);
    let refreshing = || calling().fails(ErrorClass::InvalidApiKey);
    for story in [calling(), working(), pausing(), refreshing()] {
        story.then(Event::DeadlinePassed).ends_as(StopReason::Deadline);
    }
    for story in [calling(), pausing(), refreshing()] {
        story.then(Event::Interrupted(by)).ends_as(StopReason::AbortedStreaming(by));
    }
    working().then(Event::Interrupted(by)).ends_as(StopReason::AbortedTools(by));
}

// --- money ------------------------------------------------------------------------------------

/// A call whose input costs 100 and whose tokens cost 1 each, out of `left`.
fn weight(left: u64) -> TokenEstimate {
    let pico = Money::from_pico_dollars;
    TokenEstimate {
        input: pico(100),
        token: pico(1),
        left: Some(pico(left)),
        ceiling: 64_000,
        ..FREE
    }
}

fn weighed(weight: TokenEstimate) -> Action {
    Story::unasked(limits()).measure_with(weight).then(Event::Begin).last()
}

fn cap(weight: TokenEstimate) -> u32 {
    let Action::Ask(ask) = weighed(weight) else { panic!("{:?}", weighed(weight)) };
    ask.cap
}

#[test]
fn the_budget_lowers_the_output_cap_down_to_its_floor() {
    assert_eq!(cap(weight(100_000)), 8_192);
    assert_eq!(cap(weight(8_292)), 8_192);
    assert_eq!(cap(weight(8_291)), 8_191);
    assert_eq!(cap(weight(1_124)), 1_024);
    for left in [1_123, 101, 100, 99, 0] {
        assert_eq!(weighed(weight(left)), Action::Finish(StopReason::MaxBudgetUsd), "{left}");
    }
}

#[test]
fn the_output_cap_never_exceeds_the_models_own() {
    assert_eq!(cap(TokenEstimate { ceiling: 4_096, ..FREE }), 4_096);
    assert_eq!(cap(TokenEstimate { ceiling: 0, ..FREE }), 1, "a request needs some room to answer");
}

#[test]
fn a_model_with_a_small_output_limit_needs_a_small_reservation() {
    assert_eq!(cap(TokenEstimate { ceiling: 512, ..weight(612) }), 512);
    let short = TokenEstimate { ceiling: 512, ..weight(611) };
    assert_eq!(weighed(short), Action::Finish(StopReason::MaxBudgetUsd));
}

#[test]
fn every_attempt_is_measured_again() {
    let story = Story::unasked(limits()).measure_with(weight(10_000)).then(Event::Begin);
    let story = story.measure_with(weight(1_000)).fails(ErrorClass::ServerError).wakes();
    story.ends_as(StopReason::MaxBudgetUsd);
    assert_eq!(story.requests(), 1);
}
