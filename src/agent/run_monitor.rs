//! Monitors a run while it waits: interrupts, the deadline, heartbeats.

use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::recovery::{Event, Interrupt, Moment, Money};

use super::clock::Clock;
use super::run_event::{Heartbeat, Observer, RunEvent, WaitingFor};
use super::signals::{DenialReceiver, InterruptReceiver, interrupted};

/// Monitors a run: holds its observer, and watches for whatever can cut it off.
pub(super) struct RunMonitor<'a> {
    pub(super) observer: &'a mut dyn Observer,
    pub(super) clock: Clock,
    interrupts: InterruptReceiver,
    /// Interrupts for this run alone, where it is a sub-agent's.
    stop: Option<InterruptReceiver>,
    /// Signals that a sub-agent's call was denied, where that ends the run.
    alarm: Option<DenialReceiver>,
    deadline: Option<Moment>,
    heartbeat: Duration,
    /// Events of sub-agents, and the sender for them.
    inbox: UnboundedReceiver<RunEvent>,
    pub(super) post: UnboundedSender<RunEvent>,
    /// Whether the observer panicked. It is not called again, so that the run can end.
    observer_panicked: bool,
    /// When something was last reported. Silence is measured from there, and not from the start of
    /// the current wait: many short waits in a row are a long silence.
    last_emitted: Instant,
    /// What cut the run off, and when that was noticed.
    cut: Option<(Instant, CancelReason)>,
}

/// Why work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelReason {
    Interrupt(Interrupt),
    Deadline,
    /// A sub-agent's call was denied, and that ends the run.
    Denial,
}

impl From<CancelReason> for Event {
    fn from(cut: CancelReason) -> Self {
        match cut {
            CancelReason::Interrupt(meaning) => Self::Interrupted(meaning),
            CancelReason::Deadline => Self::DeadlinePassed,
            CancelReason::Denial => Self::Denied,
        }
    }
}

/// What can interrupt a wait.
#[derive(Clone, Copy, Debug)]
enum WaitInterrupt {
    Cut(CancelReason),
    /// A heartbeat is due.
    Heartbeat,
}

/// The progress of the run, for a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressSnapshot {
    pub(super) turn: u32,
    pub(super) waited: Duration,
    pub(super) spent: Money,
}

impl ProgressSnapshot {
    /// The progress before the first turn.
    pub(super) fn none() -> Self {
        Self { turn: 0, waited: Duration::ZERO, spent: Money::ZERO }
    }
}

/// The timer of one wait.
pub(super) struct WaitTimer {
    began: Moment,
    ticks: Interval,
}

impl<'a> RunMonitor<'a> {
    pub(super) fn new(
        observer: &'a mut dyn Observer,
        clock: Clock,
        interrupts: InterruptReceiver,
        deadline: Option<Moment>,
        heartbeat: Duration,
    ) -> Self {
        let (last_emitted, observer_panicked) = (Instant::now(), false);
        let (post, inbox) = mpsc::unbounded_channel();
        Self {
            observer,
            clock,
            interrupts,
            stop: None,
            alarm: None,
            deadline,
            heartbeat,
            inbox,
            post,
            observer_panicked,
            last_emitted,
            cut: None,
        }
    }

    /// Adds interrupts for this run alone.
    pub(super) fn stopped_by(self, stop: InterruptReceiver) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Adds the denial signal.
    pub(super) fn alarmed_by(self, alarm: DenialReceiver) -> Self {
        Self { alarm: Some(alarm), ..self }
    }

    pub(super) fn begin(&self) -> WaitTimer {
        let period = self.clock.real(self.heartbeat).max(Duration::from_millis(1));
        let mut ticks = interval_at(self.last_emitted + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        WaitTimer { began: self.clock.now(), ticks }
    }

    /// Begins a wait whose first heartbeat comes after `first` at the latest.
    pub(super) fn begin_soon(&self, first: Duration) -> WaitTimer {
        let mut vigil = self.begin();
        let period = vigil.ticks.period();
        let began = Instant::now();
        vigil.ticks = interval_at((self.last_emitted + period).min(began + first), period);
        vigil.ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        vigil
    }

    /// Waits for `other`, unless the run is cut off first. `show` reports a heartbeat each time
    /// that one is due.
    ///
    /// # Errors
    /// What cut the run off. `other` is dropped unless it is borrowed.
    pub(super) async fn wait_for<T>(
        &mut self,
        vigil: &mut WaitTimer,
        mut show: impl FnMut(&mut Self, &WaitTimer),
        other: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                disturbance = self.next_interrupt(vigil) => match disturbance {
                    WaitInterrupt::Cut(cut) => return Err(cut),
                    WaitInterrupt::Heartbeat => show(self, vigil),
                },
                done = &mut other => return Ok(done),
            }
        }
    }

    /// Waits for the next cut or heartbeat. Cancel-safe.
    async fn next_interrupt(&mut self, vigil: &mut WaitTimer) -> WaitInterrupt {
        let clock = self.clock;
        let deadline = self.deadline;
        let passed = async move {
            match deadline {
                Some(moment) => clock.sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(passed);
        let cut = loop {
            break tokio::select! {
                biased;
                meaning = interrupted(&mut self.interrupts) => CancelReason::Interrupt(meaning),
                meaning = stopped(&mut self.stop) => CancelReason::Interrupt(meaning),
                () = alarmed(&mut self.alarm) => CancelReason::Denial,
                () = &mut passed => CancelReason::Deadline,
                Some(said) = self.inbox.recv() => {
                    self.observe(&said);
                    continue;
                }
                _ = vigil.ticks.tick() => return WaitInterrupt::Heartbeat,
            };
        };
        self.cut.get_or_insert((Instant::now(), cut));
        WaitInterrupt::Cut(cut)
    }

    /// What cut the run off, if it was cut off, and since when.
    pub(super) fn cut(&self) -> Option<(Instant, CancelReason)> {
        self.cut
    }

    /// Whether a heartbeat is due, or nearly.
    pub(super) fn is_silent(&self) -> bool {
        self.last_emitted.elapsed() >= self.clock.real(self.heartbeat).mul_f64(0.9)
    }

    pub(super) fn emit_heartbeat(
        &mut self,
        vigil: &WaitTimer,
        waiting_for: WaitingFor,
        figures: ProgressSnapshot,
        since_last_byte: Option<Duration>,
    ) {
        self.show(vigil, waiting_for, figures, (None, since_last_byte));
    }

    /// Reports a heartbeat of a wait whose end is known.
    pub(super) fn emit_heartbeat_until(
        &mut self,
        vigil: &WaitTimer,
        waiting_for: WaitingFor,
        figures: ProgressSnapshot,
        left: Duration,
    ) {
        self.show(vigil, waiting_for, figures, (Some(left), None));
    }

    fn show(
        &mut self,
        vigil: &WaitTimer,
        waiting_for: WaitingFor,
        figures: ProgressSnapshot,
        (ends_in, since_last_byte): (Option<Duration>, Option<Duration>),
    ) {
        let heartbeat = Heartbeat {
            waiting_for,
            elapsed: vigil.began.until(self.clock.now()),
            ends_in,
            turn: figures.turn,
            waited_in_all: figures.waited,
            spent: figures.spent,
            since_last_byte,
        };
        self.emit(RunEvent::Heartbeat(heartbeat));
    }

    pub(super) fn emit(&mut self, event: RunEvent) {
        // Queued events of sub-agents are older, so they are reported first.
        while let Ok(said) = self.inbox.try_recv() {
            self.observe(&said);
        }
        if matches!(event, RunEvent::WaitBegins { .. } | RunEvent::Heartbeat(_)) {
            self.last_emitted = Instant::now();
        }
        self.observe(&event);
    }

    fn observe(&mut self, event: &RunEvent) {
        if !std::mem::replace(&mut self.observer_panicked, true) {
            self.observer.observe(event);
            self.observer_panicked = false;
        }
    }
}

/// Waits for the denial signal; for ever, where there is none.
async fn alarmed(alarm: &mut Option<DenialReceiver>) {
    if let Some(alarm) = alarm
        && alarm.wait_for(|raised| *raised).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Waits for an interrupt of this run alone; for ever, where there is no sender.
async fn stopped(stop: &mut Option<InterruptReceiver>) -> Interrupt {
    match stop {
        Some(stop) => interrupted(stop).await,
        None => std::future::pending().await,
    }
}
