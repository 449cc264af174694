//! Monitors a run while it waits: interrupts, the deadline, heartbeats.

use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::journal::JournalHealth;
use crate::recovery::{Event, Fault, Interrupt, Limits, Moment, Pause, Spending, Transition};

use super::clock::Clock;
use super::run_event::{Heartbeat, Observer, RunEvent};
use super::signals::{DenialReceiver, InterruptReceiver, interrupted};
use super::waiting_for::WaitingFor;

/// Monitors a run: holds its observer, and watches for everything that can cut it off.
pub(super) struct RunMonitor<'a> {
    observer: &'a mut dyn Observer,
    clock: Clock,
    sources: CancelSources,
    heartbeat: Duration,
    /// The retry wait that was announced, while it lasts.
    waiting: Option<AnnouncedWait>,
    /// Events of sub-agents and background commands, and the sender for them.
    inbox: UnboundedReceiver<RunEvent>,
    post: UnboundedSender<RunEvent>,
    /// True if the observer panicked. It is not called again, so that the run can end.
    observer_panicked: bool,
    /// Time at which the beginning of a wait, or a heartbeat, was last reported. Silence is
    /// measured from there, and not from the start of the current wait: many short waits in a row
    /// are a long silence.
    last_sign: Instant,
    /// True if the loss of the journal was reported.
    journal_loss_reported: bool,
    /// The time at which it was noticed that the run is cut off, and the reason.
    cut: Option<(Instant, CancelReason)>,
    /// The wait that the cut ended.
    cut_wait: Option<WaitingFor>,
}

/// The signals and the deadline that can cut a run off from outside.
struct CancelSources {
    interrupts: InterruptReceiver,
    /// Interrupts for this run alone: of a sub-agent, or by another owner of the session.
    stop: Option<InterruptReceiver>,
    /// Signals that a sub-agent's call was denied, where that ends the run.
    alarm: Option<DenialReceiver>,
    deadline: Option<Moment>,
}

/// A retry wait that was announced.
#[derive(Clone, Copy, Debug)]
struct AnnouncedWait {
    pause: Pause,
    since: Moment,
    until: Moment,
}

/// Time for a cancelled tool to end: two seconds of grace before it is killed, and half a second to
/// report its end.
pub(super) const CANCEL_GRACE: Duration = Duration::from_millis(2_500);

/// Time for a cancelled tool to end after the deadline or a denial: the whole run has two seconds
/// to end.
pub(super) const LATE_CANCEL_GRACE: Duration = Duration::from_millis(1_200);

/// The reason that work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelReason {
    Interrupt(Interrupt),
    Deadline,
    /// A sub-agent's call was denied, and that ends the run.
    Denial,
}

impl CancelReason {
    /// Returns the time that cancelled work may take to end.
    pub(super) fn grace(self) -> Duration {
        match self {
            Self::Interrupt(_) => CANCEL_GRACE,
            Self::Deadline | Self::Denial => LATE_CANCEL_GRACE,
        }
    }
}

impl From<CancelReason> for Event {
    fn from(cut: CancelReason) -> Self {
        match cut {
            CancelReason::Interrupt(by) => Self::Interrupted(by),
            CancelReason::Deadline => Self::DeadlinePassed,
            CancelReason::Denial => Self::Denied,
        }
    }
}

/// An interruption of a wait.
#[derive(Clone, Copy, Debug)]
enum WaitInterrupt {
    Cut(CancelReason),
    /// A heartbeat is due.
    Heartbeat,
}

/// The progress of the run, for a heartbeat. By default, that before the first turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgressSnapshot {
    pub(super) turn: u32,
    pub(super) waited: Duration,
    pub(super) spent: Spending,
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
        limits: &Limits,
    ) -> Self {
        let (post, inbox) = mpsc::unbounded_channel();
        let deadline = limits.deadline;
        Self {
            observer,
            clock,
            sources: CancelSources { interrupts, stop: None, alarm: None, deadline },
            heartbeat: limits.heartbeat,
            waiting: None,
            inbox,
            post,
            observer_panicked: false,
            last_sign: Instant::now(),
            journal_loss_reported: false,
            cut: None,
            cut_wait: None,
        }
    }

    /// Adds interrupts for this run alone.
    pub(super) fn with_interrupts(mut self, stop: InterruptReceiver) -> Self {
        self.sources.stop = Some(stop);
        self
    }

    pub(super) fn with_denials(mut self, alarm: DenialReceiver) -> Self {
        self.sources.alarm = Some(alarm);
        self
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Returns a sender for events of sub-agents and background commands.
    pub(super) fn sender(&self) -> UnboundedSender<RunEvent> {
        self.post.clone()
    }

    /// Begins a wait.
    pub(super) fn begin(&self) -> WaitTimer {
        let period = self.clock.real(self.heartbeat).max(Duration::from_millis(1));
        let mut ticks = interval_at(self.last_sign + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        WaitTimer { began: self.clock.now(), ticks }
    }

    /// Begins a wait whose first heartbeat comes after `first` at the latest.
    pub(super) fn begin_soon(&self, first: Duration) -> WaitTimer {
        let mut timer = self.begin();
        let period = timer.ticks.period();
        timer.ticks.reset_at((self.last_sign + period).min(Instant::now() + first));
        timer
    }

    /// Begins a wait that is mostly short. Its first heartbeat comes after `least` at the earliest,
    /// so that the heartbeats of many such waits do not hide the long ones between them.
    pub(super) fn begin_short(&self, least: Duration) -> WaitTimer {
        let mut timer = self.begin();
        let period = timer.ticks.period();
        let least = Instant::now() + least.min(period);
        timer.ticks.reset_at((self.last_sign + period).max(least));
        timer
    }

    /// Waits for `work`, unless the run is cut off first. `heartbeat` is called each time that a
    /// heartbeat is due; with `None`, nothing is reported.
    ///
    /// # Errors
    /// The reason that cut the run off. `work` is dropped unless it is borrowed.
    pub(super) async fn wait_for<T>(
        &mut self,
        timer: &mut WaitTimer,
        mut heartbeat: impl FnMut(&Self, &WaitTimer) -> Option<Heartbeat>,
        work: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        tokio::pin!(work);
        let is_first_cut = self.cut.is_none();
        loop {
            tokio::select! {
                biased;
                interrupt = self.next_interrupt(timer) => match interrupt {
                    WaitInterrupt::Cut(cut) => {
                        if is_first_cut {
                            self.cut_wait = heartbeat(self, timer).map(|beat| beat.waiting_for);
                        }
                        return Err(cut);
                    }
                    WaitInterrupt::Heartbeat => self.emit_heartbeat(heartbeat(self, timer)),
                },
                done = &mut work => return Ok(done),
            }
        }
    }

    /// Waits for `work` like [`Self::wait_for`], with heartbeats that name `waiting_for`.
    pub(super) async fn wait_as<T>(
        &mut self,
        waiting_for: WaitingFor,
        progress: ProgressSnapshot,
        work: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        let mut timer = self.begin();
        let heartbeat = |monitor: &Self, timer: &WaitTimer| {
            Some(monitor.heartbeat(timer, waiting_for.clone(), progress))
        };
        self.wait_for(&mut timer, heartbeat, work).await
    }

    /// Waits for the next cut or heartbeat. Cancel-safe.
    async fn next_interrupt(&mut self, timer: &mut WaitTimer) -> WaitInterrupt {
        let clock = self.clock;
        let deadline = self.sources.deadline;
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
                by = interrupted(&mut self.sources.interrupts) => CancelReason::Interrupt(by),
                by = stopped(&mut self.sources.stop) => CancelReason::Interrupt(by),
                () = alarmed(&mut self.sources.alarm) => CancelReason::Denial,
                () = &mut passed => CancelReason::Deadline,
                Some(message) = self.inbox.recv() => {
                    self.observe(&message);
                    continue;
                }
                _ = timer.ticks.tick() => return WaitInterrupt::Heartbeat,
            };
        };
        self.cut.get_or_insert((Instant::now(), cut));
        WaitInterrupt::Cut(cut)
    }

    /// Returns the time at which the run was cut off, and the reason, if it was.
    pub(super) fn cut(&self) -> Option<(Instant, CancelReason)> {
        self.cut
    }

    /// Takes the wait that the first cut ended.
    pub(super) fn take_cut_wait(&mut self) -> Option<WaitingFor> {
        self.cut_wait.take()
    }

    /// Waits until `until`. The machine cuts long waits into pieces no longer than a heartbeat.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn wait(
        &mut self,
        until: Moment,
        progress: ProgressSnapshot,
    ) -> Result<Event, CancelReason> {
        let clock = self.clock;
        self.wait_for_part(progress, clock.sleep_until(until)).await?;
        Ok(Event::WaitEnded)
    }

    /// Waits for a part of the announced retry wait, which goes on with its heartbeats.
    pub(super) async fn wait_for_part<T>(
        &mut self,
        progress: ProgressSnapshot,
        part: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        let mut timer = self.begin();
        self.wait_for(&mut timer, |monitor, _| monitor.retry_heartbeat(progress), part).await
    }

    /// Returns the duration of the announced retry wait so far.
    pub(super) fn waited(&self) -> Duration {
        self.waiting.map_or(Duration::ZERO, |wait| wait.since.until(self.clock.now()))
    }

    /// Reports each wait once when it begins or its end moves, with heartbeats while it lasts, and
    /// its end.
    pub(super) fn follow_wait(
        &mut self,
        transition: &Transition,
        progress: ProgressSnapshot,
        fault: Option<&Fault>,
    ) {
        let paused = transition.next.phase.pause();
        if let Some(waiting) = self.waiting {
            if paused.is_some_and(|(until, _)| until == waiting.until) {
                if transition.event == Event::WaitEnded && self.is_silent() {
                    self.emit_heartbeat(self.retry_heartbeat(progress));
                }
                return;
            }
            self.waiting = None;
            let waited = waiting.since.until(transition.at);
            self.emit(&RunEvent::WaitEnds { pause: waiting.pause, waited });
        }
        let Some((until, pause)) = paused else { return };
        self.waiting = Some(AnnouncedWait { pause, since: transition.at, until });
        self.emit(&RunEvent::WaitBegins {
            pause,
            until,
            now: transition.at,
            fault: fault.cloned().map(Box::new),
            spent: progress.spent,
        });
    }

    /// Returns a heartbeat of the announced retry wait, if there is one.
    fn retry_heartbeat(&self, progress: ProgressSnapshot) -> Option<Heartbeat> {
        let AnnouncedWait { pause, since, until } = self.waiting?;
        let now = self.clock.now();
        let elapsed = since.until(now);
        Some(Heartbeat {
            waiting_for: WaitingFor::Retry(pause),
            elapsed,
            ends_in: Some(now.until(until)),
            turn: progress.turn,
            waited_in_all: progress.waited + elapsed,
            spent: progress.spent,
            since_last_byte: None,
        })
    }

    /// Returns true if a heartbeat is due, or nearly so.
    fn is_silent(&self) -> bool {
        self.last_sign.elapsed() >= self.clock.real(self.heartbeat).mul_f64(0.9)
    }

    /// Returns a heartbeat of the wait with this timer.
    pub(super) fn heartbeat(
        &self,
        timer: &WaitTimer,
        waiting_for: WaitingFor,
        progress: ProgressSnapshot,
    ) -> Heartbeat {
        Heartbeat {
            waiting_for,
            elapsed: timer.began.until(self.clock.now()),
            ends_in: None,
            turn: progress.turn,
            waited_in_all: progress.waited,
            spent: progress.spent,
            since_last_byte: None,
        }
    }

    fn emit_heartbeat(&mut self, heartbeat: Option<Heartbeat>) {
        if let Some(heartbeat) = heartbeat {
            self.emit(&RunEvent::Heartbeat(heartbeat));
        }
    }

    pub(super) fn emit(&mut self, event: &RunEvent) {
        // Queued events are older, so they are reported first.
        self.emit_inbox();
        if matches!(event, RunEvent::WaitBegins { .. } | RunEvent::Heartbeat(_)) {
            self.last_sign = Instant::now();
        }
        self.observe(event);
    }

    /// Warns once that the run goes on without a journal, and once that it has one again.
    pub(super) fn report_journal_health(&mut self, health: JournalHealth) {
        let (is_lost, warning) = match health {
            JournalHealth::Off => return,
            JournalHealth::Durable => {
                (false, "the journal is written again, and nothing is missing in it".to_owned())
            }
            JournalHealth::Lost(why) => {
                (true, format!("the run goes on without a journal and cannot be resumed: {why}"))
            }
            JournalHealth::TakenOver(why) => (true, format!("the run ends here: {why}")),
        };
        if std::mem::replace(&mut self.journal_loss_reported, is_lost) != is_lost {
            self.emit(&RunEvent::Warning(warning));
        }
    }

    /// Reports the queued events of sub-agents and background commands.
    pub(super) fn emit_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            self.observe(&message);
        }
    }

    fn observe(&mut self, event: &RunEvent) {
        if !std::mem::replace(&mut self.observer_panicked, true) {
            self.observer.observe(event);
            self.observer_panicked = false;
        }
    }
}

/// Waits for the denial signal; forever without one.
async fn alarmed(alarm: &mut Option<DenialReceiver>) {
    if let Some(alarm) = alarm
        && alarm.wait_for(|raised| *raised).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Waits for an interrupt of this run alone; forever without a sender.
async fn stopped(stop: &mut Option<InterruptReceiver>) -> Interrupt {
    match stop {
        Some(stop) => interrupted(stop).await,
        None => std::future::pending().await,
    }
}
