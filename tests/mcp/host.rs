//! Servers that run in the host: each message is a request to it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast::mcp::{McpTimers, ServerAddress, ServerIdentity, ServerStatus, Servers};
use outlast::types::HostError;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use super::{McpFixture, entry, long_timers, server_environment, unavailable_reason, words};
use crate::support::host::{ScriptedHost, ScriptedReply, at_once, never};
use crate::support::with_time_limit;

/// A host with one server, `test`.
pub(crate) struct HostServer {
    /// The names of its tools.
    tools: Mutex<Vec<&'static str>>,
    /// Whether standard input was closed.
    is_closed: AtomicBool,
    meeting: Arc<Barrier>,
}

const TOOLS: [&str; 6] = ["echo", "fail", "refuse", "meet", "hang", "garbage"];

impl HostServer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            tools: Mutex::new(TOOLS.to_vec()),
            is_closed: AtomicBool::new(false),
            meeting: Arc::new(Barrier::new(2)),
        })
    }

    /// The host that runs it.
    pub(crate) fn host(self: &Arc<Self>) -> Arc<ScriptedHost> {
        let server = Arc::clone(self);
        ScriptedHost::new(move |request| server.answer(&request))
    }

    fn answer(&self, request: &Value) -> ScriptedReply {
        if self.is_closed.load(Ordering::Relaxed) {
            return at_once(Err(HostError::Closed));
        }
        if request["subtype"] == "elicitation" {
            return never();
        }
        if request["server_name"] != "test" {
            return at_once(Err(HostError::Refused("there is no such server".to_owned())));
        }
        let message = &request["message"];
        let answer = |key: &str, value: Value| {
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], key: value });
            Ok(json!({ "mcp_response": answer }))
        };
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => at_once(answer(
                "result",
                json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "calculator", "version": "1.2.0" },
                }),
            )),
            "tools/list" => {
                let tools = self.tools.lock().expect("no panic while writing").clone();
                let schema = json!({ "type": "object" });
                let tool = |name: &&str| json!({ "name": name, "inputSchema": schema });
                let tools: Vec<Value> = tools.iter().map(tool).collect();
                at_once(answer("result", json!({ "tools": tools })))
            }
            "tools/call" => self.call(message, answer),
            method if method.starts_with("notifications/") => {
                at_once(Ok(json!({ "mcp_response": { "jsonrpc": "2.0", "result": {} } })))
            }
            _ => at_once(answer("error", json!({ "code": -32601, "message": "unknown method" }))),
        }
    }

    fn call(
        &self,
        message: &Value,
        answer: impl Fn(&str, Value) -> Result<Value, HostError>,
    ) -> ScriptedReply {
        let text = message["params"]["arguments"]["text"].as_str().unwrap_or_default();
        let result = |text: &str, is_error: bool| {
            let content = json!([{ "type": "text", "text": text }]);
            answer("result", json!({ "content": content, "isError": is_error }))
        };
        match message["params"]["name"].as_str().unwrap_or_default() {
            "echo" => at_once(result(&format!("echo: {text}"), false)),
            "fail" => at_once(result("it went wrong", true)),
            "refuse" => {
                at_once(answer("error", json!({ "code": -32602, "message": "no such argument" })))
            }
            "meet" => {
                let (reply, meeting) = (result(&format!("met: {text}"), false), &self.meeting);
                let meeting = Arc::clone(meeting);
                Box::pin(async move {
                    meeting.wait().await;
                    reply
                })
            }
            "hang" => never(),
            _ => at_once(Ok(json!(["no answer"]))),
        }
    }
}

/// The server in its host, as [`McpFixture`] calls it.
struct HostFixture {
    server: Arc<HostServer>,
    host: Arc<ScriptedHost>,
    bench: McpFixture,
}

/// The servers of a run that a host drives.
pub(crate) fn host_servers(host: Arc<ScriptedHost>, timers: McpTimers) -> (Servers, TempDir) {
    servers("test", Some(host), timers)
}

fn servers(name: &str, host: Option<Arc<ScriptedHost>>, timers: McpTimers) -> (Servers, TempDir) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut environment = server_environment(folder.path());
    environment.host = host.map(|host| host as _);
    environment.elicitation.clone_from(&environment.host);
    let (mut config, _) = entry(&json!({ "type": "sdk", "name": "calc" })).expect("it is right");
    assert_eq!(config.place, ServerAddress::Host);
    name.clone_into(&mut config.name);
    let servers = Servers::new(vec![config], environment, timers);
    servers.start();
    (servers, folder)
}

impl HostFixture {
    async fn ready(timers: McpTimers) -> Self {
        let server = HostServer::new();
        let host = server.host();
        let (servers, folder) = host_servers(host.clone(), timers);
        Self { server, host, bench: McpFixture { servers, folder }.ready().await }
    }
}

/// The messages that the server received with this method.
fn messages(host: &ScriptedHost, method: &str) -> Vec<Value> {
    let requests = host.requests().into_iter().map(|request| request["message"].clone());
    requests.filter(|message| message["method"] == method).collect()
}

#[tokio::test]
async fn a_host_server_is_initialized_listed_and_called() {
    let HostFixture { host, bench, .. } = HostFixture::ready(long_timers()).await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    let requests = host.requests();
    for request in &requests {
        let wanted = (&json!("mcp_message"), &json!("test"), &json!("2.0"));
        let message = &request["message"];
        assert_eq!((&request["subtype"], &request["server_name"], &message["jsonrpc"]), wanted);
    }
    let methods: Vec<&str> =
        requests.iter().filter_map(|request| request["message"]["method"].as_str()).collect();
    let wanted = ["initialize", "notifications/initialized", "tools/list", "tools/call"];
    assert_eq!(methods, wanted);
    let ids = [0, 2, 3].map(|index| &requests[index]["message"]["id"]);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    assert_eq!(requests[3]["message"]["params"]["arguments"], json!({ "text": "hi" }));
    let report = &bench.servers.reports()[0];
    let identity = ServerIdentity { name: "calculator".to_owned(), version: "1.2.0".to_owned() };
    assert_eq!((report.status, &report.identity), (ServerStatus::Connected, &Some(identity)));
}

#[tokio::test]
async fn a_second_connection_to_a_host_server_uses_no_identifier_of_the_first() {
    let HostFixture { host, bench, .. } = HostFixture::ready(long_timers()).await;
    bench.servers.reconnect("test").expect("the server is known");
    bench.servers.wait_until_connected(&["test".to_owned()]).await.expect("it connects");
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert_eq!(messages(&host, "initialize").len(), 2);
    let requests = host.requests();
    let ids = requests.iter().filter_map(|request| request["message"]["id"].as_u64());
    let ids: Vec<u64> = ids.collect();
    let unique: BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!((ids.len(), unique.len()), (5, 5), "{ids:?}");
}

#[tokio::test]
async fn an_error_of_a_host_server_is_an_error_result() {
    let HostFixture { bench, .. } = HostFixture::ready(long_timers()).await;
    let rows = [
        ("fail", "it went wrong"),
        ("refuse", "no such argument"),
        ("garbage", "the host's reply holds no answer of the server"),
    ];
    for (tool, wanted) in rows {
        let reply = bench.call(tool, "").await;
        assert!(reply.is_error && words(&reply).contains(wanted), "{tool}: {reply:?}");
    }
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert_eq!(bench.servers.stats().reconnects, 0);
}

#[tokio::test]
async fn two_calls_of_a_host_server_run_at_once() {
    let HostFixture { bench, .. } = HostFixture::ready(long_timers()).await;
    let (one, two) = tokio::join!(bench.call("meet", "one"), bench.call("meet", "two"));
    assert_eq!((words(&one).as_str(), words(&two).as_str()), ("met: one", "met: two"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_host_does_not_answer_ends_in_time_and_is_cancelled() {
    let timers = McpTimers { call: Duration::from_secs(3), ..long_timers() };
    let HostFixture { host, bench, .. } = HostFixture::ready(timers).await;
    let late = bench.call("hang", "").await;
    assert!(late.is_error && words(&late).contains("did not answer within 3.0 s"), "{late:?}");
    let is_told = |host: &ScriptedHost| host.cancelled().len() == 1;
    host.wait_until("the cancellation", is_told).await;
    let call = messages(&host, "tools/call").remove(0);
    assert_eq!(host.cancelled()[0]["message"], call);
    let notice = messages(&host, "notifications/cancelled");
    assert_eq!(notice.len(), 1);
    assert_eq!(notice[0]["params"]["requestId"], call["id"]);
    // It is checked with a ping, and lives.
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert_eq!(messages(&host, "initialize").len(), 1);
}

#[tokio::test]
async fn an_interrupt_ends_a_call_of_a_host_server() {
    let HostFixture { host, bench, .. } = HostFixture::ready(long_timers()).await;
    let (cancel, input) = (CancellationToken::new(), json!({}));
    let called = |host: &ScriptedHost| !messages(host, "tools/call").is_empty();
    let stop = async {
        host.wait_until("the call", called).await;
        cancel.cancel();
    };
    let call = bench.servers.call("mcp__test__hang", &input, &cancel);
    let (call, stop) = (Box::pin(call), Box::pin(stop));
    let (reply, ()) = with_time_limit("the end", async { tokio::join!(call, stop) }).await;
    assert!(reply.is_error);
    host.wait_until("the cancellation", |host| {
        messages(host, "notifications/cancelled").len() == 1 && host.cancelled().len() == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_host_fails_the_call_and_the_server_for_good() {
    let HostFixture { server, host, bench } = HostFixture::ready(long_timers()).await;
    server.is_closed.store(true, Ordering::Relaxed);
    let why = "the host has closed standard input, so it cannot reply";
    let reply = bench.call("echo", "hi").await;
    assert!(reply.is_error && words(&reply).contains(why), "{reply:?}");
    bench.wait_for_status(ServerStatus::Failed).await;
    assert_eq!(unavailable_reason(&bench), why);
    assert_eq!(messages(&host, "initialize").len(), 1, "it is not tried again");
    let later = bench.call("echo", "hi").await;
    assert!(later.is_error && words(&later).contains("is no longer available"), "{later:?}");
}

#[tokio::test]
async fn a_host_server_without_a_host_or_unknown_to_it_is_not_connected() {
    let (missing, _folder) = servers("test", None, long_timers());
    with_time_limit("the verdict", missing.wait_until_connected(&[])).await.expect_err("no host");
    let report = missing.reports().remove(0);
    let why = "it runs in an SDK host, and no host drives this run";
    assert_eq!((report.status, report.why.as_deref()), (ServerStatus::Failed, Some(why)));
    assert_eq!(report.identity, None);
    let (unknown, _folder) = servers("other", Some(HostServer::new().host()), long_timers());
    let tried = unknown.wait_for_starts(Duration::from_mins(4));
    with_time_limit("the first attempt", tried).await;
    let why = unknown.reports().remove(0).why;
    assert_eq!(why.as_deref(), Some("it did not start up: there is no such server"));
}

#[tokio::test]
async fn a_notification_of_a_host_server_is_delivered() {
    let HostFixture { server, bench, .. } = HostFixture::ready(long_timers()).await;
    server.tools.lock().expect("no panic while writing").push("late");
    let method = "notifications/tools/list_changed";
    let notice = json!({ "jsonrpc": "2.0", "method": method });
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    assert!(!bench.servers.deliver("other", notice.clone()));
    assert!(!bench.servers.deliver("test", answer));
    assert!(!bench.servers.deliver("test", json!({ "method": 7 })));
    assert!(!bench.servers.has_tool("mcp__test__late"));
    assert!(bench.servers.deliver("test", notice));
    with_time_limit("the new tool", async {
        while !bench.servers.has_tool("mcp__test__late") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
