//! Whatever events come, in whatever order: a whole reply or a fault, and never half a tool call.

use std::collections::BTreeSet;

use super::Tape;
use outlast::model::answer::parse_message;
use outlast::model::assemble::{AssemblyStep, ReplyAssembly};
use outlast::model::{ModelReply, StreamProgress};
use outlast::sse::{SseEvent, SseParser};
use outlast::transcript::Block;
use serde_json::{Value, json};

const KINDS: [&str; 9] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];

fn event(tape: &mut Tape<'_>) -> Value {
    let blocks = [
        json!({ "type": "text", "text": "a" }),
        json!({ "type": "text", "text": 7 }),
        json!({ "type": "tool_use", "id": "t", "name": "Bash" }),
        json!({ "type": "tool_use", "id": "t", "name": "Bash", "input": { "command": "ls" } }),
        json!({ "type": "tool_use", "id": 1, "name": "", "input": [] }),
        json!({ "type": "thinking", "thinking": "", "signature": "" }),
        json!({ "type": "redacted_thinking", "data": "x" }),
        json!({ "type": "server_tool_use", "id": "s" }),
        json!([]),
    ];
    let pieces = ["{}", "{", "\"a\":1", "}", "", " ", "[1]", "null", "{\"a\":{}}"];
    let reasons = ["end_turn", "tool_use", "max_tokens", "model_context_window_exceeded", ""];
    let delta = match tape.below(6) {
        0 => json!({ "type": "text_delta", "text": tape.text(9) }),
        1 => json!({ "type": "input_json_delta", "partial_json": tape.pick(&pieces) }),
        2 => json!({ "type": "input_json_delta", "partial_json": tape.text(9) }),
        3 => json!({ "type": "thinking_delta", "thinking": tape.text(9) }),
        4 => json!({ "type": "signature_delta", "signature": tape.text(9) }),
        _ => json!({ "stop_reason": tape.pick(&reasons) }),
    };
    let kind = *tape.pick(&KINDS);
    json!({
        "type": kind,
        "index": tape.below(4),
        "content_block": tape.pick(&blocks),
        "delta": delta,
        "usage": { "output_tokens": tape.byte() },
    })
}

fn check(answer: &ModelReply) {
    let mut ids = BTreeSet::new();
    for block in &answer.content {
        match block {
            Block::ToolUse { id, name, input, .. } => {
                assert!(input.is_object() && !name.is_empty() && !id.is_empty(), "{answer:?}");
                assert!(ids.insert(id), "two calls with one id: {answer:?}");
            }
            Block::Text { text } => assert!(!text.trim().is_empty(), "{answer:?}"),
            Block::Thinking { .. }
            | Block::RedactedThinking { .. }
            | Block::ToolResult { .. }
            | Block::Image { .. }
            | Block::Document { .. }
            | Block::Other(_) => {}
        }
    }
}

fn assemble(frames: &[SseEvent]) {
    let (mut assembly, mut over, mut whole) = (ReplyAssembly::default(), false, BTreeSet::new());
    for frame in frames {
        let told = &mut |progress| {
            if let StreamProgress::Block { index, .. } = progress {
                assert!(whole.insert(index), "block {index} is told of twice");
            }
        };
        match assembly.process_event(frame, told) {
            Ok(AssemblyStep::Last) => {
                over = true;
                break;
            }
            Ok(AssemblyStep::Idle | AssemblyStep::Content) => {}
            Err(_) => return,
        }
    }
    let over = over || assembly.is_whole();
    if let Ok(answer) = assembly.finish() {
        assert!(over, "a reply without its last event: {answer:?}");
        check(&answer);
    }
}

pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    match mode % 3 {
        0 => {
            let (mut frames, mut ready) = (SseParser::default(), Vec::new());
            frames.push(rest, &mut ready).expect("no input is as large as the limit");
            assemble(&ready);
        }
        1 => {
            if let Ok(answer) = parse_message(rest) {
                check(&answer);
            }
        }
        _ => {
            let mut tape = Tape(rest);
            let mut frames = Vec::new();
            while !tape.is_over() {
                frames.push(SseEvent { data: event(&mut tape).to_string(), ..SseEvent::default() });
            }
            assemble(&frames);
        }
    }
}
