//! Who may ask next: what the runs of one host know together about one rate limit.
//!
//! Nothing in here performs I/O or reads a clock. All times are milliseconds of a clock that every
//! process of the host shares.
//!
//! ```text
//!   claim ──► Go ──► (the request) ──► served: room left, a little faster
//!     │                         └────► refused: nobody asks before its end; half as fast or so
//!     └─────► Wait until a slot of one's own ──► claim again, with that slot
//! ```
//! Three things are known, from the safest to the roughest:
//! - *the block*: a 429 says when to come back. Until then nobody asks. Then one request goes first,
//!   as a probe; the others follow once it was answered, or has had time enough to be;
//! - *the room*: headers say how many requests are left of the window. Every request that is let go
//!   takes one of them, so the runs together do not send more than that. When the window is over,
//!   the next one is taken to be as large;
//! - *the gap*: the time from one request to the next. There is none until a limit was met. Then it
//!   is what uses up a window evenly; where none is told, what the service was seen to take. It
//!   grows with each further refusal by a quarter at least, shrinks a little with each answer, and
//!   is forgotten when nobody has to wait any more.
//!
//! Slots are given out in the order in which they are asked for, one to a run, and whoever finds no
//! room when its slot comes keeps its place: nobody starves.
//! A run that is alone on its host is never slowed down by more than a block.

use serde::{Deserialize, Serialize};

use super::capacity::{Capacity, ProbeEnd, ProbeLeave, Prober, fraction_of};

/// What is known. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedPace {
    /// Nobody asks before then.
    pub blocked_until: u64,
    /// When the refusal came that says so.
    blocked_at: u64,
    /// Refusals in a row that did not say when to come back.
    streak: u32,
    /// Whether nobody has been answered since the block.
    unproven: bool,
    probe: Option<RateProbe>,
    /// How many requests the window still holds, as far as the service tells.
    pub room: Option<RequestWindow>,
    /// From one request to the next, in microseconds; 0 while no limit was met.
    pub gap_us: u64,
    /// The first slot that nobody has.
    next: u64,
    /// How many requests were let go, ever.
    granted: u64,
    /// The latest of them whose answer told of the room.
    told_by: u64,
    /// Those that were not answered yet: whose they are, and when they were let go.
    under_way: Vec<(u64, u64)>,
    /// Answers since `since`: what the gap is measured by.
    served: u32,
    since: u64,
    /// Who came last, and when it was last somebody else than before.
    last: u64,
    crowded_at: Option<u64>,
    /// When somebody last had to wait for a slot.
    waited_at: u64,
    touched: u64,
    /// What probes of a service that was out came to.
    capacity: Capacity,
}

/// The request that finds out whether the service takes requests again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RateProbe {
    owner: u64,
    /// Then it counts as lost: its run may have been killed.
    expires: u64,
}

/// A window of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestWindow {
    pub limit: Option<u32>,
    pub left: u32,
    /// When it is full again.
    pub resets: u64,
    /// How long it is, as far as that was seen.
    length: u64,
}

/// What an answer's headers say of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLimits {
    pub limit: Option<u32>,
    pub left: u32,
    /// Milliseconds until the window is full again.
    pub resets_in: u64,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// Another one for each run, and never 0.
    pub id: u64,
    /// Its own part of every jitter, from 0 to below 1.
    pub jitter: f64,
    /// The slot it waited for.
    pub slot: Option<u64>,
    /// Whether it waits for nobody any more. It is counted all the same.
    pub skips_wait: bool,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    Go(RequestPermit),
    /// Come again at `until`, and say for which `slot`.
    Wait {
        slot: u64,
        until: u64,
    },
}

/// A request that was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPermit {
    owner: u64,
    number: u64,
    at: u64,
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// What is older is not believed: whoever wrote it is long gone.
const STATE_AGE_MAX: u64 = 5 * MINUTE;
/// A run is alone if nobody else has asked for so long.
const ALONE_AFTER: u64 = 2 * MINUTE;
/// How long a probe may take until its headers come.
const PROBE_LIFE: u64 = 10 * SECOND;
/// How far ahead of the others a probe goes, and how often they look whether it came back.
const PROBE_LEAD: u64 = SECOND;
/// A request that has been under way for so long counts as lost, and more of them than this are not
/// kept in mind.
const LOST_AFTER: u64 = MINUTE;
const UNDER_WAY_MAX: usize = 200;
/// How far the clocks of a service and of this host may be apart when a window is over.
const CLOCK_TOLERANCE: u64 = 50;
/// No slot is given out further ahead; whoever would have to wait longer shares the last one.
const SLOT_AHEAD_MAX: u64 = 10 * MINUTE;
/// The shortest and longest gaps, and the first one when nothing could be measured.
const GAP_MIN_US: u64 = 5_000;
const GAP_MAX_US: u64 = 60_000_000;
const GAP_FIRST_US: u64 = 250_000;
/// A block that is longer than this is about a quota. It says nothing about a rate.
const RATE_BLOCK_MAX: u64 = 2 * MINUTE;
/// Nothing that is written down lies further ahead.
const FUTURE_MAX: u64 = 7 * 24 * 60 * MINUTE;

impl SharedPace {
    /// May `who` send a request at `now`?
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
            // It keeps its place: those who have later slots come after it.
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
        // What is paced is spread out already.
        let spread = if paced { self.gap_us / 4_000 } else { SECOND };
        let until = slot + fraction_of(spread.min((slot - now) / 4), who.jitter);
        ClaimAnswer::Wait { slot, until }
    }

    /// The service took the request, and perhaps said what is left.
    pub fn record_success(&mut self, now: u64, grant: RequestPermit, told: Option<HeaderLimits>) {
        self.drop_outdated(now);
        self.touched = now;
        self.under_way.retain(|(owner, _)| *owner != grant.owner);
        self.restart_measurement(now);
        if grant.at > self.blocked_at {
            (self.unproven, self.probe, self.streak) = (false, None, 0);
        }
        // Half as fast again takes two hundred answers: a limit is met rarely, not all the time.
        self.gap_us -= self.gap_us / 512;
        if let Some(told) = told {
            self.update_window(now, grant, told);
        }
    }

    /// The service refused the request: a 429. `wish` is when it wants us back, in milliseconds.
    pub fn record_refusal(&mut self, now: u64, grant: RequestPermit, wish: Option<u64>) {
        self.touched = now;
        self.under_way.retain(|(owner, _)| *owner != grant.owner);
        let wish = wish.map(|wait| wait.min(FUTURE_MAX));
        // Requests that were under way when the first one was refused tell nothing new.
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
                // What is told is better than what is seen: that depends on how busy we are.
                (Some(even), _) => even,
                (None, 0) => 0,
                // A little slower than what was too fast.
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

    /// May `who` probe the service, which is out, at `now`? A rate limit is never probed before it
    /// ends.
    pub fn claim_probe(&mut self, now: u64, who: Prober) -> ProbeLeave {
        self.drop_outdated(now);
        self.touched = now;
        if now < self.blocked_until {
            return ProbeLeave::Defer { until: self.blocked_until + fraction_of(SECOND, who.jitter) };
        }
        let leave = self.capacity.claim_probe(now, who);
        if let (ProbeLeave::Go, Some(room)) = (leave, &mut self.room) {
            room.left = room.left.saturating_sub(1);
        }
        leave
    }

    /// How the probe of the run `id` ended.
    pub fn record_probe_end(&mut self, now: u64, id: u64, end: ProbeEnd) {
        self.touched = now;
        self.capacity.record_probe_end(now, id, end);
        if let ProbeEnd::Limited { wait: Some(wait) } = end {
            self.blocked_until = self.blocked_until.max(now + wait.min(FUTURE_MAX));
        }
    }

    /// Whether this makes sense at `now`. What does not was not written by us, or is from before a
    /// leap of the clock.
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

    /// When the first request can go out, if neither the slots of others nor the room mattered.
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

    /// When there is room for a request.
    fn window_available_at(&mut self, now: u64) -> u64 {
        let Some(room) = self.room.filter(|room| room.left == 0 && now < room.resets) else {
            return now;
        };
        // From now on there is a crowd that wants more than there is.
        if let Some(even) = even_gap(room.length, room.limit) {
            self.gap_us = self.gap_us.max(even).clamp(GAP_MIN_US, GAP_MAX_US);
        }
        room.resets
    }

    /// From a slot to the next one. The first after a block is the probe's.
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
        // A run that asks again has no other request under way.
        self.under_way.retain(|(owner, at)| *owner != who && now.saturating_sub(*at) < LOST_AFTER);
        if self.under_way.len() >= UNDER_WAY_MAX {
            self.under_way.remove(0);
        }
        self.under_way.push((who, now));
        RequestPermit { owner: who, number: self.granted, at: now }
    }

    /// What is left of `all`, if none of the requests under way was counted yet.
    fn remaining_after_in_flight(&self, all: u32) -> u32 {
        all.saturating_sub(u32::try_from(self.under_way.len()).unwrap_or(u32::MAX))
    }

    /// Takes in what is left.
    fn update_window(&mut self, now: u64, grant: RequestPermit, told: HeaderLimits) {
        let resets = now.saturating_add(told.resets_in.saturating_add(CLOCK_TOLERANCE).min(FUTURE_MAX));
        let mut left = self.remaining_after_in_flight(told.left);
        // Resets are told in whole seconds.
        let same = self.room.filter(|room| room.resets.abs_diff(resets) <= 2 * SECOND);
        let later = self.room.filter(|room| room.resets > resets + 2 * SECOND);
        if later.is_some_and(|room| grant.at < room.resets.saturating_sub(room.length)) {
            // The answer came late, and is about an earlier window.
            return;
        }
        if grant.number >= self.told_by {
            self.told_by = grant.number;
        } else if let Some(room) = same {
            // It may have been counted before others that were answered already.
            left = left.min(room.left);
        }
        let length = same.map_or(0, |room| room.length).max(resets - now);
        self.room = Some(RequestWindow { limit: told.limit, left, resets, length });
        // What the service tells outranks what was measured: that was slow on a busy machine.
        if let Some(even) = even_gap(length, told.limit) {
            self.gap_us = self.gap_us.min(even.max(GAP_MIN_US));
        }
    }

    /// Keeps the measure to the last minute or two.
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

    /// Drops what is too old to go by.
    fn drop_outdated(&mut self, now: u64) {
        if now >= self.blocked_until && now.saturating_sub(self.touched) > STATE_AGE_MAX {
            *self = Self::default();
        }
        if now.saturating_sub(self.waited_at) > STATE_AGE_MAX {
            self.gap_us = 0;
        }
        if let Some(room) = self.room.filter(|room| room.resets <= now) {
            let resets = room.resets + room.length;
            let full = room.limit.filter(|_| now < resets).map(|limit| self.remaining_after_in_flight(limit));
            self.room = full.map(|left| RequestWindow { left, resets, ..room });
        }
    }
}

/// The gap at which a window is used up evenly, in microseconds.
fn even_gap(length: u64, limit: Option<u32>) -> Option<u64> {
    (length * 1_000).checked_div(u64::from(limit?))
}
