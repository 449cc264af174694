//! One connection to a server, from its handshake to its loss.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::DropGuard;

use crate::process::{
    Job, ProgramTerms, find_user_program, skipped_program, timeout_while_running,
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
use super::peer::Peer;
use super::rpc::INPUT_REQUIRED;
use super::sanitize::sanitize_start;
use super::server_client::{ANSWER_BYTES_MAX, HeaderRenewal, ServerClient};
use super::sse_transport::SseTransport;
use super::state::ConnectionLoss;
use super::stdio::{self, ServerProcess};
use super::transport::{Inbox, Transport};

/// The time limit of the request that finds out whether an HTTP server offers the protocol without
/// a handshake.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of a list. Some servers write one entry on each page.
const MOST_PAGES: usize = 1_000;
const MOST_BYTES: usize = ANSWER_BYTES_MAX;

/// The time limit of a ping to a server that did not answer.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The wait for the last output of a program that did not start up: it may arrive after the end of
/// its standard output.
const LAST_OUTPUT_WAIT: Duration = Duration::from_millis(50);

/// An established connection.
pub(super) struct Connection {
    handle: ConnectionHandle,
    program: Option<ServerProcess>,
    /// True for the first version of the protocol over HTTP, which uses one stream.
    is_stream: bool,
    /// Ends the connection if it is dropped without being closed.
    _guard: DropGuard,
}

/// A handle of a connection, for calls.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    pub(super) peer: Peer,
    /// Receives messages of a server that runs in the host. `None` for other servers.
    host: Option<HostInbox>,
    /// The information that the server declared during the handshake.
    pub(super) info: Arc<ServerInfo>,
    /// Masks secrets in the server's output.
    redactor: Redactor,
}

/// The reason that a connection could not be made.
struct ConnectError {
    loss: ConnectionLoss,
    /// True if the server may accept the other lifecycle.
    rejects_lifecycle: bool,
}

/// Connects to a server. Over HTTP, where a probe is cheap, the protocol without a handshake is
/// tried first; programs may end at an unknown request. If the server rejects one lifecycle, the
/// other one is tried. The user has `answer_max` for the answer to a question of the server.
pub(super) async fn connect(
    config: &ServerConfig,
    environment: &Arc<ServerEnvironment>,
    limit: Duration,
    answer_max: Duration,
) -> Result<Connection, ConnectionLoss> {
    let first = match &config.place {
        ServerAddress::Http(HttpAddress { kind: HttpKind::Streamable, .. }) => Lifecycle::Stateless,
        ServerAddress::Http(_) | ServerAddress::Program { .. } | ServerAddress::Host => {
            Lifecycle::Handshake
        }
    };
    let renewal = header_renewal(config, environment)?;
    let host = environment.elicitation.clone();
    let elicitor = Arc::new(Elicitor::new(host, &config.name, answer_max));
    let open = |lifecycle, limit| {
        open_connection(config, environment, &renewal, &elicitor, (lifecycle, limit))
    };
    let (second, first_limit) = match first {
        Lifecycle::Stateless => (Lifecycle::Handshake, limit.min(DISCOVERY_TIMEOUT)),
        Lifecycle::Handshake => (Lifecycle::Stateless, limit),
    };
    let rejection = match open(first, first_limit).await {
        Err(error) if error.rejects_lifecycle => error.loss,
        opened => return opened.map_err(|error| error.loss),
    };
    open(second, limit).await.map_err(|error| match second {
        // The error of the handshake has more detail.
        Lifecycle::Handshake => error.loss,
        Lifecycle::Stateless => rejection,
    })
}

async fn open_connection(
    config: &ServerConfig,
    environment: &Arc<ServerEnvironment>,
    renewal: &Arc<HeaderRenewal>,
    elicitor: &Arc<Elicitor>,
    (lifecycle, limit): (Lifecycle, Duration),
) -> Result<Connection, ConnectError> {
    let waiting_max = match config.place {
        ServerAddress::Program { .. } => stdio::WAITING_MAX,
        ServerAddress::Http(_) => http::WAITING_MAX,
        ServerAddress::Host => host::WAITING_MAX,
    };
    let (inbox, received) = Inbox::new(waiting_max);
    let guard = inbox.closed.clone().drop_guard();
    let (transport, program) = open_transport(config, environment, renewal, inbox.clone())
        .await
        .map_err(|loss| ConnectError { loss, rejects_lifecycle: false })?;
    let host = matches!(config.place, ServerAddress::Host).then(|| HostInbox::new(&inbox));
    let peer = Peer::start(transport, inbox, received, roots(environment), Arc::clone(elicitor));
    let redactor = environment.login.redactor.clone();
    let handshake = handshake(&peer, lifecycle, &redactor);
    match timeout_while_running(limit, handshake).await {
        Some(Ok(info)) => {
            let handle = ConnectionHandle { peer, host, info: Arc::new(info), redactor };
            let is_stream = matches!(
                config.place,
                ServerAddress::Http(HttpAddress { kind: HttpKind::Sse, .. })
            );
            Ok(Connection { handle, program, is_stream, _guard: guard })
        }
        Some(Err(fault)) => {
            let rejects_lifecycle = rejects(lifecycle, &fault);
            let loss = handshake_loss(config, program.as_ref(), &peer, &fault, &redactor).await;
            Err(ConnectError { loss, rejects_lifecycle })
        }
        None => {
            let why = format!("it did not answer within {} s", limit.as_secs_f32());
            let loss = ConnectionLoss::Transient(match &program {
                Some(program) => program.output.describe_end(&why, "", &redactor),
                None => why,
            });
            let rejects_lifecycle = matches!(lifecycle, Lifecycle::Stateless);
            Err(ConnectError { loss, rejects_lifecycle })
        }
    }
}

/// Classifies a failed handshake.
async fn handshake_loss(
    config: &ServerConfig,
    program: Option<&ServerProcess>,
    peer: &Peer,
    fault: &RequestFault,
    redactor: &Redactor,
) -> ConnectionLoss {
    if matches!(config.place, ServerAddress::Http(_)) {
        return classify_connect_loss(fault, redactor);
    }
    let why = describe_handshake_fault(fault, redactor);
    let what = "it did not start up";
    match program {
        Some(program) => {
            sleep(LAST_OUTPUT_WAIT).await;
            ConnectionLoss::Transient(program.output.describe_end(what, &why, redactor))
        }
        None if peer.is_closed() => host_loss(),
        None => ConnectionLoss::Transient(format!("{what}: {why}")),
    }
}

/// Opens the transport to a server. Starts its program, if it has one.
async fn open_transport(
    config: &ServerConfig,
    environment: &ServerEnvironment,
    renewal: &Arc<HeaderRenewal>,
    inbox: Inbox,
) -> Result<(Box<dyn Transport>, Option<ServerProcess>), ConnectionLoss> {
    Ok(match &config.place {
        ServerAddress::Program { .. } => {
            let job = job(config, environment)?;
            let started = ServerProcess::start(&environment.supervisor, &job, inbox).await;
            let (program, pipes) = started.map_err(|error| {
                let program = job.program.display();
                ConnectionLoss::Permanent(format!("{program} cannot be started: {error}"))
            })?;
            (Box::new(pipes), Some(program))
        }
        ServerAddress::Http(address) => {
            (http_transport(address, environment, renewal, inbox)?, None)
        }
        ServerAddress::Host => {
            let host = environment.host.as_ref().ok_or_else(|| {
                let why = "it runs in an SDK host, and no host drives this run";
                ConnectionLoss::Permanent(why.to_owned())
            })?;
            (Box::new(HostTransport::new(Arc::clone(host), &config.name, inbox)), None)
        }
    })
}

/// The folders that the run works in, as the protocol states them.
fn roots(environment: &ServerEnvironment) -> Value {
    let folders = [&environment.cwd].into_iter().chain(&environment.folders);
    // A path that is not a valid URL is of no use to a server.
    let urls = folders.filter_map(|path| Url::from_file_path(path).ok());
    urls.map(|url| json!({ "uri": url.as_str() })).collect()
}

/// Creates the source of headers that expire. All attempts to connect share it.
fn header_renewal(
    config: &ServerConfig,
    environment: &Arc<ServerEnvironment>,
) -> Result<Arc<HeaderRenewal>, ConnectionLoss> {
    let ServerAddress::Http(address) = &config.place else {
        return Ok(Arc::new(HeaderRenewal::None));
    };
    let renewal = if let Some(command) = &address.helper {
        let job = HeadersHelper::job(command, (&config.name, &address.url), environment);
        HeaderRenewal::Helper(Box::new(HeadersHelper::new(job, environment)))
    } else if address.takes_login() {
        let url = parse_url(address)?;
        let settings = address.oauth.clone().unwrap_or_default();
        let environment = &environment.login;
        HeaderRenewal::Login(AccessTokens::new(&config.name, url, settings, environment))
    } else {
        HeaderRenewal::None
    };
    Ok(Arc::new(renewal))
}

fn http_transport(
    address: &HttpAddress,
    environment: &ServerEnvironment,
    renewal: &Arc<HeaderRenewal>,
    inbox: Inbox,
) -> Result<Box<dyn Transport>, ConnectionLoss> {
    let (url, environment) = (parse_url(address)?, &environment.login);
    let (http, renewal, redactor) =
        (Arc::clone(&environment.http), Arc::clone(renewal), environment.redactor.clone());
    let server = ServerClient::new(http, url, &address.headers, renewal, redactor)
        .map_err(|error| ConnectionLoss::Permanent(error.to_string()))?;
    Ok(match address.kind {
        HttpKind::Streamable => Box::new(HttpTransport::new(server, inbox)),
        HttpKind::Sse => Box::new(SseTransport::start(server, inbox)),
    })
}

fn parse_url(address: &HttpAddress) -> Result<Url, ConnectionLoss> {
    Url::parse(&address.url).map_err(|error| ConnectionLoss::Permanent(error.to_string()))
}

/// Records the current state of an enabled server's program, or of the helper that prints its
/// headers.
pub(super) fn remember_job(config: &ServerConfig, environment: &ServerEnvironment) {
    let job = match &config.place {
        _ if config.disabled => None,
        ServerAddress::Program { .. } => job(config, environment).ok(),
        ServerAddress::Http(HttpAddress { url, helper, .. }) => helper
            .as_ref()
            .map(|command| HeadersHelper::job(command, (&config.name, url), environment)),
        ServerAddress::Host => None,
    };
    if let Some(job) = job {
        environment.supervisor.remember(&job);
    }
}

/// Builds the job of a server that is a program.
fn job(config: &ServerConfig, environment: &ServerEnvironment) -> Result<Job, ConnectionLoss> {
    let ServerAddress::Program { command, arguments, variables, cwd } = &config.place else {
        return Err(ConnectionLoss::Permanent("it is not a program".to_owned()));
    };
    let cwd = cwd.as_ref().map_or_else(|| environment.cwd.clone(), |cwd| environment.cwd.join(cwd));
    if !cwd.is_dir() {
        let why = format!("its \"cwd\" {} is not a folder", cwd.display());
        return Err(ConnectionLoss::Permanent(why));
    }
    let own = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let all: Vec<(OsString, OsString)> = environment.program_environment().chain(own).collect();
    let variable = |wanted: &str| {
        let found = all.iter().rev().find(|(name, _)| name == wanted);
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
        ..Job::new(program, arguments, cwd, all)
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

    /// Closes the connection: the server has `limit` to end by itself, as long again after
    /// SIGTERM, and is then killed.
    pub(super) async fn close(self, limit: Duration) {
        self.handle.peer.close(limit).await;
        if let Some(program) = self.program {
            program.end(limit).await;
        }
    }
}

impl ConnectionHandle {
    /// Passes a message of a server in the host on to the client. Returns true if it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        self.host.as_ref().is_some_and(|host| host.deliver(message))
    }

    /// Answers the requests of a result that demands more input, in the order of their names.
    /// `None` if the result demands no input, or input that this client did not offer.
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
                    let request = elicitor.read(&request["params"]).ok()?;
                    elicitor.open(None, request)?.answer().await?
                }
                "roots/list" => self.peer.roots(),
                _ => return None,
            };
            responses.insert(name.clone(), response);
        }
        Some(Value::Object(responses))
    }

    /// Returns true if the server still answers a ping, with a result or an error.
    pub(super) async fn is_alive(&self) -> bool {
        let mut ping = self.peer.request("ping", json!({}));
        let answer = timeout(PING_TIMEOUT, ping.answer()).await;
        // An error, such as an unknown method, is an answer too.
        matches!(answer, Ok(Ok(_) | Err(RequestFault::Refused(_))))
    }

    /// Lists all entries of one kind: `tools` or `prompts`. If the server refuses a further page,
    /// the entries of the earlier pages are returned.
    pub(super) async fn list(&self, kind: &str) -> Result<Listing, CallError> {
        let (mut entries, mut cursors, mut bytes) = (Vec::new(), Vec::new(), 0);
        for number in 1..=MOST_PAGES {
            let page = match self.list_page(kind, cursors.last(), &mut entries).await {
                Err(CallError::Refused(why)) if number > 1 => {
                    let why = sanitize_start(&why, &self.redactor);
                    let cut = Some(format!("it refuses page {number} of its {kind}: {why}"));
                    return Ok(Listing { entries, cut });
                }
                page => page?,
            };
            if !add_next_cursor(&page, &mut cursors) {
                return Ok(Listing { entries, cut: None });
            }
            bytes += page.to_string().len();
            if bytes > MOST_BYTES {
                break;
            }
        }
        let mib = MOST_BYTES >> 20;
        let cut = format!("its list of {kind} has more than {MOST_PAGES} pages, or {mib} MiB");
        Ok(Listing { entries, cut: Some(cut) })
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
        let listed = if page.is_array() { &page } else { &page[kind] };
        match listed {
            Value::Array(listed) => entries.extend(listed.iter().cloned()),
            // Some servers write an object of the entries by their names.
            Value::Object(named) if named.values().all(Value::is_object) => {
                entries.extend(named.iter().map(|(name, entry)| {
                    let mut entry = entry.clone();
                    entry["name"] = json!(name);
                    entry
                }));
            }
            // Servers written in Go send an empty list as null.
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

/// Adds the cursor of the page after this one to those of the earlier pages: a text or, from some
/// servers, another value, which is returned unchanged. An empty or repeated cursor ends the list.
/// Returns true if there is a further page.
pub(super) fn add_next_cursor(page: &Value, cursors: &mut Vec<Value>) -> bool {
    let next = &page["nextCursor"];
    let is_cursor = match next {
        Value::Null | Value::Bool(_) => false,
        Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
        Value::String(text) => !text.is_empty(),
    };
    let is_new = is_cursor && !cursors.contains(next);
    cursors.extend(is_new.then(|| next.clone()));
    is_new
}
