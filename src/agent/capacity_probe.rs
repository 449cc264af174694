//! Capacity probes: the smallest request that shows whether the service is back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::model::limits::{ProbeEnd, ProbeTurn};
use crate::model::{Bounds, ModelReply, RequestContent};
use crate::recovery::{
    CallPurpose, ConnectionChoice, ErrorClass, Event, Failure, FailureStage, Fault, FaultKind,
    ModelCall, Probed, ReplyMode, Timer, classify,
};
use crate::transcript::{Block, Message};

use super::accounting::WorstCaseCost;
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::session::{Session, emit_wait_heartbeat};

/// How long a probe may take. A service that needs longer for one token has no capacity.
const PATIENCE: Duration = Duration::from_secs(10);

/// An upper bound of a probe's bytes, without its model's name. A token has at least one.
const BYTES: u64 = 512;

/// The query source in the requests of a probe.
const SOURCE: &str = "probe";

impl Session<'_> {
    /// Probes the service, unless another run on this host does.
    pub(super) async fn probe(&mut self, rung: u8) -> Event {
        match self.try_probe(rung).await {
            Ok(probed) => Event::Probed(probed),
            Err(cut) => cut.into(),
        }
    }

    async fn try_probe(&mut self, rung: u8) -> Result<Probed, CancelReason> {
        let at = self.endpoint_at(rung);
        let name = at.client.limit_of(&at.facts.name);
        if let Some(instead) = self.shared_probe(&name).await? {
            return Ok(instead);
        }
        let probed = self.pay_and_probe(rung).await;
        let end = match probed {
            Ok(Probed::Answered) => ProbeEnd::Answered,
            Ok(Probed::Failed(Failure {
                class: ErrorClass::RateLimit, retry_after: wish, ..
            })) => {
                let wait = wish.map(|wish| wish.wait.as_millis());
                ProbeEnd::Limited { wait: wait.and_then(|wait| u64::try_from(wait).ok()) }
            }
            Ok(
                Probed::Failed(_)
                | Probed::AnsweredElsewhere { .. }
                | Probed::Deferred { .. }
                | Probed::Unaffordable,
            )
            | Err(_) => ProbeEnd::Failed,
        };
        if let Some(shared) = &mut self.shared {
            shared.probe_ended(&name, end);
        }
        probed
    }

    /// The result of another run's probe on this host, if it makes this one unnecessary.
    async fn shared_probe(&mut self, name: &str) -> Result<Option<Probed>, CancelReason> {
        let (clock, interval) = (self.watch.clock, self.limits.probe_interval.unwrap_or_default());
        let waited = self.waiting.map_or(Duration::ZERO, |wait| wait.since.until(clock.now()));
        let Some(mut shared) = self.shared.take() else { return Ok(None) };
        let claiming = shared.claim_probe(name, clock.real(waited), clock.real(interval));
        let turn = self.unless_cut(claiming).await;
        self.shared = Some(shared);
        self.report_sharing_loss();
        let after = |real: Duration| clock.now().after(clock.scaled(real));
        Ok(match turn? {
            ProbeTurn::Go => None,
            ProbeTurn::Defer(wait) => Some(Probed::Deferred { until: after(wait) }),
            ProbeTurn::Answered(wait) => Some(Probed::AnsweredElsewhere { turn: after(wait) }),
        })
    }

    async fn pay_and_probe(&mut self, rung: u8) -> Result<Probed, CancelReason> {
        if self.accounting.is_bounded() {
            let purse = self.accounting.ledger.clone();
            let turn = self.unless_cut(async move { purse.turn().await }).await?;
            self.accounting.turn = Some(turn);
        }
        let worst = self.worst_of_a_probe(rung);
        let fits = self.accounting.left().is_none_or(|left| worst.sum() <= left);
        if !fits || !self.accounting.reserve(worst) {
            self.accounting.turn = None;
            return Ok(Probed::Unaffordable);
        }
        let began = self.watch.clock.now();
        let result = self.send_probe(rung).await;
        self.redact_new_secrets();
        self.accounting.tally.api_duration += began.until(self.watch.clock.now());
        match result {
            Ok(Ok(mut answer)) => {
                let label = self.endpoint_at(rung).label.clone();
                self.settle_call(&label, &mut answer);
                Ok(Probed::Answered)
            }
            Ok(Err(fault)) => {
                // No message began, so nothing was billed.
                self.accounting.settle_broken();
                let failure = classify(&fault);
                if failure.retry_after.is_some() {
                    self.keep_fault(*fault);
                }
                Ok(Probed::Failed(failure))
            }
            Err(cut) => {
                self.accounting.settle_broken();
                Err(cut)
            }
        }
    }

    /// The most that a probe can cost.
    fn worst_of_a_probe(&self, rung: u8) -> WorstCaseCost {
        let rung = self.endpoint_at(rung).clone();
        let input = BYTES + rung.facts.name.len() as u64;
        let bounds = Bounds { input, window: rung.facts.context_window, cap: request(0).cap };
        WorstCaseCost { bounds, prices: rung.facts.prices_at(false), endpoint: rung }
    }

    async fn send_probe(
        &mut self,
        rung: u8,
    ) -> Result<Result<ModelReply, Box<Fault>>, CancelReason> {
        let at = self.endpoint_at(rung);
        let (client, model) = (Arc::clone(&at.client), at.facts.name.clone());
        self.unless_cut(async move {
            let messages = [Message::user(vec![Block::text("Hi")])];
            let prompt = RequestContent {
                model: &model,
                system: "",
                tools: &[],
                messages: &messages,
                thinking: None,
                fast: false,
                source: Some(SOURCE),
            };
            let mut ignore = |_| {};
            let ask = request(rung);
            let asking = client.attempt(&prompt, &ask, &mut ignore);
            timeout(PATIENCE, asking).await.unwrap_or_else(|_| {
                let kind = FaultKind::Timeout { timer: Timer::Whole };
                Err(Box::new(Fault::new(kind, FailureStage::FreshConnection)))
            })
        })
        .await
    }

    /// Waits for a part of a probe, unless the run is cut off before. The pause and its heartbeats
    /// go on meanwhile.
    async fn unless_cut<T>(&mut self, part: impl Future<Output = T>) -> Result<T, CancelReason> {
        let (waiting, figures) = (self.waiting, self.progress());
        let mut vigil = self.watch.begin();
        let show = |watch: &mut RunMonitor<'_>, _: &WaitTimer| {
            emit_wait_heartbeat(watch, waiting, figures);
        };
        self.watch.wait_for(&mut vigil, show, part).await
    }
}

/// A request for one token.
fn request(rung: u8) -> ModelCall {
    ModelCall {
        purpose: CallPurpose::Reply,
        rung,
        cap: 1,
        mode: ReplyMode::Whole,
        // What a broken connection said of the service would be out of date.
        connection: ConnectionChoice::Fresh,
        attempt: 1,
        fast: false,
        may_wait_for_shared_limit: false,
    }
}
