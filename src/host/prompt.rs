//! A prompt of a host.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::transcript::Block;

use super::frame::{FrameError, text};

/// One prompt: text, and other content blocks such as images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserPrompt {
    /// Its text blocks but the last, each followed by the end of a line.
    pub before: String,
    /// Its last text block, which may call a command.
    pub text: String,
    /// Its other blocks.
    pub attachments: Vec<Block>,
    /// Whether it is taken as it is, without commands and mentions of files.
    pub is_verbatim: bool,
    /// The id that the host gave it.
    pub uuid: Option<String>,
    /// Where it comes from, which the result repeats.
    pub origin: Option<Value>,
    /// As the host wrote it, for `--replay-user-messages`.
    pub message: Value,
}

/// The command that begins a new conversation.
const CLEAR: &str = "/clear";

/// The text of a turn about background commands, whose list precedes it.
const COMMANDS_ENDED: &str = "Background commands have ended; see above. Go on with the work that \
                              they were for, or say in short what came of them.";

impl UserPrompt {
    /// The prompt of a turn that the host has not asked for: background commands have ended.
    pub fn about_background_commands() -> Self {
        Self {
            text: COMMANDS_ENDED.to_owned(),
            is_verbatim: true,
            origin: Some(json!({ "kind": "task-notification" })),
            ..Self::default()
        }
    }

    /// Whether the host has sent it.
    pub fn is_of_host(&self) -> bool {
        !self.message.is_null()
    }

    /// Whether it asks for a new conversation.
    pub fn clears(&self) -> bool {
        !self.is_verbatim && self.before.is_empty() && self.text.trim() == CLEAR
    }

    /// Whether its content is a text rather than blocks.
    pub fn is_text(&self) -> bool {
        !self.message["content"].is_array()
    }

    /// Repeats in a result which prompt it answers.
    pub fn stamp(&self, result: &mut Value) {
        if let Some(uuid) = &self.uuid {
            result["user_message_uuid"] = json!(uuid);
        }
        if let Some(origin) = &self.origin {
            result["origin"] = origin.clone();
        }
    }

    /// The echo of `--replay-user-messages`.
    pub fn replay(&self, session_id: &str) -> Value {
        json!({
            "type": "user",
            "message": self.message,
            "parent_tool_use_id": null,
            "isReplay": true,
            "session_id": session_id,
            "uuid": self.uuid.clone().unwrap_or_else(|| Uuid::new_v4().to_string()),
        })
    }

    /// Reads a `user` message.
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
            origin: Some(frame["origin"].clone()).filter(|origin| origin["kind"] == "human"),
            message,
        })
    }
}

/// The text blocks and the other blocks of a prompt.
fn content(content: &Value) -> Result<(Vec<String>, Vec<Block>), FrameError> {
    if let Some(text) = content.as_str() {
        return Ok((vec![text.to_owned()], Vec::new()));
    }
    let blocks = content.as_array().ok_or(FrameError::BadContent)?;
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for block in blocks {
        let block = serde_json::from_value(block.clone()).map_err(|_| FrameError::BadContent)?;
        if let Block::Text { text } = block {
            texts.push(text);
        } else {
            others.push(block);
        }
    }
    Ok((texts, others))
}
