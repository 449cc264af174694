//! Faults for a credential that is missing or cannot be fetched.

use crate::recovery::{ErrorBody, FailureStage, Fault, FaultKind, classify};
use crate::types::exit_code;

/// Returns a fault for a missing credential. It is treated like a rejected one, because the remedy
/// and the exit code are the same. Status 200 marks that no HTTP failure occurred.
pub(super) fn missing_credential(code: &str, message: String) -> Box<Fault> {
    let kind = FaultKind::Refused {
        status: 200,
        label: "authentication_error".to_owned(),
        code: code.to_owned(),
        message,
    };
    Box::new(Fault::new(kind, FailureStage::Unsent))
}

/// Returns a connection fault: the credential's issuer could not be reached, so a retry may help.
pub(super) fn issuer_unreachable(detail: String) -> Box<Fault> {
    Box::new(Fault::new(FaultKind::Connection { detail }, FailureStage::Unsent))
}

/// True if a retry may help against the refusal of a token service: it is busy, or a captive portal
/// or proxy answered in its place.
pub(super) fn is_temporary(refusal: &Fault) -> bool {
    refusal.body == ErrorBody::Portal
        || classify(refusal).class.info().exit_code == exit_code::TEMPORARY
}
