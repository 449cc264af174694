//! Determines the type of a page, and decodes its text. Pure.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::super::encoding::FileStart;
use super::super::media::{MediaKind, detect};

/// The part of a page that is searched for its encoding declaration, in bytes. Standards have it in
/// the first 1,024, which not all pages obey.
const PREAMBLE: usize = 16 << 10;

/// The beginnings of HTML, in lower case.
const HTML_STARTS: [&str; 6] = ["<!doctype html", "<html", "<head", "<title", "<body", "<meta"];

/// The kind of a page, which decides how it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Html,
    Text,
    /// A file type that Read can show, by name.
    File(&'static str),
    Other,
}

/// The size to which the text of a small page may grow, in bytes.
const TEXT_BYTES_MIN: usize = 3 << 20;

/// Classifies a page: by its content type if that is HTML or another text, and otherwise by its
/// bytes, since servers have many names for text, and send pages about errors with the type of the
/// file that was requested.
pub(super) fn page_type(content_type: Option<&str>, body: &[u8]) -> PageKind {
    match detect(body) {
        Some(MediaKind::Pdf) => return PageKind::File("PDF"),
        Some(MediaKind::Picture(_)) => return PageKind::File("picture"),
        None => {}
    }
    let content_type = media_type(content_type).to_ascii_lowercase();
    match content_type.as_str() {
        "text/html" | "application/xhtml+xml" => PageKind::Html,
        _ if content_type.starts_with("text/") => PageKind::Text,
        _ if !is_text(body) => PageKind::Other,
        _ if starts_like_html(body) => PageKind::Html,
        _ => PageKind::Text,
    }
}

/// The name in a content type: the first one, if there are several.
pub(super) fn media_type(content_type: Option<&str>) -> &str {
    content_type.unwrap_or_default().split([';', ',']).next().unwrap_or_default().trim()
}

fn is_text(mut body: &[u8]) -> bool {
    FileStart::read(&mut body).is_ok_and(|start| start.format.is_some())
}

fn starts_like_html(body: &[u8]) -> bool {
    let start = preamble(body);
    let start = start.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    HTML_STARTS.iter().any(|tag| start.starts_with(tag))
}

/// The beginning of a page, in lower case.
fn preamble(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(PREAMBLE)]).to_ascii_lowercase()
}

/// Decodes the text of a page: by its byte order mark, the server's charset, or the page's own
/// declaration; otherwise by its bytes, as a file. The text has about as many bytes as the page at
/// most; the excess is left out.
pub(super) fn decode(content_type: Option<&str>, kind: PageKind, body: Vec<u8>) -> String {
    let by_server = || declared(&content_type?.to_ascii_lowercase(), "charset");
    let by_itself = || {
        let declared = own_declaration(&preamble(&body), kind)?;
        // A declaration in single-byte letters rules out UTF-16.
        Some(if declared == UTF_16LE || declared == UTF_16BE { UTF_8 } else { declared })
    };
    let by_bytes = || Some(FileStart::read(&mut body.as_slice()).ok()?.format?.encoding);
    let (encoding, mark) = Encoding::for_bom(&body)
        .unwrap_or_else(|| (by_server().or_else(by_itself).or_else(by_bytes).unwrap_or(UTF_8), 0));
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

/// The encoding that the beginning of a page, in lower case, declares by XML or HTML. Other text
/// may mention such declarations.
fn own_declaration(start: &str, kind: PageKind) -> Option<&'static Encoding> {
    let of_xml = start.trim_start().strip_prefix("<?xml").and_then(|rest| rest.split_once("?>"));
    let named = of_xml.and_then(|(declaration, _)| declared(declaration, "encoding"));
    named.or_else(|| (kind == PageKind::Html).then(|| meta_charset(start)).flatten())
}

/// The encoding that the first `meta` element with one declares.
fn meta_charset(html: &str) -> Option<&'static Encoding> {
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        rest = match after.strip_prefix("!--") {
            Some(comment) => comment.split_once("-->")?.1,
            None => after,
        };
        let tag = after.strip_prefix("meta").and_then(|tag| tag.split('>').next());
        let found = tag.and_then(|tag| declared(tag, "charset"));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The encoding after the first `name=` that has one.
fn declared(text: &str, name: &str) -> Option<&'static Encoding> {
    text.match_indices(name).find_map(|(at, _)| {
        let value = text[at + name.len()..].trim_start().strip_prefix('=')?.trim_start();
        let value = value.trim_start_matches(['"', '\'']);
        let is_end = |letter: char| letter.is_whitespace() || "\"';,>/?".contains(letter);
        let end = value.find(is_end).unwrap_or(value.len());
        Encoding::for_label(&value.as_bytes()[..end])
    })
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
            (Some("application/octet-stream"), "<!DOCTYPE html><p>", PageKind::Html),
            (Some("binary/octet-stream"), "a,b\n", PageKind::Text),
            (Some("application/x-new"), "caf\u{e9}", PageKind::Text),
            (Some("application/pdf"), "\n<HTML><p>not found", PageKind::Html),
            (Some("text/html, text/html"), "x", PageKind::Html),
            (Some("application/zip"), "PK\u{3}\u{4}\0\0\0\0", PageKind::Other),
            (Some("video/mp4"), "\0\0\0\u{18}ftyp", PageKind::Other),
            (Some("application/pdf"), "%PDF-1.7", PageKind::File("PDF")),
            (Some("text/html"), "%PDF-1.7", PageKind::File("PDF")),
            (Some("image/gif"), "GIF89a", PageKind::File("picture")),
            (Some("image/png"), "no picture", PageKind::Text),
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
        let (html, plain) = (Some("text/html"), Some("text/plain"));
        for (content_type, body, text) in [
            (Some("text/html; charset=ISO-8859-1"), &b"caf\xe9"[..], "café"),
            (Some("text/html; charset=\"windows-1252\""), b"\x80", "€"),
            (Some("text/html; charset=nonsense"), "é".as_bytes(), "é"),
            (Some("text/html; a=charset; charset=latin1"), b"\xe9", "é"),
            (html, b"<meta charset=latin1>\xe9", "<meta charset=latin1>é"),
            (
                html,
                b"<meta content='a; charset=shift_jis'>\x82\xa0",
                "<meta content='a; charset=shift_jis'>あ",
            ),
            (
                html,
                b"<!--<meta charset=latin1> charset--><a charset=latin1><meta charset=shift_jis>\x82\xa0",
                "<!--<meta charset=latin1> charset--><a charset=latin1><meta charset=shift_jis>あ",
            ),
            (html, b"<meta charset=utf-16>a", "<meta charset=utf-16>a"),
            (
                Some("application/xhtml+xml"),
                b"<?xml version='1.0' encoding='windows-1251'?>\xcf",
                "<?xml version='1.0' encoding='windows-1251'?>П",
            ),
            (
                Some("application/rss+xml"),
                b"<?xml encoding=\"windows-1251\"?>\xcf",
                "<?xml encoding=\"windows-1251\"?>П",
            ),
            (plain, "<meta charset=shift_jis> é".as_bytes(), "<meta charset=shift_jis> é"),
            (plain, "{\"a\": \"encoding=latin1\"} é".as_bytes(), "{\"a\": \"encoding=latin1\"} é"),
            (plain, b"gr\xf6\xdfer, \xfcber", "größer, über"),
            (Some("text/plain; charset=latin1"), b"\xef\xbb\xbf\xc3\xa9", "é"),
            (plain, b"\xff\xfeh\0i\0", "hi"),
            (None, b"\xc3\xa9\xffc", "é\u{fffd}c"),
        ] {
            let kind = page_type(content_type, body);
            assert_eq!(decode(content_type, kind, body.to_vec()), text, "{content_type:?}");
        }
        let late = [&b" ".repeat(5_000)[..], b"<meta charset=shift_jis>\x82\xa0"].concat();
        assert!(decode(None, PageKind::Html, late).ends_with('あ'));
    }
}
