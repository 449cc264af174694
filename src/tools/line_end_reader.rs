//! Reads text with its line ends as single line feeds, as Read shows it.

use std::io::{self, BufRead, Read};

use super::encoding::has_old_line_ends;

/// Converts CRLF to line feeds, and CR as well in text without any line feed.
pub(super) struct LineEndReader<R> {
    inner: R,
    /// True if CR alone ends a line. `None` before the first read, which shows a whole block.
    is_old: Option<bool>,
    /// True if the last byte was a CR, whose meaning depends on the next byte.
    is_return_pending: bool,
}

impl<R: BufRead> LineEndReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, is_old: None, is_return_pending: false }
    }
}

impl<R: BufRead> Read for LineEndReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let available = self.inner.fill_buf()?;
            let is_old = *self.is_old.get_or_insert_with(|| has_old_line_ends(available));
            let (mut used, mut made) = (0, 0);
            if self.is_return_pending && available.first() != Some(&b'\n') {
                buffer[0] = b'\r';
                made = 1;
            }
            self.is_return_pending = false;
            while made < buffer.len() && used < available.len() {
                let room = (buffer.len() - made).min(available.len() - used);
                let rest = &available[used..used + room];
                // Most texts have no CR, and a search of the whole part at once is fast.
                let has_return = rest.contains(&b'\r');
                let first = || rest.iter().position(|byte| *byte == b'\r');
                let run = has_return.then(first).flatten().unwrap_or(room);
                buffer[made..made + run].copy_from_slice(&rest[..run]);
                made += run;
                used += run;
                if run == room {
                    continue;
                }
                used += 1;
                if is_old {
                    buffer[made] = b'\n';
                    made += 1;
                    continue;
                }
                match available.get(used) {
                    Some(b'\n') => {}
                    Some(_) => {
                        buffer[made] = b'\r';
                        made += 1;
                    }
                    None => self.is_return_pending = true,
                }
            }
            let is_over = available.is_empty();
            self.inner.consume(used);
            if made > 0 || is_over {
                return Ok(made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn line_ends_are_line_feeds_wherever_the_text_is_cut() {
        for (text, expected) in [
            ("a\r\nb\r\n", "a\nb\n"),
            ("a\rb\r\n\r\n", "a\rb\n\n"),
            ("\n\r\r\nc\r", "\n\r\nc\r"),
            ("\r\n\rx", "\n\rx"),
            ("plain\n", "plain\n"),
            ("", ""),
        ] {
            for piece in 1..8 {
                let chunks = text.as_bytes().chunks(piece).collect::<Vec<_>>();
                // The first piece of a text is as large as a buffer, and shows which ends it has.
                let first = chunks.first().copied().unwrap_or_default();
                if !text.is_empty() && !first.contains(&b'\n') && first.contains(&b'\r') {
                    continue;
                }
                for room in 1..6 {
                    let inner = BufReader::with_capacity(piece, text.as_bytes());
                    let mut reader = LineEndReader::new(inner);
                    let mut read = Vec::new();
                    let mut buffer = vec![0; room];
                    loop {
                        match reader.read(&mut buffer).unwrap() {
                            0 => break,
                            length => read.extend_from_slice(&buffer[..length]),
                        }
                    }
                    assert_eq!(String::from_utf8(read).unwrap(), expected, "{piece} {room}");
                }
            }
        }
        let mut old = String::new();
        LineEndReader::new(&b"a\rb\r"[..]).read_to_string(&mut old).unwrap();
        assert_eq!(old, "a\nb\n");
    }
}
