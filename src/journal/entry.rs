//! The records and lines of a journal, and their checksums.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::recovery::{
    Limits, Money, NewDemands, RecoveryRecord, RefusedField, StopReason, ToolCallRecord, Transition,
};
use crate::secrets::KnownSecrets;
use crate::transcript::{Block, HistoryRepair, Message, Role, ToolCall, Usage};
use crate::types::ReadFile;

use super::contract::{Contract, FirstPrompt};
use super::ended_calls::UndoneCalls;
use super::recorded_prompt::RecordedPrompt;

/// The version of our own records. A higher one is refused.
pub(super) const VERSION: u32 = 1;
/// The `type` of our own records.
pub(super) const OUR_TYPE: &str = "outlast";

/// The facts that a process records about itself when it starts writing to a session.
#[derive(Clone, Debug, Default)]
pub struct ProcessOpening {
    /// The version of outlast: `N.N.N`.
    pub version: String,
    pub model: String,
    pub permission_mode: String,
    pub limits: Limits,
    /// Continuation of an unfinished prompt with its totals, or a new prompt.
    pub carry: CarryOver,
    /// The required MCP servers, for a later resume.
    pub required_servers: Vec<String>,
    /// The demands on the answer that this process makes, and earlier ones did not.
    pub new_demands: NewDemands,
    /// The contract for a later resume. `None`: a sub-agent's journal, which is not resumed.
    pub contract: Option<Contract>,
    /// The prompt of a new session. An existing session keeps its own.
    pub prompt: Option<FirstPrompt>,
    /// The name of the session, if this process gives it one.
    pub title: Option<String>,
    /// Values that must never reach the disk, such as keys.
    pub secrets: KnownSecrets,
}

/// The totals of turns and cost that a process begins with: zero, or those of the previous prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarryOver {
    /// A new prompt starts at zero.
    #[default]
    Fresh,
    /// The previous prompt continues, with its totals.
    On,
}

/// Metadata of a message, besides its content. Empty for the user's messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageMeta<'a> {
    /// The API's id of the reply.
    pub id: Option<&'a str>,
    /// The model that answered.
    pub model: Option<&'a str>,
    pub stop_reason: Option<&'a str>,
    pub usage: Option<Usage>,
    pub request_id: Option<&'a str>,
    /// The structured result of a tool, for programs.
    pub detail: Option<&'a Value>,
    /// The ids of its parts that were assigned before it was complete.
    pub ids: &'a [Uuid],
    pub form: ContentForm,
}

/// The form in which a message that begins with a text is written. It lets readers of transcripts
/// distinguish prompts given as text from those given as content blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentForm {
    /// A list of all blocks.
    #[default]
    Blocks,
    /// The text as a string. The blocks after it, which outlast and hooks added, are in the member
    /// `addedContent` of the line.
    Text,
}

impl ContentForm {
    /// Returns the parts of a copied message by their form: the text that it begins with, if it
    /// consists of texts, and the others. Readers of transcripts look for prompts that are a text,
    /// without the texts that a run added to them.
    pub(super) fn parts_of_copy(message: &Message) -> [(Self, Vec<&[Block]>); 2] {
        let is_text = |block: &Block| block.as_text().is_some();
        let is_prompt = message.role == Role::User && message.content.iter().all(is_text);
        let (prompt, others) = match message.content.split_first_chunk::<1>() {
            Some((prompt, added)) if is_prompt => {
                (vec![prompt.as_slice()], added.chunks(added.len().max(1)).collect())
            }
            Some(_) | None => (Vec::new(), message.parts()),
        };
        [(Self::Text, prompt), (Self::Blocks, others)]
    }
}

/// One of our own records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JournalRecord {
    Open(Box<OpenRecord>),
    /// The limits, checks and rules from here on. Written at the start, and by each process that
    /// changes them.
    Contract(Box<Contract>),
    /// The prompt that the session was started with.
    Prompt(FirstPrompt),
    Transition {
        transition: Box<Transition>,
    },
    Intent {
        calls: Vec<ToolStarted>,
    },
    Spend(SpendRecord),
    Repair {
        repairs: Vec<HistoryRepair>,
    },
    /// The conversation was replaced by these messages; lines after the line `after` follow them.
    Rewrite {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        messages: Vec<Message>,
    },
    /// A finished recovery. The transitions hold the same information; this is for readers without
    /// the state machine.
    Recovery(Box<RecoveryRecord>),
    /// The tool calls of one reply, for the loop detector.
    ToolCalls {
        calls: Vec<ToolCallRecord>,
    },
    /// Calls that end without having done their work, for the counts of the result.
    UndoneCalls(UndoneCalls),
    /// A model's context window, as learned from an error.
    Window {
        model: String,
        tokens: u64,
    },
    /// A model's output limit, as learned from a refusal.
    OutputLimit {
        model: String,
        tokens: u32,
    },
    /// A field that a service refuses for a model.
    RefusedField(RefusedField),
    /// Changes of background work: commands and sub-agents that were started, or whose end was
    /// reported to the model.
    Background(BackgroundChanges),
    /// Files that the model has read or written since the last record of them.
    FilesRead {
        files: Vec<ReadFile>,
    },
    /// A failed check of `--require`, for reports.
    FailedCheck(FailedCheck),
    /// The state of the last prompt of the session that this one was forked from.
    Forked(Box<RecordedPrompt>),
    End {
        reason: StopReason,
        /// The message of the service or of the defect that ended the prompt, for reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

/// The cost of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpendRecord {
    /// Pico-dollars. `None` when no price was known.
    pub cost: Option<Money>,
    pub usage: Usage,
    pub model: String,
    /// True if the cost is an upper bound: the call broke off, or the API reported no usage.
    #[serde(rename = "unsettled", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_upper_bound: bool,
}

/// A failed check of `--require`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCheck {
    pub command: String,
    /// The outcome, as a predicate whose subject is the command.
    pub end: String,
    /// The last lines of the output.
    pub output: String,
}

/// Changes of background work since the last record of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundChanges {
    /// Number of commands that the session has started; 0 if this record adds none.
    pub commands: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<BackgroundWork>,
    /// The ids of ended work whose end was reported to the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reported: Vec<String>,
    /// The folder in which the next command starts, if it has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
}

/// A command or sub-agent that was started in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum BackgroundWork {
    Command { id: String, command: String },
    Agent { id: String, description: String },
}

impl BackgroundWork {
    pub fn id(&self) -> &str {
        match self {
            Self::Command { id, .. } | Self::Agent { id, .. } => id,
        }
    }
}

/// A process that starts writing to a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenRecord {
    /// Rises with each process that writes to this session.
    pub epoch: u64,
    pub pid: u32,
    pub host: String,
    /// RFC 3339.
    pub since: String,
    pub cwd: String,
    pub version: String,
    pub model: String,
    pub permission_mode: String,
    pub limits: Limits,
    pub carry: CarryOver,
    /// Number of torn records that were dropped.
    pub dropped: u32,
    /// The damage in the file, if the session continues before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_servers: Vec<String>,
    #[serde(default, skip_serializing_if = "NewDemands::is_none")]
    pub new_demands: NewDemands,
}

/// The position of damage in a session file, and the records that were left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damage {
    /// The first line that was left out, counted from 1.
    pub line: usize,
    pub what: String,
    /// Number of lines that were left out, including intact ones.
    pub dropped_records: u32,
    /// The file that they were moved to. `None`: they are still in place.
    pub kept_in: Option<String>,
}

/// A tool call that is about to run. Its input is in the reply, unless a hook or a permission
/// callback changed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolStarted {
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Value>,
}

impl ToolStarted {
    /// Converts a call and whether its input was changed.
    pub(super) fn of((call, changed): &(ToolCall, bool)) -> Self {
        let input = changed.then(|| call.input.clone());
        Self { id: call.id.clone(), name: call.name.clone(), changed: input }
    }
}

#[derive(Serialize)]
pub(super) struct RecordLine<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) v: u32,
    pub(super) seq: u64,
    pub(super) timestamp: &'a str,
    #[serde(flatten)]
    pub(super) record: &'a JournalRecord,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageLine<'a> {
    pub(super) parent_uuid: Option<&'a str>,
    pub(super) is_sidechain: bool,
    pub(super) user_type: &'static str,
    pub(super) cwd: &'a str,
    pub(super) session_id: &'a str,
    pub(super) version: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: Role,
    pub(super) message: WireMessage<'a>,
    /// The content that outlast and hooks added to a prompt that was given as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) added_content: Option<&'a [Block]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_use_result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
    pub(super) uuid: &'a str,
    pub(super) timestamp: &'a str,
    /// For a reply with several blocks: the number of this line and of all its lines, from 1.
    /// Without the last one, the reply is torn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<(usize, usize)>,
    pub(super) seq: u64,
}

/// The type of a line with the session's name.
pub(super) const TITLE_TYPE: &str = "custom-title";

/// A line with the session's name, in the format that the public SDKs read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TitleLine<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) custom_title: &'a str,
    pub(super) session_id: &'a str,
    pub(super) seq: u64,
}

/// A line with a file that a prompt names. It links the lines around it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttachmentLine<'a> {
    pub(super) parent_uuid: Option<&'a str>,
    pub(super) is_sidechain: bool,
    pub(super) cwd: &'a str,
    pub(super) session_id: &'a str,
    pub(super) version: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) attachment: Attachment<'a>,
    pub(super) uuid: &'a str,
    pub(super) timestamp: &'a str,
    pub(super) seq: u64,
}

#[derive(Serialize)]
pub(super) struct Attachment<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) filename: &'a str,
    pub(super) content: &'a str,
}

/// A message in the API's format.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireMessage<'a> {
    User {
        role: Role,
        content: WireContent<'a>,
    },
    Assistant {
        id: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        role: Role,
        model: &'a str,
        content: &'a [Block],
        stop_reason: Option<&'a str>,
        stop_sequence: Option<&'a str>,
        usage: Usage,
    },
}

/// The content of a user message.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireContent<'a> {
    Text(&'a str),
    Blocks(&'a [Block]),
}

impl<'a> WireContent<'a> {
    /// The content of the message, and what was added to it.
    fn split(content: &'a [Block], form: ContentForm) -> (Self, &'a [Block]) {
        match (form, content) {
            (ContentForm::Text, [Block::Text { text }, added @ ..]) => (Self::Text(text), added),
            (ContentForm::Text | ContentForm::Blocks, _) => (Self::Blocks(content), &[]),
        }
    }
}

impl<'a> WireMessage<'a> {
    /// The message, and the content that was added to it.
    pub(super) fn split(
        message: &'a Message,
        content: &'a [Block],
        meta: &MessageMeta<'a>,
    ) -> (Self, Option<&'a [Block]>) {
        match message.role {
            Role::User => {
                let (content, added) = WireContent::split(content, meta.form);
                (Self::User { role: Role::User, content }, Some(added).filter(|it| !it.is_empty()))
            }
            Role::Assistant => {
                let reply = Self::Assistant {
                    id: meta.id.unwrap_or_default(),
                    kind: "message",
                    role: Role::Assistant,
                    model: meta.model.unwrap_or_default(),
                    content,
                    stop_reason: meta.stop_reason,
                    stop_sequence: None,
                    usage: meta.usage.unwrap_or_default(),
                };
                (reply, None)
            }
        }
    }
}

const CRC_DIGITS: usize = 8;
const CRC_MEMBER: &[u8] = br#","crc":""#;
const CRC_CLOSE: &[u8] = br#""}"#;

/// Converts a JSON object to a line: appends its checksum as the last member, and a newline.
pub(super) fn seal(mut json: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&json);
    json.pop();
    json.extend_from_slice(CRC_MEMBER);
    json.extend_from_slice(format!("{crc:08x}").as_bytes());
    json.extend_from_slice(CRC_CLOSE);
    json.push(b'\n');
    json
}

/// The checksum status of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineChecksum {
    Intact,
    Broken,
    /// The line does not end with a checksum.
    Absent,
}

/// Checks the checksum of a line, given without its newline.
pub(super) fn check_seal(line: &[u8]) -> LineChecksum {
    let Some(unclosed) = line.strip_suffix(CRC_CLOSE) else { return LineChecksum::Absent };
    let Some(end) = unclosed.len().checked_sub(CRC_DIGITS) else { return LineChecksum::Absent };
    let (member, digits) = unclosed.split_at(end);
    let Some(body) = member.strip_suffix(CRC_MEMBER) else { return LineChecksum::Absent };
    let found = crc32c::crc32c_append(crc32c::crc32c(body), b"}");
    if format!("{found:08x}").as_bytes() == digits {
        LineChecksum::Intact
    } else {
        LineChecksum::Broken
    }
}
