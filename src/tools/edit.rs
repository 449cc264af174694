//! The Edit tool: replaces an exact piece of a file.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use unicode_normalization::UnicodeNormalization;

use super::file_history::FileHistory;
use super::files_read::FilesRead;
use super::input::{EditInput, WriteInput};
use super::outcome::{ToolError, ToolOutcome};
use super::paths::{ResolvedPath, read_up_to};
use super::read::{check_regular, is_notebook, metadata_of};
use super::text::{self, NUL_SIGN};
use super::text_file::{LineEnds, TextFile, as_read};
use super::write::{self, EDITED_BYTES_MAX, is_too_large, line_ends, record_style, record_written};

/// The maximum number of lines that are compared to find the closest match.
const HINT_LINES_MAX: usize = 5_000;

/// The maximum part of a line that is compared and shown, in characters.
const HINT_CHARACTERS: usize = 200;

/// The maximum number of characters that are named as different.
const UNSEEN_MAX: usize = 5;

/// The number of unchanged lines that a result shows before and after the change.
const CONTEXT_LINES: usize = 3;

/// The maximum number of lines of the changed file that a result shows.
const EXCERPT_LINES_MAX: usize = 40;

/// Checks the input as far as that does not depend on the file.
pub(super) fn check_input(input: &EditInput) -> Result<(), ToolError> {
    if input.old_string == input.new_string {
        Err("old_string and new_string are the same: nothing would change".into())
    } else {
        Ok(())
    }
}

/// Edits a file. Blocks.
pub(super) fn run(
    input: &EditInput,
    target: &ResolvedPath,
    base: &Path,
    (seen, history): (&FilesRead, Option<&FileHistory>),
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    if input.old_string.is_empty() {
        return create(input, target, (seen, history), cancel);
    }
    let path = target.shown();
    let metadata = metadata_of(target, base)?;
    check_regular(&metadata).map_err(|what| format!("{path} is {what}, not a file"))?;
    let too_large = || format!("{path} is too large to edit here; use sed or a script in Bash");
    if metadata.len() > EDITED_BYTES_MAX {
        return Err(too_large().into());
    }
    let bytes = read_up_to(&target.real, EDITED_BYTES_MAX + 1)
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    if is_too_large(bytes.len(), line_ends(&bytes)) {
        return Err(too_large().into());
    }
    let file = TextFile::new(bytes, seen.former_style(&target.real, &metadata))
        .ok_or_else(|| format!("{path} is a binary file; use a script in Bash to change it"))?;
    let change = Replacement::find(input, &file).map_err(|why| {
        let cells = "A cell of a notebook is changed with NotebookEdit.";
        let hint = if is_notebook(&target.real) { format!(" {cells}") } else { String::new() };
        format!("{path}: {why}{hint}")
    })?;
    let known = seen.check(&target.real, &metadata);
    // One exact match proves that the model knows the text it replaces. Several prove less: the
    // model may not know all of the places.
    if change.count > 1 {
        known.as_ref().map_err(|why| format!("{path}: {why}"))?;
    }
    let new = file.replace(&change.from, &change.to).map_err(|why| format!("{path}: {why}"))?;
    write::replace(target, &new, Some(&metadata), history, cancel)?;
    record_style(target, seen, Some(&file));
    // Write replaces the whole file, so it still requires a Read.
    if known.is_ok() {
        record_written(target, seen);
    }
    let changed = file.text.replace(&change.from, &change.to);
    let mut outcome = change.outcome(input, target, &changed);
    write::add_patch(&mut outcome.detail, &file.text, &changed);
    Ok(outcome)
}

/// Creates a file with the new text, because there is no old text to replace. Blocks.
fn create(
    input: &EditInput,
    target: &ResolvedPath,
    known: (&FilesRead, Option<&FileHistory>),
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    let path = target.shown();
    match fs::metadata(&target.real) {
        Ok(metadata) if metadata.len() > 0 => {
            return Err(format!(
                "old_string is empty, but {path} is not: name the text to replace, or use Write"
            )
            .into());
        }
        // An empty file needs no Read first.
        Ok(_) => record_written(target, known.0),
        Err(_) => {}
    }
    let new = WriteInput { file_path: input.file_path.clone(), content: input.new_string.clone() };
    let outcome = write::run(&new, target, known, cancel)?;
    Ok(ToolOutcome { detail: detail(input, target, 1), ..outcome })
}

/// The result for programs.
fn detail(input: &EditInput, target: &ResolvedPath, replacements: usize) -> Value {
    json!({
        "filePath": target.shown(),
        "oldString": input.old_string,
        "newString": input.new_string,
        "replaceAll": input.replace_all,
        "replacements": replacements,
    })
}

/// A replacement that applies to the file.
struct Replacement {
    from: String,
    to: String,
    count: usize,
    /// The first line that changes.
    line: usize,
}

impl Replacement {
    fn find(input: &EditInput, file: &TextFile) -> Result<Self, ToolError> {
        let (from, to) = as_in_file(input, file);
        let file = file.text.as_str();
        let count = file.matches(&from).count();
        match (count, input.replace_all) {
            (0, _) => return Err(not_found(&input.old_string, &as_read(file)).into()),
            (1, _) | (_, true) => {}
            (count, false) => {
                return Err(format!(
                    "old_string occurs {count} times (lines {}). Add lines around it until it is \
                     unique, or set replace_all.",
                    occurrences(&from, file)
                )
                .into());
            }
        }
        let grown = |size: fn(&[u8]) -> usize| {
            let kept = size(file.as_bytes()).saturating_sub(size(from.as_bytes()) * count);
            size(to.as_bytes()).saturating_mul(count).saturating_add(kept)
        };
        if is_too_large(grown(<[u8]>::len), grown(line_ends)) {
            return Err("the file would become too large; use sed or a script in Bash".into());
        }
        let before = file.find(&from).unwrap_or_default();
        Ok(Self { line: line_at(file, before), from, to, count })
    }

    fn outcome(&self, input: &EditInput, target: &ResolvedPath, file: &str) -> ToolOutcome {
        let path = target.shown();
        let what = match self.count {
            1 => format!("at line {}", self.line),
            count => format!("in {count} places, the first at line {}", self.line),
        };
        let text = format!("Edited {path} {what}. It reads now:\n{}", self.excerpt(file));
        ToolOutcome::text(text, detail(input, target, self.count))
    }

    /// The first changed lines of the new file with some context, numbered as Read numbers them.
    fn excerpt(&self, file: &str) -> String {
        let first = self.line.saturating_sub(CONTEXT_LINES).max(1);
        let changed = as_read(&self.to).lines().count().max(1);
        let wanted = self.line - first + changed + CONTEXT_LINES;
        let file = as_read(file);
        let lines = file.lines().enumerate().skip(first - 1);
        let mut shown = String::new();
        for (index, line) in lines.take(wanted.min(EXCERPT_LINES_MAX)) {
            let line = text::truncated(line, HINT_CHARACTERS);
            shown.extend([format!("{:>6}\t{line}\n", index + 1)]);
        }
        if wanted > EXCERPT_LINES_MAX {
            shown.push_str("(and so on)");
        }
        shown.trim_end_matches('\n').to_string()
    }
}

/// The strings of the input as the file has them: the model sees and writes `\n`, also for a file
/// with other line ends, and a sign for a NUL character.
fn as_in_file(input: &EditInput, file: &TextFile) -> (String, String) {
    let (text, ends) = (file.text.as_str(), file.style.ends);
    let plain = |wanted: &str| {
        if wanted.contains(NUL_SIGN) && text.contains('\0') && !text.contains(NUL_SIGN) {
            wanted.replace(NUL_SIGN, "\0")
        } else {
            wanted.to_owned()
        }
    };
    let (old, new) = (plain(&input.old_string), plain(&input.new_string));
    let other = if text.contains('\n') {
        LineEnds::CarriageReturnLineFeed
    } else {
        LineEnds::CarriageReturn
    };
    let with_other = |wanted: &str| wanted.replace("\r\n", "\n").replace('\n', other.text());
    let converted = with_other(&old);
    // A line feed at the beginning of the text may be the second half of a line end.
    let is_half = || {
        old.starts_with('\n')
            && text.matches(&converted).count() >= text.matches(old.as_str()).count()
    };
    if converted != old && text.contains(&converted) && (!text.contains(&old) || is_half()) {
        return (converted, with_other(&new));
    }
    // A model may write CRLF for a file that has none.
    let bare = old.replace("\r\n", "\n");
    if bare != old && !text.contains('\r') && text.contains(&bare) {
        return (bare, new.replace("\r\n", "\n"));
    }
    match ends {
        // New lines get the line ends of the file, unless the call shows which it means.
        Some(ends) if !old.contains('\n') && !new.contains('\r') => {
            (old, new.replace('\n', ends.text()))
        }
        Some(_) | None => (old, new),
    }
}

fn line_at(file: &str, offset: usize) -> usize {
    let end = if file.contains('\n') { '\n' } else { '\r' };
    file[..offset].matches(end).count() + 1
}

fn occurrences(wanted: &str, file: &str) -> String {
    let first = file.match_indices(wanted).take(10);
    let mut lines: Vec<String> = first.map(|(at, _)| line_at(file, at).to_string()).collect();
    lines.dedup();
    lines.join(", ")
}

/// Returns the message for a text that was not found, with the likely cause.
fn not_found(wanted: &str, file: &str) -> String {
    let lines: Vec<&str> = wanted.lines().collect();
    let first = lines.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or(wanted);
    let cause = if wanted.contains(char::REPLACEMENT_CHARACTER) {
        let cause =
            "U+FFFD stands for bytes that cannot be shown: choose an old_string without it.";
        Some(cause.to_owned())
    } else if lines.iter().all(|line| has_line_number(line)) {
        let cause = "It seems to begin with line numbers as Read shows them: leave those out.";
        Some(cause.to_owned())
    } else {
        unseen_difference(wanted, file)
            .or_else(|| other_escapes(wanted, file))
            .or_else(|| difference_after_first(first, file))
            .or_else(|| closest(first, file))
    };
    match cause {
        Some(cause) => format!("old_string was not found. {cause}"),
        None => "old_string was not found, nor anything like it. Read the file again.".to_owned(),
    }
}

/// Escapes that models write once too often, or leave out: those of strings, and of HTML.
const ESCAPES: [&[(&str, &str)]; 4] = [
    &[("\\\"", "\"")],
    &[("\\n", "\n")],
    &[("\\t", "\t")],
    &[("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")],
];

/// Finds the text in the file with escapes, or without.
fn other_escapes(wanted: &str, file: &str) -> Option<String> {
    let escaped = |pairs: &[(&str, &str)]| {
        let escape = |text: String, (name, sign): &(&str, &str)| text.replace(sign, name);
        pairs.iter().rev().fold(wanted.to_owned(), escape)
    };
    let unescaped = |pairs: &[(&str, &str)]| {
        let unescape = |text: String, (name, sign): &(&str, &str)| text.replace(name, sign);
        pairs.iter().fold(wanted.to_owned(), unescape)
    };
    let mut forms = ESCAPES.iter().flat_map(|pairs| [escaped(pairs), unescaped(pairs)]);
    let found = forms.find(|form| form != wanted && file.contains(form.as_str()))?;
    let shown = text::truncated(found.lines().next().unwrap_or_default(), HINT_CHARACTERS);
    Some(format!("The file has it with other escapes: `{shown}`"))
}

/// Finds the first line of the text in the file, if only blanks or the lines after it differ.
fn difference_after_first(first: &str, file: &str) -> Option<String> {
    let without_blanks = |line: &str| line.split_whitespace().collect::<String>();
    let wanted = without_blanks(first);
    let mut lines = file.lines().take(HINT_LINES_MAX).enumerate();
    let (index, line) =
        lines.find(|(_, line)| !wanted.is_empty() && without_blanks(line) == wanted)?;
    let number = index + 1;
    Some(if line == first {
        format!(
            "Its first line is at line {number}, but the lines after it differ. Read the file \
             around there."
        )
    } else {
        let line = text::truncated(line, HINT_CHARACTERS);
        format!("Line {number} differs from its first line only in blanks: `{line}`")
    })
}

/// Names the characters in which a piece of the file looks like the text but differs.
fn unseen_difference(wanted: &str, file: &str) -> Option<String> {
    let lines: Vec<&str> = file.lines().take(HINT_LINES_MAX).collect();
    let meant = typed(&wanted.lines().collect::<Vec<_>>().join("\n"));
    let text = typed(&lines.join("\n"));
    let at = text.find(&meant).filter(|_| !meant.trim().is_empty())?;
    let before = text[..at].matches('\n').count();
    let piece = &lines[before..lines.len().min(before + meant.split('\n').count())];
    let differs = |letter: char, line: &str| !letter.is_ascii() && !line.contains(letter);
    let number = piece.iter().position(|line| line.chars().any(|it| differs(it, wanted)));
    let number = number.unwrap_or_default();
    let line = piece.get(number).copied().unwrap_or_default();
    let (differing, other) = if line.chars().any(|letter| differs(letter, wanted)) {
        (line, wanted)
    } else {
        (wanted, line)
    };
    let mut odd: Vec<char> = differing.chars().filter(|letter| differs(*letter, other)).collect();
    odd.sort_unstable();
    odd.dedup();
    odd.truncate(UNSEEN_MAX);
    if odd.is_empty() {
        return None;
    }
    let names: Vec<String> =
        odd.into_iter().map(|letter| format!("U+{:04X}", u32::from(letter))).collect();
    let whose = if differing == line { "" } else { "old_string has " };
    Some(format!(
        "Line {} has it with other quotes or dashes, blanks or invisible characters ({whose}{}): \
         `{}`",
        before + number + 1,
        names.join(", "),
        text::truncated(line, HINT_CHARACTERS)
    ))
}

/// Replaces letters that look alike by those of a keyboard, and removes invisible ones.
fn typed(text: &str) -> String {
    let typed = |letter| match letter {
        '\u{2018}'..='\u{201b}' => Some('\''),
        '\u{201c}'..='\u{201f}' => Some('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        // Soft hyphen, zero width, marks of direction, byte order mark.
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => None,
        '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => None,
        _ if letter.is_whitespace() && !letter.is_ascii() => Some(' '),
        _ => Some(letter),
    };
    text.nfc().filter_map(typed).collect()
}

/// Names the line of the file that is most like the text.
fn closest(wanted: &str, file: &str) -> Option<String> {
    let wanted = text::truncated(wanted.trim(), HINT_CHARACTERS);
    let best = file
        .lines()
        .take(HINT_LINES_MAX)
        .enumerate()
        .map(|(index, line)| (index, text::truncated(line.trim(), HINT_CHARACTERS)))
        // Lines of very different length cannot be alike.
        .filter(|(_, line)| line.len() / 3 <= wanted.len() && wanted.len() / 3 <= line.len())
        .map(|(index, line)| (text::similarity(wanted, line), index + 1, line))
        .max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    let (_, number, line) = best.filter(|(likeness, ..)| *likeness > 0.5)?;
    Some(format!("The closest line is {number}: `{line}`"))
}

fn has_line_number(line: &str) -> bool {
    let rest = line.trim_start().trim_start_matches(|letter: char| letter.is_ascii_digit());
    rest.starts_with('\t') && rest.len() < line.trim_start().len()
}
