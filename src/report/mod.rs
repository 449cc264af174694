//! Reports on recorded sessions as typed data: the outcome of a session, its recoveries with their
//! cost, the time that it spent on each activity, and sums over many sessions.
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

pub use overview::{OutcomeCounts, RecoveryImpact, SessionsOverview};
pub use recovery_table::{RecoverySummary, RecoveryTable};
pub use session_report::{
    AgentSummary, ConversationChanges, JournalDamage, SessionOutcome, SessionReport,
    SessionSubject, SpendSummary, TimeSpent, ToolCounts, shortened_prompt,
};
pub use timeline::{
    BarContent, MarkContent, SessionTimeline, SpendPoint, TimelineBar, TimelineMark, TimelineRow,
};
pub use work_done::{Answer, ChangedFile, FailedCommand, RefusedCall, WorkDone};
