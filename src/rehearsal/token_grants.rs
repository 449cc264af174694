//! Simulates expiring access tokens and the endpoint that renews them by the refresh grant.

use serde_json::{Value, json};

use super::connection::RecordedRequest;
use super::render;
use super::request_validator::has_credential;
use super::rules::TokenRules;
use super::scenario::{ScriptedError, ScriptedHttp};

/// Counters of the access tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenGrants {
    /// The number of requests to the endpoint, successful or not.
    pub asked: u64,
    /// The number of access tokens that it granted.
    pub granted: u64,
    /// The number of requests with the newest token.
    pub(super) used: u64,
}

impl TokenGrants {
    /// Counts a request against its token. Returns the refusal if the token is invalid.
    pub(super) fn check_token(
        &mut self,
        rules: &TokenRules,
        request: &RecordedRequest,
    ) -> Option<ScriptedHttp> {
        let refuse = |message: &str| Some(refusal(401, "authentication_error", message));
        if !has_credential(request, &token_name(&rules.access, self.granted)) {
            return refuse("Invalid bearer token");
        }
        self.used += 1;
        if rules.expire_token_after.is_some_and(|limit| self.used > limit) {
            return refuse(
                "OAuth token has expired. Please obtain a new token or refresh your existing \
                 token.",
            );
        }
        None
    }

    /// Answers a request to the token endpoint.
    pub(super) fn handle_refresh(
        &mut self,
        rules: &TokenRules,
        request: &RecordedRequest,
    ) -> ScriptedHttp {
        self.asked += 1;
        if self.asked <= rules.failing_refreshes {
            return render::error_response(503, None);
        }
        if field(request, "grant_type").as_deref() != Some("refresh_token") {
            return oauth_error(
                "unsupported_grant_type",
                "only the refresh grant is performed here",
            );
        }
        let number = if rules.keeps_refresh { 0 } else { self.granted };
        if field(request, "refresh_token") != Some(token_name(&rules.refresh, number)) {
            return oauth_error("invalid_grant", "Refresh token not found or invalid");
        }
        self.granted += 1;
        self.used = 0;
        let body = json!({
            "token_type": "Bearer",
            "access_token": token_name(&rules.access, self.granted),
            "refresh_token": token_name(&rules.refresh, self.granted),
            "expires_in": rules.expires_in,
        });
        answer(200, &body)
    }
}

/// The name of the token with this number.
fn token_name(first: &str, number: u64) -> String {
    if number == 0 { first.to_owned() } else { format!("{first}.{number}") }
}

fn refusal(status: u16, kind: &str, message: &str) -> ScriptedHttp {
    render::error_response(status, Some(&ScriptedError::new(kind, message)))
}

/// An error in the format of token endpoints, which differs from the service's.
fn oauth_error(error: &str, description: &str) -> ScriptedHttp {
    answer(400, &json!({ "error": error, "error_description": description }))
}

fn answer(status: u16, body: &Value) -> ScriptedHttp {
    let content_type = "application/json".to_owned();
    ScriptedHttp { status, content_type, body: body.to_string(), content_length: None }
}

/// A field of a form body, or of a JSON body.
fn field(request: &RecordedRequest, name: &str) -> Option<String> {
    if let Ok(object) = serde_json::from_slice::<Value>(&request.body) {
        return object[name].as_str().map(str::to_owned);
    }
    let mut pairs = form_urlencoded::parse(&request.body);
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
