//! Rebuilds the conversation after a compaction.

use std::collections::VecDeque;
use std::slice;

use super::super::excerpt::{EXCERPT_MIN, excerpt, excerpt_within, fair_share};
use super::super::{Block, Message, Role};
use super::CutPoint;
use super::facts::RESTORED_FILES;
use super::root::ConversationRoot;
use super::shrink::cut_results;

/// Token limits for one file and for all files, and the share of the room that they may take in a
/// small window.
const RESTORED_EACH: u64 = 5_000;
const RESTORED_ALL: u64 = 25_000;
const RESTORED_SHARE: u64 = 8;
/// Minimum size of a restored file, in tokens.
const RESTORED_LEAST: u64 = 300;
/// The shares of the room for the task and for later user messages. A larger task loses its middle,
/// and the oldest later messages are dropped. Otherwise the task is never changed.
const TASK_SHARE: u64 = 2;
const LATER_SHARE: u64 = 8;
const NO_SUMMARY: &str = "(There is none.)";
/// Overhead of a section, in bytes: its marker, and the overhead of two blocks in the service.
const SECTION: u64 = 400;

/// The inputs of a compaction that the caller provides.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionInputs<'a> {
    /// Files read again from disk, in the order of [`super::recently_read`].
    pub restored: &'a [RestoredFile],
    /// Texts in the user's messages that this program wrote, such as nudges.
    pub own_texts: &'a [&'a str],
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

/// Replaces the older part by a root message: the task verbatim, later user messages, `summary`,
/// the facts, the files; then the kept rounds. The root never exceeds the part it replaces; if
/// necessary, first the files are cut, then the summary. If all of it exceeds three quarters of the
/// room, the results of the kept rounds are cut too: otherwise the next turn would compact again.
pub fn rebuild(
    mut messages: Vec<Message>,
    cut: &CutPoint,
    summary: &str,
    carried: &CompactionInputs<'_>,
) -> Vec<Message> {
    let mut kept = messages.split_off(cut.from().min(messages.len()));
    let root = build_root(&messages, &kept, cut, summary, carried).into_message();
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
    carried: &CompactionInputs<'_>,
) -> ConversationRoot {
    let density = cut.density;
    let mut root = ConversationRoot::parse(older);
    let taken_away = density.of(older).saturating_sub(density.of_blocks(&root.task));
    shorten_task(&mut root.task, cut);
    root.later.extend(later_texts(&older[1.min(older.len())..]));
    root.later.retain(|text| !carried.own_texts.iter().any(|own| text.starts_with(own)));
    root.later = newest_within(root.later, saturating_usize(density.bytes(cut.room / LATER_SHARE)));
    root.facts = root
        .facts
        .with_facts_of(older, kept)
        .shrink_to(saturating_usize(density.bytes(taken_away / 2)));
    root.summary.clear();
    root.files.clear();
    let frame = density.tokens(SECTION);
    let left = |root: &ConversationRoot| {
        taken_away.saturating_sub(density.of_blocks(&root.all_but_task())).saturating_sub(frame)
    };
    let summary = Some(summary.trim()).filter(|summary| !summary.is_empty()).unwrap_or(NO_SUMMARY);
    root.summary = excerpt_within(summary, left(&root), density);
    root.files = restore_files(carried.restored, left(&root), cut);
    root
}

fn saturating_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn shorten_task(task: &mut [Block], cut: &CutPoint) {
    let most = cut.room / TASK_SHARE;
    let size = cut.density.of_blocks(task.iter());
    if size <= most {
        return;
    }
    let texts = task.iter().filter_map(Block::as_text);
    let sizes: Vec<u64> = texts.map(|text| cut.density.of_text(text)).collect();
    let others = size.saturating_sub(sizes.iter().copied().fold(0, u64::saturating_add));
    let share = fair_share(sizes, most.saturating_sub(others));
    for block in task {
        if let Block::Text { text } = block {
            *text = excerpt_within(text, share, cut.density);
        }
    }
}

/// The user texts in messages without tool results.
fn later_texts(rounds: &[Message]) -> impl Iterator<Item = String> {
    let user_messages = rounds.iter().filter(|message| {
        let answers = |block: &Block| matches!(block, Block::ToolResult { .. });
        message.role == Role::User && !message.content.iter().any(answers)
    });
    user_messages
        .flat_map(|message| message.content.iter().filter_map(Block::as_text))
        .map(str::to_owned)
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
        let around = cut.density.of_blocks([&Block::text(heading.as_str())]);
        let room = left.min(RESTORED_EACH).saturating_sub(around);
        if room < RESTORED_LEAST {
            break;
        }
        let content = excerpt_within(&file.content, room, cut.density);
        left = left.saturating_sub(around + cut.density.of_text(&content));
        texts.push(heading + &content);
    }
    texts
}
