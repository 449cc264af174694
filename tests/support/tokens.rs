//! A token endpoint that gives each refresh token's worth once, and logins for its clients.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::responder::{Answer, Responder};

/// A token endpoint. Its tokens are `access-token-1`, `refresh-token-1` and so on; a login from
/// [`login`](Self::login) has number 0. A refresh token that was spent is refused.
#[derive(Debug)]
pub(crate) struct TokenEndpoint {
    pub(crate) url: String,
    server: Responder,
    grants: Arc<Mutex<Grants>>,
}

#[derive(Debug, Default)]
struct Grants {
    /// The number of the refresh token that is good.
    good: u32,
    /// Answers instead of tokens, if there is one.
    instead: Option<(u16, String)>,
}

impl TokenEndpoint {
    pub(crate) async fn start() -> Self {
        let grants = Arc::<Mutex<Grants>>::default();
        let own = Arc::clone(&grants);
        let server = Responder::start(move |_, request| {
            Some(own.lock().expect("no thread panicked").answer(request))
        });
        let server = server.await;
        Self { url: format!("{}/token", server.url), server, grants }
    }

    /// Answers every further request like this.
    pub(crate) fn answer_with(&self, status: u16, body: &str) {
        self.grants.lock().expect("no thread panicked").instead = Some((status, body.to_owned()));
    }

    /// Gives tokens again.
    pub(crate) fn resume_tokens(&self) {
        self.grants.lock().expect("no thread panicked").instead = None;
    }

    /// Lets every further request wait for its answer. What is not answered spends nothing.
    pub(crate) fn hold(&self) {
        self.server.hold("");
    }

    pub(crate) fn release(&self) {
        self.server.release();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.server.requests()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        self.server.wait_for("a request for a token", |seen| seen.len() >= count).await;
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

impl Grants {
    fn answer(&mut self, request: &str) -> Answer {
        if let Some(instead) = self.instead.clone() {
            return instead.into();
        }
        let good = self.good;
        let (_, body) = request.split_once("\r\n\r\n").expect("it was read whole");
        let token = format!("refresh-token-{good}");
        let fits = |part: &str| part == format!("refresh_token={token}");
        let form = body.contains("grant_type=refresh_token") && body.split('&').any(fits);
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        if !form && json["refresh_token"] != token {
            return Answer::json(400, &json!({ "error": "invalid_grant" }));
        }
        let good = good + 1;
        self.good = good;
        let answer = json!({
            "access_token": format!("access-token-{good}"),
            "refresh_token": format!("refresh-token-{good}"),
            "token_type": "Bearer",
            "expires_in": Duration::from_hours(1).as_secs(),
        });
        Answer::json(200, &answer)
    }
}
