//! The root message: the first message of a compacted conversation, and its parser.
//!
//! Its parts are separate blocks between fixed markers, so that the next compaction finds the
//! original task and summaries do not nest.

use std::slice;

use super::super::{Block, Message, Role};
use super::facts::WorkFacts;

const TASK: &str = "[outlast] This conversation grew too long, so its earlier part was replaced \
                    by a summary. The task, word for word:";
const LATER: &str = "[outlast] The messages to you after that, word for word, oldest first:";
const CURRENT: &str = "[outlast] The latest message to you, word for word:";
const SUMMARY: &str = "[outlast] Summary of the work so far:";
const FACTS: &str = "[outlast] Recorded by the program, and right where the summary differs: \
                     open to-dos; files touched, the latest last; the latest failures, which may \
                     have been solved since:";
const FILES: &str = "[outlast] Files worked on lately, as they are now:";
const CONTINUE: &str = "[outlast] The latest messages follow as they were. Go on with the task from \
                     there. Do not start over, and do not repeat what is done.";

/// The parsed content of a root message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ConversationRoot {
    pub(super) task: Vec<Block>,
    /// Later user messages, oldest first.
    pub(super) later: Vec<String>,
    /// The latest prompt, after the task: usually the current one.
    pub(super) current: Vec<Block>,
    pub(super) summary: String,
    pub(super) facts: WorkFacts,
    /// File contents, one text each.
    pub(super) files: Vec<String>,
}

/// True if this is a root message made by a compaction.
pub(in super::super) fn is_root(message: &Message) -> bool {
    message.role == Role::User && message.content.first().and_then(Block::as_text) == Some(TASK)
}

/// The summary in a root message. `None` for another message.
pub fn summary_of(message: &Message) -> Option<String> {
    is_root(message).then(|| ConversationRoot::parse(slice::from_ref(message)).summary)
}

/// The blocks that were added to the first message after the compaction that made it.
pub(super) fn added_to(root: &Message) -> &[Block] {
    let end = root.content.iter().position(|block| block.as_text() == Some(CONTINUE));
    end.filter(|_| is_root(root)).map_or(&[], |end| &root.content[end + 1..])
}

/// The section of a root message.
#[derive(Clone, Copy, PartialEq)]
enum RootPart {
    Task,
    Later,
    Current,
    Summary,
    Facts,
    Files,
    /// Blocks added to the message after the compaction.
    Added,
}

impl RootPart {
    fn from_marker(block: &Block) -> Option<Self> {
        Some(match block.as_text()? {
            LATER => Self::Later,
            CURRENT => Self::Current,
            SUMMARY => Self::Summary,
            FACTS => Self::Facts,
            FILES => Self::Files,
            CONTINUE => Self::Added,
            _ => return None,
        })
    }
}

impl ConversationRoot {
    /// Parses the first message. Without a compaction it is the task.
    pub(super) fn parse(messages: &[Message]) -> Self {
        let Some(first) = messages.first().filter(|first| first.role == Role::User) else {
            return Self::default();
        };
        if !is_root(first) {
            return Self { task: first.content.clone(), ..Self::default() };
        }
        let (mut root, mut part) = (Self::default(), RootPart::Task);
        for block in &first.content[1..] {
            if let Some(next) = RootPart::from_marker(block).filter(|_| part != RootPart::Added) {
                part = next;
                continue;
            }
            match (part, block.as_text()) {
                (RootPart::Task, _) => root.task.push(block.clone()),
                (RootPart::Later, Some(text)) => root.later.push(text.to_owned()),
                (RootPart::Current, _) => root.current.push(block.clone()),
                (RootPart::Summary, Some(text)) => root.summary.push_str(text),
                (RootPart::Facts, Some(text)) => root.facts = WorkFacts::parse(text),
                (RootPart::Files, Some(text)) => root.files.push(text.to_owned()),
                // Blocks of other messages: see `added_to`.
                (RootPart::Added, _) | (_, None) => {}
            }
        }
        root
    }

    /// All blocks except those of the task and the current prompt.
    pub(super) fn all_but_prompts(&self) -> Vec<Block> {
        self.content(&[], &[])
    }

    pub(super) fn into_message(self) -> Message {
        Message::user(self.content(&self.task, &self.current))
    }

    fn content(&self, task: &[Block], current: &[Block]) -> Vec<Block> {
        let mut content = vec![Block::text(TASK)];
        content.extend_from_slice(task);
        let mut section = |marker: &str, blocks: &mut dyn Iterator<Item = Block>| {
            let is_blank =
                |block: &Block| block.as_text().is_some_and(|text| text.trim().is_empty());
            let mut blocks = blocks.filter(|block| !is_blank(block)).peekable();
            if blocks.peek().is_some() {
                content.push(Block::text(marker));
                content.extend(blocks);
            }
        };
        section(LATER, &mut self.later.iter().map(Block::text));
        section(CURRENT, &mut current.iter().cloned());
        section(SUMMARY, &mut [&self.summary].into_iter().map(Block::text));
        section(FACTS, &mut self.facts.to_json().into_iter().map(Block::text));
        section(FILES, &mut self.files.iter().map(Block::text));
        content.push(Block::text(CONTINUE));
        content
    }
}
