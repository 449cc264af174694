//! The journals of sub-agents: one file for each, beside the session's journal. They hold what the
//! sub-agents did and spent.
//!
//! ```text
//! <session id>.jsonl
//! <session id>/subagents/agent-a1.jsonl      as the session's, each message marked as sidechain
//! <session id>/subagents/agent-a1.meta.json  its type and parent, and the process that started it
//! ```

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::recovery::{Limits, Money, StopReason};
use crate::transcript::{Message, Role, last_text, succeeded_calls, unanswered_calls};

use super::Journal;
use super::contract::Terms;
use super::entry::{CarryOver, JournalRecord, ProcessOpening};
use super::log::{JournalSink, JournalStart};
use super::reader::{self, JournalEntry};
use super::redact::Redaction;
use super::session_folder::{entries, sync_folders};
use super::totals::{SessionTotals, worst_case};
use super::writer::JournalWriter;

/// How much of an agent's final text is passed to the model, in characters.
const FINAL_TEXT_MAX: usize = 2_000;

/// The length of a note about sub-agents after which further agents are left out, in bytes.
const DESCRIPTION_MAX: usize = 20_000;

/// The location of a session's sub-agent journals.
#[derive(Clone, Debug)]
pub struct SubagentJournal {
    folder: PathBuf,
    session: String,
    cwd: String,
    version: String,
    epoch: u64,
}

/// The header of a new sub-agent journal.
#[derive(Clone, Debug)]
pub struct SubagentHeader<'a> {
    pub id: &'a str,
    /// The tool call that started it.
    pub call: &'a str,
    pub kind: &'a str,
    pub description: &'a str,
    /// The sub-agent that started it. `None`: the run itself.
    pub parent: Option<&'a str>,
    pub model: &'a str,
    pub background: bool,
    /// The sub-agent that it retries.
    pub retries: Option<&'a str>,
    pub limits: &'a Limits,
    /// Values that must never reach the disk.
    pub redact: Vec<String>,
}

/// The metadata file of a sub-agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubagentMeta {
    agent_id: String,
    tool_use_id: String,
    agent_type: String,
    description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_agent_id: Option<String>,
    #[serde(default)]
    background: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retries: Option<String>,
    /// The number of the process that started it, counted from 1 within the session.
    epoch: u64,
}

/// A sub-agent of an earlier process, as read from its journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastAgent {
    pub id: String,
    /// The tool call that started it.
    pub call: String,
    pub kind: String,
    pub description: String,
    /// The sub-agent that started it. `None`: the run itself.
    pub parent: Option<String>,
    pub background: bool,
    /// The sub-agent that it retried.
    pub retries: Option<String>,
    pub model: String,
    pub(super) epoch: u64,
    /// What it used and spent.
    pub sums: SessionTotals,
    pub tool_calls: u32,
    /// Why it ended. `None`: its process ended without recording it.
    pub ended: Option<StopReason>,
    /// The tools that ran without an error, a line each.
    finished: Vec<String>,
    /// The tools that were started without a recorded outcome.
    unknown: Vec<String>,
    /// Its final text.
    text: String,
}

impl SubagentJournal {
    /// The highest sub-agent number of the session.
    pub fn highest_number(&self) -> u32 {
        let number = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?.strip_prefix("agent-a")?;
            name.split('.').next()?.parse::<u32>().ok()
        };
        entries(&self.folder).iter().filter_map(number).max().unwrap_or(0)
    }
}

impl Journal {
    /// Returns the location of sub-agent journals; `None` if the session has no journal.
    pub fn subagent_journals(&self) -> Option<SubagentJournal> {
        let JournalSink::File(_) = &self.sink else { return None };
        Some(SubagentJournal {
            folder: folder_of(&self.path),
            session: self.session.clone(),
            cwd: self.cwd.clone(),
            version: self.version.clone(),
            epoch: self.epoch,
        })
    }

    /// Starts the journal of a sub-agent. If it cannot be written, the journal reports itself lost.
    pub fn create_subagent(nest: &SubagentJournal, newcomer: &SubagentHeader<'_>) -> Self {
        let path = nest.folder.join(format!("agent-{}.jsonl", newcomer.id));
        let file = match create_files(nest, newcomer, &path) {
            Ok(file) => file,
            Err(cause) => {
                return Self::unwritable(format!("cannot write {}: {cause}", path.display()));
            }
        };
        let mut journal = Self {
            sink: JournalSink::File(JournalWriter::new(file, 0)),
            path,
            session: nest.session.clone(),
            cwd: nest.cwd.clone(),
            version: nest.version.clone(),
            redaction: Redaction::new(&newcomer.redact),
            is_sidechain: true,
            ..Self::disabled()
        };
        let opening = ProcessOpening {
            version: nest.version.clone(),
            model: newcomer.model.to_owned(),
            permission_mode: String::new(),
            limits: *newcomer.limits,
            carry: CarryOver::Fresh,
            required_servers: Vec::new(),
            contract: None,
            prompt: None,
            redact: newcomer.redact.clone(),
        };
        journal.open(
            &opening,
            &Terms::default(),
            JournalStart { epoch: 1, ..JournalStart::default() },
        );
        journal
    }
}

/// Writes the metadata first: a resume must be able to find the sub-agent's spending.
fn create_files(
    nest: &SubagentJournal,
    newcomer: &SubagentHeader<'_>,
    path: &Path,
) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(&nest.folder)?;
    let meta = SubagentMeta {
        agent_id: newcomer.id.to_owned(),
        tool_use_id: newcomer.call.to_owned(),
        agent_type: newcomer.kind.to_owned(),
        description: newcomer.description.to_owned(),
        parent_agent_id: newcomer.parent.map(str::to_owned),
        background: newcomer.background,
        retries: newcomer.retries.map(str::to_owned),
        epoch: nest.epoch,
    };
    let json = Redaction::new(&newcomer.redact).mask(serde_json::to_vec(&meta)?);
    let beside = path.with_extension("meta.json");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    file.write_all(&json)?;
    file.sync_data()?;
    let journal = JournalWriter::create(path)?;
    sync_folders(&nest.folder)?;
    Ok(journal)
}

/// The folder of a session's sub-agents.
fn folder_of(journal: &Path) -> PathBuf {
    journal.with_extension("").join("subagents")
}

/// Reads all sub-agents of the session of this journal.
pub(super) fn read_subagents(journal: &Path) -> Vec<PastAgent> {
    let metas = entries(&folder_of(journal)).into_iter().filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.ends_with(".meta.json"))
    });
    let mut traces: Vec<PastAgent> = metas.filter_map(|path| read_subagent(&path)).collect();
    traces.sort_by_key(|trace| (trace.id.len(), trace.id.clone()));
    traces
}

/// Reads one sub-agent. A missing or damaged journal yields what can be read.
fn read_subagent(meta: &Path) -> Option<PastAgent> {
    let meta_bytes = fs::read(meta).ok()?;
    let known: SubagentMeta = serde_json::from_slice(&meta_bytes).ok()?;
    let journal = meta.with_file_name(format!("agent-{}.jsonl", known.agent_id));
    let contents = fs::read(journal).ok().and_then(|bytes| reader::parse_journal(&bytes).ok());
    let mut agent = PastAgent {
        id: known.agent_id,
        call: known.tool_use_id,
        kind: known.agent_type,
        description: known.description,
        parent: known.parent_agent_id,
        background: known.background,
        retries: known.retries,
        epoch: known.epoch,
        ..PastAgent::default()
    };
    let (mut messages, mut begun) = (Vec::<Message>::new(), BTreeSet::new());
    let mut in_flight = Money::ZERO;
    for entry in contents.into_iter().flat_map(|contents| contents.entries) {
        match entry {
            JournalEntry::Message(said) => {
                if let Some(reply) = messages.last_mut().filter(|_| said.continues_reply()) {
                    reply.content.extend(said.message.content);
                } else {
                    agent.sums.turns += u32::from(said.message.role == Role::Assistant);
                    messages.push(said.message);
                }
            }
            JournalEntry::Record(record) => {
                if let JournalRecord::Intent { calls } = record.as_ref() {
                    begun.extend(calls.iter().map(|call| call.id.clone()));
                }
                in_flight = agent.apply(*record, in_flight);
            }
            JournalEntry::Link { .. } | JournalEntry::UnreadTransition | JournalEntry::Other => {}
        }
    }
    let model = agent.model.clone();
    agent.sums.add_in_flight(in_flight, &model);
    agent.tool_calls = u32::try_from(begun.len()).unwrap_or(u32::MAX);
    agent.finished = succeeded_calls(&messages);
    agent.unknown = unanswered_calls(&messages, &begun);
    agent.text = last_text(&messages).unwrap_or_default();
    Some(agent)
}

/// Adds the spending of sub-agents that were started by process number `since` or later.
pub(super) fn add_spending(agents: &[PastAgent], sums: &mut SessionTotals, since: u64) {
    for agent in agents.iter().filter(|agent| agent.epoch >= since) {
        sums.add_subagent(&agent.sums);
    }
}

/// Describes to the model a call whose outcome is unknown, with the sub-agents that it started and
/// their descendants.
pub(super) fn describe_call(agents: &[PastAgent], call: &str, mut text: String) -> String {
    let first = agents.iter().filter(|agent| agent.call == call && agent.parent.is_none());
    let mut kin: Vec<&PastAgent> = first.collect();
    let mut next = 0;
    while let Some(above) = kin.get(next) {
        let id = above.id.clone();
        kin.extend(agents.iter().filter(|agent| agent.parent.as_ref() == Some(&id)));
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
    /// Applies a record. Takes and returns the worst-case cost of the call in flight.
    fn apply(&mut self, record: JournalRecord, in_flight: Money) -> Money {
        match record {
            JournalRecord::Spend { cost, usage, model, unsettled: true } => {
                self.sums.add_upper_bound(cost, usage, &model);
            }
            JournalRecord::Spend { cost, usage, model, .. } => self.sums.add(cost, usage, &model),
            JournalRecord::Transition { transition } => return worst_case(in_flight, &transition),
            JournalRecord::End { reason } => self.ended = Some(reason),
            JournalRecord::Open(open) => {
                self.model = open.model;
                return in_flight;
            }
            JournalRecord::Contract(_)
            | JournalRecord::Prompt(_)
            | JournalRecord::Intent { .. }
            | JournalRecord::Repair { .. }
            | JournalRecord::Rewrite { .. }
            | JournalRecord::Recovery(_)
            | JournalRecord::ToolCalls { .. }
            | JournalRecord::Window { .. } => return in_flight,
        }
        Money::ZERO
    }

    /// Describes a sub-agent whose report the model never received.
    pub fn describe(&self) -> String {
        let (id, kind) = (&self.id, &self.kind);
        let mut text = match self.ended {
            None => {
                format!("The agent {id} ({kind}) was lost with its process.")
            }
            Some(reason) => {
                let reason = reason.name();
                format!("The agent {id} ({kind}) had ended before that: {reason}.")
            }
        };
        if self.finished.is_empty() {
            text.push_str(" As far as is known it had finished nothing.");
        } else {
            text.push_str(" As far as is known it had finished:\n- ");
            text.push_str(&self.finished.join("\n- "));
        }
        for call in &self.unknown {
            text.push_str("\n- ");
            text.push_str(call);
            text.push_str(" was running when it ended: outcome unknown");
        }
        if !self.text.trim().is_empty() {
            let words: String = self.text.trim().chars().take(FINAL_TEXT_MAX).collect();
            text.push_str("\nIts final text:\n");
            text.push_str(&words);
        }
        text
    }
}
