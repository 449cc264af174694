//! The job init processes of a supervisor: those that run a job, and idle ones for further jobs.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::wire;

/// The most idle processes that are kept.
const IDLE_MAX: usize = 2;

/// Job init processes, with the sockets to them.
#[derive(Debug, Default)]
pub(super) struct JobInits {
    busy: HashMap<Pid, UnixStream>,
    idle: Vec<(Pid, UnixStream)>,
}

impl JobInits {
    /// Adds a process that runs a job. `socket` does not block.
    pub(super) fn add(&mut self, job_init: Pid, socket: UnixStream) {
        self.busy.insert(job_init, socket);
    }

    /// Removes a process that has ended. Returns false if it is unknown.
    pub(super) fn remove(&mut self, job_init: Pid) -> bool {
        let count = self.idle.len();
        self.idle.retain(|(idle, _)| *idle != job_init);
        self.busy.remove(&job_init).is_some() || self.idle.len() < count
    }

    /// All processes.
    pub(super) fn all(&self) -> HashSet<Pid> {
        self.busy.keys().copied().chain(self.idle.iter().map(|(idle, _)| *idle)).collect()
    }

    /// Finds out which processes have become idle, and ends the surplus ones.
    pub(super) fn update(&mut self) {
        let idle = self.busy.extract_if(|_, socket| {
            let mut report = [0];
            socket.read_exact(&mut report).is_ok() && report == [wire::IDLE]
        });
        self.idle.extend(idle);
        // A process without its socket ends. Until then it is spared, like a busy one.
        for (surplus, socket) in self.idle.drain(IDLE_MAX.min(self.idle.len())..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            self.busy.insert(surplus, socket);
        }
    }

    /// Passes the socket of a job to an idle process, which then runs it. `None` if there is none.
    pub(super) fn pass_on(&mut self, control: &UnixStream) -> Option<Pid> {
        loop {
            let (job_init, socket) = self.idle.pop()?;
            let sent = wire::send(&socket, &[wire::JOB], &[control.as_fd()]);
            // A process that was killed is reaped later.
            self.busy.insert(job_init, socket);
            if sent.is_ok() {
                return Some(job_init);
            }
        }
    }

    /// Returns true if this process runs a job.
    pub(super) fn is_busy(&self, job_init: Pid) -> bool {
        self.busy.contains_key(&job_init)
    }

    /// Ends the idle processes: they have no descendants.
    pub(super) fn end_idle(&mut self) {
        self.update();
        for (job_init, _) in self.idle.drain(..) {
            let _ = kill(job_init, Signal::SIGKILL);
            let _ = waitpid(job_init, None);
        }
    }
}
