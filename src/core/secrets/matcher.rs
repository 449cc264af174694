//! Matches a key pattern at one position of a text.

use std::ops::{Range, RangeInclusive};

use super::patterns::{ByteClass, KeyPattern, PatternPart, RedactedPart};

/// Maximum distance at which the end of a private key block is searched for, in bytes.
pub(super) const BLOCK_MAX: usize = 16 << 10;

/// Minimum length of a private key block without an end, in bytes.
const TORN_BLOCK_MIN: usize = 40;

/// The result of matching a key pattern at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MatchResult {
    /// The text is not a key.
    NoMatch,
    /// The text ends too early to decide.
    Undecided,
    /// A key. If it is `open`, it ends where the text ends, and may continue in later text.
    Match { hidden: Range<usize>, open: bool },
}

/// The result of matching one part.
enum PartMatch {
    Nothing,
    TooShort,
    Bytes(usize),
    /// This many bytes, and possibly more of the following text.
    Open(usize),
}

/// Matches `pattern` against `data`, which begins with a prefix of `begin` bytes. `last` is true if
/// no more text follows.
pub(super) fn match_pattern(
    pattern: &KeyPattern,
    data: &[u8],
    begin: usize,
    last: bool,
) -> MatchResult {
    let mut at = begin;
    let mut hidden = 0..0;
    let mut open = false;
    for part in pattern.rest {
        let from = at;
        (at, open) = match part.match_start(&data[at..], last) {
            PartMatch::Nothing => return MatchResult::NoMatch,
            PartMatch::TooShort => return MatchResult::Undecided,
            PartMatch::Bytes(count) => (at + count, false),
            PartMatch::Open(count) => (at + count, true),
        };
        if !matches!(part, PatternPart::Word(_)) {
            hidden = from..at;
        }
    }
    if pattern.redacts == RedactedPart::All {
        hidden = 0..at;
    }
    if open || (pattern.is_key)(&data[hidden.clone()]) {
        MatchResult::Match { hidden, open }
    } else {
        MatchResult::NoMatch
    }
}

impl PatternPart {
    fn match_start(self, data: &[u8], last: bool) -> PartMatch {
        match self {
            Self::Word(word) => {
                let word = word.as_bytes();
                if data.starts_with(word) {
                    PartMatch::Bytes(word.len())
                } else if !last && word.starts_with(data) {
                    PartMatch::TooShort
                } else {
                    PartMatch::Nothing
                }
            }
            Self::Run(class, low, high) => match_run(class, low..=high, data, last),
            Self::Until(mark, class) => match_until(mark, class, data, last),
        }
    }

    /// True if a key that ends in this part may continue with `byte`.
    pub(super) fn can_continue_with(self, byte: u8) -> bool {
        match self {
            Self::Word(_) => false,
            Self::Run(class, ..) | Self::Until(_, class) => class(byte),
        }
    }
}

fn match_run(
    class: ByteClass,
    counts: RangeInclusive<usize>,
    data: &[u8],
    last: bool,
) -> PartMatch {
    let count = data.iter().position(|&byte| !class(byte)).unwrap_or(data.len());
    let at_end = count == data.len() && !last;
    if count > *counts.end() {
        PartMatch::Nothing
    } else if count < *counts.start() {
        if at_end { PartMatch::TooShort } else { PartMatch::Nothing }
    } else if at_end {
        PartMatch::Open(count)
    } else {
        PartMatch::Bytes(count)
    }
}

fn match_until(mark: &str, class: ByteClass, data: &[u8], last: bool) -> PartMatch {
    let near = &data[..data.len().min(BLOCK_MAX)];
    // A quotation mark ends the JSON string that contains the block.
    let quoted = near.iter().position(|&byte| byte == b'"').unwrap_or(near.len());
    let mark = mark.as_bytes();
    if let Some(end) = near[..quoted].windows(mark.len()).position(|window| window == mark) {
        return PartMatch::Bytes(end);
    }
    if !last && quoted == data.len() && data.len() < BLOCK_MAX {
        return PartMatch::Open(data.len());
    }
    match_run(class, TORN_BLOCK_MIN..=usize::MAX, data, last)
}
