//! The conversation: its messages, their validity, their size, and how to shrink them. Pure: no
//! I/O, no clock.

pub mod collapse;
pub mod compaction;
mod contributors;
mod dealings;
mod excerpt;
mod finished;
mod heal;
mod measure;
mod media;
mod message;
mod repair;
mod validity;
mod weigh;

pub use contributors::{Contributor, largest_parts};
pub use finished::{succeeded_calls, describe_unknown_outcome, unanswered_calls};
pub use heal::{RejectedBlock, RepairOutcome, can_repair_rejected, repair_rejected, lacks_thinking};
pub use measure::{TokenDensity, History, Meter, min_tokens, fixed_bytes};
pub use media::{
    Medium, BlockPath, StripTarget, StrippedMedia, has_media, media_bytes, strip_media, visible_pages,
};
pub use message::{Block, Message, Role, ToolCall, ToolDefinition, Usage};
pub use repair::{
    RepairStep, OUTCOME_UNKNOWN, HistoryRepair, answer_calls, last_text, repair, repair_history, strip_thinking,
};
pub use validity::{BlockFlaw, HistoryRule, Violation, history_violations, is_portable_id, violations};
