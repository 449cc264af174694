//! What a run writes down, so that it can be taken up again after any end.
//!
//! One file a session, one JSON object a line, one writer. Messages are written as the public
//! SDKs read them (PROTOCOL 8); our own records stand between them, with type `outlast`. Every
//! line carries its number and a checksum. What must not happen twice is on the disk before it
//! happens once.
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
