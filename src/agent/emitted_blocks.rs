//! Blocks that are reported while a reply streams, each under the id of its line in the transcript.

use std::sync::Arc;

use uuid::Uuid;

use crate::transcript::{Block, Message, is_portable_id};

use super::messages::knows_call;

/// The blocks of the streaming reply that were reported.
#[derive(Debug, Default)]
pub(super) struct EmittedBlocks {
    blocks: Vec<(Arc<Block>, Uuid)>,
    /// Calls that were given another id: the old one and the new one.
    renamed: Vec<(String, String)>,
    /// True if thinking without a signature does not enter the history.
    pub(super) drops_unsigned: bool,
    /// True if calls enter the history without fields that only some services accept.
    pub(super) makes_portable: bool,
}

impl EmittedBlocks {
    /// Records a block in the form in which it will enter the history, with its id. `None`: the
    /// block will not enter the history.
    pub(super) fn add(&mut self, block: &Block, history: &[Message]) -> Option<(Arc<Block>, Uuid)> {
        if self.drops_unsigned && block.is_unsigned_thinking() {
            return None;
        }
        let mut block = block.clone();
        if let Block::ToolUse { id, others, .. } = &mut block {
            if self.makes_portable {
                others.clear();
            }
            if knows_call(history, id) || (self.makes_portable && !is_portable_id(id)) {
                let new = fresh_call_id();
                self.renamed.push((std::mem::replace(id, new.clone()), new));
            }
        }
        let (block, id) = (Arc::new(block), Uuid::new_v4());
        self.blocks.push((Arc::clone(&block), id));
        Some((block, id))
    }

    /// Returns the new id of a call whose own id was used before.
    pub(super) fn new_name(&self, call: &str) -> String {
        let renamed = self.renamed.iter().find(|(old, _)| old == call);
        renamed.map_or_else(fresh_call_id, |(_, new)| new.clone())
    }

    /// Returns the ids of a reply's blocks: those that were reported, and new ones for the rest.
    /// Reported blocks that are not in the reply stay recorded.
    pub(super) fn ids_of(&mut self, reply: &[Block]) -> Vec<Uuid> {
        let id = |block: &Block| {
            let index = self.blocks.iter().position(|(known, _)| **known == *block);
            index.map_or_else(Uuid::new_v4, |index| self.blocks.remove(index).1)
        };
        reply.iter().map(id).collect()
    }

    /// Forgets all blocks, and returns the ids of those that are in no message.
    pub(super) fn forget(&mut self) -> Vec<Uuid> {
        self.renamed.clear();
        self.blocks.drain(..).map(|(_, id)| id).collect()
    }
}

/// A new id for a tool call.
pub(super) fn fresh_call_id() -> String {
    format!("toolu_{}", Uuid::new_v4().simple())
}
