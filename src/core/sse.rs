//! Parses a byte stream into server-sent events. No I/O.

use std::mem;
use std::time::Duration;

/// Maximum size of one event of a model's reply, in bytes. Real events have a few thousand at most;
/// the limit bounds the memory that an endless line can take.
pub const EVENT_LIMIT: usize = 8 * 1024 * 1024;

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field, or empty: some servers send data only.
    pub event: String,
    /// The `data` lines. Invalid UTF-8 is replaced, as the standard requires.
    pub data: String,
    /// The bytes of `data`, if they are not valid UTF-8.
    pub invalid_data: Option<Vec<u8>>,
    /// True if another line of the event, or of an event without data before it, was not valid
    /// UTF-8, so that a name may have been changed or lost.
    pub is_damaged: bool,
}

impl SseEvent {
    /// An event without a name.
    pub fn of_data(data: Vec<u8>) -> Self {
        Self {
            data: String::from_utf8_lossy(&data).into_owned(),
            invalid_data: str::from_utf8(&data).is_err().then_some(data),
            ..Self::default()
        }
    }
}

/// The error for an event that is larger than the limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {0} bytes")]
pub struct EventTooLarge(pub usize);

/// Accepts bytes in pieces of any size and returns complete events. An incomplete event at the end
/// of the stream is discarded, as the standard requires.
#[derive(Clone, Debug)]
pub struct SseParser {
    /// Maximum size of an event, in bytes.
    limit: usize,
    line: Vec<u8>,
    event: Vec<u8>,
    data: Option<Vec<u8>>,
    /// True if a line since the last complete event, not of its data, was not valid UTF-8.
    is_damaged: bool,
    /// True if the last byte was a carriage return, so that a line feed after it ends no further
    /// line.
    after_return: bool,
    /// True if the first line is complete, so that a byte order mark is no longer possible.
    begun: bool,
    /// The last `id` field, which takes effect at the end of its event.
    id: String,
    last_id: String,
    retry: Option<Duration>,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::with_limit(EVENT_LIMIT)
    }
}

impl SseParser {
    /// A parser for events of at most `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: Vec::new(),
            data: None,
            is_damaged: false,
            after_return: false,
            begun: false,
            id: String::new(),
            last_id: String::new(),
            retry: None,
        }
    }

    /// The identifier of the last complete event, with which the stream can be continued.
    pub fn last_id(&self) -> Option<&str> {
        Some(self.last_id.as_str()).filter(|id| !id.is_empty())
    }

    /// Prepares for the first byte of another stream that continues this one.
    pub fn restart(&mut self) {
        let (last_id, retry) = (mem::take(&mut self.last_id), self.retry);
        *self = Self { id: last_id.clone(), last_id, retry, ..Self::with_limit(self.limit) };
    }

    /// The last `retry` field: the delay before the stream is continued.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Appends every event that `bytes` complete to `events`.
    ///
    /// # Errors
    /// If an event is too large. The stream cannot be parsed any further.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let end = rest[at];
            let completes_crlf = at == 0 && end == b'\n' && self.after_return;
            self.after_return = end == b'\r';
            if !completes_crlf {
                self.grow(&rest[..at])?;
                events.extend(self.end_line());
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
        let buffered = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if buffered + part.len() > self.limit {
            return Err(EventTooLarge(self.limit));
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
        // Damage to a comment or to these fields does not change the name of the event.
        let may_be_name = ![&b""[..], b"data", b"id", b"retry"].contains(&field);
        self.is_damaged |= may_be_name && str::from_utf8(line).is_err();
        match field {
            b"event" => self.event = value.to_vec(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            // The standard ignores an identifier with a NUL, and a time that is not all digits.
            b"id" if !value.contains(&0) => {
                self.id = String::from_utf8_lossy(value).into_owned();
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let text = str::from_utf8(value).ok();
                let time = text.and_then(|text| text.parse().ok()).map(Duration::from_millis);
                self.retry = time.or(self.retry);
            }
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let event = mem::take(&mut self.event);
        self.last_id.clone_from(&self.id);
        let data = self.data.take()?;
        Some(SseEvent {
            event: String::from_utf8_lossy(&event).into_owned(),
            is_damaged: mem::take(&mut self.is_damaged),
            ..SseEvent::of_data(data)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_continued_after_its_last_complete_event() {
        let (mut parser, mut events) = (SseParser::default(), Vec::new());
        parser.push(b"id: 1\nretry: 250\ndata\n\nid: 2\ndata: half", &mut events).expect("short");
        assert_eq!(parser.last_id(), Some("1"), "the second event is not complete");
        assert_eq!(parser.retry(), Some(Duration::from_millis(250)));
        parser.restart();
        parser.push(b"\xef\xbb\xbfretry: soon\ndata: two\n\n", &mut events).expect("short");
        let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
        assert_eq!(data, ["", "two"], "the half event is gone");
        assert_eq!(parser.last_id(), Some("1"));
        assert_eq!(parser.retry(), Some(Duration::from_millis(250)));
        parser.push(b"id: a\0b\ndata\n\nid\ndata\n\n", &mut events).expect("short");
        assert_eq!(parser.last_id(), None, "an empty one resets it");
    }

    #[test]
    fn an_event_reports_invalid_utf_8_in_any_of_its_lines() {
        let damaged = |bytes: &[u8]| {
            let (mut parser, mut events) = (SseParser::default(), Vec::new());
            parser.push(bytes, &mut events).expect("short");
            let parts = events.into_iter().map(|event| (event.invalid_data, event.is_damaged));
            parts.collect::<Vec<_>>()
        };
        let invalid = |data: &[u8]| (Some(data.to_vec()), false);
        let (valid, elsewhere) = ((None, false), (None, true));
        assert_eq!(
            damaged(b"data: a\xc3\n\ndata: \xc3\xa9\n\n"),
            [invalid(b"a\xc3"), valid.clone()]
        );
        let surrogate = b"data: a\ndata: \xed\xa0\xbd\ndata: b\n\n";
        assert_eq!(damaged(surrogate), [invalid(b"a\n\xed\xa0\xbd\nb")]);
        assert_eq!(damaged(b"event: \xff\ndata: a\n\n"), std::slice::from_ref(&elsewhere));
        assert_eq!(damaged(b"dat\xe1: lost\n\ndata: next\n\n"), [elsewhere], "an event was lost");
        assert_eq!(damaged(b": \xff\ndata: a\n\n"), [valid], "a comment");
    }

    #[test]
    fn an_event_is_no_larger_than_the_limit() {
        let (mut parser, mut events) = (SseParser::with_limit(20), Vec::new());
        assert_eq!(parser.push(b"data: 0123456789\n\n", &mut events), Ok(()));
        assert_eq!(parser.push(&[b'x'; 21], &mut events), Err(EventTooLarge(20)));
    }
}
