//! What a run and the others of its host tell each other about rate limits.

use crate::model::RateLimits;
use crate::model::limits::SharedLimits;
use crate::recovery::{Ask, ErrorClass, Failure, Moment};

use super::observer::Notice;
use super::session::Session;

impl Session<'_> {
    /// Until when a request has to wait for the sake of others, if it has to.
    pub(super) async fn held(&mut self, ask: &Ask) -> Option<Moment> {
        let rung = self.rung_at(ask.rung);
        let name = rung.client.limit_of(&rung.facts.name);
        let wait = self.shared.as_mut()?.claim(&name, !ask.yields).await;
        self.mind_sharing();
        Some(self.watch.clock.now().after(wait?))
    }

    /// Tells the others of a rate limit. When this returns they know: nothing that happens to this
    /// run while it waits takes that from them.
    pub(super) async fn warn_others(&mut self, failure: Failure) {
        if let Some(shared) = &mut self.shared
            && failure.class == ErrorClass::RateLimit
        {
            shared.refused(failure.wish.map(|wish| wish.wait));
            shared.settle().await;
        }
    }

    /// Says once that nothing is known of other runs. Nothing is wrong with this one.
    fn mind_sharing(&mut self) {
        let Some(trouble) = self.shared.as_mut().and_then(SharedLimits::trouble) else {
            return;
        };
        let remark = format!("rate limits are not shared with other runs: {trouble}");
        self.watch.tell(&Notice::Remark(&remark));
    }
}

/// Tells the others that a request was accepted, and what the service said of its limits.
pub(super) fn accepted(shared: &mut Option<SharedLimits>, limits: Option<&RateLimits>) {
    if let Some(shared) = shared {
        shared.accepted(limits);
    }
}
