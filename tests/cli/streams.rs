//! `stream-json`, message by message.

use std::sync::Arc;
use std::time::Duration;

use outlast::agent::{Heartbeat, Init, Observer, RunEvent, WaitingFor};
use outlast::cli::args::StreamArgs;
use outlast::cli::output::{StreamJson, StreamOptions};
use outlast::journal::{Denial, RecordedPrompt};
use outlast::recovery::{
    ErrorClass, Fault, Moment, Money, Pause, RecoveryRecord, Spending, StopReason,
};
use outlast::transcript::{Block, Message, Usage};
use serde_json::{Value, json};
use uuid::Uuid;

use super::golden;
use super::result_writer::written;
use super::results::{fenced, outcome, result};
use crate::support::schema;

fn init() -> Init {
    Init {
        session_id: "0190a1b2-0000-7000-8000-000000000001".to_owned(),
        cwd: "/work".to_owned(),
        model: "model-a".to_owned(),
        tools: vec!["Bash".to_owned(), "Read".to_owned()],
        server_prompts: vec!["mcp__s__p".to_owned()],
        servers: Vec::new(),
        permission_mode: "default".to_owned(),
        api_key_source: "ANTHROPIC_API_KEY".to_owned(),
        sandbox: fenced(),
        dropped_variables: vec!["A_TOKEN".to_owned()],
        memory_files: vec!["/work/CLAUDE.md".to_owned()],
        agents: vec!["general-purpose".to_owned()],
        cost_before: Money::ZERO,
        recorded: RecordedPrompt::default(),
    }
}

fn overloaded() -> Fault {
    Fault { request_id: Some("req_011".to_owned()), ..super::heartbeats::overloaded() }
}

const PAUSE: Pause = Pause { class: ErrorClass::ServerOverload, retry: 1, of: Some(10) };

/// Runs notices through a stream and returns its messages.
async fn told(partial: bool, events: &[RunEvent]) -> Vec<Value> {
    let text = written(|out| {
        let longest = Some(StreamJson::LONGEST);
        let messages = StreamArgs { partial_messages: partial, ..StreamArgs::default() };
        let options = StreamOptions { stream: messages, longest, ..StreamOptions::default() };
        let mut stream = StreamJson::new(out, "not-yet-known", options);
        for event in events {
            stream.observe(event);
        }
        stream.finish(&result(&outcome(StopReason::Completed)));
    })
    .await;
    let parse = |line: &str| {
        let message = serde_json::from_str(line).expect("a line is JSON");
        schema::check_message(&message);
        message
    };
    text.lines().map(parse).collect()
}

/// The same, with every uuid and time made the same.
async fn messages(partial: bool, events: &[RunEvent]) -> Vec<Value> {
    let mut messages = told(partial, events).await;
    for message in messages.iter_mut().filter(|message| message["type"] != "result") {
        let uuid = message["uuid"].as_str().expect("every message has a uuid");
        assert_eq!(uuid.len(), 36);
        message["uuid"] = json!("UUID");
        if let Some(time) = message.get_mut("timestamp") {
            let text = time.as_str().expect("a time is text");
            assert!(text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(), "{text}");
            *time = json!("TIME");
        }
    }
    messages
}

/// An overload that was waited out.
pub(super) fn saved() -> RecoveryRecord {
    let outcome = outcome(StopReason::Completed);
    outcome.stats.recovery.records().next().cloned().expect("there was one")
}

fn reply() -> Message {
    Message::assistant(vec![
        Block::Thinking { thinking: "hm".to_owned(), signature: "sig".to_owned() },
        Block::text("I look."),
        Block::call("toolu_1", "Bash", json!({ "command": "ls" })),
    ])
}

fn results() -> Message {
    Message::user(vec![
        Block::ToolResult {
            tool_use_id: "toolu_1".to_owned(),
            content: vec![Block::text("a.txt")],
            is_error: false,
        },
        Block::text("This is your last reply."),
    ])
}

#[tokio::test]
async fn stream_messages_match_the_golden_file() {
    let (init, fault, reply, results) = (init(), overloaded(), reply(), results());
    let now = Moment::from_millis(1_000);
    let heartbeat = Heartbeat {
        waiting_for: WaitingFor::Retry(PAUSE),
        elapsed: Duration::from_secs(30),
        ends_in: Some(Duration::from_secs(2)),
        turn: 1,
        waited_in_all: Duration::from_secs(30),
        spent: Money::from_pico_dollars(12_300_000_000).into(),
        since_last_byte: None,
    };
    let event = json!({ "type": "message_start", "message": {} });
    let messages = messages(
        true,
        &[
            RunEvent::Warning("said before the beginning".to_owned()),
            RunEvent::Init(Box::new(init.clone())),
            RunEvent::WaitBegins {
                pause: PAUSE,
                until: Moment::from_millis(33_000),
                now,
                fault: Some(Box::new(fault)),
                spent: Spending::default(),
            },
            RunEvent::Heartbeat(heartbeat),
            RunEvent::WaitEnds { pause: PAUSE, waited: Duration::from_secs(32) },
            RunEvent::StreamEvent(event),
            RunEvent::Assistant {
                message: Arc::new(reply),
                ids: Vec::new(),
                id: "msg_1".to_owned(),
                model: "model-a".to_owned(),
                stop_reason: Some("tool_use".to_owned()),
                usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
                request_id: Some("req_012".to_owned()),
                spent: Spending::default(),
            },
            RunEvent::User {
                message: Arc::new(results),
                details: vec![json!({ "stdout": "a.txt" })],
                ids: Vec::new(),
            },
            RunEvent::ModelSwitched { from: "model-a".to_owned(), to: "model-b".to_owned() },
            RunEvent::RecoveryEnds(Box::new(saved())),
            RunEvent::Denied(Box::new(Denial {
                tool_name: "Bash".to_owned(),
                tool_use_id: "toolu_2".to_owned(),
                tool_input: json!({ "command": "git push" }),
                reason: "not allowed".to_owned(),
            })),
        ],
    )
    .await;
    let text: String = messages.iter().map(|message| message.to_string() + "\n").collect();
    golden::compare("tests/cli/golden/stream.jsonl", &text);
}

#[tokio::test]
async fn init_comes_first_and_the_result_last_with_one_session_id_between() {
    let init = init();
    let messages = messages(
        false,
        &[
            RunEvent::Warning("early".to_owned()),
            RunEvent::Init(Box::new(init.clone())),
            RunEvent::Warning("late".to_owned()),
        ],
    )
    .await;
    assert_eq!(messages[0]["subtype"], "init");
    assert_eq!(messages.last().unwrap()["type"], "result");
    for message in &messages[..messages.len() - 1] {
        assert_eq!(message["session_id"], init.session_id);
    }
}

#[tokio::test]
async fn warnings_before_a_failed_start_are_in_the_stream() {
    let messages = messages(false, &[RunEvent::Warning("early".to_owned())]).await;
    assert_eq!(messages[0]["content"], "early");
    assert_eq!(messages[1]["type"], "result");
}

#[tokio::test]
async fn raw_events_are_emitted_only_on_request() {
    let (init, event) = (init(), json!({ "type": "ping" }));
    let notices = [RunEvent::Init(Box::new(init.clone())), RunEvent::StreamEvent(event)];
    assert_eq!(messages(false, &notices).await.len(), 2);
    assert_eq!(messages(true, &notices).await.len(), 3);
}

#[tokio::test]
async fn each_part_of_a_message_has_the_id_that_it_was_given() {
    let (init, reply, results) = (init(), reply(), results());
    let ids: Vec<Uuid> = (1..=5).map(Uuid::from_u128).collect();
    let usage = Usage::default();
    let said = RunEvent::Assistant {
        message: Arc::new(reply),
        ids: ids[..3].to_vec(),
        id: "msg_1".to_owned(),
        model: "model-a".to_owned(),
        stop_reason: Some("tool_use".to_owned()),
        usage,
        request_id: None,
        spent: Spending::default(),
    };
    let answered =
        RunEvent::User { message: Arc::new(results), details: Vec::new(), ids: ids[3..].to_vec() };
    let messages = told(false, &[RunEvent::Init(Box::new(init.clone())), said, answered]).await;
    let uuids: Vec<&str> = messages[1..6].iter().filter_map(|it| it["uuid"].as_str()).collect();
    assert_eq!(uuids, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_content_of_a_result_is_a_string_where_it_is_text_alone() {
    let result =
        |content| Block::ToolResult { tool_use_id: "toolu_1".to_owned(), content, is_error: false };
    let image = Block::Image { source: json!({ "type": "base64" }) };
    for (content, expected) in [
        (vec![Block::text("a")], json!("a")),
        (vec![Block::text("a"), Block::text("b")], json!("a\nb")),
        (vec![], json!("")),
        (
            vec![Block::text("a"), image.clone()],
            json!([{ "type": "text", "text": "a" }, { "type": "image", "source": { "type": "base64" } }]),
        ),
    ] {
        let (init, message) = (init(), Message::user(vec![result(content)]));
        let said =
            RunEvent::User { message: Arc::new(message), details: Vec::new(), ids: Vec::new() };
        let messages = told(false, &[RunEvent::Init(Box::new(init.clone())), said]).await;
        assert_eq!(messages[1]["message"]["content"][0]["content"], expected);
    }
}

#[tokio::test]
async fn a_streamed_block_is_emitted_once_before_its_stop_event() {
    let (init, reply) = (init(), reply());
    let ids: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
    let start = json!({ "type": "message_start", "message": {
        "id": "msg_1", "model": "model-a", "usage": { "input_tokens": 10 } } });
    let piece = json!({ "type": "content_block_delta", "index": 1,
        "delta": { "type": "text_delta", "text": "I look." } });
    let stop = |index: u64| json!({ "type": "content_block_stop", "index": index });
    let (stops, block) = ([stop(0), stop(1)], |index: usize| RunEvent::Block {
        block: Arc::new(reply.content[index].clone()),
        id: ids[index],
    });
    let whole = || RunEvent::Assistant {
        message: Arc::new(reply.clone()),
        ids: ids.clone(),
        id: "msg_1".to_owned(),
        model: "model-a".to_owned(),
        stop_reason: Some("tool_use".to_owned()),
        usage: Usage::default(),
        request_id: None,
        spent: Spending::default(),
    };
    let notices = [
        RunEvent::Init(Box::new(init.clone())),
        RunEvent::StreamEvent(start),
        block(0),
        RunEvent::StreamEvent(stops[0].clone()),
        RunEvent::StreamEvent(piece),
        block(1),
        RunEvent::StreamEvent(stops[1].clone()),
        whole(),
    ];
    let told = told(true, &notices).await;
    let kinds: Vec<String> = told[1..told.len() - 1]
        .iter()
        .map(|it| match it["type"].as_str() {
            Some("stream_event") => it["event"]["type"].to_string(),
            _ => format!("{} {}", it["type"], it["message"]["content"][0]["type"]),
        })
        .collect();
    let expected = [
        r#""message_start""#,
        r#""assistant" "thinking""#,
        r#""content_block_stop""#,
        r#""content_block_delta""#,
        r#""assistant" "text""#,
        r#""content_block_stop""#,
        r#""assistant" "tool_use""#,
    ];
    assert_eq!(kinds, expected);
    let said: Vec<&Value> = told.iter().filter(|it| it["type"] == "assistant").collect();
    for (message, id) in said.iter().zip(&ids) {
        assert_eq!(message["uuid"], id.to_string());
        assert_eq!(message["message"]["id"], "msg_1");
    }
    assert_eq!(said[1]["message"]["stop_reason"], Value::Null);
    assert_eq!(said[1]["message"]["usage"]["input_tokens"], 10);
}

#[tokio::test]
async fn blocks_of_a_discarded_reply_are_retracted_in_the_stream() {
    let (init, reply) = (init(), reply());
    let both = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let [id, other] = both;
    let stop = json!({ "type": "content_block_stop", "index": 0 });
    let block =
        |index: usize, id| RunEvent::Block { block: Arc::new(reply.content[index].clone()), id };
    let notices = || {
        [
            RunEvent::Init(Box::new(init.clone())),
            block(0, id),
            RunEvent::StreamEvent(stop.clone()),
            block(1, other),
            RunEvent::BlocksDropped { ids: both.to_vec() },
        ]
    };
    let messages = told(true, &notices()).await;
    let dropped = messages.iter().find(|it| it["subtype"] == "reply_dropped").expect("it is told");
    assert_eq!(dropped["uuids"], json!([id.to_string()]), "the other one was never told");
    assert_eq!(told(false, &notices()).await.len(), 2, "nothing was told before it was kept");
}

#[tokio::test]
async fn no_message_is_longer_than_a_megabyte() {
    let init = init();
    let huge = Message::user(vec![Block::ToolResult {
        tool_use_id: "toolu_1".to_owned(),
        content: vec![Block::text("x".repeat(3_000_000))],
        is_error: false,
    }]);
    let details = vec![json!({ "stdout": "x".repeat(3_000_000) })];
    let messages = messages(
        false,
        &[
            RunEvent::Init(Box::new(init.clone())),
            RunEvent::User { message: Arc::new(huge), details, ids: Vec::new() },
        ],
    )
    .await;
    let longest = messages.iter().map(|message| message.to_string().len()).max().unwrap();
    assert!((400_000..1_000_100).contains(&longest), "{longest}");
    assert_eq!(messages[1]["message"]["content"][0]["tool_use_id"], "toolu_1");
}
