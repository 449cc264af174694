//! The lines of a journal as bytes, one in memory at a time.

use std::io::{self, BufRead, BufReader, Read};
use std::mem;

use memchr::memchr;

/// The longest line that is read. outlast writes no longer ones: a conversation of that size does
/// not fit any model.
const LINE_MAX: u64 = 64 << 20;

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

/// A line without the carriage return that a text editor may have added.
pub(super) fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

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
