//! Runs many tasks: reads and plans them, runs them on this machine or renders them for another
//! engine (Slurm, Kubernetes, a CI matrix), and collects their results.
//!
//! ```text
//! TASKS ─► task_file ─► plan ─┬─► schedule ─► local engine ─► workers ─┐
//!                             └─► render ─► other engine ───► workers ─┴─► results ─► collect
//! ```
//! Every engine starts the same worker with the index of a task. All state is in the files of
//! [`BatchFolder`], so an interrupted batch can be continued.

mod budget;
mod collect;
mod folder;
mod local_engine;
mod plan;
mod render;
mod schedule;
mod submission;
mod task_file;
mod task_state;
mod worker_index;

pub use budget::{BudgetError, divide};
pub use collect::{BatchSummary, SUMMARY_VERSION, TaskReport};
pub use folder::{AttemptRecord, BatchFolder, BatchFolderError, TaskFolder};
pub use local_engine::{
    BatchEvent, BatchObserver, BatchStop, LocalBatch, LocalEngineEnd, NextAttempt,
};
pub use plan::{
    BatchPlan, PLAN_VERSION, PlanError, PlanRequest, PlannedLimits, PlannedTask, is_batch_id,
};
pub use render::{
    ClusterOptions, MATRIX_MAX, RenderError, array_script, job_manifest, matrix, render_yaml,
};
pub use schedule::{AttemptEnd, Schedule, ScheduleLimits, TaskCounts};
pub use submission::{ClusterEngine, Submission};
pub use task_file::{GitSource, TaskFileError, TaskLimits, TaskLine, read_tasks};
pub use task_state::{
    SILENCE_MAX, TaskOutcome, TaskState, is_final_failure, is_temporary_code, open_tasks,
    read_state,
};
pub use worker_index::{IndexError, worker_index};
