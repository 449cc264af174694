//! The login of a user at a server: in a browser that is redirected to this machine, or by a code
//! in any browser.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata,
    InMemoryCredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde_json::json;

use super::super::call_error::classify_client_error;
use super::super::config::HttpAddress;
use super::super::environment::LoginEnvironment;
use super::super::headers_helper::header_map;
use super::super::sanitize::sanitize_start;
use super::super::server_client::{EVENTS, HeaderError, JSON, SESSION_ID, challenge};
use super::device::DeviceLogin;
use super::exchange::{KnownAuthority, TokenSource, add_scopes};
use super::fault::LoginError;
use super::redirect::{RedirectListener, Redirected};
use super::token_file::{GrantKind, LOCK_TIMEOUT, SavedLogin};

/// The time limit of the request that finds out whether the server demands a login.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(30);

/// The method of the user's login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginWay {
    /// In a browser that is redirected to this machine.
    Browser,
    /// In a browser anywhere, by a code (device authorization grant).
    Device,
}

/// A login that waits for the user.
pub struct PendingLogin {
    source: TokenSource,
    client_secret: Option<String>,
    exchange: PendingExchange,
}

/// The token exchange that remains when the user has logged in.
enum PendingExchange {
    Browser(Box<BrowserLogin>),
    Device(Box<DeviceLogin>),
}

struct BrowserLogin {
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    listener: RedirectListener,
    url: Url,
}

/// Begins a login at a server.
///
/// # Errors
/// The server or its authorization server offers no login.
pub async fn begin_login(
    server: &str,
    address: &HttpAddress,
    way: LoginWay,
    environment: &LoginEnvironment,
) -> Result<PendingLogin, LoginError> {
    let url = Url::parse(&address.url).map_err(|error| LoginError::new(error.to_string()))?;
    let challenge = ask_for_challenge(&url, address, environment).await?;
    let source =
        TokenSource::new(server, url, address.oauth.clone().unwrap_or_default(), environment);
    let KnownAuthority { mut manager, metadata } = source.authority(challenge.as_deref()).await?;
    let before = source.file.load().unwrap_or_default();
    let before = before.filter(|login| login.grant == GrantKind::Login);
    let scopes = scopes(&source, &manager, &metadata, before.as_ref()).await;
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let port = source.settings.callback_port;
    let listener = RedirectListener::bind(port).await.map_err(|error| {
        let port = port.map_or_else(String::new, |port| format!(" {port}"));
        LoginError::new(format!("the port{port} for the way back cannot be opened: {error}"))
    })?;
    let redirect = listener.address.as_str();
    let client = client(&source, &mut manager, &metadata, before, (redirect, &scopes)).await?;
    let OAuthClientConfig { client_id, client_secret, .. } = client;
    let exchange = match way {
        // In metadata without a page for logins, the token endpoint stands for it.
        LoginWay::Browser if metadata.authorization_endpoint == metadata.token_endpoint => {
            let why = "its authorization server offers no login in a browser; try --device";
            return Err(LoginError::new(why.to_owned()));
        }
        LoginWay::Browser => {
            let store = InMemoryCredentialStore::new();
            manager.set_credential_store(store.clone());
            let failed = |error: AuthError| source.fault(NO_LOGIN, &error);
            let url = manager.get_authorization_url(&scopes).await.map_err(failed)?;
            let url = Url::parse(&url).map_err(|error| LoginError::new(error.to_string()))?;
            PendingExchange::Browser(Box::new(BrowserLogin { manager, store, listener, url }))
        }
        LoginWay::Device => {
            let client = (&*client_id, client_secret.as_deref());
            let login = DeviceLogin::begin(&source, &metadata, client, &scopes).await?;
            PendingExchange::Device(Box::new(login))
        }
    };
    Ok(PendingLogin { source, client_secret, exchange })
}

const NO_LOGIN: &str = "its authorization server offers no login";

/// The scopes to request.
async fn scopes(
    source: &TokenSource,
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
    before: Option<&SavedLogin>,
) -> Vec<String> {
    let mut scopes = source.settings.scopes.clone();
    if scopes.is_empty() {
        scopes = manager.select_initial_scopes(&[]).await;
        // A run lacked a scope. The scopes granted before are still needed.
        if let Some((login, wanted)) = before.and_then(|it| Some((it, it.wanted_scope.as_ref()?))) {
            let granted = login.credentials.granted_scopes.iter().map(String::as_str);
            add_scopes(&mut scopes, granted.chain(wanted.split_whitespace()));
        }
    } else {
        // Without this scope, some authorization servers issue no refresh token.
        let offered = metadata.scopes_supported.iter().flatten().map(String::as_str);
        add_scopes(&mut scopes, offered.filter(|scope| *scope == "offline_access"));
    }
    scopes
}

/// The OAuth client: configured in the entry, or registered now.
async fn client(
    source: &TokenSource,
    manager: &mut AuthorizationManager,
    metadata: &AuthorizationMetadata,
    before: Option<SavedLogin>,
    (redirect, scopes): (&str, &[&str]),
) -> Result<OAuthClientConfig, LoginError> {
    let failed = |error: AuthError| LoginError::from(source.fault(NO_LOGIN, &error));
    if let Some(id) = &source.settings.client_id {
        let known = before.filter(|login| login.credentials.client_id == *id);
        let secret = source.settings.client_secret.clone();
        let secret = secret.or_else(|| known?.client_secret);
        let client = OAuthClientConfig::new(id.clone(), redirect);
        let client = secret.into_iter().fold(client, OAuthClientConfig::with_client_secret);
        manager.configure_client(client.clone()).map_err(failed)?;
        return Ok(client);
    }
    if metadata.registration_endpoint.is_none() {
        return Err(LoginError::new(
            "its authorization server registers no clients by itself: register outlast there, with \
             the redirect address http://localhost:PORT/callback, and write \"oauth\": \
             {\"clientId\": ..., \"callbackPort\": PORT} into its entry"
                .to_owned(),
        ));
    }
    manager.register_client("outlast", redirect, scopes).await.map_err(failed)
}

impl PendingLogin {
    /// The page that the user opens in a browser.
    pub fn page(&self) -> &str {
        match &self.exchange {
            PendingExchange::Browser(login) => login.url.as_str(),
            PendingExchange::Device(login) => login.page(),
        }
    }

    /// The code that the user types there. `None` for a login with a redirect.
    pub fn code(&self) -> Option<&str> {
        match &self.exchange {
            PendingExchange::Browser(_) => None,
            PendingExchange::Device(login) => Some(login.code()),
        }
    }

    /// The port on this machine that the browser is redirected to. `None` for a login by a code.
    pub fn port(&self) -> Option<u16> {
        match &self.exchange {
            PendingExchange::Browser(login) => login.listener.address.port(),
            PendingExchange::Device(_) => None,
        }
    }

    /// Waits for the user, and saves the login.
    ///
    /// # Errors
    /// It was refused, or cannot be saved.
    pub async fn finish(self) -> Result<(), LoginError> {
        let credentials = match &self.exchange {
            PendingExchange::Browser(login) => login.finish(&self.source).await?,
            PendingExchange::Device(login) => login.finish(&self.source).await?,
        };
        let mut login = self.source.file.login(GrantKind::Login, credentials);
        login.client_secret = self.client_secret;
        save(&self.source, &login).await
    }
}

impl BrowserLogin {
    async fn finish(&self, source: &TokenSource) -> Result<StoredCredentials, LoginError> {
        let state = self.url.query_pairs().find(|(name, _)| name == "state");
        let state = state.map(|(_, value)| value.into_owned()).unwrap_or_default();
        let redirected = self.listener.receive(&state).await;
        let redirected = redirected.map_err(|error| {
            LoginError::new(format!("the way back from the browser broke: {error}"))
        })?;
        let url = match redirected {
            Redirected::Granted(url) => url,
            Redirected::Refused(why) => {
                let why = sanitize_start(&why, &source.redactor);
                return Err(LoginError::new(format!("the login was refused ({why})")));
            }
        };
        let failed = |error: AuthError| source.fault("the login is not completed", &error);
        let back = AuthorizationCallback::from_redirect_url(url.as_str()).map_err(failed)?;
        source.secrets.add(&back.code);
        let exchanged = self.manager.exchange_code_for_token_with_issuer(
            &back.code,
            &back.csrf_token,
            back.issuer.as_deref(),
        );
        exchanged.await.map_err(failed)?;
        Ok(source.stored(&self.store).await?)
    }
}

async fn save(source: &TokenSource, login: &SavedLogin) -> Result<(), LoginError> {
    source.hide(login);
    let path = source.file.path().display();
    // A run may be renewing the login that is replaced. If the lock is not released in time, that
    // renewal hangs, and the login is saved without the lock.
    let _lock = source.file.lock(LOCK_TIMEOUT).await;
    let saved = source.file.prepare().and_then(|new| source.file.commit(new, login));
    saved.map_err(|error| LoginError::new(format!("the login cannot be saved in {path}: {error}")))
}

/// Requests the challenge of the server, which names the authorization server and the scopes. Some
/// servers begin a session without a login, and demand it for the first request. `None` if the
/// server demands no login, or sends no challenge.
async fn ask_for_challenge(
    url: &Url,
    address: &HttpAddress,
    environment: &LoginEnvironment,
) -> Result<Option<String>, LoginError> {
    let failed = |why: String| LoginError::new(format!("the server cannot be asked: {why}"));
    let client = (environment.http)(url.as_str()).map_err(|error| failed(error.to_string()))?;
    let pairs = address.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let headers = header_map(pairs).ok_or_else(|| failed(HeaderError::Invalid.to_string()))?;
    let client_info = json!({ "name": "outlast", "version": env!("CARGO_PKG_VERSION") });
    let first =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info });
    let mut session: Option<HeaderValue> = None;
    for (method, params) in [("initialize", first), ("tools/list", json!({}))] {
        let body = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params });
        let request = client.post(url.clone()).headers(headers.clone()).timeout(QUESTION_TIMEOUT);
        let request =
            request.header(CONTENT_TYPE, JSON).header(ACCEPT, format!("{JSON}, {EVENTS}"));
        let request = session.iter().fold(request, |request, id| request.header(SESSION_ID, id));
        let response = request.body(body.to_string()).send().await.map_err(|error| {
            failed(classify_client_error(&error, &environment.redactor).text().to_owned())
        })?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Ok(challenge(&response).map(ToOwned::to_owned));
        }
        session = response.headers().get(SESSION_ID).cloned();
    }
    Ok(None)
}
