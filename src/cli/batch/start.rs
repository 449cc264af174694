//! Starts a batch, or resumes one.

use std::num::NonZero;
use std::thread;

use crate::batch::{
    BatchFolder, BatchFolderError, BatchStop, LocalBatch, ScheduleLimits, TaskFolder, TaskOutcome,
    TaskState, is_batch_id, open_tasks, read_state,
};
use crate::cli::args::{BatchEngine, StartBatchArgs};
use crate::cli::run::{ProcessContext, prepare_process};
use crate::cli::stdout::print_report;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::config::environment::config_dir;
use crate::journal::{SessionFolder, SessionId};
use crate::process::FileLock;
use crate::recovery::StopReason;
use crate::types::exit_code;

use super::open::batches;
use super::prepare::{PreparedBatch, prepare};
use super::progress::{BatchProgress, print_message};
use super::report::BatchOverview;
use super::submit;
use super::task_check::{check_flags, check_folders, check_settings, warn_of_exposed_folder};

/// Starts the open tasks of a batch.
///
/// # Errors
/// A mistake before anything was started.
pub(super) async fn start(
    args: &StartBatchArgs,
    context: ProcessContext,
) -> Result<u8, UsageError> {
    prepare_process(&context.variables);
    check_engine_flags(args)?;
    // Before anything is changed.
    let engine = submit::find_engine(args, &context)?;
    let batch = prepare(args, &context).await?;
    let PreparedBatch { folder, plan, source, .. } = &batch;
    check_flags(plan, source)?;
    // Commands have no access to the folder of outlast's own files.
    if !folder.path().starts_with(batches(&context)) {
        warn_of_exposed_folder(folder, plan, args.engine);
    }
    let lock = lock(folder).await?;
    let is_printed = args.render || args.engine == BatchEngine::Matrix;
    if !is_printed && let Some(code) = submit::already_submitted(&batch).await? {
        return Ok(code);
    }
    let has_failed = |index| read_state(&folder.task(index)).0 == TaskState::Failed;
    let is_retried = |index: &usize| args.retry_failed && has_failed(*index);
    let retried: Vec<usize> = (0..plan.tasks.len()).filter(is_retried).collect();
    let mut open = open_tasks(folder, plan);
    open.extend(&retried);
    open.sort_unstable();
    check_folders(folder, plan, source, &open, args.engine)?;
    if args.engine == BatchEngine::Local {
        check_settings(plan, source, &open, (&context.variables, &context.cwd))?;
    }
    batch.report_earlier_batch();
    write_plan(&batch)?;
    for index in retried {
        retry(&folder.task(index))?;
    }
    match args.engine {
        BatchEngine::Local => run_here(&batch, lock).await,
        BatchEngine::Slurm => submit::slurm(&batch, &open, engine.as_deref()).await,
        BatchEngine::Kubernetes => submit::kubernetes(&batch, engine.as_deref()).await,
        BatchEngine::Matrix => submit::print_matrix(plan, &open),
    }
}

/// Prepares a failed task to be run again. A session that ended in a refusal by the model is
/// finished, so that the task needs a new one.
fn retry(files: &TaskFolder) -> Result<(), BatchFolderError> {
    let outcome = TaskOutcome::read(files);
    if outcome.is_some_and(|it| it.reason() == Some(StopReason::Refusal.info().name)) {
        files.begin_session()?;
    }
    files.remove_result()
}

/// Writes the plan. With `--render`, which submits nothing, the engine of an earlier plan is kept.
fn write_plan(batch: &PreparedBatch<'_>) -> Result<(), BatchFolderError> {
    let mut plan = batch.plan.clone();
    if batch.args.render
        && let Ok(earlier) = batch.folder.read_plan()
    {
        plan.engine.clone_from(&earlier.engine);
        if plan == earlier {
            return Ok(());
        }
    }
    batch.folder.write_plan(&plan)
}

/// Rejects flags that do not apply to the engine.
fn check_engine_flags(args: &StartBatchArgs) -> Result<(), UsageError> {
    let is_cluster = args.engine == BatchEngine::Kubernetes;
    let given = [
        ("--image", args.image.is_some() && !is_cluster, "is for --engine kubernetes"),
        ("--claim", args.claim.is_some() && !is_cluster, "is for --engine kubernetes"),
        (
            "--max-duration",
            args.max_duration.is_some()
                && matches!(args.engine, BatchEngine::Slurm | BatchEngine::Matrix),
            "is not known to this engine; use limits.max_duration of the tasks, or a limit of the \
             engine's own, such as --submit-arg=--time=60",
        ),
        (
            "--submit-arg",
            !args.submit_arg.is_empty()
                && matches!(args.engine, BatchEngine::Local | BatchEngine::Matrix),
            "is for --engine slurm and kubernetes",
        ),
    ];
    if args.render && args.engine == BatchEngine::Local {
        let why = "--render needs another engine than local; name one with --engine";
        return Err(UsageError::new(why));
    }
    if args.render && args.retry_failed {
        return Err(UsageError::new(
            "--retry-failed removes results, and --render changes nothing; leave one of them out",
        ));
    }
    if let Some((flag, _, why)) = given.into_iter().find(|(_, is_wrong, _)| *is_wrong) {
        return Err(UsageError::new(format!("{flag} {why}")));
    }
    if is_cluster && args.image.is_none() {
        return Err(UsageError::new(
            "--image is missing; name an image in which outlast is installed",
        ));
    }
    if let Some(id) = args.id.as_deref().filter(|id| !is_batch_id(id)) {
        return Err(UsageError::new(format!(
            "--id {id:?} is not a valid id of a batch; use 1 to 48 lower-case letters, digits and \
             dashes, with a letter or a digit at both ends"
        )));
    }
    Ok(())
}

async fn lock(folder: &BatchFolder) -> Result<FileLock, UsageError> {
    folder.lock().await?.map_err(|holder| {
        let what = format!(
            "{holder} starts the tasks of {}; wait for it, or end it",
            folder.path().display()
        );
        UsageError::of(UsageErrorKind::Busy, what)
    })
}

/// Says that the tasks have sessions of an earlier start with another folder: what those have
/// finished is not done again. The first task stands for all.
fn report_earlier_sessions(batch: &PreparedBatch<'_>) {
    let PreparedBatch { context, folder, plan, .. } = batch;
    let Some(task) = plan.tasks.first() else { return };
    let sessions =
        SessionFolder::new(&context.cwd.join(config_dir(&context.variables)), &context.cwd);
    let has_session =
        || SessionId::parse(&task.session_id.to_string()).is_some_and(|id| sessions.has(&id));
    if read_state(&folder.task(task.index)).0 == TaskState::Missing && has_session() {
        print_message(&format!(
            "batch {} was started before, with another folder: its sessions go on, and what they have \
             finished is not done again; to run anew, give another --id",
            plan.batch
        ));
    }
}

/// Runs the batch as child processes, and prints the summary.
async fn run_here(batch: &PreparedBatch<'_>, lock: FileLock) -> Result<u8, UsageError> {
    let PreparedBatch { args, context, folder, plan, .. } = batch;
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = args.jobs.unwrap_or(u32::try_from(processors).unwrap_or(u32::MAX));
    let limits = ScheduleLimits { jobs, attempts: args.attempts, pause: args.retry_after };
    let parallel = usize::try_from(jobs).unwrap_or(usize::MAX);
    let mut progress = BatchProgress::new(folder, plan, parallel, &context.variables);
    report_earlier_sessions(batch);
    progress.begin();
    let local = LocalBatch { folder, plan, limits, max_duration: args.max_duration };
    let end = local.run(&mut progress, context.signals.first()).await;
    progress.finish();
    let overview = BatchOverview::of_files(folder, plan);
    let code = match end.stop {
        Some(BatchStop::Interrupted(interrupt)) => interrupt.exit_code(),
        Some(BatchStop::Late) if overview.summary.open() > 0 => exit_code::DEADLINE,
        Some(BatchStop::Late) | None => overview.summary.exit_code(),
    };
    drop(lock);
    let text = if args.json { format!("{}\n", overview.object(code)) } else { overview.text() };
    print_report(&text)?;
    Ok(code)
}
