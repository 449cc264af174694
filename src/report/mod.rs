//! Reports on recorded sessions as typed data: how a session ended, what it recovered from and what
//! that cost, where its time went, and the same for many sessions at once.
//!
//! ```text
//! SessionHistory ─► SessionReport ─► SessionsOverview ─► tables, Markdown, JSON, JUnit, HTML (cli)
//!               └─► SessionTimeline ─────────────────►
//! ```

mod overview;
mod recovery_table;
mod session_report;
mod timeline;
mod work_clock;
mod work_done;

pub use overview::{RecoveryImpact, SessionsOverview};
pub use recovery_table::{RecoverySummary, RecoveryTable};
pub use session_report::{
    AgentSummary, ConversationChanges, JournalDamage, SessionOutcome, SessionReport,
    SessionSubject, SpendSummary, TimeSpent, ToolCounts, shortened_prompt,
};
pub use timeline::{
    BarContent, MarkContent, SessionTimeline, SpendPoint, TimelineBar, TimelineMark, TimelineRow,
};
pub use work_done::{Answer, ChangedFile, FailedCommand, RefusedCall, WorkDone};
