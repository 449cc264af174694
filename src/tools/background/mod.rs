//! Commands in the background: started by Bash, looked at with `BashOutput`, ended with
//! `KillShell`. Bounded in number, time, memory and disk, and none outlives the run.

mod live;
mod looks;
mod run;
mod shells;
mod task;
mod words;

pub(super) use live::Live;
pub(super) use looks::{filter, kill, output};
pub(super) use shells::{Begin, Shells};
pub use task::{BackgroundEnd, BackgroundTask};
