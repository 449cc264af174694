//! The length of every wait, to the millisecond.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::recovery::{
    Attempts, Backoff, Budgets, Call, ErrorClass, Event, Failure, FastMode, Limits, Moment,
    Persistence, Phase, RetryAfter, RetryAfterSource, RetryHint, Run,
};

use super::{ANYTHING, FREE, failure, failure_with_retry_after, limits, secs};

/// The milliseconds of the pause that follows when the call at hand fails as told, after
/// `earlier` failures.
fn pause(seed: u64, earlier: u8, failure: Failure, limits: &Limits) -> u64 {
    let at = Moment::from_millis(1_000_000);
    let step = |run: Run, event| run.step(at, event, limits).expect("the event fits").next;
    let asked = step(step(Run::new(seed, limits), Event::Begin), Event::Estimated(FREE));
    let run = Run { attempts: Attempts { failures: earlier, ..asked.attempts }, ..asked };
    let failed = step(run, Event::Failed(failure));
    let Phase::Pausing { until, .. } = failed.phase else { panic!("no pause but {failed:?}") };
    until.as_millis() - at.as_millis()
}

#[test]
fn the_backoff_is_exact_to_the_millisecond_and_jitter_only_lengthens_it() {
    let ladder = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000, 32_000];
    for seed in 0..500 {
        let waits: Vec<u64> = (0..10)
            .map(|earlier| pause(seed, earlier, failure(ErrorClass::ServerError), &limits()))
            .collect();
        for (nth, (wait, bare)) in waits.iter().zip(ladder).enumerate() {
            assert!((bare..=bare + bare / 4).contains(wait), "seed {seed}, wait {nth}: {wait} ms");
        }
        assert!(waits.iter().sum::<u64>() <= 199_375, "seed {seed}: {waits:?}");
    }
}

#[test]
fn jitter_covers_its_whole_range_of_a_quarter() {
    let waits: Vec<u64> =
        (0..500).map(|seed| pause(seed, 4, failure(ErrorClass::ServerError), &limits())).collect();
    let (least, most) = (waits.iter().min(), waits.iter().max());
    assert!(least < Some(&8_100) && most > Some(&9_900), "{least:?} to {most:?} of 8000 to 10000");
}

#[test]
fn every_wait_of_a_run_has_its_own_jitter() {
    let share = |earlier: u8| {
        let bare = 500 << earlier;
        (pause(7, earlier, failure(ErrorClass::ServerError), &limits()) - bare) * 100 / bare
    };
    let shares: BTreeSet<u64> = (0..6).map(share).collect();
    assert!(shares.len() >= 4, "hundredths of the bare wait: {shares:?}");
}

#[test]
fn the_same_seed_gives_the_same_waits() {
    for seed in 0..50 {
        let once = pause(seed, 3, failure(ErrorClass::ServerError), &limits());
        assert_eq!(once, pause(seed, 3, failure(ErrorClass::ServerError), &limits()));
    }
}

#[test]
fn retry_after_is_never_shortened_and_replaces_the_backoff() {
    let millis = [1, 999, 1_000, 1_001, 29_999, 59_000, 61_000, 600_000];
    for seed in 0..200 {
        for wish in millis {
            let asked =
                failure_with_retry_after(ErrorClass::RateLimit, Duration::from_millis(wish));
            let wait = pause(seed, 6, asked, &limits());
            let most = wish + (wish / 4).min(10_000) + 1;
            assert!((wish..=most).contains(&wait), "seed {seed}: {wait} ms for {wish} ms");
        }
    }
}

#[test]
fn a_fractional_millisecond_is_rounded_up() {
    let rules = Limits { persistence: Persistence::Capacity, ..limits() };
    let wish =
        RetryAfter { wait: Duration::from_micros(1_500_001), source: RetryAfterSource::Reset };
    let reset = Failure { retry_after: Some(wish), ..failure(ErrorClass::RateLimit) };
    assert_eq!(pause(7, 0, reset, &rules), 1_501);
}

#[test]
fn extreme_durations_do_not_overflow() {
    let ladder = Backoff { first: Duration::MAX, longest: Duration::MAX };
    let patient = Limits { max_retry_wait: Duration::MAX, backoff: ladder, ..limits() };
    let asked = failure_with_retry_after(ErrorClass::RateLimit, Duration::MAX);
    assert!(pause(7, 255, asked, &patient) > 1 << 60);
    assert!(pause(7, 255, failure(ErrorClass::ServerError), &patient) > 1 << 60);
}

/// However the failures are chosen, a call that fails for ever is given up after a number of
/// attempts that its budgets fix beforehand.
#[test]
fn a_call_that_always_fails_ends_within_its_budgets() {
    let budgets = Budgets { switches: 2, ..Budgets::DEFAULT };
    let rules =
        Limits { budgets, endpoint_changes: 0b11, fast: Some(FastMode::default()), ..limits() };
    // Each of the three models: one attempt, ten retries, one attempt after a refresh. Besides:
    // eight spells at normal speed (one, since no turn begins); a smaller cap, a drain, a strip and
    // eight repairs; one summary, with its retries and three trims, and one reply after it.
    let bound = 3 * (11 + 1) + 8 + 1 + (1 + 1 + 1 + 8) + (1 + 3 + 1);
    let mut most = 0;
    for seed in 0..2_000 {
        let attempts = fail_for_ever(seed, &rules, any_failure);
        assert!(attempts <= bound, "seed {seed}: {attempts} attempts");
        most = most.max(attempts);
    }
    assert!(most > 30, "the failures are too alike: {most} attempts at most");
}

/// The same for each class by itself, whatever could be taken out of the conversation.
#[test]
fn every_failure_class_alone_ends_within_its_budgets() {
    let budgets = Budgets { switches: 2, ..Budgets::DEFAULT };
    let rules = Limits { budgets, endpoint_changes: 0b11, ..limits() };
    for class in ErrorClass::ALL {
        let most = (0..50)
            .map(|seed| {
                fail_for_ever(seed, &rules, |_| Failure { mitigations: ANYTHING, ..failure(class) })
            })
            .max();
        let bound = match class {
            // Three overloads change the model, except the last. Then the preferred one is asked
            // once more, where its failure may have passed.
            ErrorClass::ServerOverload => 3 + 3 + 11 + 1,
            ErrorClass::RateLimit
            | ErrorClass::ServerError
            | ErrorClass::ConnectionError
            | ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled => 3 * 11 + 1,
            ErrorClass::BadResponse => 3 * 11,
            // A refresh that fails the same way is the end of its model.
            ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked => 3,
            ErrorClass::InvalidModel | ErrorClass::CreditBalanceLow | ErrorClass::SslCertError => 3,
            // Each model with marks for the cache and without.
            ErrorClass::AuthError => 3 * 2,
            // The request, seven smaller caps, the drain, a summary with three trims, and none.
            ErrorClass::PromptTooLong => 1 + 7 + 1 + 1 + 3 + 1,
            ErrorClass::RequestTooLarge => 1 + 5 + 1 + 1 + 3 + 1,
            // The request, five without what is named first, and without what is named then.
            ErrorClass::PdfTooLarge | ErrorClass::ImageTooLarge => 1 + 5 + 8,
            // The request, eight with a block repaired, and three without thinking, effort and the
            // thinking that no field asks for.
            ErrorClass::ToolUseMismatch => 1 + 8 + 3,
            // Seven more with smaller caps, and two without what was added.
            ErrorClass::InvalidRequest => 1 + 8 + 3 + 7 + 2,
            // The request, and two without what was added.
            ErrorClass::ContentFiltered => 1 + 2,
            ErrorClass::Aborted
            | ErrorClass::Repeated529
            | ErrorClass::Refusal
            | ErrorClass::EmptyResponse
            | ErrorClass::QuotaExhausted
            | ErrorClass::Unknown => 1,
        };
        assert_eq!(most, Some(bound), "{class}");
    }
}

/// The number of requests of a run in which every call fails.
fn fail_for_ever(seed: u64, rules: &Limits, fail: impl Fn(u64) -> Failure) -> usize {
    let (mut run, mut at, mut dice) = (Run::new(seed, rules), Moment::default(), seed);
    let (mut attempts, mut event) = (0, Event::Begin);
    for _ in 0..1_000 {
        let Ok(transition) = run.step(at, event, rules) else { panic!("seed {seed}") };
        run = transition.next;
        event = match run.phase {
            Phase::Estimating(_) => Event::Estimated(FREE),
            Phase::Pausing { until, .. } => {
                at = until;
                Event::WaitEnded
            }
            Phase::Calling(call) => {
                attempts += usize::from(matches!(call, Call::Ask(_)));
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                Event::Failed(fail(dice >> 33))
            }
            Phase::Stopped(_) => return attempts,
            Phase::Ready
            | Phase::Working
            | Phase::RunningStopHooks
            | Phase::RunningRequirement
            | Phase::Probing { .. }
            | Phase::Awaiting { .. } => {
                panic!("seed {seed}: {run:?}")
            }
        };
    }
    panic!("seed {seed} is still at it: {run:?}")
}

fn any_failure(dice: u64) -> Failure {
    let classes = [
        ErrorClass::RateLimit,
        ErrorClass::ServerOverload,
        ErrorClass::ServerError,
        ErrorClass::ConnectionError,
        ErrorClass::InvalidApiKey,
        ErrorClass::ApiTimeout,
        ErrorClass::InvalidRequest,
        ErrorClass::ToolUseMismatch,
        ErrorClass::ImageTooLarge,
        ErrorClass::PromptTooLong,
    ];
    let class = classes[usize::try_from(dice % 10).expect("below ten")];
    let asked = if dice & 8 == 0 {
        failure(class)
    } else {
        failure_with_retry_after(class, secs(dice % 600 + 1))
    };
    let ruling = (failure(class) == asked || dice & 16 == 0).then_some(RetryHint::Retry);
    Failure { retry_hint: ruling, mitigations: ANYTHING, ..asked }
}
