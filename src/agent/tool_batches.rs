//! Runs the tools of a reply, and pairs each call with exactly one result.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::journal::{Denial, UndoneCalls};
use crate::recovery::{Event, Interrupt};
use crate::tools::{
    DelegatedCall, OnFailure, PreparedCall, ToolOutcome, ToolRefusal, Toolbox, end_tasks,
    is_agent_tool,
};
use crate::transcript::{Block, ToolCall, describe_unknown_outcome};

use super::delegate::PendingSubagent;
use super::messages::{open_calls, synthetic};
use super::run_event::{EndedCall, RunEvent, WaitingFor};
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::tool_hooks::{ExecutedTool, ReplacedResult};
use super::tool_runner::{Admitted, CompletedCall, groups};
use super::world::RunWorld;

/// Number of the last lines of a call's output that observers receive.
const TAIL_LINES: usize = 10;

/// The slot for one result.
struct ResultSlot {
    /// The call as the model wrote it.
    asked: ToolCall,
    /// That call, prepared.
    first: Arc<PreparedCall>,
    /// The call as hooks and the permission prompt have changed it.
    prepared: Arc<PreparedCall>,
    result: Option<(Block, Value)>,
    /// True if it was started.
    began: bool,
    /// Its duration, if it was run.
    took: Option<Duration>,
}

impl ResultSlot {
    fn of(asked: ToolCall, toolbox: &Toolbox) -> Self {
        let first = toolbox.prepare(asked.clone());
        let prepared = Arc::clone(&first);
        Self { asked, first, prepared, result: None, began: false, took: None }
    }

    fn call(&self) -> &ToolCall {
        self.prepared.call()
    }

    /// Returns true if a hook or the permission prompt has changed the call.
    fn is_changed(&self) -> bool {
        self.call().input != self.first.call().input
    }

    /// Returns the call for lists: in the model's own form, unless it was changed.
    fn listed(&self) -> &ToolCall {
        if self.is_changed() { self.call() } else { &self.asked }
    }

    fn done(&self) -> Option<CompletedCall<'_>> {
        let (result, detail) = self.result.as_ref()?;
        Some(CompletedCall { call: self.call(), result, detail })
    }

    fn is_agent_at_work(&self) -> bool {
        self.result.is_none() && is_agent_tool(&self.call().name)
    }

    /// Returns true if the other sub-agents of its reply are stopped when this one fails.
    fn cancels_siblings(&self) -> bool {
        let policy = self.prepared.agent_call().map(|call| call.on_failure);
        policy == Some(OnFailure::CancelSiblings)
    }

    /// Returns the call, if it succeeded.
    fn succeeded(&self) -> Option<Arc<PreparedCall>> {
        let (Block::ToolResult { is_error: false, .. }, _) = self.result.as_ref()? else {
            return None;
        };
        Some(Arc::clone(&self.prepared))
    }

    fn ran(&self) -> Option<ExecutedTool<'_>> {
        let (result, detail) = self.result.as_ref()?;
        Some(ExecutedTool { call: &self.prepared, result, detail, took: self.took? })
    }
}

impl RunWorld<'_> {
    /// Runs the tool calls of the last reply and answers every one.
    pub(super) async fn run_tools(&mut self) -> Event {
        let mut calls = open_calls(self.conversation.messages()).into_iter();
        let mut slots = Vec::new();
        let mut cut = None;
        let mut next = 0;
        let calls_in_reply = calls.len();
        let goes_on = |it: &Self| {
            !it.hooks.is_halted() && !it.fails_for_denial() && it.tools.deferred().is_none()
        };
        while next < calls_in_reply && cut.is_none() && goes_on(self) {
            let end = self.prepare_batch(&mut slots, next, &mut calls);
            cut = self.run_batch(&mut slots[next..end], calls_in_reply).await;
            next = end;
        }
        self.tools.early.discard();
        let event = match cut {
            Some(cut) => cut.into(),
            None if self.hooks.is_halted() => Event::HookStopped,
            None if self.fails_for_denial() => Event::Denied,
            // The call stays without a result, so that a resume finds it.
            None if self.tools.deferred().is_some() => return Event::Deferred,
            None => {
                let done: Vec<_> = slots.iter().filter_map(ResultSlot::done).collect();
                let (journal, loops) = (&mut self.journal, self.limits.loops);
                self.tools.finish_batch(&done, journal, loops).await
            }
        };
        if cut.is_none() {
            let done: Vec<_> = slots.iter().filter_map(ResultSlot::succeeded).collect();
            self.add_folder_notes(&done).await;
        }
        // News goes along where a turn follows, and is kept for later where none does.
        let work_update =
            if matches!(event, Event::ToolsDone(_)) { self.tools.ended_work() } else { None };
        slots.extend(calls.map(|call| ResultSlot::of(call, self.tools.toolbox())));
        self.answer_all(slots, cut, work_update);
        event
    }

    /// Returns true if a call of the run or of a sub-agent was denied in this process, and the run
    /// must end because of it.
    fn fails_for_denial(&self) -> bool {
        let is_root = self.context.mark.is_none();
        self.tools.fails_for_denial() || (is_root && self.context.deps.registry.is_alarmed())
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
            // The call that ended the batch before is prepared already.
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

    /// Runs a batch, with its hooks before and after. Returns early, with nothing left running,
    /// when the run was cut.
    async fn run_batch(
        &mut self,
        batch: &mut [ResultSlot],
        calls_in_reply: usize,
    ) -> Option<CancelReason> {
        let calls: Vec<Arc<PreparedCall>> =
            batch.iter().map(|slot| Arc::clone(&slot.prepared)).collect();
        let verdicts = match self.before_tools(&calls).await {
            Ok(verdicts) => verdicts,
            Err(cut) => return Some(cut),
        };
        if let ([slot], [verdict]) = (&*batch, &verdicts[..])
            // A hook may defer the only call of a reply, and only of the run itself.
            && calls_in_reply == 1
            && self.context.mark.is_none()
            && let Some(reason) = verdict.deferral()
        {
            self.tools.defer(slot.call().clone(), self.conversation.hook_words(reason));
            return None;
        }
        let (mut admitted, mut unasked) = (Vec::new(), Vec::<String>::new());
        for (index, (slot, verdict)) in batch.iter_mut().zip(verdicts).enumerate() {
            let decided = match self.admit(&mut slot.prepared, &verdict).await {
                Ok(Err(refusal)) => {
                    self.prompt_for_permission(&slot.prepared, &verdict, refusal).await
                }
                decided => decided,
            };
            let decided = match decided {
                Ok(decided) => decided,
                Err(cut) => return Some(cut),
            };
            match decided {
                Ok(permit) => {
                    slot.prepared = Arc::clone(permit.prepared());
                    admitted.push((index, permit));
                }
                Err(refusal) => {
                    if let (ToolRefusal::Denied { reason, .. }, true) = (&refusal, verdict.allows())
                    {
                        unasked.push(reason.clone());
                    }
                    let refused = self.refuse(slot, refusal);
                    slot.result = Some(refused);
                }
            }
        }
        for message in unasked {
            if let Err(cut) = self.notify("permission_prompt", &message).await {
                return Some(cut);
            }
        }
        if self.fails_for_denial() {
            return None;
        }
        let waits = admitted.iter().any(|(_, permit)| self.waits_for(permit.prepared()));
        if waits {
            self.release_permit();
        }
        for group in groups(admitted) {
            if let Some(cut) = self.run_admitted(batch, group).await {
                return Some(cut);
            }
        }
        if waits && let Err(cut) = self.acquire_permit().await {
            return Some(cut);
        }
        let ran: Vec<ExecutedTool<'_>> = batch.iter().filter_map(ResultSlot::ran).collect();
        match self.after_tools(&ran).await {
            Ok(replaced) => {
                for ReplacedResult { id, result, detail } in replaced {
                    if let Some(slot) = batch.iter_mut().find(|slot| slot.asked.id == id) {
                        slot.result = Some((result, detail));
                    }
                }
                None
            }
            Err(cut) => Some(cut),
        }
    }

    /// Writes the calls that are about to run to the journal, and reports inputs that a hook or the
    /// permission prompt has changed.
    fn journal_intent(&mut self, batch: &[ResultSlot], admitted: &[Admitted]) {
        let intent = |(at, permit): &Admitted| (permit.call().clone(), batch[*at].is_changed());
        let calls: Vec<(ToolCall, bool)> = admitted.iter().map(intent).collect();
        self.journal.intent(&calls);
        for (call, _) in calls.iter().filter(|(_, changed)| *changed) {
            let note = format!("{} runs with a changed input: {}", call.name, call.input);
            self.monitor.emit(&RunEvent::Note(note));
        }
    }

    async fn run_admitted(
        &mut self,
        batch: &mut [ResultSlot],
        admitted: Vec<Admitted>,
    ) -> Option<CancelReason> {
        let cancel = CancellationToken::new();
        let (finish, mut finished) = mpsc::unbounded_channel();
        // The intent is on the disk before the effect.
        self.journal_intent(batch, &admitted);
        if self.is_taken_over() {
            return Some(CancelReason::Interrupt(Interrupt::SessionTakenOver));
        }
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        // Cancels the remaining sub-agents of a batch, and nothing else of it.
        let siblings = cancel.child_token();
        for (index, permit) in admitted {
            batch[index].began = true;
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
                    let finished = self.finish(slot, outcome);
                    slot.result = Some(finished);
                }
                Ok(None) => return None,
                Err(cut) => {
                    cancel.cancel();
                    self.start_shutdown(cut);
                    for (index, outcome) in
                        drain_cancelled(self.tools.toolbox(), cut, tasks, finished).await
                    {
                        let slot: &mut ResultSlot = &mut batch[index];
                        let finished = self.finish(slot, outcome);
                        slot.result = Some(finished);
                    }
                    return Some(cut);
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
        let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
            if batch.iter().any(ResultSlot::is_agent_at_work) {
                let running = context.activities(monitor.now());
                monitor.emit_heartbeat(timer, WaitingFor::Agents { running }, progress, None);
            } else if let Some(slot) = batch.iter().find(|slot| slot.result.is_none()) {
                let ToolCall { name, id, .. } = slot.call().clone();
                let waiting_for = match servers.asking_host(&name) {
                    Some(server) => WaitingFor::Elicitation { server },
                    None => WaitingFor::Tool { name, id },
                };
                monitor.emit_heartbeat(timer, waiting_for, progress, None);
            }
        };
        self.monitor.wait_for(timer, show, finished.recv()).await
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

    fn finish(&mut self, slot: &ResultSlot, outcome: ToolOutcome) -> (Block, Value) {
        if let Some(reason) = &outcome.denied {
            self.note_denial(slot, reason);
        }
        let block = Block::ToolResult {
            tool_use_id: slot.asked.id.clone(),
            content: outcome.content,
            is_error: outcome.is_error,
        };
        self.journal.outcome(&block, &outcome.detail);
        (block, outcome.detail)
    }

    /// Counts the costs of web searches. The shared ledger was charged when each request ended.
    fn record_searches(&mut self) {
        let lines = self.tools.search_costs().take();
        for line in &lines {
            self.journal.spend(line.cost, &line.usage, &line.model);
        }
        self.caller.accounting.record_searches(lines, self.context.mark.is_none());
    }

    fn refuse(&mut self, slot: &ResultSlot, refusal: ToolRefusal) -> (Block, Value) {
        let outcome = match refusal {
            ToolRefusal::Invalid(outcome) => outcome,
            ToolRefusal::Denied { outcome, reason } => {
                self.note_denial(slot, &reason);
                outcome
            }
        };
        let block = Block::ToolResult {
            tool_use_id: slot.asked.id.clone(),
            content: outcome.content,
            is_error: true,
        };
        (block, outcome.detail)
    }

    fn note_denial(&mut self, slot: &ResultSlot, reason: &str) {
        let call = slot.listed();
        self.tools.record_denial();
        if self.context.mark.is_some() && self.fails_for_denial() {
            self.context.deps.registry.raise_alarm();
        }
        let ToolCall { name: tool, id, input } = call.clone();
        let denial = Denial {
            tool_name: tool.clone(),
            tool_use_id: id.clone(),
            tool_input: input,
            reason: reason.to_owned(),
        };
        let denied = UndoneCalls { denied: vec![denial], ..UndoneCalls::default() };
        self.journal.undone_calls(denied);
        self.monitor.emit(&RunEvent::Denied { tool, id, reason: reason.to_owned() });
    }

    /// Adds the results to the conversation, in the order in which the model made the calls.
    fn answer_all(
        &mut self,
        slots: Vec<ResultSlot>,
        cut: Option<CancelReason>,
        work_update: Option<Block>,
    ) {
        let missing = match cut {
            Some(CancelReason::Interrupt(_)) => "Interrupted by user",
            Some(CancelReason::Deadline) => "Cut off: the time limit of this run was reached",
            Some(CancelReason::Denial) => "Cut off: a call of a sub-agent was denied",
            None if self.hooks.is_halted() => "Not run: a hook stopped the run",
            None if self.fails_for_denial() => "Not run: an earlier call was denied",
            None => "The tool broke down without a result",
        };
        let without_result = slots.iter().filter(|slot| slot.result.is_none());
        let abandoned = without_result.map(|slot| slot.asked.id.clone()).collect();
        self.journal.undone_calls(UndoneCalls { abandoned, ..UndoneCalls::default() });
        self.record_agents_denials();
        let (mut blocks, details): (Vec<Block>, Vec<Value>) = slots
            .into_iter()
            .map(|slot| {
                slot.result.unwrap_or_else(|| {
                    let cut = slot.began.then(|| describe_unknown_outcome(slot.prepared.call()));
                    self.caller.accounting.record_cut(cut.into_iter());
                    (synthetic(slot.asked.id, missing), Value::String(format!("Error: {missing}")))
                })
            })
            .unzip();
        self.record_searches();
        blocks.extend(self.hooks.take_asides());
        blocks.extend(work_update);
        self.record_effects();
        if !blocks.is_empty() {
            self.add_user_message(blocks, details);
        }
        if self.hooks.take_replaced() {
            // The journal has the results as they came from the tools.
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
        // Dropping a command kills its process group; the hunt finds what has left the group.
        end_tasks(tasks).await;
        toolbox.kill_remaining_processes().await;
    }
    done
}
