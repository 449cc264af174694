//! Starts programs through the supervisor process, and kills the processes that they leave.

use std::collections::HashSet;
use std::env;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream as Socket;
use tokio::time::Instant;

use super::egress::{self, JobEgress};
use super::env_tag::{TAG_VARIABLE, kill_tagged};
use super::job::{Job, ProcessSpec};
use super::landlock_policy::LandlockPolicy;
use super::orphans::kill_orphans;
use super::ruleset_cache::RulesetCache;
use super::running_job::{ControlSocket, JobControl, JobPipes, RunningJob, read_report};
use super::running_time::timeout_while_running;
use super::supervisor;
use super::threads::spawn_detached;
use super::user_programs::{AdmittedJob, UserPrograms};
use super::wire::{self, JobReport};

/// The time limit for the start of a program, on an overloaded machine.
const START_MAX: Duration = Duration::from_secs(20);

const NO_ANSWER: &str = "the process that starts it was killed, or does not respond";

/// The limit of the wait for the end of everything that is left. A start of a supervisor that hangs
/// is waited for no longer, either.
const CLOSE_MAX: Duration = Duration::from_secs(1);

const EMFILE: i32 = Errno::EMFILE as i32;

/// The most supervisor processes that a run may lose. After that it starts no other.
const LOSSES_MAX: u32 = 10;

/// Starts programs, and makes sure that none of them outlives the run. Clones share their state.
#[derive(Clone, Debug)]
pub struct Supervisor(
    Arc<SupervisorInner>,
    /// Confines the user's own programs. `None` if other programs are started.
    Option<Arc<UserPrograms>>,
);

#[derive(Debug)]
struct SupervisorInner {
    /// The outlast binary to start. `None` for that of this process.
    binary: Option<PathBuf>,
    /// The tag in the environment of everything that is started.
    tag: String,
    state: Mutex<SupervisorState>,
    rulesets: Arc<RulesetCache>,
}

#[derive(Debug, Default)]
struct SupervisorState {
    process: Option<SupervisorProcess>,
    /// The number of supervisor processes that were killed.
    lost_supervisors: u32,
}

#[derive(Debug)]
struct SupervisorProcess {
    child: Child,
    socket: UnixStream,
}

/// The error of a start after which it is unknown whether the command ran, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}; it is unknown whether the command ran, so check before doing it again")]
pub struct StartUnknown(String);

impl StartUnknown {
    /// Returns true if this is the error of a start.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// The reason why a job could not be started.
#[derive(Debug)]
enum SpawnFailure {
    /// Its supervisor or job init process is gone, and the command has not run.
    Lost,
    /// Its job init process began to start the command, which is ended if it runs.
    Unknown(String),
    Refused(io::Error),
}

impl SpawnFailure {
    fn from_errno(errno: i32) -> Self {
        Self::Refused(io::Error::from_raw_os_error(errno))
    }
}

impl From<io::Error> for SpawnFailure {
    fn from(error: io::Error) -> Self {
        Self::Refused(error)
    }
}

impl Default for Supervisor {
    /// Uses this process's own binary as the supervisor. Starts no process yet.
    fn default() -> Self {
        Self::new(None)
    }
}

impl Supervisor {
    /// Uses this outlast binary as supervisor, for programs that use outlast as a library.
    pub fn with_binary(binary: &Path) -> Self {
        Self::new(Some(binary.to_path_buf()))
    }

    fn new(binary: Option<PathBuf>) -> Self {
        let tag = uuid::Uuid::new_v4().simple().to_string();
        let (state, rulesets) = (Mutex::default(), Arc::default());
        Self(Arc::new(SupervisorInner { binary, tag, state, rulesets }), None)
    }

    /// Starts the supervisor process ahead of the first job.
    pub fn start_supervisor(&self) {
        let mut state = self.0.state.lock();
        if state.process.is_none() {
            // If this fails, the first job tries again and reports the error.
            state.process = SupervisorProcess::start(self.0.binary.as_deref()).ok();
        }
    }

    /// The outlast binary that it starts.
    ///
    /// # Errors
    /// It cannot be found.
    pub fn binary(&self) -> io::Result<PathBuf> {
        self.0.binary.clone().map_or_else(own_binary, Ok)
    }

    /// A supervisor for the user's own programs.
    #[must_use]
    pub fn with_programs(&self, programs: &Arc<UserPrograms>) -> Self {
        Self(Arc::clone(&self.0), Some(Arc::clone(programs)))
    }

    /// Records the current state of a job's program files, if this is for the user's programs.
    /// Blocks.
    pub fn remember(&self, job: &Job) {
        if let Some(programs) = &self.1 {
            programs.remember(job);
        }
    }

    /// Starts a program.
    ///
    /// # Errors
    /// The system refuses, or no supervisor process can be started; a
    /// [`ProgramChange`](super::ProgramChange) if one of its files has changed since the run began.
    pub async fn start(&self, job: &Job) -> io::Result<RunningJob> {
        let Some(programs) = self.1.clone() else { return self.start_as_it_is(job).await };
        let job = job.clone();
        let admitted = tokio::task::spawn_blocking(move || programs.admit(job));
        let admitted = admitted.await.map_err(io::Error::other)??;
        let AdmittedJob { job, files } = admitted;
        let running = self.start_as_it_is(&job).await?;
        Ok(running.with_files(files, job.landlock.is_some()))
    }

    async fn start_as_it_is(&self, job: &Job) -> io::Result<RunningJob> {
        let spec = ProcessSpec::encode(job, (TAG_VARIABLE, &self.0.tag))?;
        for _ in 0..2 {
            match self.try_start(&spec, job).await {
                Ok(running) => return Ok(running),
                Err(SpawnFailure::Refused(error)) => return Err(error),
                // A second start could be the second run of the command.
                Err(SpawnFailure::Unknown(why)) => return Err(io::Error::other(StartUnknown(why))),
                Err(SpawnFailure::Lost) => {}
            }
        }
        Err(io::Error::other("the supervisor process was killed"))
    }

    async fn try_start(&self, spec: &[u8], job: &Job) -> Result<RunningJob, SpawnFailure> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        let control = JobControl::new(control)?;
        let mut may_run = false;
        let started = self.request_start(&control, theirs, (spec, job), &mut may_run);
        let started = timeout_while_running(START_MAX, started).await;
        match started {
            Some(pipes) => {
                let egress = job.landlock.as_ref().and_then(|policy| policy.egress.clone());
                Ok(RunningJob::new(control, pipes?, egress))
            }
            None if control.end_start() || may_run => {
                Err(SpawnFailure::Unknown(NO_ANSWER.to_owned()))
            }
            None => Err(io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER).into()),
        }
    }

    /// Requests the start of a job, and waits until its command runs. Sets `may_run` once its job
    /// init process begins to start the command.
    async fn request_start(
        &self,
        control: &JobControl,
        theirs: UnixStream,
        (spec, job): (&[u8], &Job),
        may_run: &mut bool,
    ) -> Result<JobPipes, SpawnFailure> {
        let (pipes, descriptors) = JobPipes::create(job)?;
        let socket = control.0.get_ref();
        let ruleset = match &job.landlock {
            Some(policy) => Some(self.0.ruleset(policy).await?),
            None => None,
        };
        let length = u32::try_from(spec.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sent = {
            let ruleset = ruleset.iter().map(|ruleset| ruleset.as_fd());
            let all = ruleset.chain(descriptors.iter().map(OwnedFd::as_fd));
            wire::send_part(socket, [&length, spec], &all.collect::<Vec<_>>())?
        };
        drop(descriptors);
        // Requested last, so that an idle job init process can receive all of it at once.
        self.0.request_job_init(theirs, job.memory).await?;
        let rest = sent.checked_sub(length.len()).and_then(|sent| spec.get(sent..));
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            // If it cannot be sent, the report that is read next has the reason.
            let _ = Socket::from_std(socket.try_clone()?)?.write_all(rest).await;
        }
        let egress = job.landlock.as_ref().and_then(|policy| policy.egress.as_ref());
        await_start(&control.0, egress, may_run).await?;
        Ok(pipes)
    }

    /// Kills everything that was started and still runs. Returns the number of processes. Blocks
    /// for about a second at most; killing continues without this process if it takes longer. A job
    /// that is started afterwards gets a new supervisor process.
    pub fn close(&self) -> u32 {
        self.0.close()
    }
}

impl SupervisorInner {
    /// Opens a ruleset for the policy of a job, on a thread that a file system may block.
    async fn ruleset(&self, policy: &LandlockPolicy) -> io::Result<Arc<OwnedFd>> {
        let (rulesets, policy) = (Arc::clone(&self.rulesets), policy.clone());
        let opened = tokio::task::spawn_blocking(move || rulesets.ruleset(&policy));
        opened.await.map_err(io::Error::other)?
    }

    /// Requests a job init process for this socket, from a new supervisor if necessary.
    async fn request_job_init(
        self: &Arc<Self>,
        socket: UnixStream,
        memory: Option<u64>,
    ) -> io::Result<()> {
        let mut order = [wire::JOB; wire::JOB_BYTES];
        order[1..].copy_from_slice(&memory.unwrap_or(u64::MAX).to_le_bytes());
        if self.is_sent_at_once(&order, &socket) {
            return Ok(());
        }
        // The file system of the binary may block the start of a supervisor.
        let inner = Arc::clone(self);
        let requested = tokio::task::spawn_blocking(move || inner.send_job(&order, &socket));
        requested.await.map_err(io::Error::other)?
    }

    /// Returns true if a supervisor runs and was sent the request, without waiting for it.
    fn is_sent_at_once(&self, order: &[u8], socket: &UnixStream) -> bool {
        let state = self.state.try_lock();
        let Some(supervisor) = state.as_ref().and_then(|state| state.process.as_ref()) else {
            return false;
        };
        supervisor.resume();
        wire::send_at_once(&supervisor.socket, order, &[socket]).is_ok()
    }

    fn send_job(&self, order: &[u8], socket: &UnixStream) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            let supervisor = match state.process.take() {
                Some(supervisor) => supervisor,
                None if state.lost_supervisors < LOSSES_MAX => {
                    SupervisorProcess::start(self.binary.as_deref())?
                }
                None => {
                    return Err(io::Error::other("the supervisor process was killed repeatedly"));
                }
            };
            supervisor.resume();
            let sent = wire::send(&supervisor.socket, order, &[socket]);
            if sent.as_ref().is_err_and(|error| !is_shortage(error)) {
                supervisor.reap_later();
                state.lost_supervisors += 1;
                continue;
            }
            state.process = Some(supervisor);
            return sent;
        }
    }

    fn close(&self) -> u32 {
        let end = Instant::now() + CLOSE_MAX;
        let (supervisor, lost) = match self.state.try_lock_for(CLOSE_MAX) {
            Some(mut state) => (state.process.take(), state.lost_supervisors),
            // The start of a supervisor hangs.
            None => (None, 1),
        };
        let closed = supervisor.as_ref().and_then(SupervisorProcess::pid);
        let (ended, has_answered) = supervisor.map_or((0, true), SupervisorProcess::shut_down);
        if lost == 0 && has_answered {
            return ended;
        }
        // The orphans of a killed supervisor were inherited, or have escaped unless they carry the
        // tag.
        // The lock is held, so that no new supervisor starts meanwhile and is taken for an orphan;
        // unless a start has it, and hangs.
        let state = self.state.try_lock_for(end.saturating_duration_since(Instant::now()));
        let successor = state.as_ref().and_then(|state| state.process.as_ref()?.pid());
        let spared: HashSet<Pid> = closed.into_iter().chain(successor).collect();
        ended + kill_orphans(&spared) + kill_tagged(&self.tag)
    }
}

impl Drop for SupervisorInner {
    fn drop(&mut self) {
        self.close();
    }
}

impl SupervisorProcess {
    fn start(binary: Option<&Path>) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        line.set_read_timeout(Some(CLOSE_MAX))?;
        let child = Command::new(binary.map_or_else(own_binary, |path| Ok(path.to_path_buf()))?)
            .arg0("supervisor")
            .arg(supervisor::SUPERVISOR_ARGUMENT)
            .arg(std::process::id().to_string())
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            // Inheriting stdout would keep the reader's pipe open.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                let why = format!("the supervisor process cannot be started: {error}");
                io::Error::new(error.kind(), why)
            })?;
        Ok(Self { child, socket: line })
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().map(Pid::from_raw)
    }

    /// Continues the process if it was stopped.
    fn resume(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGCONT);
        }
    }

    /// Makes the supervisor end all processes. Returns their number, and whether it answered.
    fn shut_down(mut self) -> (u32, bool) {
        self.resume();
        let mut report = [0; JobReport::BYTES];
        let ended =
            self.socket.write_all(&[wire::END]).and_then(|()| self.socket.read_exact(&mut report));
        match (ended, JobReport::decode(report)) {
            (Ok(()), Some(JobReport::AllEnded(count))) => {
                self.reap();
                (u32::try_from(count).unwrap_or(0), true)
            }
            (Ok(()) | Err(_), _) => (0, false),
        }
    }

    /// Waits for the end of a supervisor that has ended or is about to end.
    fn reap(self) {
        let Self { mut child, socket: line } = self;
        drop(line);
        let _ = child.wait();
    }

    /// Like [`Self::reap`], on a thread of its own: the end may take long.
    fn reap_later(self) {
        // Without a thread it stays a zombie until this process ends.
        let _ = spawn_detached(thread::Builder::new(), move || self.reap());
    }
}

/// Returns true if a message could not be sent because the system lacks memory, or too many
/// descriptors are being passed. The receiver still runs then.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ETOOMANYREFS | Errno::ENOMEM | Errno::ENOBUFS))
}

/// Waits until the command of a job runs. Sets `may_run` once its job init process begins to start
/// the command.
async fn await_start(
    control: &ControlSocket,
    egress: Option<&JobEgress>,
    may_run: &mut bool,
) -> Result<(), SpawnFailure> {
    match read_report(control).await {
        Ok(JobReport::Starting) => *may_run = true,
        Ok(JobReport::StartFailed(errno)) => return Err(SpawnFailure::from_errno(errno)),
        Ok(_) | Err(_) => return Err(SpawnFailure::Lost),
    }
    if let Some(egress) = egress {
        start_egress(control, egress).await?;
    }
    match read_report(control).await {
        Ok(JobReport::Started) => Ok(()),
        Ok(JobReport::StartFailed(errno)) => Err(SpawnFailure::from_errno(errno)),
        Ok(_) | Err(_) => Err(SpawnFailure::Unknown(NO_ANSWER.to_owned())),
    }
}

/// Receives the listener of a job's socket calls, and starts to decide them.
async fn start_egress(control: &ControlSocket, egress: &JobEgress) -> Result<(), SpawnFailure> {
    let undecided = |error: io::Error| {
        SpawnFailure::Unknown(format!("its network calls cannot be decided: {error}"))
    };
    let mut report = [0; JobReport::BYTES];
    let receive = |socket: &UnixStream| wire::receive(socket, &mut report);
    let received = control.async_io(Interest::READABLE, receive).await;
    let (_, mut descriptors) = received.map_err(|error| match error.raw_os_error() {
        Some(EMFILE) => undecided(error),
        // A killed job init process resets the connection.
        Some(_) | None => SpawnFailure::Unknown(NO_ANSWER.to_owned()),
    })?;
    match (JobReport::decode(report), descriptors.pop()) {
        (Some(JobReport::Listener(job_init)), Some(listener)) => {
            let (job, control) =
                (egress.clone(), control.get_ref().try_clone().map_err(undecided)?);
            egress::start_notifier(listener, job, control, Pid::from_raw(job_init))
                .map_err(undecided)
        }
        (Some(JobReport::StartFailed(errno)), _) => Err(SpawnFailure::from_errno(errno)),
        (_, _) => Err(SpawnFailure::Unknown(NO_ANSWER.to_owned())),
    }
}

/// The running binary, even if its file was replaced meanwhile.
pub(super) fn own_binary() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() { Ok(link.to_path_buf()) } else { env::current_exe() }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::task::{Context, Waker};

    use super::egress::{RunEgress, SessionEgress};
    use super::*;

    fn job() -> JobEgress {
        let relay = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let end = tokio_util::sync::CancellationToken::new().drop_guard();
        JobEgress::new(&RunEgress::closed(relay, &SessionEgress::default()), &Arc::new(end))
    }

    /// Both ends of the control socket of a job.
    fn control() -> (JobControl, UnixStream) {
        let (control, theirs) = UnixStream::pair().expect("the system has sockets");
        control.set_nonblocking(true).expect("it is ours");
        (JobControl::new(control).expect("a runtime"), theirs)
    }

    #[tokio::test]
    async fn a_command_is_started_again_only_if_it_cannot_have_run() {
        use JobReport::{Exited, StartFailed, Started, Starting};
        let cases: [(&[JobReport], &str); 7] = [
            (&[], "Err(Lost)"),
            (&[Exited(0)], "Err(Lost)"),
            (&[StartFailed(13)], "Err(Refused(Os { code: 13"),
            (&[Starting], "Err(Unknown("),
            (&[Starting, Exited(0)], "Err(Unknown("),
            (&[Starting, StartFailed(2)], "Err(Refused(Os { code: 2"),
            (&[Starting, Started], "Ok"),
        ];
        for (reports, expected) in cases {
            let (control, mut theirs) = control();
            for report in reports {
                theirs.write_all(&report.encode()).expect("there is room");
            }
            drop(theirs);
            let mut may_run = false;
            let started = format!("{:?}", await_start(&control.0, None, &mut may_run).await);
            assert!(started.starts_with(expected), "{reports:?}: {started}");
            assert_eq!(may_run, matches!(reports, [Starting, ..]), "{reports:?}");
        }
    }

    #[tokio::test]
    async fn a_job_init_process_that_is_killed_before_its_listener_is_lost() {
        for is_reset in [false, true] {
            let (control, mut theirs) = control();
            theirs.write_all(&JobReport::Starting.encode()).expect("there is room");
            if is_reset {
                // Data that the other side has not read resets the connection.
                let mut ours = control.0.get_ref();
                ours.write_all(b"unread").expect("there is room");
            }
            drop(theirs);
            let failure = await_start(&control.0, Some(&job()), &mut false).await;
            assert!(matches!(failure, Err(SpawnFailure::Unknown(_))), "{is_reset}: {failure:?}");
        }
    }

    #[tokio::test]
    async fn a_command_that_begins_to_start_at_the_time_limit_may_run() {
        for is_starting in [false, true] {
            let (control, mut theirs) = control();
            if is_starting {
                theirs.write_all(&JobReport::Starting.encode()).expect("there is room");
            }
            assert_eq!(control.end_start(), is_starting);
            theirs.write_all(&JobReport::Starting.encode()).expect_err("it may not start");
        }
    }

    #[test]
    fn the_text_of_an_unknown_start_does_not_say_that_it_failed() {
        let error = io::Error::other(StartUnknown(NO_ANSWER.to_owned()));
        assert!(StartUnknown::is_cause_of(&error));
        assert!(error.to_string().starts_with(&format!("{NO_ANSWER}; it is unknown whether")));
        assert!(!StartUnknown::is_cause_of(&Errno::EMFILE.into()));
    }

    /// Heartbeats and the time limit of the start depend on the thread that waits for it.
    #[tokio::test]
    async fn the_start_of_a_supervisor_that_hangs_does_not_block_the_run() {
        let supervisor = Supervisor::with_binary(Path::new("/nowhere/outlast"));
        let (theirs, _ours) = UnixStream::pair().expect("the system has sockets");
        let mut request = Box::pin(supervisor.0.request_job_init(theirs, None));
        {
            let _another_start = supervisor.0.state.lock();
            let mut context = Context::from_waker(Waker::noop());
            assert!(request.as_mut().poll(&mut context).is_pending());
        }
        let error = request.await.expect_err("there is no binary");
        assert!(error.to_string().starts_with("the supervisor process cannot be started"));
    }

    #[test]
    fn a_supervisor_is_lost_unless_only_the_system_lacks_something() {
        for (errno, expected) in [
            (Errno::ETOOMANYREFS, true),
            (Errno::ENOMEM, true),
            (Errno::ENOBUFS, true),
            (Errno::EPIPE, false),
            (Errno::ECONNRESET, false),
        ] {
            assert_eq!(is_shortage(&errno.into()), expected, "{errno}");
        }
        assert!(!is_shortage(&io::ErrorKind::WriteZero.into()), "a part was sent");
    }

    #[tokio::test]
    async fn the_control_socket_of_a_job_that_is_given_up_ends_it_though_copies_are_open() {
        let (control, mut job_init) = UnixStream::pair().expect("the system has sockets");
        let _of_notifier = control.try_clone().expect("a copy");
        job_init.set_nonblocking(true).expect("it is ours");
        control.set_nonblocking(true).expect("it is ours");
        let control = JobControl::new(control).expect("a runtime");
        let open = job_init.read(&mut [0]).expect_err("it is open");
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
        drop(control);
        assert_eq!(job_init.read(&mut [0]).expect("it is closed"), 0);
    }
}
