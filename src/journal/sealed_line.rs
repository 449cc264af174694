//! Parses lines in the format that outlast writes, without building a tree of their JSON. Lines in
//! any other format are left to the general parser.

use serde::Deserialize;

use crate::recovery::Transition;
use crate::transcript::{Block, Message, Role, Usage};

use super::entry::{JournalRecord, VERSION};
use super::line_head::record_kind;
use super::parsed_line::{JournalEntry, LineFacts, MessageEntry, ParsedLine, ToolDetail};

/// The kind of a step of the state machine, as it is written.
const STEP_KIND: &[u8] = br#""transition""#;

/// A message whose content is blocks. The general parser reads the same members from a tree,
/// leniently, and a content that is a text, which only prompts have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SealedMessage {
    #[serde(rename = "type")]
    kind: Role,
    seq: u64,
    uuid: String,
    parent_uuid: Option<String>,
    cwd: Option<String>,
    #[serde(default)]
    is_sidechain: bool,
    #[serde(default)]
    is_meta: bool,
    #[serde(default)]
    is_api_error_message: bool,
    team_name: Option<String>,
    part: Option<(usize, usize)>,
    step: Option<(usize, usize)>,
    timestamp: Option<String>,
    message: SealedContent,
    #[serde(default)]
    added_content: Vec<Block>,
    tool_use_result: Option<ToolDetail>,
}

#[derive(Deserialize)]
struct SealedContent {
    content: Vec<Block>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
}

/// The members that all our own records have, and the transition of a record that has one.
#[derive(Deserialize)]
struct SealedRecord {
    v: u32,
    seq: u64,
    step: Option<(usize, usize)>,
    timestamp: Option<String>,
    transition: Option<Transition>,
}

/// Parses a line whose checksum is intact. `None`: it is not in the usual form.
pub(super) fn parse_sealed(line: &[u8]) -> Option<ParsedLine> {
    let Some(kind) = record_kind(line) else {
        let message: Option<SealedMessage> = serde_json::from_slice(line).ok();
        return message.and_then(SealedMessage::into_line);
    };
    let SealedRecord { v, seq, step, timestamp, transition } = serde_json::from_slice(line).ok()?;
    let record = match transition.filter(|_| kind == STEP_KIND) {
        // The most frequent record, and the one with the most members, is parsed once.
        Some(transition) => JournalRecord::Transition { transition: Box::new(transition) },
        None => serde_json::from_slice(line).ok()?,
    };
    let entry = JournalEntry::Record(Box::new(record));
    let facts = LineFacts { timestamp, ..LineFacts::default() };
    (v == VERSION).then_some(ParsedLine { entry, seq: Some(seq), step, facts })
}

impl SealedMessage {
    fn into_line(self) -> Option<ParsedLine> {
        if self.is_api_error_message {
            return None;
        }
        let SealedContent { mut content, model, stop_reason, usage } = self.message;
        content.extend(self.added_content);
        let mut detail = self.tool_use_result;
        let structured = detail.as_mut().and_then(|detail| detail.structured_output.take());
        let entry = JournalEntry::Message(Box::new(MessageEntry {
            uuid: self.uuid,
            parent: self.parent_uuid,
            message: Message { role: self.kind, content },
            model: model.filter(|name| !name.is_empty()),
            stop_reason,
            usage,
            cwd: self.cwd,
            is_sidechain: self.is_sidechain || self.is_meta || self.team_name.is_some(),
            part: self.part,
            structured,
            ours: true,
        }));
        let facts = LineFacts { timestamp: self.timestamp, usage, detail };
        Some(ParsedLine { entry, seq: Some(self.seq), step: self.step, facts })
    }
}
