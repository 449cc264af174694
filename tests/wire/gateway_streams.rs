//! Streams of gateways that deviate from the Messages API, where their meaning is clear.

use outlast::model::answer::parse_message;
use outlast::model::assemble::{AssemblyStep, ReplyAssembly};
use outlast::model::{ModelReply, StreamProgress};
use outlast::recovery::FaultKind;
use outlast::sse::SseEvent;
use outlast::transcript::Block;
use serde_json::{Value, json};

use super::streams::{replay, tool_use};

/// The events of a block that comes in these deltas, without its end. `None` as the index: it is
/// left out.
fn block(index: Option<u64>, kind: &str, deltas: &[&str]) -> String {
    let (field, delta) = match kind {
        "text" => ("text", "text_delta"),
        "thinking" => ("thinking", "thinking_delta"),
        _ => ("partial_json", "input_json_delta"),
    };
    let index = index.map_or(String::new(), |index| format!(r#""index":{index},"#));
    let block = match kind {
        "tool_use" => json!({ "type": kind, "id": "toolu_1", "name": "Bash", "input": {} }),
        _ => json!({ "type": kind, field: "" }),
    };
    let start = format!(r#"data: {{"type":"content_block_start",{index}"content_block":{block}}}"#);
    let deltas = deltas.iter().map(|text| {
        format!(
            r#"data: {{"type":"content_block_delta",{index}"delta":{{"type":"{delta}","{field}":"{text}"}}}}"#
        )
    });
    [start].into_iter().chain(deltas).map(|line| line + "\n\n").collect()
}

/// The event that ends a block.
fn stop(index: Option<u64>) -> String {
    let index = index.map_or(String::new(), |index| format!(r#","index":{index}"#));
    format!("data: {{\"type\":\"content_block_stop\"{index}}}\n\n")
}

/// The reply of a stream with these blocks.
fn reply_of(blocks: &str) -> Result<ModelReply, FaultKind> {
    let start = json!({ "type": "message_start", "message": { "id": "msg_1" } });
    let delta = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    let end = format!("data: {delta}\n\ndata: {}\n\n", json!({ "type": "message_stop" }));
    replay([format!("data: {start}\n\n{blocks}{end}").as_bytes()]).0
}

/// Some gateways split texts between UTF-16 code units.
#[test]
fn halves_of_a_surrogate_pair_are_joined_and_never_run_alone() {
    type Row<'a> = (&'a str, &'a [&'a str], Result<Vec<Block>, String>);
    let whole = |text: &str| Ok(vec![Block::text(text)]);
    let refused = Err("a tool call has part of a character".to_owned());
    let input = |text: &str| Ok(vec![tool_use("toolu_1", "Bash", json!({ "a": text }))]);
    let thinking = |text: &str| {
        Ok(vec![Block::Thinking { thinking: text.to_owned(), signature: String::new() }])
    };
    let rows: [Row<'_>; 9] = [
        ("text", &[r"a \ud83d", r"\ude00 b"], whole("a \u{1f600} b")),
        ("text", &[r"a \ud83d", " b"], whole("a \u{fffd} b")),
        ("text", &[r"a \ud83d"], whole("a \u{fffd}")),
        ("thinking", &[r"\ud83d", r"\ude00"], thinking("\u{1f600}")),
        ("tool_use", &[r#"{\"a\":\"\ud83d"#, r#"\ude00\"}"#], input("\u{1f600}")),
        ("tool_use", &[r#"{\"a\":\"\ud83d\"}"#], refused.clone()),
        ("tool_use", &[r#"{\"a\":\"\ud83d"#, r#"\"}"#], refused.clone()),
        ("tool_use", &[r#"{\"a\":\""#, r#"\ude00\"}"#], refused.clone()),
        ("tool_use", &[r#"{\"a\":\"\ud83d"#], refused.clone()),
    ];
    for (kind, deltas, wanted) in rows {
        let result = reply_of(&(block(Some(0), kind, deltas) + &stop(Some(0))));
        let found = result.map(|answer| answer.content).map_err(|kind| {
            let FaultKind::InvalidContent { detail } = kind else { panic!("{deltas:?}: {kind:?}") };
            detail
        });
        assert_eq!(found, wanted, "{deltas:?}");
    }
    // The arguments may also be in the start of the block, or the reply in one piece.
    let start = r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"Bash","input":{"a":"\ud83d"}}}"#;
    assert!(reply_of(&format!("{start}\n\n")).is_err());
    for (block, is_reply) in [
        (r#"{"type":"text","text":"\ud83d"}"#, true),
        (r#"{"type":"tool_use","id":"t","name":"Bash","input":{"a":"\ud83d"}}"#, false),
        (r#"{"type":"tool_use","id":"t","name":"Bash","input":{"a":"\ud83d\ude00"}}"#, true),
    ] {
        let body = format!(r#"{{"type":"message","content":[{block}],"stop_reason":"end_turn"}}"#);
        assert_eq!(parse_message(body.as_bytes()).is_ok(), is_reply, "{block}");
    }
}

/// The byte of a letter of Latin-1.
fn byte(letter: char) -> u8 {
    u8::try_from(letter).expect("a letter of Latin-1")
}

/// Some gateways split texts between bytes, or send Latin-1.
#[test]
fn bytes_that_are_not_utf_8_are_read_as_text_and_never_run() {
    let reply = |kind: &str, deltas: &[&str]| {
        // Each letter is one byte.
        let events: Vec<u8> = block(Some(0), kind, deltas).chars().map(byte).collect();
        let parts: [&[u8]; 4] = [
            b"data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"}}\n\n",
            &events,
            b"data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
            b"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
              data: {\"type\":\"message_stop\"}\n\n",
        ];
        replay([&parts.concat()[..]]).0.map(|reply| reply.content).ok()
    };
    let thinking =
        |text: &str| Block::Thinking { thinking: text.to_owned(), signature: String::new() };
    let rows: [(&str, &[&str], Option<Block>); 7] = [
        ("text", &["a \u{f0}\u{9f}", "\u{98}\u{80} b"], Some(Block::text("a \u{1f600} b"))),
        ("text", &["caf\u{e9}", " b"], Some(Block::text("caf\u{fffd} b"))),
        ("text", &[r"\ud83d", "caf\u{e9} \\n"], Some(Block::text("\u{fffd}caf\u{fffd} \n"))),
        ("thinking", &["caf\u{c3}", "\u{a9}"], Some(thinking("café"))),
        ("tool_use", &[r#"{\"a\":\""#, "caf\u{e9}", r#"\"}"#], None),
        ("tool_use", &[r#"{\"a\":\""#, "caf\u{c3}", "\u{a9}", r#"\"}"#], None),
        ("text", &["a\",\"b\u{e9}\":\""], None),
    ];
    for (kind, deltas, wanted) in rows {
        assert_eq!(reply(kind, deltas), wanted.map(|block| vec![block]), "{deltas:?}");
    }
}

/// As in streams.
#[test]
fn a_body_with_bytes_that_are_not_utf_8_is_a_reply_if_they_are_in_its_texts() {
    let call = |name: &str, path: &str| {
        format!(r#"{{"type":"tool_use","id":"t","name":"{name}","input":{{"a":"{path}"}}}}"#)
    };
    let text = |name: &str| format!(r#"{{"type":"text","{name}":"caf{}"}}"#, '\u{e9}');
    let rows = [
        (text("text"), true),
        (text("text") + "," + &call("Bash", "b"), true),
        (text("text") + "," + &call("Bash", "b\u{e9}"), false),
        (call("Bash", "\\\u{e9}"), false),
        (call("B\u{e9}sh", "b"), false),
        (text("te\u{e9}xt"), false),
    ];
    for (blocks, is_reply) in rows {
        let body = format!(r#"{{"type":"message","content":[{blocks}],"stop_reason":"end_turn"}}"#);
        let body: Vec<u8> = body.chars().map(byte).collect();
        let text = parse_message(&body).ok().map(|reply| reply.content[0].clone());
        assert_eq!(text, is_reply.then(|| Block::text("caf\u{fffd}")), "{blocks}");
    }
}

/// Some gateways keep the connection open by events of their own.
#[test]
fn events_that_the_messages_api_does_not_have_are_ignored_whatever_they_hold() {
    let own = [
        "event: vendor\ndata: not json\n\n",
        "event: keepalive\ndata: keepalive\n\n",
        "event: debug\ndata: {\"x\":\n\n",
        "event: vendor\ndata: {\"x\":\"\u{e9}\"}\n\n",
        "event: vendor\nid: \u{e9}\ndata: \u{e9}\n\n",
        "event: ping\ndata: \u{e9}\n\n",
        "event: ping\ndata: pong\n\n",
        "event: message\ndata: keepalive\n\n",
        "data: keepalive\n\n",
        "data: :\n\n",
        "data: \"\"\n\n",
    ];
    let body = format!("{}{}", block(Some(0), "text", &["o", "k"]), stop(Some(0)));
    let cases = own.map(|event| (event, true)).into_iter().chain([
        ("event: content_block_delta\ndata: keepalive\n\n", false),
        ("event: message_stop\ndata: {\n\n", false),
        ("data: {\"type\":\n\n", false),
        ("event: message\ndata: {\"type\":\n\n", false),
        ("data: \u{e9}\"type\":1}\n\n", false),
    ]);
    for (event, is_ignored) in cases {
        for at in [0, body.find("\n\n").expect("an event") + 2, body.len()] {
            let events = [&body[..at], event, &body[at..]].concat();
            let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"}}\n\n";
            let end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
                       data: {\"type\":\"message_stop\"}\n\n";
            // Each letter is one byte.
            let bytes: Vec<u8> = [start, &events, end].concat().chars().map(byte).collect();
            let content = replay([&bytes[..]]).0.map(|reply| reply.content).ok();
            let wanted = is_ignored.then(|| vec![Block::text("ok")]);
            assert_eq!(content, wanted, "{event} at {at}");
        }
    }
}

/// Some gateways number all blocks alike, or leave out zeros or all indices.
#[test]
fn blocks_are_told_apart_without_their_indices() {
    let call = || tool_use("toolu_1", "Bash", json!({ "a": 1 }));
    let arguments: &[&str] = &[r#"{\"a\""#, ":1}"];
    let thought = Block::Thinking { thinking: "Hm.".to_owned(), signature: String::new() };
    let text = |index| block(index, "text", &["o", "k"]);
    let thinking = |index| block(index, "thinking", &["Hm."]);
    let bash = |index| block(index, "tool_use", arguments);
    let (zero, one) = (Some(0), Some(1));
    let rows = [
        // The first is left open, and its index is used again.
        (
            [text(zero), thinking(zero), stop(zero), text(one), stop(one)].concat(),
            vec![Block::text("ok"), thought.clone(), Block::text("ok")],
        ),
        (
            [thinking(zero), stop(zero), text(zero), stop(zero), bash(zero), stop(zero)].concat(),
            vec![thought.clone(), Block::text("ok"), call()],
        ),
        ([text(None), stop(None), bash(one), stop(one)].concat(), vec![Block::text("ok"), call()]),
        ([text(None), bash(one), stop(None), stop(one)].concat(), vec![Block::text("ok"), call()]),
        (
            [thinking(None), stop(None), text(None), stop(None), bash(None), stop(None)].concat(),
            vec![thought, Block::text("ok"), call()],
        ),
    ];
    for (events, content) in rows {
        assert_eq!(reply_of(&events).expect("a reply").content, content, "{events}");
    }
    // A call whose arguments did not end may lack some of them.
    let again = [block(zero, "tool_use", &[]), bash(zero), stop(zero)].concat();
    assert!(reply_of(&again).is_err());
    let with_index = |index: &str| {
        let events = [text(zero), stop(zero)].concat();
        reply_of(&events.replace("\"index\":0", &format!("\"index\":{index}")))
    };
    for index in ["\"0\"", "0.0"] {
        assert_eq!(with_index(index).expect("a reply").content, [Block::text("ok")], "{index}");
    }
    assert!(with_index("\"x\"").is_err());
}

/// Some gateways that cannot stream send the whole reply as one event.
#[test]
fn a_whole_message_in_one_event_is_a_reply() {
    let message = |content: Value| {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": content, "stop_reason": "tool_use",
            "usage": { "input_tokens": 3, "output_tokens": 7 },
        })
    };
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "a": 1 } });
    let text = json!({ "type": "text", "text": "ok" });
    let blocks = message(json!([text, call]));
    for events in [
        format!("data: {blocks}\n\n"),
        format!("event: message\ndata: {blocks}\n\ndata: [DONE]\n\n"),
        format!("event: ping\ndata: {{}}\n\ndata: {blocks}\n\n"),
    ] {
        let (reply, reported) = replay([events.as_bytes()]);
        let reply = reply.expect("a reply");
        let call = tool_use("toolu_1", "Bash", json!({ "a": 1 }));
        assert_eq!(reply.content, [Block::text("ok"), call], "{events}");
        assert_eq!((reply.id.as_str(), reply.stop_reason.as_str()), ("msg_1", "tool_use"));
        assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (3, 7));
        assert_eq!(reported, [0, 1]);
    }
    // Hosts read the text in deltas.
    let mut kinds = Vec::new();
    let event = SseEvent::of_data(message(json!([text])).to_string().into_bytes());
    let step = ReplyAssembly::default().process_event(&event, &mut |progress| {
        if let StreamProgress::Event(event) = progress {
            kinds.push(event["delta"]["text"].clone());
        }
    });
    assert_eq!(step, Ok(AssemblyStep::Last));
    assert!(kinds.contains(&json!("ok")), "{kinds:?}");
    let text = replay([format!("data: {}\n\n", message(json!("ok"))).as_bytes()]).0;
    assert_eq!(text.expect("a reply").content, [Block::text("ok")]);
    // It is not a second reply.
    let open = block(Some(0), "tool_use", &["{}"]) + &stop(Some(0));
    let reply = reply_of(&(open + &format!("data: {blocks}\n\n"))).expect("a reply");
    assert_eq!(reply.content, [tool_use("toolu_1", "Bash", json!({}))]);
    for broken in [
        json!({ "type": "message", "content": [] }).to_string(),
        message(json!([{ "type": "tool_use", "id": "t", "name": "Bash", "input": { "a": "x" } }]))
            .to_string()
            .replace("\"x\"", r#""\ud83d""#),
    ] {
        assert!(replay([format!("data: {broken}\n\n").as_bytes()]).0.is_err(), "{broken}");
    }
}

#[test]
fn an_error_event_with_a_text_is_an_error_in_these_words() {
    for (text, wanted) in [
        ("upstream reset", "an error of unknown type: upstream reset"),
        ("{\"message\": \"cut", "an error of unknown type: {\"message\": \"cut"),
    ] {
        let events = format!("event: error\ndata: {text}\n\n");
        let error = reply_of(&events).expect_err("an error");
        assert_eq!(error, FaultKind::InvalidContent { detail: wanted.to_owned() });
    }
    let error = reply_of("event: error\ndata: overloaded_error: try later\n\n");
    let FaultKind::Refused { label, .. } = error.expect_err("an error") else { panic!("known") };
    assert_eq!(label, "overloaded_error");
}

/// Some gateways send arguments as an object in place of its text, or at the start of the block.
#[test]
fn arguments_may_be_an_object_or_come_at_the_start() {
    let events = |given: &Value, pieces: &[Value]| {
        let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": given });
        let start = json!({ "type": "content_block_start", "index": 0, "content_block": call });
        let deltas = pieces.iter().map(|piece| {
            let delta = json!({ "type": "input_json_delta", "partial_json": piece });
            json!({ "type": "content_block_delta", "index": 0, "delta": delta })
        });
        let lines = [start].into_iter().chain(deltas).map(|event| format!("data: {event}\n\n"));
        lines.collect::<String>() + &stop(Some(0))
    };
    let (none, input) = (json!({}), json!({ "a": 1 }));
    let text = |text: &str| json!(text);
    for (given, pieces, wanted) in [
        (&none, vec![input.clone()], &input),
        (&input, vec![text("{}")], &input),
        (&input, vec![text("null")], &input),
        (&input, vec![text("")], &input),
        (&none, vec![text("{}")], &none),
        (&json!({ "b": 2 }), vec![text(r#"{"a":1}"#)], &input),
    ] {
        let reply = reply_of(&events(given, &pieces)).expect("a reply");
        let call = tool_use("toolu_1", "Bash", wanted.clone());
        assert_eq!(reply.content, [call], "{given} {pieces:?}");
    }
}

fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn start_of(block: &Value) -> String {
    data(&json!({ "type": "content_block_start", "index": 0, "content_block": block }))
}

/// Some gateways send the content of a block only with its end, or arguments under another name.
#[test]
fn content_that_comes_at_the_end_of_its_block_is_kept() {
    let call =
        |input: Value| json!({ "type": "tool_use", "id": "t", "name": "Bash", "input": input });
    let end = |block: &Value| {
        data(&json!({ "type": "content_block_stop", "index": 0, "content_block": block }))
    };
    let delta =
        |delta: Value| data(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
    let (none, input) = (call(json!({})), json!({ "a": 1 }));
    let text = json!({ "type": "text", "text": "ok" });
    let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "" });
    let empty = |kind: &str| json!({ "type": kind });
    let called = || tool_use("t", "Bash", input.clone());
    let thought = Block::Thinking { thinking: "hm".to_owned(), signature: String::new() };
    let said = json!({ "type": "text_delta", "text": "ok" });
    let rows = [
        (start_of(&none) + &end(&call(input.clone())), called()),
        (start_of(&none) + &end(&call(json!("{\"a\":1}"))), called()),
        (start_of(&empty("text")) + &end(&text), Block::text("ok")),
        (start_of(&empty("text")) + &delta(said) + &end(&text), Block::text("ok")),
        (start_of(&empty("thinking")) + &end(&thinking), thought),
        (start_of(&none) + &delta(json!({ "type": "input_json_delta", "input": input })), called()),
        (
            start_of(&none)
                + &delta(json!({ "type": "input_json_delta", "arguments": "{\"a\":1}" }))
                + &end(&call(json!({ "b": 2 }))),
            called(),
        ),
    ];
    for (events, wanted) in rows {
        assert_eq!(reply_of(&events).expect("a reply").content, [wanted], "{events}");
    }
    let half = end(&call(json!({ "a": "x" }))).replace("\"x\"", r#""\ud83d""#);
    assert!(reply_of(&(start_of(&none) + &half)).is_err());
}

/// Some gateways leave out the indices and ends of calls, or name a call after it began.
#[test]
fn a_call_that_begins_before_the_end_of_another_one_is_another_one() {
    let call = |id: &str, name: &str| {
        start_of(&json!({ "type": "tool_use", "id": id, "name": name, "input": {} }))
    };
    let arguments = |text: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        data(&json!({ "type": "content_block_delta", "delta": delta }))
    };
    let used = |id: &str, input: Value| tool_use(id, "Bash", input);
    let two =
        call("a", "Bash") + &arguments("{\"a\":1}") + &call("b", "Bash") + &arguments("{\"a\":2}");
    let named = call("", "") + &call("a", "Bash") + &arguments("{\"a\":1}");
    for (events, wanted) in [
        (&two, vec![used("a", json!({ "a": 1 })), used("b", json!({ "a": 2 }))]),
        (&named, vec![used("a", json!({ "a": 1 }))]),
    ] {
        assert_eq!(reply_of(events).expect("a reply").content, wanted, "{events}");
    }
    for events in [
        call("a", "Bash") + &arguments("{\"a\":1}") + &call("a", "Bash"),
        call("a", "Bash") + &arguments("{\"a\":1}") + &call("", "Bash"),
        call("a", "Bash") + &arguments("{\"a\":") + &call("b", "Bash"),
        call("a", "Bash") + &arguments("{}") + &call("b", "Bash"),
        call("", "Bash") + &call("a", "Bash"),
    ] {
        assert!(reply_of(&events).is_err(), "{events}");
    }
}

/// Some gateways use the places and names of other APIs.
#[test]
fn the_end_of_a_reply_is_read_in_other_places_and_names() {
    let begun = |usage: Value| {
        let message = json!({ "id": "msg_1", "usage": usage });
        let text = json!({ "type": "text", "text": "ok" });
        let stop = json!({ "type": "content_block_stop", "index": 0 });
        data(&json!({ "type": "message_start", "message": message }))
            + &start_of(&text)
            + &data(&stop)
    };
    let end = |event: Value| data(&event);
    let delta = |delta: Value, usage: Value| {
        end(json!({ "type": "message_delta", "delta": delta, "usage": usage }))
    };
    let stop = |usage: Value| end(json!({ "type": "message_stop", "usage": usage }));
    let (done, reason) = ("data: [DONE]\n\n".to_owned(), || json!({ "stop_reason": "end_turn" }));
    let counted = || json!({ "input_tokens": 3, "output_tokens": 7 });
    let of_chat = || json!({ "prompt_tokens": 3, "completion_tokens": 7 });
    let none = || Value::Null;
    let rows = [
        (begun(counted()) + &delta(reason(), none()) + &done, "end_turn"),
        (begun(none()) + &delta(reason(), none()) + &stop(counted()), "end_turn"),
        (begun(of_chat()) + &delta(reason(), of_chat()) + &stop(none()), "end_turn"),
        (
            begun(none())
                + &delta(json!({ "finish_reason": "stop", "usage": counted() }), none())
                + &stop(none()),
            "stop",
        ),
        (
            begun(none())
                + &end(json!({ "type": "message_delta", "stop_reason": "end_turn" }))
                + &stop(counted()),
            "end_turn",
        ),
    ];
    for (events, reason) in rows {
        let reply = replay([events.as_bytes()]).0.expect("a reply");
        assert_eq!((reply.stop_reason.as_str(), reply.has_end), (reason, true), "{events}");
        let tokens = (reply.usage.input_tokens, reply.usage.output_tokens);
        assert_eq!(tokens, (3, 7), "{events}");
    }
    assert!(replay([(begun(counted()) + &done).as_bytes()]).0.is_err(), "it has no stop reason");
}

#[test]
fn events_that_are_framed_in_another_way_are_read() {
    let reply = String::from_utf8(super::recorded("streams/thinking_and_tools.sse")).expect("text");
    let wanted = replay([reply.as_bytes()]).0.expect("a reply").content;
    let repeated = reply.replace("data: ", "data: data:data: ");
    let encode = |line: &str| match line.strip_prefix("data: ") {
        Some(event) => format!("data: {}\n", json!(event)),
        None => format!("{line}\n"),
    };
    let encoded: String = reply.lines().map(encode).collect();
    // Without the empty lines between events, or several on one line.
    let is_event = |line: &&str| line.starts_with("data: ");
    let events: Vec<&str> = reply.lines().filter(is_event).collect();
    let close = events.join("\n") + "\ndata: [DONE]\n\n";
    let joined = events.join("").replace("data: ", "");
    for events in [repeated, encoded, close, format!("data: {joined}\n\n")] {
        let found = replay([events.as_bytes()]).0.expect("a reply").content;
        assert_eq!(found, wanted, "{events}");
    }
}

/// Some gateways send text and thinking into blocks of another kind, or after their end.
#[test]
fn text_and_thinking_outside_of_their_blocks_are_kept() {
    let delta = |index: u64, kind: &str, field: &str, text: &str| {
        let delta = json!({ "type": kind, field: text });
        let event = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        format!("data: {event}\n\n")
    };
    let text = |index, text: &str| delta(index, "text_delta", "text", text);
    let thinking = |index, text: &str| delta(index, "thinking_delta", "thinking", text);
    let signature = |index, text: &str| delta(index, "signature_delta", "signature", text);
    let json = |index, text: &str| delta(index, "input_json_delta", "partial_json", text);
    let open = |index, kind: &str| block(Some(index), kind, &[]);
    let message = |id: &str| {
        format!("data: {}\n\n", json!({ "type": "message_start", "message": { "id": id } }))
    };
    let end = |index| stop(Some(index));
    let call = || tool_use("toolu_1", "Bash", json!({ "a": 1 }));
    let arguments = || json(0, r#"{"a":1}"#);
    let says = Block::text;
    let thought =
        |text: &str| Block::Thinking { thinking: text.to_owned(), signature: String::new() };
    let rows: [(Vec<String>, Vec<Block>); 9] = [
        (vec![open(0, "text"), message("msg_1"), text(0, "ok"), end(0)], vec![says("ok")]),
        (
            vec![open(0, "text"), thinking(0, "h"), thinking(0, "m"), text(0, "ok"), end(0)],
            vec![thought("hm"), says("ok")],
        ),
        (
            vec![
                open(0, "thinking"),
                thinking(0, "a"),
                end(0),
                thinking(0, "b"),
                open(1, "text"),
                text(1, "ok"),
                end(1),
            ],
            vec![thought("a"), thought("b"), says("ok")],
        ),
        (vec![open(0, "text"), text(0, "o"), end(0), text(0, "k")], vec![says("o"), says("k")]),
        (
            vec![open(0, "tool_use"), thinking(0, "h"), arguments(), thinking(0, "m"), end(0)],
            vec![call(), thought("hm")],
        ),
        (
            vec![
                open(1, "text"),
                text(1, "o"),
                open(0, "tool_use"),
                text(0, "k"),
                arguments(),
                end(0),
            ],
            vec![call(), says("ok")],
        ),
        (vec![open(0, "text"), json(0, ""), text(0, "ok"), json(0, ""), end(0)], vec![says("ok")]),
        (vec![open(0, "tool_use"), text(0, ""), arguments(), text(0, ""), end(0)], vec![call()]),
        (
            vec![open(0, "text"), signature(0, "s"), text(0, "ok"), end(0), signature(0, "s")],
            vec![says("ok")],
        ),
    ];
    for (events, content) in rows {
        assert_eq!(reply_of(&events.concat()).expect("a reply").content, content, "{events:?}");
    }
    // Another message, and arguments without their call.
    for events in [
        vec![open(0, "text"), message("msg_2"), text(0, "ok"), end(0)],
        vec![open(0, "text"), json(0, "{}"), end(0)],
        vec![open(0, "tool_use"), text(0, "{}"), end(0)],
        vec![open(0, "tool_use"), arguments(), end(0), json(0, "1")],
    ] {
        assert!(reply_of(&events.concat()).is_err(), "{events:?}");
    }
}
