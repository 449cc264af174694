//! Finds the session of a run, and restores its state.

use std::path::PathBuf;

use crate::agent::MovedFolder;
use crate::config::environment;
use crate::journal::{
    CarryOver, FirstPrompt, Journal, JournalError, JournalMirror, LockedSession, MachineId,
    ProcessOpening, RecordedPrompt, RestoredSession, SessionFolder, SessionId, SessionTotals,
    latest, prompt_title, read_session,
};
use crate::recovery::{Fast, LeftOff, Limits, LoopDetector, Moment, Run, StopReason};
use crate::secrets::REDACTED;
use crate::transcript::{Block, Role, TokenDensity};

use super::moved_session::{ResumedFolder, moved_warning};
use super::prompts::ServerPromptCall;
use super::settings::{SessionStart, Settings};
use super::usage::{UsageError, UsageErrorKind};
use super::version::VERSION;

/// The task of a run: its prompt, in the forms that are needed.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The prompt as the user gave it.
    pub(super) given: String,
    /// The prompt with the text of a command in place of its name.
    pub(super) prompt: String,
    /// The part of the prompt that may name files.
    pub(super) names: String,
    /// The prompt of an MCP server that it calls, whose text takes its place once that is connected.
    pub(super) server_prompt: Option<ServerPromptCall>,
}

impl Task {
    /// Puts a text before the prompt.
    pub(super) fn after(self, text: &str) -> Self {
        let Self { given, prompt, names, server_prompt } = self;
        Self {
            given: format!("{text}{given}"),
            prompt: format!("{text}{prompt}"),
            names: format!("{text}{names}"),
            server_prompt,
        }
    }
}

/// A session that was found, and not yet written to.
pub(super) struct FoundSession {
    id: SessionId,
    place: SessionFolder,
    kind: SessionOrigin,
    /// True if the session already holds the prompt.
    has_prompt: bool,
    /// Point at which the session's prompt goes on. `None`: there is a new one.
    left_off: Option<LeftOff>,
    /// The prompt to record as the session's first, unless it has one.
    first: FirstPrompt,
    /// The folder that the session worked in, if it is another one than now.
    moved_from: Option<PathBuf>,
}

enum SessionOrigin {
    New,
    Resumed(Box<LockedSession>),
    /// With the id of its source.
    Forked(SessionId, Box<RestoredSession>),
    /// Restored read-only: no journal is kept.
    ReadOnly(Box<RestoredSession>),
}

impl FoundSession {
    /// Finds and locks the session that the flags name. Changes nothing.
    ///
    /// # Errors
    /// It does not exist, is in use, cannot be read, or has no prompt to continue.
    pub(super) fn find(settings: &Settings, task: &Task) -> Result<Self, UsageError> {
        let session = Self::found(settings, task)?;
        session.check_terms(settings)?;
        Ok(session)
    }

    /// Copies what is written to the session's journals.
    pub(super) fn mirrored(mut self, mirror: Option<JournalMirror>) -> Self {
        self.place = self.place.mirrored(mirror);
        self
    }

    fn found(settings: &Settings, task: &Task) -> Result<Self, UsageError> {
        let request = settings.reading.clone();
        let first = FirstPrompt::of(&task.given);
        let mut place = SessionFolder::new(&settings.session_dir, &settings.cwd);
        if let Some(name) = environment::host_id(&settings.variables) {
            place = place.on_machine(MachineId::named(&name));
        }
        let (source, fork) = match &settings.session {
            SessionStart::New { session_id } => {
                let id = id(session_id)?;
                return Ok(Self::new(id, place, SessionOrigin::New, first));
            }
            SessionStart::ResumeOrStart { session_id } => {
                return Self::resume_or_start(id(session_id)?, place, task, settings);
            }
            SessionStart::Resume { session_id, fork } => (id(session_id)?, fork),
            SessionStart::Continue { fork } => (newest(&place)?, fork),
        };
        let (id, kind) = match fork {
            Some(fresh) => {
                let restored = read_session(&place, &source, request).map_err(journal_error)?;
                (id(fresh)?, SessionOrigin::Forked(source, Box::new(restored)))
            }
            None if settings.persist => {
                let held = LockedSession::lock_and_read(&place, &source, request)
                    .map_err(journal_error)?;
                (source, SessionOrigin::Resumed(Box::new(held)))
            }
            None => {
                let restored = read_session(&place, &source, request).map_err(journal_error)?;
                (source, SessionOrigin::ReadOnly(Box::new(restored)))
            }
        };
        Self::new(id, place, kind, first).prepared(&task.prompt, settings)
    }

    fn new(id: SessionId, place: SessionFolder, kind: SessionOrigin, first: FirstPrompt) -> Self {
        Self { id, place, kind, has_prompt: false, left_off: None, first, moved_from: None }
    }

    /// Checks that the session is still what it was when the settings were read: another process
    /// may have had it in between.
    fn check_terms(&self, settings: &Settings) -> Result<(), UsageError> {
        if self.restored().is_none_or(|restored| restored.contract.terms == settings.terms) {
            return Ok(());
        }
        let what = format!("another process has just worked on session {}; try again", self.id);
        Err(UsageError::of(UsageErrorKind::Busy, what))
    }

    /// Resumes the session, or starts it if it does not exist; another process may hold it. The
    /// prompt is the same each time, so a non-empty session already has the prompt.
    fn resume_or_start(
        id: SessionId,
        place: SessionFolder,
        task: &Task,
        settings: &Settings,
    ) -> Result<Self, UsageError> {
        let first = FirstPrompt::of(&task.given);
        if let Some(known) = settings.terms.prompt.as_ref().filter(|known| **known != first) {
            return Err(another_prompt(&id, &known.beginning, &first.beginning));
        }
        match LockedSession::lock_and_read(&place, &id, settings.reading.on_damage) {
            Ok(held) => {
                let restored = held.restored();
                let prompted = !restored.conversation.messages.is_empty();
                if let (None, Some(known)) = (&settings.terms.prompt, first_words(restored))
                    && !is_prompt_of(&known, task)
                {
                    return Err(another_prompt(&id, &prompt_title(&known), &first.beginning));
                }
                let kind = SessionOrigin::Resumed(Box::new(held));
                let session = Self { has_prompt: prompted, ..Self::new(id, place, kind, first) };
                session.prepared(if prompted { "" } else { &task.prompt }, settings)
            }
            Err(JournalError::Unknown { .. }) => {
                Ok(Self::new(id, place, SessionOrigin::New, first))
            }
            Err(error) => Err(journal_error(error)),
        }
    }

    /// Determines the folder that the session worked in, and the point at which its prompt goes on,
    /// unless there is a new one.
    fn prepared(mut self, prompt: &str, settings: &Settings) -> Result<Self, UsageError> {
        if let Some(restored) = self.restored() {
            let may_move = settings.names_folder || matches!(self.kind, SessionOrigin::Forked(..));
            let (id, has_prompt) = (self.source(), !prompt.is_empty());
            let session = ResumedFolder { id, restored, has_prompt, may_move };
            self.moved_from = session.earlier_folder(settings)?;
        }
        if prompt.is_empty()
            && let Some(restored) = self.restored()
        {
            let left_off = restored.conversation.left_off.ok_or_else(|| {
                UsageError::new(format!(
                    "session {} has no prompt that could go on; give one",
                    self.source()
                ))
            })?;
            self.left_off = Some(left_off);
        }
        Ok(self)
    }

    /// Returns the prompt, or nothing if the session already has it.
    pub(super) fn remaining_prompt<'a>(&self, prompt: &'a str) -> &'a str {
        if self.has_prompt { "" } else { prompt }
    }

    /// Returns the change of the folder that the session works in, if there is one.
    pub(super) fn moved_folder(&self, settings: &Settings) -> Option<MovedFolder> {
        let before = self.moved_from.clone();
        before.map(|before| MovedFolder { before, now: settings.cwd.clone() })
    }

    pub(super) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Returns the folder for output that is too long for the journal.
    pub(super) fn folder(&self) -> PathBuf {
        self.place.folder().join(self.id.as_str())
    }

    /// The id of the session that was read, of which this one may be a fork.
    fn source(&self) -> &SessionId {
        if let SessionOrigin::Forked(source, _) = &self.kind { source } else { &self.id }
    }

    fn restored(&self) -> Option<&RestoredSession> {
        match &self.kind {
            SessionOrigin::New => None,
            SessionOrigin::Resumed(held) => Some(held.restored()),
            SessionOrigin::Forked(_, restored) | SessionOrigin::ReadOnly(restored) => {
                Some(restored)
            }
        }
    }

    /// Returns the required MCP servers: those of the flags, or else those of the previous process.
    pub(super) fn required_servers(&self, settings: &Settings) -> Vec<String> {
        let opened = || self.restored().and_then(|restored| restored.contract.opened.as_ref());
        let carried = || opened().map(|open| open.required_servers.clone());
        settings.mcp.required.clone().or_else(carried).unwrap_or_default()
    }

    /// Warns about a session that is resumed in another folder.
    pub(super) fn moved_warning(&self, settings: &Settings) -> Option<String> {
        let before = self.moved_from.as_deref();
        before.map(|before| moved_warning(&self.id, before, &settings.cwd))
    }

    /// Warns about a session whose journal does not record how it was started.
    pub(super) fn unknown_start_warning(&self) -> Option<String> {
        let RestoredSession { conversation, contract, .. } = self.restored()?;
        let is_unknown = contract.terms.contract.is_none() && !conversation.messages.is_empty();
        is_unknown.then(|| {
            format!(
                "the journal of session {} does not say which limits, requirement and rules it \
                 was started with; those of this command line and of the settings apply",
                self.source()
            )
        })
    }

    /// Returns the limits, less the time that the prompt has already used.
    pub(super) fn remaining_limits(&self, limits: &Limits) -> Limits {
        let worked = self.restored().filter(|_| self.carry() == CarryOver::On);
        let Some(worked) = worked.map(|restored| restored.totals.worked) else { return *limits };
        let left = |end: Moment| {
            Moment::default().after(Moment::default().until(end).saturating_sub(worked))
        };
        Limits { deadline: limits.deadline.map(left), wrap_up: limits.wrap_up.map(left), ..*limits }
    }

    /// Returns whether the previous prompt is continued, with its turns, money and time: if there
    /// is no new one, or if it was interrupted.
    fn carry(&self) -> CarryOver {
        let goes_on = match &self.kind {
            SessionOrigin::New => false,
            SessionOrigin::Resumed(held) => {
                let before = &held.restored().work;
                let was_cut_off = before.ended.is_none() && before.run.is_some();
                self.left_off.is_some() || was_cut_off
            }
            SessionOrigin::Forked(..) | SessionOrigin::ReadOnly(_) => self.left_off.is_some(),
        };
        if goes_on { CarryOver::On } else { CarryOver::Fresh }
    }

    /// Opens the journal and hands over what an earlier process left.
    ///
    /// # Errors
    /// The id is taken. A journal that cannot be written is not an error: the run continues without
    /// it.
    pub(super) fn open(
        self,
        settings: &Settings,
        limits: &Limits,
        model: &str,
    ) -> Result<(Journal, RestoredSession), UsageError> {
        let carry = self.carry();
        let opening = ProcessOpening {
            version: VERSION.to_owned(),
            model: model.to_owned(),
            permission_mode: settings.config.permissions.mode.name().to_owned(),
            limits: *limits,
            carry,
            required_servers: self.required_servers(settings),
            contract: Some(settings.contract()),
            prompt: Some(self.first),
            title: settings.session_title.clone(),
            redact: settings.secrets(),
        };
        let is_forked = matches!(self.kind, SessionOrigin::Forked(..));
        let (journal, restored) = match self.kind {
            SessionOrigin::New if settings.persist => {
                let created = Journal::create(&self.place, &self.id, &opening);
                (begun(created.map_err(|error| settings.session.meaning(error)))?, None)
            }
            SessionOrigin::New => (Journal::disabled(), None),
            SessionOrigin::Resumed(held) => {
                let (journal, restored) = held.open(&self.place, &opening);
                (journal, Some(restored))
            }
            SessionOrigin::Forked(id, source) if settings.persist => {
                let forked = Journal::fork(&self.place, &self.id, &opening, (&id, &source));
                (begun(forked)?, Some(*source))
            }
            SessionOrigin::Forked(_, source) | SessionOrigin::ReadOnly(source) => {
                let recorded = match carry {
                    CarryOver::On => source.conversation.recorded.clone(),
                    CarryOver::Fresh => RecordedPrompt::default(),
                };
                (Journal::disabled().with_recorded(recorded), Some(*source))
            }
        };
        let mut restored = restored.unwrap_or_default();
        // The counts and costs of a forked session are reported by its source.
        let counts = if is_forked { CarryOver::Fresh } else { carry };
        adapt(&mut restored, counts, limits);
        if is_forked {
            restored.totals.session = SessionTotals::default();
        }
        restored.conversation.left_off = self.left_off;
        Ok((journal, restored))
    }
}

/// Adapts a restored session to this process. The counters of an interrupted prompt continue; a
/// new prompt starts at zero.
fn adapt(restored: &mut RestoredSession, carry: CarryOver, limits: &Limits) {
    let RestoredSession { totals, work, contract, .. } = restored;
    let is_over = work.ended.is_some_and(|end| end != StopReason::Completed);
    if is_over || carry == CarryOver::Fresh {
        work.loop_detector = LoopDetector::default();
    }
    if carry == CarryOver::Fresh {
        totals.begin_prompt();
        (work.run, work.agents) = (None, Vec::new());
    }
    let before = contract.opened.as_ref().map(|open| &open.limits);
    work.run = work.run.map(|run| {
        let run = if is_over { run.reopened(limits) } else { run };
        apply_limits(run, totals.prompt.turns, before, limits)
    });
}

/// Applies the limits of this process to a restored run, less the part used under earlier limits.
fn apply_limits(run: Run, turns: u32, before: Option<&Limits>, limits: &Limits) -> Run {
    let mut run = Run { model_index: run.model_index.min(limits.budgets.switches), ..run };
    run.budgets.turns = limits.budgets.turns.map(|all| all.saturating_sub(turns));
    run.budgets.refreshes = limits.budgets.refreshes;
    if let Some(before) = before {
        let (were, are) = (&before.budgets, &limits.budgets);
        let left = |left: u8, were: u8, are: u8| are.saturating_sub(were.saturating_sub(left));
        let budgets = &mut run.budgets;
        budgets.schema_tries = left(budgets.schema_tries, were.schema_tries, are.schema_tries);
        budgets.requirement_tries =
            left(budgets.requirement_tries, were.requirement_tries, are.requirement_tries);
    }
    // Fast mode must be requested by this process; once given up, it stays off.
    let fast = limits.fast.is_some() && run.budgets.fast_mode > 0;
    run.fast = if fast { Fast::On } else { Fast::Off };
    run
}

/// Returns the text of a session's first message.
fn first_words(restored: &RestoredSession) -> Option<String> {
    let first = restored.conversation.messages.first().filter(|first| first.role == Role::User)?;
    first
        .content
        .iter()
        .find_map(|block| if let Block::Text { text } = block { Some(text.clone()) } else { None })
}

/// Returns whether a session without a recorded first prompt may have had this one. The journal
/// holds redacted and possibly compacted text.
fn is_prompt_of(known: &str, task: &Task) -> bool {
    let known = known.trim();
    let same = |prompt: &str| known.starts_with(prompt.trim());
    same(&task.given) || same(&task.prompt) || known.contains(REDACTED)
}

fn another_prompt(id: &SessionId, known: &str, given: &str) -> UsageError {
    let what = if known == given {
        format!("both begin with {known:?} and then differ")
    } else {
        format!("it was started with {known:?}, and this is {given:?}")
    };
    UsageError::new(format!(
        "session {id} has another prompt: {what}; use a new id for a new task, or --resume {id} to \
         say something new to this session"
    ))
}

fn id(name: &str) -> Result<SessionId, UsageError> {
    SessionId::parse(name).ok_or_else(|| {
        UsageError::new(format!(
            "{name:?} is no session id; ids have letters, digits, - and _ only"
        ))
    })
}

fn newest(place: &SessionFolder) -> Result<SessionId, UsageError> {
    latest(place).map_err(journal_error)?.ok_or_else(|| {
        UsageError::new(format!(
            "there is no session to continue in {}; start one by giving only a prompt",
            place.cwd().display()
        ))
    })
}

impl SessionStart {
    /// With resume-or-start, a session that has just appeared is being started by another process.
    fn meaning(&self, error: JournalError) -> JournalError {
        match (self, error) {
            (Self::ResumeOrStart { .. }, JournalError::Exists { id, .. }) => {
                JournalError::Locked { id, holder: None }
            }
            (_, error) => error,
        }
    }
}

impl Settings {
    /// Returns the id of the run's session; empty if there is none to continue.
    pub(super) fn session_id(&self) -> String {
        match &self.session {
            SessionStart::New { session_id } | SessionStart::ResumeOrStart { session_id } => {
                session_id.clone()
            }
            SessionStart::Resume { session_id, fork } => {
                fork.as_ref().unwrap_or(session_id).clone()
            }
            SessionStart::Continue { fork: Some(fresh) } => fresh.clone(),
            SessionStart::Continue { fork: None } => {
                let newest = latest(&SessionFolder::new(&self.session_dir, &self.cwd));
                newest.ok().flatten().map_or_else(String::new, |id| id.to_string())
            }
        }
    }
}

/// Checks that the session to resume is there. Returns whether a hook has deferred its last call.
///
/// # Errors
/// It is not, or cannot be read.
pub(super) fn check_resumable(settings: &Settings) -> Result<bool, UsageError> {
    if matches!(settings.session, SessionStart::ResumeOrStart { .. }) {
        return Ok(false);
    }
    Ok(stored(settings)?.is_some_and(|restored| restored.conversation.deferred))
}

/// Estimates the tokens of the messages that the session has already; 0 if it cannot be read.
pub(super) fn stored_tokens(settings: &Settings) -> u64 {
    let stored = stored(settings).ok().flatten();
    stored.map_or(0, |stored| TokenDensity::USUAL.of(&stored.conversation.messages))
}

/// Reads the session to resume, if there is one.
fn stored(settings: &Settings) -> Result<Option<RestoredSession>, UsageError> {
    let place = SessionFolder::new(&settings.session_dir, &settings.cwd);
    let id = match &settings.session {
        SessionStart::New { .. } => return Ok(None),
        SessionStart::ResumeOrStart { session_id } | SessionStart::Resume { session_id, .. } => {
            id(session_id)?
        }
        SessionStart::Continue { .. } => newest(&place)?,
    };
    read_session(&place, &id, settings.reading.clone()).map(Some).map_err(journal_error)
}

/// Turns a journal write error into a run without a journal.
fn begun(journal: Result<Journal, JournalError>) -> Result<Journal, UsageError> {
    match journal {
        Err(error @ JournalError::Unwritable { .. }) => Ok(Journal::unwritable(error.to_string())),
        other => other.map_err(journal_error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
fn journal_error(error: JournalError) -> UsageError {
    let line = format!("{error}; {}", error.hint());
    match error {
        JournalError::Locked { .. } => UsageError::of(UsageErrorKind::Busy, line),
        JournalError::Unknown { .. }
        | JournalError::NoMessage { .. }
        | JournalError::DropsMore { .. } => UsageError::of(UsageErrorKind::NotResumable, line),
        JournalError::Unwritable { .. }
        | JournalError::Exists { .. }
        | JournalError::Unreadable { .. }
        | JournalError::Damaged { .. }
        | JournalError::Newer { .. } => UsageError::new(line),
    }
}
