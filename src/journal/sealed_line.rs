//! Parses lines in the format that outlast writes, without building a tree of their JSON. Lines in
//! any other format are left to the general parser.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Value};

use crate::recovery::Transition;
use crate::transcript::{Block, Message, Role, Usage};

use super::entry::{JournalRecord, VERSION};
use super::line_head::record_kind;
use super::parsed_line::{JournalEntry, LineFacts, MessageEntry, ParsedLine, REPORTED};
use super::recorded_prompt::STRUCTURED;

/// The kind of a step of the state machine, as it is written.
const STEP_KIND: &[u8] = br#""transition""#;

/// The members of a tool's structured result that are read.
#[derive(Default)]
struct ToolDetail {
    /// The accepted structured output.
    structured: Option<Value>,
    reported: Map<String, Value>,
}

impl<'de> Deserialize<'de> for ToolDetail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = ToolDetail;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolDetail, A::Error> {
                let mut detail = ToolDetail::default();
                while let Some(MemberName(name)) = map.next_key()? {
                    match name {
                        None => drop(map.next_value::<IgnoredAny>()?),
                        Some(STRUCTURED) => detail.structured = Some(map.next_value()?),
                        Some(name) => {
                            detail.reported.insert(name.to_owned(), map.next_value()?);
                        }
                    }
                }
                Ok(detail)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// The name of a member that is read. `None` for other members.
struct MemberName(Option<&'static str>);

impl<'de> Deserialize<'de> for MemberName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = MemberName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<MemberName, E> {
                let mut read = REPORTED.into_iter().chain([STRUCTURED]);
                Ok(MemberName(read.find(|known| *known == name)))
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

/// A message. The general parser reads the same members from a tree, leniently.
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
    #[serde(deserialize_with = "blocks")]
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
        let (structured, detail) = match self.tool_use_result {
            Some(detail) => (detail.structured, Some(Value::Object(detail.reported))),
            None => (None, None),
        };
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

/// Deserializes the content of a message: blocks, or a text.
fn blocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Block>, D::Error> {
    struct Content;
    impl<'de> Visitor<'de> for Content {
        type Value = Vec<Block>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or content blocks")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<Block>, E> {
            Ok(vec![Block::text(text)])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Block>, A::Error> {
            let mut blocks = Vec::new();
            while let Some(block) = seq.next_element()? {
                blocks.push(block);
            }
            Ok(blocks)
        }
    }
    deserializer.deserialize_any(Content)
}
