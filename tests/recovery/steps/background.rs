//! Background work that is still running when the model has finished.

use outlast_core::recovery::{
    Action, Budgets, Event, Interrupt, Limits, Moment, Nudge, Phase, RecoveryPlan,
    ReplyDisposition, ReplyKind, StopReason, WorkStatus, WorkWait,
};

use super::super::{ANSWER, Story, after, limits, secs};

const EARLY: Event = Event::Replied(ReplyKind::Early { tokens: 100 });
const NEWS: Event = Event::BackgroundWaited(WorkStatus::Unreported);
const ALIVE: Event = Event::BackgroundWaited(WorkStatus::StillRunning);
const OVER: Event = Event::BackgroundWaited(WorkStatus::Over);

fn working() -> Limits {
    let budgets = Budgets { reports: 2, ..limits().budgets };
    Limits { budgets, background: WorkWait::of(secs(600)), ..limits() }
}

#[track_caller]
fn awaits(story: &Story) -> Moment {
    let Action::AwaitWork { until } = story.last() else { panic!("{:?}", story.last()) };
    until
}

#[test]
fn the_run_waits_for_background_work_and_reports_it_in_a_new_turn() {
    let story = Story::begin(working()).then(EARLY);
    assert_eq!(awaits(&story), after(30), "then it is time to ask");
    assert_eq!(story.run.phase, Phase::Awaiting { until: after(600) });
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Keep);
    let story = story.at(after(12)).then(NEWS);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Report));
    assert_eq!(
        (decision.edit.say, decision.edit.reply),
        (Some(Nudge::WorkEnded), ReplyDisposition::Absent)
    );
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn the_model_is_asked_once_about_silent_background_work() {
    let story = Story::begin(working()).then(EARLY).at(after(30)).then(ALIVE);
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::Report));
    assert_eq!(decision.edit.say, Some(Nudge::StillRunning));
    let story = story.then(EARLY);
    assert_eq!(awaits(&story), after(630), "nothing more is asked");
    story.at(after(630)).then(ALIVE).ends_as(StopReason::BackgroundPending);
}

#[test]
fn new_background_output_allows_asking_the_model_again() {
    let story = Story::begin(working()).then(EARLY).at(after(30)).then(ALIVE);
    let story = story.then(EARLY).at(after(40)).then(NEWS);
    assert_eq!(story.decision().edit.say, Some(Nudge::WorkEnded));
    assert!(!story.run.asked_about_work);
    assert_eq!(story.run.budgets.reports, 0);
    let story = story.then(EARLY);
    assert_eq!(awaits(&story), after(640), "no report is left to ask with");
    story.then(NEWS).ends_as(StopReason::BackgroundPending);
}

#[test]
fn finished_background_work_does_not_delay_the_end() {
    Story::begin(working()).then(EARLY).then(OVER).ends_as(StopReason::Completed);
    let requiring = Limits { requirement: true, ..working() };
    let story = Story::begin(requiring).then(EARLY).then(OVER);
    assert_eq!(story.last(), Action::RunRequirement);
}

#[test]
fn the_last_turn_waits_for_background_work_without_asking() {
    let budgets = Budgets { turns: Some(1), ..working().budgets };
    let story = Story::begin(Limits { budgets, ..working() }).then(EARLY);
    assert_eq!(awaits(&story), after(600));
    story.then(NEWS).ends_as(StopReason::MaxTurns);
}

#[test]
fn the_deadline_bounds_the_wait_for_background_work() {
    let rules = Limits { deadline: Some(after(20)), ..working() };
    let story = Story::begin(rules).then(EARLY);
    assert_eq!(awaits(&story), after(20));
    let story = story.at(after(20));
    story.then(Event::DeadlinePassed).ends_as(StopReason::BackgroundPending);
    let late = Story::begin(rules).at(after(21)).then(EARLY);
    late.ends_as(StopReason::BackgroundPending);
}

#[test]
fn a_structured_answer_is_requested_before_background_work_is_waited_for() {
    let budgets = Budgets { schema_tries: 1, ..working().budgets };
    let story = Story::begin(Limits { structured: true, budgets, ..working() }).then(EARLY);
    assert_eq!(story.decision().edit.say, Some(Nudge::UseStructuredOutput));
    let calls = Event::Replied(ReplyKind::ToolCalls { tokens: 1 });
    let story = story.then(calls).then(Event::DeliveredEarly);
    assert_eq!(awaits(&story), after(30));
    story.then(OVER).ends_as(StopReason::Completed);
}

#[test]
fn an_interrupt_ends_the_wait_for_background_work() {
    let by = Interrupt::Sigint;
    let story = Story::begin(working()).then(EARLY).then(Event::Interrupted(by));
    story.ends_as(StopReason::AbortedTools(by));
}
