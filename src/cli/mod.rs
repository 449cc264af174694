//! Words in, words out: the command line, the environment and the settings files become a run;
//! what becomes of the run becomes a result, lines for people, and an exit code.
//!
//! ```text
//! argv ─args─┐
//! env ───────┼─settings─► Settings ─assemble─► Setup ─agent::run─► Ending ─exit─► code
//! files ─────┘                                           │            └─output─► result
//!                                                        └─output─► heartbeats, messages
//! ```

pub mod acceptance;
pub mod advice;
mod app;
pub mod args;
mod assemble;
mod classes;
mod config;
mod delegation;
mod doctor;
pub mod environment;
pub mod exit;
mod front_matter;
pub mod memory;
mod mentions;
mod nearness;
pub mod output;
mod panics;
mod places;
mod preview;
pub mod prompt;
pub mod prompts;
mod rehearse;
mod run;
mod session;
pub mod settings;
mod signals;
mod startup;
pub mod stdin;
pub mod system;
mod telling;
mod testament;
mod toolset;
pub mod usage;
mod values;
pub mod version;
pub mod wall;
mod web;

pub use app::main;
