//! Probes that notice the service's return while a run waits for capacity.

use outlast_core::recovery::{
    Action, Backoff, Budgets, ErrorClass, Event, Interrupt, Limits, Moment, Persistence, Phase,
    Probed, RecoveryCause, RecoveryLog, RecoveryPlan, RetryHint, StopReason,
};

use super::super::{
    ANSWER, Story, TOOL_CALLS, TOOLS_DONE, after, failure, failure_with_retry_after,
    failure_with_retry_hint, limits, secs,
};

const OVERLOAD: ErrorClass = ErrorClass::ServerOverload;

fn persistent() -> Limits {
    let persistence = Persistence::Capacity;
    Limits { persistence, max_retry_wait: persistence.max_retry_wait(), ..limits() }
}

impl Story {
    /// The call has failed so often that the pause takes five minutes. What led there is not told.
    fn in_a_long_wait(limits: Limits) -> Self {
        let story = Self::begin(limits).fails_and_waits(OVERLOAD, 12).fails(OVERLOAD);
        Self { told: vec![story.transition()], ..story }
    }

    /// Waits until the next probe is sent.
    #[track_caller]
    fn until_a_probe(mut self) -> Self {
        while let Action::Wait { until } = self.last() {
            self = self.at(until).then(Event::WaitEnded);
        }
        assert!(matches!(self.last(), Action::Probe { .. }), "no probe but {:?}", self.last());
        self
    }

    #[track_caller]
    fn probed(self, probed: Probed) -> Self {
        self.then(Event::Probed(probed))
    }

    /// Until when the pause lasts.
    #[track_caller]
    fn paused_until(&self) -> Moment {
        self.run.phase.pause().expect("the run pauses").0
    }
}

#[test]
fn a_failed_probe_does_not_change_the_wait() {
    let story = Story::in_a_long_wait(persistent());
    let (began, until, before) = (story.now, story.paused_until(), story.run);
    let mut story = story;
    let mut probes = 0;
    while story.now < until {
        story = if let Action::Wait { until } = story.last() {
            story.at(until).then(Event::WaitEnded)
        } else {
            assert_eq!(story.last(), Action::Probe { model_index: story.run.model_index });
            probes += 1;
            let since = began.until(story.now).as_secs();
            assert!((20 * probes..=25 * probes + 1).contains(&since), "{probes}: {since} s");
            story.probed(Probed::Failed(failure(OVERLOAD)))
        };
        assert!(story.requests() == 0 || story.now >= until, "the back-off is for requests");
    }
    assert_eq!((probes, story.now), (13, until));
    assert_eq!(story.requests(), 1);
    assert_eq!(story.run.attempts.failures, before.attempts.failures);
    assert_eq!(story.run.budgets.capacity_probes, before.budgets.capacity_probes - 13);
}

/// The call that waits has failed before: only a retry-after that ends the wait is a failure more.
#[test]
fn a_step_after_a_probe_records_its_cause() {
    let probing = || Story::in_a_long_wait(persistent()).until_a_probe();
    let far = failure_with_retry_after(OVERLOAD, persistent().max_retry_wait + secs(1));
    for (story, cause, class) in [
        (probing(), RecoveryCause::ProbeDue, None),
        (probing().probed(Probed::Answered), RecoveryCause::CapacityBack, None),
        (
            probing().probed(Probed::Failed(far)),
            RecoveryCause::Failed(far),
            Some("server_overload"),
        ),
    ] {
        let step = story.transition();
        assert_eq!((step.cause, step.failure_class()), (Some(cause), class), "{step:?}");
    }
}

#[test]
fn a_successful_probe_ends_the_wait() {
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let probed_at = story.now;
    let story = story.probed(Probed::Answered).wakes();
    assert!(probed_at.until(story.now) <= secs(25) / 10, "{:?}", probed_at.until(story.now));
    assert_eq!((story.requests(), story.times(RecoveryPlan::ReturnEarly)), (1, 1));
    let story = story.then(TOOL_CALLS).then(TOOLS_DONE);
    assert_eq!(story.run.budgets.early_returns, Budgets::DEFAULT.early_returns, "renewed");
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn a_recovery_seen_by_another_run_ends_the_wait_without_a_probe() {
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let full = story.run.budgets.capacity_probes + 1;
    let (turn, until) = (story.now.after(secs(7)), story.paused_until());
    let story = story.probed(Probed::Deferred { until: turn });
    assert_eq!((story.paused_until(), story.run.budgets.capacity_probes), (until, full));
    let story = story.until_a_probe();
    assert_eq!(story.now, turn, "it looks when it was told to");
    let turn = story.now.after(secs(3));
    let story = story.probed(Probed::AnsweredElsewhere { turn }).wakes();
    assert_eq!((story.now, story.requests()), (turn, 1));
    assert_eq!(story.run.budgets.capacity_probes, full);
    let mut chronicle = RecoveryLog::default();
    for step in &story.told {
        chronicle.observe(step, 0);
    }
    assert_eq!((chronicle.totals().probes.count, chronicle.totals().requests), (0, 1));
}

#[test]
fn a_staggered_start_later_than_the_backoff_is_ignored() {
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let until = story.paused_until();
    let turn = until.after(secs(100));
    let story = story.probed(Probed::AnsweredElsewhere { turn }).wakes();
    assert_eq!(story.now, until);
}

#[test]
fn probing_stops_when_probes_succeed_but_requests_fail() {
    let mut story = Story::in_a_long_wait(persistent());
    for early in 1..=3 {
        story = story.until_a_probe().probed(Probed::Answered).wakes().fails(OVERLOAD);
        assert!(story.pause_millis() >= 300_000, "the ladder goes on where it was: {early}");
    }
    let (began, requests) = (story.now, story.requests());
    let story = story.wakes();
    assert!(began.until(story.now) >= secs(300), "no more returns ahead of the back-off");
    assert_eq!((story.requests(), story.times(RecoveryPlan::ReturnEarly)), (requests + 1, 3));
}

#[test]
fn probes_are_sent_only_while_capacity_is_waited_for() {
    for wait in [33, 300] {
        let rules =
            Limits { backoff: Backoff { first: secs(wait), longest: secs(wait) }, ..limits() };
        let story = Story::begin(rules).fails(ErrorClass::ServerError).wakes();
        assert_eq!(story.times(RecoveryPlan::Probe), 0, "a counted retry is not probed for");
    }
    let off = Limits { probe_interval: None, ..persistent() };
    let story = Story::in_a_long_wait(off).wakes();
    assert_eq!(story.times(RecoveryPlan::Probe), 0, "it is switched off");
    let story = Story::begin(persistent()).fails_and_waits(OVERLOAD, 6);
    assert_eq!(story.times(RecoveryPlan::Probe), 0, "short waits are not interrupted");
}

#[test]
fn probes_are_never_sent_before_retry_after() {
    for class in [ErrorClass::RateLimit, OVERLOAD] {
        let story = Story::begin(persistent())
            .then(Event::Failed(failure_with_retry_after(class, secs(200))));
        let story = story.wakes();
        assert_eq!(story.times(RecoveryPlan::Probe), 0, "{class}");
    }
    // The answer to a probe moves the wait, and the next probe with it.
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let (until, now) = (story.paused_until(), story.now);
    let later = story.probed(Probed::Failed(failure_with_retry_after(OVERLOAD, secs(1_000))));
    assert!(later.paused_until() >= now.after(secs(1_000)) && later.paused_until() > until);
    assert_eq!(later.wakes().times(RecoveryPlan::Probe), 1);
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let sooner = story.probed(Probed::Failed(failure_with_retry_after(OVERLOAD, secs(60))));
    assert_eq!(sooner.paused_until(), until, "requests keep to the back-off");
    assert!(sooner.until_a_probe().now >= now.after(secs(60)));
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let far = story
        .probed(Probed::Failed(failure_with_retry_after(ErrorClass::RateLimit, secs(7 * 3_600))));
    far.ends_as(StopReason::ModelError(ErrorClass::QuotaExhausted));
}

/// Every class, and a server that rules retries out.
#[test]
fn a_probe_result_is_classified_by_what_it_shows_about_the_service() {
    let refused = |story: &Story| story.run.budgets.capacity_probes == 0;
    for class in ErrorClass::ALL {
        let story = Story::in_a_long_wait(persistent()).until_a_probe();
        let story = story.probed(Probed::Failed(failure(class)));
        let probes_on = matches!(story.run.phase, Phase::Pausing { probe_at: Some(_), .. });
        match class {
            ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled
            | ErrorClass::ConnectionError
            | ErrorClass::SslCertError
            | ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::Repeated529
            | ErrorClass::ServerError
            | ErrorClass::BadResponse
            | ErrorClass::EmptyResponse
            | ErrorClass::QuotaExhausted => assert!(probes_on && !refused(&story), "{class}"),
            ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked => {
                assert_eq!(story.requests(), 1, "{class}: the call itself leads on");
            }
            ErrorClass::Aborted
            | ErrorClass::PromptTooLong
            | ErrorClass::RequestTooLarge
            | ErrorClass::PdfTooLarge
            | ErrorClass::ImageTooLarge
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidModel
            | ErrorClass::CreditBalanceLow
            | ErrorClass::AuthError
            | ErrorClass::InvalidRequest
            | ErrorClass::Refusal
            | ErrorClass::ContentFiltered
            | ErrorClass::Unknown => assert!(!probes_on && refused(&story), "{class}"),
        }
    }
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let story = story.probed(Probed::Failed(failure_with_retry_hint(OVERLOAD, RetryHint::Stop)));
    assert!(refused(&story) && story.is_pausing(), "the wait itself goes on");
}

#[test]
fn a_probe_ends_with_the_deadline_or_an_interrupt() {
    let by = Interrupt::Sigterm;
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    story.then(Event::Interrupted(by)).ends_as(StopReason::AbortedStreaming(by));
    let rules = Limits { deadline: Some(after(3_600)), ..persistent() };
    let story = Story::in_a_long_wait(rules).until_a_probe().at(after(3_600));
    story.probed(Probed::Answered).ends_as(StopReason::Deadline);
}

#[test]
fn an_unaffordable_probe_leaves_the_wait_unchanged() {
    let story = Story::in_a_long_wait(persistent()).until_a_probe();
    let until = story.paused_until();
    let story = story.probed(Probed::Unaffordable).wakes();
    assert_eq!((story.now, story.times(RecoveryPlan::Probe)), (until, 1));
}

// --- two models ---------------------------------------------------------------------------------

/// Both models are overloaded, and the run waits at the second one.
fn both_out() -> Story {
    let budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
    let story = Story::begin(Limits { budgets, ..persistent() });
    let story = story.fails_and_waits(OVERLOAD, 2).fails(OVERLOAD);
    assert_eq!(story.asked().model_index, 1);
    story.fails_and_waits(OVERLOAD, 12).fails(OVERLOAD)
}

fn model_index(story: &Story) -> u8 {
    let Action::Probe { model_index } = story.last() else {
        panic!("no probe but {:?}", story.last())
    };
    model_index
}

#[test]
fn every_second_probe_is_for_the_preferred_model() {
    let mut story = both_out();
    let mut probed = Vec::new();
    for _ in 0..6 {
        story = story.until_a_probe();
        probed.push(model_index(&story));
        story = story.probed(Probed::Failed(failure(OVERLOAD)));
    }
    assert!(probed == [0, 1, 0, 1, 0, 1] || probed == [1, 0, 1, 0, 1, 0], "{probed:?}");
    while story.run.model_index == 1 {
        story = story.until_a_probe();
        let back = if model_index(&story) == 0 {
            Probed::Answered
        } else {
            Probed::Failed(failure(OVERLOAD))
        };
        story = story.probed(back);
    }
    let story = story.wakes();
    assert_eq!((story.asked().model_index, story.asked().attempt), (0, 1));
    let saved = story.then(TOOL_CALLS).then(TOOLS_DONE);
    assert_eq!(
        (saved.asked().model_index, saved.run.budgets.switches),
        (0, 1),
        "the chain begins anew"
    );
}

#[test]
fn a_preferred_model_that_answers_probes_only_is_left_at_once_and_not_returned_to_for_ever() {
    let mut story = both_out();
    let mut returns = 0;
    for _ in 0..200 {
        story = match story.last() {
            Action::Wait { until } => story.at(until).then(Event::WaitEnded),
            Action::Probe { model_index: 0 } => story.probed(Probed::Answered),
            Action::Probe { .. } => story.probed(Probed::Failed(failure(OVERLOAD))),
            Action::Ask(ask) => {
                returns += usize::from(ask.model_index == 0);
                story.fails(OVERLOAD)
            }
            action @ (Action::Estimate { .. }
            | Action::Refresh
            | Action::RunTools
            | Action::RunStopHooks
            | Action::RunRequirement
            | Action::AwaitWork { .. }
            | Action::Finish(_)) => panic!("{action:?}"),
        };
        let left = story.run.model_index == 1 || story.run.preferred.fallback_from == Some(1);
        assert!(left, "the model in use is kept");
    }
    assert_eq!(returns, 3);
}

#[test]
fn a_preferred_model_that_refuses_probes_for_good_is_not_probed_again() {
    let mut story = both_out().until_a_probe();
    if model_index(&story) == 1 {
        story = story.probed(Probed::Failed(failure(OVERLOAD))).until_a_probe();
    }
    story = story.probed(Probed::Failed(failure(ErrorClass::InvalidModel)));
    for _ in 0..4 {
        story = story.until_a_probe();
        assert_eq!(model_index(&story), 1);
        story = story.probed(Probed::Failed(failure(OVERLOAD)));
    }
}
