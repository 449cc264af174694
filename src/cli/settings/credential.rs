//! Selects the credential, and determines the kind of account.

use std::ffi::OsStr;
use std::path::Path;

use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::environment::{ProcessEnv, Variables};
use crate::model::{Credential, HelperCommand, LoginFile, Secret, is_token_endpoint};
use crate::secrets::{is_distinctive, is_placeholder};

/// Warns about credential variables that are set but empty, if there is no other credential:
/// typical of a CI job without access to its secret.
pub(in crate::cli) fn empty_variables(
    credential: &Credential,
    variables: &Variables,
) -> Option<String> {
    if *credential != Credential::None {
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
    credential: &Credential,
    variables: &Variables,
) -> impl Iterator<Item = String> {
    empty_variables(credential, variables).into_iter().chain(unmasked(credential))
}

/// Warns that a credential is too short to be redacted, unless it is a placeholder and not a
/// secret.
fn unmasked(credential: &Credential) -> Option<String> {
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
pub(super) fn gateway_credential(config: &Config, env: &ProcessEnv) -> Option<Credential> {
    let is_set = |command: &&String| !command.trim().is_empty();
    if let Some(command) = config.api_key_helper.as_ref().filter(is_set) {
        let usual = HelperCommand::new(command);
        let ttl = env.api_key_helper_ttl.unwrap_or(usual.ttl);
        return Some(Credential::Helper(HelperCommand { ttl, ..usual }));
    }
    env.auth_token.as_deref().map(|token| Credential::Bearer(Secret::new(token)))
}

/// Finds the credential: a command, a token, a key, the token of a login, a login, in this order.
///
/// # Errors
/// The login file is invalid, and no credential outranks it.
pub(super) fn credential(
    config: &Config,
    env: &ProcessEnv,
    config_dir: &Path,
) -> Result<Credential, UsageError> {
    if let Some(credential) = gateway_credential(config, env) {
        return Ok(credential);
    }
    if let Some(key) = &env.api_key {
        return Ok(Credential::ApiKey(Secret::new(key)));
    }
    if let Some(token) = &env.oauth_token {
        return Ok(Credential::OAuthToken(Secret::new(token)));
    }
    let file = LoginFile {
        token_endpoint: config.oauth_endpoint.clone(),
        client_id: config.oauth_client_id.clone(),
        ..LoginFile::within(config_dir)
    };
    let login = file.read().map_err(|error| {
        UsageError::credentials(format!("{error}; log in again, or remove the file"))
    })?;
    let Some(login) = login else { return Ok(Credential::None) };
    if login.token_endpoint.as_deref().is_some_and(|address| !is_token_endpoint(address)) {
        return Err(UsageError::credentials(
            "the token endpoint is not an https:// address; correct OUTLAST_OAUTH_ENDPOINT, or the \
             setting oauthEndpoint, or the login file",
        ));
    }
    Ok(Credential::OAuth { file, login: Some(Box::new(login)) })
}
