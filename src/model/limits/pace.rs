//! Paces the requests of all runs on one host that share a rate limit.
//!
//! Nothing in here performs I/O or reads a clock. All times are milliseconds of a clock that every
//! process of the host shares.
//!
//! ```text
//!   claim ──► Go ──► (the request) ──► served: room left, a little faster
//!     │                         └────► refused: no requests until its end; about half the speed
//!     └─────► Wait until the run's own slot ──► claim again, with that slot
//! ```
//! The state has three parts, from the most to the least reliable:
//! - *the block*: a 429 carries a retry-after. Until then no request is sent. Then one request goes
//!   first, as a probe; the others follow once it was answered or its lead time is over;
//! - *the window* (`room`): headers report how many requests are left. Every permitted request
//!   takes one of them, so the runs together do not exceed the window. The next window is assumed
//!   to be as large;
//! - *the gap*: the time between two requests. It is zero until a limit is hit. Then it is the gap
//!   that uses up a window evenly or, without such headers, the measured rate. Each further refusal
//!   raises it by at least a quarter, each answer lowers it a little, and it is dropped when no run
//!   has to wait any more.
//!
//! Slots are assigned in the order of the requests, one to a run. A run that finds the window
//! exhausted at its slot keeps its place, so no run starves. A run that is alone on its host is
//! only ever delayed by a block.

use serde::{Deserialize, Serialize};

use super::capacity::{Capacity, ProbeEnd, ProbeLeave, Prober, fraction_of};

/// Shared pacing state of one rate limit. The default is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedPace {
    /// No request may be sent before then.
    pub blocked_until: u64,
    /// When the refusal (429) arrived that set the block.
    blocked_at: u64,
    /// Consecutive refusals without a retry-after.
    streak: u32,
    /// Whether no request has been answered since the block.
    unproven: bool,
    probe: Option<RateProbe>,
    /// The remaining requests of the window, as reported by the service.
    pub room: Option<RequestWindow>,
    /// Time between two requests, in microseconds; 0 until a limit is hit.
    pub gap_us: u64,
    /// The first free slot.
    next: u64,
    /// How many requests were ever permitted.
    granted: u64,
    /// The latest permitted request whose answer reported the window.
    told_by: u64,
    /// Requests in flight: the id of the run, and when the request was permitted.
    under_way: Vec<(u64, u64)>,
    /// Answers since `since`: the basis for measuring the gap.
    served: u32,
    since: u64,
    /// The run that claimed last, and when the claiming run last changed.
    last: u64,
    crowded_at: Option<u64>,
    /// When a run last had to wait for a slot.
    waited_at: u64,
    touched: u64,
    /// State of the shared capacity probes.
    capacity: Capacity,
}

/// The request that finds out whether the service takes requests again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RateProbe {
    owner: u64,
    /// When the probe counts as lost: its run may have been killed.
    expires: u64,
}

/// A rate-limit window for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestWindow {
    pub limit: Option<u32>,
    pub left: u32,
    /// When the window is full again.
    pub resets: u64,
    /// The length of the window, as far as it was observed.
    length: u64,
}

/// The request limit reported in the headers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLimits {
    pub limit: Option<u32>,
    pub left: u32,
    /// Milliseconds until the window is full again.
    pub resets_in: u64,
}

/// A run that asks to send a request.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// Unique for each run, and never 0.
    pub id: u64,
    /// The run's own jitter fraction, from 0 to below 1.
    pub jitter: f64,
    /// The slot that the run waited for.
    pub slot: Option<u64>,
    /// Whether the run sends the request without waiting. The request is counted all the same.
    pub skips_wait: bool,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    Go(RequestPermit),
    /// Claim again at `until`, with this `slot`.
    Wait {
        slot: u64,
        until: u64,
    },
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
/// A run is alone if no other run has asked for this long.
const ALONE_AFTER: u64 = 2 * MINUTE;
/// How long a probe may take until its response headers arrive.
const PROBE_LIFE: u64 = 10 * SECOND;
/// How far ahead of the other runs a probe goes, and how often they check for its answer.
const PROBE_LEAD: u64 = SECOND;
/// A request in flight for longer than this counts as lost, and no more of them than
/// `UNDER_WAY_MAX` are tracked.
const LOST_AFTER: u64 = MINUTE;
const UNDER_WAY_MAX: usize = 200;
/// Tolerated clock difference between service and host at the end of a window.
const CLOCK_TOLERANCE: u64 = 50;
/// No slot is assigned further ahead than this; later runs share the last one.
const SLOT_AHEAD_MAX: u64 = 10 * MINUTE;
/// The shortest and longest gap, and the initial one when no rate could be measured.
const GAP_MIN_US: u64 = 5_000;
const GAP_MAX_US: u64 = 60_000_000;
const GAP_FIRST_US: u64 = 250_000;
/// A longer block means a quota, which says nothing about a request rate.
const RATE_BLOCK_MAX: u64 = 2 * MINUTE;
/// No stored time may lie further ahead than this.
const FUTURE_MAX: u64 = 7 * 24 * 60 * MINUTE;

impl SharedPace {
    /// Asks whether `who` may send a request at `now`.
    pub fn claim(&mut self, now: u64, who: Requester) -> ClaimAnswer {
        self.drop_outdated(now);
        self.touched = now;
        if std::mem::replace(&mut self.last, who.id) != who.id && self.granted > 0 {
            self.crowded_at = Some(now);
        }
        if who.skips_wait {
            return ClaimAnswer::Go(self.grant(now, who.id));
        }
        let crowded = self.is_crowded(now);
        let earliest = self.earliest_request(now, who.id, crowded);
        let room = if crowded { self.window_available_at(now) } else { now };
        if earliest == now && who.slot.is_some_and(|slot| slot <= now) {
            if room == now {
                return ClaimAnswer::Go(self.grant(now, who.id));
            }
            // The run keeps its place: runs with later slots come after it.
            self.waited_at = now;
            let until = room + fraction_of(self.gap_us / 1_000, who.jitter);
            return ClaimAnswer::Wait { slot: room, until };
        }
        let earliest = earliest.max(room);
        let paced = crowded && self.gap_us > 0;
        let slot = if paced { earliest.max(self.next) } else { earliest };
        if paced {
            self.next = (slot + self.slot_distance(slot)).min(now + SLOT_AHEAD_MAX);
        }
        if slot <= now {
            return ClaimAnswer::Go(self.grant(now, who.id));
        }
        self.waited_at = now;
        // Paced requests are spread out already.
        let spread = if paced { self.gap_us / 4_000 } else { SECOND };
        let until = slot + fraction_of(spread.min((slot - now) / 4), who.jitter);
        ClaimAnswer::Wait { slot, until }
    }

    /// Records that the service accepted the request, with the window it reported.
    pub fn record_success(&mut self, now: u64, grant: RequestPermit, told: Option<HeaderLimits>) {
        self.drop_outdated(now);
        self.touched = now;
        self.under_way.retain(|(owner, _)| *owner != grant.owner);
        self.restart_measurement(now);
        if grant.at > self.blocked_at {
            (self.unproven, self.probe, self.streak) = (false, None, 0);
        }
        // Doubling the speed takes a few hundred answers: a limit is hit rarely, not all the time.
        self.gap_us -= self.gap_us / 512;
        if let Some(told) = told {
            self.update_window(now, grant, told);
        }
    }

    /// Records a 429. `wish` is the server's retry-after, in milliseconds.
    pub fn record_refusal(&mut self, now: u64, grant: RequestPermit, wish: Option<u64>) {
        self.touched = now;
        self.under_way.retain(|(owner, _)| *owner != grant.owner);
        let wish = wish.map(|wait| wait.min(FUTURE_MAX));
        // Refusals of requests that were already in flight at the first refusal add no information.
        let known = self.blocked_at > 0 && grant.at <= self.blocked_at;
        if known {
            self.blocked_until = self.blocked_until.max(now + wish.unwrap_or(0));
            return;
        }
        let ladder = (SECOND << self.streak.min(5)).min(32 * SECOND);
        self.streak = if wish.is_some() { 0 } else { self.streak.saturating_add(1) };
        let wait = wish.unwrap_or(ladder);
        self.blocked_at = now;
        self.blocked_until = self.blocked_until.max(now + wait);
        if wait <= RATE_BLOCK_MAX {
            let seen = now.saturating_sub(self.since).min(2 * MINUTE) + wait;
            let even = self.room.and_then(|room| even_gap(room.length, room.limit));
            let measured = match (even, u64::from(self.served)) {
                // A reported window is more reliable than the measured rate, which depends on this
                // host's load.
                (Some(even), _) => even,
                (None, 0) => 0,
                // A little slower than the rate that was too fast.
                (None, served) => seen * 1_100 / served,
            };
            let slower = self.gap_us + self.gap_us / 4;
            let gap = measured.max(slower);
            let gap = if gap == 0 { GAP_FIRST_US } else { gap };
            self.gap_us = gap.clamp(GAP_MIN_US, GAP_MAX_US);
        }
        (self.served, self.since) = (0, self.blocked_until);
        (self.unproven, self.probe, self.room) = (true, None, None);
        self.next = self.next.max(self.blocked_until);
        self.waited_at = now;
    }

    /// Asks whether `who` may send a capacity probe at `now`. A rate limit is never probed before
    /// it ends.
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

    /// Records how the capacity probe of run `id` ended.
    pub fn record_probe_end(&mut self, now: u64, id: u64, end: ProbeEnd) {
        self.touched = now;
        self.capacity.record_probe_end(now, id, end);
        if let ProbeEnd::Limited { wait: Some(wait) } = end {
            self.blocked_until = self.blocked_until.max(now + wait.min(FUTURE_MAX));
        }
    }

    /// Whether the state is plausible at `now`. Implausible state was written by another program or
    /// before a jump of the clock.
    pub fn is_sound(&self, now: u64) -> bool {
        let resets = self.room.map_or(0, |room| room.resets);
        let probe = self.probe.as_ref().map_or(0, |probe| probe.expires);
        let ahead = [self.blocked_until, self.next, resets, self.since, probe];
        let past = [self.blocked_at, self.touched, self.waited_at, self.crowded_at.unwrap_or(0)];
        ahead.iter().all(|&time| time <= now.saturating_add(FUTURE_MAX))
            && past.iter().all(|&time| time <= now)
            && self.gap_us <= GAP_MAX_US
            && self.room.is_none_or(|room| room.length <= FUTURE_MAX)
            && self.under_way.len() <= UNDER_WAY_MAX
            && self.capacity.is_sound(now, FUTURE_MAX)
    }

    /// The earliest time for the next request, regardless of the window and of other runs' slots.
    fn earliest_request(&self, now: u64, who: u64, crowded: bool) -> u64 {
        let mut earliest = now.max(self.blocked_until);
        if !crowded {
            return earliest;
        }
        if let Some(probe) = self.probe.as_ref().filter(|probe| probe.owner != who)
            && now < probe.expires
        {
            earliest = earliest.max(probe.expires.min(now + PROBE_LEAD));
        }
        earliest
    }

    /// When the window has room for a request.
    fn window_available_at(&mut self, now: u64) -> u64 {
        let Some(room) = self.room.filter(|room| room.left == 0 && now < room.resets) else {
            return now;
        };
        // From now on, runs together want more requests than the window holds.
        if let Some(even) = even_gap(room.length, room.limit) {
            self.gap_us = self.gap_us.max(even).clamp(GAP_MIN_US, GAP_MAX_US);
        }
        room.resets
    }

    /// The distance from a slot to the next one. The first slot after a block belongs to the probe.
    fn slot_distance(&self, slot: u64) -> u64 {
        let gap = (self.gap_us / 1_000).max(1);
        if self.unproven && slot <= self.blocked_until { gap.max(PROBE_LEAD) } else { gap }
    }

    fn grant(&mut self, now: u64, who: u64) -> RequestPermit {
        if self.unproven && self.probe.as_ref().is_none_or(|probe| now >= probe.expires) {
            self.probe = Some(RateProbe { owner: who, expires: now + PROBE_LIFE });
        }
        if let Some(room) = &mut self.room {
            room.left = room.left.saturating_sub(1);
        }
        if self.granted == 0 {
            self.since = now;
        }
        self.granted = self.granted.wrapping_add(1);
        // A run that asks again has no other request in flight.
        self.under_way.retain(|(owner, at)| *owner != who && now.saturating_sub(*at) < LOST_AFTER);
        if self.under_way.len() >= UNDER_WAY_MAX {
            self.under_way.remove(0);
        }
        self.under_way.push((who, now));
        RequestPermit { owner: who, number: self.granted, at: now }
    }

    /// What is left of `all` if none of the requests in flight was counted yet.
    fn remaining_after_in_flight(&self, all: u32) -> u32 {
        all.saturating_sub(u32::try_from(self.under_way.len()).unwrap_or(u32::MAX))
    }

    /// Updates the window from the response headers.
    fn update_window(&mut self, now: u64, grant: RequestPermit, told: HeaderLimits) {
        let resets =
            now.saturating_add(told.resets_in.saturating_add(CLOCK_TOLERANCE).min(FUTURE_MAX));
        let mut left = self.remaining_after_in_flight(told.left);
        // Reset times are reported in whole seconds.
        let same = self.room.filter(|room| room.resets.abs_diff(resets) <= 2 * SECOND);
        let later = self.room.filter(|room| room.resets > resets + 2 * SECOND);
        if later.is_some_and(|room| grant.at < room.resets.saturating_sub(room.length)) {
            // The answer arrived late and describes an earlier window.
            return;
        }
        if grant.number >= self.told_by {
            self.told_by = grant.number;
        } else if let Some(room) = same {
            // The report may predate answers that were already counted.
            left = left.min(room.left);
        }
        let length = same.map_or(0, |room| room.length).max(resets - now);
        self.room = Some(RequestWindow { limit: told.limit, left, resets, length });
        // Reported limits override the measured rate, which is too low on a busy host.
        if let Some(even) = even_gap(length, told.limit) {
            self.gap_us = self.gap_us.min(even.max(GAP_MIN_US));
        }
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
        if now.saturating_sub(self.waited_at) > STATE_AGE_MAX {
            self.gap_us = 0;
        }
        if let Some(room) = self.room.filter(|room| room.resets <= now) {
            let resets = room.resets + room.length;
            let full = room
                .limit
                .filter(|_| now < resets)
                .map(|limit| self.remaining_after_in_flight(limit));
            self.room = full.map(|left| RequestWindow { left, resets, ..room });
        }
    }
}

/// The gap at which a window is used up evenly, in microseconds.
fn even_gap(length: u64, limit: Option<u32>) -> Option<u64> {
    (length * 1_000).checked_div(u64::from(limit?))
}
