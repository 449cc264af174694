//! Starts and ends other programs, and asks the system for what no other module may ask it for.
//!
//! All of the crate's `unsafe` is in this module, and `tests/tidy.rs` sees to that: in `keeper` and
//! `warden` to fork, in `wire` to own descriptors that were received, in `fence` to call Landlock,
//! in `signals` and `own` for what this process is itself.
//!
//! No program that outlast starts leaves anything running, whatever it does to get away and
//! however outlast itself ends. So outlast forks nothing itself. It starts this same binary once
//! more, as a *keeper*, and the keeper forks a *warden* for each job:
//!
//! ```text
//! outlast ──line──► keeper ──fork──► warden ──► the command ──► whatever it starts
//!    └──────────────control──────────►┘
//! ```
//!
//! Keeper and warden are subreapers: an orphan below a warden becomes the warden's child, however
//! it got away (double fork, a session of its own, an empty environment), so what belongs to a
//! job is exactly what is below its warden. When outlast dies the kernel closes its sockets, upon
//! which every warden kills all below it, and the keeper all below itself. A warden that is killed
//! leaves its orphans to the keeper. If the keeper is killed as well, outlast itself inherits them.
//! Where it may not, because it had children before it was outlast, or is somebody's library, the
//! mark in their environment is what they are found by.
//!
//! Elsewhere than on Linux there are no subreapers: there, what is orphaned is lost sight of.

mod ear;
mod fence;
mod job;
mod keeper;
mod mark;
mod orphans;
mod own;
mod pipes;
mod programs;
pub mod reading;
mod running;
mod signals;
#[cfg(target_os = "linux")]
mod stat;
mod supervisor;
mod tree;
mod warden;
mod wire;

pub use fence::{PathAccess, LandlockRuleset, LandlockPolicy, PathRule, NetworkAccess, LandlockSupport};
pub use job::Job;
pub use keeper::run_supervisor_if_requested;
pub use orphans::inherit_orphans;
pub use own::{die_with_parent, exit_without_cleanup, forbid_dumps};
pub use pipes::{Kinship, PipeWriters, WriteEnd, pipe_writers, writers_of_stdin};
pub use programs::{absolute_path, find_program};
pub use running::RunningJob;
pub use signals::{reset_inherited_signals, is_ignored};
pub use supervisor::Supervisor;
