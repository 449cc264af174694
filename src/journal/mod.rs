//! Journals: the records that a run writes to disk, so that it can be resumed after any end.
//!
//! One file per session, one JSON object per line, one writer. Messages have the format that the
//! public SDKs read; our own records stand between them, with type `outlast`. Every line has a
//! sequence number and a checksum. An action that must not happen twice is recorded before it
//! starts.
//!
//! ```text
//! open ─► user ─► transition… ─► spend ─► assistant ─► intent ─► (tool runs) ─► user ─► … ─► end
//!                                                       ▲ synced       outcome ▲ synced meanwhile
//! ```

mod cleanup;
mod contract;
mod damage;
mod ended_calls;
mod entry;
mod error;
mod files_read;
mod learned_facts;
mod lease;
mod lease_claim;
mod lease_record;
mod line_head;
mod lines;
mod lock;
mod log;
mod message_links;
mod mirror;
mod moved_session;
mod output;
mod parsed_line;
mod past_agents;
mod past_background;
mod prompt_fold;
mod prune;
mod raw_lines;
mod reader;
mod recorded_folder;
mod recorded_prompt;
mod redact;
mod restore;
mod resume;
mod sealed_line;
mod session_folder;
mod sink;
mod step_lines;
mod store;
mod subagents;
mod summary;
mod terms;
mod tool_results;
mod totals;
mod view;
mod writer;

pub use cleanup::{CleanupReport, delete_old_sessions};
pub use contract::{Contract, FirstPrompt, prompt_title};
pub use damage::OnDamage;
pub use ended_calls::{Denial, ToolStats, UndoneCalls};
pub use entry::{
    BackgroundChanges, BackgroundWork, CarryOver, ContentForm, Damage, FailedCheck, JournalRecord,
    MessageMeta, OpenRecord, ProcessOpening, SpendRecord, ToolStarted,
};
pub use error::{JournalError, LockHolder, unreadable_hint};
pub use learned_facts::LearnedFacts;
pub use lines::{JournalLine, JournalLines};
pub use log::Journal;
pub use message_links::UserMessageIds;
pub use mirror::JournalMirror;
pub use parsed_line::{JournalEntry, MessageEntry, ToolDetail};
pub use past_agents::{PastAgent, SubagentMeta, subagent_files};
pub use past_background::PastBackground;
pub use prompt_fold::PromptFold;
pub use prune::{PruneCandidate, PruneCriteria, PruneState, RemovalError, remove_session};
pub use reader::RefusalReason;
pub use recorded_prompt::RecordedPrompt;
pub use restore::{
    RestoredContract, RestoredConversation, RestoredSession, RestoredTotals, ResumePoint,
    WorkInProgress,
};
pub use resume::{LockedSession, ReadRequest, read_session};
pub use session_folder::{MachineId, SessionFolder, SessionId, latest, recorded_path};
pub use sink::JournalHealth;
pub use store::{SessionStore, survey_sessions};
pub use subagents::{SubagentHeader, SubagentJournal};
pub use summary::{
    ListScope, SessionFile, SessionState, SessionSummary, list_sessions, locate_session,
    session_named, sessions_beginning, summarize_session,
};
pub use terms::{Kept, Terms, read_terms};
pub use totals::{ModelSpan, ModelTotals, SessionTotals, worst_case};
pub use view::JournalView;
