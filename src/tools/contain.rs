//! Runs a tool so that whatever it does stays its own: panics, and work that does not end.

use std::any::Any;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::outcome::ToolOutcome;

/// How long a change that has begun is waited for once the run is to stop.
const CHANGE_GRACE: Duration = Duration::from_secs(2);

/// Work that can be left alone at any time: a stop does not wait for it.
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

/// Work that is waited for even when the run is to stop, because its effect must be known. It
/// looks at the token itself before it commits.
pub(super) async fn run_change<W>(cancel: CancellationToken, work: W) -> ToolOutcome
where
    W: FnOnce(&CancellationToken) -> ToolOutcome + Send + 'static,
{
    let stop = cancel.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn_blocking(move || work(&stop));
    let patience = async {
        cancel.cancelled().await;
        tokio::time::sleep(CHANGE_GRACE).await;
    };
    tokio::select! {
        biased;
        done = tasks.join_next() => join_outcome(done),
        () = patience => {
            ToolOutcome::failure("Interrupted by user; whether the file was changed is unknown")
        }
    }
}

fn join_outcome(done: Option<Result<ToolOutcome, JoinError>>) -> ToolOutcome {
    match done {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => match error.try_into_panic() {
            // On to where all panics are caught.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => ToolOutcome::interrupted(),
        },
        None => ToolOutcome::interrupted(),
    }
}

/// Runs a tool so that its panic is its own. Dropped, it takes the tool with it.
pub(super) async fn run_guarded(
    name: &str,
    tool: impl Future<Output = ToolOutcome> + Send + 'static,
) -> ToolOutcome {
    match run_in_task(name, tool).await {
        Ok(Some(outcome)) => outcome,
        Ok(None) => ToolOutcome::interrupted(),
        Err(why) => ToolOutcome::failure(why),
    }
}

/// Runs work in a task of its own. `None` if the whole process is about to end. Dropped, it takes
/// the work with it.
///
/// # Errors
/// In whole words: it panicked.
pub(super) async fn run_in_task<T: Send + 'static>(
    name: &str,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, String> {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    match tasks.join_next().await {
        Some(Ok(done)) => Ok(Some(done)),
        Some(Err(error)) => error.try_into_panic().map_or(Ok(None), |panic| {
            Err(format!("{name} failed from a defect in outlast: {}", panic_message(panic.as_ref())))
        }),
        None => Ok(None),
    }
}

/// How long a task that was aborted may take to be gone.
const ABORTING: Duration = Duration::from_millis(300);

/// Ends tasks and drops what they hold. One that blocks its thread is never over, so it is left
/// behind: the end of a run does not wait for it.
pub async fn end_tasks<T: 'static>(mut tasks: JoinSet<T>) {
    tasks.abort_all();
    let gone = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(ABORTING, gone).await;
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it does not say why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_outcome_wherever_it_happens() {
        let here = run_guarded("Bash", async { panic!("the floor is {}", "gone") }).await;
        let below = run_guarded("Read", run_read(CancellationToken::new(), |_| panic!("deep"))).await;
        let beside = run_guarded("Edit", run_change(CancellationToken::new(), |_| panic!("wide"))).await;
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
            // As if the disk did not answer. No longer than the test can tell the difference.
            let _ = released.recv_timeout(Duration::from_secs(20));
        });
        started.await.unwrap();
        let ending = tokio::time::timeout(Duration::from_secs(10), end_tasks(tasks)).await;
        drop(release);
        assert!(ending.is_ok(), "the end waited for it");
    }

    #[tokio::test]
    async fn looking_is_left_alone_when_the_run_stops() {
        let cancel = CancellationToken::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let stuck = run_read(cancel.clone(), move |stop| {
            cancel.cancel();
            assert!(stop.is_cancelled());
            // As if the disk did not answer.
            let _ = released.recv();
            ToolOutcome::text("at last", serde_json::Value::Null)
        });
        assert_eq!(stuck.await, ToolOutcome::interrupted());
        drop(release);
    }
}
