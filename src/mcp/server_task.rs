//! The task of one server: it keeps the server connected.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::process::timeout_while_running;
use crate::secrets::Redactor;

use super::call_error::CallError;
use super::config::{ServerAddress, ServerConfig};
use super::connection::{self, Connection, ConnectionHandle, Listing};
use super::environment::{McpTimers, ServerEnvironment};
use super::handshake::ServerInfo;
use super::remote_prompt::{RemotePrompt, convert_prompts};
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

#[derive(Clone, Default)]
pub(super) struct ServerState {
    pub(super) status: ServerStatus,
    pub(super) why: Option<String>,
    /// The number of attempts to connect that are over.
    attempts: u32,
    pub(super) connection: Option<ConnectionHandle>,
    /// Counts connections. A late failure of a call must not affect a later connection.
    pub(super) epoch: u64,
    /// The tools as last listed, also while the server is disconnected.
    pub(super) tools: Arc<Vec<Arc<RemoteTool>>>,
    /// The prompts as last listed.
    pub(super) prompts: Arc<Vec<RemotePrompt>>,
    /// The number of announced tool changes of the current connection that the list covers.
    pub(super) listed_changes: u64,
    /// The last handshake information.
    pub(super) info: Arc<ServerInfo>,
}

impl ServerState {
    /// True if a run need not wait for the server to start: it is connected, it is not tried again,
    /// or a further attempt has failed, too. A single failure may be that of `npx`, which did not
    /// reach its registry, or of a server whose port was not open yet.
    pub(super) fn is_settled(&self) -> bool {
        self.status != ServerStatus::Pending || self.attempts > 1
    }
}

impl ServerTask {
    pub(super) fn new(config: ServerConfig, stop: CancellationToken) -> Self {
        let status = if config.disabled { ServerStatus::Disabled } else { ServerStatus::Pending };
        let state = ServerState { status, ..ServerState::default() };
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
    pub(super) fn info(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.state.borrow().info)
    }

    pub(super) fn report(&self) -> ServerReport {
        let state = self.state.borrow();
        let (name, status) = (self.config.name.clone(), state.status);
        let why = state.why.clone().filter(|_| status != ServerStatus::Connected);
        ServerReport { name, status, why, identity: state.info.identity.clone() }
    }

    /// Passes a message that a server in the host has sent on its own to its connection. Returns
    /// true if it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        self.state.borrow().connection.as_ref().is_some_and(|handle| handle.deliver(message))
    }

    /// Time limit of a call without progress.
    pub(super) fn call_limit(&self, timers: McpTimers) -> Duration {
        self.config.timeout.unwrap_or(timers.call)
    }

    /// True while a question of the server is waiting for the host's answer.
    pub(super) fn is_asking_host(&self) -> bool {
        let state = self.state.borrow();
        state.connection.as_ref().is_some_and(|handle| handle.peer.elicitor().is_asking())
    }

    /// Takes the pending warnings about the server.
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
            (connection.peer.tool_changes(), state.epoch)
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
    pub(super) async fn run(
        self: Arc<Self>,
        environment: Arc<ServerEnvironment>,
        timers: McpTimers,
    ) {
        let stop = self.stop.clone();
        let mut backoff = ReconnectBackoff::default();
        let mut was_connected = false;
        loop {
            let connecting = self.connect(&environment, timers);
            let Some(connected) = stop.run_until_cancelled(connecting).await else { return };
            let (loss, usage) = match connected {
                Ok(connection) => {
                    if std::mem::replace(&mut was_connected, true) {
                        self.reconnects.fetch_add(1, Ordering::Relaxed);
                        self.warn("connected again");
                    }
                    let since = Instant::now();
                    let watching = self.watch_connection(&connection, timers.wait);
                    // A loss at the end of the run is not reported, but one before it is, even if the
                    // run ends while the connection is closed.
                    let loss = stop.run_until_cancelled(watching).await;
                    let loss = loss.filter(|_| !stop.is_cancelled());
                    connection.close(timers.end).await;
                    let Some(loss) = loss else { return };
                    let epoch = self.state.borrow().epoch;
                    let has_answered = self.answered.load(Ordering::Relaxed) == epoch;
                    (loss, ConnectionUse { lasted: since.elapsed(), has_answered })
                }
                Err(_) if stop.is_cancelled() => return,
                Err(loss) => (loss, ConnectionUse::default()),
            };
            let wait = backoff.record_loss(&loss, usage);
            self.record_loss(loss, wait);
            let Some(wait) = wait else { return };
            if stop.run_until_cancelled(sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Connects, and lists the tools and prompts.
    async fn connect(
        &self,
        environment: &Arc<ServerEnvironment>,
        timers: McpTimers,
    ) -> Result<Connection, ConnectionLoss> {
        let limit = match self.config.place {
            ServerAddress::Program { .. } => timers.start,
            ServerAddress::Http(_) | ServerAddress::Host => timers.wait,
        };
        let answer_max = self.call_limit(timers);
        let connection = connection::connect(&self.config, environment, limit, answer_max).await?;
        match self.adopt(&connection, limit, &environment.login.redactor).await {
            Ok(()) => Ok(connection),
            Err(loss) => {
                connection.close(timers.end).await;
                Err(loss)
            }
        }
    }

    /// Lists the tools and prompts of a new connection, and then uses it for calls.
    async fn adopt(
        &self,
        connection: &Connection,
        limit: Duration,
        redactor: &Redactor,
    ) -> Result<(), ConnectionLoss> {
        let handle = connection.handle();
        let info = Arc::clone(&handle.info);
        let covered = handle.peer.tool_changes();
        let why = match timeout_while_running(limit, handle.list("tools")).await {
            Some(Ok(listed)) => {
                self.set_tools(&handle, &listed);
                None
            }
            // A server that declares no tools need not implement `tools/list`.
            Some(Err(CallError::Refused(_))) if !info.has_tools => {
                self.set_tools(&handle, &Listing { entries: Vec::new(), cut: None });
                None
            }
            Some(Err(CallError::NeedsAuth(why) | CallError::MissingScope(why))) => {
                return Err(ConnectionLoss::NeedsAuth(why));
            }
            Some(Err(
                CallError::Refused(why)
                | CallError::Ambiguous(why)
                | CallError::Lost(why)
                | CallError::NotSent(why),
            )) => Some(format!("it does not list its tools: {}", sanitize_start(&why, redactor))),
            Some(Err(CallError::Expired(why))) => {
                Some(format!("it forgot the session before listing its tools: {why}"))
            }
            None => Some(format!("it did not list its tools within {} s", limit.as_secs_f32())),
        };
        if let Some(why) = why {
            return Err(ConnectionLoss::Transient(connection.with_last_output(&why)));
        }
        let prompts = if info.has_prompts { self.list_prompts(&handle).await } else { Vec::new() };
        *self.loss.lock() = None;
        self.state.send_modify(|state| {
            (state.info, state.prompts) = (info, Arc::new(prompts));
            (state.status, state.why) = (ServerStatus::Connected, None);
            state.attempts += 1;
            state.connection = Some(handle);
            state.listed_changes = covered;
            state.epoch += 1;
        });
        Ok(())
    }

    /// The prompts of a new connection. A server that does not list them has none.
    async fn list_prompts(&self, handle: &ConnectionHandle) -> Vec<RemotePrompt> {
        match timeout_while_running(PROMPTS_MAX, handle.list("prompts")).await {
            Some(Ok(listed)) => {
                self.warn_of_cut(&listed, "the rest of them is missing");
                convert_prompts(&self.config.name, &listed.entries)
            }
            Some(Err(_)) | None => Vec::new(),
        }
    }

    /// Warns if a list is incomplete.
    fn warn_of_cut(&self, listed: &Listing, effect: &str) {
        if let Some(why) = &listed.cut {
            self.warn_once(&format!("{why}, so {effect}"));
        }
    }

    fn set_tools(&self, handle: &ConnectionHandle, listed: &Listing) {
        self.warn_of_cut(listed, "the rest of them is missing");
        handle.peer.transport().set_tools(&listed.entries);
        let has_headers = matches!(self.config.place, ServerAddress::Http(_));
        let entries = listed.entries.iter().cloned();
        let (listed, invalid): (Vec<Value>, Vec<Value>) =
            entries.partition(|tool| !has_headers || has_valid_headers(tool));
        let (tools, warnings) = convert_tools(&self.config.name, &listed);
        for tool in invalid {
            let name = &tool["name"];
            self.warn_once(&format!(
                "the tool {name} is left out: its schema names an invalid header"
            ));
        }
        for warning in warnings {
            self.warn_once(&format!("the tool {warning}"));
        }
        self.state.send_modify(|state| {
            let is_same = state.tools.iter().map(Arc::as_ref).eq(&tools);
            if !is_same {
                state.tools = Arc::new(tools.into_iter().map(Arc::new).collect());
            }
        });
    }

    /// Watches a connection until it is lost, and keeps the list of tools current.
    async fn watch_connection(&self, connection: &Connection, limit: Duration) -> ConnectionLoss {
        let handle = connection.handle();
        let (mut is_stale, mut next_listing) = (false, Instant::now());
        loop {
            tokio::select! {
                biased;
                () = handle.peer.closed() => return connection.loss(),
                () = self.lost.notified() => match self.loss.lock().take() {
                    Some(ConnectionLoss::Transient(why)) => {
                        return ConnectionLoss::Transient(connection.with_last_output(&why));
                    }
                    Some(loss) => return loss,
                    None => {}
                },
                () = self.check_requested.notified() => if !handle.is_alive().await {
                    let why = connection.with_last_output("it does not answer any more");
                    return ConnectionLoss::Transient(why);
                },
                () = handle.peer.wait_for_tool_change(), if !is_stale => is_stale = true,
                () = sleep_until(next_listing), if is_stale => {
                    is_stale = false;
                    if let Some(loss) = self.list_again(&handle, limit).await {
                        return loss;
                    }
                    next_listing = Instant::now() + LISTING_PAUSE;
                }
            }
        }
    }

    /// Lists the tools after a change. If that fails, the tools of the last list are kept. Returns
    /// the loss of the connection, if the server no longer has the session.
    async fn list_again(
        &self,
        handle: &ConnectionHandle,
        limit: Duration,
    ) -> Option<ConnectionLoss> {
        let covered = handle.peer.tool_changes();
        match timeout_while_running(limit, handle.list("tools")).await {
            Some(Ok(listed)) if listed.cut.is_some() => {
                self.warn_of_cut(&listed, "the tools of its last list are kept");
            }
            Some(Ok(listed)) => self.set_tools(handle, &listed),
            Some(Err(CallError::Expired(_))) => return Some(ConnectionLoss::Expired),
            Some(Err(_)) | None => {}
        }
        self.state.send_modify(|state| state.listed_changes = covered);
        None
    }

    /// Records a loss, and warns of it. `wait` is the time until the next attempt, if there is one.
    fn record_loss(&self, loss: ConnectionLoss, wait: Option<Duration>) {
        let (status, outlook) = match (&loss, wait) {
            (ConnectionLoss::NeedsAuth(_), _) => {
                let advice = self.config.place.login_advice(&self.config.name);
                let outlook = format!(
                    ", and an unattended run cannot log in: {advice}; its tools cannot be used"
                );
                (ServerStatus::NeedsAuth, outlook)
            }
            (_, Some(wait)) => {
                (ServerStatus::Pending, format!("; next attempt in {} s", wait.as_secs()))
            }
            (_, None) => {
                let outlook = "; no further attempts, and the run continues without it";
                (ServerStatus::Failed, outlook.to_owned())
            }
        };
        let is_final = wait.is_none();
        let why = match loss {
            ConnectionLoss::NeedsAuth(why)
            | ConnectionLoss::Transient(why)
            | ConnectionLoss::Permanent(why) => why,
            ConnectionLoss::Expired if is_final => "its sessions keep expiring".to_owned(),
            ConnectionLoss::Expired => "its session is being renewed".to_owned(),
            ConnectionLoss::StreamEnded if is_final => "its streams keep ending".to_owned(),
            ConnectionLoss::StreamEnded => "its stream has ended".to_owned(),
        };
        self.warn(&format!("{why}{outlook}"));
        self.state.send_modify(|state| {
            (state.status, state.why) = (status, Some(why));
            state.attempts += 1;
            state.connection = None;
        });
    }
}
