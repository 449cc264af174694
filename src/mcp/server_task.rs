//! The task of one server: it keeps the server connected.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::process::timeout_while_running;

use super::call_error::CallError;
use super::config::{ServerAddress, ServerConfig};
use super::connection::{self, Connection, ConnectionHandle, Listing};
use super::environment::{McpTimers, ServerEnvironment};
use super::handshake::ServerInfo;
use super::prompts::{RemotePrompt, convert_prompts};
use super::remote_tool::{RemoteTool, convert_tools};
use super::request_headers::has_valid_headers;
use super::sanitize::sanitize_start;
use super::state::{ConnectionLoss, ConnectionUse, ReconnectBackoff, ServerReport, ServerStatus};

/// The shortest interval between two listings of a server's tools.
const LISTING_PAUSE: Duration = Duration::from_secs(1);

/// The longest time for which the list of a server's prompts may delay its tools.
const PROMPTS_MAX: Duration = Duration::from_secs(5);

/// The most warnings about a server's tools.
const TOOL_WARNINGS_MAX: usize = 100;

/// One server of a run.
pub(super) struct ServerTask {
    pub(super) config: ServerConfig,
    /// Ends the task.
    pub(super) stop: CancellationToken,
    state: watch::Sender<ServerState>,
    /// A call timed out, so the connection must be checked.
    check_requested: Notify,
    /// The loss that a call detected: an expired session, or a required login.
    loss: Mutex<Option<ConnectionLoss>>,
    lost: Notify,
    pub(super) reconnects: AtomicU32,
    /// The epoch of the last connection that has answered a call.
    answered: AtomicU64,
    warnings: Mutex<Vec<String>>,
    /// Warnings already given about its tools, so that a new listing does not repeat them.
    tool_warnings: Mutex<HashSet<String>>,
}

/// The current state of a server.
#[derive(Clone)]
pub(super) struct ServerState {
    pub(super) status: ServerStatus,
    pub(super) why: Option<String>,
    /// True if the first attempt to connect is over.
    pub(super) attempted: bool,
    pub(super) connection: Option<ConnectionHandle>,
    /// Counts connections. A late failure of a call must not affect a later connection.
    pub(super) epoch: u64,
    /// The tools as last listed, also while it is disconnected.
    pub(super) tools: Arc<Vec<Arc<RemoteTool>>>,
    /// The prompts as last listed.
    pub(super) prompts: Arc<Vec<RemotePrompt>>,
    /// The number of announced tool changes of the current connection that the list covers.
    pub(super) listed_changes: u64,
    /// The last handshake information.
    pub(super) about: Arc<ServerInfo>,
}

impl ServerTask {
    pub(super) fn new(config: ServerConfig, stop: CancellationToken) -> Self {
        let status = if config.disabled { ServerStatus::Disabled } else { ServerStatus::Pending };
        let state = ServerState {
            status,
            why: None,
            attempted: config.disabled,
            connection: None,
            epoch: 0,
            tools: Arc::default(),
            prompts: Arc::default(),
            listed_changes: 0,
            about: Arc::default(),
        };
        Self {
            config,
            stop,
            state: watch::Sender::new(state),
            check_requested: Notify::new(),
            loss: Mutex::default(),
            lost: Notify::new(),
            reconnects: AtomicU32::new(0),
            answered: AtomicU64::new(0),
            warnings: Mutex::default(),
            tool_warnings: Mutex::default(),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    /// The tools of the current or last connection.
    pub(super) fn tools(&self) -> Arc<Vec<Arc<RemoteTool>>> {
        Arc::clone(&self.state.borrow().tools)
    }

    /// The prompts of the current or last connection.
    pub(super) fn prompts(&self) -> Arc<Vec<RemotePrompt>> {
        Arc::clone(&self.state.borrow().prompts)
    }

    /// The handshake information of the current or last connection.
    pub(super) fn about(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.state.borrow().about)
    }

    pub(super) fn report(&self) -> ServerReport {
        let state = self.state.borrow();
        let (name, status) = (self.config.name.clone(), state.status);
        let why = state.why.clone().filter(|_| status != ServerStatus::Connected);
        ServerReport { name, status, why, identity: state.about.identity.clone() }
    }

    /// Passes a message that a server in the host has sent on its own to its connection. Returns
    /// true if it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        self.state.borrow().connection.as_ref().is_some_and(|wire| wire.deliver(message))
    }

    /// Time limit of a call without progress.
    pub(super) fn call_limit(&self, timers: McpTimers) -> Duration {
        self.config.timeout.unwrap_or(timers.call)
    }

    /// True while a question of the server is waiting for the host's answer.
    pub(super) fn is_asking_host(&self) -> bool {
        self.state.borrow().connection.as_ref().is_some_and(ConnectionHandle::is_asking_host)
    }

    /// Takes the pending warnings about it.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }

    pub(super) fn warn(&self, what: &str) {
        let line = format!("MCP server {:?}: {what}", self.config.name);
        let mut warnings = self.warnings.lock();
        // Repeated warnings are kept once.
        if !warnings.contains(&line) && warnings.len() < 100 {
            warnings.push(line);
        }
    }

    /// Adds a warning about one of the server's tools, once.
    pub(super) fn warn_once(&self, what: &str) {
        let mut known = self.tool_warnings.lock();
        if known.len() < TOOL_WARNINGS_MAX && known.insert(what.to_owned()) {
            self.warn(what);
        }
    }

    /// Waits until the list of tools covers every change that the server has announced so far.
    pub(super) async fn wait_for_listing(&self) {
        let mut watch = self.watch();
        let (announced, epoch) = {
            let state = watch.borrow();
            let Some(connection) = &state.connection else { return };
            (connection.tool_changes(), state.epoch)
        };
        let is_over = |state: &ServerState| {
            state.listed_changes >= announced || state.connection.is_none() || state.epoch != epoch
        };
        // A closed channel also ends the wait.
        let _ = watch.wait_for(is_over).await;
    }

    /// Requests a check of the connection, since a call was not answered in time.
    pub(super) fn request_check(&self) {
        self.check_requested.notify_one();
    }

    /// Records that a connection has answered a call.
    pub(super) fn mark_answered(&self, epoch: u64) {
        self.answered.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Marks a connection as unusable, as detected by a call.
    pub(super) fn mark_lost(&self, epoch: u64, loss: ConnectionLoss) {
        // Later calls must not use the same connection.
        let is_change = self.state.send_if_modified(|state| {
            let current = state.epoch == epoch && state.connection.take().is_some();
            if current {
                (state.status, state.why) = if let ConnectionLoss::NeedsAuth(why) = &loss {
                    (ServerStatus::NeedsAuth, Some(why.clone()))
                } else {
                    (ServerStatus::Pending, None)
                };
            }
            current
        });
        if !is_change {
            return;
        }
        *self.loss.lock() = Some(loss);
        self.lost.notify_one();
    }

    /// Runs the server: connects, and reconnects after losses, until it is stopped or the last
    /// attempt has failed.
    pub(super) async fn run(self: Arc<Self>, around: Arc<ServerEnvironment>, timers: McpTimers) {
        let stop = self.stop.clone();
        let mut backoff = ReconnectBackoff::default();
        let mut again = false;
        loop {
            let connecting = self.connect(&around, timers);
            let connected = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                connected = connecting => connected,
            };
            let (loss, held) = match connected {
                Ok(link) => {
                    if std::mem::replace(&mut again, true) {
                        self.reconnects.fetch_add(1, Ordering::Relaxed);
                        self.warn("connected again");
                    }
                    let since = Instant::now();
                    let Some(loss) = self.watch_connection(&link, timers.wait, &stop).await else {
                        link.close(timers.end).await;
                        return;
                    };
                    link.close(timers.end).await;
                    let epoch = self.state.borrow().epoch;
                    let has_answered = self.answered.load(Ordering::Relaxed) == epoch;
                    (loss, ConnectionUse { lasted: since.elapsed(), has_answered })
                }
                Err(loss) => (loss, ConnectionUse::default()),
            };
            let Some(wait) = self.record_loss(loss, backoff_of(&mut backoff, held)) else { return };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Connects and lists the tools.
    async fn connect(
        &self,
        around: &Arc<ServerEnvironment>,
        timers: McpTimers,
    ) -> Result<Connection, ConnectionLoss> {
        let patience = match self.config.place {
            ServerAddress::Program { .. } => timers.start,
            ServerAddress::Http(_) | ServerAddress::Host => timers.wait,
        };
        let answer_max = self.call_limit(timers);
        let link = connection::connect(&self.config, around, patience, answer_max).await?;
        let wire = link.handle();
        let about = wire.server_info();
        let covered = wire.tool_changes();
        let listed = match timeout_while_running(patience, wire.list_tools()).await {
            // A server that declares no tools need not implement `tools/list`.
            Some(Err(CallError::Refused(_))) if !about.has_tools => {
                Some(Ok(Listing { entries: Vec::new(), cut: None }))
            }
            listed => listed,
        };
        let why = match listed {
            Some(Ok(listed)) => {
                self.set_tools(&wire, &listed);
                let prompts =
                    if about.has_prompts { self.list_prompts(&wire).await } else { Vec::new() };
                self.replace_loss(None);
                self.state.send_modify(|state| {
                    (state.about, state.prompts) = (about, Arc::new(prompts));
                    (state.status, state.why) = (ServerStatus::Connected, None);
                    (state.attempted, state.connection) = (true, Some(wire));
                    state.listed_changes = covered;
                    state.epoch += 1;
                });
                return Ok(link);
            }
            Some(Err(CallError::NeedsAuth(why) | CallError::MissingScope(why))) => {
                link.close(timers.end).await;
                return Err(ConnectionLoss::NeedsAuth(why));
            }
            Some(Err(
                CallError::Refused(why)
                | CallError::Ambiguous(why)
                | CallError::Lost(why)
                | CallError::NotSent(why),
            )) => {
                format!("it does not list its tools: {}", sanitize_start(&why, &around.redactor))
            }
            Some(Err(CallError::Expired(why))) => {
                format!("it forgot the session before listing its tools: {why}")
            }
            None => format!("it did not list its tools within {} s", patience.as_secs_f32()),
        };
        let loss = ConnectionLoss::Transient(link.with_last_output(&why));
        link.close(timers.end).await;
        Err(loss)
    }

    /// The prompts of a new connection. A server that does not list them has none.
    async fn list_prompts(&self, wire: &ConnectionHandle) -> Vec<RemotePrompt> {
        match timeout_while_running(PROMPTS_MAX, wire.list_prompts()).await {
            Some(Ok(listed)) => {
                self.warn_of_cut(&listed, "the rest of them is missing");
                convert_prompts(&self.config.name, &listed.entries)
            }
            Some(Err(_)) | None => Vec::new(),
        }
    }

    fn replace_loss(&self, loss: Option<ConnectionLoss>) -> Option<ConnectionLoss> {
        std::mem::replace(&mut *self.loss.lock(), loss)
    }

    /// Warns of a list of which a part is missing.
    fn warn_of_cut(&self, listed: &Listing, effect: &str) {
        if let Some(why) = &listed.cut {
            self.warn_once(&format!("{why}, so {effect}"));
        }
    }

    fn set_tools(&self, wire: &ConnectionHandle, listed: &Listing) {
        self.warn_of_cut(listed, "the rest of them is missing");
        wire.use_tools(listed);
        let has_headers = matches!(self.config.place, ServerAddress::Http(_));
        let entries = listed.entries.iter().cloned();
        let (listed, invalid): (Vec<Value>, Vec<Value>) =
            entries.partition(|tool| !has_headers || has_valid_headers(tool));
        let (offers, complaints) = convert_tools(&self.config.name, &listed);
        for tool in invalid {
            let name = &tool["name"];
            self.warn_once(&format!(
                "the tool {name} is left out: its schema names an invalid header"
            ));
        }
        for complaint in complaints {
            self.warn_once(&format!("the tool {complaint}"));
        }
        self.state.send_modify(|state| {
            let is_same = state.tools.iter().map(Arc::as_ref).eq(&offers);
            if !is_same {
                state.tools = Arc::new(offers.into_iter().map(Arc::new).collect());
            }
        });
    }

    /// Watches a connection until it is lost. `None` if it is ended by `stop`.
    async fn watch_connection(
        &self,
        link: &Connection,
        patience: Duration,
        stop: &CancellationToken,
    ) -> Option<ConnectionLoss> {
        let wire = link.handle();
        let (mut is_stale, mut next_listing) = (false, Instant::now());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = wire.closed() => {
                    return Some(link.loss());
                }
                () = self.lost.notified() => {
                    match self.replace_loss(None) {
                        Some(ConnectionLoss::Transient(why)) => {
                            return Some(ConnectionLoss::Transient(link.with_last_output(&why)));
                        }
                        Some(loss) => return Some(loss),
                        None => {}
                    }
                }
                () = self.check_requested.notified() => {
                    let alive = tokio::select! {
                        () = stop.cancelled() => return None,
                        alive = wire.is_alive() => alive,
                    };
                    if !alive {
                        return Some(ConnectionLoss::Transient(link.with_last_output("it does not answer any more")));
                    }
                }
                () = wire.wait_for_tool_change(), if !is_stale => is_stale = true,
                () = sleep_until(next_listing), if is_stale => {
                    is_stale = false;
                    let covered = wire.tool_changes();
                    let listing = timeout_while_running(patience, wire.list_tools());
                    let listed = tokio::select! {
                        () = stop.cancelled() => return None,
                        listed = listing => listed,
                    };
                    match listed {
                        Some(Ok(listed)) if listed.cut.is_some() => {
                            self.warn_of_cut(&listed, "the tools of its last list are kept");
                        }
                        Some(Ok(listed)) => self.set_tools(&wire, &listed),
                        Some(Err(CallError::Expired(_))) => return Some(ConnectionLoss::Expired),
                        // The tools of the last listing are kept.
                        Some(Err(_)) | None => {}
                    }
                    self.state.send_modify(|state| state.listed_changes = covered);
                    next_listing = Instant::now() + LISTING_PAUSE;
                }
            }
        }
    }

    /// Records a loss. Returns the wait before the next attempt, if there is one.
    fn record_loss(
        &self,
        loss: ConnectionLoss,
        next: impl FnOnce(&ConnectionLoss) -> Option<Duration>,
    ) -> Option<Duration> {
        let wait = next(&loss);
        let (status, why) = match (loss, wait) {
            (ConnectionLoss::NeedsAuth(why), _) => (ServerStatus::NeedsAuth, why),
            (ConnectionLoss::Expired, Some(_)) => {
                (ServerStatus::Pending, "its session is being renewed".to_owned())
            }
            (ConnectionLoss::Expired, None) => {
                (ServerStatus::Failed, "its sessions keep expiring".to_owned())
            }
            (ConnectionLoss::StreamEnded, Some(_)) => {
                (ServerStatus::Pending, "its stream has ended".to_owned())
            }
            (ConnectionLoss::StreamEnded, None) => {
                (ServerStatus::Failed, "its streams keep ending".to_owned())
            }
            (ConnectionLoss::Transient(why) | ConnectionLoss::Permanent(why), None) => {
                (ServerStatus::Failed, why)
            }
            (ConnectionLoss::Transient(why) | ConnectionLoss::Permanent(why), Some(_)) => {
                (ServerStatus::Pending, why)
            }
        };
        self.warn(&match (status, wait) {
            (ServerStatus::Pending, Some(wait)) => {
                format!("{why}; next attempt in {} s", wait.as_secs())
            }
            (ServerStatus::NeedsAuth, _) => format!(
                "{why}, and an unattended run cannot log in: {}; its tools cannot be used",
                self.config.place.login_advice(&self.config.name)
            ),
            (_, _) => format!("{why}; it is given up, and the run goes on without it"),
        });
        self.state.send_modify(|state| {
            (state.status, state.why) = (status, Some(why));
            (state.attempted, state.connection) = (true, None);
        });
        wait
    }
}

fn backoff_of(
    backoff: &mut ReconnectBackoff,
    held: ConnectionUse,
) -> impl FnOnce(&ConnectionLoss) -> Option<Duration> + '_ {
    move |loss| backoff.record_loss(loss, held)
}
