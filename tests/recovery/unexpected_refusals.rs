//! Refusals with every status, with and without an API error body, before and after a successful
//! reply of the same endpoint.

use std::time::SystemTime;

use outlast::model::fault::fault_of_response;
use outlast::recovery::{
    Call, CallPurpose, EndpointStatus, ErrorBody, ErrorClass, Event, Failure, Limits, Moment,
    Persistence, Phase, RecoveryCause, RecoveryPlan, RetryHint, Run, StopReason, classify, plan,
};
use reqwest::header::HeaderMap;

use super::{Story, TOOL_CALLS, TOOLS_DONE, limits};

/// What a table says of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Retried,
    /// By the budget for odd refusals.
    OddRetried,
    Refreshed,
    Final,
}

/// What is to happen, by status alone.
fn expected(status: u16, body: ErrorBody, endpoint_status: EndpointStatus) -> Met {
    let odd = endpoint_status == EndpointStatus::Proven;
    match status {
        408 | 409 | 429 | 500..=599 => Met::Retried,
        401 => Met::Refreshed,
        403 if body == ErrorBody::Portal => Met::OddRetried,
        // What no client ever sees as a refusal: a success with a body that is none.
        200 => Met::Retried,
        100..=499 if odd && body == ErrorBody::Foreign => Met::OddRetried,
        _any_other => Met::Final,
    }
}

fn met(failure: Failure, limits: &Limits) -> Met {
    let phase = Phase::Calling(Call::Ask(CallPurpose::Reply));
    let run = Run { phase, failures: 1, overloads: 1, ..Run::new(7, limits) };
    let plan = plan(RecoveryCause::Failed(failure), &run, Moment::default(), limits);
    let met = [
        (matches!(plan, RecoveryPlan::Retry { .. }), Met::Retried),
        (plan == RecoveryPlan::RetryOddRefusal, Met::OddRetried),
        (plan == RecoveryPlan::Refresh, Met::Refreshed),
        (matches!(plan, RecoveryPlan::Stop(_)), Met::Final),
    ];
    let met = met.into_iter().find_map(|(is_it, met)| is_it.then_some(met));
    met.unwrap_or_else(|| panic!("{failure:?}: {plan:?}"))
}

/// The error of the API for a status.
fn api_error(status: u16) -> Vec<u8> {
    let label = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500..=599 => "api_error",
        _any_other => "invalid_request_error",
    };
    let error = serde_json::json!({ "type": label, "message": "No." });
    serde_json::json!({ "type": "error", "error": error }).to_string().into_bytes()
}

#[test]
fn every_status_is_handled_before_and_after_a_good_reply() {
    let foreign: [&[u8]; 5] =
        [b"", b"<html><title>Log in</title></html>", b"Denied.", b"[]", b"{\"ok\": true}"];
    for status in 100..=599 {
        let api = api_error(status);
        let bodies = foreign.iter().map(|body| (ErrorBody::Foreign, *body));
        for (body, bytes) in bodies.chain([(ErrorBody::Api, &api[..])]) {
            let fault = fault_of_response(status, &HeaderMap::new(), bytes, SystemTime::UNIX_EPOCH);
            let text = String::from_utf8_lossy(bytes);
            // A page that refuses access may be that of a portal.
            let is_portal = matches!(status, 401 | 403) && bytes.starts_with(b"<");
            let body = if is_portal { ErrorBody::Portal } else { body };
            assert_eq!(fault.body, body, "{status}: {text}");
            for endpoint_status in [EndpointStatus::Untried, EndpointStatus::Proven] {
                let failure = Failure { endpoint_status, ..classify(&fault) };
                let wanted = match (status, body) {
                    // Named by its type, whatever the status is.
                    (200, ErrorBody::Api) => Met::Final,
                    _by_status => expected(status, body, endpoint_status),
                };
                assert_eq!(
                    met(failure, &limits()),
                    wanted,
                    "{status}, {endpoint_status:?}: {text}"
                );
                let told = Failure { retry_hint: Some(RetryHint::Stop), ..failure };
                let end = met(told, &limits());
                assert!(matches!(end, Met::Final | Met::Refreshed), "{status}: ruled out");
            }
        }
    }
}

fn odd(class: ErrorClass) -> Event {
    let (body, endpoint_status) = (ErrorBody::Foreign, EndpointStatus::Proven);
    Event::Failed(Failure { body, endpoint_status, ..Failure::of(class) })
}

/// A few odd refusals in a row are overcome; one more ends the run as what it was.
#[test]
fn unexpected_refusals_are_retried_within_their_budget() {
    for class in [
        ErrorClass::AuthError,
        ErrorClass::InvalidModel,
        ErrorClass::InvalidRequest,
        ErrorClass::Unknown,
    ] {
        let most = limits().budgets.odd_refusals;
        let mut story = Story::begin(limits()).then(TOOL_CALLS).then(TOOLS_DONE);
        for _ in 0..most {
            story = story.then(odd(class)).wakes();
        }
        let ended = story.then(odd(class));
        ended.ends_as(StopReason::ModelError(class));
        // Every good answer renews them.
        let mut story = Story::begin(limits());
        for _ in 0..10 {
            story = story.then(TOOL_CALLS).then(TOOLS_DONE);
            for _ in 0..most {
                story = story.then(odd(class)).wakes();
            }
        }
    }
}

/// A fixed key cannot be had anew: it is tried again as it is.
#[test]
fn a_previously_accepted_key_is_retried_when_it_cannot_be_refreshed() {
    let rejected = odd(ErrorClass::InvalidApiKey);
    let story = Story::begin(limits()).then(TOOL_CALLS).then(TOOLS_DONE).then(rejected);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::Refresh));
    let story = story.then(rejected);
    assert_eq!(story.decision().plan, Some(RecoveryPlan::RetryOddRefusal));
    let story = story.wakes();
    assert!(matches!(story.run.phase, Phase::Calling(Call::Ask(CallPurpose::Reply))));
    let refreshing = story.then(rejected);
    assert_eq!(refreshing.decision().plan, Some(RecoveryPlan::RetryOddRefusal), "no other key");
}

/// An HTML page in place of a reply is an outage; persistent mode waits it out.
#[test]
fn an_html_page_counts_as_an_outage() {
    use outlast::recovery::{FailureStage, Fault, FaultKind};

    let page = FaultKind::HtmlPage { detail: "the body is an HTML page".to_owned() };
    let failure = classify(&Fault::new(page, FailureStage::Status));
    assert_eq!(failure.class, ErrorClass::ServerError);
    let all = Limits { persistence: Persistence::All, ..limits() };
    let phase = Phase::Calling(Call::Ask(CallPurpose::Reply));
    let run = Run { phase, failures: 1, ..Run::new(7, &all) };
    let planned = plan(RecoveryCause::Failed(failure), &run, Moment::default(), &all);
    assert_eq!(planned, RecoveryPlan::WaitForCapacity);
    assert_eq!(met(failure, &limits()), Met::Retried);
}
