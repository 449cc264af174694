//! Reads the lines that a host writes to standard input.

use std::io::{self, BufRead, Read};

use serde_json::{Map, Value};

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
    /// The input ends within a line: the rest of it is missing.
    CutOff {
        number: u64,
    },
    /// The host has closed its end.
    End,
}

/// Reads lines until the end of input, and passes each to `take`, which returns false to stop.
/// Blocks the thread.
pub fn read_lines(mut input: impl BufRead, mut take: impl FnMut(HostInput) -> bool) {
    for number in 1.. {
        let line = read_line(&mut input, number)
            .unwrap_or_else(|why| HostInput::Unreadable { number, why: why.to_string() });
        let is_last = !matches!(line, HostInput::Line { .. });
        if !take(line) || is_last {
            return;
        }
    }
}

/// Returns the next line that is not empty. The last line needs no line feed if it is complete.
fn read_line(input: &mut impl BufRead, number: u64) -> io::Result<HostInput> {
    loop {
        let mut line = Vec::new();
        let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        input.take(limit).read_until(b'\n', &mut line)?;
        let is_ended = line.ends_with(b"\n");
        if !is_ended && line.len() >= LINE_BYTES_MAX {
            let why = format!("it is longer than {} MB", LINE_BYTES_MAX >> 20);
            return Err(io::Error::other(why));
        }
        let text = json::decode(&line).into_owned();
        if text.trim().is_empty() {
            if is_ended {
                continue;
            }
            return Ok(HostInput::End);
        }
        let is_complete = is_ended || json::read_str::<Map<String, Value>>(&text).is_ok();
        return Ok(if is_complete {
            HostInput::Line { number, text }
        } else {
            HostInput::CutOff { number }
        });
    }
}
