//! Tests whether the kernel of this machine can limit commands to a list of domains.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use crate::process::{
    CallFilter, Job, LandlockPolicy, NetworkAccess, PROBE_ARGUMENT, ProbeResult, RootCapabilities,
    Supervisor, timeout_while_running,
};

use super::super::path_grants::grant_reading;
use super::egress::{Egress, EgressOptions};
use super::lists::DomainLists;

/// The reason that this machine cannot limit commands to lists of domains.
#[derive(Debug, thiserror::Error)]
pub enum EgressGap {
    #[error("outlast may open too few files (ulimit -n)")]
    TooFewFiles,
    #[error(
        "{failure}; the kernel is Linux {}, and it takes 5.14 or later (5.19 for programs in \
             Go), with Landlock and seccomp, on x86-64 or aarch64",
        kernel_release()
    )]
    Kernel {
        #[source]
        failure: ProbeFailure,
    },
}

/// The reason that a trial did not show that commands can be limited.
#[derive(Debug, thiserror::Error)]
pub enum ProbeFailure {
    #[error(
        "the memory or the descriptors of commands cannot be read (Yama, gVisor or another \
             sandbox forbids it), or outlast may open too few files (ulimit -n)"
    )]
    NoRelay,
    #[error("ports of other programs are reached")]
    ReachesOthers,
    #[error("sockets are made without notification")]
    MakesOthers,
    #[error("the trial did not end as it should")]
    NoResult,
    #[error("another program already decides system calls here (EBUSY)")]
    FilteredByOthers,
    #[error("seccomp user notification is not available ({0})")]
    NoNotification(#[source] io::Error),
}

fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// The maximum time of the trial, on an overloaded machine.
const PROBE_MAX: Duration = Duration::from_secs(20);

impl Egress {
    /// Checks that this machine can limit commands to the lists. Blocks for some milliseconds.
    ///
    /// # Errors
    /// The missing feature. The cause may be temporary, so the next call tries again.
    pub(in super::super) fn verify(&self, supervisor: &Supervisor) -> Result<(), EgressGap> {
        if self.verified().get().is_none() {
            probe(supervisor, self, PROBE_MAX)?;
            // Another thread may have set it.
            let _ = self.verified().set(());
        }
        Ok(())
    }

    /// Returns the missing feature for which this machine cannot limit commands to lists of
    /// domains. Blocks.
    pub fn missing(supervisor: &Supervisor) -> Option<EgressGap> {
        Self::missing_within(supervisor, PROBE_MAX)
    }

    /// Like [`Self::missing`], with another limit for the trial.
    pub fn missing_within(supervisor: &Supervisor, limit: Duration) -> Option<EgressGap> {
        let egress = Self::new(EgressOptions::new(DomainLists::default()));
        probe(supervisor, &egress, limit).err()
    }
}

/// Runs the trial in a child of the supervisor. Blocks for some milliseconds, and for `limit` if
/// the child hangs.
fn probe(supervisor: &Supervisor, egress: &Egress, limit: Duration) -> Result<(), EgressGap> {
    let trial = || -> io::Result<Option<ProbeResult>> {
        // A separate network, so that refused connections of the trial are not counted for the run.
        let egress = Egress::new(egress.options().clone());
        let other = TcpListener::bind("127.0.0.1:0")?;
        let port = other.local_addr()?.port();
        let job = Job {
            landlock: Some(LandlockPolicy {
                rules: grant_reading(Path::new("/")).into(),
                network: NetworkAccess::Listed,
                calls: CallFilter::Commands,
                egress: Some(egress.job(&[])?),
                capabilities: RootCapabilities::Files,
            }),
            ..Job::new(supervisor.binary()?, [PROBE_ARGUMENT, &port.to_string()], "/", [])
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut running = supervisor.start(&job).await?;
            let status = timeout_while_running(limit, running.exit()).await;
            Ok(status.flatten().and_then(|status| ProbeResult::of_exit_code(status.code()?)))
        })
    };
    // In a thread, since a runtime cannot be started within another one.
    let tried = std::thread::scope(|scope| scope.spawn(trial).join());
    let failure = match tried.unwrap_or(Ok(None)) {
        Ok(Some(ProbeResult::Holds)) => return Ok(()),
        Ok(Some(ProbeResult::NoRelay)) => ProbeFailure::NoRelay,
        Ok(Some(ProbeResult::ReachesOthers)) => ProbeFailure::ReachesOthers,
        Ok(Some(ProbeResult::MakesOthers)) => ProbeFailure::MakesOthers,
        Ok(None) => ProbeFailure::NoResult,
        Err(error) if error.raw_os_error() == Some(EMFILE) => return Err(EgressGap::TooFewFiles),
        Err(error) if error.raw_os_error() == Some(EBUSY) => ProbeFailure::FilteredByOthers,
        Err(error) => ProbeFailure::NoNotification(error),
    };
    Err(EgressGap::Kernel { failure })
}

const EBUSY: i32 = nix::errno::Errno::EBUSY as i32;
const EMFILE: i32 = nix::errno::Errno::EMFILE as i32;
