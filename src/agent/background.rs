//! Background commands of a run: reports their ends to the model and the observer, and ends them
//! with the run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::journal::{BackgroundChanges, BackgroundWork};
use crate::recovery::{
    Event, FOLDER_CHANGED, Moment, StopReason, WORK_ENDED_SINCE, WORK_GONE, WorkStatus,
};
use crate::text::words_joined;
use crate::tools::{BackgroundKind, BackgroundTask, Toolbox};
use crate::transcript::ToolCall;

use super::messages::join_list;
use super::run_event::{Heartbeat, RunEvent};
use super::run_monitor::{CANCEL_GRACE, CancelReason, LATE_CANCEL_GRACE, RunMonitor, WaitTimer};
use super::setup::MovedFolder;
use super::tool_hooks::NotPermitted;
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

impl RunWorld<'_> {
    /// Waits for a change in background work, until `until` at most.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn await_work(&mut self, until: Moment) -> Result<Event, CancelReason> {
        self.report_outcome_so_far();
        self.release_slot();
        let waited = self.await_background_work(until).await;
        self.acquire_slot().await?;
        waited.map(Event::BackgroundWaited)
    }

    /// Reports the outcome so far, once for each answer, if sub-agents go on in the background.
    /// With `--require` nothing is reported, since its command has yet to accept the answer.
    fn report_outcome_so_far(&mut self) {
        let turn = Some(self.caller.accounting.stats().turns);
        let is_answer = self.context.is_root()
            && self.tools.toolbox().background().has_unreported_agents()
            && self.tools.toolbox().acceptance().requirement.is_none();
        if is_answer && std::mem::replace(&mut self.yielded_in_turn, turn) != turn {
            let outcome = self.outcome(StopReason::Completed);
            self.monitor.emit(&RunEvent::AwaitsAgents(Box::new(outcome)));
        }
    }

    async fn await_background_work(&mut self, until: Moment) -> Result<WorkStatus, CancelReason> {
        let toolbox = Arc::clone(self.tools.toolbox());
        let clock = self.monitor.clock();
        let update = async {
            tokio::select! {
                biased;
                work = toolbox.background().wait_for_work() => work,
                () = clock.sleep_until(until) => WorkStatus::StillRunning,
            }
        };
        let mut timer = self.monitor.begin();
        let progress = self.caller.turn_progress();
        let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
            let waiting_for = WaitingFor::Work { running: toolbox.background().running_lines() };
            let ends_in = Some(monitor.now().until(until));
            Some(Heartbeat { ends_in, ..monitor.heartbeat(timer, waiting_for, progress) })
        };
        let waited = self.monitor.wait_for(&mut timer, heartbeat, update).await;
        waited.inspect_err(|cut| self.start_shutdown(*cut))
    }

    /// Waits for work that ends by itself once it is cancelled. It is cancelled when the run is cut
    /// off, and dropped if it then takes too long.
    pub(super) async fn run_cancellable<T>(
        &mut self,
        waiting_for: WaitingFor,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        tokio::pin!(work);
        let progress = self.caller.turn_progress();
        let cut = match self.monitor.wait_as(waiting_for, progress, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(cut) => cut,
        };
        cancel.cancel();
        self.start_shutdown(cut);
        let _ = tokio::time::timeout(cut.grace(), work).await;
        Err(cut)
    }

    /// Performs a check of a call, with heartbeats, since its paths may be on a file system that
    /// does not answer.
    pub(super) async fn check_call<T: Send + 'static>(
        &mut self,
        call: &ToolCall,
        check: impl FnOnce(&Toolbox) -> T + Send + 'static,
    ) -> Result<T, NotPermitted> {
        let (toolbox, progress) = (Arc::clone(self.tools.toolbox()), self.caller.turn_progress());
        let waiting_for = WaitingFor::Tool { name: call.name.clone(), id: call.id.clone() };
        let checked = self.monitor.wait_as(waiting_for, progress, toolbox.check(check)).await;
        Ok(checked.inspect_err(|cut| self.start_shutdown(*cut))??)
    }

    /// Begins to end hooks and background commands as soon as the run is cut off, in parallel with
    /// the rest of the shutdown.
    pub(super) fn start_shutdown(&mut self, cut: CancelReason) {
        self.hooks.prepare_kill();
        self.tools.start_shutdown(cut, &mut self.monitor);
    }

    /// Ends background commands. A resumed session reports those whose end the model has not seen.
    pub(super) async fn end_work(&mut self, reason: StopReason) {
        self.hooks.prepare_kill();
        if let Some(by) = reason.interrupt() {
            self.start_shutdown(CancelReason::Interrupt(by));
        }
        let late = matches!(
            reason,
            StopReason::Deadline | StopReason::BackgroundPending | StopReason::Denied
        );
        let limit = if late { LATE_CANCEL_GRACE } else { CANCEL_GRACE };
        Arc::clone(self.tools.toolbox()).stop_and_wait(limit).await;
        self.tools.toolbox().background().end_reports();
        self.monitor.emit_inbox();
    }

    /// Adds a last message about background commands that were ended with the run.
    pub(super) fn record_cut_work(&mut self, reason: StopReason) {
        if reason != StopReason::Completed
            && !self.tools.toolbox().background().outlives_run()
            && let Some(update) = self.tools.toolbox().background().take_ended_work()
        {
            self.add_text(join_list(WORK_GONE, &update));
            self.record_reported_ends();
        }
    }

    /// Records in the journal what a later process needs, before the model is informed of it: the
    /// start of background work, a new folder of the shell, and the files that were read.
    pub(super) fn record_effects(&mut self) {
        let (commands, started) = self.tools.toolbox().background().take_started();
        let started = started.into_iter().map(work_of).collect();
        let folder = self.tools.toolbox().take_new_folder();
        let changes = BackgroundChanges { commands, started, reported: Vec::new(), folder };
        self.journal.background(changes);
        self.journal.files_read(self.tools.toolbox().take_files_read());
    }

    /// Records in the journal the background work whose end was reported to the model.
    pub(super) fn record_reported_ends(&mut self) {
        let reported = self.tools.toolbox().background().take_reported_ends();
        self.journal.background(BackgroundChanges { reported, ..Default::default() });
    }

    /// Reports to the model the background commands of earlier runs that have ended since.
    pub(super) fn report_ended_work(&mut self) {
        if let Some(ended) = self.tools.toolbox().background().take_ended_work() {
            self.add_text(join_list(WORK_ENDED_SINCE, &ended));
            self.record_reported_ends();
        }
    }

    /// Reports to the model of a resumed session that its working directory has changed. Returns
    /// whether it has.
    pub(super) fn report_moved_folder(&mut self) -> bool {
        let Some(MovedFolder { before, now }) = self.tools.take_moved_folder() else {
            return false;
        };
        let folders = format!("- before: {}\n- now: {}", before.display(), now.display());
        self.add_text(join_list(FOLDER_CHANGED, &folders));
        true
    }

    /// Reports to the model of a resumed session the background work that was lost with an earlier
    /// process. Returns whether there was any.
    pub(super) fn report_lost_work(&mut self) -> bool {
        for agent in self.context.deps.registry.lost() {
            self.monitor.emit(&RunEvent::Agent(Box::new(agent)));
        }
        let lost = self.tools.take_lost_work();
        let is_reported = !lost.is_empty();
        if is_reported {
            let names = lost_work_list(&lost, |id| self.context.deps.registry.past_report(id));
            self.add_text(join_list(WORK_GONE, &names));
            let reported = lost.iter().map(|work| work.id().to_owned()).collect();
            self.journal.background(BackgroundChanges { reported, ..Default::default() });
        }
        is_reported
    }
}

/// Converts started work to its record in the journal.
fn work_of(task: BackgroundTask) -> BackgroundWork {
    let BackgroundTask { id, command, description, .. } = task;
    match task.kind {
        BackgroundKind::Command => BackgroundWork::Command { id, command },
        BackgroundKind::Agent => {
            BackgroundWork::Agent { id, description: description.unwrap_or_default() }
        }
    }
}

/// Lists lost work, a line each, with the known details of sub-agents below.
fn lost_work_list<'a>(
    lost: &[BackgroundWork],
    details: impl Fn(&str) -> Option<&'a str>,
) -> String {
    let line = |work: &BackgroundWork| {
        let title = match work {
            BackgroundWork::Command { command, .. } => command.clone(),
            BackgroundWork::Agent { description, .. } => format!("agent: {description}"),
        };
        let title = words_joined(&title.chars().take(200).collect::<String>());
        let details = details(work.id()).into_iter().flat_map(str::lines);
        let details: Vec<String> = details.map(|line| format!("\n  {line}")).collect();
        format!("- {} (`{title}`){}", work.id(), details.concat())
    };
    lost.iter().map(line).collect::<Vec<_>>().join("\n")
}
