//! Formatting of timestamps and durations for people and programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path};
use std::sync::OnceLock;
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
        Self { at, zone: system_zone() }
    }

    /// The wall-clock time of an instant: only the time when it is near, with the date otherwise.
    pub fn clock_time(&self, at: Timestamp) -> String {
        let (then, now) = (at.to_zoned(self.zone.clone()), self.at.to_zoned(self.zone.clone()));
        let format = if then.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        then.strftime(format).to_string()
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

/// The system's time zone, or that of the variable TZ.
pub(super) fn system_zone() -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    let variable = || std::env::var_os("TZ").filter(|zone| !zone.is_empty());
    // The crate's own search begins by a list of all zones, which takes longer than all else here.
    ZONE.get_or_init(|| read_zone(variable().as_deref()).unwrap_or_else(TimeZone::system)).clone()
}

/// Reads the one file of a zone. `None` for other forms of the variable.
fn read_zone(variable: Option<&OsStr>) -> Option<TimeZone> {
    let is_usual = std::env::var_os("TZDIR").is_none();
    let is_name = |part| matches!(part, Component::Normal(_));
    let path = match variable {
        None => Path::new("/etc/localtime").to_path_buf(),
        Some(name) if is_usual && Path::new(name).components().all(is_name) => {
            Path::new("/usr/share/zoneinfo").join(name)
        }
        Some(_) => return None,
    };
    TimeZone::tzif("local", &fs::read(path).ok()?).ok()
}

/// An instant from seconds since the Unix epoch.
pub(super) fn from_unix_seconds(unix_seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(unix_seconds).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_read_by_name_and_nothing_else_is() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        // A machine without the database of zones has none of them.
        if let Some(zone) = read_zone(Some(OsStr::new("Asia/Kolkata"))) {
            assert_eq!(zone.to_offset(at).seconds(), 19_800);
        }
        for other in ["../etc/localtime", "/etc/localtime", ":Asia/Kolkata", "<-03>3", "Asia"] {
            assert!(read_zone(Some(OsStr::new(other))).is_none(), "{other}");
        }
    }
}
