//! A server over HTTP that wants a login, and the authorization server that gives its tokens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::wire::read_request;
use crate::support::with_time_limit;

pub(super) const CLIENT_ID: &str = "outlast-tests";
pub(super) const CLIENT_SECRET: &str = "client-secret-staple-battery-31";

/// Path of a valid copy of the metadata, to which nothing links.
pub(super) const METADATA_PATH: &str = "/elsewhere/metadata";

/// Both servers, on one port. Tokens are `access-token-N-…` and `refresh-token-N-…`; a refresh token
/// is good once.
pub(super) struct Authority {
    pub(super) url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
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

struct Shared {
    url: String,
    grants: Mutex<Grants>,
    /// Method, path, and what else matters of every request.
    log: watch::Sender<Vec<String>>,
    /// Whether requests for tokens wait.
    held: watch::Sender<bool>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Authority {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let grants = Grants { lifetime: 3600, ..Grants::default() };
        let shared = Arc::new(Shared {
            url: url.clone(),
            grants: Mutex::new(grants),
            log: watch::Sender::default(),
            held: watch::Sender::default(),
        });
        let all = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, Arc::clone(&all)));
            }
        });
        Self { url, shared, accepting }
    }

    pub(super) fn server_url(&self) -> String {
        format!("{}/mcp", self.url)
    }

    pub(super) fn grants(&self) -> MutexGuard<'_, Grants> {
        self.shared.grants.lock().expect("no thread panicked")
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
        self.shared.held.send_replace(true);
    }

    pub(super) fn release(&self) {
        self.shared.held.send_replace(false);
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.shared.log.borrow().clone()
    }

    /// The requests for tokens.
    pub(super) fn token_requests(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| line.starts_with("POST /token")).collect()
    }

    /// Waits until a request begins like this.
    pub(super) async fn wait_for(&self, beginning: &str) {
        let mut log = self.shared.log.subscribe();
        let came = log.wait_for(|log| log.iter().any(|line| line.starts_with(beginning)));
        with_time_limit(beginning, came).await.expect("the authority lives");
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

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let Some(request) = read_request(&mut socket).await else { return };
    let (head, body) = request.split_once("\r\n\r\n").expect("it was read whole");
    let mut words = head.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let token = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_token = name.eq_ignore_ascii_case("authorization");
        is_token.then(|| value.trim_start_matches("Bearer ").to_owned())
    });
    let told = token.clone().unwrap_or_default();
    shared.log.send_modify(|log| log.push(format!("{method} {target} {told} {body}")));
    if target == "/token" {
        let mut gate = shared.held.subscribe();
        let _free = gate.wait_for(|held| !held).await.expect("the authority lives");
    }
    let (status, headers, answer) = shared.answer((method, target), token.as_deref(), body);
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n{headers}\
         content-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    // The client may have given up.
    let _ = socket.write_all(&[head.as_bytes(), answer.as_bytes()].concat()).await;
    let _ = socket.shutdown().await;
}

impl Shared {
    fn answer(
        &self,
        (method, target): (&str, &str),
        token: Option<&str>,
        body: &str,
    ) -> (u16, String, String) {
        let mut grants = self.grants.lock().expect("no thread panicked");
        let url = &self.url;
        let plain = |status: u16, value: &Value| (status, String::new(), value.to_string());
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
                    if token != Some(&format!("Basic {words}")) {
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
                    return (401, challenge(""), String::new());
                }
                let message: Value = serde_json::from_str(body).expect("a message");
                match grants.demanded {
                    Some(scope)
                        if message["method"] == "tools/call" && !grants.scope.contains(scope) =>
                    {
                        let error = format!(", error=\"insufficient_scope\", scope=\"{scope}\"");
                        (403, challenge(&error), String::new())
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
}

/// The server's own answers. Its tool repeats the token, to see that it is masked.
fn answer_message(message: &Value, token: &str) -> (u16, String, String) {
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
        return (202, String::new(), String::new());
    }
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    (200, String::new(), answer.to_string())
}
