//! Starts and ends other programs. All of the crate's `unsafe` is here.
//!
//! A program leads a session and process group of its own, has no terminal, and dies with
//! outlast. It carries a mark in its environment, by which even those of its descendants are
//! found that left the group.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid, setsid};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The variable that carries the mark.
pub const MARK: &str = "OUTLAST_CALL";

/// How long what a command left behind has to end by itself.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

/// How long a search for escaped processes is waited for.
const HUNT_MAX: Duration = Duration::from_millis(500);

/// The longest environment that is searched for a mark, in bytes.
const ENVIRON_BYTES_MAX: u64 = 1 << 20;

/// A program to be started, with nothing left to be inherited.
#[derive(Clone, Debug)]
pub struct Job {
    pub program: PathBuf,
    /// What follows the program's name.
    pub arguments: Vec<OsString>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// All of its environment. Of two values for a name the later one counts.
    pub environment: Vec<(OsString, OsString)>,
    /// By what it and all that it starts are found again.
    pub mark: String,
    /// Whether its standard input is ours to write. If not, it is empty.
    pub input: bool,
}

struct Order {
    job: Job,
    reply: oneshot::Sender<io::Result<Running>>,
}

/// How far to look for what a program left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What is still in its process group.
    Group,
    /// Also processes that left the group.
    Escaped,
}

/// A started command. Dropped before its end, it is killed with all that it started.
#[derive(Debug)]
pub struct Running {
    leader: Pid,
    mark: String,
    /// Only there if the job asked for it.
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
    waited_for: bool,
    reaped: Arc<AtomicBool>,
    swept: bool,
}

/// Starts a program.
///
/// # Errors
/// When the system refuses.
pub async fn start(job: Job) -> io::Result<Running> {
    let (reply, started) = oneshot::channel();
    spawner()?
        .send(Order { job, reply })
        .map_err(|_| io::Error::other("the thread that starts commands has ended"))?;
    started.await.map_err(|_| io::Error::other("the thread that starts commands has ended"))?
}

/// The one thread that starts commands. The kernel kills a command when the *thread* that
/// started it ends, so this one never does.
fn spawner() -> io::Result<Sender<Order>> {
    static SPAWNER: Mutex<Option<Sender<Order>>> = Mutex::new(None);
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(orders) = &*spawner {
        return Ok(orders.clone());
    }
    let (orders, inbox) = channel::<Order>();
    std::thread::Builder::new().name("spawner".to_string()).spawn(move || {
        for Order { job, reply } in inbox {
            // If nobody waits any more, the answer is dropped here, which ends the command.
            let _ = reply.send(spawn(&job).map(|child| Running::new(child, job.mark)));
        }
    })?;
    *spawner = Some(orders.clone());
    Ok(orders)
}

fn spawn(job: &Job) -> io::Result<Child> {
    let mut command = Command::new(&job.program);
    command
        .args(&job.arguments)
        .current_dir(&job.cwd)
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .env(MARK, &job.mark)
        .stdin(if job.input { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let parent = nix::unistd::getpid();
    let prepare = move || {
        setsid()?;
        #[cfg(target_os = "linux")]
        {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != parent {
                // outlast died before it could be watched.
                return Err(Errno::ESRCH.into());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `prepare` makes
    // three system calls and neither allocates nor locks.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

impl Running {
    fn new(mut child: Child, mark: String) -> Self {
        Self {
            leader: Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)),
            mark,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            waited_for: false,
            reaped: Arc::new(AtomicBool::new(false)),
            swept: false,
        }
    }

    /// Waits for the leader, and for nobody else. `None` if the system does not tell its status.
    pub fn exit(&mut self) -> impl Future<Output = Option<ExitStatus>> + use<> {
        self.waited_for = true;
        let (leader, reaped) = (self.leader, Arc::clone(&self.reaped));
        let waiting = tokio::task::spawn_blocking(move || {
            let status = wait_for(leader);
            reaped.store(true, Ordering::SeqCst);
            status
        });
        async move { waiting.await.ok().flatten() }
    }

    /// Asks the command and all that it started to end.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends the command and all that it started.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        // The group may be gone already, which is what is wanted.
        let _ = killpg(self.leader, signal);
        let mark = self.mark.clone();
        // Reading another process's environment can block, so nobody waits for it.
        drop(tokio::task::spawn_blocking(move || {
            for escaped in marked(&mark) {
                let _ = kill(escaped, signal);
            }
        }));
    }

    /// Ends what the leader left behind. Says whether there was anything in its group.
    pub async fn sweep(mut self, reach: Reach) -> bool {
        self.swept = true;
        let left = self.sweep_group().await;
        if reach == Reach::Escaped {
            let mark = self.mark.clone();
            let hunt = tokio::task::spawn_blocking(move || kill_marked(&mark));
            // It goes on by itself if it takes longer.
            let _ = tokio::time::timeout(HUNT_MAX, hunt).await;
        }
        left
    }

    async fn sweep_group(&self) -> bool {
        if !self.group_lives() {
            return false;
        }
        let _ = killpg(self.leader, Signal::SIGTERM);
        let end = Instant::now() + LEFTOVER_GRACE;
        while self.group_lives() {
            if Instant::now() >= end {
                let _ = killpg(self.leader, Signal::SIGKILL);
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    fn group_lives(&self) -> bool {
        // As the first process of a container, outlast inherits orphans, and must bury them.
        let group = Pid::from_raw(-self.leader.as_raw());
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(group, Some(WaitPidFlag::WNOHANG))
        {}
        killpg(self.leader, None).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.swept {
            return;
        }
        if self.reaped.load(Ordering::SeqCst) {
            let _ = killpg(self.leader, Signal::SIGKILL);
            return;
        }
        let _ = killpg(self.leader, Signal::SIGKILL);
        let mark = std::mem::take(&mut self.mark);
        let burial = (!self.waited_for).then_some(self.leader);
        // Without a thread to spare, the group's end is all that can be done.
        let _ = std::thread::Builder::new().spawn(move || {
            kill_marked(&mark);
            burial.map(wait_for)
        });
    }
}

fn wait_for(leader: Pid) -> Option<ExitStatus> {
    loop {
        match waitpid(leader, None) {
            Ok(WaitStatus::Exited(_, code)) => return Some(ExitStatus::from_raw(code << 8)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Some(ExitStatus::from_raw(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            // Whoever started outlast had it ignore its children's ends.
            Err(_) => return None,
        }
    }
}

/// Processes whose environment carries `mark`, or a mark that begins with it.
pub fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let own = nix::unistd::getpid();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| *pid != own && carries(*pid, wanted.as_bytes()))
        .collect()
}

fn carries(pid: Pid, wanted: &[u8]) -> bool {
    let mut environ = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ));
    read.is_ok() && environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(wanted))
}

/// Kills every process that carries a mark beginning with `mark`.
pub fn kill_marked(mark: &str) {
    // What is killed may have started another meanwhile: look again until nothing is found.
    for _ in 0..10 {
        let found = marked(mark);
        if found.is_empty() {
            return;
        }
        for process in found {
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}
