//! A content block of a reply while it streams in. No I/O.

use serde_json::Value;

use crate::json;
use crate::recovery::FaultKind;
use crate::transcript::{Block, OtherFields};

use super::answer::{CompletedBlock, complete_tool_use, invalid_response, part_of_a_character};
use super::joined_text::JoinedText;

/// The number of content bytes received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Bytes that the model wrote, which its output cap limits.
    pub(super) model_output: u64,
    /// Other bytes: signatures, and results of the service's own tools.
    pub(super) other: u64,
}

/// A content block under construction.
#[derive(Debug)]
pub(super) enum GrowingBlock {
    Text(JoinedText),
    Thinking {
        thinking: JoinedText,
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        given: Value,
        others: OtherFields,
        json: JoinedText,
        has_text: bool,
    },
    Other {
        value: Value,
        json: JoinedText,
    },
}

impl Written {
    /// Counts the content that a block starts with.
    pub(super) fn open(&mut self, block: &GrowingBlock) {
        match block {
            GrowingBlock::Text(text) => self.model_output += text.len() as u64,
            GrowingBlock::Thinking { thinking, signature } => {
                self.model_output += thinking.len() as u64;
                self.other += signature.len() as u64;
            }
            GrowingBlock::ToolUse { name, given, .. } => {
                let given = given.as_object().is_some_and(|given| !given.is_empty());
                self.model_output += name.len() as u64;
                self.other += u64::from(given);
            }
            GrowingBlock::Other { .. } => self.other += 1,
        }
    }
}

impl GrowingBlock {
    /// Takes the content of `block`, which came at the end of this one, if this one has none.
    /// Returns true if it did.
    pub(super) fn complete_with(&mut self, block: &Value) -> bool {
        let text = |name: &str| block[name].as_str().filter(|text| !text.is_empty());
        match self {
            Self::Text(own) | Self::Thinking { thinking: own, .. } if own.len() > 0 => false,
            Self::Text(own) => text("text").is_some_and(|text| {
                own.push(text);
                true
            }),
            Self::Thinking { thinking, .. } => text("thinking").is_some_and(|text| {
                thinking.push(text);
                true
            }),
            Self::ToolUse { given, json, .. } => {
                let is_missing = json.text().trim().is_empty() && is_blank(given);
                if is_missing {
                    *given = block["input"].clone();
                }
                is_missing
            }
            Self::Other { .. } => false,
        }
    }

    /// True for a tool call without a name and arguments.
    pub(super) fn is_unnamed(&self) -> bool {
        matches!(
            self,
            Self::ToolUse { name, given, json, .. }
                if name.is_empty() && is_blank(given) && json.len() == 0
        )
    }

    /// True if a tool call is complete although its end has not come, so that `next` is another
    /// call. Empty arguments may be incomplete.
    pub(super) fn is_followed_by(&self, next: &Value) -> bool {
        let Self::ToolUse { id, json, .. } = self else { return true };
        let is_other = next["id"].as_str().is_some_and(|next| !next.is_empty() && next != id);
        let arguments = json::read_exact::<Value>(json.text());
        is_other && arguments.is_ok_and(|arguments| !is_blank(&arguments) && arguments.is_object())
    }

    /// Completes the block. In a text, part of a character is U+FFFD.
    ///
    /// # Errors
    /// The arguments of a tool call have part of a character, or came as text.
    pub(super) fn complete(&mut self) -> Result<CompletedBlock, FaultKind> {
        use std::mem::take;

        Ok(match self {
            Self::Text(text) => {
                let (text, _) = text.complete();
                if text.trim().is_empty() {
                    CompletedBlock::Blank
                } else {
                    CompletedBlock::Whole(Block::Text { text })
                }
            }
            Self::Thinking { thinking, signature } => CompletedBlock::Whole(Block::Thinking {
                thinking: thinking.complete().0,
                signature: take(signature),
            }),
            Self::ToolUse { id, name, given, others, json, has_text } => {
                let (json, is_damaged) = json.complete();
                if is_damaged {
                    return Err(part_of_a_character());
                }
                let streamed = !json.trim().is_empty();
                if *has_text && !streamed {
                    // The text may be the arguments of the call.
                    return Err(invalid_response("text came for a tool call".to_owned()));
                }
                let is_given = given.as_object().is_some_and(|given| !given.is_empty());
                // Some gateways give the arguments at the start, and empty ones after it.
                let input = match json.trim() {
                    "" => given.take(),
                    "{}" | "null" if is_given => given.take(),
                    _ => Value::String(json),
                };
                complete_tool_use(take(id), take(name), input, take(others))
            }
            Self::Other { value, json } => {
                if let Ok(input) = json::read_str::<Value>(&json.complete().0) {
                    value["input"] = input;
                }
                match serde_json::from_value(value.take()) {
                    Ok(block) => CompletedBlock::Whole(block),
                    Err(_) => CompletedBlock::Blank,
                }
            }
        })
    }
}

/// True if the arguments of a call are missing or empty.
fn is_blank(arguments: &Value) -> bool {
    match arguments {
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.trim().is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
    }
}
