//! Runs a program to its end, and returns its output.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use super::job::Job;
use super::supervisor_handle::Supervisor;

/// Time for which output is still read after the program has ended while other processes hold its
/// pipes.
const DRAIN: Duration = Duration::from_millis(200);

/// The exit status and the output of a program.
#[derive(Debug)]
pub struct JobOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// The end of standard error: at most [`Self::STDERR_MAX`] bytes.
    pub stderr: Vec<u8>,
}

impl JobOutput {
    /// The part of standard error that is kept, in bytes.
    pub const STDERR_MAX: usize = 4096;
}

/// The reason that the output of a program is unknown.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("cannot be started: {0}")]
    NotStarted(#[from] io::Error),
    #[error("printed more than {} KiB", .0 >> 10)]
    TooLong(usize),
    #[error("was killed together with its supervisor")]
    Killed,
}

impl Supervisor {
    /// Runs a program, and returns what it printed to standard output, at most `stdout_max` bytes.
    /// Processes that it leaves behind are ended. Dropping the future ends all of them.
    ///
    /// # Errors
    /// It cannot be started, it printed more, or its exit status is unknown.
    pub async fn output(&self, job: &Job, stdout_max: usize) -> Result<JobOutput, OutputError> {
        // The future is large, and part of many others.
        Box::pin(self.run_to_end(job, stdout_max)).await
    }

    async fn run_to_end(&self, job: &Job, stdout_max: usize) -> Result<JobOutput, OutputError> {
        let mut running = self.start(job).await?;
        let out = running.stdout.take().map(|pipe| Receiver::from_owned_fd(pipe.into()));
        let err = running.stderr.take().map(|pipe| Receiver::from_owned_fd(pipe.into()));
        let (out, err) = (out.transpose()?, err.transpose()?);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = {
            // Both are read all the time, so that the program does not block on a full pipe.
            let reading = async {
                tokio::try_join!(
                    read_start(out, stdout_max, &mut stdout),
                    read_end(err, &mut stderr)
                )
            };
            let (mut reading, mut exit) = (pin!(reading), pin!(running.exit()));
            tokio::select! {
                // After too much output the program may be blocked, so its exit is not awaited.
                read = &mut reading => {
                    read?;
                    exit.await
                }
                status = &mut exit => {
                    // A background process of the program may hold the pipes; it is not awaited.
                    timeout(DRAIN, reading).await.unwrap_or(Ok(((), ())))?;
                    status
                }
            }
        };
        running.end_leftovers().await;
        Ok(JobOutput { status: status.ok_or(OutputError::Killed)?, stdout, stderr })
    }
}

/// Reads a pipe to its end.
///
/// # Errors
/// It has more than `max` bytes.
async fn read_start(
    pipe: Option<Receiver>,
    max: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), OutputError> {
    let Some(pipe) = pipe else { return Ok(()) };
    // A pipe that cannot be read has no further output.
    let _ = pipe.take(max as u64 + 1).read_to_end(bytes).await;
    if bytes.len() > max { Err(OutputError::TooLong(max)) } else { Ok(()) }
}

/// Reads a pipe to its end, and keeps the last bytes.
async fn read_end(pipe: Option<Receiver>, last: &mut Vec<u8>) -> Result<(), OutputError> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut chunk = vec![0; JobOutput::STDERR_MAX];
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        last.extend_from_slice(&chunk[..count]);
        let excess = last.len().saturating_sub(JobOutput::STDERR_MAX);
        last.drain(..excess);
    }
    Ok(())
}
