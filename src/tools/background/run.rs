//! What a run asks of its background commands.

use std::time::Duration;

use crate::recovery::WorkStatus;

use super::super::toolbox::Toolbox;
use super::task::BackgroundTask;

impl Toolbox {
    /// How background work stands.
    pub fn background_work(&self) -> WorkStatus {
        self.tools.shell.background.work_state()
    }

    /// Waits until background work brings news, or is over.
    pub async fn wait_for_background_news(&self) -> WorkStatus {
        self.tools.shell.background.wait_for_news().await
    }

    /// What has ended unknown to the model, a line each. The model is taken to know it from now on.
    pub fn take_background_news(&self) -> Option<String> {
        self.tools.shell.background.take_news()
    }

    /// What is running in the background, a line each; empty when nothing is.
    pub fn list_running(&self) -> String {
        self.tools.shell.background.running()
    }

    /// Begins and ends of background commands that were not handed out before.
    pub fn take_task_events(&self) -> Vec<BackgroundTask> {
        self.tools.shell.background.take_unseen()
    }

    /// Every background command of this process.
    pub fn background_tasks(&self) -> Vec<BackgroundTask> {
        self.tools.shell.background.tasks()
    }

    /// Says how many background commands earlier processes of the session started: no name is used
    /// twice.
    pub fn count_tasks_from(&self, earlier: usize) {
        self.tools.shell.background.count_from(earlier);
    }

    /// Asks all background commands to end, and waits for none.
    pub fn request_stop(&self) {
        self.tools.shell.background.request_stop_all();
    }

    /// Ends all background commands, within `patience` from when they were asked to.
    pub async fn stop_and_wait(&self, patience: Duration) {
        if self.tools.shell.background.stop_all(patience).await {
            // Dropping a command kills it and its group; the hunt finds what has left the group.
            self.kill_remaining_processes().await;
        }
    }
}
