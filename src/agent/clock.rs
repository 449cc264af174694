//! The clock of a run, which rehearsals and tests can scale.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::recovery::Moment;

/// The run's clock. Its time can be scaled, so that an outage of a night can be rehearsed in
/// seconds: waits shrink, while every duration that is shown or decided upon stays the same.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    scale: f64,
}

impl Clock {
    /// Starts the clock. `scale` is the number of seconds of run time that pass in one real second,
    /// at least a thousandth.
    pub fn start(scale: f64) -> Self {
        Self::since(Instant::now(), scale)
    }

    /// Like [`Self::start`], for a run that began at `start`.
    pub fn since(start: Instant, scale: f64) -> Self {
        Self { start, scale: scale.max(0.001) }
    }

    /// Returns true if run time passes as fast as real time.
    pub fn is_real_time(&self) -> bool {
        (self.scale - 1.0).abs() < f64::EPSILON
    }

    pub fn now(&self) -> Moment {
        Moment::default().after(self.start.elapsed().mul_f64(self.scale))
    }

    /// Returns the run time that has passed since the start.
    pub fn elapsed(&self) -> Duration {
        Moment::default().until(self.now())
    }

    /// Returns the run time that passes in `real` time.
    pub fn scaled(&self, real: Duration) -> Duration {
        real.mul_f64(self.scale)
    }

    /// Returns the date in run time: the real date plus the time by which the run is ahead of it.
    pub fn date(&self) -> SystemTime {
        let (date, real) = (SystemTime::now(), self.start.elapsed());
        let run = real.mul_f64(self.scale);
        let moved = match run.checked_sub(real) {
            Some(ahead) => date.checked_add(ahead),
            None => date.checked_sub(real.saturating_sub(run)),
        };
        moved.unwrap_or(date)
    }

    /// Returns the date in run time, in seconds since the Unix epoch.
    pub fn unix_seconds(&self) -> u64 {
        self.date().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Returns the real time in which `duration` of run time passes.
    pub fn real(&self, duration: Duration) -> Duration {
        duration.div_f64(self.scale)
    }

    /// Sleeps until `moment`.
    pub async fn sleep_until(&self, moment: Moment) {
        let since_start = self.real(Moment::default().until(moment));
        tokio::time::sleep_until(self.start + since_start).await;
    }
}
