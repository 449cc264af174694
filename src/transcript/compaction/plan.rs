//! Where a conversation is cut.

use super::super::measure::ContentSize;
use super::super::{TokenDensity, Message, Role};
use super::root::ConversationRoot;

/// An older part smaller than this, in tokens, is not worth a call: the frame around its summary
/// takes a third of it.
const OLDER_MIN: u64 = 1_000;

/// Where a conversation is cut, for the messages that it was planned with. What follows the cut
/// begins with a reply of the model's, so that no call is parted from its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPoint {
    from: usize,
    pub(super) room: u64,
    pub(super) density: TokenDensity,
}

impl CutPoint {
    /// What is to be summarised, the task included.
    pub fn older<'a>(&self, messages: &'a [Message]) -> &'a [Message] {
        &messages[..self.from.min(messages.len())]
    }

    /// What stays whole.
    pub fn kept<'a>(&self, messages: &'a [Message]) -> &'a [Message] {
        &messages[self.from.min(messages.len())..]
    }

    pub(super) fn from(&self) -> usize {
        self.from
    }
}

/// Cuts `messages` so that the latest rounds, at most a quarter of `room` or of what there is,
/// stay whole; the very last always does. `room` is the number of tokens that messages may have:
/// the threshold less the system prompt and the tools.
///
/// `None` when what came before is not worth a summary. Then only [`super::shrink`] can help.
pub fn plan(messages: &[Message], room: u64, density: TokenDensity) -> Option<CutPoint> {
    // Each message is measured once: this is asked before every request when room is short.
    let sizes: Vec<ContentSize> = messages.iter().map(|message| ContentSize::of(&message.content)).collect();
    let guess =
        |part: &[ContentSize]| part.iter().copied().fold(ContentSize::default(), ContentSize::plus).estimate_tokens(density);
    let budget = room.min(guess(&sizes)) / 4;
    let starts = messages.iter().enumerate().filter(|(_, m)| m.role == Role::Assistant);
    let mut from = messages.len();
    let mut kept = 0_u64;
    for (start, _) in starts.rev() {
        kept = kept.saturating_add(guess(&sizes[start..from]));
        if from < messages.len() && kept > budget {
            break;
        }
        from = start;
    }
    let cut = CutPoint { from, room, density };
    let older = cut.older(messages);
    let task = density.of_blocks(&ConversationRoot::parse(older).task);
    let worth = guess(&sizes[..older.len()]).saturating_sub(task) >= OLDER_MIN;
    (worth && from < messages.len()).then_some(cut)
}
