//! Keeps the first and last bytes of a stream, and shows them within a limit. Keys of well-known
//! services are not cut in two: redaction of the recorded text recognizes only whole keys.

use std::collections::VecDeque;

use crate::secrets::Redactor;

use super::encoding;
use super::text::{self, NUL_SIGN};

/// The largest character in UTF-8, in bytes.
const CHARACTER_BYTES: usize = 4;

/// The bytes that are kept beyond what is shown, to find keys where it is cut. Few keys are longer.
const KEY_BYTES: usize = 8 << 10;

/// The first and last bytes of a stream.
#[derive(Debug)]
pub(super) struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    each: usize,
    pub(super) total: u64,
}

impl HeadAndTail {
    /// Keeps enough to show `limit` characters.
    pub(super) fn showing(limit: usize) -> Self {
        let each = limit.div_ceil(2).max(1) * CHARACTER_BYTES + KEY_BYTES;
        Self { head: Vec::new(), tail: VecDeque::new(), each, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.each.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.each)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.each);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Renders the stream in `limit` characters; `place` says where the rest is.
    pub(super) fn show(&self, limit: usize, place: &str) -> String {
        let mut tail: Vec<u8> = self.tail.iter().copied().collect();
        let sample = [self.head.as_slice(), &tail].concat();
        let is_binary = || text::is_binary(&self.head) || text::is_binary(&tail);
        // A character may be cut at the end.
        let end = match std::str::from_utf8(&sample) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => sample.len(),
        };
        let format = encoding::detect(&sample[..end]);
        let Some(format) = format.filter(|format| !format.is_utf_8() || !is_binary()) else {
            return format!(
                "[{} bytes of binary output are not shown{place}. To look at them, add \
                 `| xxd | head` or `| strings`]",
                self.total
            );
        };
        let readable = |bytes: &[u8]| {
            let text = encoding::decode(format, bytes);
            text::readable(text.trim_start_matches('\u{feff}'))
        };
        let half = limit / 2;
        let ends =
            |head: &str, tail: &str| join(first(head, half), last(tail, half), self.total, place);
        let is_whole = self.total == (self.head.len() + self.tail.len()) as u64;
        let whole = is_whole.then(|| readable(&sample));
        let mut shown = match whole {
            Some(whole) if whole.chars().nth(limit).is_none() => whole,
            Some(whole) => ends(&whole, &whole),
            None => {
                if format.is_utf_16() && !(self.total - tail.len() as u64).is_multiple_of(2) {
                    tail.remove(0);
                }
                ends(&readable(&self.head), &readable(&tail))
            }
        };
        if shown.contains(NUL_SIGN) {
            let gap = if shown.ends_with('\n') { "" } else { "\n" };
            shown.extend([gap, &format!("[NUL bytes are shown as {NUL_SIGN}{place}]")]);
        }
        shown
    }
}

/// The first `limit` characters, or fewer if a key would be cut.
fn first(text: &str, limit: usize) -> &str {
    let shown = text::truncated(text, limit);
    match Redactor::split_key(text, shown.len(), KEY_BYTES) {
        Some(key) => &text[..key.start],
        None => shown,
    }
}

/// The last `limit` characters, or fewer if a key would be cut.
fn last(text: &str, limit: usize) -> &str {
    let shown = text::tail(text, limit);
    match Redactor::split_key(text, text.len() - shown.len(), KEY_BYTES) {
        Some(key) => &text[key.end..],
        None => shown,
    }
}

fn join(head: &str, tail: &str, total: u64, place: &str) -> String {
    format!("{head}\n\n[… the middle of {total} bytes is left out{place} …]\n\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::KnownSecrets;

    /// The shown text as it is recorded.
    fn recorded(stream: &str, limit: usize) -> String {
        let mut ends = HeadAndTail::showing(limit);
        for piece in stream.as_bytes().chunks(1_000) {
            ends.push(piece);
        }
        Redactor::new(KnownSecrets::default()).redact(&ends.show(limit, ""))
    }

    #[test]
    fn no_part_of_a_key_across_a_cut_is_recorded() {
        let body = "q9Zx7Kw2Lm4Np6Rt8Vb3Yd5Hf1Jg0Sc9Ua2We4Xi6Oy8Pk3Qz5";
        let pem = format!("{body}\n").repeat(40);
        // Not written out, so that this file has no key.
        let kind = "RSA PRIVATE KEY";
        let keys = [
            format!("sk-ant-api03-{body}"),
            format!("postgres://app:{body}@db.example/x"),
            format!("-----BEGIN {kind}-----\n{pem}-----END {kind}-----"),
        ];
        let limit = 200;
        // Characters of four bytes leave the least room beyond what is shown.
        for filling in ["x ", "\u{1f980} "] {
            for key in &keys {
                for place in (0..limit / 2).step_by(3) {
                    let filler = |count: usize| filling.chars().cycle().take(count);
                    let middle = filler(40_000);
                    let before = filler(place).chain(" ".chars());
                    let text: String = before.chain(key.chars()).chain(middle).collect();
                    let mirrored: String = filler(40_000)
                        .chain(" ".chars())
                        .chain(key.chars())
                        .chain(" ".chars())
                        .chain(filler(place))
                        .collect();
                    for text in [text, mirrored] {
                        let shown = recorded(&text, limit);
                        let parts = body.as_bytes().windows(6);
                        let mut parts = parts.map(|part| std::str::from_utf8(part).expect("ASCII"));
                        let leak = parts.find(|part| shown.contains(part));
                        assert_eq!(leak, None, "{place}: {shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_that_is_not_cut_stays_as_it_is() {
        let key = &format!("sk-ant-api03-{}", "q9Zx7Kw2Lm4Np6Rt8Vb3Yd5Hf1Jg0Sc9Ua2We4");
        let text = format!("{key} {} {key}", "x ".repeat(50_000));
        let mut ends = HeadAndTail::showing(200);
        ends.push(text.as_bytes());
        let shown = ends.show(200, "");
        assert!(shown.starts_with(key) && shown.ends_with(key), "{shown}");
    }
}
