//! The reasons that there is no token for a server.

use rmcp::transport::auth::AuthError;

use crate::connect_error::causes;
use crate::mcp::sanitize::sanitize_start;
use crate::secrets::Redactor;

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
    let mut text = String::new();
    for cause in causes(error) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    sanitize_start(&text, redactor)
}
