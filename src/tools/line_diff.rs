//! The difference between two texts, line by line.

use serde_json::{Value, json};

/// How many lines around a change are shown.
const CONTEXT: usize = 3;

/// The largest product of the numbers of changed lines that are compared one by one. Larger changes
/// count as replaced as a whole.
const COMPARED_MAX: usize = 1 << 20;

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
    /// The line as a unified diff has it: with a space, `-` or `+` before it.
    pub fn marked(&self) -> String {
        match self {
            Self::Kept(line) => format!(" {line}"),
            Self::Removed(line) => format!("-{line}"),
            Self::Added(line) => format!("+{line}"),
        }
    }

    fn parse(marked: &str) -> Option<Self> {
        let mut letters = marked.chars();
        let mark = letters.next()?;
        let line = letters.as_str().to_owned();
        match mark {
            ' ' => Some(Self::Kept(line)),
            '-' => Some(Self::Removed(line)),
            '+' => Some(Self::Added(line)),
            _ => None,
        }
    }
}

impl DiffHunk {
    /// How many lines were added, and how many removed.
    pub fn counts(&self) -> (usize, usize) {
        let count = |is: fn(&DiffLine) -> bool| self.lines.iter().filter(|line| is(line)).count();
        (
            count(|line| matches!(line, DiffLine::Added(_))),
            count(|line| matches!(line, DiffLine::Removed(_))),
        )
    }

    fn count_old(&self) -> usize {
        self.lines.iter().filter(|line| !matches!(line, DiffLine::Added(_))).count()
    }

    fn count_new(&self) -> usize {
        self.lines.iter().filter(|line| !matches!(line, DiffLine::Removed(_))).count()
    }

    /// The hunk as an object of `structuredPatch`.
    fn object(&self) -> Value {
        json!({
            "oldStart": self.old_start,
            "oldLines": self.count_old(),
            "newStart": self.new_start,
            "newLines": self.count_new(),
            "lines": self.lines.iter().map(DiffLine::marked).collect::<Vec<_>>(),
        })
    }
}

/// The hunks as a `structuredPatch`, for programs.
pub(super) fn structured_patch(hunks: &[DiffHunk]) -> Value {
    hunks.iter().map(DiffHunk::object).collect()
}

/// Reads a `structuredPatch`. What cannot be read of it is left out.
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

/// Compares two texts.
pub fn diff_lines(old: &str, new: &str) -> Vec<DiffHunk> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let after = old_rest.iter().rev().zip(new_rest.iter().rev());
    let after = after.take_while(|(one, other)| one == other).count();
    let changed = compare(&old_rest[..old_rest.len() - after], &new_rest[..new_rest.len() - after]);
    let kept = |line: &&str| DiffLine::Kept((*line).to_owned());
    let all = old[..before].iter().map(kept).chain(changed);
    let all: Vec<DiffLine> =
        all.chain(old_rest[old_rest.len() - after..].iter().map(kept)).collect();
    hunks(&all)
}

/// Compares lines whose first and last ones differ, by their longest common subsequence.
fn compare(old: &[&str], new: &[&str]) -> Vec<DiffLine> {
    let removed = |line: &str| DiffLine::Removed(line.to_owned());
    let added = |line: &str| DiffLine::Added(line.to_owned());
    if old.len().saturating_mul(new.len()) > COMPARED_MAX {
        let removed = old.iter().map(|line| removed(line));
        return removed.chain(new.iter().map(|line| added(line))).collect();
    }
    // The length of the longest common subsequence of what follows each pair of positions.
    let columns = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * columns];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * columns + j] = if old[i] == new[j] {
                common[(i + 1) * columns + j + 1] + 1
            } else {
                common[(i + 1) * columns + j].max(common[i * columns + j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            lines.push(DiffLine::Kept(old[i].to_owned()));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * columns + j] >= common[i * columns + j + 1] {
            lines.push(removed(old[i]));
            i += 1;
        } else {
            lines.push(added(new[j]));
            j += 1;
        }
    }
    lines.extend(old[i..].iter().map(|line| removed(line)));
    lines.extend(new[j..].iter().map(|line| added(line)));
    lines
}

/// Cuts the lines that are far from all changes.
fn hunks(lines: &[DiffLine]) -> Vec<DiffHunk> {
    let is_change = |line: &DiffLine| !matches!(line, DiffLine::Kept(_));
    let mut hunks: Vec<DiffHunk> = Vec::new();
    // The numbers of the next lines, and the end of the last hunk.
    let (mut old, mut new, mut end) = (1, 1, 0);
    for (index, line) in lines.iter().enumerate() {
        let from = index.saturating_sub(CONTEXT);
        let to = (index + CONTEXT + 1).min(lines.len());
        let is_near = lines[from..to].iter().any(is_change);
        if is_near {
            let continues = !hunks.is_empty() && end == index;
            if !continues {
                hunks.push(DiffHunk { old_start: old, new_start: new, lines: Vec::new() });
            }
            if let Some(hunk) = hunks.last_mut() {
                hunk.lines.push(line.clone());
            }
            end = index + 1;
        }
        match line {
            DiffLine::Kept(_) => (old, new) = (old + 1, new + 1),
            DiffLine::Removed(_) => old += 1,
            DiffLine::Added(_) => new += 1,
        }
    }
    hunks
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
