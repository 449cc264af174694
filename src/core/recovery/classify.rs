//! Classifies faults: maps raw facts about a failed call to the class that recovery acts on.

use super::output_limit::refuses_output_cap;
use super::refusal_wording::{
    refuses_content, refuses_images, refuses_part, refuses_streaming, sentences,
};
use super::{ClassifiedFault, EndpointStatus, ErrorClass, Failure, Fault, FaultKind, Timer};
use crate::text::contains_any;

impl ClassifiedFault {
    /// Classifies the fault of an endpoint.
    pub fn new(fault: Fault, endpoint_status: EndpointStatus) -> Self {
        Self { failure: Failure { endpoint_status, ..classify(&fault) }, fault }
    }
}

/// Classifies a fault by what is known of the fault alone. Total: every fault has exactly one class.
pub fn classify(fault: &Fault) -> Failure {
    let class = match &fault.kind {
        FaultKind::Refused { status, label, code, message } => classify_refusal(
            *status,
            &strip_decoration(label),
            &strip_decoration(code),
            &message.to_ascii_lowercase(),
        ),
        FaultKind::Timeout { timer } => match timer {
            Timer::Connect | Timer::FirstByte | Timer::Reply | Timer::Whole => {
                ErrorClass::ApiTimeout
            }
            Timer::StreamIdle | Timer::StreamProgress => ErrorClass::StreamStalled,
        },
        FaultKind::Connection { .. } | FaultKind::TornStream { .. } => ErrorClass::ConnectionError,
        FaultKind::Certificate { .. } => ErrorClass::SslCertError,
        FaultKind::InvalidContent { .. } => ErrorClass::BadResponse,
        FaultKind::HtmlPage { .. } => ErrorClass::ServerError,
        FaultKind::Unsendable { .. } => ErrorClass::InvalidRequest,
    };
    Failure {
        retry_after: fault.retry_after,
        retry_hint: fault.retry_hint,
        stage: fault.stage,
        fast_denied: fault.overage_disabled.is_some(),
        body: fault.body,
        ..Failure::of(class)
    }
}

/// Strips Amazon's decoration of a name: `com.amazon.coral#ThrottlingException:http://...`. Its
/// streams begin the same names with a lower-case letter.
fn strip_decoration(name: &str) -> String {
    let name = name.rsplit_once('#').map_or(name, |(_, name)| name);
    let name = name.split(':').next().unwrap_or_default().trim();
    match name.chars().next() {
        Some(first) if first.is_ascii_lowercase() && name.ends_with("Exception") => {
            first.to_ascii_uppercase().to_string() + &name[1..]
        }
        Some(_) | None => name.to_owned(),
    }
}

/// Classifies a refusal. The error's code outranks its type, and the type outranks the status (an
/// error within a stream arrives with status 200). Wording comes last: it can change at any time.
fn classify_refusal(status: u16, label: &str, code: &str, message: &str) -> ErrorClass {
    if matches!(status, 403..=405 | 429 | 500..) && refuses_part(message) {
        // A gateway's wrapper around the refusal of the service.
        return ErrorClass::InvalidRequest;
    }
    let class = classify_name(code)
        .or_else(|| classify_name(label))
        .unwrap_or_else(|| classify_status(status, label, message));
    refine_by_message(class, message)
}

/// Refines a class by the wording of some refusals.
fn refine_by_message(class: ErrorClass, message: &str) -> ErrorClass {
    let is_limited = class == ErrorClass::RateLimit;
    let is_forbidden = class == ErrorClass::AuthError;
    let may_be_unpaid = is_limited || is_forbidden || class == ErrorClass::InvalidRequest;
    if is_limited && message.contains("request too large for") {
        // More than the limit per minute: no wait makes the request fit.
        ErrorClass::PromptTooLong
    } else if may_be_unpaid && is_about_money(message) {
        ErrorClass::CreditBalanceLow
    } else if is_forbidden && message.contains("token") && message.contains("expired") {
        // Amazon's temporary credentials.
        ErrorClass::TokenRevoked
    } else {
        class
    }
}

/// Classifies by names that are unambiguous in any field: codes and types of the API, of gateways
/// and of compatible servers.
fn classify_name(name: &str) -> Option<ErrorClass> {
    by_name_of_the_api(name).or_else(|| by_name_of_a_cloud(name))
}

fn by_name_of_the_api(name: &str) -> Option<ErrorClass> {
    Some(match name {
        // GitHub Copilot, which did not get the whole request.
        "user_request_timeout" => ErrorClass::ServerError,
        "overloaded_error"
        | "engine_overloaded_error"
        | "server_is_overloaded"
        | "slow_down"
        // Groq.
        | "capacity_exceeded" => ErrorClass::ServerOverload,
        "rate_limit_error" | "ramp_limit_exceeded" | "rate_limit_exceeded" => ErrorClass::RateLimit,
        "billing_error"
        | "credit_balance_low"
        | "enforced_spend_limit_reached"
        | "contract_spend_limit_reached"
        | "insufficient_quota"
        | "insufficient_credits"
        | "exceeded_current_quota_error"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "budget_exceeded"
        // one-api and new-api, DashScope.
        | "insufficient_user_quota"
        | "pre_consume_token_quota_failed"
        | "Arrearage" => ErrorClass::CreditBalanceLow,
        "exceed_context_size_error"
        | "context_length_exceeded"
        | "model_max_prompt_tokens_exceeded"
        | "tokens_limit_reached"
        // Qianfan.
        | "tokens_too_long"
        // z.ai.
        | "1261" => ErrorClass::PromptTooLong,
        "image_dimensions_too_large" => ErrorClass::ImageTooLarge,
        "model_not_found"
        // Groq, Together, GitHub Copilot and Hugging Face, GitHub Models, z.ai.
        | "model_decommissioned"
        | "model_not_available"
        | "model_not_supported"
        | "unknown_model"
        | "unavailable_model"
        | "1211" => ErrorClass::InvalidModel,
        "invalid_api_key" | "invalid_authentication_error" | "token_not_found_in_db" => {
            ErrorClass::InvalidApiKey
        }
        // LiteLLM, with status 400 or 401.
        "expired_key" => ErrorClass::TokenRevoked,
        "tool_name_conflict" | "available_tools_limit_exceeded" => ErrorClass::InvalidRequest,
        // Azure and Kimi, OpenAI, DashScope, z.ai.
        "content_filter"
        | "ResponsibleAIPolicyViolation"
        | "content_policy_violation"
        | "moderation_blocked"
        | "data_inspection_failed"
        | "DataInspectionFailed"
        | "1301" => ErrorClass::ContentFiltered,
        name if name.starts_with("request_body_encoding") => ErrorClass::InvalidRequest,
        // LiteLLM, of a key, team, user, organization or project, with status 401 or 403.
        name if name.ends_with("_model_access_denied") => ErrorClass::AuthError,
        _ => return None,
    })
}

/// Classifies Amazon's exceptions, Google's statuses and reasons, and Microsoft's codes.
fn by_name_of_a_cloud(name: &str) -> Option<ErrorClass> {
    Some(match name {
        "ThrottlingException"
        // STS, with status 400.
        | "Throttling"
        | "RequestLimitExceeded"
        | "TooManyRequestsException"
        | "ServiceQuotaExceededException"
        | "RESOURCE_EXHAUSTED"
        | "RATE_LIMIT_EXCEEDED"
        | "RateLimitReached"
        | "TooManyRequests" => ErrorClass::RateLimit,
        "ModelNotReadyException" => ErrorClass::ServerOverload,
        "InternalServerException"
        | "ModelErrorException"
        | "ModelStreamErrorException"
        | "ModelTimeoutException"
        | "ServiceUnavailableException"
        | "ABORTED"
        | "CANCELLED"
        | "DEADLINE_EXCEEDED"
        | "INTERNAL"
        | "UNAVAILABLE"
        // STS, whose identity provider did not answer, and OAuth.
        | "IDPCommunicationError"
        | "temporarily_unavailable"
        // Between Foundry and what is behind it: the caller was accepted.
        | "invalid_model_endpoint_authentication" => ErrorClass::ServerError,
        "ResourceNotFoundException" | "DeploymentNotFound" => ErrorClass::InvalidModel,
        "ExpiredTokenException" => ErrorClass::TokenRevoked,
        "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignatureException"
        | "MissingAuthenticationTokenException"
        | "ACCESS_TOKEN_EXPIRED"
        | "API_KEY_INVALID"
        | "UNAUTHENTICATED" => ErrorClass::InvalidApiKey,
        "AccessDeniedException" | "PERMISSION_DENIED" | "PermissionDenied" => ErrorClass::AuthError,
        "BILLING_DISABLED" => ErrorClass::CreditBalanceLow,
        _ => return None,
    })
}

/// Classifies an error type without a status. An unknown type comes from a service that had
/// accepted the request, so the request is not at fault.
fn classify_stream_error(label: &str, message: &str) -> ErrorClass {
    let status = match label {
        "invalid_request_error" | "ValidationException" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "api_error" | "timeout_error" | "server_error" => 500,
        _ => return ErrorClass::BadResponse,
    };
    classify_status(status, label, message)
}

fn classify_status(status: u16, label: &str, message: &str) -> ErrorClass {
    match status {
        200 => classify_stream_error(label, message),
        400 | 404 | 415 | 422 | 500.. if refuses_images(message) => ErrorClass::ImageTooLarge,
        // 446: Portkey.
        400 | 403 | 422 | 446 | 500 if refuses_content(message) => ErrorClass::ContentFiltered,
        400 | 422 => classify_bad_request(message),
        401 | 403 if message.contains("revoked") => ErrorClass::TokenRevoked,
        401 => ErrorClass::InvalidApiKey,
        402 => ErrorClass::CreditBalanceLow,
        // Azure API Management, Kimi.
        403 if is_throttled(message) || is_used_up(message) => ErrorClass::RateLimit,
        // 407 is from a proxy, whose credential will be as wrong the next time.
        403 | 407 => ErrorClass::AuthError,
        404 | 410 if message.contains("model") || is_about_the_model(message) => {
            ErrorClass::InvalidModel
        }
        // llama.cpp sends the same type for a path that it does not serve.
        404 if label == "not_found_error" && message != "file not found" => {
            ErrorClass::InvalidModel
        }
        // A connection that leads to another service, in most cases by a pooled connection of
        // HTTP/2: a new one may lead to the right one.
        421 => ErrorClass::ConnectionError,
        // 423: locked. 425: too early. 449: Microsoft's "retry with". 460 and 499: a load balancer
        // or a gateway lost the connection.
        408 | 409 | 423 | 425 | 449 | 460 | 499 => ErrorClass::ServerError,
        // Groq, whose flexible tier has no capacity.
        498 => ErrorClass::ServerOverload,
        // TGI's for a failed generation.
        424 if !message.contains("model") => ErrorClass::ServerError,
        413 if is_too_long(message) || says_input_exceeds(message) => ErrorClass::PromptTooLong,
        413 => ErrorClass::RequestTooLarge,
        429 => ErrorClass::RateLimit,
        529 => ErrorClass::ServerOverload,
        // Some proxies use numbers that HTTP does not have, such as 999.
        500.. => classify_gateway_error(label, message),
        400..=499 => ErrorClass::InvalidRequest,
        _ => ErrorClass::Unknown,
    }
}

// --- classes by wording, for services that use one status for many meanings ---------------

/// Classifies an error of a gateway or, by its text, of the service behind the gateway. A permanent
/// failure must not be retried as a temporary one.
fn classify_gateway_error(label: &str, message: &str) -> ErrorClass {
    match label {
        "authentication_error" => ErrorClass::InvalidApiKey,
        "permission_error" => ErrorClass::AuthError,
        _ if message.contains("overloaded_error") => ErrorClass::ServerOverload,
        _ if is_about_money(message) => ErrorClass::CreditBalanceLow,
        _ if is_too_long(message) => ErrorClass::PromptTooLong,
        _ if is_throttled(message) => ErrorClass::RateLimit,
        _ => ErrorClass::ServerError,
    }
}

fn classify_bad_request(message: &str) -> ErrorClass {
    if is_throttled(message) {
        ErrorClass::RateLimit
    } else if refuses_output_cap(message) || refuses_streaming(message) {
        ErrorClass::InvalidRequest
    } else if is_too_long(message) {
        ErrorClass::PromptTooLong
    } else if message.contains("pdf") && is_about_size(message) {
        ErrorClass::PdfTooLarge
    } else if is_too_large_an_image(message) {
        ErrorClass::ImageTooLarge
    } else if is_too_large_a_request(message) {
        ErrorClass::RequestTooLarge
    } else if says_input_exceeds(message) {
        ErrorClass::PromptTooLong
    } else if is_about_pairs(message) {
        ErrorClass::ToolUseMismatch
    } else if is_about_the_model(message) {
        ErrorClass::InvalidModel
    } else if contains_any(
        message,
        &["organization has been disabled", "credential is only authorized for use with"],
    ) {
        ErrorClass::AuthError
    } else if says_it_passes(message) && !is_about_money(message) {
        ErrorClass::ServerError
    } else {
        ErrorClass::InvalidRequest
    }
}

/// True if the message says that the failure is temporary. Some gateways report a failed upstream
/// with status 400.
fn says_it_passes(message: &str) -> bool {
    let phrases = [
        "try again later",
        "temporarily unavailable",
        " is busy",
        "upstream request timeout",
        "upstream connect error",
        // LM Studio, which loads it again.
        "model has crashed",
        "model unloaded",
        // "Busy" and "later" of Chinese services.
        "\u{7e41}\u{5fd9}",
        "\u{7a0d}\u{540e}",
    ];
    contains_any(message, &phrases)
}

// Bedrock, whose "too many tokens" are those per minute and not those of a prompt; Vertex; LiteLLM,
// when it quotes them.
fn is_throttled(message: &str) -> bool {
    let phrases = [
        "too many requests",
        "too many tokens, please wait",
        "too many tokens per day",
        "rate exceeded",
        "throttlingexception",
        "resource exhausted",
        "resource_exhausted",
        "resource has been exhausted",
        "quota exceeded for",
        "rate limit reached",
        "ratelimiterror",
        // Azure API Management.
        "quota will be replenished",
    ];
    contains_any(message, &phrases)
}

// Kimi. The quota comes back by itself.
fn is_used_up(message: &str) -> bool {
    contains_any(message, &["usage limit for", "your quota will"])
}

// The API, its own check of `max_tokens`, LiteLLM, llama.cpp, OpenAI and vLLM, Bedrock, Vertex.
// "Too many tokens" alone may be those of the output, or those per minute.
fn is_too_long(message: &str) -> bool {
    let phrases = [
        "prompt is too long",
        "context limit",
        "contextwindowexceedederror",
        "context window",
        "context size",
        "context length",
        "input is too long",
        "input length",
        "expected maxlength",
        "maximum prompt length",
        "maximum number of tokens allowed",
        // vLLM, when the prompt alone fills the window.
        "max_tokens must be at least 1, got -",
        // Kimi, z.ai, GitHub Copilot, Cohere, AI21, watsonx.
        "exceeded model token limit",
        "prompt exceeds max length",
        "prompt token count of",
        "tokens in the prompt cannot exceed",
        "prompt has too many tokens",
        "cannot exceed the total tokens limit",
        // TGI, TensorRT-LLM, Amazon Nova.
        "`inputs` must have less than",
        "`inputs` tokens + `max_new_tokens` must be",
        "should not exceed max_num_tokens",
        "too many input tokens",
        // LM Studio, SiliconFlow, NIM.
        "cannot truncate prompt",
        "max_seq_len",
        "maximum model length",
        // vLLM, llama.cpp, Groq and Cerebras, Ollama, Azure.
        "max_model_len",
        "too big compared to kv size",
        "reduce the length of the messages",
        "prompt too long",
        "context too long",
        "too many tokens in",
        "input tokens exceed",
        // The codes of OpenAI and z.ai, quoted by gateways.
        "context_length_exceeded",
        "context_window_exceeded",
    ];
    contains_any(message, &phrases)
}

/// True if a sentence of the message says that the input is too much, in any wording, as at Vertex,
/// Qianfan, Ark, Cohere, `OpenAI` and Perplexity. Sentences about other limits and parameters do
/// not count.
fn says_input_exceeds(message: &str) -> bool {
    const INPUT: [&str; 6] = ["token", "prompt", "the input", "input too", "messages[", "input["];
    const TOO_MUCH: [&str; 13] = [
        "exceed",
        "too long",
        "too large",
        "longer than",
        "larger than",
        "greater than",
        "must be less than",
        "supports up to",
        "over the limit",
        "more than the maximum",
        "is too many",
        // "Exceeds" and "too long" of Chinese services.
        "\u{8d85}\u{8fc7}",
        "\u{8d85}\u{957f}",
    ];
    const OTHER: [&str; 20] = [
        "output",
        "completion",
        "max_tokens",
        "max_new_tokens",
        "maxtokens",
        "thinking",
        "reasoning",
        "budget",
        "top_",
        "temperature",
        "penalty",
        "per minute",
        "per day",
        "rate limit",
        "quota",
        "credit",
        "cache",
        "logprobs",
        "tools",
        ".name",
    ];
    // The size of an image or a document is not that of the conversation.
    let is_about_media = |part: &str| {
        contains_any(part, &["image", "document", "pdf", "media"]) && !part.contains("token")
    };
    sentences(message).any(|part| {
        !is_about_media(part)
            && contains_any(part, &INPUT)
            && contains_any(part, &TOO_MUCH)
            && !contains_any(part, &OTHER)
    })
}

// The API, LiteLLM, OpenAI, OpenRouter, DeepSeek, xAI, Google. Not "check your plan and billing
// details": a limit per minute is worded like that, too.
fn is_about_money(message: &str) -> bool {
    let phrases = [
        "credit balance is too low",
        "specified api usage limits",
        "spend limit",
        "extra usage is required",
        "out of extra usage",
        "draw from your extra usage",
        "usage credits required",
        "budget has been exceeded",
        "exceeded budget",
        "exceededbudget",
        "crossed budget",
        "insufficient_quota",
        "insufficient balance",
        "insufficient credit",
        "key limit exceeded (total limit)",
        "key limit exceeded (daily limit)",
        "key limit exceeded (weekly limit)",
        "key limit exceeded (monthly limit)",
        "requires more credits",
        "more credits are required",
        "used all available credits",
        "billing to be enabled",
    ];
    contains_any(message, &phrases)
}

fn is_about_size(message: &str) -> bool {
    contains_any(message, &["maximum", "too large", "too many", "exceed"])
}

// Google, Databricks, LiteLLM, Kimi, DashScope, and gateways in Go.
fn is_too_large_a_request(message: &str) -> bool {
    let names = ["request size", "request body", "body size", "payload", "message size"];
    let sizes = ["size", "bytes", "too large"];
    let limits = ["exceed", "too large", "limit"];
    contains_any(message, &names) && contains_any(message, &sizes) && contains_any(message, &limits)
}

fn is_too_large_an_image(message: &str) -> bool {
    let phrases = [
        "image exceed",
        "image dimensions",
        "image too large",
        "too many images",
        "too much media",
        // vLLM.
        "image(s) may be provided",
        // OpenAI, Gemini.
        "represent a valid image",
        "unsupported image",
        "process input image",
    ];
    contains_any(message, &phrases)
}

// The API, Bedrock, OpenAI.
fn is_about_pairs(message: &str) -> bool {
    let both = message.contains("tool_use") && message.contains("tool_result");
    // A message on the position of thinking may mention tool calls.
    (both && !message.contains("thinking"))
        || contains_any(
            message,
            &["`tool_use` ids must be unique", "toolresult blocks", "tool_call_id"],
        )
}

// The API, LiteLLM, Bedrock, OpenAI and vLLM, Ollama, OpenRouter, Vertex.
fn is_about_the_model(message: &str) -> bool {
    message.starts_with("model:")
        || says_of_a_model(
            message,
            &[
                "not found",
                "does not exist",
                "is not supported",
                // Groq, NVIDIA.
                "has been decommissioned",
                "has reached its end of life",
            ],
        )
        || contains_any(
            message,
            &[
                "\"model: ",
                "invalid model",
                "is not a valid model",
                "model identifier is invalid",
                "with on-demand throughput",
                "not allowed to use publisher model",
                "is not servable in region",
                "disallowed gen ai model",
                "no endpoints found",
                // DeepSeek and DashScope, Cloudflare, Together, GitHub Copilot, NVIDIA.
                "model not exist",
                "no such model",
                "unable to access model",
                "requested model is not supported",
                "not found for account",
                // z.ai, GitHub Models, MiniMax.
                "unknown model, please",
                "unknown model: ",
                // LM Studio.
                "no models loaded",
                "unknown model '",
            ],
        )
}

/// True if the message names a model and one of the phrases follows. In "this field is not
/// supported by the model", the phrase precedes.
fn says_of_a_model(message: &str, phrases: &[&str]) -> bool {
    let names = ["the model", "model \"", "model '", "model `"];
    let start = names.iter().filter_map(|name| message.find(name)).min();
    start.is_some_and(|at| contains_any(&message[at..], phrases))
}
