//! Performs what [`recovery`](crate::recovery) decides.

mod clock;
mod observer;
mod setup;

pub use clock::Clock;
pub use observer::{Heartbeat, Init, Notice, Observer, WaitingFor};
pub use setup::{Denial, Ending, JournalHealth, ModelTally, Setup, Tally, ToolTally};

use tokio::sync::watch;

use crate::recovery::Interrupt;

/// Where a run learns that it should stop: the first value that is there wins.
pub type Interrupts = watch::Receiver<Option<Interrupt>>;

/// Runs a task to its end. Never fails and never panics: whatever happens is an [`Ending`].
pub async fn run(_setup: Setup, _observer: &mut dyn Observer, _interrupts: Interrupts) -> Ending {
    std::future::pending().await
}
