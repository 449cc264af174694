//! The history of a session as typed data, for reports: prompts, replies, tool calls, waits,
//! recoveries and costs, in chronological order.
//!
//! ```text
//! journal lines ─► builder ─► SessionHistory ─► outlast sessions show
//! ```
//! The builder is a pure function of the lines. Unlike a resume, it does not need an intact
//! journal: it lists unreadable lines in [`SessionHistory::problems`], and reads the others.

mod builder;
mod calls;
mod read;
mod session;
mod turn;

pub use crate::journal::{FailedCheck, SpendRecord};
pub use builder::{HistoryBuilder, HistoryContents};
pub use calls::{CallEnd, CallRecord};
pub use read::read_history;
pub use session::{
    AgentHistory, FailureRecord, HistoryEnd, HistoryEvent, HistoryItem, MessageAuthor,
    RecordedMessage, SessionHistory, UnreadableLine, WaitCause, WaitRecord,
};
pub use turn::{ToolRun, ToolRunState, TurnRecord};
