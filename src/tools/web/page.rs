//! What a page is, and its text. Pure.

use encoding_rs::{Encoding, UTF_8};

use super::super::media::{MediaKind, detect};
use super::super::text;

/// How far into a page it is looked for what it says of its own encoding, in bytes.
const PREAMBLE: usize = 1024;

/// What can be done with a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Html,
    Text,
    /// What Read can show: its name.
    File(&'static str),
    Other,
}

/// Tells by what it is said to be, and where that says nothing by how it begins.
pub(super) fn page_type(content_type: Option<&str>, body: &[u8]) -> PageKind {
    match detect(body) {
        Some(MediaKind::Pdf) => return PageKind::File("PDF"),
        Some(MediaKind::Picture(_)) => return PageKind::File("picture"),
        None => {}
    }
    let said = content_type.unwrap_or_default().to_ascii_lowercase();
    let said = said.split(';').next().unwrap_or_default().trim();
    match said {
        "text/html" | "application/xhtml+xml" => PageKind::Html,
        "" | "application/octet-stream" if text::is_binary(body) => PageKind::Other,
        "" if starts_like_html(body) => PageKind::Html,
        "" | "application/octet-stream" => PageKind::Text,
        _ if is_text(said) => PageKind::Text,
        _ => PageKind::Other,
    }
}

fn is_text(said: &str) -> bool {
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
    let (family, kind) = said.split_once('/').unwrap_or((said, ""));
    let kind = kind.rsplit('+').next().unwrap_or(kind);
    family == "text" || matches!(family, "application" | "image" | "model") && WORDS.contains(&kind)
}

fn starts_like_html(body: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&body[..body.len().min(PREAMBLE)]).to_ascii_lowercase();
    let start = start.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// The text of a page in the encoding that it has: by its first bytes, by what the server says,
/// by what it says itself. Otherwise UTF-8.
pub(super) fn decode(content_type: Option<&str>, body: &[u8]) -> String {
    let by_server = content_type.and_then(charset);
    let by_itself = || {
        let start = String::from_utf8_lossy(&body[..body.len().min(PREAMBLE)]).to_ascii_lowercase();
        // A page that says so in letters of one byte has no letters of two.
        let named = charset(&start)?;
        Some(if named == encoding_rs::UTF_16LE || named == encoding_rs::UTF_16BE {
            UTF_8
        } else {
            named
        })
    };
    let encoding = by_server.or_else(by_itself).unwrap_or(UTF_8);
    // A byte order mark outranks it.
    let (text, _, _) = encoding.decode(body);
    text.into_owned()
}

/// The encoding behind `charset=`.
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
    fn a_page_is_what_it_is_said_to_be_and_a_file_by_its_first_bytes() {
        for (said, body, nature) in [
            (Some("text/html; charset=utf-8"), "x", PageKind::Html),
            (Some("TEXT/HTML"), "x", PageKind::Html),
            (Some("application/xhtml+xml"), "x", PageKind::Html),
            (None, "  <!DOCTYPE html><p>", PageKind::Html),
            (None, "plain", PageKind::Text),
            (None, "a\0b", PageKind::Other),
            (Some("text/markdown"), "<html>", PageKind::Text),
            (Some("application/json"), "{}", PageKind::Text),
            (Some("application/ld+json"), "{}", PageKind::Text),
            (Some("image/svg+xml"), "<svg>", PageKind::Text),
            (Some("application/octet-stream"), "plain", PageKind::Text),
            (Some("application/octet-stream"), "a\0b", PageKind::Other),
            (Some("application/zip"), "PK", PageKind::Other),
            (Some("video/mp4"), "x", PageKind::Other),
            (Some("application/pdf"), "%PDF-1.7", PageKind::File("PDF")),
            (Some("text/html"), "%PDF-1.7", PageKind::File("PDF")),
            (Some("image/gif"), "GIF89a", PageKind::File("picture")),
            (Some("image/png"), "no picture", PageKind::Other),
        ] {
            assert_eq!(super::page_type(said, body.as_bytes()), nature, "{said:?} {body}");
        }
    }

    #[test]
    fn letters_are_read_in_the_encoding_that_is_named_first() {
        for (said, body, text) in [
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
            assert_eq!(decode(said, body), text, "{said:?}");
        }
    }
}
