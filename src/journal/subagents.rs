//! The journals of sub-agents: one file for each, beside the session's journal. They record the
//! work and the spending of the sub-agents.
//!
//! ```text
//! <session id>.jsonl
//! <session id>/subagents/agent-a1.jsonl      like the session's, each message marked as sidechain
//! <session id>/subagents/agent-a1.meta.json  its type and parent, and the process that started it
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::process::create_private_folder;
use crate::recovery::Limits;
use crate::secrets::KnownSecrets;

use super::Journal;
use super::entry::ProcessOpening;
use super::lease::LeaseFence;
use super::log::{JournalStart, LineOrigin};
use super::mirror::JournalMirror;
use super::output::JournalOutput;
use super::past_agents::{SubagentMeta, folder_of};
use super::redact::Redaction;
use super::session_folder::{entries, sync_folders};
use super::sink::{JournalHealth, JournalSink};
use super::terms::Terms;
use super::writer::JournalWriter;

/// The location of a session's sub-agent journals.
#[derive(Clone, Debug)]
pub struct SubagentJournal {
    folder: PathBuf,
    origin: LineOrigin,
    epoch: u64,
    mirror: Option<JournalMirror>,
    /// The lease of the session.
    fence: Option<Arc<LeaseFence>>,
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
    pub secrets: KnownSecrets,
}

impl SubagentJournal {
    /// Returns the path of the journal of a sub-agent.
    pub fn file(&self, id: &str) -> PathBuf {
        self.folder.join(format!("agent-{id}.jsonl"))
    }

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
        if self.health() != JournalHealth::Durable {
            return None;
        }
        Some(SubagentJournal {
            folder: folder_of(&self.path),
            origin: LineOrigin { is_sidechain: true, ..self.origin.clone() },
            epoch: self.epoch,
            mirror: self.mirror.clone(),
            fence: self.output.fence().cloned(),
        })
    }

    /// Starts the journal of a sub-agent. If it cannot be written, the journal reports itself lost.
    pub fn create_subagent(location: &SubagentJournal, header: &SubagentHeader<'_>) -> Self {
        let path = location.file(header.id);
        let file = match create_files(location, header, &path) {
            Ok(file) => file,
            Err(cause) => {
                return Self::unwritable(format!("cannot write {}: {cause}", path.display()));
            }
        };
        let writer = JournalWriter::new(file, 0).with_fence(location.fence.clone());
        let mut journal = Self {
            output: JournalOutput::Direct(JournalSink::File(writer)),
            path,
            origin: location.origin.clone(),
            redaction: Redaction::new(header.secrets.clone()),
            mirror: location.mirror.clone(),
            ..Self::disabled()
        };
        let opening = ProcessOpening {
            version: location.origin.version.clone(),
            model: header.model.to_owned(),
            limits: *header.limits,
            secrets: header.secrets.clone(),
            ..ProcessOpening::default()
        };
        journal.open(&opening, &Terms::default(), JournalStart::new(1));
        journal
    }

    /// Removes the files of a journal that came too late for its sub-agent.
    pub fn discard_subagent(self) {
        // Files that stay are those of a sub-agent without requests.
        let _stays = fs::remove_file(&self.path);
        let _stays = fs::remove_file(self.path.with_extension("meta.json"));
    }
}

/// Writes the metadata first: a resume must be able to find the sub-agent's spending.
fn create_files(
    location: &SubagentJournal,
    header: &SubagentHeader<'_>,
    path: &Path,
) -> io::Result<File> {
    create_private_folder(&location.folder)?;
    let meta = SubagentMeta {
        agent_id: header.id.to_owned(),
        tool_use_id: header.call.to_owned(),
        agent_type: header.kind.to_owned(),
        description: header.description.to_owned(),
        parent_agent_id: header.parent.map(str::to_owned),
        background: header.background,
        retries: header.retries.map(str::to_owned),
        epoch: location.epoch,
    };
    let json = Redaction::new(header.secrets.clone()).mask(serde_json::to_vec(&meta)?);
    let beside = path.with_extension("meta.json");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    file.write_all(&json)?;
    file.sync_data()?;
    let journal = JournalWriter::create(path)?;
    sync_folders(&location.folder)?;
    if let Some(mirror) = &location.mirror {
        mirror.copy_metadata(path, &json);
    }
    Ok(journal)
}
