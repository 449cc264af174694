//! The network of a run as the notifier needs it: its rules, its jobs, and the register of their
//! connections to the relay: source address → target.
//!
//! Only registered connections are served, so addresses of the proxy hold no secret, and other
//! programs of the machine get nothing from the relay.

use std::collections::HashMap;
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::local_ports::LocalPorts;
use super::refusal::{Refusal, RefusalLog};

/// How many connections of a job the relay serves at a time.
const CONNECTIONS_MAX: usize = 256;

/// What sockets of commands may reach beside the relay.
#[derive(Clone, Debug)]
pub struct EgressTerms {
    /// Where the relay listens.
    pub relay: SocketAddrV4,
    /// Whether commands may open loopback ports.
    pub allows_binding: bool,
    /// Loopback ports of other programs that commands may reach.
    pub loopback_ports: Vec<u16>,
    pub unix: UnixSocketTerms,
}

/// The Unix sockets that commands may connect to.
#[derive(Clone, Debug)]
pub struct UnixSocketTerms {
    /// Whether all that have a path are open.
    pub allows_all: bool,
    pub listed: Vec<PathBuf>,
    /// Folders in which commands make sockets of their own.
    pub writable: Vec<PathBuf>,
    /// Sockets that are older than the run belong to other programs.
    pub since: SystemTime,
}

/// The network of a run: its terms, and what its jobs share.
#[derive(Debug)]
pub struct RunEgress {
    pub terms: EgressTerms,
    pub register: ConnectionRegister,
    pub refusals: RefusalLog,
    pub(super) ports: LocalPorts,
    jobs: AtomicU64,
    /// Variables that point programs to the relay.
    variables: Vec<(String, String)>,
}

impl RunEgress {
    pub fn new(terms: EgressTerms, variables: Vec<(String, String)>) -> Self {
        Self {
            terms,
            register: ConnectionRegister::default(),
            refusals: RefusalLog::default(),
            ports: LocalPorts::default(),
            jobs: AtomicU64::new(0),
            variables,
        }
    }
}

/// The network of one job. Clones share their state.
#[derive(Clone)]
pub struct JobEgress(Arc<JobState>);

struct JobState {
    run: Arc<RunEgress>,
    number: u64,
    refusals: RefusalLog,
    open: AtomicUsize,
}

/// Counts as an open connection of a job until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(JobEgress);

impl JobEgress {
    pub fn new(run: &Arc<RunEgress>) -> Self {
        Self(Arc::new(JobState {
            run: Arc::clone(run),
            number: run.jobs.fetch_add(1, Ordering::Relaxed),
            refusals: RefusalLog::default(),
            open: AtomicUsize::new(0),
        }))
    }

    pub fn run(&self) -> &RunEgress {
        &self.0.run
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// The variables that point programs of the job to the relay.
    pub fn variables(&self) -> &[(String, String)] {
        &self.0.run.variables
    }

    /// Records a refusal for the job and for the run.
    pub fn refuse(&self, refusal: Refusal) {
        self.0.run.refusals.record(refusal.clone());
        self.0.refusals.record(refusal);
    }

    /// The refused connections of the job.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.0.refusals.list()
    }

    /// Counts one more open connection. `None`: there are too many.
    pub fn open_connection(&self) -> Option<ConnectionPermit> {
        let permit = ConnectionPermit(self.clone());
        let before = self.0.open.fetch_add(1, Ordering::Relaxed);
        (before < CONNECTIONS_MAX).then_some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for JobEgress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("JobEgress").field(&self.0.number).finish()
    }
}

impl PartialEq for JobEgress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for JobEgress {}

/// What a command connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionTarget {
    /// The relay itself, as an HTTP or SOCKS proxy.
    Proxy,
    /// A resolver.
    Resolver,
    /// An address, perhaps one that the resolver made up for a name.
    Address(SocketAddr),
}

/// A connection of a job to the relay.
#[derive(Clone, Debug)]
pub struct RegisteredConnection {
    pub target: ConnectionTarget,
    pub job: JobEgress,
}

#[derive(Debug, Default)]
pub struct ConnectionRegister(Mutex<HashMap<SocketAddr, RegisteredConnection>>);

impl ConnectionRegister {
    pub(super) fn add(&self, source: SocketAddr, connection: RegisteredConnection) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(source, connection);
    }

    /// Takes the entry of an accepted connection. `None`: it is not of this run.
    pub fn take(&self, source: SocketAddr) -> Option<RegisteredConnection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&source)
    }

    pub(super) fn remove_job(&self, job: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, connection| connection.job.number() != job);
    }
}
