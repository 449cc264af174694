//! The regular expressions of the tools, for ripgrep's searcher.

use grep_matcher::{LineTerminator, Match, Matcher, NoCaptures, NoError};
use regex_automata::Input;
use regex_automata::meta::{BuildError, Regex};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{
    Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind,
    Literal, Repetition,
};

/// How much memory a compiled pattern may take, and its search again, in bytes. The defaults let
/// one pattern take a gigabyte.
const PATTERN_BYTES_MAX: usize = 32 << 20;

/// What one match may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchScope {
    /// A part of one line. The searcher then searches many lines at once.
    OneLine,
    /// Any text. A dot matches line feeds, too.
    ManyLines,
}

/// Why a pattern cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatternError {
    #[error("{0}")]
    Syntax(#[source] Box<regex_syntax::Error>),
    #[error("it matches line feeds, which only a search over many lines (multiline) can find")]
    LineFeed,
    #[error("compiled, it exceeds {} MB", PATTERN_BYTES_MAX >> 20)]
    TooLarge(#[source] Box<BuildError>),
}

/// A compiled regular expression. Its `^` and `$` match at lines.
#[derive(Debug)]
pub(super) struct LineMatcher {
    regex: Regex,
    scope: MatchScope,
}

impl LineMatcher {
    /// Compiles a pattern in the syntax of the crate `regex`.
    ///
    /// # Errors
    /// Its syntax is wrong, it is too large, or with [`MatchScope::OneLine`] it has a line feed.
    pub(super) fn new(
        pattern: &str,
        scope: MatchScope,
        ignore_case: bool,
    ) -> Result<Self, PatternError> {
        let mut parser = ParserBuilder::new()
            .utf8(false)
            .multi_line(true)
            .case_insensitive(ignore_case)
            .dot_matches_new_line(scope == MatchScope::ManyLines)
            .build();
        let hir = parser.parse(pattern).map_err(|error| PatternError::Syntax(Box::new(error)))?;
        let hir = match scope {
            MatchScope::OneLine => within_line(hir)?,
            MatchScope::ManyLines => hir,
        };
        let config = Regex::config()
            .utf8_empty(false)
            .nfa_size_limit(Some(PATTERN_BYTES_MAX))
            .hybrid_cache_capacity(PATTERN_BYTES_MAX);
        let regex = Regex::builder().configure(config).build_from_hir(&hir);
        let regex = regex.map_err(|error| PatternError::TooLarge(Box::new(error)))?;
        Ok(Self { regex, scope })
    }
}

/// Takes line feeds out of all classes, such as `\s` and `[^"]`, so that a match ends with its line.
fn within_line(hir: Hir) -> Result<Hir, PatternError> {
    let all = |parts: Vec<Hir>| parts.into_iter().map(within_line).collect::<Result<Vec<_>, _>>();
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(Literal(bytes)) if bytes.contains(&b'\n') => {
            return Err(PatternError::LineFeed);
        }
        HirKind::Literal(Literal(bytes)) => Hir::literal(bytes),
        HirKind::Class(Class::Unicode(mut class)) => {
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(mut class)) => {
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(Repetition { sub, min, max, greedy }) => {
            let sub = Box::new(within_line(*sub)?);
            Hir::repetition(Repetition { sub, min, max, greedy })
        }
        HirKind::Capture(Capture { sub, index, name }) => {
            Hir::capture(Capture { sub: Box::new(within_line(*sub)?), index, name })
        }
        HirKind::Concat(parts) => Hir::concat(all(parts)?),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)?),
    })
}

impl Matcher for LineMatcher {
    type Captures = NoCaptures;
    type Error = NoError;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, NoError> {
        let found = self.regex.search(&Input::new(haystack).range(at..));
        Ok(found.map(|found| Match::new(found.start(), found.end())))
    }

    fn new_captures(&self) -> Result<NoCaptures, NoError> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, haystack: &[u8], at: usize) -> Result<Option<usize>, NoError> {
        let input = Input::new(haystack).range(at..).earliest(true);
        Ok(self.regex.search_half(&input).map(|found| found.offset()))
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        match self.scope {
            MatchScope::OneLine => Some(LineTerminator::byte(b'\n')),
            MatchScope::ManyLines => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use grep_searcher::Searcher;
    use grep_searcher::sinks::Bytes;

    use super::*;

    const TEXT: &[u8] = b"a b\nxa\n\n b\"c\nd\" A\r\n(\nB)\xff;\nz";

    /// The numbers of the lines that the searcher reports.
    fn lines_found(matcher: &LineMatcher, text: &[u8]) -> Vec<u64> {
        let mut lines = Vec::new();
        let sink = Bytes(|number, _| {
            lines.push(number);
            Ok(true)
        });
        Searcher::new().search_slice(matcher, text, sink).unwrap();
        lines
    }

    #[test]
    fn a_search_for_lines_finds_what_a_search_in_each_line_alone_finds() {
        let patterns = [
            r"a\s+b",
            r"a\s*",
            r"\s$",
            r"^\W",
            r#""[^"]*""#,
            r#"[^"]"#,
            r"(?s)a.",
            r"(?s).+z",
            r"(?-u:[^a])b",
            r"(?-u:\xff)",
            r"(a|\s)b",
            r"(?P<name>\(\s)",
            "^$",
            "",
            r"x|\s",
            "b.;",
        ];
        for pattern in patterns {
            let matcher = LineMatcher::new(pattern, MatchScope::OneLine, false).unwrap();
            let alone = LineMatcher::new(pattern, MatchScope::ManyLines, false).unwrap();
            let lines = (1..).zip(TEXT.split(|byte| *byte == b'\n'));
            let expected = lines.filter(|(_, line)| alone.is_match(line).unwrap());
            let expected: Vec<u64> = expected.map(|(number, _)| number).collect();
            assert_eq!(lines_found(&matcher, TEXT), expected, "{pattern}");
        }
    }

    #[test]
    fn many_lines_match_as_one_text() {
        let found = |pattern| {
            let matcher = LineMatcher::new(pattern, MatchScope::ManyLines, true).unwrap();
            matcher.find(TEXT).unwrap().map(|found| (found.start(), found.end()))
        };
        assert_eq!(found("b.XA"), Some((2, 6)));
        assert_eq!(found(r"c\nd"), Some((11, 14)));
        assert_eq!(found(r"^d.*\)"), Some((13, 23)));
    }

    #[test]
    fn patterns_that_cannot_be_compiled_are_refused() {
        let error =
            |pattern: &str| LineMatcher::new(pattern, MatchScope::OneLine, false).unwrap_err();
        assert!(matches!(error("a("), PatternError::Syntax(_)));
        for pattern in [r"a\nb", r"x(y|z\x0A)", r"[\n]", r"(\n)*"] {
            assert!(matches!(error(pattern), PatternError::LineFeed), "{pattern}");
        }
        assert!(matches!(error(r"\w{1000}{1000}"), PatternError::TooLarge(_)));
    }
}
