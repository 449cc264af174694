//! What a server insists on, beyond what every request must keep.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

use super::span;

/// A valid request that asks too much is refused, as the service would; that is no violation. To
/// send the refused request again, or to provoke the same refusal with another one, is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerRules {
    /// The only credential that is accepted; any will do without.
    pub require_key: Option<String>,
    /// Access tokens that expire, and an endpoint that renews them.
    pub tokens: Option<TokenRules>,
    /// Tokens, counted as four bytes each of the whole body. A longer request is answered with
    /// a 400.
    pub context_window: Option<u64>,
    /// The true size of the model's window, in tokens as the server counts them (see
    /// `referee/count.rs`). Input, and input with `max_tokens`, must fit in; the count is what
    /// replies report as usage and what the `count_tokens` endpoint answers.
    pub token_limit: Option<NonZeroU64>,
    /// The largest `max_tokens` that is accepted.
    pub max_output: Option<u64>,
    pub media: MediaRules,
    /// What no block may contain.
    pub poison: Vec<PoisonedBlock>,
    pub signatures: Signatures,
    /// The signatures of earlier thinking are refused after so many requests, as they are when
    /// the account changes.
    pub expire_signatures_after: Option<u64>,
}

/// What becomes of thinking whose signature belongs to another model, or to other words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signatures {
    /// A violation: this server signed all there is, so nothing may be wrong.
    #[default]
    Judge,
    /// A refusal: the history may come from elsewhere.
    Refuse,
}

/// Limits of images and documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaRules {
    /// Images and documents in one request.
    pub count: Option<usize>,
    /// Bytes of one image, as base64.
    pub image_bytes: Option<usize>,
    /// The longer side of an image.
    pub image_pixels: Option<u32>,
    /// The same when a request holds more than 20 images.
    pub many_images_pixels: Option<u32>,
    /// Pages of all documents.
    pub pdf_pages: Option<usize>,
}

/// Something that makes the service refuse a whole request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoisonedBlock {
    /// Text of a block, or base64.
    pub contains: String,
    /// What is said after the block's place; what fits its kind when not said.
    pub message: Option<String>,
}

/// Access tokens that expire. An expired one is answered with a 401 until it is renewed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRules {
    /// The token that is good at first. Later ones are called `access.1`, `access.2` and so on.
    pub access: String,
    /// What the endpoint takes at first. Each is good once, and replaced likewise.
    pub refresh: String,
    /// How many requests a token is good for; any number when not said.
    pub expire_token_after: Option<u64>,
    /// Where the refresh grant is performed.
    #[serde(default = "token_path")]
    pub path: String,
    /// The lifetime that is reported, in seconds.
    #[serde(default = "lifetime")]
    pub expires_in: u64,
    /// Silence before an answer of the endpoint, in the script's time.
    #[serde(default, deserialize_with = "span::duration")]
    pub delay: Duration,
    /// How many of the first grants asked for come to a 503.
    #[serde(default)]
    pub broken_refreshes: u64,
}

fn token_path() -> String {
    "/oauth/token".to_owned()
}

fn lifetime() -> u64 {
    3600
}

impl TokenRules {
    pub fn new(access: &str, refresh: &str) -> Self {
        Self {
            access: access.to_owned(),
            refresh: refresh.to_owned(),
            expire_token_after: None,
            path: token_path(),
            expires_in: lifetime(),
            delay: Duration::ZERO,
            broken_refreshes: 0,
        }
    }
}
