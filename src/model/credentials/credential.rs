//! The authentication of requests, and the result of fetching a new credential.

use std::fmt;

use crate::recovery::{AccountKind, Fault};

use super::cloud::CloudIdentity;
use super::helper::HelperCommand;
use super::login::{Login, LoginFile};
use super::secret::Secret;

/// The authentication of a request. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// No authentication: the server needs none, or a gateway authenticates requests.
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
    OAuth {
        file: LoginFile,
        /// The login that was read from the file before the run, if any was.
        login: Option<Box<Login>>,
    },
    /// The key of a Foundry resource: `api-key` and `x-api-key`.
    FoundryKey(Secret),
    /// An identity of a cloud: a signature, or a bearer token.
    Cloud(Box<CloudIdentity>),
}

impl Credential {
    /// Returns the provenance of the credential, for the init message.
    pub fn source(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => "ANTHROPIC_API_KEY",
            Self::Bearer(_) => "ANTHROPIC_AUTH_TOKEN",
            Self::OAuthToken(_) => "CLAUDE_CODE_OAUTH_TOKEN",
            Self::Helper(_) => "apiKeyHelper",
            Self::OAuth { .. } => "oauth",
            Self::FoundryKey(_) => "ANTHROPIC_FOUNDRY_API_KEY",
            Self::Cloud(identity) => identity.kind(),
            Self::None => "none",
        }
    }

    /// Returns its secrets.
    pub fn secrets(&self) -> Vec<&str> {
        match self {
            Self::ApiKey(secret)
            | Self::Bearer(secret)
            | Self::OAuthToken(secret)
            | Self::FoundryKey(secret) => vec![secret.reveal()],
            Self::OAuth { login, .. } => {
                let both = login.iter().flat_map(|login| [&login.access, &login.refresh]);
                both.flatten().map(Secret::reveal).collect()
            }
            // Tokens of an identity are added when they are fetched, and keys are in variables.
            Self::Helper(_) | Self::Cloud(_) | Self::None => Vec::new(),
        }
    }

    /// Returns true if the credential can be replaced when the server rejects it.
    pub fn can_change(&self) -> bool {
        match self {
            Self::Helper(_) | Self::OAuth { .. } | Self::Cloud(_) => true,
            Self::ApiKey(_)
            | Self::Bearer(_)
            | Self::OAuthToken(_)
            | Self::FoundryKey(_)
            | Self::None => false,
        }
    }

    /// Returns the kind of account, as far as the credential shows it.
    pub fn account(&self) -> AccountKind {
        let Self::OAuth { login, .. } = self else { return AccountKind::ApiKey };
        match login.as_ref().and_then(|login| login.subscription.as_deref()) {
            None => AccountKind::ApiKey,
            Some("enterprise") => AccountKind::Enterprise,
            Some(_) => AccountKind::Subscription,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
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
