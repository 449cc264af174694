//! The model caller: the model chain, the cost of each call, and the facts learned from its
//! failures.

mod capacity_probe;
mod fixed_content;
mod refused_tools;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use crate::journal::{Journal, LearnedFacts, RestoredTotals};
use crate::model::limits::SharedLimits;
use crate::model::{ModelReply, Reasoning, Renewal, StreamProgress, ThinkingMode, WebSearch};
use crate::recovery::{
    ClassifiedFault, ErrorClass, Event, Failure, Fault, Limits, ModelCall, Moment, Money,
    OptionalField, RecoveryRecord, Transition,
};
use crate::transcript::{ToolDefinition, Usage, fixed_bytes, lacks_thinking};

use super::accounting::{Accounting, CallCost};
use super::clock::Clock;
use super::conversation::Conversation;
use super::run_event::RunEvent;
use super::run_monitor::{CancelReason, ProgressSnapshot, RunMonitor};
use super::setup::{LimitsMet, ModelEndpoint};
use super::streamed_arguments::StreamedArguments;
use super::waiting_for::WaitingFor;
use fixed_content::FixedContent;

/// The model chain, with the limits of each model as far as they are known or learned.
struct ModelChain {
    /// The preferred model first. Never empty.
    endpoints: Vec<ModelEndpoint>,
    /// The context window of each model, in tokens.
    windows: Vec<u64>,
    /// The output limit of each model, in tokens.
    output_limits: Vec<u32>,
    /// The index of the model in use.
    in_use: u8,
}

impl ModelChain {
    fn new(endpoints: Vec<ModelEndpoint>) -> Self {
        Self {
            windows: endpoints.iter().map(|endpoint| endpoint.facts.context_window).collect(),
            output_limits: endpoints.iter().map(|endpoint| endpoint.facts.max_output).collect(),
            endpoints,
            in_use: 0,
        }
    }

    /// Returns the position of a model. The machine never goes past the end of the chain; a wrong
    /// index means the last model.
    fn position(&self, model_index: u8) -> usize {
        usize::from(model_index).min(self.endpoints.len() - 1)
    }

    /// Returns the position of the model in use.
    fn current(&self) -> usize {
        self.position(self.in_use)
    }

    /// Takes over the limits that earlier processes have learned.
    fn restore(&mut self, learned: &LearnedFacts) {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let (window, output) = (&mut self.windows[index], &mut self.output_limits[index]);
            *window = learned.window(&endpoint.label).map_or(*window, |known| known.min(*window));
            let known = learned.output_limit(&endpoint.label);
            // Journals of earlier versions may contain 0.
            *output = known.map_or(*output, |known| known.clamp(1, (*output).max(1)));
        }
    }
}

/// The state that calls of the model need and change, beside the conversation.
pub(super) struct ModelCaller {
    /// Shared with the request that is being sent.
    fixed: Arc<FixedContent>,
    /// The names of tools whose definition the service refuses.
    refused_tools: Vec<String>,
    chain: ModelChain,
    reasoning: Reasoning,
    streamed_arguments: StreamedArguments,
    /// True if the observer receives the raw events of the stream.
    stream_events: bool,
    /// Rate limits that are known on this host.
    shared: Option<SharedLimits>,
    /// The totals so far, without those of tools and hooks, and the ledger that is shared with
    /// sub-agents.
    pub(super) accounting: Accounting,
    /// The cost of the earlier part of the session, which the accounting does not cover.
    cost_before: Money,
    /// The last failure.
    fault: Option<ClassifiedFault>,
    /// The time at which the service accepts requests again after its last fault, in seconds since
    /// the Unix epoch.
    retry_at: Option<u64>,
    met: LimitsMet,
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
            fixed: Arc::new(FixedContent::new(system)),
            refused_tools: Vec::new(),
            chain: ModelChain::new(endpoints),
            reasoning,
            streamed_arguments: StreamedArguments::default(),
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
        self.chain.restore(learned);
        self.chain.in_use = model_index;
        self.cost_before = totals.cost_before();
        self.accounting.restore(totals, &self.chain.endpoints);
        self
    }

    pub(super) fn forwarding_events(self, stream_events: bool) -> Self {
        Self { stream_events, ..self }
    }

    /// Offers the search tool of the service instead of tools.
    pub(super) fn with_web_search(mut self, search: WebSearch) -> Self {
        Arc::make_mut(&mut self.fixed).search = Some(search);
        self
    }

    pub(super) fn fixed(&self) -> Arc<FixedContent> {
        Arc::clone(&self.fixed)
    }

    pub(super) fn fixed_bytes(&self) -> u64 {
        fixed_bytes(&self.fixed.system, self.fixed.tools())
    }

    pub(super) fn extend_system(&mut self, text: &str) {
        Arc::make_mut(&mut self.fixed).system.push_str(text);
    }

    /// Offers these tools from the next request on. Returns false if they are offered already.
    pub(super) fn offer_tools(&mut self, mut tools: Vec<ToolDefinition>) -> bool {
        tools.retain(|tool| !self.refused_tools.contains(&tool.name));
        let is_new = tools != self.fixed.tools();
        if is_new {
            Arc::make_mut(&mut self.fixed).set_tools(tools);
        }
        is_new
    }

    /// Returns true if requests search the web, without other tools.
    pub(super) fn searches(&self) -> bool {
        self.fixed.search.is_some()
    }

    pub(super) fn reasoning(&self) -> Reasoning {
        self.reasoning
    }

    pub(super) fn streams_events(&self) -> bool {
        self.stream_events
    }

    /// Returns the model chain from the model in use on.
    pub(super) fn remaining_endpoints(&self) -> Vec<ModelEndpoint> {
        self.chain.endpoints[self.chain.current()..].to_vec()
    }

    /// Returns the model in use.
    pub(super) fn endpoint(&self) -> &ModelEndpoint {
        &self.chain.endpoints[self.chain.current()]
    }

    pub(super) fn endpoint_at(&self, model_index: u8) -> &ModelEndpoint {
        &self.chain.endpoints[self.chain.position(model_index)]
    }

    /// Uses another model from now on. Returns the labels of the model before and of this one;
    /// `None` if it is in use already.
    pub(super) fn switch_to(&mut self, model_index: u8) -> Option<(String, String)> {
        if model_index == self.chain.in_use {
            return None;
        }
        let from = self.endpoint().label.clone();
        self.chain.in_use = model_index;
        self.streamed_arguments = StreamedArguments::default();
        Some((from, self.endpoint().label.clone()))
    }

    /// Returns true if streams of the model in use lose arguments, or its service has refused
    /// streaming, maybe in an earlier process.
    pub(super) fn needs_whole_reply(&self) -> bool {
        let ModelEndpoint { facts, client, .. } = self.endpoint();
        self.streamed_arguments.are_lost()
            || !client.accepts_field(&facts.name, OptionalField::Streaming)
    }

    /// Records the arguments of tool calls in a reply. Returns true if replies are not streamed
    /// from now on, since streams lose arguments.
    pub(super) fn record_arguments(&mut self, reply: &ModelReply, limits: &Limits) -> bool {
        self.streamed_arguments.record(reply, self.fixed.tools(), limits)
    }

    // --- totals -----------------------------------------------------------------------------

    pub(super) fn cost_before(&self) -> Money {
        self.cost_before
    }

    /// Counts a turn that the model in use answered.
    pub(super) fn record_turn(&mut self) {
        self.accounting.record_turn(&self.chain.endpoints[self.chain.current()].label);
    }

    /// Records a transition of the machine, with the limits that the run meets. Returns the
    /// recoveries that ended with it.
    pub(super) fn record_transition(
        &mut self,
        transition: &Transition,
        smallest_cap: u32,
    ) -> Vec<RecoveryRecord> {
        self.met.quota_ended = transition.next.quota_ended;
        self.met.thrashed = transition.next.gave_up_compacting();
        if let Event::Estimated(estimate) = transition.event {
            self.met.shortfall = estimate.shortfall(smallest_cap);
        }
        self.accounting.record_transition(transition)
    }

    pub(super) fn limits_met(&self) -> LimitsMet {
        self.met
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
        self.chain.windows[self.chain.current()]
    }

    pub(super) fn windows(&self) -> &[u64] {
        &self.chain.windows
    }

    /// Returns the output limit of the model in use, as known or as learned from a refusal, in
    /// tokens.
    pub(super) fn output_limit(&self) -> u32 {
        self.chain.output_limits[self.chain.current()]
    }

    /// Sets the context window of the model in use, in the journal too.
    pub(super) fn learn_window(&mut self, window: u64, journal: &mut Journal) {
        let current = self.chain.current();
        self.chain.windows[current] = window;
        journal.window(&self.endpoint().label, window);
    }

    /// Sets the output limit of the model in use, in the journal too.
    pub(super) fn learn_output_limit(&mut self, limit: u32, journal: &mut Journal) {
        let (current, limit) = (self.chain.current(), limit.max(1));
        self.chain.output_limits[current] = limit;
        journal.output_limit(&self.endpoint().label, limit);
    }

    /// Returns the reasoning options of the next request. Thinking is off if the history lacks
    /// thinking that the model requires.
    pub(super) fn reasoning_for(
        &self,
        endpoint: &ModelEndpoint,
        conversation: &Conversation,
    ) -> Reasoning {
        let is_missing = conversation.may_lack_thinking()
            && endpoint.facts.requires_prior_thinking()
            && lacks_thinking(conversation.messages());
        let thinking = if is_missing { ThinkingMode::Off } else { self.reasoning.thinking };
        Reasoning { thinking, ..self.reasoning }
    }

    /// Classifies a fault of the endpoint in use.
    pub(super) fn classified(&self, fault: Fault) -> ClassifiedFault {
        ClassifiedFault::new(fault, self.endpoint().client.endpoint_status())
    }

    /// Records the fault that the run reports if it ends because of it, and the time at which the
    /// service accepts requests again. That time counts from now, however long the end takes.
    /// Returns the failure.
    pub(super) fn keep_fault(&mut self, fault: ClassifiedFault, clock: Clock) -> Failure {
        let (failure, now) = (fault.failure, clock.unix_seconds());
        let hint = failure.retry_after;
        self.retry_at = hint.map(|hint| now.saturating_add(hint.wait.as_secs()));
        self.fault = Some(fault);
        failure
    }

    /// Returns the last failure, unless a reply has come since.
    pub(super) fn last_failure(&self) -> Option<&ClassifiedFault> {
        self.fault.as_ref()
    }

    pub(super) fn last_fault(&self) -> Option<&Fault> {
        self.fault.as_ref().map(|last| &last.fault)
    }

    /// Returns the time at which the service accepts requests again after its last fault, in
    /// seconds since the Unix epoch.
    pub(super) fn retry_at(&self) -> Option<u64> {
        self.retry_at
    }

    /// Records the progress of a reply: the received data, and that the service has accepted the
    /// request.
    pub(super) fn record_progress(&mut self, step: &StreamProgress) {
        if let StreamProgress::Received(received) = step {
            self.accounting.receive(*received);
        } else if let (StreamProgress::Accepted(limits), Some(shared)) = (step, &mut self.shared) {
            shared.accepted(limits.as_ref());
        }
    }

    /// Records the reply of the model in use, and charges its cost.
    pub(super) fn record_reply(
        &mut self,
        reply: &mut ModelReply,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) {
        // Earlier failures are overcome and must not explain a later end.
        self.fault = None;
        let label = self.endpoint().label.clone();
        self.settle_call(&label, reply, journal, monitor);
        let first_token = reply.first_token.map(|real| monitor.clock().scaled(real));
        self.accounting.record_first_token(first_token);
    }

    /// Charges the cost of a reply, in the journal too. Impossible token counts are cut first, so
    /// that nothing else uses them.
    fn settle_call(
        &mut self,
        label: &str,
        answer: &mut ModelReply,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) {
        let cost = self.accounting.settle(answer);
        if let CallCost::Whole(settled) = cost {
            answer.usage = settled.usage;
        }
        self.note_cost(label, cost, journal, monitor);
    }

    /// Charges the cost of the data that a call without an answer received, in the journal too.
    pub(super) fn settle_broken(&mut self, journal: &mut Journal, monitor: &mut RunMonitor<'_>) {
        let cost = self.accounting.settle_broken();
        let label = self.endpoint().label.clone();
        self.note_cost(&label, cost, journal, monitor);
    }

    fn note_cost(
        &mut self,
        label: &str,
        cost: CallCost,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) {
        match cost {
            CallCost::Nothing => {}
            CallCost::Whole(settled) => {
                journal.spend(settled.counted, &settled.usage, label);
                if settled.uncounted > Money::ZERO {
                    journal.spend_upper_bound(Some(settled.uncounted), &Usage::default(), label);
                }
            }
            CallCost::Broken(settled) => {
                journal.spend_upper_bound(settled.total(), &settled.usage, label);
            }
        }
        for note in self.accounting.notes(&cost, label) {
            monitor.emit(&RunEvent::Warning(note));
        }
    }

    /// Fetches a new credential.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn refresh(
        &mut self,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<Event, CancelReason> {
        let client = Arc::clone(&self.endpoint().client);
        let (progress, refreshing) = (self.progress(), client.refresh());
        let renewal = monitor.wait_as(WaitingFor::Credentials, progress, refreshing).await?;
        // The run keeps reporting the rejection that led here, unless the new fault says more.
        let rejection = self.fault.as_ref().map(|last| last.failure);
        let Failure { class, body, endpoint_status, .. } =
            rejection.unwrap_or(Failure::of(ErrorClass::AuthError));
        Ok(match renewal {
            Renewal::Replaced | Renewal::Confirmed => Event::Refreshed,
            Renewal::Unchanged => {
                Event::Failed(Failure { body, endpoint_status, ..Failure::of(class) })
            }
            Renewal::Failed(fault) => {
                let mut fault = self.classified(*fault);
                // A failed credential fetch does not contradict the rejection.
                if fault.failure.class == ErrorClass::InvalidApiKey {
                    fault.failure.class = class;
                }
                Event::Failed(self.keep_fault(fault, monitor.clock()))
            }
        })
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
        let endpoint = self.endpoint_at(ask.model_index);
        let name = endpoint.client.limit_of(&endpoint.facts.name);
        let label = endpoint.label.clone();
        let progress = self.progress();
        let Some(shared) = &mut self.shared else { return Ok(None) };
        let claiming = shared.claim(&name, !ask.may_wait_for_shared_limit);
        let wait = monitor.wait_as(WaitingFor::Model(label), progress, claiming).await?;
        self.report_sharing_loss(monitor);
        Ok(wait.map(|wait| monitor.now().after(wait)))
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
            // The next wait returns an interrupt again.
            let _ = monitor.wait_as(WaitingFor::Model(label), progress, shared.flush()).await;
        }
    }

    /// Waits for work that serves other runs only: a login that is being renewed, a notice of a
    /// rate limit.
    pub(super) async fn finish_shared_work(&mut self, limit: Duration) {
        let flush = async {
            if let Some(shared) = &mut self.shared {
                shared.flush().await;
            }
        };
        let renew = async {
            for endpoint in &self.chain.endpoints {
                endpoint.client.finish_renewal(limit).await;
            }
        };
        // A disk that hangs must not take the time of a renewal: it would lose the login.
        tokio::join!(flush, renew);
    }

    /// Reports once that rate limits are not shared. This run is not affected.
    fn report_sharing_loss(&mut self, monitor: &mut RunMonitor<'_>) {
        if let Some(problem) = self.shared.as_mut().and_then(SharedLimits::take_problem) {
            let note = format!("rate limits are not shared with other runs: {problem}");
            monitor.emit(&RunEvent::Note(note));
        }
    }
}
