//! A server over HTTP that wants a login, and the authorization server that gives its tokens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::responder::{Answer, Responder};

pub(super) const CLIENT_ID: &str = "outlast-tests";
pub(super) const CLIENT_SECRET: &str = "client-secret-staple-battery-31";

/// Path of a valid copy of the metadata, to which nothing links.
pub(super) const METADATA_PATH: &str = "/elsewhere/metadata";

/// Both servers, on one port. Tokens are `access-token-N-…` and `refresh-token-N-…`; a refresh token
/// is good once.
pub(super) struct Authority {
    pub(super) url: String,
    server: Responder,
    grants: Arc<Mutex<Grants>>,
}

/// The grants of the authority, and its faults.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// The number of the newest tokens.
    number: u32,
    good: BTreeSet<String>,
    refresh: String,
    /// The seconds that tokens live.
    pub(super) lifetime: u64,
    /// The issuer in its metadata, if it is a wrong one.
    pub(super) wrong_issuer: Option<String>,
    /// The status and the error of every request for a token.
    pub(super) refusal: Option<(u16, &'static str)>,
    /// The scope without which the server answers 403.
    pub(super) demanded: Option<&'static str>,
    /// The scopes of the newest token.
    scope: String,
    /// Whether the server offers the protocol without a handshake.
    pub(super) is_stateless: bool,
    /// Whether its answers differ from the protocol in form.
    pub(super) is_sloppy: bool,
}

impl Authority {
    pub(super) async fn start() -> Self {
        let grants = Arc::new(Mutex::new(Grants { lifetime: 3600, ..Grants::default() }));
        let own = Arc::clone(&grants);
        let server = Responder::start(move |_, request| Some(answer(&own, request))).await;
        Self { url: server.url.clone(), server, grants }
    }

    pub(super) fn server_url(&self) -> String {
        format!("{}/mcp", self.url)
    }

    pub(super) fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().expect("no thread panicked")
    }

    /// Tokens as from a login of the user.
    pub(super) fn log_in(&self) -> Value {
        self.grants().next()
    }

    pub(super) fn newest_refresh(&self) -> String {
        self.grants().refresh.clone()
    }

    /// Rejects all access tokens given so far.
    pub(super) fn revoke(&self) {
        self.grants().good.clear();
    }

    pub(super) fn hold(&self) {
        self.server.hold("POST /token ");
    }

    pub(super) fn release(&self) {
        self.server.release();
    }

    /// Method, path, token and body of every request.
    pub(super) fn log(&self) -> Vec<String> {
        self.server.requests().iter().map(|request| Request::of(request).line()).collect()
    }

    /// The requests for tokens.
    pub(super) fn token_requests(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| line.starts_with("POST /token")).collect()
    }

    /// Waits until a request begins like this.
    pub(super) async fn wait_for(&self, beginning: &str) {
        let is_it = |request: &String| Request::of(request).line().starts_with(beginning);
        self.server.wait_for(beginning, |seen| seen.iter().any(is_it)).await;
    }
}

pub(super) fn access_token(number: u32) -> String {
    format!("access-token-{number}-horse-battery-91")
}

pub(super) fn refresh_token(number: u32) -> String {
    format!("refresh-token-{number}-horse-battery-92")
}

impl Grants {
    fn next(&mut self) -> Value {
        self.number += 1;
        let number = self.number;
        (self.refresh, self.scope) = (refresh_token(number), "base".to_owned());
        self.good.insert(access_token(number));
        if self.is_sloppy {
            let lifetime = self.lifetime.to_string();
            return json!({ "access_token": access_token(number), "expires_in": lifetime });
        }
        json!({
            "access_token": access_token(number), "refresh_token": self.refresh,
            "token_type": "Bearer", "expires_in": self.lifetime,
        })
    }

    /// Answers a request for a token.
    fn grant(&mut self, form: &[(String, String)]) -> (u16, Value) {
        if let Some((status, error)) = self.refusal {
            return (status, json!({ "error": error, "error_description": "you shall not pass" }));
        }
        let value = |name: &str| {
            form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
        };
        let is_granted = match value("grant_type") {
            "refresh_token" => value("refresh_token") == self.refresh,
            "client_credentials" => {
                value("client_id") == CLIENT_ID && value("client_secret") == CLIENT_SECRET
            }
            "authorization_code" => {
                value("code") == "the-code-of-the-login" && !value("code_verifier").is_empty()
            }
            "urn:ietf:params:oauth:grant-type:device_code" => {
                value("device_code") == "device-code-of-the-login"
            }
            _ => false,
        };
        if !is_granted {
            return (400, json!({ "error": "invalid_grant" }));
        }
        let before = self.refresh.clone();
        let mut tokens = self.next();
        if value("grant_type") == "client_credentials" {
            // It spends no refresh token.
            self.refresh = before;
            tokens.as_object_mut().expect("an object").remove("refresh_token");
            value("scope").clone_into(&mut self.scope);
            tokens["scope"] = value("scope").into();
        }
        (200, tokens)
    }
}

/// A request, in parts.
struct Request<'a> {
    method: &'a str,
    target: &'a str,
    host: &'a str,
    token: Option<&'a str>,
    body: &'a str,
}

impl<'a> Request<'a> {
    fn of(request: &'a str) -> Self {
        let (head, body) = request.split_once("\r\n\r\n").expect("it was read whole");
        let mut words = head.split(' ');
        let header = |wanted: &str| {
            let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
            pairs.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
        };
        Self {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            host: header("host").unwrap_or_default(),
            token: header("authorization").map(|value| value.trim_start_matches("Bearer ")),
            body,
        }
    }

    fn line(&self) -> String {
        let Self { method, target, token, body, .. } = self;
        format!("{method} {target} {} {body}", token.unwrap_or_default())
    }
}

fn answer(grants: &Mutex<Grants>, request: &str) -> Answer {
    let Request { method, target, host, token, body } = Request::of(request);
    let url = &format!("http://{host}");
    let mut grants = grants.lock().expect("no thread panicked");
    let plain = Answer::json;
    match (method, target) {
        ("GET", "/where/resource") => plain(
            200,
            &json!({
                "resource": format!("{url}/mcp{}", if grants.is_sloppy { "/" } else { "" }),
                "authorization_servers": [url],
            }),
        ),
        ("GET", "/.well-known/oauth-authorization-server" | METADATA_PATH) => {
            let wrong = grants.wrong_issuer.clone().filter(|_| target != METADATA_PATH);
            let issuer = wrong.unwrap_or_else(|| url.clone());
            if grants.is_sloppy {
                let tokens = format!("{url}/token");
                let methods = ["client_secret_post", "client_secret_basic"];
                return plain(
                    200,
                    &json!({
                        "issuer": issuer, "token_endpoint": tokens,
                        "token_endpoint_auth_methods_supported": methods,
                    }),
                );
            }
            plain(
                200,
                &json!({
                    "issuer": issuer,
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "registration_endpoint": format!("{url}/register"),
                    "device_authorization_endpoint": format!("{url}/device"),
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["client_secret_post", "none"],
                }),
            )
        }
        ("POST", "/token") => {
            let form = reqwest::Url::parse(&format!("http://form/?{body}")).expect("a form");
            let mut pairs: Vec<(String, String)> = form.query_pairs().into_owned().collect();
            if grants.is_sloppy {
                // The secret only in the header, and errors with status 200.
                let words = STANDARD.encode(format!("{CLIENT_ID}:{CLIENT_SECRET}"));
                if token != Some(&*format!("Basic {words}")) {
                    return plain(200, &json!({ "error": "invalid_client" }));
                }
                let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];
                pairs.extend(client.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
            let (status, answer) = grants.grant(&pairs);
            plain(status, &answer)
        }
        ("POST", "/device") => plain(
            200,
            &json!({
                "device_code": "device-code-of-the-login", "user_code": "WDJB-MJHT",
                "verification_uri": format!("{url}/device-page"), "expires_in": 600,
            }),
        ),
        ("POST", "/register") => {
            let asked: Value = serde_json::from_str(body).expect("a registration");
            let redirects = &asked["redirect_uris"];
            plain(201, &json!({ "client_id": CLIENT_ID, "redirect_uris": redirects }))
        }
        ("POST", "/mcp") => {
            let challenge = |error: &str| {
                let at = format!("resource_metadata=\"{url}/where/resource\"");
                format!("www-authenticate: Bearer {at}{error}\r\n")
            };
            if !token.is_some_and(|token| grants.good.contains(token)) {
                return Answer::with_headers(401, &challenge(""), String::new());
            }
            let message: Value = serde_json::from_str(body).expect("a message");
            match grants.demanded {
                Some(scope)
                    if message["method"] == "tools/call" && !grants.scope.contains(scope) =>
                {
                    let error = format!(", error=\"insufficient_scope\", scope=\"{scope}\"");
                    Answer::with_headers(403, &challenge(&error), String::new())
                }
                _ if grants.is_stateless && message["method"] == "server/discover" => {
                    let result = json!({
                        "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                    });
                    let id = &message["id"];
                    plain(200, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
                }
                _ => answer_message(&message, token.unwrap_or_default()),
            }
        }
        _ => plain(405, &json!({})),
    }
}

/// The server's own answers. Its tool repeats the token, to see that it is masked.
fn answer_message(message: &Value, token: &str) -> Answer {
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "guarded", "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] })
        }
        "tools/call" => {
            let text = &message["params"]["arguments"]["text"];
            json!({ "content": [{ "type": "text", "text": format!("echo: {text}, by {token}") }] })
        }
        _ => json!({}),
    };
    if message["id"].is_null() {
        return (202, String::new()).into();
    }
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    Answer::json(200, &answer)
}
