//! Keeping an eye on the world while something takes long: interrupts, the deadline, heartbeats.

use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::recovery::{Event, Interrupt, Moment, Money};

use super::clock::Clock;
use super::delegate::Said;
use super::observer::{Heartbeat, Notice, Observer, WaitingFor};
use super::signals::{Alarm, Interrupts, interrupted};

/// What a run is watched with, and what it watches for.
pub(super) struct Watch<'a> {
    pub(super) observer: &'a mut dyn Observer,
    pub(super) clock: Clock,
    interrupts: Interrupts,
    /// What stops this run alone, where it is a sub-agent's.
    stop: Option<Interrupts>,
    /// What says that a sub-agent's call was denied, where that ends the run.
    alarm: Option<Alarm>,
    deadline: Option<Moment>,
    heartbeat: Duration,
    /// What sub-agents have to say, and what they say it into.
    inbox: UnboundedReceiver<Said>,
    pub(super) post: UnboundedSender<Said>,
    /// The observer panicked. It is not asked again: the run must be able to end.
    struck: bool,
    /// When a sign of life was last given. Silence is measured from there, and not from the start
    /// of whatever is waited for now: many short waits in a row are a long silence.
    said: Instant,
    /// What cut the run off, and when that was seen first.
    cut: Option<(Instant, CutBy)>,
}

/// Why something was not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutBy {
    Interrupt(Interrupt),
    Deadline,
    /// A sub-agent's call was denied, and that ends the run.
    Denial,
}

impl From<CutBy> for Event {
    fn from(cut: CutBy) -> Self {
        match cut {
            CutBy::Interrupt(meaning) => Self::Interrupted(meaning),
            CutBy::Deadline => Self::DeadlinePassed,
            CutBy::Denial => Self::Denied,
        }
    }
}

/// What happened while we waited for something else.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Cut(CutBy),
    /// It is time to show that we are alive.
    Tick,
}

/// How the run stands, for a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) turn: u32,
    pub(super) waited: Duration,
    pub(super) spent: Money,
}

impl Figures {
    /// Before anything was done.
    pub(super) fn none() -> Self {
        Self { turn: 0, waited: Duration::ZERO, spent: Money::ZERO }
    }
}

/// One wait that is watched.
pub(super) struct Vigil {
    began: Moment,
    ticks: Interval,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        observer: &'a mut dyn Observer,
        clock: Clock,
        interrupts: Interrupts,
        deadline: Option<Moment>,
        heartbeat: Duration,
    ) -> Self {
        let (said, struck) = (Instant::now(), false);
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
            struck,
            said,
            cut: None,
        }
    }

    /// The same, stopped by `stop` as well.
    pub(super) fn stopped_by(self, stop: Interrupts) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// The same, ended by an alarm as well.
    pub(super) fn alarmed_by(self, alarm: Alarm) -> Self {
        Self { alarm: Some(alarm), ..self }
    }

    pub(super) fn begin(&self) -> Vigil {
        let period = self.clock.real(self.heartbeat).max(Duration::from_millis(1));
        let mut ticks = interval_at(self.said + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Vigil { began: self.clock.now(), ticks }
    }

    /// The same with a first sign of life after `first`, where that is sooner.
    pub(super) fn begin_soon(&self, first: Duration) -> Vigil {
        let mut vigil = self.begin();
        let period = vigil.ticks.period();
        let began = Instant::now();
        vigil.ticks = interval_at((self.said + period).min(began + first), period);
        vigil.ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        vigil
    }

    /// Waits for `other`, and meanwhile for whatever cuts the run off, which comes first. `show`
    /// shows that we are alive, each time that it is time to.
    ///
    /// # Errors
    /// What cut the run off. `other` goes no further than it has come, unless it is lent.
    pub(super) async fn wait_for<T>(
        &mut self,
        vigil: &mut Vigil,
        mut show: impl FnMut(&mut Self, &Vigil),
        other: impl Future<Output = T>,
    ) -> Result<T, CutBy> {
        tokio::pin!(other);
        loop {
            tokio::select! {
                biased;
                disturbance = self.disturbance(vigil) => match disturbance {
                    Disturbance::Cut(cut) => return Err(cut),
                    Disturbance::Tick => show(self, vigil),
                },
                done = &mut other => return Ok(done),
            }
        }
    }

    /// Waits for the next disturbance. Cancel-safe.
    async fn disturbance(&mut self, vigil: &mut Vigil) -> Disturbance {
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
                meaning = interrupted(&mut self.interrupts) => CutBy::Interrupt(meaning),
                meaning = stopped(&mut self.stop) => CutBy::Interrupt(meaning),
                () = alarmed(&mut self.alarm) => CutBy::Denial,
                () = &mut passed => CutBy::Deadline,
                Some(said) = self.inbox.recv() => {
                    self.pass_on(&said);
                    continue;
                }
                _ = vigil.ticks.tick() => return Disturbance::Tick,
            };
        };
        self.cut.get_or_insert((Instant::now(), cut));
        Disturbance::Cut(cut)
    }

    /// What cut the run off, if it was cut off, and since when there is a hurry.
    pub(super) fn cut(&self) -> Option<(Instant, CutBy)> {
        self.cut
    }

    /// Whether a sign of life is due, or nearly.
    pub(super) fn is_silent(&self) -> bool {
        self.said.elapsed() >= self.clock.real(self.heartbeat).mul_f64(0.9)
    }

    pub(super) fn beat(
        &mut self,
        vigil: &Vigil,
        waiting_for: WaitingFor<'_>,
        figures: Figures,
        since_last_byte: Option<Duration>,
    ) {
        self.show(vigil, waiting_for, figures, (None, since_last_byte));
    }

    /// The same for a wait whose end is known.
    pub(super) fn beat_until(
        &mut self,
        vigil: &Vigil,
        waiting_for: WaitingFor<'_>,
        figures: Figures,
        left: Duration,
    ) {
        self.show(vigil, waiting_for, figures, (Some(left), None));
    }

    fn show(
        &mut self,
        vigil: &Vigil,
        waiting_for: WaitingFor<'_>,
        figures: Figures,
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
        self.tell(&Notice::Heartbeat(heartbeat));
    }

    /// Tells what a sub-agent said.
    fn pass_on(&mut self, said: &Said) {
        said.tell(&mut |notice| self.observe(notice));
    }

    pub(super) fn tell(&mut self, notice: &Notice<'_>) {
        // What was said before is told before.
        while let Ok(said) = self.inbox.try_recv() {
            self.pass_on(&said);
        }
        if matches!(notice, Notice::WaitBegins { .. } | Notice::Heartbeat(_)) {
            self.said = Instant::now();
        }
        self.observe(notice);
    }

    fn observe(&mut self, notice: &Notice<'_>) {
        if !std::mem::replace(&mut self.struck, true) {
            self.observer.observe(notice);
            self.struck = false;
        }
    }
}

/// Waits until the alarm is raised; for ever, where there is none.
async fn alarmed(alarm: &mut Option<Alarm>) {
    if let Some(alarm) = alarm
        && alarm.wait_for(|raised| *raised).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Waits until this run alone is to stop; for ever, where nobody can stop it.
async fn stopped(stop: &mut Option<Interrupts>) -> Interrupt {
    match stop {
        Some(stop) => interrupted(stop).await,
        None => std::future::pending().await,
    }
}
