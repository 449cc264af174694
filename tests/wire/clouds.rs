//! Requests to the clouds and their streams, to the byte; frames made by another encoder.

use outlast::model::service::{DamagedFrame, EventStreamParser};
use outlast::model::{Credential, ModelClient, ModelService, Secret, ServiceKind};
use outlast::recovery::{ErrorClass, FailureStage, classify};
use outlast::sse::{EVENT_LIMIT, SseEvent};
use serde_json::{Value, json};

use super::server::{Server, answer, chunk};
use super::{STREAMING, WHOLE, ask, endpoint, recorded};

/// The prelude of a frame with the headers below and 91 bytes, which botocore accepts.
const PRELUDE: [u8; 12] = [0, 0, 0, 0xb6, 0, 0, 0, 0x4b, 0x1b, 0xab, 0xba, 0xc5];

fn crc(bytes: &[u8]) -> u32 {
    let mut value = !0u32;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
        }
    }
    !value
}

/// A frame, encoded by hand from the documented format.
fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).expect("short"));
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).expect("short").to_be_bytes());
        head.extend(value.as_bytes());
    }
    let size = |length: usize| u32::try_from(length).expect("short").to_be_bytes();
    let mut bytes = [size(16 + head.len() + payload.len()), size(head.len())].concat();
    bytes.extend(crc(&bytes).to_be_bytes());
    bytes.extend(head);
    bytes.extend(payload);
    bytes.extend(crc(&bytes).to_be_bytes());
    bytes
}

fn chunk_frame(event: &str) -> Vec<u8> {
    use base64::Engine;

    let bytes = base64::engine::general_purpose::STANDARD.encode(event);
    let payload = json!({ "bytes": bytes, "p": "abc" }).to_string();
    let headers = [(":event-type", "chunk"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

fn exception_frame(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":message-type", "exception")];
    frame(&headers, json!({ "message": message }).to_string().as_bytes())
}

fn parsed(bytes: &[u8], piece: usize) -> Result<Vec<SseEvent>, DamagedFrame> {
    let (mut parser, mut events) = (EventStreamParser::default(), Vec::new());
    for part in bytes.chunks(piece) {
        parser.push(part, &mut events)?;
    }
    Ok(events)
}

/// The data of the events of a recorded stream.
fn data_of(stream: &str) -> Vec<String> {
    let text = String::from_utf8(recorded(stream)).expect("text");
    text.lines().filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned())).collect()
}

const FRAMES_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nx-amzn-requestid: req_aws\r\n\
    content-type: application/vnd.amazon.eventstream\r\ntransfer-encoding: chunked\r\n\r\n";

fn frames_answer(frames: &[u8]) -> Vec<u8> {
    [FRAMES_HEAD, &chunk(frames), b"0\r\n\r\n"].concat()
}

fn at(url: &str, kind: ServiceKind, credential: Credential) -> ModelClient {
    let extra_headers = vec![("anthropic-beta".to_owned(), "beta-1,beta-2".to_owned())];
    let service = ModelService { kind, credential, extra_headers, ..endpoint(url) };
    ModelClient::new(service).expect("the endpoint is right")
}

fn bedrock() -> ServiceKind {
    ServiceKind::Bedrock { region: "us-east-1".to_owned() }
}

fn vertex() -> ServiceKind {
    ServiceKind::Vertex { region: "global".to_owned(), project: "p-1".to_owned() }
}

fn bearer() -> Credential {
    Credential::Bearer(Secret::new("bearer-8301746295"))
}

/// The path and the body of the last request.
fn last(server: &Server) -> (String, String, Value) {
    let request = server.requests().pop().expect("it was seen");
    let (head, body) = request.split_once("\r\n\r\n").expect("a request has a body");
    let path = head.split(' ').nth(1).expect("a path").to_owned();
    (path, head.to_ascii_lowercase(), serde_json::from_str(body).expect("JSON"))
}

#[test]
fn events_in_frames_are_found_however_they_are_cut() {
    let events = ["{\"type\":\"ping\"}", "{\"type\":\"message_stop\"}"];
    let bytes: Vec<u8> = events.iter().flat_map(|event| chunk_frame(event)).collect();
    for piece in [1, 2, 11, 12, 13, 100, bytes.len()] {
        let data: Vec<String> =
            parsed(&bytes, piece).expect("whole").into_iter().map(|event| event.data).collect();
        assert_eq!(data, events, "{piece}");
    }
    assert_eq!(parsed(&bytes[..bytes.len() - 1], 7).expect("incomplete").len(), 1);
}

#[test]
fn the_frames_of_these_tests_begin_as_botocore_expects() {
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    let payload = vec![b'x'; 0xb6 - 16 - 0x4b];
    let made = frame(&headers, &payload);
    assert_eq!(made[..12], PRELUDE);
}

#[test]
fn a_damaged_frame_is_rejected_at_every_byte() {
    let good = chunk_frame("{\"type\":\"ping\"}");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        // A longer length makes the frame incomplete, unless the next one shows the damage.
        let longer = [bad.as_slice(), good.as_slice()].concat();
        let found = parsed(&longer, longer.len());
        let events = found.as_ref().map_or(0, Vec::len);
        assert!(found.is_err() || events == 0, "byte {at}: {found:?}");
    }
    let mut endless = EventStreamParser::default();
    let huge = [&u32::MAX.to_be_bytes()[..], &vec![0; EVENT_LIMIT + 100]].concat();
    assert!(endless.push(&huge, &mut Vec::new()).is_err());
}

#[tokio::test]
async fn a_stream_in_frames_is_the_same_reply_as_in_server_sent_events() {
    let frames: Vec<u8> =
        data_of("streams/text.sse").iter().flat_map(|event| chunk_frame(event)).collect();
    let aws = Server::answering(frames_answer(&frames)).await;
    let plain = Server::answering(super::server::stream(&recorded("streams/text.sse"))).await;
    let first = ask(&at(&aws.url, bedrock(), bearer()), STREAMING).await.expect("a reply");
    let second = ask(&at(&plain.url, bedrock(), bearer()), STREAMING).await.expect("a reply");
    assert_eq!(first.content, second.content);
    assert_eq!(first.usage, second.usage);
    assert_eq!(first.request_id.as_deref(), Some("req_aws"));
}

#[tokio::test]
async fn exceptions_within_a_stream_have_their_classes() {
    let cases = [
        ("throttlingException", ErrorClass::RateLimit),
        ("modelStreamErrorException", ErrorClass::ServerError),
        ("internalServerException", ErrorClass::ServerError),
        ("serviceUnavailableException", ErrorClass::ServerError),
        ("modelTimeoutException", ErrorClass::ServerError),
        ("validationException", ErrorClass::InvalidRequest),
    ];
    let begin = data_of("streams/text.sse");
    for (kind, class) in cases {
        let frames = [chunk_frame(&begin[0]), exception_frame(kind, "It is so.")].concat();
        let server = Server::answering(frames_answer(&frames)).await;
        let fault = ask(&at(&server.url, bedrock(), bearer()), STREAMING).await;
        let fault = fault.expect_err("the stream reports an error");
        assert_eq!(classify(&fault).class, class, "{kind}: {fault:?}");
        assert_eq!(fault.stage, FailureStage::Stream);
        assert!(fault.detail().contains("It is so."), "{fault:?}");
    }
    let mut torn = chunk_frame(&begin[0]);
    torn[20] ^= 1;
    let server = Server::answering(frames_answer(&torn)).await;
    let fault = ask(&at(&server.url, bedrock(), bearer()), STREAMING).await;
    assert_eq!(classify(&fault.expect_err("damaged")).class, ErrorClass::BadResponse);
}

#[tokio::test]
async fn each_cloud_has_its_path_and_fields() {
    let reply = answer(200, "content-type: application/json\r\n", &message());
    let server = Server::answering(reply).await;
    let client = at(&server.url, bedrock(), bearer());
    ask(&client, WHOLE).await.expect("a reply");
    let (path, head, body) = last(&server);
    assert_eq!(path, "/model/m/invoke");
    assert!(head.contains("authorization: bearer bearer-8301746295"));
    assert!(!head.contains("anthropic-"), "{head}");
    assert_eq!(body["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!(body["anthropic_beta"], json!(["beta-1", "beta-2"]));
    assert!(body.get("model").is_none() && body.get("stream").is_none(), "{body}");
    ask(&client, STREAMING).await.expect("a reply");
    assert_eq!(last(&server).0, "/model/m/invoke-with-response-stream");

    let client = at(&format!("{}/v1", server.url), vertex(), bearer());
    ask(&client, STREAMING).await.expect("a reply");
    let (path, head, body) = last(&server);
    let models = "/v1/projects/p-1/locations/global/publishers/anthropic/models";
    assert_eq!(path, format!("{models}/m:streamRawPredict"));
    assert!(head.contains("anthropic-beta: beta-1,beta-2"), "{head}");
    assert!(!head.contains("anthropic-version"), "{head}");
    assert_eq!(body["anthropic_version"], "vertex-2023-10-16");
    assert!(body.get("model").is_none() && body["stream"] == true, "{body}");
    ask(&client, WHOLE).await.expect("a reply");
    assert_eq!(last(&server).0, format!("{models}/m:rawPredict"));

    let kind = ServiceKind::Foundry { resource: "r".to_owned() };
    let key = Credential::FoundryKey(Secret::new("key-8301746295"));
    let client = at(&format!("{}/anthropic", server.url), kind, key);
    ask(&client, STREAMING).await.expect("a reply");
    let (path, head, body) = last(&server);
    assert_eq!(path, "/anthropic/v1/messages");
    assert!(head.contains("\napi-key: key-8301746295") && head.contains("x-api-key: key-"));
    assert!(head.contains("anthropic-version: 2023-06-01"));
    assert_eq!(body["model"], "m");
}

fn message() -> Vec<u8> {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{ "type": "text", "text": "Hi." }],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 3, "output_tokens": 2 },
    })
    .to_string()
    .into_bytes()
}

#[test]
fn bedrock_alone_has_no_web_search() {
    let (region, resource) = ("r".to_owned(), "r".to_owned());
    assert!(ServiceKind::Messages.has_web_search());
    assert!(ServiceKind::Foundry { resource }.has_web_search());
    assert!(!ServiceKind::Bedrock { region }.has_web_search());
}
