//! The conversation: its messages, their validity, their size, and ways to reduce it. Pure: no I/O,
//! no clock.

mod added_content;
mod block_repair;
mod call_in_text;
mod citations;
pub mod compaction;
mod contributors;
mod error_tags;
mod excerpt;
mod finished;
pub mod folding;
mod measure;
mod media;
mod message;
mod notes;
mod repair;
mod token_estimate;
mod tool_exchanges;
mod unanswered;
mod validity;
mod whole_call;

pub use crate::types::{BlockPath, RejectedContent};
pub use added_content::AddedContent;
pub use block_repair::{BlockRepair, can_repair_rejected, lacks_thinking, repair_rejected};
pub use call_in_text::{find_call_in_text, last_data_block};
pub use citations::{drop_citations, has_uneven_citations};
pub use contributors::{Contributor, largest_parts};
pub use error_tags::{with_error_tags, without_error_tags};
pub use excerpt::excerpt_line;
pub use finished::{describe_unknown_outcome, succeeded_calls, summarize_call, unanswered_calls};
pub use measure::{History, Meter, SerializedMessage, TokenDensity, fixed_bytes, min_tokens};
pub use media::{
    Medium, StripTarget, StrippedMedia, has_images, has_media, media_bytes, strip_media,
    visible_pages,
};
pub use message::{
    Block, LOST_SIGNATURE, Message, OtherFields, Role, ToolCall, ToolDefinition, Usage,
};
pub use notes::exit_note;
pub use repair::{
    HistoryRepair, OUTCOME_UNKNOWN, RepairStep, answer_calls, last_text, make_calls_portable,
    repair, repair_history, strip_signed_thinking, strip_thinking,
    strip_thinking_that_lacks_signature,
};
pub use unanswered::{shorten_unanswered, unanswered};
pub use validity::{
    BlockFlaw, HistoryRule, Violation, history_violations, is_name_letter, is_portable_id,
    is_returnable_id, violations,
};
pub use whole_call::input_in_json;
