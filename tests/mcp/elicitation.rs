//! Questions of servers to the user, which go to the host.

use std::sync::Arc;
use std::time::Duration;

use outlast::mcp::{McpTimers, Servers};
use outlast::types::HostError;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::host::{HostServer, host_servers};
use super::{McpFixture, long_timers, program, server_environment, words};
use crate::support::host::{ScriptedHost, ScriptedReply, at_once, never};
use crate::support::with_time_limit;

/// A server of the protocol without a handshake, which answers `initialize` with this error.
const STATELESS: [&str; 2] = ["stateless", "-32601"];

/// A server of that mode, and a host that replies so to each request.
async fn asked_by(
    mode: &[&str],
    reply: impl Fn() -> ScriptedReply + Send + Sync + 'static,
) -> (McpFixture, Arc<ScriptedHost>) {
    let host = ScriptedHost::new(move |_| reply());
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut environment = server_environment(folder.path());
    environment.elicitation = Some(Arc::clone(&host) as _);
    let config = program("test", mode, &folder.path().join("log"));
    let servers = Servers::new(vec![config], environment, long_timers());
    servers.start();
    (McpFixture { servers, folder }.ready().await, host)
}

/// The answer that the server received.
async fn answered(bench: &McpFixture, question: &str) -> Value {
    serde_json::from_str(&words(&bench.call("ask", question).await)).expect("JSON")
}

#[tokio::test]
async fn an_answer_of_the_host_goes_to_the_server() {
    let refused = || Err(HostError::Refused("Unsupported control request subtype".to_owned()));
    for (reply, wanted) in [
        (
            Ok(json!({ "action": "accept", "content": { "name": "x" } })),
            json!({ "action": "accept", "content": { "name": "x" } }),
        ),
        (Ok(json!({ "action": "accept" })), json!({ "action": "accept" })),
        (Ok(json!({ "action": "decline", "content": {} })), json!({ "action": "decline" })),
        (Ok(json!({ "action": "cancel" })), json!({ "action": "cancel" })),
        (Ok(json!({ "action": "Accept" })), json!({ "action": "decline" })),
        (Ok(Value::Null), json!({ "action": "decline" })),
        (refused(), json!({ "action": "decline" })),
        (Err(HostError::Closed), json!({ "action": "decline" })),
    ] {
        let (bench, _) = asked_by(&["well"], move || at_once(reply.clone())).await;
        assert_eq!(answered(&bench, "elicitation/create").await["result"], wanted);
    }
}

#[tokio::test]
async fn a_question_states_its_form_and_its_server() {
    let (bench, host) = asked_by(&["well"], || at_once(Ok(json!({ "action": "cancel" })))).await;
    answered(&bench, "elicitation/create").await;
    let text = json!({ "type": "string" });
    let properties = json!({ "name": text, "2": text, "age": { "type": "integer" }, "1": text });
    let wanted = json!({
        "subtype": "elicitation",
        "mcp_server_name": "test",
        "message": "Sure?",
        "mode": "form",
        "requested_schema": { "type": "object", "properties": properties },
        "property_order": ["1", "2", "name", "age"],
        "title": "A question",
        "display_name": "Tester",
        "description": "Of the test",
    });
    assert_eq!(host.requests(), [wanted]);
    let odd = answered(&bench, "odd").await;
    assert_eq!(odd["error"]["code"], -32602, "{odd}");
    assert_eq!(host.requests().len(), 1, "the host is not asked about an unknown mode");
}

#[tokio::test]
async fn the_end_of_a_page_is_announced_once_and_only_if_it_is_known() {
    let (bench, host) = asked_by(&["well"], || at_once(Ok(json!({ "action": "accept" })))).await;
    assert_eq!(answered(&bench, "page").await["result"], json!({ "action": "accept" }));
    let request = host.requests()[0].clone();
    let wanted = (&json!("url"), &json!("https://example.com/x"), &json!("e-1"));
    assert_eq!((&request["mode"], &request["url"], &request["elicitation_id"]), wanted);
    let wanted = json!({ "mcp_server_name": "test", "elicitation_id": "e-1" });
    assert_eq!(host.announced(), [wanted]);
}

#[tokio::test]
async fn elicitation_is_offered_only_where_there_is_a_host_and_sampling_never() {
    let with_host = r#"offered {"elicitation": {"form": {}, "url": {}}, "roots": {}}"#;
    for mode in [&["well"][..], &STATELESS] {
        let (bench, _) = asked_by(mode, never).await;
        assert!(bench.log().contains(with_host), "{}", bench.log());
        let bench = McpFixture::of(mode).ready().await;
        assert!(bench.log().contains(r#"offered {"roots": {}}"#), "{}", bench.log());
    }
    let bench = McpFixture::of(&["well"]).ready().await;
    let declined = answered(&bench, "elicitation/create").await;
    assert_eq!(declined["result"], json!({ "action": "decline" }));
    let (bench, host) = asked_by(&["well"], never).await;
    for bench in [&bench, &McpFixture::of(&["well"]).ready().await] {
        let sampling = answered(bench, "sampling/createMessage").await;
        assert_eq!(sampling["error"]["code"], -32601, "{sampling}");
    }
    assert_eq!(host.requests(), [] as [Value; 0]);
}

#[tokio::test]
async fn a_result_that_demands_input_is_answered_by_the_host_and_the_call_repeated() {
    let reply = json!({ "action": "accept", "content": { "name": "x" } });
    let wanted = reply.clone();
    let (bench, _) = asked_by(&STATELESS, move || at_once(Ok(reply.clone()))).await;
    let answered = answered(&bench, "input").await;
    assert_eq!((&answered[0]["who"], &answered[1]), (&wanted, &json!("s-1")));
    assert!(answered[0]["where"]["roots"].is_array(), "{answered}");
    let bench = McpFixture::of(&STATELESS).ready().await;
    let reply = bench.call("ask", "input").await;
    assert!(reply.is_error && words(&reply).contains("asks for more input"), "{reply:?}");
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_has_no_answer() {
    let (bench, host) = asked_by(&["well"], never).await;
    assert_eq!(words(&bench.call("ask", "withdrawn").await), "never mind");
    // Whatever was sent before is in the log with this call.
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert_eq!(host.requests(), host.cancelled());
    assert!(!bench.log().lines().any(|line| line == "answer"), "{}", bench.log());
}

#[tokio::test]
async fn a_question_of_a_cancelled_call_is_withdrawn_from_the_host_and_cancelled() {
    for (mode, question) in [(&["well"][..], "elicitation/create"), (&STATELESS, "input")] {
        let (bench, host) = asked_by(mode, never).await;
        let (cancel, input) = (CancellationToken::new(), json!({ "text": question }));
        let call = bench.servers.call("mcp__test__ask", &input, &cancel);
        let asked = async {
            host.wait_until("the question", |host| host.requests().len() == 1).await;
            assert_eq!(bench.servers.asking_host("mcp__test__ask").as_deref(), Some("test"));
            cancel.cancel();
        };
        let (reply, ()) = with_time_limit("the end", async { tokio::join!(call, asked) }).await;
        assert!(reply.is_error && words(&reply).contains("Interrupted"), "{reply:?}");
        host.wait_until("the withdrawal", |host| host.cancelled().len() == 1).await;
        assert_eq!(bench.servers.asking_host("mcp__test__ask"), None);
        if mode == ["well"] {
            bench.wait_for_log("answer").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_has_the_time_of_a_call_and_the_call_that_it_belongs_to_waits_for_it() {
    let minutes = Duration::from_mins;
    let server = HostServer::new();
    let host = server.host();
    let timers = McpTimers { call: minutes(10), ..long_timers() };
    let (servers, _folder) = host_servers(Arc::clone(&host), timers);
    servers.wait_until_connected(&[]).await.expect("it starts");
    let (began, cancel, input) = (Instant::now(), CancellationToken::new(), json!({}));
    let call = servers.call("mcp__test__hang", &input, &cancel);
    let question = |id: &str| {
        let params = json!({ "message": "Sure?", "requestedSchema": {} });
        let method = "elicitation/create";
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    };
    let ask = async {
        sleep(minutes(5)).await;
        assert!(servers.deliver("test", question("q-1")));
    };
    let (reply, ()) = tokio::join!(call, ask);
    assert!(words(&reply).contains("did not answer"), "{reply:?}");
    // 5 min until the question, 10 for its answer, and 10 more for the result.
    assert_eq!(began.elapsed().as_secs(), 25 * 60);
    let answers = host.requests();
    let answers = answers.iter().map(|request| &request["message"]);
    let answers: Vec<&Value> = answers.filter(|message| message["id"] == "q-1").collect();
    let wanted = json!({ "jsonrpc": "2.0", "id": "q-1", "result": { "action": "cancel" } });
    assert_eq!(answers, [&wanted]);
    // Without a call there is nothing that it could belong to.
    assert!(servers.deliver("test", question("q-2")));
    host.wait_until("the answer", |host| {
        host.requests().last().is_some_and(|request| {
            let message = &request["message"];
            message["id"] == "q-2" && message["result"] == json!({ "action": "cancel" })
        })
    })
    .await;
}
