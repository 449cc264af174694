//! Shrinks tool results when even the latest round exceeds the window.

use super::super::excerpt::{EXCERPT_MIN, excerpt_within, fair_share};
use super::super::tool_exchanges::placeholder;
use super::super::{Block, Message, Role, TokenDensity};

/// Cuts the results of the last round so that it takes at most half of `room` tokens, as far as
/// possible: small results stay whole, large ones lose their middle. Used when a summary cannot
/// help. Returns the approximate number of freed tokens; 0 if nothing was changed.
pub fn shrink(messages: &mut [Message], room: u64, density: TokenDensity) -> u64 {
    let start = last_round(messages);
    let round = &mut messages[start..];
    let before = density.of(round);
    cut_results(round, room / 2, density);
    before.saturating_sub(density.of(round))
}

/// True if [`shrink`] would change anything.
pub fn can_shrink(messages: &[Message], room: u64, density: TokenDensity) -> bool {
    plan_cuts(&messages[last_round(messages)..], room / 2, density).is_some()
}

/// The start of the last round: the last model reply.
fn last_round(messages: &[Message]) -> usize {
    let last = messages.iter().rposition(|message| message.role == Role::Assistant);
    last.unwrap_or(messages.len())
}

/// The cuts that make a round small enough.
struct RoundShrink {
    /// The maximum for one text, in tokens.
    share: u64,
    without_media: bool,
}

/// Cuts the results in `messages` until the messages take at most `limit` tokens, or cannot be cut
/// further.
pub(super) fn cut_results(messages: &mut [Message], limit: u64, density: TokenDensity) {
    let Some(RoundShrink { share, without_media }) = plan_cuts(messages, limit, density) else {
        return;
    };
    for block in messages.iter_mut().flat_map(|message| &mut message.content) {
        let Block::ToolResult { content, .. } = block else { continue };
        for block in content {
            match (placeholder(block), block) {
                (_, Block::Text { text }) if is_too_long(text, share, density) => {
                    *text = excerpt_within(text, share, density);
                }
                (Some(stub), block) if without_media => *block = Block::text(stub),
                (_, _) => {}
            }
        }
    }
}

/// Plans the cuts. `None` if no cut is necessary or possible.
fn plan_cuts(messages: &[Message], limit: u64, density: TokenDensity) -> Option<RoundShrink> {
    let all = density.of(messages);
    if all <= limit {
        return None;
    }
    let blocks = messages.iter().flat_map(|message| &message.content);
    let blocks: Vec<&Block> = blocks.filter_map(Block::as_result).flatten().collect();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.as_text()).collect();
    let sizes: Vec<u64> = texts.iter().map(|text| density.of_text(text)).collect();
    let others = all.saturating_sub(sizes.iter().copied().fold(0, u64::saturating_add));
    let without_media = others > limit && blocks.iter().any(|block| placeholder(block).is_some());
    let share = fair_share(sizes, limit.saturating_sub(others));
    let helps = without_media || texts.iter().any(|text| is_too_long(text, share, density));
    helps.then_some(RoundShrink { share, without_media })
}

/// True if cutting `text` to its share makes it shorter by more than the note of the cut.
fn is_too_long(text: &str, share: u64, density: TokenDensity) -> bool {
    text.len() > 2 * EXCERPT_MIN && density.of_text(text) > share
}
