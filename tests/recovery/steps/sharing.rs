//! Rate limits that other runs of the host have met.

use outlast_core::recovery::{
    Budgets, ErrorClass, Event, Interrupt, Limits, Moment, Pause, RecoveryLog, Run, StopReason,
};

use super::super::{ANSWER, Story, TOOL_CALLS, TOOLS_DONE, after, limits, secs, with_budgets};

/// `Story::begin` with this many waits for others.
fn sharing(holds: u8) -> Limits {
    let rules = limits();
    with_budgets(Budgets { shared_limit_waits: holds, ..rules.budgets })
}

fn held(until: Moment) -> Event {
    Event::SharedLimitMet { until }
}

#[test]
fn a_limit_met_by_other_runs_is_waited_out_without_using_a_retry() {
    let story = Story::begin(sharing(3));
    assert!(story.asked().may_wait_for_shared_limit);
    let story = story.then(held(after(40)));
    assert_eq!(story.pause(), Pause { class: ErrorClass::RateLimit, retry: 0, of: None });
    assert!(story.pause().is_for_shared_limit());
    assert_eq!(story.pause_millis(), 40_000);
    let story = story.wakes();
    assert_eq!((story.now, story.asked().attempt), (after(40), 1));
    assert_eq!(story.run.budgets.retries, limits().budgets.retries);
    assert_eq!(story.run.budgets.shared_limit_waits, 2);
    assert!(story.plans().is_empty(), "nothing went wrong");
    // An answer renews what was spent.
    assert_eq!(story.then(ANSWER).run.budgets.shared_limit_waits, 3);
}

#[test]
fn a_shared_limit_wait_never_exceeds_the_deadline_or_its_cap() {
    let soon = Limits { deadline: Some(after(30)), ..sharing(3) };
    for (rules, until) in [(soon, after(30)), (sharing(3), after(601))] {
        let story = Story::begin(rules).then(held(until));
        assert!(story.retried_without_pause(), "{until:?}");
        assert!(!story.asked().may_wait_for_shared_limit, "it is asked for all the same");
        assert_eq!(story.now, Moment::default());
    }
    assert!(!Story::begin(sharing(3)).then(held(after(600))).retried_without_pause());
}

#[test]
fn shared_limit_waits_have_a_common_budget() {
    let story = Story::begin(sharing(9)).then(held(after(400))).wakes();
    assert!(story.asked().may_wait_for_shared_limit);
    let story = story.then(held(after(601)));
    assert!(story.retried_without_pause() && !story.asked().may_wait_for_shared_limit);
    // The next call has its own patience.
    let story = story.then(TOOL_CALLS).then(TOOLS_DONE);
    assert!(story.asked().may_wait_for_shared_limit);
    assert!(!story.then(held(after(900))).retried_without_pause());
    // And however short they are, there are only so many.
    let mut story = Story::begin(sharing(3));
    for nth in 1..=3 {
        assert!(story.asked().may_wait_for_shared_limit);
        story = story.then(held(after(nth))).wakes();
    }
    assert!(!story.asked().may_wait_for_shared_limit);
    let (run, rules, now) = (story.run, sharing(3), story.now);
    assert!(run.step(now, held(after(9)), &rules).is_err(), "the budget for waits is used up");
}

#[test]
fn a_shared_limit_in_the_past_still_produces_a_wait() {
    let story = Story::begin(sharing(1)).then(held(Moment::default()));
    assert_eq!(story.pause_millis(), 1);
}

#[test]
fn an_interrupt_ends_a_shared_limit_wait() {
    let story = Story::begin(sharing(3)).then(held(after(40)));
    let by = Interrupt::Sigterm;
    story.then(Event::Interrupted(by)).ends_as(StopReason::AbortedStreaming(by));
}

#[test]
fn a_request_held_back_by_a_shared_limit_is_not_counted() {
    let rules = sharing(3);
    let mut chronicle = RecoveryLog::default();
    let mut run = Run::new(7, &rules);
    let steps = Story::begin(rules).then(held(after(40))).wakes().then(ANSWER).told;
    for step in &steps {
        chronicle.observe(step, 0);
        run = step.next;
    }
    let totals = chronicle.totals();
    assert_eq!(
        (totals.requests, totals.shared_limits.count, totals.shared_limits.waited),
        (1, 1, secs(40))
    );
    assert_eq!(totals.waited, secs(40));
    assert_eq!(chronicle.records().len(), 0);
    assert_eq!(run.budgets.shared_limit_waits, 3);
}
