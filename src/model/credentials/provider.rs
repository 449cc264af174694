//! Provides the credential in use: signs requests with it and fetches a new one.

use std::time::Duration;

use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use rustls::pki_types::CertificateDer;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::process::Supervisor;
use crate::recovery::{Fault, KEY_HELPER_FAILED};
use crate::secrets::KnownSecrets;

use super::super::endpoint::ModelService;
use super::super::headers::{add_beta, wall_clock};
use super::super::proxies::encoded_login;
use super::super::service::ServiceKind;
use super::cloud::{CloudLogin, TokenContext, TokenHttp, TokenKind, sign_request};
use super::credential::{Credential, Renewal};
use super::fault::missing_credential;
use super::helper::{HelperCommand, HelperError};
use super::oauth::OAuthLogin;
use super::secret::Secret;

const API_KEY: &str = "x-api-key";
/// The header of Microsoft Foundry, which it accepts in addition to `x-api-key`.
const FOUNDRY_KEY: &str = "api-key";
/// The beta without which the Messages API refuses tokens of logins.
const OAUTH_BETA: &str = "oauth-2025-04-20";
const QUOTA_PROJECT: &str = "x-goog-user-project";
/// The name of Bedrock in signatures.
const BEDROCK: &str = "bedrock";

#[derive(Debug)]
pub(crate) struct CredentialProvider(ProviderKind);

#[derive(Debug)]
enum ProviderKind {
    None,
    ApiKey(Secret),
    Bearer(Secret),
    OAuthToken(Secret),
    Helper(KeyHelper),
    OAuth(Box<OAuthLogin>),
    FoundryKey(Secret),
    Cloud { login: Box<CloudLogin>, region: String },
}

#[derive(Debug)]
struct KeyHelper {
    command: HelperCommand,
    /// The last printed key. The lock is held while the command runs, so that it runs once.
    printed: Mutex<Option<CachedKey>>,
    known: KnownSecrets,
    supervisor: Supervisor,
}

#[derive(Debug)]
struct CachedKey {
    secret: Secret,
    at: Instant,
    /// True if the service rejected the key.
    stale: bool,
}

impl CredentialProvider {
    /// Returns `None` for a key that cannot be sent in a header. `roots` are trusted besides the
    /// system's certificates when a login is renewed. Fetched credentials are added to the
    /// endpoint's secrets.
    pub(crate) fn new(endpoint: ModelService, roots: &[CertificateDer<'static>]) -> Option<Self> {
        let ModelService { kind, credential, connection, secrets: known, supervisor, .. } =
            endpoint;
        let proxies = connection.proxies;
        Some(Self(match credential {
            Credential::None => ProviderKind::None,
            Credential::ApiKey(secret) if secret.fits_header() => ProviderKind::ApiKey(secret),
            Credential::Bearer(secret) if secret.fits_header() => ProviderKind::Bearer(secret),
            Credential::OAuthToken(secret) if secret.fits_header() => {
                ProviderKind::OAuthToken(secret)
            }
            Credential::FoundryKey(secret) if secret.fits_header() => {
                ProviderKind::FoundryKey(secret)
            }
            Credential::ApiKey(_)
            | Credential::Bearer(_)
            | Credential::OAuthToken(_)
            | Credential::FoundryKey(_) => return None,
            Credential::Cloud(identity) => {
                let http = TokenHttp { roots: roots.to_vec(), proxies };
                let context = TokenContext { http, supervisor, known };
                let region =
                    if let ServiceKind::Bedrock { region } = kind { region } else { String::new() };
                let login = Box::new(CloudLogin::new(*identity, context));
                ProviderKind::Cloud { login, region }
            }
            Credential::Helper(command) => {
                supervisor.remember(&command.job());
                let printed = Mutex::new(None);
                ProviderKind::Helper(KeyHelper { command, printed, known, supervisor })
            }
            Credential::OAuth { file, .. } => {
                ProviderKind::OAuth(Box::new(OAuthLogin::new(file, roots.to_vec(), proxies, known)))
            }
        }))
    }

    /// Authenticates a request and returns the secret to redact. It must be the last step before
    /// sending, since a signature may cover the whole request. Headers that are already set are
    /// kept.
    pub(crate) async fn sign(&self, request: &mut Request) -> Result<Option<Secret>, Box<Fault>> {
        self.take_login(request);
        let (secret, as_key, as_bearer) = match &self.0 {
            ProviderKind::None => return Ok(None),
            ProviderKind::ApiKey(secret) => (secret.clone(), true, false),
            ProviderKind::Bearer(secret) => (secret.clone(), false, true),
            ProviderKind::Helper(helper) => (helper.secret().await?, true, true),
            ProviderKind::OAuthToken(secret) => {
                add_beta(request.headers_mut(), OAUTH_BETA);
                (secret.clone(), false, true)
            }
            ProviderKind::OAuth(oauth) => {
                add_beta(request.headers_mut(), OAUTH_BETA);
                (oauth.token().await?, false, true)
            }
            ProviderKind::FoundryKey(secret) => {
                let value = secret.header("").ok_or_else(unfit)?;
                request.headers_mut().entry(FOUNDRY_KEY).or_insert(value);
                (secret.clone(), true, false)
            }
            ProviderKind::Cloud { login, region } => {
                return sign_for_cloud(request, login, region).await.map(Some);
            }
        };
        if as_key {
            let value = secret.header("").ok_or_else(unfit)?;
            request.headers_mut().entry(API_KEY).or_insert(value);
        }
        if as_bearer {
            let value = secret.header("Bearer ").ok_or_else(unfit)?;
            request.headers_mut().entry(AUTHORIZATION).or_insert(value);
        }
        Ok(Some(secret))
    }

    /// Moves user and password from the URL to a header, unless the credential itself needs that
    /// header.
    fn take_login(&self, request: &mut Request) {
        let url = request.url_mut();
        let Some(login) = encoded_login(url) else { return };
        // Neither fails for a URL with a host.
        let _ = (url.set_username(""), url.set_password(None));
        let needs_header = match &self.0 {
            ProviderKind::Bearer(_)
            | ProviderKind::OAuthToken(_)
            | ProviderKind::OAuth(_)
            | ProviderKind::Cloud { .. } => true,
            ProviderKind::None
            | ProviderKind::ApiKey(_)
            | ProviderKind::Helper(_)
            | ProviderKind::FoundryKey(_) => false,
        };
        if let Some(value) = Secret::new(&login).header("Basic ").filter(|_| !needs_header) {
            request.headers_mut().entry(AUTHORIZATION).or_insert(value);
        }
    }

    /// Records that the service rejected this credential. A credential that can be replaced is not
    /// sent again.
    pub(crate) async fn reject(&self, secret: &Secret) {
        if let ProviderKind::Helper(helper) = &self.0 {
            helper.reject(secret).await;
        } else if let ProviderKind::OAuth(oauth) = &self.0 {
            oauth.reject(secret).await;
        } else if let ProviderKind::Cloud { login, .. } = &self.0 {
            login.reject(secret).await;
        }
    }

    /// Fetches a new credential.
    pub(crate) async fn refresh(&self) -> Renewal {
        if let ProviderKind::Helper(helper) = &self.0 {
            helper.refresh().await
        } else if let ProviderKind::OAuth(oauth) = &self.0 {
            oauth.refresh().await
        } else if let ProviderKind::Cloud { login, .. } = &self.0 {
            login.refresh().await
        } else {
            Renewal::Unchanged
        }
    }

    /// Waits for a renewal that must not be interrupted, but no longer than `limit`.
    pub(crate) async fn finish_renewal(&self, limit: Duration) {
        if let ProviderKind::OAuth(oauth) = &self.0 {
            oauth.finish_renewal(limit).await;
        }
    }

    /// The identity that the credential belongs to, according to the cloud. `None` if the cloud
    /// does not provide it.
    pub(crate) async fn caller(&self) -> Result<Option<String>, Box<Fault>> {
        if let ProviderKind::Cloud { login, .. } = &self.0 {
            login.caller().await
        } else {
            Ok(None)
        }
    }
}

fn unfit() -> Box<Fault> {
    let message = "the credential cannot be sent in a header".to_owned();
    missing_credential("invalid_credential", message)
}

/// Signs a request, or adds a bearer token.
async fn sign_for_cloud(
    request: &mut Request,
    login: &CloudLogin,
    region: &str,
) -> Result<Secret, Box<Fault>> {
    let token = login.token().await?;
    match &token.kind {
        TokenKind::Aws(keys) => {
            sign_request(request, keys, region, BEDROCK, wall_clock()).ok_or_else(unfit)?;
        }
        TokenKind::Bearer(bearer) => {
            let value = bearer.header("Bearer ").ok_or_else(unfit)?;
            request.headers_mut().entry(AUTHORIZATION).or_insert(value);
            if let Some(project) = &token.quota_project
                && let Ok(project) = HeaderValue::from_str(project)
            {
                request.headers_mut().entry(QUOTA_PROJECT).or_insert(project);
            }
        }
    }
    Ok(token.secret().clone())
}

impl KeyHelper {
    async fn secret(&self) -> Result<Secret, Box<Fault>> {
        let mut printed = self.printed.lock().await;
        if let Some(printed) = &*printed
            && !printed.stale
            && printed.at.elapsed() < self.command.ttl
        {
            return Ok(printed.secret.clone());
        }
        let secret = self.run().await?;
        *printed = Some(CachedKey { secret: secret.clone(), at: Instant::now(), stale: false });
        Ok(secret)
    }

    async fn reject(&self, secret: &Secret) {
        if let Some(printed) = self.printed.lock().await.as_mut()
            && printed.secret == *secret
        {
            printed.stale = true;
        }
    }

    async fn refresh(&self) -> Renewal {
        let mut printed = self.printed.lock().await;
        let before = printed.take().map(|printed| printed.secret);
        let secret = match self.run().await {
            Ok(secret) => secret,
            Err(fault) => return Renewal::Failed(fault),
        };
        let is_same = before.as_ref() == Some(&secret);
        *printed = Some(CachedKey { secret, at: Instant::now(), stale: false });
        if is_same { Renewal::Confirmed } else { Renewal::Replaced }
    }

    async fn run(&self) -> Result<Secret, Box<Fault>> {
        let failed = |reason: HelperError| {
            missing_credential(KEY_HELPER_FAILED, format!("the API key helper {reason}"))
        };
        let secret = self.command.run(&self.supervisor).await.map_err(failed)?;
        self.known.add(secret.reveal());
        Ok(secret)
    }
}
