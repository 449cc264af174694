//! Paces the requests of all runs on one host that share a rate limit.
//!
//! Pure: no I/O and no clock. All times are milliseconds of a clock that every process of the host
//! shares.
//!
//! ```text
//!   claim ──► Go ──► (the request) ──► served: room left, half the gap
//!     │                         └────► refused: no requests for a while, then at the service's rate
//!     └─────► Wait, in the queue ──► claim again
//! ```
//! The state has three parts, from the most to the least reliable:
//! - *the block*: the retry-after of a 429 or, without one, twice the length of the block before.
//!   Until it ends no request is sent. Then one request goes first, as a probe: that of the run
//!   that was refused, so that the refusals of different runs do not add up. The others follow once
//!   the probe was answered or its lead time is over;
//! - *the window* (`room`): headers report how many requests are left. Every permitted request
//!   takes one of them, so the runs together do not exceed the window. The next window is assumed
//!   to be as large;
//! - *the gap*: the time between two requests. A refusal sets the gap that uses up the reported
//!   window evenly or, without such headers, that of the rate at which the service answered, and
//!   never more than the retry-after. Each answer halves it, and a minute after the last refusal it
//!   is forgotten. So the runs find the limit again with a few refusals, and an estimate of the
//!   rate that was too low does not last.
//!
//! Gap and window apply only while several runs want to send: one has a request in flight, or
//! waits, while another one asks. Runs that follow each other are delayed by a block only. Waiting
//! runs queue in the order in which they asked, so none starves; a run that does not ask again at
//! its time loses its place.

use serde::{Deserialize, Serialize};

use super::capacity::{Capacity, ProbeEnd, ProbeLease, ProbeLeave, Prober, fraction_of};

/// Shared pacing state of one rate limit. The default is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedRateLimit {
    /// Time before which no request may be sent.
    pub blocked_until: u64,
    /// Time at which the refusal (429) arrived that set the block.
    blocked_at: u64,
    /// Consecutive refusals without a retry-after.
    streak: u32,
    /// True if no request has been answered since the block.
    unproven: bool,
    /// The request that tests whether the service accepts requests again.
    probe: Option<ProbeLease>,
    /// The remaining requests of the window, as reported by the service.
    pub room: Option<RequestWindow>,
    /// Time between two requests, in microseconds; 0 until a limit is hit.
    pub gap_us: u64,
    /// The time at which the last request was permitted.
    sent_at: u64,
    /// Runs that wait, in their order: the id of each, and the time at which it asks again.
    queue: Vec<(u64, u64)>,
    /// Number of requests that were ever permitted.
    granted: u64,
    /// The number of the latest permitted request whose answer reported the window.
    reported_by: u64,
    /// Requests in flight: the id of the run, and the time at which the request was permitted.
    under_way: Vec<(u64, u64)>,
    /// Answers since `since`: the basis for measuring the gap.
    served: u32,
    since: u64,
    /// Time at which a run last asked while another one had a request in flight or waited.
    crowded_at: Option<u64>,
    touched: u64,
    /// State of the shared capacity probes.
    capacity: Capacity,
}

/// A rate-limit window for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestWindow {
    pub limit: Option<u32>,
    pub left: u32,
    /// Time at which the window is reset.
    pub resets: u64,
    /// The length of the window, as far as it was observed.
    length: u64,
}

/// The request limit reported in the headers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLimits {
    pub limit: Option<u32>,
    pub left: u32,
    /// Milliseconds until the window is reset.
    pub resets_in: u64,
}

/// A run that asks to send a request.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// Unique for each run, and never 0.
    pub id: u64,
    /// The run's own jitter fraction, from 0 to below 1.
    pub jitter: f64,
    /// True if the run sends the request without waiting. The request is counted all the same.
    pub skips_wait: bool,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// Send the request.
    Go(RequestPermit),
    /// Claim again at `until`.
    Wait { until: u64 },
}

/// A permitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPermit {
    owner: u64,
    number: u64,
    at: u64,
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// State older than this is discarded: the run that wrote it has ended.
const STATE_AGE_MAX: u64 = 5 * MINUTE;
/// A run is alone if no other run sent requests while it waited for this long.
const ALONE_AFTER: u64 = MINUTE;
/// Maximum duration of a probe until its response headers arrive.
const PROBE_LIFE: u64 = 10 * SECOND;
/// Lead of a probe over the other runs, and the interval at which they check for its answer.
const PROBE_LEAD: u64 = SECOND;
/// A request in flight for longer than this counts as lost.
const LOST_AFTER: u64 = MINUTE;
/// Maximum number of requests in flight, and of waiting runs, that are tracked.
const TRACKED_MAX: usize = 150;
/// Tolerated clock difference between service and host at the end of a window.
const CLOCK_TOLERANCE: u64 = 50;
/// A waiting run asks again after this time, since the gap may have shrunk meanwhile.
const QUEUE_POLL: u64 = 30 * SECOND;
/// A waiting run that comes back later than this has lost its place: it may have been killed.
const QUEUE_DELAY_MAX: u64 = 2 * SECOND;
/// The first block without a retry-after. The last one is 32 times as long.
const FIRST_BLOCK: u64 = SECOND;
/// The shortest gap, the longest that is derived from a window, and the one when no rate could be
/// measured, in microseconds.
const GAP_MIN_US: u64 = 5_000;
const GAP_MAX_US: u64 = 60_000_000;
const GAP_FIRST_US: u64 = 250_000;
/// Time after the end of the last block at which the gap is forgotten.
const GAP_LIFE: u64 = MINUTE;
/// A longer block means a quota, from which no request rate can be derived.
const RATE_BLOCK_MAX: u64 = 2 * MINUTE;
/// No stored time may lie further ahead than this.
const FUTURE_MAX: u64 = 7 * 24 * 60 * MINUTE;

impl SharedRateLimit {
    /// Decides whether `who` may send a request at `now`.
    pub fn claim(&mut self, now: u64, who: Requester) -> ClaimAnswer {
        self.drop_outdated(now);
        self.touched = now;
        if self.has_company(now, who.id) {
            self.crowded_at = Some(now);
        }
        if who.skips_wait {
            return ClaimAnswer::Go(self.grant(now, who.id));
        }
        let crowded = self.is_crowded(now);
        let earliest = self.earliest_request(now, who.id, crowded);
        let slot = if crowded { self.behind_queue(earliest, who.id) } else { earliest };
        if slot <= now {
            return ClaimAnswer::Go(self.grant(now, who.id));
        }
        // Paced requests are spread out already.
        let spread = if crowded && self.gap_us > 0 { self.gap_us / 4_000 } else { SECOND };
        let slot = slot.min(earliest.saturating_add(QUEUE_POLL));
        let until = slot + fraction_of(spread.min((slot - now) / 4), who.jitter);
        self.enqueue(who.id, until);
        ClaimAnswer::Wait { until }
    }

    /// Records that the service accepted the request, with the window it reported.
    pub fn record_success(
        &mut self,
        now: u64,
        grant: RequestPermit,
        reported: Option<HeaderLimits>,
    ) {
        self.drop_outdated(now);
        self.touched = now;
        self.under_way.retain(|(owner, _)| *owner != grant.owner);
        self.restart_measurement(now);
        if grant.at > self.blocked_at {
            (self.unproven, self.probe, self.streak) = (false, None, 0);
        }
        if let Some(reported) = reported {
            self.update_window(now, grant, reported);
        }
        if self.gap_us > 0 {
            // A window is used up in half its time: the runs keep their order, and none is refused.
            let even = self.room.and_then(|room| even_gap(room.length, room.limit)).unwrap_or(0);
            self.gap_us = (self.gap_us / 2).max(even / 2).max(GAP_MIN_US);
        }
    }

    /// Records a 429. `wait` is the server's retry-after, in milliseconds.
    pub fn record_refusal(&mut self, now: u64, grant: RequestPermit, wait: Option<u64>) {
        self.touched = now;
        self.under_way.retain(|(owner, _)| *owner != grant.owner);
        let wait = wait.map(|wait| wait.min(FUTURE_MAX));
        let default_wait = FIRST_BLOCK << self.streak.min(5);
        // Refusals of requests that were already in flight at the first refusal add no information.
        let is_known = self.blocked_at > 0 && grant.at <= self.blocked_at;
        let asks_again_at = match wait {
            Some(wait) => now + wait + wait.min(40 * SECOND) / 4,
            None if is_known => self.blocked_until.max(now),
            None => self.blocked_until.max(now + default_wait),
        };
        // The refused run has waited already, so it goes before the others.
        self.queue.truncate(TRACKED_MAX - 1);
        self.queue.insert(0, (grant.owner, asks_again_at));
        if is_known {
            self.blocked_until = self.blocked_until.max(now + wait.unwrap_or(0));
            return;
        }
        self.streak = if wait.is_some() { 0 } else { self.streak.saturating_add(1) };
        let wait = wait.unwrap_or(default_wait);
        if wait <= RATE_BLOCK_MAX {
            let period = now.saturating_sub(self.since).min(2 * MINUTE) + wait;
            let even = self.room.and_then(|room| even_gap(room.length, room.limit));
            // A reported window is more reliable than the measured rate. A run that was alone has
            // no meaningful rate: it asked for less than the service would have served.
            let served = u64::from(if self.is_crowded(now) { self.served } else { 0 });
            let measured = even.or((period * 1_000).checked_div(served));
            let gap = measured.unwrap_or(GAP_FIRST_US).min(wait * 1_000);
            self.gap_us = gap.max(GAP_MIN_US);
        }
        self.blocked_at = now;
        self.blocked_until = self.blocked_until.max(now + wait);
        (self.served, self.since) = (0, self.blocked_until);
        (self.unproven, self.probe, self.room) = (true, None, None);
    }

    /// Decides whether `who` may send a capacity probe at `now`. A rate limit is never probed
    /// before it ends.
    pub fn claim_probe(&mut self, now: u64, who: Prober) -> ProbeLeave {
        self.drop_outdated(now);
        self.touched = now;
        if now < self.blocked_until {
            return ProbeLeave::Defer {
                until: self.blocked_until + fraction_of(SECOND, who.jitter),
            };
        }
        let leave = self.capacity.claim_probe(now, who);
        if let (ProbeLeave::Go, Some(room)) = (leave, &mut self.room) {
            room.left = room.left.saturating_sub(1);
        }
        leave
    }

    /// Records the result of the capacity probe of run `id`.
    pub fn record_probe_end(&mut self, now: u64, id: u64, end: ProbeEnd) {
        self.touched = now;
        self.capacity.record_probe_end(now, id, end);
        if let ProbeEnd::Limited { wait: Some(wait) } = end {
            self.blocked_until = self.blocked_until.max(now + wait.min(FUTURE_MAX));
        }
    }

    /// True if the state is plausible at `now`. Implausible state was written by another program or
    /// before a jump of the clock.
    pub fn is_sound(&self, now: u64) -> bool {
        let resets = self.room.map_or(0, |room| room.resets);
        let probe = self.probe.as_ref().map_or(0, |probe| probe.expires);
        let ahead = [self.blocked_until, resets, self.since, probe];
        let past = [self.blocked_at, self.touched, self.sent_at, self.crowded_at.unwrap_or(0)];
        ahead.iter().all(|&time| time <= now.saturating_add(FUTURE_MAX))
            && past.iter().all(|&time| time <= now)
            && self.gap_us <= RATE_BLOCK_MAX * 1_000
            && self.room.is_none_or(|room| room.length <= FUTURE_MAX)
            && self.under_way.len().max(self.queue.len()) <= TRACKED_MAX
            && self.queue.iter().all(|&(_, until)| until <= now.saturating_add(2 * FUTURE_MAX))
            && self.capacity.is_sound(now, FUTURE_MAX)
    }

    /// The earliest time for the next request, regardless of the queue.
    fn earliest_request(&mut self, now: u64, who: u64, crowded: bool) -> u64 {
        let mut earliest = now.max(self.blocked_until);
        if !crowded {
            return earliest;
        }
        if let Some(probe) = self.probe.as_ref().filter(|probe| probe.owner != who)
            && now < probe.expires
        {
            earliest = earliest.max(probe.expires.min(now + PROBE_LEAD));
        }
        if self.gap_us > 0 {
            earliest = earliest.max(self.sent_at + self.gap_us / 1_000);
        }
        earliest.max(self.window_available_at(now, who))
    }

    /// Time at which the window has room for a request, after those of the runs before it in the
    /// queue.
    fn window_available_at(&mut self, now: u64, who: u64) -> u64 {
        let before = self.queue.iter().take_while(|(owner, _)| *owner != who).count();
        let is_full =
            |room: &RequestWindow| usize::try_from(room.left).is_ok_and(|left| left <= before);
        let Some(room) = self.room.filter(|room| is_full(room) && now < room.resets) else {
            return now;
        };
        // The runs together now want more requests than the window allows.
        if let Some(even) = even_gap(room.length, room.limit) {
            self.gap_us = self.gap_us.max(even / 2).max(GAP_MIN_US);
        }
        room.resets
    }

    /// The slot of a run from `earliest` on: those before it in the queue that will have asked by
    /// then go first. The first slot after a block belongs to the probe.
    fn behind_queue(&self, earliest: u64, who: u64) -> u64 {
        let gap = (self.gap_us / 1_000).max(1);
        let before = self.queue.iter().take_while(|(owner, _)| *owner != who);
        before.fold(earliest, |slot, &(_, until)| {
            let first = self.unproven && slot <= self.blocked_until;
            let taken = if first { gap.max(PROBE_LEAD) } else { gap };
            if until <= slot + gap / 2 { slot + taken } else { slot }
        })
    }

    /// Enters a run into the queue, or keeps its place.
    fn enqueue(&mut self, who: u64, until: u64) {
        if let Some((_, time)) = self.queue.iter_mut().find(|(owner, _)| *owner == who) {
            *time = until;
        } else if self.queue.len() < TRACKED_MAX {
            self.queue.push((who, until));
        }
    }

    /// True if another run has a request in flight, or waits.
    fn has_company(&self, now: u64, who: u64) -> bool {
        let is_in_flight =
            |&(owner, at): &(u64, u64)| owner != who && now.saturating_sub(at) < LOST_AFTER;
        self.queue.iter().any(|(owner, _)| *owner != who) || self.under_way.iter().any(is_in_flight)
    }

    fn grant(&mut self, now: u64, who: u64) -> RequestPermit {
        if self.unproven && self.probe.as_ref().is_none_or(|probe| now >= probe.expires) {
            self.probe = Some(ProbeLease { owner: who, expires: now + PROBE_LIFE });
        }
        if let Some(room) = &mut self.room {
            room.left = room.left.saturating_sub(1);
        }
        if self.granted == 0 {
            self.since = now;
        }
        self.granted = self.granted.wrapping_add(1);
        self.sent_at = now;
        self.queue.retain(|(owner, _)| *owner != who);
        // A run that asks again has no other request in flight.
        self.under_way.retain(|(owner, at)| *owner != who && now.saturating_sub(*at) < LOST_AFTER);
        if self.under_way.len() >= TRACKED_MAX {
            self.under_way.remove(0);
        }
        self.under_way.push((who, now));
        RequestPermit { owner: who, number: self.granted, at: now }
    }

    /// The part of `all` that is left if none of the requests in flight was counted yet.
    fn remaining_after_in_flight(&self, all: u32) -> u32 {
        all.saturating_sub(u32::try_from(self.under_way.len()).unwrap_or(u32::MAX))
    }

    /// Updates the window from the response headers.
    fn update_window(&mut self, now: u64, grant: RequestPermit, reported: HeaderLimits) {
        let resets =
            now.saturating_add(reported.resets_in.saturating_add(CLOCK_TOLERANCE).min(FUTURE_MAX));
        let mut left = self.remaining_after_in_flight(reported.left);
        // Reset times are reported in whole seconds.
        let same = self.room.filter(|room| room.resets.abs_diff(resets) <= 2 * SECOND);
        let later = self.room.filter(|room| room.resets > resets + 2 * SECOND);
        if later.is_some_and(|room| grant.at < room.resets.saturating_sub(room.length)) {
            // The answer arrived late and describes an earlier window.
            return;
        }
        if grant.number >= self.reported_by {
            self.reported_by = grant.number;
        } else if let Some(room) = same {
            // The report may predate answers that were already counted.
            left = left.min(room.left);
        }
        let length = same.map_or(0, |room| room.length).max(resets - now);
        self.room = Some(RequestWindow { limit: reported.limit, left, resets, length });
    }

    /// Restarts the measurement every minute or two.
    fn restart_measurement(&mut self, now: u64) {
        self.served = self.served.saturating_add(1);
        let span = now.saturating_sub(self.since);
        if span > 2 * MINUTE {
            self.served = (self.served / 2).max(1);
            self.since = now - MINUTE;
        }
    }

    fn is_crowded(&self, now: u64) -> bool {
        self.crowded_at.is_some_and(|then| now.saturating_sub(then) < ALONE_AFTER)
    }

    /// Drops outdated state.
    fn drop_outdated(&mut self, now: u64) {
        if now >= self.blocked_until && now.saturating_sub(self.touched) > STATE_AGE_MAX {
            *self = Self::default();
        }
        if now.saturating_sub(self.blocked_until.max(self.blocked_at)) > GAP_LIFE {
            self.gap_us = 0;
        }
        self.queue.retain(|(_, until)| now <= until.saturating_add(QUEUE_DELAY_MAX));
        if let Some(room) = self.room.filter(|room| room.resets <= now) {
            let resets = room.resets + room.length;
            let full = room.limit.filter(|_| now < resets);
            let left = full.map(|limit| self.remaining_after_in_flight(limit));
            self.room = left.map(|left| RequestWindow { left, resets, ..room });
        }
    }
}

/// The gap at which a window is used up evenly, in microseconds.
fn even_gap(length: u64, limit: Option<u32>) -> Option<u64> {
    Some((length * 1_000).checked_div(u64::from(limit?))?.min(GAP_MAX_US))
}
