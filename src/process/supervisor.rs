//! The supervisor process: finds or forks a job init process for each job, and kills whatever is
//! left when outlast is gone.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, dup2_stdin, fork, setsid};

use super::egress::{PROBE_ARGUMENT, run_probe};
use super::job_init;
use super::job_inits::JobInits;
use super::memory_watch::MemoryWatch;
use super::signal_waiter::SignalWaiter;
use super::signals;
use super::tree::{self, ChildChange};
use super::wire::{self, JobReport};

/// The argument that makes this binary a supervisor process. The process id of the parent follows
/// it, for people who read a process list.
pub(super) const SUPERVISOR_ARGUMENT: &str = "__supervisor";

/// The limit for killing what is left. Only processes that hang in the kernel take longer.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The most searches for processes left by a killed job init process, and the pause between two.
const ORPHAN_SEARCHES: u32 = 200;
const ORPHAN_SEARCH_PAUSE: Duration = Duration::from_millis(10);

/// Runs the supervisor process until it is no longer needed, or the probe of a list of domains, if
/// the command line requests one of them. Must be called before anything else: the supervisor
/// forks, so it must stay single-threaded.
pub fn run_supervisor_if_requested() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let (wanted, number) = (arguments.next()?, arguments.next()?);
    if arguments.next().is_some() {
        return None;
    }
    if wanted == PROBE_ARGUMENT {
        return number.to_str().map(run_probe);
    }
    if wanted != SUPERVISOR_ARGUMENT {
        return None;
    }
    // The error cannot be reported: standard error does not belong to the supervisor.
    Some(if run_supervisor().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_supervisor() -> io::Result<()> {
    let line = UnixStream::from(detach_from_parent()?);
    let mut jobs = SupervisedJobs::new()?;
    loop {
        if !jobs.wait(&line) {
            continue;
        }
        let (control, bound) = match receive_job(&line) {
            Ok(Some(job)) => job,
            Ok(None) if jobs.is_replaceable() => break,
            Ok(None) => continue,
            Err(RunEnded) => break,
        };
        let job_init = match jobs.assign(&control) {
            Ok(Assigned::To(job_init)) => job_init,
            Ok(Assigned::ToThis { supervisor }) => {
                // An open copy here would hide the end of the supervisor from outlast, or from
                // another job init process.
                drop((line, jobs));
                return job_init::run_jobs(control, &supervisor);
            }
            Err(error) => {
                let errno = job_init::errno_of(&error);
                job_init::send_report(&control, JobReport::StartFailed(errno));
                if errno == Errno::EMFILE as i32 && jobs.is_replaceable() {
                    break;
                }
                continue;
            }
        };
        if let Some(bound) = bound {
            jobs.memory.add(job_init, bound);
        }
    }
    let report = JobReport::AllEnded(i32::try_from(jobs.end_all()).unwrap_or(i32::MAX));
    job_init::send_report(&line, report);
    Ok(())
}

/// The jobs of a supervisor, with everything that looks after them.
struct SupervisedJobs {
    waiter: SignalWaiter,
    job_inits: JobInits,
    memory: MemoryWatch,
    /// The number of further searches for processes left by a killed job init process.
    searches_left: u32,
}

/// The process that runs a job.
enum Assigned {
    To(Pid),
    /// This process, which was forked for it. Has the socket to the supervisor.
    ToThis {
        supervisor: UnixStream,
    },
}

impl SupervisedJobs {
    fn new() -> io::Result<Self> {
        let (job_inits, memory) = (JobInits::default(), MemoryWatch::default());
        Ok(Self { waiter: SignalWaiter::new()?, job_inits, memory, searches_left: 0 })
    }

    /// Waits for an order of outlast, or for something to do for the jobs, and does that. Returns
    /// true if there is an order.
    fn wait(&mut self, line: &UnixStream) -> bool {
        let search = (self.searches_left > 0).then_some(ORPHAN_SEARCH_PAUSE);
        let limit = search.into_iter().chain(self.memory.wait()).min();
        let has_order = self.waiter.wait_readable(line, limit);
        if reap_children(&mut self.job_inits) {
            self.searches_left = ORPHAN_SEARCHES;
        }
        self.job_inits.update();
        if self.searches_left > 0 {
            let is_over = tree::kill_descendants(&self.job_inits.all()).is_empty();
            self.searches_left = if is_over { 0 } else { self.searches_left - 1 };
        }
        let is_busy = |job_init| self.job_inits.is_busy(job_init);
        if let Some((job_init, taken)) = self.memory.check(is_busy) {
            signals::report_memory_exceeded(job_init, taken);
        }
        has_order
    }

    /// Passes a job to an idle job init process, or forks one for it.
    fn assign(&mut self, control: &UnixStream) -> io::Result<Assigned> {
        if let Some(idle) = self.job_inits.pass_on(control) {
            return Ok(Assigned::To(idle));
        }
        let (socket, supervisor) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        // SAFETY: this process has one thread, so the child may call anything.
        match unsafe { fork() }? {
            ForkResult::Child => Ok(Assigned::ToThis { supervisor }),
            ForkResult::Parent { child } => {
                self.job_inits.add(child, socket);
                Ok(Assigned::To(child))
            }
        }
    }

    /// Returns true if this process can end because it may open no more files: it has no jobs, and
    /// outlast starts another one, which may open more if the limit was raised.
    fn is_replaceable(&self) -> bool {
        self.job_inits.all().is_empty()
    }

    /// Ends all processes below this one. Returns the number of ended processes of jobs.
    fn end_all(&mut self) -> usize {
        self.job_inits.end_idle();
        let ended = tree::kill_until_gone(KILL_LIMIT, &self.waiter, || tree::reap(|_| ()));
        ended.difference(&self.job_inits.all()).count()
    }
}

/// Closes everything that was inherited from outlast except the socket to it, which is returned.
fn detach_from_parent() -> io::Result<OwnedFd> {
    // An inherited pipe would stay open for its reader after outlast has ended.
    let inherited = fs::read_dir("/proc/self/fd").map_or(Vec::new(), |entries| {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        entries.flatten().filter_map(number).filter(|number| *number > 2).collect()
    });
    for descriptor in inherited {
        // One of them belonged to the folder listing, and is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(fs::File::open("/dev/null")?)?;
    // The process may already lead a group, if a shell started it; then it stays there.
    let _ = setsid();
    env::set_current_dir("/")?;
    signals::reset_all_signals()?;
    // Keeps `pkill outlast` from killing the supervisor too.
    prctl::set_name(c"supervisor")?;
    prctl::set_child_subreaper(true)?;
    // A stopped supervisor must continue when outlast ends.
    prctl::set_pdeathsig(Signal::SIGCONT)?;
    Ok(line)
}

/// Reaps children. Returns true if a job init process may have left processes behind.
fn reap_children(job_inits: &mut JobInits) -> bool {
    let mut may_leave_orphans = false;
    tree::reap(|change| match change {
        ChildChange::Ended(child, status) => {
            // A child that is not a job init process is an orphan of one, and may have left orphans
            // itself.
            may_leave_orphans |= !job_inits.remove(child) || status != 0;
        }
        ChildChange::Stopped(child) => {
            // A command can stop its job init process, which is continued therefore.
            let _ = kill(child, Signal::SIGCONT);
        }
    });
    may_leave_orphans
}

/// The run is over, or outlast is gone.
struct RunEnded;

/// Receives the socket of the next job, and its memory limit in bytes. `None` if this process may
/// open no more files: the kernel has closed the socket, which outlast notices.
fn receive_job(line: &UnixStream) -> Result<Option<(UnixStream, Option<u64>)>, RunEnded> {
    let mut order = [0; wire::JOB_BYTES];
    let (count, mut descriptors) = match wire::receive(line, &mut order) {
        Ok(received) => received,
        Err(error) if error.raw_os_error() == Some(Errno::EMFILE as i32) => return Ok(None),
        Err(_) => return Err(RunEnded),
    };
    let [wire::JOB, bound @ ..] = order else { return Err(RunEnded) };
    if count < order.len() {
        return Err(RunEnded);
    }
    let bound = u64::from_le_bytes(bound);
    let control = descriptors.pop().ok_or(RunEnded)?.into();
    Ok(Some((control, Some(bound).filter(|bound| *bound < u64::MAX))))
}
