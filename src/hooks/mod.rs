//! Hooks: the user's own programs, which are told about events and can block or change them.
//!
//! ```text
//! settings ──► HookSettings ──► Hooks ──tell(Occasion)──► Verdict
//!                                         │    ▲
//!                              every hook: process ──► Performance ──judge──► Say | Mishap
//! ```
//!
//! A hook that fails is ignored, unless it is a guard (`failClosed`).

mod answer;
mod config;
mod crash;
mod event;
mod exports;
mod follow;
mod matcher;
mod news;
mod output;
mod release;
mod run;
mod scene;
mod verdict;

pub use answer::{HookFailure, HookFailureKind, HookPermission};
pub use config::{BadHook, HookHandler, HookCommand, HookSettings, SkippedHook};
pub use crash::CrashLog;
pub use event::{HookEvent, ObjectionUse, is_unsupported as is_foreign_event};
pub use news::{HookProgress, HookOutcome, HookFinished};
pub use run::{Hooks, HookOccasion};
pub use scene::HookEnvironment;
pub use verdict::HookDecision;
