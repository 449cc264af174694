//! Parses AWS event-stream frames into the events of the Messages API. No I/O.

use std::fmt;

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use aws_smithy_types::str_bytes::StrBytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::sse::{EVENT_LIMIT, SseEvent};

/// Accepts bytes in pieces of any size and returns the events that their frames hold. The checksums
/// of each frame are verified.
#[derive(Default)]
pub struct EventStreamParser {
    decoder: MessageFrameDecoder,
    pending: Vec<u8>,
}

impl fmt::Debug for EventStreamParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStreamParser")
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// A frame that is damaged, too large, or not of the expected format. The rest of the stream cannot
/// be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamagedFrame {
    #[error("a frame of the stream is damaged: {0}")]
    Checksum(String),
    #[error("a frame of the stream has more than {EVENT_LIMIT} bytes")]
    TooLarge,
    #[error("a frame of the stream has no event in it")]
    Content,
}

impl EventStreamParser {
    /// Appends every event that `bytes` complete to `events`.
    ///
    /// # Errors
    /// A frame is damaged.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), DamagedFrame> {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        let ended = loop {
            match self.decoder.decode_frame(&mut rest) {
                Err(error) => break Err(DamagedFrame::Checksum(error.to_string())),
                Ok(DecodedFrame::Incomplete) if rest.len() > EVENT_LIMIT => {
                    break Err(DamagedFrame::TooLarge);
                }
                Ok(DecodedFrame::Incomplete) => break Ok(()),
                Ok(DecodedFrame::Complete(message)) => match event_of(&message) {
                    Ok(event) => events.extend(event),
                    Err(error) => break Err(error),
                },
            }
        };
        self.pending = rest.to_vec();
        ended
    }
}

/// The event in a frame. `None` for a frame of an unknown kind, which is skipped as unknown
/// server-sent events are.
fn event_of(message: &Message) -> Result<Option<SseEvent>, DamagedFrame> {
    let payload = || serde_json::from_slice::<Value>(message.payload()).unwrap_or_default();
    match header(message, ":message-type") {
        Some("exception") => {
            let kind = header(message, ":exception-type").unwrap_or_default();
            let body = payload();
            let text = [&body["message"], &body["Message"], &body["originalMessage"]];
            let text = text.into_iter().find_map(Value::as_str).unwrap_or(kind);
            Ok(Some(error_event(kind, text)))
        }
        Some("error") => {
            let code = header(message, ":error-code").unwrap_or_default();
            Ok(Some(error_event(code, header(message, ":error-message").unwrap_or(code))))
        }
        Some("event") if header(message, ":event-type") == Some("chunk") => {
            let body = payload();
            let bytes = body["bytes"].as_str().and_then(|text| STANDARD.decode(text).ok());
            let data = String::from_utf8(bytes.ok_or(DamagedFrame::Content)?);
            let data = data.map_err(|_| DamagedFrame::Content)?;
            Ok(Some(SseEvent { data, ..SseEvent::default() }))
        }
        Some(_) | None => Ok(None),
    }
}

/// An exception in the form in which the Messages API reports errors within a stream.
fn error_event(kind: &str, message: &str) -> SseEvent {
    let error = json!({ "type": "error", "error": { "type": kind, "message": message } });
    SseEvent { event: "error".to_owned(), data: error.to_string(), ..SseEvent::default() }
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let found = message.headers().iter().find(|header| header.name().as_str() == name)?;
    found.value().as_string().ok().map(StrBytes::as_str)
}
