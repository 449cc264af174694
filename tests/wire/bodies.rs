//! Recorded error bodies of services and gateways, and what each of them means.

use std::time::SystemTime;

use outlast::model::answer::parse_message;
use outlast::model::fault::fault_of_response;
use outlast::recovery::{
    BlockPath, ClassifiedFault, EndpointStatus, ErrorClass, Fault, RejectedContent, classify,
};
use proptest::prelude::*;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::{data, recorded};
use crate::support::rotation::property_cases;

const EXPECTED_CLASSES: &[(&str, ErrorClass)] = &[
    ("azure-400-filter.json", ErrorClass::ContentFiltered),
    ("bedrock-400-context.json", ErrorClass::PromptTooLong),
    ("bedrock-400-input.json", ErrorClass::PromptTooLong),
    ("bedrock-400-maxlength.json", ErrorClass::PromptTooLong),
    ("bedrock-400-model.json", ErrorClass::InvalidModel),
    ("bedrock-400-nova.json", ErrorClass::PromptTooLong),
    ("bedrock-400-output.json", ErrorClass::InvalidRequest),
    ("bedrock-400-profile.json", ErrorClass::InvalidModel),
    ("bedrock-400-quota.json", ErrorClass::RateLimit),
    ("bedrock-400-quoted-context.json", ErrorClass::PromptTooLong),
    ("bedrock-400-quoted-image.json", ErrorClass::ImageTooLarge),
    ("bedrock-400-quoted-pdf.json", ErrorClass::PdfTooLarge),
    ("bedrock-400-quoted-signature.json", ErrorClass::InvalidRequest),
    ("bedrock-400-rate.json", ErrorClass::RateLimit),
    ("bedrock-400-tool-pair.json", ErrorClass::ToolUseMismatch),
    ("bedrock-400-typed.json", ErrorClass::RateLimit),
    ("bedrock-403-access.json", ErrorClass::AuthError),
    ("bedrock-403-client.json", ErrorClass::InvalidApiKey),
    ("bedrock-403-clock.json", ErrorClass::InvalidApiKey),
    ("bedrock-403-expired.json", ErrorClass::TokenRevoked),
    ("bedrock-403-signature.json", ErrorClass::InvalidApiKey),
    ("bedrock-404-use-case.json", ErrorClass::InvalidModel),
    ("bedrock-404.json", ErrorClass::InvalidModel),
    ("bedrock-408.json", ErrorClass::ServerError),
    ("bedrock-424-model.json", ErrorClass::ServerError),
    ("bedrock-424-stream.json", ErrorClass::ServerError),
    ("bedrock-429-day.json", ErrorClass::RateLimit),
    ("bedrock-429-not-ready.json", ErrorClass::ServerOverload),
    ("bedrock-429-tokens.json", ErrorClass::RateLimit),
    ("bedrock-429.json", ErrorClass::RateLimit),
    ("bedrock-500.json", ErrorClass::ServerError),
    ("bedrock-503.json", ErrorClass::ServerError),
    ("ccr-401.txt", ErrorClass::InvalidApiKey),
    ("ccr-429.json", ErrorClass::RateLimit),
    ("ccr-529.json", ErrorClass::ServerOverload),
    ("cdn-529.html", ErrorClass::ServerOverload),
    ("cloudflare-400-model.json", ErrorClass::InvalidModel),
    ("cloudflare-403-api.json", ErrorClass::AuthError),
    ("cloudflare-403.html", ErrorClass::AuthError),
    ("cloudflare-520.txt", ErrorClass::ServerError),
    ("cloudflare-524.json", ErrorClass::ServerError),
    ("cohere-400-context.json", ErrorClass::PromptTooLong),
    ("copilot-400-context.json", ErrorClass::PromptTooLong),
    ("copilot-400-model.json", ErrorClass::InvalidModel),
    ("dashscope-400-arrears.json", ErrorClass::CreditBalanceLow),
    ("empty-503.txt", ErrorClass::ServerError),
    ("envoy-503.txt", ErrorClass::ServerError),
    ("fastapi-422.json", ErrorClass::InvalidRequest),
    ("foundry-401-backend.json", ErrorClass::ServerError),
    ("foundry-401-role.json", ErrorClass::AuthError),
    ("foundry-401-token.json", ErrorClass::InvalidApiKey),
    ("foundry-401.json", ErrorClass::InvalidApiKey),
    ("foundry-404.json", ErrorClass::InvalidModel),
    ("foundry-429.json", ErrorClass::RateLimit),
    ("foundry-500.json", ErrorClass::ServerError),
    ("groq-400-model.json", ErrorClass::InvalidModel),
    ("hub-400-signature.json", ErrorClass::InvalidRequest),
    ("litellm-400-anthropic-context.json", ErrorClass::PromptTooLong),
    ("litellm-400-anthropic-credit.json", ErrorClass::CreditBalanceLow),
    ("litellm-400-bedrock-input.json", ErrorClass::PromptTooLong),
    ("litellm-400-context.json", ErrorClass::PromptTooLong),
    ("litellm-400-detail.json", ErrorClass::InvalidModel),
    ("litellm-400-end-user-budget.json", ErrorClass::CreditBalanceLow),
    ("litellm-400-expired.json", ErrorClass::TokenRevoked),
    ("litellm-400-guardrail.json", ErrorClass::ContentFiltered),
    ("litellm-400-image.json", ErrorClass::ImageTooLarge),
    ("litellm-400-llamacpp-context.json", ErrorClass::PromptTooLong),
    ("litellm-400-model.json", ErrorClass::InvalidModel),
    ("litellm-400-openai-tool-pair.json", ErrorClass::ToolUseMismatch),
    ("litellm-400-openrouter-context.json", ErrorClass::PromptTooLong),
    ("litellm-400-pdf.json", ErrorClass::PdfTooLarge),
    ("litellm-400-signature.json", ErrorClass::InvalidRequest),
    ("litellm-400-tool-pair.json", ErrorClass::ToolUseMismatch),
    ("litellm-400-vertex-denied.json", ErrorClass::AuthError),
    ("litellm-401-openrouter.json", ErrorClass::InvalidApiKey),
    ("litellm-401.json", ErrorClass::InvalidApiKey),
    ("litellm-403-revoked.json", ErrorClass::TokenRevoked),
    ("litellm-413.json", ErrorClass::RequestTooLarge),
    ("litellm-429-bedrock.json", ErrorClass::RateLimit),
    ("litellm-429-budget.json", ErrorClass::CreditBalanceLow),
    ("litellm-429-deployment-budget.json", ErrorClass::CreditBalanceLow),
    ("litellm-429-key.json", ErrorClass::RateLimit),
    ("litellm-429-vertex.json", ErrorClass::RateLimit),
    ("litellm-500-bedrock-throttle.json", ErrorClass::RateLimit),
    ("litellm-500-vertex-throttle.json", ErrorClass::RateLimit),
    ("litellm-500-was-401.json", ErrorClass::InvalidApiKey),
    ("litellm-500-was-529.json", ErrorClass::ServerOverload),
    ("litellm-502-html.json", ErrorClass::ServerError),
    ("llamacpp-400-context-field.json", ErrorClass::PromptTooLong),
    ("llamacpp-400-context.json", ErrorClass::PromptTooLong),
    ("llamacpp-400-grammar.json", ErrorClass::InvalidRequest),
    ("llamacpp-401.json", ErrorClass::InvalidApiKey),
    ("llamacpp-404.json", ErrorClass::InvalidRequest),
    ("llamacpp-500-context.json", ErrorClass::PromptTooLong),
    ("llamacpp-500.json", ErrorClass::ImageTooLarge),
    ("llamacpp-503.json", ErrorClass::ServerError),
    ("llamacpp-python-400.json", ErrorClass::PromptTooLong),
    ("moonshot-429-balance.json", ErrorClass::CreditBalanceLow),
    ("moonshot-429-overloaded.json", ErrorClass::ServerOverload),
    ("newapi-403-quota.json", ErrorClass::CreditBalanceLow),
    ("nginx-413.html", ErrorClass::RequestTooLarge),
    ("nginx-429.html", ErrorClass::RateLimit),
    ("nginx-502.html", ErrorClass::ServerError),
    ("nginx-504.html", ErrorClass::ServerError),
    ("nim-410.json", ErrorClass::InvalidModel),
    ("nim-429.json", ErrorClass::RateLimit),
    ("official-400-context-with-output.json", ErrorClass::PromptTooLong),
    ("official-400-context.json", ErrorClass::PromptTooLong),
    ("official-400-credit.json", ErrorClass::CreditBalanceLow),
    ("official-400-image-broken.json", ErrorClass::InvalidRequest),
    ("official-400-image-bytes.json", ErrorClass::ImageTooLarge),
    ("official-400-image-empty.json", ErrorClass::InvalidRequest),
    ("official-400-image-kind.json", ErrorClass::InvalidRequest),
    ("official-400-image-many.json", ErrorClass::ImageTooLarge),
    ("official-400-image-pixels.json", ErrorClass::ImageTooLarge),
    ("official-400-image.json", ErrorClass::ImageTooLarge),
    ("official-400-other.json", ErrorClass::InvalidRequest),
    ("official-400-pdf-broken.json", ErrorClass::InvalidRequest),
    ("official-400-pdf-pages.json", ErrorClass::PdfTooLarge),
    ("official-400-signature-bound.json", ErrorClass::InvalidRequest),
    ("official-400-signature.json", ErrorClass::InvalidRequest),
    ("official-400-thinking-changed.json", ErrorClass::InvalidRequest),
    ("official-400-thinking-missing.json", ErrorClass::InvalidRequest),
    ("official-400-tool-orphan.json", ErrorClass::ToolUseMismatch),
    ("official-400-tool-pair.json", ErrorClass::ToolUseMismatch),
    ("official-400-tool-twice.json", ErrorClass::ToolUseMismatch),
    ("official-400-usage-limit.json", ErrorClass::CreditBalanceLow),
    ("official-401-expired.json", ErrorClass::InvalidApiKey),
    ("official-401.json", ErrorClass::InvalidApiKey),
    ("official-402.json", ErrorClass::CreditBalanceLow),
    ("official-403-revoked.json", ErrorClass::TokenRevoked),
    ("official-403.json", ErrorClass::AuthError),
    ("official-404-model.json", ErrorClass::InvalidModel),
    ("official-404-not-found.json", ErrorClass::InvalidModel),
    ("official-413-context.json", ErrorClass::PromptTooLong),
    ("official-413-edge.json", ErrorClass::RequestTooLarge),
    ("official-413.json", ErrorClass::RequestTooLarge),
    ("official-429-account.json", ErrorClass::RateLimit),
    ("official-429-contract.json", ErrorClass::CreditBalanceLow),
    ("official-429-extra-usage.json", ErrorClass::CreditBalanceLow),
    ("official-429-ramp.json", ErrorClass::RateLimit),
    ("official-429-spend.json", ErrorClass::CreditBalanceLow),
    ("official-429.json", ErrorClass::RateLimit),
    ("official-500.json", ErrorClass::ServerError),
    ("official-503-overloaded.json", ErrorClass::ServerOverload),
    ("official-504.json", ErrorClass::ServerError),
    ("official-529.json", ErrorClass::ServerOverload),
    ("ollama-404-messages.json", ErrorClass::InvalidModel),
    ("ollama-404-openai.json", ErrorClass::InvalidModel),
    ("ollama-404.json", ErrorClass::InvalidModel),
    ("ollama-500.json", ErrorClass::ServerError),
    ("ollama-503.json", ErrorClass::ServerError),
    ("openai-400-context.json", ErrorClass::PromptTooLong),
    ("openai-400-deepseek-context.json", ErrorClass::PromptTooLong),
    ("openai-401.json", ErrorClass::InvalidApiKey),
    ("openai-402-deepseek.json", ErrorClass::CreditBalanceLow),
    ("openai-404.json", ErrorClass::InvalidModel),
    ("openai-413-groq.json", ErrorClass::PromptTooLong),
    ("openai-429-quota.json", ErrorClass::CreditBalanceLow),
    ("openai-429-too-large.json", ErrorClass::PromptTooLong),
    ("openai-429.json", ErrorClass::RateLimit),
    ("openai-503.json", ErrorClass::ServerError),
    ("openrouter-400-context.json", ErrorClass::PromptTooLong),
    ("openrouter-400-quoted-image.json", ErrorClass::ImageTooLarge),
    ("openrouter-400-quoted-signature.json", ErrorClass::InvalidRequest),
    ("openrouter-400-quoted-tool-orphan.json", ErrorClass::ToolUseMismatch),
    ("openrouter-401.json", ErrorClass::InvalidApiKey),
    ("openrouter-402-nested.json", ErrorClass::CreditBalanceLow),
    ("openrouter-402.json", ErrorClass::CreditBalanceLow),
    ("openrouter-403-limit.json", ErrorClass::CreditBalanceLow),
    ("openrouter-403.json", ErrorClass::ContentFiltered),
    ("openrouter-404.json", ErrorClass::InvalidModel),
    ("openrouter-429.json", ErrorClass::RateLimit),
    ("openrouter-502.json", ErrorClass::ServerError),
    ("portkey-404-nested.json", ErrorClass::InvalidModel),
    ("portkey-408.json", ErrorClass::ServerError),
    ("portkey-500.json", ErrorClass::ServerError),
    ("portkey-529.json", ErrorClass::ServerOverload),
    ("squid-407.html", ErrorClass::AuthError),
    ("tgi-422-context.json", ErrorClass::PromptTooLong),
    ("tgi-422-output.json", ErrorClass::PromptTooLong),
    ("together-400-model.json", ErrorClass::InvalidModel),
    ("trtllm-400-context.json", ErrorClass::PromptTooLong),
    ("vertex-400-context.json", ErrorClass::PromptTooLong),
    ("vertex-400-key.json", ErrorClass::InvalidApiKey),
    ("vertex-400-model.json", ErrorClass::InvalidModel),
    ("vertex-400-policy.json", ErrorClass::InvalidModel),
    ("vertex-400-quoted-context.json", ErrorClass::PromptTooLong),
    ("vertex-400-quoted-signature.json", ErrorClass::InvalidRequest),
    ("vertex-400-region.json", ErrorClass::InvalidModel),
    ("vertex-401.json", ErrorClass::InvalidApiKey),
    ("vertex-403-billing.json", ErrorClass::CreditBalanceLow),
    ("vertex-403.json", ErrorClass::AuthError),
    ("vertex-404.json", ErrorClass::InvalidModel),
    ("vertex-429-plan.json", ErrorClass::RateLimit),
    ("vertex-429-quota.json", ErrorClass::RateLimit),
    ("vertex-429-quoted.json", ErrorClass::RateLimit),
    ("vertex-429-tokens.json", ErrorClass::RateLimit),
    ("vertex-429-typed.json", ErrorClass::RateLimit),
    ("vertex-429.json", ErrorClass::RateLimit),
    ("vertex-500.json", ErrorClass::ServerError),
    ("vertex-503.json", ErrorClass::ServerError),
    ("vertex-504.json", ErrorClass::ServerError),
    ("vertex-529.json", ErrorClass::ServerOverload),
    ("vllm-400-context.json", ErrorClass::PromptTooLong),
    ("vllm-400-negative.json", ErrorClass::PromptTooLong),
    ("vllm-400-output.json", ErrorClass::PromptTooLong),
    ("vllm-401.json", ErrorClass::InvalidApiKey),
    ("vllm-404.json", ErrorClass::InvalidModel),
    ("vllm-422.json", ErrorClass::InvalidRequest),
    ("watsonx-400-context.json", ErrorClass::PromptTooLong),
    ("xai-400-context.json", ErrorClass::PromptTooLong),
    ("xai-429.json", ErrorClass::CreditBalanceLow),
    ("zai-400-context.json", ErrorClass::PromptTooLong),
    ("zai-400-model.json", ErrorClass::InvalidModel),
];

/// The error types that Amazon sends in a header, while the body has only the message.
const AMAZON_ERROR_TYPES: &[(&str, &str)] = &[
    ("bedrock-400-input.json", "ValidationException"),
    ("bedrock-400-maxlength.json", "ValidationException"),
    ("bedrock-400-model.json", "ValidationException"),
    ("bedrock-400-nova.json", "ValidationException"),
    ("bedrock-400-output.json", "ValidationException"),
    ("bedrock-400-profile.json", "ValidationException"),
    ("bedrock-400-quota.json", "ServiceQuotaExceededException"),
    ("bedrock-400-quoted-context.json", "ValidationException"),
    ("bedrock-400-quoted-image.json", "ValidationException"),
    ("bedrock-400-quoted-pdf.json", "ValidationException"),
    ("bedrock-400-quoted-signature.json", "ValidationException"),
    ("bedrock-400-rate.json", "ThrottlingException"),
    ("bedrock-400-tool-pair.json", "ValidationException"),
    ("bedrock-403-access.json", "AccessDeniedException"),
    ("bedrock-403-client.json", "UnrecognizedClientException"),
    ("bedrock-403-clock.json", "InvalidSignatureException"),
    ("bedrock-403-expired.json", "ExpiredTokenException"),
    ("bedrock-403-signature.json", "InvalidSignatureException"),
    ("bedrock-404-use-case.json", "ResourceNotFoundException"),
    ("bedrock-404.json", "ResourceNotFoundException"),
    ("bedrock-408.json", "ModelTimeoutException"),
    ("bedrock-424-model.json", "ModelErrorException"),
    ("bedrock-424-stream.json", "ModelStreamErrorException"),
    ("bedrock-429-day.json", "ThrottlingException"),
    ("bedrock-429-not-ready.json", "ModelNotReadyException"),
    ("bedrock-429-tokens.json", "ThrottlingException"),
    ("bedrock-500.json", "InternalServerException"),
    ("bedrock-503.json", "ServiceUnavailableException"),
];

/// The context window that a recorded overflow names, in tokens.
const WINDOWS: &[(&str, Option<u64>)] = &[
    ("bedrock-400-input.json", None),
    ("bedrock-400-nova.json", None),
    ("bedrock-400-quoted-context.json", Some(200_000)),
    ("cohere-400-context.json", Some(128_000)),
    ("copilot-400-context.json", Some(128_000)),
    ("litellm-400-anthropic-context.json", Some(200_000)),
    ("litellm-400-context.json", None),
    ("litellm-400-llamacpp-context.json", Some(8_192)),
    ("litellm-400-openrouter-context.json", Some(256_000)),
    ("llamacpp-400-context.json", Some(1_024)),
    ("llamacpp-400-context-field.json", Some(8_192)),
    ("llamacpp-500-context.json", Some(256)),
    ("llamacpp-python-400.json", Some(2_048)),
    ("official-400-context.json", Some(200_000)),
    ("official-400-context-with-output.json", Some(200_000)),
    ("official-413-context.json", None),
    ("openai-400-context.json", Some(8_192)),
    ("openai-400-deepseek-context.json", Some(131_072)),
    ("openai-413-groq.json", Some(6_000)),
    ("openai-429-too-large.json", Some(30_000)),
    ("openrouter-400-context.json", Some(262_000)),
    ("tgi-422-context.json", Some(32_768)),
    ("tgi-422-output.json", Some(131_072)),
    ("trtllm-400-context.json", Some(131_072)),
    ("vertex-400-context.json", Some(1_048_576)),
    ("vertex-400-quoted-context.json", Some(200_000)),
    ("vllm-400-context.json", Some(4_096)),
    ("vllm-400-negative.json", None),
    ("vllm-400-output.json", Some(2_048)),
    ("watsonx-400-context.json", Some(131_072)),
    ("xai-400-context.json", Some(131_072)),
    ("zai-400-context.json", None),
];

/// A message, a block in it, and a block within that.
type At = (usize, Option<usize>, Option<usize>);

/// The content that a recorded refusal rejects, and its position in the conversation.
const EXPECTED_POISONS: &[(&str, Option<RejectedContent>, Option<At>)] = &[
    ("bedrock-400-quoted-pdf.json", Some(RejectedContent::Media), Some((0, Some(1), None))),
    (
        "bedrock-400-quoted-signature.json",
        Some(RejectedContent::Thinking),
        Some((1, Some(0), None)),
    ),
    ("bedrock-400-tool-pair.json", Some(RejectedContent::Pairs), Some((2, None, None))),
    ("hub-400-signature.json", Some(RejectedContent::Thinking), Some((1, Some(0), None))),
    ("litellm-400-image.json", Some(RejectedContent::Media), Some((0, Some(1), None))),
    ("litellm-400-openai-tool-pair.json", Some(RejectedContent::Pairs), None),
    ("litellm-400-signature.json", Some(RejectedContent::Thinking), Some((3, Some(0), None))),
    ("litellm-400-tool-pair.json", Some(RejectedContent::Pairs), Some((167, None, None))),
    ("nginx-413.html", Some(RejectedContent::Media), None),
    ("official-400-image-broken.json", Some(RejectedContent::Media), None),
    ("official-400-image-bytes.json", Some(RejectedContent::Media), Some((2, Some(0), Some(1)))),
    ("official-400-image-empty.json", Some(RejectedContent::Media), Some((118, Some(4), None))),
    ("official-400-image-kind.json", Some(RejectedContent::Media), Some((6, Some(5), None))),
    ("official-400-other.json", None, None),
    ("official-400-pdf-broken.json", Some(RejectedContent::Media), Some((4, Some(0), None))),
    ("official-400-pdf-pages.json", Some(RejectedContent::Media), Some((38, Some(0), None))),
    (
        "official-400-signature-bound.json",
        Some(RejectedContent::Thinking),
        Some((1, Some(0), None)),
    ),
    (
        "official-400-thinking-changed.json",
        Some(RejectedContent::Thinking),
        Some((5, Some(1), None)),
    ),
    ("official-400-thinking-missing.json", None, Some((129, Some(0), None))),
    ("official-400-tool-orphan.json", Some(RejectedContent::Pairs), Some((48, Some(1), None))),
    ("official-401.json", None, None),
    ("official-429.json", None, None),
    ("openrouter-400-quoted-image.json", Some(RejectedContent::Media), Some((2, Some(1), None))),
    (
        "openrouter-400-quoted-tool-orphan.json",
        Some(RejectedContent::Pairs),
        Some((12, Some(0), None)),
    ),
    ("vertex-400-quoted-signature.json", Some(RejectedContent::Thinking), Some((5, Some(0), None))),
    ("vllm-422.json", Some(RejectedContent::Block), Some((3, Some(1), None))),
];

/// The status is part of a recording's name.
fn status(name: &str) -> u16 {
    name.split(['-', '.']).find_map(|part| part.parse().ok()).expect("a status")
}

fn body(name: &str) -> Vec<u8> {
    recorded(&format!("bodies/{name}"))
}

fn fault(name: &str) -> Fault {
    let mut headers = HeaderMap::new();
    if let Some((_, error)) = AMAZON_ERROR_TYPES.iter().find(|(known, _)| *known == name) {
        let value = format!("{error}:http://internal.amazon.com/coral/com.amazon.bedrock/");
        headers.insert("x-amzn-errortype", HeaderValue::from_str(&value).expect("plain text"));
    }
    fault_of_response(status(name), &headers, &body(name), SystemTime::now())
}

fn answered(status: u16, body: &[u8]) -> Fault {
    fault_of_response(status, &HeaderMap::new(), body, SystemTime::now())
}

#[test]
fn every_recorded_body_has_its_meaning() {
    let mut wrong = Vec::new();
    for (name, class) in EXPECTED_CLASSES {
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
        let known = name == "README.md" || EXPECTED_CLASSES.iter().any(|(known, _)| *known == name);
        assert!(known, "{name} has no meaning yet");
    }
}

#[test]
fn every_class_that_a_service_can_say_was_said_by_the_api_and_by_a_gateway() {
    for class in ErrorClass::ALL {
        let unsaid = match class {
            // Ours: timers, connections, and what we make of several answers, or of none.
            ErrorClass::Aborted
            | ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled
            | ErrorClass::ConnectionError
            | ErrorClass::SslCertError
            | ErrorClass::Repeated529
            | ErrorClass::QuotaExhausted
            // A success, as the service sees it.
            | ErrorClass::Refusal
            | ErrorClass::BadResponse
            | ErrorClass::EmptyResponse
            | ErrorClass::Unknown => true,
            ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::ServerError
            | ErrorClass::PromptTooLong
            | ErrorClass::RequestTooLarge
            | ErrorClass::PdfTooLarge
            | ErrorClass::ImageTooLarge
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidModel
            | ErrorClass::CreditBalanceLow
            | ErrorClass::InvalidApiKey
            | ErrorClass::TokenRevoked
            | ErrorClass::AuthError
            | ErrorClass::ContentFiltered
            | ErrorClass::InvalidRequest => false,
        };
        for by_the_api in [true, false] {
            let said = EXPECTED_CLASSES
                .iter()
                .filter(|(name, _)| name.starts_with("official-") == by_the_api)
                .any(|(_, meaning)| *meaning == class);
            // Only clouds and gateways filter requests.
            let is_unsaid = unsaid || by_the_api && class == ErrorClass::ContentFiltered;
            assert_eq!(said, !is_unsaid, "{class}, by the API itself: {by_the_api}");
        }
    }
}

#[test]
fn a_throttle_of_a_cloud_is_never_taken_for_anything_else() {
    let clouds = ["bedrock-429", "vertex-429", "litellm-429-bedrock", "litellm-429-vertex"];
    let throttles: Vec<_> = EXPECTED_CLASSES
        .iter()
        .filter(|row| clouds.iter().any(|cloud| row.0.starts_with(cloud)))
        .collect();
    assert!(throttles.len() >= 10, "{throttles:?}");
    for (name, class) in throttles {
        let known = matches!(class, ErrorClass::RateLimit | ErrorClass::ServerOverload);
        assert!(known && classify(&fault(name)).class == *class, "{name}");
    }
    // The body alone must do: not every gateway hands Amazon's header on.
    for name in ["bedrock-429-tokens.json", "bedrock-400-rate.json"] {
        let nameless = answered(status(name), &body(name));
        assert_eq!(classify(&nameless).class, ErrorClass::RateLimit, "{name}");
    }
}

#[test]
fn every_overflow_gives_away_the_window_if_it_names_one() {
    for (name, window) in WINDOWS {
        let fault = classified(fault(name));
        assert_eq!(fault.named_window(), *window, "{name}: {fault:?}");
    }
    let others = EXPECTED_CLASSES.iter().filter(|(_, class)| *class != ErrorClass::PromptTooLong);
    for (name, _) in others {
        let fault = classified(fault(name));
        assert_eq!(fault.named_window(), None, "{name} is no overflow");
    }
}

#[test]
fn a_poisoned_conversation_is_told_by_what_is_wrong_and_where() {
    for (name, poison, place) in EXPECTED_POISONS {
        let fault = classified(fault(name));
        let place = place.map(|(message, block, inner)| BlockPath { message, block, inner });
        assert_eq!(
            (fault.rejected_content(), fault.rejected_block()),
            (*poison, place),
            "{name}: {fault:?}"
        );
    }
}

#[test]
fn what_a_specific_error_quotes_does_not_change_it() {
    let body = br#"{"error":{"type":"rate_limit_error","message":"was overloaded_error before"}}"#;
    assert_eq!(classify(&answered(429, body)).class, ErrorClass::RateLimit);
    let body = json!({ "error": {
        "type": "billing_error",
        "message": r#"after {"error":{"type":"overloaded_error","message":"x"}}"#,
    } });
    let fault = answered(402, body.to_string().as_bytes());
    assert_eq!(classify(&fault).class, ErrorClass::CreditBalanceLow);
}

#[test]
fn the_words_of_the_service_behind_a_gateway_are_kept() {
    let raw = fault("openrouter-429.json");
    assert!(raw.detail().starts_with("Provider returned error: z-ai/glm is temp"), "{raw:?}");
    let nested = fault("openrouter-402-nested.json");
    assert!(nested.detail().starts_with("More credits are required"), "{nested:?}");
    let whole = fault("vertex-400-quoted-signature.json");
    assert_eq!(whole.detail(), "messages.5.content.0: Invalid `signature` in `thinking` block");
    let both = fault("xai-429.json");
    assert!(both.detail().contains("used all available credits"), "{both:?}");
}

#[test]
fn a_page_is_told_by_its_title() {
    assert_eq!(fault("nginx-502.html").detail(), "502 Bad Gateway (an HTML page)");
    assert_eq!(fault("cdn-529.html").detail(), "an HTML page");
    assert_eq!(fault("ccr-401.txt").detail(), "Invalid API key");
}

#[test]
fn an_error_in_xml_in_an_event_or_as_a_text_is_told_by_its_words() {
    let xml =
        "<?xml version=\"1.0\"?><Error><Code>Denied</Code><Message>by policy</Message></Error>";
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    for (body, wanted) in [
        (xml, "by policy (an XML document)"),
        ("<Error><Code>Denied</Code></Error>", "Denied (an XML document)"),
        (&format!("event: error\ndata: {error}\n\n"), "Overloaded"),
        ("\"a bad thing\"", "a bad thing"),
    ] {
        assert_eq!(answered(400, body.as_bytes()).detail(), wanted);
    }
    let compressed = answered(400, b"\x1f\x8b\x08\0\xff\x02");
    assert_eq!(compressed.detail(), "6 bytes that are not text");
}

#[test]
fn amazon_names_its_requests_in_a_header_of_its_own() {
    let mut headers = HeaderMap::new();
    headers.insert("x-amzn-requestid", HeaderValue::from_static("158a2e26"));
    let fault = fault_of_response(429, &headers, b"{}", SystemTime::now());
    assert_eq!(fault.request_id.as_deref(), Some("158a2e26"));
}

/// Bodies several times as long as what is read of one.
#[test]
fn what_a_gateway_says_is_kept_within_bounds() {
    let long = "é".repeat(130_000);
    let bodies = [
        format!(r#"{{"error":{{"message":"{long}","type":"api_error"}}}}"#),
        format!(r#"{{"error":{{"message":"x","type":"{long}","code":"{long}"}}}}"#),
        format!(r#"{{"error":{{"type":"api_error","metadata":{{"raw":"{long}"}}}}}}"#),
        long,
        "{".repeat(250_000),
        "[".repeat(250_000),
        format!(r#"{{"error":{{"message":"{}"}}}}"#, r#"{\"error\":"#.repeat(25_000)),
    ];
    for body in bodies {
        let fault = answered(500, body.as_bytes());
        assert!(format!("{:?}", fault.kind).len() < 8_500, "{}", fault.detail().len());
        assert_eq!(classify(&fault).class, ErrorClass::ServerError);
    }
}

#[test]
fn unknown_error_bodies_are_classified_by_status() {
    let shapes = [
        json!(null),
        json!(true),
        json!(7),
        json!("broken"),
        json!([]),
        json!([[]]),
        json!([null]),
        json!({}),
        json!({ "error": null }),
        json!({ "error": 7 }),
        json!({ "error": [] }),
        json!({ "error": {} }),
        json!({ "error": { "message": null, "type": 7, "code": [] } }),
        json!({ "error": { "error": { "error": { "error": { "error": {} } } } } }),
        json!({ "message": { "message": { "message": 1 } } }),
        json!({ "detail": [] }),
        json!({ "detail": [[1], {}] }),
        json!({ "errors": [] }),
        json!({ "errors": [7] }),
        json!({ "code": 1e300, "message": "" }),
        json!({ "error": { "code": -1, "message": "\u{0}" } }),
    ];
    for shape in shapes {
        for (status, class) in [
            (400, ErrorClass::InvalidRequest),
            (401, ErrorClass::InvalidApiKey),
            (418, ErrorClass::InvalidRequest),
            (429, ErrorClass::RateLimit),
            (503, ErrorClass::ServerError),
            (529, ErrorClass::ServerOverload),
        ] {
            let fault = answered(status, shape.to_string().as_bytes());
            assert_eq!(classify(&fault).class, class, "{status} {shape}");
            assert_eq!(fault.status(), Some(status));
        }
    }
}

#[test]
fn an_error_in_place_of_a_reply_is_that_error() {
    let cases = [
        (
            json!({ "error": { "code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED" } }),
            ErrorClass::RateLimit,
        ),
        (
            json!([{ "error": { "code": 503, "message": "x", "status": "UNAVAILABLE" } }]),
            ErrorClass::ServerError,
        ),
        (
            json!({ "__type": "ThrottlingException", "message": "Rate exceeded" }),
            ErrorClass::RateLimit,
        ),
        (json!({ "error": { "code": 402, "message": "no credit" } }), ErrorClass::CreditBalanceLow),
        (
            json!({ "error": { "code": "context_length_exceeded", "message": "x" } }),
            ErrorClass::PromptTooLong,
        ),
        (json!({ "error": { "message": "lorem ipsum" } }), ErrorClass::BadResponse),
        (json!({ "error": "lorem ipsum" }), ErrorClass::BadResponse),
    ];
    for (body, class) in cases {
        let kind = parse_message(body.to_string().as_bytes()).expect_err("no reply");
        let fault = Fault::new(kind, outlast::recovery::FailureStage::Status);
        assert_eq!(classify(&fault).class, class, "{body}");
    }
}

#[test]
fn counts_that_no_reply_has_are_not_believed() {
    let body = json!({
        "id": "m", "role": "assistant", "content": [{ "type": "text", "text": "x" }],
        "stop_reason": "end_turn",
        "usage": { "input_tokens": u64::MAX, "cache_read_input_tokens": u64::MAX },
    });
    let answer = parse_message(body.to_string().as_bytes()).expect("a reply");
    assert!(answer.usage.input() < 1 << 42);
}

// --- whatever comes ------------------------------------------------------------------------------

/// JSON of any shape, whose names and texts are those that errors have.
fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "",
        "error",
        "prompt is too long: 9 tokens > 1 maximum",
        "messages.3.content.1: no",
        "{\"error\":{\"type\":\"overloaded_error\"}}",
        "{\"message\":",
        "429",
        "é\u{0}",
        "messages[99999999999999999999].content",
        "n_ctx",
        "> 18446744073709551616",
        "RESOURCE_EXHAUSTED",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        words.prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "error",
        "errors",
        "message",
        "Message",
        "detail",
        "details",
        "type",
        "code",
        "status",
        "metadata",
        "raw",
        "n_ctx",
        "error_code",
        "upstream_error",
        "__type",
        "reason",
        "title",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|members| {
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

fn classified(fault: Fault) -> ClassifiedFault {
    ClassifiedFault::new(fault, EndpointStatus::Untried)
}

/// Checks the invariants of the classification of any answer.
fn assert_classified(status: u16, body: &[u8]) -> Result<(), TestCaseError> {
    let fault = classified(answered(status, body));
    let class = fault.failure.class;
    prop_assert_eq!(fault.fault.status(), (status != 200).then_some(status));
    prop_assert_eq!(fault.named_window().is_some() && class != ErrorClass::PromptTooLong, false);
    if fault.rejected_content().is_some() || fault.rejected_block().is_some() {
        prop_assert!(!matches!(class, ErrorClass::RateLimit | ErrorClass::ServerError));
    }
    let (Ok(_) | Err(_)) = parse_message(body);
    Ok(())
}

proptest! {
    #![proptest_config(property_cases(200))]

    #[test]
    fn any_json_body_and_status_is_classified(body in any_json(), status in 100..600_u16) {
        assert_classified(status, body.to_string().as_bytes())?;
    }

    #[test]
    fn any_bytes_and_status_are_classified(
        body in prop::collection::vec(any::<u8>(), 0..200), status in 100..600_u16,
    ) {
        assert_classified(status, &body)?;
    }
}
