//! A running command, as outlast controls it.

use std::io::{self, Read, Write, pipe};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinError;

use super::egress::JobEgress;
use super::job::Job;
use super::program_files::{ProgramChange, UsedFiles};
use super::wire::{self, JobReport};

/// The limit of the wait for the end of leftover processes. Killing continues if it takes longer.
const SWEEP_MAX: Duration = Duration::from_secs(2);

/// The socket to a job init process. Only reports are waited for: the socket also becomes writable
/// each time that the other side takes an order.
pub(super) type ControlSocket = AsyncFd<UnixStream>;

/// Owns the socket to a job init process. Dropping it ends the job, started or not: other copies of
/// the socket, which its listener and notifier hold, do not keep it alive.
#[derive(Debug)]
pub(super) struct JobControl(pub(super) Arc<ControlSocket>);

impl JobControl {
    /// `socket` does not block.
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        // SAFETY: a Unix socket keeps its descriptor until it is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self(Arc::new(socket)))
    }

    /// Ends a start that takes too long. Returns true if a report has arrived that is not read:
    /// none can follow, and without one no command is started.
    pub(super) fn end_start(&self) -> bool {
        let mut socket = self.0.get_ref();
        let _ = socket.shutdown(Shutdown::Both);
        socket.read(&mut [0]).is_ok_and(|count| count > 0)
    }
}

impl Drop for JobControl {
    fn drop(&mut self) {
        let _ = self.0.get_ref().shutdown(Shutdown::Both);
    }
}

/// A started command. Dropping it kills the command and all its descendants.
#[derive(Debug)]
pub struct RunningJob {
    control: JobControl,
    exited: Option<oneshot::Receiver<ExitStatus>>,
    leftovers_ended: Option<oneshot::Receiver<bool>>,
    memory_taken: Arc<OnceLock<u64>>,
    files: Arc<UsedFiles>,
    /// True if it runs inside a sandbox.
    pub is_confined: bool,
    /// Its network, if it is held to a list of domains.
    pub egress: Option<JobEgress>,
    /// `None` unless the job requested it.
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    /// `None` if the job joins it to its standard output.
    pub stderr: Option<ChildStderr>,
}

/// outlast's ends of a command's pipes.
pub(super) struct JobPipes {
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
}

impl JobPipes {
    /// Creates the pipes of a job. The returned descriptors are for the command: its stdout, its
    /// stderr, and its stdin if it has one.
    pub(super) fn create(job: &Job) -> io::Result<(Self, Vec<OwnedFd>)> {
        let (stdout, output) = pipe()?;
        let (stderr, errors) = if job.joins_output {
            (None, output.try_clone()?)
        } else {
            let (stderr, errors) = pipe()?;
            (Some(OwnedFd::from(stderr).into()), errors)
        };
        let mut theirs = vec![OwnedFd::from(output), OwnedFd::from(errors)];
        let mut stdin = None;
        if job.input {
            let (their_input, our_input) = pipe()?;
            theirs.push(their_input.into());
            stdin = Some(OwnedFd::from(our_input).into());
        }
        Ok((Self { stdin, stdout: OwnedFd::from(stdout).into(), stderr }, theirs))
    }
}

impl RunningJob {
    pub(super) fn new(control: JobControl, pipes: JobPipes, egress: Option<JobEgress>) -> Self {
        let (exit_sender, exited) = oneshot::channel();
        let (swept_sender, swept) = oneshot::channel();
        let (memory_taken, socket) = (Arc::default(), Arc::clone(&control.0));
        tokio::spawn(forward_reports(socket, exit_sender, swept_sender, Arc::clone(&memory_taken)));
        Self {
            control,
            exited: Some(exited),
            leftovers_ended: Some(swept),
            memory_taken,
            files: Arc::default(),
            is_confined: false,
            egress,
            stdin: pipes.stdin,
            stdout: Some(pipes.stdout),
            stderr: pipes.stderr,
        }
    }

    /// Sets the program files of a job of the user, and whether it runs inside a sandbox.
    pub(super) fn with_files(mut self, files: UsedFiles, is_confined: bool) -> Self {
        (self.files, self.is_confined) = (Arc::new(files), is_confined);
        self
    }

    /// Checks that the job's programs are still the files that were there when it was started: the
    /// output of a program that was swapped for the start does not count. The check runs on a
    /// thread that a file system may block. Returns the change, if there is one.
    ///
    /// # Errors
    /// The check panicked.
    pub fn find_change(
        &self,
    ) -> impl Future<Output = Result<Option<ProgramChange>, JoinError>> + use<> {
        let files = Arc::clone(&self.files);
        tokio::task::spawn_blocking(move || files.check().err())
    }

    /// Waits for the main process only. `None` if the status is unknown because its job init
    /// process was killed, or if this was called before.
    pub fn exit(&mut self) -> impl Future<Output = Option<ExitStatus>> + use<> {
        let exited = self.exited.take();
        async move { exited?.await.ok() }
    }

    /// Waits until no process of the job is left, so that [`Self::end_leftovers`] finds none.
    pub fn last_exit(&mut self) -> impl Future<Output = ()> + use<> {
        let ended = self.leftovers_ended.take();
        async move {
            if let Some(ended) = ended {
                // Without a job init process, none is left.
                let _ = ended.await;
            }
        }
    }

    /// The memory of the job, in bytes, when it was ended for taking too much. Available once the
    /// main process has ended.
    pub fn memory_taken(&self) -> Option<u64> {
        self.memory_taken.get().copied()
    }

    /// Asks the command and all processes that it started to end (SIGTERM).
    pub fn terminate(&self) {
        self.send_order(wire::TERMINATE);
    }

    /// Kills the command and all processes that it started.
    pub fn kill(&self) {
        self.send_order(wire::KILL);
    }

    fn send_order(&self, order: u8) {
        // Without a job init process there is nothing left to signal.
        let _ = self.control.0.get_ref().write(&[order]);
    }

    /// Ends the processes that the main process left behind. Returns true if there were any.
    pub async fn end_leftovers(mut self) -> bool {
        let Some(mut swept) = self.leftovers_ended.take() else { return false };
        // A job init process that saw the end of the last process has reported it already.
        match swept.try_recv() {
            Ok(is_left) => return is_left,
            // The job init process has ended.
            Err(TryRecvError::Closed) => return false,
            Err(TryRecvError::Empty) => {}
        }
        self.send_order(wire::SWEEP);
        match tokio::time::timeout(SWEEP_MAX, swept).await {
            Ok(swept) => swept.unwrap_or(false),
            // A leftover process does not end.
            Err(_) => true,
        }
    }
}

/// Forwards the reports of the job init process until it is gone.
async fn forward_reports(
    socket: Arc<ControlSocket>,
    exit_sender: oneshot::Sender<ExitStatus>,
    swept_sender: oneshot::Sender<bool>,
    memory_taken: Arc<OnceLock<u64>>,
) {
    let (mut exit_sender, mut swept_sender) = (Some(exit_sender), Some(swept_sender));
    while let Ok(report) = read_report(&socket).await {
        // The receiver may be gone; a failed send is ignored.
        match report {
            JobReport::Exited(status) => {
                let _ = exit_sender.take().map(|sender| sender.send(ExitStatus::from_raw(status)));
            }
            JobReport::Ended(status) => {
                let _ = swept_sender.take().map(|sender| sender.send(false));
                let _ = exit_sender.take().map(|sender| sender.send(ExitStatus::from_raw(status)));
                return;
            }
            JobReport::LeftoversEnded(left) => {
                let _ = swept_sender.take().map(|sender| sender.send(left));
            }
            JobReport::MemoryExceeded(taken) => {
                let _ = memory_taken.set(u64::try_from(taken).unwrap_or(0) << 20);
            }
            JobReport::Starting
            | JobReport::Started
            | JobReport::Listener(_)
            | JobReport::StartFailed(_)
            | JobReport::AllEnded(_) => return,
        }
    }
}

/// Reads the next report.
///
/// # Errors
/// The job init process is gone.
pub(super) async fn read_report(socket: &ControlSocket) -> io::Result<JobReport> {
    let mut report = [0; JobReport::BYTES];
    let mut missing = &mut report[..];
    while !missing.is_empty() {
        match socket.async_io(Interest::READABLE, |mut socket| socket.read(missing)).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => missing = &mut missing[count..],
        }
    }
    JobReport::decode(report).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// A file system that hangs must not stop the thread that writes heartbeats.
    #[test]
    fn programs_are_checked_on_a_thread_of_their_own() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build().expect("a runtime");
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
            ours.set_nonblocking(true).expect("it is open");
            let (pipes, _pipes) = JobPipes::create(&Job::shell("true", "/", [])).expect("pipes");
            let job = RunningJob::new(JobControl::new(ours).expect("a runtime"), pipes, None);
            let hung = tokio::task::spawn_blocking(move || is_free.recv());
            let mut check = Box::pin(job.find_change());
            let mut context = Context::from_waker(Waker::noop());
            assert!(check.as_mut().poll(&mut context).is_pending());
            drop(free);
            assert_eq!(check.await.expect("it does not panic"), None);
            hung.await.expect("it has ended").expect_err("nothing was sent");
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_leftover_process_that_does_not_end_counts_as_left_behind() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("it is open");
        let job = Job::shell("true", "/", []);
        let (pipes, _theirs) = JobPipes::create(&job).expect("pipes");
        let job = RunningJob::new(JobControl::new(ours).expect("a runtime"), pipes, None);
        // The job init process never reports that the leftovers have ended.
        assert!(job.end_leftovers().await);
        let mut order = [0];
        theirs.read_exact(&mut order).expect("an order");
        assert_eq!(order, [wire::SWEEP]);
    }
}
