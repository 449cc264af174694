//! Finds a batch that exists, by its folder or its id.

use std::fs;
use std::path::{Path, PathBuf};

use crate::batch::{BatchFolder, BatchFolderError, BatchPlan};
use crate::cli::run::ProcessContext;
use crate::cli::usage::UsageError;
use crate::config::environment;
use crate::text::quoted_command;

/// The folder of batches, next to that of the sessions, where tasks that work in other folders do
/// not change it.
pub(super) fn batches(world: &ProcessContext) -> PathBuf {
    world.cwd.join(environment::config_dir(&world.variables)).join("batch")
}

/// Finds the folder that the user means: a folder, the id of a batch, or the file of its tasks.
fn find(named: &Path, world: &ProcessContext) -> BatchFolder {
    let given = BatchFolder::new(world.cwd.join(named));
    let is_name = named.components().count() == 1;
    let of_id = BatchFolder::new(batches(world).join(named));
    if !given.plan_path().is_file() && is_name && of_id.plan_path().is_file() {
        return of_id;
    }
    given
}

/// The batch that was started last from a file of tasks, below the folder of batches, or else the
/// one that was planned last.
pub(super) fn newest_of(source: &Path, world: &ProcessContext) -> Option<(BatchFolder, BatchPlan)> {
    let source = fs::canonicalize(source).ok()?;
    let folders = fs::read_dir(batches(world)).ok()?.filter_map(Result::ok);
    let planned = folders.filter_map(|entry| {
        let folder = BatchFolder::new(entry.path());
        let written = fs::metadata(folder.plan_path()).ok()?.modified().ok()?;
        Some((written, folder))
    });
    let mut planned: Vec<_> = planned.collect();
    planned.sort_by_cached_key(|(written, folder)| (folder.was_started(), *written));
    planned.into_iter().rev().find_map(|(_, folder)| {
        let plan = folder.read_plan().ok()?;
        let is_it = fs::canonicalize(&plan.source).is_ok_and(|path| path == source);
        is_it.then_some((folder, plan))
    })
}

/// Opens a batch.
///
/// # Errors
/// There is none, or its plan cannot be read.
pub(super) fn open(
    named: &Path,
    world: &ProcessContext,
) -> Result<(BatchFolder, BatchPlan), UsageError> {
    let path = world.cwd.join(named);
    if path.is_file() && path.file_name().is_some_and(|name| name != "plan.json") {
        return newest_of(&path, world).ok_or_else(|| {
            UsageError::new(format!(
                "no batch was started from {}, or in another folder; name the folder of --dir",
                named.display()
            ))
        });
    }
    let folder = find(named, world);
    let plan = folder.read_plan().map_err(|error| folder_error(&error))?;
    Ok((folder, plan))
}

/// Reports an error of the folder of a batch.
pub(super) fn folder_error(error: &BatchFolderError) -> UsageError {
    let remedy = match error {
        BatchFolderError::NoPlan { .. } => "; name the folder of a batch, or its id",
        BatchFolderError::BadPlan { .. } => "",
        BatchFolderError::Foreign { .. } => "; make a batch of your own from its tasks",
        BatchFolderError::Unwritable { .. } => "; fix that, or name another folder with --dir",
    };
    UsageError::new(format!("{error}{remedy}"))
}

/// Returns the command that resumes a batch on its engine.
pub(super) fn resume_command(folder: &BatchFolder, plan: &BatchPlan) -> String {
    let place = folder.path().display().to_string();
    let begin = ["outlast", "batch", &place].into_iter();
    quoted_command(begin.chain(plan.engine.iter().map(String::as_str)))
}
