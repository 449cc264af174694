//! Classification of statuses, error bodies and transport errors.

use outlast_core::recovery::{
    ErrorClass, Failure, FailureStage, Fault, FaultKind, RetryAfter, RetryAfterSource, RetryHint,
    Timer, classify,
};

use super::{Story, limits, secs};

fn refused(status: u16, label: &str, code: &str, message: &str) -> Fault {
    let [label, code, message] = [label, code, message].map(str::to_owned);
    Fault::new(FaultKind::Refused { status, label, code, message }, FailureStage::Status)
}

fn class(fault: &Fault) -> ErrorClass {
    classify(fault).class
}

/// Whether a run with the default limits makes a second request after this.
fn is_retried(failure: Failure) -> bool {
    Story::begin(limits()).then(outlast_core::recovery::Event::Failed(failure)).is_pausing()
}

#[test]
fn exactly_these_statuses_are_retried() {
    let retried: Vec<u16> =
        (100..1000).filter(|&status| is_retried(classify(&refused(status, "", "", "")))).collect();
    // An error inside a 200 came from a service that had accepted the request.
    let refusals = [200, 408, 409, 421, 423, 424, 425, 429, 449, 460, 498, 499];
    let expected: Vec<u16> = refusals.into_iter().chain(500..1000).collect();
    assert_eq!(retried, expected);
}

#[test]
fn every_status_has_a_failure_class_of_its_kind() {
    for status in 100..1000 {
        let expected = match status {
            200 => ErrorClass::BadResponse,
            421 => ErrorClass::ConnectionError,
            408 | 409 | 423..=425 | 449 | 460 | 499 => ErrorClass::ServerError,
            400 | 404..=406 | 410..=412 | 414..=428 | 430..=497 => ErrorClass::InvalidRequest,
            401 => ErrorClass::InvalidApiKey,
            402 => ErrorClass::CreditBalanceLow,
            403 | 407 => ErrorClass::AuthError,
            413 => ErrorClass::RequestTooLarge,
            429 => ErrorClass::RateLimit,
            498 | 529 => ErrorClass::ServerOverload,
            500.. => ErrorClass::ServerError,
            _ => ErrorClass::Unknown,
        };
        assert_eq!(class(&refused(status, "", "", "")), expected, "{status}");
    }
}

#[test]
fn an_overload_error_type_outranks_the_status() {
    for status in 100..600 {
        let overloaded = refused(status, "overloaded_error", "", "Overloaded");
        assert_eq!(class(&overloaded), ErrorClass::ServerOverload, "{status}");
    }
}

#[test]
fn a_spend_limit_is_never_retried_whatever_the_status() {
    for status in 100..600 {
        for code in ["enforced_spend_limit_reached", "contract_spend_limit_reached"] {
            let reached = classify(&refused(status, "rate_limit_error", code, "rate limited"));
            assert_eq!(reached.class, ErrorClass::CreditBalanceLow, "{status}");
            assert!(
                !is_retried(Failure { retry_hint: Some(RetryHint::Retry), ..reached }),
                "{status}"
            );
        }
    }
}

#[test]
fn transport_errors_have_a_failure_class_too() {
    let detail = || "what was seen".to_owned();
    let connection = FaultKind::Connection { detail: detail() };
    let cases = [
        (FaultKind::Timeout { timer: Timer::Connect }, ErrorClass::ApiTimeout),
        (FaultKind::Timeout { timer: Timer::FirstByte }, ErrorClass::ApiTimeout),
        (FaultKind::Timeout { timer: Timer::Whole }, ErrorClass::ApiTimeout),
        (FaultKind::Timeout { timer: Timer::StreamIdle }, ErrorClass::StreamStalled),
        (FaultKind::Timeout { timer: Timer::StreamProgress }, ErrorClass::StreamStalled),
        (connection, ErrorClass::ConnectionError),
        (FaultKind::TornStream { detail: detail() }, ErrorClass::ConnectionError),
        (FaultKind::InvalidContent { detail: detail() }, ErrorClass::BadResponse),
        (FaultKind::HtmlPage { detail: detail() }, ErrorClass::ServerError),
        (FaultKind::Certificate { detail: detail() }, ErrorClass::SslCertError),
        (FaultKind::Unsendable { detail: detail() }, ErrorClass::InvalidRequest),
    ];
    for (kind, expected) in cases {
        let retried = !matches!(expected, ErrorClass::SslCertError | ErrorClass::InvalidRequest);
        let failure = classify(&Fault::new(kind.clone(), FailureStage::Unsent));
        assert_eq!(failure.class, expected, "{kind:?}");
        assert_eq!(is_retried(failure), retried, "{kind:?}");
    }
}

#[test]
fn classify_passes_on_retry_after_and_the_retry_hint() {
    let retry_after = Some(RetryAfter { wait: secs(7), source: RetryAfterSource::Reset });
    let retry_hint = Some(RetryHint::Stop);
    let fault = Fault { retry_after, retry_hint, ..refused(429, "", "", "") };
    let stage = FailureStage::Status;
    assert_eq!(
        classify(&fault),
        Failure {
            retry_after,
            retry_hint,
            stage,
            body: fault.body,
            ..Failure::of(ErrorClass::RateLimit)
        }
    );
}

#[test]
fn no_body_makes_classify_panic() {
    let odd = ["", "\u{0}", "ÄÖ\u{202e}", "prompt is too lon", "\u{130}mage exceeds", "{\"a\":[}"];
    for status in [0, 99, 200, 400, 401, 403, 404, 413, 429, 500, 529, 600, u16::MAX] {
        for text in odd {
            let [upper, long] = [text.to_uppercase(), text.repeat(10_000)];
            for message in [text, &upper, &long] {
                classify(&refused(status, text, text, message));
            }
        }
    }
}

#[test]
fn error_texts_are_matched_case_insensitively() {
    let shouted = refused(400, "INVALID", "", "PROMPT IS TOO LONG: 210000 TOKENS");
    assert_eq!(class(&shouted), ErrorClass::PromptTooLong);
}

#[test]
fn every_recorded_error_body_is_classified_as_its_line_says() {
    let mut seen = 0;
    for line in include_str!("refusals.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.splitn(5, '|').map(str::trim).collect();
        let [expected, status, label, code, message] = fields[..] else { panic!("{line}") };
        let fault = refused(status.parse().expect(line), label, code, message);
        assert_eq!(class(&fault).name(), expected, "{line}");
        seen += 1;
    }
    assert!(seen >= 60, "{seen} rows");
}
