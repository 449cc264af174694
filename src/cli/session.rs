//! Which session a run belongs to, and what it brings along.

use std::path::PathBuf;

use crate::agent::{self, Carried, ModelTally, Rung, Tally};
use crate::journal::{
    Carry, Held, Journal, JournalError, Opening, Place, Restored, SessionId, latest, read,
};
use crate::model;
use crate::recovery::{Fast, Limits, Money, Run, Spiral};
use crate::transcript::{Role, strip_thinking};

use super::settings::{Settings, Start};
use super::usage::{Cause, UsageError};
use super::version::VERSION;

/// A session that was found, and not yet written to.
pub(super) struct Session {
    id: SessionId,
    place: Place,
    kind: Kind,
    /// Whether its prompt is in it already.
    prompted: bool,
    /// What there is to do without a prompt.
    rest: Rest,
}

/// What a session still has to do when nobody says anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The model is to be asked.
    Asking,
    /// Nothing but the hooks of Stop and the command of `--require`.
    Judging,
    /// Nothing: it was completed, and how it ended is said once more.
    Nothing,
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
                return Ok(Self::new(id, place, Kind::New));
            }
            Start::ResumeOrStart { session_id } => {
                return Self::resume_or_start(id(session_id)?, place, prompt, settings);
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
        Self::new(id, place, kind).prepared(prompt, settings)
    }

    fn new(id: SessionId, place: Place, kind: Kind) -> Self {
        Self { id, place, kind, prompted: false, rest: Rest::Asking }
    }

    /// One that may be there, may be under way in another process, and may have to be begun. The
    /// prompt is the same each time, so one in which anybody spoke has it.
    fn resume_or_start(
        id: SessionId,
        place: Place,
        prompt: &str,
        settings: &Settings,
    ) -> Result<Self, UsageError> {
        match Held::take(&place, &id) {
            Ok(held) => {
                let prompted = !held.restored().messages.is_empty();
                let kind = Kind::Resumed(Box::new(held));
                let session = Self { prompted, ..Self::new(id, place, kind) };
                session.prepared(if prompted { "" } else { prompt }, settings)
            }
            Err(JournalError::Unknown { .. }) => Ok(Self::new(id, place, Kind::New)),
            Err(error) => Err(refused(error)),
        }
    }

    /// Sees what there is to do.
    fn prepared(mut self, prompt: &str, settings: &Settings) -> Result<Self, UsageError> {
        if prompt.is_empty() {
            self.rest = self.rest(settings)?;
        }
        Ok(self)
    }

    /// What of the prompt is still to be said.
    pub(super) fn unsaid<'a>(&self, prompt: &'a str) -> &'a str {
        if self.prompted { "" } else { prompt }
    }

    pub(super) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Where the session keeps what is too long for its journal.
    pub(super) fn folder(&self) -> PathBuf {
        self.place.folder().join(self.id.as_str())
    }

    /// What is left to do without a prompt. An answer in a shape was not kept apart from the
    /// conversation, so the model is asked for it once more where it did not come to its end.
    fn rest(&self, settings: &Settings) -> Result<Rest, UsageError> {
        let demands = &settings.demands;
        let Some(restored) = self.restored() else { return Ok(Rest::Asking) };
        let unanswered = restored.messages.last().is_some_and(|last| last.role == Role::User);
        if unanswered || agent::has_lost_work(&restored.messages) {
            return Ok(Rest::Asking);
        }
        let (forked, demanded) = (matches!(self.kind, Kind::Forked(_)), restored.limits);
        let shaped = demands.schema.is_some() || demanded.is_some_and(|then| then.structured);
        if !forked && !shaped && !restored.messages.is_empty() {
            let (done, run) = (restored.finished, restored.run);
            // What the hooks of Stop say to an end that was told already is told as well.
            let untold = restored.ended.is_none() || restored.unjudged;
            let consults = settings.asks_hooks_to_stop() && untold;
            if demands.requirement.is_some() || consults {
                if (done || restored.unjudged) && run.is_some() {
                    return Ok(Rest::Judging);
                }
            // Without the command that it was begun with, nobody knows whether it is done.
            } else if done
                && (restored.ended.is_some() || !demanded.is_some_and(|it| it.requirement))
            {
                return Ok(Rest::Nothing);
            }
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

    /// The servers without which nothing is to be done: those that the flags name, or otherwise
    /// those of the process before.
    pub(super) fn required_servers(&self, settings: &Settings) -> Vec<String> {
        let carried = || self.restored().map(|restored| restored.required_servers.clone());
        settings.mcp.required.clone().or_else(carried).unwrap_or_default()
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
            Kind::Resumed(held) if unfinished(held.restored()) => Carry::On,
            Kind::New | Kind::Resumed(_) | Kind::Forked(_) | Kind::Recalled(_)
                if self.rest == Rest::Asking =>
            {
                Carry::Fresh
            }
            Kind::New | Kind::Resumed(_) | Kind::Forked(_) | Kind::Recalled(_) => Carry::On,
        };
        let opening = Opening {
            version: VERSION.to_owned(),
            model: model.to_owned(),
            permission_mode: settings.tools.mode.name().to_owned(),
            limits: *limits,
            carry,
            required_servers: self.required_servers(settings),
            redact: settings.secrets(),
        };
        let goes_on = !matches!(self.kind, Kind::Forked(_));
        let (journal, restored) = match self.kind {
            Kind::New if settings.persist => {
                let created = Journal::create(&self.place, &self.id, &opening);
                (begun(created.map_err(|error| settings.session.meaning(error)))?, None)
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
        if !goes_on {
            // What its source cost is told there.
            legacy.carried.cost_before = Money::ZERO;
        }
        legacy.carried.unjudged = self.rest == Rest::Judging;
        legacy.carried.finished = self.rest == Rest::Nothing;
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
    let mut cost_before = restored.session.spent;
    let (mut spiral, mut agents) = (Spiral::default(), Vec::new());
    if carry == Carry::On {
        let done = restored.prompt;
        cost_before = cost_before.minus(done.spent);
        tally.turns = done.turns;
        tally.usage = done.usage;
        tally.by_model = done.by_model.into_iter().map(tally_of).collect();
        tally.models = done.models;
        tally.recovery = restored.recovery;
        (spent, unsettled) = (done.spent, done.unsettled);
        (spiral, agents) = (restored.spiral, restored.agents);
        run = restored.run.map(|run| within(run, done.turns, limits));
    }
    let carried = Carried {
        messages: restored.messages,
        run,
        tally,
        spiral,
        windows: restored.windows,
        agents,
        cost_before,
        ..Carried::default()
    };
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

impl Start {
    /// A session that is there although it was not a moment ago is being started by another
    /// process, where that may be.
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
    /// The id of the session that a run belongs to; empty where there is none to continue.
    pub(super) fn session_id(&self) -> String {
        match &self.session {
            Start::New { session_id } | Start::ResumeOrStart { session_id } => session_id.clone(),
            Start::Resume { session_id, fork } => fork.as_ref().unwrap_or(session_id).clone(),
            Start::Continue { fork: Some(fresh) } => fresh.clone(),
            Start::Continue { fork: None } => {
                let newest = latest(&Place::new(&self.config_dir, &self.cwd));
                newest.ok().flatten().map_or_else(String::new, |id| id.to_string())
            }
        }
    }
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
