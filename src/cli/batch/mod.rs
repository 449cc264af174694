//! `outlast batch`: many tasks, on this machine or on an engine that exists already.

mod open;
mod progress;
mod report;
mod start;
mod submit;
mod task_check;
mod worker;

use super::args::{BatchAction, BatchArgs};
use super::run::ProcessContext;
use super::usage::UsageError;

/// Starts a batch, runs one task of it, or reports on it.
///
/// # Errors
/// A mistake in the tasks or the flags, before anything was started; a file of the batch that
/// cannot be read or written; or a program of the engine that is missing.
pub(super) async fn batch(args: &BatchArgs, world: ProcessContext) -> Result<u8, UsageError> {
    match &args.action {
        None => Box::pin(start::start(&args.start, world)).await,
        Some(BatchAction::Worker(worker)) => Box::pin(worker::work(worker, world)).await,
        Some(BatchAction::Status(status)) => report::status(status, &world),
        Some(BatchAction::Collect(collect)) => report::collect(collect, &world),
    }
}
