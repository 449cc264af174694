//! Checks that the session of a run can do its task, and opens it.

use std::path::PathBuf;

use crate::agent::MovedFolder;
use crate::host::UserPrompt;
use crate::journal::{
    CarryOver, FirstPrompt, Journal, JournalError, JournalMirror, ProcessOpening, RestoredSession,
    SessionId, SessionTotals, prompt_title,
};
use crate::recovery::{Fast, LeftOff, Limits, LoopDetector, Moment, NewDemands, Run, StopReason};
use crate::secrets::{KnownSecrets, REDACTED};
use crate::transcript::{Block, Role};

use super::chosen_session::{ChosenSession, SessionOrigin, journal_error};
use super::moved_session::{ResumedFolder, moved_warning};
use super::prompts::ServerPromptCall;
use super::settings::Settings;
use super::usage::UsageError;
use super::version::VERSION;

/// The task of a run: its prompt, in the forms that are needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    /// The prompt as the user gave it.
    pub(super) given: String,
    /// The prompt with the text of a command in place of its name.
    pub(super) prompt: String,
    /// The part of the prompt that may name files.
    pub(super) names: String,
    /// The called prompt of an MCP server, whose text replaces the call once the server is
    /// connected.
    pub(super) server_prompt: Option<ServerPromptCall>,
    /// True if the prompt of a host has other blocks, such as images.
    pub(super) has_other_blocks: bool,
}

impl Task {
    /// Adds the texts and the other blocks of a host's prompt.
    pub(super) fn with_blocks_of(self, host: &UserPrompt) -> Self {
        let text = host.earlier_texts();
        Self {
            given: format!("{text}{}", self.given),
            names: format!("{text}{}", self.names),
            has_other_blocks: host.has_other_blocks(),
            ..self
        }
    }

    /// Returns true if there is no new prompt, so that the session's prompt continues.
    fn is_empty(&self) -> bool {
        self.prompt.is_empty() && !self.has_other_blocks
    }
}

/// A chosen session that can do the task. Nothing was written to it.
pub(super) struct FoundSession {
    chosen: ChosenSession,
    /// True if the session already holds the prompt.
    has_prompt: bool,
    /// Point at which the session's prompt continues. `None`: there is a new prompt.
    left_off: Option<LeftOff>,
    /// The prompt to record as the session's first, unless it has one.
    first: FirstPrompt,
    /// The earlier folder of the session, if it is not that of the run.
    moved_from: Option<PathBuf>,
    /// The demands that the session's answer was not checked for.
    new_demands: NewDemands,
}

impl FoundSession {
    /// Checks that a session can do a task.
    ///
    /// # Errors
    /// It is in use, has another prompt, works in another folder, or has no prompt to continue.
    pub(super) fn new(
        chosen: ChosenSession,
        settings: &Settings,
        task: &Task,
    ) -> Result<Self, UsageError> {
        let first = FirstPrompt::of(&task.given);
        if chosen.is_repeatable {
            check_first_prompt(&chosen, &first, task)?;
        }
        let chosen = chosen.unless_in_use()?;
        let (mut left_off, mut moved_from, mut has_prompt) = (None, None, false);
        let new_demands = settings.new_demands();
        if let Some(restored) = chosen.restored() {
            // The prompt is the same each time, so a non-empty session already has it.
            has_prompt = chosen.is_repeatable && !restored.conversation.messages.is_empty();
            let is_new = !has_prompt && !task.is_empty();
            let (id, may_move) = (chosen.source(), chosen.may_move);
            let session = ResumedFolder { id, restored, has_prompt: is_new, may_move };
            moved_from = session.earlier_folder(settings)?;
            if !is_new {
                let none = || format!("session {id} has no prompt that could go on; give one");
                let point = restored.conversation.left_off;
                let point = point.map(|left| left.with_demands(new_demands));
                left_off = Some(point.ok_or_else(|| UsageError::new(none()))?);
            }
        }
        Ok(Self { chosen, has_prompt, left_off, first, moved_from, new_demands })
    }

    /// Copies the records of the session's journals to `mirror`.
    pub(super) fn mirrored(mut self, mirror: Option<JournalMirror>) -> Self {
        self.chosen.place = self.chosen.place.mirrored(mirror);
        self
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
        self.chosen.id.to_string()
    }

    /// Returns the folder for output that is too long for the journal.
    pub(super) fn folder(&self) -> PathBuf {
        self.chosen.place.folder().join(self.chosen.id.as_str())
    }

    /// Returns the required MCP servers: those of the flags, or else those of the previous process.
    pub(super) fn required_servers(&self, settings: &Settings) -> Vec<String> {
        let opened =
            || self.chosen.restored().and_then(|restored| restored.contract.opened.as_ref());
        let carried = || opened().map(|open| open.required_servers.clone());
        settings.mcp.required.clone().or_else(carried).unwrap_or_default()
    }

    /// Returns the warnings about the session and its journal.
    pub(super) fn warnings(&self, settings: &Settings) -> Vec<String> {
        let all = [
            self.unknown_start_warning(),
            self.empty_session_warning(),
            self.moved_warning(settings),
        ];
        all.into_iter().flatten().collect()
    }

    /// Warns about a session that is resumed in another folder.
    fn moved_warning(&self, settings: &Settings) -> Option<String> {
        let before = self.moved_from.as_deref();
        before.map(|before| moved_warning(&self.chosen.id, before, &settings.cwd))
    }

    /// Warns about a session whose journal has no intact record.
    fn empty_session_warning(&self) -> Option<String> {
        let RestoredSession { conversation, contract, .. } = self.chosen.restored()?;
        let is_empty = contract.opened.is_none() && conversation.messages.is_empty();
        is_empty.then(|| {
            format!(
                "the journal of session {} has no intact record: this run begins its conversation",
                self.chosen.source()
            )
        })
    }

    /// Warns about a session whose journal does not record how it was started.
    fn unknown_start_warning(&self) -> Option<String> {
        let RestoredSession { conversation, contract, .. } = self.chosen.restored()?;
        let is_unknown = contract.terms.contract.is_none() && !conversation.messages.is_empty();
        is_unknown.then(|| {
            format!(
                "the journal of session {} does not say which limits, requirement and rules it \
                 was started with; those of this command line and of the settings apply",
                self.chosen.source()
            )
        })
    }

    /// Returns the limits, less the time that the prompt has already used.
    pub(super) fn remaining_limits(&self, limits: &Limits) -> Limits {
        let worked = self.chosen.restored().filter(|_| self.carry() == CarryOver::On);
        let Some(worked) = worked.map(|restored| restored.totals.worked) else { return *limits };
        let left = |end: Moment| {
            Moment::default().after(Moment::default().until(end).saturating_sub(worked))
        };
        Limits { deadline: limits.deadline.map(left), wrap_up: limits.wrap_up.map(left), ..*limits }
    }

    /// Returns `On` if the previous prompt is continued, with its turns, money and time. A new
    /// prompt begins at zero even if the process of the previous prompt was killed.
    fn carry(&self) -> CarryOver {
        if self.left_off.is_some() { CarryOver::On } else { CarryOver::Fresh }
    }

    /// Opens the journal, and returns the state that an earlier process left.
    ///
    /// # Errors
    /// The id is taken. A journal that cannot be written is not an error: the run continues without
    /// it.
    pub(super) fn open(
        self,
        settings: &Settings,
        limits: &Limits,
        model: &str,
        secrets: &KnownSecrets,
    ) -> Result<(Journal, RestoredSession), UsageError> {
        let carry = self.carry();
        let opening = ProcessOpening {
            version: VERSION.to_owned(),
            model: model.to_owned(),
            permission_mode: settings.config.permissions.mode.name().to_owned(),
            limits: *limits,
            carry,
            required_servers: self.required_servers(settings),
            new_demands: self.new_demands,
            contract: Some(settings.contract()),
            prompt: Some(self.first),
            title: settings.session_title.clone(),
            secrets: secrets.clone(),
        };
        let ChosenSession { id, place, origin, is_repeatable, .. } = self.chosen;
        let is_forked = matches!(origin, SessionOrigin::Forked(..));
        let (journal, restored) = match origin {
            SessionOrigin::InUse(error, _) => return Err(journal_error(*error)),
            SessionOrigin::New if settings.persist => {
                let created = Journal::create(&place, &id, &opening);
                let created = created.map_err(|error| creation_error(error, is_repeatable));
                (begun(created)?, None)
            }
            SessionOrigin::New => (Journal::disabled(), None),
            SessionOrigin::Resumed(session) => {
                let (journal, restored) = session.open(&place, &opening);
                (journal, Some(restored))
            }
            SessionOrigin::Forked(source, restored) if settings.persist => {
                let forked = Journal::fork(&place, &id, &opening, (&source, &restored));
                (begun(forked)?, Some(*restored))
            }
            SessionOrigin::Forked(_, source) | SessionOrigin::ReadOnly(source) => {
                let mut recorded = source.conversation.recorded.clone();
                if is_forked {
                    recorded.forget_calls();
                }
                (Journal::without_file(recorded, &opening), Some(*source))
            }
        };
        let mut restored = restored.unwrap_or_default();
        // The counts and costs of a forked session are reported by its source.
        let counts = if is_forked { CarryOver::Fresh } else { carry };
        adapt(&mut restored, counts, limits);
        let run = &mut restored.work.run;
        *run = run.map(|run| run.with_demands(self.new_demands, limits));
        if is_forked {
            restored.totals.session = SessionTotals::default();
            // A fork has budgets and pauses of its own.
            restored.work.run = None;
        }
        restored.conversation.left_off = self.left_off;
        restored.conversation.is_fork = is_forked;
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
        work.agents = Vec::new();
    }
    let before = contract.opened.as_ref().map(|open| &open.limits);
    work.run = work.run.map(|run| match carry {
        CarryOver::Fresh => run.for_new_prompt(before, limits),
        CarryOver::On => {
            let run = if is_over { run.reopened(before, limits) } else { run };
            apply_limits(run, totals.prompt.turns, before, limits)
        }
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
        budgets.objections = left(budgets.objections, were.objections, are.objections);
        budgets.nudges = left(budgets.nudges, were.nudges, are.nudges);
    }
    // Fast mode must be requested by this process; once given up, it stays off.
    let fast = limits.fast.is_some() && run.budgets.fast_mode > 0;
    run.fast = if fast { Fast::On } else { Fast::Off };
    run
}

/// Checks that the session of `--resume-or-start` was started with this prompt.
///
/// # Errors
/// The session has another prompt.
fn check_first_prompt(
    chosen: &ChosenSession,
    first: &FirstPrompt,
    task: &Task,
) -> Result<(), UsageError> {
    match (chosen.terms().prompt, chosen.restored().and_then(first_words)) {
        // The recorded beginning of a prompt is redacted, but its hash is that of the given prompt.
        (Some(known), _) if known.sha256 != first.sha256 => {
            Err(another_prompt(&chosen.id, &known.beginning, &first.beginning))
        }
        (None, Some(known)) if !is_prompt_of(&known, task) => {
            Err(another_prompt(&chosen.id, &prompt_title(&known), &first.beginning))
        }
        (Some(_) | None, _) => Ok(()),
    }
}

/// Returns the text of a session's first message.
fn first_words(restored: &RestoredSession) -> Option<String> {
    let first = restored.conversation.messages.first().filter(|first| first.role == Role::User)?;
    first.content.iter().find_map(Block::as_text).map(str::to_owned)
}

/// Returns true if this may be the prompt of a session without a recorded first prompt. The journal
/// contains redacted and possibly compacted text.
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

/// Converts the error of creating a session. With `--resume-or-start`, a session that appeared
/// meanwhile is being started by another process.
fn creation_error(error: JournalError, is_repeatable: bool) -> JournalError {
    if is_repeatable && let JournalError::Exists { id, .. } = error {
        return JournalError::Locked { id, holder: None };
    }
    error
}

/// Turns a journal write error into a run without a journal.
fn begun(journal: Result<Journal, JournalError>) -> Result<Journal, UsageError> {
    match journal {
        Err(error @ JournalError::Unwritable { .. }) => Ok(Journal::unwritable(error.to_string())),
        other => other.map_err(journal_error),
    }
}
