//! Capacity probes: the smallest request that shows whether the service is back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::journal::Journal;
use crate::model::limits::{ProbeEnd, ProbeTurn};
use crate::model::{Bounds, ModelReply, Reasoning, RequestContent};
use crate::recovery::{
    CallPurpose, ClassifiedFault, ConnectionChoice, ErrorClass, Failure, FailureStage, Fault,
    FaultKind, Limits, ModelCall, Probed, ReplyMode, Timer,
};
use crate::transcript::{Block, Message};

use super::super::accounting::WorstCaseCost;
use super::super::run_monitor::{CancelReason, RunMonitor};
use super::ModelCaller;

/// The time limit of a probe. A service that needs longer for one token has no capacity.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// An upper bound of a probe's bytes, without its model's name. A token has at least one.
const BYTES: u64 = 512;

/// The query source in the requests of a probe.
const SOURCE: &str = "probe";

impl ModelCaller {
    /// Probes the service, unless another run on this host does.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(in super::super) async fn probe(
        &mut self,
        model_index: u8,
        limits: &Limits,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<Probed, CancelReason> {
        let endpoint = self.endpoint_at(model_index);
        let name = endpoint.client.limit_of(&endpoint.facts.name);
        if let Some(shared) = self.shared_probe(&name, limits, monitor).await? {
            return Ok(shared);
        }
        let probed = self.pay_and_probe(model_index, journal, monitor).await;
        let end = match probed {
            Ok(Probed::Answered) => ProbeEnd::Answered,
            Ok(Probed::Failed(Failure { class: ErrorClass::RateLimit, retry_after, .. })) => {
                let wait = retry_after.map(|hint| hint.wait.as_millis());
                ProbeEnd::Limited { wait: wait.and_then(|wait| u64::try_from(wait).ok()) }
            }
            _ => ProbeEnd::Failed,
        };
        if let Some(shared) = &mut self.shared {
            shared.probe_ended(&name, end);
        }
        probed
    }

    /// Returns the result of another run's probe on this host, if it makes this one unnecessary.
    async fn shared_probe(
        &mut self,
        name: &str,
        limits: &Limits,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<Option<Probed>, CancelReason> {
        let (clock, interval) = (monitor.clock(), limits.probe_interval.unwrap_or_default());
        let (waited, progress) = (monitor.waited(), self.progress());
        let Some(mut shared) = self.shared.take() else { return Ok(None) };
        let claiming = shared.claim_probe(name, clock.real(waited), clock.real(interval));
        let turn = monitor.wait_for_part(progress, claiming).await;
        self.shared = Some(shared);
        self.report_sharing_loss(monitor);
        let after = |real: Duration| clock.now().after(clock.scaled(real));
        Ok(match turn? {
            ProbeTurn::Go => None,
            ProbeTurn::Defer(wait) => Some(Probed::Deferred { until: after(wait) }),
            ProbeTurn::Answered(wait) => Some(Probed::AnsweredElsewhere { turn: after(wait) }),
        })
    }

    async fn pay_and_probe(
        &mut self,
        model_index: u8,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<Probed, CancelReason> {
        if self.accounting.is_bounded() {
            let ledger = self.accounting.ledger().clone();
            let progress = self.progress();
            let turn = monitor.wait_for_part(progress, async move { ledger.turn().await }).await?;
            self.accounting.hold_turn(turn);
        }
        let worst = self.worst_of_a_probe(model_index);
        let fits = self.accounting.left().is_none_or(|left| worst.sum() <= left);
        if !fits || !self.accounting.reserve(worst) {
            self.accounting.release_turn();
            return Ok(Probed::Unaffordable);
        }
        let began = monitor.now();
        let result = self.send_probe(model_index, monitor).await;
        self.accounting.record_request_time(began.until(monitor.now()));
        match result {
            Ok(Ok(mut answer)) => {
                let label = self.endpoint_at(model_index).label.clone();
                self.settle_call(&label, &mut answer, journal, monitor);
                Ok(Probed::Answered)
            }
            Ok(Err(fault)) => {
                // No progress was recorded, so nothing is charged.
                self.accounting.settle_broken();
                let status = self.endpoint_at(model_index).client.endpoint_status();
                let fault = ClassifiedFault::new(*fault, status);
                let failure = fault.failure;
                if failure.retry_after.is_some() {
                    self.keep_fault(fault, monitor.clock());
                }
                Ok(Probed::Failed(failure))
            }
            Err(cut) => {
                self.accounting.settle_broken();
                Err(cut)
            }
        }
    }

    /// Returns the most that a probe can cost.
    fn worst_of_a_probe(&self, model_index: u8) -> WorstCaseCost {
        let endpoint = self.endpoint_at(model_index).clone();
        let input = BYTES + endpoint.facts.name.len() as u64;
        let bounds = Bounds {
            input,
            window: endpoint.facts.context_window,
            cap: request(0).cap,
            searches: 0,
        };
        WorstCaseCost { bounds, prices: endpoint.facts.prices_at(false), endpoint }
    }

    async fn send_probe(
        &mut self,
        model_index: u8,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<Result<ModelReply, Box<Fault>>, CancelReason> {
        let progress = self.progress();
        let endpoint = self.endpoint_at(model_index);
        let (client, model) = (Arc::clone(&endpoint.client), endpoint.facts.name.clone());
        monitor
            .wait_for_part(progress, async move {
                let messages = [Message::user(vec![Block::text("Hi")])];
                let content = RequestContent {
                    model: &model,
                    messages: &messages,
                    reasoning: Reasoning::LEAST,
                    source: Some(SOURCE),
                    ..RequestContent::default()
                };
                let mut ignore = |_| {};
                let call = request(model_index);
                let attempt = client.attempt(&content, &call, &mut ignore);
                timeout(PROBE_LIMIT, attempt).await.unwrap_or_else(|_| {
                    let kind = FaultKind::Timeout { timer: Timer::Whole };
                    Err(Box::new(Fault::new(kind, FailureStage::FreshConnection)))
                })
            })
            .await
    }
}

/// A request for one token.
fn request(model_index: u8) -> ModelCall {
    ModelCall {
        purpose: CallPurpose::Reply,
        model_index,
        cap: 1,
        mode: ReplyMode::Whole,
        // The failure of an old connection would not show the present state of the service.
        connection: ConnectionChoice::Fresh,
        attempt: 1,
        fast: false,
        may_wait_for_shared_limit: false,
    }
}
