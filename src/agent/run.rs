//! A run from its setup to its outcome.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::journal::{RestoredConversation, RestoredSession, UndoneCalls};
use crate::process::{Panic, catch_async_panic, catch_panic};
use crate::recovery::{Event, InvalidEvent, LeftOff, Phase, Run, Spending, StopReason};
use crate::tools::{Acceptance, GENERAL_PURPOSE, Toolbox};

use super::conversation::Conversation;
use super::delegate::{AgentContext, AgentRegistry};
use super::drive::drive;
use super::hook_runner::HookRunner;
use super::model_caller::ModelCaller;
use super::refused_fields::drop_refused_fields;
use super::run_deps::RunDeps;
use super::run_event::{Init, Observer, RunEvent};
use super::run_monitor::RunMonitor;
use super::servers::{Finished, with_mcp_tools};
use super::setup::{
    LastFailure, LimitsMet, ModelStats, Prompt, RunCosts, RunOutcome, RunStats, Setup,
};
use super::shared_ledger::SharedLedger;
use super::signals::InterruptReceiver;
use super::tool_runner::ToolRunner;
use super::world::{InternalError, RunWorld};

/// Time limit at the end of a run for work that serves other runs only: a login that is being
/// renewed, a notice of a rate limit.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// Time limit for that work when the user waits for the run to end. More would cost the run its own
/// result.
const LATE_SETTLE_LIMIT: Duration = Duration::from_millis(300);

/// Runs a task to its end. Failures of the model, tools, hooks and servers become a
/// [`RunOutcome`], and so does a panic of the run itself; a panic during setup or while the outcome
/// is built is the caller's to catch. No process that tools have started is left when it returns or
/// is dropped.
pub async fn run(
    mut setup: Setup,
    observer: &mut dyn Observer,
    interrupts: InterruptReceiver,
) -> RunOutcome {
    setup.servers.start();
    let (init, machine) = (initial_event(&setup), initial_machine(&setup));
    let left_off = setup.resumed.conversation.left_off;
    let finished = left_off.and_then(LeftOff::end);
    let ended = setup.resumed.work.ended;
    let was_full = ended.is_some_and(StopReason::is_context_full);
    let source = start_source(&setup.resumed.conversation);
    let prompt = std::mem::take(&mut setup.prompt);
    let mut world = open(setup, interrupts, observer);
    let leftovers = Leftovers(Arc::clone(world.tools.toolbox()));
    if was_full && !prompt.content.is_empty() {
        world.context_view().shorten_unfit_prompt();
    }
    let state = if finished.is_some() { Finished::Yes } else { Finished::No };
    let init = world.complete(init, state).await;
    let session = async {
        world.monitor.emit(&RunEvent::Init(Box::new(init)));
        if let Some(reason) = finished {
            return Ok(reason);
        }
        let beginning = Beginning { prompt, source, left_off, machine };
        drive_session(&mut world, beginning).await
    };
    let ended = flatten_result(catch_async_panic(Box::pin(session)).await);
    let reason = *ended.as_ref().unwrap_or(&StopReason::InternalError);
    // If a step of the end panics, the remaining ones follow all the same.
    let done = catch_async_panic(world.end_work(reason)).await;
    warn_of_panic(&mut world, done);
    if finished.is_none() {
        let done = catch_async_panic(world.run_end_hooks(reason)).await;
        warn_of_panic(&mut world, done);
    }
    let done = catch_async_panic(world.end_servers(reason, state)).await;
    warn_of_panic(&mut world, done);
    drop(leftovers);
    let reason = close(&mut world, ended);
    let done = catch_async_panic(world.settle_journal()).await;
    warn_of_panic(&mut world, done);
    settle_shared_work(&mut world).await;
    let outcome = world.outcome(reason);
    let _ = catch_async_panic(world.close_journal()).await;
    outcome
}

/// Warns of a panic at the end of the run. The observer may panic, too.
fn warn_of_panic(world: &mut RunWorld<'_>, done: Result<(), Panic>) {
    if let Err(panic) = done {
        let text = format!("the end of the run failed from a defect: {}", panic.summary());
        let _ = catch_panic(|| world.monitor.emit(&RunEvent::Warning(text)));
    }
}

/// The start of a session, or its continuation.
struct Beginning {
    prompt: Prompt,
    /// The reason of the start, for hooks.
    source: &'static str,
    /// The position of the session, if its last prompt is continued.
    left_off: Option<LeftOff>,
    machine: Run,
}

/// Waits for work that serves other runs only, within one time limit.
async fn settle_shared_work(world: &mut RunWorld<'_>) {
    let limit = if world.monitor.cut().is_some() { LATE_SETTLE_LIMIT } else { SETTLE_LIMIT };
    let (caller, housekeeping) = (&mut world.caller, &world.context.deps.housekeeping);
    let settling = async { tokio::join!(caller.finish_shared_work(limit), housekeeping.finish()) };
    let _ = tokio::time::timeout(limit, settling).await;
}

/// Flattens a panic or an invalid event into an internal error.
fn flatten_result(
    driven: Result<Result<StopReason, InvalidEvent>, Panic>,
) -> Result<StopReason, InternalError> {
    Ok(driven??)
}

/// Closes a session even after an internal error. A session that panicked does not run again.
fn close(world: &mut RunWorld<'_>, driven: Result<StopReason, InternalError>) -> StopReason {
    let closed = driven.and_then(|reason| {
        catch_panic(|| world.close(reason))?;
        Ok(reason)
    });
    closed.unwrap_or_else(|error| {
        world.broken = Some(error);
        // The same panic may happen again; the outcome is still needed.
        let _ = catch_panic(|| world.close(StopReason::InternalError));
        StopReason::InternalError
    })
}

/// Runs the session of a sub-agent or a web search to its end. Resources that it shares with the
/// run stay open.
pub(super) async fn run_subagent(
    world: &mut RunWorld<'_>,
    prompt: String,
    seed: u64,
) -> StopReason {
    let (prompt, limits) = (Prompt::text(prompt), world.limits);
    let run = async {
        let event = world.begin(prompt, "startup").await.err().unwrap_or(Event::Begin);
        drive(Run::new(seed, &limits), event, &limits, world).await
    };
    let ended = flatten_result(catch_async_panic(Box::pin(run)).await);
    let reason = *ended.as_ref().unwrap_or(&StopReason::InternalError);
    let _ = catch_async_panic(world.end_work(reason)).await;
    let reason = close(world, ended);
    let _ = catch_async_panic(world.settle_journal()).await;
    world.caller.accounting.settle_broken();
    reason
}

fn initial_machine(setup: &Setup) -> Run {
    let fresh = || Run::new(setup.seed, &setup.limits);
    let run = setup.resumed.work.run.map_or_else(fresh, Run::resumed);
    if setup.resumed.conversation.deferred { run.awaiting_tools() } else { run }
}

/// Returns the reason of the session's start, for its hooks.
fn start_source(restored: &RestoredConversation) -> &'static str {
    match (restored.is_fork, restored.messages.is_empty()) {
        (true, _) => "fork",
        (false, false) => "resume",
        (false, true) => "startup",
    }
}

/// Drives a session that is not finished.
async fn drive_session(
    world: &mut RunWorld<'_>,
    beginning: Beginning,
) -> Result<StopReason, InvalidEvent> {
    let Beginning { prompt, source, left_off, machine } = beginning;
    let limits = world.limits;
    world.hooks.report_crash_log(&mut world.monitor);
    let has_lost_work = world.report_lost_work();
    world.report_ended_work();
    if machine.phase == Phase::Working {
        let mut event = world.run_tools().await;
        // Messages to the model come after the results.
        world.report_moved_folder();
        if matches!(event, Event::ToolsDone(_))
            && let Err(stopped) = world.begin(prompt, source).await
        {
            event = stopped;
        }
        return drive(machine, event, &limits, world).await;
    }
    let has_message = world.report_moved_folder() || has_lost_work;
    let left_off = left_off.map(|left| if has_message { left.after_message() } else { left });
    let event = match world.begin(prompt, source).await {
        Err(event) => event,
        Ok(()) => left_off.map_or(Event::Begin, Event::Resumed),
    };
    drive(machine, event, &limits, world).await
}

/// Kills the processes that commands have left behind, however the run ends.
struct Leftovers(Arc<Toolbox>);

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.0.kill_remaining_processes_blocking();
    }
}

/// Returns the first event, without the servers and their tools.
fn initial_event(setup: &Setup) -> Init {
    let others = setup.agents.iter().map(|kind| kind.name.as_str());
    let agents = iter::once(GENERAL_PURPOSE).chain(others.filter(|name| *name != GENERAL_PURPOSE));
    Init {
        session_id: setup.session_id.clone(),
        cwd: setup.cwd.display().to_string(),
        model: setup.endpoints.first().map(|endpoint| endpoint.label.clone()).unwrap_or_default(),
        servers: Vec::new(),
        server_prompts: Vec::new(),
        tools: Vec::new(),
        permission_mode: setup.permission_mode.clone(),
        api_key_source: setup.api_key_source.clone(),
        sandbox: setup.toolbox.sandbox().clone(),
        dropped_variables: setup.toolbox.dropped_variables().to_vec(),
        memory_files: setup.memory_files.iter().map(|path| path.display().to_string()).collect(),
        agents: agents.map(str::to_owned).collect(),
        cost_before: setup.resumed.totals.cost_before(),
        recorded: setup.journal.recorded().clone(),
    }
}

/// Builds the run from its setup, and distributes the restored state. Sub-agents will share the
/// dependencies.
fn open(setup: Setup, interrupts: InterruptReceiver, observer: &mut dyn Observer) -> RunWorld<'_> {
    let (limits, journal) = (setup.limits, setup.journal);
    let RestoredSession { conversation, totals, learned_facts, mut work, .. } = setup.resumed;
    let registry = AgentRegistry::new(
        setup.agents,
        setup.delegation,
        interrupts.clone(),
        journal.subagent_journals(),
        &setup.session_id,
        std::mem::take(&mut work.agents),
    )
    .stoppable_by(setup.toolbox.task_stops().clone());
    let toolbox = with_mcp_tools(setup.toolbox, &setup.servers);
    let toolbox =
        if registry.allows_agents() { toolbox.with_agents(&registry.definitions) } else { toolbox };
    let mut monitor =
        RunMonitor::new(observer, setup.clock, interrupts, &limits).with_denials(registry.alarm());
    if let Some(takeovers) = journal.takeovers() {
        monitor = monitor.with_interrupts(takeovers);
    }
    let context = AgentContext::of_run(Arc::new(RunDeps {
        registry,
        ledger: SharedLedger::new(setup.ledger),
        servers: Arc::clone(&setup.servers),
        keep_servers: setup.keep_servers,
        lifecycle: setup.lifecycle,
        host: setup.host,
        hooks: setup.hooks.clone(),
        secrets: setup.secrets.clone(),
        clock: setup.clock,
        stop_after: setup.stop_after,
        shared_limits: setup.shared.as_ref().map(|shared| shared.for_another_run(0)),
        housekeeping: setup.housekeeping,
    }));
    let model_index = work.run.map_or(0, |run| run.model_index);
    let has_objection =
        work.run.is_some_and(|run| run.budgets.objections < limits.budgets.objections);
    drop_refused_fields(&setup.endpoints, &learned_facts);
    let Setup { system, endpoints, reasoning, shared, stream_events, .. } = setup;
    let caller = ModelCaller::new(system, endpoints, reasoning, shared, context.accounting())
        .restored(totals, &learned_facts, model_index)
        .forwarding_events(stream_events);
    let model = &caller.endpoint().label;
    let conversation = Conversation::restore(conversation, setup.secrets, model, setup.gauge);
    let tools = ToolRunner::new(toolbox, setup.servers, work).with_moved_folder(setup.moved_folder);
    let hooks = HookRunner::new(setup.hooks, has_objection);
    RunWorld::new(context, limits, (conversation, journal), caller, tools, hooks, monitor)
}

impl RunWorld<'_> {
    /// Returns the outcome of the acceptance checks, with those of earlier processes.
    fn acceptance(&self) -> Acceptance {
        let mut acceptance = self.tools.toolbox().acceptance();
        let recorded = self.journal.recorded();
        if let Some((answer, attempts)) = recorded.structured() {
            acceptance.structured_output = Some(answer.clone());
            acceptance.schema_attempts = Some(attempts);
        } else if let Some(attempts) = &mut acceptance.schema_attempts {
            *attempts = recorded.output_attempts();
        }
        if let Some(report) = &mut acceptance.requirement {
            let (attempts, passed) = recorded.checks();
            if report.attempts == 0 {
                report.passed = passed;
                report.exit_code = passed.then_some(0);
            }
            report.attempts = attempts.max(report.attempts);
        }
        let is_finished = recorded.left_off().end().is_some();
        acceptance.requirement.take_if(|report| is_finished && report.attempts == 0);
        acceptance
    }

    /// Returns the totals of the run so far.
    pub(super) fn stats(&self) -> RunStats {
        let recorded = self.journal.recorded();
        let (tools, denials) = (recorded.tools(), recorded.denials().to_vec());
        RunStats { tools, denials, ..self.caller.accounting.stats().clone() }
    }

    /// Records the calls of sub-agents that were denied since the last time.
    pub(super) fn record_agents_denials(&mut self) {
        // Only the run itself reports them, not a sub-agent or a search.
        if self.context.is_root() && !self.caller.searches() {
            let of_agents = self.context.deps.registry.take_denials();
            let undone = UndoneCalls { of_agents, ..UndoneCalls::default() };
            self.journal.undone_calls(undone);
        }
    }

    /// Returns the outcome so far, as if the run ended now with this reason.
    pub(super) fn outcome(&mut self, reason: StopReason) -> RunOutcome {
        let is_full = reason.is_context_full();
        let contributors = if is_full { self.context_view().contributors() } else { Vec::new() };
        let ledger = self.caller.accounting.ledger().ledger();
        self.record_agents_denials();
        let recorded = self.journal.recorded();
        let mut stats = self.stats();
        stats.duration = self.monitor.clock().elapsed();
        ModelStats::merge(&mut stats.by_model, self.caller.accounting.ledger().of_agents());
        let is_partial = stats.by_model.iter().any(|model| model.cost.is_none());
        let met = self.caller.limits_met();
        let last = self.caller.last_failure().filter(|_| reason.info().reports_last_fault);
        let failure = last.map(|last| LastFailure {
            fault: last.fault.clone(),
            class: last.failure.class,
            retry_at: self.caller.retry_at().filter(|_| reason != StopReason::Deadline),
        });
        RunOutcome {
            contributors,
            met: LimitsMet {
                // A request that could not be paid need not be what ends the run.
                shortfall: met.shortfall.filter(|_| reason == StopReason::MaxBudgetUsd),
                ..met
            },
            failure,
            tasks: self.tools.toolbox().background().tasks(),
            hooks: self.hooks.stats(),
            has_messages: !self.conversation.messages().is_empty(),
            deferred: self.tools.deferred().cloned().filter(|_| reason == StopReason::ToolDeferred),
            costs: RunCosts {
                spent: Spending { amount: ledger.spent(), is_partial },
                unsettled: ledger.unsettled(),
                before: self.caller.cost_before(),
                earlier: ledger.earlier(),
                budget: self.caller.accounting.ceiling(),
            },
            agents: self.context.deps.registry.tasks(self.caller.accounting.ledger()),
            journal: self.journal.health(),
            rate_limits: self.caller.endpoint().client.rate_limits(),
            late_wait: self.monitor.take_cut_wait().filter(|_| reason == StopReason::Deadline),
            broken: self.broken.as_ref().map(ToString::to_string),
            acceptance: self.acceptance(),
            servers: self.tools.servers().stats(),
            ..RunOutcome::new(reason, recorded, stats)
        }
    }
}
