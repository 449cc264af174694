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

/// The reason that there is no login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(String);

impl LoginError {
    pub fn new(why: String) -> Self {
        Self(why)
    }
}

impl From<OAuthFault> for LoginError {
    fn from(fault: OAuthFault) -> Self {
        Self(fault.to_string())
    }
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
