//! Content of a conversation that a service rejects: recovery reads it from refusals, and the
//! transcript repairs it.

/// The kind of content that a refusal rejects, if editing the conversation may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedContent {
    /// An image or a document is too large, broken or of the wrong kind.
    Media,
    /// Thinking that this model did not sign, or that was changed afterwards.
    Thinking,
    /// Tool calls and results that do not match.
    Pairs,
    /// A block that the refusal names, with any other fault.
    Block,
}

/// The position that a refusal names: a message, a block of it, a block inside a tool result.
/// Counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockPath {
    pub message: usize,
    pub block: Option<usize>,
    pub inner: Option<usize>,
}

impl BlockPath {
    /// True if the block at `path` is at this position, as far as the position is known.
    pub(crate) fn contains(self, path: &Self) -> bool {
        self.message == path.message
            && self.block.is_none_or(|block| path.block == Some(block))
            // Only tool results have inner blocks, whatever the error text says.
            && (self.inner.is_none() || path.inner.is_none() || self.inner == path.inner)
    }
}
