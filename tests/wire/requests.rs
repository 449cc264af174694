//! Requests, byte for byte. `UPDATE=1` rewrites the snapshots.

use outlast::model::{ModelClient, Reasoning, RequestContent, SerializedParts, ThinkingMode};
use outlast::recovery::{ModelCall, ReplyMode};
use outlast::transcript::{Block, History, Message, ToolDefinition};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::server::{Server, stream};
use super::{STREAMING, ask, data, endpoint, recorded, sent_body};

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn tools() -> Vec<ToolDefinition> {
    ["Bash", "Read"]
        .map(|name| ToolDefinition {
            name: name.to_owned(),
            description: format!("{name} does what it says."),
            input_schema: json!({ "type": "object", "properties": { "z": {}, "a": {} } }),
        })
        .to_vec()
}

fn result(id: &str, text: &str) -> Block {
    Block::ToolResult {
        tool_use_id: id.to_owned(),
        content: vec![Block::text(text)],
        is_error: false,
    }
}

fn conversation() -> Vec<Message> {
    let call = |id: &str| Block::call(id, "Bash", json!({ "command": "ls" }));
    let thinking = Block::Thinking { thinking: "Hm.".into(), signature: "c2ln".into() };
    vec![
        Message::user(vec![Block::text("List the files.")]),
        Message::assistant(vec![thinking, Block::text("Sure."), call("a")]),
        Message::user(vec![result("a", "x.rs"), Block::text("Go on.")]),
        Message::assistant(vec![call("b"), call("c")]),
        Message::user(vec![result("b", "y.rs"), result("c", "z.rs")]),
    ]
}

fn sent(prompt: &RequestContent<'_>) -> String {
    sent_body(prompt, &STREAMING)
}

fn check(name: &str, found: &str) {
    let value: Value = serde_json::from_str(found).expect("JSON");
    let found = serde_json::to_string_pretty(&value).expect("JSON") + "\n";
    let path = data(&format!("requests/{name}.json"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &found).expect("writable");
    }
    let expected = std::fs::read_to_string(&path).expect("run with UPDATE=1 once");
    assert_eq!(found, expected, "{name}: run with UPDATE=1 if this is meant");
}

#[test]
fn requests_match_the_golden_files() {
    let (tools, messages) = (tools(), conversation());
    let full = RequestContent {
        model: "claude-sonnet-4-5",
        system: "Be brief.",
        tools: &tools,
        messages: &messages,
        reasoning: Reasoning { thinking: ThinkingMode::Budget(4096), ..Reasoning::default() },
        ..RequestContent::default()
    };
    check("full", &sent(&full));
    check("adaptive", &sent(&RequestContent { model: "claude-sonnet-5-5", ..full }));
    let bare = RequestContent {
        system: "",
        tools: &[],
        messages: &messages[..1],
        reasoning: Reasoning::default(),
        ..full
    };
    check("bare", &sent(&bare));
}

#[test]
fn a_request_is_the_same_with_parts_that_were_serialized_for_earlier_ones() {
    let tools = tools();
    let serialized: Vec<_> = tools.iter().map(|tool| to_raw_value(tool).expect("JSON")).collect();
    let check = |history: &mut History| {
        history.serialize();
        let plain = RequestContent {
            model: "m",
            system: "Be brief.",
            tools: &tools,
            messages: history.messages(),
            ..RequestContent::default()
        };
        let messages = history.serialized();
        let parts = SerializedParts { tools: &serialized, messages };
        assert_eq!(sent(&RequestContent { serialized: parts, ..plain }), sent(&plain));
        messages.iter().flatten().count()
    };
    let mut history = History::new(Vec::new(), 0);
    for (count, message) in conversation().into_iter().enumerate() {
        history.push(message);
        assert_eq!(check(&mut history), count, "all but the last");
    }
    // It is added to the last message.
    history.push(Message::user(vec![Block::text("a".repeat(100_000))]));
    assert_eq!(check(&mut history), 4);
    history.push(Message::assistant(vec![Block::text("Done.")]));
    assert_eq!(check(&mut history), 4, "a large message is not kept");
    history.edit(|messages| messages[0] = Message::user(vec![Block::text("Other files.")]));
    check(&mut history);
}

#[test]
fn a_further_message_changes_nothing_before_it_but_the_mark() {
    let (tools, all) = (tools(), conversation());
    let prefix = |count: usize| {
        let prompt = RequestContent {
            model: "m",
            system: "Be brief.",
            tools: &tools,
            messages: &all[..count],
            ..RequestContent::default()
        };
        let body = sent(&prompt);
        assert!(body.matches(MARK).count() <= 4, "the service takes four marks");
        let (prefix, _) = body.split_once(r#"],"max_tokens""#).expect("the messages end");
        prefix.to_owned()
    };
    for count in 1..all.len() {
        let (short, long) = (prefix(count), prefix(count + 1));
        assert!(long.replace(MARK, "").starts_with(&short.replace(MARK, "")), "{count}");
    }
    // Up to where the previous request ended, mark included, a user's next request is the same.
    for count in [1, 3] {
        let (short, long) = (prefix(count), prefix(count + 2));
        let end = short.rfind(MARK).expect("the last message is marked") + MARK.len();
        let from = short.find(r#""messages""#).expect("there are messages");
        let last = &short[short[..end].rfind(r#"{"role""#).unwrap().max(from)..end];
        assert!(long.contains(last), "the old end is still marked");
    }
}

#[test]
fn attempts_differ_only_behind_the_messages() {
    let messages = conversation();
    let prompt = RequestContent {
        model: "m",
        system: "s",
        messages: &messages,
        reasoning: Reasoning { thinking: ThinkingMode::Budget(2000), ..Reasoning::default() },
        ..RequestContent::default()
    };
    let end = |cap, mode| {
        let text = sent_body(&prompt, &ModelCall { cap, mode, ..STREAMING });
        let (prefix, rest) = text.split_once(r#","max_tokens":"#).expect("there is a cap");
        (prefix.to_owned(), rest.to_owned())
    };
    let (first, rest) = end(8192, ReplyMode::Streaming);
    let thinking = r#""thinking":{"type":"enabled","budget_tokens":2000}"#;
    assert_eq!(rest, format!(r#"8192,"stream":true,{thinking}}}"#));
    let (second, rest) = end(2000, ReplyMode::Whole);
    let thinking = r#""thinking":{"type":"enabled","budget_tokens":1500}"#;
    assert_eq!(rest, format!(r#"2000,"stream":false,{thinking}}}"#), "room for the answer is left");
    let (_, rest) = end(1364, ReplyMode::Whole);
    assert_eq!(rest, r#"1364,"stream":false}"#, "a budget that does not fit is left out");
    assert_eq!(first, second);
}

#[test]
fn cache_markers_are_placed_only_on_valid_blocks() {
    let thinking = Block::Thinking { thinking: "Hm.".into(), signature: "c2ln".into() };
    let messages = [
        Message::user(vec![Block::text("hi")]),
        Message::assistant(vec![Block::text("so"), thinking]),
    ];
    let prompt = RequestContent { model: "m", messages: &messages, ..RequestContent::default() };
    let body: Value = serde_json::from_str(&sent(&prompt)).unwrap();
    assert_eq!(body["messages"][1]["content"][1].get("cache_control"), None);
    assert_eq!(body["messages"][1]["content"][0]["cache_control"]["type"], "ephemeral");
}

#[tokio::test]
async fn the_headers_are_the_classical_ones_and_can_be_changed() {
    let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
    let mut endpoint = endpoint(&format!("{}/gate/v1/", server.url));
    endpoint.extra_headers = [("anthropic-beta", "one,two"), ("X-Team", "ci"), ("Accept", "*/*")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    ask(&ModelClient::new(endpoint).expect("right"), STREAMING).await.expect("a reply");
    let request = server.requests().pop().expect("one came");
    let (head, body) = request.split_once("\r\n\r\n").expect("it has a body");
    assert!(head.starts_with("POST /gate/v1/messages HTTP/1.1\r\n"), "{head}");
    for line in [
        "content-type: application/json",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: one,two",
        "x-team: ci",
        "accept: */*",
        "accept-encoding: identity",
        concat!("user-agent: outlast/", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(head.lines().any(|found| found == line), "{line} is missing in\n{head}");
    }
    assert!(body.starts_with(r#"{"model":"m","system":"#), "{body}");
}
