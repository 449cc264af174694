//! Reads an image or a PDF, or explains why it cannot be shown and what to do.

use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::alphabet::STANDARD as STANDARD_ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::transcript::Block;

use super::super::file_names::shown;
use super::super::outcome::{ToolError, ToolOutcome};
use super::kind::{MediaKind, detect};
use super::pdf;
use super::picture::{self, PictureFlaw};

/// The maximum size of a file, in bytes. The file is held in memory, parts of it twice.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Base64 with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD_ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Only one file is decoded at a time, since each may take several hundred megabytes.
static DECODING: Mutex<()> = Mutex::new(());

pub(in crate::tools) struct MediaFile<'a> {
    pub(in crate::tools) kind: MediaKind,
    pub(in crate::tools) open: fs::File,
    /// In bytes.
    pub(in crate::tools) size: u64,
    pub(in crate::tools) path: &'a Path,
}

/// Reads an image, or the requested `pages` of a PDF. Blocks.
///
/// # Errors
/// The file cannot be shown; the error says why, and what to do.
pub(in crate::tools) fn read(
    file: MediaFile<'_>,
    pages: Option<&str>,
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    let MediaFile { kind, open, size, path } = file;
    if size > FILE_BYTES_MAX {
        let why = format!("it has {size} bytes; at most {FILE_BYTES_MAX} are read");
        return Err(refusal(kind, path, &why));
    }
    let _decoding = DECODING.lock();
    if cancel.is_cancelled() {
        return Err(ToolError::interrupted());
    }
    let data =
        read_all(open).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match kind {
        MediaKind::Picture(format) => picture::prepare(format, data)
            .map(|picture| show_picture(&picture, size, path))
            .map_err(|flaw| refusal(kind, path, &flaw)),
        MediaKind::Pdf => pdf::prepare(data, pages)
            .map(|pdf| show_pdf(&pdf, size, path))
            .map_err(|flaw| refusal(kind, path, &flaw)),
    }
}

/// Converts an image that did not come from a file to a block. Blocks.
pub(in crate::tools) fn image_block(data: &[u8]) -> Result<Block, PictureFlaw> {
    let Some(MediaKind::Picture(format)) = detect(data) else {
        return Err(PictureFlaw::UnknownKind);
    };
    let _decoding = DECODING.lock();
    let picture = picture::prepare(format, data.to_vec())?;
    Ok(Block::Image { source: source(picture.format.to_mime_type(), &picture.data) })
}

/// Converts an image of a prompt to a block, if its source holds the image itself. Blocks.
///
/// # Errors
/// The image cannot be shown.
pub fn prompt_image(source: &Value) -> Option<Result<Block, String>> {
    let data = source["data"].as_str()?;
    Some(image_block(&decode_base64(data)).map_err(|flaw| flaw.to_string()))
}

/// Decodes base64 as programs write it: in lines, with or without padding, or as a `data:` URL.
/// Text that is not base64 gives no bytes.
pub(in crate::tools) fn decode_base64(text: &str) -> Vec<u8> {
    let body = text.trim_start().strip_prefix("data:").and_then(|url| url.split_once(','));
    let body = body.map_or(text, |(_kind, body)| body);
    let body: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    LENIENT.decode(body).unwrap_or_default()
}

fn read_all(file: fs::File) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut data)?;
    Ok(data)
}

fn show_picture(picture: &picture::Picture, size: u64, path: &Path) -> ToolOutcome {
    let media_type = picture.format.to_mime_type();
    let ((width, height), (full_width, full_height)) = (picture.size, picture.full_size);
    let mut content = vec![Block::Image { source: source(media_type, &picture.data) }];
    let mut notes = Vec::new();
    if picture.is_animated {
        notes.push("only the first frame of an animation is shown".to_string());
    }
    if picture.size != picture.full_size {
        notes.push(format!(
            "shown at {width}x{height} pixels; the file has {full_width}x{full_height}"
        ));
    }
    if !notes.is_empty() {
        content.push(Block::text(format!("({})", notes.join("; "))));
    }
    let detail = json!({
        "type": media_type,
        "file": {
            "filePath": shown(path),
            "bytes": size,
            "dimensions": { "width": full_width, "height": full_height },
            "shown": { "width": width, "height": height, "bytes": picture.data.len() },
        },
    });
    ToolOutcome { content, is_error: false, detail, denied: None }
}

fn show_pdf(pdf: &pdf::Pdf, size: u64, path: &Path) -> ToolOutcome {
    let media_type = "application/pdf";
    let mut content = vec![Block::document(source(media_type, &pdf.data))];
    if let Some(pages) = &pdf.part {
        content.push(Block::text(format!("(pages {pages} of {})", pdf.count)));
    }
    let detail = json!({
        "type": media_type,
        "file": {
            "filePath": shown(path),
            "bytes": size,
            "numPages": pdf.count,
            "pages": pdf.part,
            "shown": { "bytes": pdf.data.len() },
        },
    });
    ToolOutcome { content, is_error: false, detail, denied: None }
}

fn source(media_type: &str, data: &[u8]) -> Value {
    json!({ "type": "base64", "media_type": media_type, "data": STANDARD.encode(data) })
}

/// Returns the error for a file that cannot be shown, with advice on how to get its content.
fn refusal(kind: MediaKind, path: &Path, why: &dyn Display) -> ToolError {
    let (path, quoted) = (path.display(), quoted(path));
    match kind {
        MediaKind::Picture(_) => format!(
            "{path} cannot be shown: {why}. Make a copy that can, for example with \
             `convert {quoted} -resize 1500x1500 copy.png`, and Read that."
        ),
        MediaKind::Pdf => format!(
            "{path} cannot be shown: {why}. Or extract the text, for example with \
             `pdftotext -layout {quoted} -` (-f and -l choose the first and last page)."
        ),
    }
    .into()
}

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
