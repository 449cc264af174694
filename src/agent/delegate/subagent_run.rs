//! One sub-agent, from its wait for a concurrency slot to its report.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use uuid::Uuid;

use crate::hooks::HookEvent;
use crate::journal::{Journal, SubagentHeader, WorkInProgress};
use crate::model::Reasoning;
use crate::process::{Panic, catch_async_panic, last_panic};
use crate::recovery::{Limits, Moment};
use crate::tools::{
    AgentDefinition, BackgroundEnd, BackgroundKind, BackgroundTask, StoppableTask, Toolbox,
};
use crate::transcript::succeeded_calls;

use super::super::accounting::Accounting;
use super::super::conversation::Conversation;
use super::super::hook_runner::HookRunner;
use super::super::journal_waits::ANSWER_MAX;
use super::super::model_caller::ModelCaller;
use super::super::run::run_subagent;
use super::super::run_deps::RunDeps;
use super::super::run_event::RunEvent;
use super::super::run_monitor::{CancelReason, ProgressSnapshot, RunMonitor};
use super::super::setup::ModelEndpoint;
use super::super::signals::{InterruptReceiver, InterruptSender};
use super::super::tool_runner::ToolRunner;
use super::super::waiting_for::WaitingFor;
use super::super::world::RunWorld;
use super::concurrency::ConcurrencySlot;
use super::report::SubagentReport;
use super::subagent_observer::SubagentObserver;
use super::task::{AgentIdentity, AgentTask};

/// The parts of a run that it shares with the sub-agents that it starts.
#[derive(Clone)]
pub(in super::super) struct ParentRun {
    pub(in super::super) deps: Arc<RunDeps>,
    /// Its identity, if it is a sub-agent itself.
    pub(in super::super) identity: Option<Arc<AgentIdentity>>,
    /// Their nesting depth.
    pub(in super::super) depth: u8,
    /// The model chain from the model in use on.
    pub(in super::super) endpoints: Vec<ModelEndpoint>,
    pub(in super::super) limits: Limits,
    pub(in super::super) toolbox: Arc<Toolbox>,
    pub(in super::super) reasoning: Reasoning,
    pub(in super::super) post: UnboundedSender<RunEvent>,
}

/// A sub-agent that is about to begin.
pub(super) struct SubagentRun {
    pub(super) parent: ParentRun,
    pub(super) task: AgentTask,
    pub(super) definition: AgentDefinition,
    pub(super) toolbox: Toolbox,
    pub(super) interrupter: InterruptSender,
    pub(super) interrupts: InterruptReceiver,
    /// The host can stop it until it ends. A host that has received its end cannot.
    pub(super) stoppable: StoppableTask,
}

/// The position of a run among the agents.
pub(in super::super) struct AgentContext {
    pub(in super::super) deps: Arc<RunDeps>,
    /// The sub-agent's identity. `None`: the run itself.
    pub(in super::super) identity: Option<Arc<AgentIdentity>>,
    /// The nesting depth. 0: the run itself.
    pub(in super::super) depth: u8,
    /// A sub-agent's concurrency slot.
    pub(in super::super) slot: Option<ConcurrencySlot>,
    /// The query source in requests to the service.
    pub(in super::super) source: Option<String>,
}

impl AgentContext {
    pub(in super::super) fn of_run(deps: Arc<RunDeps>) -> Self {
        Self { deps, identity: None, depth: 0, slot: None, source: None }
    }

    /// Returns true for the run itself and its web searches, false for sub-agents.
    pub(in super::super) fn is_root(&self) -> bool {
        self.identity.is_none()
    }

    fn id(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.id.as_str())
    }

    pub(in super::super) fn accounting(&self) -> Accounting {
        let agent = self.id().map(str::to_owned);
        Accounting::new(self.deps.ledger.clone(), agent, self.deps.stop_after)
    }

    /// Creates the model caller of an agent that begins.
    pub(super) fn caller(
        &self,
        system: String,
        endpoints: Vec<ModelEndpoint>,
        reasoning: Reasoning,
        seed: u64,
    ) -> ModelCaller {
        let shared = self.deps.shared_limits.as_ref().map(|shared| shared.for_another_run(seed));
        ModelCaller::new(system, endpoints, reasoning, shared, self.accounting())
    }

    /// Builds the world of an agent that begins.
    pub(super) fn into_world(
        self,
        limits: Limits,
        journal: Journal,
        caller: ModelCaller,
        toolbox: Toolbox,
        hooks: HookRunner,
        monitor: RunMonitor<'_>,
    ) -> RunWorld<'_> {
        let (servers, work) = (Arc::clone(&self.deps.servers), WorkInProgress::default());
        let tools = ToolRunner::new(toolbox, servers, work);
        let session = (Conversation::new(self.deps.secrets.clone()), journal);
        RunWorld::new(self, limits, session, caller, tools, hooks, monitor)
    }

    /// Returns the current activities of this run's sub-agents.
    pub(in super::super) fn activities(&self, now: Moment) -> Vec<String> {
        self.deps.registry.activities(self.id(), now)
    }
}

/// Runs a sub-agent. Boxed, since runs nest.
pub(super) fn run_boxed(
    child: SubagentRun,
) -> Pin<Box<dyn Future<Output = SubagentReport> + Send>> {
    Box::pin(async move {
        // A panic becomes a report, too, since the parent waits for one.
        let broken = |panic: Panic| SubagentReport::broken(panic.summary());
        catch_async_panic(Box::pin(run(child))).await.unwrap_or_else(broken)
    })
}

async fn run(child: SubagentRun) -> SubagentReport {
    let SubagentRun { parent, task, definition, toolbox, interrupts, .. } = child;
    let _until_the_end = (child.interrupter, child.stoppable);
    let (deps, identity) = (Arc::clone(&parent.deps), Arc::new(task.identity.clone()));
    let registry = &deps.registry;
    let mut observer =
        SubagentObserver::new(Arc::clone(&identity), Arc::clone(&deps), parent.post.clone());
    let limits = limits(&parent, &definition);
    let mut monitor =
        RunMonitor::new(&mut observer, deps.clock, registry.interrupts.clone(), &limits)
            .with_interrupts(interrupts);
    let mut slot = registry.slot();
    let limit = registry.limiter().limit();
    registry.set_activity(&identity.id, format!("waiting for one of {limit} slots"));
    if let Err(cut) = acquire_slot(&mut slot, &mut monitor).await {
        return SubagentReport::unbegun(cut);
    }
    registry.set_activity(&identity.id, "starting".to_owned());
    let journal = match create_journal(&parent, &task, limits, &mut monitor).await {
        Ok(journal) => journal,
        Err(cut) => return SubagentReport::unbegun(cut),
    };
    let transcript = journal.path().to_path_buf();
    let hooks = deps.hooks.as_ref();
    let hooks = hooks.map(|hooks| hooks.for_agent(&identity.id, &identity.kind, transcript));
    let seed = Uuid::new_v4().as_u64_pair().0;
    let reasoning =
        Reasoning { effort: definition.effort.or(parent.reasoning.effort), ..parent.reasoning };
    let context = AgentContext {
        deps: Arc::clone(&deps),
        depth: task.depth,
        slot: Some(slot),
        source: Some(format!("agent:{}", identity.kind)),
        identity: Some(identity),
    };
    let facts = registry.delegation.facts.trim();
    let system = [definition.prompt.trim_end(), facts].join("\n\n").trim().to_owned();
    let caller = context.caller(system, parent.endpoints, reasoning, seed);
    let hooks = HookRunner::new(hooks, false);
    let mut world = context.into_world(limits, journal, caller, toolbox, hooks, monitor);
    world.join_tools();
    world.name_pending_servers();
    let reason = Box::pin(run_subagent(&mut world, task.prompt, seed)).await;
    let ended_with_it = world.tools.toolbox().background().tasks().into_iter().filter(is_cut);
    let in_background = ended_with_it.map(|task| format!("{} `{}`", task.id, task.command));
    let mut cut = world.caller.accounting.stats().cut.clone();
    cut.extend(in_background);
    SubagentReport {
        reason,
        text: world.journal.recorded().answer(),
        error: world.end_error(reason),
        stats: world.stats(),
        finished: succeeded_calls(world.conversation.messages()),
        cut,
        objection: world.hooks.take_reason(),
    }
}

/// Returns true if a background command was ended with the agent that started it.
fn is_cut(task: &BackgroundTask) -> bool {
    task.kind == BackgroundKind::Command && task.end == Some(BackgroundEnd::RunEnded)
}

/// Waits for a concurrency slot.
pub(super) async fn acquire_slot(
    slot: &mut ConcurrencySlot,
    monitor: &mut RunMonitor<'_>,
) -> Result<(), CancelReason> {
    let waiting_for = WaitingFor::Agents { running: Vec::new() };
    monitor.wait_as(waiting_for, ProgressSnapshot::default(), slot.acquire()).await
}

/// Returns the limits of a sub-agent: those of its parent, its own number of turns where that is
/// lower, and none of the checks that only the main run has to pass.
pub(super) fn limits(parent: &ParentRun, definition: &AgentDefinition) -> Limits {
    let mut limits = parent.limits;
    limits.budgets.turns = definition.max_turns.into_iter().chain(limits.budgets.turns).min();
    limits.effort = None;
    limits.structured = false;
    limits.requirement = false;
    limits.stop_hooks = parent.deps.hooks.as_ref().is_some_and(|hooks| {
        let hooks = hooks.for_agent("", &definition.name, PathBuf::new());
        hooks.has_hooks_for(HookEvent::SubagentStop)
    });
    let switches = parent.endpoints.len().saturating_sub(1);
    limits.budgets.switches = u8::try_from(switches).unwrap_or(u8::MAX);
    limits.endpoint_changes = endpoint_changes(&parent.endpoints);
    limits
}

/// Returns a bit for each step of a chain that leads to another endpoint.
fn endpoint_changes(endpoints: &[ModelEndpoint]) -> u32 {
    let differs = |pair: &[ModelEndpoint]| !Arc::ptr_eq(&pair[0].client, &pair[1].client);
    let steps = endpoints.windows(2).take(32).enumerate().filter(|(_, pair)| differs(pair));
    steps.fold(0, |bits, (step, _)| bits | (1 << step))
}

/// Creates the journal of a sub-agent. A sub-agent runs even if its conversation cannot be stored.
async fn create_journal(
    parent: &ParentRun,
    task: &AgentTask,
    limits: Limits,
    monitor: &mut RunMonitor<'_>,
) -> Result<Journal, CancelReason> {
    let Some(location) = parent.deps.registry.location.clone() else {
        return Ok(Journal::disabled());
    };
    let path = location.file(&task.identity.id).display().to_string();
    let (task, secrets) = (task.clone(), parent.deps.secrets.clone());
    let (sender, created) = oneshot::channel();
    spawn_blocking(move || {
        let header = SubagentHeader {
            id: &task.identity.id,
            call: &task.identity.call,
            kind: &task.identity.kind,
            description: &task.identity.description,
            parent: task.parent.as_deref(),
            model: &task.model,
            background: task.background,
            retries: task.retries.as_deref(),
            limits: &limits,
            secrets,
        };
        if let Err(too_late) = sender.send(Journal::create_subagent(&location, &header)) {
            too_late.discard_subagent();
        }
    });
    let unwritable = |why: &str| Journal::unwritable(format!("cannot write {path}: {why}"));
    let waiting_for = WaitingFor::Journal { path: path.clone() };
    let created = timeout(ANSWER_MAX, created);
    let created = monitor.wait_as(waiting_for, ProgressSnapshot::default(), created).await?;
    Ok(match created {
        Ok(Ok(journal)) => journal,
        Ok(Err(_panic)) => unwritable(&last_panic().summary()),
        Err(_elapsed) => unwritable("the disk does not answer"),
    })
}
