//! Reads a journal line by line, for reports: lines that cannot be read are reported and skipped,
//! and a file is never in memory as a whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::mem;
use std::path::Path;

use jiff::Timestamp;
use memchr::memchr;
use serde_json::Value;

use crate::process::file_reads::open_regular;
use crate::transcript::Usage;

use super::parsed_line::{JournalEntry, LineFacts, ParsedLine};
use super::reader::{RefusalReason, parse_with_facts, without_return};

/// The longest line that is read. Longer ones are not from outlast: a conversation that is larger
/// does not fit any model.
const LINE_MAX: u64 = 64 << 20;

/// One line of a journal.
#[derive(Debug)]
pub struct JournalLine {
    /// Counted from 1.
    pub number: usize,
    /// Time of the line, if it records one.
    pub at: Option<Timestamp>,
    pub entry: Result<JournalEntry, RefusalReason>,
    /// The members of a tool's structured result that reports read.
    pub detail: Option<Value>,
    /// The token counts of a reply.
    pub usage: Option<Usage>,
    /// True if the numbers of the records show that lines before it are missing.
    pub follows_gap: bool,
}

/// The lines of a journal, from first to last.
#[derive(Debug)]
pub struct JournalLines<R> {
    raw: RawLines<R>,
    seq: u64,
}

impl JournalLines<BufReader<File>> {
    /// Opens a file without locking it. Lines that are appended meanwhile may be missing.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(buffered(open_regular(path)?)))
    }
}

impl<R: BufRead> JournalLines<R> {
    pub fn new(reader: R) -> Self {
        Self { raw: RawLines::new(reader), seq: 0 }
    }
}

impl<R: BufRead> Iterator for JournalLines<R> {
    type Item = io::Result<JournalLine>;

    fn next(&mut self) -> Option<Self::Item> {
        let (number, line) = match self.raw.next_line() {
            Ok(Some(found)) => found,
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        };
        let parsed = line.map_err(|TooLong| too_long()).and_then(parse_with_facts);
        let (entry, seq, facts) = match parsed {
            Ok((ParsedLine { entry, seq, .. }, facts)) => (Ok(entry), seq, facts),
            Err(why) => (Err(why), None, LineFacts::default()),
        };
        let follows_gap = seq.is_some_and(|seq| seq != self.seq + 1);
        self.seq = seq.unwrap_or(self.seq);
        let LineFacts { timestamp, usage, detail } = facts;
        let at = timestamp.and_then(|at| at.parse().ok());
        Some(Ok(JournalLine { number, at, entry, detail, usage, follows_gap }))
    }
}

fn too_long() -> RefusalReason {
    RefusalReason::Damaged("the line is too long".to_owned())
}

/// A line of more than [`LINE_MAX`] bytes, which was skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooLong;

/// The size of the blocks in which a journal is read: most lines are in one block.
const BLOCK_BYTES: usize = 1 << 18;

/// Reads a journal in large blocks.
pub(super) fn buffered<R: Read>(file: R) -> BufReader<R> {
    BufReader::with_capacity(BLOCK_BYTES, file)
}

/// The number of a line, and its bytes.
pub(super) type RawLine<'a> = (usize, Result<&'a [u8], TooLong>);

/// The lines of a file as bytes, one in memory at a time.
#[derive(Debug)]
pub(super) struct RawLines<R> {
    reader: R,
    number: usize,
    /// The length of the last line, if it is still in the buffer of the reader.
    used: usize,
    /// The last line, if it was in several blocks.
    line: Vec<u8>,
}

impl<R: BufRead> RawLines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, number: 0, used: 0, line: Vec::new() }
    }

    /// Reads the next line that is not empty, without its newline, and its number.
    pub(super) fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        loop {
            self.reader.consume(mem::take(&mut self.used));
            let block = self.reader.fill_buf()?;
            if block.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            let line = if let Some(end) = memchr(b'\n', block) {
                self.used = end + 1;
                &block[..end]
            } else {
                self.line.clear();
                let mut part = (&mut self.reader).take(LINE_MAX);
                part.read_until(b'\n', &mut self.line)?;
                if !self.line.ends_with(b"\n") && self.line.len() as u64 >= LINE_MAX {
                    self.skip_line()?;
                    return Ok(Some((self.number, Err(TooLong))));
                }
                &self.line
            };
            if !line.trim_ascii().is_empty() {
                break;
            }
        }
        let line = if self.used > 0 { &self.reader.fill_buf()?[..self.used] } else { &self.line };
        let line = without_return(line.strip_suffix(b"\n").unwrap_or(line));
        Ok(Some((self.number, Ok(line))))
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let chunk = self.reader.fill_buf()?;
            let end = memchr(b'\n', chunk);
            let (used, is_over) = (end.map_or(chunk.len(), |end| end + 1), end.is_some());
            let is_over = is_over || chunk.is_empty();
            self.reader.consume(used);
            if is_over {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lines_are_reported_and_the_others_are_read() {
        let text = "{\"type\":\"summary\"}\n\nnot JSON\n{\"type\":\"user\",\"uuid\":\"1\",\"timestamp\":\
                    \"2026-01-02T03:04:05Z\",\"message\":{\"content\":\"hi\"}}\n{\"type\":";
        let lines: Vec<JournalLine> =
            JournalLines::new(text.as_bytes()).map(|line| line.expect("no disk")).collect();
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 3, 4, 5]);
        assert!(lines[1].entry.is_err() && lines[3].entry.is_err());
        assert!(matches!(lines[2].entry, Ok(JournalEntry::Message(_))), "{lines:?}");
        assert_eq!(lines[2].at.map(|at| at.to_string()).as_deref(), Some("2026-01-02T03:04:05Z"));
    }

    #[test]
    fn lines_are_the_same_in_blocks_of_any_size() {
        let text = b"{\"a\":1}\n\n \n{\"b\":2}\r\nc\nlast without an end";
        let whole: [(usize, &[u8]); 4] =
            [(1, b"{\"a\":1}"), (4, b"{\"b\":2}"), (5, b"c"), (6, b"last without an end")];
        for block in 1..=text.len() + 1 {
            let mut lines = RawLines::new(BufReader::with_capacity(block, &text[..]));
            for (number, line) in whole {
                let found = lines.next_line().expect("no disk").expect("a line");
                assert_eq!((found.0, found.1.expect("short")), (number, line), "blocks of {block}");
            }
            assert!(lines.next_line().expect("no disk").is_none(), "blocks of {block}");
        }
    }
}
