//! Blocks of a reply that are told while it streams, each under the id of its line in the transcript.

use uuid::Uuid;

use crate::transcript::{Block, Message};

use super::conversation::{is_unsigned_thinking, knows_call};

/// What was told of the reply that is coming in.
#[derive(Debug, Default)]
pub(super) struct ToldBlocks {
    blocks: Vec<(Block, Uuid)>,
    /// Calls that were given another id: the old one and the new one.
    renamed: Vec<(String, String)>,
}

impl ToldBlocks {
    /// The block as it will enter the history, with its id. `None`: it will not enter it.
    pub(super) fn add(&mut self, block: &Block, history: &[Message]) -> Option<(&Block, Uuid)> {
        if is_unsigned_thinking(block) {
            return None;
        }
        let mut block = block.clone();
        if let Block::ToolUse { id, .. } = &mut block
            && knows_call(history, id)
        {
            let new = fresh_call_id();
            self.renamed.push((std::mem::replace(id, new.clone()), new));
        }
        self.blocks.push((block, Uuid::new_v4()));
        self.blocks.last().map(|(block, id)| (block, *id))
    }

    /// The id that a call gets whose own one was used before.
    pub(super) fn new_name(&self, call: &str) -> String {
        let told = self.renamed.iter().find(|(old, _)| old == call);
        told.map_or_else(fresh_call_id, |(_, new)| new.clone())
    }

    /// The ids of a reply's blocks: those that were told, and new ones for the rest. What was told
    /// and is not in it stays.
    pub(super) fn ids_of(&mut self, reply: &[Block]) -> Vec<Uuid> {
        let mut id = |block: &Block| {
            let told = self.blocks.iter().position(|(told, _)| told == block);
            told.map_or_else(Uuid::new_v4, |at| self.blocks.remove(at).1)
        };
        reply.iter().map(&mut id).collect()
    }

    /// Forgets all, and returns the ids of what was told and is in no message.
    pub(super) fn forget(&mut self) -> Vec<Uuid> {
        self.renamed.clear();
        self.blocks.drain(..).map(|(_, id)| id).collect()
    }
}

fn fresh_call_id() -> String {
    format!("toolu_{}", Uuid::new_v4().simple())
}
