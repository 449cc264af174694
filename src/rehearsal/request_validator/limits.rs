//! Checks a valid request against the server's limits.

use serde_json::Value;

use super::walk::{self, PlacedBlock, strings};
use super::{blocks, count, media};
use crate::connection::RecordedRequest;
use crate::rules::{RejectedContent, ServerRules, Signatures};
use crate::sse::SigningKey;

/// The error message for the first limit that a request exceeds. `None` if it exceeds none.
pub(crate) fn exceeded_limit(
    rules: &ServerRules,
    request: &RecordedRequest,
    body: &Value,
    signing_key: SigningKey,
) -> Option<String> {
    let placed = walk::blocks(body);
    output(rules, body)
        .or_else(|| signatures(rules, body, &placed, signing_key))
        .or_else(|| rejected_content(&rules.rejected_content, &placed))
        .or_else(|| media::exceeded_limit(&rules.media, &placed))
        .or_else(|| window(rules, request, body))
}

fn output(rules: &ServerRules, body: &Value) -> Option<String> {
    let wanted = body["max_tokens"].as_u64().unwrap_or_default();
    rules.max_output.filter(|limit| wanted > *limit).map(|limit| {
        format!(
            "max_tokens: {wanted} > {limit}, which is the maximum allowed number of output tokens"
        )
    })
}

fn window(rules: &ServerRules, request: &RecordedRequest, body: &Value) -> Option<String> {
    let too_long = |tokens: u64, limit: u64| {
        Some(format!("prompt is too long: {tokens} tokens > {limit} maximum"))
    };
    let tokens = (request.body.len() as u64).div_ceil(4);
    if let Some(limit) = rules.context_window.filter(|limit| tokens > *limit) {
        return too_long(tokens, limit);
    }
    let (limit, tokens) = (rules.token_limit?.get(), count::count(body));
    if tokens > limit {
        return too_long(tokens, limit);
    }
    let wanted = body["max_tokens"].as_u64().unwrap_or_default();
    (tokens.saturating_add(wanted) > limit).then(|| {
        format!(
            "input length and `max_tokens` exceed context limit: {tokens} + {wanted} > {limit}, \
             decrease input length or `max_tokens` and try again"
        )
    })
}

fn signatures(
    rules: &ServerRules,
    body: &Value,
    placed: &[PlacedBlock<'_>],
    signing_key: SigningKey,
) -> Option<String> {
    if rules.signatures == Signatures::Check && rules.expire_signatures_after.is_none() {
        return None;
    }
    let model = body["model"].as_str().unwrap_or_default();
    let mut thinking = placed.iter().filter(|placed| placed.kind() == "thinking");
    let foreign =
        thinking.find(|placed| !blocks::is_signed(placed.block, model, &[signing_key]))?;
    Some(blocks::badly_signed(&foreign.place))
}

fn rejected_content(rules: &[RejectedContent], placed: &[PlacedBlock<'_>]) -> Option<String> {
    let matches = |placed: &&PlacedBlock<'_>, rule: &RejectedContent| {
        let is_rejected = |text: &str| text.contains(&rule.contains);
        match placed.kind() {
            // Inner blocks have a path of their own; a plain text result has none.
            "tool_result" => placed.block["content"].as_str().is_some_and(is_rejected),
            _ => strings(placed.block).any(is_rejected),
        }
    };
    rules.iter().find_map(|rule| {
        let found = placed.iter().find(|placed| matches(placed, rule))?;
        let (field, usual) = match found.kind() {
            "image" => (".image.source.base64.data", "Could not process image"),
            "document" => (".pdf.source.base64.data", "The PDF specified was not valid."),
            _ => ("", "the content of this block cannot be processed"),
        };
        let message = rule.message.as_deref().unwrap_or(usual);
        Some(format!("{}{field}: {message}", found.place))
    })
}
