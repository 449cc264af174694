//! Journals: what a run writes to disk, so that it can be resumed after any end.
//!
//! One file per session, one JSON object per line, one writer. Messages have the format that the
//! public SDKs read; our own records stand between them, with type `outlast`. Every line has a
//! sequence number and a checksum. An action that must not happen twice is recorded before it
//! starts.
//!
//! ```text
//! open ─► user ─► transition… ─► spend ─► assistant ─► intent ─► (tool runs) ─► user ─► … ─► end
//!                                                       ▲ synced       outcome ▲ synced
//! ```

mod agents;
mod contract;
mod damage;
mod entry;
mod error;
mod log;
mod pairs;
mod place;
mod reader;
mod redact;
mod restore;
mod resume;
mod store;
mod sums;
mod upkeep;
mod writer;

pub use agents::{SubagentJournal, SubagentHeader, PastAgent};
pub use contract::{Contract, FirstPrompt, Kept, Terms, prompt_title, read_terms};
pub use damage::{Damage, OnDamage};
pub use entry::{CarryOver, MessageMeta, ProcessOpening};
pub use error::{LockHolder, JournalError};
pub use log::{JournalHealth, Journal};
pub use place::{SessionFolder, SessionId, latest};
pub use restore::RestoredSession;
pub use resume::{LockedSession, read_session};
pub use store::{UnfinishedSession as OpenSession, SessionStore, survey_sessions};
pub use sums::{ModelSpan, ModelTotals, SessionTotals};
pub use upkeep::{CleanupReport, delete_old_sessions};
