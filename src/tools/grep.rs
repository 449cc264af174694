//! The Grep tool: searches file contents with ripgrep's engine.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use serde_json::json;

use super::input::{GrepInput, GrepMode};
use super::outcome::{ToolError, ToolOutcome};
use super::paths::{display_path, open_regular};
use super::text;
use super::walk::{SearchBounds, SearchScope, files};

const ENTRIES_DEFAULT: usize = 250;

/// How much of a line is shown, in characters.
const LINE_CHARACTERS_MAX: usize = 500;

/// The longest line, or in multi-line mode file, that is searched, in bytes.
const HEAP_MAX: usize = 32 << 20;

const CONTEXT_MAX: usize = 1_000;

/// How much memory a compiled pattern may take, and its search again, in bytes. The defaults let
/// one pattern take a gigabyte.
const PATTERN_BYTES_MAX: usize = 32 << 20;

/// Compiles the regular expression.
///
/// # Errors
/// Why it is not valid, for the model.
pub(super) fn compile(input: &GrepInput) -> Result<RegexMatcher, ToolError> {
    let mut builder = line_regex();
    builder.case_insensitive(input.ignore_case);
    if input.multiline {
        builder.line_terminator(None).dot_matches_new_line(true);
    }
    build(&builder, &input.pattern).map_err(|why| {
        format!("pattern is wrong: {why}. To search for plain text, escape ( ) [ ] {{ }} . * + ? |")
            .into()
    })
}

/// Compiles a regular expression that matches within lines.
///
/// # Errors
/// Why it is not valid.
pub(super) fn compile_for_lines(pattern: &str) -> Result<RegexMatcher, String> {
    build(&line_regex(), pattern)
}

fn line_regex() -> RegexMatcherBuilder {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    builder
}

fn build(builder: &RegexMatcherBuilder, pattern: &str) -> Result<RegexMatcher, String> {
    builder.build(pattern).map_err(|error| {
        if matches!(error.kind(), ErrorKind::NotAllowed(_)) {
            "it matches line feeds, which only a search over many lines (multiline) can find".into()
        } else {
            error.to_string()
        }
    })
}

/// Runs the search. Blocks.
///
/// # Errors
/// The search is over before it has a result.
pub(super) fn run(
    input: &GrepInput,
    matcher: &RegexMatcher,
    scope: SearchScope,
    base: &Path,
    output_limit: usize,
    bounds: &SearchBounds,
) -> Result<ToolOutcome, ToolError> {
    if !scope.root.exists() {
        return Err(format!("{} does not exist", scope.root.display()).into());
    }
    let entries = match input.head_limit {
        None => ENTRIES_DEFAULT,
        Some(0) => usize::MAX,
        Some(limit) => limit,
    };
    let mut found = SearchResults {
        mode: input.output_mode,
        line_numbers: input.line_numbers.unwrap_or(true),
        lines: Vec::new(),
        files: 0,
        matches: 0,
        room: output_limit,
        entries,
        more: false,
        skipped: 0,
    };
    let mut engine = engine(input);
    for entry in files(scope, bounds.clone()) {
        if found.more {
            break;
        }
        // The file, or a parent folder, may have been replaced by a link or a pipe since.
        let Ok(file) = open_regular(entry.path()) else {
            found.skipped += 1;
            continue;
        };
        let name = display_path(entry.path(), base);
        let mut sheet = FileMatches { found: &mut found, name, here: 0 };
        let reader = CancellableFile { file, bounds: bounds.clone() };
        let searched = engine.search_reader(matcher, reader, &mut sheet);
        sheet.close();
        if searched.is_err() && bounds.is_over() {
            break;
        }
        found.skipped += usize::from(searched.is_err());
    }
    if bounds.is_cancelled() {
        return Err(ToolError::interrupted());
    }
    Ok(found.outcome(bounds))
}

fn engine(input: &GrepInput) -> Searcher {
    let shows_lines = input.output_mode == GrepMode::Content;
    let context = |own: Option<usize>| {
        if shows_lines { own.or(input.around).unwrap_or(0).min(CONTEXT_MAX) } else { 0 }
    };
    SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .line_number(shows_lines)
        .multi_line(input.multiline)
        .before_context(context(input.before))
        .after_context(context(input.after))
        .heap_limit(Some(HEAP_MAX))
        .build()
}

/// A file whose reads fail once the search is cancelled or out of time.
struct CancellableFile {
    file: File,
    bounds: SearchBounds,
}

impl Read for CancellableFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bounds.is_over() {
            return Err(io::Error::other("the search is over"));
        }
        self.file.read(buffer)
    }
}

/// The results so far, over all files.
struct SearchResults {
    mode: GrepMode,
    line_numbers: bool,
    lines: Vec<String>,
    files: usize,
    matches: u64,
    /// How many characters may still be shown.
    room: usize,
    entries: usize,
    /// More was found than may be shown.
    more: bool,
    /// Files that could not be opened, or whose lines are too long to be searched.
    skipped: usize,
}

impl SearchResults {
    /// Adds a line, unless the limits are reached.
    fn take(&mut self, line: String) {
        let length = line.chars().count() + 1;
        if self.lines.len() >= self.entries || length > self.room {
            self.more = true;
            return;
        }
        self.room -= length;
        self.lines.push(line);
    }

    fn outcome(self, bounds: &SearchBounds) -> ToolOutcome {
        let mut text = if self.lines.is_empty() {
            "No matches found".to_string()
        } else {
            self.lines.join("\n")
        };
        if self.more {
            text.push_str("\n[there is more; narrow the search or raise head_limit]");
        }
        if self.skipped > 0 {
            text.extend([format!("\n[{} files could not be searched]", self.skipped)]);
        }
        if bounds.is_late() {
            text.push_str("\n[the search took too long and was ended; use a narrower path]");
        }
        text.extend(bounds.skipped_note());
        let mode = match self.mode {
            GrepMode::FilesWithMatches => "files_with_matches",
            GrepMode::Content => "content",
            GrepMode::Count => "count",
        };
        let detail = json!({
            "mode": mode,
            "numFiles": self.files,
            "numMatches": self.matches,
            "truncated": self.more,
        });
        ToolOutcome::text(text, detail)
    }
}

/// The matches in one file.
struct FileMatches<'a> {
    found: &'a mut SearchResults,
    name: String,
    here: u64,
}

impl FileMatches<'_> {
    fn line(&mut self, number: Option<u64>, mark: char, bytes: &[u8]) {
        let line = text::readable(bytes.trim_ascii_end());
        let shown = text::truncated(&line, LINE_CHARACTERS_MAX);
        let cut = if shown.len() < line.len() { "[…]" } else { "" };
        let number = number.filter(|_| self.found.line_numbers);
        let number = number.map_or(String::new(), |number| format!("{number}{mark}"));
        let name = &self.name;
        self.found.take(format!("{name}{mark}{number}{shown}{cut}"));
    }

    fn close(self) {
        if self.here == 0 {
            return;
        }
        self.found.files += 1;
        match self.found.mode {
            GrepMode::FilesWithMatches => self.found.take(self.name),
            GrepMode::Count => self.found.take(format!("{}:{}", self.name, self.here)),
            GrepMode::Content => {}
        }
    }
}

impl Sink for FileMatches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        for (offset, line) in found.lines().enumerate() {
            self.here += 1;
            self.found.matches += 1;
            if self.found.mode == GrepMode::Content {
                let number = found.line_number().map(|first| first + offset as u64);
                self.line(number, ':', line);
            }
        }
        Ok(match self.found.mode {
            GrepMode::FilesWithMatches => false,
            GrepMode::Content => !self.found.more,
            GrepMode::Count => true,
        })
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.line(context.line_number(), '-', context.bytes());
        Ok(!self.found.more)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.found.take("--".to_string());
        Ok(!self.found.more)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn patterns_that_cannot_be_compiled_are_refused() {
        for (pattern, why) in [
            ("a(", "unclosed group"),
            (r"x(y|z\x0A)", "multiline"),
            (r"\w{1000}{1000}", "size limit"),
        ] {
            let error = compile_for_lines(pattern).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_cancelled_search_stops_reading_a_file() {
        let cancel = CancellationToken::new();
        let file = File::open("/dev/zero").unwrap();
        let mut endless = CancellableFile { file, bounds: SearchBounds::new(&cancel) };
        assert_eq!(endless.read(&mut [0; 8]).unwrap(), 8);
        cancel.cancel();
        assert!(endless.read(&mut [0; 8]).is_err());
    }
}
