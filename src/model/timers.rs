//! The timeouts of a request.

use std::time::Duration;

/// Timeouts for each part of a request, in real time: a rehearsal's time scale does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimers {
    /// Timeout of DNS, TCP and TLS together.
    pub connect: Duration,
    /// Timeout from the start of the attempt to the first byte of the reply's body. One second is
    /// added for every 50 kB of the request, since the model reads before it writes.
    pub first_byte: Duration,
    /// The longest silence after the first byte.
    pub idle: Duration,
    /// The longest time without content: pings, unknown events and empty deltas do not count.
    pub progress: Duration,
    /// Timeout of a whole streamed reply, for every 16,000 tokens of its output cap.
    pub reply: Duration,
    /// Timeout of a whole request without streaming.
    pub whole: Duration,
    /// The longest time without any packet, keep-alive probes included. It detects dead
    /// connections: a pulled cable, a rebooted router.
    pub dead_path: Duration,
}

impl Default for RequestTimers {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            first_byte: Duration::from_mins(3),
            idle: Duration::from_mins(2),
            progress: Duration::from_mins(5),
            reply: Duration::from_hours(1),
            whole: Duration::from_mins(10),
            dead_path: Duration::from_secs(55),
        }
    }
}

impl RequestTimers {
    /// The first-byte timeout of a request of `bytes`.
    pub fn first_byte_for(&self, bytes: usize) -> Duration {
        const BYTES_PER_SECOND: u64 = 50_000;

        self.first_byte.saturating_add(Duration::from_secs(bytes as u64 / BYTES_PER_SECOND))
    }

    /// The timeout of a whole streamed reply with an output cap of `cap` tokens.
    pub fn reply_for(&self, cap: u32) -> Duration {
        const TOKENS: u32 = 16_000;

        self.reply.saturating_mul(cap.div_ceil(TOKENS).max(1))
    }
}
