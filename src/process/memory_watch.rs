//! Ends the largest job when the jobs of a run together take more memory than they may.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nix::unistd::Pid;
use tokio::time::Instant;

use super::memory_taken::measure;

/// How fast jobs are taken to fill memory, in bytes a second: the less is left, the sooner it is
/// looked at again.
const FILL_RATE: u64 = 8 << 30;

/// The shortest and the longest pause between two measurements.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// How many times longer than a measurement the pause after it is at least, up to a maximum: thousands
/// of processes do not make measuring take more than a fifth of a processor.
const PAUSE_PER_COST: u32 = 4;
const COST_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often in a row it must be too much. Pages that processes begin to share while they are measured
/// count more than once: after a fork, and before another program is executed.
const CONFIRMATIONS: u32 = 2;

/// The part of the bound that may be taken between two such measurements.
const CONFIRMED_WITHIN: u64 = 16;

/// How long a job that is ended may go on taking memory before it counts again.
const TERMINATION_MAX: Duration = Duration::from_secs(2);

/// The jobs of a run that have a bound.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// The bounds in bytes, by job init process.
    bounds: HashMap<Pid, u64>,
    /// The jobs that were told to end, and when.
    terminated: HashMap<Pid, Instant>,
    /// When to measure next. `None`: no job has a bound.
    next: Option<Instant>,
    /// What was left at the last measurement, in bytes.
    left: u64,
    /// How many measurements in a row found too much.
    times_over: u32,
}

impl MemoryWatch {
    /// Adds a job.
    pub(super) fn add(&mut self, job_init: Pid, bound: u64) {
        let left = if self.bounds.is_empty() { bound } else { self.left };
        self.bounds.insert(job_init, bound);
        let soon = Instant::now() + pause(left);
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// How long to wait before [`MemoryWatch::check`] is due. `None`: for ever.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Measures if that is due. Returns the job to end, and what it takes in bytes. `job_inits` are
    /// those that live.
    pub(super) fn check(&mut self, job_inits: &HashSet<Pid>) -> Option<(Pid, u64)> {
        self.bounds.retain(|job, _| job_inits.contains(job));
        let begin = Instant::now();
        self.terminated
            .retain(|job, since| job_inits.contains(job) && begin - *since < TERMINATION_MAX);
        let Some(bound) = self.bounds.values().min().copied() else {
            self.next = None;
            return None;
        };
        if self.next.is_some_and(|next| begin < next) {
            return None;
        }
        let jobs = self.bounds.keys().filter(|job| !self.terminated.contains_key(job));
        let jobs: Vec<Pid> = jobs.copied().collect();
        let taken = measure(&jobs, bound);
        self.left = bound.saturating_sub(taken.sum);
        self.times_over = if self.left == 0 { self.times_over + 1 } else { 0 };
        let end = Instant::now();
        if (1..CONFIRMATIONS).contains(&self.times_over) {
            self.next = Some(end + pause(bound / CONFIRMED_WITHIN));
            return None;
        }
        let cost = ((end - begin) * PAUSE_PER_COST).min(COST_PAUSE_MAX);
        self.next = Some(end + pause(self.left).max(cost));
        let largest = taken.jobs.into_iter().max_by_key(|(_, bytes)| *bytes);
        let largest = largest.filter(|_| self.times_over > 0)?;
        self.times_over = 0;
        self.terminated.insert(largest.0, end);
        Some(largest)
    }
}

fn pause(left: u64) -> Duration {
    Duration::from_millis(left / (FILL_RATE / 1000)).clamp(PAUSES.0, PAUSES.1)
}
