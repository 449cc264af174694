//! Keeps the first and last bytes of a stream, and shows them within a limit.

use std::collections::VecDeque;

use super::encoding;
use super::text::{self, NUL_SIGN};

/// The largest character in UTF-8, in bytes.
const CHARACTER_BYTES: usize = 4;

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
        let each = limit.div_ceil(2).max(1) * CHARACTER_BYTES;
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

    fn is_whole(&self) -> bool {
        self.total == (self.head.len() + self.tail.len()) as u64
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
        let ends = |head: &str, tail: &str| {
            join(text::truncated(head, half), text::tail(tail, half), self.total, place)
        };
        let whole = self.is_whole().then(|| readable(&sample));
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

fn join(head: &str, tail: &str, total: u64, place: &str) -> String {
    format!("{head}\n\n[… the middle of {total} bytes is left out{place} …]\n\n{tail}")
}
