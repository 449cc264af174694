//! The request validator: each rule is violated once, and valid requests pass.

use outlast_rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::client::{ask, connect, parse, post, read_all, respond, start, unstreamed};

/// A conversation with one tool call that was answered.
fn conversation() -> Value {
    let mut body = ask();
    body["messages"] = json!([
        { "role": "user", "content": [{ "type": "text", "text": "List the files." }] },
        { "role": "assistant", "content": [
            { "type": "text", "text": "I look." },
            { "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "command": "ls" } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "toolu_1", "content": "a b" },
            { "type": "text", "text": "Hurry." },
        ] },
    ]);
    body
}

fn set(body: &mut Value, pointer: &str, value: Value) {
    *body.pointer_mut(pointer).expect("the pointer fits the conversation") = value;
}

fn push(body: &mut Value, pointer: &str, value: Value) {
    let list = body.pointer_mut(pointer).and_then(Value::as_array_mut).expect("a list");
    list.push(value);
}

fn without(body: &mut Value, key: &str) {
    body.as_object_mut().expect("an object").remove(key);
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn cached(words: &str) -> Value {
    json!({ "type": "text", "text": words, "cache_control": { "type": "ephemeral" } })
}

fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": "out" })
}

type Twist = fn(&mut Value);

/// Changes to a request, and the violation that each causes.
const VIOLATIONS: &[(Twist, &str)] = &[
    (|body| *body = json!([1]), "not a JSON object"),
    (|body| without(body, "model"), "model: Field required"),
    (|body| set(body, "/model", json!("")), "model: Field required"),
    (|body| without(body, "max_tokens"), "max_tokens: Field required"),
    (|body| set(body, "/max_tokens", json!(0)), "max_tokens: must be an integer"),
    (|body| set(body, "/max_tokens", json!(1.5)), "max_tokens: must be an integer"),
    (|body| set(body, "/stream", json!("yes")), "stream: must be a boolean"),
    (|body| body["top_secret"] = json!(1), "top_secret: Extra inputs are not permitted"),
    (|body| without(body, "messages"), "messages: Field required"),
    (|body| set(body, "/messages", json!([])), "at least one message"),
    (|body| set(body, "/system", json!(7)), "system: must be a string"),
    (|body| set(body, "/system", json!([text("")])), "system.0: text content blocks must be non-"),
    (|body| set(body, "/thinking", json!({ "type": "enabled" })), "budget_tokens: Field required"),
    (
        |body| set(body, "/thinking", json!({ "type": "enabled", "budget_tokens": 1023 })),
        "greater than or equal to 1024",
    ),
    (
        |body| set(body, "/thinking", json!({ "type": "enabled", "budget_tokens": 1024 })),
        "max_tokens: must be greater than thinking.budget_tokens",
    ),
    // Tools.
    (|body| without(body, "tools"), "must define tools"),
    (|body| set(body, "/tools", json!([])), "must define tools"),
    (|body| set(body, "/tools/0/name", json!("no good")), "tools.0.name"),
    (|body| set(body, "/tools/0/input_schema", json!({})), "tools.0.input_schema.type"),
    (
        |body| {
            let again = body["tools"][0].clone();
            push(body, "/tools", again);
        },
        "Tool names must be unique",
    ),
    // Roles.
    (|body| set(body, "/messages/0/role", json!("system")), "unexpected role `system`"),
    (|body| set(body, "/messages/0/role", json!("assistant")), "first message must use the `user`"),
    (
        |body| push(body, "/messages", json!({ "role": "user", "content": "More." })),
        "messages.3: roles must alternate",
    ),
    (
        |body| push(body, "/messages", json!({ "role": "assistant", "content": "So" })),
        "must end with a user message",
    ),
    (
        |body| push(body, "/messages", json!({ "role": "assistant", "content": [text("So \n")] })),
        "final assistant content cannot end with trailing whitespace",
    ),
    (|body| body["messages"][0]["note"] = json!(1), "messages.0.note: Extra inputs"),
    // Blocks.
    (
        |body| set(body, "/messages/0/content", json!([])),
        "messages.0: messages must have non-empty",
    ),
    (|body| set(body, "/messages/0/content", json!("")), "messages.0: text content blocks"),
    (|body| set(body, "/messages/0/content", json!(1)), "messages.0.content: must be"),
    (|body| set(body, "/messages/1/content/0/text", json!("")), "messages.1.content.0: text"),
    (
        |body| set(body, "/messages/1/content/0/text", json!(" \n")),
        "text content blocks must contain non-whitespace text",
    ),
    (|body| push(body, "/messages/0/content", json!({ "type": "poem" })), "`poem` is not a type"),
    (|body| body["messages"][0]["content"][0]["mood"] = json!("x"), "mood: Extra inputs"),
    (
        |body| push(body, "/messages/1/content", result("toolu_1")),
        "a `tool_result` block cannot stand in a `assistant` message",
    ),
    (
        |body| push(body, "/messages/0/content", json!({ "type": "image" })),
        "messages.0.content.1.source: is missing or incomplete",
    ),
    (|body| set(body, "/messages/1/content/1/id", json!("to olu")), "tool_use.id"),
    (|body| set(body, "/messages/1/content/1/name", json!("")), "tool_use.name"),
    (
        |body| set(body, "/messages/1/content/1/input", json!("ls")),
        "tool_use.input: must be an object",
    ),
    (
        |body| set(body, "/messages/2/content/0/content", json!([text("")])),
        "tool_result.content.0: text content blocks must be non-empty",
    ),
    (
        |body| {
            set(body, "/messages/2/content/0/content", json!([]));
            body["messages"][2]["content"][0]["is_error"] = json!(true);
        },
        "content cannot be empty if `is_error` is true",
    ),
    (
        |body| {
            let foreign = json!({ "type": "thinking", "thinking": "Hm.", "signature": "made up" });
            push(body, "/messages/1/content", foreign);
        },
        "Invalid `signature` in `thinking` block",
    ),
    // Pairs.
    (
        |body| set(body, "/messages/2/content", json!([text("Never mind.")])),
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
    ),
    (
        |body| set(body, "/messages/2/content/0/tool_use_id", json!("toolu_2")),
        "unexpected `tool_use_id` found in `tool_result` blocks: toolu_2",
    ),
    (
        |body| set(body, "/messages/2/content/1", result("toolu_1")),
        "each `tool_use` must have a single result: toolu_1",
    ),
    (
        |body| set(body, "/messages/2/content", json!([text("First this."), result("toolu_1")])),
        "`tool_result` blocks must come before any other content",
    ),
    (
        |body| {
            let call = body["messages"][1]["content"][1].clone();
            push(body, "/messages/1/content", call);
        },
        "`tool_use` ids must be unique: toolu_1",
    ),
    (
        |body| {
            let again = body["messages"][1].clone();
            push(body, "/messages", again);
            push(body, "/messages", json!({ "role": "user", "content": [result("toolu_1")] }));
        },
        "messages.3: `tool_use` ids must be unique: toolu_1",
    ),
    // Cache breakpoints.
    (
        |body| set(body, "/system", json!(["a", "b", "c", "d", "e"].map(cached))),
        "a maximum of 4 blocks with cache_control may be provided; found 5",
    ),
];

#[tokio::test]
async fn the_request_validator_refuses_and_records_each_violation() {
    for (twist, expected) in VIOLATIONS {
        let server = start(Scenario::new().reply("Fine."));
        let mut body = conversation();
        body["system"] = json!("Be brief.");
        body["thinking"] = json!({ "type": "disabled" });
        twist(&mut body);
        let response = respond(&server, &body).await;
        let violations = server.violations().join("\n");
        assert!(violations.contains(expected), "{expected:?} is not in {violations:?}");
        assert_eq!(response.status, 400, "{expected}");
        assert_eq!(response.json()["error"]["type"], "invalid_request_error");
        assert_eq!(server.unrequested_answers(), 1, "no step was spent on it");
    }
}

#[tokio::test]
async fn the_request_validator_accepts_valid_requests() {
    let right: &[Twist] = &[
        |_| {},
        |body| body["messages"] = json!([{ "role": "user", "content": "Plain text." }]),
        |body| set(body, "/messages/2/content/0/content", json!([text("a")])),
        |body| set(body, "/messages/2/content/0/content", json!([])),
        |body| without(&mut body["messages"][2]["content"][0], "content"),
        |body| body["system"] = json!(["a", "b", "c", "d"].map(cached)),
        |body| body["messages"][1]["content"][1]["input"] = json!({ "cache_control": 1 }),
        |body| {
            body["max_tokens"] = json!(2048);
            body["thinking"] = json!({ "type": "enabled", "budget_tokens": 1024 });
        },
        |body| {
            let source = json!({ "type": "base64", "media_type": "image/png", "data": "AAAA" });
            push(body, "/messages/0/content", json!({ "type": "image", "source": source }));
        },
        |body| {
            let second = json!({ "type": "tool_use", "id": "t2", "name": "Bash", "input": {} });
            push(body, "/messages/1/content", second);
            let results = json!([result("t2"), result("toolu_1"), text("Both.")]);
            set(body, "/messages/2/content", results);
        },
    ];
    for (number, twist) in right.iter().enumerate() {
        let server = start(Scenario::new().reply("Fine."));
        let mut body = conversation();
        twist(&mut body);
        assert_eq!(
            respond(&server, &body).await.status,
            200,
            "{number}: {:?}",
            server.violations()
        );
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn thinking_must_return_unchanged_to_the_model_that_signed_it() {
    let server = start(Scenario::new().reply("Yes.").and_thinking("Hm.").times(9));
    let content = respond(&server, &unstreamed()).await.json()["content"].clone();
    let follow_up = |model: &str, thinking: &str| {
        let mut body = ask();
        body["model"] = json!(model);
        let mut content = content.clone();
        content[0]["thinking"] = json!(thinking);
        push(&mut body, "/messages", json!({ "role": "assistant", "content": content }));
        push(&mut body, "/messages", json!({ "role": "user", "content": "Go on." }));
        body
    };
    let another = start(Scenario::new().reply("Yes.").times(9));
    for (body, expected) in [
        (follow_up("claude-sonnet-4-5", "Hm."), 200),
        (follow_up("claude-sonnet-4-5", "Hm!"), 400),
        (follow_up("claude-haiku-4-5", "Hm."), 400),
    ] {
        assert_eq!(respond(&server, &body).await.status, expected);
        assert_eq!(respond(&another, &body).await.status, expected, "a session may be resumed");
    }
}

/// A refusal with a reason, which asking again cannot change.
pub(crate) const TOO_LARGE: &str = "max_tokens: 100000 is too large";

#[tokio::test]
async fn the_same_request_twice_after_a_400_is_a_violation() {
    let refused = Scenario::new().status(400).error("invalid_request_error", TOO_LARGE, None);
    let server = start(refused.reply("Fine.").times(3));
    let mut changed = ask();
    changed["max_tokens"] = json!(999);
    assert_eq!(respond(&server, &ask()).await.status, 400);
    assert!(server.violations().is_empty(), "a scripted 400 is not a violation");
    assert_eq!(respond(&server, &ask()).await.status, 400);
    assert!(server.violations()[0].contains("refused with a 400 just before"));
    assert_eq!(respond(&server, &changed).await.status, 200);
    assert_eq!(respond(&server, &ask()).await.status, 200, "something else came in between");
    assert_eq!(server.violations().len(), 1);

    let invited = Scenario::new().status(400).header("x-should-retry", "true").reply("Fine.");
    let server = start(invited);
    respond(&server, &ask()).await;
    assert_eq!(respond(&server, &ask()).await.status, 200);
    assert!(server.violations().is_empty(), "the service asked for it");
}

#[tokio::test]
async fn a_request_must_have_its_required_headers() {
    for (gone, expected) in [
        ("anthropic-version: 2023-06-01\r\n", "anthropic-version: header is required"),
        ("content-type: application/json\r\n", "content-type: must be application/json"),
    ] {
        let server = start(Scenario::new().reply("Fine."));
        let request = String::from_utf8(post(&ask(), &["connection: close"])).unwrap();
        let mut stream = connect(&server).await;
        stream.write_all(request.replace(gone, "").as_bytes()).await.unwrap();
        assert_eq!(parse(&read_all(&mut stream).await.0).status, 400);
        assert_eq!(server.violations(), [format!("request 1: {expected}")]);
    }
}

#[tokio::test]
async fn a_request_above_32_megabytes_is_too_large() {
    let server = start(Scenario::new().reply("Fine."));
    let mut body = ask();
    body["messages"][0]["content"] = json!("x".repeat(32 * 1024 * 1024));
    let response = respond(&server, &body).await;
    assert_eq!(response.status, 413);
    assert_eq!(response.json()["error"]["type"], "request_too_large");
    assert!(server.violations()[0].contains("exceed the request size limit"));
}
