//! The recovery table: the plans for each failure, in the order in which they are tried.

use std::time::Duration;

use super::{
    AccountKind, AvailableMitigations, Call, CallPurpose, CompactionTrigger, ErrorClass, Failure,
    FailureStage, Fast, Incomplete, Limits, Moment, Persistence, Phase, QuerySource, RecoveryCause,
    RecoveryPlan, RetryHint, Run, StopReason,
};
use crate::types::FailureOrigin;

/// Picks the first plan that can be paid for.
///
/// `run` has already counted this failure. Every list of plans ends with an end of the run.
pub fn plan(cause: RecoveryCause, run: &Run, at: Moment, limits: &Limits) -> RecoveryPlan {
    use RecoveryPlan as P;

    let (plans, end): (&[P], StopReason) = match cause {
        RecoveryCause::Failed(failure) => return plan_for_failure(failure, run, at, limits),
        RecoveryCause::CutShort(_) if run.may_escalate => {
            (&[P::Escalate, P::Continue], StopReason::MaxOutputTokens)
        }
        RecoveryCause::CutShort(_) => (&[P::Continue], StopReason::MaxOutputTokens),
        RecoveryCause::Empty if run.preferred.fallback_from.is_some() => {
            (&[P::SwitchModel, P::AskAgain], StopReason::EmptyResponse)
        }
        RecoveryCause::Empty => (&[P::AskAgain], StopReason::EmptyResponse),
        RecoveryCause::Incomplete(why) => {
            (plans_for_incomplete(why, run, limits), StopReason::ModelError(why.class()))
        }
        RecoveryCause::Paused => (&[P::Resume], StopReason::ModelError(ErrorClass::BadResponse)),
        RecoveryCause::LeftOpen if has_room_for_effort(run, at, limits) => {
            (&[P::Remind], StopReason::Completed)
        }
        RecoveryCause::LeftOpen => (&[], StopReason::Completed),
        RecoveryCause::Idle if has_room_for_effort(run, at, limits) => {
            (&[P::Nudge], StopReason::Completed)
        }
        RecoveryCause::Idle => (&[], StopReason::Completed),
        RecoveryCause::Crowded => (&[P::Compact], StopReason::PromptTooLong),
        RecoveryCause::Full(mitigations) => return plan_for_full_window(mitigations, run),
        RecoveryCause::NoSummary(CompactionTrigger::Threshold) => {
            (&[P::SkipCompaction], StopReason::PromptTooLong)
        }
        RecoveryCause::NoSummary(CompactionTrigger::Overflow) => (&[], StopReason::PromptTooLong),
        RecoveryCause::UnusableSummary => {
            (&[P::AskAgain, P::SwitchModel, P::CompactUnsummarised], StopReason::PromptTooLong)
        }
        RecoveryCause::Unstructured => {
            (&[P::Restructure], StopReason::StructuredOutputRetryExhausted)
        }
        RecoveryCause::Unmet => (&[P::RetryRequirement], StopReason::RequirementFailed),
        RecoveryCause::Objected => (&[P::RetryStopHook], StopReason::StopHookBlocked),
        RecoveryCause::Unreported => (&[P::Report], StopReason::BackgroundPending),
        RecoveryCause::PreferredModelDue => {
            (&[P::ReturnToPreferredModel], StopReason::InternalError)
        }
        // Without a budget for early returns, a probe's answer would be useless.
        RecoveryCause::ProbeDue if run.budgets.early_returns > 0 => {
            (&[P::Probe, P::WaitForCapacity], StopReason::InternalError)
        }
        RecoveryCause::ProbeDue => (&[P::WaitForCapacity], StopReason::InternalError),
        RecoveryCause::CapacityBack => {
            (&[P::ReturnEarly, P::WaitForCapacity], StopReason::InternalError)
        }
    };
    // A content filter of the service would stop a reply of the preferred model, too.
    let is_unusable_reply = matches!(cause, RecoveryCause::Empty | RecoveryCause::Incomplete(_))
        && cause != RecoveryCause::Incomplete(Incomplete::Filtered);
    let preferred = (is_unusable_reply && may_retry_preferred_model(run, at, limits))
        .then_some(P::RetryPreferredModel);
    let mut plans = plans.iter().copied().chain(preferred);
    plans.find(|&plan| can_pay(run, plan)).unwrap_or(P::Stop(end))
}

fn plan_for_full_window(mitigations: AvailableMitigations, run: &Run) -> RecoveryPlan {
    let fold = mitigations.folds.then_some(RecoveryPlan::CommitFolds);
    let compact = mitigations.rounds.then_some(RecoveryPlan::CompactReactively);
    let mut plans = [fold, compact].into_iter().flatten();
    plans.find(|&plan| can_pay(run, plan)).unwrap_or(RecoveryPlan::Stop(StopReason::PromptTooLong))
}

fn plans_for_incomplete(why: Incomplete, run: &Run, limits: &Limits) -> &'static [RecoveryPlan] {
    use RecoveryPlan as P;
    if why == Incomplete::CallInText {
        // The model gets the notice once.
        let is_first = run.budgets.completions >= limits.budgets.completions;
        if is_first { &[P::RequestCompletion] } else { &[] }
    } else if run.preferred.fallback_from.is_some() {
        &[P::SwitchModel, P::RetryIncomplete, P::RequestCompletion]
    } else {
        &[P::RetryIncomplete, P::RequestCompletion]
    }
}

fn can_pay(run: &Run, plan: RecoveryPlan) -> bool {
    run.pay(plan).is_some()
}

/// True if the model may be nudged to more effort. A finished answer is not put at risk if the
/// model is about to be asked to wrap up, or gave its last reply.
fn has_room_for_effort(run: &Run, at: Moment, limits: &Limits) -> bool {
    let is_late = limits.deadline.is_some_and(|deadline| at >= deadline);
    // The reply to a nudge may be a call for another output that does not match.
    let may_fail = limits.structured && run.budgets.schema_tries == 0;
    !is_late
        && !may_fail
        && !run.should_wrap_up(at, limits)
        && run.budgets.turns.is_none_or(|left| left > 1)
}

fn plan_for_failure(failure: Failure, run: &Run, at: Moment, limits: &Limits) -> RecoveryPlan {
    let distance = distance(failure, at, limits);
    let payable = |&plan: &RecoveryPlan| {
        can_pay(run, plan) && !(plan.info().repeats && failure.retry_hint == Some(RetryHint::Stop))
    };
    let is_shortage = matches!(failure.class, ErrorClass::RateLimit | ErrorClass::ServerOverload);
    // Normal speed may have the capacity that fast mode lacks.
    let slower = is_shortage.then(|| plan_normal_speed(failure, distance, run, limits)).flatten();
    let back = switch_back(failure, run);
    let preferred = retry_preferred_model(failure, run, at, limits).filter(payable);
    let again =
        retry_implausible_overflow(failure, distance).or(resume_streaming(failure, run, distance));
    if let Some(plan) = slower.or(back).or(again).filter(payable) {
        return plan;
    }
    if is_shortage && distance != RetryDistance::Near {
        let end = StopReason::ModelError(ErrorClass::QuotaExhausted);
        let switch = switch(failure.class, run, limits).filter(payable);
        return switch.or(preferred).unwrap_or(RecoveryPlan::Stop(end));
    }
    let plans = plans_for_class(failure, run, limits).into_iter().flatten();
    let plans = with_odd_retry(plans.collect(), failure, run, limits).into_iter();
    let plans = plans.chain(omit_added_content(failure)).filter(payable);
    // Plans that ask the same model, or refresh a key for it, respect its retry-after.
    let may_wait = |plan: &RecoveryPlan| *plan != RecoveryPlan::SwitchModel;
    let waits_only = plans.clone().any(|plan| may_wait(&plan));
    let reachable = |plan: &RecoveryPlan| distance == RetryDistance::Near || !may_wait(plan);
    let end = match distance {
        RetryDistance::PastDeadline if waits_only => StopReason::Deadline,
        RetryDistance::PastDeadline | RetryDistance::Near | RetryDistance::TooFar => {
            stop_reason(failure, run)
        }
    };
    plans.into_iter().find(reachable).or(preferred).unwrap_or(RecoveryPlan::Stop(end))
}

/// Plans normal speed instead of fast mode, unless the wait is so short that the prompt cache
/// outlives it. Does not apply to a credential refresh, which has no speed.
fn plan_normal_speed(
    failure: Failure,
    distance: RetryDistance,
    run: &Run,
    limits: &Limits,
) -> Option<RecoveryPlan> {
    let rules = limits.fast.filter(|_| run.fast == Fast::On && !is_refreshing(run))?;
    if failure.fast_denied {
        return Some(RecoveryPlan::DisableFastMode);
    }
    let is_brief = failure.retry_after.is_some_and(|retry_after| retry_after.wait < rules.patience);
    if is_brief && distance == RetryDistance::Near {
        None
    } else if can_pay(run, RecoveryPlan::CoolDown) {
        Some(RecoveryPlan::CoolDown)
    } else {
        Some(RecoveryPlan::DisableFastMode)
    }
}

/// Switches back at once when the preferred model, which was only tried again, still fails.
fn switch_back(failure: Failure, run: &Run) -> Option<RecoveryPlan> {
    (run.preferred.fallback_from.is_some() && !failure.is_request_failure())
        .then_some(RecoveryPlan::SwitchModel)
}

/// Repeats a small request that was refused as too long or too large, before anything is removed
/// from it: some gateways report this for requests that they lost, or count the tokens of another
/// request.
fn retry_implausible_overflow(failure: Failure, distance: RetryDistance) -> Option<RecoveryPlan> {
    let too_long = failure.is_overflow() && failure.contradicted;
    let is_doubtful = too_long && failure.retry_hint.is_none();
    (is_doubtful && distance == RetryDistance::Near).then_some(RecoveryPlan::RetryOverflow)
}

/// Repeats with streaming a request that was refused as invalid without it, before anything is
/// removed from it. Streaming was accepted before; streams broke.
fn resume_streaming(failure: Failure, run: &Run, distance: RetryDistance) -> Option<RecoveryPlan> {
    let is_without = run.streaming.unstreamed_turns > 0 && !run.streaming.is_refused;
    let is_refused = failure.class == ErrorClass::InvalidRequest && !is_refreshing(run);
    (is_without && is_refused && distance == RetryDistance::Near)
        .then_some(RecoveryPlan::ResumeStreaming)
}

/// The plans for each class, best first.
fn plans_for_class(failure: Failure, run: &Run, limits: &Limits) -> [Option<RecoveryPlan>; 4] {
    use ErrorClass as C;
    use RecoveryPlan as P;

    let wait = Some(P::WaitForCapacity);
    let retry = Some(P::Retry { tokens: price_of_retry(failure.class, run, limits) });
    let counted_unless = |persistent: bool| if persistent { wait } else { retry };
    let for_all = counted_unless(limits.persistence == Persistence::All);
    let for_capacity = counted_unless(limits.persistence != Persistence::Off);
    let wait_out = if exceeds_overload_limit(run, limits) { None } else { for_capacity };
    // The server's retry hint overrides the class, but not the account kind or the query source:
    // its `true` also comes with limits that last for hours, and to many clients at once.
    let if_retry_requested =
        if failure.retry_hint == Some(RetryHint::Retry) { retry } else { None };
    let switch = switch(failure.class, run, limits);
    let refresh = if is_refreshing(run) { None } else { Some(P::Refresh) };
    if failure.is_request_failure()
        && let Some(trigger) = summarising(run)
    {
        return plans_for_summary(failure, trigger);
    }
    let lower = failure.mitigations.output.then_some(P::LowerCap);
    let fold = failure.mitigations.folds.then_some(P::CommitFolds);
    let compact = failure.mitigations.rounds.then_some(P::CompactReactively);
    let strip = failure.mitigations.media.then_some(P::Strip);
    let repair = failure.mitigations.block.then_some(P::RepairBlock);
    let drop_thinking = failure.mitigations.thinking.then_some(P::DropThinking);
    let drop_marks = failure.mitigations.cache_marks.then_some(P::DropCacheMarks);
    let drop_streaming = failure.mitigations.streaming.then_some(P::DropStreaming);
    // A filter in front of the service may refuse only this summary, which may be able to wait.
    let [sooner, later] = match summarising(run).map(|trigger| (trigger, without_summary(trigger)))
    {
        None => [switch, None],
        Some((CompactionTrigger::Threshold, without)) => [Some(without), switch],
        Some((CompactionTrigger::Overflow, without)) => [switch, Some(without)],
    };
    match failure.class {
        C::ConnectionError => [retry_stale_connection(failure), for_all, switch, None],
        C::ApiTimeout | C::StreamStalled => [for_all, switch, None, None],
        C::ServerError => [for_all, switch, None, None],
        C::BadResponse => [retry, switch, None, None],
        C::RateLimit => match (limits.account, limits.persistence) {
            (AccountKind::Subscription, Persistence::Off) => [switch, None, None, None],
            (AccountKind::Subscription, Persistence::Capacity | Persistence::All)
            | (AccountKind::ApiKey | AccountKind::Enterprise, _) => {
                [for_capacity, switch, None, None]
            }
        },
        C::ServerOverload => match limits.source {
            QuerySource::Background => [None; 4],
            QuerySource::Foreground if run.attempts.overloads >= limits.overloads_per_switch => {
                [switch, wait_out, None, None]
            }
            QuerySource::Foreground => [wait_out, switch, None, None],
        },
        C::InvalidModel => [if_retry_requested, sooner, later, None],
        C::InvalidApiKey | C::TokenRevoked => [refresh, if_retry_requested, switch, None],
        C::AuthError => [drop_marks, if_retry_requested, sooner, later],
        C::CreditBalanceLow | C::SslCertError => [switch, None, None, None],
        C::PromptTooLong => [lower, fold, compact, if_retry_requested],
        C::RequestTooLarge => [strip, fold, compact, if_retry_requested],
        // Services name one oversized document at a time: the others are removed as blocks.
        C::PdfTooLarge | C::ImageTooLarge => [strip, strip.and(repair), if_retry_requested, None],
        C::ToolUseMismatch => [repair, drop_thinking, if_retry_requested, None],
        C::InvalidRequest => {
            let drop_field = drop_thinking.or(drop_streaming);
            [repair, lower.or(drop_marks), drop_field, if_retry_requested]
        }
        C::Unknown => [if_retry_requested, None, None, None],
        // Classes made by outlast, not by a server.
        C::Aborted
        | C::Refusal
        | C::ContentFiltered
        | C::EmptyResponse
        | C::Repeated529
        | C::QuotaExhausted => [None; 4],
    }
}

/// Adds one more attempt where an endpoint refuses in an odd way: after plans that repair the
/// request or the credential, and before a model switch or the loss of older messages. A doubtful
/// refusal by the API itself is retried once; the refusal of a credential only if no other
/// credential was fetched meanwhile, and that of access only for a reply: a filter may refuse the
/// content of a summary.
fn with_odd_retry(
    mut plans: Vec<RecoveryPlan>,
    failure: Failure,
    run: &Run,
    limits: &Limits,
) -> Vec<RecoveryPlan> {
    let is_first = run.budgets.odd_refusals >= limits.budgets.odd_refusals;
    let is_same_credential = limits.budgets.refreshes == 0 || is_refreshing(run);
    let rejects_credential = failure.is_doubtful_rejection();
    let refuses_request = failure.is_doubtful_refusal() && !rejects_credential;
    let denies_access = failure.is_doubtful_access() && summarising(run).is_none();
    let is_doubtful =
        refuses_request || denies_access || (rejects_credential && is_same_credential);
    let is_odd = failure.is_odd_refusal() || (is_doubtful && is_first);
    if is_odd && failure.retry_hint.is_none() {
        let is_last_resort = |plan: &RecoveryPlan| {
            matches!(plan, RecoveryPlan::SwitchModel | RecoveryPlan::CompactUnsummarised)
        };
        let place = plans.iter().position(is_last_resort).unwrap_or(plans.len());
        plans.insert(place, RecoveryPlan::RetryOddRefusal);
    }
    plans
}

/// Omits content that was added since the last answer, where a request is refused by a content
/// filter, or as invalid for no recognised reason. This is the last plan, since the content may not
/// be the cause.
fn omit_added_content(failure: Failure) -> Option<RecoveryPlan> {
    let may_be_of_content =
        matches!(failure.class, ErrorClass::InvalidRequest | ErrorClass::ContentFiltered);
    (may_be_of_content && failure.mitigations.added).then_some(RecoveryPlan::OmitAdded)
}

/// Retries at once after a kept-alive connection died before any byte of the answer: the service
/// need not be the cause.
fn retry_stale_connection(failure: Failure) -> Option<RecoveryPlan> {
    let stale = failure.stage == FailureStage::StaleConnection;
    stale.then_some(RecoveryPlan::RetryAtOnce { tokens: retry_cost(failure.class) })
}

/// Plans for a refused summarising request: a smaller one, or none.
fn plans_for_summary(failure: Failure, trigger: CompactionTrigger) -> [Option<RecoveryPlan>; 4] {
    let offered = &failure.mitigations;
    let is_invalid = failure.class == ErrorClass::InvalidRequest;
    let lower = offered.output && (is_invalid || failure.class == ErrorClass::PromptTooLong);
    let drop_field = [
        (offered.cache_marks, RecoveryPlan::DropCacheMarks),
        (offered.thinking, RecoveryPlan::DropThinking),
        (offered.streaming, RecoveryPlan::DropStreaming),
    ];
    let drop_field = drop_field.into_iter().find(|(is_offered, _)| is_invalid && *is_offered);
    let trim = failure.is_overflow() && offered.rounds;
    [
        lower.then_some(RecoveryPlan::LowerCap),
        drop_field.map(|(_, plan)| plan),
        trim.then_some(RecoveryPlan::Trim),
        Some(without_summary(trigger)),
    ]
}

/// The plan to go on without a summary: it can wait, or the older part is removed without it.
fn without_summary(trigger: CompactionTrigger) -> RecoveryPlan {
    match trigger {
        CompactionTrigger::Threshold => RecoveryPlan::SkipCompaction,
        CompactionTrigger::Overflow => RecoveryPlan::CompactUnsummarised,
    }
}

/// Plans a switch to the next model, if there is one and it may help.
fn switch(class: ErrorClass, run: &Run, limits: &Limits) -> Option<RecoveryPlan> {
    let next = run.model_index < limits.budgets.switches;
    let moves = limits.next_has_other_endpoint(run.model_index);
    (next && another_model_helps(class, moves, run)).then_some(RecoveryPlan::SwitchModel)
}

/// Plans one more call to the preferred model before a fallback model ends the run: it may have
/// recovered meanwhile. Never before the retry-after with which the run left it.
fn retry_preferred_model(
    failure: Failure,
    run: &Run,
    at: Moment,
    limits: &Limits,
) -> Option<RecoveryPlan> {
    let moves = !limits.share_endpoint(0, run.model_index);
    let in_background =
        limits.source == QuerySource::Background && failure.class == ErrorClass::ServerOverload;
    // The fallback model may have a smaller window, or refuse a field that the preferred one takes.
    let is_of_model = failure.is_request_failure();
    // A gateway may route the preferred model to another service, and has answered for it before.
    let is_of_connection =
        failure.class.info().origin == FailureOrigin::Connection && !is_refreshing(run);
    let helps = is_of_model || is_of_connection || another_model_helps(failure.class, moves, run);
    (helps && !in_background && may_retry_preferred_model(run, at, limits))
        .then_some(RecoveryPlan::RetryPreferredModel)
}

/// True if a fallback model is in use, and the preferred one may be asked again in time.
fn may_retry_preferred_model(run: &Run, at: Moment, limits: &Limits) -> bool {
    let Some(earliest) = run.preferred.retry_at.filter(|_| run.model_index > 0) else {
        return false;
    };
    let until = earliest.max(at.after(limits.backoff.pause(run.seed, 1)));
    at.until(until) <= limits.max_retry_wait
        && limits.deadline.is_none_or(|deadline| until < deadline)
}

/// True if another model may help, which is at another endpoint if it `moves`. While a credential
/// is being fetched, a model at the same endpoint does not help.
fn another_model_helps(class: ErrorClass, moves: bool, run: &Run) -> bool {
    match class.info().origin {
        // Another model may accept the same credential.
        FailureOrigin::Service | FailureOrigin::Access => moves || !is_refreshing(run),
        FailureOrigin::Connection | FailureOrigin::Certificate | FailureOrigin::Credential => moves,
        FailureOrigin::Request | FailureOrigin::Model | FailureOrigin::Run => false,
    }
}

fn is_refreshing(run: &Run) -> bool {
    matches!(run.phase, Phase::Calling(Call::Refresh(_)))
}

/// The trigger of the summary that the current call requests. `None` if it requests none.
fn summarising(run: &Run) -> Option<CompactionTrigger> {
    let Phase::Calling(call) = run.phase else { return None };
    match call.purpose() {
        CallPurpose::Summary(trigger) => Some(trigger),
        CallPurpose::Reply => None,
    }
}

/// True if the run may not wait out further overloads. Persistent mode does not count them.
fn exceeds_overload_limit(run: &Run, limits: &Limits) -> bool {
    limits.persistence == Persistence::Off
        && limits.overload_limit.is_some_and(|limit| run.attempts.overloads >= limit)
}

/// The retry cost, in bucket tokens: a timeout has already cost more than most failures.
pub(super) fn retry_cost(class: ErrorClass) -> u16 {
    if matches!(class, ErrorClass::ApiTimeout | ErrorClass::StreamStalled) { 10 } else { 5 }
}

/// The price of a retry, in bucket tokens. An empty bucket forbids a retry; in persistent mode it
/// lengthens the wait instead.
fn price_of_retry(class: ErrorClass, run: &Run, limits: &Limits) -> u16 {
    let cost = retry_cost(class);
    let empty = run.budgets.bucket < cost;
    if empty && limits.persistence != Persistence::Off { 0 } else { cost }
}

/// The distance of the server's retry-after from now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDistance {
    /// Within the allowed wait.
    Near,
    /// Within the allowed wait, but past the deadline of the run.
    PastDeadline,
    /// Beyond the allowed wait.
    TooFar,
}

pub(super) fn distance(failure: Failure, at: Moment, limits: &Limits) -> RetryDistance {
    let wait = failure.retry_after.map_or(Duration::ZERO, |retry_after| retry_after.wait);
    if wait > limits.max_retry_wait {
        RetryDistance::TooFar
    } else if !wait.is_zero() && limits.deadline.is_some_and(|end| at.after(wait) >= end) {
        RetryDistance::PastDeadline
    } else {
        RetryDistance::Near
    }
}

/// The stop reason for a failure. Repeated overloads have a class of their own.
fn stop_reason(failure: Failure, run: &Run) -> StopReason {
    if failure.class == ErrorClass::ServerOverload && run.attempts.overloads > 1 {
        return StopReason::ModelError(ErrorClass::Repeated529);
    }
    if failure.is_request_failure() && summarising(run).is_some() {
        return StopReason::PromptTooLong;
    }
    StopReason::from_class(failure.class)
}
