//! Parser for memory files: strips comments and finds `@path` imports. Pure.

use std::ops::Range;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::cli::front_matter;

/// The text of a memory file in pieces, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImportPiece<'a> {
    Text(&'a str),
    /// `@path`: the content of another file replaces it.
    Import {
        path: &'a str,
        written: &'a str,
    },
}

/// Splits a Markdown text into text and imports. Comments are left out. Code has no imports.
pub(super) fn pieces(text: &str) -> Vec<ImportPiece<'_>> {
    let body = front_matter::body(text);
    let MarkdownState { comments, code } = marks(body);
    let mut pieces = Vec::new();
    let mut from = 0;
    for comment in comments {
        add_text(body, from..comment.start, &code, &mut pieces);
        from = comment.end;
    }
    add_text(body, from..body.len(), &code, &mut pieces);
    pieces
}

/// Maximum number of references in a text.
const REFERENCES_MAX: usize = 1_000;

/// Returns the words that begin with `@` outside of code, without trailing punctuation.
pub(in crate::cli) fn references(text: &str) -> Vec<&str> {
    let mut words = words(text, 0..text.len());
    words.truncate(REFERENCES_MAX);
    if words.is_empty() {
        return Vec::new();
    }
    let code = marks(text).code;
    let is_outside = |range: &Range<usize>| {
        let after = code.partition_point(|code| code.start <= range.start);
        !code[..after].last().is_some_and(|code| code.contains(&range.start))
    };
    words.into_iter().filter(is_outside).map(|range| &text[range]).collect()
}

#[derive(Default)]
struct MarkdownState {
    comments: Vec<Range<usize>>,
    code: Vec<Range<usize>>,
}

fn marks(text: &str) -> MarkdownState {
    let mut marks = MarkdownState::default();
    let mut block: Option<Range<usize>> = None;
    for (event, range) in Parser::new(text).into_offset_iter() {
        if matches!(event, Event::Code(_) | Event::Start(Tag::CodeBlock(_))) {
            marks.code.push(range);
        } else if matches!(event, Event::Start(Tag::HtmlBlock)) {
            block = Some(range);
        } else if matches!(event, Event::End(TagEnd::HtmlBlock)) {
            marks.comments.extend(block.take().filter(|range| is_comment(text, range)));
        }
    }
    marks
}

/// Returns true if an HTML block is only a comment.
fn is_comment(text: &str, range: &Range<usize>) -> bool {
    let html = text[range.clone()].trim();
    html.starts_with("<!--") && html.ends_with("-->")
}

fn add_text<'a>(
    text: &'a str,
    range: Range<usize>,
    code: &[Range<usize>],
    pieces: &mut Vec<ImportPiece<'a>>,
) {
    let mut from = range.start;
    for import in words(text, range.clone()) {
        if code.iter().any(|code| code.contains(&import.start)) {
            continue;
        }
        push_text(&text[from..import.start], pieces);
        let written = &text[import.clone()];
        pieces.push(ImportPiece::Import { path: &written[1..], written });
        from = import.end;
    }
    push_text(&text[from..range.end], pieces);
}

fn push_text<'a>(text: &'a str, pieces: &mut Vec<ImportPiece<'a>>) {
    if !text.is_empty() {
        pieces.push(ImportPiece::Text(text));
    }
}

/// Finds words that begin with `@`, without trailing punctuation.
fn words(text: &str, within: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = within.start;
    let (mut is_start, mut is_reference, mut is_escaped) = (true, false, false);
    let (mut is_at, mut is_quoted) = (false, false);
    let ends = |letter: char| {
        is_reference = if is_start { letter == '@' } else { is_reference };
        is_quoted = if letter == '"' { is_at } else { is_quoted && letter != '\n' };
        is_at = is_start && letter == '@';
        // `@my\ file.md` and `@"my file.md"` are one path each.
        let is_part = is_quoted || is_reference && is_escaped;
        is_start = letter.is_whitespace() && !(is_part && letter == ' ');
        is_escaped = letter == '\\';
        is_start
    };
    for word in text[within].split_inclusive(ends) {
        let (start, end) = (at, at + word.trim_end().len());
        at += word.len();
        let Some(path) = text[start..end].strip_prefix('@') else { continue };
        if let Some((quoted, _)) = path.strip_prefix('"').and_then(|path| path.split_once('"')) {
            if !quoted.trim().is_empty() {
                found.push(start..start + quoted.len() + 3);
            }
            continue;
        }
        let path = path.trim_end_matches(['.', ',', ';', ':', ')', ']', '!', '?']);
        if !path.is_empty() && !path.contains('@') {
            found.push(start..start + 1 + path.len());
        }
    }
    found
}

/// Returns the path of a reference, which may be in quotes, or have a backslash before each space.
pub(in crate::cli) fn unescaped(path: &str) -> String {
    let quoted = path.strip_prefix('"').and_then(|path| path.strip_suffix('"'));
    quoted.map_or_else(|| path.replace("\\ ", " "), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str) -> Vec<&str> {
        let path = |piece| match piece {
            ImportPiece::Import { path, .. } => Some(path),
            ImportPiece::Text(_) => None,
        };
        pieces(text).into_iter().filter_map(path).collect()
    }

    fn visible_text(text: &str) -> String {
        let words = |piece| match piece {
            ImportPiece::Import { written, .. } => written,
            ImportPiece::Text(text) => text,
        };
        pieces(text).into_iter().map(words).collect()
    }

    #[test]
    fn at_words_that_look_like_paths_are_memory_imports() {
        let rows: [(&str, &[&str]); 13] = [
            ("see @docs/style.md and @README.md.", &["docs/style.md", "README.md"]),
            ("@~/own.md\n- @../up.md, @/etc/x", &["~/own.md", "../up.md", "/etc/x"]),
            ("mail me@example.org, see @README", &["README"]),
            ("`@not/this.md` but @this.md", &["this.md"]),
            ("```\n@not/this.md\n```\n@this.md", &["this.md"]),
            ("    @indented/code.md\n\n@this.md", &["this.md"]),
            ("<!-- @not/this.md -->\n\n@this.md", &["this.md"]),
            ("@scope/package@1.0", &[]),
            ("see @docs/my\\ own\\ file.md, and b", &["docs/my\\ own\\ file.md"]),
            ("a\\ @this.md @dir\\\n@that.md", &["this.md", "dir\\", "that.md"]),
            ("see @\"docs/my own.md\", @\"\" and @b.md", &["\"docs/my own.md\"", "b.md"]),
            (
                "@\"not closed.md\n@this.md a\"b @that.md",
                &["\"not closed.md", "this.md", "that.md"],
            ),
            ("", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(imported(text), expected, "{text:?}");
        }
    }

    #[test]
    fn memory_files_lose_comments_and_front_matter_only() {
        assert_eq!(visible_text("a\n\n<!-- b\n\nc -->\n\nd `<!-- e -->`"), "a\n\n\nd `<!-- e -->`");
        assert_eq!(visible_text("---\npaths: x\n---\nbody"), "body");
        assert_eq!(visible_text("---\nno end"), "---\nno end");
        assert_eq!(visible_text("```\n<!-- kept -->\n```"), "```\n<!-- kept -->\n```");
    }
}
