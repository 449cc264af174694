//! Background sub-agents, which are listed together with background commands. The `agent` module
//! runs them.

use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::super::panic_guard::run_in_task;
use super::super::toolbox::Toolbox;
use super::live_output::LiveOutput;
use super::task::{BackgroundEnd, BackgroundKind, BackgroundTask};
use super::tasks::BackgroundTasks;

/// A sub-agent that is to run in the background.
pub struct BackgroundAgent {
    /// The id that the model uses.
    pub id: String,
    /// The tool call that starts it.
    pub call: String,
    pub kind: String,
    pub description: String,
    /// Runs the sub-agent. Ends soon after `stop` is cancelled.
    pub work: Pin<Box<dyn Future<Output = AgentEnded> + Send>>,
    pub stop: CancellationToken,
}

/// The error when no more background work can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run is to end")]
pub struct BackgroundClosed;

/// The result of a background sub-agent that has ended.
pub struct AgentEnded {
    pub completed: bool,
    /// The final text, for the model.
    pub final_text: String,
}

impl Toolbox {
    /// Starts a sub-agent in the background.
    pub fn start_background_agent(&self, adopted: BackgroundAgent) -> Result<(), BackgroundClosed> {
        self.tools.shell.background.adopt(adopted, self.tools.results.built_in())
    }
}

impl BackgroundTasks {
    fn adopt(
        self: &Arc<Self>,
        adopted: BackgroundAgent,
        output_limit: usize,
    ) -> Result<(), BackgroundClosed> {
        let BackgroundAgent { id, call, kind, description, work, stop } = adopted;
        let tasks = Arc::downgrade(self);
        let mut table = self.table.lock();
        if table.closing.is_some() {
            return Err(BackgroundClosed);
        }
        let task =
            BackgroundTask::running(BackgroundKind::Agent, id, call, kind, Some(description));
        let index = table.add(task, Arc::new(LiveOutput::new(output_limit)), stop);
        table.agents.spawn(async move {
            let ended = match run_in_task("The sub-agent", work).await {
                Ok(Some(ended)) => ended,
                Ok(None) => return,
                // A panic must be reported as the end, or the sub-agent would seem to run for ever.
                Err(panicked) => AgentEnded { completed: false, final_text: panicked.to_string() },
            };
            if let Some(tasks) = tasks.upgrade() {
                tasks.record_agent_end(index, ended);
            }
        });
        Ok(())
    }

    fn record_agent_end(&self, index: usize, ended: AgentEnded) {
        let mut table = self.table.lock();
        let closing = table.closing.is_some();
        let stopped = table.entries[index].stop.is_cancelled();
        let end = match (ended.completed, stopped) {
            (true, _) => BackgroundEnd::Completed,
            (false, true) if closing => BackgroundEnd::RunEnded,
            (false, true) => BackgroundEnd::Killed,
            (false, false) => BackgroundEnd::Failed,
        };
        table.entries[index].live.push(ended.final_text.as_bytes());
        table.entries[index].final_text = Some(ended.final_text);
        table.record_end(index, end, None, None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::DropGuard;

    use super::super::task_stops::TaskStops;
    use super::*;

    fn adopted(work: impl Future<Output = AgentEnded> + Send + 'static) -> BackgroundAgent {
        BackgroundAgent {
            id: "agent_1".to_owned(),
            call: "toolu_1".to_owned(),
            kind: "general-purpose".to_owned(),
            description: "look".to_owned(),
            work: Box::pin(work),
            stop: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn a_background_agent_that_panics_is_reported_as_failed() {
        let tasks = BackgroundTasks::new(TaskStops::default());
        let mut ends = tasks.ends();
        let work = async { panic!("the floor is gone") };
        tasks.adopt(adopted(work), 1_000).expect("nothing is to end");
        let ended = tokio::time::timeout(Duration::from_secs(20), ends.changed()).await;
        assert!(ended.is_ok(), "it runs for ever");
        let table = tasks.table.lock();
        assert_eq!(table.entries[0].task.end, Some(BackgroundEnd::Failed));
        assert!(table.ended_text().contains("the floor is gone"), "{}", table.ended_text());
    }

    /// Resources that the sub-agent holds, such as budget reservations, are released when it is
    /// dropped.
    #[tokio::test]
    async fn a_background_agent_that_does_not_end_is_dropped_at_the_end() {
        let (tasks, gone) = (BackgroundTasks::new(TaskStops::default()), CancellationToken::new());
        let held = gone.clone().drop_guard();
        let work = async move {
            let _held: DropGuard = held;
            std::future::pending().await
        };
        tasks.adopt(adopted(work), 1_000).expect("nothing is to end");
        tokio::task::yield_now().await;
        let ends = tasks.ends();
        assert!(tasks.stop_all(Duration::ZERO).await, "it had to be cut");
        assert!(gone.is_cancelled(), "it is still there");
        assert!(ends.has_changed().expect("it is open"), "waiters are notified");
    }
}
