//! Results of a Grep search, as the model is shown them.

use std::cell::LazyCell;
use std::io;

use grep_matcher::Matcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};
use serde_json::json;

use super::input::{GrepInput, GrepMode};
use super::outcome::ToolOutcome;
use super::text;
use super::walk::SearchBounds;
use crate::text::listed;

/// The maximum length of the searched part of a binary file, in bytes.
pub(super) const BINARY_BYTES_MAX: u64 = 4 << 20;

/// The maximum length of a line that is shown, in characters.
const LINE_CHARACTERS_MAX: usize = 500;

/// The maximum length of the text before the match in a shortened line, in characters.
const BEFORE_CHARACTERS: usize = 100;

/// The maximum number of binary files with a match that are named.
const BINARIES_NAMED: usize = 5;

/// The form in which a binary file is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryFile {
    /// In a note, by its name alone.
    Named,
    /// Like a text file, because the call names it.
    Shown,
}

/// The lines that are shown of the results.
#[derive(Default)]
pub(super) struct ShownLines {
    lines: Vec<String>,
    /// The maximum number of lines.
    entries: usize,
    /// The number of characters that may still be shown.
    room: usize,
    /// The number of lines that are still to be left out.
    left_out: usize,
    /// True if more was found than may be shown.
    pub(super) more: bool,
}

impl ShownLines {
    /// True if these lines and those of files that follow are as many as may be shown.
    pub(super) fn are_enough_with<'a>(&self, next: impl Iterator<Item = &'a Self>) -> bool {
        let (mut lines, mut characters, mut is_over) = (self.lines.len(), 0, self.more);
        for shown in next {
            lines += shown.lines.len();
            characters += shown.lines.iter().map(|line| shown_length(line)).sum::<usize>();
            is_over |= shown.more;
        }
        let is_wide = self.left_out == 0 && characters > self.room;
        is_over || is_wide || lines > self.entries.saturating_add(self.left_out)
    }

    /// Adds a line, unless the limits are reached.
    pub(super) fn take(&mut self, line: String) {
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        let length = shown_length(&line);
        if self.lines.len() >= self.entries || length > self.room {
            self.more = true;
            return;
        }
        self.room -= length;
        self.lines.push(line);
    }
}

/// The results so far, over all files.
#[derive(Default)]
pub(super) struct SearchResults {
    mode: GrepMode,
    line_numbers: bool,
    pub(super) shown: ShownLines,
    files: usize,
    matches: u64,
    pub(super) searched: usize,
    /// The number of files that could not be opened, or whose lines are too long to be searched.
    pub(super) skipped: usize,
    /// The number of binary files that are longer than their searched part.
    pub(super) cut_binaries: usize,
    /// Binary files with a match, and the form in which each is reported.
    binaries: Vec<(String, BinaryFile)>,
}

impl SearchResults {
    /// Creates results of at most `entries` lines with at most `room` characters together.
    pub(super) fn new(input: &GrepInput, entries: usize, room: usize) -> Self {
        Self {
            mode: input.output_mode,
            line_numbers: input.line_numbers.unwrap_or(true),
            shown: ShownLines { entries, room, ..ShownLines::default() },
            ..Self::default()
        }
    }

    /// Leaves out the first lines, which an earlier call has shown.
    pub(super) fn without_first(mut self, lines: usize) -> Self {
        self.shown.left_out = lines;
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.lines.is_empty() && self.binaries.is_empty()
    }

    /// Adds the results of the files that follow.
    pub(super) fn append(&mut self, next: Self) {
        if self.shown.more {
            return;
        }
        for line in next.shown.lines {
            self.shown.take(line);
            if self.shown.more {
                break;
            }
        }
        self.files += next.files;
        self.matches += next.matches;
        self.shown.more |= next.shown.more;
        self.searched += next.searched;
        self.skipped += next.skipped;
        self.cut_binaries += next.cut_binaries;
        self.binaries.extend(next.binaries);
    }

    /// Formats the results. `note` says why there are none, or what was searched for instead.
    pub(super) fn outcome(self, bounds: &SearchBounds, note: Option<String>) -> ToolOutcome {
        let filenames = match self.mode {
            GrepMode::FilesWithMatches => self.shown.lines.clone(),
            GrepMode::Content | GrepMode::Count => Vec::new(),
        };
        let mut parts = self.shown.lines;
        if parts.is_empty() && self.binaries.is_empty() {
            let empty = if self.files == 0 { "No matches found" } else { "No more matches" };
            parts.push(empty.to_string());
        }
        if self.shown.more {
            parts.push("[there is more; narrow the search or raise head_limit]".to_string());
        }
        let names: Vec<&str> = self.binaries.iter().map(|(name, _)| name.as_str()).collect();
        if self.binaries.iter().any(|(_, shown)| *shown == BinaryFile::Shown) {
            parts.push(format!("[{} is a binary file]", names.join(", ")));
        } else if !names.is_empty() {
            let names = listed(&names, BINARIES_NAMED);
            parts.push(format!(
                "[matches also in binary files: {names}; give one as path to see its lines]"
            ));
        }
        if self.cut_binaries > 0 {
            parts.push(format!(
                "[{} binary files are longer than the {} MB that are searched of one]",
                self.cut_binaries,
                BINARY_BYTES_MAX >> 20
            ));
        }
        if self.skipped > 0 {
            parts.push(format!("[{} files could not be searched]", self.skipped));
        }
        parts.extend(bounds.notes());
        parts.extend(note);
        let detail = json!({
            "mode": self.mode,
            "filenames": filenames,
            "numFiles": self.files,
            "numMatches": self.matches,
            "truncated": self.shown.more,
        });
        ToolOutcome::text(parts.join("\n"), detail)
    }
}

/// Returns the number of characters of a line with its line feed.
fn shown_length(line: &str) -> usize {
    line.chars().count() + 1
}

/// The matches in one file.
pub(super) struct FileMatches<'a, M, F> {
    found: &'a mut SearchResults,
    matcher: &'a M,
    /// Few files have a match, and a name is needed only then.
    name: LazyCell<String, F>,
    here: u64,
    binary: Option<BinaryFile>,
}

impl<'a, M: Matcher, F: FnOnce() -> String> FileMatches<'a, M, F> {
    pub(super) fn new(
        found: &'a mut SearchResults,
        matcher: &'a M,
        name: F,
        binary: Option<BinaryFile>,
    ) -> Self {
        Self { found, matcher, name: LazyCell::new(name), here: 0, binary }
    }

    fn line(&mut self, number: Option<u64>, mark: char, shown: &str) {
        let number = number.filter(|_| self.found.line_numbers);
        let number = number.map_or(String::new(), |number| format!("{number}{mark}"));
        let name = &*self.name;
        self.found.shown.take(format!("{name}{mark}{number}{shown}"));
    }

    pub(super) fn close(self) {
        if self.here == 0 {
            return;
        }
        self.found.files += 1;
        if let Some(binary) = self.binary {
            self.found.binaries.push(((*self.name).clone(), binary));
            if binary == BinaryFile::Named {
                return;
            }
        }
        match self.found.mode {
            GrepMode::FilesWithMatches => self.found.shown.take((*self.name).clone()),
            GrepMode::Count => self.found.shown.take(format!("{}:{}", *self.name, self.here)),
            GrepMode::Content => {}
        }
    }
}

impl<M: Matcher, F: FnOnce() -> String> Sink for FileMatches<'_, M, F> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.binary == Some(BinaryFile::Named) {
            self.here = 1;
            return Ok(false);
        }
        let mut start = 0;
        for (offset, line) in found.lines().enumerate() {
            self.here += 1;
            self.found.matches += 1;
            if self.found.mode == GrepMode::Content {
                let number = found.line_number().map(|first| first + offset as u64);
                let shown = shown_line(line, || {
                    let first = self.matcher.find_at(found.bytes(), start).ok().flatten();
                    first.map_or(0, |first| first.start() - start)
                });
                self.line(number, ':', &shown);
            }
            start += line.len();
        }
        Ok(match self.found.mode {
            GrepMode::FilesWithMatches => false,
            GrepMode::Content => !self.found.shown.more,
            GrepMode::Count => true,
        })
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let shown = shown_line(context.bytes(), || 0);
        self.line(context.line_number(), '-', &shown);
        Ok(!self.found.shown.more)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.found.shown.take("--".to_string());
        Ok(!self.found.shown.more)
    }
}

/// Formats a line. A long one is shortened to the part around the match, at offset `match_start`.
fn shown_line(line: &[u8], match_start: impl FnOnce() -> usize) -> String {
    let line = line.trim_ascii_end();
    let whole = String::from_utf8_lossy(line);
    if line.len() <= LINE_CHARACTERS_MAX || whole.chars().count() <= LINE_CHARACTERS_MAX {
        return readable(&whole);
    }
    // A match may begin in the blanks that are not shown, or in another line.
    let at = match_start();
    let at = if at < line.len() { at } else { 0 };
    let (before, after) = line.split_at(at);
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let lead = text::tail(&before, BEFORE_CHARACTERS);
    let rest = text::truncated(&after, LINE_CHARACTERS_MAX - lead.chars().count());
    let mark = |is_cut| if is_cut { "[…]" } else { "" };
    let (head_cut, tail_cut) = (lead.len() < before.len(), rest.len() < after.len());
    format!("{}{}{}{}", mark(head_cut), readable(lead), readable(rest), mark(tail_cut))
}

/// Removes escape sequences. Text that a terminal would overwrite is in the file, and stays.
fn readable(line: &str) -> String {
    line.split('\r').map(text::readable).collect::<Vec<_>>().join("\r")
}
