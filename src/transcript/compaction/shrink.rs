//! Cuts tool results down when even the latest round is too large for the window.

use super::super::dealings::stub;
use super::super::excerpt::{EXCERPT_MIN, excerpt, fair_share};
use super::super::{Block, Density, Message, Role};

/// Cuts the results of the last round so that it takes at most half of `room` tokens, as far as
/// results can give that: small ones stay whole, large ones lose their middle. For a round that
/// no summary can help. Returns about how many tokens were freed; 0 when nothing was changed.
pub fn shrink(messages: &mut [Message], room: u64, density: Density) -> u64 {
    let last = messages.iter().rposition(|message| message.role == Role::Assistant);
    let before = density.of(messages);
    if let Some(last) = last {
        squeeze(&mut messages[last..], room / 2, density);
    }
    before.saturating_sub(density.of(messages))
}

/// Cuts the results in `messages` until all of it takes at most `limit` tokens, or until they
/// cannot be cut any more.
pub(super) fn squeeze(messages: &mut [Message], limit: u64, density: Density) {
    if density.of(messages) <= limit {
        return;
    }
    let lengths: Vec<usize> = texts(messages).map(|text| text.len()).collect();
    let text = lengths.iter().map(|length| u64::try_from(*length).unwrap_or(u64::MAX));
    let text = density.tokens(text.fold(0, u64::saturating_add));
    let others = density.of(messages).saturating_sub(text);
    if others > limit {
        drop_media(messages);
    }
    let room = density.bytes(limit.saturating_sub(others));
    let share = fair_share(lengths, usize::try_from(room).unwrap_or(usize::MAX)).max(EXCERPT_MIN);
    for text in texts(messages).filter(|text| text.len() > share) {
        *text = excerpt(text, share);
    }
}

/// Everything between the calls' ids and the ends of their results.
fn result_blocks(messages: &mut [Message]) -> impl Iterator<Item = &mut Block> {
    let blocks = messages.iter_mut().flat_map(|message| &mut message.content);
    let contents = blocks.filter_map(|block| match block {
        Block::ToolResult { content, .. } => Some(content),
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => None,
    });
    contents.flatten()
}

fn texts(messages: &mut [Message]) -> impl Iterator<Item = &mut String> {
    result_blocks(messages)
        .filter_map(|block| if let Block::Text { text } = block { Some(text) } else { None })
}

fn drop_media(messages: &mut [Message]) {
    for block in result_blocks(messages) {
        if let Some(stub) = stub(block) {
            *block = Block::text(stub);
        }
    }
}
