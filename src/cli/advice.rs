//! Error messages for a failed run: what happened and what to do next, written for a CI log.

use std::fmt::Write as _;

use crate::agent::{RunCosts, RunOutcome};
use crate::journal::JournalHealth;
use crate::recovery::{
    ErrorClass, FailureStage, Fault, FaultKind, Interrupt, KEY_HELPER_FAILED, Money, RetryAfter,
    RetryHint, Shortfall, StopReason, TUNNEL_REFUSED, Timer,
};
use crate::text::shortened;

use super::awaited::awaited;
use super::timestamps::{self, WallTime, format_duration};

/// The maximum length of a quoted error, in characters.
const DETAIL_MAX: usize = 500;

/// Explains why a run failed, one line each; empty if the run succeeded. `session` is its id.
pub fn explain(outcome: &RunOutcome, now: &WallTime, session: &str) -> Vec<String> {
    let Some((what, advice)) = describe(outcome) else { return Vec::new() };
    let mut line = what + &attempts(outcome);
    if let Some(fault) = outcome.fault() {
        line.push_str(&fault_details(fault));
    }
    let retry_at = outcome.failure.as_ref().and_then(|failure| failure.retry_at);
    if let Some(at) = retry_at.and_then(timestamps::from_unix_seconds) {
        let _ = write!(line, ". It may work again at {}", now.local_and_relative(at));
    }
    if !advice.is_empty() {
        line.push_str(". ");
        line.push_str(advice);
    }
    if outcome.journal == JournalHealth::Durable {
        line.push_str(&session_command(outcome.reason, session));
    }
    let line: Vec<&str> = line.split_whitespace().collect();
    vec![line.join(" ")]
}

/// Names the command that shows the records that the advice refers to; empty if there are none.
fn session_command(reason: StopReason, session: &str) -> String {
    if reason == StopReason::Stalled {
        return format!(" The last steps: outlast sessions show {session} --last 10");
    }
    if reason == StopReason::Refusal {
        return format!(" Its words: outlast sessions show {session} --last 1 --full");
    }
    if reason == StopReason::OutputFailed {
        return format!(" The answer: outlast sessions show {session} --last 1 --full");
    }
    let is_ours = StopReason::ModelError(ErrorClass::ToolUseMismatch);
    if reason == StopReason::InternalError || reason == is_ours {
        return format!(" The journal: outlast sessions export {session} --output FILE");
    }
    String::new()
}

/// Describes the number of attempts, and whether the server ruled out a retry. Empty after a single
/// attempt.
fn attempts(outcome: &RunOutcome) -> String {
    let StopReason::ModelError(class) = outcome.reason else { return String::new() };
    let mut lost = outcome.stats.recovery.records().filter(|one| one.lost_to.is_some());
    let call = lost.find(|one| one.failures.of(class.name()) > 0);
    let attempts = call.map_or(1, |call| call.attempts);
    let ruling = outcome.fault().and_then(|fault| fault.retry_hint);
    let mut details =
        if attempts > 1 { format!(", in {attempts} attempts") } else { String::new() };
    if outcome.met.quota_ended {
        details.push_str(", and the run's retry quota (retryQuota) allows no further retry");
    }
    if ruling == Some(RetryHint::Stop) {
        details.push_str(", and said that a retry does not help (x-should-retry: false)");
    }
    details
}

/// Describes the fault: HTTP status, the server's error message and the request id, as far as
/// known.
fn fault_details(fault: &Fault) -> String {
    let mut details = Vec::new();
    if let Some(status) = fault.status() {
        details.push(format!("HTTP {status}"));
    }
    let detail = fault.detail().trim();
    if !detail.is_empty() {
        details.push(if matches!(fault.kind, FaultKind::Refused { .. }) {
            format!("{:?}", shortened(detail, DETAIL_MAX, "..."))
        } else if let FaultKind::Timeout { timer } = fault.kind {
            format!("{detail}, see {}", timer_flag(timer))
        } else {
            shortened(detail, DETAIL_MAX, "...")
        });
    }
    if let Some(id) = &fault.request_id {
        details.push(format!("request id {id}"));
    }
    if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) }
}

/// Returns the flag that sets a timer.
fn timer_flag(timer: Timer) -> &'static str {
    match timer {
        Timer::Connect => "--connect-timeout",
        Timer::FirstByte => "--first-byte-timeout",
        Timer::StreamIdle => "--stream-idle-timeout",
        Timer::StreamProgress => "--stream-progress-timeout",
        Timer::Reply => "--reply-timeout",
        Timer::Whole => "--request-timeout",
    }
}

/// Returns the error class of the last failure, or of the stop reason.
pub(super) fn error_class(outcome: &RunOutcome) -> Option<ErrorClass> {
    outcome.reason.info().error_class.or(error_class_of_failure(outcome))
}

fn error_class_of_failure(outcome: &RunOutcome) -> Option<ErrorClass> {
    outcome.failure.as_ref().map(|failure| failure.class)
}

fn deadline_message(outcome: &RunOutcome) -> String {
    if let Some(unfinished) = &outcome.broken {
        return format!("time ran out before {unfinished}");
    }
    let retry_after = outcome.fault().and_then(|fault| fault.retry_after);
    match (outcome.hooks.cut.as_slice(), &outcome.late_wait) {
        // The run ended without that wait.
        ([], None) if let Some(RetryAfter { wait, .. }) = retry_after => {
            let wait = format_duration(wait);
            format!("the service asks for a wait of {wait}, which would end after the time limit")
        }
        ([], None) => "time ran out".to_owned(),
        ([], Some(wait)) => format!("time ran out while waiting for {}", awaited(wait)),
        (cut, _) => {
            format!("time ran out, and hooks were cut off with the run: {}", cut.join("; "))
        }
    }
}

fn describe(outcome: &RunOutcome) -> Option<(String, &'static str)> {
    let turns = outcome.stats.turns;
    let hint = outcome.reason.info().hint;
    let (what, advice) = match outcome.reason {
        StopReason::Completed => return None,
        StopReason::MaxTurns => {
            let replies =
                if turns == 1 { "1 reply".to_owned() } else { format!("{turns} replies") };
            (format!("the turn limit was reached after {replies}"), hint)
        }
        StopReason::MaxBudgetUsd => (budget(outcome), hint),
        StopReason::Deadline => {
            // The time was used up by the retries of a failing call, and not by the work.
            let cause = error_class(outcome).filter(|_| outcome.failure.is_some());
            (deadline_message(outcome), cause.map_or(hint, |class| call_advice(class, outcome).1))
        }
        StopReason::AbortedStreaming(by) => {
            let unfinished = outcome.broken.as_deref().unwrap_or("the next reply was complete");
            aborted(by, &format!("before {unfinished}"))
        }
        StopReason::AbortedTools(by) => aborted(by, "while tools were running"),
        StopReason::HookStopped => (by_hook("a hook stopped the run", outcome), hint),
        StopReason::ToolDeferred => (deferred(outcome), hint),
        StopReason::Denied => (denied(outcome), hint),
        StopReason::StopHookPrevented => (by_hook("a Stop hook ended the run", outcome), hint),
        StopReason::StopHookBlocked => {
            (by_hook("a Stop hook kept objecting to the end of the work", outcome), hint)
        }
        StopReason::BlockingLimit => (context_full(outcome), hint),
        StopReason::Stalled => {
            ("the model repeated the same steps with the same outcome".to_owned(), hint)
        }
        StopReason::BackgroundPending => super::acceptance::background_pending(outcome),
        StopReason::RequirementFailed => super::acceptance::requirement_failed(outcome),
        StopReason::StructuredOutputRetryExhausted => super::acceptance::schema_not_met(outcome),
        StopReason::MaxOutputTokens => {
            ("the reply did not fit the output limit, in several pieces either".to_owned(), hint)
        }
        StopReason::OutputFailed if outcome.journal != JournalHealth::Durable => {
            (output_failed(outcome), "Make room there, or name another file.")
        }
        StopReason::OutputFailed => (output_failed(outcome), hint),
        StopReason::RehearsalFailed => (outcome.broken.clone().unwrap_or_default(), hint),
        StopReason::InternalError => (internal_error(outcome), hint),
        StopReason::PromptTooLong => {
            let class = error_class(outcome).unwrap_or(ErrorClass::PromptTooLong);
            let (what, advice) = class_advice(class);
            let why = if outcome.met.thrashed { "; compaction no longer helps" } else { "" };
            (format!("{what}{why}{}", largest(outcome)), advice)
        }
        StopReason::ImageError => {
            let class = error_class(outcome).unwrap_or(ErrorClass::ImageTooLarge);
            return Some(owned(class_advice(class)));
        }
        StopReason::EmptyResponse => return Some(owned(class_advice(ErrorClass::EmptyResponse))),
        StopReason::Refusal => return Some(owned(class_advice(ErrorClass::Refusal))),
        StopReason::ModelError(class) => return Some(describe_model_error(class, outcome)),
    };
    Some((what, advice))
}

/// Describes a failed request by what is known beside its class.
fn describe_model_error(class: ErrorClass, outcome: &RunOutcome) -> (String, &'static str) {
    let has = |check: fn(&Fault) -> bool| outcome.fault().is_some_and(check);
    // A reply that stays paused has no fault.
    let is_paused =
        outcome.failure.is_none() && outcome.stop_reason.as_deref() == Some("pause_turn");
    let is_overload = error_class_of_failure(outcome) == Some(ErrorClass::ServerOverload);
    if has(is_refused_by_proxy) {
        // The fault names the proxy, and the variable to correct.
        ("a proxy on the way refused the request".to_owned(), "")
    } else if class == ErrorClass::Unknown && has(is_redirection) {
        (
            "the request was redirected, which is followed only within its origin and only with \
             status 307 or 308"
                .to_owned(),
            "If that address is the right one, set ANTHROPIC_BASE_URL to it, without \
             /v1/messages. If it is that of a login, log in to the network or the proxy.",
        )
    } else if class == ErrorClass::QuotaExhausted && is_overload {
        (
            "the service is overloaded, and asks for a longer wait than is allowed".to_owned(),
            "Schedule the next attempt for then, allow a longer wait with --max-retry-wait and \
             --max-duration, or name another model with --fallback-model.",
        )
    } else if class == ErrorClass::BadResponse && is_paused {
        (
            "the service paused its reply again and again (stop reason pause_turn)".to_owned(),
            "Try again later, or continue the session: it keeps the parts of the reply.",
        )
    } else {
        owned(call_advice(class, outcome))
    }
}

/// True if the answer was a redirection that is not followed.
fn is_redirection(fault: &Fault) -> bool {
    fault.status().is_some_and(|status| matches!(status, 301 | 302 | 303 | 307 | 308))
}

/// True if a proxy refused the request for good. What it says on a temporary fault of its own is
/// about the service.
fn is_refused_by_proxy(fault: &Fault) -> bool {
    let FaultKind::Refused { status, code, .. } = &fault.kind else { return false };
    *status == 407 || code == TUNNEL_REFUSED && *status < 500
}

fn context_full(outcome: &RunOutcome) -> String {
    let what = "the conversation fills the context window, and compacting it is switched off";
    format!("{what}{}", largest(outcome))
}

fn output_failed(outcome: &RunOutcome) -> String {
    let what = outcome.broken.as_deref().unwrap_or("the result file could not be written");
    format!("the task was completed, but {what}")
}

fn internal_error(outcome: &RunOutcome) -> String {
    let what = outcome.broken.as_deref().unwrap_or("no details are known");
    format!("outlast has a defect: {what}")
}

fn deferred(outcome: &RunOutcome) -> String {
    outcome.deferred.as_ref().map_or_else(String::new, |deferred| {
        format!("a hook deferred the call of {}: {}", deferred.call.name, deferred.reason)
    })
}

/// Lists the tools whose calls were denied, each once.
fn denied(outcome: &RunOutcome) -> String {
    let mut names: Vec<&str> =
        outcome.stats.denials.iter().map(|denial| denial.tool_name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    format!("a tool call was denied ({}), and --on-denied fail holds", names.join(", "))
}

fn call_advice(class: ErrorClass, outcome: &RunOutcome) -> (&'static str, &'static str) {
    outcome.fault().and_then(missing_credential).unwrap_or_else(|| class_advice(class))
}

/// Explains a credential that could not be obtained, so that no request was sent. A fault of an
/// OAuth login carries its own advice.
fn missing_credential(fault: &Fault) -> Option<(&'static str, &'static str)> {
    let FaultKind::Refused { label, code, .. } = &fault.kind else { return None };
    let was_not_sent = fault.stage == FailureStage::Unsent && label == "authentication_error";
    was_not_sent.then(|| {
        let helper = code == KEY_HELPER_FAILED;
        let advice = if helper {
            "Run the command of --api-key-helper, or of the setting apiKeyHelper, as this job's \
             user: it must print one key and end with exit code 0. Where it does by itself and not \
             here, the run starts it inside the sandbox of commands: see outlast doctor."
        } else {
            ""
        };
        ("no credential could be obtained", advice)
    })
}

fn by_hook(what: &str, outcome: &RunOutcome) -> String {
    match outcome.hooks.why.as_deref() {
        Some(why) => format!("{what}: {}", shortened(why, DETAIL_MAX, "...")),
        None => what.to_owned(),
    }
}

fn aborted(by: Interrupt, when: &str) -> (String, &'static str) {
    if by == Interrupt::StdoutClosed {
        (
            "standard output is no longer read, so the result could not be delivered there"
                .to_owned(),
            "Keep its reader alive, or write to a file.",
        )
    } else if by == Interrupt::Sigxcpu {
        (format!("{} {when}", by.cause()), "Raise the limit of processor time (ulimit -t).")
    } else if by == Interrupt::SessionTakenOver {
        (
            format!("{} {when}; this run has stopped and writes nothing more", by.cause()),
            "The other process goes on with the session. Give this job a longer time between two \
             starts, or find out what suspended it.",
        )
    } else {
        (format!("{} {when}", by.cause()), "")
    }
}

/// Lists the largest parts of the conversation, largest first.
fn largest(outcome: &RunOutcome) -> String {
    let parts: Vec<String> = outcome
        .contributors
        .iter()
        .map(|part| format!("{} (about {} tokens)", part.what, part.tokens))
        .collect();
    if parts.is_empty() { String::new() } else { format!("; largest: {}", parts.join(", ")) }
}

fn owned((what, advice): (&str, &'static str)) -> (String, &'static str) {
    (what.to_owned(), advice)
}

fn budget(outcome: &RunOutcome) -> String {
    let RunCosts { spent, unsettled, earlier, budget, .. } = outcome.costs;
    let mut spent = format!("{} was spent", earlier + spent.amount);
    if earlier > Money::ZERO {
        spent.push_str(" by this prompt and those before it");
    }
    if unsettled > Money::ZERO {
        let _ = write!(
            spent,
            " (up to {unsettled} of it for replies that broke off or were not counted)"
        );
    }
    match (budget, outcome.met.shortfall) {
        (Some(budget), Some(Shortfall { needed, left })) => format!(
            "the budget of {budget} does not allow the next request: it needs up to {needed}, \
             {left} are left ({spent})"
        ),
        (Some(budget), None) => format!(
            "the budget of {budget} is used up: {spent}, and the next request could cost more \
             than is left"
        ),
        (None, _) => format!("the budget is used up: {spent}"),
    }
}

/// Returns what an error class means, and what to do about it.
pub fn class_advice(class: ErrorClass) -> (&'static str, &'static str) {
    let info = class.info();
    (info.meaning, info.hint)
}
