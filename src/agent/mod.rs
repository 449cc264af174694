//! Performs what [`recovery`](crate::recovery) decides.
//!
//! ```text
//! run ─► drive ─► Run::step ─► RunWorld::record ─► RunWorld::perform ─┐
//!          ▲                                                          │
//!          └─────────────────────────── event ────────────────────────┘
//! ```

mod acceptance;
mod accounting;
mod ask;
mod background;
mod clock;
mod compactor;
mod context_gauge;
mod conversation;
mod delegate;
mod drive;
mod early_tools;
mod emitted_blocks;
mod estimate;
mod failed_checks;
mod final_reply;
mod folder_instructions;
mod hook_runner;
mod housekeeping;
mod interruption;
mod journal_waits;
mod left_open;
mod lifecycle_hooks;
mod messages;
mod model_caller;
mod permission_prompt;
mod refused_fields;
mod refused_media;
mod refused_size;
mod run;
mod run_deps;
mod run_event;
mod run_monitor;
mod servers;
mod session_lifecycle;
mod setup;
mod shared_ledger;
mod signals;
mod streamed_arguments;
mod tool_batches;
mod tool_hooks;
mod tool_runner;
mod waiting_for;
mod world;

pub use crate::journal::{JournalHealth, ModelSpan};
pub use crate::types::AgentLimits;
pub use clock::Clock;
pub use context_gauge::{ContextGauge, ContextSize};
pub use delegate::{
    AgentIdentity, AgentStatus, AgentTask, Delegation, FolderNote, FolderNotes, ModelLookup,
    SubagentUsage, UnusableModel, agent_kinds,
};
pub use drive::{World, drive};
pub use housekeeping::Housekeeping;
pub use run::run;
pub use run_event::{EndedCall, Heartbeat, Init, Observer, RunEvent};
pub use servers::with_mcp_tools;
pub use session_lifecycle::SessionLifecycle;
pub use setup::{
    DeferredCall, HookStats, LastFailure, LimitsMet, ModelEndpoint, ModelStats, MovedFolder,
    Prompt, RunCosts, RunOutcome, RunStats, Setup,
};
pub use signals::{InterruptReceiver, InterruptSender, interrupt};
pub use waiting_for::WaitingFor;
