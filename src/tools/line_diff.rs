//! The difference between two texts, line by line.

use std::time::Duration;

use serde_json::{Value, json};
use similar::{ChangeTag, DiffOp, TextDiff};

/// The number of lines around a change that are shown.
const CONTEXT: usize = 3;

/// The time limit of the search for a short difference. After it, a longer one is used.
const COMPARED_MAX: Duration = Duration::from_millis(200);

/// A line of a difference, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffLine {
    Kept(String),
    Removed(String),
    Added(String),
}

/// Changes that are near each other, with the lines around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffHunk {
    /// The first line in the old text, counted from 1.
    pub old_start: usize,
    /// The first line in the new text, counted from 1.
    pub new_start: usize,
    pub lines: Vec<DiffLine>,
}

impl DiffLine {
    /// Formats the line as in a unified diff: with a space, `-` or `+` before it.
    pub fn marked(&self) -> String {
        match self {
            Self::Kept(line) => format!(" {line}"),
            Self::Removed(line) => format!("-{line}"),
            Self::Added(line) => format!("+{line}"),
        }
    }

    fn parse(marked: &str) -> Option<Self> {
        let mut letters = marked.chars();
        let sign = letters.next()?;
        let line = letters.as_str().to_owned();
        match sign {
            ' ' => Some(Self::Kept(line)),
            '-' => Some(Self::Removed(line)),
            '+' => Some(Self::Added(line)),
            _ => None,
        }
    }
}

impl DiffHunk {
    /// Counts the added and the removed lines.
    pub fn counts(&self) -> (usize, usize) {
        let count = |is: fn(&DiffLine) -> bool| self.lines.iter().filter(|line| is(line)).count();
        (
            count(|line| matches!(line, DiffLine::Added(_))),
            count(|line| matches!(line, DiffLine::Removed(_))),
        )
    }

    /// The hunk as an object of `structuredPatch`.
    fn object(&self) -> Value {
        let (added, removed) = self.counts();
        json!({
            "oldStart": self.old_start,
            "oldLines": self.lines.len() - added,
            "newStart": self.new_start,
            "newLines": self.lines.len() - removed,
            "lines": self.lines.iter().map(DiffLine::marked).collect::<Vec<_>>(),
        })
    }
}

/// The hunks as a `structuredPatch`, for programs.
pub(super) fn structured_patch(hunks: &[DiffHunk]) -> Value {
    hunks.iter().map(DiffHunk::object).collect()
}

/// Parses a `structuredPatch`. Invalid parts are left out.
pub fn parse_patch(patch: &Value) -> Vec<DiffHunk> {
    let number = |value: &Value| value.as_u64().and_then(|it| usize::try_from(it).ok());
    let hunk = |object: &Value| {
        let lines = object["lines"].as_array()?.iter();
        Some(DiffHunk {
            old_start: number(&object["oldStart"])?,
            new_start: number(&object["newStart"])?,
            lines: lines.filter_map(|line| DiffLine::parse(line.as_str()?)).collect(),
        })
    };
    patch.as_array().into_iter().flatten().filter_map(hunk).collect()
}

/// Compares two texts line by line.
pub fn diff_lines(old: &str, new: &str) -> Vec<DiffHunk> {
    let diff = TextDiff::configure().timeout(COMPARED_MAX).diff_lines(old, new);
    let hunk = |changes: Vec<DiffOp>| {
        let first = changes.first()?;
        let lines = changes.iter().flat_map(|operation| diff.iter_changes(operation));
        let lines = lines.map(|change| {
            let line = change.value().trim_end_matches(['\r', '\n']).to_owned();
            match change.tag() {
                ChangeTag::Equal => DiffLine::Kept(line),
                ChangeTag::Delete => DiffLine::Removed(line),
                ChangeTag::Insert => DiffLine::Added(line),
            }
        });
        Some(DiffHunk {
            old_start: first.old_range().start + 1,
            new_start: first.new_range().start + 1,
            lines: lines.collect(),
        })
    };
    diff.grouped_ops(CONTEXT).into_iter().filter_map(hunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(old: &str, new: &str) -> Vec<Vec<String>> {
        let lines = |hunk: &DiffHunk| hunk.lines.iter().map(DiffLine::marked).collect();
        diff_lines(old, new).iter().map(lines).collect()
    }

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let hunks = diff_lines(old, &old.replace('5', "five\n5b"));
        assert_eq!(hunks.len(), 1);
        assert_eq!((hunks[0].old_start, hunks[0].new_start), (2, 2));
        assert_eq!(hunks[0].counts(), (2, 1));
        let lines: Vec<String> = hunks[0].lines.iter().map(DiffLine::marked).collect();
        assert_eq!(lines, [" 2", " 3", " 4", "-5", "+five", "+5b", " 6", " 7", " 8"]);
    }

    #[test]
    fn changes_that_are_far_apart_have_hunks_of_their_own() {
        let old = (1..40).map(|number| number.to_string()).collect::<Vec<_>>().join("\n") + "\n";
        let hunks = diff_lines(&old, &old.replace("10\n", "").replace("30\n", "thirty\n"));
        let starts: Vec<_> = hunks.iter().map(|hunk| (hunk.old_start, hunk.new_start)).collect();
        assert_eq!(starts, [(7, 7), (27, 26)]);
    }

    #[test]
    fn empty_and_equal_texts_and_common_lines_within_a_change() {
        assert!(marked("a\nb\n", "a\nb\n").is_empty());
        assert_eq!(marked("", "a\n"), [["+a"]]);
        assert_eq!(marked("a\n", ""), [["-a"]]);
        assert_eq!(marked("a\nx\nb\n", "c\nx\nd\n"), [["-a", "+c", " x", "-b", "+d"]]);
    }

    #[test]
    fn a_patch_is_read_as_it_was_written() {
        let hunks = diff_lines("a\nb\nc\n", "a\nB\nc\n");
        assert_eq!(parse_patch(&structured_patch(&hunks)), hunks);
        assert!(parse_patch(&json!([{ "lines": 1 }, 3])).is_empty());
    }
}
