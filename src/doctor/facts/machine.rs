//! Reads facts about the process and the kernel: limits, terminals, sandbox.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, Uid, access};

use super::super::DoctorContext;
use crate::process::{Job, LandlockSupport, Supervisor, filters_system_calls};
use crate::secrets::Variables;
use crate::tools::Egress;

/// Limits and properties of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// The usable Landlock ABI version; 0 without Landlock.
    pub landlock: u32,
    /// True if Landlock can restrict every kind of write to files, truncation included.
    pub restricts_files: bool,
    /// True if system calls can be filtered (seccomp).
    pub filters_system_calls: bool,
    /// The reason why commands cannot be restricted to a list of domains. `None`: they can, or
    /// Landlock or seccomp is missing.
    pub no_egress: Option<String>,
    pub limits: ResourceLimits,
    /// True for each of standard input, output and error that is a terminal.
    pub terminals: [bool; 3],
    /// True if this process is process 1 of a container.
    pub is_first: bool,
    pub temporary: TempFolder,
    /// The home folder, if one is set and does not exist.
    pub missing_home: Option<PathBuf>,
    /// The time zone in TZ, if this machine does not know it.
    pub unknown_zone: Option<String>,
}

/// The soft resource limits of the process, as `ulimit` shows them. `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// In bytes.
    pub file_size: Option<u64>,
    pub open_files: Option<u64>,
    /// In bytes.
    pub address_space: Option<u64>,
    pub processor: Option<Duration>,
    /// The processes of this user; the limit does not apply to root.
    pub processes: Option<u64>,
}

/// The folder for temporary files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TempFolder {
    pub path: PathBuf,
    pub problem: Option<TempFolderProblem>,
}

/// A problem of the folder for temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TempFolderProblem {
    Missing,
    Unwritable,
    /// It is mounted `noexec`.
    NoExec,
}

/// Reads the facts from the system.
pub fn read_machine(home: Option<&Path>, variables: &Variables) -> MachineFacts {
    let support = LandlockSupport::probe();
    let filters_system_calls = filters_system_calls();
    let no_egress = (support.abi > 0 && filters_system_calls)
        .then(|| Egress::missing(&Supervisor::default()))
        .flatten()
        .map(|gap| gap.to_string());
    MachineFacts {
        landlock: support.abi,
        restricts_files: support.restricts_files(),
        filters_system_calls,
        no_egress,
        limits: read_limits(),
        terminals: [
            io::stdin().is_terminal(),
            io::stdout().is_terminal(),
            io::stderr().is_terminal(),
        ],
        is_first: std::process::id() == 1,
        temporary: temporary(variables),
        missing_home: home.filter(|home| !home.is_dir()).map(Path::to_path_buf),
        unknown_zone: variables
            .get(OsStr::new("TZ"))
            .filter(|_| TimeZone::try_system().is_err())
            .map(|zone| zone.to_string_lossy().into_owned()),
    }
}

fn read_limits() -> ResourceLimits {
    let limit = |resource| {
        let soft = getrlimit(resource).ok().map(|(soft, _)| soft)?;
        (soft != RLIM_INFINITY).then_some(soft)
    };
    ResourceLimits {
        file_size: limit(Resource::RLIMIT_FSIZE),
        open_files: limit(Resource::RLIMIT_NOFILE),
        address_space: limit(Resource::RLIMIT_AS),
        processor: limit(Resource::RLIMIT_CPU).map(Duration::from_secs),
        processes: limit(Resource::RLIMIT_NPROC).filter(|_| !Uid::effective().is_root()),
    }
}

/// Checks the folder for temporary files.
fn temporary(variables: &Variables) -> TempFolder {
    let named = variables.get(OsStr::new("TMPDIR")).filter(|path| !path.is_empty());
    let path = named.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let runs_nothing =
        || statvfs(&path).is_ok_and(|disk| disk.flags().contains(FsFlags::ST_NOEXEC));
    let problem = if !path.is_dir() {
        Some(TempFolderProblem::Missing)
    } else if access(&path, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        Some(TempFolderProblem::Unwritable)
    } else {
        runs_nothing().then_some(TempFolderProblem::NoExec)
    };
    TempFolder { path, problem }
}

/// Starts a trivial command in the same way as a run. Returns the reason if it failed.
pub async fn start_test_command(context: &DoctorContext) -> Option<String> {
    let supervisor = Supervisor::default();
    let job = Job::shell(":", &context.cwd, []);
    let mut running = match supervisor.start(&job).await {
        Ok(running) => running,
        Err(error) => return Some(error.to_string()),
    };
    let status = running.exit().await;
    running.end_leftovers().await;
    match status {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("/bin/sh ended with {status}")),
        None => Some("the supervisor process was killed".to_owned()),
    }
}
