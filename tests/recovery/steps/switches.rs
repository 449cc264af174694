//! Overloads in a row, and the next model of the chain.

use outlast_core::recovery::{
    AccountKind, Action, Budgets, ErrorClass, Event, Limits, LoopStatus, Persistence, RecoveryPlan,
    StopReason,
};

use super::super::{
    ANSWER, Story, TOOL_CALLS, failure, failure_with_retry_after, limits, secs, with_budgets,
};

fn fallbacks(switches: u8) -> Limits {
    with_budgets(Budgets { switches, ..Budgets::DEFAULT })
}

const OVERLOAD: ErrorClass = ErrorClass::ServerOverload;

#[test]
fn the_third_overload_in_a_row_switches_the_model() {
    for persistence in [Persistence::Off, Persistence::Capacity, Persistence::All] {
        let rules = Limits { persistence, ..fallbacks(1) };
        let story = Story::begin(rules).fails_and_waits(OVERLOAD, 2);
        assert_eq!(story.asked().model_index, 0);
        let story = story.fails(OVERLOAD);
        assert!(story.retried_without_pause());
        assert_eq!(story.decision().plan, Some(RecoveryPlan::SwitchModel));
        assert_eq!((story.asked().model_index, story.asked().attempt), (1, 1));
        story.then(ANSWER).ends_as(StopReason::Completed);
    }
}

#[test]
fn only_consecutive_overloads_switch_the_model() {
    let story = Story::begin(fallbacks(1)).fails_and_waits(OVERLOAD, 2);
    let story = story.fails_and_waits(ErrorClass::ServerError, 1).fails_and_waits(OVERLOAD, 2);
    assert_eq!(story.asked().model_index, 0);
    assert_eq!(story.fails(OVERLOAD).asked().model_index, 1);
    let story = Story::begin(fallbacks(1)).fails_and_waits(OVERLOAD, 2);
    let story = story
        .then(TOOL_CALLS)
        .then(Event::ToolsDone(LoopStatus::Fresh))
        .fails_and_waits(OVERLOAD, 2);
    assert_eq!(story.asked().model_index, 0, "an answer ends a row");
}

#[test]
fn each_model_is_tried_once_and_the_last_keeps_all_its_retries() {
    let mut story = Story::begin(fallbacks(2));
    for model_index in 1..=2 {
        story = story.fails_and_waits(OVERLOAD, 2).fails(OVERLOAD);
        assert_eq!(story.asked().model_index, model_index);
    }
    let story = story.fails_and_waits(OVERLOAD, 11).fails(OVERLOAD);
    story.ends_as(StopReason::ModelError(ErrorClass::Repeated529));
    let last = "each model starts with a full set of retries, and the preferred one is asked again";
    assert_eq!(story.requests(), 3 + 3 + 11 + 1, "{last}");
}

#[test]
fn without_a_fallback_all_retries_are_used() {
    let story = Story::begin(limits()).fails_and_waits(OVERLOAD, 10).fails(OVERLOAD);
    story.ends_as(StopReason::ModelError(ErrorClass::Repeated529));
    assert_eq!(story.requests(), 11);
}

#[test]
fn a_single_overload_is_not_reported_as_repeated() {
    let rules = with_budgets(Budgets { retries: 0, ..Budgets::DEFAULT });
    Story::begin(rules).fails(OVERLOAD).ends_as(StopReason::ModelError(OVERLOAD));
    let rules = with_budgets(Budgets { retries: 1, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails_and_waits(OVERLOAD, 1).fails(OVERLOAD);
    story.ends_as(StopReason::ModelError(ErrorClass::Repeated529));
}

#[test]
fn the_overload_limit_ends_the_run_at_the_third() {
    let rules = Limits { overload_limit: Some(3), ..limits() };
    let story = Story::begin(rules).fails_and_waits(OVERLOAD, 2).fails(OVERLOAD);
    story.ends_as(StopReason::ModelError(ErrorClass::Repeated529));
    assert_eq!(story.requests(), 3);
}

#[test]
fn the_overload_limit_does_not_end_the_run_while_a_model_is_left() {
    for limit in [1, 2, 3] {
        let rules = Limits { overload_limit: Some(limit), ..fallbacks(1) };
        let before = usize::from(limit) - 1;
        let story = Story::begin(rules).fails_and_waits(OVERLOAD, before).fails(OVERLOAD);
        assert_eq!(story.asked().model_index, 1);
    }
}

#[test]
fn an_overload_limit_above_the_switch_is_counted_to_its_end() {
    let rules = Limits { overload_limit: Some(5), ..limits() };
    let story = Story::begin(rules).fails_and_waits(OVERLOAD, 4).fails(OVERLOAD);
    story.ends_as(StopReason::ModelError(ErrorClass::Repeated529));
    assert_eq!(story.requests(), 5);
}

#[test]
fn persistent_mode_does_not_count_overloads() {
    let rules = Limits { overload_limit: Some(3), persistence: Persistence::Capacity, ..limits() };
    assert_eq!(Story::begin(rules).fails_and_waits(OVERLOAD, 20).requests(), 21);
}

#[test]
fn a_persistent_server_error_switches_the_model_after_all_retries() {
    let story = Story::begin(fallbacks(1)).fails_and_waits(ErrorClass::ServerError, 10);
    assert_eq!(story.asked().model_index, 0);
    let story = story.fails(ErrorClass::ServerError);
    assert_eq!((story.asked().model_index, story.asked().attempt), (1, 1));
    let story = story.fails_and_waits(ErrorClass::ServerError, 11).fails(ErrorClass::ServerError);
    story.ends_as(StopReason::ModelError(ErrorClass::ServerError));
    assert_eq!(story.requests(), 23);
}

#[test]
fn overloads_switch_the_model_when_few_retries_are_spent() {
    let rules = with_budgets(Budgets { retries: 1, switches: 1, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails_and_waits(OVERLOAD, 1).fails(OVERLOAD);
    assert_eq!(story.asked().model_index, 1);
}

#[test]
fn an_unknown_model_is_replaced_without_a_retry() {
    let story = Story::begin(fallbacks(1)).fails(ErrorClass::InvalidModel);
    assert_eq!((story.asked().model_index, story.requests()), (1, 2));
    let story = story.fails(ErrorClass::InvalidModel);
    story.ends_as(StopReason::ModelError(ErrorClass::InvalidModel));
}

#[test]
fn the_next_model_ignores_retry_after_of_the_previous_one() {
    let asked = Event::Failed(failure_with_retry_after(OVERLOAD, secs(300)));
    let story = Story::begin(fallbacks(1)).then(asked).wakes().then(asked).wakes();
    let story = story.then(asked);
    assert!(story.retried_without_pause());
    assert_eq!(story.asked().model_index, 1);
    let story = story.fails(OVERLOAD);
    assert!((500..=625).contains(&story.pause_millis()), "nor to its place on the ladder");
}

#[test]
fn a_retry_after_beyond_patience_switches_to_the_next_model() {
    let far = Event::Failed(failure_with_retry_after(ErrorClass::ServerError, secs(3_600)));
    let story = Story::begin(fallbacks(1)).then(far);
    assert_eq!(story.asked().model_index, 1);
}

#[test]
fn an_endpoint_failure_switches_only_to_a_model_at_another_endpoint() {
    let classes = [
        ErrorClass::BadResponse,
        ErrorClass::ApiTimeout,
        ErrorClass::StreamStalled,
        ErrorClass::ConnectionError,
    ];
    for class in classes {
        let patient = |rules| {
            Story::begin(rules).fails_and_waits(class, 10).then(Event::Failed(failure(class)))
        };
        let story = patient(fallbacks(1));
        assert_eq!(story.last(), Action::Finish(StopReason::ModelError(class)));
        let story = patient(Limits { endpoint_changes: 0b1, ..fallbacks(1) });
        assert_eq!((story.asked().model_index, story.requests()), (1, 12), "{class}");
        let story = patient(Limits { endpoint_changes: 0b10, ..fallbacks(1) });
        assert_eq!(story.last(), Action::Finish(StopReason::ModelError(class)), "{class}");
    }
}

#[test]
fn an_account_failure_switches_only_to_a_model_at_another_endpoint() {
    let away = Limits { endpoint_changes: 0b1, ..fallbacks(1) };
    for class in [ErrorClass::CreditBalanceLow, ErrorClass::SslCertError] {
        let story = Story::begin(away).fails(class);
        assert_eq!((story.asked().model_index, story.requests()), (1, 2), "{class}");
        let story = Story::begin(fallbacks(1)).fails(class);
        assert_eq!(story.last(), Action::Finish(StopReason::ModelError(class)), "{class}");
    }
    for class in [ErrorClass::InvalidApiKey, ErrorClass::TokenRevoked] {
        let rejected_twice =
            |rules| Story::begin(rules).fails(class).then(Event::Refreshed).fails(class);
        assert_eq!(rejected_twice(away).asked().model_index, 1, "{class}");
        rejected_twice(fallbacks(1)).ends_as(StopReason::ModelError(class));
        let unrenewed = Story::begin(away).fails(class).fails(class);
        assert_eq!(unrenewed.asked().model_index, 1, "{class}: no fresh credential to be had");
        Story::begin(fallbacks(1)).fails(class).fails(class).ends_as(StopReason::ModelError(class));
    }
}

#[test]
fn a_persistent_rate_limit_switches_the_model() {
    let limited = ErrorClass::RateLimit;
    let story = Story::begin(fallbacks(1)).fails_and_waits(limited, 10).fails(limited);
    assert_eq!((story.asked().model_index, story.requests()), (1, 12));
    let subscription = Limits { account: AccountKind::Subscription, ..fallbacks(1) };
    let story = Story::begin(subscription).fails(limited);
    assert_eq!((story.asked().model_index, story.requests()), (1, 2), "its limits last for hours");
    let story = Story::begin(fallbacks(1)).fails(ErrorClass::AuthError);
    assert_eq!(story.asked().model_index, 1, "what may not use one model may use another");
}
