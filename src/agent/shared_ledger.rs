//! The ledger shared by a run and its sub-agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, watch};

use crate::model::Settlement;
use crate::recovery::{Ledger, Money, Reservation, Spending};
use crate::transcript::Usage;

use super::setup::{ModelEndpoint, ModelStats};

/// The ledger shared by a run and its sub-agents: each model call is reserved and settled here.
/// Clones share the same ledger.
#[derive(Clone, Debug)]
pub(super) struct SharedLedger(Arc<LedgerState>);

#[derive(Debug)]
struct LedgerState {
    sums: Mutex<SpendTotals>,
    /// Signals that something was settled.
    settled: watch::Sender<u64>,
    /// Held between estimating a call and reserving for it, where there is a ceiling, so that no
    /// other agent's call comes in between.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct SpendTotals {
    ledger: Ledger,
    /// Number of calls in progress for which an amount is reserved.
    reservations: u32,
    /// Usage and cost of sub-agents, by model.
    of_agents: Vec<ModelStats>,
    /// The spending of each sub-agent, and the part of it that is not settled.
    accounts: BTreeMap<String, (Spending, Money)>,
}

/// The right to reserve next.
pub(super) type ReservationTurn = OwnedMutexGuard<()>;

impl SharedLedger {
    pub(super) fn new(ledger: Ledger) -> Self {
        let (of_agents, accounts) = (Vec::new(), BTreeMap::new());
        let sums = SpendTotals { ledger, reservations: 0, of_agents, accounts };
        Self(Arc::new(LedgerState {
            sums: Mutex::new(sums),
            settled: watch::channel(0).0,
            turn: Arc::default(),
        }))
    }

    pub(super) fn ledger(&self) -> Ledger {
        self.0.sums.lock().ledger
    }

    /// Waits until no other agent is between estimating and reserving.
    pub(super) async fn turn(&self) -> ReservationTurn {
        Arc::clone(&self.0.turn).lock_owned().await
    }

    pub(super) fn has_reservations(&self) -> bool {
        self.0.sums.lock().reservations > 0
    }

    /// Subscribes to settlements.
    pub(super) fn settlements(&self) -> watch::Receiver<u64> {
        self.0.settled.subscribe()
    }

    pub(super) fn reserve(&self, worst: Money) -> Option<Reservation> {
        let mut sums = self.0.sums.lock();
        let reserved = sums.ledger.reserve(worst)?;
        sums.reservations += 1;
        Some(reserved)
    }

    /// Settles a call. `uncounted` is the amount that it may have cost beyond `cost`.
    pub(super) fn settle(&self, reservation: Reservation, cost: Money, uncounted: Money) {
        let mut sums = self.0.sums.lock();
        sums.reservations = sums.reservations.saturating_sub(1);
        sums.ledger.settle(reservation, cost);
        sums.ledger.charge_uncounted(uncounted);
        drop(sums);
        self.0.settled.send_modify(|count| *count += 1);
    }

    /// Records the usage of a sub-agent's call and its charge: the amount that was certainly
    /// billed, and the most that may have been billed beyond it.
    pub(super) fn bill_agent(
        &self,
        id: &str,
        endpoint: &ModelEndpoint,
        settled: &Settlement,
        (certain, upper_bound): (Money, Money),
    ) {
        let mut sums = self.0.sums.lock();
        bill(&mut sums.of_agents, endpoint, settled.usage, settled.total());
        let account = sums.accounts.entry(id.to_owned()).or_default();
        let is_partial = settled.total().is_none();
        account.0 += Spending { amount: certain + upper_bound, is_partial };
        account.1 += upper_bound;
    }

    /// Returns the spending of a sub-agent so far, and the part of it that is not settled.
    pub(super) fn account(&self, id: &str) -> Option<(Spending, Money)> {
        self.0.sums.lock().accounts.get(id).copied()
    }

    pub(super) fn of_agents(&self) -> Vec<ModelStats> {
        self.0.sums.lock().of_agents.clone()
    }
}

/// Adds usage to the totals of a model.
pub(super) fn bill(
    totals: &mut Vec<ModelStats>,
    endpoint: &ModelEndpoint,
    usage: Usage,
    cost: Option<Money>,
) {
    let ModelEndpoint { label, facts, .. } = endpoint;
    let (context_window, max_output) = (facts.context_window, facts.max_output);
    let model = label.clone();
    let call = ModelStats { model, usage, cost, context_window, max_output };
    ModelStats::merge(totals, [call]);
}
