//! Message lists to try things on: any at all, and valid ones.

use outlast_core::transcript::{Block, Message, Role};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// Few enough that they collide.
fn id() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "a_2", ""]).prop_map(str::to_owned)
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => select(vec!["", " ", "\n\t", "\u{a0}"]).prop_map(str::to_owned),
        3 => "[ -~é😀]{1,12}",
    ]
}

fn input() -> impl Strategy<Value = Value> {
    select(vec![json!({}), json!({ "b": 1, "a": [true, "ü\n"] }), Value::Null, json!("x")])
}

fn other() -> impl Strategy<Value = Value> {
    select(vec![
        json!({ "type": "server_tool_use", "id": "s" }),
        json!({ "type": "tool_use" }),
        json!({ "kind": "none" }),
        json!(3),
    ])
}

fn leaf() -> impl Strategy<Value = Block> {
    prop_oneof![
        4 => words().prop_map(Block::text),
        1 => (words(), select(vec!["", "c2ln"])).prop_map(|(thinking, signature)| {
            Block::Thinking { thinking, signature: signature.to_owned() }
        }),
        1 => select(vec!["", "ZGF0YQ=="])
            .prop_map(|data| Block::RedactedThinking { data: data.to_owned() }),
        4 => (id(), select(vec!["Bash", "", "mcp.x y"]), input()).prop_map(|(id, name, input)| {
            Block::call(id, name, input)
        }),
        1 => select(vec![json!({ "type": "base64" }), Value::Null])
            .prop_map(|source| Block::Image { source }),
        1 => other().prop_map(Block::Other),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let result = (id(), vec(leaf(), 0..3), any::<bool>());
    prop_oneof![
        3 => leaf(),
        2 => result.prop_map(|(tool_use_id, content, is_error)| {
            Block::ToolResult { tool_use_id, content, is_error }
        }),
    ]
}

/// Anything that the types allow.
pub(crate) fn any_messages() -> impl Strategy<Value = Vec<Message>> {
    let role = select(vec![Role::User, Role::Assistant]);
    let message = (role, vec(block(), 0..5));
    vec(message.prop_map(|(role, content)| Message { role, content }), 0..8)
}

fn said() -> impl Strategy<Value = Block> {
    "[a-zé😀\"\\\\\n\u{1}]{0,20}[a-z]".prop_map(Block::text)
}

fn thought() -> impl Strategy<Value = Block> {
    ("[a-z \n]{0,9}", "[A-Za-z0-9+/=]{1,40}")
        .prop_map(|(thinking, signature)| Block::Thinking { thinking, signature })
}

/// A reply and the answers to its calls, whose ids are made unique later.
fn turn() -> impl Strategy<Value = (Message, Vec<Block>)> {
    let calls = vec((input().prop_filter("an object", Value::is_object), any::<bool>()), 0..4);
    let parts = (proptest::option::of(thought()), said(), calls, vec(said(), 0..2));
    parts.prop_map(|(thought, said, calls, more)| {
        let mut reply: Vec<Block> = thought.into_iter().chain([said]).collect();
        let mut answers = Vec::new();
        for (input, is_error) in calls {
            let (id, name) = (String::new(), "Bash".to_owned());
            reply.push(Block::call(id.clone(), name, input));
            let content = more.clone();
            answers.push(Block::ToolResult { tool_use_id: id, content, is_error });
        }
        if answers.is_empty() {
            answers.push(Block::text("go on"));
        }
        (Message::assistant(reply), answers)
    })
}

/// A conversation that may be sent as it is.
pub(crate) fn valid_messages() -> impl Strategy<Value = Vec<Message>> {
    (said(), vec(turn(), 0..5)).prop_map(|(prompt, turns)| {
        let mut messages = vec![Message::user(vec![prompt])];
        for (index, (reply, answers)) in turns.into_iter().enumerate() {
            messages.extend([number(reply, index), number(Message::user(answers), index)]);
        }
        messages
    })
}

/// A call of a real tool, and what it gave: sometimes nothing, sometimes far too much.
fn dealing() -> impl Strategy<Value = (Block, Block)> {
    let tool = prop_oneof![
        ("[a-d]", 1u64..9).prop_map(|(path, offset)| {
            ("Read", json!({ "file_path": format!("/w/{path}.rs"), "offset": offset }))
        }),
        ("[a-d]", "[a-z]{0,3000}").prop_map(|(path, content)| {
            ("Write", json!({ "file_path": format!("/w/{path}.rs"), "content": content }))
        }),
        "[a-d]".prop_map(|path| {
            let edit = json!({ "file_path": format!("/w/{path}.rs"), "old_string": "a" });
            ("Edit", edit)
        }),
        "[ -~é😀\n]{1,300}".prop_map(|command| ("Bash", json!({ "command": command }))),
        vec(("[a-z ]{3,40}", select(vec!["pending", "in_progress", "completed"])), 0..4).prop_map(
            |items| {
                let item = |(content, status)| json!({ "content": content, "status": status });
                let todos: Vec<Value> = items.into_iter().map(item).collect();
                ("TodoWrite", json!({ "todos": todos }))
            }
        ),
        input().prop_filter("an object", Value::is_object).prop_map(|input| ("mcp__x__y", input)),
    ];
    let part = prop_oneof![
        4 => ("[a-zé😀\n ]{1,30}", 1usize..400).prop_map(|(text, times)| {
            Block::text(text.repeat(times) + "end")
        }),
        1 => Just(Block::Image {
            source: json!({ "type": "base64", "media_type": "image/png", "data": "QkFTRTY0" }),
        }),
    ];
    (tool, vec(part, 0..3), any::<bool>()).prop_map(|((name, input), content, is_error)| {
        let call = Block::call(String::new(), name.to_owned(), input);
        (call, Block::ToolResult { tool_use_id: String::new(), content, is_error })
    })
}

/// A conversation of many rounds of real tools, some with results that fill a window.
pub(crate) fn long_messages() -> impl Strategy<Value = Vec<Message>> {
    let round = (proptest::option::of(thought()), said(), vec(dealing(), 0..4), said());
    (said(), vec(round, 0..14)).prop_map(|(prompt, rounds)| {
        let mut messages = vec![Message::user(vec![prompt])];
        for (index, (thought, said, dealings, more)) in rounds.into_iter().enumerate() {
            let (calls, mut answers): (Vec<Block>, Vec<Block>) = dealings.into_iter().unzip();
            if answers.is_empty() || index % 5 == 0 {
                answers.push(more);
            }
            let reply = thought.into_iter().chain([said]).chain(calls).collect();
            messages.push(number(Message::assistant(reply), index));
            messages.push(number(Message::user(answers), index));
        }
        messages
    })
}

fn number(mut message: Message, turn: usize) -> Message {
    let names = (0..).map(|call| format!("toolu_{turn}_{call}"));
    let ids = message.content.iter_mut().filter_map(|block| match block {
        Block::ToolUse { id, .. } | Block::ToolResult { tool_use_id: id, .. } => Some(id),
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => None,
    });
    ids.zip(names).for_each(|(id, name)| *id = name);
    message
}
