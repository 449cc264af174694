//! Reads the lines of a host.

use std::io::{self, BufRead, Read};

use crate::json;

/// The longest line, in bytes: a prompt with several images.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// What was read.
#[derive(Debug)]
pub enum HostInput {
    Line {
        number: u64,
        text: String,
    },
    /// A line that no message can be, and why.
    Unreadable {
        number: u64,
        why: String,
    },
    /// The host has closed its end.
    End,
}

/// Reads lines until the end of input, and hands each to `take`, which returns whether to go on.
/// Blocks.
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

/// The next line that is not empty. A last line without a line feed was cut off, and is dropped.
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
