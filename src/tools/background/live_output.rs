//! Buffers the unread output of a background command in bounded memory.

use std::path::PathBuf;

use parking_lot::Mutex;

use super::super::head_and_tail::HeadAndTail;

/// The unread output of a command: filled by the capture, emptied by each read.
#[derive(Debug)]
pub(in super::super) struct LiveOutput {
    limit: usize,
    unread: Mutex<UnreadOutput>,
}

#[derive(Debug)]
struct UnreadOutput {
    ends: HeadAndTail,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    /// The file with the complete output, once it is long.
    file: Option<PathBuf>,
}

/// Output that was not read before.
pub(super) struct NewOutput {
    pub(super) text: String,
    pub(super) file: Option<PathBuf>,
}

impl LiveOutput {
    /// Keeps enough to show `limit` characters.
    pub(super) fn new(limit: usize) -> Self {
        let unread =
            UnreadOutput { ends: HeadAndTail::showing(limit), partial: Vec::new(), file: None };
        Self { limit, unread: Mutex::new(unread) }
    }

    pub(in super::super) fn push(&self, bytes: &[u8]) {
        let mut unread = self.unread.lock();
        let mut joined = std::mem::take(&mut unread.partial);
        let bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let (whole, partial) = bytes.split_at(bytes.len() - incomplete_bytes(bytes));
        unread.ends.push(whole);
        unread.partial = partial.to_vec();
    }

    /// Records that the output is also written to a file.
    pub(in super::super) fn set_file(&self, file: PathBuf) {
        self.unread.lock().file = Some(file);
    }

    /// Returns the new output. `over` is true if the stream has ended; then an incomplete character
    /// is included.
    pub(super) fn read_new(&self, over: bool) -> NewOutput {
        let mut unread = self.unread.lock();
        if over {
            let partial = std::mem::take(&mut unread.partial);
            unread.ends.push(&partial);
        }
        let ends = std::mem::replace(&mut unread.ends, HeadAndTail::showing(self.limit));
        let place = unread.file.as_ref().map_or_else(String::new, |file| {
            format!("; what was printed from the start is in {}", file.display())
        });
        NewOutput { text: ends.show(self.limit, &place), file: unread.file.clone() }
    }

    /// Drops unread output.
    pub(super) fn discard_unread(&self) {
        let mut unread = self.unread.lock();
        unread.ends = HeadAndTail::showing(self.limit);
    }
}

/// Returns the number of bytes at the end that belong to an incomplete UTF-8 character.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let needed = match bytes[bytes.len() - back] {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => 0,
        };
        return if needed > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_never_shown_in_two_halves() {
        let live = LiveOutput::new(100);
        let text = "größer: 漢字 🦀".as_bytes();
        for cut in 0..=text.len() {
            live.push(&text[..cut]);
            let first = live.read_new(false).text;
            live.push(&text[cut..]);
            let all = first + &live.read_new(false).text;
            assert_eq!(all.as_bytes(), text, "cut at {cut}");
        }
    }

    #[test]
    fn an_incomplete_character_is_shown_at_the_end_of_output() {
        let live = LiveOutput::new(100);
        live.push(b"end\xe6\xbc");
        assert_eq!(live.read_new(false).text, "end");
        assert_eq!(live.read_new(true).text, "\u{fffd}");
        assert_eq!(live.read_new(true).text, "");
    }
}
