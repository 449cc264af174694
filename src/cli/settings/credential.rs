//! Selects the credential, and determines the kind of account.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::clouds::CloudCredential;
use crate::config::environment::{ProcessEnv, Variables};
use crate::model::{CloudIdentity, HelperCommand, Login, LoginFile, Secret, is_token_endpoint};
use crate::recovery::AccountKind;
use crate::secrets::{is_distinctive, is_placeholder};

/// The credential of an endpoint. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum CredentialSource {
    ApiKey(String),
    Bearer(String),
    /// The token of a login that is not renewed.
    OAuthToken(String),
    /// A helper command that prints the credential.
    Helper(HelperCommand),
    /// A login that is renewed, as read at the start.
    OAuth {
        file: LoginFile,
        login: Box<Login>,
    },
    /// The key of a Foundry resource.
    FoundryKey(String),
    /// An identity of a cloud.
    Cloud(Box<CloudIdentity>),
    /// The server needs no credential.
    Absent,
}

impl From<CloudCredential> for CredentialSource {
    fn from(credential: CloudCredential) -> Self {
        match credential {
            CloudCredential::FoundryKey(key) => Self::FoundryKey(key),
            CloudCredential::Bearer(token) => Self::Bearer(token),
            CloudCredential::Identity(identity) => Self::Cloud(identity),
            CloudCredential::Skipped => Self::Absent,
        }
    }
}

impl CredentialSource {
    /// Returns its provenance for the init message.
    pub fn source(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => "ANTHROPIC_API_KEY",
            Self::Bearer(_) => "ANTHROPIC_AUTH_TOKEN",
            Self::OAuthToken(_) => "CLAUDE_CODE_OAUTH_TOKEN",
            Self::Helper(_) => "apiKeyHelper",
            Self::OAuth { .. } => "oauth",
            Self::FoundryKey(_) => "ANTHROPIC_FOUNDRY_API_KEY",
            Self::Cloud(identity) => identity.kind(),
            Self::Absent => "none",
        }
    }

    /// Returns its secrets.
    pub fn secrets(&self) -> Vec<&str> {
        match self {
            Self::ApiKey(secret)
            | Self::Bearer(secret)
            | Self::OAuthToken(secret)
            | Self::FoundryKey(secret) => vec![secret],
            Self::OAuth { login, .. } => {
                let both = [&login.access, &login.refresh];
                both.into_iter().flatten().map(Secret::reveal).collect()
            }
            // Tokens of an identity are added when they are fetched, and keys are in variables.
            Self::Helper(_) | Self::Cloud(_) | Self::Absent => Vec::new(),
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
            | Self::Absent => false,
        }
    }

    /// Returns the kind of account, as far as the credential shows it.
    pub fn account(&self) -> AccountKind {
        let Self::OAuth { login, .. } = self else { return AccountKind::ApiKey };
        match login.subscription.as_deref() {
            None => AccountKind::ApiKey,
            Some("enterprise") => AccountKind::Enterprise,
            Some(_) => AccountKind::Subscription,
        }
    }
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
}

/// Warns about credential variables that are set but empty, if there is no other credential:
/// typical of a CI job without access to its secret.
pub(in crate::cli) fn empty_variables(
    credential: &CredentialSource,
    variables: &Variables,
) -> Option<String> {
    if *credential != CredentialSource::Absent {
        return None;
    }
    let is_empty = |name: &&str| {
        let value = variables.get(OsStr::new(name)).and_then(|value| value.to_str());
        value.is_some_and(|value| value.trim().is_empty())
    };
    let names = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
    let empty: Vec<&str> = names.into_iter().filter(is_empty).collect();
    match empty[..] {
        [] => None,
        [one] => Some(format!("{one} is set and empty, which counts as not set")),
        _ => Some(format!("{} are set and empty, which counts as not set", empty.join(" and "))),
    }
}

/// Warns about problems of a credential.
pub(super) fn warnings(
    credential: &CredentialSource,
    variables: &Variables,
) -> impl Iterator<Item = String> {
    empty_variables(credential, variables).into_iter().chain(unmasked(credential))
}

/// Warns that a credential is too short to be redacted, unless it is a placeholder and not a
/// secret.
fn unmasked(credential: &CredentialSource) -> Option<String> {
    let is_short = |secret: &&str| !is_distinctive(secret) && !is_placeholder(secret);
    credential.secrets().iter().any(is_short).then(|| {
        format!(
            "the credential ({}) is too short to be redacted: it may appear in output and in \
             stored files; use a longer one",
            credential.source()
        )
    })
}

/// Returns the credential for a gateway, regardless of the service behind it: a command or a token.
pub(super) fn gateway_credential(config: &Config, env: &ProcessEnv) -> Option<CredentialSource> {
    let is_set = |command: &&String| !command.trim().is_empty();
    if let Some(command) = config.api_key_helper.as_ref().filter(is_set) {
        let usual = HelperCommand::new(command);
        let ttl = env.api_key_helper_ttl.unwrap_or(usual.ttl);
        return Some(CredentialSource::Helper(HelperCommand { ttl, ..usual }));
    }
    env.auth_token.clone().map(CredentialSource::Bearer)
}

/// Finds the credential: a command, a token, a key, the token of a login, a login, in this order.
///
/// # Errors
/// The login file is invalid, and no credential outranks it.
pub(super) fn credential(
    config: &Config,
    env: &ProcessEnv,
    config_dir: &Path,
) -> Result<CredentialSource, UsageError> {
    if let Some(credential) = gateway_credential(config, env) {
        return Ok(credential);
    }
    if let Some(key) = &env.api_key {
        return Ok(CredentialSource::ApiKey(key.clone()));
    }
    if let Some(token) = &env.oauth_token {
        return Ok(CredentialSource::OAuthToken(token.clone()));
    }
    let file = LoginFile {
        token_endpoint: config.oauth_endpoint.clone(),
        client_id: config.oauth_client_id.clone(),
        ..LoginFile::within(config_dir)
    };
    let login = file.read().map_err(|error| {
        UsageError::credentials(format!("{error}; log in again, or remove the file"))
    })?;
    let Some(login) = login else { return Ok(CredentialSource::Absent) };
    if login.token_endpoint.as_deref().is_some_and(|address| !is_token_endpoint(address)) {
        return Err(UsageError::credentials(
            "the token endpoint is not an https:// address; correct OUTLAST_OAUTH_ENDPOINT, or the \
             setting oauthEndpoint, or the login file",
        ));
    }
    Ok(CredentialSource::OAuth { file, login: Box::new(login) })
}
