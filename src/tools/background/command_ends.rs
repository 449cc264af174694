//! Records the ends of background commands.

use std::sync::Weak;

use crate::process::catch_async_panic;

use super::super::capture::CapturedOutput;
use super::super::command::{CommandEnd, EndedCommand, exit_code};
use super::task::BackgroundEnd;
use super::tasks::BackgroundTasks;

impl BackgroundTasks {
    /// Waits for the end of a command, and records it. A panic counts as the end, or the command
    /// would seem to run for ever.
    pub(super) async fn record_end_of(
        tasks: Weak<Self>,
        index: usize,
        work: impl Future<Output = (EndedCommand, CapturedOutput)>,
    ) {
        let ended = catch_async_panic(work).await;
        let Some(tasks) = tasks.upgrade() else { return };
        match ended {
            Ok((ended, captured)) => tasks.record_command_end(index, &ended, captured),
            Err(panic) => {
                let why = format!("outlast has a defect: {}", panic.summary());
                let mut table = tasks.table.lock();
                table.entries[index].live.push(why.as_bytes());
                table.record_end(index, BackgroundEnd::Failed, None, None);
            }
        }
    }

    fn record_command_end(&self, index: usize, ended: &EndedCommand, captured: CapturedOutput) {
        let mut table = self.table.lock();
        let closing = table.closing.is_some() && !table.outlive_run;
        let code = ended.status.map(exit_code);
        let end = match (ended.cause, code) {
            (CommandEnd::Exited, Some(0)) => BackgroundEnd::Completed,
            (CommandEnd::Exited, _) => BackgroundEnd::Failed,
            (CommandEnd::TimedOut, _) => BackgroundEnd::TimedOut,
            (CommandEnd::MemoryExceeded(taken), _) => BackgroundEnd::MemoryExceeded(taken),
            (CommandEnd::KilledForMemory, _) => BackgroundEnd::Failed,
            (CommandEnd::Cancelled, _) if closing => BackgroundEnd::RunEnded,
            (CommandEnd::Cancelled, _) => BackgroundEnd::Killed,
        };
        table.record_end(index, end, ended.status, Some(captured));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::super::live_output::LiveOutput;
    use super::super::task::{BackgroundKind, BackgroundTask};
    use super::super::task_stops::TaskStops;
    use super::*;

    #[tokio::test]
    async fn a_background_command_whose_task_panics_is_reported_as_failed() {
        let tasks = BackgroundTasks::new(TaskStops::default());
        let [id, call, command] = ["bash_1", "toolu_1", "make"].map(str::to_owned);
        let task = BackgroundTask::running(BackgroundKind::Command, id, call, command, None);
        let live = Arc::new(LiveOutput::new(1_000));
        let index = tasks.table.lock().add(task, live, CancellationToken::new());
        let ends = tasks.ends();
        let work = async { panic!("the pipe is gone") };
        BackgroundTasks::record_end_of(Arc::downgrade(&tasks), index, work).await;
        assert!(ends.has_changed().expect("it is open"), "waiters are notified");
        let (task, output) = tasks.read_output("bash_1").expect("it is known");
        assert_eq!(task.end, Some(BackgroundEnd::Failed));
        assert!(output.contains("the pipe is gone"), "{output}");
    }
}
