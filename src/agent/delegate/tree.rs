//! All sub-agents of a run, however deep: who there is, and what each is doing.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::journal::Nest;
use crate::recovery::{Moment, Money, StopReason};
use crate::tools::AgentDefinition;

use super::super::setup::Denial;
use super::super::signals::Interrupts;
use super::Delegation;

/// Who a sub-agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentMark {
    /// What the model, results and files call it: `a1`.
    pub id: String,
    /// The tool call that started it.
    pub call: String,
    /// Its definition's name.
    pub kind: String,
    /// What it is for, in a few words.
    pub description: String,
}

/// How a sub-agent stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// In line for a place, or at work.
    Running,
    Completed,
    Failed,
    /// Somebody stopped it.
    Stopped,
}

impl AgentStatus {
    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// A sub-agent as those outside see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    pub mark: AgentMark,
    /// The sub-agent that started it. `None`: the run itself.
    pub parent: Option<String>,
    /// 1: started by the run itself.
    pub depth: u8,
    /// Whether it is one that was started again after a failure, and of which.
    pub retries: Option<String>,
    pub background: bool,
    pub prompt: String,
    pub model: String,
    /// Where its conversation is kept, as `session/subagents/agent-a1`.
    pub session: String,
    pub status: AgentStatus,
    /// Why it ended.
    pub reason: Option<StopReason>,
    /// What failed it, in the service's words.
    pub error: Option<String>,
    /// Everything that counts against the budget.
    pub cost: Money,
    /// Part of it of which nobody knows whether it was billed.
    pub unsettled: Money,
    pub turns: u32,
    pub tokens: u64,
    pub tool_calls: u32,
    pub requests: u32,
    pub took: Duration,
}

impl AgentTask {
    /// The same after the run has ended with it.
    #[must_use]
    pub fn cut(mut self) -> Self {
        if self.status == AgentStatus::Running {
            self.status = AgentStatus::Stopped;
        }
        self
    }
}

/// All sub-agents, and what they have in common.
pub(in super::super) struct Tree {
    pub(in super::super) definitions: Vec<AgentDefinition>,
    pub(super) delegation: Delegation,
    /// What stops the whole run.
    pub(super) interrupts: Interrupts,
    /// Where journals of sub-agents are kept, if they are.
    pub(super) nest: Option<Nest>,
    session_id: String,
    places: Arc<Semaphore>,
    roster: Mutex<Roster>,
}

#[derive(Debug, Default)]
struct Roster {
    /// How many there were in the session so far.
    started: u32,
    entries: Vec<Entry>,
    denials: Vec<Denial>,
}

#[derive(Debug)]
struct Entry {
    task: AgentTask,
    began: Moment,
    doing: String,
}

impl Tree {
    pub(in super::super) fn new(
        definitions: Vec<AgentDefinition>,
        delegation: Delegation,
        interrupts: Interrupts,
        nest: Option<Nest>,
        session_id: &str,
    ) -> Arc<Self> {
        let mut kinds = vec![AgentDefinition::general_purpose()];
        for definition in definitions {
            kinds.retain(|known| known.name != definition.name);
            kinds.push(definition);
        }
        let live = usize::try_from(delegation.limits.live).unwrap_or(usize::MAX);
        let started = nest.as_ref().map_or(0, Nest::highest);
        Arc::new(Self {
            definitions: kinds,
            delegation,
            interrupts,
            nest,
            session_id: session_id.to_owned(),
            places: Arc::new(Semaphore::new(live.clamp(1, Semaphore::MAX_PERMITS))),
            roster: Mutex::new(Roster { started, ..Roster::default() }),
        })
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// Which there are, for the model.
    pub(super) fn kind(&self, name: &str) -> Result<&AgentDefinition, String> {
        let found = self.definitions.iter().find(|kind| kind.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.definitions.iter().map(|kind| kind.name.as_str()).collect();
            format!("there is no agent {name:?}; there are: {}", names.join(", "))
        })
    }

    /// Whether there may be any at all.
    pub(in super::super) fn has_depth(&self) -> bool {
        self.delegation.limits.depth > 0
    }

    /// Whether another one may be started that deep.
    ///
    /// # Errors
    /// Why not, for the model.
    pub(super) fn admit(&self, depth: u8) -> Result<(), String> {
        let limits = self.delegation.limits;
        if depth > limits.depth {
            return Err(format!(
                "agents may be nested {} deep, and this one is at the limit: do the work yourself",
                limits.depth
            ));
        }
        if self.roster().started >= limits.total {
            return Err(format!(
                "a session may start {} agents, and all of them were started: do the work yourself",
                limits.total
            ));
        }
        Ok(())
    }

    /// Takes a new one in. Gives it its id, and the place of its conversation.
    ///
    /// # Errors
    /// There were too many meanwhile.
    pub(super) fn enter(&self, mut task: AgentTask, at: Moment) -> Result<AgentTask, String> {
        self.admit(task.depth)?;
        let mut roster = self.roster();
        roster.started += 1;
        task.mark.id = format!("a{}", roster.started);
        task.session = format!("{}/subagents/agent-{}", self.session_id, task.mark.id);
        let doing = "starting".to_owned();
        roster.entries.push(Entry { task: task.clone(), began: at, doing });
        Ok(task)
    }

    /// Remembers what one is doing.
    pub(super) fn doing(&self, id: &str, doing: String) {
        if let Some(entry) = self.roster().entries.iter_mut().find(|it| it.task.mark.id == id) {
            entry.doing = doing;
        }
    }

    /// Remembers how one ended.
    pub(super) fn leave(&self, task: &AgentTask, denials: Vec<Denial>) {
        let mut roster = self.roster();
        roster.denials.extend(denials);
        let entry = roster.entries.iter_mut().find(|it| it.task.mark.id == task.mark.id);
        if let Some(entry) = entry {
            entry.task = task.clone();
        }
    }

    /// What those whom `parent` has started are doing, a line each; empty when there are none.
    pub(in super::super) fn doings(&self, parent: Option<&str>, now: Moment) -> String {
        let roster = self.roster();
        let running = |entry: &&Entry| {
            entry.task.status == AgentStatus::Running && entry.task.parent.as_deref() == parent
        };
        let mut list = String::new();
        for entry in roster.entries.iter().filter(running) {
            let AgentMark { id, kind, .. } = &entry.task.mark;
            let gap = if list.is_empty() { "" } else { "\n" };
            let took = Duration::from_secs(entry.began.until(now).as_secs());
            let took = humantime::format_duration(took);
            // A string takes all that is written to it.
            let _ = write!(list, "{gap}- {id} ({kind}) for {took}, {}", entry.doing);
        }
        list
    }

    /// All of them, in the order in which they were started.
    pub(in super::super) fn tasks(&self) -> Vec<AgentTask> {
        self.roster().entries.iter().map(|entry| entry.task.clone()).collect()
    }

    /// Whether something was not allowed to one that is over.
    pub(in super::super) fn has_denials(&self) -> bool {
        !self.roster().denials.is_empty()
    }

    /// What was not allowed to them.
    pub(in super::super) fn take_denials(&self) -> Vec<Denial> {
        std::mem::take(&mut self.roster().denials)
    }

    /// A place to work at, still to be taken.
    pub(super) fn seat(&self) -> Seat {
        Seat { places: Arc::clone(&self.places), taken: None }
    }
}

/// A sub-agent's place among those at work. One that does nothing but wait for its own sub-agents
/// leaves it to them: otherwise all could wait for each other.
pub(in super::super) struct Seat {
    places: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Seat {
    pub(in super::super) fn leave(&mut self) {
        self.taken = None;
    }

    /// Waits for a place.
    pub(in super::super) async fn take(&mut self) {
        if self.taken.is_none() {
            // It is never closed.
            self.taken = Arc::clone(&self.places).acquire_owned().await.ok();
        }
    }
}
