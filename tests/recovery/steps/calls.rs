//! Failed calls: retries, connections, broken streams, credentials, retry hints of the server.

use outlast_core::recovery::{
    Action, AvailableMitigations, Budgets, ConnectionChoice, CutKind, ErrorClass, Event, Failure,
    FailureStage, Limits, LoopStatus, Pause, RecoveryPlan, ReplyDisposition, ReplyKind, ReplyMode,
    RetryHint, Run, StopReason, TokenEstimate,
};

use super::super::{
    ANSWER, ANYTHING, FREE, Story, TOOL_CALLS, failure, failure_at_stage, failure_with_retry_after,
    failure_with_retry_hint, limits, secs, with_budgets,
};

const COUNTED: [ErrorClass; 7] = [
    ErrorClass::ApiTimeout,
    ErrorClass::StreamStalled,
    ErrorClass::ConnectionError,
    ErrorClass::RateLimit,
    ErrorClass::ServerOverload,
    ErrorClass::ServerError,
    ErrorClass::BadResponse,
];

#[test]
fn ten_retries_are_eleven_requests_for_every_failure_class() {
    for class in COUNTED {
        let story = Story::begin(limits()).fails_and_waits(class, 10).fails(class);
        assert_eq!(story.requests(), 11, "{class}");
        let end = if class == ErrorClass::ServerOverload { ErrorClass::Repeated529 } else { class };
        story.ends_as(StopReason::ModelError(end));
    }
}

#[test]
fn every_pause_reports_which_retry_of_how_many_follows() {
    let mut story = Story::begin(limits());
    for retry in 1..=10 {
        story = story.fails(ErrorClass::ServerError);
        let why = Pause { class: ErrorClass::ServerError, retry, of: Some(10) };
        assert_eq!(story.pause(), why);
        story = story.wakes();
        assert_eq!(story.asked().attempt, retry + 1);
    }
}

#[test]
fn a_pause_is_named_after_the_failure_that_caused_it() {
    let story = Story::begin(limits())
        .fails_and_waits(ErrorClass::ServerError, 2)
        .fails(ErrorClass::ApiTimeout);
    assert_eq!(story.pause(), Pause { class: ErrorClass::ApiTimeout, retry: 3, of: Some(10) });
}

#[test]
fn a_successful_call_resets_the_retry_count() {
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerError, 4);
    assert_eq!(story.run.budgets.retries, 6);
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!((story.run.budgets.retries, story.asked().attempt), (10, 1));
    assert_eq!(story.fails(ErrorClass::ServerError).pause().retry, 1);
}

#[test]
fn a_failed_reply_is_discarded_completely() {
    let story = Story::begin(limits()).fails(ErrorClass::StreamStalled);
    assert_eq!(story.transition().edit.reply, ReplyDisposition::Drop);
}

#[test]
fn a_stale_connection_is_replaced_without_a_pause() {
    let stale = failure_at_stage(ErrorClass::ConnectionError, FailureStage::StaleConnection);
    let story = Story::begin(limits()).then(Event::Failed(stale));
    assert!(story.retried_without_pause());
    assert_eq!(story.asked().connection, ConnectionChoice::Fresh);
    assert_eq!(story.asked().attempt, 2, "it still counts as an attempt");
    assert_eq!(story.run.budgets.retries, 9);
}

#[test]
fn a_stale_connection_is_replaced_without_a_pause_after_other_failures() {
    let stale = failure_at_stage(ErrorClass::ConnectionError, FailureStage::StaleConnection);
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerOverload, 1);
    assert_eq!(story.asked().connection, ConnectionChoice::Pooled);
    assert!(story.then(Event::Failed(stale)).retried_without_pause());
}

#[test]
fn a_reset_of_a_fresh_connection_is_not_treated_as_stale() {
    let stale = failure_at_stage(ErrorClass::ConnectionError, FailureStage::StaleConnection);
    let story = Story::begin(limits()).then(Event::Failed(stale)).then(Event::Failed(stale));
    assert!(!story.retried_without_pause());
    assert_eq!(story.pause().retry, 2);
    assert_eq!(story.wakes().asked().connection, ConnectionChoice::Fresh);
}

#[test]
fn a_stale_connection_retry_still_waits_for_retry_after() {
    let stale = Failure {
        stage: FailureStage::StaleConnection,
        ..failure_with_retry_after(ErrorClass::ConnectionError, secs(5))
    };
    let story = Story::begin(limits()).then(Event::Failed(stale));
    assert!(story.pause_millis() >= 5_000);
    assert_eq!(story.pause(), Pause { class: ErrorClass::ConnectionError, retry: 1, of: Some(10) });
}

#[test]
fn a_connection_that_may_be_dead_is_not_reused() {
    let dead = [
        (ErrorClass::ApiTimeout, FailureStage::Unsent),
        (ErrorClass::ApiTimeout, FailureStage::Status),
        (ErrorClass::StreamStalled, FailureStage::Block),
        (ErrorClass::ConnectionError, FailureStage::FreshConnection),
        (ErrorClass::ServerOverload, FailureStage::Stream),
    ];
    for (class, reach) in dead {
        let story =
            Story::begin(limits()).then(Event::Failed(failure_at_stage(class, reach))).wakes();
        assert_eq!(story.asked().connection, ConnectionChoice::Fresh, "{class} {reach:?}");
        let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
        assert_eq!(story.asked().connection, ConnectionChoice::Pooled, "{class} {reach:?}");
    }
    let story = Story::begin(limits()).fails(ErrorClass::ServerOverload).wakes();
    assert_eq!(story.asked().connection, ConnectionChoice::Pooled);
}

fn torn() -> Event {
    Event::Failed(failure_at_stage(ErrorClass::ConnectionError, FailureStage::Stream))
}

fn torn_after_a_block() -> Event {
    Event::Failed(failure_at_stage(ErrorClass::ConnectionError, FailureStage::Block))
}

#[test]
fn two_broken_streams_in_a_row_disable_streaming() {
    let stalled = Event::Failed(failure_at_stage(ErrorClass::StreamStalled, FailureStage::Block));
    let senseless = Event::Failed(failure_at_stage(ErrorClass::BadResponse, FailureStage::Stream));
    let late = Event::Failed(failure_at_stage(ErrorClass::ApiTimeout, FailureStage::Block));
    let broken = [torn(), torn_after_a_block(), stalled, senseless, late];
    for first in broken {
        for second in broken {
            let story = Story::begin(limits()).then(first).wakes();
            assert_eq!((story.asked().mode, story.asked().cap), (ReplyMode::Streaming, 8_192));
            let story = story.then(second).wakes();
            assert_eq!(story.asked().mode, ReplyMode::Whole, "{first:?} {second:?}");
        }
    }
}

/// The story of two broken streams and the answer that then came in one piece.
fn without_streaming(rules: Limits) -> Story {
    Story::begin(rules).then(torn()).wakes().then(torn_after_a_block()).wakes()
}

/// A proxy may give up before a whole reply is there, and a service may require streaming.
#[test]
fn a_failure_without_streaming_ends_the_period_without_it() {
    let refused = |class| Event::Failed(failure(class));
    for class in [ErrorClass::ServerError, ErrorClass::ApiTimeout, ErrorClass::BadResponse] {
        let story = without_streaming(limits()).then(refused(class)).wakes();
        assert_eq!(story.asked().mode, ReplyMode::Streaming, "{class}");
        assert_eq!(story.then(torn()).wakes().asked().mode, ReplyMode::Whole, "{class}");
    }
    for class in [ErrorClass::ServerOverload, ErrorClass::RateLimit] {
        let story = without_streaming(limits()).then(refused(class)).wakes();
        assert_eq!(story.asked().mode, ReplyMode::Whole, "{class}");
    }
}

/// Nothing is removed from the request before: it may be right with streaming.
#[test]
fn a_request_that_is_invalid_without_streaming_is_made_again_with_it() {
    for retry_hint in [None, Some(RetryHint::Stop), Some(RetryHint::Retry)] {
        let class = ErrorClass::InvalidRequest;
        let invalid =
            Event::Failed(Failure { retry_hint, mitigations: ANYTHING, ..failure(class) });
        let story = without_streaming(limits()).then(invalid);
        assert_eq!(story.decision().plan, Some(RecoveryPlan::ResumeStreaming));
        assert!(story.retried_without_pause());
        assert_eq!((story.asked().mode, story.asked().attempt), (ReplyMode::Streaming, 1));
        let story = story.then(invalid);
        assert_eq!(story.decision().plan, Some(RecoveryPlan::RepairBlock), "it was not streaming");
    }
    let refused = Event::Failed(failure(ErrorClass::InvalidRequest));
    let story = Story::begin(limits()).then(Event::Failed(Failure {
        mitigations: AvailableMitigations { streaming: true, ..AvailableMitigations::NONE },
        ..failure(ErrorClass::InvalidRequest)
    }));
    assert_eq!(story.asked().mode, ReplyMode::Whole, "streaming itself was refused");
    story.then(refused).ends_as(StopReason::ModelError(ErrorClass::InvalidRequest));
}

fn takes_a_turn(story: Story) -> Story {
    story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh))
}

#[test]
fn streaming_stays_off_for_ten_turns_and_is_then_probed() {
    let mut story = without_streaming(limits());
    for turn in 1..=10 {
        story = takes_a_turn(story);
        assert_eq!(story.asked().mode, ReplyMode::Whole, "turn {turn}");
    }
    let probe = takes_a_turn(story);
    assert_eq!(probe.asked().mode, ReplyMode::Streaming);
    let again = probe.then(torn_after_a_block()).wakes();
    assert_eq!(again.asked().mode, ReplyMode::Whole, "one more broken stream is enough");
    let mut story = again;
    for turn in 1..=10 {
        story = takes_a_turn(story);
        assert_eq!(story.asked().mode, ReplyMode::Whole, "turn {turn} after the probe");
    }
    let held = takes_a_turn(takes_a_turn(story));
    assert_eq!(held.then(torn()).wakes().asked().mode, ReplyMode::Streaming, "a stream that held");
}

#[test]
fn several_requests_of_one_turn_count_once_towards_the_streaming_pause() {
    let cut = Event::Replied(ReplyKind::CutShort(CutKind::Text));
    let rules = Limits { whole_turns: 1, ..limits() };
    let story = without_streaming(rules).then(Event::Replied(ReplyKind::Empty)).wakes().then(cut);
    assert_eq!(story.asked().mode, ReplyMode::Whole, "asked for again with more room");
    let story = story.then(cut);
    assert_eq!(story.asked().mode, ReplyMode::Whole, "the first turn after it: the reply goes on");
    assert_eq!(takes_a_turn(story).asked().mode, ReplyMode::Streaming);
}

#[test]
fn a_resumed_run_streams_again() {
    let story = without_streaming(limits());
    let next = Story::unasked(limits()).goes_on_from(&story);
    assert_eq!(next.asked().mode, ReplyMode::Streaming);
    assert_eq!(next.then(torn()).wakes().asked().mode, ReplyMode::Streaming);
}

#[test]
fn a_non_streaming_call_caps_its_output_to_fit_its_timeout() {
    let cut = Event::Replied(ReplyKind::CutShort(CutKind::Text));
    let story = Story::begin(limits()).then(cut);
    assert_eq!(story.asked().cap, 64_000);
    let story = story.then(torn()).wakes().then(torn()).wakes();
    assert_eq!((story.asked().mode, story.asked().cap), (ReplyMode::Whole, 16_000));
    let whole = TokenEstimate { needs_whole_reply: true, ..FREE };
    let story = Story::unasked(limits()).measure_with(whole).then(Event::Begin);
    assert_eq!((story.asked().mode, story.asked().cap), (ReplyMode::Whole, 8_192));
    let story = story.then(cut);
    assert_eq!((story.asked().mode, story.asked().cap), (ReplyMode::Whole, 16_000));
}

#[test]
fn only_streams_that_break_in_a_row_count() {
    let overloaded =
        Event::Failed(failure_at_stage(ErrorClass::ServerOverload, FailureStage::Stream));
    let story = Story::begin(limits()).then(torn()).wakes().then(overloaded).wakes();
    assert_eq!(story.then(torn()).wakes().asked().mode, ReplyMode::Streaming, "that stream worked");
    let held = takes_a_turn(Story::begin(limits()).then(torn()).wakes());
    assert_eq!(held.then(torn()).wakes().asked().mode, ReplyMode::Streaming, "that stream held");
    let unreached =
        Event::Failed(failure_at_stage(ErrorClass::ConnectionError, FailureStage::Unsent));
    let story = Story::begin(limits()).then(torn()).wakes().then(unreached).wakes();
    assert_eq!(
        story.then(torn()).wakes().asked().mode,
        ReplyMode::Whole,
        "there was no stream between"
    );
}

#[test]
fn a_non_streaming_call_that_times_out_returns_to_streaming() {
    let whole = || Story::begin(limits()).then(torn()).wakes().then(torn()).wakes();
    let story = whole().fails(ErrorClass::ApiTimeout).wakes();
    assert_eq!(story.asked().mode, ReplyMode::Streaming);
    assert_eq!(story.then(torn()).wakes().asked().mode, ReplyMode::Whole);
    let story = whole().fails(ErrorClass::ServerOverload).wakes();
    assert_eq!(story.asked().mode, ReplyMode::Whole, "an overload says nothing about the mode");
}

// --- retry hints of the server --------------------------------------------------------------

#[test]
fn a_server_that_rules_out_retries_does_not_get_the_same_request_again() {
    for class in COUNTED {
        let story = Story::begin(limits())
            .then(Event::Failed(failure_with_retry_hint(class, RetryHint::Stop)));
        story.ends_as(StopReason::ModelError(class));
        assert_eq!(story.requests(), 1, "{class}");
    }
}

#[test]
fn a_server_that_rules_out_retries_may_still_get_another_model_or_key() {
    let fallback = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    for class in [ErrorClass::ServerError, ErrorClass::ServerOverload, ErrorClass::InvalidModel] {
        let story = Story::begin(fallback)
            .then(Event::Failed(failure_with_retry_hint(class, RetryHint::Stop)));
        assert_eq!(story.asked().model_index, 1, "{class}");
    }
    let rejected = failure_with_retry_hint(ErrorClass::InvalidApiKey, RetryHint::Stop);
    assert_eq!(Story::begin(limits()).then(Event::Failed(rejected)).last(), Action::Refresh);
}

#[test]
fn a_retry_hint_of_the_server_outranks_the_failure_class() {
    let classes = [
        ErrorClass::InvalidRequest,
        ErrorClass::PromptTooLong,
        ErrorClass::AuthError,
        ErrorClass::InvalidModel,
        ErrorClass::Unknown,
    ];
    for class in classes {
        let retry = Event::Failed(failure_with_retry_hint(class, RetryHint::Retry));
        let mut story = Story::begin(limits());
        for nth in 1..=10 {
            story = story.then(retry);
            assert_eq!(story.pause(), Pause { class, retry: nth, of: Some(10) });
            story = story.wakes();
        }
        let story = story.then(retry);
        assert_eq!(
            (story.requests(), story.last()),
            (11, Action::Finish(StopReason::from_class(class)))
        );
    }
}

#[test]
fn a_retry_hint_cannot_exceed_a_budget() {
    let broke = failure_with_retry_hint(ErrorClass::CreditBalanceLow, RetryHint::Retry);
    let story = Story::begin(limits()).then(Event::Failed(broke));
    story.ends_as(StopReason::ModelError(ErrorClass::CreditBalanceLow));
}

// --- credentials ------------------------------------------------------------------------------

#[test]
fn a_rejected_credential_is_refreshed_once_then_final() {
    for class in [ErrorClass::InvalidApiKey, ErrorClass::TokenRevoked] {
        let story = Story::begin(limits()).fails(class);
        assert_eq!(story.last(), Action::Refresh);
        assert_eq!(story.transition().plan, Some(RecoveryPlan::Refresh));
        let story = story.then(Event::Refreshed);
        assert_eq!(story.asked().attempt, 2);
        story.fails(class).ends_as(StopReason::ModelError(class));
    }
}

#[test]
fn a_credential_may_be_refreshed_again_after_a_success() {
    let story = Story::begin(limits()).fails(ErrorClass::InvalidApiKey).then(Event::Refreshed);
    let story = story
        .then(TOOL_CALLS)
        .then(Event::ToolsDone(LoopStatus::Fresh))
        .fails(ErrorClass::InvalidApiKey);
    assert_eq!(story.last(), Action::Refresh);
}

#[test]
fn a_permission_error_does_not_refresh_the_credential() {
    let story = Story::begin(limits()).fails(ErrorClass::AuthError);
    story.ends_as(StopReason::ModelError(ErrorClass::AuthError));
}

#[test]
fn a_failed_credential_refresh_is_retried_without_switching_models() {
    let rules = with_budgets(Budgets { switches: 1, retries: 3, ..Budgets::DEFAULT });
    for class in [ErrorClass::ServerError, ErrorClass::ServerOverload] {
        let mut story = Story::begin(rules).fails(ErrorClass::InvalidApiKey);
        for retry in 1..=3 {
            story = story.fails(class);
            assert_eq!(story.pause(), Pause { class, retry, of: Some(3) });
            story = story.wakes();
            assert_eq!(story.last(), Action::Refresh, "what was tried is tried again");
        }
        story.fails(class).ends_as(StopReason::ModelError(class));
    }
}

#[test]
fn a_rejected_credential_refresh_is_final() {
    let rules = with_budgets(Budgets { refreshes: 2, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails(ErrorClass::InvalidApiKey);
    let story = story.fails(ErrorClass::InvalidApiKey);
    story.ends_as(StopReason::ModelError(ErrorClass::InvalidApiKey));
}

#[test]
fn an_authentication_failure_with_retry_after_is_waited_out_as_such() {
    let rejected = failure_with_retry_after(ErrorClass::InvalidApiKey, secs(20));
    let story = Story::begin(limits()).then(Event::Failed(rejected));
    assert!(story.pause_millis() >= 20_000);
    assert_eq!(story.pause(), Pause { class: ErrorClass::InvalidApiKey, retry: 1, of: Some(1) });
    assert_eq!(story.wakes().last(), Action::Refresh);
    let far = Event::Failed(failure_with_retry_after(ErrorClass::InvalidApiKey, secs(3_600)));
    let story = Story::begin(limits()).then(far);
    story.ends_as(StopReason::ModelError(ErrorClass::InvalidApiKey));
}

// --- the bucket ---------------------------------------------------------------------------------

#[test]
fn retries_draw_from_the_token_bucket_and_timeouts_cost_double() {
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerError, 1);
    assert_eq!(story.run.budgets.bucket, 495);
    let story = story.fails_and_waits(ErrorClass::ApiTimeout, 1);
    assert_eq!(story.run.budgets.bucket, 485);
    let story = story.fails_and_waits(ErrorClass::StreamStalled, 1);
    assert_eq!(story.run.budgets.bucket, 475);
}

#[test]
fn a_success_gives_back_what_its_retries_took_and_a_first_attempt_one_token_more() {
    let mut run = Run::new(7, &limits());
    run.budgets.bucket = 480;
    let story = Story::resume(run, limits()).fails_and_waits(ErrorClass::ServerError, 2);
    let story = story.fails_and_waits(ErrorClass::ApiTimeout, 1);
    assert_eq!(story.run.budgets.bucket, 460);
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.run.budgets.bucket, 480, "this one took four attempts");
    let mut story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    assert_eq!(story.run.budgets.bucket, 481, "what was given back is not given again");
    for _ in 0..30 {
        story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    }
    assert_eq!(story.run.budgets.bucket, 500, "and never overflows");
}

#[test]
fn a_run_in_which_every_turn_needs_retries_never_ends_by_its_quota() {
    let stale = failure_at_stage(ErrorClass::ConnectionError, FailureStage::StaleConnection);
    let mut story = Story::begin(with_budgets(Budgets { bucket: 20, ..Budgets::DEFAULT }));
    for _ in 0..2_000 {
        story = story.fails_and_waits(ErrorClass::ServerOverload, 2).then(Event::Failed(stale));
        story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Fresh));
    }
    story.then(ANSWER).ends_as(StopReason::Completed);
}

#[test]
fn tokens_of_a_failed_call_come_back_with_the_next_answer() {
    let rules = with_budgets(Budgets { switches: 1, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails_and_waits(ErrorClass::ServerOverload, 2);
    let story = story.fails(ErrorClass::ServerOverload).fails_and_waits(ErrorClass::ServerError, 1);
    assert_eq!((story.asked().model_index, story.run.budgets.bucket), (1, 485));
    let story = Story::unasked(rules).goes_on_from(&story);
    assert_eq!(story.run.budgets.bucket, 485, "what was spent stays spent in another process");
    assert_eq!(story.then(TOOL_CALLS).run.budgets.bucket, 500);
}

#[test]
fn an_empty_token_bucket_fails_fast() {
    let rules = with_budgets(Budgets { bucket: 9, ..Budgets::DEFAULT });
    let story = Story::begin(rules).fails(ErrorClass::ApiTimeout);
    story.ends_as(StopReason::ModelError(ErrorClass::ApiTimeout));
    let enough = with_budgets(Budgets { bucket: 10, ..Budgets::DEFAULT });
    assert_eq!(Story::begin(enough).fails(ErrorClass::ApiTimeout).pause().retry, 1);
    let story = Story::begin(rules).fails_and_waits(ErrorClass::ServerError, 1);
    let story = story.fails(ErrorClass::ServerError);
    story.ends_as(StopReason::ModelError(ErrorClass::ServerError));
    assert!(story.run.quota_ended, "a retry was left");
    let story = Story::unasked(rules).goes_on_from(&story);
    assert!(!story.run.quota_ended, "another process has not ended yet");
}

#[test]
fn only_an_end_that_a_full_bucket_would_have_prevented_is_due_to_the_quota() {
    let empty = with_budgets(Budgets { bucket: 0, ..Budgets::DEFAULT });
    let story = Story::begin(empty).fails(ErrorClass::InvalidRequest);
    assert!(!story.run.quota_ended, "it is not retried in any case");
    let story = Story::begin(limits()).fails_and_waits(ErrorClass::ServerError, 10);
    assert!(!story.fails(ErrorClass::ServerError).run.quota_ended, "its retries are spent");
    let rules = with_budgets(Budgets { bucket: 0, retries: 0, ..Budgets::DEFAULT });
    assert!(!Story::begin(rules).fails(ErrorClass::ServerError).run.quota_ended);
}

// --- a run taken up again -------------------------------------------------------------------

#[test]
fn a_resumed_run_regains_retries_but_not_turns_or_models() {
    let full = Budgets { turns: Some(5), switches: 1, retries: 4, ..Budgets::DEFAULT };
    let rules = with_budgets(full);
    let overloaded = Event::Failed(failure_with_retry_after(ErrorClass::ServerOverload, secs(300)));
    let story = Story::begin(rules).fails_and_waits(ErrorClass::ServerOverload, 2);
    let story = story.fails(ErrorClass::ServerOverload).fails_and_waits(ErrorClass::ServerError, 4);
    let story = story.then(overloaded);
    assert_eq!(story.run.budgets.retries, 0);
    let story = Story::resume(story.run.resumed(), rules);
    let ask = story.asked();
    assert_eq!((ask.model_index, ask.attempt, ask.connection), (0, 1, ConnectionChoice::Pooled));
    let left = story.run.budgets;
    assert_eq!((left.turns, left.retries, left.switches, left.bucket), (Some(3), 4, 0, 470));
    assert!(story.retried_without_pause(), "moments begin anew, so the old wish means nothing");
}

/// Moments begin anew.
#[test]
fn a_resumed_run_does_not_wait_for_the_retry_after_of_the_process_before() {
    let limited = Event::Failed(failure_with_retry_after(ErrorClass::RateLimit, secs(300)));
    let before = Story::begin(limits()).then(limited);
    let resumed = Story::resume(before.run.resumed(), limits()).fails(ErrorClass::ServerError);
    let fresh = Story::begin(limits()).fails(ErrorClass::ServerError);
    assert_eq!(resumed.run.phase, fresh.run.phase);
}

#[test]
fn a_resumed_run_may_refresh_its_credential_again() {
    let story = Story::begin(limits()).fails(ErrorClass::InvalidApiKey);
    let story = Story::resume(story.run.resumed(), limits()).fails(ErrorClass::InvalidApiKey);
    assert_eq!(story.last(), Action::Refresh);
}

#[test]
fn a_finished_run_rejects_every_event() {
    let story = Story::begin(limits()).then(ANSWER);
    let late = Event::Failed(failure(ErrorClass::ServerError));
    assert!(story.run.step(story.now, late, &story.limits).is_err());
}
