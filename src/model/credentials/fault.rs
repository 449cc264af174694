//! What it means that no credential can be had.

use crate::recovery::{Fault, FaultKind, FailureStage};

/// A credential that cannot be had counts as rejected, though nobody saw it: the cure is the
/// same, and so is the end. Status 200 stands for no status of failure.
pub(super) fn missing_credential(code: &str, message: String) -> Box<Fault> {
    let kind = FaultKind::Refused {
        status: 200,
        label: "authentication_error".to_owned(),
        code: code.to_owned(),
        message,
    };
    Box::new(Fault::new(kind, FailureStage::Unsent))
}

/// Whoever issues or keeps credentials could not be reached: later may be better.
pub(super) fn issuer_unreachable(detail: String) -> Box<Fault> {
    Box::new(Fault::new(FaultKind::Connection { detail }, FailureStage::Unsent))
}
