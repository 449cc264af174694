//! Time as people and programs read it.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::agent::Clock;

/// When and where "now" is.
#[derive(Clone, Debug)]
pub struct WallTime {
    pub at: Timestamp,
    pub zone: TimeZone,
}

impl WallTime {
    /// By the run's clock, which may pass faster than the system's, and the system's time zone.
    pub fn by(clock: &Clock) -> Self {
        let at = Timestamp::try_from(clock.date()).unwrap_or_else(|_| Timestamp::now());
        Self { at, zone: TimeZone::system() }
    }

    /// The wall-clock time of an instant: only the time when it is near, with the date otherwise.
    pub fn wall(&self, at: Timestamp) -> String {
        let (there, here) = (at.to_zoned(self.zone.clone()), self.at.to_zoned(self.zone.clone()));
        let format = if there.date() == here.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        there.strftime(format).to_string()
    }

    /// The instant so far in the future, rounded up to whole seconds: nobody should look for
    /// something that is yet to come.
    pub fn after(&self, wait: Duration) -> Timestamp {
        let exact = SignedDuration::try_from(wait).and_then(|wait| self.at.checked_add(wait));
        let exact = exact.unwrap_or(Timestamp::MAX);
        let begun = i64::from(exact.subsec_nanosecond() > 0);
        Timestamp::from_second(exact.as_second().saturating_add(begun)).unwrap_or(Timestamp::MAX)
    }

    /// An instant in local time and as a distance from now.
    pub(super) fn both(&self, at: Timestamp) -> String {
        let zoned = at.to_zoned(self.zone.clone());
        let local = zoned.strftime("%Y-%m-%d %H:%M:%S %:z");
        match u64::try_from(at.as_second() - self.at.as_second()) {
            Ok(wait @ 1..) => format!("{local}, in {}", span(Duration::from_secs(wait))),
            Ok(_) | Err(_) => format!("{local}, now past"),
        }
    }
}

/// A duration as people say it: `2m10s`, `45s`, `3h05m`. The seconds are rounded up, so that what
/// is left is never shown as nothing.
pub fn span(duration: Duration) -> String {
    shown(duration.as_secs() + u64::from(duration.subsec_nanos() > 0))
}

/// The same for time that has passed: what is not over yet does not count.
pub fn passed(duration: Duration) -> String {
    shown(duration.as_secs())
}

fn shown(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, _, _) => format!("{days}d{hours:02}h"),
    }
}

/// An instant from seconds since the Unix epoch.
pub(super) fn instant(unix_seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(unix_seconds).ok()?).ok()
}
