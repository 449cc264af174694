//! Collects the states and results of all tasks of a batch, including tasks without a result.

use serde_json::{Value, json};
use strum::IntoEnumIterator;
use uuid::Uuid;

use crate::recovery::{Money, Spending};
use crate::types::exit_code;

use super::folder::BatchFolder;
use super::plan::{BatchPlan, PlannedTask};
use super::task_state::{TaskOutcome, TaskState, read_state};

/// Version of the summary format.
pub const SUMMARY_VERSION: u64 = 1;

/// One task with its state and outcome.
#[derive(Clone, Debug)]
pub struct TaskReport<'a> {
    pub task: &'a PlannedTask,
    pub state: TaskState,
    pub attempts: usize,
    pub outcome: Option<TaskOutcome>,
    pub session_id: Uuid,
}

impl TaskReport<'_> {
    pub fn cost(&self) -> Option<f64> {
        self.outcome.as_ref()?.cost()
    }

    /// Returns the number of its tool calls that were denied.
    pub fn denied_calls(&self) -> usize {
        self.outcome.as_ref().map_or(0, TaskOutcome::denied_calls)
    }

    /// Returns the JSON object of the task, without its result object.
    pub fn object(&self) -> Value {
        let outcome = self.outcome.as_ref();
        json!({
            "index": self.task.index,
            "id": self.task.id,
            "name": self.task.name,
            "state": self.state.into_str(),
            "exit_code": outcome.map(|outcome| outcome.exit_code),
            "terminal_reason": outcome.and_then(TaskOutcome::reason),
            "error": outcome.and_then(TaskOutcome::error),
            "attempts": self.attempts,
            "denied_calls": self.denied_calls(),
            "total_cost_usd": self.cost(),
            "session_id": self.session_id,
            "line": self.task.line,
        })
    }

    /// Returns the JSON object of the task, with its result object.
    pub fn line(&self) -> Value {
        let mut object = self.object();
        object["result"] = self.outcome.as_ref().map_or(Value::Null, |it| it.result.clone());
        object
    }
}

/// All tasks of a batch.
#[derive(Clone, Debug)]
pub struct BatchSummary<'a> {
    pub batch: &'a str,
    pub tasks: Vec<TaskReport<'a>>,
}

impl<'a> BatchSummary<'a> {
    /// Reads the states and results of all tasks from their files.
    pub fn gather(folder: &BatchFolder, plan: &'a BatchPlan) -> Self {
        let report = |task: &'a PlannedTask| {
            let folder = folder.task(task.index);
            let (state, outcome) = read_state(&folder);
            let session_id = folder.session_id(task.session_id);
            TaskReport { task, state, attempts: folder.attempts_begun(), outcome, session_id }
        };
        let tasks = plan.tasks.iter().map(report).collect();
        Self { batch: &plan.batch, tasks }
    }

    /// Marks the given tasks, which an engine has queued, as submitted if they have not begun.
    #[must_use]
    pub fn with_queued(mut self, tasks: &[usize]) -> Self {
        for report in &mut self.tasks {
            if report.state == TaskState::Missing && tasks.contains(&report.task.index) {
                report.state = TaskState::Submitted;
            }
        }
        self
    }

    /// Returns the number of tasks in a state.
    pub fn count(&self, state: TaskState) -> usize {
        self.tasks.iter().filter(|report| report.state == state).count()
    }

    /// Returns the number of tasks that have no final result yet.
    pub fn open(&self) -> usize {
        self.tasks.iter().filter(|report| !report.state.is_final()).count()
    }

    /// Returns the exit code of the batch: 0 if every task succeeded, 1 if one failed, 75 if none
    /// failed and some have no final result yet.
    pub fn exit_code(&self) -> u8 {
        match (self.count(TaskState::Failed), self.open()) {
            (0, 0) => exit_code::SUCCESS,
            (0, _) => exit_code::TEMPORARY,
            (_, _) => exit_code::FAILED,
        }
    }

    /// Returns the number of tasks with denied tool calls.
    pub fn tasks_with_denied_calls(&self) -> usize {
        self.tasks.iter().filter(|report| report.denied_calls() > 0).count()
    }

    /// Returns the cost of all tasks. It is partial if a price is unknown.
    pub fn cost(&self) -> Spending {
        let mut sum = Spending::default();
        for outcome in self.tasks.iter().filter_map(|report| report.outcome.as_ref()) {
            sum += outcome.spending();
        }
        sum
    }

    /// Returns the JSON object of the summary, without the result objects.
    pub fn object(&self, folder: &BatchFolder, resume: Option<&str>) -> Value {
        let counts: serde_json::Map<String, Value> = TaskState::iter()
            .map(|state| (state.into_str().to_owned(), json!(self.count(state))))
            .collect();
        json!({
            "type": "batch",
            "schema_version": SUMMARY_VERSION,
            "batch": self.batch,
            "folder": folder.path(),
            "exit_code": self.exit_code(),
            "tasks": self.tasks.len(),
            "counts": counts,
            "tasks_with_denied_calls": self.tasks_with_denied_calls(),
            "total_cost_usd": self.cost().total().map(Money::as_dollars),
            "resume": resume,
            "submission": null,
            "error": null,
            "results": self.tasks.iter().map(TaskReport::object).collect::<Vec<_>>(),
        })
    }
}
