//! Notes that this program writes into a conversation and recognises there again.

use std::fmt::Display;

use super::Block;

/// The beginning of a command's output, unless its exit code is 0.
const EXIT_CODE: &str = "Exit code ";

/// The common part of the notes for images and documents.
const LEFT_OUT: &str = "was here and is left out: the service would not take the request with it.";

const REMOVED_BLOCK: &str = "[Taken out by outlast: content that the service could not take. What \
    is needed of it must be found out again.]";

/// The first line of the output of a command that did not succeed.
pub fn exit_note(code: impl Display) -> String {
    format!("{EXIT_CODE}{code}")
}

/// The exit code in an [`exit_note`], with the text after the code.
pub(super) fn noted_exit_code(line: &str) -> Option<&str> {
    line.strip_prefix(EXIT_CODE)
}

/// The note in place of an image or document. `advice` describes an alternative.
pub(super) fn media_note(medium: &str, advice: &str) -> Block {
    Block::text(format!("[{medium} {LEFT_OUT} {advice}]"))
}

/// The note in place of any other removed block.
pub(super) fn block_note() -> Block {
    Block::text(REMOVED_BLOCK)
}

/// True if a text is the note of a removal, so that notes are not replaced by further ones.
pub(super) fn is_removal_note(text: &str) -> bool {
    text == REMOVED_BLOCK || (text.starts_with('[') && text.contains(LEFT_OUT))
}
