//! The rules of a server, beyond those that every request must follow.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scripted_duration;

/// The rules of one server. A valid request that exceeds a limit is refused, as by the real
/// service, without a violation. Repeating the refused request, or provoking the same refusal with
/// another one, is a violation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerRules {
    /// The only accepted credential; by default any is accepted.
    pub require_key: Option<String>,
    /// Expiring access tokens, and an endpoint that renews them.
    pub tokens: Option<TokenRules>,
    /// Maximum number of tokens, at four bytes each of the whole body. A longer request gets a 400.
    pub context_window: Option<u64>,
    /// The model's context window, in tokens as the server counts them (see
    /// `request_validator/count.rs`). Input, and input with `max_tokens`, must fit; replies and the
    /// `count_tokens` endpoint report the same count.
    pub token_limit: Option<NonZeroU64>,
    /// The largest accepted `max_tokens`.
    pub max_output: Option<u64>,
    /// Limits of images and documents.
    pub media: MediaRules,
    /// Content that no block may contain.
    pub rejected_content: Vec<RejectedContent>,
    /// The handling of thinking with an invalid signature.
    pub signatures: Signatures,
    /// After this many requests, signatures of earlier thinking are refused, as after a change of
    /// the account.
    pub expire_signatures_after: Option<u64>,
}

/// The handling of thinking with an invalid signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signatures {
    /// A violation: this server signed all thinking itself.
    #[default]
    Check,
    /// A refusal: the history may come from another service.
    Refuse,
}

/// Limits of images and documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaRules {
    /// Maximum number of images and documents in one request.
    pub count: Option<usize>,
    /// Maximum size of one image, in bytes of base64.
    pub image_bytes: Option<usize>,
    /// Maximum length of an image's longer side, in pixels.
    pub image_pixels: Option<u32>,
    /// Maximum length of the longer side in a request with more than 20 images, in pixels.
    pub many_images_pixels: Option<u32>,
    /// Maximum number of pages of all documents.
    pub pdf_pages: Option<usize>,
}

/// Content that makes the service refuse a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RejectedContent {
    /// Text of a block, or base64.
    pub contains: String,
    /// The error message after the block's path; the default depends on the block's kind.
    pub message: Option<String>,
}

/// Expiring access tokens. An expired one gets a 401 until it is renewed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRules {
    /// The first valid access token. Later ones are called `access.1`, `access.2` and so on.
    pub access: String,
    /// The first refresh token. Each is valid once and replaced by the next.
    pub refresh: String,
    /// The number of requests for which a token is valid; unlimited by default.
    pub expire_token_after: Option<u64>,
    /// The path of the token endpoint.
    #[serde(default = "token_path")]
    pub path: String,
    /// The reported lifetime, in seconds.
    #[serde(default = "lifetime")]
    pub expires_in: u64,
    /// Delay of the endpoint's responses, in the script's time.
    #[serde(default, with = "scripted_duration")]
    pub delay: Duration,
    /// The number of initial refreshes that get a 503.
    #[serde(default)]
    pub failing_refreshes: u64,
    /// True if the first refresh token stays valid, as those of some clouds do.
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
