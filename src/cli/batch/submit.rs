//! Renders a batch for an engine, and hands it over.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::batch::{
    BatchFolder, BatchPlan, ClusterOptions, RenderError, array_script, job_manifest, matrix,
    quoted_command, render_yaml,
};
use crate::cli::args::{BatchEngine, StartBatchArgs};
use crate::cli::run::ProcessContext;
use crate::cli::stdout::print_report;
use crate::cli::usage::{UsageError, UsageErrorKind};
use crate::process::find_program;

/// How long the engine's program may take to accept a batch.
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
    let path = world.variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
    find_program(&[name], &path, &world.cwd).map(Some).ok_or_else(|| {
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
        return nothing_open(folder);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(|error| UsageError::new(format!("--program is needed: {error}")))?,
    };
    let script = array_script(plan, folder, open, &program, args.jobs, args.attempts);
    let Some(engine) = engine else {
        // The log of an element cannot be opened without its folder.
        create_engine_folder(folder)?;
        print_report(&script)?;
        return Ok(0);
    };
    let file = write(folder, "job.sh", &script)?;
    submit(engine, &args.submit_arg, &[file.into_os_string()], world, folder).await
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
    submit(engine, &args.submit_arg, &words, world, folder).await
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

fn nothing_open(folder: &BatchFolder) -> Result<u8, UsageError> {
    print_report(&format!(
        "every task has a result; see outlast batch status {}\n",
        folder.path().display()
    ))?;
    Ok(0)
}

fn create_engine_folder(folder: &BatchFolder) -> Result<PathBuf, UsageError> {
    let engine = folder.engine();
    fs::create_dir_all(&engine).map_err(|error| {
        UsageError::new(format!("{} cannot be made: {error}", engine.display()))
    })?;
    Ok(engine)
}

fn write(folder: &BatchFolder, name: &str, text: &str) -> Result<PathBuf, UsageError> {
    let file = create_engine_folder(folder)?.join(name);
    fs::write(&file, text).map_err(|error| {
        UsageError::new(format!("{} cannot be written: {error}", file.display()))
    })?;
    Ok(file)
}

/// Calls the engine's program, and prints what it says.
async fn submit(
    engine: &Path,
    options: &[String],
    words: &[OsString],
    world: &ProcessContext,
    folder: &BatchFolder,
) -> Result<u8, UsageError> {
    let said = call(engine, options, words, world).await?;
    let place = folder.path().display().to_string();
    let status = quoted_command(["outlast", "batch", "status", &place]);
    print_report(&format!("{said}{status} shows how far it is.\n"))?;
    Ok(0)
}

async fn call(
    program: &Path,
    options: &[String],
    words: &[OsString],
    world: &ProcessContext,
) -> Result<String, UsageError> {
    let mut command = Command::new(program);
    command
        .args(options)
        .args(words)
        .current_dir(&world.cwd)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |what: String| UsageError::of(UsageErrorKind::Internal, format!("{name} {what}"));
    let ended = tokio::select! {
        biased;
        interrupt = world.signals.first() => return Err(UsageError::interrupted(interrupt)),
        ended = tokio::time::timeout(SUBMIT_MAX, command.output()) => ended,
    };
    let output = match ended {
        Err(_) => return Err(failed(format!("did not end within {} s", SUBMIT_MAX.as_secs()))),
        Ok(Err(error)) => return Err(failed(format!("could not be run: {error}"))),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(failed(format!("refused the batch ({}): {why}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
