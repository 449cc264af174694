//! Compaction: the older part of a conversation becomes a summary, and what a summary must not
//! lose is carried over word for word.
//!
//! ```text
//!  task | older rounds ................ | latest rounds      plan   where to cut
//!        `--- render --> the model ---.                       render what the model summarises
//!  root: task, later words, summary, facts, files | latest    rebuild
//! ```
//!
//! The model only writes the summary. Everything else in the root is mechanical, and holds
//! whatever the model writes.

mod facts;
mod plan;
mod rebuild;
mod render;
mod root;
mod shrink;

pub use facts::{ReadFile, recently_read};
pub use plan::{CutPoint, plan};
pub use rebuild::{CompactionInputs, RESTORED_FILES, RestoredFile, rebuild, restored_bytes};
pub use render::{DROPS_MAX, render};
pub(super) use root::is_root;
pub use shrink::{can_shrink, shrink};
