//! What a run and the others of its host tell each other about rate limits.

use crate::model::RateLimits;
use crate::model::limits::SharedLimits;
use crate::recovery::{ModelCall, ErrorClass, Failure, Moment};

use super::observer::{RunNotice, WaitingFor};
use super::session::Session;
use super::watch::{CancelReason, ProgressSnapshot, WaitTimer, RunMonitor};

impl Session<'_> {
    /// Until when a request has to wait for the sake of others, if it has to.
    ///
    /// # Errors
    /// What cut the run off while it looked.
    pub(super) async fn shared_limit_until(&mut self, ask: &ModelCall) -> Result<Option<Moment>, CancelReason> {
        let rung = self.endpoint_at(ask.rung);
        let (name, label) = (rung.client.limit_of(&rung.facts.name), rung.label.clone());
        let figures = self.progress();
        let Some(shared) = &mut self.shared else { return Ok(None) };
        let claiming = shared.claim(&name, !ask.may_wait_for_shared_limit);
        let wait = unless_cut(&mut self.watch, &label, figures, claiming).await?;
        self.report_sharing_loss();
        Ok(wait.map(|wait| self.watch.clock.now().after(wait)))
    }

    /// Tells the others of a rate limit. When this returns they know, unless the run was cut off:
    /// then its end gives them what time it has.
    pub(super) async fn share_rate_limit(&mut self, failure: Failure) {
        let (label, figures) = (self.endpoint().label.clone(), self.progress());
        if let Some(shared) = &mut self.shared
            && failure.class == ErrorClass::RateLimit
        {
            shared.refused(failure.retry_after.map(|wish| wish.wait));
            // Whatever is waited for next hears of a cut too.
            let _ = unless_cut(&mut self.watch, &label, figures, shared.flush()).await;
        }
    }

    /// Says once that nothing is known of other runs. Nothing is wrong with this one.
    pub(super) fn report_sharing_loss(&mut self) {
        let Some(trouble) = self.shared.as_mut().and_then(SharedLimits::take_problem) else {
            return;
        };
        let remark = format!("rate limits are not shared with other runs: {trouble}");
        self.watch.emit(&RunNotice::Remark(&remark));
    }
}

/// Waits for the file in which runs tell each other, unless the run is cut off before.
async fn unless_cut<T>(
    watch: &mut RunMonitor<'_>,
    model: &str,
    figures: ProgressSnapshot,
    file: impl Future<Output = T>,
) -> Result<T, CancelReason> {
    let mut vigil = watch.begin();
    let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
        watch.emit_heartbeat(vigil, WaitingFor::Model(model), figures, None);
    };
    watch.wait_for(&mut vigil, show, file).await
}

/// Tells the others that a request was accepted, and what the service said of its limits.
pub(super) fn accepted(shared: &mut Option<SharedLimits>, limits: Option<&RateLimits>) {
    if let Some(shared) = shared {
        shared.accepted(limits);
    }
}
