//! Fast mode, and its recovery from rate limits and overloads.

use outlast_core::recovery::{
    Action, AvailableMitigations, Budgets, CallPurpose, ErrorClass, Event, Failure, Fast, FastMode,
    Limits, LoopStatus, Moment, Persistence, RecoveryPlan, RetryAfter, RetryAfterSource, RetryHint,
    StopReason, TokenEstimate,
};

use super::super::{
    ANSWER, FREE, Story, TOOL_CALLS, after, failure, failure_with_retry_after, limits, secs,
    with_budgets,
};

const SHORTAGES: [ErrorClass; 2] = [ErrorClass::RateLimit, ErrorClass::ServerOverload];
const HALF_AN_HOUR: u64 = 1_800;

fn fast() -> Limits {
    Limits { fast: Some(FastMode::default()), ..limits() }
}

fn denied(class: ErrorClass) -> Failure {
    Failure { fast_denied: true, ..failure(class) }
}

impl Story {
    #[track_caller]
    fn cools_until(&self, seconds: u64) {
        assert_eq!(self.run.fast, Fast::Cooling { until: after(seconds) });
        assert!(!self.asked().fast);
    }
}

#[test]
fn fast_mode_is_requested_only_when_enabled() {
    assert!(Story::begin(fast()).asked().fast);
    let story = Story::begin(limits());
    assert!(!story.asked().fast);
    assert!(!story.fails_and_waits(ErrorClass::RateLimit, 1).takes_a_turn().asked().fast);
}

#[test]
fn a_short_retry_after_is_waited_out_in_fast_mode() {
    for class in SHORTAGES {
        let asked = Event::Failed(failure_with_retry_after(
            class,
            std::time::Duration::from_millis(19_999),
        ));
        let story = Story::begin(fast()).then(asked);
        assert!(story.pause_millis() >= 19_999);
        assert_eq!(story.pause().retry, 1, "{class}");
        let ask = story.wakes().asked();
        assert_eq!((ask.fast, ask.attempt), (true, 2), "{class}");
    }
}

#[test]
fn a_longer_retry_after_switches_to_normal_speed_at_once() {
    for class in SHORTAGES {
        for (wish, spell) in [(20, 600), (599, 600), (601, 601), (7_200, 7_200)] {
            let story = Story::begin(fast())
                .then(Event::Failed(failure_with_retry_after(class, secs(wish))));
            assert_eq!(story.decision().plan, Some(RecoveryPlan::CoolDown), "{class}");
            assert!(story.retried_without_pause());
            story.cools_until(spell);
            assert_eq!(story.asked().attempt, 1, "what is not fast mode's has not failed");
        }
    }
}

#[test]
fn a_shortage_without_retry_after_disables_fast_mode_for_half_an_hour() {
    for class in SHORTAGES {
        let story = Story::begin(fast()).fails(class);
        story.cools_until(HALF_AN_HOUR);
        assert_eq!(story.run.budgets.retries, 10);
        assert_eq!(story.run.budgets.bucket, 500);
    }
}

#[test]
fn a_fast_mode_shortage_does_not_count_as_an_overload() {
    let budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
    let story = Story::begin(Limits { budgets, ..fast() }).fails(ErrorClass::ServerOverload);
    let story = story.fails_and_waits(ErrorClass::ServerOverload, 2);
    assert_eq!(story.asked().model_index, 0, "two at normal speed");
    assert_eq!(story.fails(ErrorClass::ServerOverload).asked().model_index, 1);
}

#[test]
fn shortages_at_normal_speed_use_the_ordinary_recovery() {
    let story = Story::begin(fast()).fails(ErrorClass::RateLimit).fails(ErrorClass::RateLimit);
    assert_eq!((story.pause().retry, story.pause().of), (1, Some(10)));
    let story = story.wakes();
    story.cools_until(HALF_AN_HOUR);
    let far = Event::Failed(failure_with_retry_after(ErrorClass::RateLimit, secs(3_600)));
    story.then(far).ends_as(StopReason::ModelError(ErrorClass::QuotaExhausted));
}

#[test]
fn fast_mode_returns_only_at_the_start_of_a_turn() {
    let story = Story::begin(fast()).fails(ErrorClass::RateLimit).at(after(HALF_AN_HOUR - 1));
    let story = story.takes_a_turn();
    assert!(!story.asked().fast, "not a second early");
    let story = story.at(after(HALF_AN_HOUR)).fails(ErrorClass::ServerError).wakes();
    assert!(!story.asked().fast, "the turn keeps its speed");
    let story = story.then(TOOL_CALLS).then(Event::ToolsDone(LoopStatus::Repeating));
    assert!(story.asked().fast);
    assert_eq!(story.run.fast, Fast::On);
}

#[test]
fn other_failures_do_not_change_fast_mode() {
    let others = [
        ErrorClass::ServerError,
        ErrorClass::ApiTimeout,
        ErrorClass::StreamStalled,
        ErrorClass::ConnectionError,
        ErrorClass::BadResponse,
    ];
    for class in others {
        let story = Story::begin(fast()).then(Event::Failed(denied(class)));
        assert_eq!(story.pause().class, class);
        assert!(story.wakes().asked().fast, "{class}");
    }
}

#[test]
fn fast_mode_is_not_requested_again_after_the_service_denies_it() {
    for class in SHORTAGES {
        let story = Story::begin(fast()).then(Event::Failed(denied(class)));
        assert_eq!(story.decision().plan, Some(RecoveryPlan::DisableFastMode));
        assert_eq!((story.asked().fast, story.asked().attempt), (false, 1));
        let story = story.at(after(86_400)).takes_a_turn();
        assert!(!story.asked().fast);
        let story = Story::unasked(fast()).goes_on_from(&story);
        assert!(!story.asked().fast, "not even by the next process");
    }
    let short =
        Failure { fast_denied: true, ..failure_with_retry_after(ErrorClass::RateLimit, secs(2)) };
    let story = Story::begin(fast()).then(Event::Failed(short));
    assert_eq!(story.run.fast, Fast::Off, "a short wish does not bring it back");
    let plain = Story::begin(limits()).then(Event::Failed(denied(ErrorClass::RateLimit)));
    assert_eq!(plain.pause().retry, 1, "who was not fast has nothing to leave");
}

#[test]
fn fast_mode_is_abandoned_after_eight_cooldowns() {
    let mut story = Story::begin(fast());
    for nth in 1..=8 {
        story = story.fails(ErrorClass::RateLimit);
        assert_eq!(story.decision().plan, Some(RecoveryPlan::CoolDown), "{nth}");
        let later = story.now.after(secs(HALF_AN_HOUR));
        story = story.at(later).takes_a_turn();
        assert!(story.asked().fast, "{nth}");
    }
    let story = story.fails(ErrorClass::RateLimit);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::DisableFastMode));
    assert_eq!((story.run.fast, story.asked().fast), (Fast::Off, false));
}

#[test]
fn a_resumed_run_requests_fast_mode_again_despite_a_cooldown() {
    let story = Story::begin(fast()).fails(ErrorClass::RateLimit);
    let story = Story::unasked(fast()).goes_on_from(&story);
    assert!(story.asked().fast, "moments begin anew");
    assert_eq!(story.run.budgets.cool_downs, 7, "but not the spells");
}

#[test]
fn a_retry_hint_for_fast_mode_does_not_affect_normal_speed() {
    let stop = Failure { retry_hint: Some(RetryHint::Stop), ..failure(ErrorClass::RateLimit) };
    let story = Story::begin(fast()).then(Event::Failed(stop));
    story.cools_until(HALF_AN_HOUR);
    story.then(Event::Failed(stop)).ends_as(StopReason::ModelError(ErrorClass::RateLimit));
}

#[test]
fn fast_mode_cools_down_in_persistent_mode_too() {
    let persistence = Persistence::All;
    let rules = Limits { persistence, max_retry_wait: persistence.max_retry_wait(), ..fast() };
    let reset = RetryAfter { wait: secs(1_000), source: RetryAfterSource::Reset };
    let limited = Failure { retry_after: Some(reset), ..failure(ErrorClass::RateLimit) };
    Story::begin(rules).then(Event::Failed(limited)).cools_until(1_000);
}

#[test]
fn a_short_retry_after_past_the_deadline_switches_to_normal_speed() {
    let asked = Event::Failed(failure_with_retry_after(ErrorClass::RateLimit, secs(15)));
    let rushed = Limits { deadline: Some(after(10)), ..fast() };
    Story::begin(rushed).then(asked).cools_until(600);
    let impatient = Limits { max_retry_wait: secs(10), ..fast() };
    Story::begin(impatient).then(asked).cools_until(600);
}

#[test]
fn fast_mode_patience_and_cooldown_count_are_settings() {
    let rules = FastMode { patience: secs(5), cool_down: secs(60), unknown: secs(120) };
    let rules = Limits { fast: Some(rules), ..limits() };
    let after_wish = |wish| {
        Story::begin(rules)
            .then(Event::Failed(failure_with_retry_after(ErrorClass::RateLimit, secs(wish))))
    };
    assert!(after_wish(4).is_pausing());
    after_wish(5).cools_until(60);
    Story::begin(rules).fails(ErrorClass::RateLimit).cools_until(120);
}

#[test]
fn a_summary_request_falls_back_to_normal_speed() {
    let remedies = AvailableMitigations { rounds: true, ..AvailableMitigations::NONE };
    let crowded = TokenEstimate { size: 190_000, window: 200_000, mitigations: remedies, ..FREE };
    let overflow = Failure { mitigations: remedies, ..failure(ErrorClass::PromptTooLong) };
    let budgets = Budgets { compactions: Some(8), ..fast().budgets };
    let rules = Limits { budgets, ..fast() };
    let ahead = || Story::unasked(rules).measure_with(crowded).then(Event::Begin);
    let late = || Story::begin(rules).then(Event::Failed(overflow));
    let shortages = [failure(ErrorClass::ServerOverload), denied(ErrorClass::RateLimit)];
    for has_overflowed in [false, true] {
        for shortage in shortages {
            let story = if has_overflowed { late() } else { ahead() };
            let purpose = story.asked().purpose;
            assert_ne!(purpose, CallPurpose::Reply);
            assert!(story.asked().fast);
            let story = story.then(Event::Failed(shortage));
            assert_eq!((story.asked().purpose, story.asked().fast), (purpose, false));
            assert_eq!(story.run.budgets.compactions, Some(7), "it is the same compaction");
            let story = story.measure_with(FREE).then(ANSWER);
            assert_eq!((story.asked().purpose, story.asked().fast), (CallPurpose::Reply, false));
        }
    }
}

#[test]
fn a_failed_credential_refresh_does_not_change_fast_mode() {
    for class in SHORTAGES {
        for failed in [failure(class), denied(class)] {
            let story = Story::begin(fast()).fails(ErrorClass::InvalidApiKey);
            let story = story.then(Event::Failed(failed));
            assert_eq!((story.run.fast, story.pause().retry), (Fast::On, 1), "{class}");
            let story = story.wakes();
            assert_eq!(story.last(), Action::Refresh, "{class}");
            assert!(story.then(Event::Refreshed).asked().fast);
        }
    }
}

#[test]
fn fast_mode_does_not_cool_down_after_the_deadline() {
    let rules = Limits { deadline: Some(after(60)), ..fast() };
    let story = Story::begin(rules).at(after(60)).fails(ErrorClass::RateLimit);
    story.ends_as(StopReason::Deadline);
}

#[test]
fn the_next_model_inherits_the_speed_of_the_run() {
    let budgets = Budgets { switches: 1, ..Budgets::DEFAULT };
    let rules = Limits { fast: Some(FastMode::default()), ..with_budgets(budgets) };
    let story = Story::begin(rules).fails(ErrorClass::InvalidModel);
    assert_eq!((story.asked().model_index, story.asked().fast), (1, true));
    let story = Story::begin(rules).fails(ErrorClass::RateLimit).fails(ErrorClass::InvalidModel);
    assert_eq!((story.asked().model_index, story.asked().fast), (1, false));
    assert_eq!(story.now, Moment::default());
}
