//! One sub-agent, from its wait for a permit to its report.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use uuid::Uuid;

use crate::hooks::{HookEvent, Hooks};
use crate::journal::{Journal, SubagentHeader};
use crate::model::ModelClient;
use crate::recovery::{Limits, Moment, Run, StopReason};
use crate::secrets::Redactor;
use crate::tools::{AgentDefinition, BackgroundEnd, BackgroundKind, BackgroundTask, Toolbox};
use crate::transcript::{Block, succeeded_calls};

use super::super::run::{catch_panic, open, run_subagent};
use super::super::run_event::WaitingFor;
use super::super::run_monitor::{CancelReason, ProgressSnapshot, RunMonitor, WaitTimer};
use super::super::setup::{ModelEndpoint, ResumedState, RunStats, Setup};
use super::super::shared_ledger::SharedLedger;
use super::super::signals::{InterruptReceiver, InterruptSender};
use super::concurrency::ConcurrencyPermit;
use super::registry::AgentRegistry;
use super::spawner::SubagentSpawner;
use super::subagent_observer::SubagentObserver;
use super::task::{AgentIdentity, AgentTask};

/// A sub-agent that is about to begin.
pub(super) struct SubagentRun {
    pub(super) forge: SubagentSpawner,
    pub(super) task: AgentTask,
    pub(super) definition: AgentDefinition,
    pub(super) toolbox: Toolbox,
    pub(super) interrupter: InterruptSender,
    pub(super) stop: InterruptReceiver,
}

/// The report on a sub-agent that has ended.
pub(super) struct SubagentReport {
    pub(super) reason: StopReason,
    pub(super) text: String,
    /// The error that failed it, as the service or outlast worded it.
    pub(super) error: Option<String>,
    pub(super) tally: RunStats,
    /// The tools that ran without an error, a line each.
    pub(super) finished: Vec<String>,
    /// Tools that were running when it ended, and background commands that ended with it.
    pub(super) cut: Vec<String>,
    /// The reason of the hook that stopped it, or that objects to its end.
    pub(super) objection: Option<String>,
}

/// The position of a run among the agents.
pub(in super::super) struct AgentContext {
    pub(in super::super) registry: Arc<AgentRegistry>,
    pub(in super::super) ledger: SharedLedger,
    pub(in super::super) hooks: Option<Arc<Hooks>>,
    /// The sub-agent's identity. `None`: the run itself.
    pub(in super::super) mark: Option<Arc<AgentIdentity>>,
    /// The nesting depth. 0: the run itself.
    pub(in super::super) depth: u8,
    /// A sub-agent's concurrency permit.
    pub(in super::super) permit: Option<ConcurrencyPermit>,
    /// The query source in requests to the service.
    pub(in super::super) source: Option<String>,
}

impl AgentContext {
    /// Lets the main run start sub-agents. Sub-agents keep the toolbox that they were given.
    pub(in super::super) fn offering(&self, toolbox: Toolbox) -> Toolbox {
        let may_start = self.mark.is_none() && self.registry.has_depth();
        if may_start { toolbox.with_agents(&self.registry.definitions) } else { toolbox }
    }

    /// The current activities of this run's sub-agents, a line each.
    pub(in super::super) fn activities(&self, now: Moment) -> String {
        self.registry.activities(self.mark.as_ref().map(|mark| mark.id.as_str()), now)
    }
}

/// Runs a sub-agent. Boxed, since runs nest.
pub(super) fn run_boxed(
    child: SubagentRun,
) -> Pin<Box<dyn Future<Output = SubagentReport> + Send>> {
    Box::pin(async move {
        // A panic becomes a report, too: the parent waits for nothing else.
        catch_panic(Box::pin(run(child))).await.unwrap_or_else(SubagentReport::broken)
    })
}

async fn run(child: SubagentRun) -> SubagentReport {
    let SubagentRun { forge, task, definition, toolbox, stop, interrupter: _ends_with_it } = child;
    let (tree, mark) = (Arc::clone(&forge.tree), Arc::new(task.mark.clone()));
    let (post, clock) = (forge.post.clone(), forge.clock);
    let mut relay = SubagentObserver::new(Arc::clone(&mark), Arc::clone(&tree), post);
    let limits = limits(&forge, &definition);
    let interrupts = tree.interrupts.clone();
    let watch = RunMonitor::new(&mut relay, clock, interrupts, limits.deadline, limits.heartbeat);
    let mut watch = watch.stopped_by(stop);
    let mut seat = tree.permit();
    let live = tree.places().limit();
    tree.set_activity(&mark.id, format!("waiting in line for one of {live} places"));
    if let Err(cut) = take_place(&mut seat, &mut watch).await {
        return SubagentReport::unbegun(cut);
    }
    tree.set_activity(&mark.id, "starting".to_owned());
    let journal = journal(&forge, &task, &limits);
    let own = |hooks: &Arc<Hooks>| {
        Arc::new(hooks.for_agent(&mark.id, &mark.kind, journal.path().to_path_buf()))
    };
    let kin = AgentContext {
        registry: tree,
        ledger: forge.purse.clone(),
        hooks: forge.hooks.as_ref().map(own),
        depth: task.depth,
        permit: Some(seat),
        source: Some(format!("agent:{}", mark.kind)),
        mark: Some(mark),
    };
    let setup = setup(forge, &task, &definition, toolbox, &limits, journal);
    let machine = Run::new(setup.seed, &limits);
    let (mut session, prompt) = open(setup, watch, kin);
    session.join_tools();
    session.name_pending_servers();
    let reason = Box::pin(run_subagent(&mut session, prompt, machine, &limits)).await;
    session.accounting.settle_broken();
    let fault = session.fault.take();
    let error = session.broken.take().or_else(|| fault.map(|fault| words_of(&fault)));
    let error = error.filter(|_| reason != StopReason::Completed);
    let ended_with_it = session.toolbox.background_tasks().into_iter().filter(is_cut);
    let in_background = ended_with_it.map(|task| format!("{} `{}`", task.id, task.command));
    let mut cut = session.accounting.tally.cut.clone();
    cut.extend(in_background);
    SubagentReport {
        reason,
        text: std::mem::take(&mut session.final_text.text),
        error,
        tally: session.accounting.tally.clone(),
        finished: succeeded_calls(session.history.messages()),
        cut,
        objection: session.hook_state.tally.why.take(),
    }
}

/// Whether a background command was ended with the agent that started it.
fn is_cut(task: &BackgroundTask) -> bool {
    task.kind == BackgroundKind::Command && task.end == Some(BackgroundEnd::RunEnded)
}

fn words_of(fault: &crate::recovery::Fault) -> String {
    let status = fault.status().map_or_else(String::new, |status| format!("HTTP {status}, "));
    format!("{status}{}", fault.detail().trim())
}

impl SubagentReport {
    /// Redacts texts before they are shortened: a truncated secret would not be recognised.
    pub(super) fn hide_secrets(&mut self, mask: &Redactor) {
        let reasons = self.tally.denials.iter_mut().map(|denial| &mut denial.reason);
        for text in reasons.chain(&mut self.error).chain([&mut self.text]) {
            mask.redact_in_place(text);
        }
    }

    fn unbegun(cut: CancelReason) -> Self {
        let reason = match cut {
            CancelReason::Interrupt(by) => StopReason::AbortedStreaming(by),
            CancelReason::Deadline => StopReason::Deadline,
            CancelReason::Denial => StopReason::Denied,
        };
        Self::empty(reason, None)
    }

    /// The report on a sub-agent that panicked, with the message.
    fn broken(why: String) -> Self {
        Self::empty(StopReason::InternalError, Some(why))
    }

    fn empty(reason: StopReason, error: Option<String>) -> Self {
        Self {
            reason,
            text: String::new(),
            error,
            tally: RunStats::default(),
            finished: Vec::new(),
            cut: Vec::new(),
            objection: None,
        }
    }
}

/// Waits for a concurrency permit.
pub(in super::super) async fn take_place(
    seat: &mut ConcurrencyPermit,
    watch: &mut RunMonitor<'_>,
) -> Result<(), CancelReason> {
    let mut vigil = watch.begin();
    let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
        watch.emit_heartbeat(
            vigil,
            WaitingFor::Agents { running: String::new() },
            ProgressSnapshot::none(),
            None,
        );
    };
    watch.wait_for(&mut vigil, show, seat.acquire()).await
}

/// The limits of a sub-agent: those of its parent, its own number of turns where that is lower, and
/// none of the checks that only the main run has to pass.
fn limits(forge: &SubagentSpawner, definition: &AgentDefinition) -> Limits {
    let mut limits = forge.limits;
    limits.budgets.turns = definition.max_turns.into_iter().chain(limits.budgets.turns).min();
    limits.effort = None;
    limits.structured = false;
    limits.requirement = false;
    let own = |hooks: &Arc<Hooks>| hooks.for_agent("", &definition.name, PathBuf::new());
    let hooks = forge.hooks.as_ref().map(own);
    limits.stop_hooks = hooks.is_some_and(|hooks| hooks.has_hooks_for(HookEvent::SubagentStop));
    let switches = forge.endpoints.len().saturating_sub(1);
    limits.budgets.switches = u8::try_from(switches).unwrap_or(u8::MAX);
    limits.endpoint_changes = elsewhere(&forge.endpoints);
    limits
}

/// A bit for each step of a chain that leads to another endpoint.
fn elsewhere(rungs: &[ModelEndpoint]) -> u32 {
    let apart =
        |pair: &[ModelEndpoint]| !Arc::<ModelClient>::ptr_eq(&pair[0].client, &pair[1].client);
    let bits = rungs.windows(2).take(32).enumerate().filter(|(_, pair)| apart(pair));
    bits.fold(0, |bits, (step, _)| bits | (1 << step))
}

/// The journal of a sub-agent. A sub-agent whose conversation cannot be stored works all the same.
fn journal(forge: &SubagentSpawner, task: &AgentTask, limits: &Limits) -> Journal {
    let Some(nest) = &forge.tree.nest else { return Journal::disabled() };
    let newcomer = SubagentHeader {
        id: &task.mark.id,
        call: &task.mark.call,
        kind: &task.mark.kind,
        description: &task.mark.description,
        parent: task.parent.as_deref(),
        model: &task.model,
        background: task.background,
        retries: task.retries.as_deref(),
        limits,
        redact: forge.secrets.plain_values(),
    };
    Journal::create_subagent(nest, &newcomer)
}

fn setup(
    forge: SubagentSpawner,
    task: &AgentTask,
    definition: &AgentDefinition,
    toolbox: Toolbox,
    limits: &Limits,
    journal: Journal,
) -> Setup {
    let facts = &forge.tree.delegation.facts;
    let system = [definition.prompt.trim_end(), facts.trim()].join("\n\n");
    let seed = Uuid::new_v4().as_u64_pair().0;
    Setup {
        session_id: task.session.clone(),
        prompt: vec![Block::text(task.prompt.clone())],
        system: system.trim().to_owned(),
        cwd: PathBuf::new(),
        endpoints: forge.endpoints,
        toolbox,
        servers: forge.servers,
        limits: *limits,
        ledger: forge.purse.ledger(),
        clock: forge.clock,
        seed,
        permission_mode: String::new(),
        api_key_source: String::new(),
        thinking: forge.thinking,
        stream_events: false,
        stop_after: forge.stop_after,
        shared: forge.shared.map(|shared| shared.for_another_run(seed)),
        journal,
        secrets: forge.secrets,
        hooks: None,
        memory_files: Vec::new(),
        warnings: Vec::new(),
        resumed: ResumedState::default(),
        agents: Vec::new(),
        delegation: super::Delegation::default(),
    }
}
