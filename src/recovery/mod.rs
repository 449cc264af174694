//! Decides what to do next when a model call succeeds, fails, or returns nothing.
//!
//! Nothing in here performs I/O, reads a clock, or draws a random number. Time arrives as a
//! [`Moment`] with every event; jitter is derived from a seed kept in the run. The same events
//! therefore always yield the same run.
//!
//! ```text
//! Fault --classify--> Failure --plan--> RecoveryPlan --step--> Transition
//! ```

mod acceptance;
mod background;
mod backoff;
mod budget;
mod chain;
mod chronicle;
mod classify;
mod context;
mod cures;
mod deed;
mod episode;
mod event;
mod failure;
mod fault;
mod limits;
mod machine;
mod moment;
mod money;
mod nudges;
mod plan;
mod probing;
mod resume;
mod setbacks;
mod sharing;
mod spiral;
mod state;
mod stop;
mod throng;
mod words;

pub use backoff::Backoff;
pub use budget::{Budget, Budgets};
pub use chronicle::{RecoveryLog, RecoveryTotals};
pub use classify::classify;
pub use cures::plan;
pub use deed::{ToolCallRecord, Fingerprint, CallEffect, is_wait};
pub use episode::{RecoveryCounts, RecoveryRecord};
pub use event::{
    Action, ModelCall, InvalidEvent, ConnectionChoice, StopHookDecision, CutKind, HistoryEdit, Event, ReplyDisposition, Incomplete, ReplyMode, Nudge,
    CompactionTrigger, Probed, CallPurpose, ReplyKind, Transition, Trim, TokenEstimate, WorkStatus,
};
pub use failure::{ErrorClass, Failure, FailureStage, AvailableMitigations, RetryHint, Standing, RetryAfter, RetryAfterSource};
pub use fault::{ErrorBody, Fault, FaultKind, Timer};
pub use limits::{AccountKind, OutputCaps, FastMode, Limits, Persistence, QuerySource, WorkWait};
pub use moment::Moment;
pub use money::{Ledger, Money, Reservation};
pub use nudges::{HOOK_SAYS, SERVERS_NEWS, SUMMARISE, WORK_GONE};
pub use plan::{RecoveryPlan, SetbackKind};
pub use spiral::{LoopStatus, LoopDetector, LoopLimits};
pub use state::{Call, Cap, Compaction, Fast, Pause, Phase, Run};
pub use stop::{Interrupt, StopReason};
pub use throng::AimdLimiter;
pub use words::{BlockIndex, RejectedContent};
