//! Parses refusals of an output cap, to find the output limit of the model, or the size of the
//! input beside which the cap did not fit.
//!
//! Every service has its own wording, so the limit is the largest number in the message that is
//! below the refused cap, provided that the message is about nothing else. The size of the input is
//! found in the same way: with the cap, it exceeds the window.

use super::{ClassifiedFault, ErrorClass};
use crate::text::contains_any;

/// Names of the output cap, in lower case: the Messages API, `OpenAI`, TGI, Gemini, Bedrock.
const CAP_NAMES: [&str; 10] = [
    "max_tokens",
    "max_completion_tokens",
    "max_new_tokens",
    "max_output_tokens",
    "maxtokens",
    "maxoutputtokens",
    "max tokens",
    "maximum tokens",
    "output tokens",
    "completion tokens",
];

/// Signs that the cap is too large, rather than missing or of the wrong type.
const TOO_LARGE: [&str; 27] = [
    ">",
    "above",
    "maximum of",
    "support",
    "exceed",
    "too large",
    "too high",
    "too big",
    "at most",
    "maximum allowed",
    "maximum value",
    "less than",
    "lower than",
    "less or equal",
    "smaller",
    "greater than",
    "no more than",
    "between",
    "range",
    "up to",
    "<=",
    "\u{2264}",
    "limit",
    // "Not allowed", "most", "range" and "exceeds" of Chinese services.
    "\u{975e}\u{6cd5}",
    "\u{6700}\u{5927}",
    "\u{8303}\u{56f4}",
    "\u{8d85}\u{8fc7}",
];

/// Signs that the message is about the input as well, or about another parameter.
const OTHERWISE: [&str; 6] =
    ["input", "prompt", "context", "thinking", "budget_tokens", "at least"];

/// Phrases that contain a word of [`OTHERWISE`] without being such a sign.
const NOT_OTHERWISE: [&str; 6] = [
    "input should be",
    "\"input\":",
    "malformed input request",
    "your input",
    "context_window",
    "max_model_len",
];

/// The output limit in a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedCap {
    /// The service names its limit, in tokens.
    Named(u32),
    /// The service does not name its limit.
    Unnamed,
}

/// True if a message, in lower case, refuses an output cap as too large for the model.
pub(super) fn refuses_output_cap(message: &str) -> bool {
    let rest = NOT_OTHERWISE.iter().fold(message.to_owned(), |rest, words| rest.replace(words, ""));
    contains_any(message, &CAP_NAMES)
        && contains_any(message, &TOO_LARGE)
        && !contains_any(&rest, &OTHERWISE)
}

impl ClassifiedFault {
    /// The output limit of the model, if this is a refusal of an output cap of `cap` tokens.
    pub fn refused_output_cap(&self, cap: u32) -> Option<RefusedCap> {
        if self.failure.class != ErrorClass::InvalidRequest {
            return None;
        }
        let message = self.fault.words();
        if !refuses_output_cap(&message) {
            return None;
        }
        let limit = numbers(&message).filter(|number| *number < cap).max();
        let excess = u32::from(message.contains("(exclusive)"));
        let limit = limit.map(|limit| limit.saturating_sub(excess));
        let limit = limit.filter(|limit| *limit >= LIMIT_MIN);
        Some(limit.map_or(RefusedCap::Unnamed, RefusedCap::Named))
    }

    /// The number of input tokens, if this is an overflow that names it and the window: together
    /// with an output cap of `cap` tokens, they did not fit.
    pub fn named_input(&self, cap: u32) -> Option<u64> {
        let window = self.named_window().filter(|_| self.counts_output())?;
        let cap = u64::from(cap);
        let is_refused = |input: &u64| *input < window && input.saturating_add(cap) > window;
        let found: Vec<u64> = numbers(&self.fault.words()).map(u64::from).collect();
        // The sum is more reliable than its parts, which some services name one by one.
        let has_cap = found.contains(&cap);
        let others = || found.iter().copied().filter(|number| *number != cap);
        let sums = others().filter(|sum| has_cap && *sum > window);
        let by_sum = sums.filter_map(|sum| sum.checked_sub(cap)).filter(is_refused).max();
        by_sum.or_else(|| others().filter(is_refused).max())
    }
}

/// The smallest plausible output limit of a model, in tokens.
const LIMIT_MIN: u32 = 64;

/// The numbers in a text that are not part of a name: `8192`, `8,192`, both of `1-8192`; not those
/// of `claude-3-5`.
fn numbers(text: &str) -> impl Iterator<Item = u32> {
    let ends_word = |letter: char| letter.is_whitespace() || "()[]{}<>\"'`:;=+/".contains(letter);
    text.split(ends_word).flat_map(|word| {
        let word = word.trim_matches(['.', ',', '!', '?']);
        let is_numeric = |letter: char| letter.is_ascii_digit() || "-,.\u{2013}".contains(letter);
        let parts = if word.chars().all(is_numeric) { word } else { "" };
        let parts = parts.split(['-', '\u{2013}']).map(without_thousands_separators);
        parts.flat_map(|part| part.split(',').flat_map(str::parse).collect::<Vec<_>>())
    })
}

/// Removes thousands separators: `8,192` becomes `8192`. Other lists, such as `1,8192`, are kept.
fn without_thousands_separators(text: &str) -> String {
    let is_group = |group: &str| group.len() == 3;
    let is_separated = text.split(',').skip(1).all(is_group);
    if is_separated { text.replace(',', "") } else { text.to_owned() }
}
