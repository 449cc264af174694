//! The reasons that there is no token for a server.

use std::error::Error;
use std::iter::successors;

use rmcp::transport::auth::AuthError;

use crate::secrets::Redactor;

use super::super::sanitize::sanitize_start;

/// The reason that there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::mcp) enum OAuthFault {
    /// A retry may succeed.
    #[error("{0}")]
    Temporary(String),
    /// Only a login by the user, or another configuration, can help.
    #[error("{0}")]
    Permanent(String),
}

/// Describes an error of the protocol with its causes.
pub(super) fn describe(error: &AuthError, redactor: &Redactor) -> String {
    let first: &(dyn Error + 'static) = error;
    let mut text = String::new();
    for cause in successors(Some(first), |&error| error.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    sanitize_start(&text, redactor)
}
