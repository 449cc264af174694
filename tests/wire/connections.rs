//! Classification of connection faults: kept-alive, closed and reset connections.

use std::time::Duration;

use outlast::model::StreamProgress;
use outlast::recovery::{ErrorClass, FailureStage, Fault, FaultKind, ModelCall, classify};

use super::server::{Act, Server, answer, chunk, stream, stream_part};
use super::{FRESH, STREAMING, WHOLE, ask, ask_watched, client, recorded};

use crate::support::stopwatch::Stopwatch;
use crate::support::wire::dead_end;

fn text_stream() -> Vec<u8> {
    recorded("streams/text.sse")
}

/// The recorded stream up to and including the first occurrence of `mark`'s event.
fn up_to(mark: &str) -> Vec<u8> {
    let text = String::from_utf8(text_stream()).expect("it is text");
    let at = text.find(mark).expect("the recording has it");
    let end = at + text[at..].find("\n\n").expect("events end") + 2;
    text.as_bytes()[..end].to_vec()
}

async fn fault_of(script: Vec<Act>) -> Fault {
    let server = Server::start(vec![script]).await;
    let fault = ask(&client(&server.url), STREAMING).await.expect_err("no reply came");
    assert!(server.requests().len() <= 1, "one attempt, one request: {:?}", server.requests());
    assert!(server.connections() <= 1, "and one connection");
    fault
}

#[tokio::test]
async fn a_kept_connection_serves_the_next_request() {
    let one = [Act::Read, Act::Send(stream(&text_stream()))];
    let server = Server::start(vec![[one.clone(), one].concat()]).await;
    let client = client(&server.url);
    ask(&client, STREAMING).await.expect("a reply");
    ask(&client, STREAMING).await.expect("another");
    assert_eq!((server.connections(), server.requests().len()), (1, 2));
}

#[tokio::test]
async fn a_fresh_connection_is_never_a_kept_one() {
    let one = [Act::Read, Act::Send(stream(&text_stream()))];
    let server = Server::start(vec![[one.clone(), one].concat()]).await;
    let client = client(&server.url);
    ask(&client, STREAMING).await.expect("a reply");
    ask(&client, FRESH).await.expect("another");
    ask(&client, FRESH).await.expect("and another");
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_kept_connection_that_dies_under_the_request_is_stale() {
    for end in [vec![], vec![Act::Reset]] {
        let reply = vec![Act::Read, Act::Send(stream(&text_stream())), Act::Read];
        let server = Server::start(vec![[reply, end].concat()]).await;
        let client = client(&server.url);
        ask(&client, STREAMING).await.expect("a reply");
        // The second request is read, and then the server is gone.
        let fault = ask(&client, STREAMING).await.expect_err("no second reply");
        assert_eq!(fault.stage, FailureStage::StaleConnection, "{fault:?}");
        assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
        assert_eq!(server.connections(), 1, "nothing was sent again");
    }
}

#[tokio::test]
async fn a_new_connection_that_dies_under_the_request_is_not_stale() {
    for script in [vec![], vec![Act::Read], vec![Act::Read, Act::Reset], vec![Act::Reset]] {
        let fault = fault_of(script.clone()).await;
        assert_eq!(fault.stage, FailureStage::FreshConnection, "{script:?}: {fault:?}");
        assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
    }
}

#[tokio::test]
async fn headers_that_break_off_are_a_dead_connection() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec();
    for end in [vec![], vec![Act::Reset]] {
        let fault = fault_of([vec![Act::Read, Act::Send(head.clone())], end].concat()).await;
        assert_eq!(classify(&fault).class, ErrorClass::ConnectionError, "{fault:?}");
        assert_eq!(fault.stage, FailureStage::FreshConnection);
    }
}

#[tokio::test]
async fn what_is_no_http_is_nonsense() {
    let fault = fault_of(vec![Act::Read, Act::Send(b"SSH-2.0-OpenSSH_9\r\n\r\n".to_vec())]).await;
    assert_eq!(classify(&fault).class, ErrorClass::BadResponse, "{fault:?}");
}

#[tokio::test]
async fn headers_as_old_proxies_write_them_are_accepted() {
    for odd in [
        "request-id: \r\n  req_9\r\n",
        "request-id : req_9\r\n",
        "no header\r\nrequest-id: req_9\r\n",
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{odd}connection: close\r\n\r\n");
        let script = vec![Act::Read, Act::Send([head.as_bytes(), &text_stream()].concat())];
        let server = Server::start(vec![script]).await;
        let reply = ask(&client(&server.url), STREAMING).await.expect("a reply");
        assert_eq!(reply.request_id.as_deref(), Some("req_9"), "{odd:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_connect_error_with_nothing_sent() {
    let (_taken, address) = dead_end();
    let url = format!("http://{address}");
    let secret = format!("{}/v1?token=hush", url.replace("//", "//me:hush@"));
    let fault = ask(&client(&secret), STREAMING).await.expect_err("no server answers");
    assert_eq!(fault.stage, FailureStage::Unsent);
    assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
    assert!(!fault.detail().contains("hush"), "{fault:?}");
    assert!(fault.detail().to_lowercase().contains("refused"), "{fault:?}");
    let host = url.trim_start_matches("http://");
    assert!(fault.detail().contains(&format!("no connection to {host}: ")), "{fault:?}");
}

#[tokio::test]
async fn an_unresolvable_host_is_a_connect_error_with_nothing_sent() {
    let fault = ask(&client("http://no-such-host.invalid"), STREAMING).await.expect_err("no host");
    assert_eq!(
        (classify(&fault).class, fault.stage),
        (ErrorClass::ConnectionError, FailureStage::Unsent)
    );
}

#[tokio::test]
async fn a_stream_that_breaks_is_torn_and_says_how_far_it_came() {
    let cases = [
        (up_to("message_start"), FailureStage::Stream),
        (up_to("content_block_delta"), FailureStage::Stream),
        (up_to("content_block_stop"), FailureStage::Block),
    ];
    for (events, reach) in cases {
        let part = Act::Send(stream_part(&events));
        let clean = Act::Send([stream_part(&events), b"0\r\n\r\n".to_vec()].concat());
        let garbled = Act::Send([stream_part(&events), b"zz\r\n".to_vec()].concat());
        for script in [
            vec![Act::Read, part.clone()],
            vec![Act::Read, part, Act::Reset],
            vec![Act::Read, clean],
            vec![Act::Read, garbled],
        ] {
            // A reset may overtake what was sent before it.
            let may_lose = matches!(script.last(), Some(Act::Reset));
            let fault = fault_of(script).await;
            assert!(fault.stage == reach || may_lose, "{fault:?}");
            assert_eq!(classify(&fault).class, ErrorClass::ConnectionError, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_never_ends_is_a_reply_at_its_last_event() {
    let script = vec![Act::Read, Act::Send(stream_part(&text_stream())), Act::Hang];
    let server = Server::start(vec![script]).await;
    let answer = ask(&client(&server.url), STREAMING).await.expect("a reply");
    assert_eq!(answer.stop_reason, "end_turn");
    assert_eq!(answer.request_id.as_deref(), Some("req_head"));
    assert!(answer.first_token.is_some());
}

#[tokio::test]
async fn progress_is_told_as_it_happens() {
    let events = text_stream();
    let pieces: Vec<Act> = events.chunks(7).map(|piece| Act::Send(chunk(piece))).collect();
    let mut script = vec![Act::Read, Act::Send(super::server::STREAM_HEAD.to_vec())];
    script.extend(pieces);
    script.push(Act::Send(b"0\r\n\r\n".to_vec()));
    let server = Server::start(vec![script]).await;
    let (mut told, mut bytes) = (Vec::new(), 0);
    let answer = ask_watched(&client(&server.url), STREAMING, &mut |progress| match progress {
        StreamProgress::Sending => told.push("sending".to_owned()),
        StreamProgress::Accepted(_) => told.push("accepted".to_owned()),
        StreamProgress::Bytes(count) => bytes += count,
        StreamProgress::Event(event) => told.push(event["type"].as_str().unwrap().to_owned()),
        StreamProgress::Block { index, block } => told.push(format!("block {index} {block:?}")),
        StreamProgress::Received(_) => {}
    })
    .await
    .expect("a reply");
    let block = format!("block 0 {:?}", answer.content[0]);
    let expected = [
        "sending",
        "accepted",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        &block,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(told, expected);
    assert!(bytes > 0);
}

#[tokio::test]
async fn a_dropped_attempt_hangs_up() {
    let server = Server::start(vec![vec![Act::Read, Act::Hang]]).await;
    let client = client(&server.url);
    let attempt = ask(&client, STREAMING);
    tokio::select! {
        result = attempt => panic!("{result:?}"),
        () = server.until(|seen| !seen.requests.is_empty()) => {}
    }
    server.until(|seen| seen.hung_up > 0).await;
}

#[tokio::test]
async fn every_status_is_one_request_and_one_fault() {
    for status in (100..600).filter(|status| *status >= 200 || *status == 101) {
        let body = recorded("bodies/official-500.json");
        let server = Server::answering(answer(status, "request-id: req_1\r\n", &body)).await;
        let fault = ask(&client(&server.url), WHOLE).await.expect_err("an error body is no reply");
        assert_eq!(server.requests().len(), 1, "{status}");
        let success = (200..300).contains(&status);
        assert_eq!(fault.status(), (!success).then_some(status), "{fault:?}");
        if !success {
            assert_eq!(fault.request_id.as_deref(), Some("req_1"));
            assert_eq!(fault.stage, if status == 101 { fault.stage } else { FailureStage::Status });
        }
    }
}

#[tokio::test]
async fn informational_responses_are_skipped() {
    let reply = [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n".to_vec(),
        stream(&text_stream()),
    ];
    let server = Server::answering(reply.concat()).await;
    ask(&client(&server.url), STREAMING).await.expect("a reply");
}

/// No retry changes the protocol of a server.
#[tokio::test]
async fn a_server_that_speaks_only_http_2_is_named_at_once() {
    let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64".to_vec();
    let server = Server::start(vec![vec![Act::Send(settings), Act::Hang]]).await;
    let second = ModelCall { attempt: 2, ..STREAMING };
    let fault = ask(&client(&server.url), second).await.expect_err("no reply");
    assert!(fault.detail().contains("speaks only HTTP/2"), "{fault:?}");
    assert_eq!(classify(&fault).class, ErrorClass::InvalidRequest);
    let other = Server::start(vec![vec![Act::Read, Act::Send(b"SSH-2.0-x\r\n".to_vec())]]).await;
    let fault = ask(&client(&other.url), second).await.expect_err("no reply");
    assert_eq!(classify(&fault).class, ErrorClass::BadResponse, "{fault:?}");
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_reported_and_not_followed() {
    let elsewhere = Server::answering(stream(&text_stream())).await;
    for status in [301, 302, 303, 307, 308] {
        let to = format!("location: {}/other?token=x\r\n", elsewhere.url);
        let server = Server::answering(answer(status, &to, b"")).await;
        let fault = ask(&client(&server.url), STREAMING).await.expect_err("no reply");
        assert_eq!(fault.status(), Some(status));
        assert!(fault.detail().contains(&format!("redirected to {}/other,", elsewhere.url)));
        assert_eq!(elsewhere.connections(), 0);
    }
}

/// Method, body and key go along, to the same origin and no further: and not for ever.
#[tokio::test]
async fn a_redirect_that_keeps_the_request_is_followed_within_the_origin() {
    let reply = stream(&text_stream());
    for status in [307, 308] {
        let moved = answer(status, "location: /v2/messages?x=1\r\n", b"");
        let script = vec![Act::Read, Act::Send(moved), Act::Read, Act::Send(reply.clone())];
        let server = Server::start(vec![script]).await;
        ask(&client(&server.url), STREAMING).await.expect("a reply");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{status}");
        assert!(requests[1].starts_with("POST /v2/messages?x=1 HTTP/1.1\r\n"), "{status}");
        assert!(requests[1].contains("x-api-key: sk-test-8301746295\r\n"), "{status}");
        let body = |request: &String| request.split_once("\r\n\r\n").expect("a body").1.to_owned();
        assert_eq!(body(&requests[1]), body(&requests[0]), "{status}");
        let around = answer(status, "location: /again\r\n", b"");
        let script = (0..9).flat_map(|_| [Act::Read, Act::Send(around.clone())]).collect();
        let server = Server::start(vec![script]).await;
        let fault = ask(&client(&server.url), STREAMING).await.expect_err("no reply");
        assert_eq!((fault.status(), server.requests().len()), (Some(status), 4));
    }
    // These would lose the request.
    for status in [301, 302, 303] {
        let server = Server::answering(answer(status, "location: /v2\r\n", b"")).await;
        let fault = ask(&client(&server.url), STREAMING).await.expect_err("no reply");
        assert_eq!((fault.status(), server.requests().len()), (Some(status), 1));
    }
}

#[tokio::test]
async fn an_error_body_that_breaks_off_keeps_its_status() {
    let cut =
        b"HTTP/1.1 529 x\r\nretry-after: 7\r\ncontent-length: 500\r\n\r\n{\"type\":\"err".to_vec();
    let fault = fault_of(vec![Act::Read, Act::Send(cut)]).await;
    assert_eq!(classify(&fault).class, ErrorClass::ServerOverload, "{fault:?}");
    assert_eq!(fault.retry_after.map(|wish| wish.wait.as_secs()), Some(7));
}

#[tokio::test]
async fn an_endless_error_body_is_read_in_part() {
    let head = b"HTTP/1.1 500 x\r\n\r\n".to_vec();
    let began = Stopwatch::start();
    let fault = fault_of(vec![Act::Read, Act::Send(head), Act::Repeat(vec![b'x'; 4096])]).await;
    let FaultKind::Refused { status: 500, message, .. } = &fault.kind else { panic!("{fault:?}") };
    assert!(message.len() < 3000);
    began.assert_within(Duration::from_secs(4), "its size ends it, not the clock");
}

#[tokio::test]
async fn no_error_text_shows_the_key() {
    let key = "sk-test-8301746295";
    let body =
        format!(r#"{{"type":"error","error":{{"type":"{key}","message":"bad key {key}"}}}}"#);
    let server = Server::answering(answer(401, "", body.as_bytes())).await;
    let client = client(&server.url);
    let fault = ask(&client, STREAMING).await.expect_err("no reply");
    assert!(fault.detail().contains("bad key [redacted]"), "{fault:?}");
    assert!(!format!("{fault:?} {client:?}").contains(key));
    assert!(server.requests()[0].contains(&format!("x-api-key: {key}")));
}
