//! The interface of a run to its background tasks.

use std::time::Duration;

use crate::recovery::WorkStatus;

use super::super::toolbox::Toolbox;
use super::task::BackgroundTask;
use super::task_stops::TaskStops;

impl Toolbox {
    /// The state of the background work.
    pub fn background_work(&self) -> WorkStatus {
        self.tools.shell.background.work_state()
    }

    /// Waits until background work has news, or is finished.
    pub async fn wait_for_background_work(&self) -> WorkStatus {
        self.tools.shell.background.wait_for_work().await
    }

    /// Lists the tasks whose end the model has not been informed of, and marks them as reported.
    pub fn take_ended_work(&self) -> Option<String> {
        self.tools.shell.background.take_ended_work()
    }

    /// True if sub-agents run in the background, or have ended without the model having been
    /// informed.
    pub fn has_unreported_agents(&self) -> bool {
        self.tools.shell.background.has_unreported_agents()
    }

    /// Lists the running tasks that the run waits for, a line each; empty if there are none.
    pub fn list_running(&self) -> String {
        self.tools.shell.background.running()
    }

    /// Hands the start and the end of each background task to `listener`, which must not block.
    pub fn report_tasks_to(&self, listener: impl Fn(BackgroundTask) + Send + Sync + 'static) {
        self.tools.shell.background.report_to(listener);
    }

    /// The tasks that a host can stop.
    pub fn task_stops(&self) -> &TaskStops {
        &self.settings.stops
    }

    /// Returns the start and end events of background tasks that were queued without a listener.
    pub fn take_task_events(&self) -> Vec<BackgroundTask> {
        self.tools.shell.background.take_unseen()
    }

    /// The number of commands of the session, and the tasks that were started since the last call.
    pub fn take_started_tasks(&self) -> (usize, Vec<BackgroundTask>) {
        self.tools.shell.background.take_started()
    }

    /// Returns the ids of tasks whose end the model has been informed of since the last call.
    pub fn take_reported_ends(&self) -> Vec<String> {
        self.tools.shell.background.take_reported_ends()
    }

    /// Every background task of this process.
    pub fn background_tasks(&self) -> Vec<BackgroundTask> {
        self.tools.shell.background.tasks()
    }

    /// Sets the number of tasks that earlier processes of the session started, so that no id is
    /// used twice.
    pub fn count_tasks_from(&self, earlier: usize) {
        self.tools.shell.background.count_from(earlier);
    }

    /// True if a command with this id was started in this process.
    pub fn knows_command(&self, id: &str) -> bool {
        self.tools.shell.background.knows_command(id)
    }

    /// True if background commands continue when the run ends.
    pub fn keeps_commands(&self) -> bool {
        self.tools.shell.background.outlives_run()
    }

    /// Makes background commands end with the run, because the process is about to end.
    pub fn end_commands_with_run(&self) {
        self.tools.shell.background.end_with_run();
    }

    /// Queues events of background commands that outlive the run for the next listener.
    pub fn end_task_reports(&self) {
        self.tools.shell.background.end_reports();
    }

    /// Requests all background tasks of the run to stop, without waiting.
    pub fn request_stop(&self) {
        self.tools.shell.background.request_stop_all();
    }

    /// Stops all background tasks of the run. Those that are still running `patience` after the
    /// request to stop are killed.
    pub async fn stop_and_wait(&self, patience: Duration) {
        if self.tools.shell.background.stop_all(patience).await {
            // Dropping a command kills its process group; this kills processes that have left the
            // group.
            self.kill_remaining_processes().await;
        }
    }
}
