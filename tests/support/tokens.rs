//! A token endpoint that gives each refresh token's worth once, and logins for its clients.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::wire::read_request;
use super::with_time_limit;

/// A token endpoint. Its tokens are `access-token-1`, `refresh-token-1` and so on; a login from
/// [`login`](Self::login) has number 0. A refresh token that was spent is refused.
#[derive(Debug)]
pub(crate) struct TokenEndpoint {
    pub(crate) url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// The number of the refresh token that is good.
    good: Mutex<u32>,
    /// Answers instead of tokens, if there is one.
    instead: Mutex<Option<(u16, String)>>,
    /// Head and body of every request.
    requests: watch::Sender<Vec<String>>,
    /// Whether answers wait.
    held: watch::Sender<bool>,
}

impl Drop for TokenEndpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl TokenEndpoint {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}/token", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared {
            good: Mutex::new(0),
            instead: Mutex::new(None),
            requests: watch::Sender::default(),
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

    /// Answers every further request like this.
    pub(crate) fn answer_with(&self, status: u16, body: &str) {
        *self.shared.instead.lock().expect("no thread panicked") = Some((status, body.to_owned()));
    }

    /// Gives tokens again.
    pub(crate) fn resume_tokens(&self) {
        *self.shared.instead.lock().expect("no thread panicked") = None;
    }

    /// Lets every further request wait for its answer. What is not answered spends nothing.
    pub(crate) fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    pub(crate) fn release(&self) {
        self.shared.held.send_replace(false);
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        let mut requests = self.shared.requests.subscribe();
        let enough = requests.wait_for(|requests| requests.len() >= count);
        with_time_limit("a request for a token", enough).await.expect("the endpoint lives");
    }

    /// A login whose access token ends after so many seconds, which may be negative.
    pub(crate) fn login(&self, seconds: i64) -> Value {
        json!({
            "claudeAiOauth": {
                "accessToken": "access-token-0",
                "refreshToken": "refresh-token-0",
                "expiresAt": milliseconds() + seconds * 1000,
                "scopes": ["user:inference"],
                "tokenEndpoint": self.url,
                "clientId": "outlast-tests",
            },
            "anotherProgram": { "keep": "this" },
        })
    }
}

fn milliseconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    i64::try_from(now.as_millis()).expect("it is not that late")
}

/// Writes a login into a folder.
pub(crate) fn write_login(folder: &Path, login: &Value) {
    fs::create_dir_all(folder).expect("a folder can be made");
    fs::write(folder.join(".credentials.json"), login.to_string()).expect("a file can be written");
}

/// Reads it again.
pub(crate) fn read_login(folder: &Path) -> Value {
    let text = fs::read(folder.join(".credentials.json")).expect("the login is never lost");
    serde_json::from_slice(&text).expect("the login is always whole")
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let Some(request) = read_request(&mut socket).await else { return };
    shared.requests.send_modify(|requests| requests.push(request.clone()));
    let mut gate = shared.held.subscribe();
    let mut one = [0];
    tokio::select! {
        free = gate.wait_for(|held| !held) => drop(free.expect("the endpoint lives")),
        // The client has closed the connection.
        _ = socket.read(&mut one) => return,
    }
    let (status, body) = shared.answer(&request);
    let head = format!(
        "HTTP/1.1 {status} Some Reason\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
    let _ = socket.shutdown().await;
}

impl Shared {
    fn answer(&self, request: &str) -> (u16, String) {
        if let Some(instead) = self.instead.lock().expect("no thread panicked").clone() {
            return instead;
        }
        let mut good = self.good.lock().expect("no thread panicked");
        let (_, body) = request.split_once("\r\n\r\n").expect("it was read whole");
        let token = format!("refresh-token-{good}");
        let fits = |part: &str| part == format!("refresh_token={token}");
        let form = body.contains("grant_type=refresh_token") && body.split('&').any(fits);
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        if !form && json["refresh_token"] != token {
            return (400, json!({ "error": "invalid_grant" }).to_string());
        }
        *good += 1;
        let answer = json!({
            "access_token": format!("access-token-{good}"),
            "refresh_token": format!("refresh-token-{good}"),
            "token_type": "Bearer",
            "expires_in": Duration::from_hours(1).as_secs(),
        });
        (200, answer.to_string())
    }
}
