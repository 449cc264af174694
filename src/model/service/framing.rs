//! Selects the parser of a stream by its content type and its first byte.

use std::mem;

use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::sse::{EVENT_LIMIT, EventTooLarge, SseEvent, SseParser};

use super::event_stream::{DamagedFrame, EventStreamParser};

/// The content type of AWS event streams.
const AWS_EVENTS: &str = "application/vnd.amazon.eventstream";

#[derive(Debug)]
pub(in super::super) enum StreamParser {
    Sse(SseParser),
    AwsEvents(EventStreamParser),
    /// Lines of JSON, each of which is an event: the beginning of the next one.
    Lines(Vec<u8>),
}

/// The reason why a stream cannot be parsed any further.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum FramingError {
    #[error(transparent)]
    TooLarge(#[from] EventTooLarge),
    #[error(transparent)]
    Damaged(#[from] DamagedFrame),
}

impl StreamParser {
    /// The parser for a response with these headers, whose body begins like this. A gateway may
    /// stream SSE where the service itself sends AWS events.
    pub(in super::super) fn for_response(headers: &HeaderMap, opening: &[u8]) -> Self {
        if opening.starts_with(b"{") {
            return Self::Lines(Vec::new());
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_aws =
            kind.is_some_and(|kind| kind.trim().to_ascii_lowercase().starts_with(AWS_EVENTS));
        if is_aws {
            Self::AwsEvents(EventStreamParser::default())
        } else {
            Self::Sse(SseParser::default())
        }
    }

    /// True if a body that begins like this is no stream of events.
    pub(in super::super) fn is_foreign(&self, opening: &[u8]) -> bool {
        const FIELDS: [&[u8]; 5] = [b":", b"data", b"event", b"id", b"retry"];

        let is_field = |field: &&[u8]| opening.starts_with(field) || field.starts_with(opening);
        matches!(self, Self::Sse(_)) && !FIELDS.iter().any(is_field)
    }

    /// Appends every event that `bytes` complete to `events`.
    pub(in super::super) fn push(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), FramingError> {
        match self {
            Self::Sse(parser) => parser.push(bytes, events)?,
            Self::AwsEvents(parser) => parser.push(bytes, events)?,
            Self::Lines(line) => {
                for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if line.len() + part.len() > EVENT_LIMIT {
                        return Err(EventTooLarge(EVENT_LIMIT).into());
                    }
                    line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        events.push(SseEvent::of_data(mem::take(line)));
                    }
                }
            }
        }
        Ok(())
    }
}
