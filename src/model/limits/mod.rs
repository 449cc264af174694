//! One rate limit, many runs: what the runs of a host tell each other about it.
//!
//! ```text
//! claim ──► store (a file, locked) ──► pace (pure): go, or wait
//! answer ─► store ───────────────────► pace: room left, or a block
//! ```
//! Only requests are shared, not tokens: nobody knows how many a reply will take. An overload (529)
//! is not shared either: it speaks of the service, not of the key, and each run backs off from it
//! by itself, with jitter. What is shared is the probe that notices the end of one.

mod capacity;
mod name;
pub mod pace;
mod share;
mod store;

pub use capacity::{ProbeEnd, ProbeLeave, Prober, RETURN_GAP};
pub use pace::{Requester, RequestPermit, ClaimAnswer, SharedPace, RequestWindow, HeaderLimits};
pub use share::{ProbeTurn, SharedLimits};
pub use store::{StateFile, StateFileProblem, folders, state_files};

pub(super) use name::AccountKey;
