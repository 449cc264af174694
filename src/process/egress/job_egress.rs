//! The network of a run as the notifier needs it: its rules, its jobs, and the register of their
//! connections to the relay: source address → target.
//!
//! Only registered connections are served, so the address of the proxy need not be secret: other
//! programs of the machine cannot use the relay.

use std::collections::HashMap;
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::refusal::{Refusal, RefusalLog};
use super::session::SessionEgress;

/// The terms for sockets of commands, and the address of the relay.
#[derive(Clone, Debug)]
pub struct EgressTerms {
    /// The address of the relay.
    pub relay: SocketAddrV4,
    /// True if commands may open loopback ports.
    pub allows_binding: bool,
    /// Loopback ports of other programs that commands may reach.
    pub loopback_ports: Vec<u16>,
    pub unix: UnixSocketTerms,
}

/// The Unix sockets that commands may connect to.
#[derive(Clone, Debug)]
pub struct UnixSocketTerms {
    /// True if commands may connect to every socket that has a path.
    pub allows_all: bool,
    pub listed: Vec<PathBuf>,
    /// Folders in which commands create sockets of their own.
    pub writable: Vec<PathBuf>,
    /// Sockets that are older belong to other programs.
    pub since: SystemTime,
}

/// The network of a run: its terms, and the state that its jobs share.
#[derive(Debug)]
pub struct RunEgress {
    pub terms: EgressTerms,
    pub register: ConnectionRegister,
    pub refusals: RefusalLog,
    pub(super) session: SessionEgress,
    /// Variables that point programs to the relay.
    variables: Vec<(String, String)>,
}

impl RunEgress {
    pub fn new(
        terms: EgressTerms,
        session: SessionEgress,
        variables: Vec<(String, String)>,
    ) -> Self {
        Self {
            terms,
            register: ConnectionRegister::default(),
            refusals: RefusalLog::new(session.search()),
            session,
            variables,
        }
    }
}

#[cfg(test)]
impl RunEgress {
    /// The network of a test: only this relay can be reached.
    pub(crate) fn closed(relay: SocketAddrV4, session: &SessionEgress) -> Arc<Self> {
        let terms = EgressTerms::closed(relay, session.since());
        Arc::new(Self::new(terms, session.clone(), Vec::new()))
    }
}

#[cfg(test)]
impl EgressTerms {
    pub(super) fn closed(relay: SocketAddrV4, since: SystemTime) -> Self {
        let (listed, writable) = (Vec::new(), Vec::new());
        let unix = UnixSocketTerms { allows_all: false, listed, writable, since };
        Self { relay, allows_binding: false, loopback_ports: Vec::new(), unix }
    }
}

/// The network of one job. Clones share their state.
#[derive(Clone)]
pub struct JobEgress(Arc<JobState>);

struct JobState {
    run: Arc<RunEgress>,
    number: u64,
    refusals: RefusalLog,
    ended: CancellationToken,
    /// Keeps the relay running: a background command may outlive its run.
    _relay: Arc<DropGuard>,
}

impl JobEgress {
    /// The network of the next job of a run. `relay` ends the relay when the last clone is dropped.
    pub fn new(run: &Arc<RunEgress>, relay: &Arc<DropGuard>) -> Self {
        Self(Arc::new(JobState {
            run: Arc::clone(run),
            number: run.session.next_job(),
            refusals: RefusalLog::new(run.session.search()),
            ended: CancellationToken::new(),
            _relay: Arc::clone(relay),
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

    /// Counts one more open connection, until the permit is dropped. `None` if there are too many.
    pub fn open_connection(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.run.session.limits().connections).try_acquire_owned().ok()
    }

    /// Records that all processes of the job have ended.
    pub fn end(&self) {
        self.0.run.register.remove_job(self.0.number);
        self.0.run.session.ports().remove_job(self.0.number);
        self.0.ended.cancel();
    }

    /// Waits until all processes of the job have ended.
    pub async fn ended(&self) {
        self.0.ended.cancelled().await;
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

/// The target of a connection to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionTarget {
    /// The relay itself, as an HTTP proxy.
    Proxy,
    /// A resolver.
    Resolver,
    /// An address, which the resolver may have assigned to a name.
    Address(SocketAddr),
}

/// A connection of a job to the relay.
#[derive(Clone, Debug)]
pub struct RegisteredConnection {
    pub target: ConnectionTarget,
    pub job: JobEgress,
}

/// The connections to the relay that were not accepted yet, by source address.
#[derive(Debug, Default)]
pub struct ConnectionRegister(Mutex<HashMap<SocketAddr, RegisteredConnection>>);

impl ConnectionRegister {
    pub fn add(&self, source: SocketAddr, connection: RegisteredConnection) {
        self.0.lock().insert(source, connection);
    }

    /// Takes the entry of an accepted connection. `None` if it does not belong to this run.
    pub fn take(&self, source: SocketAddr) -> Option<RegisteredConnection> {
        self.0.lock().remove(&source)
    }

    fn remove_job(&self, job: u64) {
        let mut known = self.0.lock();
        known.retain(|_, connection| connection.job.number() != job);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn run(session: &SessionEgress) -> Arc<RunEgress> {
        RunEgress::closed(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), session)
    }

    #[test]
    fn jobs_of_all_runs_of_a_session_share_its_limits_and_have_unique_numbers() {
        let session = SessionEgress::default();
        let relay = Arc::new(CancellationToken::new().drop_guard());
        let job = || JobEgress::new(&run(&session), &relay);
        let (one, other) = (job(), job());
        assert_ne!(one.number(), other.number());
        let mut permits: Vec<_> = std::iter::from_fn(|| one.open_connection()).collect();
        assert!(other.open_connection().is_none(), "{} are open", permits.len());
        permits.pop();
        assert!(other.open_connection().is_some());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 3000));
        session.ports().add(address, one.number());
        other.end();
        assert_eq!(session.ports().find(address), Some(address));
        one.end();
        assert_eq!(session.ports().find(address), None);
    }

    #[test]
    fn a_job_keeps_the_relay_of_its_run() {
        let end = CancellationToken::new();
        let relay = Arc::new(end.clone().drop_guard());
        let job = JobEgress::new(&run(&SessionEgress::default()), &relay);
        drop(relay);
        assert!(!end.is_cancelled());
        drop(job);
        assert!(end.is_cancelled());
    }
}
