//! The journals of sub-agents: a file each, beside the session's, and the truth of what they did
//! and spent.
//!
//! ```text
//! <session id>.jsonl
//! <session id>/subagents/agent-a1.jsonl      as the session's, each message marked as aside
//! <session id>/subagents/agent-a1.meta.json  whose it is, and which process started it
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::recovery::{Limits, Money};
use crate::transcript::{Message, finished, last_text};

use super::Journal;
use super::entry::{Carry, Opening, Record};
use super::log::{Beginning, Sink};
use super::place::{entries, sync_folders};
use super::reader::{self, Entry};
use super::redact::Redaction;
use super::sums::{Sums, worst_case};
use super::writer::Writer;

/// Where a session keeps the journals of its sub-agents.
#[derive(Clone, Debug)]
pub struct Nest {
    folder: PathBuf,
    session: String,
    cwd: String,
    version: String,
    epoch: u64,
}

/// A sub-agent that begins.
#[derive(Clone, Debug)]
pub struct Newcomer<'a> {
    pub id: &'a str,
    /// The tool call that started it.
    pub call: &'a str,
    pub kind: &'a str,
    pub description: &'a str,
    /// The sub-agent that started it. `None`: the run itself.
    pub parent: Option<&'a str>,
    pub model: &'a str,
    pub limits: &'a Limits,
    /// Values that must never reach the disk.
    pub redact: Vec<String>,
}

/// Who a sub-agent is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    agent_id: String,
    tool_use_id: String,
    agent_type: String,
    description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_agent_id: Option<String>,
    /// Which process of the session started it, counted from 1.
    epoch: u64,
}

/// What is known of a sub-agent of an earlier process.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentTrace {
    pub(super) id: String,
    /// The tool call that started it.
    pub(super) call: String,
    pub(super) kind: String,
    pub(super) parent: Option<String>,
    pub(super) epoch: u64,
    /// What it spent, in its model's lines and in all.
    pub(super) sums: Sums,
    /// The tools that ran without an error, a line each.
    pub(super) finished: Vec<String>,
    /// What it said last.
    pub(super) text: String,
}

impl Nest {
    /// The highest number that a sub-agent of the session has.
    pub fn highest(&self) -> u32 {
        let number = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?.strip_prefix("agent-a")?;
            name.split('.').next()?.parse::<u32>().ok()
        };
        entries(&self.folder).iter().filter_map(number).max().unwrap_or(0)
    }
}

impl Journal {
    /// Where journals of sub-agents are kept; `None` where the session's own is not.
    pub fn nest(&self) -> Option<Nest> {
        let Sink::File(_) = &self.sink else { return None };
        Some(Nest {
            folder: folder_of(&self.path),
            session: self.session.clone(),
            cwd: self.cwd.clone(),
            version: self.version.clone(),
            epoch: self.epoch,
        })
    }

    /// Begins the journal of a sub-agent. One that cannot be written is lost, and says so.
    pub fn nested(nest: &Nest, newcomer: &Newcomer<'_>) -> Self {
        let path = nest.folder.join(format!("agent-{}.jsonl", newcomer.id));
        let file = match make(nest, newcomer, &path) {
            Ok(file) => file,
            Err(cause) => return Self::lost(format!("cannot write {}: {cause}", path.display())),
        };
        let mut journal = Self {
            sink: Sink::File(Writer::over(file, 0)),
            path,
            session: nest.session.clone(),
            cwd: nest.cwd.clone(),
            version: nest.version.clone(),
            redaction: Redaction::new(&newcomer.redact),
            aside: true,
            ..Self::off()
        };
        let opening = Opening {
            version: nest.version.clone(),
            model: newcomer.model.to_owned(),
            permission_mode: String::new(),
            limits: *newcomer.limits,
            carry: Carry::Fresh,
            required_servers: Vec::new(),
            redact: newcomer.redact.clone(),
        };
        journal.open(&opening, Beginning { epoch: 1, dropped: 0, forked_from: None });
        journal
    }
}

/// Who it is comes first: what it spends must be found again by whoever goes on.
fn make(nest: &Nest, newcomer: &Newcomer<'_>, path: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(&nest.folder)?;
    let meta = Meta {
        agent_id: newcomer.id.to_owned(),
        tool_use_id: newcomer.call.to_owned(),
        agent_type: newcomer.kind.to_owned(),
        description: newcomer.description.to_owned(),
        parent_agent_id: newcomer.parent.map(str::to_owned),
        epoch: nest.epoch,
    };
    let json = Redaction::new(&newcomer.redact).mask(serde_json::to_vec(&meta)?);
    let beside = path.with_extension("meta.json");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    file.write_all(&json)?;
    file.sync_data()?;
    let journal = Writer::create(path)?;
    sync_folders(&nest.folder)?;
    Ok(journal)
}

/// The folder of a session's sub-agents.
fn folder_of(journal: &Path) -> PathBuf {
    journal.with_extension("").join("subagents")
}

/// All sub-agents that the session of this journal had.
pub(super) fn traces(journal: &Path) -> Vec<AgentTrace> {
    let metas = entries(&folder_of(journal)).into_iter().filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|it| it.ends_with(".meta.json"))
    });
    let mut traces: Vec<AgentTrace> = metas.filter_map(|path| trace(&path)).collect();
    traces.sort_by_key(|trace| (trace.id.len(), trace.id.clone()));
    traces
}

/// What is known of one. A journal that is not there, or not whole, tells as far as it goes.
fn trace(meta: &Path) -> Option<AgentTrace> {
    let meta_bytes = fs::read(meta).ok()?;
    let Meta { agent_id, tool_use_id, agent_type, parent_agent_id, epoch, .. } =
        serde_json::from_slice(&meta_bytes).ok()?;
    let journal = meta.with_file_name(format!("agent-{agent_id}.jsonl"));
    let contents = fs::read(journal).ok().and_then(|bytes| reader::read(&bytes).ok());
    let (mut sums, mut messages) = (Sums::default(), Vec::<Message>::new());
    let mut in_flight = Money::ZERO;
    for entry in contents.into_iter().flat_map(|contents| contents.entries) {
        match entry {
            Entry::Said(said) => messages.push(said.message),
            Entry::Record(record) => match *record {
                Record::Spend { cost, usage, model, unsettled } => {
                    in_flight = Money::ZERO;
                    if unsettled {
                        sums.forfeit(cost);
                    } else {
                        sums.add(cost, usage, &model);
                    }
                }
                Record::Transition { transition } => {
                    in_flight = worst_case(in_flight, &transition);
                }
                Record::End { .. } => in_flight = Money::ZERO,
                Record::Open(_)
                | Record::Intent { .. }
                | Record::Repair { .. }
                | Record::Rewrite { .. }
                | Record::Recovery(_)
                | Record::Deeds { .. }
                | Record::Window { .. } => {}
            },
            Entry::Link { .. } | Entry::UnreadTransition | Entry::Other => {}
        }
    }
    sums.forfeit(in_flight);
    Some(AgentTrace {
        id: agent_id,
        call: tool_use_id,
        kind: agent_type,
        parent: parent_agent_id,
        epoch,
        sums,
        finished: finished(&messages),
        text: last_text(&messages).unwrap_or_default(),
    })
}

/// Adds what sub-agents spent that were started by the process of that number, or later.
pub(super) fn add_up(agents: &[AgentTrace], sums: &mut Sums, since: u64) {
    for agent in agents.iter().filter(|agent| agent.epoch >= since) {
        sums.absorb(&agent.sums);
    }
}

/// What is told of a call whose outcome is unknown, and of the sub-agents that it started.
pub(super) fn told(agents: &[AgentTrace], call: &str, mut text: String) -> String {
    for agent in agents.iter().filter(|agent| agent.call == call && agent.parent.is_none()) {
        text.push('\n');
        text.push_str(&agent.tell());
    }
    text
}

impl AgentTrace {
    /// What the model is told of one whose run was cut off.
    fn tell(&self) -> String {
        let mut text = format!("The agent {} ({}) was cut off with it.", self.id, self.kind);
        if self.finished.is_empty() {
            text.push_str(" As far as is known it had finished nothing.");
        } else {
            text.push_str(" As far as is known it had finished:");
            for line in &self.finished {
                text.push_str("\n- ");
                text.push_str(line);
            }
        }
        if !self.text.trim().is_empty() {
            let words: String = self.text.trim().chars().take(2_000).collect();
            text.push_str("\nIts last words:\n");
            text.push_str(&words);
        }
        text
    }
}
