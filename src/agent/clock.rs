//! The one place that reads a clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::recovery::Moment;

/// The run's clock. Its time can be made to pass faster than the world's, so that a night's
/// outage can be rehearsed in seconds: waits shrink, while every figure that is shown or decided
/// upon stays what it would have been.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    scale: f64,
}

impl Clock {
    /// Starts now. `scale` is how many seconds of the run pass in one second of the world, at
    /// least a thousandth.
    pub fn start(scale: f64) -> Self {
        Self { start: Instant::now(), scale: scale.max(0.001) }
    }

    /// Whether its time passes as the world's does.
    pub fn is_real_time(&self) -> bool {
        (self.scale - 1.0).abs() < f64::EPSILON
    }

    pub fn now(&self) -> Moment {
        Moment::default().after(self.start.elapsed().mul_f64(self.scale))
    }

    /// How much of the run's time has passed.
    pub fn elapsed(&self) -> Duration {
        Moment::default().until(self.now())
    }

    /// How much of the run's time passes in `real` of the world's.
    pub fn scaled(&self, real: Duration) -> Duration {
        real.mul_f64(self.scale)
    }

    /// The date as the run has it: the world's, and what the run is ahead of the world.
    pub fn date(&self) -> SystemTime {
        let (world, real) = (SystemTime::now(), self.start.elapsed());
        let run = real.mul_f64(self.scale);
        let moved = match run.checked_sub(real) {
            Some(ahead) => world.checked_add(ahead),
            None => world.checked_sub(real.saturating_sub(run)),
        };
        moved.unwrap_or(world)
    }

    /// The same in seconds since the Unix epoch.
    pub fn unix_seconds(&self) -> u64 {
        self.date().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// How long the world must wait for `duration` of the run to pass.
    pub fn real(&self, duration: Duration) -> Duration {
        duration.div_f64(self.scale)
    }

    /// Sleeps until `moment`.
    pub async fn sleep_until(&self, moment: Moment) {
        let since_start = self.real(Moment::default().until(moment));
        tokio::time::sleep_until(self.start + since_start).await;
    }
}
