//! Acceptance of an answer: stop hooks, effort, schema, requirement, loop detection.

use outlast_core::recovery::{
    Action, Budgets, ErrorClass, Event, Interrupt, LeftOff, Limits, LoopStatus, Nudge,
    RecoveryPlan, ReplyDisposition, ReplyKind, StopHookDecision, StopReason, WorkStatus,
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
fn stop_hooks_run_before_effort_nudges_and_the_requirement_check() {
    let rules = Limits { effort: Some(10_000), requirement: true, ..hooked() };
    let story = Story::begin(rules).then(answer(10));
    assert_eq!(
        (story.last(), story.transition().edit.reply),
        (Action::RunStopHooks, ReplyDisposition::Keep)
    );
    let story = story.then(PASS);
    assert_eq!(story.decision().edit.say, Some(Nudge::MoreEffort));
    let story = story.then(answer(9_990)).then(PASS);
    assert_eq!(story.last(), Action::RunRequirement);
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn a_stop_hook_may_block_twice_and_is_overruled_the_third_time() {
    let mut story = Story::begin(hooked()).then(ANSWER);
    for _ in 0..2 {
        story = story.then(BLOCK);
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::RetryStopHook));
        assert_eq!(
            (decision.edit.say, decision.edit.reply),
            (Some(Nudge::StopHookObjection), ReplyDisposition::Absent)
        );
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
fn the_same_stop_hook_objection_twice_in_a_row_ends_the_run() {
    let again = Event::Consulted(StopHookDecision::BlockAgain);
    let story = Story::begin(hooked()).then(ANSWER).then(BLOCK).then(ANSWER);
    story.then(again).ends_as(StopReason::StopHookBlocked);
    let chosen = Limits { repeats_objections: true, ..hooked() };
    let mut story = Story::begin(chosen).then(ANSWER).then(BLOCK).then(ANSWER);
    story = story.then(again).then(ANSWER);
    assert_eq!(story.last(), Action::RunStopHooks);
    story.then(again).ends_as(StopReason::StopHookBlocked);
    let halt = Event::Consulted(StopHookDecision::Halt);
    Story::begin(hooked()).then(ANSWER).then(halt).ends_as(StopReason::StopHookPrevented);
}

#[test]
fn a_later_stop_has_a_fresh_budget_of_objections() {
    let rules = Limits { requirement: true, ..hooked() };
    let mut story = Story::begin(rules).then(ANSWER);
    for _ in 0..2 {
        story = story.then(BLOCK).then(ANSWER).then(BLOCK).then(ANSWER);
        story = story.then(PASS).then(FAILED).then(ANSWER);
    }
    assert_eq!(story.last(), Action::RunStopHooks);
}

#[test]
fn stop_hooks_end_with_the_deadline_or_an_interrupt() {
    let cut = Story::begin(hooked()).then(ANSWER).then(SIGTERM);
    cut.ends_as(StopReason::AbortedTools(Interrupt::Sigterm));
    let late = Story::begin(hooked()).then(ANSWER).then(Event::DeadlinePassed);
    late.ends_as(StopReason::Deadline);
}

// --- the requirement ----------------------------------------------------------------------------

#[test]
fn an_answer_that_passes_the_requirement_ends_the_run() {
    let story = Story::begin(requiring()).then(ANSWER);
    assert_eq!(
        (story.last(), story.transition().edit.reply),
        (Action::RunRequirement, ReplyDisposition::Keep)
    );
    assert_eq!(story.transition().plan, None);
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn without_a_requirement_no_check_runs() {
    Story::begin(limits()).then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn a_failed_requirement_check_goes_back_to_the_model_three_times() {
    let mut story = Story::begin(requiring()).then(ANSWER);
    for nudge in [Nudge::Unmet, Nudge::UnmetAgain, Nudge::UnmetLast] {
        story = story.then(FAILED);
        let decision = story.decision();
        assert_eq!(decision.plan, Some(RecoveryPlan::RetryRequirement));
        assert_eq!(
            (decision.edit.say, decision.edit.reply),
            (Some(nudge), ReplyDisposition::Absent)
        );
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
fn amending_after_a_failed_check_takes_a_turn_and_announces_the_last() {
    let story = Story::begin(turns(1, requiring())).then(ANSWER).then(FAILED);
    story.ends_as(StopReason::MaxTurns);
    let told = story.transition();
    assert_eq!(told.plan, Some(RecoveryPlan::Stop(StopReason::MaxTurns)));
    assert_eq!((told.edit.say, told.edit.notice), (None, None), "no request follows");
    let story = Story::begin(turns(2, requiring())).then(ANSWER).then(FAILED);
    let edit = story.decision().edit;
    assert_eq!((edit.say, edit.notice), (Some(Nudge::Unmet), Some(Nudge::LastTurn)));
    story.then(ANSWER).then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn a_requirement_check_ends_with_the_deadline_or_an_interrupt() {
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
fn a_check_outcome_is_rejected_unless_a_check_is_running() {
    for story in [Story::begin(requiring()), Story::begin(requiring()).then(TOOL_CALLS)] {
        assert!(story.run.step(story.now, PASSED, &story.limits).is_err());
    }
}

#[test]
fn a_failed_check_is_reported_to_the_model_once() {
    let story = Story::begin(requiring()).then(ANSWER).then(FAILED);
    let story = story.fails(ErrorClass::ServerError).wakes().then(TOOL_CALLS).then(TOOLS_DONE);
    let said = story.told.iter().filter(|step| step.edit.say == Some(Nudge::Unmet)).count();
    assert_eq!(said, 1);
}

#[test]
fn a_model_refusal_skips_the_requirement_check() {
    let story = Story::begin(requiring()).then(Event::Replied(ReplyKind::Refusal));
    story.ends_as(StopReason::Refusal);
}

#[test]
fn each_failed_check_has_its_own_message_and_the_last_says_so() {
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
fn the_setting_bounds_the_number_of_amendments() {
    let budgets = Budgets { requirement_tries: 0, ..Budgets::DEFAULT };
    let story = Story::begin(Limits { budgets, ..requiring() }).then(ANSWER).then(FAILED);
    story.ends_as(StopReason::RequirementFailed);
}

// --- the schema ---------------------------------------------------------------------------------

#[test]
fn a_valid_structured_answer_ends_the_run_without_another_request() {
    let story = Story::begin(structured()).then(TOOL_CALLS).then(Event::Delivered);
    story.ends_as(StopReason::Completed);
    assert_eq!(story.requests(), 1);
}

#[test]
fn a_plain_text_instead_of_a_structured_answer_gets_a_nudge() {
    let story = Story::begin(structured()).then(ANSWER);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Restructure));
    assert_eq!(decision.edit.say, Some(Nudge::UseStructuredOutput));
    assert_eq!(decision.edit.reply, ReplyDisposition::Keep);
    story.then(TOOL_CALLS).then(Event::Delivered).ends_as(StopReason::Completed);
}

#[test]
fn an_invalid_structured_answer_gets_only_its_tool_result() {
    let story = Story::begin(structured()).then(TOOL_CALLS).then(Event::SchemaMismatch);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Restructure));
    assert_eq!((decision.edit.say, decision.edit.reply), (None, ReplyDisposition::Absent));
}

#[test]
fn a_structured_answer_has_five_tries_of_any_kind() {
    let mut story = Story::begin(structured());
    for nth in 0..4 {
        let misfit = nth % 2 == 0;
        story = if misfit {
            story.then(TOOL_CALLS).then(Event::SchemaMismatch)
        } else {
            story.then(ANSWER)
        };
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
fn a_structured_answer_is_not_retried_past_the_last_turn() {
    for (event, reply) in [(ANSWER, ReplyDisposition::Keep), (TOOL_CALLS, ReplyDisposition::Absent)]
    {
        let story = Story::begin(turns(1, structured())).then(event);
        let story = if event == TOOL_CALLS { story.then(Event::SchemaMismatch) } else { story };
        story.ends_as(StopReason::MaxTurns);
        let told = story.transition();
        assert_eq!((told.edit.say, told.edit.reply), (None, reply));
        assert_eq!(told.plan, Some(RecoveryPlan::Stop(StopReason::MaxTurns)));
    }
}

#[test]
fn a_structured_answer_must_pass_the_requirement_too() {
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
fn calls_of_other_tools_do_not_count_as_structured_answers() {
    let story = Story::begin(structured()).then(TOOL_CALLS).then(TOOLS_DONE);
    assert_eq!((story.decision().plan, story.requests()), (None, 2));
}

// --- effort comes first -------------------------------------------------------------------------

#[test]
fn effort_nudges_precede_the_requirement_check() {
    let rules = Limits { effort: Some(10_000), ..requiring() };
    let story = Story::begin(rules).then(answer(1_000));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Nudge));
    let story = story.then(answer(8_000));
    assert_eq!(
        (story.last(), story.transition().edit.reply),
        (Action::RunRequirement, ReplyDisposition::Keep)
    );
    story.then(PASSED).ends_as(StopReason::Completed);
}

#[test]
fn unsuccessful_effort_nudges_do_not_replace_the_requirement_check() {
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
fn the_last_turn_skips_effort_nudges_but_runs_the_check() {
    let rules = Limits { effort: Some(10_000), ..turns(1, requiring()) };
    let story = Story::begin(rules).then(answer(10));
    assert_eq!(story.last(), Action::RunRequirement);
}

#[test]
fn a_structured_answer_below_the_token_budget_gets_an_effort_nudge() {
    let rules = Limits { effort: Some(10_000), ..structured() };
    let calls = Event::Replied(ReplyKind::ToolCalls { tokens: 100 });
    let story = Story::begin(rules).then(calls).then(Event::Delivered);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Nudge));
    assert_eq!(
        (decision.edit.say, decision.edit.reply),
        (Some(Nudge::MoreEffort), ReplyDisposition::Absent)
    );
    let calls = Event::Replied(ReplyKind::ToolCalls { tokens: 9_000 });
    story.then(calls).then(Event::Delivered).ends_as(StopReason::Completed);
}

#[test]
fn a_text_without_the_structured_answer_gets_no_effort_nudge() {
    let rules = Limits { effort: Some(10_000), ..structured() };
    let story = Story::begin(rules).then(answer(10));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Restructure));
    assert_eq!(story.run.budgets.nudges, 3);
}

// --- loop detection -----------------------------------------------------------------------------

#[test]
fn a_loop_warning_is_added_to_the_other_messages() {
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
fn a_loop_that_continues_after_the_warning_ends_the_run() {
    let story = Story::begin(limits()).then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Stuck));
    story.ends_as(StopReason::Stalled);
    assert_eq!(story.requests(), 1);
}

#[test]
fn a_loop_warning_is_not_written_when_no_request_follows() {
    let story = Story::begin(turns(1, limits())).then(TOOL_CALLS);
    let story = story.then(Event::ToolsDone(LoopStatus::Repeating));
    story.ends_as(StopReason::MaxTurns);
    assert_eq!(story.transition().edit.say, None);
}

#[test]
fn a_looping_run_without_turns_left_ends_as_stalled() {
    let rules = with_budgets(Budgets { turns: Some(1), ..Budgets::DEFAULT });
    let story = Story::begin(rules).then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Stuck));
    story.ends_as(StopReason::Stalled);
}

// --- answers that stand -------------------------------------------------------------------------

/// Replies that only the token budget requests after a finished answer do not undo it.
#[test]
fn a_finished_answer_stands_if_more_effort_fails() {
    let rules = turns(4, Limits { effort: Some(10_000), ..limits() });
    let asked = || Story::begin(rules).then(answer(10));
    assert_eq!(asked().decision().edit.say, Some(Nudge::MoreEffort));
    let refusal = Event::Replied(ReplyKind::Refusal);
    let story = asked().then(refusal);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Drop);
    assert!(story.transition().keeps_answer());
    story.ends_as(StopReason::Completed);
    asked().fails(ErrorClass::InvalidRequest).ends_as(StopReason::Completed);
    let working = || asked().then(TOOL_CALLS);
    working().then(Event::DeadlinePassed).ends_as(StopReason::Completed);
    working().then(Event::ToolsDone(LoopStatus::Stuck)).ends_as(StopReason::Completed);
    working().then(TOOLS_DONE).then(refusal).ends_as(StopReason::Completed);
    let used_up = working().then(TOOLS_DONE).then(TOOL_CALLS).then(TOOLS_DONE).then(TOOL_CALLS);
    used_up.then(TOOLS_DONE).ends_as(StopReason::Completed);
    working().then(SIGTERM).ends_as(StopReason::AbortedTools(Interrupt::Sigterm));
    // It is checked again.
    let rules = Limits { requirement: true, ..rules };
    let story = Story::begin(rules).then(answer(10)).then(TOOL_CALLS).then(TOOLS_DONE);
    let story = story.then(refusal);
    assert_eq!(story.last(), Action::RunRequirement);
    story.then(FAILED).then(refusal).ends_as(StopReason::Refusal);
}

/// A process that resumes the prompt keeps the answer, and another prompt does not have it.
#[test]
fn an_answer_stands_in_the_next_process_but_not_for_the_next_prompt() {
    let rules = Limits { effort: Some(10_000), ..limits() };
    let run = Story::begin(rules).then(answer(10)).run;
    for run in [run.resumed(), run.reopened(Some(&rules), &rules)] {
        let story = Story { run, ..Story::unasked(rules) };
        let resumed = Event::Resumed(LeftOff::ReplyDue);
        story.just(resumed).fails(ErrorClass::InvalidRequest).ends_as(StopReason::Completed);
        let story = Story { run, ..Story::unasked(rules) }.just(Event::Begin);
        let end = StopReason::ModelError(ErrorClass::InvalidRequest);
        story.fails(ErrorClass::InvalidRequest).ends_as(end);
    }
}

/// Words after an accepted output need no other output, until something objects to it.
#[test]
fn an_accepted_output_is_not_asked_for_again() {
    let effort = Limits { effort: Some(10_000), ..structured() };
    let nudged = Story::begin(effort).then(TOOL_CALLS).then(Event::Delivered);
    assert_eq!(nudged.decision().edit.say, Some(Nudge::MoreEffort));
    nudged.then(answer(10_000)).ends_as(StopReason::Completed);
    let early = Story::begin(structured()).then(TOOL_CALLS).then(Event::DeliveredEarly);
    let reported = early.then(Event::BackgroundWaited(WorkStatus::Unreported));
    reported.then(ANSWER).ends_as(StopReason::Completed);
    let rules = Limits { requirement: true, ..structured() };
    let unmet = Story::begin(rules).then(TOOL_CALLS).then(Event::Delivered).then(FAILED);
    let story = unmet.then(ANSWER);
    assert_eq!(story.decision().edit.say, Some(Nudge::UseStructuredOutput));
}
