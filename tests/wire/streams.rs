//! Recorded streams: cut anywhere, chunked anyhow, and what comes of each.

use outlast::model::assemble::{AssemblyStep, ReplyAssembly};
use outlast::model::{ModelReply, StreamProgress};
use outlast::recovery::{ErrorClass, FailureStage, Fault, FaultKind, classify};
use outlast::sse::{EVENT_LIMIT, SseEvent, SseParser};
use outlast::transcript::{Block, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{data, recorded};
use crate::support::rotation::rotating_part;

/// Frames and assembly, as the client joins them, without the sockets.
pub(super) fn replay<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Result<ModelReply, FaultKind>, Vec<usize>) {
    let (mut frames, mut assembly) = (SseParser::default(), ReplyAssembly::default());
    let mut blocks = Vec::new();
    for piece in pieces {
        let mut ready = Vec::new();
        frames.push(piece, &mut ready).expect("no event is too large");
        for frame in ready {
            let told = &mut |progress| {
                if let StreamProgress::Block { index, .. } = progress {
                    blocks.push(index);
                }
            };
            match assembly.process_event(&frame, told) {
                Ok(AssemblyStep::Last) => return (assembly.finish(), blocks),
                Ok(AssemblyStep::Idle | AssemblyStep::Content) => {}
                Err(kind) => return (Err(kind), blocks),
            }
        }
    }
    (assembly.finish(), blocks)
}

fn reply(name: &str) -> ModelReply {
    let bytes = recorded(&format!("streams/{name}.sse"));
    replay([&bytes[..]]).0.unwrap_or_else(|kind| panic!("{name}: {kind:?}"))
}

fn recordings(folder: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(data(folder)).expect("the folder is there");
    let mut found: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
        .map(|path| (path.display().to_string(), std::fs::read(&path).expect("readable")))
        .collect();
    found.sort();
    assert!(found.len() > 5, "{folder} holds the recordings");
    found
}

/// Ids that we make up differ each time. The last event may be missing.
fn without_made_up_ids(mut answer: ModelReply) -> ModelReply {
    answer.has_end = true;
    for block in &mut answer.content {
        if let Block::ToolUse { id, .. } = block
            && id.len() > "toolu_".len() + 30
        {
            "made up".clone_into(id);
        }
    }
    answer
}

pub(super) fn tool_use(id: &str, name: &str, input: Value) -> Block {
    Block::call(id, name, input)
}

#[test]
fn no_stream_that_was_cut_is_a_reply() {
    for (name, bytes) in recordings("streams") {
        let whole = replay([&bytes[..]]).0.map(without_made_up_ids);
        assert!(whole.is_ok(), "{name} is a reply: {whole:?}");
        for end in 0..bytes.len() {
            let result = replay([&bytes[..end]]).0.map(without_made_up_ids);
            let lacks_nothing = result == whole;
            assert!(result.is_err() || lacks_nothing, "{name} cut at {end}: {result:?}");
        }
    }
}

/// The lines of a stream that ends before `message_stop`, with `delta` and `usage` at its end.
fn ending_with(delta: &str, usage: &str, stops: &str) -> Vec<u8> {
    format!(
        "data: {{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_1\",\"usage\":\
         {{\"input_tokens\":3,\"output_tokens\":1}}}}}}\n\n\
         data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
         {{\"type\":\"text\",\"text\":\"Done.\"}}}}\n\n{stops}\
         data: {{\"type\":\"message_delta\",\"delta\":{delta}{usage}}}\n\n"
    )
    .into_bytes()
}

#[test]
fn a_reply_without_its_last_event_is_whole_if_blocks_reason_and_usage_came() {
    let (done, none) = (r#"{"stop_reason":"end_turn"}"#, r#"{"stop_reason":null}"#);
    let (usage, zero) = (r#","usage":{"output_tokens":7}"#, r#","usage":{"output_tokens":0}"#);
    let stop = "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
    let cases = [
        (done, usage, stop, true),
        (done, usage, "", false),
        (done, "", stop, false),
        (done, zero, stop, false),
        (none, usage, stop, false),
        ("{}", usage, stop, false),
    ];
    for (delta, usage, stops, whole) in cases {
        let result = replay([&ending_with(delta, usage, stops)[..]]).0;
        assert_eq!(result.is_ok(), whole, "{delta}{usage}{stops}: {result:?}");
        if let Ok(answer) = result {
            assert_eq!(
                (answer.content, answer.usage.output_tokens),
                (vec![Block::text("Done.")], 7)
            );
        }
    }
}

/// Arguments as they come, and what they amount to: an input, or a problem that the model is told.
#[test]
fn arguments_are_an_object_or_a_problem_for_the_model() {
    let good = [
        ("", json!({})),
        ("  ", json!({})),
        ("null", json!({})),
        ("{}", json!({})),
        (r#"{"a": 1}"#, json!({ "a": 1 })),
        // Encoded twice, sent twice, or with empty arguments beside them.
        (r#""{\"a\": 1}""#, json!({ "a": 1 })),
        (r#"{}{"a": 1}"#, json!({ "a": 1 })),
        (r#"null {"a": 1}"#, json!({ "a": 1 })),
        (r#"{"a": 1}{"a": 1}"#, json!({ "a": 1 })),
        (r#"{"a": 1}{}"#, json!({ "a": 1 })),
        ("{} {}", json!({})),
        (r#"{"a": "\ud83d\ude00"}"#, json!({ "a": "\u{1f600}" })),
        // Markdown, comments, and a comma after the last item.
        ("```json\n{\"a\": 1}\n```", json!({ "a": 1 })),
        ("```\n{\"a\": \"```\"}\n", json!({ "a": "```" })),
        ("{\"a\": [1, 2, ], // one, two\n /* {, */ }", json!({ "a": [1, 2] })),
        (r#"{"a": "//, }", "b": "/*", }"#, json!({ "a": "//, }", "b": "/*" })),
        ("{\"a\": \"x\ny\", \"b\": 1.50e3,}", json!({ "a": "x\ny", "b": 1500.0 })),
        (r#""{\"a\": 1,}""#, json!({ "a": 1 })),
        (r#"{"a": [1]}}]"#, json!({ "a": [1] })),
    ];
    let bad = [
        "{",
        r#"{"command": "ls"#,
        "ls -la",
        "[1]",
        "3",
        "true",
        r#""ls""#,
        "None",
        r#"{"a": 1}{"a": 2}"#,
        r#"{}{"a": 1"#,
        "{} 3",
        r#""\"{}\"""#,
        r#"{"a": "\ud83d"}"#,
        r#"{"a": "\ud83d",}"#,
        "```json\n{\"a\": \"ls",
        "{\"a\": 1, // ",
        r#"{"a": 1,,}"#,
        r#"{"a": 1 2}"#,
        r#"{"a": +1,}"#,
        "{'a': 1,}",
        r#"{"a": [1]} {"#,
        r#"{"a": [1}}"#,
        "{a: 1,}",
    ];
    for as_text in [false, true] {
        let call_with = |arguments: &str| {
            let (given, streamed) =
                if as_text { (json!(arguments), "") } else { (json!({}), arguments) };
            let start = json!({ "type": "content_block_start", "index": 0, "content_block":
                { "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": given } });
            let delta = json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "input_json_delta", "partial_json": streamed } });
            let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
            let events = [start, delta, end, json!({ "type": "message_stop" })];
            let lines: String = events.map(|event| format!("data: {event}\n\n")).concat();
            replay([lines.as_bytes()]).0.expect("a reply")
        };
        for (arguments, input) in &good {
            let answer = call_with(arguments);
            assert_eq!(answer.content, [tool_use("toolu_1", "Bash", input.clone())]);
            assert_eq!(answer.malformed, [], "{arguments}");
        }
        for arguments in bad {
            let answer = call_with(arguments);
            assert_eq!(answer.content, [tool_use("toolu_1", "Bash", json!({}))], "{arguments}");
            let [call] = &answer.malformed[..] else { panic!("{arguments}: {answer:?}") };
            assert_eq!(call.id, "toolu_1");
            assert!(call.problem.contains("JSON"), "{call:?}");
            assert!(call.problem.contains(arguments), "it sees what it sent: {call:?}");
        }
    }
}

#[test]
fn a_malformed_call_is_not_told_of_as_a_complete_block() {
    for name in ["broken_tool_json", "tool_input_is_text"] {
        let bytes = recorded(&format!("streams/{name}.sse"));
        let (answer, blocks) = replay([&bytes[..]]);
        assert_eq!(answer.expect("a reply").malformed.len(), 1, "{name}");
        assert_eq!(blocks, [0_usize; 0], "{name}: nothing may start early");
    }
}

/// Gateways keep state in ids, and want them back.
#[test]
fn ids_of_tool_calls_are_kept_unless_no_service_would_take_them_back() {
    let (longest, too_long) = ("x".repeat(16_384), "x".repeat(16_385));
    let kept = ["toolu_01", "call-7_B", "0", "functions.Bash:0", "a/b", "a+b=", &longest];
    let renamed = ["", "call 1", "é", "a\u{7}", &too_long];
    for (ids, keeps) in [(&kept[..], true), (&renamed[..], false)] {
        for id in ids {
            let block = json!({ "type": "tool_use", "id": id, "name": "Bash", "input": {} });
            let start =
                json!({ "type": "content_block_start", "index": 0, "content_block": block });
            let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
            let events = [start, end, json!({ "type": "message_stop" })];
            let lines: String = events.map(|event| format!("data: {event}\n\n")).concat();
            let answer = replay([lines.as_bytes()]).0.expect("a reply");
            let Block::ToolUse { id: now, .. } = &answer.content[0] else { panic!("{answer:?}") };
            assert_eq!(now == id, keeps, "{id}");
            assert!(keeps || outlast::transcript::is_portable_id(now), "{now}");
        }
    }
}

#[test]
fn further_fields_of_a_call_are_kept() {
    let block = json!({ "type": "tool_use", "id": "call_1", "name": "Bash", "input": {},
        "extra_content": { "google": { "thought_signature": "Zm9v" } }, "index": null,
        "cache_control": { "type": "ephemeral" } });
    let kept = json!({ "type": "tool_use", "id": "call_1", "name": "Bash", "input": {},
        "extra_content": { "google": { "thought_signature": "Zm9v" } } });
    let events = [
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        json!({ "type": "message_stop" }),
    ];
    let lines: String = events.map(|event| format!("data: {event}\n\n")).concat();
    let answer = replay([lines.as_bytes()]).0.expect("a reply");
    assert_eq!(serde_json::to_value(&answer.content[0]).expect("JSON"), kept);
    let whole = json!({ "content": [block], "stop_reason": "tool_use" }).to_string();
    let answer = outlast::model::answer::parse_message(whole.as_bytes()).expect("a reply");
    assert_eq!(serde_json::to_value(&answer.content[0]).expect("JSON"), kept);
}

#[test]
fn how_a_stream_is_chunked_makes_no_difference() {
    for folder in ["streams", "streams/broken"] {
        for (name, bytes) in recordings(folder) {
            let (whole, blocks) = replay([&bytes[..]]);
            let whole = whole.map(without_made_up_ids);
            for size in 1..80.min(bytes.len()) {
                let (pieces, told) = replay(bytes.chunks(size));
                assert_eq!(pieces.map(without_made_up_ids), whole, "{name} by {size}");
                assert_eq!(told, blocks, "{name} by {size}");
            }
            let bytewise = bytes.chunks(1).flat_map(|byte| [byte, &[]]);
            assert_eq!(replay(bytewise).0.map(without_made_up_ids), whole, "{name} with gaps");
            for at in rotating_part(0..bytes.len(), 8) {
                let (halves, _) = replay([&bytes[..at], &[], &bytes[at..]]);
                assert_eq!(halves.map(without_made_up_ids), whole, "{name} split at {at}");
            }
        }
    }
}

#[test]
fn text_comes_whole_with_its_usage() {
    let answer = reply("text");
    assert_eq!(answer.content, [Block::text("Grüße, Welt 😀.")]);
    assert_eq!((answer.id.as_str(), answer.model.as_str()), ("msg_01", "claude-sonnet-5-5"));
    let usage = Usage {
        input_tokens: 25,
        output_tokens: 42,
        cache_creation_input_tokens: 100,
        cache_read_input_tokens: 2000,
        web_search_requests: 0,
    };
    assert_eq!(answer.usage, usage);
    assert!(!answer.cut_tool_call);
}

#[test]
fn how_the_lines_are_written_makes_no_difference() {
    let plain = reply("text");
    for name in ["crlf", "cr", "data_only", "no_space_split_data"] {
        assert_eq!(reply(name), plain, "{name}");
    }
    assert_eq!(reply("comments_and_unknown").content, [Block::text("ok")]);
}

#[test]
fn thinking_and_tool_calls_keep_their_order() {
    let thinking =
        Block::Thinking { thinking: "I should look.".into(), signature: "EqQBCg==".into() };
    let expected = [
        thinking,
        Block::RedactedThinking { data: "b3BhcXVl".into() },
        Block::text("Looking."),
        tool_use("toolu_01", "Bash", json!({ "command": "ls -la" })),
        tool_use("toolu_02", "Read", json!({})),
    ];
    assert_eq!(reply("thinking_and_tools").content, expected);
}

#[test]
fn interleaved_blocks_without_input_or_stops_come_out_whole() {
    let ls = json!({ "command": "ls" });
    let id = "wXb3kq0ZrT2mYp8sLd4vNc6hJf1gQe5a";
    let expected = [Block::text("I will list."), tool_use(id, "Bash", ls.clone())];
    let answer = reply("llama_cpp_tool");
    assert_eq!(answer.content, expected);
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (312, 19));
    let expected = [Block::text("hi"), tool_use("toolu_01", "Bash", ls)];
    assert_eq!(reply("no_block_stop").content, expected);
}

#[test]
fn text_without_the_start_of_a_block_is_text() {
    let answer = reply("no_block_start");
    let thinking = Block::Thinking { thinking: "Hm.".to_owned(), signature: String::new() };
    assert_eq!(answer.content, [thinking, Block::text("no start")]);
}

/// Arguments with another byte than the model wrote must not reach a tool. A text may have U+FFFD
/// instead of a letter, and nothing may be missing.
#[test]
fn a_stream_with_a_damaged_byte_is_no_reply_or_has_the_damage_in_its_text() {
    let letters = |reply: &Result<ModelReply, FaultKind>| {
        let content = &reply.as_ref().expect("a reply").content;
        let text = serde_json::to_string(content).expect("JSON");
        text.chars().filter(|letter| *letter != '\u{fffd}').count()
    };
    for name in ["thinking_and_tools", "no_space_split_data", "no_message_stop", "text"] {
        let mut bytes = recorded(&format!("streams/{name}.sse"));
        let whole = replay([&bytes[..]]).0.map(without_made_up_ids);
        for at in 0..bytes.len() {
            let intact = std::mem::replace(&mut bytes[at], 0xff);
            let result = replay([&bytes[..]]).0.map(without_made_up_ids);
            let is_in_text = || {
                let is_call = |block: &&Block| matches!(block, Block::ToolUse { .. });
                let calls = |reply: &Result<ModelReply, FaultKind>| {
                    let content = &reply.as_ref().expect("a reply").content;
                    content.iter().filter(is_call).cloned().collect::<Vec<_>>()
                };
                calls(&result) == calls(&whole) && letters(&whole) - letters(&result) <= 2
            };
            let is_harmless = result.is_err() || result == whole || is_in_text();
            assert!(is_harmless, "{name} damaged at {at}: {result:?}");
            bytes[at] = intact;
        }
    }
}

#[test]
fn usage_may_be_missing_or_late() {
    assert_eq!(reply("no_usage").usage, Usage::default());
    let late = reply("late_usage").usage;
    assert_eq!((late.input_tokens, late.output_tokens, late.cache_read_input_tokens), (77, 9, 5));
}

#[test]
fn a_tool_call_cut_by_the_limit_is_left_out() {
    let answer = reply("max_tokens_in_tool");
    assert_eq!(answer.content, [Block::text("Writing.")]);
    assert!(answer.cut_tool_call);
    assert_eq!(answer.stop_reason, "max_tokens");
}

#[test]
fn the_last_tool_call_before_the_limit_is_never_trusted() {
    let answer = reply("max_tokens_tool_looks_whole");
    let expected = [tool_use("toolu_01", "Bash", json!({ "command": "ls" }))];
    assert_eq!(answer.content, expected);
    assert!(answer.cut_tool_call);
}

#[test]
fn no_two_tool_calls_share_an_id() {
    let answer = reply("same_and_empty_ids");
    let ids: Vec<&str> = answer
        .content
        .iter()
        .filter_map(
            |block| if let Block::ToolUse { id, .. } = block { Some(&id[..]) } else { None },
        )
        .collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[0], "t");
    assert!(ids[1].starts_with("toolu_") && ids[2].starts_with("toolu_") && ids[1] != ids[2]);
}

#[test]
fn blank_text_blocks_are_dropped() {
    let answer = reply("blank_text");
    assert!(answer.content.is_empty());
    assert_eq!(answer.stop_reason, "end_turn");
}

#[test]
fn foreign_blocks_are_carried_as_they_came() {
    let answer = reply("server_tool");
    let Block::Other(call) = &answer.content[0] else { panic!("{answer:?}") };
    assert_eq!(call["input"], json!({ "query": "x" }));
    assert_eq!(answer.content.len(), 3);
    assert_eq!(reply("refusal").stop_reason, "refusal");
}

#[test]
fn invalid_streams_have_their_own_error_class() {
    let expected = [
        ("error_first", ErrorClass::ServerOverload),
        ("error_midway", ErrorClass::ServerOverload),
        ("error_after_block", ErrorClass::ServerOverload),
        ("error_llama_cpp", ErrorClass::ServerError),
        ("error_data_only", ErrorClass::ServerError),
        ("error_of_no_kind", ErrorClass::BadResponse),
        ("bad_json", ErrorClass::BadResponse),
        ("no_stop_reason", ErrorClass::BadResponse),
        ("second_message", ErrorClass::BadResponse),
        ("delta_without_block", ErrorClass::BadResponse),
        ("delta_of_another_kind", ErrorClass::BadResponse),
    ];
    assert_eq!(expected.len(), recordings("streams/broken").len());
    for (name, class) in expected {
        let bytes = recorded(&format!("streams/broken/{name}.sse"));
        let kind = replay([&bytes[..]]).0.expect_err(name);
        assert_eq!(
            classify(&Fault::new(kind.clone(), FailureStage::Stream)).class,
            class,
            "{name}: {kind:?}"
        );
    }
}

#[test]
fn an_event_without_end_is_not_kept_for_ever() {
    let (mut frames, mut ready) = (SseParser::default(), Vec::new());
    let piece = vec![b'x'; EVENT_LIMIT / 4];
    assert!((0..5).any(|_| frames.push(&piece, &mut ready).is_err()));
    let (mut frames, line) = (SseParser::default(), [b"data: ", &piece[..], b"\n"].concat());
    assert!((0..5).any(|_| frames.push(&line, &mut ready).is_err()));
    assert!(ready.is_empty());
}

fn frames_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent> {
    let (mut frames, mut ready) = (SseParser::default(), Vec::new());
    for piece in pieces {
        frames.push(piece, &mut ready).expect("small");
    }
    ready
}

/// Bytes that often look like parts of a stream.
fn stream_like() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"event: ".to_vec()),
        Just(b"data: ".to_vec()),
        Just(b"data".to_vec()),
        Just(b":".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\n\n".to_vec()),
        Just("\u{feff}".as_bytes().to_vec()),
        Just("😀".as_bytes().to_vec()),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

/// Events that are JSON, but in any order and of any shape.
fn event_like() -> impl Strategy<Value = Value> {
    let index = prop_oneof![Just(json!(0)), Just(json!(1)), Just(Value::Null), Just(json!("x"))];
    let block = prop_oneof![
        Just(json!({ "type": "text", "text": "a" })),
        Just(json!({ "type": "text", "text": 7 })),
        Just(json!({ "type": "tool_use", "id": "", "name": "Bash" })),
        Just(json!({ "type": "tool_use", "id": 1, "input": [] })),
        Just(json!({ "type": "thinking" })),
        Just(json!({ "type": "redacted_thinking" })),
        Just(json!({ "type": "new" })),
        Just(json!([])),
    ];
    let delta = prop_oneof![
        Just(json!({ "type": "text_delta", "text": "b" })),
        Just(json!({ "type": "input_json_delta", "partial_json": "{}" })),
        Just(json!({ "type": "input_json_delta", "partial_json": "{" })),
        Just(json!({ "type": "signature_delta", "signature": null })),
        Just(json!({ "stop_reason": "end_turn" })),
        Just(json!({ "stop_reason": "max_tokens" })),
        Just(json!(3)),
    ];
    let kind = prop_oneof![
        Just("message_start"),
        Just("content_block_start"),
        Just("content_block_delta"),
        Just("content_block_stop"),
        Just("message_delta"),
        Just("message_stop"),
        Just("ping"),
    ];
    (kind, index, block, delta).prop_map(|(kind, index, block, delta)| {
        json!({ "type": kind, "index": index, "content_block": block, "delta": delta, "usage": delta })
    })
}

proptest! {
    #[test]
    fn any_bytes_make_the_same_frames_however_they_are_cut(
        bytes in stream_like(), cuts in prop::collection::vec(0..200_usize, 0..6)
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(frames_of(pieces), frames_of([&bytes[..]]));
    }

    #[test]
    fn any_events_are_a_reply_or_a_fault_and_never_a_panic(
        events in prop::collection::vec(event_like(), 0..12)
    ) {
        let lines: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let bytes = lines.concat();
        if let (Ok(answer), _) = replay([bytes.as_bytes()]) {
            prop_assert!(!answer.stop_reason.is_empty());
            for block in &answer.content {
                if let Block::ToolUse { id, name, input, .. } = block {
                    prop_assert!(!id.is_empty() && !name.is_empty() && input.is_object());
                }
            }
        }
    }
}
