//! The history of a session as typed data, for reports: what was asked, answered, run, waited for,
//! recovered from and spent, in the order in which it happened.
//!
//! ```text
//! journal lines ─► builder ─► SessionHistory ─► outlast sessions show
//! ```
//! The builder is a pure function of the lines. Unlike a resume, it needs no intact journal: what
//! cannot be read is listed in [`SessionHistory::problems`], and the rest is read.

mod builder;
mod calls;
mod read;
mod session;
mod turn;

pub use crate::journal::FailedCheck;
pub use builder::HistoryBuilder;
pub use calls::{CallEnd, CallRecord};
pub use read::read_history;
pub use session::{
    AgentHistory, FailureRecord, HistoryEnd, HistoryEvent, HistoryItem, MessageAuthor,
    ProcessStart, RecordedMessage, SessionHistory, SpendRecord, UnreadableLine, WaitCause,
    WaitRecord,
};
pub use turn::{ToolRun, ToolRunState, TurnRecord};
