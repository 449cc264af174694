//! Which session a run belongs to, and what it brings along.

use std::path::PathBuf;

use crate::agent::{Carried, ModelTally, Tally};
use crate::journal::{
    Carry, Held, Journal, JournalError, Opening, Place, Restored, SessionId, latest, read,
};
use crate::model;
use crate::recovery::{Limits, Money, Run};
use crate::transcript::Role;

use super::settings::{Settings, Start};
use super::usage::{Cause, UsageError};

/// A session that was found, and not yet written to.
pub(super) struct Session {
    id: SessionId,
    place: Place,
    kind: Kind,
}

enum Kind {
    New,
    Resumed(Box<Held>),
    Forked(Box<Restored>),
    /// Read, but not to be written: nothing is kept.
    Recalled(Box<Restored>),
}

/// What is taken over from an earlier process.
pub(super) struct Legacy {
    pub(super) carried: Carried,
    /// The model that signed the thinking in the messages.
    model: Option<String>,
}

impl Legacy {
    /// Whether thinking in the messages was signed by a model that is not asked now.
    pub(super) fn answered_by_another(&self, model: &str) -> bool {
        self.model.as_deref().is_some_and(|before| before != model)
    }
}

impl Session {
    /// Finds and locks the session that the flags name. Changes nothing.
    ///
    /// # Errors
    /// It is not there, is in use, cannot be read, or has nothing left to do without a prompt.
    pub(super) fn find(settings: &Settings, prompt: &str) -> Result<Self, UsageError> {
        let place = Place::new(&settings.config_dir, &settings.cwd);
        let (source, fork) = match &settings.session {
            Start::New { session_id } => {
                return Ok(Self { id: id(session_id)?, place, kind: Kind::New });
            }
            Start::Resume { session_id, fork } => (id(session_id)?, fork),
            Start::Continue { fork } => (newest(&place)?, fork),
        };
        let (id, kind) = match fork {
            Some(fresh) => {
                (id(fresh)?, Kind::Forked(Box::new(read(&place, &source).map_err(refused)?)))
            }
            None if settings.persist => {
                let held = Held::take(&place, &source).map_err(refused)?;
                (source, Kind::Resumed(Box::new(held)))
            }
            None => {
                let restored = read(&place, &source).map_err(refused)?;
                (source, Kind::Recalled(Box::new(restored)))
            }
        };
        let session = Self { id, place, kind };
        session.check_prompt(prompt)?;
        Ok(session)
    }

    pub(super) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Where the session keeps what is too long for its journal.
    pub(super) fn folder(&self) -> PathBuf {
        self.place.folder().join(self.id.as_str())
    }

    /// Without a prompt there must be something left to answer.
    fn check_prompt(&self, prompt: &str) -> Result<(), UsageError> {
        let Some(restored) = self.restored().filter(|_| prompt.is_empty()) else { return Ok(()) };
        if restored.messages.last().is_some_and(|message| message.role == Role::User) {
            return Ok(());
        }
        Err(UsageError::new(format!(
            "session {} has nothing left to do; give a prompt to go on with it",
            restored.id
        )))
    }

    fn restored(&self) -> Option<&Restored> {
        match &self.kind {
            Kind::New => None,
            Kind::Resumed(held) => Some(held.restored()),
            Kind::Forked(restored) | Kind::Recalled(restored) => Some(restored),
        }
    }

    /// Opens the journal and hands over what an earlier process left: the journal, the
    /// conversation, and the money that counts towards this run.
    ///
    /// # Errors
    /// The id is taken. A journal that cannot be written is no error: the run goes on without.
    pub(super) fn open(
        self,
        settings: &Settings,
        limits: &Limits,
        model: &str,
    ) -> Result<(Journal, Legacy, Money), UsageError> {
        let unfinished = |restored: &Restored| restored.ended.is_none() && restored.run.is_some();
        let carry = match &self.kind {
            Kind::Resumed(held) if unfinished(held.restored()) => Carry::On,
            Kind::New | Kind::Resumed(_) | Kind::Forked(_) | Kind::Recalled(_) => Carry::Fresh,
        };
        let opening = Opening {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: model.to_owned(),
            permission_mode: settings.tools.mode.name().to_owned(),
            limits: *limits,
            carry,
            redact: settings.endpoint.credential.secret().map(str::to_owned).into_iter().collect(),
        };
        let (journal, restored) = match self.kind {
            Kind::New if settings.persist => {
                (begun(Journal::create(&self.place, &self.id, &opening))?, None)
            }
            Kind::New => (Journal::off(), None),
            Kind::Resumed(held) => {
                let (journal, restored) = held.open(&self.place, &opening);
                (journal, Some(restored))
            }
            Kind::Forked(source) if settings.persist => {
                let forked = Journal::fork(&self.place, &self.id, &opening, &source);
                (begun(forked)?, Some(*source))
            }
            Kind::Forked(source) | Kind::Recalled(source) => (Journal::off(), Some(*source)),
        };
        let (legacy, spent) = match restored {
            Some(restored) => inherit(restored, carry, limits),
            None => (Legacy { carried: Carried::default(), model: None }, Money::ZERO),
        };
        Ok((journal, legacy, spent))
    }
}

/// What of a restored session goes on. The counters of a prompt that was cut off do; a new prompt
/// begins with nothing spent.
fn inherit(restored: Restored, carry: Carry, limits: &Limits) -> (Legacy, Money) {
    let mut tally = Tally {
        unknown_outcomes: restored.unknown_outcomes,
        dropped_records: restored.dropped_records,
        ..Tally::default()
    };
    let (mut run, mut spent) = (None, Money::ZERO);
    if carry == Carry::On {
        let done = restored.prompt;
        tally.turns = done.turns;
        tally.usage = done.usage;
        tally.by_model = done.by_model.into_iter().map(tally_of).collect();
        spent = done.spent;
        run = restored.run.map(|run| within(run, done.turns, limits));
    }
    let carried = Carried { messages: restored.messages, run, tally };
    (Legacy { carried, model: restored.model }, spent)
}

/// A run that goes on under the limits of this process, less what was used up before.
fn within(run: Run, turns: u32, limits: &Limits) -> Run {
    let mut run = Run { rung: run.rung.min(limits.budgets.switches), ..run };
    run.budgets.turns = limits.budgets.turns.map(|all| all.saturating_sub(turns));
    run.budgets.refreshes = limits.budgets.refreshes;
    run
}

fn tally_of(sum: crate::journal::ModelSum) -> ModelTally {
    let facts = model::facts(&sum.model);
    ModelTally {
        model: sum.model,
        usage: sum.usage,
        cost: sum.cost,
        context_window: facts.context_window,
        max_output: facts.max_output,
    }
}

fn id(name: &str) -> Result<SessionId, UsageError> {
    SessionId::parse(name).ok_or_else(|| {
        UsageError::new(format!(
            "{name:?} is no session id; ids have letters, digits, - and _ only"
        ))
    })
}

fn newest(place: &Place) -> Result<SessionId, UsageError> {
    latest(place).map_err(refused)?.ok_or_else(|| {
        UsageError::new(format!(
            "there is no session to continue in {}; start one by giving only a prompt",
            place.cwd().display()
        ))
    })
}

/// A journal that cannot be written is no reason not to run.
fn begun(journal: Result<Journal, JournalError>) -> Result<Journal, UsageError> {
    match journal {
        Err(error @ JournalError::Unwritable { .. }) => Ok(Journal::lost(error.to_string())),
        other => other.map_err(refused),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
fn refused(error: JournalError) -> UsageError {
    let line = format!("{error}; {}", error.hint());
    match error {
        JournalError::Locked { .. } => UsageError::of(Cause::Busy, line),
        JournalError::Unwritable { .. }
        | JournalError::Exists { .. }
        | JournalError::Unknown { .. }
        | JournalError::Unreadable { .. }
        | JournalError::Damaged { .. }
        | JournalError::Newer { .. } => UsageError::new(line),
    }
}
