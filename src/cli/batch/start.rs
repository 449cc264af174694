//! Starts a batch, or resumes one.

use std::path::Path;
use std::thread;

use crate::batch::{
    BatchFolder, BatchFolderError, BatchPlan, BatchStop, BatchSummary, FileLock, LocalBatch,
    PlanRequest, ScheduleLimits, TaskFolder, TaskOutcome, TaskState, is_batch_id, read_state,
};
use crate::cli::args::{BatchEngine, StartBatchArgs};
use crate::cli::run::{ProcessContext, prepare_process};
use crate::cli::stdout::print_report;
use crate::cli::usage::UsageError;
use crate::recovery::{Money, StopReason};
use crate::text::counted;
use crate::types::exit_code;

use super::open::{batches, folder_error, newest_of, open, resume_command};
use super::progress::{BatchProgress, print_message};
use super::report::BatchOverview;
use super::submit;
use super::task_check::{check_flags, check_folders, check_settings, warn_of_own_folder};
use super::task_input::TaskSource;

/// A planned batch, none of whose tasks was started.
struct PreparedBatch {
    folder: BatchFolder,
    plan: BatchPlan,
    /// The file of the tasks, for messages.
    place: String,
    /// True if it has the id and the folder that a new batch gets.
    is_new: bool,
}

/// Starts the open tasks of a batch.
///
/// # Errors
/// A mistake before anything was started.
pub(super) async fn start(args: &StartBatchArgs, world: ProcessContext) -> Result<u8, UsageError> {
    prepare_process(&world.variables);
    check_engine_flags(args)?;
    // Before anything is changed.
    let engine = submit::find_engine(args, &world)?;
    let PreparedBatch { folder, plan, place, is_new } = prepare(args, &world).await?;
    check_flags(&plan, &place)?;
    // Commands have no access to the folder of outlast's own files.
    if !folder.path().starts_with(batches(&world)) {
        warn_of_own_folder(&folder, &plan, args.engine);
    }
    let lock = lock(&folder)?;
    let is_printed = args.render || args.engine == BatchEngine::Matrix;
    if !is_printed
        && let Some(code) = submit::already_submitted(args, &world, &folder, &plan).await?
    {
        return Ok(code);
    }
    let is_retried = |index: &usize| args.retry_failed && has_failed(&folder, *index);
    let retried: Vec<usize> = (0..plan.tasks.len()).filter(is_retried).collect();
    let mut open_tasks = open_tasks(&folder, &plan);
    open_tasks.extend(&retried);
    open_tasks.sort_unstable();
    check_folders(&plan, &place, &open_tasks, args.engine)?;
    if args.engine == BatchEngine::Local {
        check_settings(&plan, &place, &open_tasks, (&world.variables, &world.cwd))?;
    }
    if is_new {
        report_earlier_batch(&plan, &world);
    }
    write_plan(args, &folder, &plan)?;
    for index in retried {
        retry(&folder.task(index)).map_err(|error| folder_error(&error))?;
    }
    match args.engine {
        BatchEngine::Local => run_here(args, &world, &folder, &plan, lock).await,
        BatchEngine::Slurm => {
            submit::slurm(args, &world, &folder, &plan, &open_tasks, engine.as_deref()).await
        }
        BatchEngine::Kubernetes => {
            submit::kubernetes(args, &world, &folder, &plan, engine.as_deref()).await
        }
        BatchEngine::Matrix => submit::print_matrix(&plan, &open_tasks),
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
fn write_plan(
    args: &StartBatchArgs,
    folder: &BatchFolder,
    plan: &BatchPlan,
) -> Result<(), UsageError> {
    let earlier = args.render.then(|| folder.read_plan().ok()).flatten();
    let plan = match earlier {
        Some(earlier) => BatchPlan { engine: earlier.engine.clone(), ..plan.clone() },
        None => plan.clone(),
    };
    if args.render && folder.read_plan().is_ok_and(|earlier| earlier == plan) {
        return Ok(());
    }
    folder.write_plan(&plan).map_err(|error| folder_error(&error))
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
            "--id {id:?} is no id of a batch; use 1 to 48 lower-case letters, digits and dashes, \
             with a letter or a digit at both ends"
        )));
    }
    Ok(())
}

/// The flags that name the engine again.
fn engine_words(args: &StartBatchArgs) -> Vec<String> {
    let name = match args.engine {
        BatchEngine::Local => return Vec::new(),
        BatchEngine::Slurm => "slurm",
        BatchEngine::Kubernetes => "kubernetes",
        BatchEngine::Matrix => "matrix",
    };
    let program = args.program.as_ref().map(|program| program.display().to_string());
    let secret = (args.engine == BatchEngine::Kubernetes).then(|| args.secret.clone());
    let given = [
        ("--engine", Some(name.to_owned())),
        ("--image", args.image.clone()),
        ("--claim", args.claim.clone()),
        ("--secret", secret),
        ("--program", program),
    ];
    let words = given.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    words.flatten().collect()
}

/// Reads the tasks and plans them, or opens the batch that was named in their place.
async fn prepare(
    args: &StartBatchArgs,
    world: &ProcessContext,
) -> Result<PreparedBatch, UsageError> {
    let Some(named) = &args.tasks else {
        return Err(UsageError::new(
            "TASKS is missing; name a file with a JSON object on each line, such as {\"prompt\": \
             \"Say hello.\"}; see outlast help batch",
        ));
    };
    let source = TaskSource::named(named, &world.cwd);
    if let TaskSource::File(path) = &source
        && !path.is_file()
        && (path.is_dir() || batches(world).join(named).is_dir())
    {
        return go_on(args, named, world);
    }
    let place = named.display().to_string();
    let tasks = source.read(&place, &args.flags, world).await?;
    let is_cluster = args.engine == BatchEngine::Kubernetes;
    let request = PlanRequest {
        id: args.id.clone(),
        source: source.path().to_owned(),
        // A container does not have the folders of this machine.
        cwd: (!is_cluster).then(|| world.cwd.clone()),
        flags: args.flags.clone(),
        max_budget: args.max_budget_usd,
        engine: engine_words(args),
        tasks,
    };
    let plan = divided(request.clone())?;
    let folder = match &args.dir {
        Some(dir) => world.cwd.join(dir),
        None => batches(world).join(&plan.batch),
    };
    let folder = BatchFolder::new(folder);
    let earlier = check_earlier_plan(&folder, &plan)?;
    if args.retry_failed && (earlier.is_none() || !folder.was_started()) {
        return Err(nothing_to_retry(&plan, named, world));
    }
    let is_new = earlier.is_none() && args.id.is_none() && args.dir.is_none();
    let plan = match earlier.and_then(|earlier| earlier.max_budget_usd) {
        // A budget that was given once holds until another one is given.
        Some(dollars) if args.max_budget_usd.is_none() => {
            divided(PlanRequest { max_budget: Money::from_dollars(dollars), ..request })?
        }
        Some(_) | None => plan,
    };
    Ok(PreparedBatch { folder, plan, place, is_new })
}

fn divided(request: PlanRequest) -> Result<BatchPlan, UsageError> {
    let plan = BatchPlan::new(request);
    plan.map_err(|error| UsageError::new(format!("--max-budget-usd: {error}; raise it")))
}

/// Opens a batch to resume it.
fn go_on(
    args: &StartBatchArgs,
    named: &Path,
    world: &ProcessContext,
) -> Result<PreparedBatch, UsageError> {
    let given = [
        ("--id", args.id.is_some()),
        ("--dir", args.dir.is_some()),
        ("--max-budget-usd", args.max_budget_usd.is_some()),
        ("flags after --", !args.flags.is_empty()),
    ];
    if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(UsageError::new(format!(
            "{flag} cannot change a batch that is named by its folder; name the file of its tasks"
        )));
    }
    let (folder, mut plan) = open(named, world)?;
    plan.engine = engine_words(args);
    let place = plan.source.display().to_string();
    Ok(PreparedBatch { folder, plan, place, is_new: false })
}

/// Returns the plan of the batch that is resumed, if there is one. Rejects a plan that was made
/// from other tasks: results would be mixed up.
fn check_earlier_plan(
    folder: &BatchFolder,
    plan: &BatchPlan,
) -> Result<Option<BatchPlan>, UsageError> {
    if !folder.plan_path().exists() {
        return Ok(None);
    }
    let earlier = folder.read_plan().map_err(|error| folder_error(&error))?;
    let differs = if earlier.batch == plan.batch {
        difference(plan, &earlier)
    } else {
        Some(format!("its id is {}", earlier.batch))
    };
    match differs {
        None => Ok(Some(earlier)),
        Some(what) => Err(UsageError::new(format!(
            "{} holds a batch of other tasks ({what}); give another --id or --dir",
            folder.path().display()
        ))),
    }
}

/// Describes the differences of a plan from an earlier one. `None`: there are none.
fn difference(plan: &BatchPlan, earlier: &BatchPlan) -> Option<String> {
    let mut found = Vec::new();
    if plan.flags != earlier.flags {
        let names = changed_flags(&plan.flags, &earlier.flags).join(", ");
        let names = if names.is_empty() { names } else { format!(": {names}") };
        found.push(format!("the flags after -- differ{names}"));
    }
    if plan.cwd != earlier.cwd {
        let was = earlier.cwd.as_ref().map(|path| path.display().to_string());
        found.push(format!("it worked in {}", was.as_deref().unwrap_or("folders of its own")));
    }
    let lines: Vec<String> =
        plan.changed_tasks(earlier).map(|task| task.line.to_string()).collect();
    match lines.as_slice() {
        [] => {}
        [line] => found.push(format!("line {line} differs")),
        lines if lines.len() <= LINES_MAX => {
            found.push(format!("lines {} differ", lines.join(", ")));
        }
        lines => {
            let (shown, more) = lines.split_at(LINES_MAX);
            found.push(format!("lines {} and {} more differ", shown.join(", "), more.len()));
        }
    }
    let (is, was) = (plan.tasks.len(), earlier.tasks.len());
    if is != was {
        found.push(format!("it had {}, and there are {is}", counted(was, "task")));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// Maximum number of lines of a task file that a message names.
const LINES_MAX: usize = 5;

/// The names of the flags that only one of two command lines has, or with another value. The values
/// may hold secrets.
fn changed_flags<'a>(flags: &'a [String], earlier: &'a [String]) -> Vec<&'a str> {
    let (is, was) = (flag_groups(flags), flag_groups(earlier));
    let only = |these: &[&'a [String]], others: &[&'a [String]]| {
        let only = these.iter().filter(|group| !others.contains(group));
        only.filter_map(|group| flag_name(group.first()?)).collect::<Vec<_>>()
    };
    let mut names = only(&is, &was);
    names.extend(only(&was, &is));
    names.sort_unstable();
    names.dedup();
    names
}

/// Splits a command line into flags, each with the words after it.
fn flag_groups(words: &[String]) -> Vec<&[String]> {
    words.chunk_by(|_, next| flag_name(next).is_none()).collect()
}

/// The name of a flag, with its dashes. `None`: the word is a value.
fn flag_name(word: &str) -> Option<&str> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let bare = name.strip_prefix("--").filter(|bare| bare.len() > 1);
    let bare = bare.or_else(|| name.strip_prefix('-').filter(|bare| bare.len() == 1))?;
    bare.bytes().all(|it| it.is_ascii_alphabetic() || it == b'-').then_some(name)
}

/// Reports that a file of tasks makes a new batch although it was started before, and why: a user
/// who wanted to resume it would pay for the tasks again.
fn report_earlier_batch(plan: &BatchPlan, world: &ProcessContext) {
    let earlier = newest_of(&plan.source, world).filter(|(folder, _)| folder.was_started());
    let Some((folder, earlier)) = earlier else { return };
    let Some(what) = difference(plan, &earlier) else { return };
    let summary = BatchSummary::gather(&folder, &earlier);
    let with_result = summary.tasks.len() - summary.open();
    print_message(&format!(
        "this is a new batch, {}: batch {} of the same file differs ({what}) and has {with_result} of \
         {}; to go on with that one: {}",
        plan.batch,
        earlier.batch,
        counted(earlier.tasks.len(), "result"),
        resume_command(&folder, &earlier)
    ));
}

/// The error for `--retry-failed` if nothing was started: all tasks would be run, and paid for.
fn nothing_to_retry(plan: &BatchPlan, named: &Path, world: &ProcessContext) -> UsageError {
    let named = named.display();
    let earlier = newest_of(&plan.source, world).filter(|(folder, _)| folder.was_started());
    let Some((folder, earlier)) = earlier else {
        return UsageError::new(format!(
            "--retry-failed is for a batch that was started, and none was from {named}; leave it out, \
             or name the folder of the batch in place of TASKS"
        ));
    };
    let what = difference(plan, &earlier).map_or_else(String::new, |what| format!(" ({what})"));
    UsageError::new(format!(
        "--retry-failed is for a batch that was started; batch {} of {named} was, and this would be \
         another one{what}; to run its failed tasks again: {} --retry-failed",
        earlier.batch,
        resume_command(&folder, &earlier)
    ))
}

fn lock(folder: &BatchFolder) -> Result<FileLock, UsageError> {
    let lock = folder.lock().map_err(|error| folder_error(&error))?;
    lock.ok_or_else(|| {
        let what = format!(
            "another process starts the tasks of {}; wait for it, or end it",
            folder.path().display()
        );
        UsageError::of(crate::cli::usage::UsageErrorKind::Busy, what)
    })
}

fn has_failed(folder: &BatchFolder, index: usize) -> bool {
    read_state(&folder.task(index)).0 == TaskState::Failed
}

/// Returns the tasks that are not finished.
fn open_tasks(folder: &BatchFolder, plan: &BatchPlan) -> Vec<usize> {
    let is_open = |index: &usize| match read_state(&folder.task(*index)).0 {
        TaskState::Done | TaskState::Failed => false,
        TaskState::Running | TaskState::Unfinished | TaskState::Submitted | TaskState::Missing => {
            true
        }
    };
    (0..plan.tasks.len()).filter(is_open).collect()
}

/// Runs the batch as child processes, and prints the summary.
async fn run_here(
    args: &StartBatchArgs,
    world: &ProcessContext,
    folder: &BatchFolder,
    plan: &BatchPlan,
    lock: FileLock,
) -> Result<u8, UsageError> {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = args.jobs.unwrap_or(u32::try_from(processors).unwrap_or(u32::MAX));
    let limits = ScheduleLimits { jobs, attempts: args.attempts, pause: args.retry_after };
    let parallel = usize::try_from(jobs).unwrap_or(usize::MAX);
    let mut progress = BatchProgress::new(folder, plan, parallel, &world.variables);
    progress.begin();
    let batch = LocalBatch { folder, plan, limits, max_duration: args.max_duration };
    let end = batch.run(&mut progress, world.signals.first()).await;
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
