//! Commands in the background: started by Bash, looked at with `BashOutput`, ended with
//! `KillShell`. Bounded in number, time, memory and disk, and none outlives the run. Sub-agents in
//! the background stand beside them, and are looked at and ended alike.

mod adopted;
mod live;
mod looks;
mod run;
mod shells;
mod task;
mod words;

pub use adopted::{BackgroundAgent, AgentEnded};
pub(super) use live::LiveOutput;
pub(super) use looks::{compile_filter, kill, read_output};
pub(super) use shells::{TaskStart, BackgroundTasks};
pub use task::{BackgroundEnd, BackgroundKind, BackgroundTask};
