//! Every timer, against a real socket that falls silent.

use std::time::Duration;

use outlast::model::assemble::{AssemblyStep, ReplyAssembly};
use outlast::model::{ModelClient, ModelService, RequestTimers, StreamProgress};
use outlast::recovery::{ErrorClass, FailureStage, Fault, FaultKind, ModelCall, Timer, classify};
use outlast::sse::SseEvent;
use outlast::transcript::Block;
use tokio::task::JoinSet;

use super::server::{Act, STREAM_HEAD, Server, answer, chunk, stream, stream_part};
use super::{STREAMING, WHOLE, ask, ask_watched, endpoint, recorded};

const SHORT: Duration = Duration::from_millis(80);
/// Long enough for what comes, however busy the machine is.
const LONGER: Duration = Duration::from_secs(3);
const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

async fn timeout_of(
    script: Vec<Act>,
    asked: ModelCall,
    set: fn(&mut RequestTimers),
) -> (Fault, Server) {
    let server = Server::start(vec![script]).await;
    let mut endpoint = endpoint(&server.url);
    set(&mut endpoint.timers);
    let client = ModelClient::new(endpoint).expect("the endpoint is right");
    let fault = ask(&client, asked).await.expect_err("no reply comes");
    (fault, server)
}

fn expect(fault: &Fault, timer: Timer, reach: FailureStage, class: ErrorClass) {
    assert_eq!(fault.kind, FaultKind::Timeout { timer }, "{fault:?}");
    assert_eq!(fault.stage, reach, "{fault:?}");
    assert_eq!(classify(fault).class, class);
}

fn first_event() -> Vec<u8> {
    let events = recorded("streams/text.sse");
    let end = events.windows(2).position(|pair| pair == b"\n\n").expect("events end") + 2;
    events[..end].to_vec()
}

fn part_of_a_block() -> Vec<u8> {
    let events = String::from_utf8(recorded("streams/text.sse")).expect("it is text");
    let end = events.find("event: content_block_stop").expect("the recording has it");
    events.as_bytes()[..end].to_vec()
}

#[tokio::test]
async fn silence_after_accept_or_request_is_a_first_byte_timeout() {
    for script in [vec![Act::Hang], vec![Act::Read, Act::Hang]] {
        let (fault, _) = timeout_of(script, STREAMING, |timers| timers.first_byte = SHORT).await;
        expect(&fault, Timer::FirstByte, FailureStage::FreshConnection, ErrorClass::ApiTimeout);
    }
}

#[tokio::test]
async fn headers_alone_do_not_stop_the_first_byte_timer() {
    let script = vec![Act::Read, Act::Send(STREAM_HEAD.to_vec()), Act::Hang];
    let (fault, _) = timeout_of(script, STREAMING, |timers| timers.first_byte = LONGER).await;
    expect(&fault, Timer::FirstByte, FailureStage::Stream, ErrorClass::ApiTimeout);
}

#[tokio::test]
async fn a_kept_connection_that_falls_silent_is_not_used_again() {
    let whole = stream(&recorded("streams/text.sse"));
    let script = vec![Act::Read, Act::Send(whole), Act::Read, Act::Hang];
    let server = Server::start(vec![script]).await;
    let mut endpoint = endpoint(&server.url);
    endpoint.timers.first_byte = LONGER;
    let client = ModelClient::new(endpoint).expect("the endpoint is right");
    ask(&client, STREAMING).await.expect("a reply");
    let fault = ask(&client, STREAMING).await.expect_err("silence");
    expect(&fault, Timer::FirstByte, FailureStage::StaleConnection, ErrorClass::ApiTimeout);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn silence_within_a_stream_is_a_stall() {
    for (events, reach) in
        [(first_event(), FailureStage::Stream), (part_of_a_block(), FailureStage::Stream)]
    {
        let script = vec![Act::Read, Act::Send(stream_part(&events)), Act::Hang];
        let (fault, _) = timeout_of(script, STREAMING, |timers| timers.idle = LONGER / 3).await;
        expect(&fault, Timer::StreamIdle, reach, ErrorClass::StreamStalled);
        assert_eq!(fault.request_id.as_deref(), Some("req_head"));
    }
}

/// The process may be frozen for longer than a timer: by `SIGSTOP`, `docker pause`, or the machine.
#[tokio::test]
async fn what_arrived_while_the_process_was_frozen_is_read() {
    let events = recorded("streams/text.sse");
    let (first, rest) = events.split_at(first_event().len());
    let rest = [&chunk(rest)[..], b"0\r\n\r\n"].concat();
    let first = Act::Send(stream_part(first));
    let script = vec![Act::Read, first, Act::Wait(SHORT), Act::Send(rest)];
    let server = Server::start(vec![script]).await;
    let mut endpoint = endpoint(&server.url);
    endpoint.timers.idle = SHORT;
    let client = ModelClient::new(endpoint).expect("the endpoint is right");
    let mut was_frozen = false;
    let mut freeze = |step: StreamProgress| {
        if let StreamProgress::Bytes(_) = step
            && !std::mem::replace(&mut was_frozen, true)
        {
            // Nothing else runs on this thread meanwhile, not even the server.
            std::thread::sleep(LONGER);
        }
    };
    let answer = ask_watched(&client, STREAMING, &mut freeze).await.expect("a reply");
    assert_eq!(answer.content, [Block::text("Grüße, Welt \u{1f600}.")]);
}

/// Events without content, whole as a service might send them for ever.
const FILLERS: [&[u8]; 10] = [
    PING,
    b":\n\n",
    b"event: heartbeat\ndata: {\"type\":\"heartbeat\",\"at\":1}\n\n",
    b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}}\n\n",
    b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"a_new_delta\",\"text\":\"x\"}}\n\n",
    b"data: {\"type\":\"content_block_stop\",\"index\":7}\n\n",
    b"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":null},\"usage\":{\"output_tokens\":1}}\n\n",
    b"data: {}\n\n",
    b"data: [DONE]\n\n",
    b": a line without end",
];

#[tokio::test]
async fn only_content_is_progress() {
    let mut attempts = JoinSet::new();
    for filler in FILLERS {
        let start = Act::Send(stream_part(&part_of_a_block()));
        let script = vec![Act::Read, start, Act::Repeat(chunk(filler))];
        attempts.spawn(timeout_of(script, STREAMING, |timers| timers.progress = LONGER / 3));
    }
    for (fault, _) in attempts.join_all().await {
        expect(&fault, Timer::StreamProgress, FailureStage::Stream, ErrorClass::StreamStalled);
    }
}

#[tokio::test]
async fn a_slow_reply_that_goes_on_is_left_alone() {
    let events = String::from_utf8(part_of_a_block()).expect("it is text");
    let at = events.rfind("event: content_block_delta").expect("the recording has it");
    let delta = chunk(&events.as_bytes()[at..]);
    stays_alive(events.as_bytes(), delta).await;
}

/// The service may withhold the text of thinking, and only say that it goes on.
#[tokio::test]
async fn pings_are_progress_while_the_model_thinks() {
    let block = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
                 {\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n";
    let events = [first_event(), block.as_bytes().to_vec()].concat();
    stays_alive(&events, chunk(PING)).await;
}

async fn stays_alive(events: &[u8], repeated: Vec<u8>) {
    let script = vec![Act::Read, Act::Send(stream_part(events)), Act::Repeat(repeated)];
    let server = Server::start(vec![script]).await;
    let mut endpoint = endpoint(&server.url);
    endpoint.timers = RequestTimers { idle: LONGER, progress: LONGER, ..endpoint.timers };
    let client = ModelClient::new(endpoint).expect("the endpoint is right");
    let unbounded = ModelCall { cap: u32::MAX, ..STREAMING };
    let result = tokio::time::timeout(LONGER + 10 * SHORT, ask(&client, unbounded)).await;
    assert!(result.is_err(), "the attempt still runs: {result:?}");
}

#[tokio::test]
async fn every_kind_of_content_is_progress() {
    let start = |block: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{block}}}\n\n"
        )
    };
    let delta = |kind: &str, field: &str| {
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
             {{\"type\":\"{kind}\",\"{field}\":\"x\"}}}}\n\n"
        )
    };
    let cases = [
        (start(r#"{"type":"text","text":""}"#), delta("text_delta", "text")),
        (start(r#"{"type":"thinking","thinking":""}"#), delta("thinking_delta", "thinking")),
        (start(r#"{"type":"thinking","thinking":""}"#), delta("signature_delta", "signature")),
        (
            start(r#"{"type":"tool_use","id":"a","name":"Bash","input":{}}"#),
            delta("input_json_delta", "partial_json"),
        ),
    ];
    for (start, delta) in cases {
        let (mut assembly, frame) = (ReplyAssembly::default(), |data: &str| SseEvent {
            data: data.trim_start_matches("data: ").trim().to_owned(),
            ..SseEvent::default()
        });
        assembly.process_event(&frame(&start), &mut |_| {}).expect("a block begins");
        let before = assembly.written();
        assert_eq!(
            assembly.process_event(&frame(&delta), &mut |_| {}),
            Ok(AssemblyStep::Content),
            "{delta}"
        );
        let signs = delta.contains("signature");
        assert_eq!(assembly.written() - before, u64::from(!signs), "{delta}");
    }
}

/// A server that ignores the output cap and never ends its reply.
#[tokio::test]
async fn a_reply_longer_than_its_output_cap_allows_is_cut() {
    let events = String::from_utf8(part_of_a_block()).expect("it is text");
    let long = "x".repeat(8_000);
    let delta = format!(
        "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
         {{\"type\":\"text_delta\",\"text\":\"{long}\"}}}}\n\n"
    );
    let begin = Act::Send(stream_part(events.as_bytes()));
    let script = vec![Act::Read, begin, Act::Repeat(chunk(delta.as_bytes()))];
    let server = Server::start(vec![script]).await;
    let client = ModelClient::new(endpoint(&server.url)).expect("the endpoint is right");
    let fault = ask(&client, ModelCall { cap: 100, ..STREAMING }).await.expect_err("too long");
    assert!(fault.detail().contains("100 tokens"), "{fault:?}");
    assert_eq!(classify(&fault).class, ErrorClass::BadResponse);
}

/// A server that brings a byte now and then, for ever: content, but no end.
#[tokio::test]
async fn a_reply_has_a_limit_for_the_whole_of_it() {
    let begin = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
        {\"type\":\"thinking\",\"thinking\":\"\"}}\n\n";
    // Content that no output cap limits.
    let delta = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
        {\"type\":\"signature_delta\",\"signature\":\"x\"}}\n\n";
    let begin = Act::Send(stream_part(begin.as_bytes()));
    let script = vec![Act::Read, begin, Act::Repeat(chunk(delta.as_bytes()))];
    let set = |timers: &mut RequestTimers| timers.reply = SHORT;
    let (fault, _) = timeout_of(script, ModelCall { cap: 16_000, ..STREAMING }, set).await;
    expect(&fault, Timer::Reply, FailureStage::Stream, ErrorClass::ApiTimeout);
}

#[test]
fn the_limit_of_a_reply_grows_with_its_output_cap() {
    let timers = RequestTimers::default();
    let hours = [(1, 1), (8_192, 1), (16_000, 1), (16_001, 2), (64_000, 4)];
    for (cap, hours) in hours {
        assert_eq!(timers.reply_for(cap), Duration::from_hours(hours), "{cap}");
    }
}

/// A reply without `message_stop` is whole, and the connection need not end for it.
#[tokio::test]
async fn a_reply_that_lacks_only_its_last_event_is_whole_however_the_stream_goes_on() {
    let events = recorded("streams/no_message_stop.sse");
    let begin = stream_part(&events);
    let ends = [
        vec![Act::Read, Act::Send(stream(&events))],
        vec![Act::Read, Act::Send(begin.clone())],
        vec![Act::Read, Act::Send(begin.clone()), Act::Reset],
        vec![Act::Read, Act::Send(begin.clone()), Act::Hang],
        vec![Act::Read, Act::Send(begin), Act::Repeat(chunk(PING))],
    ];
    for script in ends {
        let server = Server::start(vec![script.clone()]).await;
        let answer = ask(&ModelClient::new(endpoint(&server.url)).expect("right"), STREAMING).await;
        let answer = answer.unwrap_or_else(|fault| panic!("{script:?}: {fault:?}"));
        assert_eq!((answer.stop_reason.as_str(), answer.usage.output_tokens), ("end_turn", 42));
    }
}

#[tokio::test]
async fn a_request_in_one_piece_has_one_timer() {
    let part = answer(200, "", &[b'x'; 100])[..80].to_vec();
    for script in
        [vec![Act::Hang], vec![Act::Read, Act::Hang], vec![Act::Read, Act::Send(part), Act::Hang]]
    {
        let (fault, _) = timeout_of(script, WHOLE, |timers| timers.whole = SHORT).await;
        expect(&fault, Timer::Whole, FailureStage::FreshConnection, ErrorClass::ApiTimeout);
    }
}

#[tokio::test]
async fn an_attempt_that_timed_out_hangs_up() {
    let (_, server) =
        timeout_of(vec![Act::Read, Act::Hang], STREAMING, |timers| timers.first_byte = LONGER)
            .await;
    server.until(|seen| seen.hung_up > 0).await;
}

/// A TLS handshake that never goes on is part of connecting.
#[tokio::test]
async fn a_handshake_that_hangs_is_a_connect_timeout() {
    let server = Server::start(vec![vec![Act::Hang]]).await;
    let mut endpoint: ModelService = endpoint(&server.url.replace("http://", "https://"));
    endpoint.timers.connect = SHORT;
    let fault =
        ask(&ModelClient::new(endpoint).expect("right"), STREAMING).await.expect_err("silence");
    expect(&fault, Timer::Connect, FailureStage::Unsent, ErrorClass::ApiTimeout);
}

#[test]
fn the_first_byte_limit_grows_with_the_request() {
    let timers = RequestTimers::default();
    assert_eq!(timers.first_byte_for(0), Duration::from_mins(3));
    assert_eq!(timers.first_byte_for(5_000_000), Duration::from_secs(280));
}
