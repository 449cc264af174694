//! Parses the frequent lines that outlast writes, messages and steps of the state machine, without
//! a tree of their JSON, because their format is known. Any other line has no result here, and goes
//! to the general parser.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

use crate::recovery::Transition;
use crate::transcript::{Block, Message, Role, Usage};

use super::entry::{JournalRecord, RECORD_HEAD_BYTES, VERSION};
use super::parsed_line::{JournalEntry, LineFacts, MessageEntry, ParsedLine};
use super::recorded_prompt::STRUCTURED;

/// The start of our own records.
const RECORD_START: &[u8] = br#"{"type":"outlast","#;
/// The kind of a step as it is written.
const STEP_KIND: &[u8] = br#""kind":"transition""#;

/// The structured result of a tool, or the part of it that a reader needs.
pub(super) trait ToolDetail: DeserializeOwned {
    /// Returns the accepted structured output, and all of the result if it was kept.
    fn split(self) -> (Option<Value>, Option<Value>);
}

/// All of the result.
impl ToolDetail for Value {
    fn split(self) -> (Option<Value>, Option<Value>) {
        (self.get(STRUCTURED).cloned(), Some(self))
    }
}

/// The accepted structured output alone: results repeat the whole output of a tool.
pub(super) struct AcceptedOutput(Option<Value>);

impl ToolDetail for AcceptedOutput {
    fn split(self) -> (Option<Value>, Option<Value>) {
        (self.0, None)
    }
}

impl<'de> Deserialize<'de> for AcceptedOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = AcceptedOutput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AcceptedOutput, A::Error> {
                let mut found = None;
                while let Some(IsStructured(wanted)) = map.next_key()? {
                    if wanted {
                        found = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(AcceptedOutput(found))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// The name of a member, compared with that of the accepted structured output.
struct IsStructured(bool);

impl<'de> Deserialize<'de> for IsStructured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = IsStructured;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<IsStructured, E> {
                Ok(IsStructured(name == STRUCTURED))
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

/// A message. The general parser finds the same members in a tree, and is lenient.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "D: ToolDetail")]
struct SealedMessage<D> {
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
    #[serde(default, deserialize_with = "present")]
    tool_use_result: Option<D>,
}

#[derive(Deserialize)]
struct SealedContent {
    #[serde(deserialize_with = "blocks")]
    content: Vec<Block>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct SealedStep {
    v: u32,
    seq: u64,
    step: Option<(usize, usize)>,
    timestamp: Option<String>,
    transition: Transition,
}

/// Parses a line whose checksum is intact. `None`: it is of another kind, or not of the usual form.
pub(super) fn parse_sealed<D: ToolDetail>(line: &[u8]) -> Option<(ParsedLine, LineFacts)> {
    if !line.starts_with(RECORD_START) {
        let message = line.starts_with(b"{").then(|| serde_json::from_slice(line).ok()).flatten();
        return message.and_then(SealedMessage::<D>::into_line);
    }
    let head = &line[..line.len().min(RECORD_HEAD_BYTES)];
    if !head.windows(STEP_KIND.len()).any(|window| window == STEP_KIND) {
        return None;
    }
    let SealedStep { v, seq, step, timestamp, transition } = serde_json::from_slice(line).ok()?;
    let entry = JournalEntry::Record(Box::new(JournalRecord::Transition { transition }));
    let facts = LineFacts { timestamp, ..LineFacts::default() };
    (v == VERSION).then_some((ParsedLine { entry, seq: Some(seq), step }, facts))
}

impl<D: ToolDetail> SealedMessage<D> {
    fn into_line(self) -> Option<(ParsedLine, LineFacts)> {
        if self.is_api_error_message {
            return None;
        }
        let SealedContent { content, model, stop_reason, usage } = self.message;
        let (structured, detail) = self.tool_use_result.map_or((None, None), D::split);
        let entry = JournalEntry::Message(Box::new(MessageEntry {
            uuid: self.uuid,
            parent: self.parent_uuid,
            message: Message { role: self.kind, content },
            model: model.filter(|name| !name.is_empty()),
            stop_reason,
            cwd: self.cwd,
            is_sidechain: self.is_sidechain || self.is_meta || self.team_name.is_some(),
            part: self.part,
            structured,
            ours: true,
        }));
        let facts = LineFacts { timestamp: self.timestamp, usage, detail };
        Some((ParsedLine { entry, seq: Some(self.seq), step: self.step }, facts))
    }
}

/// Distinguishes a member that is null from one that is absent.
fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Reads the content of a message: blocks, or a text.
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
