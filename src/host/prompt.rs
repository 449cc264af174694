//! A prompt that a host sends.

use std::mem;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::messages::{InputMessage, MessageBody, RunMessage, UserMessage};
use crate::transcript::Block;

use super::frame::{FrameError, text};

/// One prompt: text, and other content blocks such as images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserPrompt {
    /// The text blocks except the last one, each followed by a line feed.
    pub before: String,
    /// The last text block, which may call a command.
    pub text: String,
    /// The other blocks, such as images.
    pub attachments: Vec<Block>,
    /// True if commands and file mentions in it are not expanded.
    pub is_verbatim: bool,
    /// The id that the host gave it.
    pub uuid: Option<String>,
    /// The origin of the prompt, such as `human`, which is repeated in the result.
    pub origin: Option<Value>,
    /// True if it is only added to the conversation, before the next prompt.
    pub is_context: bool,
    /// The message as received, for `--replay-user-messages`.
    pub message: Value,
}

/// The command that begins a new conversation.
const CLEAR: &str = "/clear";

/// The text of a turn about ended background commands. A list of these precedes it.
const COMMANDS_ENDED: &str = "Background commands have ended; see above. Go on with the work that \
                              they were for, or say in short what came of them.";

impl UserPrompt {
    /// Returns the prompt of a turn that the host did not request, after the end of background
    /// commands.
    pub fn about_background_commands() -> Self {
        Self {
            text: COMMANDS_ENDED.to_owned(),
            is_verbatim: true,
            origin: Some(json!({ "kind": "task-notification" })),
            ..Self::default()
        }
    }

    /// True if the host sent it.
    pub fn is_of_host(&self) -> bool {
        !self.message.is_null()
    }

    /// True if it is the command that begins a new conversation.
    pub fn clears(&self) -> bool {
        !self.is_verbatim && self.before.is_empty() && self.text.trim() == CLEAR
    }

    /// True if the host sent a prompt without content.
    pub fn is_empty(&self) -> bool {
        let is_blank = |text: &str| text.trim().is_empty();
        self.is_of_host()
            && is_blank(&self.before)
            && is_blank(&self.text)
            && self.attachments.is_empty()
    }

    /// Puts the content of a message that asks nothing before this prompt.
    pub fn follow(&mut self, context: Self) {
        let Self { before, text, attachments, .. } = context;
        self.before = [before, text, "\n".to_owned(), mem::take(&mut self.before)].concat();
        self.attachments.splice(0..0, attachments);
    }

    /// True if its content is a string rather than a list of blocks.
    pub fn is_text(&self) -> bool {
        !self.message["content"].is_array()
    }

    /// The echo of `--replay-user-messages`.
    pub fn replay(&self, session_id: &str) -> RunMessage {
        let body = MessageBody::User(UserMessage {
            message: InputMessage::Replayed(self.message.clone()),
            tool_use_result: None,
            is_synthetic: false,
            timestamp: None,
            parent_tool_use_id: None,
            is_replay: true,
        });
        let message = RunMessage::new(body, session_id, Uuid::new_v4());
        let uuid = self.uuid.clone().unwrap_or(message.uuid);
        RunMessage { uuid, ..message }
    }

    /// Parses a `user` message.
    ///
    /// # Errors
    /// Its content is neither text nor blocks.
    pub(super) fn parse(frame: &Value) -> Result<Self, FrameError> {
        let message = frame["message"].clone();
        let (mut texts, attachments) = content(&message["content"])?;
        let text_of = texts.pop().unwrap_or_default();
        Ok(Self {
            before: texts.iter().flat_map(|text| [text, "\n"]).collect(),
            text: text_of,
            attachments,
            is_verbatim: frame["client_composed"] == true,
            uuid: text(frame, "uuid"),
            is_context: frame["shouldQuery"] == false,
            origin: Some(frame["origin"].clone()).filter(|origin| origin["kind"] == "human"),
            message,
        })
    }
}

/// Returns the text blocks and the other blocks of a prompt.
fn content(content: &Value) -> Result<(Vec<String>, Vec<Block>), FrameError> {
    if let Some(text) = content.as_str() {
        return Ok((vec![text.to_owned()], Vec::new()));
    }
    let blocks = content.as_array().ok_or(FrameError::BadContent)?;
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for block in blocks {
        if let Some(text) = block.as_str() {
            texts.push(text.to_owned());
            continue;
        }
        let mut block =
            serde_json::from_value(block.clone()).map_err(|_| FrameError::BadContent)?;
        if let Block::Document { others, .. } = &mut block {
            others.retain(is_of_document);
        }
        if let Block::Text { text } = block {
            texts.push(text);
        } else if matches!(&block, Block::Other(block) if !is_of_other_type(block)) {
            // A block of a known type that lacks its content, or one without a type.
            return Err(FrameError::BadContent);
        } else {
            others.push(block);
        }
    }
    Ok((texts, others))
}

/// Returns true if the Messages API has this field for documents.
fn is_of_document(field: &str, value: &Value) -> bool {
    match field {
        "title" | "context" => value.is_string(),
        "citations" => value.is_object(),
        _ => false,
    }
}

/// Returns true if a block is of a type that outlast does not know.
fn is_of_other_type(block: &Value) -> bool {
    block["type"].as_str().is_some_and(|kind| !["text", "image", "document"].contains(&kind))
}
