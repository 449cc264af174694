//! From what the wire showed to what it means.

use super::{ErrorClass, Failure, Fault, FaultKind, Reach, Timer};

/// Judges a fault. Total: every fault has exactly one meaning.
pub fn classify(fault: &Fault) -> Failure {
    let class = match &fault.kind {
        FaultKind::Refused { status, label, code, message } => {
            refusal(*status, label, code, message)
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
    Failure { class, wish: fault.wish, ruling: fault.ruling, reach: fault.reach }
}

impl Failure {
    /// Whether streaming itself looks like what failed: it began and broke before anything whole
    /// came.
    pub(super) fn broke_before_a_block(self) -> bool {
        let streaming = matches!(
            self.class,
            ErrorClass::StreamStalled | ErrorClass::ConnectionError | ErrorClass::BadResponse
        );
        streaming && self.reach == Reach::Stream
    }
}

/// The error's own code outranks its type, its type the status (a mid-stream error arrives with
/// status 200), and wording comes last: it can change at any time.
fn refusal(status: u16, label: &str, code: &str, message: &str) -> ErrorClass {
    by_code(code)
        .or_else(|| by_label(label, status, message))
        .unwrap_or_else(|| by_status(status, message))
}

fn by_code(code: &str) -> Option<ErrorClass> {
    match code {
        "enforced_spend_limit_reached" | "contract_spend_limit_reached" => {
            Some(ErrorClass::CreditBalanceLow)
        }
        "image_dimensions_too_large" => Some(ErrorClass::ImageTooLarge),
        "ramp_limit_exceeded" => Some(ErrorClass::RateLimit),
        _ => None,
    }
}

fn by_label(label: &str, status: u16, message: &str) -> Option<ErrorClass> {
    match label {
        "overloaded_error" => Some(ErrorClass::ServerOverload),
        "rate_limit_error" => Some(ErrorClass::RateLimit),
        "api_error" | "timeout_error" if status == 200 => Some(ErrorClass::ServerError),
        "authentication_error" if status == 200 || status == 401 => Some(ErrorClass::InvalidApiKey),
        "permission_error" if status == 200 => Some(ErrorClass::AuthError),
        "billing_error" => Some(ErrorClass::CreditBalanceLow),
        "exceed_context_size_error" => Some(ErrorClass::PromptTooLong),
        "invalid_request_error" if status == 200 => Some(bad_request(message)),
        _ => None,
    }
}

fn by_status(status: u16, message: &str) -> ErrorClass {
    match status {
        400 | 422 => bad_request(message),
        401 => ErrorClass::InvalidApiKey,
        402 => ErrorClass::CreditBalanceLow,
        403 if mentions(message, &["revoked"]) => ErrorClass::TokenRevoked,
        403 => ErrorClass::AuthError,
        404 => ErrorClass::InvalidModel,
        408 | 409 => ErrorClass::ServerError,
        413 if mentions(message, &["prompt is too long"]) => ErrorClass::PromptTooLong,
        413 => ErrorClass::RequestTooLarge,
        429 => ErrorClass::RateLimit,
        529 => ErrorClass::ServerOverload,
        500..=599 => ErrorClass::ServerError,
        400..=499 => ErrorClass::InvalidRequest,
        _ => ErrorClass::Unknown,
    }
}

/// The one place where wording decides: the service has a single code for many meanings.
fn bad_request(message: &str) -> ErrorClass {
    if mentions(
        message,
        &["prompt is too long", "context window", "context size", "context length"],
    ) {
        ErrorClass::PromptTooLong
    } else if mentions(message, &["credit balance is too low"]) {
        ErrorClass::CreditBalanceLow
    } else if mentions(message, &["tool_use", "tool_result"]) {
        ErrorClass::ToolUseMismatch
    } else if mentions(message, &["pdf"]) {
        ErrorClass::PdfTooLarge
    } else if mentions(message, &["image exceeds", "image dimensions", "image too large"]) {
        ErrorClass::ImageTooLarge
    } else if mentions(message, &["model:", "invalid model"]) {
        ErrorClass::InvalidModel
    } else {
        ErrorClass::InvalidRequest
    }
}

fn mentions(message: &str, phrases: &[&str]) -> bool {
    let message = message.to_ascii_lowercase();
    phrases.iter().any(|phrase| message.contains(phrase))
}
