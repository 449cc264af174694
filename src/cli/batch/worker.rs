//! The worker: runs one task of a batch, whichever engine starts it and however often.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;

use crate::batch::{
    AttemptRecord, BatchFolder, BatchPlan, GitSource, PlannedTask, TaskFolder, read_state,
    worker_index,
};
use crate::checkout::check_out;
use crate::cli::args::{self, BatchWorkerArgs, OutputFormat, RequestedOutput, RunArgs};
use crate::cli::checkouts::{enter_worktree, wait_for_checkout};
use crate::cli::error_report::report_usage_error;
use crate::cli::run::{self, ExitCheck, ProcessContext, not_started_error};
use crate::cli::stdout::print_report;
use crate::cli::timestamps::format_duration;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::process::{FileLock, end_with};
use crate::recovery::Interrupt;

use super::open::open;
use super::progress::print_message;
use super::task_check::run_words;

/// Time limit of the wait for another worker of the same task.
const LOCK_MAX: Duration = Duration::from_secs(30);

/// The task of a worker, with its plan and its folder.
#[derive(Clone, Copy)]
struct WorkerTask<'a> {
    plan: &'a BatchPlan,
    task: &'a PlannedTask,
    files: &'a TaskFolder,
}

/// Runs a task, or resumes it, or repeats its result. The exit code is that of the run.
///
/// # Errors
/// There is no such task, or another worker has it.
pub(super) async fn work(
    args: &BatchWorkerArgs,
    context: ProcessContext,
) -> Result<u8, UsageError> {
    if args.parent.is_some_and(|parent| !end_with(parent)) {
        return Err(UsageError::interrupted(Interrupt::Sigterm));
    }
    let (folder, plan) = locate(args, &context)?;
    let index = worker_index(args.index, &context.variables, plan.tasks.len())
        .map_err(|error| UsageError::new(error.to_string()))?;
    let worker = WorkerTask { plan: &plan, task: &plan.tasks[index], files: &folder.task(index) };
    worker.files.create()?;
    let lock = worker.lock(&context).await?;
    let (state, outcome) = read_state(worker.files);
    if let Some(outcome) = outcome.filter(|_| state.is_final()) {
        print_report(&format!("{}\n", outcome.result))?;
        return Ok(outcome.exit_code);
    }
    if args.plan.as_ref().is_some_and(|digest| *digest != plan.digest()) {
        return refuse_changed_plan(&folder, worker.files, &context);
    }
    let code = Box::pin(worker.attempt(context)).await?;
    drop(lock);
    Ok(code)
}

/// Writes the result of a task whose plan was changed, which is final: further attempts would find
/// the same plan.
///
/// # Errors
/// The process is about to end.
fn refuse_changed_plan(
    folder: &BatchFolder,
    files: &TaskFolder,
    context: &ProcessContext,
) -> Result<u8, UsageError> {
    let error = UsageError::new(format!(
        "the plan in {} was changed after the batch was started; start the batch again, with \
         --retry-failed",
        folder.path().display()
    ));
    if !context.exit_watchdog.claim(error.verdict().exit_code()) {
        return Err(error);
    }
    Ok(report_usage_error(&error, &requested_output(files)))
}

/// Finds the plan, and the folder for results.
fn locate(
    args: &BatchWorkerArgs,
    context: &ProcessContext,
) -> Result<(BatchFolder, BatchPlan), UsageError> {
    let path = context.cwd.join(&args.batch);
    let (folder, plan) = if path.is_file() {
        let plan = BatchPlan::load(&path)?;
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        (BatchFolder::new(folder), plan)
    } else {
        open(&args.batch, context)?
    };
    let Some(dir) = &args.dir else { return Ok((folder, plan)) };
    let folder = BatchFolder::new(context.cwd.join(dir));
    folder.create()?;
    if !folder.plan_path().exists() {
        // The results can then be collected there.
        folder.write_plan(&plan)?;
    }
    Ok((folder, plan))
}

impl WorkerTask<'_> {
    /// Waits until no other worker has the task.
    async fn lock(self, context: &ProcessContext) -> Result<FileLock, UsageError> {
        let (name, limit) = (&self.task.name, format_duration(LOCK_MAX));
        // A free task is taken even after a signal, so that the attempt is recorded.
        let holder = match self.files.lock(Duration::ZERO).await? {
            Ok(lock) => return Ok(lock),
            Err(holder) => holder,
        };
        print_message(&format!("{holder} works on {name}; waiting for it, {limit} left"));
        let lock = tokio::select! {
            biased;
            lock = self.files.lock(LOCK_MAX) => lock?,
            interrupt = context.signals.first() => return Err(UsageError::interrupted(interrupt)),
        };
        lock.map_err(|holder| {
            let what = format!("{holder} has worked on {name} for more than {limit}; try later");
            UsageError::of(UsageErrorKind::Busy, what)
        })
    }

    /// Makes one attempt, whose start and end are recorded.
    async fn attempt(self, context: ProcessContext) -> Result<u8, UsageError> {
        let record = |exit_code| {
            let at = Timestamp::now().to_string();
            self.files.record(&AttemptRecord { at, pid: std::process::id(), exit_code })
        };
        record(None)?;
        let watchdog = context.exit_watchdog.clone();
        let output = requested_output(self.files);
        watchdog.replace_writer(Box::new(move |why| {
            report_usage_error(&not_started_error(why), &output);
        }));
        let code = match Box::pin(self.run(context)).await {
            Ok(code) => code,
            // The worker that has the session writes the result.
            Err(error) if error.cause == UsageErrorKind::Busy => return Err(error),
            Err(error) => {
                let code = error.verdict().exit_code();
                if !watchdog.claim(code) {
                    return Err(error);
                }
                report_usage_error(&error, &requested_output(self.files))
            }
        };
        // This record is only for people: the result was written.
        let _ = record(Some(code));
        Ok(code)
    }

    async fn run(self, mut context: ProcessContext) -> Result<u8, UsageError> {
        let Self { plan, task, files } = self;
        let mut run = args::run_flags(&run_words(plan, task))?;
        run.prompt = Some(task.prompt.clone());
        run.session.resume_or_start = Some(files.session_id(task.session_id).to_string());
        run.output.output_format = Some(OutputFormat::Json);
        run.output.files.result = Some(files.result());
        run.output.files.heartbeat = Some(files.heartbeat());
        run.output.no_stdin = true;
        context.set_folder(self.prepare_folder(&run, &context).await?);
        env::set_current_dir(&context.cwd).map_err(|error| {
            UsageError::new(format!("{}: {error}; create it", context.cwd.display()))
        })?;
        if let Some(name) = run.compatibility.worktree.as_mut().filter(|name| name.is_empty()) {
            // Not a new name: each attempt continues in the same worktree.
            name.clone_from(&task.name);
        }
        let context = enter_worktree(&run, context).await?;
        let check: ExitCheck<'_> = &|_, _| Vec::new();
        run::run(&run, context, check).await
    }

    /// Returns the working directory of the task. If it is the task's own, it is created.
    async fn prepare_folder(
        self,
        run: &RunArgs,
        context: &ProcessContext,
    ) -> Result<PathBuf, UsageError> {
        let work = self.files.work();
        if let Some(GitSource { repository, reference }) = &self.task.git {
            let cloning = check_out(repository, reference.as_deref(), &work, &context.variables);
            wait_for_checkout(&format!("cloning {repository}"), (run, context), cloning).await?;
            return Ok(work);
        }
        if let Some(cwd) = self.task.cwd.as_ref().or(self.plan.cwd.as_ref()) {
            return Ok(cwd.clone());
        }
        std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        Ok(work)
    }
}

/// Returns the output for an error before the run: that of the run's result.
fn requested_output(files: &TaskFolder) -> RequestedOutput {
    RequestedOutput {
        format: OutputFormat::Json,
        result_file: Some(files.result()),
        ..RequestedOutput::default()
    }
}
