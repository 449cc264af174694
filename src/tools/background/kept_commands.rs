//! Background commands that outlive the runs of a host's session.

use std::sync::Arc;
use std::time::Duration;

use super::task::{BackgroundEnd, BackgroundKind, BackgroundTask};
use super::task_stops::TaskStops;
use super::tasks::{BackgroundTasks, TaskEntry};

/// The background commands of a session with several runs: they continue when a run ends, and a run
/// does not wait for them. Clones share them.
#[derive(Clone, Debug)]
pub struct KeptCommands(Arc<BackgroundTasks>);

impl KeptCommands {
    pub fn new(stops: TaskStops) -> Self {
        let commands = BackgroundTasks::new(stops);
        commands.table.lock().outlive_run = true;
        Self(commands)
    }

    /// Returns the table for the tools of the next run. Tasks whose end the model has been informed
    /// of belong to an earlier run.
    pub(in super::super) fn for_next_run(&self) -> Arc<BackgroundTasks> {
        let mut table = self.0.table.lock();
        table.closing = None;
        for entry in &mut table.entries {
            // The journal reports sub-agents that were cut.
            entry.model_knows_end |= entry.task.kind == BackgroundKind::Agent;
            entry.is_of_earlier_run |= entry.task.end.is_some() && entry.model_knows_end;
        }
        drop(table);
        Arc::clone(&self.0)
    }

    /// Makes the commands end with their run from now on, because no further run may follow.
    pub fn end_with_run(&self) {
        self.0.end_with_run();
    }

    /// Hands the start and the end of each task to `listener`, which must not block, beginning with
    /// those that no run has reported.
    pub fn report_to(&self, listener: impl Fn(BackgroundTask) + Send + Sync + 'static) {
        self.0.report_to(listener);
    }

    /// Waits until more than `seen` tasks have ended, at least one of them by itself and without
    /// the model having been informed. Returns the number of ends so far.
    pub async fn wait_for_unreported_end(&self, seen: usize) -> usize {
        let is_unreported = |entry: &TaskEntry| {
            entry.has_unreported_end() && entry.task.end.is_some_and(BackgroundEnd::came_by_itself)
        };
        let mut ends = self.0.ends();
        loop {
            let count = *ends.borrow_and_update();
            if count > seen && self.0.table.lock().entries.iter().any(is_unreported) {
                return count;
            }
            if ends.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until no command is running.
    pub async fn wait_until_ended(&self) {
        let mut ends = self.0.ends();
        while self.0.table.lock().alive().next().is_some() {
            if ends.changed().await.is_err() {
                break;
            }
        }
    }

    /// Stops the tasks of a run that has ended, within `patience`: all but the commands, if they
    /// outlive the run.
    pub async fn end_run(&self, patience: Duration) {
        self.0.stop_all(patience).await;
        self.0.table.lock().listener = None;
    }

    /// Stops all commands, within `patience`.
    pub async fn stop(&self, patience: Duration) {
        self.0.end_with_run();
        self.0.table.lock().closing = None;
        self.0.stop_all(patience).await;
    }
}
