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
    use ImageFormat::{Gif, Jpeg, Png, WebP};
    match image::guess_format(start) {
        Ok(format @ (Png | Jpeg | Gif | WebP)) => Some(MediaKind::Picture(format)),
        Ok(_) | Err(_) => start.starts_with(PDF_HEADER).then_some(MediaKind::Pdf),
    }
}

/// Like [`detect`], for a file with a name: as readers of PDF do, accepts other bytes before the
/// header.
pub(in crate::tools) fn detect_named(start: &[u8], path: &Path) -> Option<MediaKind> {
    let is_pdf = || kind_of_name(path) == Some("PDF") && pdf_header(start).is_some();
    detect(start).or_else(|| is_pdf().then_some(MediaKind::Pdf))
}

/// The position of the header of a PDF.
pub(super) fn pdf_header(data: &[u8]) -> Option<usize> {
    let start = &data[..data.len().min(PDF_HEADER_WITHIN)];
    start.windows(PDF_HEADER.len()).position(|window| window == PDF_HEADER)
}

/// The name of an image format that the API does not accept. Call it only for binary files: some of
/// these formats begin with ordinary letters.
pub(in crate::tools) fn unsupported_image_format(start: &[u8]) -> Option<&'static str> {
    match image::guess_format(start) {
        Ok(ImageFormat::Tiff) => return Some("TIFF"),
        Ok(ImageFormat::Bmp) => return Some("BMP"),
        Ok(ImageFormat::Ico) => return Some("ICO"),
        Ok(ImageFormat::Avif) => return Some("AVIF"),
        Ok(_) | Err(_) => {}
    }
    let is_heic = |start: &[u8]| {
        [b"ftypheic", b"ftypheix", b"ftypmif1"].iter().any(|brand| start.get(4..12) == Some(*brand))
    };
    if start.starts_with(b"8BPS") { Some("PSD") } else { is_heic(start).then_some("HEIC") }
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
