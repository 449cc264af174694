//! The Grep tool: searches file contents with ripgrep's engine.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::thread;

use grep_matcher::Matcher;
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::DirEntry;
use memchr::memchr;
use parking_lot::Mutex;

use super::backtracking::BacktrackingMatcher;
use super::encoding::{FileStart, TextFormat};
use super::grep_results::{BINARY_BYTES_MAX, BinaryFile, FileMatches, SearchResults};
use super::input::{GrepInput, GrepMode};
use super::line_end_reader::LineEndReader;
use super::outcome::{ToolError, ToolOutcome};
use super::paths::open_listed;
use super::walk::{SearchBounds, SearchPlace, SearchScope, explain_nothing_found, files};

const ENTRIES_DEFAULT: usize = 250;

/// The longest line, or in multi-line mode file, that is searched, in bytes.
const HEAP_MAX: usize = 32 << 20;

const CONTEXT_MAX: usize = 1_000;

/// The number of files that one thread searches at a time.
const GROUP_FILES: usize = 64;

/// The maximum number of threads of one search. Each may need `HEAP_MAX` of memory.
const THREADS_MAX: usize = 4;

/// The maximum memory of a compiled pattern, and again of its search, in bytes. The defaults let
/// one pattern take a gigabyte.
const PATTERN_BYTES_MAX: usize = 32 << 20;

/// A compiled pattern.
pub(super) enum GrepPattern {
    /// Searches in linear time.
    Linear(RegexMatcher),
    Backtracking(BacktrackingMatcher),
}

/// Compiles the regular expression, or else a search for plain text.
pub(super) fn compile(input: &GrepInput) -> Result<GrepPattern, ToolError> {
    let compiled = match compile_as(&input.pattern, input) {
        Err(PatternError::Invalid(_)) if !has_syntax(&input.pattern) => {
            build(builder(input).fixed_strings(true), &input.pattern).map(GrepPattern::Linear)
        }
        Err(PatternError::Invalid(error)) if needs_backtracking(&error) => {
            BacktrackingMatcher::compile(input, PATTERN_BYTES_MAX)
                .map(GrepPattern::Backtracking)
                .map_err(PatternError::Backtracking)
        }
        compiled => compiled.map(GrepPattern::Linear),
    };
    compiled.map_err(|why| {
        format!("pattern is wrong: {why}. To search for plain text, escape ( ) [ ] {{ }} . * + ? |")
            .into()
    })
}

/// True if a pattern is invalid because it has look-around or references to groups. The library has
/// no kind for these errors.
fn needs_backtracking(error: &grep_regex::Error) -> bool {
    let message = error.to_string();
    message.contains("look-around") || message.contains("backreferences")
}

/// Compiles a pattern for the kind of search of a call.
fn compile_as(pattern: &str, input: &GrepInput) -> Result<RegexMatcher, PatternError> {
    build(&builder(input), pattern)
}

fn builder(input: &GrepInput) -> RegexMatcherBuilder {
    let mut builder = line_regex();
    builder.case_insensitive(input.ignore_case);
    if input.multiline {
        builder.line_terminator(None).dot_matches_new_line(true);
    }
    builder
}

/// True if the pattern is not a valid regular expression, and is searched for as plain text:
/// `interface{}`, `call(`, `text\`.
fn is_plain(input: &GrepInput) -> bool {
    !has_syntax(&input.pattern)
        && matches!(compile_as(&input.pattern, input), Err(PatternError::Invalid(_)))
}

/// True for the syntax of regular expressions that are only unknown or too large here.
fn has_syntax(pattern: &str) -> bool {
    // A backslash at the end escapes nothing.
    let pattern = pattern.strip_suffix('\\').unwrap_or(pattern);
    let begins_count = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    pattern.contains('\\') || pattern.contains("(?") || pattern.split('{').skip(1).any(begins_count)
}

/// The characters that are special with a backslash in the patterns of GNU grep, and plain here.
const SPECIAL_IN_GNU_GREP: [char; 6] = ['|', '(', ')', '{', '}', '+'];

/// Removes the backslash before each of `letters`. `None` if there is none.
fn without_backslash(pattern: &str, letters: &[char]) -> Option<String> {
    let (mut made, mut rest) = (String::with_capacity(pattern.len()), pattern.chars());
    while let Some(letter) = rest.next() {
        match (letter, rest.as_str().chars().next()) {
            ('\\', Some(next)) => {
                rest.next();
                made.extend((!letters.contains(&next)).then_some('\\'));
                made.push(next);
            }
            (_, _) => made.push(letter),
        }
    }
    (made.len() < pattern.len()).then_some(made)
}

/// The meanings that a pattern without a match has in the syntax of GNU grep, if it has
/// alternatives: `a\|b`. Groups alone are not looked for: `call\(\)` more often means plain
/// parentheses.
fn gnu_readings(pattern: &str) -> Vec<String> {
    let letters = [&['|'][..], &SPECIAL_IN_GNU_GREP];
    let mut readings: Vec<String> =
        letters.iter().filter_map(|letters| without_backslash(pattern, letters)).collect();
    let has_alternatives = pattern.contains(r"\|") && !pattern.contains(r"\|\|");
    readings.retain(|reading| has_alternatives && reading.split('|').all(|one| !one.is_empty()));
    readings.dedup();
    readings
}

/// True if the pattern matches line feeds and the search is one within lines.
pub(super) fn needs_multiline(input: &GrepInput) -> bool {
    let spans_lines = || match compile_for_lines(&input.pattern) {
        Err(PatternError::LineFeed) => true,
        Err(PatternError::Invalid(error)) if needs_backtracking(&error) => {
            input.pattern.contains(r"\n")
        }
        Ok(_) | Err(_) => false,
    };
    !input.multiline && spans_lines()
}

/// Compiles a regular expression that matches within lines.
pub(super) fn compile_for_lines(pattern: &str) -> Result<RegexMatcher, PatternError> {
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

/// The reason that a regular expression is not valid.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatternError {
    #[error("it matches line feeds, which only a search over many lines (multiline) can find")]
    LineFeed,
    #[error("the backslash at its end escapes nothing")]
    OpenEscape,
    #[error(transparent)]
    Invalid(grep_regex::Error),
    #[error(transparent)]
    Backtracking(Box<fancy_regex::Error>),
}

fn build(builder: &RegexMatcherBuilder, pattern: &str) -> Result<RegexMatcher, PatternError> {
    builder.build(pattern).map_err(|error| {
        // The message would show the group around the pattern, whose end is escaped.
        let escapes = pattern.len() - pattern.trim_end_matches('\\').len();
        if matches!(error.kind(), ErrorKind::NotAllowed(_)) {
            PatternError::LineFeed
        } else if escapes % 2 == 1 && has_syntax(pattern) {
            PatternError::OpenEscape
        } else {
            PatternError::Invalid(error)
        }
    })
}

/// Runs the search. Blocks.
///
/// # Errors
/// The search was cancelled, or its file or folder does not exist.
pub(super) fn run(
    input: &GrepInput,
    pattern: &GrepPattern,
    scope: &SearchScope,
    base: &Path,
    output_limit: usize,
    bounds: &SearchBounds,
) -> Result<ToolOutcome, ToolError> {
    if !scope.root.exists() {
        return match &scope.missing_folder {
            Some(note) => Ok(SearchResults::new(input, 0, 0).outcome(bounds, Some(note.clone()))),
            None => Err(format!("{} does not exist", scope.root.display()).into()),
        };
    }
    let entries = match input.head_limit {
        None => ENTRIES_DEFAULT,
        Some(0) => usize::MAX,
        Some(limit) => limit,
    };
    // The results that are left out must not take the room of those that are shown.
    let (group_entries, group_room) = match input.offset {
        0 => (entries, output_limit),
        offset => (entries.saturating_add(offset), usize::MAX),
    };
    let is_regular = |entry: &DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
    let search = |pattern: &GrepPattern| {
        let job = SearchJob {
            input,
            bounds,
            base,
            place: scope.place(),
            is_single: scope.root.is_file(),
            empty: &|| SearchResults::new(input, group_entries, group_room),
        };
        let all = SearchResults::new(input, entries, output_limit).without_first(input.offset);
        let files = files(scope, bounds.clone()).filter(is_regular);
        let found = match pattern {
            GrepPattern::Linear(matcher) => job.run(matcher, files, all),
            GrepPattern::Backtracking(matcher) => job.run(matcher, files, all),
        };
        if bounds.is_cancelled() { Err(ToolError::interrupted()) } else { Ok(found) }
    };
    let plain = is_plain(input).then(|| {
        "[the pattern is not a valid regular expression: it was searched for as plain text]"
            .to_owned()
    });
    let found = search(pattern)?;
    if !found.is_empty() {
        return Ok(found.outcome(bounds, plain));
    }
    for reading in gnu_readings(&input.pattern) {
        let Ok(matcher) = compile_as(&reading, input) else { continue };
        let found = search(&GrepPattern::Linear(matcher))?;
        if !found.is_empty() {
            let note = format!(
                "[nothing matches the pattern as it is written: \\| is a plain |. These match {reading}]",
            );
            return Ok(found.outcome(bounds, Some(note)));
        }
    }
    let is_gnu = without_backslash(&input.pattern, &SPECIAL_IN_GNU_GREP).is_some();
    let syntax = is_gnu.then(|| {
        r"[with a backslash, ( ) { } + | are plain characters; groups, counts and alternatives have none]"
            .to_owned()
    });
    let is_unfit = found.searched == 0 && (input.glob.is_some() || input.kind.is_some());
    let unfit = is_unfit.then(|| "[no file fits the glob or the type]".to_owned());
    let notes = [plain, unfit, syntax, explain_nothing_found(scope, base, bounds)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    Ok(found.outcome(bounds, Some(notes.join("\n")).filter(|notes| !notes.is_empty())))
}

/// A search of many files.
struct SearchJob<'a> {
    input: &'a GrepInput,
    bounds: &'a SearchBounds,
    base: &'a Path,
    place: SearchPlace,
    /// True if the call names the file.
    is_single: bool,
    /// Creates results for a group of files.
    empty: &'a (dyn Fn() -> SearchResults + Sync),
}

impl SearchJob<'_> {
    /// Searches the files in groups, on this thread and, if there is work for them and the system
    /// starts them, on others. Returns what was found. The results are those of a search in order.
    fn run<M: Matcher + Clone + Sync>(
        &self,
        matcher: &M,
        files: impl Iterator<Item = DirEntry> + Send,
        found: SearchResults,
    ) -> SearchResults {
        let progress = Mutex::new(Progress::new(files.fuse(), found));
        let mut first = FileSearch::new(self.input, matcher, self.bounds);
        // Most searches find enough in a few files, or have no more.
        if self.search_next(&mut first, &progress) {
            let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
            let work = || {
                // The caches of a matcher are for one thread.
                let matcher = matcher.clone();
                let mut search = FileSearch::new(self.input, &matcher, self.bounds);
                while self.search_next(&mut search, &progress) {}
            };
            thread::scope(|scope| {
                for _ in 1..threads {
                    // Without another thread, this one does the work.
                    let _ = thread::Builder::new().spawn_scoped(scope, work);
                }
                work();
            });
        }
        progress.into_inner().found
    }

    /// Searches the next group of files. Returns false if no more are to be searched.
    fn search_next<F: Iterator<Item = DirEntry>>(
        &self,
        search: &mut FileSearch<'_, impl Matcher>,
        progress: &Mutex<Progress<F>>,
    ) -> bool {
        let Some((number, group)) = progress.lock().next_group() else { return false };
        let found = self.search_group(search, &group);
        progress.lock().add(number, found);
        group.len() == GROUP_FILES
    }

    fn search_group(
        &self,
        search: &mut FileSearch<'_, impl Matcher>,
        group: &[DirEntry],
    ) -> SearchResults {
        let mut found = (self.empty)();
        for entry in group {
            if found.shown.more {
                break;
            }
            found.searched += 1;
            let name = || self.place.shown(entry.path(), self.base);
            let searched = search.file(entry.path(), name, self.is_single, &mut found);
            if searched.is_err() && self.bounds.is_over() {
                break;
            }
            found.skipped += usize::from(searched.is_err());
        }
        found
    }
}

/// The files that are still to be searched and what was found, for all threads of a search.
struct Progress<F> {
    files: F,
    /// The number of groups that a thread has taken.
    taken: usize,
    found: SearchResults,
    /// The number of groups whose results are in `found`.
    added: usize,
    /// The results of groups that were searched before a group that precedes them.
    early: BTreeMap<usize, SearchResults>,
}

impl<F: Iterator> Progress<F> {
    fn new(files: F, found: SearchResults) -> Self {
        Self { files, taken: 0, found, added: 0, early: BTreeMap::new() }
    }

    /// Takes the next group. `None`: there are no more files, or enough was found.
    fn next_group(&mut self) -> Option<(usize, Vec<F::Item>)> {
        if self.found.shown.are_enough_with(self.early.values().map(|found| &found.shown)) {
            return None;
        }
        let group: Vec<_> = self.files.by_ref().take(GROUP_FILES).collect();
        let number = self.taken;
        self.taken += 1;
        (!group.is_empty()).then_some((number, group))
    }

    fn add(&mut self, number: usize, found: SearchResults) {
        self.early.insert(number, found);
        while let Some(next) = self.early.remove(&self.added) {
            self.found.append(next);
            self.added += 1;
        }
    }
}

/// The search engines of one thread.
struct FileSearch<'a, M> {
    matcher: &'a M,
    bounds: &'a SearchBounds,
    text: Searcher,
    binary: Searcher,
    /// True if the pattern contains carriage returns, so that those at line ends count.
    keeps_returns: bool,
}

impl<'a, M: Matcher> FileSearch<'a, M> {
    fn new(input: &GrepInput, matcher: &'a M, bounds: &'a SearchBounds) -> Self {
        let shows_lines = input.output_mode == GrepMode::Content;
        let context = |own: Option<usize>| {
            if shows_lines { own.or(input.around).unwrap_or(0).min(CONTEXT_MAX) } else { 0 }
        };
        let engine = |binary: BinaryDetection| {
            SearcherBuilder::new()
                .binary_detection(binary)
                .bom_sniffing(false)
                .line_number(shows_lines)
                .multi_line(input.multiline)
                .before_context(context(input.before))
                .after_context(context(input.after))
                .heap_limit(Some(HEAP_MAX))
                .build()
        };
        let names_return = |name| input.pattern.to_lowercase().contains(name);
        Self {
            matcher,
            bounds,
            text: engine(BinaryDetection::none()),
            binary: engine(BinaryDetection::convert(0)),
            keeps_returns: ["\r", r"\r", r"\x0d", r"\x{d}", r"\x{0d}", r"\u000d"]
                .into_iter()
                .any(names_return),
        }
    }

    /// Searches a file. `is_single` is true if the call names it.
    fn file(
        &mut self,
        path: &Path,
        name: impl FnOnce() -> String,
        is_single: bool,
        found: &mut SearchResults,
    ) -> io::Result<()> {
        // The file, or a parent folder, may have been replaced by a link or a pipe since.
        let mut file = open_listed(path)?;
        let start = FileStart::read(&mut file)?;
        let binary = match start.format {
            Some(_) => None,
            None if is_single => Some(BinaryFile::Shown),
            None => Some(BinaryFile::Named),
        };
        if binary.is_some() {
            found.cut_binaries += usize::from(file.metadata()?.len() > BINARY_BYTES_MAX);
        }
        let format = start.format;
        let mut matches = FileMatches::new(found, self.matcher, name, binary);
        let file = CancellableFile { file, bounds: self.bounds.clone() };
        let searched = if let Some(format) = format {
            self.text(start, file, format, &mut matches)
        } else {
            let bytes = Cursor::new(start.head).chain(file).take(BINARY_BYTES_MAX);
            self.binary.search_reader(self.matcher, bytes, &mut matches)
        };
        matches.close();
        searched
    }

    fn text(
        &mut self,
        start: FileStart,
        file: CancellableFile,
        format: TextFormat,
        matches: &mut FileMatches<'_, M, impl FnOnce() -> String>,
    ) -> io::Result<()> {
        let has_plain_ends = || self.keeps_returns || memchr(b'\r', &start.head).is_none();
        if start.is_whole() && format == TextFormat::UTF_8 && has_plain_ends() {
            return self.text.search_slice(self.matcher, &start.head, matches);
        }
        let text = start.text(file, format)?;
        if self.keeps_returns {
            return self.text.search_reader(self.matcher, text, matches);
        }
        self.text.search_reader(self.matcher, LineEndReader::new(text), matches)
    }
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

impl Seek for CancellableFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
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
            (r"foo\d\", "the backslash at its end escapes nothing"),
            (r"x(y|z\x0A)", "multiline"),
            (r"\w{1000}{1000}", "size limit"),
        ] {
            let error = compile_for_lines(pattern).unwrap_err();
            assert!(error.to_string().contains(why), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_pattern_without_a_match_may_be_one_of_gnu_grep() {
        let table: [(&str, &[&str]); 8] = [
            (r"a\|b", &["a|b"]),
            (r"\(a\|b\)\+", &[r"\(a|b\)\+", "(a|b)+"]),
            (r"a\(\)\|b", &[r"a\(\)|b", "a()|b"]),
            (r"a\\\|b", &[r"a\\|b"]),
            (r"a\\|b", &[]),
            (r"a \|\| b", &[]),
            (r"\|", &[]),
            (r"a\(\)", &[]),
        ];
        for (pattern, readings) in table {
            assert_eq!(gnu_readings(pattern), readings, "{pattern}");
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_files_and_end_at_the_limit() {
        let input = serde_json::from_value(serde_json::json!({ "pattern": "x" })).unwrap();
        let with = |lines: &[&str]| {
            let mut results = SearchResults::new(&input, 2, 100);
            for line in lines {
                results.shown.take((*line).to_owned());
            }
            results
        };
        let mut progress = Progress::new(0..GROUP_FILES * 9, with(&[]));
        let numbers = [0, 1, 2].map(|_| progress.next_group().map(|(number, _)| number));
        assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
        progress.add(2, with(&["c", "d"]));
        assert!(progress.found.is_empty(), "the first groups may fill the results");
        assert_eq!(progress.next_group().map(|(_, group)| group[0]), Some(GROUP_FILES * 3));
        progress.add(1, with(&["b"]));
        assert!(progress.next_group().is_none(), "three lines are known, of two that are shown");
        progress.add(0, with(&[]));
        let shown = progress.found.outcome(&SearchBounds::new(&CancellationToken::new()), None);
        assert_eq!(
            shown.visible_text(),
            "b\nc\n[there is more; narrow the search or raise head_limit]"
        );
        let wide = "x".repeat(60);
        let mut progress = Progress::new(0..GROUP_FILES * 9, with(&[]));
        for number in 1..=2 {
            assert!(progress.next_group().is_some());
            progress.add(number, with(&[&wide]));
        }
        assert!(progress.next_group().is_none(), "two wide lines fill the room");
        let mut progress = Progress::new(0..GROUP_FILES, with(&[]));
        assert!(progress.next_group().is_some_and(|(_, group)| group.len() == GROUP_FILES));
        assert!(progress.next_group().is_none());
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
