//! The HTTP client of the login protocol: the one of the run, with its proxies and certificates.

use std::sync::Arc;
use std::time::Duration;

use oauth2::{HttpRequest, HttpResponse};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Request, Response, StatusCode, Url};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy,
    OAuthHttpRequest,
};
use serde_json::{Map, Value};

use crate::json;
use crate::secrets::Redactor;

use super::super::call_error::classify_client_error;
use super::super::environment::HttpClientFactory;
use super::super::server_client::{EVENTS, JSON, content_type, read, redirect_target};
use super::client_secret::in_other_form;

/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The most redirects of a request that may follow them.
const REDIRECTS_MAX: usize = 3;

/// Sends the requests of the login protocol.
pub(super) struct TokenHttp {
    http: Arc<HttpClientFactory>,
    /// The address of the MCP server.
    server: Url,
    redactor: Redactor,
    /// The reason that the last request failed, if a retry may succeed: errors of the protocol do
    /// not contain it.
    temporary_failure: Mutex<Option<String>>,
}

/// The reason that there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TokenHttpError(String);

impl TokenHttp {
    pub(super) fn new(http: Arc<HttpClientFactory>, server: Url, redactor: Redactor) -> Self {
        Self { http, server, redactor, temporary_failure: Mutex::default() }
    }

    /// The reason of the last request's failure, if a retry may succeed.
    pub(super) fn temporary_failure(&self) -> Option<String> {
        self.temporary_failure.lock().clone()
    }

    pub(super) async fn read_document(&self, url: &Url) -> Result<Vec<u8>, OAuthHttpClientError> {
        let request = Request::new(reqwest::Method::GET, url.clone());
        let response = self.send(request, OAuthHttpRedirectPolicy::Follow).await?;
        if !response.status().is_success() {
            return Err(TokenHttpError(format!("it answered HTTP {}", response.status())).into());
        }
        self.body(response).await
    }

    /// Sends a request, and returns a response of any status.
    pub(super) async fn send(
        &self,
        mut request: Request,
        redirects: OAuthHttpRedirectPolicy,
    ) -> Result<Response, OAuthHttpClientError> {
        let mut followed = 0;
        loop {
            *self.temporary_failure.lock() = None;
            let url = request.url().clone();
            if request.body().is_some() && !is_protected(&url) {
                let why = "its authorization server has no https:// address, and tokens are not \
                           sent over a network unencrypted";
                return Err(TokenHttpError(why.to_owned()).into());
            }
            let client = (self.http)(url.as_str())?;
            let again = request.try_clone();
            *request.timeout_mut() = Some(REQUEST_TIMEOUT);
            let response = client.execute(request).await.map_err(|error| {
                let fault = classify_client_error(&error, &self.redactor);
                let host = url.host_str().unwrap_or_default();
                let why = format!("its authorization server ({host}): {}", fault.text());
                *self.temporary_failure.lock() = Some(why.clone());
                TokenHttpError(why)
            })?;
            // With any other policy, a redirect could send a secret elsewhere.
            let follows = redirects == OAuthHttpRedirectPolicy::Follow;
            let next = redirect_target(&response, &url).filter(|_| follows);
            match (next, again) {
                (Some(next), Some(mut again)) if followed < REDIRECTS_MAX => {
                    *again.url_mut() = next;
                    (request, followed) = (again, followed + 1);
                }
                _ => {
                    self.record_status(&response);
                    return Ok(response);
                }
            }
        }
    }

    /// Returns the whole answer to a request of the protocol. If the client is refused, the request
    /// is repeated once with its secret in the other form.
    pub(super) async fn answer(
        &self,
        request: HttpRequest,
        redirects: OAuthHttpRedirectPolicy,
    ) -> Result<HttpResponse, OAuthHttpClientError> {
        let answer = self.first_answer(request.clone(), redirects).await?;
        if !refuses_client(answer.body()) {
            return Ok(answer);
        }
        let Some(request) = in_other_form(request) else { return Ok(answer) };
        let second = self.first_answer(request, redirects).await;
        let is_accepted =
            |second: &HttpResponse| second.status().is_success() || accepts_client(second.body());
        Ok(second.ok().filter(is_accepted).unwrap_or(answer))
    }

    async fn first_answer(
        &self,
        request: HttpRequest,
        redirects: OAuthHttpRedirectPolicy,
    ) -> Result<HttpResponse, OAuthHttpClientError> {
        let request = Request::try_from(request.map(reqwest::Body::from))?;
        let response = self.send(request, redirects).await?;
        let host = response.url().host_str().unwrap_or_default().to_owned();
        let (mut status, mut headers) = (response.status(), response.headers().clone());
        let body = self.body(response).await?;
        if let Some(code) = error_code(&body) {
            if matches!(&*code, "temporarily_unavailable" | "server_error") {
                let failure =
                    format!("its authorization server ({host}) answered HTTP {status}: {code}");
                *self.temporary_failure.lock() = Some(failure);
            }
            // GitHub reports errors with status 200.
            if status.is_success() {
                status = StatusCode::BAD_REQUEST;
            }
        }
        if read_object(&body).is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        }
        let mut answer = HttpResponse::new(body);
        (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
        Ok(answer)
    }

    fn record_status(&self, response: &Response) {
        let (status, host) = (response.status(), response.url().host_str().unwrap_or_default());
        if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
            let failure = format!("its authorization server ({host}) answered HTTP {status}");
            *self.temporary_failure.lock() = Some(failure);
        }
    }

    async fn body(&self, response: Response) -> Result<Vec<u8>, OAuthHttpClientError> {
        // A stream of events does not end.
        if content_type(&response) == EVENTS {
            return Ok(Vec::new());
        }
        let read = read(response, ANSWER_BYTES_MAX).await;
        let failed = || TokenHttpError("its answer broke off, or is too large".to_owned());
        Ok(normalize(read.map_err(|_| failed())?, &self.server))
    }
}

impl OAuthHttpClient for TokenHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.answer(request.request, request.redirect_policy))
    }
}

/// The error code in an answer.
fn error_code(body: &[u8]) -> Option<String> {
    let code = read_object(body)?.get("error")?.as_str()?.to_owned();
    Some(code).filter(|code| !code.is_empty())
}

fn refuses_client(body: &[u8]) -> bool {
    error_code(body).is_some_and(|code| code == "invalid_client")
}

/// True if an error is about the grant: the authorization server has accepted the client. The code
/// of a login by a device is not yet typed, for instance.
fn accepts_client(body: &[u8]) -> bool {
    const CODES: [&str; 6] = [
        "authorization_pending",
        "slow_down",
        "access_denied",
        "expired_token",
        "invalid_grant",
        "invalid_scope",
    ];
    error_code(body).is_some_and(|code| CODES.contains(&&*code))
}

fn read_object(body: &[u8]) -> Option<Map<String, Value>> {
    json::read(body).ok()
}

/// Rewrites answers that differ from the protocol in form only.
fn normalize(body: Vec<u8>, server: &Url) -> Vec<u8> {
    let Some(mut members) = read_object(&body) else { return body };
    for name in ["expires_in", "interval"] {
        let seconds = match members.remove(name) {
            Some(Value::String(text)) => text.trim().parse().ok(),
            seconds => seconds.and_then(|value| value.as_f64()),
        };
        let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if let Some(seconds) = seconds {
            members.insert(name.to_owned(), seconds.as_secs().into());
        }
    }
    if members.contains_key("access_token")
        && !members.get("token_type").is_some_and(Value::is_string)
    {
        members.insert("token_type".to_owned(), "Bearer".into());
    }
    if let Some(Value::Array(scopes)) = members.get("scope") {
        let scopes: Vec<&str> = scopes.iter().filter_map(Value::as_str).collect();
        let scopes = scopes.join(" ");
        members.insert("scope".to_owned(), scopes.into());
    }
    // The former name, which some servers send as well.
    if members.contains_key("verification_uri") {
        members.remove("verification_url");
    }
    // A registration may leave out what was requested.
    if members.contains_key("client_id")
        && !members.get("redirect_uris").is_some_and(Value::is_array)
    {
        members.insert("redirect_uris".to_owned(), Value::Array(Vec::new()));
    }
    let is_server =
        |resource: &str| resource.trim_end_matches('/') == server.as_str().trim_end_matches('/');
    if members.get("resource").and_then(Value::as_str).is_some_and(is_server) {
        members.insert("resource".to_owned(), server.as_str().into());
    }
    // The library requires the endpoint, which client credentials do not need. A login in a browser
    // checks for this replacement.
    if let Some(endpoint) = members.get("token_endpoint").cloned()
        && members.get("authorization_endpoint").is_none_or(Value::is_null)
    {
        members.insert("authorization_endpoint".to_owned(), endpoint);
    }
    Value::Object(members).to_string().into_bytes()
}

/// Returns true if secrets may be sent to an address: over https, or on this machine.
pub(super) fn is_protected(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let is_loopback = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|it: std::net::IpAddr| it.is_loopback());
    url.scheme() == "https" || url.scheme() == "http" && is_loopback
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_in_other_forms_are_rewritten() {
        let server = Url::parse("https://x.test/mcp").expect("an address");
        let of = |value: &Value| normalize(value.to_string().into_bytes(), &server);
        for (given, wanted) in [
            (
                json!({ "access_token": "a", "expires_in": "3599" }),
                json!({ "access_token": "a", "expires_in": 3599, "token_type": "Bearer" }),
            ),
            (
                json!({ "access_token": "a", "expires_in": 60.0, "token_type": "bearer" }),
                json!({ "access_token": "a", "expires_in": 60, "token_type": "bearer" }),
            ),
            (
                json!({ "access_token": "a", "expires_in": null }),
                json!({ "access_token": "a", "token_type": "Bearer" }),
            ),
            (
                json!({ "resource": "https://x.test/mcp/" }),
                json!({ "resource": "https://x.test/mcp" }),
            ),
            (
                json!({ "access_token": "a", "token_type": "bearer", "scope": ["b", "c"] }),
                json!({ "access_token": "a", "token_type": "bearer", "scope": "b c" }),
            ),
            (
                json!({ "device_code": "d", "expires_in": "600", "interval": "5" }),
                json!({ "device_code": "d", "expires_in": 600, "interval": 5 }),
            ),
            (
                json!({ "verification_uri": "u", "verification_url": "v" }),
                json!({ "verification_uri": "u" }),
            ),
            (json!({ "verification_url": "v" }), json!({ "verification_url": "v" })),
            (json!({ "client_id": "c" }), json!({ "client_id": "c", "redirect_uris": [] })),
            (json!({ "resource": "https://x.test/" }), json!({ "resource": "https://x.test/" })),
            (
                json!({ "token_endpoint": "t" }),
                json!({ "token_endpoint": "t", "authorization_endpoint": "t" }),
            ),
        ] {
            let body: Value = serde_json::from_slice(&of(&given)).expect("JSON");
            assert_eq!(body, wanted, "{given}");
        }
        assert_eq!(normalize(b"<html>".to_vec(), &server), b"<html>");
    }

    #[tokio::test]
    async fn a_later_failure_replaces_a_temporary_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let closed = listener.local_addr().expect("it is bound");
        drop(listener);
        // An error means that the same provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http: Arc<HttpClientFactory> = Arc::new(|url: &str| {
            let client = reqwest::Client::builder().tls_certs_only([]).build();
            if url.starts_with("https") { Err("no client".into()) } else { Ok(client?) }
        });
        let address = |url: &str| Url::parse(url).expect("an address");
        let closed = address(&format!("http://{closed}"));
        let tokens = TokenHttp::new(http, closed.clone(), Redactor::default());
        tokens.read_document(&closed).await.expect_err("the port is closed");
        assert!(tokens.temporary_failure().is_some_and(|why| why.contains("refused")));
        let unusable = address("https://x.test");
        tokens.read_document(&unusable).await.expect_err("there is no client");
        assert_eq!(tokens.temporary_failure(), None);
    }
}
