//! The agent shell: its driver on paused time, and whole runs at library level.

mod acceptance_checks;
mod context_windows;
mod drive;
mod final_replies;
mod gateways;
mod kept_servers;
mod lease;
pub(crate) mod loops;
mod paused_time;
mod probing;
mod refusals;
mod run_events;
mod run_fixture;
mod scripted_transport;
mod sending;
mod shared_limit_file;
mod subagents;
mod tools;
mod usage_charges;
