//! Which session a run belongs to, and what it brings along.

use std::path::PathBuf;

use crate::agent::{Carried, ModelTally, Rung, Tally};
use crate::journal::{
    Carry, Held, Journal, JournalError, Opening, Place, Restored, SessionId, latest, read,
};
use crate::model;
use crate::recovery::{Fast, Limits, Money, Run};
use crate::transcript::{Role, strip_thinking};

use super::settings::{Demands, Settings, Start};
use super::usage::{Cause, UsageError};
use super::version::VERSION;

/// A session that was found, and not yet written to.
pub(super) struct Session {
    id: SessionId,
    place: Place,
    kind: Kind,
    /// Whether it goes on with the command of `--require`, and with nothing else.
    unjudged: bool,
}

enum Kind {
    New,
    Resumed(Box<Held>),
    Forked(Box<Restored>),
    /// Read, but not to be written: nothing is kept.
    Recalled(Box<Restored>),
}

/// What is taken over from an earlier process.
#[derive(Default)]
pub(super) struct Legacy {
    pub(super) carried: Carried,
    /// What counts against the budget already.
    pub(super) spent: Money,
    /// Part of it of which nobody knows whether it was billed.
    pub(super) unsettled: Money,
    /// The model that signed the thinking in the messages.
    model: Option<String>,
}

impl Legacy {
    /// Leaves out thinking that was signed by another model of `chain` than the one that will be
    /// asked first, and looks up what the chain knows of the models used before.
    pub(super) fn fit_to(&mut self, chain: &[Rung]) {
        let rung = self.carried.run.map_or(0, |run| usize::from(run.rung));
        let asked = chain.get(rung).or(chain.last());
        if self.model.as_deref().is_some_and(|before| asked.is_none_or(|it| it.label != before)) {
            strip_thinking(&mut self.carried.messages);
        }
        for line in &mut self.carried.tally.by_model {
            if let Some(rung) = chain.iter().find(|rung| rung.label == line.model) {
                line.context_window = rung.facts.context_window;
                line.max_output = rung.facts.max_output;
            }
        }
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
                let id = id(session_id)?;
                return Ok(Self { id, place, kind: Kind::New, unjudged: false });
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
        let mut session = Self { id, place, kind, unjudged: false };
        session.unjudged = prompt.is_empty() && session.awaits_verdict(&settings.demands);
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
        let unanswered = restored.messages.last().is_some_and(|last| last.role == Role::User);
        if unanswered || self.unjudged {
            return Ok(());
        }
        Err(UsageError::new(format!(
            "session {} has nothing left to do; give a prompt to go on with it",
            restored.id
        )))
    }

    /// Whether the last answer only waits for the command of `--require`. One that must have a
    /// shape is asked for once more: it was not kept apart from the conversation.
    fn awaits_verdict(&self, demands: &Demands) -> bool {
        let Kind::Resumed(held) = &self.kind else { return false };
        let restored = held.restored();
        let last_said = restored.messages.last().is_some_and(|last| last.role == Role::Assistant);
        let known = restored.unjudged && restored.run.is_some() && last_said;
        known && demands.requirement.is_some() && demands.schema.is_none()
    }

    fn restored(&self) -> Option<&Restored> {
        match &self.kind {
            Kind::New => None,
            Kind::Resumed(held) => Some(held.restored()),
            Kind::Forked(restored) | Kind::Recalled(restored) => Some(restored),
        }
    }

    /// Opens the journal and hands over what an earlier process left.
    ///
    /// # Errors
    /// The id is taken. A journal that cannot be written is no error: the run goes on without.
    pub(super) fn open(
        self,
        settings: &Settings,
        limits: &Limits,
        model: &str,
    ) -> Result<(Journal, Legacy), UsageError> {
        let unfinished = |restored: &Restored| restored.ended.is_none() && restored.run.is_some();
        let carry = match &self.kind {
            Kind::Resumed(held) if self.unjudged || unfinished(held.restored()) => Carry::On,
            Kind::New | Kind::Resumed(_) | Kind::Forked(_) | Kind::Recalled(_) => Carry::Fresh,
        };
        let opening = Opening {
            version: VERSION.to_owned(),
            model: model.to_owned(),
            permission_mode: settings.tools.mode.name().to_owned(),
            limits: *limits,
            carry,
            redact: settings.secrets(),
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
        let legacy = restored.map(|restored| inherit(restored, carry, limits));
        let mut legacy = legacy.unwrap_or_default();
        legacy.carried.unjudged = self.unjudged;
        Ok((journal, legacy))
    }
}

/// What of a restored session goes on. The counters of a prompt that was cut off do; a new prompt
/// begins with nothing spent.
fn inherit(restored: Restored, carry: Carry, limits: &Limits) -> Legacy {
    let mut tally = Tally {
        unknown_outcomes: restored.unknown_outcomes,
        dropped_records: restored.dropped_records,
        ..Tally::default()
    };
    let (mut run, mut spent, mut unsettled) = (None, Money::ZERO, Money::ZERO);
    if carry == Carry::On {
        let done = restored.prompt;
        tally.turns = done.turns;
        tally.usage = done.usage;
        tally.by_model = done.by_model.into_iter().map(tally_of).collect();
        tally.models = done.models;
        tally.recovery = restored.recovery;
        (spent, unsettled) = (done.spent, done.unsettled);
        run = restored.run.map(|run| within(run, done.turns, limits));
    }
    let carried = Carried { messages: restored.messages, run, tally, unjudged: false };
    Legacy { carried, spent, unsettled, model: restored.signed_by }
}

/// A run that goes on under the limits of this process, less what was used up before.
fn within(run: Run, turns: u32, limits: &Limits) -> Run {
    let mut run = Run { rung: run.rung.min(limits.budgets.switches), ..run };
    run.budgets.turns = limits.budgets.turns.map(|all| all.saturating_sub(turns));
    run.budgets.refreshes = limits.budgets.refreshes;
    // Asked for by this process or not at all; given up once, it stays given up.
    let fast = limits.fast.is_some() && run.budgets.fast_mode > 0;
    run.fast = if fast { Fast::On } else { Fast::Off };
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
