//! Renders a batch for an engine, and hands it over.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::batch::{
    BatchFolder, BatchPlan, ClusterEngine, ClusterOptions, RenderError, Submission, array_script,
    job_manifest, matrix, render_yaml,
};
use crate::cli::args::{BatchEngine, StartBatchArgs};
use crate::cli::run::ProcessContext;
use crate::cli::stdout::print_report;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::text::quoted_command;
use crate::types::exit_code;

use super::engine_program::{JobState, find_engine_program, job_state, run_program};
use super::open::folder_error;
use super::progress::print_message;
use super::report::BatchOverview;

/// Flags of kubectl that select the cluster and the namespace.
const TARGET_FLAGS: [&str; 7] =
    ["-n", "--namespace", "--context", "--cluster", "--kubeconfig", "-s", "--server"];

/// Time limit of the engine's program for accepting a batch.
const SUBMIT_MAX: Duration = Duration::from_mins(2);

/// Finds the program that takes the batch. `None`: it is not handed over.
///
/// # Errors
/// It is not installed.
pub(super) fn find_engine(
    args: &StartBatchArgs,
    world: &ProcessContext,
) -> Result<Option<PathBuf>, UsageError> {
    let name = match args.engine {
        BatchEngine::Slurm => "sbatch",
        BatchEngine::Kubernetes => "kubectl",
        BatchEngine::Local | BatchEngine::Matrix => return Ok(None),
    };
    if args.render {
        return Ok(None);
    }
    find_engine_program(name, world).map(Some).ok_or_else(|| {
        UsageError::new(format!(
            "{name} was not found on PATH; install it, or print what it takes with --render"
        ))
    })
}

/// Renders the array script, and hands it to `engine`.
pub(super) async fn slurm(
    args: &StartBatchArgs,
    world: &ProcessContext,
    folder: &BatchFolder,
    plan: &BatchPlan,
    open: &[usize],
    engine: Option<&Path>,
) -> Result<u8, UsageError> {
    if open.is_empty() {
        return nothing_open(args, folder, plan);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("--program is needed")?,
    };
    let script = array_script(plan, folder, open, &program, args.jobs, args.attempts);
    let Some(engine) = engine else {
        // The log of an element cannot be opened without its folder.
        create_engine_folder(folder)?;
        print_report(&script)?;
        return Ok(0);
    };
    let file = write(folder, "job.sh", &script)?;
    let engine_output =
        hand_over(engine, &args.submit_arg, &[file.into_os_string()], world).await?;
    let submission = Submission::of_sbatch(&engine_output, open);
    report_submission(args, folder, plan, &engine_output, submission)
}

/// Renders the manifest, and hands it to `engine`.
pub(super) async fn kubernetes(
    args: &StartBatchArgs,
    world: &ProcessContext,
    folder: &BatchFolder,
    plan: &BatchPlan,
    engine: Option<&Path>,
) -> Result<u8, UsageError> {
    let program = args.program.as_ref().map(|program| program.display().to_string());
    let options = ClusterOptions {
        image: args.image.clone().unwrap_or_default(),
        claim: args.claim.clone(),
        secret: args.secret.clone(),
        program: program.unwrap_or_else(|| "outlast".to_owned()),
        jobs: args.jobs,
        attempts: args.attempts,
        max_seconds: args.max_duration.map(|limit| limit.as_secs().max(1)),
    };
    let documents = job_manifest(plan, &options).map_err(|error| render_error(&error))?;
    let documents: Vec<String> = documents.iter().map(render_yaml).collect();
    let manifest = documents.join("---\n");
    let Some(engine) = engine else {
        print_report(&manifest)?;
        return Ok(0);
    };
    let file = write(folder, "job.yaml", &manifest)?;
    let words = ["apply".into(), "--filename".into(), file.into_os_string()];
    let engine_output = hand_over(engine, &args.submit_arg, &words, world).await?;
    let submission = (!is_trial(&args.submit_arg)).then(|| {
        let tasks: Vec<usize> = (0..plan.tasks.len()).collect();
        let target = target_words(&args.submit_arg);
        Submission::new(ClusterEngine::Kubernetes, plan.batch.clone(), target, &tasks)
    });
    report_submission(args, folder, plan, &engine_output, submission)
}

/// Returns true if these words for kubectl request a dry run.
fn is_trial(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with("--dry-run") && word != "--dry-run=none")
}

/// Returns the words for kubectl that name the cluster and the namespace.
fn target_words(words: &[String]) -> Vec<String> {
    let mut target = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((&**word, None), |(f, v)| (f, Some(v)));
        if TARGET_FLAGS.contains(&flag) {
            target.push(word.clone());
            if value.is_none() {
                target.extend(words.next().cloned());
            }
        }
    }
    target
}

/// Answers the start of a batch that an engine has already. `None`: it has not.
///
/// # Errors
/// It is unknown whether the engine has the batch, or its job must be deleted first.
pub(super) async fn already_submitted(
    args: &StartBatchArgs,
    world: &ProcessContext,
    folder: &BatchFolder,
    plan: &BatchPlan,
) -> Result<Option<u8>, UsageError> {
    let Some(submission) = folder.submission() else { return Ok(None) };
    let (batch, job, state) =
        (&plan.batch, submission.job.clone(), job_state(&submission, world).await?);
    let (look_up, removal) =
        (quoted_command(submission.look_up()), quoted_command(submission.removal()));
    match &state {
        JobState::Gone => {
            folder.remove_submission().map_err(|error| folder_error(&error))?;
            Ok(None)
        }
        JobState::Ended => Err(UsageError::new(format!(
            "job {job} of batch {batch} has ended, and its results are on its volume; to run what is \
             open, delete the job ({removal}) and give the same command again"
        ))),
        JobState::Unknown(why) => Err(UsageError::of(
            UsageErrorKind::Temporary,
            format!(
                "batch {batch} was submitted as job {job}, and whether that is queued or running is \
                 not known ({why}); look with {look_up}, and try later or remove {}",
                folder.submission_path().display()
            ),
        )),
        JobState::Active => {
            let overview = BatchOverview::of_files(folder, plan).with_job(submission, state);
            let engine_output = format!(
                "batch {batch} is submitted already, as job {job}; {look_up} shows it.\nTo submit it \
                 anew, give the same command after: {removal}\n"
            );
            print_overview(args, &overview, &engine_output)?;
            Ok(Some(exit_code::SUCCESS))
        }
    }
}

/// Prints the matrix of the open tasks.
pub(super) fn print_matrix(plan: &BatchPlan, open: &[usize]) -> Result<u8, UsageError> {
    let matrix = matrix(plan, open).map_err(|error| render_error(&error))?;
    print_report(&format!("{matrix}\n"))?;
    Ok(0)
}

fn render_error(error: &RenderError) -> UsageError {
    UsageError::new(error.to_string())
}

fn nothing_open(
    args: &StartBatchArgs,
    folder: &BatchFolder,
    plan: &BatchPlan,
) -> Result<u8, UsageError> {
    let overview = BatchOverview::of_files(folder, plan);
    print_overview(args, &overview, "every task has a result.\n")?;
    Ok(exit_code::SUCCESS)
}

fn create_engine_folder(folder: &BatchFolder) -> Result<PathBuf, UsageError> {
    let engine = folder.engine();
    fs::create_dir_all(&engine).with_context(|| format!("{} cannot be made", engine.display()))?;
    Ok(engine)
}

fn write(folder: &BatchFolder, name: &str, text: &str) -> Result<PathBuf, UsageError> {
    let file = create_engine_folder(folder)?.join(name);
    fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(file)
}

/// Records that the engine has the batch, and prints its answer.
fn report_submission(
    args: &StartBatchArgs,
    folder: &BatchFolder,
    plan: &BatchPlan,
    engine_output: &str,
    submission: Option<Submission>,
) -> Result<u8, UsageError> {
    let mut overview = BatchOverview::of_files(folder, plan);
    if let Some(submission) = submission {
        folder.record_submission(&submission).map_err(|error| {
            // It names the job, which no file does.
            print_message(engine_output.trim());
            folder_error(&error)
        })?;
        overview = overview.with_job(submission, JobState::Active);
    }
    print_overview(args, &overview, engine_output)?;
    Ok(exit_code::SUCCESS)
}

/// Prints a summary as JSON if that is requested, or else `engine_output` and how to see more.
fn print_overview(
    args: &StartBatchArgs,
    overview: &BatchOverview<'_>,
    engine_output: &str,
) -> Result<(), UsageError> {
    if args.json {
        return print_report(&format!("{}\n", overview.object(exit_code::SUCCESS)));
    }
    print_report(&format!("{engine_output}{} shows how far it is.\n", overview.status_command()))
}

/// Hands a batch to the engine's program, and returns what it prints.
///
/// # Errors
/// The engine refused it, cannot be reached, or could not be run.
async fn hand_over(
    program: &Path,
    options: &[String],
    words: &[OsString],
    world: &ProcessContext,
) -> Result<String, UsageError> {
    let all: Vec<OsString> =
        options.iter().map(OsString::from).chain(words.iter().cloned()).collect();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let output = match run_program(program, &all, world, SUBMIT_MAX).await {
        Ok(output) => output,
        Err(error) => return Err(without_answer(error, &name)),
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let (why, others) = output.error_lines();
    for line in others {
        print_message(line);
    }
    Err(if output.is_unreachable() {
        let what = format!("{name} cannot submit the batch now: {why}; start it again later");
        UsageError::of(UsageErrorKind::Temporary, what)
    } else {
        UsageError::new(format!("{name} refused the batch ({}): {why}", output.status))
    })
}

/// Returns the error of a submission without an answer. A program that was stopped may have
/// submitted the batch before.
fn without_answer(error: UsageError, name: &str) -> UsageError {
    let was_stopped =
        matches!(error.cause, UsageErrorKind::Interrupted(_) | UsageErrorKind::Temporary);
    if !was_stopped {
        return error;
    }
    let what = format!(
        "{error}; {name} was stopped, and the batch may be queued all the same: check the queue \
         before you start it again"
    );
    UsageError::of(error.cause, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_looked_up_in_the_namespace_that_it_was_submitted_to() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (given, target) in [
            ("--namespace=agents --server-side", "--namespace=agents"),
            ("-n agents --wait --context c", "-n agents --context c"),
        ] {
            assert_eq!(target_words(&words(given)), words(target), "{given}");
        }
        assert!(is_trial(&words("-n a --dry-run=server")));
        assert!(!is_trial(&words("-n a --dry-run=none")));
    }
}
