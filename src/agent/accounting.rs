//! Accounting: the costs and the statistics of the run so far.

use std::time::Duration;

use crate::journal::{ModelTotals, RestoredTotals};
use crate::model::{Bounds, Counts, ModelReply, Prices, Received, Settlement, model_facts, settle};
use crate::recovery::{
    Moment, Money, RecoveryRecord, Reservation, Spending, StopReason, Transition,
};

use super::setup::{ModelEndpoint, ModelStats, RunStats};
use super::shared_ledger::{ReservationTurn, SharedLedger, bill};

/// The shared ledger, the totals, and the reservation for the current call.
pub(super) struct Accounting {
    /// Shared with sub-agents.
    ledger: SharedLedger,
    stats: RunStats,
    /// Held from estimating a call until its reservation.
    turn: Option<ReservationTurn>,
    /// The sub-agent whose accounts these are. `None`: the run itself.
    agent: Option<String>,
    /// `--budget-mode after`: stop once this much is spent, without reserving.
    stop_after: Option<Money>,
    reserved: Option<Reserved>,
    reported: ReportedWarnings,
}

/// The most that a call can cost.
#[derive(Clone)]
pub(super) struct WorstCaseCost {
    pub(super) bounds: Bounds,
    pub(super) prices: Option<Prices>,
    pub(super) endpoint: ModelEndpoint,
}

impl WorstCaseCost {
    pub(super) fn sum(&self) -> Money {
        self.bounds.worst_case(self.prices.as_ref())
    }
}

/// The reservation for the current call.
struct Reserved {
    reservation: Reservation,
    worst: WorstCaseCost,
    /// The data that the call has received so far. `None`: no message has begun.
    received: Option<Received>,
}

/// Warnings about costs that were already given: each is given once.
#[derive(Debug, Default)]
struct ReportedWarnings {
    uncounted: bool,
    impossible: bool,
    unpriced: bool,
}

/// The cost of a call, by its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallCost {
    /// Nothing was received.
    Nothing,
    /// A whole reply.
    Whole(Settlement),
    /// A reply that broke off. The billed part of it is not known.
    Broken(Settlement),
}

impl Accounting {
    /// Creates the accounts of an agent: of the run itself if `agent` is `None`.
    pub(super) fn new(
        ledger: SharedLedger,
        agent: Option<String>,
        stop_after: Option<Money>,
    ) -> Self {
        Self {
            ledger,
            stats: RunStats::default(),
            turn: None,
            agent,
            stop_after,
            reserved: None,
            reported: ReportedWarnings::default(),
        }
    }

    /// Continues from the totals of earlier processes.
    pub(super) fn restore(&mut self, totals: RestoredTotals, endpoints: &[ModelEndpoint]) {
        let prompt = totals.prompt;
        let by_model = prompt.by_model.into_iter();
        self.stats = RunStats {
            turns: prompt.turns,
            usage: prompt.usage,
            by_model: by_model.map(|sum| model_stats(sum, endpoints)).collect(),
            models: prompt.models,
            recovery: totals.recovery,
            unknown_outcomes: totals.unknown_outcomes,
            dropped_records: totals.dropped_records,
            ..RunStats::default()
        };
    }

    /// Returns the totals so far, without those of tools and hooks.
    pub(super) fn stats(&self) -> &RunStats {
        &self.stats
    }

    pub(super) fn ledger(&self) -> &SharedLedger {
        &self.ledger
    }

    /// Returns true if this agent is the only one that may reserve.
    pub(super) fn holds_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Keeps the right to reserve until a call is reserved or [`Self::release_turn`].
    pub(super) fn hold_turn(&mut self, turn: ReservationTurn) {
        self.turn = Some(turn);
    }

    pub(super) fn release_turn(&mut self) {
        self.turn = None;
    }

    pub(super) fn record_turn(&mut self, model: &str) {
        self.stats.turns += 1;
        self.stats.answered_by(model);
    }

    pub(super) fn record_repairs(&mut self, repairs: usize) {
        self.stats.repairs += u32::try_from(repairs).unwrap_or(u32::MAX);
    }

    pub(super) fn record_request_time(&mut self, took: Duration) {
        self.stats.api_duration += took;
    }

    /// Records the time until the first token, if it is the first one of the run.
    pub(super) fn record_first_token(&mut self, took: Option<Duration>) {
        self.stats.first_token = self.stats.first_token.or(took);
    }

    /// Records calls that were cut off, whose outcome is not known.
    pub(super) fn record_cut(&mut self, calls: impl Iterator<Item = String>) {
        self.stats.cut.extend(calls);
    }

    /// Records the usage of web searches, which were charged when their requests ended. Those of a
    /// sub-agent are already in the ledger's usage of sub-agents by model.
    pub(super) fn record_searches(&mut self, costs: Vec<ModelStats>) {
        for stats in &costs {
            self.stats.usage += stats.usage;
        }
        if self.agent.is_none() {
            ModelStats::merge(&mut self.stats.by_model, costs);
        }
    }

    /// Records a transition of the machine. Returns the recoveries that ended with it.
    pub(super) fn record_transition(&mut self, transition: &Transition) -> Vec<RecoveryRecord> {
        let turns = self.stats.turns;
        self.stats.recovery.observe(transition, turns)
    }

    /// Ends all recoveries. Returns those that were in progress.
    pub(super) fn end_recoveries(
        &mut self,
        now: Moment,
        reason: StopReason,
    ) -> Vec<RecoveryRecord> {
        self.stats.recovery.end(now, reason)
    }

    /// Returns true if the next call has to wait for its turn to reserve.
    pub(super) fn is_bounded(&self) -> bool {
        self.stop_after.is_none() && self.ledger.ledger().ceiling().is_some()
    }

    /// Returns the most that the next call may cost; `None` when there is no ceiling.
    pub(super) fn left(&self) -> Option<Money> {
        match self.stop_after {
            Some(limit) if self.ledger.ledger().counted() >= limit => Some(Money::ZERO),
            Some(_) => None,
            None => self.ledger.ledger().left(),
        }
    }

    pub(super) fn ceiling(&self) -> Option<Money> {
        self.stop_after.or(self.ledger.ledger().ceiling())
    }

    /// Returns the known spending. It is partial if a used model has no known price or, before the
    /// first use, if `endpoint`, which answers next, has none.
    pub(super) fn spending(&self, endpoint: &ModelEndpoint) -> Spending {
        let used = &self.stats.by_model;
        let next = used.is_empty() && endpoint.facts.prices_at(false).is_none();
        Spending {
            amount: self.ledger.ledger().spent(),
            is_partial: next || used.iter().any(|model| model.cost.is_none()),
        }
    }

    /// Reserves the worst-case cost of a call. Returns false if it does not fit into the budget.
    pub(super) fn reserve(&mut self, worst: WorstCaseCost) -> bool {
        let reserved = self.ledger.reserve(worst.sum());
        self.reserved = reserved.map(|reservation| Reserved { reservation, worst, received: None });
        self.turn = None;
        self.reserved.is_some()
    }

    pub(super) fn receive(&mut self, received: Received) {
        if let Some(reserved) = &mut self.reserved {
            reserved.received = Some(received);
        }
    }

    /// Settles an answered call: its cost is known, as far as the service counted it.
    pub(super) fn settle(&mut self, answer: &ModelReply) -> CallCost {
        self.receive(Received::whole(answer.usage, answer.counts, &answer.content));
        self.close(CallCost::Whole)
    }

    /// Settles a call that ended without an answer. Its cost is that of the received data.
    pub(super) fn settle_broken(&mut self) -> CallCost {
        self.close(CallCost::Broken)
    }

    fn close(&mut self, end: fn(Settlement) -> CallCost) -> CallCost {
        let Some(Reserved { reservation, worst, received }) = self.reserved.take() else {
            return CallCost::Nothing;
        };
        let Some(received) = received else {
            // Without a price, nothing is known of the cost of an attempt either.
            let nothing = Spending { amount: Money::ZERO, is_partial: worst.prices.is_none() };
            self.stats.recovery.record_cost(nothing, 0);
            self.ledger.settle(reservation, Money::ZERO, Money::ZERO);
            return CallCost::Nothing;
        };
        let settled = settle(worst.prices.as_ref(), &worst.bounds, &received);
        let cost = end(settled);
        let (certain, upper_bound) = cost.parts();
        self.ledger.settle(reservation, certain, upper_bound);
        self.stats.usage += settled.usage;
        self.stats.clamped += u32::from(settled.counts == Counts::Impossible);
        let tokens = settled.usage.input() + settled.usage.output_tokens;
        let amount = certain + upper_bound;
        let spending = Spending { amount, is_partial: settled.total().is_none() };
        self.stats.recovery.record_cost(spending, tokens);
        bill(&mut self.stats.by_model, &worst.endpoint, settled.usage, settled.total());
        if let Some(agent) = &self.agent {
            self.ledger.bill_agent(agent, &worst.endpoint, &settled, (certain, upper_bound));
        }
        cost
    }

    /// Returns warnings about the cost of a call, each only once.
    pub(super) fn notes(&mut self, cost: &CallCost, label: &str) -> Vec<String> {
        let settled = match cost {
            CallCost::Nothing => return Vec::new(),
            CallCost::Whole(settled) | CallCost::Broken(settled) => settled,
        };
        let mut notes = Vec::new();
        let mut once = |reported: &mut bool, applies: bool, note: String| {
            if applies && !std::mem::replace(reported, true) {
                notes.push(note);
            }
        };
        let ReportedWarnings { uncounted, impossible, unpriced } = &mut self.reported;
        once(
            unpriced,
            settled.counted.is_none(),
            format!(
                "no price is known for the model {label}, so the cost of this run is not known; \
                 give one with --price {label}=IN/OUT (US dollars per million tokens)"
            ),
        );
        once(
            impossible,
            settled.counts == Counts::Impossible,
            format!(
                "{label} reports impossible token counts (negative, or more than the request \
                 allowed): they are cut to what is possible"
            ),
        );
        let whole = matches!(cost, CallCost::Whole(_));
        once(
            uncounted,
            whole && settled.uncounted > Money::ZERO,
            format!(
                "{label} does not count all tokens of its replies: what it does not count is \
                 charged at the most that it can cost"
            ),
        );
        notes
    }
}

/// Returns the counts of a model with its limits, which the chain knows better.
fn model_stats(sum: ModelTotals, endpoints: &[ModelEndpoint]) -> ModelStats {
    let ModelTotals { model, usage, cost } = sum;
    let known = endpoints.iter().find(|endpoint| endpoint.label == model);
    let facts = known.map_or_else(|| model_facts(&model), |endpoint| endpoint.facts.clone());
    let (context_window, max_output) = (facts.context_window, facts.max_output);
    ModelStats { model, usage, cost, context_window, max_output }
}

impl CallCost {
    /// Returns the amount that was certainly billed, and the most that may have been billed beyond
    /// it.
    pub(super) fn parts(&self) -> (Money, Money) {
        match self {
            Self::Nothing => (Money::ZERO, Money::ZERO),
            Self::Whole(settled) => (settled.counted.unwrap_or_default(), settled.uncounted),
            Self::Broken(settled) => (Money::ZERO, settled.total().unwrap_or_default()),
        }
    }
}

impl Drop for Accounting {
    /// Charges a run that is dropped during a call for the data that the call received.
    fn drop(&mut self) {
        self.settle_broken();
    }
}
