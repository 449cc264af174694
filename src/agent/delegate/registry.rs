//! The registry of a run's sub-agents at every depth, with their current activities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::journal::{Denial, PastAgent, SubagentJournal};
use crate::recovery::Moment;
use crate::tools::{AgentCall, AgentDefinition, TaskStops};

use super::super::shared_ledger::SharedLedger;
use super::super::signals::{DenialReceiver, InterruptReceiver};
use super::Delegation;
use super::concurrency::{ConcurrencyLimiter, ConcurrencySlot};
use super::spawn_error::SpawnError;
use super::task::{AgentIdentity, AgentStatus, AgentTask};

/// The registry of all sub-agents, with their shared state.
pub(in super::super) struct AgentRegistry {
    pub(in super::super) definitions: Vec<AgentDefinition>,
    pub(in super::super) delegation: Delegation,
    /// Interrupts of the whole run.
    pub(super) interrupts: InterruptReceiver,
    /// The location of the journals of sub-agents, if they are kept.
    pub(super) location: Option<SubagentJournal>,
    session_id: String,
    limiter: Arc<ConcurrencyLimiter>,
    state: Mutex<RegistryState>,
    alarm: watch::Sender<bool>,
    /// The tasks that a host can stop: these sub-agents are among them.
    pub(super) stops: TaskStops,
    /// Reports on sub-agents of earlier processes, by id.
    past_reports: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// Sub-agents that the session has started so far.
    started: u32,
    entries: Vec<AgentRecord>,
    denials: Vec<Denial>,
}

#[derive(Debug)]
struct AgentRecord {
    task: AgentTask,
    began: Moment,
    activity: String,
}

/// Returns the kinds of sub-agents: these, and the built-in one unless they replace it.
pub fn agent_kinds(definitions: Vec<AgentDefinition>) -> Vec<AgentDefinition> {
    let mut kinds = vec![AgentDefinition::general_purpose()];
    for definition in definitions {
        kinds.retain(|known| known.name != definition.name);
        kinds.push(definition);
    }
    kinds
}

impl AgentRegistry {
    pub(in super::super) fn new(
        definitions: Vec<AgentDefinition>,
        delegation: Delegation,
        interrupts: InterruptReceiver,
        location: Option<SubagentJournal>,
        session_id: &str,
        past: Vec<PastAgent>,
    ) -> Self {
        let limiter = ConcurrencyLimiter::new(delegation.limits.live);
        let started = location.as_ref().map_or(0, SubagentJournal::highest_number);
        let mut entries: Vec<AgentRecord> = Vec::new();
        let mut past_reports = BTreeMap::new();
        for agent in past {
            let parent = agent.meta.parent_agent_id.as_ref();
            let parent = entries.iter().find(|record| Some(&record.task.identity.id) == parent);
            let depth = parent.map_or(0, |parent| parent.task.depth).saturating_add(1);
            past_reports.insert(agent.meta.agent_id.clone(), agent.describe());
            let task = AgentTask::past(agent, depth, session_id);
            entries.push(AgentRecord { task, began: Moment::default(), activity: String::new() });
        }
        Self {
            definitions: agent_kinds(definitions),
            delegation,
            interrupts,
            location,
            session_id: session_id.to_owned(),
            limiter,
            state: Mutex::new(RegistryState { started, entries, ..RegistryState::default() }),
            past_reports,
            alarm: watch::channel(false).0,
            stops: TaskStops::default(),
        }
    }

    /// Adds the sub-agents to the tasks that a host can stop.
    pub(in super::super) fn stoppable_by(self, stops: TaskStops) -> Self {
        Self { stops, ..self }
    }

    /// Returns the agent definition of that name.
    ///
    /// # Errors
    /// The names that exist, for the model.
    pub(super) fn kind(&self, name: &str) -> Result<&AgentDefinition, SpawnError> {
        let found = self.definitions.iter().find(|kind| kind.name == name);
        found.ok_or_else(|| {
            let known = self.definitions.iter().map(|kind| kind.name.clone()).collect();
            SpawnError::UnknownAgent { name: name.to_owned(), known }
        })
    }

    /// Returns true if the agent that makes this call waits for the end of the sub-agent.
    pub(super) fn waits_for(&self, call: &AgentCall) -> bool {
        let in_background = |kind: &AgentDefinition| kind.background;
        let by_kind = || self.kind(&call.subagent_type).is_ok_and(in_background);
        !call.run_in_background.unwrap_or_else(by_kind)
    }

    pub(in super::super) fn allows_agents(&self) -> bool {
        self.delegation.limits.depth > 0
    }

    /// Checks whether another sub-agent may start at that depth.
    ///
    /// # Errors
    /// The reason, for the model.
    pub(super) fn admit(&self, depth: u8) -> Result<(), SpawnError> {
        self.admit_to(&self.state.lock(), depth)
    }

    fn admit_to(&self, state: &RegistryState, depth: u8) -> Result<(), SpawnError> {
        let limits = self.delegation.limits;
        if depth > limits.depth {
            return Err(SpawnError::TooDeep { limit: limits.depth });
        }
        if state.started >= limits.total {
            return Err(SpawnError::TooMany { limit: limits.total });
        }
        Ok(())
    }

    /// Registers a sub-agent, and assigns its id and the location of its conversation.
    ///
    /// # Errors
    /// The limit was reached meanwhile.
    pub(super) fn register(
        &self,
        mut task: AgentTask,
        at: Moment,
    ) -> Result<AgentTask, SpawnError> {
        let mut state = self.state.lock();
        self.admit_to(&state, task.depth)?;
        state.started += 1;
        task.identity.id = format!("a{}", state.started);
        task.session = format!("{}/subagents/agent-{}", self.session_id, task.identity.id);
        let activity = "starting".to_owned();
        state.entries.push(AgentRecord { task: task.clone(), began: at, activity });
        Ok(task)
    }

    fn update(&self, id: &str, change: impl FnOnce(&mut AgentRecord)) {
        let mut state = self.state.lock();
        if let Some(record) = state.entries.iter_mut().find(|it| it.task.identity.id == id) {
            change(record);
        }
    }

    pub(super) fn set_activity(&self, id: &str, activity: String) {
        self.update(id, |record| record.activity = activity);
    }

    /// Records the end of a sub-agent, with the calls that were denied to it.
    pub(super) fn record_end(&self, task: &AgentTask, denials: Vec<Denial>) {
        self.state.lock().denials.extend(denials);
        self.update(&task.identity.id, |record| record.task = task.clone());
    }

    /// Returns the activities of the sub-agents that `parent` has started.
    pub(in super::super) fn activities(&self, parent: Option<&str>, now: Moment) -> Vec<String> {
        let state = self.state.lock();
        let running = state.entries.iter().filter(|entry| {
            entry.task.status == AgentStatus::Running && entry.task.parent.as_deref() == parent
        });
        let describe = |entry: &AgentRecord| {
            let AgentIdentity { id, kind, .. } = &entry.task.identity;
            let took = Duration::from_secs(entry.began.until(now).as_secs());
            format!("{id} ({kind}) for {}, {}", humantime::format_duration(took), entry.activity)
        };
        running.map(describe).collect()
    }

    /// Returns all sub-agents at the end of the run, in the order in which they were started.
    pub(in super::super) fn tasks(&self, ledger: &SharedLedger) -> Vec<AgentTask> {
        let state = self.state.lock();
        let task = |entry: &AgentRecord| {
            let mut task = entry.task.clone().cut();
            if let Some(account) = ledger.account(&task.identity.id) {
                (task.usage.cost, task.usage.unsettled) = account;
            }
            task
        };
        state.entries.iter().map(task).collect()
    }

    /// Returns sub-agents of an earlier process that ended with it.
    pub(in super::super) fn lost(&self) -> Vec<AgentTask> {
        let state = self.state.lock();
        let lost = state.entries.iter().filter(|entry| entry.task.status == AgentStatus::Lost);
        lost.map(|entry| entry.task.clone()).collect()
    }

    pub(in super::super) fn past_report(&self, id: &str) -> Option<&str> {
        self.past_reports.get(id).map(String::as_str)
    }

    pub(super) fn count_reply(&self, id: &str, tokens: u64, calls: u32) {
        self.update(id, |record| {
            let usage = &mut record.task.usage;
            usage.turns += 1;
            usage.tokens += tokens;
            usage.tool_calls += calls;
        });
    }

    /// Ends the whole run because a call of a sub-agent was denied.
    pub(in super::super) fn raise_alarm(&self) {
        self.alarm.send_replace(true);
    }

    pub(in super::super) fn is_alarmed(&self) -> bool {
        *self.alarm.borrow()
    }

    pub(in super::super) fn alarm(&self) -> DenialReceiver {
        self.alarm.subscribe()
    }

    pub(in super::super) fn take_denials(&self) -> Vec<Denial> {
        std::mem::take(&mut self.state.lock().denials)
    }

    /// Returns a concurrency slot that is not taken yet.
    pub(super) fn slot(&self) -> ConcurrencySlot {
        self.limiter.slot()
    }

    pub(super) fn limiter(&self) -> &ConcurrencyLimiter {
        &self.limiter
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::types::AgentLimits;

    fn registry(total: u32) -> AgentRegistry {
        let limits = AgentLimits { total, ..AgentLimits::default() };
        let delegation = Delegation { limits, ..Delegation::default() };
        AgentRegistry::new(Vec::new(), delegation, watch::channel(None).1, None, "s", Vec::new())
    }

    #[test]
    fn concurrent_registrations_never_exceed_the_limit() {
        const THREADS: u32 = 4;
        for _ in 0..2_000 {
            let (registry, start) = (registry(THREADS / 2), Barrier::new(4));
            let enter = || {
                let task = AgentTask::past(PastAgent::default(), 1, "s");
                start.wait();
                registry.register(task, Moment::default()).is_ok()
            };
            let entered: u32 = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(enter)).collect();
                let entered = threads.into_iter().map(thread::ScopedJoinHandle::join);
                entered.map(|entered| u32::from(entered.expect("it never panics"))).sum()
            });
            assert_eq!(entered, THREADS / 2);
        }
    }
}
