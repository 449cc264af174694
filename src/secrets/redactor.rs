//! Redacts secrets in texts.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde_json::Value;

use super::json;
use super::known::{KnownSecrets, ValueLookup};
use super::patterns::{KEY_PATTERNS, KeyPattern, LeftContext};
use super::stream::StreamRedactor;
use super::stream_pass::{FoundSecret, KeyFinder, PassText, SecretFinder, StreamPass, ValueFinder};

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

    /// Creates a redactor for text sent to the model: only known values, and tokens that CI systems
    /// leave in a checkout.
    pub fn for_model(known: KnownSecrets) -> Self {
        Self { known, audience: RedactionAudience::Model }
    }

    /// Returns the text with its secrets redacted.
    pub fn redact(&self, text: &str) -> String {
        self.redacted(text).unwrap_or_else(|| text.to_owned())
    }

    /// Redacts a text in place. Returns whether it contained a secret.
    pub fn redact_in_place(&self, text: &mut String) -> bool {
        let hidden = self.redacted(text);
        let found = hidden.is_some();
        if let Some(hidden) = hidden {
            *text = hidden;
        }
        found
    }

    /// Redacts all free-form text in a JSON value. Ids, signatures and other opaque parts of a
    /// message are kept byte for byte, unless they contain a known value: services reject modified
    /// ones.
    pub fn redact_json(&self, value: &mut Value) {
        json::redact(self, value);
    }

    /// Whether a text, or the strings of a JSON text, may contain a secret. Much faster than
    /// redaction, without false negatives.
    pub fn may_contain_secret(&self, text: &str) -> bool {
        let data = text.as_bytes();
        self.lookup().find(data, 0).is_some() || self.prefixes().find(data, 0).is_some()
    }

    /// Creates a redactor for text that arrives in pieces.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.clone())
    }

    /// The kind of key that a text contains, if any.
    pub fn detect_key_kind(text: &[u8]) -> Option<&'static str> {
        EVERYWHERE.find(text, 0)?;
        KEY_PATTERNS.iter().find(|shape| shape.occurs_in(text)).map(|shape| shape.name)
    }

    /// `None` when the text contains no secret.
    fn redacted(&self, text: &str) -> Option<String> {
        let without_values = self.redact_values(text);
        let keys = KeyFinder(self.prefixes());
        let shown = without_values.as_deref().unwrap_or(text);
        match redact_all(shown, &keys) {
            Some(hidden) => Some(hidden),
            None => without_values,
        }
    }

    /// The text with the known values redacted; `None` when it contains none.
    pub(super) fn redact_values(&self, text: &str) -> Option<String> {
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

static EVERYWHERE: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter()));
static IN_CHECKOUTS: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter().filter(|shape| shape.in_checkouts)));

/// A matcher for the prefixes of all key patterns.
pub(super) struct PrefixMatcher {
    finder: Option<AhoCorasick>,
    /// For each prefix, the patterns that begin with it or with a part of it, and that part's
    /// length.
    candidates: Vec<Vec<(&'static KeyPattern, usize)>>,
    /// Every prefix.
    words: Vec<(&'static KeyPattern, &'static [u8])>,
    longest: usize,
}

impl PrefixMatcher {
    fn of(shapes: impl Iterator<Item = &'static KeyPattern> + Clone) -> Self {
        let each =
            |shape: &'static KeyPattern| shape.prefixes.iter().map(move |word| (shape, *word));
        let all: Vec<(&'static KeyPattern, &'static str)> = shapes.flat_map(each).collect();
        let distinct: BTreeSet<&'static str> = all.iter().map(|(_, word)| *word).collect();
        let candidates = distinct.iter().map(|found| {
            let fitting = all.iter().filter(|(_, word)| found.starts_with(word));
            fitting.map(|(shape, word)| (*shape, word.len())).collect()
        });
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&distinct);
        Self {
            // Building fails only for gigabytes of prefixes.
            finder: finder.ok(),
            candidates: candidates.collect(),
            longest: all.iter().map(|(_, word)| word.len()).max().unwrap_or_default(),
            words: all.iter().map(|(shape, word)| (*shape, word.as_bytes())).collect(),
        }
    }

    /// The first position at or after `from` where a key could begin, with the candidate patterns.
    pub(super) fn find(
        &self,
        data: &[u8],
        from: usize,
    ) -> Option<(usize, &[(&'static KeyPattern, usize)])> {
        let found = self.finder.as_ref()?.find(&data[from..])?;
        Some((from + found.start(), &self.candidates[found.pattern().as_usize()]))
    }

    /// The first position at or after `from` where the end of the text could be the beginning of a
    /// prefix.
    pub(super) fn partial_match(&self, text: &PassText<'_>, from: usize) -> Option<usize> {
        let data = text.data;
        let first = data.len().saturating_sub(self.longest.saturating_sub(1)).max(from);
        (first..data.len()).find(|&start| {
            let (rest, before) = (&data[start..], text.before(start));
            let begins = |word: &[u8]| word.len() > rest.len() && word.starts_with(rest);
            self.words.iter().any(|(shape, word)| begins(word) && shape.may_follow(before))
        })
    }
}

impl KeyPattern {
    /// Whether a key of this pattern may follow these two bytes.
    pub(super) fn may_follow(&self, before: [u8; 2]) -> bool {
        let [far, near] = before;
        // The end of an escape sequence (`\n` in JSON, a terminal colour) is not a letter.
        let ends_escape = (far == b'\\' && b"nrtbf".contains(&near))
            || (b"mK".contains(&near) && (far == b'[' || far.is_ascii_digit()));
        let is_gap = !near.is_ascii_alphanumeric() || ends_escape;
        let is_edge = is_gap && near != b'_';
        match self.before {
            LeftContext::Anything => true,
            LeftContext::Gap => is_gap,
            LeftContext::Edge => is_edge,
            LeftContext::WideEdge => is_edge && near != b'-',
            LeftContext::Digit => near.is_ascii_digit(),
        }
    }

    /// Whether a text contains a key of this pattern.
    fn occurs_in(&'static self, data: &[u8]) -> bool {
        let text = PassText::whole(data);
        let places = |word: &'static str| {
            let word = word.as_bytes();
            (0..data.len()).filter(move |&place| data[place..].starts_with(word))
        };
        let fits = |place: usize, length: usize| {
            self.may_follow(text.before(place))
                && super::matcher::match_pattern(self, &data[place..], length, true)
                    != super::matcher::MatchResult::NoMatch
        };
        self.prefixes.iter().any(|word| places(word).any(|place| fits(place, word.len())))
    }
}
