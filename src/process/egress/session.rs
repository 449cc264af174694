//! The part of a network that several runs share: in a session driven by a host, later turns keep
//! the background commands of earlier ones, and their ports and sockets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use nix::sys::resource::{Resource, getrlimit};
use tokio::sync::Semaphore;

use super::local_ports::LocalPorts;
use super::refusal::search_domains;

/// The most duplicates of sockets, and the most connections that the relay serves at a time.
const KEPT_MAX: usize = 1024;
const CONNECTIONS_MAX: usize = 256;

/// The divisors of the limit on open files: a quarter of the files is for duplicates, and a quarter
/// for connections, which take two files each. The rest is for other purposes.
const KEPT_SHARE: usize = 4;
const CONNECTIONS_SHARE: usize = 8;

/// The part of a network that the runs of a session share. Clones share their state.
#[derive(Clone, Debug)]
pub struct SessionEgress(Arc<SessionState>);

#[derive(Debug)]
struct SessionState {
    since: SystemTime,
    ports: LocalPorts,
    jobs: AtomicU64,
    limits: SocketLimits,
    /// The domains that resolvers append to names.
    search: OnceLock<Arc<[String]>>,
}

impl SessionEgress {
    /// The time at which the session began. Unix sockets that are older belong to other programs.
    pub fn since(&self) -> SystemTime {
        self.0.since
    }

    pub(super) fn ports(&self) -> &LocalPorts {
        &self.0.ports
    }

    pub(super) fn limits(&self) -> &SocketLimits {
        &self.0.limits
    }

    pub(super) fn search(&self) -> &Arc<[String]> {
        // Most sessions do not limit the network of commands.
        self.0.search.get_or_init(|| {
            let resolver = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            search_domains(&resolver).into()
        })
    }

    /// Returns a number that no other job of the session has.
    pub(super) fn next_job(&self) -> u64 {
        self.0.jobs.fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for SessionEgress {
    fn default() -> Self {
        let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((KEPT_MAX as u64, 0));
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        Self(Arc::new(SessionState {
            since: SystemTime::now(),
            ports: LocalPorts::default(),
            jobs: AtomicU64::new(0),
            limits: SocketLimits::of_files(files),
            search: OnceLock::new(),
        }))
    }
}

/// The limits of sockets that all jobs together may have open in outlast. They share the
/// descriptors of its process.
#[derive(Debug)]
pub(super) struct SocketLimits {
    /// Duplicates of sockets that are neither connected nor listening.
    pub(super) kept: Arc<Semaphore>,
    /// Connections that the relay serves.
    pub(super) connections: Arc<Semaphore>,
}

impl SocketLimits {
    /// The limits for a process that may open this many files.
    fn of_files(files: usize) -> Self {
        let limit = |share: usize, most: usize| Arc::new(Semaphore::new((files / share).min(most)));
        Self {
            kept: limit(KEPT_SHARE, KEPT_MAX),
            connections: limit(CONNECTIONS_SHARE, CONNECTIONS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_together_take_at_most_half_of_the_files() {
        for (files, kept, connections) in [
            (64, 16, 8),
            (1024, 256, 128),
            (2048, 512, 256),
            (4096, 1024, 256),
            (usize::MAX, 1024, 256),
        ] {
            let limits = SocketLimits::of_files(files);
            let found = (limits.kept.available_permits(), limits.connections.available_permits());
            assert_eq!(found, (kept, connections), "{files}");
            assert!(kept + 2 * connections <= files / 2, "{files}");
        }
    }
}
