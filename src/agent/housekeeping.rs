//! Work that serves other runs only. It begins once the first request was accepted, so that it does
//! not delay the start of the run.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};

/// The housekeeping of a run. Clones share it.
#[derive(Clone, Default)]
pub struct Housekeeping(Arc<Mutex<HousekeepingState>>);

#[derive(Default)]
struct HousekeepingState {
    pending: Vec<Box<dyn FnOnce() + Send>>,
    begun: Vec<JoinHandle<()>>,
}

impl Housekeeping {
    /// Adds work that may block.
    pub fn add(&self, work: impl FnOnce() + Send + 'static) {
        self.0.lock().pending.push(Box::new(work));
    }

    /// Begins the pending work on another thread.
    pub(super) fn begin(&self) {
        let mut state = self.0.lock();
        let pending = std::mem::take(&mut state.pending);
        if !pending.is_empty() {
            state.begun.push(spawn_blocking(|| pending.into_iter().for_each(|work| work())));
        }
    }

    /// Waits for the work that has begun.
    pub(super) async fn finish(&self) {
        let begun = std::mem::take(&mut self.0.lock().begun);
        for work in begun {
            // After a panic, the next run repeats the work.
            let _ = work.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_begins_when_it_is_triggered_and_once() {
        let (housekeeping, done) = (Housekeeping::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&done);
        housekeeping.add(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        housekeeping.finish().await;
        assert_eq!(done.load(Ordering::Relaxed), 0);
        housekeeping.begin();
        housekeeping.begin();
        housekeeping.finish().await;
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn all_work_that_has_begun_is_awaited() {
        let (housekeeping, done) = (Housekeeping::default(), Arc::new(AtomicUsize::new(0)));
        for delay in [200, 0] {
            let done = Arc::clone(&done);
            housekeeping.add(move || {
                thread::sleep(Duration::from_millis(delay));
                done.fetch_add(1, Ordering::Relaxed);
            });
            housekeeping.begin();
        }
        housekeeping.finish().await;
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }
}
