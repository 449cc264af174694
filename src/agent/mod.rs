//! Performs what [`recovery`](crate::recovery) decides.
//!
//! ```text
//! run ─► drive ─► Run::step ─► Session::record ─► Session::perform ─┐
//!          ▲                                                        │
//!          └──────────────────────── event ─────────────────────────┘
//! ```

mod accept;
mod ask;
mod background;
mod books;
mod clock;
mod context;
mod conversation;
mod cut;
mod delegate;
mod drive;
mod early;
mod failed_checks;
mod folders;
mod guard;
mod hooks;
mod moments;
mod observer;
mod petition;
mod probing;
mod purse;
mod run;
mod servers;
mod session;
mod setup;
mod sharing;
mod signals;
mod told;
mod turns;
mod watch;
mod words;
mod work;

pub use crate::journal::{JournalHealth as JournalHealth, ModelSpan};
pub use background::has_lost_work;
pub use clock::Clock;
pub use delegate::{
    AgentLimits, AgentIdentity, AgentStatus, AgentTask, Delegation, FolderNote, FolderNotes, ModelLookup,
};
pub use drive::{World, drive};
pub use observer::{Heartbeat, Init, RunNotice, Observer, WaitingFor};
pub use run::run;
pub use setup::{ResumedState, Denial, RunOutcome, HookStats, ModelStats, ModelEndpoint, Setup, RunStats, ToolStats};
pub use signals::{InterruptSender, InterruptReceiver, interrupt};
