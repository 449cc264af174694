//! Plans a batch, or opens one to resume it.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use clap::ValueEnum as _;

use crate::batch::{BatchFolder, BatchPlan, BatchSummary, PlanRequest};
use crate::cli::args::{BatchEngine, StartBatchArgs};
use crate::cli::run::ProcessContext;
use crate::cli::usage::UsageError;
use crate::recovery::Money;
use crate::text::counted;

use super::open::{batches, newest_of, open, resume_command};
use super::progress::print_message;
use super::task_input::TaskSource;

/// Maximum number of lines of a task file that a message names.
const LINES_MAX: usize = 5;

/// A planned batch, none of whose tasks was started.
pub(super) struct PreparedBatch<'a> {
    pub(super) args: &'a StartBatchArgs,
    pub(super) context: &'a ProcessContext,
    pub(super) folder: BatchFolder,
    pub(super) plan: BatchPlan,
    /// The task file, for messages.
    pub(super) source: String,
    /// True if it has the id and the folder that a new batch gets.
    is_new: bool,
}

/// Returns the flags that select the engine when the batch is resumed.
fn engine_words(args: &StartBatchArgs) -> Vec<String> {
    if args.engine == BatchEngine::Local {
        return Vec::new();
    }
    let name = args.engine.to_possible_value().map(|value| value.get_name().to_owned());
    let program = args.program.as_ref().map(|program| program.display().to_string());
    let secret = (args.engine == BatchEngine::Kubernetes).then(|| args.secret.clone());
    let given = [
        ("--engine", name),
        ("--image", args.image.clone()),
        ("--claim", args.claim.clone()),
        ("--secret", secret),
        ("--program", program),
    ];
    let words = given.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    words.flatten().collect()
}

/// Reads the tasks and plans them, or opens the batch that was named in their place.
///
/// # Errors
/// A mistake in the tasks or the flags; or the folder has a batch of other tasks.
pub(super) async fn prepare<'a>(
    args: &'a StartBatchArgs,
    context: &'a ProcessContext,
) -> Result<PreparedBatch<'a>, UsageError> {
    let Some(named) = &args.tasks else {
        return Err(UsageError::new(
            "TASKS is missing; name a file with a JSON object on each line, such as {\"prompt\": \
             \"Say hello.\"}; see outlast help batch",
        ));
    };
    let input = TaskSource::named(named, &context.cwd);
    if let TaskSource::File(path) = &input
        && !path.is_file()
        && (path.is_dir() || batches(context).join(named).is_dir())
    {
        return open_planned(args, named, context);
    }
    let source = named.display().to_string();
    let tasks = input.read(&source, &args.flags, context).await?;
    let is_cluster = args.engine == BatchEngine::Kubernetes;
    let request = PlanRequest {
        id: args.id.clone(),
        source: input.path().to_owned(),
        // A container does not have the folders of this machine.
        cwd: (!is_cluster).then(|| context.cwd.clone()),
        flags: args.flags.clone(),
        max_budget: args.max_budget_usd,
        engine: engine_words(args),
        tasks,
    };
    let plan = new_plan(request.clone())?;
    let folder = match &args.dir {
        Some(dir) => context.cwd.join(dir),
        None => batches(context).join(&plan.batch),
    };
    let folder = BatchFolder::new(folder);
    let earlier = check_earlier_plan(&folder, &plan)?;
    if args.retry_failed && (earlier.is_none() || !folder.was_started()) {
        return Err(nothing_to_retry(&plan, named, context));
    }
    let is_new = earlier.is_none() && args.id.is_none() && args.dir.is_none();
    let plan = match earlier.and_then(|earlier| earlier.max_budget_usd) {
        // A budget that was given once holds until another one is given.
        Some(dollars) if args.max_budget_usd.is_none() => {
            new_plan(PlanRequest { max_budget: Money::from_dollars(dollars), ..request })?
        }
        Some(_) | None => plan,
    };
    Ok(PreparedBatch { args, context, folder, plan, source, is_new })
}

fn new_plan(request: PlanRequest) -> Result<BatchPlan, UsageError> {
    let plan = BatchPlan::new(request);
    plan.map_err(|error| UsageError::new(format!("--max-budget-usd: {error}; raise it")))
}

/// Opens a batch by its folder, to resume it.
fn open_planned<'a>(
    args: &'a StartBatchArgs,
    named: &Path,
    context: &'a ProcessContext,
) -> Result<PreparedBatch<'a>, UsageError> {
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
    let (folder, mut plan) = open(named, context)?;
    plan.engine = engine_words(args);
    let source = plan.source.display().to_string();
    Ok(PreparedBatch { args, context, folder, plan, source, is_new: false })
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
    let earlier = folder.read_plan()?;
    let difference = if earlier.batch == plan.batch {
        difference(plan, &earlier)
    } else {
        Some(format!("its id is {}", earlier.batch))
    };
    match difference {
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
        let names = Vec::from_iter(changed_flags(&plan.flags, &earlier.flags)).join(", ");
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
    let (now, before) = (plan.tasks.len(), earlier.tasks.len());
    if now != before {
        found.push(format!("it had {}, and there are {now}", counted(before, "task")));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// Returns the names of the flags that only one of two command lines has, or that differ in their
/// values. The values themselves may be secret.
fn changed_flags<'a>(flags: &'a [String], earlier: &'a [String]) -> BTreeSet<&'a str> {
    // Each flag with the words after it.
    let groups = |words: &'a [String]| -> HashSet<&'a [String]> {
        words.chunk_by(|_, next| flag_name(next).is_none()).collect()
    };
    let (flags, earlier) = (groups(flags), groups(earlier));
    let changed = flags.symmetric_difference(&earlier);
    changed.filter_map(|group| flag_name(group.first()?)).collect()
}

/// Returns the name of a flag, with its dashes. `None`: the word is a value.
fn flag_name(word: &str) -> Option<&str> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let bare = name.strip_prefix("--").filter(|bare| bare.len() > 1);
    let bare = bare.or_else(|| name.strip_prefix('-').filter(|bare| bare.len() == 1))?;
    bare.bytes().all(|it| it.is_ascii_alphabetic() || it == b'-').then_some(name)
}

impl PreparedBatch<'_> {
    /// Reports that this is a new batch although one was started from the same task file, and why:
    /// a user who wants to resume that one would pay for its tasks again.
    pub(super) fn report_earlier_batch(&self) {
        if !self.is_new {
            return;
        }
        let Some((folder, earlier)) = started_before(&self.plan, self.context) else { return };
        let Some(what) = difference(&self.plan, &earlier) else { return };
        let summary = BatchSummary::gather(&folder, &earlier);
        let with_result = summary.tasks.len() - summary.open();
        print_message(&format!(
            "this is a new batch, {}: batch {} of the same file differs ({what}) and has \
             {with_result} of {}; to go on with that one: {}",
            self.plan.batch,
            earlier.batch,
            counted(earlier.tasks.len(), "result"),
            resume_command(&folder, &earlier)
        ));
    }
}

/// Returns the last batch that was started from the task file of a plan.
fn started_before(plan: &BatchPlan, context: &ProcessContext) -> Option<(BatchFolder, BatchPlan)> {
    newest_of(&plan.source, context).filter(|(folder, _)| folder.was_started())
}

/// Returns the error for `--retry-failed` if nothing was started: all tasks would be run, and paid
/// for.
fn nothing_to_retry(plan: &BatchPlan, named: &Path, context: &ProcessContext) -> UsageError {
    let named = named.display();
    let Some((folder, earlier)) = started_before(plan, context) else {
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
