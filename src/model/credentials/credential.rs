//! The authentication of requests, and the result of fetching a new credential.

use crate::recovery::Fault;

use super::cloud::CloudIdentity;
use super::helper::HelperCommand;
use super::login::LoginFile;
use super::secret::Secret;

/// The authentication of a request.
#[derive(Clone, Debug)]
pub enum Credential {
    /// No authentication.
    None,
    /// `x-api-key`.
    ApiKey(Secret),
    /// `authorization: Bearer`.
    Bearer(Secret),
    /// The token of a login that is not renewed, sent as a bearer token.
    OAuthToken(Secret),
    /// The key printed by a command, sent in both headers.
    Helper(HelperCommand),
    /// The access token of a login, sent as a bearer token.
    OAuth(LoginFile),
    /// The key of a Foundry resource: `api-key` and `x-api-key`.
    FoundryKey(Secret),
    /// An identity of a cloud: a signature, or a bearer token.
    Cloud(Box<CloudIdentity>),
}

/// The result of fetching a new credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// A different credential is in use now.
    Replaced,
    /// A command printed the same key again, which confirms it: one more try is worthwhile.
    Confirmed,
    /// The credential is unchanged, or cannot be replaced. It would be rejected again.
    Unchanged,
    /// No credential could be fetched. A connection fault may be temporary; any other is permanent.
    Failed(Box<Fault>),
}
