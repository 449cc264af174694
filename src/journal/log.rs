//! The journal of a run, as used by the agent loop.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use uuid::Uuid;

use crate::process::create_private_folder;
use crate::recovery::{Interrupt, Money, RecoveryRecord, RefusedField, StopReason, ToolCallRecord};
use crate::transcript::{Block, HistoryRepair, Message, Role, ToolCall, Usage};
use crate::types::ReadFile;

use super::ended_calls::UndoneCalls;
use super::entry::{
    Attachment, AttachmentLine, BackgroundChanges, CarryOver, ContentForm, Damage, FailedCheck,
    JournalRecord, MessageLine, MessageMeta, OUR_TYPE, OpenRecord, ProcessOpening, RecordLine,
    SpendRecord, TITLE_TYPE, TitleLine, ToolStarted, VERSION, WireMessage,
};
use super::lease::{LeaseRequest, SessionLease};
use super::lock::lock_session;
use super::mirror::JournalMirror;
use super::output::JournalOutput;
use super::past_background::PastBackground;
use super::prompt_fold::PromptFold;
use super::recorded_prompt::{RecordedPrompt, STRUCTURED};
use super::redact::Redaction;
use super::restore::RestoredSession;
use super::session_folder::{host_name, obstacle, sync_folders};
use super::sink::{JournalHealth, JournalSink};
use super::step_lines::StepLines;
use super::terms::Terms;
use super::writer::{JournalWriter, Sync};
use super::{JournalError, SessionFolder, SessionId};

/// The values that all lines of messages in a journal share.
#[derive(Clone, Debug, Default)]
pub(super) struct LineOrigin {
    pub(super) session: String,
    pub(super) cwd: String,
    pub(super) version: String,
    /// True for the journal of a sub-agent.
    pub(super) is_sidechain: bool,
}

/// Writes a run's journal. No method fails or panics: after a failure the journal is
/// [`JournalHealth::Lost`], until the missing lines can be written. An append waits for the disk
/// until [`Journal::start_thread`]; after it, only [`Journal::flush`] and [`Journal::close`] wait.
#[derive(Debug, Default)]
pub struct Journal {
    pub(super) output: JournalOutput,
    pub(super) path: PathBuf,
    pub(super) origin: LineOrigin,
    pub(super) redaction: Redaction,
    /// The number of the last line.
    pub(super) seq: u64,
    /// The id of the last message.
    pub(super) leaf: Option<String>,
    /// The ids of the messages of earlier processes.
    pub(super) earlier_ids: HashSet<String>,
    /// Tool results of the last reply that are already written, by tool call id.
    pub(super) answered: HashMap<String, Uuid>,
    /// Rises with each process that writes to the session.
    pub(super) epoch: u64,
    pub(super) mirror: Option<JournalMirror>,
    /// The state of the prompt: a reader folds the same lines to the same state.
    pub(super) fold: PromptFold,
    /// The lines of the step that is being written.
    pub(super) step: Option<StepLines>,
}

impl Journal {
    /// A disabled journal.
    pub fn disabled() -> Self {
        Self::with_sink(JournalSink::Off)
    }

    /// A disabled journal that continues a prompt from its recorded state.
    pub fn without_file(recorded: RecordedPrompt, opening: &ProcessOpening) -> Self {
        let mut journal = Self { fold: PromptFold::of(recorded), ..Self::disabled() };
        journal.open(opening, &Terms::default(), JournalStart::new(1));
        journal
    }

    /// A journal that could not be written.
    pub fn unwritable(why: impl Into<String>) -> Self {
        Self::with_sink(JournalSink::Lost { why: why.into(), writer: None, retry: None })
    }

    fn with_sink(sink: JournalSink) -> Self {
        Self { output: JournalOutput::Direct(sink), ..Self::default() }
    }

    /// Creates a session.
    ///
    /// # Errors
    /// [`JournalError::Unwritable`], after which a run may continue without a journal;
    /// [`JournalError::Exists`] and [`JournalError::Locked`], after which it must not.
    pub fn create(
        sessions: &SessionFolder,
        id: &SessionId,
        opening: &ProcessOpening,
    ) -> Result<Self, JournalError> {
        let mut journal = Self::begin(sessions, id, opening)?;
        journal.open(opening, &Terms::default(), JournalStart::new(1));
        journal.sync_or_remove()
    }

    /// Creates a session that continues `source`, which stays unchanged. Copies the messages and,
    /// if the prompt continues, its recorded state; the spending is not copied.
    ///
    /// # Errors
    /// Those of [`Journal::create`].
    pub fn fork(
        sessions: &SessionFolder,
        id: &SessionId,
        opening: &ProcessOpening,
        (source_id, source): (&SessionId, &RestoredSession),
    ) -> Result<Self, JournalError> {
        let mut journal = Self::begin(sessions, id, opening)?;
        let RestoredSession { conversation, contract, work, .. } = source;
        let forked_from = Some(source_id.to_string());
        // All restored thinking is by the model that answered last.
        let model = conversation.answered_by.as_deref();
        for message in &conversation.messages {
            for (form, parts) in ContentForm::parts_of_copy(message) {
                let meta = MessageMeta { model, form, ..MessageMeta::default() };
                journal.write_parts(message, &fresh(parts), &meta, Sync::Later);
            }
        }
        let start = JournalStart { forked_from, ..JournalStart::new(1) };
        let prompt = contract.terms.prompt.clone().or_else(|| opening.prompt.clone());
        let opening = ProcessOpening { prompt, ..opening.clone() };
        journal.open(&opening, &Terms::default(), start);
        if opening.carry == CarryOver::On {
            let mut recorded = Box::new(conversation.recorded.clone());
            recorded.forget_calls();
            recorded.demand(opening.new_demands);
            journal.record(&JournalRecord::Forked(recorded), Sync::Later);
        }
        if work.background != PastBackground::default() {
            let PastBackground { commands, lost: started, folder } = work.background.clone();
            let changes = BackgroundChanges { commands, started, reported: Vec::new(), folder };
            journal.record(&JournalRecord::Background(changes), Sync::Later);
        }
        journal.files_read(work.files_read.clone());
        journal.sync_or_remove()
    }

    fn begin(
        sessions: &SessionFolder,
        id: &SessionId,
        opening: &ProcessOpening,
    ) -> Result<Self, JournalError> {
        let path = sessions.file(id);
        let unwritable = |cause| JournalError::Unwritable { path: path.clone(), cause };
        let folder = sessions.folder();
        create_private_folder(&folder).map_err(unwritable)?;
        let file = JournalWriter::create(&path).map_err(|cause| {
            if cause.kind() == io::ErrorKind::AlreadyExists {
                let exists = JournalError::Exists { id: id.clone(), path: path.clone() };
                obstacle(path.clone()).unwrap_or(exists)
            } else {
                unwritable(cause)
            }
        })?;
        let lock = lock_session(&file, id, &path)?;
        let request =
            LeaseRequest { journal: &path, machine: sessions.machine(), epoch_before: 0, lock };
        let lease = SessionLease::acquire_if_available(id, &request)?.map(|(lease, _)| lease);
        let writer = JournalWriter::new(file, 0).with_lease(lease);
        Ok(Self { path, ..Self::on_writer(writer, sessions, id, opening) })
    }

    /// Continues writing after what `writer` holds.
    pub(super) fn on_writer(
        writer: JournalWriter,
        sessions: &SessionFolder,
        id: &SessionId,
        opening: &ProcessOpening,
    ) -> Self {
        Self {
            output: JournalOutput::Direct(JournalSink::File(writer)),
            origin: LineOrigin {
                session: id.to_string(),
                cwd: sessions.recorded_cwd(),
                version: opening.version.clone(),
                is_sidechain: false,
            },
            redaction: Redaction::new(opening.secrets.clone()),
            mirror: sessions.mirror().cloned(),
            ..Self::disabled()
        }
    }

    /// Syncs the folders of a new file: after the file, whose sync stores its name, too, on most
    /// file systems. Removes it if a line could not be written, or its name not be stored.
    fn sync_or_remove(self) -> Result<Self, JournalError> {
        let cause = match self.health() {
            JournalHealth::Durable | JournalHealth::Off => {
                match self.path.parent().map_or(Ok(()), sync_folders) {
                    Ok(()) => return Ok(self),
                    Err(cause) => cause,
                }
            }
            JournalHealth::Lost(why) => io::Error::other(why),
            // The file belongs to the other process now.
            JournalHealth::TakenOver(why) => {
                let cause = io::Error::other(why);
                return Err(JournalError::Unwritable { path: self.path, cause });
            }
        };
        // A failure has no effect: the file counts as empty.
        let _stays = fs::remove_file(&self.path);
        Err(JournalError::Unwritable { path: self.path, cause })
    }

    /// Returns whether everything appended so far is stored, or the reason that it is not.
    pub fn health(&self) -> JournalHealth {
        self.output.health()
    }

    /// Returns the channel that reports a takeover of the session by another process. `None` if the
    /// session has no lease.
    pub fn takeovers(&self) -> Option<watch::Receiver<Option<Interrupt>>> {
        self.output.fence().map(|fence| fence.losses())
    }

    /// Appends on a thread from here on, so that a slow disk delays only what waits for it.
    pub fn start_thread(&mut self) {
        let output = std::mem::take(&mut self.output);
        self.output = output.on_thread(&self.path, self.mirror.as_ref());
    }

    /// Returns true if everything appended so far is written, and synced where that is required,
    /// or can no longer be.
    pub fn is_flushed(&self) -> bool {
        self.output.is_flushed()
    }

    /// Waits until everything appended so far is written, and synced where that is required. An
    /// effect that must not happen without these records follows this. If the disk has not answered
    /// within `limit`, the journal is lost until it does. Cancel-safe.
    pub async fn flush(&mut self, limit: Duration) {
        self.output.flush(limit).await;
    }

    /// Closes the file, which releases the session. Waits for that for `limit` at most.
    pub async fn close(&mut self, limit: Duration) {
        self.output.close(limit).await;
    }

    /// The session's file; empty when there is none.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a message that was added to the history, or blocks that were added to its last
    /// message: the reader joins messages of the same role. Results that [`Journal::outcome`] has
    /// written are left out. Returns the ids of the message's parts, each of which has a line.
    ///
    /// A reply with tool calls is synced together with their intents; everything else at once.
    pub fn message(&mut self, message: &Message, meta: &MessageMeta<'_>) -> Vec<Uuid> {
        if message.role == Role::Assistant {
            self.answered.clear();
        }
        let parts = message.parts();
        let is_free = |id: &Uuid| !self.earlier_ids.contains(&id.to_string());
        let (mut ids, mut unwritten) = (Vec::new(), Vec::new());
        for (index, part) in parts.into_iter().enumerate() {
            let id = self.id_of(part).unwrap_or_else(|| {
                let assigned = meta.ids.get(index).copied().filter(is_free);
                let id = assigned.unwrap_or_else(Uuid::new_v4);
                unwritten.push((id, part));
                id
            });
            ids.push(id);
        }
        let has_calls = message.content.iter().any(|block| block.as_call().is_some());
        let sync = if has_calls { Sync::Later } else { Sync::Now };
        self.write_parts(message, &unwritten, meta, sync);
        ids
    }

    /// The id of a part that is already written.
    fn id_of(&self, part: &[Block]) -> Option<Uuid> {
        let [Block::ToolResult { tool_use_id, .. }] = part else { return None };
        self.answered.get(tool_use_id).copied()
    }

    /// Appends the outcome of a tool call: its result block, and its structured result for
    /// programs. The model may read it meanwhile. It is written once it is flushed, and on disk
    /// with the next sync, at the latest before the next intent. Until then the loss of power can
    /// undo it, or the end of the process while the disk does not answer, after which the outcome
    /// of the call is unknown.
    pub fn outcome(&mut self, result: &Block, detail: &serde_json::Value) -> Uuid {
        let id = Uuid::new_v4();
        if let Block::ToolResult { tool_use_id, .. } = result {
            self.answered.insert(tool_use_id.clone(), id);
        }
        let detail = (!detail.is_null()).then_some(detail);
        let message = Message::user(vec![result.clone()]);
        let meta = MessageMeta { detail, ..MessageMeta::default() };
        self.write_parts(&message, &[(id, &message.content)], &meta, Sync::Soon);
        id
    }

    /// Appends a file that the last prompt names, for readers of the session: the prompt already
    /// contains the text of the file.
    pub fn attachment(&mut self, path: &str, text: &str) {
        let uuid = Uuid::new_v4().to_string();
        let line = AttachmentLine {
            parent_uuid: self.leaf.as_deref(),
            is_sidechain: self.origin.is_sidechain,
            cwd: &self.origin.cwd,
            session_id: &self.origin.session,
            version: &self.origin.version,
            kind: "attachment",
            attachment: Attachment { kind: "file", filename: path, content: text },
            uuid: &uuid,
            timestamp: &timestamp(),
            seq: self.seq + 1,
        };
        self.write_json(serde_json::to_vec(&line), Sync::Later);
        self.leaf = Some(uuid);
    }

    /// Appends the intent to run tools. Each call comes with whether its input was changed. The
    /// tools may start only once it is flushed.
    pub fn intent(&mut self, calls: &[(ToolCall, bool)]) {
        let calls = calls.iter().map(ToolStarted::of).collect();
        self.record(&JournalRecord::Intent { calls }, Sync::Now);
    }

    /// Appends the cost of a call, before its reply. `None` if no price is known.
    pub fn spend(&mut self, cost: Option<Money>, usage: &Usage, model: &str) {
        let (usage, model) = (*usage, model.to_owned());
        self.record_spend(SpendRecord { cost, usage, model, is_upper_bound: false });
    }

    /// Appends contract and prompt again, because their lines were cut off.
    pub(super) fn repeat_terms(&mut self, terms: &Terms) {
        if let Some(kept) = &terms.contract {
            for contract in [&kept.original].into_iter().chain(&kept.here).chain([&kept.latest]) {
                self.record(&JournalRecord::Contract(Box::new(contract.clone())), Sync::Later);
            }
        }
        if let Some(prompt) = &terms.prompt {
            self.record(&JournalRecord::Prompt(prompt.clone()), Sync::Later);
        }
    }

    /// Appends the worst-case cost of a call whose actual cost is unknown.
    pub fn spend_upper_bound(&mut self, cost: Option<Money>, usage: &Usage, model: &str) {
        let (usage, model) = (*usage, model.to_owned());
        self.record_spend(SpendRecord { cost, usage, model, is_upper_bound: true });
    }

    fn record_spend(&mut self, spend: SpendRecord) {
        self.record(&JournalRecord::Spend(spend), Sync::Later);
    }

    /// Appends the repairs that were made before a request.
    pub fn repairs(&mut self, repairs: &[HistoryRepair]) {
        if !repairs.is_empty() {
            self.record(&JournalRecord::Repair { repairs: repairs.to_vec() }, Sync::Later);
        }
    }

    /// Appends the whole conversation after it was changed: compacted, cut or repaired. Blocks that
    /// are added to its last message later are on later lines.
    pub fn rewrite(&mut self, messages: &[Message]) {
        let (after, messages) = (self.leaf.clone(), messages.to_vec());
        self.record(&JournalRecord::Rewrite { after, messages }, Sync::Now);
    }

    /// Appends finished recoveries.
    pub fn recoveries(&mut self, ended: &[RecoveryRecord]) {
        for record in ended {
            self.record(&JournalRecord::Recovery(Box::new(record.clone())), Sync::Later);
        }
    }

    /// Appends the tool calls of a reply, for the loop detector of the next process.
    pub fn tool_calls(&mut self, calls: &[ToolCallRecord]) {
        if !calls.is_empty() {
            self.record(&JournalRecord::ToolCalls { calls: calls.to_vec() }, Sync::Later);
        }
    }

    /// Appends the calls that end without having done their work, before their results.
    pub fn undone_calls(&mut self, calls: UndoneCalls) {
        if calls != UndoneCalls::default() {
            self.record(&JournalRecord::UndoneCalls(calls), Sync::Later);
        }
    }

    /// Appends the learned size of a model's context window, in tokens.
    pub fn window(&mut self, model: &str, tokens: u64) {
        self.record(&JournalRecord::Window { model: model.to_owned(), tokens }, Sync::Later);
    }

    /// Appends the learned output limit of a model, in tokens.
    pub fn output_limit(&mut self, model: &str, tokens: u32) {
        self.record(&JournalRecord::OutputLimit { model: model.to_owned(), tokens }, Sync::Later);
    }

    /// Appends a field that a service refuses for a model.
    pub fn refused_field(&mut self, refused: RefusedField) {
        self.record(&JournalRecord::RefusedField(refused), Sync::Later);
    }

    /// Appends a failed check of `--require`.
    pub fn failed_check(&mut self, check: FailedCheck) {
        self.record(&JournalRecord::FailedCheck(check), Sync::Later);
    }

    /// Appends changes of background work, if there are any.
    pub fn background(&mut self, changes: BackgroundChanges) {
        let BackgroundChanges { commands: _, started, reported, folder } = &changes;
        if !started.is_empty() || !reported.is_empty() || folder.is_some() {
            self.record(&JournalRecord::Background(changes), Sync::Later);
        }
    }

    /// Appends the files that the model has read or written, if there are any.
    pub fn files_read(&mut self, files: Vec<ReadFile>) {
        if !files.is_empty() {
            self.record(&JournalRecord::FilesRead { files }, Sync::Later);
        }
    }

    /// Appends the end of the prompt, with its reason, and the message of the error that caused it.
    pub fn end(&mut self, reason: StopReason, error: Option<String>) {
        // Writes the lines of an unfinished step.
        self.end_step();
        self.record(&JournalRecord::End { reason, error }, Sync::Now);
    }

    /// Records the process that writes from here on, and its contract unless it equals the latest
    /// one in `known`.
    pub(super) fn open(&mut self, opening: &ProcessOpening, known: &Terms, start: JournalStart) {
        let JournalStart { epoch, dropped, damage, forked_from } = start;
        let lease_epoch = match &self.output {
            JournalOutput::Direct(JournalSink::File(writer)) => writer.epoch(),
            JournalOutput::Direct(_) | JournalOutput::Thread(_) => None,
        };
        let epoch = lease_epoch.map_or(epoch, |lease_epoch| lease_epoch.max(epoch));
        self.epoch = epoch;
        let open = OpenRecord {
            epoch,
            pid: std::process::id(),
            host: host_name(),
            since: timestamp(),
            cwd: self.origin.cwd.clone(),
            version: opening.version.clone(),
            model: opening.model.clone(),
            permission_mode: opening.permission_mode.clone(),
            limits: opening.limits,
            carry: opening.carry,
            dropped,
            damage,
            forked_from,
            required_servers: opening.required_servers.clone(),
            new_demands: opening.new_demands,
        };
        let contract = opening.contract.as_ref();
        let contract =
            contract.map(|contract| contract.recorded_in(&self.origin.cwd, &self.redaction));
        let latest = known.contract.as_ref().map(|known| &known.latest);
        let contract = contract.filter(|contract| Some(contract) != latest);
        let prompt = opening.prompt.as_ref().filter(|_| known.prompt.is_none());
        let records = [
            Some(JournalRecord::Open(Box::new(open))),
            contract.map(|contract| JournalRecord::Contract(Box::new(contract))),
            prompt.map(|prompt| JournalRecord::Prompt(prompt.clone())),
        ];
        // Nothing happens between these lines, so they are written and synced at once.
        let mut objects = Vec::new();
        for record in records.iter().flatten() {
            match self.fold_record(record) {
                Ok(json) => objects.push(self.redaction.mask(json)),
                Err(error) => self.fail(&error.into()),
            }
            self.seq += 1;
        }
        self.append_lines(objects, Sync::Now);
        if let Some(title) = &opening.title {
            let (session_id, seq) = (self.origin.session.as_str(), self.seq + 1);
            let line = TitleLine { kind: TITLE_TYPE, custom_title: title, session_id, seq };
            self.write_json(serde_json::to_vec(&line), Sync::Later);
        }
    }

    /// Completes a last line that lacks only its newline.
    pub(super) fn end_line(&mut self) {
        self.write_lines(b"\n".to_vec(), Sync::Later);
    }

    /// Stops writing permanently.
    pub(super) fn fail(&mut self, cause: &io::Error) {
        self.output.fail(&self.path, cause);
    }

    /// Writes the parts of a message, a line each, in one write.
    fn write_parts(
        &mut self,
        message: &Message,
        parts: &[(Uuid, &[Block])],
        meta: &MessageMeta<'_>,
        sync: Sync,
    ) {
        let is_group = message.role == Role::Assistant && parts.len() > 1;
        let output = meta.detail.and_then(|detail| detail.get(STRUCTURED));
        let mut lines = Vec::new();
        for (index, (id, content)) in parts.iter().enumerate() {
            self.fold.add_part(message.role, content, meta.stop_reason, output);
            let uuid = id.to_string();
            let (wire, added_content) = WireMessage::split(message, content, meta);
            let line = MessageLine {
                parent_uuid: self.leaf.as_deref(),
                is_sidechain: self.origin.is_sidechain,
                user_type: "external",
                cwd: &self.origin.cwd,
                session_id: &self.origin.session,
                version: &self.origin.version,
                kind: message.role,
                message: wire,
                added_content,
                tool_use_result: meta.detail,
                request_id: meta.request_id,
                uuid: &uuid,
                timestamp: &timestamp(),
                part: is_group.then_some((index + 1, parts.len())),
                seq: self.seq + 1,
            };
            match serde_json::to_vec(&line) {
                Ok(json) => lines.push(self.redaction.mask(json)),
                Err(error) => self.fail(&error.into()),
            }
            self.seq += 1;
            self.leaf = Some(uuid);
        }
        self.append_lines(lines, sync);
    }

    pub(super) fn record(&mut self, record: &JournalRecord, sync: Sync) {
        let json = self.fold_record(record);
        self.write_json(json, sync);
    }

    /// Applies the next record to the state of the prompt, and converts it to JSON.
    fn fold_record(&mut self, record: &JournalRecord) -> serde_json::Result<Vec<u8>> {
        record.show(&mut self.fold);
        let timestamp = timestamp();
        let (seq, timestamp) = (self.seq + 1, timestamp.as_str());
        serde_json::to_vec(&RecordLine { kind: OUR_TYPE, v: VERSION, seq, timestamp, record })
    }

    fn write_json(&mut self, json: serde_json::Result<Vec<u8>>, sync: Sync) {
        match json {
            Ok(json) => self.append_lines(vec![self.redaction.mask(json)], sync),
            Err(error) => self.fail(&error.into()),
        }
        self.seq += 1;
    }

    /// Appends whole lines, all or none.
    pub(super) fn write_lines(&mut self, lines: Vec<u8>, sync: Sync) {
        self.output.append((&self.path, self.mirror.as_ref()), lines, sync);
    }
}

/// The parts of an opening record that depend on the earlier state of the session.
pub(super) struct JournalStart {
    pub(super) epoch: u64,
    pub(super) dropped: u32,
    pub(super) damage: Option<Damage>,
    pub(super) forked_from: Option<String>,
}

impl JournalStart {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, dropped: 0, damage: None, forked_from: None }
    }
}

/// Assigns new ids to parts.
fn fresh(parts: Vec<&[Block]>) -> Vec<(Uuid, &[Block])> {
    parts.into_iter().map(|part| (Uuid::new_v4(), part)).collect()
}

fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
