//! Hooks: the user's own programs, which are told what happens and may have a say in it.
//!
//! ```text
//! settings ──► HookSettings ──► Hooks ──tell(Occasion)──► Verdict
//!                                         │    ▲
//!                              every hook: process ──► Performance ──judge──► Say | Mishap
//! ```
//!
//! A hook that fails counts as one that is not there, unless it is a guard (`failClosed`).

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

pub use answer::{Mishap, MishapKind, Permission};
pub use config::{BadHook, Handler, HookCommand, HookSettings, Skipped};
pub use crash::CrashLog;
pub use event::{HookEvent, Objection, is_foreign as is_foreign_event};
pub use news::{HookNews, HookOutcome, Over};
pub use run::{Hooks, Occasion};
pub use scene::HookScene;
pub use verdict::Verdict;
