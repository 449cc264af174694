//! The model server: real HTTP on loopback, for rehearsals and for tests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::play::Tempo;
use super::scenario::Scenario;
use super::script::{Recorded, Script};
use super::stage::{Stage, accept};

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// 0 takes any free port.
    pub port: u16,
    /// In place of the scenario's own.
    pub time_scale: Option<f64>,
    /// What `${cwd}` stands for.
    pub cwd: Option<PathBuf>,
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stage: Arc<Stage>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Starts to listen on 127.0.0.1. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn start(scenario: Scenario, options: Options) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let cwd = options.cwd.map(|cwd| cwd.display().to_string()).unwrap_or_default();
        let tempo = Tempo(options.time_scale.unwrap_or(scenario.time_scale).max(0.001));
        let stage = Arc::new(Stage::new(scenario, tempo, cwd));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&stage)));
        Ok(Self { address, stage, accepting })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What `ANTHROPIC_BASE_URL` should say.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn scenario(&self) -> &Scenario {
        &self.stage.scenario
    }

    /// Every request for a reply so far, refused ones included.
    pub fn requests(&self) -> Vec<Recorded> {
        self.stage.script().recorded.clone()
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.stage.script().accepted
    }

    /// What the real service would have refused, and requests beyond the script's end.
    pub fn violations(&self) -> Vec<String> {
        self.stage.script().violations.clone()
    }

    /// How many answers of the script were never asked for.
    pub fn unplayed(&self) -> usize {
        self.stage.script().unplayed(&self.stage.scenario)
    }

    /// Waits until `count` requests have come, and returns the last of them. Says nothing about
    /// how long that takes: whoever waits sets a bound.
    pub async fn wait_for_request(&self, count: usize) -> Recorded {
        self.wait_for(|script| script.recorded.get(count.max(1) - 1).cloned()).await
    }

    /// Waits until the client has left during the answer to the request of this number, counted
    /// from 1.
    pub async fn wait_for_abort(&self, number: usize) -> Recorded {
        self.wait_for(|script| {
            let request = script.recorded.get(number.max(1) - 1);
            request.filter(|request| request.aborted_by_client).cloned()
        })
        .await
    }

    async fn wait_for<T>(&self, look: impl Fn(&Script) -> Option<T>) -> T {
        let mut news = self.stage.news.subscribe();
        loop {
            let found = look(&self.stage.script());
            if let Some(found) = found {
                return found;
            }
            // The sender lives as long as `self`.
            let _ = news.changed().await;
        }
    }

    /// Stops listening and drops every connection.
    pub async fn shutdown(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
