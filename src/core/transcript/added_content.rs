//! Content that was added since the last answer. The request before was accepted, so this content is
//! suspect if the service refuses the longer request for no reason that is recognised.

use super::compaction::{can_shrink, shrink};
use super::media::{StripTarget, has_media, strip_media};
use super::{Message, TokenDensity, unanswered};

/// A part of the added content that a request can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedContent {
    /// Images and documents: more of them are refused than texts.
    Media,
    /// Three quarters of the results of the last tool calls: the request may be too long.
    LongResults,
}

impl AddedContent {
    /// Returns the next part that a request can be tried without, after it was tried without the
    /// parts up to `tried`. `None` if there is no other one.
    pub fn next_after(
        tried: Option<Self>,
        messages: &[Message],
        density: TokenDensity,
    ) -> Option<Self> {
        let has_media = has_media(unanswered(messages));
        let can_shrink = can_shrink(messages, half_of_round(messages, density), density);
        let media = has_media.then_some(Self::Media);
        let results = can_shrink.then_some(Self::LongResults);
        match tried {
            None => media.or(results),
            Some(Self::Media) => results,
            Some(Self::LongResults) => None,
        }
    }

    /// Removes this part of the added content.
    pub fn remove_from(self, messages: &mut [Message], density: TokenDensity) {
        match self {
            Self::Media => {
                let message = messages.len() - unanswered(messages).len();
                strip_media(messages, StripTarget::From { message });
            }
            Self::LongResults => {
                let room = half_of_round(messages, density);
                shrink(messages, room, density);
            }
        }
    }
}

/// Half of the size of the last round, in tokens: to that room, [`shrink`] leaves a quarter of it.
fn half_of_round(messages: &[Message], density: TokenDensity) -> u64 {
    density.of(unanswered(messages)) / 2
}
