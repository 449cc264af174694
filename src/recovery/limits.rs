//! The rules of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Budgets, Ladder, Moment};

/// The rules of a run: fixed at the start, written to the journal, never consulted from the
/// environment again. Defaults are SPEC's; every one can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// What the run starts with, and what renewals renew to.
    pub budgets: Budgets,
    pub ladder: Ladder,
    /// The ladder's cap while waiting for capacity without a count.
    pub longest_capacity_wait: Duration,
    /// A server that asks for more than this is not waited for.
    pub max_retry_wait: Duration,
    /// The longest silence allowed while waiting.
    pub heartbeat: Duration,
    pub deadline: Option<Moment>,
    /// When the model is told to wrap up.
    pub wrap_up: Option<Moment>,
    pub persistence: Persistence,
    pub account: Account,
    pub source: Source,
    /// Consecutive overloads before the next model is tried.
    pub overloads_per_switch: u8,
    /// `overloadLimit`: consecutive overloads before the run gives up, when set.
    pub overload_limit: Option<u8>,
    /// Streams without a complete block, in a row, before asking without streaming.
    pub torn_streams_per_whole: u8,
    pub caps: Caps,
    /// `--token-budget`: output tokens the run is asked to spend.
    pub effort: Option<u32>,
}

/// Output caps, in tokens (SPEC 9, 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    pub first: u32,
    pub escalated: u32,
    /// The most that fits the time-out of a call without streaming.
    pub whole: u32,
    /// A call that money allows fewer than this is not made.
    pub floor: u32,
}

/// Which failures are waited out without a count (SPEC 4, persistent mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    Off,
    /// 429 and 529.
    Capacity,
    /// Connection failures and 5xx as well.
    All,
}

impl Persistence {
    /// The default of [`Limits::max_retry_wait`]: those who wait without a count wait longer.
    pub fn max_retry_wait(self) -> Duration {
        match self {
            Self::Off => Duration::from_mins(10),
            Self::Capacity | Self::All => Duration::from_hours(6),
        }
    }
}

/// Who pays, which decides whether a 429 is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Account {
    ApiKey,
    Enterprise,
    /// Its limits last for hours.
    Subscription,
}

/// Who asks, which decides whether an overload is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Foreground,
    /// Nobody waits for the result: in a capacity cascade each retry multiplies load.
    Background,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            budgets: Budgets::DEFAULT,
            ladder: Ladder { first: Duration::from_millis(500), longest: Duration::from_secs(32) },
            longest_capacity_wait: Duration::from_mins(5),
            max_retry_wait: Persistence::Off.max_retry_wait(),
            heartbeat: Duration::from_secs(30),
            deadline: None,
            wrap_up: None,
            persistence: Persistence::Off,
            account: Account::ApiKey,
            source: Source::Foreground,
            overloads_per_switch: 3,
            overload_limit: None,
            torn_streams_per_whole: 2,
            caps: Caps { first: 8_192, escalated: 64_000, whole: 16_000, floor: 1_024 },
            effort: None,
        }
    }
}
