//! The table of background tasks of a run.

use std::process::ExitStatus;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::{RunningJob, Supervisor};
use crate::recovery::WorkStatus;
use crate::text::bullets;
use crate::types::Callback;

use super::super::capture::{CapturedOutput, OutputCapture, OutputFolder};
use super::super::command::{AwaitedEnd, exit_code, wait_for_end};
use super::super::outcome::ToolError;
use super::super::panic_guard::end_tasks;
use super::super::sandbox::Sandbox;
use super::super::text;
use super::descriptions;
use super::live_output::LiveOutput;
use super::task::{BackgroundEnd, BackgroundKind, BackgroundTask};
use super::task_stops::TaskStops;

/// The maximum number of tasks that run at a time.
const RUNNING_MAX: usize = 8;

/// The number of ended tasks that keep their unread output: the latest ones.
const ENDED_OUTPUTS_KEPT: usize = 16;

/// The maximum length of a recorded command, in characters.
const COMMAND_MAX: usize = 200;

/// All background tasks, including those that have ended.
#[derive(Debug)]
pub struct BackgroundTasks {
    pub(super) table: Mutex<TaskTable>,
    /// The commands that a host can stop.
    stops: TaskStops,
}

#[derive(Debug, Default)]
pub(super) struct TaskTable {
    /// The number of tasks started by earlier processes of the session.
    earlier: usize,
    /// The number of entries that are commands.
    commands: usize,
    pub(super) entries: Vec<TaskEntry>,
    /// The number of entries that have ended. Notifies waiters of every end.
    end_count: watch::Sender<usize>,
    /// Dropping this set stops the sub-agents.
    pub(super) agents: JoinSet<()>,
    /// Dropping this set stops the commands.
    command_tasks: JoinSet<()>,
    /// Events that were not handed to observers yet.
    unseen: Vec<BackgroundTask>,
    /// Receives the start and the end of each task at once.
    pub(super) listener: Option<Callback<dyn Fn(BackgroundTask) + Send + Sync>>,
    /// The time at which the run began to end.
    pub(super) closing: Option<Instant>,
    /// True if commands continue when the run ends, and the run does not wait for them.
    pub(super) outlive_run: bool,
}

impl TaskTable {
    /// Adds a task that runs. Returns its index.
    pub(super) fn add(
        &mut self,
        task: BackgroundTask,
        live: Arc<LiveOutput>,
        stop: CancellationToken,
    ) -> usize {
        self.report(task.clone());
        self.entries.push(TaskEntry {
            task,
            began: Instant::now(),
            live,
            stop,
            model_knows_end: false,
            recorded: RecordedStage::Nothing,
            final_text: None,
            is_of_earlier_run: false,
            keeper: None,
        });
        // Reap finished tasks.
        while self.agents.try_join_next().is_some() {}
        while self.command_tasks.try_join_next().is_some() {}
        self.entries.len() - 1
    }

    fn report(&mut self, task: BackgroundTask) {
        match &self.listener {
            Some(listener) => listener(task),
            None => self.unseen.push(task),
        }
    }

    fn check_open(&self) -> Result<(), ToolError> {
        if self.closing.is_some() { Err("the run is to end".into()) } else { Ok(()) }
    }

    /// The running tasks that end with the run.
    fn alive_in_run(&self) -> impl Iterator<Item = &TaskEntry> {
        self.alive().filter(|entry| self.ends_with_run(entry))
    }

    fn ends_with_run(&self, entry: &TaskEntry) -> bool {
        !self.outlive_run || entry.task.kind == BackgroundKind::Agent
    }
}

#[derive(Debug)]
pub(super) struct TaskEntry {
    pub(super) task: BackgroundTask,
    pub(super) began: Instant,
    pub(super) live: Arc<LiveOutput>,
    pub(super) stop: CancellationToken,
    /// True if the model has been informed how it ended.
    pub(super) model_knows_end: bool,
    /// The stage of the task that was recorded in the session.
    pub(super) recorded: RecordedStage,
    /// The final text of a sub-agent, which is added to the notice of its end.
    pub(super) final_text: Option<String>,
    /// True if it ended before the run began, and the model had been informed.
    pub(super) is_of_earlier_run: bool,
    /// The resources that a running command needs.
    keeper: Option<CommandKeeper>,
}

/// The resources that a command needs as long as it runs: the process that started it, and its
/// sandbox with the folder for temporary files.
#[derive(Clone, Debug)]
pub(in super::super) struct CommandKeeper {
    pub(in super::super) _supervisor: Supervisor,
    pub(in super::super) sandbox: Arc<Sandbox>,
}

/// The last stage of a task that the session's record contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordedStage {
    #[default]
    Nothing,
    Start,
    /// The start, and that the model was informed of the end.
    KnownEnd,
}

/// The parameters of a background command to be started.
pub(in super::super) struct TaskStart<'a> {
    pub(in super::super) call: &'a str,
    pub(in super::super) command: &'a str,
    pub(in super::super) description: Option<&'a str>,
    pub(in super::super) lifetime: Duration,
    pub(in super::super) output_limit: usize,
    pub(in super::super) scratch: Arc<OutputFolder>,
    pub(in super::super) keeper: CommandKeeper,
}

impl BackgroundTasks {
    pub(in super::super) fn new(stops: TaskStops) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), stops })
    }

    /// Counts the ends of tasks, for waiters.
    pub(super) fn ends(&self) -> watch::Receiver<usize> {
        self.table.lock().end_count.subscribe()
    }

    /// Skips the ids of the commands that the session has started so far. This table may contain
    /// some of these commands.
    pub fn count_from(&self, so_far: usize) {
        let mut table = self.table.lock();
        table.earlier = so_far.saturating_sub(table.commands);
    }

    /// True if a command with this id was started here.
    pub fn knows_command(&self, id: &str) -> bool {
        let is_it =
            |entry: &TaskEntry| entry.task.kind == BackgroundKind::Command && entry.task.id == id;
        self.table.lock().entries.iter().any(is_it)
    }

    /// True if commands outlive the run.
    pub fn outlives_run(&self) -> bool {
        self.table.lock().outlive_run
    }

    /// True if a command is running that outlives the run.
    pub(in super::super) fn keeps_command(&self) -> bool {
        let table = self.table.lock();
        table.alive().any(|entry| !table.ends_with_run(entry))
    }

    /// Makes commands end with the run.
    pub fn end_with_run(&self) {
        self.table.lock().outlive_run = false;
    }

    /// Checks that another task may be started.
    pub(in super::super) fn check_capacity(&self) -> Result<(), ToolError> {
        let table = self.table.lock();
        table.check_open()?;
        let is_command = |entry: &&TaskEntry| entry.task.kind == BackgroundKind::Command;
        if table.alive().filter(is_command).count() < RUNNING_MAX {
            return Ok(());
        }
        let running = table.list(|entry| entry.task.end.is_none() && is_command(&entry));
        Err(format!(
            "{RUNNING_MAX} background commands are running already, and no more may. Stop one with \
             KillShell first:\n{running}"
        )
        .into())
    }

    /// Registers a started command. Returns its id.
    ///
    /// # Errors
    /// The run began to end while the command was started. The command is stopped.
    pub(in super::super) fn register(
        self: &Arc<Self>,
        running: RunningJob,
        begin: &TaskStart<'_>,
    ) -> Result<String, ToolError> {
        let live = Arc::new(LiveOutput::new(begin.output_limit));
        let stop = CancellationToken::new();
        let mut capture = OutputCapture::new(begin.output_limit, Arc::clone(&begin.scratch));
        capture.with_live_output(Arc::clone(&live));
        let (egress, sandbox) = (running.egress.clone(), Arc::clone(&begin.keeper.sandbox));
        let (tasks, token, lifetime) = (Arc::downgrade(self), stop.clone(), begin.lifetime);
        let mut table = self.table.lock();
        table.check_open()?;
        table.commands += 1;
        let id = format!("bash_{}", table.earlier + table.commands);
        let task = BackgroundTask::running(
            BackgroundKind::Command,
            id.clone(),
            begin.call.to_string(),
            text::truncated(begin.command, COMMAND_MAX).to_string(),
            begin.description.map(ToString::to_string),
        );
        let stoppable = self.stops.add(&id, &stop);
        let index = table.add(task, live, stop);
        table.entries[index].keeper = Some(begin.keeper.clone());
        let own_tasks = Weak::clone(&tasks);
        let work = async move {
            let note_first = |status: Option<ExitStatus>| {
                if let Some(tasks) = own_tasks.upgrade() {
                    tasks.table.lock().entries[index].task.first_exit = status.map(exit_code);
                }
            };
            let last = AwaitedEnd::Last(&note_first);
            let ended = wait_for_end(running, lifetime, &token, &mut capture, last).await;
            let refused = egress.map_or_else(Vec::new, |egress| egress.refusals());
            if let Some(note) = sandbox.refusal_note(&refused) {
                capture.push(format!("{note}\n").as_bytes()).await;
            }
            let captured = capture.finish().await;
            // Before the end is reported: a host that was informed of it can no longer stop the
            // task.
            drop(stoppable);
            (ended, captured)
        };
        table.command_tasks.spawn(Self::record_end_of(tasks, index, work));
        Ok(id)
    }

    /// Returns the state of a task, and its output since the last read.
    pub(super) fn read_output(&self, id: &str) -> Result<(BackgroundTask, String), ToolError> {
        let mut table = self.table.lock();
        let entry = table.find(id)?;
        let has_ended = entry.task.end.is_some();
        entry.model_knows_end |= has_ended;
        let output = entry.live.read_new(has_ended);
        let mut task = entry.snapshot();
        task.output_file = task.output_file.or(output.file);
        Ok((task, output.text))
    }

    /// Returns the state of a task without consuming its output.
    pub(super) fn status(&self, id: &str) -> Result<BackgroundTask, ToolError> {
        self.table.lock().find(id).map(|entry| entry.snapshot())
    }

    /// Waits until the task has ended.
    pub(in super::super) async fn ended(&self, id: &str) -> Result<(), ToolError> {
        let mut ends = self.ends();
        while self.table.lock().find(id)?.task.end.is_none() {
            if ends.changed().await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Requests a task to stop. Returns true if it was still running.
    pub(in super::super) fn stop(&self, id: &str) -> Result<bool, ToolError> {
        let mut table = self.table.lock();
        let entry = table.find(id)?;
        let running = entry.task.end.is_none();
        // The model requested this end, so no notice follows.
        entry.model_knows_end = true;
        entry.stop.cancel();
        Ok(running)
    }

    // --- The interface of the run ---

    /// The state of the background work.
    pub fn work_state(&self) -> WorkStatus {
        let table = self.table.lock();
        if table.entries.iter().any(TaskEntry::has_unreported_end) {
            WorkStatus::Unreported
        } else if table.alive_in_run().next().is_some() {
            WorkStatus::StillRunning
        } else {
            WorkStatus::Over
        }
    }

    /// Waits until a task ends, or none is running.
    pub async fn wait_for_work(&self) -> WorkStatus {
        let mut ends = self.ends();
        loop {
            let status = self.work_state();
            if status != WorkStatus::StillRunning || ends.changed().await.is_err() {
                return status;
            }
        }
    }

    /// True if sub-agents are running, or have ended without the model having been informed.
    pub fn has_unreported_agents(&self) -> bool {
        let is_open = |entry: &TaskEntry| entry.task.end.is_none() || entry.has_unreported_end();
        let agents = |entry: &&TaskEntry| entry.task.kind == BackgroundKind::Agent;
        self.table.lock().entries.iter().filter(agents).any(is_open)
    }

    /// Lists the tasks whose end the model has not been informed of, and marks them as reported.
    pub fn take_ended_work(&self) -> Option<String> {
        let mut table = self.table.lock();
        let list = table.ended_text();
        for entry in &mut table.entries {
            entry.model_knows_end |= entry.has_unreported_end();
        }
        let running = table.list(|entry| entry.task.end.is_none());
        let more = if running.is_empty() { running } else { format!("\nStill going:\n{running}") };
        (!list.is_empty()).then(|| list + &more)
    }

    /// Describes the running tasks that end with the run, each by a line.
    pub fn running_lines(&self) -> Vec<String> {
        let table = self.table.lock();
        table.lines(|entry| entry.task.end.is_none() && table.ends_with_run(entry))
    }

    /// Hands all start and end events to `listener`, beginning with those that were queued without
    /// a listener. It must not block.
    pub fn report_to(&self, listener: impl Fn(BackgroundTask) + Send + Sync + 'static) {
        let mut table = self.table.lock();
        std::mem::take(&mut table.unseen).into_iter().for_each(&listener);
        table.listener = Some(Callback(Arc::new(listener)));
    }

    /// The number of commands of the session, and the tasks that were started since the last call.
    pub fn take_started(&self) -> (usize, Vec<BackgroundTask>) {
        let mut table = self.table.lock();
        let commands = table.earlier + table.commands;
        let new = table.entries.iter_mut().filter(|it| it.recorded == RecordedStage::Nothing);
        let started = new.map(|entry| {
            entry.recorded = RecordedStage::Start;
            entry.task.clone()
        });
        (commands, started.collect())
    }

    /// Returns the ids of recorded tasks whose end the model has been informed of since the last
    /// call.
    pub fn take_reported_ends(&self) -> Vec<String> {
        let mut table = self.table.lock();
        let reported = table.entries.iter_mut().filter(|entry| {
            let knows_end = entry.task.end.is_some() && entry.model_knows_end;
            knows_end && entry.recorded == RecordedStage::Start
        });
        reported
            .map(|entry| {
                entry.recorded = RecordedStage::KnownEnd;
                entry.task.id.clone()
            })
            .collect()
    }

    /// All tasks of the run.
    pub fn tasks(&self) -> Vec<BackgroundTask> {
        let table = self.table.lock();
        let of_run = table.entries.iter().filter(|entry| !entry.is_of_earlier_run);
        of_run.map(TaskEntry::snapshot).collect()
    }

    /// Requests all tasks of the run to stop because it ends. Returns true if any was running.
    pub fn request_stop_all(&self) -> bool {
        let mut table = self.table.lock();
        table.closing.get_or_insert_with(Instant::now);
        for entry in table.alive_in_run() {
            entry.stop.cancel();
        }
        table.alive_in_run().next().is_some()
    }

    /// Queues events from now on until there is another listener, if commands outlive the run.
    pub fn end_reports(&self) {
        let mut table = self.table.lock();
        if table.outlive_run {
            table.listener = None;
        }
    }

    /// Stops all tasks of the run: waits up to `patience` after the request to stop, and kills the
    /// rest. Returns true if that was necessary.
    pub(in super::super) async fn stop_all(&self, patience: Duration) -> bool {
        if !self.request_stop_all() {
            return false;
        }
        let until = self.table.lock().closing.map_or_else(Instant::now, |since| since + patience);
        let mut ends = self.ends();
        let all = async {
            while self.table.lock().alive_in_run().next().is_some() {
                if ends.changed().await.is_err() {
                    break;
                }
            }
        };
        if tokio::time::timeout_at(until, all).await.is_ok() {
            return false;
        }
        // Dropping a command kills it, and dropping a sub-agent settles its accounting.
        let (agents, commands) = {
            let mut table = self.table.lock();
            let commands = (!table.outlive_run).then(|| std::mem::take(&mut table.command_tasks));
            (std::mem::take(&mut table.agents), commands)
        };
        end_tasks(agents).await;
        if let Some(commands) = commands {
            end_tasks(commands).await;
        }
        let mut table = self.table.lock();
        for index in 0..table.entries.len() {
            if table.ends_with_run(&table.entries[index]) {
                table.record_end(index, BackgroundEnd::RunEnded, None, None);
            }
        }
        true
    }
}

impl TaskTable {
    pub(super) fn alive(&self) -> impl Iterator<Item = &TaskEntry> {
        self.entries.iter().filter(|entry| entry.task.end.is_none())
    }

    /// Finds a task. The error for the model lists the existing ones.
    fn find(&mut self, id: &str) -> Result<&mut TaskEntry, ToolError> {
        let index = self.entries.iter().position(|entry| entry.task.id == id);
        let index = index.ok_or_else(|| match self.list(|_| true).as_str() {
            "" => format!("there is no background command {id:?}: this run has started none"),
            known => format!("there is no background command {id:?}; there are:\n{known}"),
        })?;
        Ok(&mut self.entries[index])
    }

    fn list(&self, wanted: impl Fn(&TaskEntry) -> bool) -> String {
        bullets(&self.lines(wanted))
    }

    fn lines(&self, wanted: impl Fn(&TaskEntry) -> bool) -> Vec<String> {
        let wanted = self.entries.iter().filter(|entry| wanted(entry));
        wanted.map(|entry| descriptions::list_line(&entry.snapshot())).collect()
    }

    /// Lists the tasks whose end the model has not been informed of, with the final texts of
    /// sub-agents.
    pub(super) fn ended_text(&self) -> String {
        let ended = self.entries.iter().filter(|entry| entry.has_unreported_end());
        let lines = ended.flat_map(|entry| {
            let text = entry.final_text.iter().flat_map(|text| text.lines());
            std::iter::once(entry.list_line()).chain(text.map(|line| format!("  {line}")))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Records and reports the end of a task, unless it is recorded already.
    pub(super) fn record_end(
        &mut self,
        index: usize,
        end: BackgroundEnd,
        status: Option<ExitStatus>,
        captured: Option<CapturedOutput>,
    ) {
        let entry = &mut self.entries[index];
        if entry.task.end.is_some() {
            return;
        }
        entry.task.took = entry.began.elapsed();
        entry.task.end = Some(end);
        entry.task.exit_code = status.map(exit_code);
        if let Some(captured) = captured {
            (entry.task.output_bytes, entry.task.output_file) = (captured.bytes, captured.file);
        }
        entry.keeper = None;
        let task = entry.task.clone();
        self.report(task);
        self.end_count.send_modify(|ends| *ends += 1);
        let ended = self.entries.iter().rev().filter(|entry| entry.task.end.is_some());
        for entry in ended.skip(ENDED_OUTPUTS_KEPT) {
            entry.live.discard_unread();
        }
    }
}

impl TaskEntry {
    pub(super) fn has_unreported_end(&self) -> bool {
        self.task.end.is_some() && !self.model_knows_end
    }

    fn list_line(&self) -> String {
        format!("- {}", descriptions::list_line(&self.snapshot()))
    }

    pub(super) fn snapshot(&self) -> BackgroundTask {
        let mut task = self.task.clone();
        if task.end.is_none() {
            task.took = self.began.elapsed();
        }
        task
    }
}
