//! Decides what to do next when a model call succeeds, fails, or says nothing.
//!
//! Nothing in here performs I/O, reads a clock, or draws a random number. Time arrives as a
//! [`Moment`] with every event; jitter is derived from a seed kept in the run. The same events
//! therefore always yield the same run.
//!
//! ```text
//! Fault --classify--> Failure --plan--> RecoveryPlan --step--> Transition
//! ```

mod acceptance;
mod background;
mod backoff;
mod budget;
mod chain;
mod chronicle;
mod classify;
mod context;
mod cures;
mod deed;
mod episode;
mod event;
mod failure;
mod fault;
mod limits;
mod machine;
mod moment;
mod money;
mod nudges;
mod plan;
mod probing;
mod resume;
mod setbacks;
mod sharing;
mod spiral;
mod state;
mod stop;
mod throng;
mod words;

pub use backoff::Ladder;
pub use budget::{Budget, Budgets};
pub use chronicle::{Chronicle, Totals};
pub use classify::classify;
pub use cures::plan;
pub use deed::{Deed, Mark, Nature, is_wait};
pub use episode::{Counts, Episode};
pub use event::{
    Action, Ask, Breach, Connection, Counsel, Cut, Edit, Event, Fate, Incomplete, Mode, Nudge,
    Occasion, Probed, Purpose, Reply, Transition, Trim, Weight, Work,
};
pub use failure::{ErrorClass, Failure, Reach, Remedies, Ruling, Standing, Wish, WishSource};
pub use fault::{ErrorBody, Fault, FaultKind, Timer};
pub use limits::{Account, Caps, FastMode, Limits, Persistence, Source, WorkWait};
pub use moment::Moment;
pub use money::{Ledger, Money, Reservation};
pub use nudges::{HOOK_SAYS, SERVERS_NEWS, SUMMARISE, WORK_GONE};
pub use plan::{RecoveryPlan, Setback};
pub use spiral::{Pace, Spiral, SpiralLimits};
pub use state::{Call, Cap, Compaction, Fast, Pause, Phase, Run};
pub use stop::{Interrupt, StopReason};
pub use throng::Throng;
pub use words::{Place, Poison};
