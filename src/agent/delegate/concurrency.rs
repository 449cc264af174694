//! The concurrency limiter: adapts the number of sub-agents that run at a time to throttling by the
//! service.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::recovery::AimdLimiter;

/// The concurrency slots of a run, granted in the order of requests.
#[derive(Debug)]
pub(super) struct ConcurrencyLimiter {
    free: Arc<Semaphore>,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    limiter: AimdLimiter,
    /// Slots that are withheld for now.
    withheld: Vec<OwnedSemaphorePermit>,
}

impl ConcurrencyLimiter {
    pub(super) fn new(most: u32) -> Arc<Self> {
        let limiter = AimdLimiter::new(most);
        let free = usize::try_from(limiter.limit()).unwrap_or(usize::MAX);
        Arc::new(Self {
            free: Arc::new(Semaphore::new(free.min(Semaphore::MAX_PERMITS))),
            state: Mutex::new(LimiterState { limiter, withheld: Vec::new() }),
        })
    }

    /// Returns the number of slots that may be taken at a time.
    pub(super) fn limit(&self) -> u32 {
        self.state.lock().limiter.limit()
    }

    /// Returns the epoch of a request that begins now.
    pub(super) fn epoch(&self) -> u32 {
        self.state.lock().limiter.epoch()
    }

    /// Lowers the limit after a throttled request of that epoch. Returns the limit before and
    /// after, if it is lower now.
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
        self.withhold_free_slots(&mut state);
        let limit = state.limiter.limit();
        (limit != before).then_some((before, limit))
    }

    /// Withholds free slots that are above the limit. Running agents keep theirs: the rest is
    /// withheld as they end.
    fn withhold_free_slots(&self, state: &mut LimiterState) {
        let wanted = usize::try_from(state.limiter.withheld()).unwrap_or(usize::MAX);
        state.withheld.truncate(wanted);
        while state.withheld.len() < wanted {
            let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() else { return };
            state.withheld.push(slot);
        }
    }

    /// Returns a slot that is not taken yet.
    pub(super) fn slot(self: &Arc<Self>) -> ConcurrencySlot {
        ConcurrencySlot { limiter: Arc::clone(self), taken: None }
    }

    fn give_back(&self, slot: OwnedSemaphorePermit) {
        let mut state = self.state.lock();
        let wanted = usize::try_from(state.limiter.withheld()).unwrap_or(usize::MAX);
        if state.withheld.len() < wanted {
            state.withheld.push(slot);
        }
    }
}

/// A sub-agent's concurrency slot. A sub-agent that only waits for its own sub-agents releases it:
/// otherwise all could wait for each other.
pub(in super::super) struct ConcurrencySlot {
    limiter: Arc<ConcurrencyLimiter>,
    taken: Option<OwnedSemaphorePermit>,
}

impl ConcurrencySlot {
    pub(in super::super) fn release(&mut self) {
        if let Some(slot) = self.taken.take() {
            self.limiter.give_back(slot);
        }
    }

    pub(in super::super) async fn acquire(&mut self) {
        if self.taken.is_none() {
            // The semaphore is never closed.
            self.taken = Arc::clone(&self.limiter.free).acquire_owned().await.ok();
        }
    }
}

impl Drop for ConcurrencySlot {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(slot: &mut ConcurrencySlot) -> bool {
        let taking = std::pin::pin!(slot.acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        taking.poll(&mut context).is_ready()
    }

    #[test]
    fn a_slot_released_while_throttled_is_withheld_until_the_limit_rises() {
        let limiter = ConcurrencyLimiter::new(4);
        let mut slots: Vec<ConcurrencySlot> = (0..4).map(|_| limiter.slot()).collect();
        assert!(slots.iter_mut().all(takes));
        assert_eq!(limiter.throttled(limiter.epoch()), Some((4, 2)));
        drop(slots.split_off(2));
        let mut next = limiter.slot();
        assert!(!takes(&mut next), "two are running, and two may");
        assert_eq!((limiter.answered(), limiter.answered()), (None, Some(3)));
        assert!(takes(&mut next), "a slot is free again");
        slots.pop();
        assert!(takes(&mut limiter.slot()));
    }
}
