//! The prompts of the user in the older part of a conversation.

use std::mem;

use super::super::{Block, Message, Role};
use super::root::{ConversationRoot, added_to};

/// The beginnings of texts in the user's messages that this program wrote.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramTexts<'a> {
    /// The beginnings of texts that do not belong to a prompt, such as nudges.
    pub own: &'a [&'a str],
    /// The beginnings of texts that are kept with the prompt that they follow, such as messages of
    /// hooks.
    pub notes: &'a [&'a str],
}

/// Adds the prompts of `older`. The latest one is the current one, unless the kept part has a later
/// one.
pub(super) fn collect_prompts(
    root: &mut ConversationRoot,
    older: &[Message],
    kept: &[Message],
    texts: ProgramTexts<'_>,
) {
    let Some((first, rounds)) = older.split_first() else { return };
    let prompt = |message: &Message| match message.role {
        Role::User => prompt_in(&message.content, texts),
        Role::Assistant => Vec::new(),
    };
    let added = prompt_in(added_to(first), texts);
    let later = std::iter::once(added).chain(rounds.iter().map(prompt));
    for prompt in later.filter(|prompt| !prompt.is_empty()) {
        root.later.extend(texts_of(mem::replace(&mut root.current, prompt)));
    }
    if kept.iter().any(|message| !prompt(message).is_empty()) {
        root.later.extend(texts_of(mem::take(&mut root.current)));
    }
    let is_of_user = |text: &String| !is_text_of(texts.own, text) && !is_text_of(texts.notes, text);
    root.later.retain(is_of_user);
}

/// The blocks of a user message that the user wrote, beside results of tools, with the notes that
/// follow them.
pub(super) fn prompt_in(content: &[Block], texts: ProgramTexts<'_>) -> Vec<Block> {
    let is_of_user = |block: &&Block| match block {
        Block::Text { text } => !text.trim().is_empty() && !is_text_of(texts.own, text),
        Block::Image { .. } | Block::Document { .. } => true,
        Block::ToolResult { .. }
        | Block::ToolUse { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::Other(_) => false,
    };
    let is_note =
        |block: &&Block| block.as_text().is_some_and(|text| is_text_of(texts.notes, text));
    content.iter().filter(is_of_user).skip_while(is_note).cloned().collect()
}

fn is_text_of(beginnings: &[&str], text: &str) -> bool {
    beginnings.iter().any(|beginning| text.starts_with(beginning))
}

fn texts_of(prompt: Vec<Block>) -> impl Iterator<Item = String> {
    prompt.into_iter().filter_map(
        |block| {
            if let Block::Text { text } = block { Some(text) } else { None }
        },
    )
}
