//! The model caller: the model chain, the cost of each call, and the facts learned from its
//! failures.

use std::sync::Arc;

use crate::journal::{LearnedFacts, RestoredTotals};
use crate::model::limits::SharedLimits;
use crate::model::{ModelReply, RateLimits, Reasoning, Renewal, ThinkingMode, WebSearch};
use crate::recovery::{
    ErrorClass, Event, Failure, Fault, ModelCall, Moment, Money, Shortfall, classify,
};
use crate::transcript::{ToolDefinition, Usage, lacks_thinking};

use super::accounting::{Accounting, CallCost};
use super::clock::Clock;
use super::conversation::Conversation;
use super::run_event::{RunEvent, WaitingFor};
use super::run_monitor::{CancelReason, ProgressSnapshot, RunMonitor, WaitTimer};
use super::setup::ModelEndpoint;

/// A fault with its classification. Every fault of a run is classified here, once.
pub(super) struct ClassifiedFault {
    pub(super) fault: Fault,
    pub(super) failure: Failure,
}

impl ClassifiedFault {
    pub(super) fn new(fault: Fault) -> Self {
        Self { failure: classify(&fault), fault }
    }
}

/// The state that calls of the model need and change, beside the conversation.
pub(super) struct ModelCaller {
    pub(super) system: String,
    pub(super) definitions: Vec<ToolDefinition>,
    /// The chain, the preferred model first. Never empty.
    pub(super) endpoints: Vec<ModelEndpoint>,
    /// The index of the model in use.
    pub(super) model_index: u8,
    pub(super) reasoning: Reasoning,
    /// The search tool of the service, for a request that searches the web.
    pub(super) search: Option<WebSearch>,
    pub(super) stream_events: bool,
    /// The context window of each model as far as it is known, in tokens.
    pub(super) windows: Vec<u64>,
    /// The output limit of each model as far as it is known, in tokens.
    pub(super) output_limits: Vec<u32>,
    /// Rate limits that are known on this host.
    pub(super) shared: Option<SharedLimits>,
    pub(super) accounting: Accounting,
    /// The cost of the earlier part of the session, which the accounting does not cover.
    pub(super) cost_before: Money,
    /// The last failure.
    pub(super) fault: Option<ClassifiedFault>,
    /// The time at which the service accepts requests again after its last fault, in seconds since
    /// the Unix epoch.
    pub(super) retry_at: Option<u64>,
    pub(super) met: LimitsMet,
}

/// The limits that the run has met with its last request.
#[derive(Default)]
pub(super) struct LimitsMet {
    /// True if the run ended because its retry quota did not allow one more retry.
    pub(super) quota_ended: bool,
    /// The amount that the budget lacked, if the request could not be paid.
    pub(super) shortfall: Option<Shortfall>,
}

impl ModelCaller {
    /// Creates the caller of an agent that begins.
    pub(super) fn new(
        system: String,
        endpoints: Vec<ModelEndpoint>,
        reasoning: Reasoning,
        shared: Option<SharedLimits>,
        accounting: Accounting,
    ) -> Self {
        Self {
            system,
            definitions: Vec::new(),
            windows: endpoints.iter().map(|endpoint| endpoint.facts.context_window).collect(),
            output_limits: endpoints.iter().map(|endpoint| endpoint.facts.max_output).collect(),
            endpoints,
            model_index: 0,
            reasoning,
            search: None,
            stream_events: false,
            shared,
            accounting,
            cost_before: Money::ZERO,
            fault: None,
            retry_at: None,
            met: LimitsMet::default(),
        }
    }

    /// Continues from the totals of earlier processes and what they learned of the models, with the
    /// model that was in use.
    pub(super) fn restored(
        mut self,
        totals: RestoredTotals,
        learned: &LearnedFacts,
        model_index: u8,
    ) -> Self {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let (window, output) = (&mut self.windows[index], &mut self.output_limits[index]);
            *window = learned.window(&endpoint.label).map_or(*window, |known| known.min(*window));
            let known = learned.output_limit(&endpoint.label);
            *output = known.map_or(*output, |known| known.min(*output));
        }
        self.cost_before = totals.cost_before();
        self.accounting.restore(totals, &self.endpoints);
        Self { model_index, ..self }
    }

    /// Returns the model in use. The chain is never empty and the machine never goes past its end;
    /// a wrong index means the last model.
    pub(super) fn endpoint(&self) -> &ModelEndpoint {
        self.endpoint_at(self.model_index)
    }

    pub(super) fn endpoint_at(&self, model_index: u8) -> &ModelEndpoint {
        let last = self.endpoints.len() - 1;
        &self.endpoints[usize::from(model_index).min(last)]
    }

    pub(super) fn progress(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            turn: self.accounting.stats().turns + 1,
            waited: self.accounting.stats().recovery.totals().waited,
            spent: self.accounting.spending(self.endpoint()),
        }
    }

    /// Returns the progress of the turn of the last reply, if there was one.
    pub(super) fn turn_progress(&self) -> ProgressSnapshot {
        ProgressSnapshot { turn: self.accounting.stats().turns.max(1), ..self.progress() }
    }

    /// Returns the context window of the model in use, as known or as learned from overflows.
    pub(super) fn window(&self) -> u64 {
        let model_index = usize::from(self.model_index).min(self.windows.len() - 1);
        self.windows[model_index]
    }

    /// Returns the output limit of the model in use, as known or as learned from a refusal, in
    /// tokens.
    pub(super) fn output_limit(&self) -> u32 {
        let model_index = usize::from(self.model_index).min(self.output_limits.len() - 1);
        self.output_limits[model_index]
    }

    /// Returns the reasoning options of the next request. Thinking is off if the history lacks
    /// thinking that the model requires.
    pub(super) fn reasoning_for(
        &self,
        model_index: &ModelEndpoint,
        conversation: &Conversation,
    ) -> Reasoning {
        let bare = conversation.thinking_stripped
            && model_index.facts.requires_prior_thinking()
            && lacks_thinking(conversation.messages());
        let thinking = if bare { ThinkingMode::Off } else { self.reasoning.thinking };
        Reasoning { thinking, ..self.reasoning }
    }

    /// Records the fault that the run reports if it ends because of it, and the time at which the
    /// service accepts requests again. That time counts from now, however long the end takes.
    pub(super) fn keep_fault(&mut self, fault: ClassifiedFault, clock: Clock) {
        let now = clock.unix_seconds();
        let hint = fault.failure.retry_after;
        self.retry_at = hint.map(|hint| now.saturating_add(hint.wait.as_secs()));
        self.fault = Some(fault);
    }

    /// Returns the facts of the last failure.
    pub(super) fn last_fault(&self) -> Option<&Fault> {
        self.fault.as_ref().map(|last| &last.fault)
    }

    pub(super) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take().map(|last| last.fault)
    }

    /// Charges the cost of the reply, in the journal too. Impossible token counts are cut first, so
    /// that nothing else uses them.
    pub(super) fn settle_call(
        &mut self,
        label: &str,
        answer: &mut ModelReply,
        conversation: &mut Conversation,
        monitor: &mut RunMonitor<'_>,
    ) {
        let cost = self.accounting.settle(answer);
        if let CallCost::Whole(settled) = cost {
            answer.usage = settled.usage;
        }
        self.note_cost(label, cost, conversation, monitor);
    }

    /// Charges the cost of the data that a call without an answer received, in the journal too.
    pub(super) fn settle_broken(
        &mut self,
        conversation: &mut Conversation,
        monitor: &mut RunMonitor<'_>,
    ) {
        let cost = self.accounting.settle_broken();
        let label = self.endpoint().label.clone();
        self.note_cost(&label, cost, conversation, monitor);
    }

    pub(super) fn note_cost(
        &mut self,
        label: &str,
        cost: CallCost,
        conversation: &mut Conversation,
        monitor: &mut RunMonitor<'_>,
    ) {
        match cost {
            CallCost::Nothing => {}
            CallCost::Whole(settled) => {
                conversation.journal.spend(settled.counted, &settled.usage, label);
                if settled.uncounted > Money::ZERO {
                    conversation.journal.spend_upper_bound(
                        Some(settled.uncounted),
                        &Usage::default(),
                        label,
                    );
                }
            }
            CallCost::Broken(settled) => {
                conversation.journal.spend_upper_bound(settled.total(), &settled.usage, label);
            }
        }
        for note in self.accounting.notes(&cost, label) {
            monitor.emit(&RunEvent::Warning(note));
        }
    }

    pub(super) async fn refresh(
        &mut self,
        conversation: &mut Conversation,
        monitor: &mut RunMonitor<'_>,
    ) -> Event {
        let mut timer = monitor.begin();
        let progress = self.progress();
        let client = Arc::clone(&self.endpoint().client);
        let refreshing = client.refresh();
        let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
            monitor.emit_heartbeat(
                timer,
                WaitingFor::Model("credentials".to_owned()),
                progress,
                None,
            );
        };
        let renewal = match monitor.wait_for(&mut timer, show, refreshing).await {
            Ok(renewal) => renewal,
            Err(cut) => return cut.into(),
        };
        conversation.redact_new_secrets();
        // The run keeps reporting the rejection that led here, unless the new fault says more.
        let rejection = self.fault.as_ref().map(|last| last.failure);
        let rejection = rejection.unwrap_or(Failure::of(ErrorClass::AuthError));
        let (class, body) = (rejection.class, rejection.body);
        let endpoint_status = client.endpoint_status();
        match renewal {
            Renewal::Replaced | Renewal::Confirmed => Event::Refreshed,
            Renewal::Unchanged => {
                Event::Failed(Failure { body, endpoint_status, ..Failure::of(class) })
            }
            Renewal::Failed(fault) => {
                let fault = ClassifiedFault::new(*fault);
                let failure = fault.failure;
                self.keep_fault(fault, monitor.clock);
                // A failed credential fetch does not contradict the rejection.
                let final_too = failure.class == ErrorClass::InvalidApiKey;
                let class = if final_too { class } else { failure.class };
                Event::Failed(Failure { class, endpoint_status, ..failure })
            }
        }
    }

    /// Returns the end of the wait for a rate limit that is known on this host. `None`: the request
    /// does not have to wait.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn shared_limit_until(
        &mut self,
        ask: &ModelCall,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<Option<Moment>, CancelReason> {
        let model_index = self.endpoint_at(ask.model_index);
        let (name, label) =
            (model_index.client.limit_of(&model_index.facts.name), model_index.label.clone());
        let progress = self.progress();
        let Some(shared) = &mut self.shared else { return Ok(None) };
        let claiming = shared.claim(&name, !ask.may_wait_for_shared_limit);
        let wait = unless_cut(monitor, &label, progress, claiming).await?;
        self.report_sharing_loss(monitor);
        Ok(wait.map(|wait| monitor.clock.now().after(wait)))
    }

    /// Shares a rate limit with other runs. It is stored when this returns, unless the run was cut
    /// off: then the end of the run waits for it.
    pub(super) async fn share_rate_limit(
        &mut self,
        failure: Failure,
        monitor: &mut RunMonitor<'_>,
    ) {
        let (label, progress) = (self.endpoint().label.clone(), self.progress());
        if let Some(shared) = &mut self.shared
            && failure.class == ErrorClass::RateLimit
        {
            shared.refused(failure.retry_after.map(|hint| hint.wait));
            // The next wait will see the cut, too.
            let _ = unless_cut(monitor, &label, progress, shared.flush()).await;
        }
    }

    /// Reports once that rate limits are not shared. This run is not affected.
    pub(super) fn report_sharing_loss(&mut self, monitor: &mut RunMonitor<'_>) {
        let Some(trouble) = self.shared.as_mut().and_then(SharedLimits::take_problem) else {
            return;
        };
        let note = format!("rate limits are not shared with other runs: {trouble}");
        monitor.emit(&RunEvent::Note(note));
    }
}

/// Waits for the shared rate-limit file, unless the run is cut off before.
async fn unless_cut<T>(
    monitor: &mut RunMonitor<'_>,
    model: &str,
    progress: ProgressSnapshot,
    file: impl Future<Output = T>,
) -> Result<T, CancelReason> {
    let mut timer = monitor.begin();
    let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
        monitor.emit_heartbeat(timer, WaitingFor::Model(model.to_owned()), progress, None);
    };
    monitor.wait_for(&mut timer, show, file).await
}

/// Shares that a request was accepted, with the limits that the service reported.
pub(super) fn accepted(shared: &mut Option<SharedLimits>, limits: Option<&RateLimits>) {
    if let Some(shared) = shared {
        shared.accepted(limits);
    }
}
