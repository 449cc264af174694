//! Shares rate-limit state among the runs of one host.
//!
//! ```text
//! claim ──► store (a locked file) ───► pacing (pure): send, or wait
//! answer ─► store ───────────────────► pacing: requests left, or a block
//! ```
//! Only request counts are shared, not token counts: how many tokens a reply will take is unknown
//! in advance. An overload (529) is not shared either, because it concerns the service and not the
//! API key: each run backs off by itself, with jitter. Only the probe that detects the end of an
//! overload is shared.

mod account_key;
mod share;
mod store;

pub use crate::pacing::ProbeEnd;
pub use share::{ProbeTurn, SharedLimits};
pub use store::{StateFileProblem, folders};

pub(super) use account_key::AccountKey;
