//! Time limits of other programs that exclude the time in which this process was stopped: by
//! SIGSTOP, with its container, or with its machine. The other program was stopped as well.

use std::time::Duration;

use tokio::time::Instant;

/// The interval at which elapsed time is measured. Of a longer gap, at most twice this counts as
/// running time.
const TICK: Duration = Duration::from_millis(500);

/// Sleeps until this process has run for the time `limit`.
pub async fn sleep_while_running(limit: Duration) {
    let mut left = limit;
    while !left.is_zero() {
        let step = left.min(TICK);
        let began = Instant::now();
        tokio::time::sleep(step).await;
        left = left.saturating_sub(began.elapsed().min(step + TICK));
    }
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
    async fn a_gap_in_the_time_counts_as_one_tick() {
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
    async fn a_limit_without_a_gap_is_exact() {
        let began = Instant::now();
        let limit = Duration::from_millis(1_234);
        assert_eq!(timeout_while_running(limit, std::future::pending::<()>()).await, None);
        assert_eq!(began.elapsed(), limit);
        assert_eq!(timeout_while_running(limit, async { 7 }).await, Some(7));
    }
}
