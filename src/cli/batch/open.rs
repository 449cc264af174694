//! Finds a batch that exists, by its folder or its id.

use std::path::{Path, PathBuf};

use crate::batch::{BatchFolder, BatchFolderError, BatchPlan, quoted_command};
use crate::cli::run::ProcessContext;
use crate::cli::usage::UsageError;
use crate::config::environment;

/// The folder of batches, beside that of the sessions: what tasks do in their working folders does
/// not reach it.
pub(super) fn batches(world: &ProcessContext) -> PathBuf {
    world.cwd.join(environment::config_dir(&world.variables)).join("batch")
}

/// Finds the folder that the user means.
fn find(named: &Path, world: &ProcessContext) -> BatchFolder {
    let given = BatchFolder::new(world.cwd.join(named));
    let is_name = named.components().count() == 1;
    let of_id = BatchFolder::new(batches(world).join(named));
    if !given.plan_path().is_file() && is_name && of_id.plan_path().is_file() {
        return of_id;
    }
    given
}

/// Opens a batch.
///
/// # Errors
/// There is none, or its plan cannot be read.
pub(super) fn open(
    named: &Path,
    world: &ProcessContext,
) -> Result<(BatchFolder, BatchPlan), UsageError> {
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
        BatchFolderError::Unwritable { .. } => "; mend that, or name another folder with --dir",
    };
    UsageError::new(format!("{error}{remedy}"))
}

/// The command that goes on with a batch on its engine.
pub(super) fn resume_command(folder: &BatchFolder, plan: &BatchPlan) -> String {
    let place = folder.path().display().to_string();
    let begin = ["outlast", "batch", &place].into_iter();
    quoted_command(begin.chain(plan.engine.iter().map(String::as_str)))
}
