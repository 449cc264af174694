//! When an answer is the end, and when it is not: effort, schema, requirement, going in circles.

use outlast::recovery::{
    Action, Budgets, StopHookDecision, ErrorClass, Event, ReplyDisposition, Interrupt, Limits, Nudge, LoopStatus,
    RecoveryPlan, ReplyKind, StopReason,
};

use super::super::{ANSWER, Story, TOOL_CALLS, TOOLS_DONE, after, limits, with_budgets};

const PASSED: Event = Event::Checked { passed: true };
const FAILED: Event = Event::Checked { passed: false };
const SIGTERM: Event = Event::Interrupted(Interrupt::Sigterm);

fn requiring() -> Limits {
    Limits { requirement: true, ..limits() }
}

fn structured() -> Limits {
    Limits { structured: true, ..limits() }
}

fn turns(turns: u32, rules: Limits) -> Limits {
    Limits { budgets: Budgets { turns: Some(turns), ..rules.budgets }, ..rules }
}

fn answer(tokens: u32) -> Event {
    Event::Replied(ReplyKind::Answer { tokens })
}

// --- Stop hooks ---------------------------------------------------------------------------------

const PASS: Event = Event::Consulted(StopHookDecision::Pass);
const BLOCK: Event = Event::Consulted(StopHookDecision::Block);

fn hooked() -> Limits {
    Limits { stop_hooks: true, ..limits() }
}

#[test]
fn stop_hooks_are_heard_before_effort_is_asked_for_and_the_requirement_is_checked() {
    let rules = Limits { effort: Some(10_000), requirement: true, ..hooked() };
    let story = Story::begin(rules).then(answer(10));
    assert_eq!((story.last(), story.transition().edit.reply), (Action::RunStopHooks, ReplyDisposition::Keep));
    let story = story.then(PASS);
    assert_eq!(story.decision().edit.say, Some(Nudge::MoreEffort));
    let story = story.then(answer(9_990)).then(PASS);
    assert_eq!(story.last(), Action::RunRequirement);
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn a_stop_hook_sends_the_model_back_twice_and_is_overruled_at_its_third_pass() {
    let mut story = Story::begin(hooked()).then(ANSWER);
    for _ in 0..2 {
        story = story.then(BLOCK);
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::RetryStopHook));
        assert_eq!((decision.edit.say, decision.edit.reply), (Some(Nudge::StopHookObjection), ReplyDisposition::Absent));
        story = story.then(TOOL_CALLS).then(TOOLS_DONE).then(ANSWER);
        assert_eq!(story.last(), Action::RunStopHooks);
    }
    let passes = Story { told: story.told.clone(), ..story };
    passes.then(PASS).ends_as(StopReason::Completed);
    let mut story = Story::begin(hooked()).then(ANSWER);
    for _ in 0..2 {
        story = story.then(BLOCK).then(ANSWER);
    }
    story.then(BLOCK).ends_as(StopReason::StopHookBlocked);
}

#[test]
fn the_same_objection_twice_in_a_row_is_the_end() {
    let again = Event::Consulted(StopHookDecision::BlockAgain);
    let story = Story::begin(hooked()).then(ANSWER).then(BLOCK).then(ANSWER);
    story.then(again).ends_as(StopReason::StopHookBlocked);
    let halt = Event::Consulted(StopHookDecision::Halt);
    Story::begin(hooked()).then(ANSWER).then(halt).ends_as(StopReason::StopHookPrevented);
}

#[test]
fn another_stop_has_its_objections_anew() {
    let rules = Limits { requirement: true, ..hooked() };
    let mut story = Story::begin(rules).then(ANSWER);
    for _ in 0..2 {
        story = story.then(BLOCK).then(ANSWER).then(BLOCK).then(ANSWER);
        story = story.then(PASS).then(FAILED).then(ANSWER);
    }
    assert_eq!(story.last(), Action::RunStopHooks);
}

#[test]
fn stop_hooks_are_not_waited_for_after_the_end_and_can_be_cut() {
    let cut = Story::begin(hooked()).then(ANSWER).then(SIGTERM);
    cut.ends_as(StopReason::AbortedTools(Interrupt::Sigterm));
    let late = Story::begin(hooked()).then(ANSWER).then(Event::DeadlinePassed);
    late.ends_as(StopReason::Deadline);
}

// --- the requirement ----------------------------------------------------------------------------

#[test]
fn an_answer_is_checked_and_what_passes_is_done() {
    let story = Story::begin(requiring()).then(ANSWER);
    assert_eq!((story.last(), story.transition().edit.reply), (Action::RunRequirement, ReplyDisposition::Keep));
    assert_eq!(story.transition().plan, None);
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn without_a_requirement_nothing_is_checked() {
    Story::begin(limits()).then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn what_does_not_pass_goes_back_to_the_model_three_times() {
    let mut story = Story::begin(requiring()).then(ANSWER);
    for nudge in [Nudge::Unmet, Nudge::UnmetAgain, Nudge::UnmetLast] {
        story = story.then(FAILED);
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::RetryRequirement));
        assert_eq!((decision.edit.say, decision.edit.reply), (Some(nudge), ReplyDisposition::Absent));
        story = story.then(TOOL_CALLS).then(TOOLS_DONE).then(ANSWER);
        assert_eq!(story.last(), Action::RunRequirement);
    }
    let passes = Story { told: story.told.clone(), ..story };
    passes.then(PASSED).ends_as(StopReason::Completed);
    let mut story = Story::begin(requiring()).then(ANSWER);
    for _ in 0..3 {
        story = story.then(FAILED).then(ANSWER);
    }
    let story = story.then(FAILED);
    story.ends_as(StopReason::RequirementFailed);
    assert_eq!(story.requests(), 4);
}

#[test]
fn a_model_told_that_it_is_not_done_takes_a_turn_and_knows_of_its_last() {
    let story = Story::begin(turns(1, requiring())).then(ANSWER).then(FAILED);
    story.ends_as(StopReason::MaxTurns);
    let told = story.transition();
    assert_eq!(told.plan, Some(RecoveryPlan::Stop(StopReason::MaxTurns)));
    assert_eq!((told.edit.say, told.edit.notice), (None, None), "nobody is left to tell");
    let story = Story::begin(turns(2, requiring())).then(ANSWER).then(FAILED);
    let edit = story.decision().edit;
    assert_eq!((edit.say, edit.notice), (Some(Nudge::Unmet), Some(Nudge::LastTurn)));
    story.then(ANSWER).then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn a_check_ends_with_the_deadline_and_with_an_interrupt() {
    let rules = Limits { deadline: Some(after(60)), ..requiring() };
    let checking = || Story::begin(rules).then(ANSWER);
    checking().then(Event::DeadlinePassed).ends_as(StopReason::Deadline);
    checking().then(SIGTERM).ends_as(StopReason::AbortedTools(Interrupt::Sigterm));
    checking().then(Event::InternalError).ends_as(StopReason::InternalError);
    checking().at(after(60)).then(FAILED).ends_as(StopReason::Deadline);
    checking().at(after(60)).then(PASSED).ends_as(StopReason::Completed);
    let late = Story::begin(rules).at(after(60)).then(ANSWER);
    late.ends_as(StopReason::Deadline);
    assert_eq!(late.transition().edit.reply, ReplyDisposition::Keep, "what was said is not lost");
}

#[test]
fn only_a_check_that_runs_has_an_outcome() {
    for story in [Story::begin(requiring()), Story::begin(requiring()).then(TOOL_CALLS)] {
        assert!(story.run.step(story.now, PASSED, &story.limits).is_err());
    }
}

#[test]
fn what_is_told_of_a_failed_check_is_told_once() {
    let story = Story::begin(requiring()).then(ANSWER).then(FAILED);
    let story = story.fails(ErrorClass::ServerError).wakes().then(TOOL_CALLS).then(TOOLS_DONE);
    let said = story.told.iter().filter(|step| step.edit.say == Some(Nudge::Unmet)).count();
    assert_eq!(said, 1);
}

#[test]
fn a_refusal_is_not_checked() {
    let story = Story::begin(requiring()).then(Event::Replied(ReplyKind::Refusal));
    story.ends_as(StopReason::Refusal);
}

#[test]
fn each_failed_check_is_told_in_other_words_and_the_last_one_as_such() {
    use Nudge::{Unmet, UnmetAgain, UnmetLast};
    for (amendments, nudges) in [
        (1, vec![Unmet]),
        (2, vec![Unmet, UnmetLast]),
        (5, vec![Unmet, UnmetAgain, UnmetAgain, UnmetAgain, UnmetLast]),
    ] {
        let budgets = Budgets { requirement_tries: amendments, ..Budgets::DEFAULT };
        let mut story = Story::begin(Limits { budgets, ..requiring() }).then(ANSWER);
        for nudge in nudges {
            story = story.then(FAILED);
            assert_eq!(story.decision().edit.say, Some(nudge), "of {amendments}");
            story = story.then(ANSWER);
        }
        story.then(FAILED).ends_as(StopReason::RequirementFailed);
    }
}

#[test]
fn the_number_of_amendments_is_the_settings() {
    let budgets = Budgets { requirement_tries: 0, ..Budgets::DEFAULT };
    let story = Story::begin(Limits { budgets, ..requiring() }).then(ANSWER).then(FAILED);
    story.ends_as(StopReason::RequirementFailed);
}

// --- the schema ---------------------------------------------------------------------------------

#[test]
fn an_answer_that_was_delivered_as_asked_is_done_without_another_request() {
    let story = Story::begin(structured()).then(TOOL_CALLS).then(Event::Delivered);
    story.ends_as(StopReason::Completed);
    assert_eq!(story.requests(), 1);
}

#[test]
fn a_text_where_structure_was_asked_for_is_answered_with_a_nudge() {
    let story = Story::begin(structured()).then(ANSWER);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Restructure));
    assert_eq!(decision.edit.say, Some(Nudge::UseStructuredOutput));
    assert_eq!(decision.edit.reply, ReplyDisposition::Keep);
    story.then(TOOL_CALLS).then(Event::Delivered).ends_as(StopReason::Completed);
}

#[test]
fn a_misfit_is_answered_by_its_tool_result_and_by_nobody_else() {
    let story = Story::begin(structured()).then(TOOL_CALLS).then(Event::SchemaMismatch);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Restructure));
    assert_eq!((decision.edit.say, decision.edit.reply), (None, ReplyDisposition::Absent));
}

#[test]
fn five_tries_at_structure_are_all_whatever_their_kind() {
    let mut story = Story::begin(structured());
    for nth in 0..4 {
        let misfit = nth % 2 == 0;
        story =
            if misfit { story.then(TOOL_CALLS).then(Event::SchemaMismatch) } else { story.then(ANSWER) };
        assert!(matches!(story.last(), Action::Ask(_)), "try {nth}");
        story = story.then(TOOL_CALLS).then(TOOLS_DONE);
    }
    let text = Story { told: story.told.clone(), ..story }.then(ANSWER);
    text.ends_as(StopReason::StructuredOutputRetryExhausted);
    assert_eq!(text.transition().edit.reply, ReplyDisposition::Keep);
    let mut story = Story::begin(structured());
    for _ in 0..4 {
        story = story.then(TOOL_CALLS).then(Event::SchemaMismatch);
    }
    let story = story.then(TOOL_CALLS).then(Event::SchemaMismatch);
    story.ends_as(StopReason::StructuredOutputRetryExhausted);
    assert_eq!(story.requests(), 5);
}

#[test]
fn no_try_at_structure_goes_past_the_last_turn() {
    for (event, reply) in [(ANSWER, ReplyDisposition::Keep), (TOOL_CALLS, ReplyDisposition::Absent)] {
        let story = Story::begin(turns(1, structured())).then(event);
        let story = if event == TOOL_CALLS { story.then(Event::SchemaMismatch) } else { story };
        story.ends_as(StopReason::MaxTurns);
        let told = story.transition();
        assert_eq!((told.edit.say, told.edit.reply), (None, reply));
        assert_eq!(told.plan, Some(RecoveryPlan::Stop(StopReason::MaxTurns)));
    }
}

#[test]
fn what_was_delivered_is_checked_when_there_is_a_requirement_too() {
    let rules = Limits { requirement: true, ..structured() };
    let story = Story::begin(rules).then(TOOL_CALLS).then(Event::Delivered);
    assert_eq!(story.last(), Action::RunRequirement);
    let story = story.then(FAILED);
    assert_eq!(story.decision().edit.say, Some(Nudge::Unmet));
    let story = story.then(ANSWER);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Restructure), "text is still no answer");
    let story = story.then(TOOL_CALLS).then(Event::Delivered);
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn tools_that_deliver_nothing_are_ordinary_tools() {
    let story = Story::begin(structured()).then(TOOL_CALLS).then(TOOLS_DONE);
    assert_eq!((story.decision().plan, story.requests()), (None, 2));
}

// --- effort comes first -------------------------------------------------------------------------

#[test]
fn more_effort_is_asked_for_before_anything_is_checked() {
    let rules = Limits { effort: Some(10_000), ..requiring() };
    let story = Story::begin(rules).then(answer(1_000));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Nudge));
    let story = story.then(answer(8_000));
    assert_eq!((story.last(), story.transition().edit.reply), (Action::RunRequirement, ReplyDisposition::Keep));
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn effort_that_does_not_come_does_not_stand_in_for_the_check() {
    let rules = Limits { effort: Some(1_000_000), ..requiring() };
    let mut story = Story::begin(rules);
    for _ in 0..3 {
        story = story.then(answer(10));
        assert_eq!(story.decision().plan, Some(RecoveryPlan::Nudge));
    }
    let story = story.then(answer(10));
    assert_eq!((story.last(), story.transition().plan), (Action::RunRequirement, None));
    let story = story.then(FAILED);
    assert_eq!(story.decision().edit.say, Some(Nudge::Unmet));
}

#[test]
fn in_the_last_turn_effort_is_not_asked_for_but_the_check_is_made() {
    let rules = Limits { effort: Some(10_000), ..turns(1, requiring()) };
    let story = Story::begin(rules).then(answer(10));
    assert_eq!(story.last(), Action::RunRequirement);
}

#[test]
fn what_was_delivered_too_soon_is_nudged_on() {
    let rules = Limits { effort: Some(10_000), ..structured() };
    let calls = Event::Replied(ReplyKind::ToolCalls { tokens: 100 });
    let story = Story::begin(rules).then(calls).then(Event::Delivered);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Nudge));
    assert_eq!((decision.edit.say, decision.edit.reply), (Some(Nudge::MoreEffort), ReplyDisposition::Absent));
    let calls = Event::Replied(ReplyKind::ToolCalls { tokens: 9_000 });
    story.then(calls).then(Event::Delivered).ends_as(StopReason::Completed);
}

#[test]
fn a_text_where_structure_was_asked_for_is_no_end_to_nudge_about() {
    let rules = Limits { effort: Some(10_000), ..structured() };
    let story = Story::begin(rules).then(answer(10));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Restructure));
    assert_eq!(story.run.budgets.nudges, 3);
}

// --- going in circles ---------------------------------------------------------------------------

#[test]
fn the_same_steps_again_are_told_of_besides_everything_else() {
    let repeating = Event::ToolsDone(LoopStatus::Repeating);
    let story = Story::begin(limits()).then(TOOL_CALLS).then(repeating);
    let edit = story.decision().edit;
    assert_eq!((edit.say, edit.notice), (Some(Nudge::StepBack), None));
    let story = Story::begin(turns(2, limits())).then(TOOL_CALLS).then(repeating);
    let edit = story.decision().edit;
    assert_eq!((edit.say, edit.notice), (Some(Nudge::StepBack), Some(Nudge::LastTurn)));
    let hurried = Limits { wrap_up: Some(after(5)), ..limits() };
    let story = Story::begin(hurried).then(TOOL_CALLS).at(after(5)).then(repeating);
    let edit = story.decision().edit;
    assert_eq!((edit.say, edit.notice), (Some(Nudge::StepBack), Some(Nudge::WrapUp)));
}

#[test]
fn going_on_the_same_in_spite_of_the_note_is_the_end() {
    let story = Story::begin(limits()).then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Stuck));
    story.ends_as(StopReason::Stalled);
    assert_eq!(story.requests(), 1);
}

#[test]
fn a_note_that_nobody_reads_is_not_written() {
    let story = Story::begin(turns(1, limits())).then(TOOL_CALLS);
    let story = story.then(Event::ToolsDone(LoopStatus::Repeating));
    story.ends_as(StopReason::MaxTurns);
    assert_eq!(story.transition().edit.say, None);
}

#[test]
fn a_run_that_is_stuck_and_out_of_turns_is_stalled() {
    let rules = with_budgets(Budgets { turns: Some(1), ..Budgets::DEFAULT });
    let story = Story::begin(rules).then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Stuck));
    story.ends_as(StopReason::Stalled);
}
