//! One connection to a server, from its handshake to its loss.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tokio_util::sync::DropGuard;

use crate::process::{
    Job, ProgramTerms, Supervisor, find_user_program, skipped_program, timeout_while_running,
};
use crate::secrets::Redactor;
use crate::types::HostError;

use super::call_error::{
    CallError, RequestFault, classify_call_error, classify_connect_loss, describe_handshake_fault,
};
use super::config::{HttpAddress, HttpKind, ServerAddress, ServerConfig};
use super::elicitation::Elicitor;
use super::environment::ServerEnvironment;
use super::handshake::{Lifecycle, ServerInfo, handshake, rejects};
use super::headers_helper::HeadersHelper;
use super::host::{self, HostInbox, HostTransport};
use super::http::{self, HttpTransport};
use super::oauth::AccessTokens;
use super::peer::{Peer, PendingRequest};
use super::rpc::INPUT_REQUIRED;
use super::sanitize::sanitize_start;
use super::server_client::{HeaderRenewal, ServerClient};
use super::sse_transport::SseTransport;
use super::state::ConnectionLoss;
use super::stdio::{self, ServerProcess};
use super::transport::{Inbox, Transport};

/// The time limit of the request that finds out whether an HTTP server offers the protocol without
/// a handshake.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The most pages of a list.
const MOST_PAGES: usize = 50;

/// The time limit of a ping to a server that did not answer.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The wait for the last output of a program that did not start up: it may arrive after the end of
/// its standard output.
const LAST_OUTPUT_WAIT: Duration = Duration::from_millis(50);

/// An established connection.
pub(super) struct Connection {
    handle: ConnectionHandle,
    program: Option<ServerProcess>,
    /// It is one stream of the first version of the protocol over HTTP.
    is_stream: bool,
    /// Ends the connection if it is dropped without being closed.
    _end: DropGuard,
}

/// A handle of a connection, for calls.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    peer: Peer,
    /// Receives messages of a server that runs in the host. `None` for other servers.
    host: Option<HostInbox>,
    about: Arc<ServerInfo>,
    /// Masks secrets in the server's output.
    redactor: Redactor,
}

/// The reason that a connection could not be made.
enum ConnectError {
    Lost(ConnectionLoss),
    /// The server answers, but rejects this lifecycle.
    LifecycleRejected(ConnectionLoss),
}

/// Connects to a server. Over HTTP, where a question costs little, the protocol without a handshake
/// is tried first; programs may end at an unknown request. If the server rejects one way to begin,
/// the other one is tried. A question of the server to the user has `answer_max` for its answer.
///
/// # Errors
/// No connection can be made, with the reason.
pub(super) async fn connect(
    config: &ServerConfig,
    around: &Arc<ServerEnvironment>,
    patience: Duration,
    answer_max: Duration,
) -> Result<Connection, ConnectionLoss> {
    let first = match &config.place {
        ServerAddress::Http(HttpAddress { kind: HttpKind::Streamable, .. }) => Lifecycle::Stateless,
        ServerAddress::Http(_) | ServerAddress::Program { .. } | ServerAddress::Host => {
            Lifecycle::Handshake
        }
    };
    let renewal = header_renewal(config, around)?;
    let elicitor = Arc::new(Elicitor::new(around.elicitation.clone(), &config.name, answer_max));
    let open = |terms| open_connection(config, around, &renewal, &elicitor, terms);
    let (second, limit) = match first {
        Lifecycle::Stateless => (Lifecycle::Handshake, patience.min(DISCOVERY_TIMEOUT)),
        Lifecycle::Handshake => (Lifecycle::Stateless, patience),
    };
    let of_first = match open((limit, first)).await {
        Ok(link) => return Ok(link),
        Err(ConnectError::Lost(loss)) => return Err(loss),
        Err(ConnectError::LifecycleRejected(loss)) => loss,
    };
    match open((patience, second)).await {
        Ok(link) => Ok(link),
        Err(ConnectError::Lost(loss) | ConnectError::LifecycleRejected(loss)) => {
            Err(match second {
                // The error of the handshake has more detail.
                Lifecycle::Handshake => loss,
                Lifecycle::Stateless => of_first,
            })
        }
    }
}

async fn open_connection(
    config: &ServerConfig,
    around: &Arc<ServerEnvironment>,
    renewal: &Arc<HeaderRenewal>,
    elicitor: &Arc<Elicitor>,
    (patience, lifecycle): (Duration, Lifecycle),
) -> Result<Connection, ConnectError> {
    let waiting_max = match config.place {
        ServerAddress::Program { .. } => stdio::WAITING_MAX,
        ServerAddress::Http(_) => http::WAITING_MAX,
        ServerAddress::Host => host::WAITING_MAX,
    };
    let (inbox, received) = Inbox::new(waiting_max);
    let end = inbox.closed.clone().drop_guard();
    let (transport, program) = match &config.place {
        ServerAddress::Program { .. } => start_program(config, around, inbox.clone()).await,
        ServerAddress::Http(address) => http_transport(address, around, renewal, inbox.clone())
            .map(|transport| (transport, None)),
        ServerAddress::Host => {
            host_transport(&config.name, around, inbox.clone()).map(|transport| (transport, None))
        }
    }
    .map_err(ConnectError::Lost)?;
    let host = matches!(config.place, ServerAddress::Host).then(|| HostInbox::new(&inbox));
    let peer = Peer::start(transport, inbox, received, roots(around), Arc::clone(elicitor));
    let handshake = handshake(&peer, lifecycle, &around.redactor);
    let begun = timeout_while_running(patience, handshake).await;
    let redactor = around.redactor.clone();
    let fault = match begun {
        Some(Ok(about)) => {
            let handle = ConnectionHandle { peer, host, about: Arc::new(about), redactor };
            let is_stream = matches!(
                config.place,
                ServerAddress::Http(HttpAddress { kind: HttpKind::Sse, .. })
            );
            return Ok(Connection { handle, program, is_stream, _end: end });
        }
        Some(Err(fault)) => fault,
        None => {
            let why = format!("it did not answer within {} s", patience.as_secs_f32());
            let why = match &program {
                Some(program) => program.output.describe_end(&why, "", &redactor),
                None => why,
            };
            let loss = ConnectionLoss::Transient(why);
            return Err(match lifecycle {
                Lifecycle::Stateless => ConnectError::LifecycleRejected(loss),
                Lifecycle::Handshake => ConnectError::Lost(loss),
            });
        }
    };
    let loss = match (&config.place, &program) {
        (ServerAddress::Program { .. } | ServerAddress::Host, Some(program)) => {
            tokio::time::sleep(LAST_OUTPUT_WAIT).await;
            let why = describe_handshake_fault(&fault, &redactor);
            let why = program.output.describe_end("it did not start up", &why, &redactor);
            ConnectionLoss::Transient(why)
        }
        (ServerAddress::Http(_), _) => classify_connect_loss(&fault, &redactor),
        (ServerAddress::Program { .. } | ServerAddress::Host, None) if peer.is_closed() => {
            host_loss()
        }
        (ServerAddress::Program { .. } | ServerAddress::Host, None) => {
            let why = describe_handshake_fault(&fault, &redactor);
            ConnectionLoss::Transient(format!("it did not start up: {why}"))
        }
    };
    Err(if rejects(lifecycle, &fault) {
        ConnectError::LifecycleRejected(loss)
    } else {
        ConnectError::Lost(loss)
    })
}

/// The folders that the run works in, as the protocol states them.
fn roots(around: &ServerEnvironment) -> Value {
    let folders = [&around.cwd].into_iter().chain(&around.folders);
    // A path that is not a valid URL is of no use to a server.
    let urls = folders.filter_map(|path| Url::from_file_path(path).ok());
    urls.map(|url| json!({ "uri": url.as_str() })).collect()
}

async fn start_program(
    config: &ServerConfig,
    around: &ServerEnvironment,
    inbox: Inbox,
) -> Result<(Box<dyn Transport>, Option<ServerProcess>), ConnectionLoss> {
    let job = job(config, around)?;
    let supervisor: &Supervisor = &around.supervisor;
    let (program, pipes) =
        ServerProcess::start(supervisor, &job, inbox).await.map_err(|error| {
            let why = format!("{} cannot be started: {error}", job.program.display());
            ConnectionLoss::Permanent(why)
        })?;
    Ok((Box::new(pipes), Some(program)))
}

/// Creates the source of headers that expire. All attempts to connect share it.
fn header_renewal(
    config: &ServerConfig,
    around: &Arc<ServerEnvironment>,
) -> Result<Arc<HeaderRenewal>, ConnectionLoss> {
    let ServerAddress::Http(address) = &config.place else {
        return Ok(Arc::new(HeaderRenewal::None));
    };
    let url = &address.url;
    let renewal = if let Some(command) = &address.helper {
        let job = HeadersHelper::job(command, (&config.name, url), around);
        HeaderRenewal::Helper(Box::new(HeadersHelper::new(job, around)))
    } else if address.takes_login() {
        let url = Url::parse(url).map_err(|error| ConnectionLoss::Permanent(error.to_string()))?;
        let settings = address.oauth.clone().unwrap_or_default();
        let around = around.login_environment();
        HeaderRenewal::Login(AccessTokens::new(&config.name, url, settings, &around))
    } else {
        HeaderRenewal::None
    };
    Ok(Arc::new(renewal))
}

fn http_transport(
    address: &HttpAddress,
    around: &ServerEnvironment,
    renewal: &Arc<HeaderRenewal>,
    inbox: Inbox,
) -> Result<Box<dyn Transport>, ConnectionLoss> {
    let permanent = |why: String| ConnectionLoss::Permanent(why);
    let url = Url::parse(&address.url).map_err(|error| permanent(error.to_string()))?;
    let (http, renewal, redactor) =
        (Arc::clone(&around.http), Arc::clone(renewal), around.redactor.clone());
    let server = ServerClient::new(http, url, &address.headers, renewal, redactor);
    let server = server.map_err(|error| permanent(error.to_string()))?;
    Ok(match address.kind {
        HttpKind::Streamable => Box::new(HttpTransport::new(server, inbox)),
        HttpKind::Sse => Box::new(SseTransport::start(server, inbox)),
    })
}

fn host_transport(
    server: &str,
    around: &ServerEnvironment,
    inbox: Inbox,
) -> Result<Box<dyn Transport>, ConnectionLoss> {
    let host = around.host.as_ref().ok_or_else(|| {
        let why = "it runs in an SDK host, and no host drives this run";
        ConnectionLoss::Permanent(why.to_owned())
    })?;
    Ok(Box::new(HostTransport::new(Arc::clone(host), server, inbox)))
}

/// The jobs of a server: its program, or the helper that prints its headers.
pub(super) fn jobs(config: &ServerConfig, around: &ServerEnvironment) -> Vec<Job> {
    match &config.place {
        _ if config.disabled => Vec::new(),
        ServerAddress::Program { .. } => Vec::from_iter(job(config, around).ok()),
        ServerAddress::Http(HttpAddress { url, helper, .. }) => {
            let helper = helper.iter();
            helper.map(|it| HeadersHelper::job(it, (&config.name, url), around)).collect()
        }
        ServerAddress::Host => Vec::new(),
    }
}

/// Builds the job of a server that is a program.
fn job(config: &ServerConfig, around: &ServerEnvironment) -> Result<Job, ConnectionLoss> {
    let ServerAddress::Program { command, arguments, variables, cwd } = &config.place else {
        return Err(ConnectionLoss::Permanent("it is no program".to_owned()));
    };
    let cwd = cwd.as_ref().map_or_else(|| around.cwd.clone(), |cwd| around.cwd.join(cwd));
    if !cwd.is_dir() {
        return Err(ConnectionLoss::Permanent(format!(
            "its \"cwd\" {} is no folder",
            cwd.display()
        )));
    }
    let own = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let environment: Vec<(OsString, OsString)> = around.program_environment().chain(own).collect();
    let variable = |wanted: &str| {
        let found = environment.iter().rev().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_os_str())
    };
    let path = variable("PATH").unwrap_or_default();
    let program = if command.contains('/') {
        Some(cwd.join(command))
    } else {
        find_user_program(command, path, &cwd, variable("HOME"))
    };
    let missing = || {
        let skipped = skipped_program(command, path).map(|program| program.display().to_string());
        ConnectionLoss::Permanent(skipped.map_or_else(
            || format!("there is no program {command:?} in the PATH"),
            |program| {
                format!(
                    "{program} is inside the working folder, so it is not searched for by name; \
                     write its path if it is to run"
                )
            },
        ))
    };
    let program = program.ok_or_else(missing)?;
    Ok(Job {
        input: true,
        terms: ProgramTerms {
            name: Some(config.name.clone()),
            own_variables: variables.keys().cloned().collect(),
            ..ProgramTerms::default()
        },
        ..Job::new(program, arguments, cwd, environment)
    })
}

/// The loss of the host, which does not come back.
fn host_loss() -> ConnectionLoss {
    ConnectionLoss::Permanent(HostError::Closed.to_string())
}

impl Connection {
    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle.clone()
    }

    /// The reason that the connection has ended without being closed.
    pub(super) fn loss(&self) -> ConnectionLoss {
        if self.handle.host.is_some() {
            return host_loss();
        }
        if self.is_stream {
            return ConnectionLoss::StreamEnded;
        }
        ConnectionLoss::Transient(self.with_last_output("it ended, or hung up"))
    }

    /// Adds the server's last output to the reason of its end.
    pub(super) fn with_last_output(&self, what: &str) -> String {
        match &self.program {
            Some(program) => program.output.describe_end(what, "", &self.handle.redactor),
            None => what.to_owned(),
        }
    }

    /// Closes the connection: the server has `patience` to end by itself, as long again after
    /// SIGTERM, and is then killed.
    pub(super) async fn close(self, patience: Duration) {
        self.handle.peer.close(patience).await;
        if let Some(program) = self.program {
            program.end(patience).await;
        }
    }
}

impl ConnectionHandle {
    /// Passes a message of a server in the host on to the client. Returns true if it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        self.host.as_ref().is_some_and(|host| host.deliver(message))
    }

    /// Waits until the connection is gone.
    pub(super) async fn closed(&self) {
        self.peer.closed().await;
    }

    /// Waits for a notification that the tools have changed.
    pub(super) async fn wait_for_tool_change(&self) {
        self.peer.wait_for_tool_change().await;
    }

    /// The number of notifications that the tools have changed.
    pub(super) fn tool_changes(&self) -> u64 {
        self.peer.tool_changes()
    }

    /// True while a question of the server is waiting for the host's answer.
    pub(super) fn is_asking_host(&self) -> bool {
        self.peer.elicitor().is_asking()
    }

    /// Answers the requests of a result that demands more input, in the order of their names. `None`: it
    /// demands none, or one that this client did not offer.
    pub(super) async fn input_responses(&self, result: &Value) -> Option<Value> {
        if result["resultType"] != INPUT_REQUIRED {
            return None;
        }
        let elicitor = self.peer.elicitor();
        elicitor.capability()?;
        let mut responses = Map::new();
        for (name, request) in result["inputRequests"].as_object().into_iter().flatten() {
            let response = match request["method"].as_str()? {
                "elicitation/create" => {
                    let request = elicitor.host_request(&request["params"]).ok()?;
                    elicitor.open(None, request)?.answer().await?
                }
                "roots/list" => self.peer.roots(),
                _ => return None,
            };
            responses.insert(name.clone(), response);
        }
        Some(Value::Object(responses))
    }

    /// Sends a request; `params` is an object.
    pub(super) fn send(&self, method: &str, params: Value) -> PendingRequest {
        self.peer.request(method, params)
    }

    /// Returns true if the server still answers a ping, with a result or an error.
    pub(super) async fn is_alive(&self) -> bool {
        let mut ping = self.peer.request("ping", json!({}));
        let answer = timeout(PING_TIMEOUT, ping.answer()).await;
        // An error, such as an unknown method, is an answer too.
        matches!(answer, Ok(Ok(_) | Err(RequestFault::Refused(_))))
    }

    /// The information that the server declared during the handshake.
    pub(super) fn server_info(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.about)
    }

    /// Lists the tools, as the server's raw JSON.
    pub(super) async fn list_tools(&self) -> Result<Listing, CallError> {
        self.list("tools").await
    }

    /// Tells the transport of the tools that are used from now on.
    pub(super) fn use_tools(&self, listed: &Listing) {
        self.peer.transport().set_tools(&listed.entries);
    }

    /// Lists the prompts, as the server's raw JSON.
    pub(super) async fn list_prompts(&self) -> Result<Listing, CallError> {
        self.list("prompts").await
    }

    /// Lists all entries of one kind: `tools` or `prompts`. If the server refuses a further page, the
    /// entries before it count.
    async fn list(&self, kind: &str) -> Result<Listing, CallError> {
        let (mut entries, mut cursor) = (Vec::new(), None);
        for number in 1..=MOST_PAGES {
            let page = match self.list_page(kind, cursor.as_ref(), &mut entries).await {
                Err(CallError::Refused(why)) if number > 1 => {
                    let why = sanitize_start(&why, &self.redactor);
                    let cut = Some(format!("it refuses page {number} of its {kind}: {why}"));
                    return Ok(Listing { entries, cut });
                }
                page => page?,
            };
            cursor = next_cursor(&page, cursor.as_ref());
            if cursor.is_none() {
                return Ok(Listing { entries, cut: None });
            }
        }
        let cut = Some(format!("it has more than {MOST_PAGES} pages of {kind}"));
        Ok(Listing { entries, cut })
    }

    /// Requests a page of a list, and adds its entries.
    async fn list_page(
        &self,
        kind: &str,
        cursor: Option<&Value>,
        entries: &mut Vec<Value>,
    ) -> Result<Value, CallError> {
        let mut page = self.peer.request(&format!("{kind}/list"), page_params(cursor));
        let page = page.answer().await.map_err(classify_call_error)?;
        match &page[kind] {
            Value::Array(listed) => entries.extend(listed.iter().cloned()),
            // Servers in Go write an empty list so.
            Value::Null if page.get(kind).is_some() => {}
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => {
                return Err(CallError::Refused(format!("its answer is not a list of {kind}")));
            }
        }
        Ok(page)
    }
}

/// The entries of a list, as the server's raw JSON.
pub(super) struct Listing {
    pub(super) entries: Vec<Value>,
    /// The reason that further entries are missing.
    pub(super) cut: Option<String>,
}

/// The parameters of a request for a page of a list.
pub(super) fn page_params(cursor: Option<&Value>) -> Value {
    cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }))
}

/// The cursor of the page after one that had this cursor: a text, or a number of some servers, which
/// get it back as it is. An empty one, and the same one again, end the list.
pub(super) fn next_cursor(page: &Value, before: Option<&Value>) -> Option<Value> {
    let next = &page["nextCursor"];
    let is_cursor = next.is_number() || next.as_str().is_some_and(|next| !next.is_empty());
    (is_cursor && Some(next) != before).then(|| next.clone())
}
