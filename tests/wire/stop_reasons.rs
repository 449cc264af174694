//! Every stop reason that services are known to give, and what a reply with it amounts to.

use outlast::model::answer::parse_message;
use outlast::model::assemble::ReplyAssembly;
use outlast::model::{EndWords, ModelReply, StopKind, classify_reply};
use outlast::recovery::{CutKind, FaultKind, Incomplete, ReplyKind};
use outlast::sse::SseEvent;
use serde_json::{Value, json};

/// The reasons of each kind: the Messages API, Bedrock, `OpenAI` and its imitators, Gemini and
/// Vertex, Cohere, Mistral, Ollama, TGI, GLM, `DeepSeek`.
const REASONS: [(StopKind, &[&str]); 10] = [
    (StopKind::Complete, &["end_turn", "stop_sequence"]),
    (
        StopKind::ToolUse,
        &[
            "tool_use",
            "toolUse",
            "TOOL_USE",
            "tool_calls",
            "tool-calls",
            "TOOL_CALL",
            "function_call",
        ],
    ),
    (
        StopKind::OutputLimit,
        &[
            "max_tokens",
            "MAX_TOKENS",
            "maxTokens",
            "max-tokens",
            "length",
            "LENGTH",
            "max_output_tokens",
            "max_completion_tokens",
            "max_new_tokens",
            "max_length",
        ],
    ),
    (
        StopKind::ContextLimit,
        &[
            "model_context_window_exceeded",
            "model_length",
            "context_length_exceeded",
            "ERROR_LIMIT",
        ],
    ),
    (StopKind::Paused, &["pause_turn"]),
    (StopKind::Refused, &["refusal"]),
    (
        StopKind::Filtered,
        &[
            "content_filter",
            "content-filter",
            "content_filtered",
            "guardrail_intervened",
            "SAFETY",
            "IMAGE_SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "sensitive",
            "ERROR_TOXIC",
        ],
    ),
    (
        StopKind::BrokenOff,
        &[
            "error",
            "ERROR",
            "failed",
            "incomplete",
            "abort",
            "aborted",
            "cancelled",
            "canceled",
            "USER_CANCEL",
            "interrupted",
            "timeout",
            "network_error",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "malformed_model_output",
            "malformed_tool_use",
            "insufficient_system_resource",
        ],
    ),
    (
        StopKind::ForeignEnd,
        &[
            "stop",
            "STOP",
            "Stop",
            "eos",
            "eos_token",
            "COMPLETE",
            "completed",
            "done",
            "finished",
            "END_TURN",
            "endTurn",
            "end-turn",
            "End_turn",
            "end_turn ",
            "STOP_SEQUENCE",
        ],
    ),
    (
        StopKind::Unknown,
        &[
            "OTHER",
            "other",
            "FINISH_REASON_UNSPECIFIED",
            "null",
            "none",
            "unknown",
            "a_reason_of_next_year",
            "unstoppable",
            "0",
            "\u{fffd}",
        ],
    ),
];

/// The content of a reply beside its stop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Text,
    Thinking,
    Nothing,
    Call,
    TextAndCall,
}

const CONTENTS: [Content; 5] =
    [Content::Text, Content::Thinking, Content::Nothing, Content::Call, Content::TextAndCall];

impl Content {
    fn blocks(self) -> Vec<Value> {
        let text = json!({ "type": "text", "text": "Now I run the tests." });
        let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "x" });
        let input = json!({ "command": "ls" });
        let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": input });
        match self {
            Self::Text => vec![text],
            // Some gateways send an invisible character in place of an empty text.
            Self::Thinking => vec![thinking, json!({ "type": "text", "text": "\u{200b}\n" })],
            Self::Nothing => vec![],
            Self::Call => vec![call],
            Self::TextAndCall => vec![text, call],
        }
    }
}

/// Reference implementation: only a reply with a completing stop reason is a success.
fn expected(kind: StopKind, content: Content, end_words: EndWords) -> ReplyKind {
    use Content::{Call, Nothing, Text, TextAndCall, Thinking};

    let tokens = 9;
    match (kind, content) {
        (StopKind::Refused, _) => ReplyKind::Refusal,
        (StopKind::OutputLimit | StopKind::ContextLimit, Text | TextAndCall) => {
            ReplyKind::CutShort(CutKind::Text)
        }
        (StopKind::OutputLimit | StopKind::ContextLimit, Call) => {
            ReplyKind::CutShort(CutKind::ToolCall)
        }
        (StopKind::OutputLimit | StopKind::ContextLimit, Thinking | Nothing) => {
            ReplyKind::CutShort(CutKind::Thinking)
        }
        (StopKind::Filtered, Text | Call | TextAndCall) => {
            ReplyKind::Incomplete(Incomplete::Filtered)
        }
        (StopKind::BrokenOff, Text | Call | TextAndCall) => {
            ReplyKind::Incomplete(Incomplete::BrokenOff)
        }
        (
            StopKind::Complete
            | StopKind::ForeignEnd
            | StopKind::ToolUse
            | StopKind::Paused
            | StopKind::Unknown,
            Call | TextAndCall,
        ) => ReplyKind::ToolCalls { tokens },
        (StopKind::Paused, Text | Thinking | Nothing) => ReplyKind::Paused,
        (_, Thinking | Nothing) => ReplyKind::Empty,
        (StopKind::Complete, Text) => ReplyKind::Answer { tokens },
        (StopKind::ForeignEnd, Text) if end_words == EndWords::OfAnyApi => {
            ReplyKind::Answer { tokens }
        }
        (StopKind::ToolUse, Text) => ReplyKind::Incomplete(Incomplete::MissingCall),
        (StopKind::ForeignEnd | StopKind::Unknown, Text) => {
            ReplyKind::Incomplete(Incomplete::UnknownReason)
        }
    }
}

fn in_one_piece(content: Content, reason: &Value) -> Result<ModelReply, FaultKind> {
    let message = json!({ "id": "msg_1", "content": content.blocks(), "stop_reason": reason,
        "usage": { "input_tokens": 3, "output_tokens": 9 } });
    parse_message(message.to_string().as_bytes())
}

fn streamed(content: Content, reason: &Value) -> Result<ModelReply, FaultKind> {
    let mut events = vec![json!({ "type": "message_start", "message": { "id": "msg_1" } })];
    for (index, block) in content.blocks().into_iter().enumerate() {
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        events.extend([start, json!({ "type": "content_block_stop", "index": index })]);
    }
    let usage = json!({ "output_tokens": 9 });
    let delta = json!({ "stop_reason": reason });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage }));
    events.push(json!({ "type": "message_stop" }));
    let mut assembly = ReplyAssembly::default();
    for event in events {
        let frame = SseEvent { data: event.to_string(), ..SseEvent::default() };
        assembly.process_event(&frame, &mut |_| {})?;
    }
    assembly.finish()
}

#[test]
fn only_completing_stop_reasons_make_an_answer() {
    for (kind, reasons) in REASONS {
        for reason in reasons {
            assert_eq!(StopKind::classify(reason), kind, "{reason}");
            for content in CONTENTS {
                let given = json!(reason);
                for answer in [in_one_piece(content, &given), streamed(content, &given)] {
                    let answer = answer.unwrap_or_else(|kind| panic!("{reason}: {kind:?}"));
                    for words in [EndWords::OfMessagesApi, EndWords::OfAnyApi] {
                        let reply = classify_reply(&answer, words);
                        let expected = expected(kind, content, words);
                        assert_eq!(reply, expected, "{reason} with {content:?}, {words:?}");
                    }
                    let reply = classify_reply(&answer, EndWords::OfMessagesApi);
                    let answered = matches!(reply, ReplyKind::Answer { .. });
                    let complete = ["end_turn", "stop_sequence"].contains(reason);
                    assert_eq!(
                        answered,
                        complete && content == Content::Text,
                        "{reason} {content:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_reply_without_a_stop_reason_is_incomplete() {
    for reason in [Value::Null, json!(""), json!(" "), json!(5), json!({ "type": "end_turn" })] {
        for content in CONTENTS {
            for reply in [in_one_piece(content, &reason), streamed(content, &reason)] {
                let is_invalid = matches!(reply, Err(FaultKind::InvalidContent { .. }));
                assert!(is_invalid, "{reason}: {reply:?}");
            }
        }
    }
}

/// A call that was being written when the reply was cut may look whole and be none.
#[test]
fn a_call_in_a_reply_that_was_cut_is_never_kept() {
    for (kind, reasons) in REASONS {
        let cut = matches!(
            kind,
            StopKind::OutputLimit
                | StopKind::ContextLimit
                | StopKind::Filtered
                | StopKind::BrokenOff
        );
        for reason in reasons {
            for content in [Content::Call, Content::TextAndCall] {
                let answer = streamed(content, &json!(reason)).expect("a reply");
                assert_eq!(answer.cut_tool_call, cut, "{reason}");
                let blocks = content.blocks().len() - usize::from(cut);
                assert_eq!(answer.content.len(), blocks, "{reason}: {answer:?}");
            }
        }
    }
}

/// The last event of a stream may be missing, but then only a word of the Messages API itself shows
/// that nothing else is.
#[test]
fn a_word_of_another_api_ends_only_a_reply_with_its_last_event() {
    for (reason, is_answer) in [("end_turn", true), ("stop", false)] {
        let events = [
            json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "Now I run the tests." } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": reason },
                "usage": { "output_tokens": 9 } }),
        ];
        let mut assembly = ReplyAssembly::default();
        for event in events {
            let frame = SseEvent { data: event.to_string(), ..SseEvent::default() };
            assembly.process_event(&frame, &mut |_| {}).expect("an event");
        }
        let answer = assembly.finish().expect("all but the last event came");
        let reply = classify_reply(&answer, EndWords::OfAnyApi);
        assert_eq!(matches!(reply, ReplyKind::Answer { .. }), is_answer, "{reason}: {reply:?}");
    }
}
