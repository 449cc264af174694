//! One pass over text that may come in pieces: hides what a finder finds, and holds back what it
//! is not sure of.

use super::REDACTED;
use super::fit::{BLOCK_MAX, MatchResult, ShapePart, match_pattern};
use super::known::ValueLookup;
use super::mask::PrefixMatcher;

/// How much is held back, in bytes. What is longer and could still become a key is let go; what
/// is one already goes on being hidden, however long it is.
const HELD_BACK_MAX: usize = 2 * BLOCK_MAX;

/// Looks for secrets of one kind.
pub(super) trait SecretFinder {
    /// What comes first in `text` at or after `from`.
    fn find(&self, text: &PassText<'_>, from: usize) -> FoundSecret;
}

/// The text at hand.
pub(super) struct PassText<'a> {
    pub(super) data: &'a [u8],
    /// The two bytes before it.
    before: [u8; 2],
    /// Whether no more will come.
    last: bool,
}

impl<'a> PassText<'a> {
    /// All there is.
    pub(super) fn whole(data: &'a [u8]) -> Self {
        Self { data, before: [0; 2], last: true }
    }

    /// The two bytes before a place, the nearer one last; 0 where nothing is.
    pub(super) fn before(&self, place: usize) -> [u8; 2] {
        match place {
            0 => self.before,
            1 => [self.before[1], self.data[0]],
            _ => [self.data[place - 2], self.data[place - 1]],
        }
    }
}

/// What comes first in a text.
#[derive(Debug)]
pub(super) enum FoundSecret {
    /// No secret.
    NotFound,
    /// What begins here may become one.
    Undecided(usize),
    Hide {
        from: usize,
        to: usize,
        /// What else belongs to it, if it is not over.
        more: Option<ShapePart>,
    },
}

/// What a pass keeps from one piece to the next.
#[derive(Debug, Default)]
pub(super) struct StreamPass {
    held: Vec<u8>,
    before: [u8; 2],
    /// Hides the rest of a key that is too long to be held.
    open_key: Option<ShapePart>,
}

impl StreamPass {
    /// Takes a piece, and returns what can be shown now: everything, if it is the `last` one.
    pub(super) fn take(&mut self, piece: &[u8], finder: &impl SecretFinder, last: bool) -> Vec<u8> {
        let mut data = std::mem::take(&mut self.held);
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
        self.held = data.split_off(at);
        shown
    }

    /// How much of `data` belongs to a key whose beginning was hidden.
    fn skip_key_rest(&mut self, data: &[u8]) -> usize {
        let Some(part) = self.open_key else { return 0 };
        let end = data.iter().position(|&byte| !part.can_continue_with(byte));
        if end.is_some() {
            self.open_key = None;
        }
        end.unwrap_or(data.len())
    }
}

/// Finds the values in use.
pub(super) struct ValueFinder<'a>(pub(super) &'a ValueLookup);

impl SecretFinder for ValueFinder<'_> {
    fn find(&self, text: &PassText<'_>, from: usize) -> FoundSecret {
        let found = self.0.find(text.data, from);
        let unsure = if text.last { None } else { self.0.partial_match(text.data, from) };
        match (found, unsure) {
            (Some((start, _)), Some(place)) if place <= start => FoundSecret::Undecided(place),
            (Some((from, to)), _) => FoundSecret::Hide { from, to, more: None },
            (None, Some(place)) => FoundSecret::Undecided(place),
            (None, None) => FoundSecret::NotFound,
        }
    }
}

/// Finds what looks like a key.
pub(super) struct KeyFinder(pub(super) &'static PrefixMatcher);

impl SecretFinder for KeyFinder {
    fn find(&self, text: &PassText<'_>, from: usize) -> FoundSecret {
        let data = text.data;
        let unsure = if text.last { None } else { self.0.partial_match(text, from) };
        let mut at = from;
        while let Some((start, candidates)) = self.0.find(data, at) {
            if unsure.is_some_and(|place| place <= start) {
                break;
            }
            let mut could = false;
            for (shape, begin) in candidates {
                if !shape.may_follow(text.before(start)) {
                    continue;
                }
                let patient = !text.last && data.len() - start <= HELD_BACK_MAX;
                match match_pattern(shape, &data[start..], *begin, text.last) {
                    MatchResult::NoMatch => {}
                    MatchResult::Undecided => could |= patient,
                    MatchResult::Match { open: true, .. } if patient => could = true,
                    MatchResult::Match { hidden, open } => {
                        let more = shape.rest.last().copied().filter(|_| open);
                        let (from, to) = (start + hidden.start, start + hidden.end);
                        return FoundSecret::Hide { from, to, more };
                    }
                }
            }
            if could {
                return FoundSecret::Undecided(start);
            }
            at = start + 1;
        }
        unsure.map_or(FoundSecret::NotFound, FoundSecret::Undecided)
    }
}
