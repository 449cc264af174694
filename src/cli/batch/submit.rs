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

use super::engine_program::{EngineJobState, find_engine_program, job_state, run_program};
use super::prepare::PreparedBatch;
use super::progress::print_message;
use super::report::BatchOverview;

/// Flags of kubectl that select the cluster and the namespace.
const TARGET_FLAGS: [&str; 7] =
    ["-n", "--namespace", "--context", "--cluster", "--kubeconfig", "-s", "--server"];

/// Time limit of the engine's program for accepting a batch.
const SUBMIT_MAX: Duration = Duration::from_mins(2);

/// Finds the program that accepts the batch. `None`: the batch is not handed over.
///
/// # Errors
/// It is not installed.
pub(super) fn find_engine(
    args: &StartBatchArgs,
    context: &ProcessContext,
) -> Result<Option<PathBuf>, UsageError> {
    let name = match args.engine {
        BatchEngine::Slurm => "sbatch",
        BatchEngine::Kubernetes => "kubectl",
        BatchEngine::Local | BatchEngine::Matrix => return Ok(None),
    };
    if args.render {
        return Ok(None);
    }
    find_engine_program(name, context).map(Some).ok_or_else(|| {
        UsageError::new(format!(
            "{name} was not found on PATH; install it, or print its input with --render"
        ))
    })
}

/// Renders the array script, and hands it to `engine`.
pub(super) async fn slurm(
    batch: &PreparedBatch<'_>,
    open: &[usize],
    engine: Option<&Path>,
) -> Result<u8, UsageError> {
    let PreparedBatch { args, folder, plan, .. } = batch;
    if open.is_empty() {
        let overview = BatchOverview::of_files(folder, plan);
        return print_overview(args, &overview, "every task has a result.\n");
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
    let engine_output = hand_over(engine, batch, &[file.into_os_string()]).await?;
    let submission = Submission::of_sbatch(&engine_output, open);
    report_submission(batch, &engine_output, submission)
}

/// Renders the manifest, and hands it to `engine`.
pub(super) async fn kubernetes(
    batch: &PreparedBatch<'_>,
    engine: Option<&Path>,
) -> Result<u8, UsageError> {
    let PreparedBatch { args, folder, plan, .. } = batch;
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
    let documents = job_manifest(plan, &options)?;
    let manifest = documents.iter().map(render_yaml).collect::<Vec<_>>().join("---\n");
    let Some(engine) = engine else {
        print_report(&manifest)?;
        return Ok(0);
    };
    let file = write(folder, "job.yaml", &manifest)?;
    let words = ["apply".into(), "--filename".into(), file.into_os_string()];
    let engine_output = hand_over(engine, batch, &words).await?;
    let submission = (!is_dry_run(&args.submit_arg)).then(|| {
        let tasks: Vec<usize> = (0..plan.tasks.len()).collect();
        let target = target_words(&args.submit_arg);
        Submission::new(ClusterEngine::Kubernetes, plan.batch.clone(), target, &tasks)
    });
    report_submission(batch, &engine_output, submission)
}

/// Returns true if these words for kubectl request a dry run.
fn is_dry_run(words: &[String]) -> bool {
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

/// Reports a batch that an engine already has, and returns the exit code. `None`: no engine has it.
///
/// # Errors
/// It is unknown whether the engine has the batch, or its job must be deleted first.
pub(super) async fn already_submitted(batch: &PreparedBatch<'_>) -> Result<Option<u8>, UsageError> {
    let PreparedBatch { args, context, folder, plan, .. } = batch;
    let Some(submission) = folder.submission() else { return Ok(None) };
    let state = job_state(&submission, context).await?;
    let (id, job) = (&plan.batch, submission.job.clone());
    let (look_up, removal) =
        (quoted_command(submission.look_up()), quoted_command(submission.removal()));
    match &state {
        EngineJobState::Gone => {
            folder.remove_submission()?;
            Ok(None)
        }
        EngineJobState::Ended => Err(UsageError::new(format!(
            "job {job} of batch {id} has ended, and its results are on its volume; to run what is \
             open, delete the job ({removal}) and give the same command again"
        ))),
        EngineJobState::Unknown(why) => Err(UsageError::of(
            UsageErrorKind::Temporary,
            format!(
                "batch {id} was submitted as job {job}, and whether that is queued or running is \
                 not known ({why}); look with {look_up}, and try later or remove {}",
                folder.submission_path().display()
            ),
        )),
        EngineJobState::Active => {
            let overview = BatchOverview::of_files(folder, plan).with_job(submission, state);
            let text = format!(
                "batch {id} is submitted already, as job {job}; {look_up} shows it.\nTo submit it \
                 anew, give the same command after: {removal}\n"
            );
            print_overview(args, &overview, &text).map(Some)
        }
    }
}

/// Prints the matrix of the open tasks.
pub(super) fn print_matrix(plan: &BatchPlan, open: &[usize]) -> Result<u8, UsageError> {
    print_report(&format!("{}\n", matrix(plan, open)?))?;
    Ok(0)
}

impl From<RenderError> for UsageError {
    fn from(error: RenderError) -> Self {
        Self::new(error.to_string())
    }
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
    batch: &PreparedBatch<'_>,
    engine_output: &str,
    submission: Option<Submission>,
) -> Result<u8, UsageError> {
    let PreparedBatch { args, folder, plan, .. } = batch;
    let mut overview = BatchOverview::of_files(folder, plan);
    if let Some(submission) = submission {
        folder.record_submission(&submission).inspect_err(|_| {
            // The output names the job, which no file does.
            print_message(engine_output.trim());
        })?;
        overview = overview.with_job(submission, EngineJobState::Active);
    }
    print_overview(args, &overview, engine_output)
}

/// Prints a summary as JSON if that is requested, or else `text` and the command that shows more.
fn print_overview(
    args: &StartBatchArgs,
    overview: &BatchOverview<'_>,
    text: &str,
) -> Result<u8, UsageError> {
    let report = if args.json {
        overview.object(exit_code::SUCCESS).to_string()
    } else {
        format!("{text}{} shows how far it is.", overview.status_command())
    };
    print_report(&(report + "\n"))?;
    Ok(exit_code::SUCCESS)
}

/// Hands a batch to the engine's program, and returns what it prints.
///
/// # Errors
/// The engine refused it, cannot be reached, or could not be run.
async fn hand_over(
    program: &Path,
    batch: &PreparedBatch<'_>,
    words: &[OsString],
) -> Result<String, UsageError> {
    let options = batch.args.submit_arg.iter().map(OsString::from);
    let all: Vec<OsString> = options.chain(words.iter().cloned()).collect();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let output = run_program(program, &all, batch.context, SUBMIT_MAX).await;
    let output = output.map_err(|error| without_answer(error, &name))?;
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

/// Returns the error for a submission without an answer. A program that was stopped may have
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
        assert!(is_dry_run(&words("-n a --dry-run=server")));
        assert!(!is_dry_run(&words("-n a --dry-run=none")));
    }
}
