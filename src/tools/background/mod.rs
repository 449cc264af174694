//! Background tasks: commands started by Bash, read with `BashOutput`, stopped with `KillShell`.
//! They are bounded in number, time, memory and disk, and none outlives the run. Background
//! sub-agents share the same table and are stopped alike.

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
