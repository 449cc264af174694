//! Time limits of other programs that exclude the time in which this process was stopped: by
//! SIGSTOP, with its container, or with its machine. The other program was stopped as well.

use std::time::Duration;

use tokio::time::Instant;

/// The interval at which elapsed time is measured. A longer gap counts as at most two intervals of
/// running time.
const TICK: Duration = Duration::from_millis(500);

/// Measures for how long this process has run, as long as a wait for it is polled.
#[derive(Debug)]
pub struct RunningClock {
    ran: Duration,
    /// The time up to which `ran` is measured.
    measured: Instant,
}

impl RunningClock {
    /// Creates a clock that begins at zero.
    #[expect(clippy::new_without_default, reason = "a clock starts with its creation")]
    pub fn new() -> Self {
        Self { ran: Duration::ZERO, measured: Instant::now() }
    }

    /// The running time since the creation.
    pub fn ran(&mut self) -> Duration {
        let now = Instant::now();
        self.ran += now.duration_since(self.measured).min(TICK * 2);
        self.measured = now;
        self.ran
    }

    /// Waits until the clock shows `total`. Cancel-safe.
    pub async fn wait_until(&mut self, total: Duration) {
        loop {
            let left = total.saturating_sub(self.ran());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(TICK)).await;
        }
    }
}

/// Sleeps until this process has run for the time `limit`.
pub async fn sleep_while_running(limit: Duration) {
    RunningClock::new().wait_until(limit).await;
}

/// Waits for a future until this process has run for the time `limit`. `None` if it took longer.
pub async fn timeout_while_running<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = sleep_while_running(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gap_in_the_time_counts_as_two_ticks_at_most() {
        let began = Instant::now();
        let sleep = sleep_while_running(Duration::from_secs(8));
        tokio::pin!(sleep);
        assert!(tokio::time::timeout(Duration::from_secs(3), &mut sleep).await.is_err());
        // The process is stopped: the clock continues, and no timer runs.
        tokio::time::advance(Duration::from_secs(25)).await;
        sleep.await;
        let ran = began.elapsed().saturating_sub(Duration::from_secs(25));
        assert!(ran > Duration::from_secs(6) && ran <= Duration::from_secs(8), "{ran:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_begins_again_keeps_the_time_that_has_run() {
        let mut clock = RunningClock::new();
        let total = Duration::from_secs(2);
        for _ in 0..7 {
            let wait = clock.wait_until(total);
            assert!(tokio::time::timeout(Duration::from_millis(250), wait).await.is_err());
        }
        tokio::time::timeout(Duration::from_millis(251), clock.wait_until(total)).await.unwrap();
        assert_eq!(clock.ran(), total);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_without_a_gap_is_exact() {
        let began = Instant::now();
        let limit = Duration::from_millis(1_234);
        assert_eq!(timeout_while_running(limit, std::future::pending::<()>()).await, None);
        assert_eq!(began.elapsed(), limit);
        assert_eq!(timeout_while_running(limit, async { 7 }).await, Some(7));
    }
}
