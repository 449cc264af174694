//! What a file is, by its first bytes; its name may lie.

use std::path::Path;

use image::ImageFormat;

/// What the service takes beside text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum MediaKind {
    Picture(ImageFormat),
    Pdf,
}

pub(in crate::tools) fn detect(start: &[u8]) -> Option<MediaKind> {
    if start.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(MediaKind::Picture(ImageFormat::Png))
    } else if start.starts_with(b"\xff\xd8\xff") {
        Some(MediaKind::Picture(ImageFormat::Jpeg))
    } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
        Some(MediaKind::Picture(ImageFormat::Gif))
    } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        Some(MediaKind::Picture(ImageFormat::WebP))
    } else if start.starts_with(b"%PDF-") {
        Some(MediaKind::Pdf)
    } else {
        None
    }
}

/// The name of a picture's format that the service does not take. Only for what is no text: some
/// of these begin with ordinary letters.
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

/// What a file's name promises, if that is something that [`kind`] knows.
pub(in crate::tools) fn kind_of_name(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "png" | "jpg" | "jpeg" | "gif" | "webp" => Some("picture"),
        "pdf" => Some("PDF"),
        _ => None,
    }
}
