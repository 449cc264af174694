//! Searches for the prefixes of keys.

use std::sync::LazyLock;

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
    pub(super) fn before(&self, position: usize) -> [u8; 2] {
        match position {
            0 => self.before,
            1 => [self.before[1], self.data[0]],
            _ => [self.data[position - 2], self.data[position - 1]],
        }
    }
}

pub(super) static EVERYWHERE: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter()));
pub(super) static IN_CHECKOUTS: LazyLock<PrefixMatcher> =
    LazyLock::new(|| PrefixMatcher::of(KEY_PATTERNS.iter().filter(|pattern| pattern.in_checkouts)));

/// A matcher for the prefixes of all key patterns.
///
/// A bit test of three bytes excludes nearly all positions of a text. An automaton for all prefixes
/// would take longer to build than most runs search: they search a few kilobytes.
pub(super) struct PrefixMatcher {
    /// A bit for each hash of the first three bytes of a prefix.
    begins: Box<[u64; HASHES / 64]>,
    /// Every prefix, with its pattern: by their first two bytes, then in the order of the table.
    words: Vec<PrefixOf>,
    longest: usize,
}

/// A prefix, and the pattern that begins with it.
type PrefixOf = (&'static KeyPattern, &'static [u8]);

/// The number of different hashes: with the prefixes of all patterns, one bit of 130 is set.
const HASHES: usize = 1 << 16;

/// A hash of three bytes.
fn hash([first, second, third]: [u8; 3]) -> usize {
    let number = u32::from_le_bytes([first, second, third, 0]);
    // By Fibonacci hashing, the upper half depends on all three.
    (number.wrapping_mul(0x9E37_79B1) >> 16) as usize
}

/// The first two bytes of a text, as a number.
fn pair_of(text: &[u8]) -> Option<u16> {
    text.first_chunk().map(|first| u16::from_be_bytes(*first))
}

impl PrefixMatcher {
    fn of(patterns: impl Iterator<Item = &'static KeyPattern>) -> Self {
        let each = |pattern: &'static KeyPattern| {
            pattern.prefixes.iter().map(move |word| (pattern, word.as_bytes()))
        };
        let mut words: Vec<PrefixOf> = patterns.flat_map(each).collect();
        words.sort_by_key(|(_, word)| pair_of(word));
        let mut begins = Box::new([0; HASHES / 64]);
        let mut add = |three| begins[hash(three) / 64] |= 1 << (hash(three) % 64);
        for (_, word) in &words {
            match **word {
                [first, second, third, ..] => add([first, second, third]),
                [first, second] => (0..=u8::MAX).for_each(|third| add([first, second, third])),
                // No prefix is shorter than two bytes, as a test checks.
                [] | [_] => {}
            }
        }
        let longest = words.iter().map(|(_, word)| word.len()).max().unwrap_or_default();
        Self { begins, words, longest }
    }

    /// The first position at or after `from` where a key could begin.
    pub(super) fn find(&self, data: &[u8], from: usize) -> Option<usize> {
        let begins_at = |at: usize| self.candidates(&data[at..]).next().is_some();
        let text = data.get(from..)?;
        // A loop, because iterators in its place take twice the instructions for each byte.
        for (three, at) in text.array_windows().zip(from..) {
            let hash = hash(*three);
            if self.begins[hash / 64] >> (hash % 64) & 1 == 1 && begins_at(at) {
                return Some(at);
            }
        }
        // A prefix may be the last two bytes.
        let end = from + text.len().saturating_sub(2);
        begins_at(end).then_some(end)
    }

    /// The patterns that have a prefix with which the text begins, each with the prefix's length.
    pub(super) fn candidates<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (&'static KeyPattern, usize)> + Clone + 'a {
        let pair = pair_of(text);
        let first = self.words.partition_point(|(_, word)| pair_of(word) < pair);
        let same_pair = move |(_, word): &&PrefixOf| pair_of(word) == pair;
        let similar = self.words[first..].iter().take_while(same_pair);
        let matching = similar.filter(move |(_, word)| text.starts_with(word));
        matching.map(|(pattern, word)| (*pattern, word.len()))
    }

    /// The first position at or after `from` where the end of the text could be the beginning of a
    /// prefix.
    pub(super) fn partial_match(&self, text: &PassText<'_>, from: usize) -> Option<usize> {
        let data = text.data;
        let first = data.len().saturating_sub(self.longest.saturating_sub(1)).max(from);
        (first..data.len()).find(|&start| {
            let (rest, before) = (&data[start..], text.before(start));
            let begins = |word: &[u8]| word.len() > rest.len() && word.starts_with(rest);
            self.words.iter().any(|(pattern, word)| begins(word) && pattern.may_follow(before))
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_is_found_with_the_patterns_that_begin_with_it() {
        for pattern in KEY_PATTERNS {
            for word in pattern.prefixes {
                assert!(word.len() >= 2, "{word:?} is too short");
                let text = format!("\u{1}\u{1}{word}");
                assert_eq!(EVERYWHERE.find(text.as_bytes(), 0), Some(2), "{word:?}");
                let mut candidates = EVERYWHERE.candidates(word.as_bytes());
                assert!(
                    candidates.any(|(found, length)| {
                        std::ptr::eq(found, pattern) && length == word.len()
                    }),
                    "{word:?}"
                );
            }
        }
        assert_eq!(EVERYWHERE.find(b"sk-ant", 7), None);
        assert_eq!(EVERYWHERE.find(b"sk-ant-", 1), None);
        assert_eq!(EVERYWHERE.find(b"S", 0), None);
        assert_eq!(EVERYWHERE.find(b"SKI or SK", 4), Some(7));
    }
}
