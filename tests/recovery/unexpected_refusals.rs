//! Refusals that are none of the API, after the endpoint has given a good reply.

use outlast_core::recovery::{
    Attempts, Call, CallPurpose, EndpointStatus, ErrorBody, ErrorClass, Event, Failure,
    FailureStage, Fault, FaultKind, Limits, Moment, Persistence, Phase, RecoveryCause,
    RecoveryPlan, Run, StopReason, classify, plan,
};

use super::{Story, TOOL_CALLS, TOOLS_DONE, limits};

fn odd(class: ErrorClass) -> Event {
    let (body, endpoint_status) = (ErrorBody::Foreign, EndpointStatus::Proven);
    Event::Failed(Failure { body, endpoint_status, ..Failure::of(class) })
}

/// A few odd refusals in a row are overcome; one more ends the run as what it was.
#[test]
fn unexpected_refusals_are_retried_within_their_budget() {
    let (endpoint_status, wrong) = (EndpointStatus::Proven, Failure::of(ErrorClass::SslCertError));
    let certificate = Event::Failed(Failure { endpoint_status, ..wrong });
    for (class, refusal) in [
        (ErrorClass::AuthError, odd(ErrorClass::AuthError)),
        (ErrorClass::InvalidModel, odd(ErrorClass::InvalidModel)),
        (ErrorClass::InvalidRequest, odd(ErrorClass::InvalidRequest)),
        (ErrorClass::Unknown, odd(ErrorClass::Unknown)),
        (ErrorClass::SslCertError, certificate),
    ] {
        let most = limits().budgets.odd_refusals;
        let mut story = Story::begin(limits()).then(TOOL_CALLS).then(TOOLS_DONE);
        for _ in 0..most {
            story = story.then(refusal).wakes();
        }
        let ended = story.then(refusal);
        ended.ends_as(StopReason::ModelError(class));
        // Every good answer renews them.
        let mut story = Story::begin(limits());
        for _ in 0..10 {
            story = story.then(TOOL_CALLS).then(TOOLS_DONE);
            for _ in 0..most {
                story = story.then(refusal).wakes();
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
    let page = FaultKind::HtmlPage { detail: "the body is an HTML page".to_owned() };
    let failure = classify(&Fault::new(page, FailureStage::Status));
    assert_eq!(failure.class, ErrorClass::ServerError);
    let all = Limits { persistence: Persistence::All, ..limits() };
    let phase = Phase::Calling(Call::Ask(CallPurpose::Reply));
    let planned = |limits: &Limits| {
        let attempts = Attempts { failures: 1, ..Attempts::default() };
        let run = Run { phase, attempts, ..Run::new(7, limits) };
        plan(RecoveryCause::Failed(failure), &run, Moment::default(), limits)
    };
    assert_eq!(planned(&all), RecoveryPlan::WaitForCapacity);
    assert!(matches!(planned(&limits()), RecoveryPlan::Retry { .. }));
}
