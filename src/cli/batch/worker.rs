//! The worker: runs one task of a batch, whichever engine starts it and however often.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use crate::batch::{
    AttemptRecord, BatchFolder, BatchPlan, FileLock, PlannedTask, TaskFolder, TaskState,
    read_state, worker_index,
};
use crate::checkout::check_out;
use crate::cli::args::{self, BatchWorkerArgs, OutputFormat, RequestedOutput, RunArgs};
use crate::cli::checkouts::{enter_worktree, wait_for_git};
use crate::cli::error_report::report_usage_error;
use crate::cli::run::{self, ExitCheck, ProcessContext, not_started_error};
use crate::cli::stdout::print_report;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::process::end_with;
use crate::recovery::Interrupt;

use super::open::{folder_error, open};
use super::task_check::run_words;

/// Time limit of the wait for another worker of the same task.
const LOCK_MAX: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Runs a task, or resumes it, or repeats its result. The exit code is that of the run.
///
/// # Errors
/// There is no such task, or another worker has it.
pub(super) async fn work(args: &BatchWorkerArgs, world: ProcessContext) -> Result<u8, UsageError> {
    if args.parent.is_some_and(|parent| !end_with(parent)) {
        return Err(UsageError::interrupted(Interrupt::Sigterm));
    }
    let (folder, plan) = locate(args, &world)?;
    let index = worker_index(args.index, &world.variables, plan.tasks.len())
        .map_err(|error| UsageError::new(error.to_string()))?;
    let (task, files) = (&plan.tasks[index], folder.task(index));
    files.create().map_err(|error| folder_error(&error))?;
    let lock = lock(&files, task, &world).await?;
    if let (TaskState::Done | TaskState::Failed, Some(outcome)) = read_state(&files) {
        print_report(&format!("{}\n", outcome.result))?;
        return Ok(outcome.exit_code);
    }
    if args.plan.as_ref().is_some_and(|digest| *digest != plan.digest()) {
        return refuse_changed_plan(&folder, &files, &world);
    }
    let code = Box::pin(attempt(&plan, task, &files, world)).await?;
    drop::<FileLock>(lock);
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
    world: &ProcessContext,
) -> Result<u8, UsageError> {
    let error = UsageError::new(format!(
        "the plan in {} was changed after the batch was started; start the batch again, with \
         --retry-failed",
        folder.path().display()
    ));
    if !world.exit_watchdog.claim(error.verdict().exit_code()) {
        return Err(error);
    }
    Ok(report_usage_error(&error, &requested_output(files)))
}

/// Finds the plan, and the folder for results.
fn locate(
    args: &BatchWorkerArgs,
    world: &ProcessContext,
) -> Result<(BatchFolder, BatchPlan), UsageError> {
    let path = world.cwd.join(&args.batch);
    let (folder, plan) = if path.is_file() {
        let plan = BatchPlan::load(&path).map_err(|error| folder_error(&error))?;
        let beside = path.parent().map(PathBuf::from).unwrap_or_default();
        (BatchFolder::new(beside), plan)
    } else {
        open(&args.batch, world)?
    };
    let Some(dir) = &args.dir else { return Ok((folder, plan)) };
    let folder = BatchFolder::new(world.cwd.join(dir));
    folder.create().map_err(|error| folder_error(&error))?;
    if !folder.plan_path().exists() {
        // So that the results can be collected there.
        folder.write_plan(&plan).map_err(|error| folder_error(&error))?;
    }
    Ok((folder, plan))
}

/// Waits until no other worker has the task.
async fn lock(
    files: &TaskFolder,
    task: &PlannedTask,
    world: &ProcessContext,
) -> Result<FileLock, UsageError> {
    let end = Instant::now() + LOCK_MAX;
    loop {
        if let Some(lock) = files.lock().map_err(|error| folder_error(&error))? {
            return Ok(lock);
        }
        if Instant::now() >= end {
            let what = format!(
                "another worker has worked on {} for more than {} s; try later",
                task.name,
                LOCK_MAX.as_secs()
            );
            return Err(UsageError::of(UsageErrorKind::Busy, what));
        }
        tokio::select! {
            biased;
            interrupt = world.signals.first() => return Err(UsageError::interrupted(interrupt)),
            () = sleep(LOCK_PAUSE) => {}
        }
    }
}

/// Makes one attempt, whose beginning and end are recorded.
async fn attempt(
    plan: &BatchPlan,
    task: &PlannedTask,
    files: &TaskFolder,
    world: ProcessContext,
) -> Result<u8, UsageError> {
    let record = |exit_code| {
        let at = Timestamp::now().to_string();
        files.record(&AttemptRecord { at, pid: std::process::id(), exit_code })
    };
    record(None).map_err(|error| folder_error(&error))?;
    let watchdog = world.exit_watchdog.clone();
    let wanted = requested_output(files);
    watchdog.replace_writer(Box::new(move |why| {
        report_usage_error(&not_started_error(why), &wanted);
    }));
    let code = match Box::pin(run_task(plan, task, files, world)).await {
        Ok(code) => code,
        // The worker that has the session writes the result.
        Err(error) if error.cause == UsageErrorKind::Busy => return Err(error),
        Err(error) => {
            let code = error.verdict().exit_code();
            if !watchdog.claim(code) {
                return Err(error);
            }
            report_usage_error(&error, &requested_output(files))
        }
    };
    // It is a record for people: the result was written.
    let _ = record(Some(code));
    Ok(code)
}

/// Returns the output for an error before the run: that of the run's result.
fn requested_output(files: &TaskFolder) -> RequestedOutput {
    RequestedOutput {
        format: OutputFormat::Json,
        result_file: Some(files.result()),
        ..RequestedOutput::default()
    }
}

async fn run_task(
    plan: &BatchPlan,
    task: &PlannedTask,
    files: &TaskFolder,
    mut world: ProcessContext,
) -> Result<u8, UsageError> {
    let mut run = args::run_flags(&run_words(plan, task))?;
    run.prompt = Some(task.prompt.clone());
    run.session.resume_or_start = Some(files.session_id(task.session_id).to_string());
    run.output.output_format = Some(OutputFormat::Json);
    run.output.result_file = Some(files.result());
    run.output.heartbeat_file = Some(files.heartbeat());
    run.output.no_stdin = true;
    let folder = prepare_folder((plan, task), files, (&run, &world)).await?;
    world.set_folder(folder);
    env::set_current_dir(&world.cwd)
        .map_err(|error| UsageError::new(format!("{}: {error}; create it", world.cwd.display())))?;
    if let Some(name) = run.compatibility.worktree.as_mut().filter(|name| name.is_empty()) {
        // Not a new name: each attempt continues in the same worktree.
        name.clone_from(&task.name);
    }
    let world = enter_worktree(&run, world).await?;
    let check: ExitCheck<'_> = &|_, _| Vec::new();
    run::run(&run, world, check).await
}

/// Returns the working folder of a task, which is made if it is the task's own.
async fn prepare_folder(
    (plan, task): (&BatchPlan, &PlannedTask),
    files: &TaskFolder,
    (run, world): (&RunArgs, &ProcessContext),
) -> Result<PathBuf, UsageError> {
    let work = files.work();
    if let Some(source) = &task.git {
        let cloning =
            check_out(&source.repository, source.reference.as_deref(), &work, &world.variables);
        let name = format!("cloning {}", source.repository);
        wait_for_git(&name, (run, world), cloning).await?;
        return Ok(work);
    }
    if let Some(cwd) = task.cwd.as_ref().or(plan.cwd.as_ref()) {
        return Ok(cwd.clone());
    }
    std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    Ok(work)
}
