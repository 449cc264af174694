//! Searches by patterns that an automaton cannot match: with look-around and references to groups.

use std::sync::Arc;

use fancy_regex::{Error, Regex, RegexBuilder};
use grep_matcher::{Match, Matcher, NoCaptures};

use super::input::GrepInput;

/// The maximum number of steps back in the search of one line, or in multi-line mode of one file.
const BACKTRACKS_MAX: usize = 200_000;

/// A pattern that is matched by backtracking. Bytes that are not UTF-8 match nothing.
#[derive(Clone, Debug)]
pub(super) struct BacktrackingMatcher(Arc<Regex>);

impl BacktrackingMatcher {
    /// Compiles a pattern. `memory_max` is the size limit of its parts, in bytes.
    pub(super) fn compile(input: &GrepInput, memory_max: usize) -> Result<Self, Box<Error>> {
        let mut builder = RegexBuilder::new(&input.pattern);
        builder
            .multi_line(true)
            .case_insensitive(input.ignore_case)
            .dot_matches_new_line(input.multiline)
            .backtrack_limit(BACKTRACKS_MAX)
            .delegate_size_limit(memory_max)
            .delegate_dfa_size_limit(memory_max);
        builder.build().map(|regex| Self(Arc::new(regex))).map_err(Box::new)
    }
}

impl Matcher for BacktrackingMatcher {
    type Captures = NoCaptures;
    type Error = Error;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, Error> {
        let mut start = 0;
        for chunk in haystack.utf8_chunks() {
            let text = chunk.valid();
            if at <= start + text.len() {
                let from = text.ceil_char_boundary(at.saturating_sub(start));
                if let Some(found) = self.0.find_from_pos(text, from)? {
                    return Ok(Some(Match::new(start + found.start(), start + found.end())));
                }
            }
            start += text.len() + chunk.invalid().len();
        }
        Ok(None)
    }

    fn new_captures(&self) -> Result<NoCaptures, Error> {
        Ok(NoCaptures::new())
    }
}
