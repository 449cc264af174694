//! Reads the journals of the sub-agents of earlier processes: their work and their spending.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::file_reads::{open_regular, read_regular};
use crate::recovery::{Money, RecoveryLog, StopReason, Transition};
use crate::transcript::{Message, Role, last_text, succeeded_calls, unanswered_calls};

use super::entry::{OpenRecord, SpendRecord, ToolStarted};
use super::parsed_line::MessageEntry;
use super::raw_lines::buffered;
use super::reader::{self, ParseError};
use super::session_folder::entries;
use super::totals::{SessionTotals, worst_case};
use super::view::JournalView;

/// The maximum length of an agent's final text that is passed to the model, in characters.
const FINAL_TEXT_MAX: usize = 2_000;

/// The length of a note about sub-agents after which further agents are left out, in bytes.
const DESCRIPTION_MAX: usize = 20_000;

/// The maximum size of the metadata file of a sub-agent, in bytes.
const META_MAX: u64 = 1 << 20;

/// The metadata file of a sub-agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentMeta {
    pub agent_id: String,
    /// The tool call that started it.
    pub tool_use_id: String,
    pub agent_type: String,
    pub description: String,
    /// The sub-agent that started it. `None`: the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_agent_id: Option<String>,
    pub background: bool,
    /// The sub-agent that it retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<String>,
    /// The number of the process that started it, counted from 1 within the session.
    pub epoch: u64,
}

/// A sub-agent of an earlier process, as read from its journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastAgent {
    pub meta: SubagentMeta,
    pub model: String,
    /// Totals of its usage and spending.
    pub sums: SessionTotals,
    pub tool_calls: u32,
    /// Its requests and its working time.
    pub recovery: RecoveryLog,
    /// Its stop reason. `None`: its process ended without recording one.
    pub ended: Option<StopReason>,
    /// The error that failed it, as the service or outlast worded it.
    pub error: Option<String>,
    /// The tool calls that ran without an error, one line each.
    finished: Vec<String>,
    /// The tool calls that were started and have no recorded outcome.
    unknown: Vec<String>,
    /// Its final text.
    text: String,
}

/// The folder of a session's sub-agents.
pub(super) fn folder_of(journal: &Path) -> PathBuf {
    journal.with_extension("").join("subagents")
}

/// Lists the sub-agents of the session of this journal, each with its own journal, in the order in
/// which they were started.
pub fn subagent_files(journal: &Path) -> Vec<(SubagentMeta, PathBuf)> {
    let metas = entries(&folder_of(journal)).into_iter().filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.ends_with(".meta.json"))
    });
    let read = |path: PathBuf| {
        let meta: SubagentMeta =
            serde_json::from_slice(&read_regular(&path, META_MAX).ok()?).ok()?;
        let journal = path.with_file_name(format!("agent-{}.jsonl", meta.agent_id));
        Some((meta, journal))
    };
    let mut files: Vec<(SubagentMeta, PathBuf)> = metas.filter_map(read).collect();
    files.sort_unstable_by_key(|(meta, _)| (meta.agent_id.len(), meta.agent_id.clone()));
    files
}

/// Reads all sub-agents of the session of this journal.
pub(super) fn read_subagents(journal: &Path) -> Vec<PastAgent> {
    subagent_files(journal).into_iter().map(|(meta, path)| read_subagent(meta, &path)).collect()
}

/// Reads one sub-agent. A missing or damaged journal yields its readable part.
fn read_subagent(meta: SubagentMeta, journal: &Path) -> PastAgent {
    let read = |most| {
        let file = open_regular(journal)?;
        reader::parse_journal(buffered(file.take(most)))
    };
    let contents = match read(u64::MAX) {
        Err(ParseError::Refused(refusal)) => read(refusal.intact),
        other => other,
    };
    let entries = contents.unwrap_or_default().entries;
    let agent = PastAgent { meta, ..PastAgent::default() };
    let mut replay = AgentReplay { agent, ..AgentReplay::default() };
    for entry in &entries {
        entry.show(&mut replay);
    }
    let AgentReplay { mut agent, messages, begun, in_flight } = replay;
    let model = agent.model.clone();
    agent.sums.add_in_flight(in_flight, &model);
    agent.tool_calls = u32::try_from(begun.len()).unwrap_or(u32::MAX);
    agent.finished = succeeded_calls(&messages);
    agent.unknown = unanswered_calls(&messages, &begun);
    agent.text = last_text(&messages).unwrap_or_default();
    agent
}

/// A sub-agent while its journal is read.
#[derive(Default)]
struct AgentReplay {
    agent: PastAgent,
    messages: Vec<Message>,
    /// The ids of the calls that were started.
    begun: BTreeSet<String>,
    /// The worst-case cost of the call in flight.
    in_flight: Money,
}

impl JournalView<'_> for AgentReplay {
    fn message(&mut self, entry: &MessageEntry) {
        let message = entry.message.clone();
        if let Some(reply) = self.messages.last_mut().filter(|_| entry.continues_reply()) {
            reply.content.extend(message.content);
        } else {
            self.agent.sums.turns += u32::from(message.role == Role::Assistant);
            self.messages.push(message);
        }
    }

    fn open(&mut self, open: &OpenRecord) {
        self.agent.model.clone_from(&open.model);
    }

    fn transition(&mut self, transition: &Transition) {
        self.in_flight = worst_case(self.in_flight, transition);
        self.agent.recovery.observe(transition, self.agent.sums.turns);
    }

    fn intent(&mut self, calls: &[ToolStarted]) {
        self.begun.extend(calls.iter().map(|call| call.id.clone()));
    }

    fn spend(&mut self, spend: &SpendRecord) {
        self.agent.sums.add_record(spend);
        self.in_flight = Money::ZERO;
    }

    fn end(&mut self, reason: StopReason, error: Option<&str>) {
        self.agent.ended = Some(reason);
        self.agent.error = error.map(str::to_owned);
        self.in_flight = Money::ZERO;
    }
}

/// Adds the spending of sub-agents that were started by process number `since` or later.
pub(super) fn add_spending(agents: &[PastAgent], sums: &mut SessionTotals, since: u64) {
    for agent in agents.iter().filter(|agent| agent.meta.epoch >= since) {
        sums.add_subagent(&agent.sums);
    }
}

/// Describes to the model a call whose outcome is unknown, with the sub-agents that it started and
/// their descendants.
pub(super) fn describe_call(agents: &[PastAgent], call: &str, mut text: String) -> String {
    let first = agents
        .iter()
        .filter(|agent| agent.meta.tool_use_id == call && agent.meta.parent_agent_id.is_none());
    let mut kin: Vec<&PastAgent> = first.collect();
    let mut next = 0;
    while let Some(&above) = kin.get(next) {
        let id = Some(&above.meta.agent_id);
        kin.extend(agents.iter().filter(|agent| agent.meta.parent_agent_id.as_ref() == id));
        next += 1;
    }
    for agent in kin {
        if text.len() > DESCRIPTION_MAX {
            text.push_str("\nIt had more sub-agents; see their journals.");
            break;
        }
        text.push('\n');
        text.push_str(&agent.describe());
    }
    text
}

impl PastAgent {
    /// Describes a sub-agent whose report the model never received.
    pub fn describe(&self) -> String {
        let (id, kind) = (&self.meta.agent_id, &self.meta.agent_type);
        let mut text = match self.ended.map(StopReason::name) {
            None => format!("The agent {id} ({kind}) was lost with its process."),
            Some(reason) => format!("The agent {id} ({kind}) had ended before that: {reason}."),
        };
        if self.finished.is_empty() {
            text.push_str(" As far as is known it had finished nothing.");
        } else {
            text.push_str(" As far as is known it had finished:\n- ");
            text.push_str(&self.finished.join("\n- "));
        }
        for call in &self.unknown {
            let _ = write!(text, "\n- {call} was running when it ended: outcome unknown");
        }
        if !self.text.trim().is_empty() {
            let words: String = self.text.trim().chars().take(FINAL_TEXT_MAX).collect();
            text.push_str("\nIts final text:\n");
            text.push_str(&words);
        }
        text
    }
}
