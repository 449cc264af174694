//! Compaction: replaces the older part of a conversation by a summary, and carries over verbatim
//! what a summary must not lose.
//!
//! ```text
//!  task | older rounds ................ | latest rounds      plan   where to cut
//!        `--- render --> the model ---.                       render what the model summarises
//!  root: task, later texts, latest prompt, summary, facts, files | latest    rebuild
//! ```
//!
//! The model writes only the summary. The rest of the root message is built by the program, so it
//! is correct even if the summary is not.

mod facts;
mod plan;
mod prompts;
mod rebuild;
mod render;
mod root;
mod shrink;

pub use facts::{RESTORED_FILES, ReadFile, recently_read};
pub use plan::{CutPoint, plan};
pub use prompts::ProgramTexts;
pub use rebuild::{CompactionInputs, RestoredFile, rebuild, restored_bytes};
pub use render::{DROPS_MAX, render};
pub(super) use root::is_root;
pub use root::summary_of;
pub use shrink::{can_shrink, shrink};
