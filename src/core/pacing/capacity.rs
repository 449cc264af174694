//! Coordinates capacity probes of an overloaded service among the runs of one host.
//!
//! Pure, like [`SharedRateLimit`](super::SharedRateLimit). The runs that wait for capacity share
//! one probe: one run sends it, and the others check here when the next one is due. After an
//! answered probe the runs resume one by one, in the order in which they ask.

use serde::{Deserialize, Serialize};

/// The shared probe state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Capacity {
    /// The probe in flight.
    current: Option<ProbeLease>,
    /// Time at which the latest probe was sent.
    sent_at: u64,
    /// Time at which a probe was last answered.
    answered_at: u64,
    /// Time from which the next waiting run may resume.
    next_turn: u64,
}

/// The right of one run to send a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProbeLease {
    pub(super) owner: u64,
    /// Time at which the probe counts as lost: its run may have been killed.
    pub(super) expires: u64,
}

/// A run that asks to send a probe.
#[derive(Clone, Copy, Debug)]
pub struct Prober {
    /// Unique for each run.
    pub id: u64,
    /// The run's own jitter fraction, from 0 to below 1.
    pub jitter: f64,
    /// Duration of its wait so far, in milliseconds. A probe that was answered before the wait
    /// began does not end it.
    pub waited: u64,
    /// The interval between probes, in milliseconds.
    pub interval: u64,
}

/// The answer to a run that asks to send a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeLeave {
    /// Send the probe.
    Go,
    /// Another run is probing, or the next probe is not due. Check again at `until`.
    Defer { until: u64 },
    /// The probe of another run was answered. Send the request at `turn`.
    Answered { turn: u64 },
}

/// The result of a probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    Answered,
    Failed,
    /// A rate limit, with the server's `retry-after` in milliseconds.
    Limited {
        wait: Option<u64>,
    },
}

/// Minimum gap between two resuming runs, in milliseconds: at most twenty requests a second for
/// each host and limit.
pub const RETURN_GAP: u64 = 50;
/// Maximum duration of a probe, in milliseconds. Longer than the timeout of its request.
const LEASE_DURATION: u64 = 15_000;
/// Delay before a check on a probe of another run that is in flight, in milliseconds.
const PROBE_POLL_INTERVAL: u64 = 2_000;

impl Capacity {
    pub(super) fn claim_probe(&mut self, now: u64, who: Prober) -> ProbeLeave {
        let since = now.saturating_sub(who.waited);
        if self.answered_at > since {
            let turn = self.next_turn.max(now);
            self.next_turn = turn + RETURN_GAP;
            return ProbeLeave::Answered { turn };
        }
        let is_in_flight = |lease: &&ProbeLease| lease.owner != who.id && now < lease.expires;
        if let Some(lease) = self.current.as_ref().filter(is_in_flight) {
            let next_check =
                now + PROBE_POLL_INTERVAL + fraction_of(PROBE_POLL_INTERVAL / 2, who.jitter);
            return ProbeLeave::Defer { until: next_check.min(lease.expires + RETURN_GAP) };
        }
        // A run may probe up to 20 % early, so that jitter does not delay a run that is alone.
        let due = self.sent_at + who.interval / 5 * 4;
        if self.sent_at > 0 && now < due {
            return ProbeLeave::Defer { until: due + fraction_of(who.interval / 10, who.jitter) };
        }
        self.current = Some(ProbeLease { owner: who.id, expires: now + LEASE_DURATION });
        self.sent_at = now;
        ProbeLeave::Go
    }

    pub(super) fn record_probe_end(&mut self, now: u64, id: u64, end: ProbeEnd) {
        if self.current.as_ref().is_some_and(|lease| lease.owner == id) {
            self.current = None;
        }
        if end == ProbeEnd::Answered {
            self.answered_at = now;
            // The run that sent the probe resumes first.
            self.next_turn = self.next_turn.max(now + RETURN_GAP);
        }
    }

    /// True if all stored times are plausible at `now`.
    pub(super) fn is_sound(&self, now: u64, future: u64) -> bool {
        let ahead = self.current.as_ref().map_or(0, |lease| lease.expires).max(self.next_turn);
        self.sent_at <= now && self.answered_at <= now && ahead <= now.saturating_add(future)
    }
}

/// Returns `fraction` of `whole`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a few seconds in milliseconds is small and positive"
)]
pub(super) fn fraction_of(whole: u64, fraction: f64) -> u64 {
    (whole as f64 * fraction.clamp(0.0, 1.0)) as u64
}
