//! Redacts text that arrives in pieces, in one pass, and holds back undecided text.

use super::REDACTED;
use super::known::ValueLookup;
use super::matcher::{BLOCK_MAX, MatchResult, match_pattern};
use super::patterns::PatternPart;
use super::prefixes::{PassText, PrefixMatcher};

/// Maximum length of text that is held back, in bytes. Longer text that could still become a key is
/// released; a detected key is redacted however long it is.
const HELD_BACK_MAX: usize = 2 * BLOCK_MAX;

/// Searches for secrets of one kind.
pub(super) trait SecretFinder {
    /// The first match in `text` at or after `from`.
    fn find(&self, text: &PassText<'_>, from: usize) -> FoundSecret;
}

/// The first match in a text.
#[derive(Debug)]
pub(super) enum FoundSecret {
    /// No secret.
    NotFound,
    /// A secret may begin here, but the text ends too early to decide.
    Undecided(usize),
    Hide {
        from: usize,
        to: usize,
        /// The part of the pattern that may continue the secret. `None` if the secret is complete.
        more: Option<PatternPart>,
    },
}

/// The state that a pass keeps between pieces.
#[derive(Debug, Default)]
pub(super) struct StreamPass {
    /// Text that is held back.
    pending: Vec<u8>,
    before: [u8; 2],
    /// The rest of a key that is too long to be held back.
    open_key: Option<PatternPart>,
}

impl StreamPass {
    /// Processes a piece and returns the text that can be released: all of it if it is the `last`
    /// one.
    pub(super) fn take(&mut self, piece: &[u8], finder: &impl SecretFinder, last: bool) -> Vec<u8> {
        let mut data = std::mem::take(&mut self.pending);
        data.extend_from_slice(piece);
        let text = PassText { data: &data, before: self.before, last };
        let mut shown = Vec::with_capacity(data.len());
        let mut at = self.skip_key_rest(&data);
        loop {
            match finder.find(&text, at) {
                FoundSecret::NotFound => {
                    shown.extend_from_slice(&data[at..]);
                    at = data.len();
                    break;
                }
                FoundSecret::Undecided(from) => {
                    shown.extend_from_slice(&data[at..from]);
                    at = from;
                    break;
                }
                FoundSecret::Hide { from, to, more } => {
                    shown.extend_from_slice(&data[at..from]);
                    shown.extend_from_slice(REDACTED.as_bytes());
                    at = to;
                    self.open_key = more;
                }
            }
        }
        self.before = text.before(at);
        self.pending = data.split_off(at);
        shown
    }

    /// The number of bytes of `data` that belong to a key whose beginning was already redacted.
    fn skip_key_rest(&mut self, data: &[u8]) -> usize {
        let Some(part) = self.open_key else { return 0 };
        let end = data.iter().position(|&byte| !part.can_continue_with(byte));
        if end.is_some() {
            self.open_key = None;
        }
        end.unwrap_or(data.len())
    }
}

/// Finds known secret values.
pub(super) struct ValueFinder<'a>(pub(super) &'a ValueLookup);

impl SecretFinder for ValueFinder<'_> {
    fn find(&self, text: &PassText<'_>, from: usize) -> FoundSecret {
        let found = self.0.find(text.data, from);
        let partial = if text.last { None } else { self.0.partial_match(text.data, from) };
        match (found, partial) {
            (Some((start, _)), Some(partial)) if partial <= start => {
                FoundSecret::Undecided(partial)
            }
            (Some((from, to)), _) => FoundSecret::Hide { from, to, more: None },
            (None, Some(partial)) => FoundSecret::Undecided(partial),
            (None, None) => FoundSecret::NotFound,
        }
    }
}

/// Finds text that matches a key pattern.
pub(super) struct KeyFinder(pub(super) &'static PrefixMatcher);

impl SecretFinder for KeyFinder {
    fn find(&self, text: &PassText<'_>, from: usize) -> FoundSecret {
        let data = text.data;
        let partial = if text.last { None } else { self.0.partial_match(text, from) };
        let mut at = from;
        while let Some(start) = self.0.find(data, at) {
            if partial.is_some_and(|partial| partial <= start) {
                break;
            }
            let mut is_undecided = false;
            for (pattern, begin) in self.0.candidates(&data[start..]) {
                if !pattern.may_follow(text.before(start)) {
                    continue;
                }
                let may_wait = !text.last && data.len() - start <= HELD_BACK_MAX;
                match match_pattern(pattern, &data[start..], begin, text.last) {
                    MatchResult::NoMatch => {}
                    MatchResult::Undecided => is_undecided |= may_wait,
                    MatchResult::Match { open: true, .. } if may_wait => is_undecided = true,
                    MatchResult::Match { hidden, open } => {
                        let more = pattern.rest.last().copied().filter(|_| open);
                        let (from, to) = (start + hidden.start, start + hidden.end);
                        return FoundSecret::Hide { from, to, more };
                    }
                }
            }
            if is_undecided {
                return FoundSecret::Undecided(start);
            }
            at = start + 1;
        }
        partial.map_or(FoundSecret::NotFound, FoundSecret::Undecided)
    }
}
