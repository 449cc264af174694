//! The endpoint and the credential of the first model.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::credential::{credential, gateway_credential};
use crate::cli::args::RunArgs;
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::clouds::{CloudEndpoint, CloudSources};
use crate::config::environment::{EXTRA_CERTIFICATES, ProcessEnv, Variables};
use crate::config::settings::BASE_URL;
use crate::config::values::InvalidValue;
use crate::model::{
    BaseUrl, CaFile, ConnectionTerms, Credential, IdentityFiles, ModelService, ServiceKind,
    USER_AGENT,
};

/// The header that enables features which the service has not released.
const BETA: &str = "anthropic-beta";

/// The header that names the programs which send a request.
const AGENT: &str = "user-agent";

/// The sources of an endpoint.
#[derive(Clone, Copy)]
pub(super) struct EndpointSources<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) env: &'a ProcessEnv,
    pub(super) config: &'a Config,
    pub(super) config_dir: &'a Path,
    pub(super) variables: &'a Variables,
}

impl<'a> EndpointSources<'a> {
    /// Returns the sources of clouds.
    pub(super) fn clouds(&self) -> CloudSources<'a> {
        CloudSources {
            variables: self.variables,
            config_dir: self.config_dir,
            aws_auth_refresh: self.config.aws_auth_refresh.as_deref(),
            aws_credential_export: self.config.aws_credential_export.as_deref(),
        }
    }

    /// Finds the address and the credential of the first model.
    ///
    /// # Errors
    /// Variables contradict each other, or an address or the login file is invalid.
    pub(super) fn endpoint(&self) -> Result<ModelService, UsageError> {
        let clouds = self.clouds();
        let invalid = |error: InvalidValue| UsageError::new(error.to_string());
        if let Some(place) = clouds.selected().map_err(invalid)? {
            let CloudEndpoint { service, base_url, credential } =
                clouds.endpoint(&place, None).map_err(invalid)?;
            // The gateway that authenticates may require a credential itself.
            let gateway = || gateway_credential(self.config, self.env).unwrap_or(Credential::None);
            let credential = if credential == Credential::None { gateway() } else { credential };
            return Ok(self.with(service, base_url, credential));
        }
        let credential = credential(self.config, self.env, self.config_dir)?;
        let endpoint = self.with_credential(credential);
        let wrong = "ANTHROPIC_BASE_URL is not an http:// or https:// address; correct it";
        BaseUrl::parse(&endpoint.base_url).map_err(|_| UsageError::new(wrong))?;
        Ok(endpoint)
    }

    /// Returns the endpoint of the Messages API with this credential.
    pub(super) fn with_credential(&self, credential: Credential) -> ModelService {
        let base_url = self.env.base_url.clone().unwrap_or_else(|| BASE_URL.to_owned());
        self.with(ServiceKind::Messages, base_url, credential)
    }

    fn with(&self, kind: ServiceKind, base_url: String, credential: Credential) -> ModelService {
        let Self { args, env, config, .. } = self;
        ModelService {
            kind,
            extra_headers: with_client_app(
                with_betas(env.custom_headers.clone(), &config.betas),
                env.client_app.as_deref(),
            ),
            marks_cache: config.prompt_caching,
            connection: ConnectionTerms {
                ca_files: ca_files(args, env),
                identity: identity_files(env),
                proxies: env.proxies.clone(),
            },
            timers: config.timers,
            ..ModelService::new(base_url, credential)
        }
    }
}

/// Returns the files of certificates that flags and variables name, except missing ones named only
/// by `NODE_EXTRA_CA_CERTS`.
fn ca_files(args: &RunArgs, env: &ProcessEnv) -> Vec<CaFile> {
    let of_flags = args.network.ca_file.iter().cloned().map(CaFile::from);
    let missing = missing_certificates(env);
    let of_variables = env.ca_files.iter().filter(|named| Some(*named) != missing);
    let of_variables =
        of_variables.map(|(name, path)| CaFile { path: path.clone(), variable: Some(name) });
    of_flags.chain(of_variables).collect()
}

/// Returns the files of the client certificate and its key. If no file of a key is named, that of
/// the certificate contains both.
fn identity_files(env: &ProcessEnv) -> Option<IdentityFiles> {
    let file = |(variable, path): &(&'static str, PathBuf)| CaFile {
        path: path.clone(),
        variable: Some(variable),
    };
    if unreadable_certificate(env).is_some() {
        return None;
    }
    let certificate = file(env.client_certificate.as_ref()?);
    let key = env.client_key.as_ref().map_or_else(|| certificate.clone(), file);
    Some(IdentityFiles { certificate, key })
}

/// Returns the variable of the client certificate and its file, if the file cannot be read.
fn unreadable_certificate(env: &ProcessEnv) -> Option<&(&'static str, PathBuf)> {
    env.client_certificate.as_ref().filter(|(_, path)| is_unreadable(path))
}

fn is_unreadable(path: &Path) -> bool {
    access(path, AccessFlags::R_OK).is_err() || path.is_dir()
}

/// Returns the variable of Node.js and its file, if the file cannot be read. The file may be a
/// pipe, and is not opened here.
fn missing_certificates(env: &ProcessEnv) -> Option<&(&'static str, PathBuf)> {
    let of_node = env.ca_files.iter().find(|(name, _)| *name == EXTRA_CERTIFICATES)?;
    is_unreadable(&of_node.1).then_some(of_node)
}

/// Returns the warnings about certificates that cannot be read.
pub(super) fn certificate_warnings(env: &ProcessEnv) -> impl Iterator<Item = String> {
    let missing = missing_certificates(env).into_iter().chain(unreadable_certificate(env));
    let missing = missing.map(|(name, path)| {
        format!("{name}: {} cannot be read, so that it is ignored", path.display())
    });
    let key = env.client_key.as_ref().filter(|_| env.client_certificate.is_none());
    let alone =
        key.map(|(name, _)| format!("{name} has no effect without CLAUDE_CODE_CLIENT_CERT"));
    missing.chain(alone)
}

/// Adds betas to those in the user's headers, and returns the headers.
fn with_betas(mut headers: Vec<(String, String)>, betas: &[String]) -> Vec<(String, String)> {
    if betas.is_empty() {
        return headers;
    }
    let given = headers.iter().position(|(name, _)| name.trim().eq_ignore_ascii_case(BETA));
    let given = given.map(|index| headers.swap_remove(index).1);
    let all: Vec<String> = given.into_iter().chain(betas.iter().cloned()).collect();
    headers.push((BETA.to_owned(), all.join(",")));
    headers
}

/// Adds the program that uses an SDK to the User-Agent, unless the user sets that header.
fn with_client_app(mut headers: Vec<(String, String)>, app: Option<&str>) -> Vec<(String, String)> {
    let is_value = |app: &&str| app.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let is_given = headers.iter().any(|(name, _)| name.trim().eq_ignore_ascii_case(AGENT));
    if let Some(app) = app.filter(is_value).filter(|_| !is_given) {
        headers.push((AGENT.to_owned(), format!("{USER_AGENT} {app}")));
    }
    headers
}
