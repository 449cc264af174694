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
    pub(super) async fn held(&mut self, ask: &ModelCall) -> Result<Option<Moment>, CancelReason> {
        let rung = self.rung_at(ask.rung);
        let (name, label) = (rung.client.limit_of(&rung.facts.name), rung.label.clone());
        let figures = self.figures();
        let Some(shared) = &mut self.shared else { return Ok(None) };
        let claiming = shared.claim(&name, !ask.yields);
        let wait = unless_cut(&mut self.watch, &label, figures, claiming).await?;
        self.mind_sharing();
        Ok(wait.map(|wait| self.watch.clock.now().after(wait)))
    }

    /// Tells the others of a rate limit. When this returns they know, unless the run was cut off:
    /// then its end gives them what time it has.
    pub(super) async fn warn_others(&mut self, failure: Failure) {
        let (label, figures) = (self.rung().label.clone(), self.figures());
        if let Some(shared) = &mut self.shared
            && failure.class == ErrorClass::RateLimit
        {
            shared.refused(failure.wish.map(|wish| wish.wait));
            // Whatever is waited for next hears of a cut too.
            let _ = unless_cut(&mut self.watch, &label, figures, shared.settle()).await;
        }
    }

    /// Says once that nothing is known of other runs. Nothing is wrong with this one.
    pub(super) fn mind_sharing(&mut self) {
        let Some(trouble) = self.shared.as_mut().and_then(SharedLimits::trouble) else {
            return;
        };
        let remark = format!("rate limits are not shared with other runs: {trouble}");
        self.watch.tell(&RunNotice::Remark(&remark));
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
        watch.beat(vigil, WaitingFor::Model(model), figures, None);
    };
    watch.wait_for(&mut vigil, show, file).await
}

/// Tells the others that a request was accepted, and what the service said of its limits.
pub(super) fn accepted(shared: &mut Option<SharedLimits>, limits: Option<&RateLimits>) {
    if let Some(shared) = shared {
        shared.accepted(limits);
    }
}
