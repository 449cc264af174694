//! The agent shell: its driver on paused time, and whole runs at library level.

mod acceptance_checks;
pub(crate) mod broken_streams;
pub(crate) mod budgets;
mod context_windows;
mod drive;
mod final_replies;
pub(crate) mod full_windows;
mod gateways;
mod kept_servers;
mod lease;
pub(crate) mod loops;
pub(crate) mod media;
pub(crate) mod model_chains;
mod output_limits;
mod paused_time;
mod probing;
mod refusals;
mod requirements;
mod run_events;
pub(crate) mod run_fixture;
mod scripted_transport;
mod sending;
mod shared_limit_file;
mod subagents;
mod tools;
pub(crate) mod turn_limits;
mod usage_charges;
