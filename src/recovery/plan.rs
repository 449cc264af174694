//! The recovery table: which setback earns which cure, in the order they are tried.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Account, Budget, Call, ErrorClass, Failure, Limits, Moment, Persistence, Phase, Reach, Ruling,
    Run, Source, StopReason,
};

/// Something that keeps a run from simply going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setback {
    /// A call failed.
    Failed(Failure),
    /// The reply hit the output limit.
    CutShort,
    /// The reply said nothing.
    Empty,
    /// The service paused a long turn and waits to be asked again.
    Paused,
    /// The model ended below the token budget.
    Idle,
}

/// What to do about a setback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryPlan {
    /// Send the same request again at once: only a kept-alive connection had died.
    RetryAtOnce { tokens: u16 },
    /// Send the same request again after a pause. It takes no tokens when the bucket is empty and
    /// the pause is as long as pauses get (persistent mode).
    Retry { tokens: u16 },
    /// Wait for room, at no cost but time.
    WaitForCapacity,
    /// Ask the next model of the chain.
    SwitchModel,
    /// Fetch a fresh credential, then ask again.
    Refresh,
    /// Drop the truncated reply and ask again with the larger output cap.
    Escalate,
    /// Keep the truncated reply and ask the model to go on.
    Continue,
    /// Drop the reply that said nothing and ask again after a pause.
    AskAgain,
    /// Keep the paused reply and ask again.
    Resume,
    /// Ask the model to put more effort in.
    Nudge,
    /// Nothing is left to try, or nothing needs to be.
    Stop(StopReason),
}

impl RecoveryPlan {
    /// What the plan costs. `None` for a wait and an end: the only two that are free.
    pub fn price(self) -> Option<Budget> {
        match self {
            Self::RetryAtOnce { tokens } | Self::Retry { tokens } => Some(Budget::Retry { tokens }),
            Self::SwitchModel => Some(Budget::Switch),
            Self::Refresh => Some(Budget::Refresh),
            Self::Escalate => Some(Budget::Escalation),
            Self::Continue => Some(Budget::Continuation),
            Self::AskAgain => Some(Budget::EmptyReply),
            Self::Resume => Some(Budget::Resumption),
            Self::Nudge => Some(Budget::Nudge),
            Self::WaitForCapacity | Self::Stop(_) => None,
        }
    }

    /// The name used in events and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RetryAtOnce { .. } => "retry_at_once",
            Self::Retry { .. } => "retry",
            Self::WaitForCapacity => "wait_for_capacity",
            Self::SwitchModel => "model_fallback",
            Self::Refresh => "refresh_credentials",
            Self::Escalate => "max_output_tokens_escalate",
            Self::Continue => "max_output_tokens_recovery",
            Self::AskAgain => "retry_empty_reply",
            Self::Resume => "resume_paused_turn",
            Self::Nudge => "budget_continuation",
            Self::Stop(_) => "stop",
        }
    }
}

impl RecoveryPlan {
    /// Whether it sends the same request to the same model again.
    fn repeats(self) -> bool {
        match self {
            Self::RetryAtOnce { .. } | Self::Retry { .. } | Self::WaitForCapacity => true,
            Self::SwitchModel
            | Self::Refresh
            | Self::Escalate
            | Self::Continue
            | Self::AskAgain
            | Self::Resume
            | Self::Nudge
            | Self::Stop(_) => false,
        }
    }
}

/// Picks the first cure that can be paid for.
///
/// `run` has already counted this setback. The end of every list is an end of the run.
pub fn plan(setback: Setback, run: &Run, at: Moment, limits: &Limits) -> RecoveryPlan {
    use RecoveryPlan as P;

    let (cures, end): (&[P], StopReason) = match setback {
        Setback::Failed(failure) => return cure(failure, run, at, limits),
        Setback::CutShort if run.may_escalate => {
            (&[P::Escalate, P::Continue], StopReason::MaxOutputTokens)
        }
        Setback::CutShort => (&[P::Continue], StopReason::MaxOutputTokens),
        Setback::Empty => (&[P::AskAgain], StopReason::EmptyResponse),
        Setback::Paused => (&[P::Resume], StopReason::ModelError(ErrorClass::BadResponse)),
        Setback::Idle if has_room_for_effort(run, at, limits) => {
            (&[P::Nudge], StopReason::Completed)
        }
        Setback::Idle => (&[], StopReason::Completed),
    };
    let affordable = cures.iter().copied().find(|&cure| can_pay(run, cure));
    affordable.unwrap_or(P::Stop(end))
}

fn can_pay(run: &Run, cure: RecoveryPlan) -> bool {
    cure.price().is_none_or(|price| run.budgets.spend(price).is_some())
}

/// A finished answer is not put at risk for more effort: whoever is about to be told to wrap up,
/// or that this was the last reply, is done.
fn has_room_for_effort(run: &Run, at: Moment, limits: &Limits) -> bool {
    let late = limits.deadline.is_some_and(|deadline| at >= deadline);
    !late && !run.should_wrap_up(at, limits) && run.budgets.turns.is_none_or(|left| left > 1)
}

fn cure(failure: Failure, run: &Run, at: Moment, limits: &Limits) -> RecoveryPlan {
    let distance = distance(failure, at, limits);
    let quota = matches!(failure.class, ErrorClass::RateLimit | ErrorClass::ServerOverload);
    if quota && distance != Distance::Near {
        return RecoveryPlan::Stop(StopReason::ModelError(ErrorClass::QuotaExhausted));
    }
    let payable = |&cure: &RecoveryPlan| {
        can_pay(run, cure) && !(cure.repeats() && failure.ruling == Some(Ruling::Stop))
    };
    let cures = cures(failure, run, limits).into_iter().flatten().filter(payable);
    let may_wait = |cure: &RecoveryPlan| cure.repeats() || *cure == RecoveryPlan::Refresh;
    let waits_only = cures.clone().any(|cure| may_wait(&cure));
    let reachable = |cure: &RecoveryPlan| distance == Distance::Near || !may_wait(cure);
    let end = match distance {
        Distance::PastDeadline if waits_only => StopReason::Deadline,
        Distance::PastDeadline | Distance::Near | Distance::TooFar => verdict(failure, run),
    };
    cures.into_iter().find(reachable).unwrap_or(RecoveryPlan::Stop(end))
}

/// The cures for each class, best first.
fn cures(failure: Failure, run: &Run, limits: &Limits) -> [Option<RecoveryPlan>; 3] {
    use ErrorClass as C;
    use RecoveryPlan as P;

    let wait = Some(P::WaitForCapacity);
    let retry = Some(P::Retry { tokens: price_of_retry(failure.class, run, limits) });
    let counted_unless = |persistent: bool| if persistent { wait } else { retry };
    let for_all = counted_unless(limits.persistence == Persistence::All);
    let for_capacity = counted_unless(limits.persistence != Persistence::Off);
    // The server's word overrides the class, but not who pays or who asks: its `true` comes with
    // limits that last for hours, and to crowds.
    let if_told_to = if failure.ruling == Some(Ruling::Retry) { retry } else { None };
    // Another model mends nothing while a credential is being fetched.
    let asking = run.phase != Phase::Calling(Call::Credentials);
    let switch = if asking { Some(P::SwitchModel) } else { None };
    let refresh = if asking { Some(P::Refresh) } else { None };
    match failure.class {
        C::ConnectionError if failure.reach == Reach::StaleConnection => {
            [Some(P::RetryAtOnce { tokens: toll(failure.class) }), for_all, None]
        }
        C::ConnectionError | C::ApiTimeout | C::StreamStalled => [for_all, None, None],
        C::ServerError => [for_all, switch, None],
        C::BadResponse => [retry, None, None],
        C::RateLimit => match (limits.account, limits.persistence) {
            (Account::Subscription, Persistence::Off) => [None; 3],
            (Account::Subscription, Persistence::Capacity | Persistence::All)
            | (Account::ApiKey | Account::Enterprise, _) => [for_capacity, None, None],
        },
        C::ServerOverload => match limits.source {
            Source::Background => [None; 3],
            Source::Foreground if run.overloads >= limits.overloads_per_switch => {
                [switch, within_overload_limit(run, limits).and(for_capacity), None]
            }
            Source::Foreground => {
                [within_overload_limit(run, limits).and(for_capacity), switch, None]
            }
        },
        C::InvalidModel => [if_told_to, switch, None],
        C::InvalidApiKey | C::TokenRevoked => [refresh, if_told_to, None],
        C::SslCertError
        | C::PromptTooLong
        | C::RequestTooLarge
        | C::PdfTooLarge
        | C::ImageTooLarge
        | C::ToolUseMismatch
        | C::AuthError
        | C::InvalidRequest
        | C::Unknown => [if_told_to, None, None],
        // Told by us, not by a server; or, for credit, final whatever the server says.
        C::Aborted
        | C::CreditBalanceLow
        | C::Refusal
        | C::EmptyResponse
        | C::Repeated529
        | C::QuotaExhausted => [None; 3],
    }
}

/// `Some` while the run may still sit overloads out. Those who wait without a count do not count
/// these either.
fn within_overload_limit(run: &Run, limits: &Limits) -> Option<()> {
    let given_up = limits.persistence == Persistence::Off
        && limits.overload_limit.is_some_and(|limit| run.overloads >= limit);
    if given_up { None } else { Some(()) }
}

/// What a retry takes from the bucket (SPEC 4): a timeout has already cost more than most.
pub(super) fn toll(class: ErrorClass) -> u16 {
    if matches!(class, ErrorClass::ApiTimeout | ErrorClass::StreamStalled) { 10 } else { 5 }
}

/// An empty bucket forbids a retry; in persistent mode it lengthens the wait instead.
fn price_of_retry(class: ErrorClass, run: &Run, limits: &Limits) -> u16 {
    let toll = toll(class);
    let empty = run.budgets.bucket < toll;
    if empty && limits.persistence != Persistence::Off { 0 } else { toll }
}

/// How far away the moment is at which the server wants us back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distance {
    /// We may wait for it.
    Near,
    /// Within our patience, but not within the run.
    PastDeadline,
    /// Beyond our patience.
    TooFar,
}

fn distance(failure: Failure, at: Moment, limits: &Limits) -> Distance {
    let wait = failure.wish.map_or(Duration::ZERO, |wish| wish.wait);
    if wait > limits.max_retry_wait {
        Distance::TooFar
    } else if !wait.is_zero() && limits.deadline.is_some_and(|end| at.after(wait) >= end) {
        Distance::PastDeadline
    } else {
        Distance::Near
    }
}

/// What to call the end. A second overload in a row is no accident.
fn verdict(failure: Failure, run: &Run) -> StopReason {
    if failure.class == ErrorClass::ServerOverload && run.overloads > 1 {
        return StopReason::ModelError(ErrorClass::Repeated529);
    }
    StopReason::from_class(failure.class)
}
