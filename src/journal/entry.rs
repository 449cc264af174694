//! What the lines of a journal say, and how they are sealed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::recovery::{ToolCallRecord, RecoveryRecord, Limits, Money, StopReason, Transition};
use crate::transcript::{Block, Message, HistoryRepair, Role, ToolCall, Usage};

use super::contract::{Contract, FirstPrompt};
use super::damage::Damage;

/// The version of our own records. A reader refuses a higher one.
pub(super) const VERSION: u32 = 1;
/// The type of our own records.
pub(super) const OUR_TYPE: &str = "outlast";

/// What a process that begins to write to a session says about itself.
#[derive(Clone, Debug)]
pub struct ProcessOpening {
    /// Of this program: `N.N.N`.
    pub version: String,
    pub model: String,
    pub permission_mode: String,
    pub limits: Limits,
    /// Whether the sums of an unfinished prompt go on.
    pub carry: CarryOver,
    /// The servers without which nothing is to be done, for whoever goes on.
    pub required_servers: Vec<String>,
    /// What the session is to be resumed under. `None`: a sub-agent's, which is not resumed.
    pub contract: Option<Contract>,
    /// The prompt of a session that begins. A session that has one keeps it.
    pub prompt: Option<FirstPrompt>,
    /// Values that must never reach the disk, such as keys. Those under eight bytes are not
    /// secrets and are left alone.
    pub redact: Vec<String>,
}

/// Whether turns and money of the prompt before count towards what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarryOver {
    /// A new prompt begins with nothing spent.
    Fresh,
    /// The same prompt goes on.
    On,
}

/// What is known of a message beside its content. Empty for the user's.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageMeta<'a> {
    /// The service's id of the reply.
    pub id: Option<&'a str>,
    /// The model that answered.
    pub model: Option<&'a str>,
    pub stop_reason: Option<&'a str>,
    pub usage: Option<Usage>,
    pub request_id: Option<&'a str>,
    /// What programs see of a tool's result.
    pub detail: Option<&'a Value>,
    /// The ids of its parts, as far as they were given out before it was whole.
    pub ids: &'a [Uuid],
}

/// One of our own records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum JournalRecord {
    Open(Box<OpenRecord>),
    /// The limits, demands and rules from here on. Written when the session starts, and by each
    /// process that changes them.
    Contract(Box<Contract>),
    /// The prompt that the session was started with.
    Prompt(FirstPrompt),
    Transition {
        transition: Transition,
    },
    Intent {
        calls: Vec<ToolStarted>,
    },
    Spend {
        /// Pico-dollars. `None` when no price was known.
        cost: Option<Money>,
        usage: Usage,
        model: String,
        /// Whether it is an upper bound: the call broke off, or its service did not count.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unsettled: bool,
    },
    Repair {
        repairs: Vec<HistoryRepair>,
    },
    /// The conversation was changed: this is all of it now, and what follows the line `after`
    /// comes after it.
    Rewrite {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        messages: Vec<Message>,
    },
    /// A recovery that is over. The transitions hold all of it: this is for whoever reads the
    /// file without knowing the machine.
    Recovery(Box<RecoveryRecord>),
    /// What the tools of one reply did, as the loop detector sees it.
    Deeds {
        deeds: Vec<ToolCallRecord>,
    },
    /// A model's context window turned out to be this large.
    Window {
        model: String,
        tokens: u64,
    },
    End {
        reason: StopReason,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenRecord {
    /// How many processes have written to this session, this one included.
    pub(super) epoch: u64,
    pub(super) pid: u32,
    pub(super) host: String,
    /// RFC 3339.
    pub(super) since: String,
    pub(super) cwd: String,
    pub(super) version: String,
    pub(super) model: String,
    pub(super) permission_mode: String,
    pub(super) limits: Limits,
    pub(super) carry: CarryOver,
    /// Records that were found torn and dropped.
    pub(super) dropped: u32,
    /// What was wrong with the file, where the session goes on before that place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) damage: Option<Damage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forked_from: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) required_servers: Vec<String>,
}

/// A tool call that is about to run. Its input is in the reply that asked for it, unless somebody
/// has changed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ToolStarted {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<Value>,
}

impl ToolStarted {
    /// A call, and whether its input was changed.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_use_result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
    pub(super) uuid: &'a str,
    pub(super) timestamp: &'a str,
    /// Of a reply with several blocks: which of how many lines this is, counted from 1. Without
    /// the last one, the reply is torn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<(usize, usize)>,
    pub(super) seq: u64,
}

/// A message as the service says it.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireMessage<'a> {
    User {
        role: Role,
        content: &'a [Block],
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

impl<'a> WireMessage<'a> {
    pub(super) fn new(message: &'a Message, content: &'a [Block], meta: &MessageMeta<'a>) -> Self {
        match message.role {
            Role::User => Self::User { role: Role::User, content },
            Role::Assistant => Self::Assistant {
                id: meta.id.unwrap_or_default(),
                kind: "message",
                role: Role::Assistant,
                model: meta.model.unwrap_or_default(),
                content,
                stop_reason: meta.stop_reason,
                stop_sequence: None,
                usage: meta.usage.unwrap_or_default(),
            },
        }
    }
}

const CRC_DIGITS: usize = 8;
const CRC_MEMBER: &[u8] = br#","crc":""#;
const CRC_CLOSE: &[u8] = br#""}"#;

/// Turns a JSON object into a line: adds its checksum as the last member, and the line's end.
pub(super) fn seal(mut json: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&json);
    json.pop();
    json.extend_from_slice(CRC_MEMBER);
    json.extend_from_slice(format!("{crc:08x}").as_bytes());
    json.extend_from_slice(CRC_CLOSE);
    json.push(b'\n');
    json
}

/// How a line's seal looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineChecksum {
    Intact,
    Broken,
    /// The line has no checksum at its end.
    Absent,
}

/// Checks a line, given without its end.
pub(super) fn check_seal(line: &[u8]) -> LineChecksum {
    let Some(unclosed) = line.strip_suffix(CRC_CLOSE) else { return LineChecksum::Absent };
    let Some(end) = unclosed.len().checked_sub(CRC_DIGITS) else { return LineChecksum::Absent };
    let (member, digits) = unclosed.split_at(end);
    let Some(body) = member.strip_suffix(CRC_MEMBER) else { return LineChecksum::Absent };
    let found = crc32c::crc32c_append(crc32c::crc32c(body), b"}");
    if format!("{found:08x}").as_bytes() == digits { LineChecksum::Intact } else { LineChecksum::Broken }
}
