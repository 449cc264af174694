//! Rebuilds the conversation after a compaction.

use std::collections::VecDeque;
use std::slice;

use super::super::excerpt::{EXCERPT_MIN, excerpt, excerpt_within, fair_share};
use super::super::tool_exchanges::placeholder;
use super::super::{Block, Message};
use super::CutPoint;
use super::facts::RESTORED_FILES;
use super::prompts::{ProgramTexts, collect_prompts};
use super::root::ConversationRoot;
use super::shrink::cut_results;

/// Token limits for one file and for all files, and the share of the room that they may take in a
/// small window.
const RESTORED_EACH: u64 = 5_000;
const RESTORED_ALL: u64 = 25_000;
const RESTORED_SHARE: u64 = 8;
/// Minimum size of a restored file, in tokens.
const RESTORED_LEAST: u64 = 300;
/// The share of the room for the task and the current prompt together, and the part of it that the
/// task has in any case. A larger one loses its middle. Otherwise they are never changed.
const PROMPTS_SHARE: u64 = 2;
const TASK_LEAST: u64 = 8;
/// The share of the room for the other user messages, and the share for those messages and the
/// current prompt together, which may only ask the model to go on. The oldest messages are dropped.
const LATER_SHARE: u64 = 8;
const LATER_PROMPTS_SHARE: u64 = 4;
const NO_SUMMARY: &str = "(There is none.)";
/// Overhead of a section, in bytes: its marker, and the overhead of two blocks in the service.
const SECTION: u64 = 400;

/// The inputs of a compaction that the caller provides.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionInputs<'a> {
    /// Files read again from disk, in the order of [`super::recently_read`].
    pub restored: &'a [RestoredFile],
    /// Texts in the user's messages that the user did not write.
    pub program_texts: ProgramTexts<'a>,
}

/// The current content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredFile {
    pub path: String,
    pub content: String,
}

/// Maximum number of bytes of one file that should be read again.
pub fn restored_bytes(cut: &CutPoint) -> u64 {
    cut.density.bytes(RESTORED_EACH.min(cut.room / RESTORED_SHARE))
}

/// Replaces the older part by a root message: the task verbatim, later user messages, the latest
/// one verbatim, `summary`, the facts, the files; then the kept rounds. The root never exceeds the
/// part it replaces; if necessary, first the files are cut, then the summary. If the result exceeds
/// three quarters of the room, the results of the kept rounds are cut too: otherwise the next turn
/// would compact again.
pub fn rebuild(
    mut messages: Vec<Message>,
    cut: &CutPoint,
    summary: &str,
    inputs: &CompactionInputs<'_>,
) -> Vec<Message> {
    let mut kept = messages.split_off(cut.from().min(messages.len()));
    let root = build_root(&messages, &kept, cut, summary, inputs).into_message();
    let left = (cut.room / 4 * 3).saturating_sub(cut.density.of(slice::from_ref(&root)));
    cut_results(&mut kept, left.max(cut.room / 4), cut.density);
    let mut messages = vec![root];
    messages.extend(kept);
    messages
}

/// Builds the root for `older`, most important parts first.
fn build_root(
    older: &[Message],
    kept: &[Message],
    cut: &CutPoint,
    summary: &str,
    inputs: &CompactionInputs<'_>,
) -> ConversationRoot {
    let density = cut.density;
    let mut root = ConversationRoot::parse(older);
    collect_prompts(&mut root, older, kept, inputs.program_texts);
    let verbatim = density.of_blocks(root.task.iter().chain(&root.current));
    let taken_away = density.of(older).saturating_sub(verbatim);
    shorten_prompts(&mut root, cut);
    let current = density.of_blocks(&root.current);
    let later = (cut.room / LATER_PROMPTS_SHARE).saturating_sub(current);
    let later = later.max(cut.room / LATER_SHARE);
    root.later = newest_within(root.later, saturating_usize(density.bytes(later)));
    root.facts = root
        .facts
        .with_facts_of(older, kept)
        .shrink_to(saturating_usize(density.bytes(taken_away / 2)));
    root.summary.clear();
    root.files.clear();
    let frame = density.tokens(SECTION);
    let left = |root: &ConversationRoot| {
        taken_away.saturating_sub(density.of_blocks(&root.all_but_prompts())).saturating_sub(frame)
    };
    let summary = Some(summary.trim()).filter(|summary| !summary.is_empty()).unwrap_or(NO_SUMMARY);
    root.summary = excerpt_within(summary, left(&root), density);
    root.files = restore_files(inputs.restored, left(&root), cut);
    root
}

fn saturating_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Shortens the current prompt and the task to their share, which the current prompt may use first.
/// Its media are replaced by notes if they alone exceed the share.
fn shorten_prompts(root: &mut ConversationRoot, cut: &CutPoint) {
    let both = cut.room / PROMPTS_SHARE;
    let task = cut.density.of_blocks(&root.task).min(cut.room / TASK_LEAST);
    let most = both.saturating_sub(task);
    let is_text = |block: &&Block| block.as_text().is_some();
    let media = root.current.iter().filter(|block| !is_text(block));
    if cut.density.of_blocks(media) > most {
        for block in &mut root.current {
            if let Some(stub) = placeholder(block) {
                *block = Block::text(stub);
            }
        }
    }
    shorten_texts(&mut root.current, most, cut);
    let left = both.saturating_sub(cut.density.of_blocks(&root.current));
    shorten_texts(&mut root.task, left.max(cut.room / TASK_LEAST), cut);
}

/// Shortens the texts of a prompt until it takes at most `most` tokens.
fn shorten_texts(prompt: &mut [Block], most: u64, cut: &CutPoint) {
    let size = cut.density.of_blocks(prompt.iter());
    if size <= most {
        return;
    }
    let texts = prompt.iter().filter_map(Block::as_text);
    let sizes: Vec<u64> = texts.map(|text| cut.density.of_text(text)).collect();
    let others = size.saturating_sub(sizes.iter().copied().fold(0, u64::saturating_add));
    let share = fair_share(sizes, most.saturating_sub(others));
    for block in prompt {
        if let Block::Text { text } = block {
            *text = excerpt_within(text, share, cut.density);
        }
    }
}

/// The newest of `texts` that fit in `limit` bytes; a single text that is too long is truncated in
/// its middle.
fn newest_within(texts: Vec<String>, limit: usize) -> Vec<String> {
    let mut left = limit;
    let mut kept = VecDeque::new();
    for text in texts.into_iter().rev() {
        if text.len() > left {
            if kept.is_empty() {
                kept.push_front(excerpt(&text, limit.max(EXCERPT_MIN)));
            }
            break;
        }
        left -= text.len();
        kept.push_front(text);
    }
    kept.into()
}

/// The files that fit in `left` tokens, each cut to its share.
fn restore_files(files: &[RestoredFile], left: u64, cut: &CutPoint) -> Vec<String> {
    let mut left = left.min(RESTORED_ALL).min(cut.room / RESTORED_SHARE);
    let mut texts = Vec::new();
    for file in files.iter().take(RESTORED_FILES) {
        let heading = format!("File {}:\n", file.path);
        let overhead = cut.density.of_blocks([&Block::text(heading.as_str())]);
        let room = left.min(RESTORED_EACH).saturating_sub(overhead);
        if room < RESTORED_LEAST {
            break;
        }
        let content = excerpt_within(&file.content, room, cut.density);
        left = left.saturating_sub(overhead + cut.density.of_text(&content));
        texts.push(heading + &content);
    }
    texts
}
