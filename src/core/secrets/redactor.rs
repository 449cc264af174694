//! Redacts secrets in texts.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use super::known::{KnownSecrets, ValueLookup};
use super::matcher::{MatchResult, match_pattern};
use super::patterns::{KEY_PATTERNS, KeyPattern};
use super::prefixes::{EVERYWHERE, IN_CHECKOUTS, PassText, PrefixMatcher};
use super::stream_pass::{FoundSecret, KeyFinder, SecretFinder, StreamPass, ValueFinder};

/// Minimum length of a value that ids and signatures do not contain by chance, in bytes.
const LONG_VALUE_MIN: usize = 8;

/// Redacts the secret values of a run, including those added later, and text that looks like a key.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: KnownSecrets,
    audience: RedactionAudience,
}

#[derive(Clone, Copy, Debug, Default)]
enum RedactionAudience {
    /// Readers of the output and of stored files.
    #[default]
    World,
    Model,
}

impl Redactor {
    /// Creates a redactor for output and stored files.
    pub fn new(known: KnownSecrets) -> Self {
        Self { known, audience: RedactionAudience::World }
    }

    /// Creates a redactor for text sent to the model. It redacts only known values, and tokens that
    /// CI systems leave in a checkout.
    pub fn for_model(known: KnownSecrets) -> Self {
        Self { known, audience: RedactionAudience::Model }
    }

    /// Creates a redactor of the same secrets for output and stored files.
    #[must_use]
    pub fn to_output(&self) -> Self {
        Self::new(self.known.clone())
    }

    /// Returns the text with its secrets redacted.
    pub fn redact(&self, text: &str) -> String {
        self.redacted(text).unwrap_or_else(|| text.to_owned())
    }

    /// Redacts a text in place. Returns true if it contained a secret.
    pub fn redact_in_place(&self, text: &mut String) -> bool {
        let Some(redacted) = self.redacted(text) else { return false };
        *text = redacted;
        true
    }

    /// True if a text, or the strings of a JSON text, may contain a secret. Much faster than
    /// redaction, without false negatives.
    pub fn may_contain_secret(&self, text: &str) -> bool {
        let data = text.as_bytes();
        self.lookup().find(data, 0).is_some() || self.prefixes().find(data, 0).is_some()
    }

    /// The kind of key that a text contains, if any.
    pub fn detect_key_kind(text: &[u8]) -> Option<&'static str> {
        let (mut first, mut from) = (None, 0);
        while let Some(start) = EVERYWHERE.find(text, from) {
            let before = PassText::whole(text).before(start);
            let fitting = EVERYWHERE.candidates(&text[start..]).filter(|(pattern, begin)| {
                let found = match_pattern(pattern, &text[start..], *begin, true);
                pattern.may_follow(before) && found != MatchResult::NoMatch
            });
            let order =
                |pattern: &KeyPattern| KEY_PATTERNS.iter().position(|it| ptr::eq(it, pattern));
            first =
                first.into_iter().chain(fitting.filter_map(|(pattern, _)| order(pattern))).min();
            from = start + 1;
        }
        first.map(|at| KEY_PATTERNS[at].name)
    }

    /// The range of a key that a cut at this byte would split, so that its parts would not be
    /// recognised. It includes the prefix of the key. `reach` bytes before the cut are searched.
    pub fn split_key(text: &str, cut: usize, reach: usize) -> Option<Range<usize>> {
        let data = text.as_bytes();
        let mut from = cut.saturating_sub(reach);
        while let Some(start) = EVERYWHERE.find(data, from).filter(|start| *start < cut) {
            let before = PassText::whole(data).before(start);
            let candidates = EVERYWHERE.candidates(&data[start..]);
            let fitting = candidates.filter(|(pattern, _)| pattern.may_follow(before));
            let ends = fitting.filter_map(|(pattern, begin)| {
                match match_pattern(pattern, &data[start..], begin, true) {
                    MatchResult::Match { hidden, .. } => Some(start + hidden.end),
                    MatchResult::NoMatch | MatchResult::Undecided => None,
                }
            });
            let end = ends.max();
            if let Some(end) = end.filter(|end| cut < *end) {
                return Some(start..end);
            }
            from = end.unwrap_or_default().max(start + 1);
        }
        None
    }

    /// The text with its secrets redacted; `None` if it contains none.
    fn redacted(&self, text: &str) -> Option<String> {
        let without_values = self.redact_values(text);
        let text = without_values.as_deref().unwrap_or(text);
        redact_all(text, &KeyFinder(self.prefixes())).or(without_values)
    }

    /// The text with the known values redacted; `None` if it contains none that is long enough not
    /// to occur by chance in random characters.
    pub(super) fn redact_long_values(&self, text: &str) -> Option<String> {
        let is_in = |value: &String| value.len() >= LONG_VALUE_MIN && text.contains(value.as_str());
        self.known.plain_values().iter().any(is_in).then(|| self.redact_values(text)).flatten()
    }

    /// The text with the known values redacted; `None` if it contains none.
    fn redact_values(&self, text: &str) -> Option<String> {
        redact_all(text, &ValueFinder(&self.lookup()))
    }

    pub(super) fn lookup(&self) -> Arc<ValueLookup> {
        self.known.lookup()
    }

    pub(super) fn prefixes(&self) -> &'static PrefixMatcher {
        match self.audience {
            RedactionAudience::World => &EVERYWHERE,
            RedactionAudience::Model => &IN_CHECKOUTS,
        }
    }
}

fn redact_all(text: &str, finder: &impl SecretFinder) -> Option<String> {
    if let FoundSecret::NotFound = finder.find(&PassText::whole(text.as_bytes()), 0) {
        return None;
    }
    let shown = StreamPass::default().take(text.as_bytes(), finder, true);
    // Matches begin and end at character boundaries.
    Some(String::from_utf8_lossy(&shown).into_owned())
}
