//! Back-off: the delay before a retry.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{RetryAfter, RetryAfterSource};

/// Exponential back-off: doubling, capped, with jitter added on top and never subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    /// The same back-off with pauses of at most `limit`, jitter included.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { longest: self.longest.min(limit / 5 * 4), ..self }
    }

    /// The pause after the `nth` failure in a row, counted from 1, with 0..25 % jitter.
    pub(super) fn pause(&self, seed: u64, nth: u8) -> Duration {
        let doublings = nth.saturating_sub(1).min(30);
        let bare = self.first.saturating_mul(1 << doublings).min(self.longest);
        bare.saturating_add(jitter(bare, seed, nth))
    }
}

/// The server's retry-after with jitter. Jitter is added and never subtracted: all clients were
/// given the same time, so they must spread out, and none may come early. An exact reset time is
/// kept exactly when the run waits for capacity anyway.
pub(super) fn retry_after_jitter(
    seed: u64,
    nth: u8,
    retry_after: RetryAfter,
    exactly: bool,
) -> Duration {
    match retry_after.source {
        RetryAfterSource::Reset if exactly => retry_after.wait,
        RetryAfterSource::Reset | RetryAfterSource::RetryAfter => {
            retry_after.wait.saturating_add(jitter(retry_after.wait, seed, nth))
        }
    }
}

/// Up to a quarter of `pause`, and at most ten seconds: a quarter of an hour-long wait would delay
/// the user without helping the server.
fn jitter(pause: Duration, seed: u64, nth: u8) -> Duration {
    (pause / 4).min(Duration::from_secs(10)).mul_f64(fraction(seed, nth))
}

/// A part of `whole` that varies with `seed` and `nth`.
pub(super) fn part(whole: Duration, seed: u64, nth: u8) -> Duration {
    whole.mul_f64(fraction(seed, nth))
}

/// A pseudo-random number in `[0, 1)` that depends only on its arguments.
fn fraction(seed: u64, nth: u8) -> f64 {
    // SplitMix64: small, and more than good enough for jitter.
    let mut z = seed.wrapping_add((u64::from(nth) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let top = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(u32::MAX);
    f64::from(top) / (f64::from(u32::MAX) + 1.0)
}
