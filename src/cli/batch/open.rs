//! Finds an existing batch, by its folder or its id.

use std::fs;
use std::path::{Path, PathBuf};

use crate::batch::{BatchFolder, BatchFolderError, BatchPlan};
use crate::cli::run::ProcessContext;
use crate::cli::usage::UsageError;
use crate::config::environment;
use crate::text::quoted_command;

/// The folder of batches, next to that of the sessions, where tasks do not change it: they work in
/// other folders.
pub(super) fn batches(context: &ProcessContext) -> PathBuf {
    context.cwd.join(environment::config_dir(&context.variables)).join("batch")
}

/// Finds the folder of a batch by its path or the id of the batch.
fn find(named: &Path, context: &ProcessContext) -> BatchFolder {
    let by_path = BatchFolder::new(context.cwd.join(named));
    let is_name = named.components().count() == 1;
    let by_id = BatchFolder::new(batches(context).join(named));
    if !by_path.plan_path().is_file() && is_name && by_id.plan_path().is_file() {
        return by_id;
    }
    by_path
}

/// The last started batch of a task file, below the folder of batches, or else the last planned
/// one.
pub(super) fn newest_of(
    source: &Path,
    context: &ProcessContext,
) -> Option<(BatchFolder, BatchPlan)> {
    let source = fs::canonicalize(source).ok()?;
    let folders = fs::read_dir(batches(context)).ok()?.filter_map(Result::ok);
    let planned = folders.filter_map(|entry| {
        let folder = BatchFolder::new(entry.path());
        let written = fs::metadata(folder.plan_path()).ok()?.modified().ok()?;
        Some((written, folder))
    });
    let mut planned: Vec<_> = planned.collect();
    planned.sort_by_cached_key(|(written, folder)| (folder.was_started(), *written));
    planned.into_iter().rev().find_map(|(_, folder)| {
        let plan = folder.read_plan().ok()?;
        let is_of_file = fs::canonicalize(&plan.source).is_ok_and(|path| path == source);
        is_of_file.then_some((folder, plan))
    })
}

/// Opens a batch.
///
/// # Errors
/// There is none, or its plan cannot be read.
pub(super) fn open(
    named: &Path,
    context: &ProcessContext,
) -> Result<(BatchFolder, BatchPlan), UsageError> {
    let path = context.cwd.join(named);
    if path.is_file() && path.file_name().is_some_and(|name| name != "plan.json") {
        return newest_of(&path, context).ok_or_else(|| {
            UsageError::new(format!(
                "no batch was started from {}, or in another folder; name the folder of --dir",
                named.display()
            ))
        });
    }
    let folder = find(named, context);
    let plan = folder.read_plan()?;
    Ok((folder, plan))
}

impl From<BatchFolderError> for UsageError {
    fn from(error: BatchFolderError) -> Self {
        let remedy = match error {
            BatchFolderError::NoPlan { .. } => "; name the folder of a batch, or its id",
            BatchFolderError::BadPlan { .. } => "",
            BatchFolderError::Foreign { .. } => "; make a batch of your own from its tasks",
            BatchFolderError::Unwritable { .. } => "; fix that, or name another folder with --dir",
        };
        Self::new(format!("{error}{remedy}"))
    }
}

/// Returns the command that resumes a batch on its engine.
pub(super) fn resume_command(folder: &BatchFolder, plan: &BatchPlan) -> String {
    let path = folder.path().display().to_string();
    let command = ["outlast", "batch", &path].into_iter();
    quoted_command(command.chain(plan.engine.iter().map(String::as_str)))
}
