//! Recorded error bodies of services and gateways, and what each of them means.

use std::time::SystemTime;

use outlast::model::fault::refused;
use outlast::recovery::{ErrorClass, Fault, classify};
use reqwest::header::HeaderMap;

use super::{data, recorded};

const MEANINGS: &[(&str, ErrorClass)] = &[
    ("bedrock-400-context.json", ErrorClass::PromptTooLong),
    ("bedrock-429.json", ErrorClass::RateLimit),
    ("ccr-401.txt", ErrorClass::InvalidApiKey),
    ("ccr-429.json", ErrorClass::RateLimit),
    ("ccr-529.json", ErrorClass::ServerOverload),
    ("cdn-529.html", ErrorClass::ServerOverload),
    ("empty-503.txt", ErrorClass::ServerError),
    ("fastapi-422.json", ErrorClass::InvalidRequest),
    ("litellm-400-context.json", ErrorClass::PromptTooLong),
    ("litellm-400-model.json", ErrorClass::InvalidModel),
    ("litellm-401.json", ErrorClass::InvalidApiKey),
    ("litellm-429-key.json", ErrorClass::RateLimit),
    ("litellm-500-was-529.json", ErrorClass::ServerOverload),
    ("litellm-502-html.json", ErrorClass::ServerError),
    ("llamacpp-400-context.json", ErrorClass::PromptTooLong),
    ("llamacpp-400-grammar.json", ErrorClass::InvalidRequest),
    ("llamacpp-401.json", ErrorClass::InvalidApiKey),
    ("llamacpp-404.json", ErrorClass::InvalidRequest),
    ("llamacpp-500.json", ErrorClass::ServerError),
    ("nginx-502.html", ErrorClass::ServerError),
    ("official-400-context.json", ErrorClass::PromptTooLong),
    ("official-400-credit.json", ErrorClass::CreditBalanceLow),
    ("official-400-image.json", ErrorClass::ImageTooLarge),
    ("official-400-other.json", ErrorClass::InvalidRequest),
    ("official-400-tool-pair.json", ErrorClass::ToolUseMismatch),
    ("official-401.json", ErrorClass::InvalidApiKey),
    ("official-402.json", ErrorClass::CreditBalanceLow),
    ("official-403-revoked.json", ErrorClass::TokenRevoked),
    ("official-403.json", ErrorClass::AuthError),
    ("official-404-model.json", ErrorClass::InvalidModel),
    ("official-413.json", ErrorClass::RequestTooLarge),
    ("official-429-spend.json", ErrorClass::CreditBalanceLow),
    ("official-429.json", ErrorClass::RateLimit),
    ("official-500.json", ErrorClass::ServerError),
    ("official-529.json", ErrorClass::ServerOverload),
    ("openai-400-context.json", ErrorClass::PromptTooLong),
    ("portkey-408.json", ErrorClass::ServerError),
    ("portkey-500.json", ErrorClass::ServerError),
    ("portkey-529.json", ErrorClass::ServerOverload),
    ("vertex-429.json", ErrorClass::RateLimit),
    ("vllm-400-context.json", ErrorClass::PromptTooLong),
];

/// The status is part of a recording's name.
fn fault(name: &str) -> Fault {
    let status = name.split(['-', '.']).find_map(|part| part.parse().ok()).expect("a status");
    refused(status, &HeaderMap::new(), &recorded(&format!("bodies/{name}")), SystemTime::now())
}

#[test]
fn every_recorded_body_has_its_meaning() {
    let mut wrong = Vec::new();
    for (name, class) in MEANINGS {
        let fault = fault(name);
        let found = classify(&fault).class;
        if found != *class {
            wrong.push(format!("{name}: {found}, not {class}: {fault:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_recorded_body_is_in_the_table() {
    let entries = std::fs::read_dir(data("bodies")).expect("the folder is there");
    for entry in entries {
        let name = entry.expect("readable").file_name().into_string().expect("plain names");
        assert!(MEANINGS.iter().any(|(known, _)| *known == name), "{name} has no meaning yet");
    }
}

#[test]
fn what_a_specific_error_quotes_does_not_change_it() {
    let body = br#"{"error":{"type":"rate_limit_error","message":"was overloaded_error before"}}"#;
    let fault = refused(429, &HeaderMap::new(), body, SystemTime::now());
    assert_eq!(classify(&fault).class, ErrorClass::RateLimit);
}

#[test]
fn a_page_is_told_by_its_title() {
    assert_eq!(fault("nginx-502.html").detail(), "502 Bad Gateway (an HTML page)");
    assert_eq!(fault("cdn-529.html").detail(), "an HTML page");
    assert_eq!(fault("ccr-401.txt").detail(), "Invalid API key");
}

#[test]
fn what_a_gateway_says_is_kept_within_bounds() {
    let body = format!(r#"{{"error":{{"message":"{}","type":"api_error"}}}}"#, "é".repeat(5000));
    let fault = refused(500, &HeaderMap::new(), body.as_bytes(), SystemTime::now());
    assert!(fault.detail().len() < 2100);
}
