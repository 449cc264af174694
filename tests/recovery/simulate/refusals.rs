//! Kinds of refusals, as a reader of the manual knows them.

use outlast_core::recovery::{EndpointStatus, ErrorBody, ErrorClass, Failure};

/// Whether the service has no capacity for the request.
pub(super) fn is_shortage(failure: Failure) -> bool {
    matches!(failure.class, ErrorClass::RateLimit | ErrorClass::ServerOverload)
}

/// Whether the request was at fault, so that it can only be refused again.
pub(super) fn is_final(class: ErrorClass) -> bool {
    !matches!(
        class,
        ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled
            | ErrorClass::ConnectionError
            | ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::ServerError
            | ErrorClass::BadResponse
    )
}

/// Whether an endpoint that succeeded before refuses in an unexpected way.
pub(super) fn is_odd(failure: Failure) -> bool {
    let foreign = failure.body == ErrorBody::Foreign && is_final(failure.class);
    let portal = failure.body == ErrorBody::Portal && is_final(failure.class);
    let certificate = failure.class == ErrorClass::SslCertError;
    let is_proven = failure.endpoint_status == EndpointStatus::Proven;
    portal || ((foreign || certificate) && is_proven) || is_doubtful(failure)
}

/// Whether what is known contradicts a refusal.
fn is_doubtful(failure: Failure) -> bool {
    let of_access = matches!(
        failure.class,
        ErrorClass::InvalidApiKey | ErrorClass::AuthError | ErrorClass::InvalidModel
    );
    let of_request = matches!(
        failure.class,
        ErrorClass::InvalidRequest | ErrorClass::ToolUseMismatch | ErrorClass::ContentFiltered
    );
    let proven =
        failure.body == ErrorBody::Api && failure.endpoint_status == EndpointStatus::Proven;
    (of_access && proven) || (of_request && failure.contradicted)
}
