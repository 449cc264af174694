//! Requests tokens from the authorization server of an MCP server, with the protocol of `rmcp`.

use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig,
    CredentialStore, InMemoryCredentialStore, OAuthClientConfig, StoredCredentials,
    WWWAuthenticateParams,
};

use crate::json;
use crate::secrets::{KnownSecrets, Redactor};

use super::fault::{OAuthFault, describe};
use super::settings::OAuthSettings;
use super::token_file::{GrantKind, LoginFolder, SavedLogin, TokenFile};
use super::token_http::{TokenHttp, is_protected};
use crate::mcp::environment::LoginEnvironment;

/// The source of tokens for a server.
pub(super) struct TokenSource {
    pub(super) url: Url,
    pub(super) settings: OAuthSettings,
    pub(super) file: TokenFile,
    pub(super) http: Arc<TokenHttp>,
    pub(super) secrets: KnownSecrets,
    pub(super) redactor: Redactor,
}

/// A manager of the protocol, with the metadata of its authorization server.
pub(super) struct KnownAuthority {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
}

impl TokenSource {
    pub(super) fn new(
        server: &str,
        url: Url,
        settings: OAuthSettings,
        environment: &LoginEnvironment,
    ) -> Self {
        let file = LoginFolder::within(&environment.config_dir).file(server, &url);
        let http = Arc::new(TokenHttp::new(
            Arc::clone(&environment.http),
            url.clone(),
            environment.redactor.clone(),
        ));
        if let Some(secret) = &settings.client_secret {
            environment.secrets.add(secret);
        }
        let (secrets, redactor) = (environment.secrets.clone(), environment.redactor.clone());
        Self { url, settings, file, http, secrets, redactor }
    }

    /// The identifier and the secret of a client that gets tokens for itself (client credentials
    /// grant).
    pub(super) fn client(&self) -> Option<(&str, &str)> {
        self.settings.client_id.as_deref().zip(self.settings.client_secret.as_deref())
    }

    /// Registers the tokens of a login for redaction in all output.
    pub(super) fn hide(&self, login: &SavedLogin) {
        let secrets = [login.access_token(), login.refresh_token(), login.client_secret.as_deref()];
        secrets.into_iter().flatten().for_each(|secret| self.secrets.add(secret));
    }

    /// Finds the authorization server.
    ///
    /// # Errors
    /// It cannot be found or reached, or its metadata contradict each other.
    pub(super) async fn authority(
        &self,
        challenge: Option<&str>,
    ) -> Result<KnownAuthority, OAuthFault> {
        let http = Arc::clone(&self.http);
        let manager = AuthorizationManager::new_with_oauth_http_client(self.url.clone(), http);
        let failed = |error: AuthError| self.fault("its authorization server is not found", &error);
        let mut manager = manager.await.map_err(failed)?;
        let metadata = if let Some(address) = &self.settings.metadata_url {
            self.metadata_at(address).await?
        } else {
            let found = manager.resolve_metadata_from_challenge(challenge).await;
            found.map_err(failed)?.metadata
        };
        manager.set_metadata(metadata.clone());
        Ok(KnownAuthority { manager, metadata })
    }

    /// Reads the metadata at the address that the user configured.
    async fn metadata_at(&self, address: &str) -> Result<AuthorizationMetadata, OAuthFault> {
        let failed = |why: &str| {
            let what = "its \"authServerMetadataUrl\" gives no metadata of an authorization server";
            OAuthFault::Permanent(format!("{what}: {why}"))
        };
        let url = Url::parse(address).map_err(|error| failed(&error.to_string()))?;
        let document = match self.http.read_document(&url).await {
            Ok(document) => document,
            Err(error) => {
                let temporary = self.http.temporary_failure().map(OAuthFault::Temporary);
                return Err(temporary.unwrap_or_else(|| failed(&error.to_string())));
            }
        };
        json::read(&document).map_err(|_| failed("the document is not valid JSON metadata"))
    }

    /// Renews a login.
    pub(super) async fn refresh(
        &self,
        login: &SavedLogin,
        challenge: Option<&str>,
    ) -> Result<SavedLogin, OAuthFault> {
        let client_id = &login.credentials.client_id;
        if self.settings.client_id.as_ref().is_some_and(|id| id != client_id) {
            let why = "the login was made by another client than the one of its \"clientId\"";
            return Err(OAuthFault::Permanent(why.to_owned()));
        }
        let KnownAuthority { mut manager, metadata } = self.authority(challenge).await?;
        if let (Some(before), Some(now)) = (&login.credentials.issuer, &metadata.issuer)
            && before != now
        {
            return Err(OAuthFault::Permanent(format!(
                "its authorization server is {now} now, and was {before} at the login, whose tokens \
                 are not sent to another one"
            )));
        }
        let failed = |error: AuthError| {
            if !matches!(
                error,
                AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired
            ) {
                return self.fault("the login cannot be renewed", &error);
            }
            let what = "its authorization server refuses to renew the login";
            OAuthFault::Permanent(format!("{what}: {}", describe(&error, &self.redactor)))
        };
        let mut client = OAuthClientConfig::new(client_id.clone(), self.url.as_str());
        if let Some(secret) = self.settings.client_secret.as_ref().or(login.client_secret.as_ref())
        {
            client = client.with_client_secret(secret.clone());
        }
        manager.configure_client(client).map_err(failed)?;
        let store = InMemoryCredentialStore::new();
        store.save(login.credentials.clone()).await.map_err(failed)?;
        manager.set_credential_store(store.clone());
        manager.refresh_token().await.map_err(failed)?;
        let mut login = login.clone();
        login.credentials = self.stored(&store).await?;
        Ok(login)
    }

    /// Requests a token for the client itself (client credentials grant).
    pub(super) async fn client_token(
        &self,
        (client_id, client_secret): (&str, &str),
        before: Option<&SavedLogin>,
        challenge: Option<&str>,
    ) -> Result<SavedLogin, OAuthFault> {
        let KnownAuthority { mut manager, .. } = self.authority(challenge).await?;
        let mut scopes = self.settings.scopes.clone();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
            // Scopes that were granted before are still needed when a further one is.
            let granted = before.iter().flat_map(|login| &login.credentials.granted_scopes);
            add_scopes(&mut scopes, granted.map(String::as_str));
        }
        let mut resource = self.url.clone();
        resource.set_fragment(None);
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client_id.to_owned(),
            client_secret: client_secret.to_owned(),
            scopes,
            resource: Some(resource.into()),
        };
        let what = "its authorization server gives the client no token";
        let failed = |error: AuthError| self.fault(what, &error);
        manager.validate_client_credentials_metadata(&config).map_err(failed)?;
        manager.configure_client_credentials(&config).map_err(failed)?;
        let store = InMemoryCredentialStore::new();
        manager.set_credential_store(store.clone());
        manager.exchange_client_credentials(&config).await.map_err(failed)?;
        let credentials = self.stored(&store).await?;
        Ok(self.file.login(GrantKind::ClientCredentials, credentials))
    }

    /// The credentials that the protocol stored.
    pub(super) async fn stored(
        &self,
        store: &InMemoryCredentialStore,
    ) -> Result<StoredCredentials, OAuthFault> {
        let stored = store.load().await.map_err(|error| self.fault("there is no token", &error))?;
        stored.ok_or_else(|| OAuthFault::Permanent("there is no token".to_owned()))
    }

    /// Converts an error of the protocol to a fault. Temporary causes are looked up in the HTTP
    /// client, as the error does not contain them.
    pub(super) fn fault(&self, what: &str, error: &AuthError) -> OAuthFault {
        match self.http.temporary_failure() {
            Some(why) => OAuthFault::Temporary(format!("{what}: {why}")),
            None => OAuthFault::Permanent(format!("{what}: {}", describe(error, &self.redactor))),
        }
    }
}

/// The scope that a challenge demands in addition to those of the token.
pub(in crate::mcp) fn demanded_scope(challenge: &str, url: &Url) -> Option<String> {
    let challenge = WWWAuthenticateParams::parse(challenge, url);
    if !challenge.is_insufficient_scope() {
        return None;
    }
    challenge.scope.filter(|scope| !scope.trim().is_empty())
}

/// Adds the scopes that are not in the list yet.
pub(super) fn add_scopes<'a>(scopes: &mut Vec<String>, more: impl Iterator<Item = &'a str>) {
    for scope in more {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
}

/// Returns true if an address may be that of the authorization server's metadata.
pub(in crate::mcp) fn is_metadata_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| url.has_host() && is_protected(&url))
}
