//! Finds an installed ripgrep. The result is only shown: outlast has its own search.

use std::ffi::OsStr;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use super::super::DoctorContext;
use crate::process::{Job, Supervisor, find_program};

/// Maximum number of bytes that are read of its version output.
const VERSION_MAX: u64 = 4096;

/// Returns the path and version of a ripgrep on PATH, outside the working folder.
pub async fn find_ripgrep(context: &DoctorContext) -> Option<String> {
    let path = context.variables.get(OsStr::new("PATH"))?;
    let program = find_program(&["rg"], path, &context.cwd)?;
    let version = version(&program, context).await.unwrap_or_else(|| "unknown version".to_owned());
    Some(format!("{} ({version})", program.display()))
}

async fn version(program: &std::path::Path, context: &DoctorContext) -> Option<String> {
    let supervisor = Supervisor::with_own_binary();
    let job = Job::new(program, ["--no-config", "--version"], &context.cwd, []);
    let mut running = supervisor.start(&job).await.ok()?;
    let stdout = Receiver::from_owned_fd(running.stdout.take()?.into()).ok()?;
    let mut printed = Vec::new();
    stdout.take(VERSION_MAX).read_to_end(&mut printed).await.ok()?;
    running.kill();
    running.end_leftovers().await;
    let text = String::from_utf8_lossy(&printed).into_owned();
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}
