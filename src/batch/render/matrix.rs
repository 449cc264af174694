//! The matrix of a CI workflow: one job for each open task.

use serde_json::{Value, json};

use crate::batch::plan::BatchPlan;

use super::RenderError;

/// Maximum number of jobs in a matrix of GitHub Actions.
pub const MATRIX_MAX: usize = 256;

/// Returns the matrix of these tasks as a value of `strategy.matrix`.
///
/// # Errors
/// There are too many tasks.
pub fn matrix(plan: &BatchPlan, open: &[usize]) -> Result<Value, RenderError> {
    if open.len() > MATRIX_MAX {
        return Err(RenderError::MatrixTooLarge { count: open.len() });
    }
    let tasks = open.iter().filter_map(|index| plan.tasks.get(*index));
    let jobs = tasks.map(|task| json!({ "index": task.index, "id": task.id, "name": task.name }));
    Ok(json!({ "include": jobs.collect::<Vec<_>>() }))
}
