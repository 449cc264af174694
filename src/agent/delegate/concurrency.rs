//! Concurrency limiter: adapts the number of sub-agents that work at a time to throttling by the
//! service.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::recovery::AimdLimiter;

/// The concurrency permits of a run, granted in the order of requests.
#[derive(Debug)]
pub(super) struct ConcurrencyLimiter {
    free: Arc<Semaphore>,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    limiter: AimdLimiter,
    /// Permits that are withheld for now.
    kept_back: Vec<OwnedSemaphorePermit>,
}

impl ConcurrencyLimiter {
    pub(super) fn new(most: u32) -> Arc<Self> {
        let limiter = AimdLimiter::new(most);
        let free = usize::try_from(limiter.limit()).unwrap_or(usize::MAX);
        Arc::new(Self {
            free: Arc::new(Semaphore::new(free.min(Semaphore::MAX_PERMITS))),
            state: Mutex::new(LimiterState { limiter, kept_back: Vec::new() }),
        })
    }

    /// Returns the number of permits that may be taken at a time.
    pub(super) fn limit(&self) -> u32 {
        self.state.lock().limiter.limit()
    }

    /// Returns the era to remember for a request that begins now.
    pub(super) fn epoch(&self) -> u32 {
        self.state.lock().limiter.epoch()
    }

    /// Lowers the limit after a throttled request of that era. Returns the limit before and after,
    /// if it is lower now.
    pub(super) fn throttled(&self, epoch: u32) -> Option<(u32, u32)> {
        self.adapt(|limiter| limiter.throttled(epoch))
    }

    /// Records an answered request. Returns the new limit, if it is higher.
    pub(super) fn answered(&self) -> Option<u32> {
        self.adapt(AimdLimiter::answered).map(|(_, now)| now)
    }

    fn adapt(&self, change: impl FnOnce(AimdLimiter) -> AimdLimiter) -> Option<(u32, u32)> {
        let mut state = self.state.lock();
        let before = state.limiter.limit();
        state.limiter = change(state.limiter);
        self.withhold_free_permits(&mut state);
        let limit = state.limiter.limit();
        (limit != before).then_some((before, limit))
    }

    /// Withholds free permits that are above the limit. Agents at work keep theirs: the rest is
    /// withheld as they end.
    fn withhold_free_permits(&self, state: &mut LimiterState) {
        let wanted = usize::try_from(state.limiter.withheld()).unwrap_or(usize::MAX);
        state.kept_back.truncate(wanted);
        while state.kept_back.len() < wanted {
            let Ok(place) = Arc::clone(&self.free).try_acquire_owned() else { return };
            state.kept_back.push(place);
        }
    }

    /// Returns a permit that is not taken yet.
    pub(super) fn permit(self: &Arc<Self>) -> ConcurrencyPermit {
        ConcurrencyPermit { places: Arc::clone(self), taken: None }
    }

    fn give_back(&self, place: OwnedSemaphorePermit) {
        let mut state = self.state.lock();
        let wanted = usize::try_from(state.limiter.withheld()).unwrap_or(usize::MAX);
        if state.kept_back.len() < wanted {
            state.kept_back.push(place);
        }
    }
}

/// A sub-agent's concurrency permit. A sub-agent that only waits for its own sub-agents gives it
/// up: otherwise all could wait for each other.
pub(in super::super) struct ConcurrencyPermit {
    places: Arc<ConcurrencyLimiter>,
    taken: Option<OwnedSemaphorePermit>,
}

impl ConcurrencyPermit {
    pub(in super::super) fn release(&mut self) {
        if let Some(place) = self.taken.take() {
            self.places.give_back(place);
        }
    }

    /// Waits for a permit.
    pub(in super::super) async fn acquire(&mut self) {
        if self.taken.is_none() {
            // The semaphore is never closed.
            self.taken = Arc::clone(&self.places.free).acquire_owned().await.ok();
        }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(permit: &mut ConcurrencyPermit) -> bool {
        let taking = std::pin::pin!(permit.acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        taking.poll(&mut context).is_ready()
    }

    #[test]
    fn a_permit_released_while_throttled_is_withheld_until_the_limit_rises() {
        let places = ConcurrencyLimiter::new(4);
        let mut seats: Vec<ConcurrencyPermit> = (0..4).map(|_| places.permit()).collect();
        assert!(seats.iter_mut().all(takes));
        assert_eq!(places.throttled(places.epoch()), Some((4, 2)));
        drop(seats.split_off(2));
        let mut next = places.permit();
        assert!(!takes(&mut next), "two are at work, and two may be");
        assert_eq!((places.answered(), places.answered()), (None, Some(3)));
        assert!(takes(&mut next), "a permit is free again");
        seats.pop();
        assert!(takes(&mut places.permit()));
    }
}
