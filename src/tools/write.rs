//! The Write tool.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

use nix::sys::statfs::{PROC_SUPER_MAGIC, SYSFS_MAGIC, statfs};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::file_history::FileHistory;
use super::files_read::FilesRead;
use super::input::WriteInput;
use super::line_diff::{diff_lines, structured_patch};
use super::outcome::{ToolError, ToolOutcome};
use super::paths::{ResolvedPath, read_up_to};
use super::read::check_regular;
use super::replace_file::replace_atomically;
use super::text_file::TextFile;

/// Writes a file. Blocks.
pub(super) fn run(
    input: &WriteInput,
    target: &ResolvedPath,
    (seen, history): (&FilesRead, Option<&FileHistory>),
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    let path = target.shown();
    let existing = overwritable_metadata(target, seen)?;
    let former = existing.as_ref().and_then(|metadata| read_text(&target.real, metadata, seen));
    let content = former.as_ref().map_or_else(
        || Ok(input.content.clone().into_bytes()),
        |former| former.restyle(&input.content),
    );
    let content = content.map_err(|why| format!("{path}: {why}"))?;
    replace(target, &content, existing.as_ref(), history, cancel)?;
    record_written(target, seen);
    record_style(target, seen, former.as_ref());
    let (kind, verb) =
        if existing.is_some() { ("update", "Replaced") } else { ("create", "Created") };
    let mut detail = json!({ "type": kind, "filePath": target.shown() });
    if let Some(former) = &former {
        add_patch(&mut detail, &former.text, &input.content);
    }
    let style = former.map(|former| former.style_name()).filter(|style| !style.is_empty());
    let kept = style.map_or(String::new(), |style| format!(" It is still {style}."));
    Ok(ToolOutcome::text(format!("{verb} {path} ({} bytes).{kept}", content.len()), detail))
}

/// Adds the difference between two texts to the structured result of a call, unless it is long.
pub(super) fn add_patch(detail: &mut Value, old: &str, new: &str) {
    let hunks = diff_lines(old, new);
    if hunks.iter().map(|hunk| hunk.lines.len()).sum::<usize>() <= PATCH_LINES_MAX {
        detail["structuredPatch"] = structured_patch(&hunks);
    }
}

/// Keeps the former content of a file for the host, and replaces the file.
pub(super) fn replace(
    target: &ResolvedPath,
    content: &[u8],
    existing: Option<&Metadata>,
    history: Option<&FileHistory>,
    cancel: &CancellationToken,
) -> Result<(), ToolError> {
    let path = target.shown();
    if let Some(history) = history {
        history
            .keep(&target.real)
            .map_err(|error| format!("cannot keep the former content of {path}: {error}"))?;
    }
    replace_atomically(&target.real, content, existing, cancel).map_err(|error| {
        let place = kernel_place(&target.real).map_or_else(String::new, |name| {
            format!("; it is in {name}, which has values of the kernel in place of files")
        });
        format!("cannot write {path}: {error}{place}").into()
    })
}

/// Returns the name of the file system of a path, if the kernel generates its files.
fn kernel_place(path: &Path) -> Option<&'static str> {
    let kind = path.ancestors().find_map(|place| statfs(place).ok())?.filesystem_type();
    let kinds = [(PROC_SUPER_MAGIC, "procfs"), (SYSFS_MAGIC, "sysfs")];
    kinds.into_iter().find(|(known, _)| *known == kind).map(|(_, name)| name)
}

/// The maximum number of lines of a difference in the structured result of a call.
const PATCH_LINES_MAX: usize = 2000;

/// The largest file that is edited, in bytes.
pub(super) const EDITED_BYTES_MAX: u64 = 50 << 20;

/// The maximum number of line ends of a file that is edited: each takes about 300 bytes of memory,
/// most of them for the difference.
const EDITED_LINES_MAX: usize = 2_000_000;

/// Returns true if a text with these numbers of bytes and line ends takes too much memory.
pub(super) fn is_too_large(bytes: usize, line_ends: usize) -> bool {
    bytes as u64 > EDITED_BYTES_MAX || line_ends > EDITED_LINES_MAX
}

/// Counts the line ends of a text. CRLF is one.
pub(super) fn line_ends(text: &[u8]) -> usize {
    let ends = memchr::memchr2_iter(b'\n', b'\r', text);
    ends.filter(|at| text[*at] == b'\n' || text.get(at + 1) != Some(&b'\n')).count()
}

/// Reads the text of a file that is replaced. `None` if it is not text, or too large to be edited.
fn read_text(real: &Path, metadata: &Metadata, seen: &FilesRead) -> Option<TextFile> {
    if metadata.len() > EDITED_BYTES_MAX {
        return None;
    }
    let bytes = read_up_to(real, EDITED_BYTES_MAX).ok()?;
    if is_too_large(bytes.len(), line_ends(&bytes)) {
        return None;
    }
    TextFile::new(bytes, seen.former_style(real, metadata))
}

/// The metadata of the existing file, if the model may overwrite it.
fn overwritable_metadata(
    target: &ResolvedPath,
    seen: &FilesRead,
) -> Result<Option<Metadata>, ToolError> {
    let path = target.shown();
    match fs::metadata(&target.real) {
        Ok(metadata) => {
            check_regular(&metadata).map_err(|what| format!("{path} is {what}, not a file"))?;
            seen.check(&target.real, &metadata).map_err(|why| format!("{path}: {why}"))?;
            Ok(Some(metadata))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot write {path}: {error}").into()),
    }
}

/// Records the written file as read, so that it can be edited without a Read.
pub(super) fn record_written(target: &ResolvedPath, seen: &FilesRead) {
    if let Ok(metadata) = fs::metadata(&target.real) {
        seen.note(&target.real, &metadata);
    }
}

/// Remembers the format of a file after a change: that of its former text, if there was one.
pub(super) fn record_style(target: &ResolvedPath, seen: &FilesRead, former: Option<&TextFile>) {
    if let Ok(metadata) = fs::metadata(&target.real) {
        seen.note_style(&target.real, &metadata, former.map(|former| former.style));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_one_end() {
        for (text, ends) in [("", 0), ("a\r\nb\rc\n\n", 4), ("\r\r\n", 2), ("\n\r", 2)] {
            assert_eq!(line_ends(text.as_bytes()), ends, "{text:?}");
        }
    }
}
