//! Detects the type of a file by its first bytes, not by its name.

use std::path::Path;

use image::ImageFormat;

/// The file types that the model API accepts besides text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum MediaKind {
    Picture(ImageFormat),
    Pdf,
}

const PDF_HEADER: &[u8] = b"%PDF-";

/// The header of a PDF begins in this many bytes of the file.
const PDF_HEADER_WITHIN: usize = 1_024;

pub(in crate::tools) fn detect(start: &[u8]) -> Option<MediaKind> {
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(MediaKind::Picture(ImageFormat::Png))
    } else if start.starts_with(b"\xff\xd8\xff") {
        Some(MediaKind::Picture(ImageFormat::Jpeg))
    } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        Some(MediaKind::Picture(ImageFormat::Gif))
    } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        Some(MediaKind::Picture(ImageFormat::WebP))
    } else if start.starts_with(PDF_HEADER) {
        Some(MediaKind::Pdf)
    } else {
        None
    }
}

/// Like [`detect`], for a file with a name: readers of PDF accept other bytes before the header.
pub(in crate::tools) fn detect_named(start: &[u8], path: &Path) -> Option<MediaKind> {
    let is_pdf = || kind_of_name(path) == Some("PDF") && pdf_header(start).is_some();
    detect(start).or_else(|| is_pdf().then_some(MediaKind::Pdf))
}

/// Where the header of a PDF begins.
pub(super) fn pdf_header(data: &[u8]) -> Option<usize> {
    let start = &data[..data.len().min(PDF_HEADER_WITHIN)];
    start.windows(PDF_HEADER.len()).position(|window| window == PDF_HEADER)
}

/// The name of an image format that the API does not accept. Call it only for binary files: some of
/// these formats begin with ordinary letters.
pub(in crate::tools) fn unsupported_image_format(start: &[u8]) -> Option<&'static str> {
    let brand = start.get(4..12).unwrap_or_default();
    if start.starts_with(b"II*\0") || start.starts_with(b"MM\0*") {
        Some("TIFF")
    } else if start.starts_with(b"BM") {
        Some("BMP")
    } else if start.starts_with(b"\0\0\x01\0") {
        Some("ICO")
    } else if start.starts_with(b"8BPS") {
        Some("PSD")
    } else if brand == b"ftypavif" {
        Some("AVIF")
    } else if [b"ftypheic", b"ftypheix", b"ftypmif1"].contains(&<&[u8; 8]>::try_from(brand).ok()?) {
        Some("HEIC")
    } else {
        None
    }
}

/// The file type that the extension of a name indicates, if [`detect`] can detect it.
pub(in crate::tools) fn kind_of_name(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "png" | "jpg" | "jpeg" | "gif" | "webp" => Some("picture"),
        "pdf" => Some("PDF"),
        _ => None,
    }
}
