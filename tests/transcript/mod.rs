//! See the module of the same name.

pub(crate) mod arbitrary;
mod block_repair;
mod compaction;
mod contributors;
mod folding;
mod media;
mod repair;
mod token_estimate;
mod validity;
