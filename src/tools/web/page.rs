//! Determines the type of a page, and decodes its text. Pure.

use encoding_rs::{Encoding, UTF_8};

use super::super::media::{MediaKind, detect};
use super::super::text;

/// The part of a page that is searched for its encoding declaration, in bytes.
const PREAMBLE: usize = 1024;

/// The kind of a page, which decides how it is handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Html,
    Text,
    /// A file type that Read can show, by name.
    File(&'static str),
    Other,
}

/// The size to which the text of a small page may grow, in bytes.
const TEXT_BYTES_MIN: usize = 3 << 20;

/// Classifies a page by its content type, or if that is unspecific, by its first bytes.
pub(super) fn page_type(content_type: Option<&str>, body: &[u8]) -> PageKind {
    match detect(body) {
        Some(MediaKind::Pdf) => return PageKind::File("PDF"),
        Some(MediaKind::Picture(_)) => return PageKind::File("picture"),
        None => {}
    }
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    match content_type {
        "text/html" | "application/xhtml+xml" => PageKind::Html,
        "" | "application/octet-stream" if text::is_binary(body) => PageKind::Other,
        "" if starts_like_html(body) => PageKind::Html,
        "" | "application/octet-stream" => PageKind::Text,
        _ if is_text(content_type) => PageKind::Text,
        _ => PageKind::Other,
    }
}

fn is_text(content_type: &str) -> bool {
    const WORDS: [&str; 14] = [
        "json",
        "xml",
        "javascript",
        "ecmascript",
        "x-javascript",
        "yaml",
        "x-yaml",
        "toml",
        "x-ndjson",
        "x-sh",
        "sql",
        "graphql",
        "rtf",
        "x-www-form-urlencoded",
    ];
    let (family, kind) = content_type.split_once('/').unwrap_or((content_type, ""));
    let kind = kind.rsplit('+').next().unwrap_or(kind);
    family == "text" || matches!(family, "application" | "image" | "model") && WORDS.contains(&kind)
}

fn starts_like_html(body: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&body[..body.len().min(PREAMBLE)]).to_ascii_lowercase();
    let start = start.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// Decodes the text of a page: by its byte order mark, the server's charset, or the page's own
/// declaration; otherwise as UTF-8. The text has about as many bytes as the page at most; the
/// excess is left out.
pub(super) fn decode(content_type: Option<&str>, body: Vec<u8>) -> String {
    let by_server = content_type.and_then(charset);
    let by_itself = || {
        let start = String::from_utf8_lossy(&body[..body.len().min(PREAMBLE)]).to_ascii_lowercase();
        // A declaration in single-byte letters rules out UTF-16.
        let named = charset(&start)?;
        Some(if named == encoding_rs::UTF_16LE || named == encoding_rs::UTF_16BE {
            UTF_8
        } else {
            named
        })
    };
    let encoding = by_server.or_else(by_itself).unwrap_or(UTF_8);
    // A byte order mark takes precedence.
    let (encoding, mark) = Encoding::for_bom(&body).unwrap_or((encoding, 0));
    if encoding == UTF_8 && mark == 0 {
        return String::from_utf8(body).unwrap_or_else(|bad| lossy(bad.as_bytes()));
    }
    if encoding == UTF_8 {
        return lossy(&body[mark..]);
    }
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut text = String::with_capacity(room(&body));
    // The end of a text that exceeds the room is left out.
    let _ = decoder.decode_to_string(&body[mark..], &mut text, true);
    text
}

/// The maximum size of the text of a page, in bytes: an invalid byte becomes three.
fn room(body: &[u8]) -> usize {
    (3 * body.len()).min(body.len().max(TEXT_BYTES_MIN))
}

/// Decodes UTF-8, with U+FFFD for invalid sequences.
fn lossy(body: &[u8]) -> String {
    let mut text = String::with_capacity(room(body));
    for chunk in body.utf8_chunks() {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        if text.len() + chunk.valid().len() + replacement.len() > text.capacity() {
            break;
        }
        text.extend([chunk.valid(), replacement]);
    }
    text
}

/// The encoding after `charset=`.
fn charset(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(['"', '\'', ';', ' ', '>', '/', '\t', '\n']).unwrap_or(rest.len());
    Encoding::for_label(&rest.as_bytes()[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_type_follows_content_type_and_file_type_the_first_bytes() {
        for (content_type, body, nature) in [
            (Some("text/html; charset=utf-8"), "x", PageKind::Html),
            (Some("TEXT/HTML"), "x", PageKind::Html),
            (Some("application/xhtml+xml"), "x", PageKind::Html),
            (None, "  <!DOCTYPE html><p>", PageKind::Html),
            (None, "plain", PageKind::Text),
            (None, "a\0b", PageKind::Text),
            (None, "\0\x01\x02", PageKind::Other),
            (Some("text/markdown"), "<html>", PageKind::Text),
            (Some("application/json"), "{}", PageKind::Text),
            (Some("application/ld+json"), "{}", PageKind::Text),
            (Some("image/svg+xml"), "<svg>", PageKind::Text),
            (Some("application/octet-stream"), "plain", PageKind::Text),
            (Some("application/octet-stream"), "\0\x01\x02", PageKind::Other),
            (Some("application/zip"), "PK", PageKind::Other),
            (Some("video/mp4"), "x", PageKind::Other),
            (Some("application/pdf"), "%PDF-1.7", PageKind::File("PDF")),
            (Some("text/html"), "%PDF-1.7", PageKind::File("PDF")),
            (Some("image/gif"), "GIF89a", PageKind::File("picture")),
            (Some("image/png"), "no picture", PageKind::Other),
        ] {
            assert_eq!(
                super::page_type(content_type, body.as_bytes()),
                nature,
                "{content_type:?} {body}"
            );
        }
    }

    #[test]
    fn decoding_uses_the_encoding_with_the_highest_precedence() {
        for (content_type, body, text) in [
            (Some("text/html; charset=ISO-8859-1"), &b"caf\xe9"[..], "café"),
            (Some("text/html; charset=\"windows-1252\""), b"\x80", "€"),
            (Some("text/html; charset=nonsense"), "é".as_bytes(), "é"),
            (Some("text/html"), b"<meta charset=latin1>\xe9", "<meta charset=latin1>é"),
            (
                None,
                b"<meta content='a; charset=shift_jis'>\x82\xa0",
                "<meta content='a; charset=shift_jis'>あ",
            ),
            (None, b"<meta charset=utf-16>a", "<meta charset=utf-16>a"),
            (Some("text/plain; charset=latin1"), b"\xef\xbb\xbf\xc3\xa9", "é"),
            (Some("text/plain"), b"\xff\xfeh\0i\0", "hi"),
            (None, b"ab\xffc", "ab\u{fffd}c"),
        ] {
            assert_eq!(decode(content_type, body.to_vec()), text, "{content_type:?}");
        }
    }
}
