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
mod aimd_limiter;
mod background;
mod backoff;
mod budget;
mod capacity_probe;
mod classify;
mod context;
mod event;
mod failure;
mod failure_transitions;
mod fault;
mod left_off;
mod limits;
mod loop_detector;
mod machine;
mod model_chain;
mod moment;
mod money;
mod nudges;
mod output_limit;
mod plan;
mod recovery_log;
mod recovery_record;
mod recovery_table;
mod refusal_wording;
mod reply_transitions;
mod resume;
mod shared_limits;
mod state;
mod step;
mod tool_call_record;

pub use crate::types::{
    AccountKind, BlockPath, ErrorClass, Interrupt, RejectedContent, StopReason,
};
pub use aimd_limiter::AimdLimiter;
pub use backoff::Backoff;
pub use budget::{Budget, Budgets};
pub use classify::classify;
pub use event::{
    Action, CallPurpose, CompactionTrigger, ConnectionChoice, CutKind, Event, HistoryEdit,
    Incomplete, ModelCall, Nudge, Probed, ReplyDisposition, ReplyKind, ReplyMode, Shortfall,
    StopHookDecision, TokenEstimate, Trim, WorkStatus,
};
pub use failure::{
    AvailableMitigations, EndpointStatus, Failure, FailureStage, RetryAfter, RetryAfterSource,
    RetryHint,
};
pub use fault::{
    ClassifiedFault, ErrorBody, Fault, FaultKind, KEY_HELPER_FAILED, TUNNEL_REFUSED, Timer,
};
pub use left_off::{LeftOff, NewDemands};
pub use limits::{FastMode, Limits, OutputCaps, Persistence, QuerySource, WorkWait};
pub use loop_detector::{LoopDetector, LoopLimits, LoopStatus};
pub use moment::Moment;
pub use money::{Ledger, Money, Reservation, Spending};
pub use nudges::{
    FOLDER_CHANGED, FOLDER_INSTRUCTIONS, HOOK_SAYS, INTERRUPTED, PROMPT_NOTES, SERVERS_CHANGED,
    SUMMARISE, WORK_ENDED_SINCE, WORK_GONE,
};
pub use output_limit::RefusedCap;
pub use plan::{RecoveryCause, RecoveryPlan};
pub use recovery_log::{RecoveryLog, RecoveryTotals};
pub use recovery_record::{RecoveryCounts, RecoveryRecord};
pub use recovery_table::plan;
pub use refusal_wording::{OptionalField, RefusedField};
pub use state::{
    Attempts, Call, Cap, Compaction, CompactionState, Fast, KeptAnswer, Pause, Phase,
    PreferredModel, RequiredEffort, Run, Streaming,
};
pub use step::{InvalidEvent, Transition};
pub use tool_call_record::{CallEffect, Fingerprint, ToolCallRecord, is_wait};

/// True if a value is the default, which the journal leaves out: a step repeats the state of its
/// run, and most of that never changes.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
