//! Shares the rate-limit state of this run with the other runs of the host.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::pacing::{
    ClaimAnswer, HeaderLimits, ProbeEnd, ProbeLeave, Prober, RequestPermit, Requester,
    SharedRateLimit,
};
use crate::text::millis;

use super::super::headers::RateLimits;
use super::store::{StateFileProblem, prepare_folder, update};

/// Timeout of a file operation. Far above the lock timeout, even on a busy host; a file system that
/// exceeds it is no longer used.
const FILE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum wait for a lock: enough for many runs on a busy host. After one timeout the wait becomes
/// short, because the lock holder has probably been stopped (SIGSTOP).
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_TIMEOUT_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// Delay before the next try if the file could not be read for a probe decision.
const PROBE_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The decision on a probe by this run, with delays instead of clock times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTurn {
    Go,
    /// Another run is probing. Check again after this time.
    Defer(Duration),
    /// The probe of another run was answered. Send the request after this time.
    Answered(Duration),
}

/// Claims each request before it is sent, and records the outcome after it.
///
/// It never fails: without a usable state file it permits every request.
#[derive(Debug)]
pub struct SharedLimits {
    folder: Option<PathBuf>,
    id: u64,
    grant: Option<(PathBuf, RequestPermit)>,
    /// The write in progress.
    writing: Option<JoinHandle<Result<(), StateFileProblem>>>,
    problem: Option<StateFileProblem>,
    problem_reported: bool,
    /// Timeout of the next lock.
    lock_timeout: Duration,
}

/// Result of a file operation: timed out, panicked, failed or done.
type FileOutcome<T> = Result<Result<Result<T, StateFileProblem>, JoinError>, Elapsed>;

impl SharedLimits {
    /// Uses the first usable folder of `folders`. `seed` is unique for each run.
    pub fn new(folders: &[PathBuf], seed: u64) -> Self {
        let (folder, problem) = match prepare_folder(folders) {
            Ok(folder) => (Some(folder), None),
            Err(problem) => (None, Some(problem)),
        };
        Self { problem, ..Self::within(folder, seed) }
    }

    /// Creates the state for another run in this process.
    #[must_use]
    pub fn for_another_run(&self, seed: u64) -> Self {
        Self::within(self.folder.clone(), seed)
    }

    fn within(folder: Option<PathBuf>, seed: u64) -> Self {
        let (grant, writing, problem) = (None, None, None);
        let (id, lock_timeout) = (seed.max(1), LOCK_TIMEOUT);
        Self { folder, id, grant, writing, problem, problem_reported: false, lock_timeout }
    }

    /// Requests permission to send a request under the limit called `name`. If it is not granted,
    /// returns the time to wait before the next try; a request that `insists` never waits.
    pub async fn claim(&mut self, name: &str, insists: bool) -> Option<Duration> {
        self.flush().await;
        self.grant = None;
        let path = self.folder.as_ref()?.join(format!("{name}.json"));
        let requester = Requester { id: self.id, jitter: fraction(self.id), skips_wait: insists };
        let (file, lock_timeout) = (path.clone(), self.lock_timeout);
        let claim =
            move |now, rate_limit: &mut SharedRateLimit| (now, rate_limit.claim(now, requester));
        let claiming = spawn_blocking(move || update(&file, lock_timeout, claim));
        match self.outcome(claiming).await? {
            (_, ClaimAnswer::Go(grant)) => {
                self.grant = Some((path, grant));
                None
            }
            (now, ClaimAnswer::Wait { until }) => {
                Some(Duration::from_millis(until.saturating_sub(now)))
            }
        }
    }

    /// Records that the service accepted the request, so that other runs see the remaining window
    /// before the reply is complete.
    pub fn accepted(&mut self, limits: Option<&RateLimits>) {
        let Some((path, grant)) = self.grant.take() else { return };
        let reported = limits.and_then(header_limits);
        self.write(path, move |now, rate_limit| rate_limit.record_success(now, grant, reported));
    }

    /// Records a 429. `wait` is the server's retry-after.
    pub fn refused(&mut self, wait: Option<Duration>) {
        let Some((path, grant)) = self.grant.take() else { return };
        let wait = wait.map(millis);
        self.write(path, move |now, rate_limit| rate_limit.record_refusal(now, grant, wait));
    }

    /// Requests permission to probe the service under the limit called `name`, having `waited` for
    /// capacity. If it is granted, [`probe_ended`](Self::probe_ended) must follow.
    pub async fn claim_probe(
        &mut self,
        name: &str,
        waited: Duration,
        interval: Duration,
    ) -> ProbeTurn {
        self.flush().await;
        let Some(folder) = &self.folder else { return ProbeTurn::Go };
        let (path, lock_timeout) = (folder.join(format!("{name}.json")), self.lock_timeout);
        let prober = Prober {
            id: self.id,
            jitter: fraction(self.id),
            waited: millis(waited),
            interval: millis(interval),
        };
        let claim =
            move |now, rate_limit: &mut SharedRateLimit| (now, rate_limit.claim_probe(now, prober));
        let claiming = spawn_blocking(move || update(&path, lock_timeout, claim));
        let after = |now: u64, then: u64| Duration::from_millis(then.saturating_sub(now));
        match self.outcome(claiming).await {
            // Another run may be probing, and a missing lock must not cause a second probe.
            None => ProbeTurn::Defer(PROBE_RETRY_DELAY),
            Some((_, ProbeLeave::Go)) => ProbeTurn::Go,
            Some((now, ProbeLeave::Defer { until })) => ProbeTurn::Defer(after(now, until)),
            Some((now, ProbeLeave::Answered { turn })) => ProbeTurn::Answered(after(now, turn)),
        }
    }

    /// Records the result of this run's probe.
    pub fn probe_ended(&mut self, name: &str, end: ProbeEnd) {
        let Some(folder) = &self.folder else { return };
        let (path, id) = (folder.join(format!("{name}.json")), self.id);
        self.write(path, move |now, rate_limit| rate_limit.record_probe_end(now, id, end));
    }

    /// Waits briefly until the recorded outcome is written. Cancel-safe: a later call continues the
    /// wait.
    pub async fn flush(&mut self) {
        if let Some(writing) = &mut self.writing {
            let done = timeout(FILE_TIMEOUT, writing).await;
            self.writing = None;
            self.record_outcome(done);
        }
    }

    /// Returns the first problem, once.
    pub fn take_problem(&mut self) -> Option<StateFileProblem> {
        let problem = self.problem.take().filter(|_| !self.problem_reported)?;
        self.problem_reported = true;
        Some(problem)
    }

    fn write(
        &mut self,
        path: PathBuf,
        act: impl FnOnce(u64, &mut SharedRateLimit) + Send + 'static,
    ) {
        let lock_timeout = self.lock_timeout;
        self.writing = Some(spawn_blocking(move || update(&path, lock_timeout, act)));
    }

    async fn outcome<T>(&mut self, work: JoinHandle<Result<T, StateFileProblem>>) -> Option<T> {
        let done = timeout(FILE_TIMEOUT, work).await;
        self.record_outcome(done)
    }

    fn record_outcome<T>(&mut self, done: FileOutcome<T>) -> Option<T> {
        let problem = match done {
            Ok(Ok(Ok(outcome))) => {
                self.lock_timeout = LOCK_TIMEOUT;
                return Some(outcome);
            }
            Ok(Ok(Err(problem))) => {
                self.lock_timeout = LOCK_TIMEOUT_AFTER_FAILURE;
                problem
            }
            // The file system hangs, or the task panicked: do not try again.
            Ok(Err(_)) | Err(_) => {
                self.folder = None;
                StateFileProblem::Unresponsive
            }
        };
        self.problem.get_or_insert(problem);
        None
    }
}

/// The remaining request window, if the answer reports it completely.
fn header_limits(limits: &RateLimits) -> Option<HeaderLimits> {
    let window = limits.windows.iter().find(|window| window.name == "requests")?;
    let left = u32::try_from(window.remaining?).unwrap_or(u32::MAX);
    let resets_in = limits.time_until(window.reset?)?;
    let limit = window.limit.and_then(|limit| u32::try_from(limit).ok());
    Some(HeaderLimits { limit, left, resets_in: u64::try_from(resets_in.as_millis()).ok()? })
}

/// A fraction from 0 to below 1, unique for each run.
fn fraction(seed: u64) -> f64 {
    let top = u32::try_from(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).unwrap_or(u32::MAX);
    f64::from(top) / (f64::from(u32::MAX) + 1.0)
}
