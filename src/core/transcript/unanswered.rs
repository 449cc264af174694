//! Shortens prompts that did not fit the context window.

use super::message::{Block, Message, Role};

/// A text of at most this length stays, in bytes.
const STAYS: usize = 4_000;

/// The length of the beginning that stays of a longer one, in bytes.
const BEGINNING: usize = 2_000;

/// Returns the user's messages at the end of the conversation, which have no reply.
pub fn unanswered(messages: &[Message]) -> &[Message] {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
    &messages[answered.map_or(0, |index| index + 1)..]
}

/// Replaces the long texts in the user's messages without a reply by their beginning and a notice.
/// Returns true if there was one.
pub fn shorten_unanswered(messages: &mut [Message]) -> bool {
    let from = messages.len() - unanswered(messages).len();
    let blocks = messages[from..].iter_mut().flat_map(|message| &mut message.content);
    let mut is_shortened = false;
    for block in blocks {
        let Block::Text { text } = block else { continue };
        if text.len() <= STAYS {
            continue;
        }
        let beginning = text.floor_char_boundary(BEGINNING);
        *text = format!(
            "{}\n\n[{} further bytes of this text are left out: it did not fit the context window, \
             so you have not read it.]",
            &text[..beginning],
            text.len() - beginning
        );
        is_shortened = true;
    }
    is_shortened
}
