//! Shortens prompts that did not fit the context window.

use super::message::{Block, Message, Role};

/// Maximum length of a text that is kept whole, in bytes.
const WHOLE_MAX: usize = 4_000;

/// Length of the kept beginning of a longer text, in bytes.
const BEGINNING: usize = 2_000;

/// Returns the user's messages at the end of the conversation, which have no reply.
pub fn unanswered(messages: &[Message]) -> &[Message] {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
    &messages[answered.map_or(0, |index| index + 1)..]
}

/// Replaces the long texts in the user's messages without a reply by their beginning and a notice.
/// Returns true if a text was long.
pub fn shorten_unanswered(messages: &mut [Message]) -> bool {
    let from = messages.len() - unanswered(messages).len();
    let mut is_shortened = false;
    for block in messages[from..].iter_mut().flat_map(|message| &mut message.content) {
        let Block::Text { text } = block else { continue };
        if text.len() <= WHOLE_MAX {
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
