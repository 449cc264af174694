//! Sessions driven by a host: each prompt of the host is a turn, a run of the same session.
//!
//! ```text
//! stdin ─reader thread─┬─ replies ──► PendingRequests (hooks, permissions, MCP servers wait there)
//!                      └─ prompts, control requests ─► HostSession ─► one turn after another
//! ```

mod background;
mod context_usage;
mod empty_prompt;
mod input_summary;
mod next_turn;
mod prompt_ids;
mod replies;
mod requests;
mod rewind;
mod run_args;
mod server_requests;
mod session;
mod shared_id;

pub(super) use rewind::rewind_files;
pub(super) use session::drive;
