//! Parses a byte stream into server-sent events. No I/O.

use std::mem;

/// Maximum size of one event, in bytes. Real ones have a few thousand at most; the bound protects
/// the memory from a line that never ends.
pub const EVENT_LIMIT: usize = 8 * 1024 * 1024;

/// One server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field, or empty: some servers send data only.
    pub event: String,
    /// The `data` lines. Invalid UTF-8 is replaced, as the standard requires.
    pub data: String,
}

/// An event was larger than [`EVENT_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {EVENT_LIMIT} bytes")]
pub struct EventTooLarge;

/// Accepts bytes in pieces of any size and returns complete events. An incomplete event at the end
/// of the stream is discarded, as the standard requires.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    event: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The last byte was a carriage return, so a following line feed ends no further line.
    after_return: bool,
    /// The first line is complete, so a byte-order mark is no longer possible.
    begun: bool,
}

impl SseParser {
    /// Appends every event that `bytes` complete to `frames`.
    ///
    /// # Errors
    /// An event is too large. The stream cannot be parsed any further.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let end = rest[at];
            let second_half = at == 0 && end == b'\n' && self.after_return;
            self.after_return = end == b'\r';
            if !second_half {
                self.grow(&rest[..at])?;
                frames.extend(self.end_line());
            }
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() {
            self.after_return = false;
            self.grow(rest)?;
        }
        Ok(())
    }

    fn grow(&mut self, part: &[u8]) -> Result<(), EventTooLarge> {
        let held = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if held + part.len() > EVENT_LIMIT {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.event = value.to_vec(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let event = mem::take(&mut self.event);
        let data = self.data.take()?;
        Some(SseEvent {
            event: String::from_utf8_lossy(&event).into_owned(),
            data: String::from_utf8_lossy(&data).into_owned(),
        })
    }
}
