//! Content that was added since the last answer. The request before was accepted, so this content
//! is the likely cause if the service refuses the longer request for a reason that is not
//! recognised.

use super::compaction::{can_shrink, shrink};
use super::excerpt::EXCERPT_MIN;
use super::media::{StripTarget, has_media, strip_media};
use super::{Block, Message, TokenDensity, unanswered};

/// A part of the added content that a request can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedContent {
    /// Images and documents, which services refuse more often than texts.
    Media,
    /// Three quarters of the results of the last tool calls, since the request may be too long.
    LongResults,
}

impl AddedContent {
    /// Returns the next part that a request can be tried without, after it was tried without the
    /// parts up to `tried`. `None` if there is no further part.
    pub fn next_after(
        tried: Option<Self>,
        messages: &[Message],
        density: TokenDensity,
    ) -> Option<Self> {
        let added = unanswered(messages);
        let can_shrink = has_long_result(added)
            && can_shrink(messages, half_of_round(messages, density), density);
        let media = has_media(added).then_some(Self::Media);
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
                shrink(messages, half_of_round(messages, density), density);
            }
        }
    }
}

/// True if a tool result has a text that [`shrink`] would cut. Media alone are not a reason:
/// `shrink` would replace them, too.
fn has_long_result(messages: &[Message]) -> bool {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let mut texts = blocks.filter_map(Block::as_result).flatten().filter_map(Block::as_text);
    texts.any(|text| text.len() > 2 * EXCERPT_MIN)
}

/// Half of the size of the last round, in tokens. [`shrink`] fills half of the given room, so a
/// quarter of the round is left.
fn half_of_round(messages: &[Message], density: TokenDensity) -> u64 {
    density.of(unanswered(messages)) / 2
}
