//! Calls, and every way in which they go wrong.

use std::time::Duration;

use outlast::mcp::{ContentPart, McpTimers, ServerStatus};
use outlast::transcript::Block;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{McpFixture, long_timers, words};
use crate::support::with_time_limit;

#[tokio::test]
async fn every_kind_of_answer_comes_through() {
    let bench = McpFixture::of(&["well"]).ready().await;
    assert!(bench.servers.has_tool("mcp__test__echo"));
    assert!(!bench.servers.has_tool("echo"));
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    let failed = bench.call("fail", "").await;
    assert_eq!((words(&failed).as_str(), failed.is_error), ("it went wrong", true));
    let refused = bench.call("refuse", "").await;
    assert!(refused.is_error && words(&refused).contains("no such argument"), "{refused:?}");
    let image = bench.call("image", "").await;
    assert!(matches!(image.parts[..], [ContentPart::Block(Block::Image { .. })]), "{image:?}");
    let data = bench.call("data", "").await;
    let wanted = ContentPart::Data {
        what: "a recording (audio/wav)".to_owned(),
        bytes: b"\x00\x01binary".to_vec(),
    };
    assert_eq!(data.parts, [wanted]);
    assert_eq!(words(&bench.call("resource", "").await), "[x://y]\ninside");
    let stats = bench.servers.stats();
    assert_eq!((stats.calls, stats.failed, stats.reconnects), (6, 2, 0));
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_an_error_and_comes_back() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let died = bench.call("die", "").await;
    assert!(died.is_error && words(&died).contains("effect is unknown"), "{died:?}");
    // It is waited for.
    assert_eq!(words(&bench.call("echo", "again").await), "echo: again");
    assert_eq!(bench.servers.stats().reconnects, 1);
    assert_eq!(bench.log().matches("start ").count(), 2, "{}", bench.log());
    assert_eq!(bench.log().matches("call die").count(), 1, "what may have worked is not repeated");
    let news = bench.servers.take_warnings().join("\n");
    assert!(news.contains("out of cheese"), "what it said of its end is told: {news}");
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends_in_time_and_is_cancelled() {
    let timers = McpTimers { call: Duration::from_secs(3), ..long_timers() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    let late = bench.call("hang", "").await;
    assert!(late.is_error && words(&late).contains("did not answer within"), "{late:?}");
    // The server is alive: it is not restarted, and was told that the call is cancelled.
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    bench.wait_for_log("notifications/cancelled").await;
    assert_eq!(bench.log().matches("start ").count(), 1);
}

#[tokio::test]
async fn a_server_that_went_silent_is_started_anew() {
    let timers = McpTimers { call: Duration::from_secs(3), ..long_timers() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    assert!(bench.call("mute", "").await.is_error);
    bench.wait_for_status(ServerStatus::Pending).await;
    bench.wait_for_status(ServerStatus::Connected).await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
}

#[tokio::test]
async fn mcp_progress_extends_the_call_timeout_up_to_a_limit() {
    let call = Duration::from_secs(3);
    let timers = McpTimers { call, call_max: Duration::from_secs(9), ..long_timers() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    // Three seconds and a half.
    assert_eq!(words(&bench.call("slow", "12").await), "done at last");
    // Progress of no request is about the only call.
    assert_eq!(words(&bench.call("slow", "12 vague").await), "done at last");
    let late = bench.call("slow", "100").await;
    assert!(words(&late).contains("did not answer within 9"), "{late:?}");
}

#[tokio::test]
async fn a_server_has_a_time_of_its_own() {
    let bench = McpFixture::with(&["well"], long_timers(), |config, _| {
        config.timeout = Some(Duration::from_millis(200));
    });
    let bench = bench.ready().await;
    assert!(words(&bench.call("hang", "").await).contains("did not answer within 0.2"));
}

#[tokio::test]
async fn an_interrupt_ends_a_call_at_once_and_the_server_hears_of_it() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let cancel = CancellationToken::new();
    let input = json!({});
    let call = bench.servers.call("mcp__test__hang", &input, &cancel);
    let stop = async {
        bench.wait_for_log("call hang").await;
        cancel.cancel();
    };
    let (reply, ()) =
        with_time_limit("the end", Box::pin(async { tokio::join!(call, stop) })).await;
    assert!(reply.is_error && words(&reply).contains("Interrupted"), "{reply:?}");
    bench.wait_for_log("notifications/cancelled").await;
}

#[tokio::test]
async fn a_message_without_end_costs_the_connection_and_nothing_else() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let huge = bench.call("huge", "").await;
    let told = words(&huge);
    assert!(huge.is_error && told.contains("was lost while the call"), "{told}");
    assert!(told.contains("it sent a message that is longer than 32 MiB"), "{told}");
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
}

#[tokio::test]
async fn tools_that_come_later_are_found() {
    let bench = McpFixture::of(&["well"]).ready().await;
    assert_eq!(words(&bench.call("grow", "").await), "there is one more");
    with_time_limit("the new tool", async {
        while !bench.servers.has_tool("mcp__test__grown") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let names = bench.servers.tool_definitions();
    assert_eq!(names.last().map(|tool| tool.name.as_str()), Some("mcp__test__grown"));
}

#[tokio::test]
async fn a_server_that_asks_is_answered() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let roots = words(&bench.call("ask", "roots/list").await);
    assert!(roots.contains(&format!("file://{}", bench.folder.path().display())), "{roots}");
    let sampling = words(&bench.call("ask", "sampling/createMessage").await);
    assert!(sampling.contains("\"error\""), "sampling is not supported: {sampling}");
    let question = words(&bench.call("ask", "elicitation/create").await);
    assert!(question.contains("decline") || question.contains("\"error\""), "{question}");
    assert!(words(&bench.call("ask", "ping").await).contains("\"result\""));
}

#[tokio::test]
async fn resources_are_listed_and_read() {
    let plain = McpFixture::of(&["well"]).ready().await;
    assert!(!plain.servers.has_tool("ListMcpResources"), "only where there are any");
    let bench = McpFixture::of(&["rich"]).ready().await;
    let cancel = CancellationToken::new();
    let list = bench.servers.call("ListMcpResources", &json!({}), &cancel).await;
    let listed = words(&list);
    let first = r#"{"server":"test","uri":"x://notes","name":"notes"}"#;
    assert!(listed.contains(first) && listed.contains("x://{id}"), "{listed}");
    let read = |server: &str, uri: &str| json!({ "server": server, "uri": uri });
    let reply = bench.servers.call("ReadMcpResource", &read("test", "x://notes"), &cancel).await;
    assert_eq!(words(&reply), "[x://notes]\nread it");
    let blob = bench.servers.call("ReadMcpResource", &read("test", "x://blob"), &cancel).await;
    assert!(
        matches!(&blob.parts[..], [ContentPart::Data { bytes, .. }] if bytes == b"hi"),
        "{blob:?}"
    );
    for (server, uri) in [("other", "x://notes"), ("test", "x://none")] {
        let reply = bench.servers.call("ReadMcpResource", &read(server, uri), &cancel).await;
        assert!(reply.is_error, "{reply:?}");
    }
    // It is the only server, and the name is that in the names of its tools.
    for input in [json!({ "uri": "x://notes" }), read("mcp__TEST", "x://notes")] {
        let reply = bench.servers.call("ReadMcpResource", &input, &cancel).await;
        assert_eq!(words(&reply), "[x://notes]\nread it");
    }
    let nothing = bench.servers.call("ReadMcpResource", &json!({}), &cancel).await;
    assert!(nothing.is_error, "{nothing:?}");
    assert!(bench.servers.instructions().contains("## mcp__test__\nEcho first."));
    assert!(bench.servers.instructions().chars().count() < 2_100, "bounded");
}
