//! Where a conversation is cut.

use super::super::measure::Size;
use super::super::{Density, Message, Role};
use super::root::Root;

/// An older part smaller than this, in tokens, is not worth a call: the frame around its summary
/// takes a third of it.
const OLDER_MIN: u64 = 1_000;

/// Where a conversation is cut, for the messages that it was planned with. What follows the cut
/// begins with a reply of the model's, so that no call is parted from its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    from: usize,
    pub(super) room: u64,
    pub(super) density: Density,
}

impl Cut {
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
pub fn plan(messages: &[Message], room: u64, density: Density) -> Option<Cut> {
    // Each message is measured once: this is asked before every request when room is short.
    let sizes: Vec<Size> = messages.iter().map(|message| Size::of(&message.content)).collect();
    let guess =
        |part: &[Size]| part.iter().copied().fold(Size::default(), Size::plus).guess(density);
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
    let cut = Cut { from, room, density };
    let older = cut.older(messages);
    let task = density.of_blocks(&Root::of(older).task);
    let worth = guess(&sizes[..older.len()]).saturating_sub(task) >= OLDER_MIN;
    (worth && from < messages.len()).then_some(cut)
}
