//! Counts the tokens of a request, so that token limits are exact.
//!
//! All names and values in `tools`, `system` and `messages` count by their bytes, 3.5 bytes per
//! token. Images count by size, documents by pages, cache breakpoints not at all.

use serde_json::Value;

use super::media;
use super::walk::{self, PlacedBlock};

/// Tokens of an image with an unknown size.
const UNKNOWN_IMAGE: u64 = 1_600;
/// Maximum tokens of an image: the service scales larger ones down.
const IMAGE_MAX: u64 = 1_600;
/// Pixels per token.
const PIXELS_PER_TOKEN: u64 = 750;
/// Tokens per page of a document.
const PAGE: u64 = 2_000;

/// The tokens of a request.
pub(crate) fn count(body: &Value) -> u64 {
    let bytes: u64 = ["tools", "system", "messages"].iter().map(|part| bytes(&body[part])).sum();
    let media: u64 = walk::blocks(body).iter().map(of_media).sum();
    (bytes * 2).div_ceil(7) + media
}

fn bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match name.as_str() {
                "cache_control" => 0,
                // Media are counted separately.
                "source" if value["type"] == "base64" => 0,
                _ => name.len() as u64 + bytes(value),
            })
            .sum(),
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) => value.to_string().len() as u64,
    }
}

fn of_media(placed: &PlacedBlock<'_>) -> u64 {
    let Some(data) = placed.base64() else { return 0 };
    match placed.kind() {
        "image" => media::pixels(data).map_or(UNKNOWN_IMAGE, |(width, height)| {
            let pixels = u64::from(width) * u64::from(height);
            pixels.div_ceil(PIXELS_PER_TOKEN).min(IMAGE_MAX)
        }),
        "document" => media::pages(data) as u64 * PAGE,
        _ => 0,
    }
}
