//! The login by a code that the user types into a browser anywhere (the device authorization grant
//! of RFC 8628), which `rmcp` leaves out. The crate `oauth2`, with which `rmcp` makes its own
//! requests, implements the protocol.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use oauth2::basic::{BasicErrorResponseType, BasicTokenType};
use oauth2::{
    AsyncHttpClient, AuthType, ClientId, ClientSecret, DeviceAuthorizationUrl,
    EmptyExtraTokenFields, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse,
    RevocationErrorResponseType, Scope, StandardDeviceAuthorizationResponse, StandardErrorResponse,
    StandardRevocableToken, StandardTokenIntrospectionResponse, TokenResponse, TokenUrl,
};
use rmcp::transport::auth::{
    AuthorizationMetadata, OAuthHttpClientError, OAuthHttpRedirectPolicy, OAuthTokenResponse,
    StoredCredentials,
};

use super::exchange::TokenSource;
use super::fault::LoginError;
use super::token_http::TokenHttp;
use crate::mcp::sanitize::sanitize_start;

type DeviceClient = oauth2::Client<
    StandardErrorResponse<BasicErrorResponseType>,
    OAuthTokenResponse,
    StandardTokenIntrospectionResponse<EmptyExtraTokenFields, BasicTokenType>,
    StandardRevocableToken,
    StandardErrorResponse<RevocationErrorResponseType>,
    EndpointNotSet,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// A login that waits until the user has typed the code.
pub(super) struct DeviceLogin {
    client: DeviceClient,
    details: StandardDeviceAuthorizationResponse,
    resource: String,
    issuer: Option<String>,
    scopes: Vec<String>,
}

/// The HTTP client of the run, adapted to the crate `oauth2`.
struct DeviceHttp(Arc<TokenHttp>);

#[derive(Debug, thiserror::Error)]
enum DeviceHttpError {
    #[error(transparent)]
    Client(OAuthHttpClientError),
    #[error("{0}")]
    Temporary(String),
}

impl<'c> AsyncHttpClient<'c> for DeviceHttp {
    type Error = DeviceHttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Self::Error>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let answer = self.0.answer(request, OAuthHttpRedirectPolicy::Stop).await;
            let answer = answer.map_err(DeviceHttpError::Client)?;
            // The crate repeats requests that have no answer.
            self.0
                .temporary_failure()
                .map_or(Ok(answer), |why| Err(DeviceHttpError::Temporary(why)))
        })
    }
}

impl DeviceLogin {
    /// Requests a code.
    pub(super) async fn begin(
        source: &TokenSource,
        metadata: &AuthorizationMetadata,
        (client_id, client_secret): (&str, Option<&str>),
        scopes: &[&str],
    ) -> Result<Self, LoginError> {
        let failed = |what: &str, why: &str| {
            LoginError::new(format!("{what}: {}", sanitize_start(why, &source.redactor)))
        };
        let offered = metadata.additional_fields.get("device_authorization_endpoint");
        let Some(endpoint) = offered.and_then(|value| value.as_str()) else {
            let why = "its authorization server offers no login by a code; leave --device out";
            return Err(LoginError::new(why.to_owned()));
        };
        let invalid = |error: &dyn std::error::Error| {
            failed("its authorization server has an invalid address", &error.to_string())
        };
        let endpoint = DeviceAuthorizationUrl::new(endpoint.to_owned());
        let tokens = TokenUrl::new(metadata.token_endpoint.clone());
        let client: DeviceClient = oauth2::Client::new(ClientId::new(client_id.to_owned()))
            .set_device_authorization_url(endpoint.map_err(|error| invalid(&error))?)
            .set_token_uri(tokens.map_err(|error| invalid(&error))?)
            .set_auth_type(AuthType::RequestBody);
        let client = match client_secret {
            Some(secret) => client.set_client_secret(ClientSecret::new(secret.to_owned())),
            None => client,
        };
        let mut resource = source.url.clone();
        resource.set_fragment(None);
        let resource = String::from(resource);
        let request = client
            .exchange_device_code()
            .add_scopes(scopes.iter().map(|scope| Scope::new((*scope).to_owned())))
            .add_extra_param("resource", resource.clone());
        let http = DeviceHttp(Arc::clone(&source.http));
        let details: StandardDeviceAuthorizationResponse =
            request.request_async(&http).await.map_err(|error| {
                let why = source.http.temporary_failure().unwrap_or_else(|| error.to_string());
                failed("its authorization server gives no code", &why)
            })?;
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        Ok(Self { client, details, resource, issuer: metadata.issuer.clone(), scopes })
    }

    pub(super) fn page(&self) -> &str {
        self.details.verification_uri().as_str()
    }

    pub(super) fn code(&self) -> &str {
        self.details.user_code().secret()
    }

    /// Polls for the token, at the interval that the authorization server allows, until the user
    /// has typed the code.
    ///
    /// # Errors
    /// The user refused, or the code expired.
    pub(super) async fn finish(
        &self,
        source: &TokenSource,
    ) -> Result<StoredCredentials, LoginError> {
        let http = DeviceHttp(Arc::clone(&source.http));
        let request = self
            .client
            .exchange_device_access_token(&self.details)
            .add_extra_param("resource", self.resource.clone());
        let tokens = request.request_async(&http, tokio::time::sleep, None).await;
        let tokens = tokens.map_err(|error| {
            let why = sanitize_start(&error.to_string(), &source.redactor);
            LoginError::new(format!("the login is not completed: {why}"))
        })?;
        let granted =
            tokens.scopes().map(|scopes| scopes.iter().map(|it| it.to_string()).collect());
        let granted = granted.unwrap_or_else(|| self.scopes.clone());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let client_id = self.client.client_id().to_string();
        let stored = StoredCredentials::new(client_id, Some(tokens), granted, Some(now.as_secs()));
        Ok(stored.with_issuer(self.issuer.clone()))
    }
}
