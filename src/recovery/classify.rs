//! From what the wire showed to what it means.

use super::{ErrorClass, Failure, Fault, FaultKind, Remedies, Timer};

/// Judges a fault. Total: every fault has exactly one meaning.
pub fn classify(fault: &Fault) -> Failure {
    let class = match &fault.kind {
        FaultKind::Refused { status, label, code, message } => {
            refusal(*status, label, code, &message.to_ascii_lowercase())
        }
        FaultKind::Timeout { timer } => match timer {
            Timer::Connect | Timer::FirstByte | Timer::Whole => ErrorClass::ApiTimeout,
            Timer::StreamIdle | Timer::StreamProgress => ErrorClass::StreamStalled,
        },
        FaultKind::Connection { .. } | FaultKind::TornStream { .. } => ErrorClass::ConnectionError,
        FaultKind::Certificate { .. } => ErrorClass::SslCertError,
        FaultKind::Nonsense { .. } => ErrorClass::BadResponse,
        FaultKind::Unsendable { .. } => ErrorClass::InvalidRequest,
    };
    Failure {
        class,
        wish: fault.wish,
        ruling: fault.ruling,
        reach: fault.reach,
        remedies: Remedies::NONE,
        fast_denied: fault.overage_disabled.is_some(),
    }
}

/// The error's own code outranks its type, its type the status (an error in the middle of a
/// stream arrives with status 200), and wording comes last: it can change at any time.
fn refusal(status: u16, label: &str, code: &str, message: &str) -> ErrorClass {
    by_name(code).or_else(|| by_name(label)).unwrap_or_else(|| by_status(status, label, message))
}

/// Names that mean one thing, wherever they stand: the API's own codes and types, and those of
/// gateways and of servers that imitate it.
fn by_name(name: &str) -> Option<ErrorClass> {
    Some(match name {
        "overloaded_error" => ErrorClass::ServerOverload,
        "rate_limit_error"
        | "ramp_limit_exceeded"
        | "rate_limit_exceeded"
        | "ThrottlingException"
        | "throttlingException"
        | "RESOURCE_EXHAUSTED" => ErrorClass::RateLimit,
        "billing_error"
        | "enforced_spend_limit_reached"
        | "contract_spend_limit_reached"
        | "insufficient_quota"
        | "billing_hard_limit_reached"
        | "budget_exceeded" => ErrorClass::CreditBalanceLow,
        "exceed_context_size_error" | "context_length_exceeded" => ErrorClass::PromptTooLong,
        "image_dimensions_too_large" => ErrorClass::ImageTooLarge,
        "model_not_found" => ErrorClass::InvalidModel,
        "invalid_api_key" => ErrorClass::InvalidApiKey,
        "tool_name_conflict" | "available_tools_limit_exceeded" => ErrorClass::InvalidRequest,
        name if name.starts_with("request_body_encoding") => ErrorClass::InvalidRequest,
        _ => return None,
    })
}

/// What a type means when there is no status to go by. One that nobody knows came from a service
/// that had accepted the request, so it says nothing against the request.
fn in_a_stream(label: &str, message: &str) -> ErrorClass {
    let status = match label {
        "invalid_request_error" | "validationException" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "api_error"
        | "timeout_error"
        | "server_error"
        | "internalServerException"
        | "modelStreamErrorException"
        | "modelTimeoutException"
        | "serviceUnavailableException" => 500,
        _ => return ErrorClass::BadResponse,
    };
    by_status(status, label, message)
}

fn by_status(status: u16, label: &str, message: &str) -> ErrorClass {
    match status {
        200 => in_a_stream(label, message),
        400 | 422 => bad_request(message),
        401 | 403 if message.contains("revoked") => ErrorClass::TokenRevoked,
        // Bedrock's temporary credentials.
        403 if message.contains("token") && message.contains("expired") => ErrorClass::TokenRevoked,
        401 => ErrorClass::InvalidApiKey,
        402 => ErrorClass::CreditBalanceLow,
        403 => ErrorClass::AuthError,
        404 if message.contains("model") => ErrorClass::InvalidModel,
        // llama.cpp says the same of a path that it does not serve.
        404 if label == "not_found_error" && message != "file not found" => {
            ErrorClass::InvalidModel
        }
        408 | 409 => ErrorClass::ServerError,
        413 if is_too_long(message) => ErrorClass::PromptTooLong,
        413 => ErrorClass::RequestTooLarge,
        429 => ErrorClass::RateLimit,
        529 => ErrorClass::ServerOverload,
        // LiteLLM answers 500 for an upstream's 529 and quotes it.
        500..=599 if message.contains("overloaded_error") => ErrorClass::ServerOverload,
        500..=599 => ErrorClass::ServerError,
        400..=499 => ErrorClass::InvalidRequest,
        _ => ErrorClass::Unknown,
    }
}

// --- the one place where wording decides: these have a single status for many meanings ---------

fn bad_request(message: &str) -> ErrorClass {
    if is_too_long(message) {
        ErrorClass::PromptTooLong
    } else if mentions(message, &["credit balance is too low", "budget has been exceeded"]) {
        ErrorClass::CreditBalanceLow
    } else if message.contains("pdf") && is_about_size(message) {
        ErrorClass::PdfTooLarge
    } else if is_too_large_an_image(message) {
        ErrorClass::ImageTooLarge
    } else if is_about_pairs(message) {
        ErrorClass::ToolUseMismatch
    } else if is_about_the_model(message) {
        ErrorClass::InvalidModel
    } else {
        ErrorClass::InvalidRequest
    }
}

// The API, its own check of `max_tokens`, LiteLLM, llama.cpp, OpenAI and vLLM, Bedrock.
fn is_too_long(message: &str) -> bool {
    mentions(
        message,
        &[
            "prompt is too long",
            "exceed context limit",
            "contextwindowexceedederror",
            "context window",
            "context size",
            "context length",
            "input is too long",
        ],
    )
}

fn is_about_size(message: &str) -> bool {
    mentions(message, &["maximum", "too large", "too many", "exceed"])
}

fn is_too_large_an_image(message: &str) -> bool {
    let phrases = ["image exceeds", "image dimensions", "image too large", "too many images"];
    mentions(message, &phrases)
}

// The API, Bedrock, OpenAI.
fn is_about_pairs(message: &str) -> bool {
    let both = message.contains("tool_use") && message.contains("tool_result");
    both || mentions(
        message,
        &["`tool_use` ids must be unique", "toolresult blocks", "tool_call_id"],
    )
}

// The API, LiteLLM, Bedrock, OpenAI and vLLM, Ollama.
fn is_about_the_model(message: &str) -> bool {
    let missing = mentions(message, &["not found", "does not exist", "is not supported"]);
    message.starts_with("model:")
        || mentions(message, &["\"model: ", "invalid model", "model identifier is invalid"])
        || (missing && mentions(message, &["the model", "model \"", "model '", "model `"]))
}

fn mentions(message: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| message.contains(phrase))
}
