//! Rate limits, overloads, quota, and waiting without a count.

use std::time::Duration;

use outlast_core::recovery::{
    AccountKind, Action, Budgets, ErrorClass, Event, Failure, Limits, LoopStatus, Moment, Pause,
    Persistence, QuerySource, RetryAfter, RetryAfterSource, RetryHint, StopReason,
};

use super::super::{
    ANSWER, Story, TOOL_CALLS, after, failure, failure_with_retry_after, failure_with_retry_hint,
    limits, secs, with_budgets,
};

fn persistent(persistence: Persistence) -> Limits {
    Limits { persistence, max_retry_wait: persistence.max_retry_wait(), ..limits() }
}

fn quota_exhausted() -> StopReason {
    StopReason::ModelError(ErrorClass::QuotaExhausted)
}

const CROWDED: [ErrorClass; 2] = [ErrorClass::RateLimit, ErrorClass::ServerOverload];

#[test]
fn a_short_retry_after_is_waited_out_in_full() {
    for class in CROWDED {
        for seconds in [1, 59, 61, 600] {
            let asked = Event::Failed(failure_with_retry_after(class, secs(seconds)));
            let story = Story::begin(limits()).then(asked);
            let pause = Duration::from_millis(story.pause_millis());
            assert!(pause >= secs(seconds), "{class}: {pause:?} for {seconds} s");
            assert!(pause <= secs(seconds).mul_f64(1.25), "{class}: {pause:?} for {seconds} s");
            assert_eq!(story.wakes().asked().attempt, 2);
        }
    }
}

#[test]
fn a_retry_after_beyond_patience_ends_the_run_as_quota() {
    for class in CROWDED {
        let story =
            Story::begin(limits()).then(Event::Failed(failure_with_retry_after(class, secs(601))));
        story.ends_as(quota_exhausted());
        assert_eq!((story.requests(), story.now), (1, Moment::default()));
    }
}

#[test]
fn a_retry_after_beyond_the_deadline_is_quota_too() {
    let rules = Limits { deadline: Some(after(60)), ..limits() };
    for class in CROWDED {
        for seconds in [60, 61] {
            let story = Story::begin(rules)
                .then(Event::Failed(failure_with_retry_after(class, secs(seconds))));
            story.ends_as(quota_exhausted());
        }
    }
}

#[test]
fn jitter_never_pushes_a_retry_after_past_the_deadline() {
    let rules = Limits { deadline: Some(after(60)), ..limits() };
    let asked = Event::Failed(failure_with_retry_after(
        ErrorClass::RateLimit,
        Duration::from_millis(59_990),
    ));
    let story = Story::begin(rules).then(asked);
    assert!((59_990..60_000).contains(&story.pause_millis()), "{}", story.pause_millis());
    assert_eq!(story.wakes().requests(), 2);
}

#[test]
fn an_exhausted_quota_can_only_switch_the_model() {
    let rules = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    let far = failure_with_retry_after(ErrorClass::ServerOverload, secs(3_600));
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerOverload, 2);
    story.then(Event::Failed(far)).ends_as(quota_exhausted());
    let told = Failure { retry_hint: Some(RetryHint::Retry), ..far };
    Story::begin(limits()).then(Event::Failed(told)).ends_as(quota_exhausted());
    let story = Story::begin(rules).then(Event::Failed(told));
    assert_eq!(
        (story.asked().model_index, story.retried_without_pause()),
        (1, true),
        "another has its own"
    );
    story.then(Event::Failed(far)).ends_as(quota_exhausted());
    let background = Limits { source: QuerySource::Background, ..limits() };
    Story::begin(background).then(Event::Failed(far)).ends_as(quota_exhausted());
}

#[test]
fn other_failures_with_a_long_retry_after_keep_their_own_class() {
    let far = Event::Failed(failure_with_retry_after(ErrorClass::ServerError, secs(601)));
    let story = Story::begin(limits()).then(far);
    story.ends_as(StopReason::ModelError(ErrorClass::ServerError));
    let rules = Limits { deadline: Some(after(300)), ..limits() };
    let asked = Event::Failed(failure_with_retry_after(ErrorClass::ServerError, secs(400)));
    Story::begin(rules).then(asked).ends_as(StopReason::Deadline);
    let spent = Limits { budgets: Budgets { retries: 0, ..Budgets::DEFAULT }, ..rules };
    let story = Story::begin(spent).then(asked);
    story.ends_as(StopReason::ModelError(ErrorClass::ServerError));
}

#[test]
fn a_missing_or_zero_retry_after_uses_the_backoff() {
    for asked in [
        failure(ErrorClass::RateLimit),
        failure_with_retry_after(ErrorClass::RateLimit, Duration::ZERO),
    ] {
        let story = Story::begin(limits()).then(Event::Failed(asked));
        assert!((500..=625).contains(&story.pause_millis()), "{}", story.pause_millis());
    }
}

#[test]
fn a_subscription_limit_is_not_retried() {
    let rules = Limits { account: AccountKind::Subscription, ..limits() };
    let limited = ErrorClass::RateLimit;
    let asked = failure_with_retry_after(limited, secs(30));
    let insisted = failure_with_retry_hint(limited, RetryHint::Retry);
    for hit in [failure(limited), asked, insisted] {
        let story = Story::begin(rules).then(Event::Failed(hit));
        story.ends_as(StopReason::ModelError(limited));
    }
    let story = Story::begin(rules).fails(ErrorClass::ServerOverload);
    assert_eq!(story.pause().retry, 1, "an overload has nothing to do with who pays");
    let rules = Limits { account: AccountKind::Enterprise, ..limits() };
    assert_eq!(Story::begin(rules).fails(limited).pause().retry, 1);
    let rules = Limits { account: AccountKind::Subscription, ..persistent(Persistence::Capacity) };
    assert_eq!(Story::begin(rules).fails(limited).pause().of, None, "a wait without a count");
}

#[test]
fn background_requests_are_not_retried_on_overload() {
    for persistence in [Persistence::Off, Persistence::Capacity, Persistence::All] {
        let rules = Limits { source: QuerySource::Background, ..persistent(persistence) };
        let overloaded = ErrorClass::ServerOverload;
        for hit in [failure(overloaded), failure_with_retry_hint(overloaded, RetryHint::Retry)] {
            let story = Story::begin(rules).then(Event::Failed(hit));
            story.ends_as(StopReason::ModelError(overloaded));
        }
        let budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
        let story = Story::begin(Limits { budgets, ..rules }).fails(overloaded);
        story.ends_as(StopReason::ModelError(overloaded));
        assert_eq!(Story::begin(rules).fails(ErrorClass::ServerError).pause().retry, 1);
    }
}

// --- persistent mode --------------------------------------------------------------------------

#[test]
fn persistent_mode_waits_out_an_overload_of_a_day() {
    let mut story = Story::begin(persistent(Persistence::Capacity));
    let mut longest = 0;
    while story.now < after(86_400) {
        story = story.fails(ErrorClass::ServerOverload);
        assert_eq!(story.pause().of, None);
        longest = longest.max(story.pause_millis());
        story = story.wakes();
    }
    assert!((300_000..=310_000).contains(&longest), "five minutes and jitter, not {longest} ms");
    assert!(story.requests() < 500, "{} requests a day is no storm", story.requests());
    assert_eq!(story.run.attempts.failures, 30, "the counter stays clamped");
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn persistent_backoff_doubles_from_half_a_second() {
    let mut story = Story::begin(persistent(Persistence::Capacity));
    for nth in 0..10 {
        story = story.fails(ErrorClass::RateLimit);
        let bare = (500 << nth).min(300_000);
        assert!((bare..=bare + bare / 4).contains(&story.pause_millis()), "wait {nth}");
        let why = Pause { class: ErrorClass::RateLimit, retry: nth + 1, of: None };
        assert_eq!(story.pause(), why);
        story = story.wakes();
    }
}

#[test]
fn non_capacity_failures_are_counted_unless_all_are_waited_out() {
    let classes = [
        ErrorClass::ServerError,
        ErrorClass::ConnectionError,
        ErrorClass::ApiTimeout,
        ErrorClass::StreamStalled,
    ];
    for class in classes {
        let story = Story::begin(persistent(Persistence::Capacity)).fails(class);
        assert_eq!(story.pause().of, Some(10), "{class}");
        let story = Story::begin(persistent(Persistence::All)).fails_and_waits(class, 50);
        assert_eq!(story.requests(), 51, "{class}");
        let why = Pause { class, retry: 30, of: None };
        assert_eq!(story.fails(class).pause(), why, "{class}");
    }
}

#[test]
fn persistent_mode_has_a_patience_of_six_hours() {
    let rules = persistent(Persistence::Capacity);
    let six_hours = secs(6 * 3_600);
    let story = Story::begin(rules)
        .then(Event::Failed(failure_with_retry_after(ErrorClass::RateLimit, six_hours)));
    assert!(story.pause_millis() >= 21_600_000);
    let more = failure_with_retry_after(ErrorClass::RateLimit, six_hours + secs(1));
    Story::begin(rules).then(Event::Failed(more)).ends_as(quota_exhausted());
}

#[test]
fn no_pause_is_longer_than_the_longest_wait() {
    let rules = Limits { max_retry_wait: secs(1), ..limits() };
    for class in [ErrorClass::ServerOverload, ErrorClass::ServerError] {
        let story = Story::begin(rules).fails_and_waits(class, 2).fails(class);
        assert!((500..=1_000).contains(&story.pause_millis()), "{}", story.pause_millis());
    }
}

#[test]
fn persistent_mode_waits_exactly_until_the_reset() {
    let reset = Failure {
        retry_after: Some(RetryAfter { wait: secs(1_000), source: RetryAfterSource::Reset }),
        ..failure(ErrorClass::RateLimit)
    };
    let story = Story::begin(persistent(Persistence::Capacity)).then(Event::Failed(reset));
    assert_eq!(story.pause_millis(), 1_000_000);
    let patient = Limits { max_retry_wait: secs(2_000), ..limits() };
    let story = Story::begin(patient).then(Event::Failed(reset));
    assert!((1_000_001..=1_010_000).contains(&story.pause_millis()), "jitter, upward");
}

#[test]
fn a_long_wait_emits_heartbeats() {
    let hour = failure_with_retry_after(ErrorClass::RateLimit, secs(3_600));
    let mut story = Story::begin(persistent(Persistence::Capacity)).then(Event::Failed(hour));
    let mut beats = 0;
    while let Action::Wait { until } = story.last() {
        assert!(story.now.until(until) <= secs(30), "silent too long");
        story = story.at(until).then(Event::WaitEnded);
        beats += 1;
    }
    assert!((120..=121).contains(&beats), "{beats} beats");
}

#[test]
fn waking_early_does_not_end_a_wait() {
    let story = Story::begin(limits()).fails(ErrorClass::ServerError);
    let Action::Wait { until } = story.last() else { panic!("{:?}", story.last()) };
    let early = story.at(Moment::from_millis(until.as_millis() - 1)).then(Event::WaitEnded);
    assert_eq!(early.last(), Action::Wait { until });
    assert_eq!(early.at(until).then(Event::WaitEnded).requests(), 2);
}

#[test]
fn an_empty_token_bucket_lengthens_persistent_waits() {
    let budgets = Budgets { bucket: 5, ..Budgets::DEFAULT };
    let rules = Limits { budgets, ..persistent(Persistence::Capacity) };
    let limited = Event::Failed(failure_with_retry_after(ErrorClass::RateLimit, secs(2)));
    let story = Story::begin(rules).then(limited);
    assert!(story.pause_millis() <= 2_500, "the bucket pays for this one");
    assert_eq!(story.run.budgets.bucket, 0);
    let story = story.wakes().then(limited);
    assert!((300_000..=310_000).contains(&story.pause_millis()), "{}", story.pause_millis());
    let story = story.wakes().fails(ErrorClass::ServerError);
    assert!((300_000..=310_000).contains(&story.pause_millis()), "a counted class as well");
    assert_eq!((story.pause().of, story.run.budgets.bucket), (Some(10), 0));
}

#[test]
fn the_last_bucket_tokens_pay_for_an_ordinary_wait() {
    let budgets = Budgets { bucket: 5, ..Budgets::DEFAULT };
    let rules = Limits { budgets, ..persistent(Persistence::Capacity) };
    let story = Story::begin(rules).fails(ErrorClass::ServerError);
    assert!((500..=625).contains(&story.pause_millis()), "{}", story.pause_millis());
    assert_eq!(story.run.budgets.bucket, 0);
}

#[test]
fn restored_capacity_resets_the_backoff() {
    let story = Story::begin(persistent(Persistence::Capacity));
    let story = story.fails_and_waits(ErrorClass::ServerOverload, 12);
    let story = story
        .then(TOOL_CALLS)
        .then(Event::ToolsDone(LoopStatus::Fresh))
        .fails(ErrorClass::ServerOverload);
    assert!((500..=625).contains(&story.pause_millis()));
    assert_eq!(story.pause().retry, 1);
}

#[test]
fn persistent_mode_does_not_wait_past_the_deadline() {
    let rules = Limits { deadline: Some(after(600)), ..persistent(Persistence::All) };
    let mut story = Story::begin(rules).fails(ErrorClass::ServerOverload);
    while matches!(story.last(), Action::Wait { .. }) {
        story = story.wakes().fails(ErrorClass::ServerOverload);
    }
    story.ends_as(StopReason::Deadline);
    assert!(story.now < after(600));
}
