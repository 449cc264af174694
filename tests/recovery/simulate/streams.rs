//! Whether streams hold, as far as it is visible from outside.

use outlast_core::recovery::{ConnectionChoice, ErrorClass, Failure, FailureStage, ReplyMode};

/// Whether streams hold at the place that is asked.
#[derive(Default)]
pub(super) struct Streams {
    /// Reply mode and connection of the last request.
    pub(super) asked: Option<(ReplyMode, ConnectionChoice)>,
    /// Broken streams in a row.
    torn: u8,
    /// Replies that are not to stream, the one at hand included.
    pub(super) whole: u8,
}

/// After two broken streams the next attempt does not stream, nor do ten more turns.
const TORN: u8 = 2;
const WHOLE: u8 = 11;

impl Streams {
    /// A request failed.
    pub(super) fn fail(&mut self, failure: Failure) {
        let Some((mode, connection)) = self.asked else { return };
        let streamed = matches!(failure.stage, FailureStage::Stream | FailureStage::Block);
        let stale = failure.stage == FailureStage::StaleConnection
            && connection == ConnectionChoice::Pooled;
        let lost = failure.class == ErrorClass::ConnectionError;
        let of_the_wire = matches!(
            failure.class,
            ErrorClass::ApiTimeout | ErrorClass::StreamStalled | ErrorClass::BadResponse
        ) || (lost && !stale && failure.stage != FailureStage::Unsent);
        if mode == ReplyMode::Whole {
            self.whole = if of_the_wire { 0 } else { self.whole };
            return;
        }
        if streamed {
            self.torn = if of_the_wire { self.torn + 1 } else { 0 };
        }
        if self.torn == TORN {
            (self.torn, self.whole) = (TORN - 1, WHOLE);
        }
    }

    /// A reply came.
    pub(super) fn hold(&mut self) {
        if self.whole == 0 {
            self.torn = 0;
        }
    }
}
