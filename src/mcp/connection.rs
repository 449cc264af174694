//! One connection to a server, from its handshake to its loss.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientRequest, ErrorCode, ListToolsRequest,
    NumberOrString, PaginatedRequestParams, PingRequest, ProtocolVersion,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RequestHandle,
    RunningService, ServiceError, serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use tokio::sync::Notify;

use crate::process::{Job, Supervisor};
use crate::secrets::Redactor;
use crate::types::HostError;

use super::call_error::{
    CallError, classify_call_error, classify_connect_loss, describe_initialize_error,
};
use super::client_handler::NotificationHandler;
use super::config::{ServerAddress, ServerConfig};
use super::environment::ServerEnvironment;
use super::host::{HostInbox, HostTransport};
use super::sanitize::sanitize_start;
use super::state::{ConnectionLoss, ServerIdentity};
use super::stdio::{ServerOutput, ServerProcess};

/// The most pages of a tool list.
const MOST_PAGES: usize = 50;

/// How long a silent server has to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for sending messages whose loss does no harm.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// An established connection.
pub(super) struct Connection {
    service: RunningService<RoleClient, NotificationHandler>,
    program: Option<ServerProcess>,
    /// The way for messages of a server in the host.
    inbox: Option<HostInbox>,
    handler: NotificationHandler,
    mask: Redactor,
}

/// A handle of a connection, for calls.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    pub(super) peer: Peer<RoleClient>,
    inbox: Option<HostInbox>,
    handler: NotificationHandler,
    /// Masks secrets in the server's output.
    pub(super) mask: Redactor,
}

/// What a server declares about itself during the handshake.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerInfo {
    pub(super) has_tools: bool,
    pub(super) has_resources: bool,
    pub(super) identity: Option<ServerIdentity>,
    /// Its usage instructions for the model.
    pub(super) instructions: Option<String>,
}

/// The kind of connection setup.
#[derive(Clone, Copy)]
enum ConnectionKind {
    /// With an `initialize` handshake, as nearly all servers expect.
    Handshake,
    /// Without one: each request states its protocol version.
    Stateless,
}

impl ConnectionKind {
    fn mode(self) -> ClientLifecycleMode {
        match self {
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        }
    }
}

/// Why a connection could not be made.
enum ConnectError {
    Lost(ConnectionLoss),
    /// The server answers, but rejects the handshake.
    HandshakeRejected(ConnectionLoss),
}

/// Connects to a server. If it rejects the handshake, tries again without one.
///
/// # Errors
/// Why there is no connection.
pub(super) async fn connect(
    config: &ServerConfig,
    around: &ServerEnvironment,
    patience: Duration,
) -> Result<Connection, ConnectionLoss> {
    match open_connection(config, around, patience, ConnectionKind::Handshake).await {
        Ok(link) => Ok(link),
        Err(ConnectError::Lost(loss)) => Err(loss),
        // The handshake error is more informative than the second one.
        Err(ConnectError::HandshakeRejected(loss)) => {
            open_connection(config, around, patience, ConnectionKind::Stateless)
                .await
                .map_err(|_| loss)
        }
    }
}

async fn open_connection(
    config: &ServerConfig,
    around: &ServerEnvironment,
    patience: Duration,
    opening: ConnectionKind,
) -> Result<Connection, ConnectError> {
    match &config.place {
        ServerAddress::Program { .. } => connect_stdio(config, around, patience, opening).await,
        ServerAddress::Http { url, headers } => {
            let transport = transport(url, headers, around).map_err(ConnectError::Lost)?;
            connect_http(transport, around, patience, opening).await
        }
        ServerAddress::Host => connect_host(&config.name, around, patience, opening).await,
    }
}

async fn connect_stdio(
    config: &ServerConfig,
    around: &ServerEnvironment,
    patience: Duration,
    opening: ConnectionKind,
) -> Result<Connection, ConnectError> {
    let job = job(config, around).map_err(ConnectError::Lost)?;
    let supervisor: &Supervisor = &around.supervisor;
    let (program, pipes) = ServerProcess::start(supervisor, &job).await.map_err(|error| {
        let why = format!("{} cannot be started: {error}", job.program.display());
        ConnectError::Lost(ConnectionLoss::Permanent(why))
    })?;
    let (ear, mask) = (NotificationHandler::new(around), around.mask.clone());
    let serving = serve_client_with_lifecycle(ear.clone(), pipes, opening.mode());
    match tokio::time::timeout(patience, serving).await {
        Ok(Ok(service)) => {
            Ok(Connection { service, program: Some(program), inbox: None, handler: ear, mask })
        }
        Ok(Err(error)) => {
            // Its last output on stderr may arrive after the end of stdout.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let why = describe_initialize_error(&error, &mask);
            let why = with_server_output("it did not start up", &why, &program.output, &mask);
            Err(classify_connect_error(&error, ConnectionLoss::Transient(why)))
        }
        Err(_) => {
            let why = with_server_output(&timeout_message(patience), "", &program.output, &mask);
            Err(ConnectError::Lost(ConnectionLoss::Transient(why)))
        }
    }
}

/// Distinguishes a rejected handshake from other errors.
fn classify_connect_error(error: &ClientInitializeError, loss: ConnectionLoss) -> ConnectError {
    const TELLING: [ErrorCode; 4] = [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        // Over HTTP, requests without a handshake carry the version in a header.
        ErrorCode::HEADER_MISMATCH,
    ];
    if let ClientInitializeError::JsonRpcError(error) = error
        && TELLING.contains(&error.code)
    {
        return ConnectError::HandshakeRejected(loss);
    }
    ConnectError::Lost(loss)
}

/// Adds the server's own last output to an error.
fn with_server_output(what: &str, why: &str, said: &ServerOutput, mask: &Redactor) -> String {
    let mut text = what.to_owned();
    if !why.is_empty() {
        text = format!("{text}: {why}");
    }
    if let Some(fault) = said.fault() {
        return format!("{what}: {fault}");
    }
    match said.last_line(mask) {
        Some(line) => format!("{text} (it said: {line})"),
        None => text,
    }
}

/// Builds the job of a server that is a program.
pub(super) fn job(
    config: &ServerConfig,
    around: &ServerEnvironment,
) -> Result<Job, ConnectionLoss> {
    let ServerAddress::Program { command, arguments, variables } = &config.place else {
        return Err(ConnectionLoss::Permanent("it is no program".to_owned()));
    };
    let mut environment = around.environment.clone();
    environment.push(("CLAUDE_PROJECT_DIR".into(), around.cwd.clone().into()));
    environment
        .extend(variables.iter().map(|(name, value)| (name.clone().into(), value.clone().into())));
    let path = environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, value)| value.clone()).unwrap_or_default();
    let program = if command.contains('/') {
        Some(around.cwd.join(command))
    } else {
        crate::process::find_program(&[command], &path, &around.cwd)
    };
    let missing =
        || ConnectionLoss::Permanent(format!("there is no program {command:?} in the PATH"));
    let program = program.ok_or_else(missing)?;
    Ok(Job {
        program,
        arguments: arguments.iter().map(Into::into).collect(),
        cwd: around.cwd.clone(),
        environment,
        input: true,
        // It is the user's own program, with the user's own rights.
        memory: None,
        landlock: None,
    })
}

fn transport(
    url: &str,
    headers: &[(String, String)],
    around: &ServerEnvironment,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, ConnectionLoss> {
    let client =
        (around.http)(url).map_err(|error| ConnectionLoss::Permanent(error.to_string()))?;
    let mut custom = HeaderMap::new();
    for (name, value) in headers {
        let pair = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
        let (name, value) = pair.ok_or_else(|| {
            ConnectionLoss::Permanent(
                "one of its \"headers\" is not a valid HTTP header".to_owned(),
            )
        })?;
        custom.insert(name, value);
    }
    let custom = custom.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(custom)
        // Lost sessions are renewed by us, where attempts are counted.
        .reinit_on_expired_session(false);
    let mut retries = ExponentialBackoff::default();
    retries.max_times = Some(5);
    retries.max_delay = Some(Duration::from_secs(30));
    config.retry_config = Arc::new(retries);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

async fn connect_http(
    transport: StreamableHttpClientTransport<reqwest::Client>,
    around: &ServerEnvironment,
    patience: Duration,
    opening: ConnectionKind,
) -> Result<Connection, ConnectError> {
    let (ear, mask) = (NotificationHandler::new(around), around.mask.clone());
    let serving = serve_client_with_lifecycle(ear.clone(), transport, opening.mode());
    match tokio::time::timeout(patience, serving).await {
        Ok(Ok(service)) => {
            Ok(Connection { service, program: None, inbox: None, handler: ear, mask })
        }
        Ok(Err(error)) => Err(classify_connect_error(&error, classify_connect_loss(&error, &mask))),
        Err(_) => Err(ConnectError::Lost(ConnectionLoss::Transient(timeout_message(patience)))),
    }
}

async fn connect_host(
    server: &str,
    around: &ServerEnvironment,
    patience: Duration,
    opening: ConnectionKind,
) -> Result<Connection, ConnectError> {
    let host = around.host.as_ref().ok_or_else(|| {
        let why = "it runs in an SDK host, and no host drives this run";
        ConnectError::Lost(ConnectionLoss::Permanent(why.to_owned()))
    })?;
    let (transport, inbox) = HostTransport::new(Arc::clone(host), server);
    let (ear, mask) = (NotificationHandler::new(around), around.mask.clone());
    let serving = serve_client_with_lifecycle(ear.clone(), transport, opening.mode());
    match tokio::time::timeout(patience, serving).await {
        Ok(Ok(service)) => {
            Ok(Connection { service, program: None, inbox: Some(inbox), handler: ear, mask })
        }
        Ok(Err(_)) if inbox.is_lost() => Err(ConnectError::Lost(host_loss())),
        Ok(Err(error)) => {
            let why = describe_initialize_error(&error, &mask);
            let loss = ConnectionLoss::Transient(format!("it did not start up: {why}"));
            Err(classify_connect_error(&error, loss))
        }
        Err(_) => Err(ConnectError::Lost(ConnectionLoss::Transient(timeout_message(patience)))),
    }
}

/// The loss of the host, which does not come back.
fn host_loss() -> ConnectionLoss {
    ConnectionLoss::Permanent(HostError::Closed.to_string())
}

fn timeout_message(patience: Duration) -> String {
    format!("it did not answer within {} s", patience.as_secs_f32())
}

impl Connection {
    pub(super) fn handle(&self) -> ConnectionHandle {
        let (ear, mask) = (self.handler.clone(), self.mask.clone());
        let (peer, inbox) = (self.service.peer().clone(), self.inbox.clone());
        ConnectionHandle { peer, inbox, handler: ear, mask }
    }

    /// Waits for a notification that the tools have changed.
    pub(super) async fn wait_for_tool_change(&self) {
        self.handler.wait_for_tool_change().await;
    }

    /// Why the connection has ended by itself.
    pub(super) fn loss(&self) -> ConnectionLoss {
        if self.inbox.as_ref().is_some_and(HostInbox::is_lost) {
            return host_loss();
        }
        ConnectionLoss::Transient(self.with_last_output("it ended, or hung up"))
    }

    /// Adds the server's last output to the reason of its end.
    pub(super) fn with_last_output(&self, what: &str) -> String {
        match &self.program {
            Some(program) => with_server_output(what, "", &program.output, &self.mask),
            None => what.to_owned(),
        }
    }

    /// Closes the connection: the server has `patience` to end by itself, as long again after
    /// SIGTERM, and is then killed.
    pub(super) async fn close(mut self, patience: Duration) {
        // A failure is ignored: the program is ended anyway.
        let _ = self.service.close_with_timeout(patience).await;
        if let Some(program) = self.program {
            program.end(patience).await;
        }
    }
}

impl ConnectionHandle {
    /// Passes a message of a server in the host on to the client. Returns whether it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.deliver(message))
    }

    /// Waits until the connection is gone.
    pub(super) async fn closed(&self) {
        // The library sends no event for this, so its state is polled.
        while !self.peer.is_transport_closed() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a request. Also returns the notifier of its progress.
    pub(super) async fn send(
        &self,
        request: ClientRequest,
    ) -> Result<(RequestHandle<RoleClient>, Arc<Notify>), ServiceError> {
        let options = PeerRequestOptions::no_options();
        let sending = self.peer.send_cancellable_request(request, options);
        let handle = match tokio::time::timeout(SEND_TIMEOUT, sending).await {
            Ok(handle) => handle?,
            Err(_) => return Err(ServiceError::TransportClosed),
        };
        // Several notifications count as one until they are consumed.
        let progress = Arc::new(Notify::new());
        self.handler.watch_progress(handle.progress_token.0.clone(), Arc::clone(&progress));
        Ok((handle, progress))
    }

    /// Removes the progress waiter of a finished request.
    pub(super) fn forget(&self, token: &NumberOrString) {
        self.handler.unwatch_progress(token);
    }

    /// Tells the server that a request is cancelled, without waiting.
    pub(super) fn cancel(&self, id: NumberOrString, why: &str) {
        let params = CancelledNotificationParam::new(Some(id), Some(why.to_owned()));
        let peer = self.peer.clone();
        tokio::spawn(async move {
            let told = peer.send_notification(CancelledNotification::new(params).into());
            let _ = tokio::time::timeout(SEND_TIMEOUT, told).await;
        });
    }

    /// Whether the server still answers anything.
    pub(super) async fn is_alive(&self) -> bool {
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        match tokio::time::timeout(PING_TIMEOUT, ping).await {
            // An error, such as an unknown method, is an answer too.
            Ok(Ok(_) | Err(ServiceError::McpError(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// What the server declared during the handshake.
    pub(super) fn server_info(&self) -> ServerInfo {
        let Some(info) = self.peer.peer_info() else { return ServerInfo::default() };
        let identity = info.server_info.as_ref().map(|server| ServerIdentity {
            name: sanitize_start(&server.name, &self.mask),
            version: sanitize_start(&server.version, &self.mask),
        });
        ServerInfo {
            identity,
            has_tools: info.capabilities.tools.is_some(),
            has_resources: info.capabilities.resources.is_some(),
            instructions: info.instructions.clone().filter(|text| !text.trim().is_empty()),
        }
    }

    /// Lists the tools, as the server's raw JSON.
    pub(super) async fn list_tools(&self) -> Result<Vec<Value>, CallError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MOST_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let page = match self.peer.send_request(request).await {
                Ok(page) => serde_json::to_value(page).unwrap_or_default(),
                Err(error) => return Err(classify_call_error(&error, &self.mask)),
            };
            let Some(listed) = page["tools"].as_array() else {
                return Err(CallError::Refused("its answer is not a list of tools".to_owned()));
            };
            tools.extend(listed.iter().cloned());
            cursor = page["nextCursor"].as_str().map(ToOwned::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }
}
