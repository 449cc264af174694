//! Finds images and documents in a conversation, and replaces those that the service rejects by
//! text.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::notes::media_note;
use super::{Block, BlockPath, Message, Role};

/// The media to remove. At least one is removed if there is one of the kind, so that a rejected
/// request is never repeated unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripTarget {
    /// Every image: one is too large, and the service does not say which.
    Images,
    /// Every image: the model takes none.
    ImagesOfAnySize,
    /// The oldest images, except this many or, if there are no more, except half: the request has
    /// too many.
    ImagesBut { newest: usize },
    /// Every document that is not plain text.
    Documents,
    /// Every image and document.
    All,
    /// The largest first, until the rest has at most this many bytes in a request, and at most half
    /// of the bytes of all media.
    DownTo { bytes: u64 },
    /// The image or document at the reported position.
    At(BlockPath),
    /// All of this message and later ones.
    From { message: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Image,
    Document,
}

/// A removed image or document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrippedMedia {
    /// The position of the replacement text.
    pub spot: BlockPath,
    pub medium: Medium,
    /// The media type, such as `image/png`; empty if unknown.
    pub media_type: String,
    /// Approximate size in a request, in bytes; 0 if it was linked by URL.
    pub bytes: u64,
    /// The tool that returned it; `None` if it came from a prompt.
    pub tool: Option<String>,
    /// The file that the tool was called for.
    pub file: Option<String>,
}

/// True if [`StripTarget::All`] would remove anything.
pub fn has_media(messages: &[Message]) -> bool {
    let blocks = user_messages(messages).flat_map(|(_, message)| &message.content);
    blocks.flat_map(inner_blocks).any(|(_, block)| media_kind(block).is_some())
}

/// True if [`StripTarget::ImagesOfAnySize`] would remove anything.
pub fn has_images(messages: &[Message]) -> bool {
    let blocks = user_messages(messages).flat_map(|(_, message)| &message.content);
    let mut blocks = blocks.flat_map(inner_blocks).filter_map(|(_, block)| media_kind(block));
    blocks.any(|(medium, source)| medium == Medium::Image || is_of_images(source))
}

/// The approximate size of all images and documents in a request, in bytes.
pub fn media_bytes(messages: &[Message]) -> u64 {
    find_media(messages).iter().map(|found| found.media.bytes).sum()
}

/// Replaces images and documents by a text that describes them and how to get them. Returns them in
/// the order of the conversation.
pub fn strip_media(messages: &mut [Message], which: StripTarget) -> Vec<StrippedMedia> {
    let chosen = select_media(find_media(messages), which);
    for stripped in &chosen {
        if let Some(block) = block_at(messages, stripped.spot) {
            *block = if which == StripTarget::ImagesOfAnySize {
                media_note(&described(stripped), NO_IMAGES)
            } else {
                replacement(stripped)
            };
        }
    }
    chosen
}

/// Removes the image or document at one position. Returns true if there was one.
pub(super) fn strip_one(messages: &mut [Message], spot: BlockPath) -> bool {
    let found = find_media(messages).into_iter().find(|found| found.media.spot == spot);
    let Some((found, block)) = found.zip(block_at(messages, spot)) else { return false };
    *block = replacement(&found.media);
    true
}

struct FoundMedia {
    media: StrippedMedia,
    /// True for images and for documents that contain images.
    holds_images: bool,
}

/// The user's messages: only they may contain media.
fn user_messages(messages: &[Message]) -> impl Iterator<Item = (usize, &Message)> {
    messages.iter().enumerate().filter(|(_, message)| message.role == Role::User)
}

/// The block itself, or the blocks in a tool result with their indices.
fn inner_blocks(block: &Block) -> impl Iterator<Item = (Option<usize>, &Block)> {
    let (itself, content) = if let Block::ToolResult { content, .. } = block {
        (None, content.as_slice())
    } else {
        (Some((None, block)), [].as_slice())
    };
    let content = content.iter().enumerate().map(|(index, inner)| (Some(index), inner));
    itself.into_iter().chain(content)
}

fn block_at(messages: &mut [Message], spot: BlockPath) -> Option<&mut Block> {
    let block = messages.get_mut(spot.message)?.content.get_mut(spot.block?)?;
    match (spot.inner, block) {
        (Some(inner), Block::ToolResult { content, .. }) => content.get_mut(inner),
        (_, block) => Some(block),
    }
}

/// The kind of media of a block; `None` for text.
fn media_kind(block: &Block) -> Option<(Medium, &Value)> {
    if let Block::Image { source } = block {
        return Some((Medium::Image, source));
    }
    let Block::Document { source, .. } = block else { return None };
    (!is_plain_text(source)).then_some((Medium::Document, source))
}

/// True if a document is plain text.
fn is_plain_text(source: &Value) -> bool {
    match source["type"].as_str() {
        Some("text") => true,
        Some("content") => !is_of_images(source),
        Some(_) | None => false,
    }
}

fn is_of_images(source: &Value) -> bool {
    source["content"]
        .as_array()
        .is_some_and(|parts| parts.iter().any(|part| part["type"] == "image"))
}

fn find_media(messages: &[Message]) -> Vec<FoundMedia> {
    let mut calls: HashMap<&str, (&str, Option<&str>)> = HashMap::new();
    for block in messages.iter().flat_map(|message| &message.content) {
        if let Some((id, name, input)) = block.as_call() {
            let file = ["file_path", "path", "file"].iter().find_map(|key| input[*key].as_str());
            calls.insert(id, (name, file));
        }
    }
    let mut all = Vec::new();
    for (message, user_message) in user_messages(messages) {
        for (index, outer) in user_message.content.iter().enumerate() {
            let call = outer.answered_call().and_then(|id| calls.get(id));
            for (inner, block) in inner_blocks(outer) {
                let Some((medium, source)) = media_kind(block) else { continue };
                let media = StrippedMedia {
                    spot: BlockPath { message, block: Some(index), inner },
                    medium,
                    media_type: source["media_type"].as_str().unwrap_or_default().to_owned(),
                    bytes: bytes(source),
                    tool: call.map(|(tool, _)| (*tool).to_owned()),
                    file: call.and_then(|(_, file)| *file).map(str::to_owned),
                };
                let holds_images = medium == Medium::Image || is_of_images(source);
                all.push(FoundMedia { media, holds_images });
            }
        }
    }
    all
}

fn bytes(source: &Value) -> u64 {
    let length = match source["data"].as_str() {
        Some(data) => data.len(),
        None if source["type"] == "content" => source.to_string().len(),
        None => 0,
    };
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn select_media(mut all: Vec<FoundMedia>, which: StripTarget) -> Vec<StrippedMedia> {
    match which {
        StripTarget::All => {}
        StripTarget::Images | StripTarget::ImagesOfAnySize => {
            all.retain(|found| found.holds_images);
        }
        StripTarget::Documents => all.retain(|found| found.media.medium == Medium::Document),
        StripTarget::At(spot) => all.retain(|found| spot.contains(&found.media.spot)),
        StripTarget::From { message } => all.retain(|found| found.media.spot.message >= message),
        StripTarget::ImagesBut { newest } => {
            all.retain(|found| found.holds_images);
            // A limit that is not named may be far below `newest`.
            let kept = if all.len() > newest { newest } else { all.len() / 2 };
            all.truncate(all.len() - kept);
        }
        StripTarget::DownTo { bytes } => {
            let mut left: u64 = all.iter().map(|found| found.media.bytes).sum();
            // The limit of the service may be far below `bytes`.
            let bytes = bytes.min(left / 2);
            all.sort_by_key(|found| std::cmp::Reverse(found.media.bytes));
            let enough = all.iter().position(|found| {
                let fits = left <= bytes;
                left -= found.media.bytes;
                fits
            });
            all.truncate(enough.unwrap_or(all.len()).max(1));
            all.sort_unstable_by_key(|found| {
                let BlockPath { message, block, inner } = found.media.spot;
                (message, block, inner)
            });
        }
    }
    all.into_iter().map(|found| found.media).collect()
}

/// The advice to a model that takes no images.
const NO_IMAGES: &str = "The service takes no images for this model, of any size: work without \
                         them, for example with a program that reads the text of an image, and say \
                         at the end what could not be seen.";

/// Describes the removed image or document.
fn described(stripped: &StrippedMedia) -> String {
    let kind = match stripped.medium {
        Medium::Image => "An image",
        Medium::Document => "A document",
    };
    let facts = match (stripped.media_type.as_str(), shown_size(stripped.bytes)) {
        ("", size) if size.is_empty() => String::new(),
        ("", size) => format!(" ({size})"),
        (media_type, size) if size.is_empty() => format!(" ({media_type})"),
        (media_type, size) => format!(" ({media_type}, {size})"),
    };
    let origin = match (&stripped.file, &stripped.tool) {
        (Some(file), _) => format!(" from {file}"),
        (None, Some(tool)) => format!(" from {tool}"),
        (None, None) => String::new(),
    };
    format!("{kind}{facts}{origin}")
}

/// The replacement text, addressed to the model.
fn replacement(stripped: &StrippedMedia) -> Block {
    let advice = match (stripped.medium, &stripped.file, &stripped.tool) {
        (Medium::Image, Some(file), _) => format!(
            "To see it, scale a copy down, for example with `convert {} -resize 1000x1000 \
             small.png`, and Read that.",
            quoted(file)
        ),
        (Medium::Document, Some(file), _) => format!(
            "To read it, extract its text, for example with `pdftotext -layout {} -`, or Read \
             fewer of its pages at once (pages).",
            quoted(file)
        ),
        (_, None, Some(_)) => "Ask for something smaller, or for text.".to_owned(),
        (_, None, None) => "It is gone unless a file holds it: if the task needs it, look for \
                            one, and otherwise say at the end that it could not be seen."
            .to_owned(),
    };
    media_note(&described(stripped), &advice)
}

fn quoted(file: &str) -> String {
    format!("'{}'", file.replace('\'', r"'\''"))
}

/// The decoded size of base64, in words; empty for 0.
fn shown_size(encoded: u64) -> String {
    let bytes = encoded / 4 * 3;
    match bytes {
        0 => String::new(),
        1..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

/// A PDF with compressed page objects has at most one page per this many bytes of base64.
const UNSEEN_PAGE_BYTES: u64 = 4_096;
/// Maximum number of pages that the service accepts in one request.
const UNSEEN_PAGES_MAX: u64 = 100;

/// Estimates the number of pages of a base64 PDF; slightly too high.
pub(super) fn pages(source: &Value) -> u64 {
    let data = source["data"].as_str().unwrap_or_default();
    let seen = STANDARD.decode(data).map_or(0, |pdf| visible_pages(&pdf));
    let unseen = u64::try_from(data.len()).unwrap_or(u64::MAX).div_ceil(UNSEEN_PAGE_BYTES);
    match u64::try_from(seen).unwrap_or(u64::MAX) {
        0 => unseen.clamp(1, UNSEEN_PAGES_MAX),
        seen => seen,
    }
}

/// Counts the uncompressed page objects of a PDF: all pages, or too few.
pub fn visible_pages(pdf: &[u8]) -> usize {
    let is_page = |rest: &[u8]| {
        let value = rest.strip_prefix(b"Type").map(<[u8]>::trim_ascii_start);
        let after = value.and_then(|value| value.strip_prefix(b"/Page"));
        after.is_some_and(|after| !after.first().is_some_and(u8::is_ascii_alphanumeric))
    };
    let slashes = pdf.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.filter(|(at, _)| is_page(&pdf[at + 1..])).count()
}
