//! Selects the largest job to be ended when the jobs of a run together exceed their memory limit.

use std::collections::HashMap;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::time::Instant;

use super::memory_taken::measure;

/// The assumed rate at which jobs fill memory, in bytes per second: with less memory left, the next
/// measurement is sooner.
const FILL_RATE: u64 = 8 << 30;

/// The shortest and the longest pause between two measurements.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// The minimum ratio of a pause to the measurement before it, up to a maximum pause: measuring
/// thousands of processes takes no more than a fifth of a processor.
const PAUSE_PER_COST: u32 = 4;
const COST_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The number of consecutive measurements above the limit after which a job is ended. Pages that
/// processes begin to share during a measurement, after a fork and before exec, count more than
/// once.
const CONFIRMATIONS: u32 = 2;

/// The divisor of the limit that sets the pause between two such measurements: in that time, jobs
/// fill this part of the limit at [`FILL_RATE`].
const CONFIRMED_WITHIN: u64 = 16;

/// The time that an ending job may still take memory before it counts again.
const TERMINATION_MAX: Duration = Duration::from_secs(2);

/// The jobs of a run that have a memory limit.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// The limits in bytes, by job init process.
    bounds: HashMap<Pid, u64>,
    /// The jobs that were requested to end, with the time of the request.
    terminated: HashMap<Pid, Instant>,
    /// The time of the next measurement. `None` if no job has a limit.
    next: Option<Instant>,
    /// The memory below the limit at the last measurement, in bytes.
    left: u64,
    /// The number of consecutive measurements above the limit.
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

    /// The time until [`MemoryWatch::check`] is due. `None` if no job has a limit.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Measures if that is due. Returns the job to end, and its memory in bytes. `is_running`
    /// returns true for a job init process that still runs its job.
    pub(super) fn check(&mut self, is_running: impl Fn(Pid) -> bool) -> Option<(Pid, u64)> {
        self.bounds.retain(|job, _| is_running(*job));
        let begin = Instant::now();
        self.terminated.retain(|job, since| is_running(*job) && begin - *since < TERMINATION_MAX);
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
