//! Other content in place of a stream or a JSON reply, over a real socket.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use outlast::recovery::{ErrorClass, FailureStage, Fault, FaultKind, classify};
use outlast::transcript::Block;
use serde_json::json;

use super::server::{Server, answer, stream};
use super::{STREAMING, WHOLE, ask, client, recorded};

use crate::support::stopwatch::Stopwatch;

const JSON: &str = "content-type: application/json\r\nrequest-id: req_2\r\n";

fn message(content: &serde_json::Value, stop_reason: &str) -> Vec<u8> {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "",
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": { "input_tokens": 3, "output_tokens": 1 },
    });
    message.to_string().into_bytes()
}

async fn fault_of(bytes: Vec<u8>) -> Fault {
    let server = Server::answering(bytes).await;
    ask(&client(&server.url), STREAMING).await.expect_err("no reply came")
}

#[tokio::test]
async fn a_json_reply_is_one_whatever_was_asked_for() {
    let body = message(
        &json!([{ "type": "text", "text": "hi" }, { "type": "text", "text": " " }]),
        "end_turn",
    );
    let server = Server::answering(answer(200, JSON, &body)).await;
    for asked in [STREAMING, WHOLE] {
        let answer = ask(&client(&server.url), asked).await.expect("a reply");
        assert_eq!(answer.content, [Block::text("hi")]);
        assert_eq!(answer.request_id.as_deref(), Some("req_2"));
        assert_eq!(answer.model, "m", "the model that was asked, when the reply names none");
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (3, 1));
    }
}

/// An error after a status of success has no header of its own.
#[tokio::test]
async fn an_error_within_a_reply_is_retried_after_the_wait_that_it_names() {
    let error = |kind: &str, message: &str| {
        json!({ "type": "error", "error": { "type": kind, "message": message } }).to_string()
    };
    let limited = error("rate_limit_error", "Please try again in 20s.");
    let overloaded = r#"{"error":{"type":"overloaded_error","message":"no","retry_after":20}}"#;
    for body in [&limited, overloaded] {
        let event = format!("event: error\ndata: {body}\n\n");
        for answer in [stream(event.as_bytes()), answer(200, JSON, body.as_bytes())] {
            let wait = fault_of(answer).await.retry_after.map(|wish| wish.wait);
            assert_eq!(wait, Some(Duration::from_secs(20)), "{body}");
        }
    }
    // The texts of the model name no wait.
    let event = json!({ "type": "content_block_delta", "delta": { "text": "try again in 20s" } });
    let torn = fault_of(stream(format!("data: {event}\n\n").as_bytes())).await;
    assert_eq!(torn.retry_after, None);
}

/// Some gateways leave out the fields of server-sent events.
#[tokio::test]
async fn lines_of_json_are_read_as_a_stream_or_a_message() {
    let events: Vec<u8> = String::from_utf8(recorded("streams/text.sse"))
        .expect("text")
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .flat_map(|event| format!("{event}\n").into_bytes())
        .collect();
    let whole = message(&json!([{ "type": "text", "text": "hi" }]), "end_turn");
    let lines = [&whole[..], b"\n{\"done\":true}\n"].concat();
    let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
    let wanted = ask(&client(&server.url), STREAMING).await.expect("a reply").content;
    for (body, wanted) in [(events, wanted), (lines, vec![Block::text("hi")])] {
        for bytes in [stream(&body), answer(200, JSON, &body)] {
            let server = Server::answering(bytes).await;
            for asked in [STREAMING, WHOLE] {
                let reply = ask(&client(&server.url), asked).await.expect("a reply");
                assert_eq!(reply.content, wanted);
            }
        }
    }
}

/// The name of the event and the type are missing.
#[tokio::test]
async fn an_error_in_an_unnamed_event_is_the_reason_for_the_end_of_the_stream() {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n";
    for (event, class) in [
        (json!({ "statusCode": 429, "message": "slow down" }), ErrorClass::RateLimit),
        (json!({ "status": 503, "detail": "slow down" }), ErrorClass::ServerError),
        (json!({ "detail": "slow down" }), ErrorClass::BadResponse),
    ] {
        for begun in ["", start] {
            // The last event has no empty line after it.
            for end in ["\n\n", ""] {
                let body = format!("{begun}data: {event}{end}");
                let fault = fault_of(stream(body.as_bytes())).await;
                assert_eq!(classify(&fault).class, class, "{body}: {fault:?}");
                assert!(fault.detail().contains("slow down"), "{body}: {fault:?}");
            }
        }
    }
    // It may also be a note.
    let note = b"data: {\"message\":\"the model is loading\"}\n\n";
    let body = [&note[..], &recorded("streams/text.sse")].concat();
    let server = Server::answering(stream(&body)).await;
    ask(&client(&server.url), STREAMING).await.expect("a reply");
}

#[tokio::test]
async fn the_last_event_may_lack_the_empty_line_after_it() {
    let events = String::from_utf8(recorded("streams/text.sse")).expect("text");
    let (events, _) = events.split_once("event: message_stop").expect("it has an end");
    for (body, is_reply) in
        [(events.trim_end(), true), (&events[..events.trim_end().len() - 1], false)]
    {
        let server = Server::answering(stream(body.as_bytes())).await;
        let reply = ask(&client(&server.url), STREAMING).await;
        let class = reply.map_err(|fault| classify(&fault).class).map(|_| ());
        let wanted = if is_reply { Ok(()) } else { Err(ErrorClass::ConnectionError) };
        assert_eq!(class, wanted, "{body}");
    }
}

/// Some gateways do not translate replies that they do not stream.
#[tokio::test]
async fn a_chat_completion_in_one_piece_is_a_reply() {
    let call = |arguments: &str| {
        json!({ "id": "c", "type": "function",
            "function": { "name": "Bash", "arguments": arguments } })
    };
    let chat = |message: serde_json::Value, reason: &str| {
        let usage = json!({ "prompt_tokens": 3, "completion_tokens": 7 });
        let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
        json!({ "id": "x", "object": "chat.completion", "choices": [choice], "usage": usage,
            "error": null })
    };
    let text = chat(json!({ "role": "assistant", "content": "hi" }), "stop");
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call("{\"a\":1}")] });
    for (body, content) in [
        (text, Block::text("hi")),
        (chat(calls, "tool_calls"), Block::call("c", "Bash", json!({ "a": 1 }))),
    ] {
        let event = format!("data: {body}\n\ndata: [DONE]\n\n");
        for bytes in [answer(200, JSON, body.to_string().as_bytes()), stream(event.as_bytes())] {
            let server = Server::answering(bytes).await;
            let reply = ask(&client(&server.url), STREAMING).await.expect("a reply");
            assert_eq!((reply.content, reply.has_end), (vec![content.clone()], true), "{body}");
            assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (3, 7));
        }
    }
}

/// Some gateways put a message into an object of their own.
#[tokio::test]
async fn a_message_inside_of_another_object_is_a_reply() {
    let whole = message(&json!([{ "type": "text", "text": "hi" }]), "end_turn");
    let inner: serde_json::Value = serde_json::from_slice(&whole).expect("JSON");
    for body in [
        json!({ "code": 0, "msg": "ok", "data": inner }),
        json!({ "response": inner }),
        json!({ "statusCode": 200, "headers": {}, "body": inner.to_string() }),
    ] {
        let server = Server::answering(answer(200, JSON, body.to_string().as_bytes())).await;
        let reply = ask(&client(&server.url), STREAMING).await.expect("a reply");
        assert_eq!((reply.content, reply.usage.input_tokens), (vec![Block::text("hi")], 3));
    }
    let other = json!({ "data": { "type": "message" }, "error": { "message": "no" } });
    let fault = fault_of(answer(200, JSON, other.to_string().as_bytes())).await;
    assert!(fault.detail().contains("no"), "{fault:?}");
}

/// Some gateways answer with a text in place of blocks, and with token counts as texts.
#[tokio::test]
async fn a_json_reply_with_a_text_and_counts_as_texts_is_understood() {
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "content": "hi",
        "stop_reason": "end_turn", "usage": { "input_tokens": "3", "output_tokens": " 1 " },
    });
    let server = Server::answering(answer(200, JSON, body.to_string().as_bytes())).await;
    let answer = ask(&client(&server.url), WHOLE).await.expect("a reply");
    assert_eq!(answer.content, [Block::text("hi")]);
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (3, 1));
}

#[tokio::test]
async fn a_body_in_a_compression_that_was_not_asked_for_is_named_as_that() {
    for name in ["deflate", "br", "ZSTD", "gzip, br", "gzip\r\ncontent-encoding: br"] {
        let headers = format!("{JSON}content-encoding: {name}\r\n");
        let name = name.replace("\r\ncontent-encoding:", ",");
        for status in [200, 400] {
            let fault = fault_of(answer(status, &headers, b"\x78\x9c\x01")).await;
            let wanted = format!("the body is compressed with {name}, which the request did not");
            assert!(fault.detail().starts_with(&wanted), "{fault:?}");
        }
    }
    let body = message(&json!([{ "type": "text", "text": "hi" }]), "end_turn");
    for name in ["identity", "utf-8", ""] {
        let headers = format!("{JSON}content-encoding: {name}\r\n");
        let server = Server::answering(answer(200, &headers, &body)).await;
        assert!(ask(&client(&server.url), STREAMING).await.is_ok(), "{name}");
    }
}

/// Some proxies decompress a body and keep the label.
#[tokio::test]
async fn a_body_that_is_labelled_as_compressed_is_read_as_what_it_is() {
    let events = recorded("streams/text.sse");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&events).expect("it is memory");
    let packed = encoder.finish().expect("it is memory");
    let headers = "content-type: text/event-stream\r\ncontent-encoding: GZIP\r\n";
    let mut replies = Vec::new();
    for body in [events, packed] {
        let server = Server::answering(answer(200, headers, &body)).await;
        for asked in [STREAMING, WHOLE] {
            replies.push(ask(&client(&server.url), asked).await.expect("a reply").content);
        }
    }
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    let error = br#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
    let fault = fault_of(answer(400, "content-encoding: gzip\r\n", error)).await;
    assert_eq!(fault.detail(), "no");
}

/// Chains of proxies add many.
#[tokio::test]
async fn a_reply_may_have_hundreds_of_headers() {
    let headers: Vec<_> = (0..500).map(|number| format!("x-hop-{number}: 1\r\n")).collect();
    let body = message(&json!([{ "type": "text", "text": "hi" }]), "end_turn");
    let server = Server::answering(answer(200, &headers.concat(), &body)).await;
    ask(&client(&server.url), STREAMING).await.expect("a reply");
}

#[tokio::test]
async fn a_stream_is_a_reply_although_none_was_asked_for() {
    let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
    let answer = ask(&client(&server.url), WHOLE).await.expect("a reply");
    assert_eq!(answer.content.len(), 1);
    assert!(server.requests()[0].contains(r#""stream":false"#));
}

/// The last event comes before the checksum.
#[tokio::test]
async fn a_compressed_stream_with_a_wrong_checksum_is_broken() {
    let events = recorded("streams/text.sse");
    let packed = |damaged: bool| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        encoder.write_all(&events).expect("it is memory");
        let mut packed = encoder.finish().expect("it is memory");
        let place = packed.windows(4).position(|word| word == b"Welt").expect("a word");
        packed[place] = if damaged { b'w' } else { b'W' };
        answer(200, "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n", &packed)
    };
    let server = Server::answering(packed(false)).await;
    ask(&client(&server.url), STREAMING).await.expect("a reply");
    let fault = fault_of(packed(true)).await;
    assert_eq!(classify(&fault).class, ErrorClass::ConnectionError, "{fault:?}");
    assert_eq!(fault.stage, FailureStage::Block);
}

/// A small compressed body may have any number of them.
#[tokio::test]
async fn a_reply_of_too_many_blocks_is_no_reply() {
    let block = |index: usize| {
        let start = json!({
            "type": "content_block_start", "index": index,
            "content_block": { "type": "text", "text": "" },
        });
        format!("data: {start}\n\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n")
    };
    let start = json!({ "type": "message_start", "message": { "id": "m", "content": [] } });
    let events = format!("data: {start}\n\n") + &(0..5_000).map(block).collect::<String>();
    let blocks: Vec<_> = (0..5_000).map(|_| json!({ "type": "text", "text": "" })).collect();
    let whole = answer(200, JSON, &message(&json!(blocks), "end_turn"));
    for bytes in [stream(events.as_bytes()), whole] {
        let fault = fault_of(bytes).await;
        assert_eq!(classify(&fault).class, ErrorClass::BadResponse, "{fault:?}");
        assert!(fault.detail().contains("4096 content blocks"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_mislabelled_stream_is_still_read() {
    let events = recorded("streams/comments_and_unknown.sse");
    let server = Server::answering(answer(200, "content-type: text/plain\r\n", &events)).await;
    ask(&client(&server.url), STREAMING).await.expect("a reply");
}

#[tokio::test]
async fn an_emptied_tool_call_at_the_limit_is_left_out() {
    let call = json!([{ "type": "tool_use", "id": "a", "name": "Bash", "input": {} }]);
    for limit in ["max_tokens", "model_context_window_exceeded"] {
        let server = Server::answering(answer(200, JSON, &message(&call, limit))).await;
        let answer = ask(&client(&server.url), WHOLE).await.expect("a reply");
        assert!(answer.content.is_empty() && answer.cut_tool_call, "{limit}");
    }
}

#[tokio::test]
async fn odd_tool_calls_in_one_piece_are_mended_and_odd_blocks_refused() {
    let calls = json!([
        { "type": "tool_use", "id": "a", "name": "Bash", "input": null },
        { "type": "tool_use", "id": "a", "name": "Bash", "input": {} },
        { "type": "tool_use", "name": "Bash" },
    ]);
    let server = Server::answering(answer(200, JSON, &message(&calls, "tool_use"))).await;
    let reply = ask(&client(&server.url), WHOLE).await.expect("a reply");
    let mut ids: Vec<_> = reply
        .content
        .iter()
        .map(|block| {
            let Block::ToolUse { id, input, .. } = block else { panic!("{block:?}") };
            assert!(input.is_object());
            id.clone()
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    for bad in [json!({ "type": "text" }), json!(5)] {
        let fault = fault_of(answer(200, JSON, &message(&json!([bad]), "tool_use"))).await;
        assert_eq!(classify(&fault).class, ErrorClass::BadResponse, "{fault:?}");
    }
}

#[tokio::test]
async fn an_error_inside_a_success_is_the_error_it_says() {
    let bodies = [
        ("bodies/official-529.json", ErrorClass::ServerOverload),
        ("bodies/official-429.json", ErrorClass::RateLimit),
        ("bodies/official-401.json", ErrorClass::InvalidApiKey),
        ("bodies/official-404-model.json", ErrorClass::InvalidModel),
        ("bodies/official-400-context.json", ErrorClass::PromptTooLong),
        ("bodies/llamacpp-500.json", ErrorClass::ImageTooLarge),
        ("bodies/vertex-429.json", ErrorClass::RateLimit),
        ("bodies/portkey-500.json", ErrorClass::BadResponse),
    ];
    for (body, class) in bodies {
        let fault = fault_of(answer(200, JSON, &recorded(body))).await;
        assert_eq!(classify(&fault).class, class, "{body}: {fault:?}");
        assert_eq!(fault.stage, FailureStage::Status);
    }
}

#[tokio::test]
async fn a_body_that_is_neither_reply_nor_error_is_a_bad_response() {
    let bodies: [(&str, &[u8]); 7] = [
        (JSON, b"{\"choices\":[]}"),
        (JSON, b"{\"type\":\"message\""),
        (JSON, b"[]"),
        (JSON, b"{\"content\":[],\"stop_reason\":null}"),
        (JSON, b"{\"content\":[],\"stop_reason\":\" \"}"),
        (JSON, b"\xef\xbb\xbf {\"content\":3}"),
        (
            JSON,
            b"{\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"stop_reason\":\"end_t\xffrn\"}",
        ),
    ];
    for (headers, body) in bodies {
        let fault = fault_of(answer(200, headers, body)).await;
        assert!(matches!(fault.kind, FaultKind::InvalidContent { .. }), "{fault:?}");
    }
}

/// A proxy may answer with status 200, and an address may be that of another API.
#[tokio::test]
async fn a_text_or_a_stream_of_another_api_is_quoted_and_not_a_broken_connection() {
    let chunk = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[]}\n\ndata: [DONE]\n\n";
    let foreign = ["upstream connect error", chunk];
    let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n";
    let torn = ["event: mess", ": keepalive\n\n", "data: [DONE]\n\n", start];
    for body in foreign {
        let fault = fault_of(answer(200, "content-type: text/plain\r\n", body.as_bytes())).await;
        assert_eq!(classify(&fault).class, ErrorClass::BadResponse, "{fault:?}");
        let wanted = format!("the body is not of the Messages API: {body:?}");
        assert_eq!(fault.detail(), wanted);
    }
    for body in torn {
        let fault = fault_of(stream(body.as_bytes())).await;
        assert_eq!(classify(&fault).class, ErrorClass::ConnectionError, "{fault:?}");
    }
}

/// A compressed body of some kilobytes may begin with millions of blanks.
#[tokio::test]
async fn blanks_before_a_reply_are_searched_once() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&vec![b' '; 32 << 20]).expect("it is memory");
    encoder.write_all(b"\n\n").expect("it is memory");
    encoder.write_all(&recorded("streams/text.sse")).expect("it is memory");
    let packed = encoder.finish().expect("it is memory");
    let server = Server::answering(answer(200, "content-encoding: gzip\r\n", &packed)).await;
    let began = Stopwatch::start();
    ask(&client(&server.url), STREAMING).await.expect("a reply");
    // With a search of all blanks at every piece, it takes minutes.
    began.assert_within(Duration::from_secs(15), "the blanks are searched once");
}

#[tokio::test]
async fn an_empty_error_beside_a_reply_is_none() {
    let text = "{\"content\":\"hi\",\"stop_reason\":\"end_turn\",\"error\":{}}";
    let server = Server::answering(answer(200, JSON, text.as_bytes())).await;
    ask(&client(&server.url), WHOLE).await.expect("a reply");
}

#[tokio::test]
async fn the_content_of_a_reply_may_be_one_block_or_null() {
    let text = json!({ "type": "text", "text": "hi" });
    for (content, wanted) in [
        (text.clone(), vec![Block::text("hi")]),
        (json!([{ "type": "text", "text": null }, text]), vec![Block::text("hi")]),
        (json!(null), vec![]),
    ] {
        let server = Server::answering(answer(200, JSON, &message(&content, "end_turn"))).await;
        let answer = ask(&client(&server.url), WHOLE).await.expect("a reply");
        assert_eq!(answer.content, wanted, "{content}");
    }
}

/// Something on the way answered in place of the service. Its title says what.
#[tokio::test]
async fn an_html_page_is_detected_regardless_of_content_type() {
    let html = recorded("bodies/nginx-502.html");
    for headers in ["content-type: text/html\r\n", JSON, ""] {
        let fault = fault_of(answer(200, headers, &html)).await;
        assert!(matches!(fault.kind, FaultKind::HtmlPage { .. }), "{fault:?}");
        assert_eq!(fault.detail(), "the body is 502 Bad Gateway (an HTML page)");
        assert_eq!(classify(&fault).class, ErrorClass::ServerError);
    }
}

#[tokio::test]
async fn a_success_without_a_body_is_no_reply() {
    for asked in [STREAMING, WHOLE] {
        for status in [200, 204] {
            let server = Server::answering(answer(status, "", b"")).await;
            let fault = ask(&client(&server.url), asked).await.expect_err("nothing came");
            let class = classify(&fault).class;
            assert!(
                matches!(class, ErrorClass::ConnectionError | ErrorClass::BadResponse),
                "{fault:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_json_reply_that_breaks_off_is_torn() {
    let body = message(&json!([{ "type": "text", "text": "hi" }]), "end_turn");
    let whole = answer(200, JSON, &body);
    for asked in [STREAMING, WHOLE] {
        let server = Server::answering(whole[..whole.len() - 5].to_vec()).await;
        let fault = ask(&client(&server.url), asked).await.expect_err("cut");
        assert!(matches!(fault.kind, FaultKind::TornStream { .. }), "{fault:?}");
    }
}
