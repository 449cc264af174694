//! Hooks: the user's own programs, and callbacks of a host, which run at events and can block or
//! change them.
//!
//! ```text
//! settings ──► HookSettings ──► Hooks ──run(HookContext)───► HookDecision
//!                                 │                              ▲
//!      each hook: process or callback ──► HookRun ──interpret_result──► HookOutput | HookFailure
//! ```
//!
//! A hook that fails is ignored, unless it is a guard (`failClosed`).

mod background;
mod callback;
mod config;
mod crash_log;
mod decision;
mod denials;
mod echo;
mod environment;
mod event;
mod exports;
mod failure;
mod hook_process;
mod matcher;
mod named_files;
mod output;
mod progress;
mod result;
mod run;

pub use callback::callbacks;
pub use config::{BadHook, HookCommand, HookHandler, HookSettings, SkippedHook, project_variables};
pub use crash_log::CrashLog;
pub use decision::{HookDecision, HookRuns};
pub use environment::HookEnvironment;
pub use event::{HookEvent, ObjectionUse, is_unsupported as is_foreign_event};
pub use exports::ExportError;
pub use failure::{HookFailure, HookFailureKind};
pub use output::{HookPermission, TEXT_MAX as HOOK_TEXT_MAX};
pub use progress::{HookFinished, HookOutcome, HookProgress};
pub use run::{HookContext, Hooks};
