//! The command-line interface: turns the command line, the environment and the settings files into
//! a run, and the outcome of the run into a result, progress lines and an exit code.
//!
//! ```text
//! argv ─args─┐
//! env ───────┼─settings─► Settings ─assemble─► Setup ─agent::run─► RunOutcome ─exit─► code
//! files ─────┘                                           │                └─output─► result
//!                                                        └─output─► heartbeats, messages
//! ```

pub mod acceptance;
pub mod advice;
mod app;
pub mod args;
mod assemble;
mod awaited;
mod batch;
mod checkouts;
mod chosen_session;
mod completions;
mod config;
mod destination;
mod doctor;
mod dry_run;
mod egress;
mod error_report;
pub mod exit;
mod exit_watchdog;
mod front_matter;
mod host;
mod host_turn;
mod inspect;
mod installed_plugins;
mod manual;
pub mod memory;
mod mentions;
mod model_endpoints;
mod model_facts;
pub mod moved_session;
mod observers;
pub mod output;
pub mod output_file;
pub mod plugins;
mod process_context;
pub mod prompt;
pub mod prompts;
mod rehearse;
mod report;
mod result_fields;
mod result_writer;
mod run;
mod server_login;
mod server_waits;
mod session;
mod session_name;
mod sessions;
pub mod settings;
mod signals;
mod startup;
pub mod stdin;
mod stdout;
mod step_summary;
mod subagent_setup;
pub mod system;
mod telemetry;
pub mod timestamps;
mod tool_setup;
pub mod usage;
pub mod version;
mod web;
mod yaml;

pub use app::main;
