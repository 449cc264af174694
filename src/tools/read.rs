//! The Read tool: shows a file's text by lines, or an image, PDF pages or notebook cells.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::fcntl::OFlag;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::encoding::{FileStart, TextFormat, has_old_line_ends};
use super::file_names;
use super::files_read::FilesRead;
use super::input::ReadInput;
use super::media;
use super::notebook;
use super::outcome::{ToolError, ToolOutcome};
use super::paths::{ResolvedPath, display_path, open_real, resolve};
use super::text::{self, NUL_SIGN};
use super::text_file::{FormerStyle, LineEnds, style_name};

const LINES_DEFAULT: u64 = 2_000;
const LINE_CHARACTERS_MAX: usize = 2_000;

/// The minimum similarity of a name to be suggested.
const LIKENESS_MIN: f64 = 0.5;

/// The maximum number of names in a folder that are compared.
const NAMES_MAX: usize = 2_000;

/// Reads a file. `page` is the length of a text at which it ends, in bytes. Blocks.
pub(super) fn run(
    input: &ReadInput,
    target: &ResolvedPath,
    base: &Path,
    (seen, page): (&FilesRead, usize),
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    let (mut file, metadata) = open(target, base)?;
    let path = target.shown();
    if let Some(promised) = media::kind_of_name(&target.written).filter(|_| metadata.len() == 0) {
        return Err(format!("{path} is empty: there is no {promised} in it.").into());
    }
    let cannot = |error: io::Error| ToolError::from(format!("cannot read {path}: {error}"));
    let mut start = FileStart::read(&mut file).map_err(cannot)?;
    // Edit and Write use this format, too.
    if let FormerStyle::Unchanged(style) = seen.former_style(&target.real, &metadata) {
        start.format = Some(style.format);
    }
    let outcome = if let Some(kind) = media::detect_named(&start.head, &target.written) {
        file.rewind().map_err(cannot)?;
        let size = metadata.len();
        let file = media::MediaFile { kind, open: file, size, path: &target.written };
        media::read(file, input.pages.as_deref(), cancel)?
    } else if let Some(format) = start.format {
        let notebook = if is_notebook(&target.real) {
            let cells = notebook::read(&file, &target.written, input.offset, input.limit);
            file.seek(io::SeekFrom::Start(start.consumed)).map_err(cannot)?;
            cells?
        } else {
            None
        };
        if let Some(cells) = notebook {
            cells
        } else {
            let reader = start.text(file, format).map_err(cannot)?;
            show_lines((input, page), reader, format, target, cancel)?
        }
    } else {
        return Err(binary_message(&start.head, metadata.len(), target).into());
    };
    seen.note(&target.real, &metadata);
    Ok(outcome)
}

/// The message for a binary file, with advice on how to inspect it.
fn binary_message(start: &[u8], size: u64, target: &ResolvedPath) -> String {
    let path = target.shown();
    match media::unsupported_image_format(start) {
        Some(format) => format!(
            "{path} is a picture of a format that cannot be shown ({format}). Convert a copy, for \
             example with `convert FILE copy.png`, and Read that."
        ),
        None => format!(
            "{path} is a binary file of {size} bytes. Look at it with Bash, for example `file` or \
             `xxd FILE | head`."
        ),
    }
}

/// Opens a regular file, and nothing on which reading could block.
fn open(target: &ResolvedPath, base: &Path) -> Result<(File, Metadata), ToolError> {
    let path = target.shown();
    let metadata = metadata_of(target, base)?;
    check_regular(&metadata).map_err(|what| {
        let hint = if metadata.is_dir() { " List it with Glob or `ls`." } else { "" };
        format!("{path} is {what}, not a file.{hint}")
    })?;
    // The file may have been replaced by a pipe: opening must not wait for a writer.
    let file = open_real(&target.real, OFlag::O_RDONLY)
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    let metadata = file.metadata().map_err(|error| format!("cannot read {path}: {error}"))?;
    check_regular(&metadata).map_err(|what| format!("{path} is {what}, not a file."))?;
    Ok((file, metadata))
}

/// The metadata of the file that a call names.
pub(super) fn metadata_of(target: &ResolvedPath, base: &Path) -> Result<Metadata, ToolError> {
    fs::metadata(&target.real).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            missing_message(target, base).into()
        } else {
            format!("cannot read {}: {error}", target.shown()).into()
        }
    })
}

/// Checks that a file is a regular one.
///
/// # Errors
/// The type of the file, if it is not a regular one.
pub(super) fn check_regular(metadata: &Metadata) -> Result<(), &'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(())
    } else if kind.is_dir() {
        Err("a directory")
    } else if kind.is_fifo() {
        Err("a named pipe")
    } else if kind.is_socket() {
        Err("a socket")
    } else {
        Err("a device")
    }
}

/// True if the name is that of a notebook.
pub(super) fn is_notebook(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ipynb")
}

/// The message for a missing file, with the link that leads nowhere, or suggestions of similar
/// names.
fn missing_message(target: &ResolvedPath, base: &Path) -> String {
    let path = target.shown();
    let link = target.written.ancestors().find(|part| part.is_symlink());
    if let Some(link) = link.filter(|link| !link.exists()) {
        let (link, end) = (file_names::shown(link), file_names::shown(&resolve(link)));
        return format!(
            "{path} cannot be opened: the link {link} leads to {end}, which does not exist."
        );
    }
    let name = target.real.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let (Some(name), Some(folder)) = (name, target.real.parent()) else {
        return format!("{path} does not exist.");
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return format!(
            "{path} does not exist, nor does its folder. The working directory is {}.",
            base.display()
        );
    };
    let mut near: Vec<(f64, String)> = entries
        .take(NAMES_MAX)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|other| {
            let likeness =
                text::similarity(&name, &other.file_name()?.to_string_lossy().to_lowercase());
            (likeness >= LIKENESS_MIN).then(|| (likeness, display_path(&other, base)))
        })
        .collect();
    near.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let names: Vec<String> = near.into_iter().take(3).map(|(_, name)| name).collect();
    if names.is_empty() {
        format!("{path} does not exist. The working directory is {}.", base.display())
    } else {
        format!("{path} does not exist. Did you mean {}?", names.join(" or "))
    }
}

/// A line of the file, as it is shown.
enum ShownLine {
    Text(String),
    /// Not text, although the file begins as text.
    Binary,
    End,
}

/// The part of a file that is shown.
#[derive(Default)]
struct ShownFile {
    shown: String,
    /// The first of the omitted binary lines before the next text line.
    binary_since: Option<u64>,
}

impl ShownFile {
    fn take(&mut self, number: u64, line: ShownLine) {
        match line {
            ShownLine::Binary => {
                self.binary_since.get_or_insert(number);
            }
            ShownLine::Text(line) => {
                self.close(number);
                self.shown.extend([format!("{number:>6}\t"), line, "\n".to_string()]);
            }
            ShownLine::End => {}
        }
    }

    /// Adds a note about the omitted binary lines before `next`.
    fn close(&mut self, next: u64) {
        if let Some(first) = self.binary_since.take() {
            let last = next - 1;
            let which = if first == last {
                format!("line {first}")
            } else {
                format!("lines {first}-{last}")
            };
            self.shown.extend([format!("[{which}: binary data, not shown]\n")]);
        }
    }
}

fn show_lines(
    (input, page_bytes): (&ReadInput, usize),
    mut reader: impl BufRead,
    format: TextFormat,
    target: &ResolvedPath,
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    let path = target.shown();
    let cannot = |error: io::Error| ToolError::from(format!("cannot read {path}: {error}"));
    let first = input.offset.unwrap_or(1).max(1);
    let limit = input.limit.unwrap_or(LINES_DEFAULT);
    let (mut number, mut taken) = (0_u64, 0_u64);
    let mut ends = LineCount::of(reader.fill_buf().map_err(cannot)?);
    let mut page = ShownFile::default();
    let more = loop {
        if taken == limit || page.shown.len() >= page_bytes {
            break reader.fill_buf().is_ok_and(|rest| !rest.is_empty());
        }
        if cancel.is_cancelled() {
            return Err(ToolError::interrupted());
        }
        let keep = if number + 1 < first { 0 } else { LINE_CHARACTERS_MAX };
        match next_line(&mut reader, keep, &mut ends, cancel).map_err(cannot)? {
            ShownLine::End => break false,
            line @ (ShownLine::Text(_) | ShownLine::Binary) => {
                number += 1;
                if number >= first {
                    taken += 1;
                    page.take(number, line);
                }
            }
        }
    };
    if taken == 0 && number > 0 {
        return Err(format!("{path} has only {number} lines").into());
    }
    page.close(number + 1);
    let mut shown = page.shown;
    if number == 0 {
        shown.push_str("(the file is empty)");
    }
    if more {
        shown.extend([format!("[more lines follow line {number}: continue with offset]\n")]);
    }
    let style = style_name(format, ends.most());
    if !style.is_empty() {
        shown.extend([format!("[{style}: Edit and Write keep that]\n")]);
    }
    if shown.contains(NUL_SIGN) {
        shown.extend([format!("[NUL characters are shown as {NUL_SIGN}]\n")]);
    }
    let detail = json!({
        "type": "text",
        "file": { "filePath": target.shown(), "startLine": first, "numLines": taken, "more": more },
    });
    Ok(ToolOutcome::text(shown.trim_end_matches('\n'), detail))
}

/// The line ends that were seen.
struct LineCount {
    /// The last byte of a line.
    feed: u8,
    feeds: usize,
    /// The number of line feeds that follow a carriage return.
    pairs: usize,
}

impl LineCount {
    /// Creates a count for a file that begins with this block.
    fn of(start: &[u8]) -> Self {
        let feed = if has_old_line_ends(start) { b'\r' } else { b'\n' };
        Self { feed, feeds: 0, pairs: 0 }
    }

    fn most(&self) -> Option<LineEnds> {
        if self.feed == b'\r' {
            return Some(LineEnds::CarriageReturn);
        }
        LineEnds::of_counts(self.feeds, self.pairs)
    }
}

/// Reads one line in bounded memory: `keep` characters of it, and the number of bytes left out.
fn next_line(
    reader: &mut impl BufRead,
    keep: usize,
    ends: &mut LineCount,
    cancel: &CancellationToken,
) -> io::Result<ShownLine> {
    let room = keep * 4;
    let mut line: Vec<u8> = Vec::new();
    let (mut length, mut last) = (0_usize, None);
    loop {
        if cancel.is_cancelled() {
            return Err(io::Error::other("interrupted"));
        }
        let available = reader.fill_buf()?;
        if available.is_empty() && length == 0 {
            return Ok(ShownLine::End);
        }
        let end = available.iter().position(|byte| *byte == ends.feed);
        let used = end.unwrap_or(available.len());
        length += used + usize::from(end.is_some());
        let part = &available[..used.min(room.saturating_sub(line.len()))];
        line.extend_from_slice(part);
        last = available[..used].last().copied().or(last);
        let at_end = end.is_some() || available.is_empty();
        ends.feeds += usize::from(end.is_some());
        ends.pairs += usize::from(end.is_some() && last == Some(b'\r'));
        reader.consume(used + usize::from(end.is_some()));
        if at_end {
            if text::is_binary(&line) {
                return Ok(ShownLine::Binary);
            }
            let whole = String::from_utf8_lossy(&line).replace('\0', NUL_SIGN);
            let whole = whole.trim_end_matches('\r');
            let clipped = text::truncated(whole, keep);
            let left_out = length.saturating_sub(clipped.len() + 2);
            let cut = keep > 0 && (clipped.len() < whole.len() || length > room + 2);
            return Ok(ShownLine::Text(if cut {
                format!("{clipped}[… {left_out} more bytes]")
            } else {
                clipped.to_string()
            }));
        }
    }
}
