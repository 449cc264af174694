//! The rules of a server, beyond those that every request must follow.

use std::num::NonZeroU64;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scripted_duration::{self, ScriptedDuration};

/// The rules of a server, in addition to those of the real service. A request that exceeds a limit
/// gets the error of the real service. The rehearsal fails if the client repeats the request, or
/// gets the same error again with another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerRules {
    /// The only valid credential. By default every credential is valid.
    pub require_key: Option<String>,
    /// Access tokens that expire.
    pub tokens: Option<TokenRules>,
    /// The maximum size of a request in tokens, at four bytes of the body each.
    pub context_window: Option<u64>,
    /// The context window in tokens as the server counts them, with room for `max_tokens`. Replies
    /// and the endpoint `count_tokens` report the same counts.
    pub token_limit: Option<NonZeroU64>,
    /// The largest valid `max_tokens`.
    pub max_output: Option<u64>,
    /// Limits for images and documents.
    pub media: MediaRules,
    /// Content that no block may contain.
    pub rejected_content: Vec<RejectedContent>,
    /// The handling of thinking that another server signed.
    pub signatures: Signatures,
    /// The number of requests after which earlier thinking counts as signed by another server, as
    /// after a change of the account.
    pub expire_signatures_after: Option<u64>,
}

/// The handling of thinking that another server signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signatures {
    /// The rehearsal fails. The default.
    #[default]
    Check,
    /// The request gets a 400.
    Refuse,
}

/// Limits for images and documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MediaRules {
    /// The maximum number of images and documents in a request.
    pub count: Option<usize>,
    /// The maximum size of an image, in bytes of base64.
    pub image_bytes: Option<usize>,
    /// The maximum length of the longer side of an image, in pixels.
    pub image_pixels: Option<u32>,
    /// The maximum length of the longer side if a request has more than 20 images, in pixels.
    pub many_images_pixels: Option<u32>,
    /// The maximum number of pages of all documents together.
    pub pdf_pages: Option<usize>,
}

/// Content that makes the service refuse a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectedContent {
    /// Text of a block, or part of its base64 data.
    pub contains: String,
    /// The error message after the path of the block. The default depends on the kind of the block.
    pub message: Option<String>,
}

/// Access tokens that expire, and an endpoint that renews them. An expired token gets a 401.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRules {
    /// The first access token. The next ones are this text with `.1`, `.2` and so on at the end.
    pub access: String,
    /// The first refresh token. Each is valid once; the next ones are named like access tokens.
    pub refresh: String,
    /// The number of requests for which an access token is valid. Unlimited by default.
    pub expire_token_after: Option<u64>,
    /// The path of the token endpoint. `/oauth/token` by default.
    #[serde(default = "token_path")]
    pub path: String,
    /// The reported lifetime, in seconds. 3600 by default.
    #[serde(default = "lifetime")]
    pub expires_in: u64,
    /// The time before the endpoint answers.
    #[serde(default, with = "scripted_duration")]
    #[schemars(with = "ScriptedDuration")]
    pub delay: Duration,
    /// The number of initial renewals that get a 503.
    #[serde(default)]
    pub failing_refreshes: u64,
    /// Whether the first refresh token stays valid, as in some clouds.
    #[serde(default)]
    pub keeps_refresh: bool,
}

fn token_path() -> String {
    "/oauth/token".to_owned()
}

fn lifetime() -> u64 {
    3600
}

impl TokenRules {
    /// Rules with these first tokens, which do not expire.
    pub fn new(access: &str, refresh: &str) -> Self {
        Self {
            access: access.to_owned(),
            refresh: refresh.to_owned(),
            expire_token_after: None,
            path: token_path(),
            expires_in: lifetime(),
            delay: Duration::ZERO,
            failing_refreshes: 0,
            keeps_refresh: false,
        }
    }
}
