//! `outlast batch`: many tasks, on this machine or on an existing engine.

mod engine_program;
mod open;
mod prepare;
mod progress;
mod report;
mod start;
mod submit;
mod task_check;
mod task_input;
mod worker;

use serde_json::json;

use crate::batch::SUMMARY_VERSION;

use super::args::{BatchAction, BatchArgs};
use super::run::ProcessContext;
use super::stdout::print_report;
use super::usage::UsageError;

/// Starts a batch, runs one task of it, or reports on it.
///
/// # Errors
/// A mistake in the tasks or the flags, before anything was started; a file of the batch that
/// cannot be read or written; or a program of the engine that is missing.
pub(super) async fn batch(args: &BatchArgs, context: ProcessContext) -> Result<u8, UsageError> {
    let (is_json, ended) = match &args.action {
        None => (args.start.json, Box::pin(start::start(&args.start, context)).await),
        Some(BatchAction::Worker(worker)) => (false, Box::pin(worker::work(worker, context)).await),
        Some(BatchAction::Status(status)) => (status.json, report::status(status, &context).await),
        Some(BatchAction::Collect(collect)) => (false, report::collect(collect, &context).await),
    };
    if let (Err(error), true) = (&ended, is_json) {
        print_report(&error_object(error))?;
    }
    ended
}

/// Returns the JSON object that replaces the summary after an error.
fn error_object(error: &UsageError) -> String {
    let object = json!({
        "type": "batch",
        "schema_version": SUMMARY_VERSION,
        "exit_code": error.verdict().exit_code(),
        "error": error.to_string(),
    });
    format!("{object}\n")
}
