//! Isolates a running tool from the run: panics, and work that does not end.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::process::{self, Panic};

use super::outcome::{ToolOutcome, ToolRefusal};

/// Time limit of a check that looks paths up. A file system that takes longer does not answer.
const CHECK_MAX: Duration = Duration::from_mins(1);

/// The maximum wait for a file change in progress after cancellation.
const CHANGE_GRACE: Duration = Duration::from_secs(2);

/// Runs a check that looks paths up on a blocking thread, so that a file system that does not
/// answer delays nothing else: no heartbeat, deadline or other agent. Dropping the future does not
/// wait for it.
///
/// # Errors
/// The refusal of the call: the check did not end in time.
pub(super) async fn check_paths<C, W>(check: W) -> Result<C, ToolRefusal>
where
    C: Send + 'static,
    W: FnOnce() -> C + Send + 'static,
{
    match tokio::time::timeout(CHECK_MAX, tokio::task::spawn_blocking(check)).await {
        Ok(Ok(checked)) => Ok(checked),
        Ok(Err(error)) => {
            resume_panic(error);
            Err(ToolRefusal::invalid("not run: the run is ending"))
        }
        Err(_elapsed) => Err(ToolRefusal::invalid(format!(
            "not run: the file system of a path in this call has not answered for {}s",
            CHECK_MAX.as_secs()
        ))),
    }
}

/// Runs read-only work on a blocking thread. Cancellation does not wait for it.
pub(super) async fn run_read<W>(cancel: CancellationToken, work: W) -> ToolOutcome
where
    W: FnOnce(&CancellationToken) -> ToolOutcome + Send + 'static,
{
    let stop = cancel.child_token();
    let _stops_when_dropped = stop.clone().drop_guard();
    let mut tasks = JoinSet::new();
    tasks.spawn_blocking(move || work(&stop));
    tokio::select! {
        biased;
        () = cancel.cancelled() => ToolOutcome::interrupted(),
        done = tasks.join_next() => join_outcome(done),
    }
}

/// Runs work that changes files on a blocking thread. Cancellation waits for it, because its effect
/// must be known. The work itself checks the token before it commits.
pub(super) async fn run_change<W>(cancel: CancellationToken, work: W) -> ToolOutcome
where
    W: FnOnce(&CancellationToken) -> ToolOutcome + Send + 'static,
{
    let stop = cancel.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn_blocking(move || work(&stop));
    let grace = async {
        cancel.cancelled().await;
        tokio::time::sleep(CHANGE_GRACE).await;
    };
    tokio::select! {
        biased;
        done = tasks.join_next() => join_outcome(done),
        () = grace => {
            ToolOutcome::failure("Interrupted by user; whether the file was changed is unknown")
        }
    }
}

fn join_outcome(done: Option<Result<ToolOutcome, JoinError>>) -> ToolOutcome {
    match done {
        Some(Ok(outcome)) => return outcome,
        Some(Err(error)) => resume_panic(error),
        None => {}
    }
    ToolOutcome::interrupted()
}

/// Propagates the panic of a task, if it had one, to the handler that catches all panics.
fn resume_panic(error: JoinError) {
    if let Ok(panic) = error.try_into_panic() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a tool and turns its panic into an outcome. Dropping the future aborts the tool.
pub(super) async fn run_guarded(
    name: &str,
    tool: impl Future<Output = ToolOutcome> + Send + 'static,
) -> ToolOutcome {
    match run_in_task(name, tool).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) => ToolOutcome::interrupted(),
        Err(panicked) => ToolOutcome::failure(panicked.to_string()),
    }
}

/// Runs work that neither awaits nor changes anything, and turns its panic into an error.
pub(super) fn catch_panic<T>(name: &str, work: impl FnOnce() -> T) -> Result<T, WorkPanicked> {
    process::catch_panic(work).map_err(|panic| WorkPanicked::new(name, panic))
}

/// A panic of guarded work.
#[derive(Debug, thiserror::Error)]
#[error("{name} failed from a defect in outlast: {}", panic.summary())]
pub(super) struct WorkPanicked {
    name: String,
    panic: Panic,
}

impl WorkPanicked {
    fn new(name: &str, panic: Panic) -> Self {
        Self { name: name.to_owned(), panic }
    }
}

/// Runs work in its own task. Returns `None` if the process is about to end. Dropping the future
/// aborts the task.
pub(super) async fn run_in_task<T: Send + 'static>(
    name: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, WorkPanicked> {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    match tasks.join_next().await {
        Some(Ok(done)) => Ok(Some(done)),
        Some(Err(error)) => error
            .try_into_panic()
            .map_or(Ok(None), |panic| Err(WorkPanicked::new(name, Panic::of(panic.as_ref())))),
        None => Ok(None),
    }
}

/// The maximum time for an aborted task to end.
const ABORTING: Duration = Duration::from_millis(300);

/// Aborts tasks and drops what they hold. A task that blocks its thread cannot be aborted and is
/// left behind, so that it does not delay the end of the run.
pub async fn end_tasks<T: 'static>(mut tasks: JoinSet<T>) {
    tasks.abort_all();
    let gone = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(ABORTING, gone).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_whose_file_system_does_not_answer_refuses_the_call() {
        let (answer, awaited) = std::sync::mpsc::channel::<()>();
        let checking = check_paths(move || awaited.recv());
        let late = tokio::time::advance(CHECK_MAX + Duration::from_secs(1));
        let (checked, ()) = tokio::join!(checking, late);
        assert!(matches!(checked, Err(ToolRefusal::Invalid(_))), "{checked:?}");
        drop(answer);
        assert_eq!(check_paths(|| 1).await.expect("it is answered"), 1);
    }

    #[tokio::test]
    async fn a_panic_in_a_tool_becomes_an_outcome() {
        let here = run_guarded("Bash", async { panic!("the floor is {}", "gone") }).await;
        let below =
            run_guarded("Read", run_read(CancellationToken::new(), |_| panic!("deep"))).await;
        let beside =
            run_guarded("Edit", run_change(CancellationToken::new(), |_| panic!("wide"))).await;
        for (outcome, text) in [(here, "the floor is gone"), (below, "deep"), (beside, "wide")] {
            assert!(outcome.is_error);
            assert!(outcome.detail.as_str().unwrap().contains(text), "{outcome:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_that_blocks_its_thread_is_left_behind() {
        let (start, started) = tokio::sync::oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = start.send(());
            // Simulates a disk that does not respond, no longer than the test needs to notice.
            let _ = released.recv_timeout(Duration::from_secs(20));
        });
        started.await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), end_tasks(tasks)).await;
        drop(release);
        assert!(ended.is_ok(), "the end waited for it");
    }

    #[tokio::test]
    async fn read_only_work_is_abandoned_on_cancellation() {
        let cancel = CancellationToken::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let stuck = run_read(cancel.clone(), move |stop| {
            cancel.cancel();
            assert!(stop.is_cancelled());
            // Simulates a disk that does not respond.
            let _ = released.recv();
            ToolOutcome::text("at last", serde_json::Value::Null)
        });
        assert_eq!(stuck.await, ToolOutcome::interrupted());
        drop(release);
    }
}
