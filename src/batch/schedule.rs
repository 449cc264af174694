//! Decides when the local engine starts each task. Pure: time is an argument.

use std::time::Duration;

use crate::recovery::AimdLimiter;

/// Maximum pause between two attempts, unless the service requests a longer one. [`spread`] can add
/// up to a quarter.
const PAUSE_MAX: Duration = Duration::from_mins(15);

/// The limits of a batch on this machine.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleLimits {
    /// Maximum number of tasks that run in parallel.
    pub jobs: u32,
    /// Maximum number of attempts of a task.
    pub attempts: u32,
    /// Pause before the second attempt. It doubles for each further one.
    pub pause: Duration,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It has a result that another attempt would not change.
    Final { throttled: bool },
    /// It failed, but another attempt may succeed. `not_before`: the wait that the service
    /// requested.
    Temporary { not_before: Option<Duration>, throttled: bool },
    /// It ended without a result.
    Lost,
    /// Another process holds the task. This does not count as an attempt.
    Busy,
    /// Another process holds the task, and shows no activity. The task is given up.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Waiting { at: Duration },
    Running { epoch: u32 },
    Ended,
    GivenUp,
}

impl Slot {
    /// Returns the time at which the task may start. `None`: it does not wait.
    fn start(self) -> Option<Duration> {
        match self {
            Self::Waiting { at } => Some(at),
            Self::Running { .. } | Self::Ended | Self::GivenUp => None,
        }
    }
}

/// Number of tasks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub running: usize,
    pub waiting: usize,
    pub given_up: usize,
}

/// The schedule of a batch: the state of each task, and the adaptive limit of parallel tasks.
#[derive(Clone, Debug)]
pub struct Schedule {
    limits: ScheduleLimits,
    limiter: AimdLimiter,
    slots: Vec<Slot>,
    attempts: Vec<u32>,
}

/// Interval at which a task that another process holds is checked again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

impl Schedule {
    /// Creates a schedule for `count` tasks. Those with an index in `open` must run.
    pub fn new(limits: ScheduleLimits, count: usize, open: &[usize]) -> Self {
        let mut slots = vec![Slot::Ended; count];
        for index in open {
            if let Some(slot) = slots.get_mut(*index) {
                *slot = Slot::Waiting { at: Duration::ZERO };
            }
        }
        Self { limits, limiter: AimdLimiter::new(limits.jobs), slots, attempts: vec![0; count] }
    }

    /// Returns the next task to start now, and counts its attempt. `None`: the limit of parallel
    /// tasks is reached, or no task is due.
    pub fn start_next(&mut self, now: Duration) -> Option<usize> {
        if self.counts().running >= self.parallelism() {
            return None;
        }
        let is_due = |slot: &Slot| slot.start().is_some_and(|at| at <= now);
        let index = self.slots.iter().position(is_due)?;
        self.slots[index] = Slot::Running { epoch: self.limiter.epoch() };
        self.attempts[index] += 1;
        Some(index)
    }

    /// Returns the current limit of parallel tasks.
    pub fn parallelism(&self) -> usize {
        usize::try_from(self.limiter.limit()).unwrap_or(usize::MAX)
    }

    /// Returns the number of attempts of a task.
    pub fn attempt(&self, index: usize) -> u32 {
        self.attempts[index]
    }

    /// Records the end of an attempt. Returns the time of the next attempt. `None`: there is none.
    pub fn ended(&mut self, index: usize, now: Duration, end: AttemptEnd) -> Option<Duration> {
        let Slot::Running { epoch } = self.slots[index] else { return None };
        let (slot, throttled) = match end {
            AttemptEnd::Final { throttled } => (Slot::Ended, Some(throttled)),
            AttemptEnd::Temporary { not_before, throttled } => {
                let minimum = not_before.unwrap_or_default();
                (self.retry_slot(index, now, minimum), throttled.then_some(true))
            }
            AttemptEnd::Lost => (self.retry_slot(index, now, Duration::ZERO), None),
            AttemptEnd::Busy => {
                self.attempts[index] -= 1;
                (Slot::Waiting { at: now + BUSY_PAUSE }, None)
            }
            AttemptEnd::Abandoned => {
                self.attempts[index] -= 1;
                (Slot::GivenUp, None)
            }
        };
        self.slots[index] = slot;
        self.limiter = match throttled {
            Some(true) => self.limiter.throttled(epoch),
            Some(false) => self.limiter.answered(),
            None => self.limiter,
        };
        slot.start()
    }

    /// Returns the slot of a task after an attempt without a final result. The next attempt begins
    /// after `minimum` at the earliest.
    fn retry_slot(&self, index: usize, now: Duration, minimum: Duration) -> Slot {
        let attempts = self.attempts[index];
        if attempts >= self.limits.attempts {
            return Slot::GivenUp;
        }
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let pause = self.limits.pause.saturating_mul(doubled).min(PAUSE_MAX).max(minimum);
        Slot::Waiting { at: now + pause + spread(index, pause) }
    }

    /// Returns the earliest time at which a waiting task may start. `None`: no task waits.
    pub fn next_start(&self) -> Option<Duration> {
        self.slots.iter().filter_map(|slot| slot.start()).min()
    }

    /// True if no task is running or waiting.
    pub fn is_over(&self) -> bool {
        let TaskCounts { running, waiting, .. } = self.counts();
        running + waiting == 0
    }

    pub fn counts(&self) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for slot in &self.slots {
            match slot {
                Slot::Waiting { .. } => counts.waiting += 1,
                Slot::Running { .. } => counts.running += 1,
                Slot::GivenUp => counts.given_up += 1,
                Slot::Ended => {}
            }
        }
        counts
    }
}

/// Returns up to a quarter of a pause, to spread the next attempts of tasks that failed together.
fn spread(index: usize, pause: Duration) -> Duration {
    let part = u32::try_from(index.wrapping_mul(37) % 64).unwrap_or(0);
    pause / 4 * part / 64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FAILED: AttemptEnd = AttemptEnd::Temporary { not_before: None, throttled: false };

    fn schedule(jobs: u32, tasks: usize) -> Schedule {
        let limits = ScheduleLimits { jobs, attempts: 3, pause: 10 * SECOND };
        Schedule::new(limits, tasks, &(0..tasks).collect::<Vec<_>>())
    }

    #[test]
    fn no_more_tasks_run_than_allowed_and_each_runs_once() {
        let mut schedule = schedule(2, 3);
        let start = |schedule: &mut Schedule| schedule.start_next(Duration::ZERO);
        assert_eq!([start(&mut schedule), start(&mut schedule)], [Some(0), Some(1)]);
        assert_eq!(start(&mut schedule), None);
        schedule.ended(1, SECOND, AttemptEnd::Final { throttled: false });
        assert_eq!(start(&mut schedule), Some(2));
        schedule.ended(0, SECOND, AttemptEnd::Final { throttled: false });
        schedule.ended(2, SECOND, AttemptEnd::Final { throttled: false });
        assert_eq!(start(&mut schedule), None);
        assert!(schedule.is_over());
    }

    #[test]
    fn finished_tasks_are_not_started() {
        let limits = ScheduleLimits { jobs: 4, attempts: 3, pause: SECOND };
        let mut schedule = Schedule::new(limits, 3, &[1]);
        assert_eq!(schedule.start_next(Duration::ZERO), Some(1));
        assert_eq!(schedule.start_next(Duration::ZERO), None);
    }

    #[test]
    fn a_temporary_failure_is_retried_after_a_growing_pause_until_the_attempts_are_used_up() {
        let mut schedule = schedule(1, 1);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        while let Some(index) = schedule.start_next(now) {
            if let Some(at) = schedule.ended(index, now, FAILED) {
                let early = at.saturating_sub(SECOND);
                assert_eq!(schedule.start_next(early), None, "not before its time");
                pauses.push(at.saturating_sub(now));
                now = at;
            }
        }
        assert_eq!(pauses, [10 * SECOND, 20 * SECOND]);
        assert_eq!((schedule.counts().given_up, schedule.is_over()), (1, true));
    }

    #[test]
    fn the_service_is_not_asked_before_the_time_that_it_named() {
        let mut schedule = schedule(1, 1);
        schedule.start_next(Duration::ZERO);
        let not_before = Some(Duration::from_hours(5));
        let end = AttemptEnd::Temporary { not_before, throttled: true };
        let at = schedule.ended(0, SECOND, end).expect("it is tried again");
        assert!(at >= SECOND + Duration::from_hours(5));
    }

    #[test]
    fn throttling_halves_the_parallelism_once_for_tasks_of_one_time() {
        let mut schedule = schedule(8, 20);
        for _ in 0..8 {
            schedule.start_next(Duration::ZERO);
        }
        let throttled = AttemptEnd::Temporary { not_before: None, throttled: true };
        for index in 0..8 {
            schedule.ended(index, SECOND, throttled);
        }
        assert_eq!(schedule.parallelism(), 4);
        for _ in 0..4 {
            let index = schedule.start_next(SECOND).expect("a free place");
            schedule.ended(index, SECOND, AttemptEnd::Final { throttled: false });
        }
        assert_eq!(schedule.parallelism(), 5);
    }

    #[test]
    fn a_task_of_another_process_costs_no_attempt() {
        let mut schedule = schedule(1, 1);
        for round in 0..100 {
            let now = BUSY_PAUSE * round;
            assert_eq!(schedule.start_next(now), Some(0));
            assert_eq!(schedule.ended(0, now, AttemptEnd::Busy), Some(now + BUSY_PAUSE));
        }
        assert_eq!(schedule.attempt(0), 0);
        assert_eq!(schedule.start_next(BUSY_PAUSE * 100), Some(0));
        assert_eq!(schedule.ended(0, BUSY_PAUSE * 100, AttemptEnd::Abandoned), None);
        assert!(schedule.is_over(), "the batch does not wait for ever");
    }
}
