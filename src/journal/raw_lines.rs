//! The lines of a journal as bytes, one in memory at a time.

use std::io::{self, BufRead, BufReader, Read};

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
    line: Vec<u8>,
}

impl<R: BufRead> RawLines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, number: 0, line: Vec::new() }
    }

    /// Reads the next line that is not empty, without its newline, and its number.
    pub(super) fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        loop {
            self.line.clear();
            let read = (&mut self.reader).take(LINE_MAX).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.line.ends_with(b"\n") && read as u64 >= LINE_MAX {
                self.reader.skip_until(b'\n')?;
                return Ok(Some((self.number, Err(TooLong))));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let line = without_return(self.line.strip_suffix(b"\n").unwrap_or(&self.line));
        Ok(Some((self.number, Ok(line))))
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
