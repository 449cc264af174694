//! Performs the OAuth refresh grant (RFC 6749, section 6) in one request.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::json;
use crate::recovery::{ConnectionChoice, FailureStage, Fault, FaultKind};
use crate::response_body::{BodyError, ResponseBody};

use super::super::endpoint::host;
use super::super::fault;
use super::super::headers::wall_clock;
use super::super::proxies::{Proxies, is_loopback};
use super::super::timers::RequestTimers;
use super::super::transport::HttpTransport;
use super::fault::{is_temporary, issuer_unreachable, missing_credential};
use super::login::Login;
use super::secret::Secret;

/// Timeout of DNS, TCP and TLS together.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum size of a response, in bytes. Tokens have a few thousand at most.
const ANSWER_MAX: usize = 64 * 1024;
/// Longest text that is accepted as an error code.
const CODE_MAX: usize = 64;

/// The tokens that the endpoint granted.
#[derive(Debug)]
pub(super) struct TokenGrant {
    pub(super) access: Secret,
    /// The new refresh token. `None`: the old one stays valid.
    pub(super) refresh: Option<Secret>,
    pub(super) lifetime: Option<Duration>,
}

#[derive(Clone, Copy)]
enum BodyEncoding {
    /// The form encoding that RFC 6749 requires.
    UrlEncoded,
    /// JSON, for endpoints that reject the form encoding with a 415.
    Json,
}

/// The parameters of one refresh grant.
#[derive(Debug)]
pub(super) struct TokenRequest {
    url: Url,
    refresh: Secret,
    client_id: Option<String>,
    /// The old access token, which no error may quote.
    old_access: Option<Secret>,
    destination: String,
}

impl TokenRequest {
    /// Checks that the login can be renewed.
    ///
    /// # Errors
    /// The login lacks a refresh token or a valid token endpoint.
    pub(super) fn new(login: &Login) -> Result<Self, Box<Fault>> {
        let Some(refresh) = login.refresh.clone() else {
            return Err(not_renewable("it holds no refresh token; log in again"));
        };
        let Some(address) = &login.token_endpoint else {
            return Err(not_renewable(
                "no token endpoint is known; name it in OUTLAST_OAUTH_ENDPOINT or in the setting \
                 oauthEndpoint, or log in again",
            ));
        };
        let Some(url) = parse_token_endpoint(address) else {
            return Err(not_renewable("its token endpoint is not an https:// address; correct it"));
        };
        let destination = format!("the token endpoint at {}", host(&url));
        let (client_id, old_access) = (login.client_id.clone(), login.access.clone());
        Ok(Self { url, refresh, client_id, old_access, destination })
    }

    /// Requests a new access token, within `limit`.
    ///
    /// # Errors
    /// The endpoint could not be reached (temporary), refused (permanent), or sent an invalid
    /// response. The error text contains no secret.
    pub(super) async fn run(
        &self,
        roots: &[CertificateDer<'static>],
        proxies: &Proxies,
        limit: Duration,
    ) -> Result<TokenGrant, Box<Fault>> {
        let timers = RequestTimers { connect: CONNECT.min(limit), ..RequestTimers::default() };
        let transport = HttpTransport::new(&self.url, timers, roots.to_vec(), proxies);
        let http = transport.client(ConnectionChoice::Fresh);
        let http = http.map_err(|error| fault::fault_without_client(&error))?;
        let exchange = async {
            let response = self.send(http, BodyEncoding::UrlEncoded).await?;
            if response.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
                return self.read_response(response).await;
            }
            self.read_response(self.send(http, BodyEncoding::Json).await?).await
        };
        let result = timeout(limit, exchange).await.unwrap_or_else(|_| {
            let limit = limit.as_secs_f32();
            Err(issuer_unreachable(format!("{} did not answer within {limit} s", self.destination)))
        });
        result.map_err(|fault| self.redact_fault(fault))
    }

    async fn send(&self, http: &Client, form: BodyEncoding) -> Result<Response, Box<Fault>> {
        let members = [
            ("grant_type", Some("refresh_token")),
            ("refresh_token", Some(self.refresh.reveal())),
            ("client_id", self.client_id.as_deref()),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let (kind, body) = match form {
            BodyEncoding::UrlEncoded => ("application/x-www-form-urlencoded", url_encoded(members)),
            BodyEncoding::Json => {
                let members = members.map(|(name, value)| (name.to_owned(), json!(value)));
                ("application/json", Value::Object(members.collect()).to_string())
            }
        };
        let request = http
            .post(self.url.clone())
            .header(CONTENT_TYPE, kind)
            .header(ACCEPT, "application/json")
            .body(body);
        request.send().await.map_err(|error| self.fault_without_response(error))
    }

    /// Classifies a request without a response as temporary: it may never have arrived.
    fn fault_without_response(&self, error: reqwest::Error) -> Box<Fault> {
        // The text of a failed connection names the destination already.
        let was_connected = !error.is_connect();
        let fault = fault::fault_without_response(error, &self.destination, FailureStage::Unsent);
        if matches!(fault.kind, FaultKind::Timeout { .. }) {
            let limit = CONNECT.as_secs();
            issuer_unreachable(format!("no connection to {} within {limit} s", self.destination))
        } else if let FaultKind::Connection { ref detail } = fault.kind
            && was_connected
        {
            issuer_unreachable(format!("{}: {detail}", self.destination))
        } else {
            Box::new(fault)
        }
    }

    async fn read_response(&self, response: Response) -> Result<TokenGrant, Box<Fault>> {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let read = ResponseBody::new(response).read(&mut body, ANSWER_MAX).await;
        if status.is_success() {
            read.map_err(|error| match error {
                BodyError::Connection(error) => self.fault_without_response(error),
                BodyError::Compression(error) => {
                    issuer_unreachable(format!("{}: {error}", self.destination))
                }
            })?;
            return self.parse_grant(&body);
        }
        let mut fault = fault::fault_of_response(status.as_u16(), &headers, &body, wall_clock());
        if !status.is_server_error() && !is_temporary(&fault) {
            return Err(self.refusal_fault(status, &body));
        }
        fault.stage = FailureStage::Unsent;
        if let FaultKind::Refused { message, .. } = &mut fault.kind {
            *message = format!("{} said: {message}", self.destination);
        }
        Err(Box::new(fault))
    }

    /// Parses a successful response. Its content is not quoted: it may be a token.
    fn parse_grant(&self, body: &[u8]) -> Result<TokenGrant, Box<Fault>> {
        let Ok(answer) = json::read::<Map<String, Value>>(body) else {
            // Probably a login page or a captive portal. No token was spent.
            let detail = format!("the answer of {} is not a JSON object", self.destination);
            let kind = FaultKind::InvalidContent { detail };
            return Err(Box::new(Fault::new(kind, FailureStage::Unsent)));
        };
        let token = |name: &str| {
            let secret = Secret::new(answer.get(name)?.as_str()?);
            (!secret.is_empty() && secret.fits_header()).then_some(secret)
        };
        let unusable = |message: String| missing_credential("oauth_invalid_response", message);
        let Some(access) = token("access_token") else {
            let from = &self.destination;
            return Err(unusable(format!("the answer of {from} holds no usable access token")));
        };
        let kind = answer.get("token_type").and_then(Value::as_str).unwrap_or("bearer");
        if !kind.eq_ignore_ascii_case("bearer") {
            let from = &self.destination;
            return Err(unusable(format!("{from} gives out tokens that are not bearer tokens")));
        }
        let seconds = answer.get("expires_in").and_then(|value| match value {
            Value::String(text) => text.trim().parse().ok(),
            Value::Number(number) => number.as_f64(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        });
        let lifetime = seconds
            .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
            .filter(|lifetime| !lifetime.is_zero());
        Ok(TokenGrant { access, refresh: token("refresh_token"), lifetime })
    }

    fn refusal_fault(&self, status: StatusCode, body: &[u8]) -> Box<Fault> {
        let answer: Value = json::read(body).unwrap_or_default();
        let code = answer["error"].as_str().unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let is_code = !code.is_empty() && code.len() <= CODE_MAX && code.bytes().all(plain);
        let code = if is_code { code } else { "oauth_refused" };
        let mut quoted = if is_code { format!(", {code}") } else { String::new() };
        if let Some(words) = answer["error_description"].as_str().filter(|it| !it.is_empty()) {
            quoted.push_str(": ");
            quoted.extend(words.chars().filter(|letter| !letter.is_control()).take(200));
        }
        let status = status.as_u16();
        let advice = if is_code { "log in again" } else { "check its address, or log in again" };
        let message = format!(
            "{} does not renew the login (HTTP {status}{quoted}); {advice}",
            self.destination
        );
        missing_credential(code, message)
    }

    fn redact_fault(&self, mut fault: Box<Fault>) -> Box<Fault> {
        *fault = fault::redacted(*fault, [&self.refresh].into_iter().chain(&self.old_access));
        fault
    }
}

/// True if `address` may receive a refresh token: https, or a loopback address.
pub fn is_token_endpoint(address: &str) -> bool {
    parse_token_endpoint(address).is_some()
}

/// Accepts only https and loopback addresses, so that no refresh token crosses a network
/// unencrypted.
pub(super) fn parse_token_endpoint(address: &str) -> Option<Url> {
    let url = Url::parse(address).ok()?;
    let safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    (safe && url.has_host()).then_some(url)
}

fn not_renewable(what: &str) -> Box<Fault> {
    missing_credential("oauth_not_renewable", format!("the login cannot be renewed: {what}"))
}

pub(super) fn url_encoded<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut url = Url::parse("http://form/").expect("it is an address");
    url.query_pairs_mut().extend_pairs(members);
    url.query().unwrap_or_default().to_owned()
}
