//! Formatting of timestamps and durations for people and programs.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::agent::Clock;
pub use crate::config::{format_duration, format_elapsed};

/// The current time and time zone.
#[derive(Clone, Debug)]
pub struct WallTime {
    pub at: Timestamp,
    pub zone: TimeZone,
}

impl WallTime {
    /// Reads the run's clock, which may be scaled, and the system's time zone.
    pub fn from_clock(clock: &Clock) -> Self {
        let at = Timestamp::try_from(clock.date()).unwrap_or_else(|_| Timestamp::now());
        Self { at, zone: TimeZone::system() }
    }

    /// The wall-clock time of an instant: only the time when it is near, with the date otherwise.
    pub fn clock_time(&self, at: Timestamp) -> String {
        let (there, here) = (at.to_zoned(self.zone.clone()), self.at.to_zoned(self.zone.clone()));
        let format = if there.date() == here.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        there.strftime(format).to_string()
    }

    /// Returns the time after a wait, rounded up to whole seconds, so that it is never shown too
    /// early.
    pub fn after(&self, wait: Duration) -> Timestamp {
        let exact = SignedDuration::try_from(wait).and_then(|wait| self.at.checked_add(wait));
        let exact = exact.unwrap_or(Timestamp::MAX);
        let begun = i64::from(exact.subsec_nanosecond() > 0);
        Timestamp::from_second(exact.as_second().saturating_add(begun)).unwrap_or(Timestamp::MAX)
    }

    /// Formats a time as local time and relative to now.
    pub(super) fn local_and_relative(&self, at: Timestamp) -> String {
        let zoned = at.to_zoned(self.zone.clone());
        let local = zoned.strftime("%Y-%m-%d %H:%M:%S %:z");
        match u64::try_from(at.as_second() - self.at.as_second()) {
            Ok(wait @ 1..) => format!("{local}, in {}", format_duration(Duration::from_secs(wait))),
            Ok(_) | Err(_) => format!("{local}, now past"),
        }
    }
}

/// An instant from seconds since the Unix epoch.
pub(super) fn from_unix_seconds(unix_seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(unix_seconds).ok()?).ok()
}
