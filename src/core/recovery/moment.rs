//! Time relative to the start of the run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds from the start of the run.
///
/// Unlike `std::time::Instant` it can be written to the journal, compared across processes, and
/// made up in a test.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment(u64);

impl Moment {
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `duration` later, rounded up so that no wait is too short, and saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// The moment one millisecond earlier, or zero.
    pub(super) fn just_before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The time until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}
