//! Paces the requests of the runs of one host that share a rate limit, and their capacity probes.

mod capacity;
mod rate_limit;

pub use capacity::{ProbeEnd, ProbeLeave, Prober, RETURN_GAP};
pub use rate_limit::{
    ClaimAnswer, HeaderLimits, RequestPermit, RequestWindow, Requester, SharedRateLimit,
};
