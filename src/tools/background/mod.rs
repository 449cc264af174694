//! Background tasks: commands started by Bash, read with `BashOutput`, stopped with `KillShell`.
//! They are bounded in number, time, memory and disk, and none outlives the run, or the session of
//! a host. Background sub-agents share the same table and are stopped in the same way.

mod background_agents;
mod background_tools;
mod command_ends;
mod descriptions;
mod kept_commands;
mod live_output;
mod task;
mod task_stops;
mod tasks;

pub use background_agents::{AgentEnded, BackgroundAgent, BackgroundClosed};
pub(super) use background_tools::{compile_filter, kill, read_output};
pub use kept_commands::KeptCommands;
pub(super) use live_output::LiveOutput;
pub use task::{BackgroundEnd, BackgroundKind, BackgroundTask};
pub use task_stops::{NoSuchTask, StoppableTask, TaskStops};
pub use tasks::BackgroundTasks;
pub(super) use tasks::{CommandKeeper, TaskStart};
