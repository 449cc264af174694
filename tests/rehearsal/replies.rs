//! The bytes of a complete reply.

use std::time::Duration;

use outlast_rehearsal::{ReplyForm, Scenario};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::client::{
    End, ask, connect, exchange, parse, post, read_until, respond, start, unstreamed,
};

#[tokio::test]
async fn a_stream_has_the_same_events_as_the_real_service() {
    let server = start(Scenario::new().reply("Hello.").usage(25, 15));
    let (wire, end) = exchange(&server, &ask()).await;
    assert_eq!(end, End::Closed);
    let response = parse(&wire);
    assert_eq!(response.status, 200);
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(response.head.contains("content-type: text/event-stream; charset=utf-8"));
    assert!(response.head.contains("request-id: req_"));
    let id = response.events()[0]["message"]["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("msg_"));
    let expected = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"ID\",\
         \"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\
         \"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":25,\
         \"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
         \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{\"type\":\"text_delta\",\"text\":\"Hello.\"}}\n\n",
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":\
         {\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":15}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    assert_eq!(response.body.replace(&id, "ID"), expected.concat());
    assert!(wire.ends_with("\r\n0\r\n\r\n"), "the chunked body is closed");
}

/// Has no letter of one byte where deltas are cut.
const LONG: &str = "x\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}";

#[tokio::test]
async fn a_non_streaming_request_gets_the_same_reply_as_json() {
    let scenario = Scenario::new()
        .reply(LONG)
        .and_thinking("Where?")
        .and_tool("Bash", json!({ "command": "ls ${cwd}" }))
        .times(2);
    let server = start(scenario);
    let whole = respond(&server, &unstreamed()).await;
    assert!(whole.head.contains(&format!("content-length: {}", whole.body.len())));
    let message = whole.json();
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(message["content"][0]["thinking"], "Where?");
    assert_eq!(message["content"][1], json!({ "type": "text", "text": LONG }));
    assert_eq!(message["content"][2]["input"]["command"], "ls /scratch");

    let events = respond(&server, &ask()).await.events();
    let deltas = |kind: &str, key: &str| -> String {
        let of_kind = events.iter().filter(|event| event["delta"]["type"] == kind);
        of_kind.map(|event| event["delta"][key].as_str().unwrap()).collect()
    };
    assert_eq!(deltas("text_delta", "text"), LONG);
    assert_eq!(deltas("thinking_delta", "thinking"), "Where?");
    assert_eq!(
        deltas("signature_delta", "signature"),
        message["content"][0]["signature"].as_str().unwrap()
    );
    assert_eq!(deltas("input_json_delta", "partial_json"), r#"{"command":"ls /scratch"}"#);
}

#[tokio::test]
async fn two_servers_never_issue_the_same_ids() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let server = start(Scenario::new().tool("Bash", json!({})).times(2));
        for _ in 0..2 {
            let message = respond(&server, &unstreamed()).await.json();
            ids.push(message["id"].to_string());
            ids.push(message["content"][0]["id"].to_string());
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 8);
}

#[tokio::test]
async fn a_tool_call_can_be_truncated_by_the_output_limit() {
    let cut = Scenario::new()
        .reply("I write.")
        .and_tool("Bash", json!({ "command": "rm -rf everything" }))
        .cut(18)
        .times(2);
    let server = start(cut);
    let response = respond(&server, &ask()).await;
    let json: String = response
        .events()
        .iter()
        .filter_map(|event| event["delta"]["partial_json"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(json, r#"{"command":"rm -rf"#.split_at(18).0);
    assert!(response.body.contains("\"stop_reason\":\"max_tokens\""));
    assert_eq!(response.event_names().last(), Some(&"message_stop"));
    let message = respond(&server, &unstreamed()).await.json();
    assert_eq!(message["content"][1]["input"], json!({}), "the service loses a cut input");
}

#[tokio::test]
async fn the_llama_cpp_form_streams_differently_and_closes_the_connection() {
    let scenario = Scenario::new()
        .reply("Hi.")
        .and_tool("Bash", json!({ "command": "ls" }))
        .form(ReplyForm::LlamaCpp)
        .closes_early();
    let server = start(scenario);
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    let (wire, end) = super::client::read_all(&mut stream).await;
    let response = parse(&wire);
    assert_eq!(end, End::Closed, "although the client asked to go on");
    assert!(response.head.contains("keep-alive: timeout=5, max=100"));
    assert!(!response.head.contains("connection: close"), "and was promised it could");
    assert_eq!(
        response.event_names(),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert_eq!(response.events()[3]["content_block"].get("input"), None);
}

#[tokio::test]
async fn a_gateway_can_answer_a_streaming_request_with_json() {
    let server = start(Scenario::new().reply("Hello.").form(ReplyForm::Json));
    let response = respond(&server, &ask()).await;
    assert!(response.head.contains("content-type: application/json"));
    assert_eq!(response.json()["content"][0]["text"], "Hello.");
}

#[tokio::test]
async fn output_tokens_never_exceed_the_requested_cap() {
    let server = start(Scenario::new().reply("Long.").usage(10, 50_000));
    let message = respond(&server, &unstreamed()).await.json();
    assert_eq!(message["usage"]["output_tokens"], 1000);
}

#[tokio::test]
async fn the_shared_prompt_prefix_is_counted_as_a_cache_read() {
    let server = start(Scenario::new().reply("Hello.").times(3));
    let mut body = unstreamed();
    body["system"] = json!([
        { "type": "text", "text": "x".repeat(40_000), "cache_control": { "type": "ephemeral" } }
    ]);
    let usage = async || respond(&server, &body).await.json()["usage"].clone();
    let (first, second) = (usage().await, usage().await);
    assert_eq!(first["cache_read_input_tokens"], 0);
    assert!(first["cache_creation_input_tokens"].as_u64().unwrap() > 10_000);
    assert!(second["cache_read_input_tokens"].as_u64().unwrap() > 10_000);
    assert_eq!(second["cache_creation_input_tokens"], 0);
    body["tools"][0]["description"] = json!("changed");
    let third = respond(&server, &body).await.json()["usage"].clone();
    assert_eq!(third["cache_read_input_tokens"], 0, "a changed prefix is not the same prefix");
}

#[tokio::test]
async fn a_connection_is_kept_alive_for_the_next_request() {
    let server = start(Scenario::new().reply("One.").reply("Two."));
    let mut stream = connect(&server).await;
    for word in ["One.", "Two."] {
        stream.write_all(&post(&ask(), &[])).await.unwrap();
        assert!(read_until(&mut stream, "0\r\n\r\n").await.contains(word));
    }
    assert_eq!(server.accepted(), 1);
    let connections =
        server.requests().iter().map(|request| request.connection_id).collect::<Vec<_>>();
    assert_eq!(connections, [1, 1]);
}

#[tokio::test]
async fn a_chunked_request_body_is_accepted() {
    let server = start(Scenario::new().reply("Got it."));
    let body = ask().to_string();
    let (first, second) = body.split_at(20);
    let mut stream = connect(&server).await;
    let request = format!(
        "POST /any/prefix/v1/messages?beta=true HTTP/1.1\r\nanthropic-version: 1\r\n\
         content-type: application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{first}\r\n{:X};ext\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    for part in request.as_bytes().chunks(50) {
        stream.write_all(part).await.unwrap();
    }
    let (wire, _) = super::client::read_all(&mut stream).await;
    assert_eq!(parse(&wire).status, 200);
    let request = &server.requests()[0];
    assert_eq!(request.body, ask());
    assert_eq!(request.path, "/any/prefix/v1/messages?beta=true");
}

#[tokio::test]
async fn the_other_api_endpoints_answer_too() {
    let server = start(Scenario::new().reply("Unused."));
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
        ("HEAD /prefix HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
        ("POST /v1/messages/count_tokens HTTP/1.1\r\ncontent-length: 8\r\n\r\n12345678", "200 OK"),
        ("GET /v1/else HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        ("POST /v1/complete HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
    ] {
        let mut stream = connect(&server).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let wire = read_until(&mut stream, "\r\n\r\n").await;
        assert!(wire.contains(expected), "{request}: {wire}");
        if request.contains("count_tokens") {
            assert!(wire.ends_with(r#"{"input_tokens":2}"#));
        }
    }
    assert!(server.requests().is_empty(), "none of them is a request for a reply");
    assert_eq!(server.unrequested_answers(), 1);
}

#[tokio::test]
async fn a_malformed_request_gets_a_400_and_a_closed_connection() {
    let server = start(Scenario::new());
    let mut stream = connect(&server).await;
    stream.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").await.unwrap();
    let (wire, _) = super::client::read_all(&mut stream).await;
    assert_eq!(parse(&wire).status, 400);
}

#[tokio::test]
async fn delays_are_scaled_to_script_time() {
    let scenario = Scenario::new().reply("Late.").delay(Duration::from_hours(1));
    let server = start(scenario.time_scale(36_000.0));
    let start = tokio::time::Instant::now();
    assert_eq!(respond(&server, &ask()).await.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(100));
}
