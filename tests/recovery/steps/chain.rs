//! The model chain: switching to the next model, and returning to the preferred one.

use outlast_core::recovery::{
    Action, AvailableMitigations, Budgets, CallPurpose, CutKind, ErrorClass, Event, Failure,
    FailureStage, FastMode, Incomplete, Limits, LoopStatus, Nudge, QuerySource, RecoveryPlan,
    ReplyDisposition, ReplyKind, ReplyMode, RetryHint, Run, StopReason, TokenEstimate, Trim,
};

use super::super::{
    ANSWER, ANYTHING, FREE, Story, TOOL_CALLS, TOOLS_DONE, after, failure,
    failure_with_retry_after, failure_with_retry_hint, secs, with_budgets,
};

const OVERLOAD: ErrorClass = ErrorClass::ServerOverload;
const TEN_MINUTES: u64 = 600;

fn chain(switches: u8) -> Limits {
    with_budgets(Budgets { switches, ..Budgets::DEFAULT })
}

fn returning(switches: u8) -> Limits {
    Limits { fallback_return: Some(secs(TEN_MINUTES)), ..chain(switches) }
}

impl Story {
    #[track_caller]
    fn meets_a_crowd(self) -> Self {
        self.fails_and_waits(OVERLOAD, 2).fails(OVERLOAD)
    }

    fn later(self, seconds: u64) -> Self {
        let now = self.now.after(secs(seconds));
        self.at(now)
    }
}

/// The run has changed to its second model, at the very beginning.
fn away(limits: Limits) -> Story {
    let story = Story::begin(limits).fails(ErrorClass::InvalidModel);
    assert_eq!(story.asked().model_index, 1);
    story
}

// --- the preferred model before the end ---------------------------------------------------------

/// Both models are overloaded, and the retries at the second one are spent.
fn both_overloaded(limits: Limits) -> Story {
    Story::begin(limits).meets_a_crowd().fails_and_waits(OVERLOAD, 10).fails(OVERLOAD)
}

#[test]
fn the_preferred_model_is_asked_once_more_before_a_fallback_model_ends_the_run() {
    let story = both_overloaded(chain(1));
    assert_eq!(story.transition().plan, Some(RecoveryPlan::RetryPreferredModel));
    assert!((500..=625).contains(&story.pause_millis()), "{}", story.pause_millis());
    let story = story.wakes();
    assert_eq!(story.asked().model_index, 0);
    let saved = story.then(TOOL_CALLS).then(TOOLS_DONE);
    assert_eq!(
        (saved.asked().model_index, saved.run.budgets.switches),
        (0, 1),
        "the chain begins anew"
    );
    let again = saved.meets_a_crowd().fails_and_waits(OVERLOAD, 10).fails(OVERLOAD).wakes();
    assert_eq!(again.asked().model_index, 0, "and so does this");
    again.fails(OVERLOAD).ends_as(StopReason::ModelError(ErrorClass::Repeated529));
}

#[test]
fn a_preferred_model_that_still_fails_has_the_retries_that_are_left_and_no_second_chance() {
    let wrong_name = Story::begin(chain(1)).meets_a_crowd().fails(ErrorClass::InvalidModel).wakes();
    assert_eq!(wrong_name.asked().model_index, 0);
    let story = wrong_name.fails_and_waits(OVERLOAD, 10);
    assert_eq!(story.asked().model_index, 0, "a model that was tried is not tried again");
    story.fails(OVERLOAD).ends_as(StopReason::ModelError(ErrorClass::Repeated529));
}

#[test]
fn the_preferred_model_is_asked_again_where_another_model_may_help() {
    let elsewhere = Limits { endpoint_changes: 0b1, ..chain(1) };
    let away = |limits: Limits, class: ErrorClass| {
        let budgets = Budgets { retries: 2, refreshes: 0, ..limits.budgets };
        let story = Story::begin(Limits { budgets, ..limits }).meets_a_crowd();
        let run = Run { budgets: Budgets { retries: 0, ..story.run.budgets }, ..story.run };
        let story = Story { run, ..story }.fails(class);
        story.transition().plan == Some(RecoveryPlan::RetryPreferredModel)
    };
    let of_the_model = [
        OVERLOAD,
        ErrorClass::ServerError,
        ErrorClass::RateLimit,
        ErrorClass::AuthError,
        // A gateway may route the models to different services.
        ErrorClass::ConnectionError,
        ErrorClass::ApiTimeout,
        ErrorClass::StreamStalled,
        ErrorClass::BadResponse,
    ];
    for class in of_the_model {
        assert!(away(chain(1), class) && away(elsewhere, class), "{class}");
    }
    for class in [ErrorClass::InvalidApiKey, ErrorClass::SslCertError] {
        assert!(!away(chain(1), class) && away(elsewhere, class), "{class}");
    }
    for class in [ErrorClass::InvalidRequest, ErrorClass::PromptTooLong, ErrorClass::Unknown] {
        // The preferred model may have a larger window, or accept the field.
        assert!(away(chain(1), class) && away(elsewhere, class), "{class}");
    }
    for class in [ErrorClass::InvalidModel, ErrorClass::AuthError] {
        let story = Story::begin(chain(1)).fails(class).fails(class);
        story.ends_as(StopReason::ModelError(class));
        assert_eq!(story.requests(), 2, "{class}: the preferred model refused for good");
    }
}

/// The preferred model may still accept a request that a fallback model cannot answer.
#[test]
fn the_preferred_model_is_asked_again_after_unusable_replies_of_a_fallback_model() {
    let rules = chain(1);
    let budgets =
        Budgets { empty_replies: 0, incomplete_retries: 0, completions: 0, ..rules.budgets };
    let rules = Limits { budgets, ..rules };
    for reply in [
        ReplyKind::Empty,
        ReplyKind::Incomplete(Incomplete::UnknownReason),
        ReplyKind::Incomplete(Incomplete::CallInText),
    ] {
        let story = Story::begin(rules).meets_a_crowd().then(Event::Replied(reply));
        let step = story.transition();
        assert_eq!(step.plan, Some(RecoveryPlan::RetryPreferredModel), "{reply:?}");
        assert_eq!((step.edit.reply, step.next.model_index), (ReplyDisposition::Drop, 0));
        // It is asked once, and its own reply decides.
        let ended = Story::begin(rules).then(Event::Replied(reply));
        assert!(matches!(ended.last(), Action::Finish(_)), "{reply:?}");
    }
}

#[test]
fn background_work_asks_no_overloaded_model_again() {
    let rules = Limits { source: QuerySource::Background, ..chain(1) };
    let story = Story::begin(rules).fails_and_waits(ErrorClass::ServerError, 10);
    let story = story.fails(ErrorClass::ServerError);
    assert_eq!(story.asked().model_index, 1);
    story.fails(OVERLOAD).ends_as(StopReason::ModelError(OVERLOAD));
}

#[test]
fn the_retry_after_with_which_the_preferred_model_was_left_is_kept() {
    let left = |seconds: u64, limits: Limits| {
        let last = failure_with_retry_after(OVERLOAD, secs(seconds));
        let story = Story::begin(limits).fails_and_waits(OVERLOAD, 2).then(Event::Failed(last));
        assert_eq!(story.asked().model_index, 1);
        story.fails(ErrorClass::InvalidModel)
    };
    let story = left(60, chain(1));
    assert!(story.pause_millis() >= 60_000, "{}", story.pause_millis());
    assert_eq!(story.wakes().asked().model_index, 0);
    let gone = StopReason::ModelError(ErrorClass::InvalidModel);
    left(3_600, chain(1)).ends_as(gone);
    left(60, Limits { deadline: Some(after(30)), ..chain(1) }).ends_as(gone);
    let story = left(60, chain(1));
    let story = Story::unasked(chain(1)).goes_on_from(&story);
    assert_eq!(story.asked().model_index, 0, "moments begin anew in another process");
}

// --- switching ----------------------------------------------------------------------------------

#[test]
fn only_failures_caused_by_the_model_switch_to_the_next_one() {
    let far = |class| failure_with_retry_after(class, secs(3_600));
    let advancing = [
        ("no such model", failure(ErrorClass::InvalidModel), 0),
        ("not for this credential", failure(ErrorClass::AuthError), 0),
        ("overloads", failure(OVERLOAD), 2),
        ("broken", failure(ErrorClass::ServerError), 10),
        ("limits", failure(ErrorClass::RateLimit), 10),
        ("quota", far(ErrorClass::RateLimit), 0),
        ("quota, worded as an overload", far(OVERLOAD), 0),
        ("broken for long", far(ErrorClass::ServerError), 0),
        (
            "not to be asked again",
            failure_with_retry_hint(ErrorClass::ServerError, RetryHint::Stop),
            0,
        ),
    ];
    for (what, failed, patience) in advancing {
        let event = Event::Failed(failed);
        let mut story = Story::begin(chain(1));
        for _ in 0..patience {
            story = story.then(event).wakes();
            assert_eq!(story.asked().model_index, 0, "{what}");
        }
        let story = story.then(event);
        assert_eq!((story.asked().model_index, story.asked().attempt), (1, 1), "{what}");
        assert_eq!(story.times(RecoveryPlan::SwitchModel), 1, "{what}: one change for one failure");
        story.then(ANSWER).ends_as(StopReason::Completed);
    }
    let staying = [
        ErrorClass::InvalidRequest,
        ErrorClass::ToolUseMismatch,
        ErrorClass::PromptTooLong,
        ErrorClass::RequestTooLarge,
        ErrorClass::ImageTooLarge,
        ErrorClass::PdfTooLarge,
        ErrorClass::CreditBalanceLow,
        ErrorClass::SslCertError,
        ErrorClass::Unknown,
        ErrorClass::Refusal,
        ErrorClass::Aborted,
    ];
    for class in staying {
        let story = Story::begin(chain(1)).fails(class);
        assert_eq!(story.last(), Action::Finish(StopReason::from_class(class)), "{class}");
    }
}

#[test]
fn one_overload_does_not_switch_the_model() {
    let mut story = Story::begin(chain(1));
    for _ in 0..5 {
        story = story.fails_and_waits(OVERLOAD, 2).takes_a_turn();
        assert_eq!(story.asked().model_index, 0);
    }
}

#[test]
fn without_a_model_chain_no_other_model_is_called() {
    let classes = [OVERLOAD, ErrorClass::ServerError, ErrorClass::InvalidModel];
    for class in classes {
        let story = Story::begin(chain(0))
            .then(Event::Failed(failure_with_retry_hint(class, RetryHint::Stop)));
        assert_eq!(story.last(), Action::Finish(StopReason::ModelError(class)));
    }
}

#[test]
fn models_in_the_chain_may_have_different_endpoints() {
    let dead = Event::Failed(failure_with_retry_hint(ErrorClass::ConnectionError, RetryHint::Stop));
    let end = StopReason::ModelError(ErrorClass::ConnectionError);
    let near_then_far = Limits { endpoint_changes: 0b10, ..chain(2) };
    Story::begin(near_then_far).then(dead).ends_as(end);
    let story = away(near_then_far).then(dead);
    assert_eq!(story.asked().model_index, 2, "the second and the third live apart");
    story.then(dead).ends_as(end);
    let far_then_near = Limits { endpoint_changes: 0b01, ..chain(2) };
    let story = Story::begin(far_then_near).then(dead);
    assert_eq!(story.asked().model_index, 1);
    story.then(dead).ends_as(end);
}

#[test]
fn a_failed_credential_fetch_skips_models_that_share_the_credential() {
    for class in [ErrorClass::ServerError, ErrorClass::RateLimit, ErrorClass::InvalidModel] {
        let refreshing = |rules| Story::begin(rules).fails(ErrorClass::InvalidApiKey);
        let stop = Event::Failed(failure_with_retry_hint(class, RetryHint::Stop));
        let story = refreshing(chain(1)).then(stop);
        assert_eq!(story.last(), Action::Finish(StopReason::ModelError(class)), "{class}");
        let story = refreshing(Limits { endpoint_changes: 0b1, ..chain(1) }).then(stop);
        assert_eq!(story.asked().model_index, 1, "{class}");
    }
}

#[test]
fn the_next_model_may_refresh_its_own_credential() {
    let rules = Limits { endpoint_changes: 0b1, ..chain(1) };
    let rejected = ErrorClass::InvalidApiKey;
    let story = Story::begin(rules).fails(rejected).then(Event::Refreshed).fails(rejected);
    assert_eq!(story.asked().model_index, 1);
    let story = story.fails(rejected);
    assert_eq!(story.last(), Action::Refresh);
}

#[test]
fn the_next_endpoint_streams_even_after_broken_streams_elsewhere() {
    let rules = Limits { endpoint_changes: 0b1, ..chain(1) };
    let torn = Failure { stage: FailureStage::Stream, ..failure(ErrorClass::ConnectionError) };
    let story = Story::begin(rules).then(Event::Failed(torn)).wakes();
    let story = story.then(Event::Failed(torn)).wakes();
    assert_eq!(story.asked().mode, ReplyMode::Whole);
    let story = story.fails(ErrorClass::AuthError);
    assert_eq!(story.asked().mode, ReplyMode::Streaming);
}

#[test]
fn another_model_at_the_same_endpoint_does_not_stream_either() {
    let torn = Failure { stage: FailureStage::Block, ..failure(ErrorClass::ConnectionError) };
    let whole = |rules| {
        let story = Story::begin(rules).then(Event::Failed(torn)).wakes();
        story.then(Event::Failed(torn)).wakes().fails(ErrorClass::AuthError)
    };
    let story = whole(chain(1));
    assert_eq!((story.asked().model_index, story.asked().mode), (1, ReplyMode::Whole));
    let rules = Limits { endpoint_changes: 0b10, ..chain(2) };
    let story = whole(rules);
    assert_eq!((story.asked().model_index, story.asked().mode), (1, ReplyMode::Whole));
    let story = story.fails(ErrorClass::AuthError);
    assert_eq!((story.asked().model_index, story.asked().mode), (2, ReplyMode::Streaming));
}

// --- returning ----------------------------------------------------------------------------------

#[test]
fn without_the_setting_a_run_never_returns_to_the_preferred_model() {
    let story = away(chain(1)).later(86_400).takes_a_turn();
    assert_eq!(story.asked().model_index, 1);
}

#[test]
fn the_preferred_model_is_tried_again_after_ten_minutes_and_at_a_turn() {
    let story = away(returning(1)).later(TEN_MINUTES - 1).takes_a_turn();
    assert_eq!(story.asked().model_index, 1, "not a second early");
    let story = story.later(1).fails(ErrorClass::ServerError).wakes();
    assert_eq!(story.asked().model_index, 1, "not within a turn");
    let story = story.then(Event::Replied(ReplyKind::CutShort(CutKind::Text)));
    assert_eq!(story.asked().model_index, 1, "nor where a reply goes on");
    let story = story.takes_a_turn();
    assert_eq!((story.asked().model_index, story.asked().attempt), (0, 1));
    assert_eq!(story.decision().plan, Some(RecoveryPlan::ReturnToPreferredModel));
    assert_eq!(story.run.budgets.probes, 23);
}

#[test]
fn the_preferred_model_is_kept_when_it_replies() {
    let story = away(returning(1)).later(TEN_MINUTES).takes_a_turn();
    let mut story = story.takes_a_turn();
    for _ in 0..3 {
        assert_eq!(story.asked().model_index, 0);
        story = story.later(TEN_MINUTES).takes_a_turn();
    }
    assert_eq!(story.run.budgets.probes, 23, "there is nowhere to go back to");
    let story = story.fails_and_waits(ErrorClass::ServerError, 1);
    assert_eq!(story.asked().model_index, 0, "and it has a full set of attempts again");
    assert_eq!(story.meets_a_crowd().asked().model_index, 1, "and its chain");
}

#[test]
fn the_preferred_model_is_left_at_once_when_it_still_fails() {
    let failures = [
        failure(OVERLOAD),
        failure(ErrorClass::ServerError),
        failure(ErrorClass::RateLimit),
        failure(ErrorClass::ConnectionError),
        failure(ErrorClass::ApiTimeout),
        failure(ErrorClass::BadResponse),
        failure(ErrorClass::InvalidModel),
        failure(ErrorClass::InvalidApiKey),
        failure(ErrorClass::AuthError),
        failure(ErrorClass::CreditBalanceLow),
        failure_with_retry_after(ErrorClass::RateLimit, secs(5)),
        failure_with_retry_after(ErrorClass::RateLimit, secs(36_000)),
        failure_with_retry_hint(ErrorClass::ServerError, RetryHint::Stop),
    ];
    for failed in failures {
        let story = away(returning(2)).fails(ErrorClass::InvalidModel);
        assert_eq!(story.asked().model_index, 2);
        let story = story.later(TEN_MINUTES).takes_a_turn();
        assert_eq!(story.asked().model_index, 0);
        let story = story.then(Event::Failed(failed));
        assert_eq!(story.decision().plan, Some(RecoveryPlan::SwitchModel), "{failed:?}");
        assert!(story.retried_without_pause());
        assert_eq!(story.asked().model_index, 2, "{failed:?}: where it came from");
        let story = story.later(TEN_MINUTES - 1).takes_a_turn();
        assert_eq!(story.asked().model_index, 2, "{failed:?}: and not again for a while");
        assert_eq!(story.later(1).takes_a_turn().asked().model_index, 0, "{failed:?}");
    }
}

#[test]
fn the_preferred_model_is_left_after_an_empty_reply() {
    let story = away(returning(1)).later(TEN_MINUTES).takes_a_turn();
    let story = story.then(Event::Replied(ReplyKind::Empty));
    assert_eq!((story.asked().model_index, story.retried_without_pause()), (1, true));
    assert_eq!(story.run.budgets.empty_replies, 3);
    let story = story.then(Event::Replied(ReplyKind::Empty));
    assert_eq!(story.pause().class, ErrorClass::EmptyResponse, "the other one is asked again");
}

#[test]
fn any_reply_of_the_preferred_model_counts_as_its_return() {
    let replies = [
        ReplyKind::CutShort(CutKind::Text),
        ReplyKind::CutShort(CutKind::Thinking),
        ReplyKind::Paused,
        ReplyKind::ToolCalls { tokens: 1 },
    ];
    for reply in replies {
        let story = away(returning(1)).later(TEN_MINUTES).takes_a_turn();
        let story = story.then(Event::Replied(reply));
        assert_eq!(story.run.preferred.fallback_from, None, "{reply:?}");
    }
}

#[test]
fn a_request_refused_by_the_preferred_model_is_repaired_there() {
    let story = away(returning(1)).later(TEN_MINUTES).takes_a_turn();
    let refused = Failure { mitigations: ANYTHING, ..failure(ErrorClass::InvalidRequest) };
    let story = story.then(Event::Failed(refused));
    assert_eq!((story.asked().model_index, story.decision().edit.trim), (0, Some(Trim::Block)));
    let story = story.fails(OVERLOAD);
    assert_eq!(story.asked().model_index, 1, "and left when the service fails after all");
}

#[test]
fn a_summary_request_can_try_the_preferred_model_again() {
    let remedies = AvailableMitigations { rounds: true, ..AvailableMitigations::NONE };
    let crowded = TokenEstimate { size: 190_000, window: 200_000, mitigations: remedies, ..FREE };
    let back = || away(returning(1)).later(TEN_MINUTES).measure_with(crowded).takes_a_turn();
    assert_ne!(back().asked().purpose, CallPurpose::Reply);
    assert_eq!(back().asked().model_index, 0);
    let story = back().fails(ErrorClass::ServerError);
    assert_eq!(story.asked().model_index, 1);
    assert_ne!(story.asked().purpose, CallPurpose::Reply, "the summary is still wanted");
    let story = back().measure_with(FREE).then(ANSWER);
    assert_eq!((story.asked().model_index, story.run.preferred.fallback_from), (0, None));
}

#[test]
fn a_fast_mode_shortage_drops_fast_mode_before_the_preferred_model() {
    let rules = Limits { fast: Some(FastMode::default()), ..returning(1) };
    let story = away(rules).later(TEN_MINUTES).takes_a_turn().fails(ErrorClass::RateLimit);
    assert_eq!((story.asked().model_index, story.asked().fast), (0, false));
    let story = story.fails(ErrorClass::RateLimit);
    assert_eq!((story.asked().model_index, story.retried_without_pause()), (1, true));
}

#[test]
fn after_a_return_the_whole_model_chain_is_available_again() {
    let story = away(returning(2)).later(TEN_MINUTES).takes_a_turn().takes_a_turn();
    let story = story.fails(ErrorClass::InvalidModel);
    assert_eq!(story.asked().model_index, 1);
    let story = story.fails(ErrorClass::InvalidModel);
    assert_eq!(story.asked().model_index, 2);
    let story = story.fails(ErrorClass::InvalidModel);
    story.ends_as(StopReason::ModelError(ErrorClass::InvalidModel));
}

#[test]
fn a_failed_return_leaves_the_rest_of_the_model_chain_available() {
    let story = away(returning(2)).later(TEN_MINUTES).takes_a_turn().fails(OVERLOAD);
    assert_eq!(story.asked().model_index, 1);
    assert_eq!(story.fails(ErrorClass::InvalidModel).asked().model_index, 2);
}

#[test]
fn returns_to_the_preferred_model_have_a_budget() {
    let budgets = Budgets { probes: 3, switches: 1, ..Budgets::DEFAULT };
    let mut story = away(Limits { budgets, ..returning(1) });
    for _ in 0..3 {
        story = story.later(TEN_MINUTES).takes_a_turn();
        assert_eq!(story.asked().model_index, 0);
        story = story.fails(OVERLOAD);
        assert_eq!(story.asked().model_index, 1);
    }
    let story = story.later(86_400).takes_a_turn();
    assert_eq!(story.asked().model_index, 1, "three were all");
    let story = Story::unasked(story.limits).goes_on_from(&story).takes_a_turn();
    assert_eq!(story.asked().model_index, 1, "in the next process too");
}

#[test]
fn a_resumed_run_keeps_its_model_and_returns_at_its_first_turn() {
    let story = away(returning(1)).later(60).takes_a_turn();
    let story = Story::unasked(returning(1)).goes_on_from(&story);
    assert_eq!(story.asked().model_index, 1, "the call that was cut off is made where it was made");
    assert_eq!(story.takes_a_turn().asked().model_index, 0);
    let back = away(returning(1)).later(TEN_MINUTES).takes_a_turn();
    let story = Story::unasked(returning(1)).goes_on_from(&back);
    assert_eq!((story.asked().model_index, story.run.preferred.fallback_from), (0, None));
    assert!(story.fails(ErrorClass::ServerError).is_pausing(), "it has its attempts");
}

#[test]
fn the_preferred_model_is_not_retried_in_the_last_turn_or_at_the_deadline() {
    let budgets = Budgets { turns: Some(2), switches: 1, ..Budgets::DEFAULT };
    let story = away(Limits { budgets, ..returning(1) }).later(TEN_MINUTES);
    assert_eq!(story.takes_a_turn().asked().model_index, 0, "one turn is left");
    let budgets = Budgets { turns: Some(1), ..budgets };
    let story = away(Limits { budgets, ..returning(1) }).later(TEN_MINUTES).takes_a_turn();
    story.ends_as(StopReason::MaxTurns);
    assert_eq!((story.run.model_index, story.run.budgets.probes), (1, 24));
    let late = Limits { deadline: Some(after(TEN_MINUTES)), ..returning(1) };
    let story = away(late).then(TOOL_CALLS).later(TEN_MINUTES).then(TOOLS_DONE);
    story.ends_as(StopReason::Deadline);
    assert_eq!(story.run.budgets.probes, 24);
}

#[test]
fn a_return_can_coincide_with_another_recovery() {
    let story = away(returning(1)).then(TOOL_CALLS).later(TEN_MINUTES);
    let story = story.then(Event::ToolsDone(LoopStatus::Repeating));
    let decision = story.decision();
    assert_eq!(decision.plan, Some(RecoveryPlan::ReturnToPreferredModel));
    assert_eq!(decision.edit.say, Some(Nudge::StepBack));
}

#[test]
fn retry_after_of_the_old_model_does_not_delay_the_return() {
    let story = away(returning(1)).later(TEN_MINUTES);
    let story = story
        .then(Event::Failed(failure_with_retry_after(ErrorClass::ServerError, secs(30))))
        .wakes();
    let story = story.takes_a_turn();
    assert_eq!((story.asked().model_index, story.retried_without_pause()), (0, true));
}
