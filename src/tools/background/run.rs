//! What a run asks of its background commands.

use std::time::Duration;

use crate::recovery::WorkStatus;

use super::super::toolbox::Toolbox;
use super::task::BackgroundTask;

impl Toolbox {
    /// How background work stands.
    pub fn work(&self) -> WorkStatus {
        self.kit.shell.background.stand()
    }

    /// Waits until background work brings news, or is over.
    pub async fn news_of_work(&self) -> WorkStatus {
        self.kit.shell.background.news().await
    }

    /// What has ended unknown to the model, a line each. The model is taken to know it from now on.
    pub fn take_work_news(&self) -> Option<String> {
        self.kit.shell.background.take_news()
    }

    /// What is running in the background, a line each; empty when nothing is.
    pub fn running_work(&self) -> String {
        self.kit.shell.background.running()
    }

    /// Begins and ends of background commands that were not handed out before.
    pub fn take_task_events(&self) -> Vec<BackgroundTask> {
        self.kit.shell.background.take_unseen()
    }

    /// Every background command of this process.
    pub fn tasks(&self) -> Vec<BackgroundTask> {
        self.kit.shell.background.tasks()
    }

    /// Says how many background commands earlier processes of the session started: no name is used
    /// twice.
    pub fn count_tasks_from(&self, earlier: usize) {
        self.kit.shell.background.count_from(earlier);
    }

    /// Asks all background commands to end, and waits for none.
    pub fn stop_work(&self) {
        self.kit.shell.background.close();
    }

    /// Ends all background commands, within `patience` from when they were asked to.
    pub async fn end_work(&self, patience: Duration) {
        if self.kit.shell.background.end(patience).await {
            // Dropping a command kills it and its group; the hunt finds what has left the group.
            self.kill_leftovers().await;
        }
    }
}
