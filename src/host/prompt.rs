//! A prompt that a host sends.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::messages::{InputMessage, MessageBody, RunMessage, UserMessage};
use crate::transcript::Block;

use super::fields::{FrameError, text};

/// One prompt: text, and other content blocks such as images.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct UserPrompt {
    /// The blocks before the last text block.
    pub before: Vec<Block>,
    /// The last text block, which may call a command.
    pub text: String,
    /// The blocks after it.
    pub after: Vec<Block>,
    /// True if commands and file mentions in it are not expanded.
    pub is_verbatim: bool,
    /// The id that the host gave it.
    pub uuid: Option<String>,
    /// The origin of the prompt, such as `human`, which is repeated in the result.
    pub origin: Option<Value>,
    /// The ids of the messages that ask nothing and were put before it.
    pub added: Vec<String>,
    /// True if it is only added to the conversation, before the next prompt.
    pub is_context: bool,
    /// True if the host has interrupted its turn before it began.
    pub is_interrupted: bool,
    /// True if the session has its content already, and continues with it.
    pub is_recorded: bool,
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

    /// Returns a prompt that an earlier process has recorded as the last one of the session.
    #[must_use]
    pub fn of_session(self) -> Self {
        let (before, text, after) = (Vec::new(), String::new(), Vec::new());
        Self { before, text, after, is_recorded: true, ..self }
    }

    /// True if the host sent a prompt without content.
    pub fn is_empty(&self) -> bool {
        let is_sent = self.is_of_host() && !self.is_recorded;
        is_sent && self.text.trim().is_empty() && !self.has_other_blocks()
    }

    /// True if it has more than its last text block.
    pub fn has_other_blocks(&self) -> bool {
        !self.before.is_empty() || !self.after.is_empty()
    }

    /// The texts before the last text block, each followed by a line feed.
    pub fn earlier_texts(&self) -> String {
        let texts = self.before.iter().filter_map(Block::as_text);
        texts.flat_map(|text| [text, "\n"]).collect()
    }

    /// Puts the content of a message that asks nothing before this prompt.
    pub fn follow(&mut self, context: Self) {
        let Self { before, text, after, uuid, .. } = context;
        self.added.splice(0..0, uuid);
        let text = (!text.trim().is_empty()).then(|| Block::text(text));
        self.before.splice(0..0, before.into_iter().chain(text).chain(after));
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
        let (before, last_text, after) = content(&message["content"])?;
        Ok(Self {
            before,
            text: last_text,
            after,
            is_verbatim: frame["client_composed"] == true,
            uuid: text(frame, "uuid").filter(|uuid| !uuid.is_empty()),
            is_context: frame["shouldQuery"] == false,
            origin: Some(frame["origin"].clone()).filter(|origin| origin["kind"] == "human"),
            message,
            ..Self::default()
        })
    }
}

/// Returns the last text block of a prompt, and the blocks before and after it, in their order: a
/// text may name the image that follows it. Blank texts are left out, as the service refuses them.
fn content(content: &Value) -> Result<(Vec<Block>, String, Vec<Block>), FrameError> {
    if let Some(text) = content.as_str() {
        return Ok((Vec::new(), text.to_owned(), Vec::new()));
    }
    let blocks = content.as_array().ok_or(FrameError::BadContent)?;
    let mut blocks = blocks.iter().map(block).collect::<Result<Vec<Block>, _>>()?;
    blocks.retain(|block| block.as_text().is_none_or(|text| !text.trim().is_empty()));
    let Some(last) = blocks.iter().rposition(|block| block.as_text().is_some()) else {
        return Ok((blocks, String::new(), Vec::new()));
    };
    let after = blocks.split_off(last + 1);
    let text = blocks.pop().and_then(|block| block.as_text().map(str::to_owned));
    Ok((blocks, text.unwrap_or_default(), after))
}

/// Parses one block of a prompt. A text may be a string.
fn block(value: &Value) -> Result<Block, FrameError> {
    if let Some(text) = value.as_str() {
        return Ok(Block::text(text));
    }
    let mut block = serde_json::from_value(value.clone()).map_err(|_| FrameError::BadContent)?;
    if let Block::Document { others, .. } = &mut block {
        others.retain(is_of_document);
    }
    // A block of a known type without its content, or a block without a type.
    let is_bad = matches!(&block, Block::Other(block) if !is_of_other_type(block));
    if is_bad { Err(FrameError::BadContent) } else { Ok(block) }
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
