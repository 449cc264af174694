//! Clones the repository of a task into its folder, once.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::config::environment::Variables;
use crate::process::{Job, ProgramTerms, RunningJob, Supervisor, find_program};
use crate::tools::hook_environment;

use super::plan::GitSource;

/// How much of what git says is reported, in characters from its end.
const REPORT_MAX: usize = 600;

/// What git is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutStep {
    Clone,
    Checkout,
}

impl fmt::Display for CheckoutStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clone => "clone",
            Self::Checkout => "checkout",
        })
    }
}

/// Why a repository could not be cloned.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    #[error("git was not found on PATH; install it on the machines of the batch")]
    NoGit,
    #[error("git could not be run: {0}")]
    NotStarted(io::Error),
    #[error("git {step} of {repository} failed: {output}")]
    Failed { step: CheckoutStep, repository: String, output: String },
    #[error("{path}: {cause}")]
    Folder { path: String, cause: io::Error },
}

/// Clones into `work`, unless an earlier attempt did. It is cloned beside and renamed, so that an
/// interrupted clone is never worked on. Dropping the future ends git and what it started.
///
/// # Errors
/// Git is missing, or could not clone or find the reference.
pub async fn check_out(
    source: &GitSource,
    work: &Path,
    variables: &Variables,
) -> Result<(), CheckoutError> {
    if work.is_dir() {
        return Ok(());
    }
    let beside = work.with_extension("new");
    let folder = |cause| CheckoutError::Folder { path: beside.display().to_string(), cause };
    if beside.exists() {
        fs::remove_dir_all(&beside).map_err(folder)?;
    }
    let path = variables.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default();
    let git = find_program(&["git"], &path, work).ok_or(CheckoutError::NoGit)?;
    let supervisor = Supervisor::with_own_binary();
    let repository = OsString::from(&source.repository);
    let clone =
        vec!["clone".into(), "--quiet".into(), "--".into(), repository, beside.clone().into()];
    run_git(&supervisor, &git, CheckoutStep::Clone, clone, source, variables).await?;
    if let Some(reference) = &source.reference {
        let checkout: Vec<OsString> = vec![
            "-C".into(),
            beside.clone().into(),
            "checkout".into(),
            "--quiet".into(),
            reference.into(),
            "--".into(),
        ];
        run_git(&supervisor, &git, CheckoutStep::Checkout, checkout, source, variables).await?;
    }
    fs::rename(&beside, work).map_err(folder)
}

async fn run_git(
    supervisor: &Supervisor,
    git: &Path,
    step: CheckoutStep,
    arguments: Vec<OsString>,
    source: &GitSource,
    variables: &Variables,
) -> Result<(), CheckoutError> {
    let own = (OsString::from("GIT_TERMINAL_PROMPT"), OsString::from("0"));
    // Git runs hooks and credential helpers, which never see the model's credentials (SPEC 23).
    let environment: Vec<_> =
        variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let environment = hook_environment(&environment, &[], "").into_iter();
    let job = Job {
        program: git.to_owned(),
        arguments,
        cwd: "/".into(),
        environment: environment.chain([own]).collect(),
        input: false,
        memory: None,
        landlock: None,
        terms: ProgramTerms::default(),
    };
    let mut running = supervisor.start(&job).await.map_err(CheckoutError::NotStarted)?;
    let output = read_output(&mut running);
    let exit = running.exit();
    let status = exit.await;
    running.end_leftovers().await;
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let output = output.await.unwrap_or_default();
    let letters: Vec<char> = output.trim().chars().collect();
    let output = letters[letters.len().saturating_sub(REPORT_MAX)..].iter().collect();
    Err(CheckoutError::Failed { step, repository: source.repository.clone(), output })
}

/// Reads what a program says on both streams.
fn read_output(running: &mut RunningJob) -> tokio::task::JoinHandle<String> {
    let (stdout, stderr) = (running.stdout.take(), running.stderr.take());
    tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        // Git says little on standard output with --quiet, less than a pipe holds.
        let _ = stderr.map(|mut pipe| pipe.read_to_end(&mut said));
        let _ = stdout.map(|mut pipe| pipe.read_to_end(&mut said));
        String::from_utf8_lossy(&said).into_owned()
    })
}
