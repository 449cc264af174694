//! Plans the position at which a compaction cuts the conversation.

use super::super::measure::ContentSize;
use super::super::{Message, Role, TokenDensity};
use super::prompts::{ProgramTexts, prompt_in};
use super::root::ConversationRoot;

/// Minimum size of the older part, in tokens. For less, a compaction is not worth a call: the text
/// around the summary takes a third of it.
const OLDER_MIN: u64 = 1_000;

/// The cut of a conversation, valid for the messages it was planned with. The kept part begins with
/// a model reply, so that no call is separated from its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutPoint {
    from: usize,
    pub(super) room: u64,
    pub(super) density: TokenDensity,
}

impl CutPoint {
    /// The messages to summarise, including the task.
    pub fn older<'a>(&self, messages: &'a [Message]) -> &'a [Message] {
        &messages[..self.from.min(messages.len())]
    }

    /// The messages that are kept unchanged.
    pub fn kept<'a>(&self, messages: &'a [Message]) -> &'a [Message] {
        &messages[self.from.min(messages.len())..]
    }

    pub(super) fn from(&self) -> usize {
        self.from
    }
}

/// Cuts `messages` so that the latest rounds, at most a quarter of `room` or of the total, are
/// kept; the very last round always is. `room` is the number of tokens for messages: the threshold
/// minus the system prompt and tools.
///
/// `None` if the older part is not worth a summary. Then only [`super::shrink`] can help.
pub fn plan(messages: &[Message], room: u64, density: TokenDensity) -> Option<CutPoint> {
    // Each message is measured once: this runs before every request when the window is nearly full.
    let sizes: Vec<ContentSize> =
        messages.iter().map(|message| ContentSize::of(&message.content)).collect();
    let estimate = |part: &[ContentSize]| {
        let sum = part.iter().copied().fold(ContentSize::default(), ContentSize::plus);
        sum.estimate_tokens(density)
    };
    let budget = room.min(estimate(&sizes)) / 4;
    let starts = messages.iter().enumerate().filter(|(_, m)| m.role == Role::Assistant);
    let mut from = messages.len();
    let mut kept = 0_u64;
    for (start, _) in starts.rev() {
        kept = kept.saturating_add(estimate(&sizes[start..from]));
        if from < messages.len() && kept > budget {
            break;
        }
        from = start;
    }
    let cut = CutPoint { from, room, density };
    let older = cut.older(messages);
    let verbatim = verbatim_part(older, room, density);
    let is_worthwhile = estimate(&sizes[..older.len()]).saturating_sub(verbatim) >= OLDER_MIN;
    (is_worthwhile && from < messages.len()).then_some(cut)
}

/// The number of tokens that the task and the latest prompt of `older` take, which a compaction
/// keeps. A text of this program in place of the prompt is small.
fn verbatim_part(older: &[Message], room: u64, density: TokenDensity) -> u64 {
    let ConversationRoot { task, current, .. } = ConversationRoot::parse(older);
    let rounds = older.iter().skip(1).rev().filter(|message| message.role == Role::User);
    let mut prompts = rounds.map(|message| prompt_in(&message.content, ProgramTexts::default()));
    let latest = prompts.find(|prompt| !prompt.is_empty()).unwrap_or(current);
    density.of_blocks(&task).saturating_add(density.of_blocks(&latest).min(room / 2))
}
