//! Searches for the prefixes of keys.

use std::collections::BTreeSet;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::patterns::{KEY_PATTERNS, KeyPattern, LeftContext};

/// The available text.
pub(super) struct PassText<'a> {
    pub(super) data: &'a [u8],
    /// The two bytes before the text.
    pub(super) before: [u8; 2],
    /// True if the text is complete.
    pub(super) last: bool,
}

impl<'a> PassText<'a> {
    /// A complete text.
    pub(super) fn whole(data: &'a [u8]) -> Self {
        Self { data, before: [0; 2], last: true }
    }

    /// The two bytes before a position, the nearer one last; 0 where there is none.
    pub(super) fn before(&self, place: usize) -> [u8; 2] {
        match place {
            0 => self.before,
            1 => [self.before[1], self.data[0]],
            _ => [self.data[place - 2], self.data[place - 1]],
        }
    }
}

pub(super) static EVERYWHERE: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter()));
pub(super) static IN_CHECKOUTS: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter().filter(|shape| shape.in_checkouts)));

/// The size of a text, in bytes, from which on it is searched with a DFA. Building it takes as long
/// as a search of 1 MB, which most runs never do; with it, a search is three times faster.
const LARGE_TEXT: usize = 32 << 10;

/// A matcher for the prefixes of all key patterns.
pub(super) struct PrefixMatcher {
    /// The search in small texts.
    finder: Option<AhoCorasick>,
    /// The search in large texts, built when there is one.
    fast_finder: OnceLock<Option<AhoCorasick>>,
    /// The prefixes, each once.
    distinct: BTreeSet<&'static str>,
    /// For each prefix, the patterns that begin with it or with a part of it, and that part's
    /// length.
    candidates: Vec<Vec<(&'static KeyPattern, usize)>>,
    /// Every prefix, with its pattern.
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
        let candidates = candidates.collect();
        Self {
            finder: finder(&distinct, AhoCorasickKind::ContiguousNFA),
            fast_finder: OnceLock::new(),
            distinct,
            candidates,
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
        let text = &data[from..];
        let finder = if text.len() < LARGE_TEXT {
            &self.finder
        } else {
            self.fast_finder.get_or_init(|| finder(&self.distinct, AhoCorasickKind::DFA))
        };
        let found = finder.as_ref()?.find(text)?;
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

/// Builds a search for words. It fails only for gigabytes of them.
fn finder(words: &BTreeSet<&'static str>, kind: AhoCorasickKind) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).kind(Some(kind)).build(words).ok()
}

impl KeyPattern {
    /// True if a key of this pattern may follow these two bytes.
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
}
