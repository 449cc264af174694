//! Performs what [`recovery`](crate::recovery) decides.

mod clock;
mod observer;
mod setup;

pub use clock::Clock;
pub use observer::{Heartbeat, Init, Notice, Observer, WaitingFor};
pub use setup::{Denial, Ending, JournalHealth, ModelTally, Setup, Tally, ToolTally};
