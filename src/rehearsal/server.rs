//! The fake model server: real HTTP on loopback, for rehearsals and tests.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::response_sender::TimeScale;
use super::scenario::{MAIN, Scenario, ServerPart};
use super::script::{ReceivedRequest, RequestRetention, ScriptState};
use super::serve::accept;
use super::shared_state::SharedState;
use super::token_grants::TokenGrants;

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// 0 selects any free port.
    pub port: u16,
    /// Overrides the scenario's time scale.
    pub time_scale: Option<f64>,
    /// The value of `${cwd}`.
    pub cwd: Option<PathBuf>,
    /// The kept part of each request.
    pub retention: RequestRetention,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct RehearsalServer {
    scenario: Arc<Scenario>,
    address: SocketAddr,
    shared: Arc<SharedState>,
    accepting: JoinHandle<()>,
    /// The scenario's further servers, if this is the main one.
    others: BTreeMap<String, Self>,
}

impl RehearsalServer {
    /// Listens on 127.0.0.1, once for each server of the scenario. Must be called on a tokio
    /// runtime.
    ///
    /// # Errors
    /// The port is in use.
    pub fn start(scenario: Scenario, options: ServerOptions) -> io::Result<Self> {
        let scenario = Arc::new(scenario);
        let mut main = Self::listen(&scenario, scenario.main.clone(), &options)?;
        let any_port = ServerOptions { port: 0, ..options };
        for (name, part) in &scenario.servers {
            let other = Self::listen(&scenario, part.clone(), &any_port)?;
            main.others.insert(name.clone(), other);
        }
        Ok(main)
    }

    fn listen(
        scenario: &Arc<Scenario>,
        part: ServerPart,
        options: &ServerOptions,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let cwd = options.cwd.as_ref().map(|cwd| cwd.display().to_string()).unwrap_or_default();
        let time_scale = TimeScale(options.time_scale.unwrap_or(scenario.time_scale).max(0.001));
        let shared = Arc::new(SharedState::new(part, time_scale, cwd, options.retention));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        let (scenario, others) = (Arc::clone(scenario), BTreeMap::new());
        Ok(Self { scenario, address, shared, accepting, others })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The value for `ANTHROPIC_BASE_URL`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The scenario that it plays.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// A further server of the scenario, by its name.
    pub fn other(&self, name: &str) -> Option<&Self> {
        self.others.get(name)
    }

    /// All further servers.
    pub fn others(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.others.iter().map(|(name, server)| (name.as_str(), server))
    }

    /// Replaces `{server.NAME.url}` by the servers' URLs; `main` is this server.
    pub fn fill_in_urls(&self, text: &str) -> String {
        let servers = self.others().chain([(MAIN, self)]);
        servers.fold(text.to_owned(), |text, (name, server)| {
            text.replace(&format!("{{server.{name}.url}}"), &server.base_url())
        })
    }

    /// Like `fill_in_urls`, and also replaces `${cwd}`.
    pub fn fill_in(&self, text: &str) -> String {
        self.fill_in_urls(text).replace("${cwd}", &self.shared.cwd)
    }

    /// Every request for a reply so far, including refused ones.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.script.lock().recorded.clone()
    }

    /// The number of capacity probes. They do not count as requests and do not advance the script.
    pub fn probes(&self) -> usize {
        self.shared.script.lock().probes
    }

    /// The number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.shared.script.lock().accepted
    }

    /// The counters of its access tokens.
    pub fn grants(&self) -> TokenGrants {
        self.shared.script.lock().grants
    }

    /// All requests that the real service would refuse or that came after the end of the script.
    /// Violations of further servers are prefixed with their name.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = self.shared.script.lock().violations.clone();
        for (name, server) in &self.others {
            let others = server.violations().into_iter();
            violations.extend(others.map(|violation| format!("{name}: {violation}")));
        }
        violations
    }

    /// The number of scripted answers that were not requested, including further servers.
    pub fn unrequested_answers(&self) -> usize {
        let own = self.shared.script.lock().unrequested_answers(&self.shared.part);
        own + self.others.values().map(Self::unrequested_answers).sum::<usize>()
    }

    /// Waits until `count` requests have arrived, and returns the last one. The caller must set a
    /// timeout.
    pub async fn wait_for_request(&self, count: usize) -> ReceivedRequest {
        self.wait_for(|script| script.recorded.get(count.max(1) - 1).cloned()).await
    }

    /// Waits until the client disconnects during the answer to the request with this number,
    /// counted from 1.
    pub async fn wait_for_abort(&self, number: usize) -> ReceivedRequest {
        self.wait_for(|script| {
            let request = script.recorded.get(number.max(1) - 1);
            request.filter(|request| request.aborted_by_client).cloned()
        })
        .await
    }

    async fn wait_for<T>(&self, look: impl Fn(&ScriptState) -> Option<T>) -> T {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let found = look(&self.shared.script.lock());
            if let Some(found) = found {
                return found;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Stops listening and drops every connection.
    pub async fn shutdown(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
        for other in self.others.values_mut() {
            other.accepting.abort();
            let _ = (&mut other.accepting).await;
        }
    }
}

impl Drop for RehearsalServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
