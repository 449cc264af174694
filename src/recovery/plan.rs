//! The recovery table: which setback earns which cure, in the order they are tried.

use serde::{Deserialize, Serialize};

use super::{
    Account, Budget, ErrorClass, Failure, Limits, Moment, Persistence, Reach, Ruling, Run, Source,
    StopReason,
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
    /// Send the same request again after a pause.
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

/// What a retry takes from the bucket (SPEC 4): a timeout has already cost more than most.
pub(super) const TRANSIENT: u16 = 5;
const TIMEOUT: u16 = 10;

/// Picks the first cure that can be paid for.
///
/// `run` has already counted this setback. The end of every list is an end of the run.
pub fn plan(setback: Setback, run: &Run, at: Moment, limits: &Limits) -> RecoveryPlan {
    use RecoveryPlan as P;

    let affordable = |cure: &P| cure.price().is_none_or(|price| run.budgets.spend(price).is_some());
    let (cures, end): (&[P], StopReason) = match setback {
        Setback::Failed(failure) => return cure(failure, run, at, limits),
        Setback::CutShort => (&[P::Escalate, P::Continue], StopReason::MaxOutputTokens),
        Setback::Empty => (&[P::AskAgain], StopReason::EmptyResponse),
        Setback::Paused => (&[P::Resume], StopReason::ModelError(ErrorClass::BadResponse)),
        Setback::Idle => (&[P::Nudge], StopReason::Completed),
    };
    cures.iter().copied().find(affordable).unwrap_or(P::Stop(end))
}

fn cure(failure: Failure, run: &Run, at: Moment, limits: &Limits) -> RecoveryPlan {
    let too_far = asks_too_much(failure, at, limits);
    cures(failure, run, limits)
        .into_iter()
        .flatten()
        .filter(|cure| match cure {
            RecoveryPlan::RetryAtOnce { .. }
            | RecoveryPlan::Retry { .. }
            | RecoveryPlan::WaitForCapacity => !too_far && failure.ruling != Some(Ruling::Stop),
            RecoveryPlan::SwitchModel
            | RecoveryPlan::Refresh
            | RecoveryPlan::Escalate
            | RecoveryPlan::Continue
            | RecoveryPlan::AskAgain
            | RecoveryPlan::Resume
            | RecoveryPlan::Nudge
            | RecoveryPlan::Stop(_) => true,
        })
        .find(|cure| cure.price().is_none_or(|price| run.budgets.spend(price).is_some()))
        .unwrap_or(RecoveryPlan::Stop(verdict(failure, run, limits, too_far)))
}

/// The cures for each class, best first.
fn cures(failure: Failure, run: &Run, limits: &Limits) -> [Option<RecoveryPlan>; 3] {
    use ErrorClass as C;
    use RecoveryPlan as P;

    let all = limits.persistence == Persistence::All;
    let capacity = limits.persistence != Persistence::Off;
    let retry = Some(P::Retry { tokens: TRANSIENT });
    let slow_retry = Some(P::Retry { tokens: TIMEOUT });
    let wait = Some(P::WaitForCapacity);
    match failure.class {
        C::ConnectionError if failure.reach == Reach::StaleConnection && run.failures == 1 => {
            [Some(P::RetryAtOnce { tokens: TRANSIENT }), if all { wait } else { retry }, None]
        }
        C::ConnectionError if all => [wait, None, None],
        C::ApiTimeout | C::StreamStalled if all => [wait, None, None],
        C::ServerError if all => [wait, None, None],
        C::ConnectionError | C::BadResponse => [retry, None, None],
        C::ApiTimeout | C::StreamStalled => [slow_retry, None, None],
        C::ServerError => [retry, Some(P::SwitchModel), None],
        C::RateLimit if capacity => [wait, None, None],
        C::RateLimit if limits.account == Account::Subscription => [None; 3],
        C::RateLimit => [retry, None, None],
        C::ServerOverload if limits.source == Source::Background => [None; 3],
        C::ServerOverload => overload(run, limits, if capacity { wait } else { retry }),
        C::InvalidModel => [Some(P::SwitchModel), None, None],
        C::InvalidApiKey | C::TokenRevoked | C::AuthError => [Some(P::Refresh), None, None],
        C::Aborted
        | C::SslCertError
        | C::Repeated529
        | C::PromptTooLong
        | C::RequestTooLarge
        | C::PdfTooLarge
        | C::ImageTooLarge
        | C::ToolUseMismatch
        | C::CreditBalanceLow
        | C::InvalidRequest
        | C::Refusal
        | C::EmptyResponse
        | C::QuotaExhausted
        | C::Unknown => match failure.ruling {
            Some(Ruling::Retry) => [retry, None, None],
            Some(Ruling::Stop) | None => [None; 3],
        },
    }
}

/// An overload changes the model when it has lasted long enough; otherwise it is sat out.
fn overload(
    run: &Run,
    limits: &Limits,
    sit_out: Option<RecoveryPlan>,
) -> [Option<RecoveryPlan>; 3] {
    let switch =
        (run.overloads >= limits.overloads_per_switch).then_some(RecoveryPlan::SwitchModel);
    let hopeless = limits.overload_limit.is_some_and(|limit| run.overloads >= limit);
    [switch, if hopeless { None } else { sit_out }, None]
}

/// Whether the server wants us away for longer than we may stay.
fn asks_too_much(failure: Failure, at: Moment, limits: &Limits) -> bool {
    failure.wish.is_some_and(|wish| {
        wish.wait > limits.max_retry_wait
            || limits.deadline.is_some_and(|deadline| at.after(wish.wait) >= deadline)
    })
}

/// What to call the end. Quota is not a blip, and neither is the tenth overload.
fn verdict(failure: Failure, run: &Run, limits: &Limits, too_far: bool) -> StopReason {
    match failure.class {
        ErrorClass::RateLimit | ErrorClass::ServerOverload if too_far => {
            StopReason::ModelError(ErrorClass::QuotaExhausted)
        }
        ErrorClass::ServerOverload if run.overloads >= limits.overloads_per_switch => {
            StopReason::ModelError(ErrorClass::Repeated529)
        }
        class => StopReason::from_class(class),
    }
}
