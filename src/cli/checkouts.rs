//! Checkouts that are made before a run begins. Waiting for git has a time limit and heartbeats,
//! and ends with an interrupt.

use std::env;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, sleep};

use crate::checkout::{AddedBranch, GitError, GitStep, Worktree, WorktreeName};
use crate::config::environment::Variables;

use super::args::RunArgs;
use super::error_report::mask_of;
use super::output::{is_stderr_stdout, print_message};
use super::run::{ProcessContext, panic_error, remove_older_results};
use super::timestamps::{format_duration, format_elapsed};
use super::usage::{UsageError, UsageErrorKind};

/// Time limit of a checkout, within that of the run.
const CHECKOUT_MAX: Duration = Duration::from_mins(15);
/// The time that the removal of an older result has after an interrupt.
const REMOVAL_MAX: Duration = Duration::from_millis(500);

/// Interval of progress messages during a checkout.
const CHECKOUT_BEAT: Duration = Duration::from_secs(30);

/// The list of files of related tools that are copied to a new worktree.
const WORKTREE_FILES: &str = ".worktreeinclude";

/// Changes to the worktree that `--worktree` names, after creating it if it does not exist.
///
/// # Errors
/// The name cannot be used, the working folder is in no repository, or git failed.
pub(super) async fn enter_worktree(
    args: &RunArgs,
    mut context: ProcessContext,
) -> Result<ProcessContext, UsageError> {
    let Some(name) = worktree_name(args)? else { return Ok(context) };
    let opening = Worktree::open(&name, &context.cwd, &context.variables);
    let opened = wait_for_checkout("adding the worktree", (args, &context), opening).await;
    let Worktree { path, added } = opened.map_err(|why| why.with_place("--worktree"))?;
    env::set_current_dir(&path).with_context(|| path.display().to_string())?;
    if !args.output.quiet && !is_stderr_stdout() {
        let branch = added.map_or_else(String::new, |AddedBranch { name, is_new, base }| {
            if is_new {
                format!(", on the new branch {name} from {base}")
            } else {
                format!(", on its earlier branch {name}")
            }
        });
        let list = path.join(WORKTREE_FILES).exists();
        let list = if list { format!("; {WORKTREE_FILES} has no effect") } else { String::new() };
        print_message(&format!("working in {}{branch}{list}", path.display()));
    }
    context.set_folder(path);
    Ok(context)
}

/// Removes the result and the answer of an earlier run, if a worktree is going to be made.
/// Restoring files (`--rewind-files`) writes neither.
///
/// # Errors
/// It cannot be removed, an interrupt, or the time limit.
pub(super) async fn remove_result_before_worktree(
    args: &RunArgs,
    context: &ProcessContext,
) -> Result<(), UsageError> {
    if args.compatibility.worktree.is_none() || args.session.rewind_files.is_some() {
        return Ok(());
    }
    let older = args.output.clone();
    let mut removal = tokio::task::spawn_blocking(move || remove_older_results(&older));
    let removed = async { (&mut removal).await.unwrap_or_else(|_panic| Err(panic_error())) };
    let removed = wait_for_checkout("removing the older result", (args, context), removed).await;
    if !removal.is_finished() {
        // See `StartupSteps::uninterrupted_step`.
        let _ = tokio::time::timeout(REMOVAL_MAX, removal).await;
    }
    removed
}

/// Returns the name of the worktree of a run, a new one if the flag has no value.
///
/// # Errors
/// The name cannot be used.
pub(super) fn worktree_name(args: &RunArgs) -> Result<Option<WorktreeName>, UsageError> {
    let Some(name) = &args.compatibility.worktree else { return Ok(None) };
    WorktreeName::new(name).map(Some).ok_or_else(|| {
        UsageError::new(format!(
            "--worktree {name:?} is not a valid name of a worktree: use letters, digits, '.', '_' and '-'"
        ))
    })
}

/// Waits for `work`, which is called `name` in messages, within the time limit of the run.
///
/// # Errors
/// An error of the work, an interrupt, or the time limit.
pub(super) async fn wait_for_checkout<T, E: Into<UsageError>>(
    name: &str,
    (args, context): (&RunArgs, &ProcessContext),
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, UsageError> {
    let began = Instant::now();
    let limit = args.time_limit().map(|limit| limit.saturating_sub(context.began.elapsed()));
    let limit = limit.map_or(CHECKOUT_MAX, |left| left.min(CHECKOUT_MAX));
    let (mut end, mut work) = (pin!(sleep(limit)), pin!(work));
    loop {
        tokio::select! {
            biased;
            interrupt = context.signals.first() => return Err(UsageError::interrupted(interrupt)),
            done = &mut work => return done.map_err(E::into),
            () = &mut end => {
                let what = format!("{name} took longer than {}", format_duration(limit));
                return Err(UsageError::of(UsageErrorKind::Late, what));
            }
            () = sleep(CHECKOUT_BEAT) => if !context.is_result_alone {
                report(name, began, &context.variables);
            },
        }
    }
}

impl From<GitError> for UsageError {
    fn from(error: GitError) -> Self {
        Self::of(failure_kind(&error), error.to_string())
    }
}

/// Returns the kind of a git error. A failed clone is temporary: the network, a server or a disk
/// may be the cause, since a missing repository on this machine was reported before.
fn failure_kind(error: &GitError) -> UsageErrorKind {
    match error {
        GitError::Failed { step: GitStep::Clone | GitStep::CloneFolder, .. } => {
            UsageErrorKind::Temporary
        }
        GitError::Failed {
            step:
                GitStep::FindRoot
                | GitStep::FindBase
                | GitStep::ListWorktrees
                | GitStep::AddWorktree
                | GitStep::FillWorktree
                | GitStep::RemoveWorktree,
            ..
        }
        | GitError::Link { .. }
        | GitError::NoCommit { .. }
        | GitError::NotFound
        | GitError::Foreign { .. } => UsageErrorKind::Usage,
        GitError::Failed { step: GitStep::Checkout, .. }
        | GitError::NoResult(_)
        | GitError::Folder { .. } => UsageErrorKind::Internal,
    }
}

fn report(name: &str, began: Instant, variables: &Variables) {
    // An address may contain a password.
    let line = format!("{name}, {} so far", format_elapsed(began.elapsed()));
    print_message(&mask_of(variables).redact(&line));
}
