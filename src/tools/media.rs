//! Pictures and PDFs, as the model's service takes them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::transcript::Block;

use super::outcome::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Image(&'static str),
    Pdf,
}

/// What the service takes for one picture, in bytes of base64.
const IMAGE_ENCODED_MAX: u64 = 5 << 20;

/// A whole request may have 32 MB, and base64 makes four bytes of three.
const PDF_BYTES_MAX: u64 = 20 << 20;

const PDF_PAGES_MAX: usize = 100;

/// Tells a kind by a file's first bytes; its name may lie.
pub(super) fn kind(start: &[u8]) -> Option<Kind> {
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(Kind::Image("image/png"))
    } else if start.starts_with(b"\xff\xd8\xff") {
        Some(Kind::Image("image/jpeg"))
    } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        Some(Kind::Image("image/gif"))
    } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        Some(Kind::Image("image/webp"))
    } else if start.starts_with(b"%PDF-") {
        Some(Kind::Pdf)
    } else {
        None
    }
}

pub(super) fn read(kind: Kind, file: &mut File, metadata: &Metadata, path: &Path) -> Outcome {
    let bytes = metadata.len();
    let limit = match kind {
        Kind::Image(_) => IMAGE_ENCODED_MAX / 4 * 3,
        Kind::Pdf => PDF_BYTES_MAX,
    };
    if bytes > limit {
        return Outcome::failure(too_large(kind, bytes, limit, path));
    }
    let data = match whole(file, limit) {
        Ok(data) => data,
        Err(error) => return Outcome::failure(format!("cannot read {}: {error}", path.display())),
    };
    let (media_type, block): (_, fn(serde_json::Value) -> Block) = match kind {
        Kind::Image(media_type) => (media_type, |source| Block::Image { source }),
        Kind::Pdf => {
            let pages = pages(&data);
            if pages > PDF_PAGES_MAX {
                return Outcome::failure(too_long(pages, path));
            }
            ("application/pdf", |source| Block::Document { source })
        }
    };
    let source =
        json!({ "type": "base64", "media_type": media_type, "data": STANDARD.encode(&data) });
    Outcome {
        content: vec![block(source)],
        is_error: false,
        detail: json!({ "type": media_type, "file": { "filePath": path, "bytes": data.len() } }),
    }
}

fn whole(file: &mut File, limit: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    file.take(limit).read_to_end(&mut data)?;
    Ok(data)
}

fn too_large(kind: Kind, bytes: u64, limit: u64, path: &Path) -> String {
    let path = path.display();
    match kind {
        Kind::Image(_) => format!(
            "{path} is {bytes} bytes large; a picture may have {limit}. Shrink a copy, for example \
             with `convert '{path}' -resize 1500x1500 small.jpg`, and Read that."
        ),
        Kind::Pdf => format!(
            "{path} is {bytes} bytes large; a PDF may have {limit}. Extract its text with \
             `pdftotext '{path}' -`, or some pages with `qpdf '{path}' --pages . 1-20 -- part.pdf`."
        ),
    }
}

fn too_long(pages: usize, path: &Path) -> String {
    let path = path.display();
    format!(
        "{path} has about {pages} pages; a PDF may have {PDF_PAGES_MAX}. Extract its text with \
         `pdftotext '{path}' -`, or some pages with `qpdf '{path}' --pages . 1-20 -- part.pdf`."
    )
}

/// Counts page objects. Those in compressed object streams stay unseen, so this is a floor.
fn pages(data: &[u8]) -> usize {
    let mut count = 0;
    let mut rest = data;
    while let Some(at) = rest.windows(5).position(|window| window == b"/Type") {
        rest = &rest[at + 5..];
        let value = rest.trim_ascii_start();
        if value.starts_with(b"/Page") && value.get(5) != Some(&b's') {
            count += 1;
        }
    }
    count
}
