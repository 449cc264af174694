//! Reads the lines that a host writes to standard input.

use std::io::{self, BufRead, Read};

use crate::json;

/// Maximum length of a line, in bytes, chosen to hold a prompt with several images.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// A line of the host, an error, or the end of input.
#[derive(Debug)]
pub enum HostInput {
    Line {
        number: u64,
        text: String,
    },
    /// A line that is too long or could not be read, with the reason.
    Unreadable {
        number: u64,
        why: String,
    },
    /// The host has closed its end.
    End,
}

/// Reads lines until the end of input, and passes each to `take`, which returns false to stop.
/// Blocks the thread.
pub fn read_lines(mut input: impl BufRead, mut take: impl FnMut(HostInput) -> bool) {
    for number in 1.. {
        let (line, is_last) = match read_line(&mut input) {
            Ok(Some(text)) => (HostInput::Line { number, text }, false),
            Ok(None) => (HostInput::End, true),
            Err(why) => (HostInput::Unreadable { number, why: why.to_string() }, true),
        };
        if !take(line) || is_last {
            return;
        }
    }
}

/// Returns the next line that is not empty. A last line without a line feed was cut off, and is
/// dropped. `None`: the input has ended.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    loop {
        let mut line = Vec::new();
        let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        input.take(limit).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            if line.len() < LINE_BYTES_MAX {
                return Ok(None);
            }
            let why = format!("it is longer than {} MB", LINE_BYTES_MAX >> 20);
            return Err(io::Error::other(why));
        }
        let line = json::decode(&line).into_owned();
        if !line.trim().is_empty() {
            return Ok(Some(line));
        }
    }
}
