//! Hides secrets in texts.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde_json::Value;

use super::json;
use super::known::{KnownSecrets, ValueLookup};
use super::pass::{FoundSecret, SecretFinder, KeyFinder, StreamPass, PassText, ValueFinder};
use super::shapes::{LeftContext, KEY_PATTERNS, KeyPattern};
use super::stream::StreamRedactor;

/// Hides the secrets of a run, those included that it comes by while it goes on, and what looks
/// like a key.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: KnownSecrets,
    audience: RedactionAudience,
}

#[derive(Clone, Copy, Debug, Default)]
enum RedactionAudience {
    /// Whoever reads what is printed or stored.
    #[default]
    World,
    Model,
}

impl Redactor {
    /// For everything that is printed or stored.
    pub fn new(known: KnownSecrets) -> Self {
        Self { known, audience: RedactionAudience::World }
    }

    /// For what the model is shown: the values in use, and what a CI system leaves in a checkout.
    pub fn for_model(known: KnownSecrets) -> Self {
        Self { known, audience: RedactionAudience::Model }
    }

    /// The text without the secrets in it.
    pub fn redact(&self, text: &str) -> String {
        self.redacted(text).unwrap_or_else(|| text.to_owned())
    }

    /// Takes the secrets out of a text. Says whether there were any.
    pub fn redact_in_place(&self, text: &mut String) -> bool {
        let hidden = self.redacted(text);
        let found = hidden.is_some();
        if let Some(hidden) = hidden {
            *text = hidden;
        }
        found
    }

    /// Takes the secrets out of everything in a JSON value that people or models write. Ids,
    /// signatures and other sealed parts of a message stay as they are, byte for byte, unless a
    /// value in use is in them: whoever sealed them refuses anything else.
    pub fn redact_json(&self, value: &mut Value) {
        json::redact(self, value);
    }

    /// Whether there may be something to hide in a text, or in the strings of a JSON text. Much
    /// faster than hiding, and never wrong when it says no.
    pub fn may_contain_secret(&self, text: &str) -> bool {
        let data = text.as_bytes();
        self.lookup().find(data, 0).is_some() || self.prefixes().find(data, 0).is_some()
    }

    /// Masks text that arrives in pieces.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.clone())
    }

    /// The kind of key that is in a text, if there is one.
    pub fn detect_key_kind(text: &[u8]) -> Option<&'static str> {
        EVERYWHERE.find(text, 0)?;
        KEY_PATTERNS.iter().find(|shape| shape.occurs_in(text)).map(|shape| shape.name)
    }

    /// `None` when there is nothing to hide.
    fn redacted(&self, text: &str) -> Option<String> {
        let without_values = self.redact_values(text);
        let keys = KeyFinder(self.prefixes());
        let shown = without_values.as_deref().unwrap_or(text);
        match redact_all(shown, &keys) {
            Some(hidden) => Some(hidden),
            None => without_values,
        }
    }

    /// The text without the values in use; `None` when there are none in it.
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
    // A secret begins and ends between characters.
    Some(String::from_utf8_lossy(&shown).into_owned())
}

static EVERYWHERE: LazyLock<PrefixMatcher> = LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter()));
static IN_CHECKOUTS: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter().filter(|shape| shape.in_checkouts)));

/// Everything that keys begin with, to be looked for at once.
pub(super) struct PrefixMatcher {
    finder: Option<AhoCorasick>,
    /// For each beginning, the shapes that begin so or with a part of it, and how long that is.
    candidates: Vec<Vec<(&'static KeyPattern, usize)>>,
    /// Every beginning.
    words: Vec<(&'static KeyPattern, &'static [u8])>,
    longest: usize,
}

impl PrefixMatcher {
    fn of(shapes: impl Iterator<Item = &'static KeyPattern> + Clone) -> Self {
        let each = |shape: &'static KeyPattern| shape.prefixes.iter().map(move |word| (shape, *word));
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
            // It can only be refused for gigabytes of words.
            finder: finder.ok(),
            candidates: candidates.collect(),
            longest: all.iter().map(|(_, word)| word.len()).max().unwrap_or_default(),
            words: all.iter().map(|(shape, word)| (*shape, word.as_bytes())).collect(),
        }
    }

    /// The first place at or after `from` where a key could begin, and which.
    pub(super) fn find(
        &self,
        data: &[u8],
        from: usize,
    ) -> Option<(usize, &[(&'static KeyPattern, usize)])> {
        let found = self.finder.as_ref()?.find(&data[from..])?;
        Some((from + found.start(), &self.candidates[found.pattern().as_usize()]))
    }

    /// Where, at or after `from`, the end of a text could be the beginning of a key's beginning.
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
    /// Whether a key of this shape may stand after these two bytes.
    pub(super) fn may_follow(&self, before: [u8; 2]) -> bool {
        let [far, near] = before;
        // `\n` in a JSON string is no letter, and neither is the end of a terminal's colour.
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

    /// Whether a key of this shape is somewhere in a text.
    fn occurs_in(&'static self, data: &[u8]) -> bool {
        let text = PassText::whole(data);
        let places = |word: &'static str| {
            let word = word.as_bytes();
            (0..data.len()).filter(move |&place| data[place..].starts_with(word))
        };
        let fits = |place: usize, length: usize| {
            self.may_follow(text.before(place))
                && super::fit::match_pattern(self, &data[place..], length, true) != super::fit::MatchResult::NoMatch
        };
        self.prefixes.iter().any(|word| places(word).any(|place| fits(place, word.len())))
    }
}
