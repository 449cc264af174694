//! Who probes a service that is out, and what came of it, for the runs of one host.
//!
//! Pure, as [`pace`](super::pace). The runs that wait for capacity share one probe: one of them
//! sends it, and the others look here when it should have been sent. When it was answered, they
//! return one by one, in the order in which they look.

use serde::{Deserialize, Serialize};

/// What is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Capacity {
    /// The probe under way.
    current: Option<Lease>,
    /// When the latest probe that was sent was sent.
    sent_at: u64,
    /// When the latest probe that was answered was answered.
    answered_at: u64,
    /// The turn of the next run to return.
    next_turn: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    owner: u64,
    /// Then the probe counts as lost: its run may have been killed.
    expires: u64,
}

/// A run that would probe.
#[derive(Clone, Copy, Debug)]
pub struct Prober {
    /// Another one for each run.
    pub id: u64,
    /// Its own part of every jitter, from 0 to below 1.
    pub jitter: f64,
    /// How long it has been waiting, in milliseconds. An answer from before that proves nothing.
    pub waited: u64,
    /// How often a probe is to be sent, in milliseconds.
    pub interval: u64,
}

/// The answer to a run that would probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeLeave {
    Go,
    /// Another run does; look again then.
    Defer {
        until: u64,
    },
    /// The probe of another run was answered. Ask at `turn`.
    Answered {
        turn: u64,
    },
}

/// How a probe that was sent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    Answered,
    Failed,
    /// A rate limit, of which the server says how many milliseconds it lasts.
    Limited {
        wait: Option<u64>,
    },
}

/// From one return to the next: no more than twenty a second for each host and limit.
pub const RETURN_GAP: u64 = 50;
/// How long a probe may take. Above the time-out of its request.
const LEASE_DURATION: u64 = 15_000;
/// When to look again for what came of a probe that is under way.
const PROBE_POLL_INTERVAL: u64 = 2_000;

impl Capacity {
    pub(super) fn claim_probe(&mut self, now: u64, who: Prober) -> ProbeLeave {
        let since = now.saturating_sub(who.waited);
        if self.answered_at > since {
            let turn = self.next_turn.max(now);
            self.next_turn = turn + RETURN_GAP;
            return ProbeLeave::Answered { turn };
        }
        let under_way = |lease: &&Lease| lease.owner != who.id && now < lease.expires;
        if let Some(lease) = self.current.as_ref().filter(under_way) {
            let look = now + PROBE_POLL_INTERVAL + fraction_of(PROBE_POLL_INTERVAL / 2, who.jitter);
            return ProbeLeave::Defer { until: look.min(lease.expires + RETURN_GAP) };
        }
        // A run that is alone comes up to a fifth early, and is not held up.
        let due = self.sent_at + who.interval / 5 * 4;
        if self.sent_at > 0 && now < due {
            return ProbeLeave::Defer { until: due + fraction_of(who.interval / 10, who.jitter) };
        }
        self.current = Some(Lease { owner: who.id, expires: now + LEASE_DURATION });
        self.sent_at = now;
        ProbeLeave::Go
    }

    pub(super) fn record_probe_end(&mut self, now: u64, id: u64, end: ProbeEnd) {
        if self.current.as_ref().is_some_and(|lease| lease.owner == id) {
            self.current = None;
        }
        if end == ProbeEnd::Answered {
            self.answered_at = now;
            // The prober goes first.
            self.next_turn = self.next_turn.max(now + RETURN_GAP);
        }
    }

    /// Whether this makes sense at `now`.
    pub(super) fn is_sound(&self, now: u64, future: u64) -> bool {
        let ahead = self.current.as_ref().map_or(0, |lease| lease.expires).max(self.next_turn);
        self.sent_at <= now && self.answered_at <= now && ahead <= now.saturating_add(future)
    }
}

/// A part of `whole`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a few seconds in milliseconds is small and positive"
)]
pub(super) fn fraction_of(whole: u64, fraction: f64) -> u64 {
    (whole as f64 * fraction.clamp(0.0, 1.0)) as u64
}
