//! What a background command printed since it was last looked at, in bounded memory.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::super::capture::HeadAndTail;

/// Filled by the capture of a running command, emptied by whoever looks.
#[derive(Debug)]
pub(in super::super) struct LiveOutput {
    limit: usize,
    unread: Mutex<UnreadOutput>,
}

#[derive(Debug)]
struct UnreadOutput {
    ends: HeadAndTail,
    /// The beginning of a character whose end is still to come.
    partial: Vec<u8>,
    /// Where all that was printed goes, once it is long.
    file: Option<PathBuf>,
}

/// Output that was not looked at before.
pub(super) struct NewOutput {
    pub(super) text: String,
    pub(super) file: Option<PathBuf>,
}

impl LiveOutput {
    /// Keeps enough to show `limit` characters.
    pub(super) fn new(limit: usize) -> Self {
        let unread = UnreadOutput { ends: HeadAndTail::showing(limit), partial: Vec::new(), file: None };
        Self { limit, unread: Mutex::new(unread) }
    }

    pub(in super::super) fn push(&self, bytes: &[u8]) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The output is being kept in a file.
    pub(in super::super) fn set_file(&self, file: PathBuf) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).file = Some(file);
    }

    /// What is new. When nothing more will come, a character that stayed unfinished as well.
    pub(super) fn read_new(&self, over: bool) -> NewOutput {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Forgets what nobody has looked at.
    pub(super) fn discard_unread(&self) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.ends = HeadAndTail::showing(self.limit);
    }
}

/// How many bytes at the end begin a character that is not complete.
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
    fn half_a_character_is_shown_when_the_other_half_will_not_come() {
        let live = LiveOutput::new(100);
        live.push(b"end\xe6\xbc");
        assert_eq!(live.read_new(false).text, "end");
        assert_eq!(live.read_new(true).text, "\u{fffd}");
        assert_eq!(live.read_new(true).text, "");
    }
}
