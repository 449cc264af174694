//! Checks images and documents against the media limits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::walk::PlacedBlock;
use crate::rules::MediaRules;

/// The stricter pixel limit applies above this many images.
const MANY: usize = 20;

/// The error message for the first limit that is exceeded, if any.
pub(super) fn exceeded_limit(rules: &MediaRules, blocks: &[PlacedBlock<'_>]) -> Option<String> {
    if *rules == MediaRules::default() {
        return None;
    }
    let of_kind = |kind: &'static str| blocks.iter().filter(move |placed| placed.kind() == kind);
    let images = of_kind("image").count();
    let documents = of_kind("document").count();
    if let Some(limit) = rules.count.filter(|limit| images + documents > *limit) {
        return Some(format!("too many images and documents: {images} + {documents} > {limit}"));
    }
    let mut image_faults = of_kind("image").filter_map(|placed| image(rules, placed, images));
    image_faults.next().or_else(|| documents_exceed(rules, of_kind("document")))
}

fn image(rules: &MediaRules, placed: &PlacedBlock<'_>, images: usize) -> Option<String> {
    let (data, place) = (placed.base64()?, &placed.place);
    if let Some(limit) = rules.image_bytes.filter(|limit| data.len() > *limit) {
        return Some(format!(
            "{place}.image.source.base64: image exceeds {} maximum: {} bytes > {limit} bytes",
            megabytes(limit),
            data.len()
        ));
    }
    let (width, height) = pixels(data)?;
    let side = width.max(height);
    let too_large = |what: &str, limit: u32| {
        format!(
            "{place}.image.source.base64.data: At least one of the image dimensions exceed max \
             allowed size{what}: {limit} pixels"
        )
    };
    let strict = rules.many_images_pixels.filter(|limit| images > MANY && side > *limit);
    strict
        .map(|limit| too_large(" for many-image requests", limit))
        .or_else(|| Some(too_large("", rules.image_pixels.filter(|limit| side > *limit)?)))
}

fn documents_exceed<'a>(
    rules: &MediaRules,
    documents: impl Iterator<Item = &'a PlacedBlock<'a>>,
) -> Option<String> {
    let limit = rules.pdf_pages?;
    let mut all = 0;
    for document in documents {
        all += document.base64().map_or(0, pages);
        if all > limit {
            let place = &document.place;
            return Some(format!(
                "{place}.pdf.source.base64.data: A maximum of {limit} PDF pages may be provided."
            ));
        }
    }
    None
}

fn megabytes(bytes: usize) -> String {
    const MEGABYTE: usize = 1024 * 1024;
    if bytes.is_multiple_of(MEGABYTE) {
        format!("{} MB", bytes / MEGABYTE)
    } else {
        format!("{bytes} bytes")
    }
}

/// Width and height of a PNG, GIF, WebP or JPEG. `None` for other or invalid data.
pub(super) fn pixels(data: &str) -> Option<(u32, u32)> {
    let size = imagesize::blob_size(&STANDARD.decode(data).ok()?).ok()?;
    Some((size.width.try_into().ok()?, size.height.try_into().ok()?))
}

/// The number of pages of a PDF, at least 1: its page objects, or the largest count it declares.
pub(super) fn pages(data: &str) -> usize {
    let bytes = STANDARD.decode(data).unwrap_or_default();
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let after = |name: &'static str| text.split(name).skip(1).map(str::trim_start);
    let objects = after("/Type").filter(|rest| {
        let name = rest.strip_prefix("/Page");
        name.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric()))
    });
    let counts = after("/Count").filter_map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    match objects.count() {
        0 => counts.max().unwrap_or(1).max(1),
        pages => pages,
    }
}
