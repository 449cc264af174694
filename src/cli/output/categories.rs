//! Maps error classes to the category names that hosts use.

use crate::recovery::ErrorClass;

/// Returns the category name that hosts know.
pub(super) fn category(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked | ErrorClass::AuthError => {
            "authentication_failed"
        }
        ErrorClass::CreditBalanceLow => "billing_error",
        ErrorClass::RateLimit | ErrorClass::QuotaExhausted => "rate_limit",
        ErrorClass::ServerOverload | ErrorClass::Repeated529 => "overloaded",
        ErrorClass::InvalidModel => "model_not_found",
        ErrorClass::ServerError
        | ErrorClass::ApiTimeout
        | ErrorClass::StreamStalled
        | ErrorClass::ConnectionError
        | ErrorClass::BadResponse => "server_error",
        ErrorClass::PromptTooLong
        | ErrorClass::RequestTooLarge
        | ErrorClass::PdfTooLarge
        | ErrorClass::ImageTooLarge
        | ErrorClass::ToolUseMismatch
        | ErrorClass::InvalidRequest => "invalid_request",
        ErrorClass::Aborted
        | ErrorClass::SslCertError
        | ErrorClass::Refusal
        | ErrorClass::EmptyResponse
        | ErrorClass::Unknown => "unknown",
    }
}
