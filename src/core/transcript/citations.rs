//! Citations of documents: the service accepts them for all documents of a request, or for none.

use std::slice;

use super::{Block, Message};

/// The field of a document that asks for citations.
const CITATIONS: &str = "citations";

/// True if some documents have citations and others have none.
pub fn has_uneven_citations(messages: &[Message]) -> bool {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let parts = |block| Block::as_result(block).unwrap_or(slice::from_ref(block));
    let mut cited = blocks.flat_map(parts).filter_map(cites);
    cited.next().is_some_and(|first| cited.any(|other| other != first))
}

/// True if a document has citations. `None` for other blocks.
fn cites(block: &Block) -> Option<bool> {
    let Block::Document { others, .. } = block else { return None };
    Some(others.get(CITATIONS).is_some_and(|citations| citations["enabled"] == true))
}

/// Removes the citations of all documents. Only documents of the user have citations.
pub fn drop_citations(messages: &mut [Message]) {
    for block in messages.iter_mut().flat_map(|message| &mut message.content) {
        if let Block::Document { others, .. } = block {
            others.remove(CITATIONS);
        }
    }
}
