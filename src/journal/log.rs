//! The journal of a run, as the run sees it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use uuid::Uuid;

use crate::recovery::{Deed, Episode, Money, StopReason, Transition};
use crate::transcript::{Block, Message, Repair, Role, ToolCall, Usage};

use super::contract::Terms;
use super::damage::Damage;
use super::entry::{
    MessageLine, Meta, OUR_TYPE, Open, Opening, Record, RecordLine, Started, VERSION, WireMessage,
    seal,
};
use super::place::{host_name, sync_folders};
use super::redact::Redaction;
use super::restore::Restored;
use super::writer::{Sync, Writer};
use super::{JournalError, Place, SessionId, resume};

/// Where a run writes itself down. No method fails, panics or waits for anything but the disk:
/// after the first failure the journal is [`Health::Lost`] and everything else is a no-op.
#[derive(Debug)]
pub struct Journal {
    pub(super) sink: Sink,
    pub(super) path: PathBuf,
    pub(super) session: String,
    pub(super) cwd: String,
    pub(super) version: String,
    pub(super) redaction: Redaction,
    /// The number of the last line.
    pub(super) seq: u64,
    /// The last message.
    pub(super) leaf: Option<String>,
    /// Results of the last reply's calls that are written already, by the call's id.
    pub(super) answered: HashMap<String, Uuid>,
    /// How many processes have written to the session, this one included.
    pub(super) epoch: u64,
    /// Whether it is a sub-agent's.
    pub(super) aside: bool,
}

/// How a journal fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Durable,
    /// Nobody asked for one.
    Off,
    /// It could not be written, and why.
    Lost(String),
}

#[derive(Debug)]
pub(super) enum Sink {
    File(Writer),
    Off,
    Lost {
        why: String,
        /// Kept for its lock: the run goes on, so nobody else may take the session.
        _locked: Option<Writer>,
    },
}

impl Journal {
    /// A journal that keeps nothing, because nobody asked for it.
    pub fn off() -> Self {
        Self::without(Sink::Off)
    }

    /// A journal that keeps nothing, because it could not.
    pub fn lost(why: impl Into<String>) -> Self {
        Self::without(Sink::Lost { why: why.into(), _locked: None })
    }

    fn without(sink: Sink) -> Self {
        Self {
            sink,
            path: PathBuf::new(),
            session: String::new(),
            cwd: String::new(),
            version: String::new(),
            redaction: Redaction::default(),
            seq: 0,
            leaf: None,
            answered: HashMap::new(),
            epoch: 0,
            aside: false,
        }
    }

    /// Begins a session.
    ///
    /// # Errors
    /// [`JournalError::Unwritable`], with which a run may go on; [`JournalError::Exists`] and
    /// [`JournalError::Locked`], with which it must not.
    pub fn create(place: &Place, id: &SessionId, opening: &Opening) -> Result<Self, JournalError> {
        let mut journal = Self::begin(place, id, opening)?;
        journal.open(opening, &Terms::default(), Beginning { epoch: 1, ..Beginning::default() });
        journal.or_nothing()
    }

    /// Begins a session that goes on from `source`, which stays as it is. Its messages are
    /// copied; what it spent is not.
    ///
    /// # Errors
    /// As for [`Journal::create`].
    pub fn fork(
        place: &Place,
        id: &SessionId,
        opening: &Opening,
        source: &Restored,
    ) -> Result<Self, JournalError> {
        let mut journal = Self::begin(place, id, opening)?;
        let forked_from = Some(source.id.to_string());
        // All thinking that was restored is by the model that answered last.
        let meta = Meta { model: source.answered_by.as_deref(), ..Meta::default() };
        for message in &source.messages {
            journal.write_parts(message, &fresh(message.parts()), &meta, Sync::Later);
        }
        let beginning = Beginning { epoch: 1, forked_from, ..Beginning::default() };
        let prompt = source.terms.prompt.clone().or_else(|| opening.prompt.clone());
        let opening = Opening { prompt, ..opening.clone() };
        journal.open(&opening, &Terms::default(), beginning);
        journal.or_nothing()
    }

    fn begin(place: &Place, id: &SessionId, opening: &Opening) -> Result<Self, JournalError> {
        let path = place.file(id);
        let unwritable = |cause| JournalError::Unwritable { path: path.clone(), cause };
        let folder = place.folder();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(unwritable)?;
        let file = Writer::create(&path).map_err(|cause| {
            if cause.kind() == io::ErrorKind::AlreadyExists {
                JournalError::Exists { id: id.clone(), path: path.clone() }
            } else {
                unwritable(cause)
            }
        })?;
        match resume::lock(&file) {
            Err(TryLockError::WouldBlock) => return Err(resume::locked(id, &path)),
            // Where there are no locks, the writer still notices who takes the session over.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let writer = Writer::over(file, 0);
        let journal = Self { path: path.clone(), ..Self::over(writer, place, id, opening) };
        sync_folders(&folder).map_err(unwritable)?;
        Ok(journal)
    }

    /// Writes on after whatever `writer` holds.
    pub(super) fn over(writer: Writer, place: &Place, id: &SessionId, opening: &Opening) -> Self {
        Self {
            sink: Sink::File(writer),
            session: id.to_string(),
            cwd: place.cwd().to_string_lossy().into_owned(),
            version: opening.version.clone(),
            redaction: Redaction::new(&opening.redact),
            ..Self::off()
        }
    }

    /// Takes the place of the process that wrote up to the line `seq` and the message `leaf`.
    pub(super) fn following(self, path: PathBuf, seq: u64, leaf: Option<String>) -> Self {
        Self { path, seq, leaf, ..self }
    }

    /// From now on these values never reach the disk, in place of those of the opening.
    pub fn redact(&mut self, secrets: &[String]) {
        self.redaction = Redaction::new(secrets);
    }

    /// Leaves no file behind when not even the first line could be written.
    fn or_nothing(self) -> Result<Self, JournalError> {
        let Sink::Lost { why, .. } = &self.sink else { return Ok(self) };
        let cause = io::Error::other(why.clone());
        // It is as good as empty; if it stays, no one is worse off.
        let _stays = fs::remove_file(&self.path);
        Err(JournalError::Unwritable { path: self.path, cause })
    }

    /// Whether what was appended is there, or why not.
    pub fn health(&self) -> Health {
        match &self.sink {
            Sink::File(_) => Health::Durable,
            Sink::Off => Health::Off,
            Sink::Lost { why, .. } => Health::Lost(why.clone()),
        }
    }

    /// The session's file; empty when there is none.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a message that was added to the history, or blocks that were added to its last
    /// message: the reader joins messages of the same role. Results that [`Journal::outcome`]
    /// has written are left out. Returns the ids of the message's parts: a line has one each.
    ///
    /// A reply with tool calls is on the disk with their intents; everything else at once.
    pub fn message(&mut self, message: &Message, meta: &Meta<'_>) -> Vec<Uuid> {
        if message.role == Role::Assistant {
            self.answered.clear();
        }
        let parts = message.parts();
        let written: Vec<Option<Uuid>> = parts.iter().map(|part| self.id_of(part)).collect();
        let given = |index: usize| meta.ids.get(index).copied().unwrap_or_else(Uuid::new_v4);
        let ids: Vec<Uuid> = written
            .iter()
            .enumerate()
            .map(|(index, written)| written.unwrap_or_else(|| given(index)))
            .collect();
        let left: Vec<(Uuid, &[Block])> = std::iter::zip(&ids, parts)
            .zip(&written)
            .filter(|(_, written)| written.is_none())
            .map(|((id, part), _)| (*id, part))
            .collect();
        let calls = message.content.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        self.write_parts(message, &left, meta, if calls { Sync::Later } else { Sync::Now });
        ids
    }

    /// The id of a part that is written already.
    fn id_of(&self, part: &[Block]) -> Option<Uuid> {
        let [Block::ToolResult { tool_use_id, .. }] = part else { return None };
        self.answered.get(tool_use_id).copied()
    }

    /// Appends what came of a tool call, before anyone acts upon it: its result block, and what
    /// programs see of it.
    pub fn outcome(&mut self, result: &Block, detail: &serde_json::Value) -> Uuid {
        let id = Uuid::new_v4();
        if let Block::ToolResult { tool_use_id, .. } = result {
            self.answered.insert(tool_use_id.clone(), id);
        }
        let detail = (!detail.is_null()).then_some(detail);
        let message = Message::user(vec![result.clone()]);
        let meta = Meta { detail, ..Meta::default() };
        self.write_parts(&message, &[(id, &message.content)], &meta, Sync::Now);
        id
    }

    /// Appends the intent to run tools, and of each whether its input is another than was asked
    /// for. Only after it returned may they start.
    pub fn intent(&mut self, calls: &[(ToolCall, bool)]) {
        let calls = calls.iter().map(Started::of).collect();
        self.record(&Record::Intent { calls }, Sync::Now);
    }

    /// Appends a step of the machine.
    pub fn transition(&mut self, transition: &Transition) {
        self.record(&Record::Transition { transition: *transition }, Sync::Later);
    }

    /// Appends what a call cost. Belongs before the reply that it bought.
    /// `None` when no price is known.
    pub fn spend(&mut self, cost: Option<Money>, usage: &Usage, model: &str) {
        let (usage, model) = (*usage, model.to_owned());
        self.record(&Record::Spend { cost, usage, model, unsettled: false }, Sync::Later);
    }

    /// Appends a record of spending once more, because the line that had it was cut off.
    pub(super) fn spend_again(&mut self, spend: &Record) {
        self.record(spend, Sync::Later);
    }

    /// Appends how the session was started once more, because lines that had it were cut off.
    pub(super) fn terms_again(&mut self, terms: &Terms) {
        if let Some(kept) = &terms.contract {
            for contract in [&kept.original, &kept.latest] {
                self.record(&Record::Contract(Box::new(contract.clone())), Sync::Later);
            }
        }
        if let Some(prompt) = &terms.prompt {
            self.record(&Record::Prompt(prompt.clone()), Sync::Later);
        }
    }

    /// Appends the most that a call can have cost whose bill only the service knows.
    pub fn forfeit(&mut self, cost: Option<Money>, usage: &Usage, model: &str) {
        let (usage, model) = (*usage, model.to_owned());
        self.record(&Record::Spend { cost, usage, model, unsettled: true }, Sync::Later);
    }

    /// Appends what had to be mended before a send.
    pub fn repairs(&mut self, repairs: &[Repair]) {
        if !repairs.is_empty() {
            self.record(&Record::Repair { repairs: repairs.to_vec() }, Sync::Later);
        }
    }

    /// Appends the whole conversation, because what was said before was changed: summed up, cut
    /// or healed. Blocks that a later message adds to the last one are told apart by coming later.
    pub fn rewrite(&mut self, messages: &[Message]) {
        let (after, messages) = (self.leaf.clone(), messages.to_vec());
        self.record(&Record::Rewrite { after, messages }, Sync::Now);
    }

    /// Appends recoveries that are over.
    pub fn recoveries(&mut self, ended: &[Episode]) {
        for episode in ended {
            self.record(&Record::Recovery(Box::new(episode.clone())), Sync::Later);
        }
    }

    /// Appends what the tools of a reply did, for the loop detector of the next process.
    pub fn deeds(&mut self, deeds: &[Deed]) {
        if !deeds.is_empty() {
            self.record(&Record::Deeds { deeds: deeds.to_vec() }, Sync::Later);
        }
    }

    /// Appends how large a model's context window turned out to be, in tokens.
    pub fn window(&mut self, model: &str, tokens: u64) {
        self.record(&Record::Window { model: model.to_owned(), tokens }, Sync::Later);
    }

    /// Appends that the prompt is done, and how it ended.
    pub fn end(&mut self, reason: StopReason) {
        self.record(&Record::End { reason }, Sync::Now);
    }

    /// Says who writes from here on, and under which contract unless `known` has it already.
    pub(super) fn open(&mut self, opening: &Opening, known: &Terms, beginning: Beginning) {
        let Beginning { epoch, dropped, damage, forked_from } = beginning;
        self.epoch = epoch;
        let open = Open {
            epoch,
            pid: std::process::id(),
            host: host_name(),
            since: timestamp(),
            cwd: self.cwd.clone(),
            version: opening.version.clone(),
            model: opening.model.clone(),
            permission_mode: opening.permission_mode.clone(),
            limits: opening.limits,
            carry: opening.carry,
            dropped,
            damage,
            forked_from,
            required_servers: opening.required_servers.clone(),
        };
        self.record(&Record::Open(Box::new(open)), Sync::Now);
        let contract = opening.contract.as_ref().map(|own| own.redacted_by(&self.redaction));
        let latest = known.contract.as_ref().map(|kept| &kept.latest);
        if let Some(contract) = contract.filter(|own| Some(own) != latest) {
            self.record(&Record::Contract(Box::new(contract)), Sync::Now);
        }
        if let Some(prompt) = opening.prompt.as_ref().filter(|_| known.prompt.is_none()) {
            self.record(&Record::Prompt(prompt.clone()), Sync::Now);
        }
    }

    /// Ends a last line that was cut off right before its end.
    pub(super) fn end_line(&mut self) {
        self.append(b"\n", Sync::Later);
    }

    /// Gives up writing.
    pub(super) fn lose(&mut self, cause: &io::Error) {
        let why = format!("cannot write {}: {cause}", self.path.display());
        let sink = std::mem::replace(&mut self.sink, Sink::Off);
        let locked = if let Sink::File(writer) = sink { Some(writer) } else { None };
        self.sink = Sink::Lost { why, _locked: locked };
    }

    /// Writes the parts of a message, a line each and all at once.
    fn write_parts(
        &mut self,
        message: &Message,
        parts: &[(Uuid, &[Block])],
        meta: &Meta<'_>,
        sync: Sync,
    ) {
        let is_group = message.role == Role::Assistant && parts.len() > 1;
        let mut lines = Vec::new();
        for (index, (id, content)) in parts.iter().enumerate() {
            let uuid = id.to_string();
            let line = MessageLine {
                parent_uuid: self.leaf.as_deref(),
                is_sidechain: self.aside,
                user_type: "external",
                cwd: &self.cwd,
                session_id: &self.session,
                version: &self.version,
                kind: message.role,
                message: WireMessage::new(message, content, meta),
                tool_use_result: meta.detail,
                request_id: meta.request_id,
                uuid: &uuid,
                timestamp: &timestamp(),
                part: is_group.then_some((index + 1, parts.len())),
                seq: self.seq + 1,
            };
            match serde_json::to_vec(&line) {
                Ok(json) => lines.extend(seal(self.redaction.mask(json))),
                Err(error) => self.lose(&error.into()),
            }
            self.seq += 1;
            self.leaf = Some(uuid);
        }
        if !lines.is_empty() {
            self.append(&lines, sync);
        }
    }

    fn record(&mut self, record: &Record, sync: Sync) {
        let timestamp = timestamp();
        let (seq, timestamp) = (self.seq + 1, timestamp.as_str());
        let line = RecordLine { kind: OUR_TYPE, v: VERSION, seq, timestamp, record };
        self.put(serde_json::to_vec(&line), sync);
    }

    fn put(&mut self, json: serde_json::Result<Vec<u8>>, sync: Sync) {
        match json {
            Ok(json) => self.append(&seal(self.redaction.mask(json)), sync),
            Err(error) => self.lose(&error.into()),
        }
        self.seq += 1;
    }

    fn append(&mut self, line: &[u8], sync: Sync) {
        let Sink::File(writer) = &mut self.sink else { return };
        if let Err(cause) = writer.append(line, sync) {
            self.lose(&cause);
        }
    }
}

/// How a process comes to write to a session.
#[derive(Default)]
pub(super) struct Beginning {
    pub(super) epoch: u64,
    pub(super) dropped: u32,
    pub(super) damage: Option<Damage>,
    pub(super) forked_from: Option<String>,
}

/// Parts with new ids.
fn fresh(parts: Vec<&[Block]>) -> Vec<(Uuid, &[Block])> {
    parts.into_iter().map(|part| (Uuid::new_v4(), part)).collect()
}

fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
