//! The plan for a refusal with each status, with and without an API error body, before and after a
//! successful reply of the same endpoint.

use std::time::SystemTime;

use outlast::model::fault::fault_of_response;
use outlast::recovery::{
    Attempts, Call, CallPurpose, EndpointStatus, ErrorBody, Failure, Limits, Moment, Phase,
    RecoveryCause, RecoveryPlan, RetryHint, Run, classify, plan,
};
use reqwest::header::HeaderMap;

/// The reaction to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Retried,
    /// By the budget for odd refusals.
    OddRetried,
    Refreshed,
    Final,
}

/// The expected reaction, by status alone.
fn expected(status: u16, body: ErrorBody, endpoint_status: EndpointStatus) -> Met {
    let odd = endpoint_status == EndpointStatus::Proven;
    match status {
        408 | 409 | 421 | 423..=425 | 429 | 449 | 460 | 498..=599 => Met::Retried,
        401 => Met::Refreshed,
        403 if body == ErrorBody::Portal => Met::OddRetried,
        // What no client ever sees as a refusal: a success with a body that is none.
        200 => Met::Retried,
        100..=497 if odd && body == ErrorBody::Foreign => Met::OddRetried,
        // Access or the model: the endpoint has answered with both.
        403 | 404 | 407 if odd && body == ErrorBody::Api => Met::OddRetried,
        _any_other => Met::Final,
    }
}

fn met(failure: Failure, limits: &Limits) -> Met {
    let phase = Phase::Calling(Call::Ask(CallPurpose::Reply));
    let attempts = Attempts { failures: 1, overloads: 1, ..Attempts::default() };
    let run = Run { phase, attempts, ..Run::new(7, limits) };
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

/// Kong and Amazon's API Gateway answer with only a message; services name the kind of an error.
#[test]
fn a_message_alone_is_that_of_a_gateway_only_where_it_has_no_route_or_access() {
    let kong = br#"{"message":"no Route matched with those values","request_id":"x"}"#;
    let bedrock = br#"{"message":"You don't have access to the model."}"#;
    let openrouter = br#"{"error":{"message":"No endpoints found","code":404}}"#;
    let cases: [(u16, &str, &[u8], ErrorBody); 7] = [
        (404, "", kong, ErrorBody::Foreign),
        (403, "ForbiddenException", br#"{"message":"Forbidden"}"#, ErrorBody::Foreign),
        (403, "", br#"{"message":"Forbidden"}"#, ErrorBody::Foreign),
        (403, "AccessDeniedException:http://x/", bedrock, ErrorBody::Api),
        (404, "", openrouter, ErrorBody::Api),
        (400, "", kong, ErrorBody::Api),
        (404, "", br#"{"detail":"Not Found"}"#, ErrorBody::Api),
    ];
    for (status, kind, body, expected) in cases {
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert("x-amzn-errortype", kind.parse().expect("a value"));
        }
        let fault = fault_of_response(status, &headers, body, SystemTime::UNIX_EPOCH);
        assert_eq!(fault.body, expected, "{status} {}", String::from_utf8_lossy(body));
    }
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
                    met(failure, &Limits::default()),
                    wanted,
                    "{status}, {endpoint_status:?}: {text}"
                );
                let told = Failure { retry_hint: Some(RetryHint::Stop), ..failure };
                let end = met(told, &Limits::default());
                assert!(matches!(end, Met::Final | Met::Refreshed), "{status}: ruled out");
            }
        }
    }
}
