//! The network of a run whose commands are limited to a list of domains.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::process::{
    EgressTerms, JobEgress, Refusal, RunEgress, SessionEgress, UnixSocketTerms, spawn_detached,
};

use super::super::super::web::SystemResolver;
use super::lists::DomainLists;
use super::outgoing::Outgoing;
use super::relay::Relay;
use super::upstream::ChooseProxy;
use crate::text::listed;

/// The maximum number of hosts that are named to the model.
const HOSTS_NAMED_MAX: usize = 20;

/// Hosts that are reached without a proxy.
const DIRECT_HOSTS: &str = "localhost,127.0.0.1,::1";

/// The user's terms for the network of commands.
#[derive(Clone)]
pub struct EgressOptions {
    pub lists: DomainLists,
    /// True if commands may open loopback ports.
    pub allows_binding: bool,
    /// True if all Unix sockets with a path are open.
    pub allows_all_unix_sockets: bool,
    /// Unix sockets of other programs that commands may use.
    pub unix_sockets: Vec<PathBuf>,
    /// Chooses the proxy through which outlast reaches the network.
    pub proxy: ChooseProxy,
}

impl EgressOptions {
    /// Returns options with these lists, without further permissions and without a proxy.
    pub fn new(lists: DomainLists) -> Self {
        Self {
            lists,
            allows_binding: false,
            allows_all_unix_sockets: false,
            unix_sockets: Vec::new(),
            proxy: Arc::new(|_| None),
        }
    }
}

/// The network of a run. Clones share their state; the relay ends with the last of them and of its
/// jobs.
#[derive(Clone)]
pub struct Egress(Arc<EgressState>);

struct EgressState {
    options: EgressOptions,
    session: SessionEgress,
    /// The relay's side of the network, once the first job started it.
    started: Mutex<Option<Arc<RunEgress>>>,
    /// Set once a trial has shown that this machine can enforce the lists.
    verified: OnceLock<()>,
    end: CancellationToken,
    guard: Arc<DropGuard>,
}

impl Egress {
    /// Creates a network without starting it. Unix sockets that exist now are closed to commands.
    pub fn new(options: EgressOptions) -> Self {
        Self::within(options, SessionEgress::default())
    }

    fn within(options: EgressOptions, session: SessionEgress) -> Self {
        let end = CancellationToken::new();
        let guard = Arc::new(end.clone().drop_guard());
        Self(Arc::new(EgressState {
            options,
            session,
            started: Mutex::default(),
            verified: OnceLock::new(),
            end,
            guard,
        }))
    }

    /// Returns a separate network with these options, behind a proxy, as a part of a session.
    #[must_use]
    pub fn behind(&self, proxy: ChooseProxy, session: &SessionEgress) -> Self {
        Self::within(EgressOptions { proxy, ..self.options().clone() }, session.clone())
    }

    pub(super) fn options(&self) -> &EgressOptions {
        &self.0.options
    }

    pub(super) fn verified(&self) -> &OnceLock<()> {
        &self.0.verified
    }

    pub fn lists(&self) -> &DomainLists {
        &self.0.options.lists
    }

    /// Returns the connections of commands that were refused so far.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.0.started.lock().as_ref().map_or_else(Vec::new, |run| run.refusals.list())
    }

    /// Returns the network of the next job, and starts the relay for the first. `writable` are the
    /// folders in which commands create sockets of their own.
    ///
    /// # Errors
    /// The relay cannot be started, so the job must not start. The next job tries again.
    pub(in super::super) fn job(&self, writable: &[PathBuf]) -> io::Result<JobEgress> {
        let mut started = self.0.started.lock();
        let run = match started.take() {
            Some(run) => run,
            None => self.start_relay(writable)?,
        };
        Ok(JobEgress::new(started.insert(run), &self.0.guard))
    }

    /// Starts the relay in a thread of its own, so that neither it nor the run waits for the other.
    fn start_relay(&self, writable: &[PathBuf]) -> io::Result<Arc<RunEgress>> {
        let options = &self.0.options;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(relay) = listener.local_addr()? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let terms = EgressTerms {
            relay,
            allows_binding: options.allows_binding,
            loopback_ports: options.lists.loopback_ports(),
            unix: UnixSocketTerms {
                allows_all: options.allows_all_unix_sockets,
                listed: options.unix_sockets.clone(),
                writable: writable.to_vec(),
                since: self.0.session.since(),
            },
        };
        let run = Arc::new(RunEgress::new(terms, self.0.session.clone(), variables(relay)));
        let outgoing = Outgoing {
            lists: options.lists.clone(),
            resolver: Arc::new(SystemResolver),
            proxy: Arc::clone(&options.proxy),
        };
        let relay = Arc::new(Relay::new(Arc::clone(&run), outgoing));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let end = self.0.end.clone();
        let registered = {
            let _in_runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listener)
        };
        let listener = match registered {
            Ok(listener) => listener,
            Err(error) => {
                // Dropping a runtime in asynchronous code would panic.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let serve = move || {
            runtime.block_on(relay.serve(listener, end));
            // A lookup that hangs must not keep the process alive.
            runtime.shutdown_background();
        };
        spawn_detached(std::thread::Builder::new().name("relay".to_owned()), serve)?;
        Ok(run)
    }

    /// Lists the hosts briefly, for the model.
    pub(in super::super) fn summary(&self) -> String {
        let lists = self.lists();
        let join = |texts: &[String]| listed(texts, HOSTS_NAMED_MAX);
        match (lists.allowed(), lists.denied()) {
            ([], denied) => format!("all hosts but {}", join(denied)),
            (allowed, []) => join(allowed),
            (allowed, denied) => format!("{}, but not {}", join(allowed), join(denied)),
        }
    }
}

/// The variables that point programs to the relay. The resolver speaks TCP only.
fn variables(relay: SocketAddrV4) -> Vec<(String, String)> {
    let http = format!("http://{relay}");
    let proxies = [
        ("HTTP_PROXY", http.clone()),
        ("HTTPS_PROXY", http),
        // Other protocols, such as FTP, need no proxy, and may not use one that speaks HTTP. An
        // empty value replaces that of outlast's own environment.
        ("ALL_PROXY", String::new()),
        ("NO_PROXY", DIRECT_HOSTS.to_owned()),
    ];
    let lower = proxies.clone().map(|(name, value)| (name.to_lowercase(), value));
    let upper = proxies.map(|(name, value)| (name.to_owned(), value));
    let resolver = ("RES_OPTIONS".to_owned(), "use-vc".to_owned());
    lower.into_iter().chain(upper).chain([resolver]).collect()
}

impl fmt::Debug for Egress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Egress").field("lists", self.lists()).finish_non_exhaustive()
    }
}

impl PartialEq for Egress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Egress {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the summary of a network with so many hosts in each list.
    fn summary(allowed: usize, denied: usize) -> String {
        let hosts = |kind: &str, count: usize| {
            (1..=count).map(|number| format!("{kind}{number}.example")).collect::<Vec<_>>()
        };
        let lists = DomainLists::parse(&hosts("a", allowed), &hosts("d", denied));
        Egress::new(EgressOptions::new(lists.expect("good lists"))).summary()
    }

    #[test]
    fn the_first_twenty_hosts_of_a_list_are_named_and_the_others_counted() {
        assert_eq!(summary(2, 1), "a1.example, a2.example, but not d1.example");
        let twenty = summary(20, 0);
        assert!(twenty.ends_with(", a19.example, a20.example"), "{twenty}");
        assert_eq!(summary(21, 0), format!("{twenty} and 1 more"));
        assert_eq!(summary(32, 0), format!("{twenty} and 12 more"));
        assert_eq!(summary(0, 21), format!("{} and 1 more", summary(0, 20)));
    }
}
