//! Shares rate limits with other runs on this host.

use crate::model::RateLimits;
use crate::model::limits::SharedLimits;
use crate::recovery::{ErrorClass, Failure, ModelCall, Moment};

use super::run_event::{RunEvent, WaitingFor};
use super::run_monitor::{CancelReason, ProgressSnapshot, RunMonitor, WaitTimer};
use super::session::Session;

impl Session<'_> {
    /// Until when a request has to wait for a rate limit of other runs, if it has to.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn shared_limit_until(
        &mut self,
        ask: &ModelCall,
    ) -> Result<Option<Moment>, CancelReason> {
        let rung = self.endpoint_at(ask.rung);
        let (name, label) = (rung.client.limit_of(&rung.facts.name), rung.label.clone());
        let figures = self.progress();
        let Some(shared) = &mut self.shared else { return Ok(None) };
        let claiming = shared.claim(&name, !ask.may_wait_for_shared_limit);
        let wait = unless_cut(&mut self.watch, &label, figures, claiming).await?;
        self.report_sharing_loss();
        Ok(wait.map(|wait| self.watch.clock.now().after(wait)))
    }

    /// Shares a rate limit with other runs. It is stored when this returns, unless the run was cut
    /// off: then the end of the run waits for it.
    pub(super) async fn share_rate_limit(&mut self, failure: Failure) {
        let (label, figures) = (self.endpoint().label.clone(), self.progress());
        if let Some(shared) = &mut self.shared
            && failure.class == ErrorClass::RateLimit
        {
            shared.refused(failure.retry_after.map(|wish| wish.wait));
            // The next wait will see the cut, too.
            let _ = unless_cut(&mut self.watch, &label, figures, shared.flush()).await;
        }
    }

    /// Reports once that rate limits are not shared. This run is not affected.
    pub(super) fn report_sharing_loss(&mut self) {
        let Some(trouble) = self.shared.as_mut().and_then(SharedLimits::take_problem) else {
            return;
        };
        let remark = format!("rate limits are not shared with other runs: {trouble}");
        self.watch.emit(RunEvent::Remark(remark));
    }
}

/// Waits for the shared rate-limit file, unless the run is cut off before.
async fn unless_cut<T>(
    watch: &mut RunMonitor<'_>,
    model: &str,
    figures: ProgressSnapshot,
    file: impl Future<Output = T>,
) -> Result<T, CancelReason> {
    let mut vigil = watch.begin();
    let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
        watch.emit_heartbeat(vigil, WaitingFor::Model(model.to_owned()), figures, None);
    };
    watch.wait_for(&mut vigil, show, file).await
}

/// Shares that a request was accepted, with the limits that the service reported.
pub(super) fn accepted(shared: &mut Option<SharedLimits>, limits: Option<&RateLimits>) {
    if let Some(shared) = shared {
        shared.accepted(limits);
    }
}
