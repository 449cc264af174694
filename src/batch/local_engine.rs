//! The local engine: runs workers on this machine as child processes, in the order of the schedule.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

use crate::process::WorkerProcess;
use crate::recovery::Interrupt;

use super::folder::{BatchFolder, TaskFolder};
use super::plan::BatchPlan;
use super::schedule::{AttemptEnd, Schedule, ScheduleLimits, TaskCounts};
use super::task_state::{TaskOutcome, is_abandoned, open_tasks};

/// Interval of [`BatchEvent::Tick`].
const TICK: Duration = Duration::from_millis(500);

/// Time limit of the wait for all workers after a signal. Workers end within four seconds of the
/// signal without further action, and so must this process.
const STOP_MAX: Duration = Duration::from_millis(2700);

/// Time limit of the wait for all workers after the batch has exceeded its time limit.
const LATE_STOP_MAX: Duration = Duration::from_secs(5);

/// The reason why a batch was stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStop {
    Interrupted(Interrupt),
    /// Its time limit was reached, or the next attempt would begin after it.
    Late,
}

/// The end of a batch on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalEngineEnd {
    pub stop: Option<BatchStop>,
    /// Number of tasks that were given up: they have no final result after the maximum number of
    /// attempts, or an inactive process holds them.
    pub given_up: usize,
}

/// The time of the next attempt of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    In(Duration),
    /// The result is final, or the task had the maximum number of attempts.
    Never,
    /// The batch is being stopped.
    BatchEnds,
}

/// An event of a batch on this machine, for its observer.
#[derive(Debug)]
pub enum BatchEvent<'a> {
    Started {
        index: usize,
        attempt: u32,
    },
    /// Another process holds the task.
    Busy {
        index: usize,
        /// True if that process shows no activity, so that the task is given up.
        is_given_up: bool,
    },
    /// A worker could not be started.
    StartFailed {
        index: usize,
        error: &'a io::Error,
    },
    /// A worker ended. `outcome` is `None` if no result was written.
    Ended {
        index: usize,
        outcome: Option<&'a TaskOutcome>,
        next: NextAttempt,
    },
    Tick {
        counts: TaskCounts,
        parallelism: usize,
        next_start: Option<Duration>,
    },
    Stopping {
        stop: BatchStop,
        running: usize,
    },
}

/// Receives the events of a batch, to show its progress.
pub trait BatchObserver: Send {
    fn observe(&mut self, event: &BatchEvent<'_>);
}

/// A batch that runs on this machine.
pub struct LocalBatch<'a> {
    pub folder: &'a BatchFolder,
    pub plan: &'a BatchPlan,
    pub limits: ScheduleLimits,
    pub max_duration: Option<Duration>,
}

impl LocalBatch<'_> {
    /// Runs all open tasks. Must be polled on one permanent thread, because workers are ended with
    /// the thread that started them.
    pub async fn run(
        &self,
        observer: &mut dyn BatchObserver,
        interrupt: impl Future<Output = Interrupt>,
    ) -> LocalEngineEnd {
        let began = Instant::now();
        let deadline = self.max_duration.and_then(|limit| began.checked_add(limit));
        let open = open_tasks(self.folder, self.plan);
        let mut schedule = Schedule::new(self.limits, self.plan.tasks.len(), &open);
        let mut workers = JoinSet::new();
        let (stopper, stopping) = watch::channel(false);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(interrupt);
        let stop = loop {
            while let Some(index) = schedule.start_next(began.elapsed()) {
                self.start(index, &mut schedule, began, &mut workers, &stopping, observer);
            }
            if schedule.is_over() {
                break None;
            }
            let is_pointless = |deadline: Instant| {
                let next = schedule.next_start().map(|next| began + next);
                workers.is_empty() && next.is_some_and(|next| next > deadline)
            };
            if deadline.is_some_and(is_pointless) {
                break Some(BatchStop::Late);
            }
            tokio::select! {
                biased;
                interrupt = &mut interrupt => break Some(BatchStop::Interrupted(interrupt)),
                () = wait_until(deadline) => break Some(BatchStop::Late),
                Some(ended) = workers.join_next() => {
                    self.ended(ended.ok(), &mut schedule, began, None, observer);
                }
                _ = ticks.tick() => observer.observe(&BatchEvent::Tick {
                    counts: schedule.counts(),
                    parallelism: schedule.parallelism(),
                    next_start: schedule.next_start().map(|at| at.saturating_sub(began.elapsed())),
                }),
            }
        };
        if let Some(stop) = stop {
            observer.observe(&BatchEvent::Stopping { stop, running: workers.len() });
            stopper.send_replace(true);
            let limit = match stop {
                BatchStop::Interrupted(_) => STOP_MAX,
                BatchStop::Late => LATE_STOP_MAX,
            };
            let end = Instant::now() + limit;
            while let Ok(Some(ended)) = timeout_at(end, workers.join_next()).await {
                self.ended(ended.ok(), &mut schedule, began, Some(stop), observer);
            }
        }
        // The remaining workers have received SIGTERM, and end without this process.
        workers.detach_all();
        LocalEngineEnd { stop, given_up: schedule.counts().given_up }
    }

    /// Returns the arguments of outlast that start the worker of a task.
    fn worker_arguments(&self, index: usize) -> Vec<OsString> {
        let command = ["batch".into(), "worker".into(), self.folder.path().into()];
        let parent = std::process::id().to_string();
        // A command of a task could change the plan, so that later tasks get other flags.
        let plan = self.plan.digest();
        let flags = [("--index", index.to_string()), ("--parent", parent), ("--plan", plan)];
        let flags = flags.into_iter().flat_map(|(flag, value)| [flag.into(), value.into()]);
        command.into_iter().chain(flags).collect()
    }

    fn start(
        &self,
        index: usize,
        schedule: &mut Schedule,
        began: Instant,
        workers: &mut JoinSet<usize>,
        stopping: &watch::Receiver<bool>,
        observer: &mut dyn BatchObserver,
    ) {
        let folder = self.folder.task(index);
        if folder.is_locked() {
            let end = end_of_held(&folder);
            schedule.ended(index, began.elapsed(), end);
            observer.observe(&BatchEvent::Busy { index, is_given_up: end != AttemptEnd::Busy });
            return;
        }
        let log = folder.create().and_then(|()| folder.open_log()).map_err(io::Error::other);
        match log.and_then(|log| WorkerProcess::start(&self.worker_arguments(index), log)) {
            Ok(worker) => {
                let attempt = schedule.attempt(index);
                observer.observe(&BatchEvent::Started { index, attempt });
                workers.spawn(wait_for(worker, index, stopping.clone()));
            }
            Err(error) => {
                schedule.ended(index, began.elapsed(), AttemptEnd::Lost);
                observer.observe(&BatchEvent::StartFailed { index, error: &error });
            }
        }
    }

    fn ended(
        &self,
        ended: Option<usize>,
        schedule: &mut Schedule,
        began: Instant,
        stop: Option<BatchStop>,
        observer: &mut dyn BatchObserver,
    ) {
        // `None` would mean that the waiting task panicked, which it does not.
        let Some(index) = ended else { return };
        let folder = self.folder.task(index);
        let outcome = TaskOutcome::read(&folder);
        let end = match &outcome {
            Some(outcome) => end_of(outcome),
            None if folder.is_locked() => end_of_held(&folder),
            None => AttemptEnd::Lost,
        };
        let retry = schedule.ended(index, began.elapsed(), end);
        if matches!(end, AttemptEnd::Busy | AttemptEnd::Abandoned) {
            observer.observe(&BatchEvent::Busy { index, is_given_up: end != AttemptEnd::Busy });
            return;
        }
        let next = match (stop, retry) {
            (Some(_), _) => NextAttempt::BatchEnds,
            (None, Some(at)) => NextAttempt::In(at.saturating_sub(began.elapsed())),
            (None, None) => NextAttempt::Never,
        };
        observer.observe(&BatchEvent::Ended { index, outcome: outcome.as_ref(), next });
    }
}

/// Returns the end of the attempt to start a task that another process holds.
fn end_of_held(folder: &TaskFolder) -> AttemptEnd {
    if is_abandoned(folder) { AttemptEnd::Abandoned } else { AttemptEnd::Busy }
}

fn end_of(outcome: &TaskOutcome) -> AttemptEnd {
    let throttled = outcome.was_throttled();
    if outcome.state().is_final() {
        return AttemptEnd::Final { throttled };
    }
    let wait = outcome.retry_at().map(|at| at.duration_since(Timestamp::now()));
    let not_before = wait.and_then(|wait| Duration::try_from(wait).ok());
    AttemptEnd::Temporary { not_before, throttled }
}

/// Waits for the end of a worker, and sends SIGTERM to it when the batch is stopped. Returns the
/// index of its task. The files of the task tell how it ended.
async fn wait_for(
    mut worker: WorkerProcess,
    index: usize,
    mut stopping: watch::Receiver<bool>,
) -> usize {
    tokio::select! {
        _ = worker.wait() => return index,
        // An error means that the batch has ended.
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    worker.terminate();
    let _ = worker.wait().await;
    index
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
