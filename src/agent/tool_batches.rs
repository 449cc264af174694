//! Runs the tools of a reply, and pairs each call with exactly one result.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hooks::HookDecision;
use crate::journal::{Denial, UndoneCalls};
use crate::recovery::Event;
use crate::tools::{
    DelegatedCall, OnFailure, PreparedCall, ToolOutcome, Toolbox, end_tasks, is_agent_tool,
};
use crate::transcript::{Block, ToolCall, describe_unknown_outcome};

use super::delegate::PendingSubagent;
use super::messages::{is_error, open_calls, synthetic};
use super::run_event::{EndedCall, RunEvent};
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::tool_hooks::{NotPermitted, ReplacedResult};
use super::tool_runner::{Admitted, CompletedCall, groups};
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

/// Number of the last lines of a call's output that observers receive.
const TAIL_LINES: usize = 10;

/// The slot for one result.
struct ResultSlot {
    /// The call as the model wrote it.
    written: ToolCall,
    /// That call, prepared.
    original: Arc<PreparedCall>,
    /// The call as hooks and the permission prompt have changed it.
    prepared: Arc<PreparedCall>,
    result: Option<(Block, Value)>,
    is_started: bool,
    /// Its duration, if it was run.
    took: Option<Duration>,
    /// True if a hook has replaced the result. The journal has it as it came from the tool.
    is_replaced: bool,
}

impl ResultSlot {
    fn of(written: ToolCall, toolbox: &Toolbox) -> Self {
        let original = toolbox.prepare(written.clone());
        Self {
            written,
            prepared: Arc::clone(&original),
            original,
            result: None,
            is_started: false,
            took: None,
            is_replaced: false,
        }
    }

    fn call(&self) -> &ToolCall {
        self.prepared.call()
    }

    /// Returns true if a hook or the permission prompt has changed the call.
    fn is_changed(&self) -> bool {
        self.call().input != self.original.call().input
    }

    /// Returns the call for lists: in the model's own form, unless it was changed.
    fn listed(&self) -> &ToolCall {
        if self.is_changed() { self.call() } else { &self.written }
    }

    /// Returns the call with its result, if it has one.
    fn completed(&self) -> Option<CompletedCall<'_>> {
        let (result, detail) = self.result.as_ref()?;
        Some(CompletedCall { call: &self.prepared, result, detail, took: self.took })
    }

    fn is_agent_at_work(&self) -> bool {
        self.result.is_none() && is_agent_tool(&self.call().name)
    }

    /// Returns true if the other sub-agents of its reply are stopped when this one fails.
    fn cancels_siblings(&self) -> bool {
        let policy = self.prepared.agent_call().map(|call| call.on_failure);
        policy == Some(OnFailure::CancelSiblings)
    }

    /// Converts an outcome to the result of the call.
    fn result_of(&self, outcome: ToolOutcome) -> (Block, Value) {
        let ToolOutcome { content, is_error, detail, .. } = outcome;
        let tool_use_id = self.written.id.clone();
        (Block::ToolResult { tool_use_id, content, is_error }, detail)
    }
}

/// The reason why no further call of a reply is run.
#[derive(Clone, Copy)]
enum CallsEnd {
    /// All were run, or refused one by one.
    Done,
    Cut(CancelReason),
    /// A hook stops the run.
    Halted,
    /// A call was denied, and that ends the run.
    Denied,
    /// A hook has deferred the only call.
    Deferred,
}

impl RunWorld<'_> {
    /// Runs the tool calls of the last reply and answers every one.
    pub(super) async fn run_tools(&mut self) -> Event {
        let mut calls = open_calls(self.conversation.messages()).into_iter();
        let mut slots = Vec::new();
        let mut next = 0;
        let calls_in_reply = calls.len();
        let end = loop {
            if let Some(end) = self.calls_end() {
                break end;
            } else if next == calls_in_reply {
                break CallsEnd::Done;
            }
            let batch = next..self.prepare_batch(&mut slots, next, &mut calls);
            next = batch.end;
            if let Err(cut) = self.run_batch(&mut slots[batch], calls_in_reply).await {
                break CallsEnd::Cut(cut);
            }
        };
        self.tools.early.discard();
        let event = match end {
            CallsEnd::Cut(cut) => cut.into(),
            CallsEnd::Halted => Event::HookStopped,
            CallsEnd::Denied => Event::Denied,
            // The call stays without a result, so that a resume finds it.
            CallsEnd::Deferred => return Event::Deferred,
            CallsEnd::Done => {
                let completed: Vec<_> = slots.iter().filter_map(ResultSlot::completed).collect();
                let (journal, loops) = (&mut self.journal, self.limits.loops);
                self.tools.finish_batch(&completed, journal, loops).await
            }
        };
        if !matches!(end, CallsEnd::Cut(_)) {
            let completed = slots.iter().filter_map(ResultSlot::completed);
            let succeeded = completed.filter(|completed| !is_error(completed.result));
            let calls: Vec<_> = succeeded.map(|completed| Arc::clone(completed.call)).collect();
            self.add_folder_notes(&calls).await;
        }
        // Ended background work is reported only if another turn follows.
        let work_update =
            if matches!(event, Event::ToolsDone(_)) { self.tools.ended_work() } else { None };
        slots.extend(calls.map(|call| ResultSlot::of(call, self.tools.toolbox())));
        self.answer_all(slots, end, work_update);
        event
    }

    /// Returns the reason not to run further calls, if there is one.
    fn calls_end(&self) -> Option<CallsEnd> {
        if self.hooks.is_halted() {
            Some(CallsEnd::Halted)
        } else if self.fails_for_denial() {
            Some(CallsEnd::Denied)
        } else {
            self.tools.deferred().map(|_| CallsEnd::Deferred)
        }
    }

    /// Returns true if a call of the run or of a sub-agent was denied in this process, and the run
    /// must end because of it.
    fn fails_for_denial(&self) -> bool {
        let is_alarmed = self.context.is_root() && self.context.deps.registry.is_alarmed();
        self.tools.fails_for_denial() || is_alarmed
    }

    /// Prepares the batch that starts at `start`, and returns its end: read-only calls run in
    /// parallel, and so do sub-agents; all others run alone and in order.
    fn prepare_batch(
        &self,
        slots: &mut Vec<ResultSlot>,
        start: usize,
        calls: &mut impl Iterator<Item = ToolCall>,
    ) -> usize {
        let toolbox = self.tools.toolbox();
        let mut end = start;
        loop {
            // The call that ended the previous batch is prepared already.
            if end == slots.len() {
                let Some(call) = calls.next() else { break };
                slots.push(ResultSlot::of(call, toolbox));
            }
            if !slots[end].prepared.may_run_in_parallel() {
                break;
            }
            end += 1;
        }
        end.max(start + 1)
    }

    /// Runs a batch, with its hooks before and after.
    ///
    /// # Errors
    /// The run was cut off. Nothing of the batch is left running.
    async fn run_batch(
        &mut self,
        batch: &mut [ResultSlot],
        calls_in_reply: usize,
    ) -> Result<(), CancelReason> {
        let calls: Vec<_> = batch.iter().map(|slot| Arc::clone(&slot.prepared)).collect();
        let decisions = self.before_tools(&calls).await?;
        // A hook may defer the only call of a reply, and only of the run itself.
        if calls_in_reply == 1
            && self.context.is_root()
            && let ([slot], [decision]) = (&*batch, &decisions[..])
            && let Some(reason) = decision.deferral()
        {
            self.tools.defer(slot.call().clone(), self.conversation.hook_text(reason));
            return Ok(());
        }
        let admitted = self.admit_batch(batch, decisions).await?;
        if self.fails_for_denial() {
            return Ok(());
        }
        let waits = admitted.iter().any(|(_, permit)| self.waits_for(permit.prepared()));
        if waits {
            self.release_slot();
        }
        for group in groups(admitted) {
            self.run_admitted(batch, group).await?;
        }
        if waits {
            self.acquire_slot().await?;
        }
        let completed = batch.iter().filter_map(ResultSlot::completed);
        let ran: Vec<_> = completed.filter(|completed| completed.took.is_some()).collect();
        for ReplacedResult { id, result, detail } in self.after_tools(&ran).await? {
            if let Some(slot) = batch.iter_mut().find(|slot| slot.written.id == id) {
                slot.result = Some((result, detail));
                slot.is_replaced = true;
            }
        }
        Ok(())
    }

    /// Decides which calls of a batch may run, by the hooks, the rules and the permission prompt.
    /// The others are answered by refusals.
    async fn admit_batch(
        &mut self,
        batch: &mut [ResultSlot],
        decisions: Vec<HookDecision>,
    ) -> Result<Vec<Admitted>, CancelReason> {
        let (mut admitted, mut notices) = (Vec::new(), Vec::new());
        for (index, (slot, decision)) in batch.iter_mut().zip(decisions).enumerate() {
            let permit = match self.admit(&mut slot.prepared, &decision).await {
                Err(NotPermitted::Refused(refusal)) => {
                    self.prompt_for_permission(&slot.prepared, &decision, refusal).await
                }
                permit => permit,
            };
            match permit {
                Ok(permit) => {
                    slot.prepared = Arc::clone(permit.prepared());
                    admitted.push((index, permit));
                }
                Err(NotPermitted::Cut(cut)) => return Err(cut),
                Err(NotPermitted::Refused(refusal)) => {
                    let outcome = refusal.into_outcome();
                    if let Some(reason) = &outcome.denied {
                        notices.extend(decision.allows().then(|| reason.clone()));
                        self.record_denial(slot.listed(), reason);
                    }
                    slot.result = Some(slot.result_of(outcome));
                }
            }
        }
        for notice in notices {
            self.notify("permission_prompt", &notice).await?;
        }
        Ok(admitted)
    }

    /// Writes the calls that are about to run to the journal, and reports inputs that a hook or the
    /// permission prompt has changed.
    fn journal_intent(&mut self, batch: &[ResultSlot], admitted: &[Admitted]) {
        let intent =
            |(index, permit): &Admitted| (permit.call().clone(), batch[*index].is_changed());
        let calls: Vec<(ToolCall, bool)> = admitted.iter().map(intent).collect();
        self.journal.intent(&calls);
        for (call, _) in calls.iter().filter(|(_, changed)| *changed) {
            let note = format!("{} runs with a changed input: {}", call.name, call.input);
            self.monitor.emit(&RunEvent::Note(note));
        }
    }

    /// Runs calls in parallel until all have ended.
    ///
    /// # Errors
    /// The run was cut off. The calls were cancelled, and have ended.
    async fn run_admitted(
        &mut self,
        batch: &mut [ResultSlot],
        admitted: Vec<Admitted>,
    ) -> Result<(), CancelReason> {
        let cancel = CancellationToken::new();
        let (finish, mut finished) = mpsc::unbounded_channel();
        // The intent is on the disk before the effect.
        self.journal_intent(batch, &admitted);
        self.await_journal_for_effect().await?;
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        // Cancels the remaining sub-agents of a batch, and nothing else of it.
        let siblings = cancel.child_token();
        for (index, permit) in admitted {
            batch[index].is_started = true;
            let stops = if is_agent_tool(&permit.call().name) { &siblings } else { &cancel };
            tasks.spawn(self.start((index, permit), stops, finish.clone()));
        }
        drop(finish);
        let mut timer = self.monitor.begin();
        loop {
            match self.next_finished(batch, &mut finished, &mut timer).await {
                Ok(Some((index, outcome))) => {
                    let slot: &mut ResultSlot = &mut batch[index];
                    let took = began.elapsed();
                    slot.took = Some(took);
                    if outcome.is_error && slot.cancels_siblings() {
                        siblings.cancel();
                    }
                    self.record_searches();
                    let ended = self.ended_call(slot.call(), took, &outcome);
                    self.monitor.emit(&RunEvent::ToolEnds(Box::new(ended)));
                    self.finish(slot, outcome);
                }
                Ok(None) => return Ok(()),
                Err(cut) => {
                    cancel.cancel();
                    self.start_shutdown(cut);
                    let toolbox = self.tools.toolbox();
                    for (index, outcome) in drain_cancelled(toolbox, cut, tasks, finished).await {
                        self.finish(&mut batch[index], outcome);
                    }
                    return Err(cut);
                }
            }
        }
    }

    /// Waits for the next call of a batch to end. `None`: all have ended.
    async fn next_finished(
        &mut self,
        batch: &[ResultSlot],
        finished: &mut mpsc::UnboundedReceiver<(usize, ToolOutcome)>,
        timer: &mut WaitTimer,
    ) -> Result<Option<(usize, ToolOutcome)>, CancelReason> {
        let (progress, context) = (self.caller.turn_progress(), &self.context);
        let servers = self.tools.servers();
        let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
            let waiting_for = if batch.iter().any(ResultSlot::is_agent_at_work) {
                WaitingFor::Agents { running: context.activities(monitor.now()) }
            } else {
                let running = batch.iter().find(|slot| slot.result.is_none())?;
                let ToolCall { name, id, .. } = running.call().clone();
                match servers.asking_host(&name) {
                    Some(server) => WaitingFor::Elicitation { server },
                    None => WaitingFor::Tool { name, id },
                }
            };
            Some(monitor.heartbeat(timer, waiting_for, progress))
        };
        self.monitor.wait_for(timer, heartbeat, finished.recv()).await
    }

    /// Returns the work of one call, to be spawned.
    fn start(
        &mut self,
        (index, permit): Admitted,
        cancel: &CancellationToken,
        finish: mpsc::UnboundedSender<(usize, ToolOutcome)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let ToolCall { id, name, .. } = permit.call();
        let delegated = match permit.delegated() {
            Some(DelegatedCall::Agent(call)) => Some(self.as_parent().perform(id, call, cancel)),
            Some(DelegatedCall::WebSearch(input)) => {
                let costs = self.tools.search_costs();
                Some(self.as_parent().search(input.clone(), cancel.clone(), costs))
            }
            Some(DelegatedCall::ToolSearch(input)) => {
                let outcome = self.tools.deferred_tools.search(input);
                Some(Box::pin(std::future::ready(outcome)) as PendingSubagent)
            }
            None => {
                self.tools.deferred_tools.record_call(name);
                None
            }
        };
        let work = self.tools.work(permit, delegated, cancel.clone());
        async move {
            if let Some(outcome) = work.await {
                // The receiver is gone once the batch was cut.
                let _ = finish.send((index, outcome));
            }
        }
    }

    fn ended_call(&self, call: &ToolCall, took: Duration, outcome: &ToolOutcome) -> EndedCall {
        EndedCall {
            name: call.name.clone(),
            id: call.id.clone(),
            took,
            is_error: outcome.is_error,
            exit_code: outcome.exit_code(),
            tail: self.conversation.redacted_tail(&outcome.visible_text(), TAIL_LINES),
        }
    }

    /// Records the outcome of a call that was run.
    fn finish(&mut self, slot: &mut ResultSlot, outcome: ToolOutcome) {
        if let Some(reason) = &outcome.denied {
            self.record_denial(slot.listed(), reason);
        }
        let (block, detail) = slot.result_of(outcome);
        self.journal.outcome(&block, &detail);
        slot.result = Some((block, detail));
    }

    /// Counts the costs of web searches. The shared ledger was charged when each request ended.
    fn record_searches(&mut self) {
        let lines = self.tools.search_costs().take();
        for line in &lines {
            self.journal.spend(line.cost, &line.usage, &line.model);
        }
        self.caller.accounting.record_searches(lines);
    }

    pub(super) fn record_denial(&mut self, call: &ToolCall, reason: &str) {
        self.tools.record_denial();
        if !self.context.is_root() && self.fails_for_denial() {
            self.context.deps.registry.raise_alarm();
        }
        let ToolCall { name: tool_name, id: tool_use_id, input: tool_input } = call.clone();
        let denial = Denial { tool_name, tool_use_id, tool_input, reason: reason.to_owned() };
        let denied = UndoneCalls { denied: vec![denial.clone()], ..UndoneCalls::default() };
        self.journal.undone_calls(denied);
        self.monitor.emit(&RunEvent::Denied(Box::new(denial)));
    }

    /// Adds the results to the conversation, in the order in which the model made the calls.
    fn answer_all(&mut self, slots: Vec<ResultSlot>, end: CallsEnd, work_update: Option<Block>) {
        let missing = match end {
            CallsEnd::Cut(CancelReason::Interrupt(_)) => "Interrupted by user",
            CallsEnd::Cut(CancelReason::Deadline) => {
                "Cut off: the time limit of this run was reached"
            }
            CallsEnd::Cut(CancelReason::Denial) => "Cut off: a call of a sub-agent was denied",
            CallsEnd::Halted => "Not run: a hook stopped the run",
            CallsEnd::Denied => "Not run: an earlier call was denied",
            CallsEnd::Done | CallsEnd::Deferred => {
                "The tool ended without a result: a defect of outlast"
            }
        };
        let without_result = slots.iter().filter(|slot| slot.result.is_none());
        let abandoned = without_result.map(|slot| slot.written.id.clone()).collect();
        let is_replaced = slots.iter().any(|slot| slot.is_replaced);
        self.journal.undone_calls(UndoneCalls { abandoned, ..UndoneCalls::default() });
        self.record_agents_denials();
        let (mut blocks, details): (Vec<Block>, Vec<Value>) = slots
            .into_iter()
            .map(|slot| {
                slot.result.unwrap_or_else(|| {
                    let cut =
                        slot.is_started.then(|| describe_unknown_outcome(slot.prepared.call()));
                    self.caller.accounting.record_cut(cut.into_iter());
                    let detail = Value::String(format!("Error: {missing}"));
                    (synthetic(slot.written.id, missing), detail)
                })
            })
            .unzip();
        self.record_searches();
        blocks.extend(self.hooks.take_notices());
        blocks.extend(work_update);
        self.record_effects();
        if !blocks.is_empty() {
            self.add_user_message(blocks, details);
        }
        if is_replaced {
            self.conversation.rewrite_journal(&mut self.journal);
        }
    }
}

/// Waits until cancelled tools have ended, and kills those that do not end. Returns the outcomes of
/// those that finished their work, so that the model learns of it.
async fn drain_cancelled(
    toolbox: &Toolbox,
    cut: CancelReason,
    tasks: JoinSet<()>,
    mut finished: mpsc::UnboundedReceiver<(usize, ToolOutcome)>,
) -> Vec<(usize, ToolOutcome)> {
    let mut done = Vec::new();
    let ended = async {
        while let Some((index, outcome)) = finished.recv().await {
            // A sub-agent that was stopped reports its progress.
            if !outcome.is_error || outcome.detail["agentId"].is_string() {
                done.push((index, outcome));
            }
        }
    };
    if tokio::time::timeout(cut.grace(), ended).await.is_err() {
        // Dropping a command kills its process group; the search finds processes that left the
        // group.
        end_tasks(tasks).await;
        toolbox.kill_remaining_processes().await;
    }
    done
}
