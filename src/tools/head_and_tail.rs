//! Keeps the first and last bytes of a stream, and shows them within a limit.

use std::collections::VecDeque;

use super::text;

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
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if text::is_binary(&self.head) || text::is_binary(&tail) {
            return format!(
                "[{} bytes of binary output are not shown{place}. To look at them, add \
                 `| xxd | head` or `| strings`; for names that end in NUL, `| tr '\\0' '\\n'`]",
                self.total
            );
        }
        let half = limit / 2;
        if self.is_whole() {
            let whole = text::readable(&[self.head.as_slice(), &tail].concat());
            if whole.chars().nth(limit).is_none() {
                return whole;
            }
            return join(
                text::truncated(&whole, half),
                text::tail(&whole, half),
                self.total,
                place,
            );
        }
        let (head, tail) = (text::readable(&self.head), text::readable(&tail));
        join(text::truncated(&head, half), text::tail(&tail, half), self.total, place)
    }
}

fn join(head: &str, tail: &str, total: u64, place: &str) -> String {
    format!("{head}\n\n[… the middle of {total} bytes is left out{place} …]\n\n{tail}")
}
