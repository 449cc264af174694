//! Checks the tasks of a batch before any of them is started.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::batch::{BatchFolder, BatchPlan, PlannedTask};
use crate::checkout::{is_checked_out, is_repository, local_path};
use crate::cli::args::{self, BatchEngine, RunArgs};
use crate::cli::checkouts::worktree_name;
use crate::cli::chosen_session;
use crate::cli::settings;
use crate::cli::usage::UsageError;
use crate::config::environment::Variables;
use crate::journal::Terms;

use super::progress::print_message;

/// Maximum number of different sets of flags for which the settings are read before the start.
const SETTINGS_READ_MAX: usize = 20;

/// Returns the command line that runs a task, without the flags that the worker adds.
pub(super) fn run_words(plan: &BatchPlan, task: &PlannedTask) -> Vec<String> {
    let mut words = vec!["run".to_owned()];
    words.extend(plan.flags.iter().cloned());
    words.extend(task.flags.iter().cloned());
    let limits = [
        ("--max-turns", task.limits.max_turns.map(|turns| turns.to_string())),
        ("--max-budget-usd", task.limits.max_budget_usd.clone()),
        ("--max-duration", task.limits.max_duration.clone()),
    ];
    for (flag, value) in limits {
        words.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    }
    words
}

/// Checks the flags of all tasks, those for every task first.
///
/// # Errors
/// The first mistake, with its line.
pub(super) fn check_flags(plan: &BatchPlan, place: &str) -> Result<(), UsageError> {
    check_words(&plan.flags).map_err(|why| why.with_place("after --"))?;
    let mut checked = HashSet::new();
    for task in &plan.tasks {
        if !checked.insert((&task.flags, &task.limits)) {
            continue;
        }
        check_words(&task.flags)
            .and_then(|()| args::run_flags(&run_words(plan, task)).map(drop))
            .map_err(|why| why.with_place(&format!("{place}:{}: flags", task.line)))?;
    }
    Ok(())
}

fn check_words(words: &[String]) -> Result<(), UsageError> {
    if words.is_empty() {
        return Ok(());
    }
    let run = args::run_flags(&[&["run".to_owned()], words].concat())?;
    worktree_name(&run)?;
    match owned_flag(&run) {
        None => Ok(()),
        Some((flag, remedy)) => Err(UsageError::new(format!("{flag} {remedy}"))),
    }
}

/// Returns a given flag that the batch itself sets, with the remedy.
fn owned_flag(run: &RunArgs) -> Option<(&'static str, &'static str)> {
    const OWN: &str = "is set by the batch; leave it out";
    let (session, output) = (&run.session, &run.output);
    if let Some(prompt) = &run.prompt {
        const GIVEN: &str = "was given; a prompt belongs in the key prompt";
        return Some(match prompt.as_str() {
            "" => ("an empty prompt", GIVEN),
            flag if flag.starts_with("--") => {
                ("a flag and its value", "are given as one word; give two")
            }
            _ => ("a word without a flag", GIVEN),
        });
    }
    let money = "is given by limits.max_budget_usd of a task, or by --max-budget-usd of the batch";
    let owned = [
        ("--max-budget-usd", run.flags.has("max-budget-usd"), money),
        ("--continue", session.go_on, OWN),
        ("--resume", session.resume.is_some(), OWN),
        ("--resume-or-start", session.resume_or_start.is_some(), OWN),
        ("--session-id", session.session_id.is_some(), OWN),
        ("--fork-session", session.fork_session, OWN),
        ("--no-session-persistence", session.no_session_persistence, OWN),
        ("--result-file", output.files.result.is_some(), OWN),
        ("--heartbeat-file", output.files.heartbeat.is_some(), OWN),
        ("--input-format", output.input_format.is_some(), OWN),
        ("--output-format", output.output_format.is_some(), OWN),
        ("-C", session.directory.is_some(), "is given by the key cwd of a task"),
        ("--last-message-file", output.files.last_message.is_some(), OWN),
        ("--output-fields", !output.output_fields.is_empty(), OWN),
        ("--unattended", output.unattended, "is for single runs; set unattendedRetry instead"),
        ("--stdin", output.stdin, "has no effect in a batch; use prompt_file"),
    ];
    owned.into_iter().find(|(_, is_given, _)| *is_given).map(|(flag, _, why)| (flag, why))
}

/// Checks the working folders of the tasks that are to be run. Those of finished tasks may be gone.
///
/// # Errors
/// The first one that is missing, with its line.
pub(super) fn check_folders(
    folder: &BatchFolder,
    plan: &BatchPlan,
    place: &str,
    open: &[usize],
    engine: BatchEngine,
) -> Result<(), UsageError> {
    match engine {
        BatchEngine::Local | BatchEngine::Slurm => {}
        // The tasks work on other machines.
        BatchEngine::Kubernetes | BatchEngine::Matrix => return Ok(()),
    }
    for (index, task) in open.iter().filter_map(|index| Some((*index, plan.tasks.get(*index)?))) {
        if let Some(what) = missing_folder(task, &folder.task(index).work()) {
            let what = format!("{place}:{}: {what}; create it, or name another", task.line);
            return Err(UsageError::new(what));
        }
    }
    Ok(())
}

/// Describes the folder or the repository of a task, if it does not exist. A repository is not
/// needed any more once it was cloned into `work`.
fn missing_folder(task: &PlannedTask, work: &Path) -> Option<String> {
    if let Some(cwd) = task.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Some(format!("cwd {} is not a folder", cwd.display()));
    }
    let path = local_path(&task.git.as_ref()?.repository)?;
    let is_missing = !is_repository(path) && !is_checked_out(work);
    is_missing.then(|| format!("git.repository {} is not a git repository", path.display()))
}

/// Warns if the folder of the batch is in a working folder, where commands could change the
/// results. Local workers refuse a changed plan.
pub(super) fn warn_of_exposed_folder(folder: &BatchFolder, plan: &BatchPlan, engine: BatchEngine) {
    match engine {
        BatchEngine::Local | BatchEngine::Slurm | BatchEngine::Matrix => {}
        // The tasks work in containers.
        BatchEngine::Kubernetes => return,
    }
    let real = |path: &Path| fs::canonicalize(path);
    let real_folder = folder.path().ancestors().find_map(|path| real(path).ok());
    let working_folder = |task: &PlannedTask| match &task.git {
        None => task.cwd.as_deref().or(plan.cwd.as_deref()).and_then(|cwd| real(cwd).ok()),
        Some(_) => None,
    };
    let has_batch = |cwd: &PathBuf| real_folder.as_ref().is_some_and(|it| it.starts_with(cwd));
    if let Some(cwd) = plan.tasks.iter().filter_map(working_folder).find(has_batch) {
        print_message(&format!(
            "warning: the folder of the batch {} is in the working folder {}, where commands of the \
             tasks could change it; name another with --dir",
            folder.path().display(),
            cwd.display()
        ));
    }
}

/// Reads the settings as the first workers would, so that a missing key or a wrong setting is
/// reported once, and not by every task. `variables` and `cwd` are those of this process.
///
/// # Errors
/// The first mistake, with the task that it concerns.
pub(super) fn check_settings(
    plan: &BatchPlan,
    place: &str,
    open: &[usize],
    (variables, cwd): (&Variables, &Path),
) -> Result<(), UsageError> {
    let mut checked = BTreeSet::new();
    for task in open.iter().filter_map(|index| plan.tasks.get(*index)) {
        let words = run_words(plan, task);
        let cwd = task.cwd.as_deref().or(plan.cwd.as_deref()).unwrap_or(cwd).to_owned();
        if checked.len() >= SETTINGS_READ_MAX || !checked.insert((words.clone(), cwd.clone())) {
            continue;
        }
        let mut run = args::run_flags(&words)?;
        run.prompt = Some(task.prompt.clone());
        chosen_session::check(&run)
            .and_then(|()| settings::resolve(&run, variables.clone(), cwd, &Terms::default()))
            .map_err(|why| why.with_place(&format!("{place}:{}", task.line)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{PlanRequest, read_tasks};

    #[test]
    fn a_repository_that_is_gone_is_missing_unless_its_task_has_cloned_it() {
        let root = tempfile::tempdir().expect("a scratch folder");
        let gone = root.path().join("gone");
        let git = format!(r#""git": {{"repository": "{}"}}"#, gone.display());
        let tasks = format!("{{\"prompt\": \"One.\", {git}}}\n{{\"prompt\": \"Two.\", {git}}}");
        let plan = BatchPlan::new(PlanRequest {
            id: None,
            source: "tasks".into(),
            cwd: None,
            flags: Vec::new(),
            max_budget: None,
            engine: Vec::new(),
            tasks: read_tasks("tasks", &tasks, (root.path(), None)).expect("good tasks"),
        });
        let (plan, folder) = (plan.expect("a plan"), BatchFolder::new(root.path().join("batch")));
        fs::create_dir_all(folder.task(0).work()).expect("a new folder");
        let check = |open: &[usize]| {
            let checked = check_folders(&folder, &plan, "tasks", open, BatchEngine::Local);
            checked.map_err(|why| why.to_string())
        };
        assert_eq!(check(&[0]), Ok(()));
        let why = format!(
            "tasks:2: git.repository {} is not a git repository; create it, or name another",
            gone.display()
        );
        assert_eq!(check(&[0, 1]), Err(why));
    }

    #[test]
    fn the_settings_of_a_task_are_read_in_its_own_folder_or_else_in_that_of_the_batch() {
        let root = tempfile::tempdir().expect("a scratch folder");
        let [good, bad] = ["good", "bad"].map(|name| root.path().join(name));
        fs::create_dir(&good).expect("a new folder");
        fs::create_dir_all(bad.join(".outlast")).expect("a new folder");
        let file = bad.join(".outlast/settings.json");
        fs::write(&file, r#"{"maxTurns": "ten"}"#).expect("a new file");
        let tasks = r#"{"prompt": "Own folder.", "cwd": "good"}
                       {"prompt": "Folder of the batch."}"#;
        let plan = BatchPlan::new(PlanRequest {
            id: None,
            source: "tasks".into(),
            cwd: Some(bad),
            flags: vec!["--trust-project".to_owned()],
            max_budget: None,
            engine: Vec::new(),
            tasks: read_tasks("tasks", tasks, (root.path(), None)).expect("good tasks"),
        });
        let plan = plan.expect("a plan");
        let variables = [("HOME", good.as_os_str()), ("ANTHROPIC_API_KEY", "a-key".as_ref())];
        let variables =
            variables.map(|(name, value)| (name.into(), value.into())).into_iter().collect();
        let check = |open: &[usize]| {
            let checked = check_settings(&plan, "tasks", open, (&variables, &good));
            checked.map_err(|why| why.to_string())
        };
        assert_eq!(check(&[0]), Ok(()));
        let why = format!(
            "tasks:2: {}:1:14: \"maxTurns\" takes a whole number, at least 1; found string \"ten\"",
            file.display()
        );
        assert_eq!(check(&[0, 1]), Err(why));
    }
}
