//! Scripted faults: the bytes and the connection end that a client sees.

use std::time::{Duration, SystemTime};

use outlast_rehearsal::{FaultPosition, Scenario, ScriptedError, ScriptedFaultKind};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::client::{
    End, PATIENCE, ask, connect, exchange, parse, post, read_all, read_until, respond, start,
    unstreamed,
};

#[tokio::test]
async fn an_error_status_has_the_services_error_body() {
    for (status, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ] {
        let server = start(Scenario::new().status(status).header("retry-after", "7"));
        let response = respond(&server, &ask()).await;
        assert_eq!(response.status, status);
        assert!(response.head.contains("retry-after: 7"));
        let body = response.json();
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], kind);
        assert!(response.head.contains(body["request_id"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn an_error_can_have_a_custom_message_and_type() {
    let spent = Scenario::new().status(429).error(
        "rate_limit_error",
        "No money left",
        Some("enforced_spend_limit_reached"),
    );
    let server = start(spent);
    assert_eq!(
        respond(&server, &ask()).await.json()["error"],
        json!({
            "type": "rate_limit_error",
            "message": "No money left",
            "details": { "error_code": "enforced_spend_limit_reached" },
        })
    );
}

#[tokio::test]
async fn header_values_can_be_times() {
    let limited = Scenario::new()
        .status(429)
        .header("anthropic-ratelimit-unified-reset", "${unix+5h}")
        .header("retry-after", "${date+61s}");
    let server = start(limited);
    let head = respond(&server, &ask()).await.head;
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.expect("the header is there").to_owned()
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let reset: u64 = header("anthropic-ratelimit-unified-reset").parse().unwrap();
    assert!((now + 17_900..=now + 18_000).contains(&reset));
    assert!(header("retry-after").ends_with(" GMT"));
}

#[tokio::test]
async fn a_body_can_be_anything_whatever_the_status() {
    let html = "<html><h1>502 Bad Gateway</h1></html>";
    let server = start(Scenario::new().status(200).body("text/html", html));
    let response = respond(&server, &ask()).await;
    assert_eq!((response.status, response.body.as_str()), (200, html));
    assert!(response.head.contains("content-type: text/html"));
}

#[tokio::test]
async fn a_stream_body_can_be_given_verbatim() {
    let odd = "data:{\"type\":\"message_start\"}\r\n\r\n: comment\r\n\r\n";
    let server = start(Scenario::new().status(200).body("text/event-stream; charset=utf-8", odd));
    let response = respond(&server, &ask()).await;
    assert!(response.head.contains("transfer-encoding: chunked"));
    assert_eq!(response.body, odd);
}

#[tokio::test]
async fn a_content_length_can_be_wrong() {
    let server =
        start(Scenario::new().status(200).body("application/json", "{}").content_length(9));
    let (wire, end) = exchange(&server, &ask()).await;
    assert!(wire.contains("content-length: 9\r\n"));
    assert!(wire.ends_with("\r\n\r\n{}"));
    assert_eq!(end, End::Closed);
}

#[tokio::test]
async fn a_raw_answer_sends_only_its_bytes() {
    let server = start(Scenario::new().raw("SSH-2.0-OpenSSH_9.2\r\n"));
    let (wire, end) = exchange(&server, &ask()).await;
    assert_eq!((wire.as_str(), end), ("SSH-2.0-OpenSSH_9.2\r\n", End::Closed));
}

/// Plays one fault against a stream and returns what came.
async fn broken(harm: ScriptedFaultKind, after: FaultPosition) -> (String, End) {
    let server = start(Scenario::new().interrupted(harm, after).and_text("One two three."));
    exchange(&server, &ask()).await
}

const DELTA: &str = "\"type\":\"text_delta\"";

#[tokio::test]
async fn a_connection_can_close_before_the_first_byte() {
    for after in [FaultPosition::Accept, FaultPosition::Request] {
        assert_eq!(
            broken(ScriptedFaultKind::Reset, after).await,
            (String::new(), End::Reset),
            "{after:?}"
        );
    }
    assert_eq!(
        broken(ScriptedFaultKind::Close, FaultPosition::Request).await,
        (String::new(), End::Closed)
    );
}

#[tokio::test]
async fn a_connection_can_close_after_the_headers() {
    for (harm, expected) in
        [(ScriptedFaultKind::Reset, End::Reset), (ScriptedFaultKind::Close, End::Closed)]
    {
        let (wire, end) = broken(harm, FaultPosition::Headers).await;
        assert!(wire.ends_with("\r\n\r\n"), "{wire}");
        assert_eq!(end, expected);
    }
}

#[tokio::test]
async fn a_connection_can_close_within_the_headers() {
    let (wire, end) = broken(ScriptedFaultKind::Reset, FaultPosition::HalfHead).await;
    assert!(wire.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(!wire.contains("\r\n\r\n"));
    assert_eq!(end, End::Reset);
}

#[tokio::test]
async fn stream_faults_apply_to_non_streaming_requests_in_their_own_form() {
    let error = |kind: &str| {
        let error =
            ScriptedError { kind: kind.to_owned(), message: "Sorry".to_owned(), code: None };
        Scenario::new().interrupted(ScriptedFaultKind::Error(error), FaultPosition::Events(3))
    };
    for (kind, status) in [("overloaded_error", 529), ("api_error", 500), ("odd_error", 500)] {
        let response = respond(&start(error(kind)), &unstreamed()).await;
        assert_eq!(response.status, status);
        assert_eq!(response.json()["error"]["type"], kind);
    }
    let pings = Scenario::new()
        .interrupted(
            ScriptedFaultKind::Pings { every: Duration::from_secs(1) },
            FaultPosition::Headers,
        )
        .hold(Duration::from_mins(1))
        .time_scale(10_000.0);
    let (wire, _) = exchange(&start(pings), &unstreamed()).await;
    assert!(wire.ends_with("\r\n\r\n"), "silence, not pings: {wire}");
}

#[tokio::test]
async fn a_stream_can_break_after_a_number_of_events() {
    for (harm, expected) in
        [(ScriptedFaultKind::Reset, End::Reset), (ScriptedFaultKind::Close, End::Closed)]
    {
        let (wire, end) = broken(harm, FaultPosition::Events(3)).await;
        assert_eq!(wire.matches("event: ").count(), 3);
        assert!(wire.ends_with("{\"type\":\"ping\"}\n\n\r\n"), "{wire}");
        assert_eq!(end, expected);
    }
}

#[tokio::test]
async fn a_stream_can_break_after_a_number_of_bytes() {
    for bytes in [0, 1, 20, 21, 300] {
        let (wire, _) = broken(ScriptedFaultKind::Reset, FaultPosition::Bytes(bytes)).await;
        assert_eq!(parse(&wire).body.len(), bytes);
    }
}

#[tokio::test]
async fn a_stream_can_break_in_the_middle_of_a_tool_call() {
    let torn = Scenario::new()
        .interrupted(ScriptedFaultKind::Reset, FaultPosition::Delta)
        .and_text("I call.")
        .and_tool("Bash", json!({ "command": "echo this call never comes through whole" }));
    let server = start(torn);
    let (wire, end) = exchange(&server, &ask()).await;
    assert!(wire.contains("\"type\":\"tool_use\""));
    assert!(wire.contains("{\\\"command\\\":"), "part of the input has come");
    assert!(!wire.contains("comes through whole"), "the rest never does");
    assert!(!parse(&wire).body.ends_with("\n\n"), "an event is torn in two");
    assert_eq!(end, End::Reset);
}

#[tokio::test]
async fn a_json_answer_breaks_in_its_middle() {
    for after in [FaultPosition::Delta, FaultPosition::Events(1)] {
        let server =
            start(Scenario::new().interrupted(ScriptedFaultKind::Close, after).and_text("Whole."));
        let (wire, end) = exchange(&server, &unstreamed()).await;
        let (head, body) = wire.split_once("\r\n\r\n").unwrap();
        let announced: usize =
            head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert_eq!(body.len(), announced / 2);
        assert_eq!(end, End::Closed);
    }
}

#[tokio::test]
async fn a_stream_can_end_early_with_a_valid_final_chunk() {
    let (wire, end) = broken(ScriptedFaultKind::End, FaultPosition::Events(5)).await;
    let response = parse(&wire);
    assert_eq!(response.event_names().last(), Some(&"content_block_stop"));
    assert!(wire.ends_with("\r\n0\r\n\r\n"), "the body is closed properly");
    assert_eq!(end, End::Closed);
}

#[tokio::test]
async fn a_stream_that_ends_early_keeps_its_connection_alive() {
    let scenario = Scenario::new()
        .interrupted(ScriptedFaultKind::End, FaultPosition::Events(1))
        .reply("Again.");
    let server = start(scenario);
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    read_until(&mut stream, "Again.").await;
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_body_shorter_than_its_length_closes_the_connection() {
    let server = start(
        Scenario::new()
            .interrupted(ScriptedFaultKind::End, FaultPosition::Delta)
            .and_text("Whole."),
    );
    let mut stream = connect(&server).await;
    stream.write_all(&post(&unstreamed(), &[])).await.unwrap();
    assert_eq!(read_all(&mut stream).await.1, End::Closed);
}

#[tokio::test]
async fn a_step_header_replaces_the_default_one() {
    let scenario =
        Scenario::new().status(529).header("Request-Id", "mine").header("connection", "close");
    let server = start(scenario);
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    let (wire, end) = read_all(&mut stream).await;
    assert_eq!(wire.to_ascii_lowercase().matches("request-id: ").count(), 1);
    assert!(wire.contains("Request-Id: mine\r\n"));
    assert_eq!(end, End::Closed, "what the headers announce is done");
}

#[tokio::test]
async fn a_stall_lasts_until_the_client_disconnects() {
    for (after, last) in [(FaultPosition::Headers, "\r\n\r\n"), (FaultPosition::Events(4), "\r\n")]
    {
        let server = start(
            Scenario::new().interrupted(ScriptedFaultKind::Stall, after).and_text("One two three."),
        );
        let mut stream = connect(&server).await;
        stream.write_all(&post(&ask(), &[])).await.unwrap();
        let wire = read_until(&mut stream, last).await;
        assert!(!wire.contains("message_stop"));
        assert!(!server.requests()[0].aborted_by_client);
        drop(stream);
        let request = timeout(PATIENCE, server.wait_for_abort(1)).await.expect("it is noticed");
        assert!(request.aborted_by_client);
    }
}

#[tokio::test]
async fn a_stall_after_accept_applies_to_a_connection_not_a_request() {
    let scenario = Scenario::new()
        .interrupted(ScriptedFaultKind::Stall, FaultPosition::Accept)
        .reply("Hello.");
    let server = start(scenario);
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    assert_eq!(respond(&server, &ask()).await.status, 200);
    assert_eq!((server.accepted(), server.requests().len()), (2, 1));
    assert_eq!(server.unrequested_answers(), 0);
}

#[tokio::test]
async fn a_bounded_stall_ends_in_a_closed_connection() {
    let scenario = Scenario::new()
        .interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(1))
        .hold(Duration::from_hours(1))
        .time_scale(100_000.0);
    let (wire, end) = exchange(&start(scenario), &ask()).await;
    assert_eq!(parse(&wire).event_names(), ["message_start"]);
    assert_eq!(end, End::Closed);
}

#[tokio::test]
async fn pings_continue_until_the_hold_ends() {
    let scenario = Scenario::new()
        .interrupted(
            ScriptedFaultKind::Pings { every: Duration::from_secs(10) },
            FaultPosition::Events(2),
        )
        .hold(Duration::from_secs(45))
        .time_scale(1_000.0);
    let (wire, end) = exchange(&start(scenario), &ask()).await;
    let response = parse(&wire);
    assert_eq!(response.event_names()[..2], ["message_start", "content_block_start"]);
    assert_eq!(response.event_names()[2..], ["ping"; 5]);
    assert_eq!(end, End::Closed);
}

#[tokio::test]
async fn a_stream_can_carry_an_error() {
    let error = ScriptedError {
        kind: "overloaded_error".to_owned(),
        message: "Overloaded".to_owned(),
        code: None,
    };
    let (wire, _) = broken(ScriptedFaultKind::Error(error), FaultPosition::Events(4)).await;
    let response = parse(&wire);
    assert_eq!(response.event_names().last(), Some(&"error"));
    assert!(response.body.ends_with(
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
         \"message\":\"Overloaded\"}}\n\n"
    ));
    assert!(wire.ends_with("0\r\n\r\n"));
}

#[tokio::test]
async fn garbage_can_be_sent_between_events() {
    let (wire, _) = broken(
        ScriptedFaultKind::Insert(b"data: {not json\n\n".to_vec()),
        FaultPosition::Events(3),
    )
    .await;
    let body = parse(&wire).body;
    let (before, after) = body.split_once("data: {not json\n\n").expect("it is there");
    assert!(before.ends_with("{\"type\":\"ping\"}\n\n"));
    assert!(after.contains(DELTA) && after.contains("message_stop"), "the answer goes on");
}

#[tokio::test]
async fn bytes_before_the_headers_make_the_response_invalid() {
    let (wire, _) =
        broken(ScriptedFaultKind::Insert(b"oops".to_vec()), FaultPosition::Request).await;
    assert!(wire.starts_with("oopsHTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_body_can_trickle_byte_by_byte() {
    let text = "\u{e9}\u{1f600}";
    let scenario = Scenario::new().reply(text).timing(Some(1), Duration::ZERO);
    let server = start(scenario);
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &["connection: close"])).await.unwrap();
    let (wire, _) = read_all(&mut stream).await;
    let chunks = wire.split_once("\r\n\r\n").unwrap().1;
    assert!(chunks.starts_with("1\r\ne\r\n1\r\nv\r\n"), "one byte a chunk");
}

#[tokio::test]
async fn a_shut_down_server_drops_its_connections_and_keeps_its_record() {
    let mut server =
        start(Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Headers));
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    server.shutdown().await;
    read_all(&mut stream).await;
    // The port may be another test's by now: it only matters that this server is gone.
    drop(tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await);
    assert_eq!((server.accepted(), server.requests().len()), (1, 1));
}
