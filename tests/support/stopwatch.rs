//! A stopwatch for bounds that are themselves on trial: to the letter on a machine that has time,
//! and as much longer as the machine itself is slower.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio::time::Instant;

/// Sleep of the probe, and its computing time after each sleep: little enough to slow nothing down.
const REST: Duration = Duration::from_millis(150);
const WORK: Duration = Duration::from_millis(1);

/// Runs from its start until it is dropped.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    probe: Arc<Probe>,
}

/// The load of the machine as seen by a thread that repeats a little work.
#[derive(Debug)]
struct Probe {
    begun: Instant,
    /// Processor time of its work, in microseconds.
    work: AtomicU64,
    /// Further time that it waited for a processor, in microseconds.
    lost: AtomicU64,
    /// Since the start, in microseconds: when it last went to sleep.
    round: AtomicU64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let probe = Arc::new(Probe {
            begun: Instant::now(),
            work: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            round: AtomicU64::new(0),
        });
        let looking = Arc::downgrade(&probe);
        thread::spawn(move || sample_load(&looking));
        Self { probe }
    }

    /// The factor by which processes now run slower than on an idle machine. At least 1.
    pub(crate) fn slowness(&self) -> f64 {
        let Probe { work, lost, round, .. } = &*self.probe;
        let [work, lost, round] =
            [work, lost, round].map(|it| Duration::from_micros(it.load(Relaxed)));
        // What is under way counts too: it may be held up at this very moment.
        let late = self.elapsed().saturating_sub(round + REST + WORK);
        let work = work.max(WORK).as_secs_f64();
        (work + (lost + late).as_secs_f64()) / work
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.probe.begun.elapsed()
    }

    /// A bound as it is on this machine.
    pub(crate) fn scaled_bound(&self, bound: Duration) -> Duration {
        bound.mul_f64(self.slowness())
    }

    /// Whatever was begun with the watch is over within `bound`.
    #[track_caller]
    pub(crate) fn assert_within(&self, bound: Duration, what: impl fmt::Display) {
        let (took, slowness) = (self.elapsed(), self.slowness());
        assert!(took < bound.mul_f64(slowness), "{what}: {took:?} at slowness {slowness:.1}");
    }
}

/// Samples the load until the stopwatch is dropped.
fn sample_load(probe: &Weak<Probe>) {
    loop {
        let asleep = Instant::now();
        thread::sleep(REST);
        let late = asleep.elapsed().saturating_sub(REST);
        let (awake, before) = (Instant::now(), processor_time());
        while processor_time() < before + WORK {
            std::hint::spin_loop();
        }
        let work = processor_time().saturating_sub(before);
        let lost = late + awake.elapsed().saturating_sub(work);
        let Some(probe) = probe.upgrade() else { return };
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        probe.work.fetch_add(micros(work), Relaxed);
        probe.lost.fetch_add(micros(lost), Relaxed);
        probe.round.store(micros(probe.begun.elapsed()), Relaxed);
    }
}

/// Processor time of this thread so far.
pub(crate) fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("Linux tells");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}
