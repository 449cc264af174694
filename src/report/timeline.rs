//! The timeline of a session: its events as bars in lanes, and its costs over time.

use std::time::Duration;

use jiff::Timestamp;

use crate::history::{HistoryEvent, HistoryItem, SessionHistory, ToolRunState, WaitCause};
use crate::recovery::{Money, StopReason};

use super::work_clock::WorkClock;

/// Approximate maximum number of bars of one kind in a lane. If there are more, neighbours are
/// joined.
const BARS_MAX: usize = 400;
/// Approximate maximum number of points in the curve of costs.
const POINTS_MAX: usize = 500;

/// The timeline of a session. Times are working time since the start, without the gaps between
/// processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionTimeline {
    pub length: Duration,
    /// The lane of the run itself, then those of its sub-agents.
    pub rows: Vec<TimelineRow>,
    pub marks: Vec<TimelineMark>,
    /// The cumulative costs, sub-agents included, in chronological order.
    pub spend: Vec<SpendPoint>,
}

/// The bars of the run, or of one of its sub-agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimelineRow {
    /// Index of the sub-agent in [`SessionHistory::agents`]. `None`: the run itself.
    pub agent: Option<usize>,
    /// Replies of the model, and requests that failed.
    pub turns: Vec<TimelineBar>,
    pub tools: Vec<TimelineBar>,
    pub waits: Vec<TimelineBar>,
    pub recoveries: Vec<TimelineBar>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TimelineBar {
    pub from: Duration,
    pub to: Duration,
    pub content: BarContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum BarContent {
    /// A reply of the model. The bar begins at its request.
    Turn {
        number: u32,
        cost: Option<Money>,
    },
    /// A request that failed.
    FailedRequest {
        class: &'static str,
    },
    /// The tool call at the index `place` of the turn.
    Tool {
        turn: u32,
        place: usize,
        state: ToolRunState,
    },
    Wait(WaitCause),
    Recovery {
        class: String,
        is_saved: bool,
    },
    /// Joined bars, which are too close to be shown separately.
    Several {
        count: usize,
        has_failure: bool,
    },
}

impl BarContent {
    /// True if it has a failure, a call that was not run, or an unknown outcome.
    pub fn has_failure(&self) -> bool {
        match self {
            Self::Turn { .. } | Self::Wait(_) => false,
            Self::FailedRequest { .. } => true,
            Self::Tool { state, .. } => match state {
                ToolRunState::Failed | ToolRunState::NotRun | ToolRunState::Unknown => true,
                ToolRunState::Succeeded | ToolRunState::Running | ToolRunState::Pending => false,
            },
            Self::Recovery { is_saved, .. } => !is_saved,
            Self::Several { has_failure, .. } => *has_failure,
        }
    }

    /// Returns the number of bars that were joined, which is 1 for a single bar.
    pub fn count(&self) -> usize {
        match self {
            Self::Several { count, .. } => *count,
            Self::Turn { .. }
            | Self::FailedRequest { .. }
            | Self::Tool { .. }
            | Self::Wait(_)
            | Self::Recovery { .. } => 1,
        }
    }
}

/// An event without a duration.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineMark {
    pub at: Duration,
    pub content: MarkContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MarkContent {
    /// Another process resumed the session.
    Resumed,
    ModelSwitch {
        to: String,
    },
    Compaction,
    End(StopReason),
}

/// The cumulative costs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendPoint {
    pub at: Duration,
    pub spent: Money,
}

impl SessionTimeline {
    pub fn of(history: &SessionHistory) -> Self {
        let clock = WorkClock::of(history);
        let length = clock.length();
        let own = TimelineRow::of(&clock, history, None);
        let agents = history.agents.iter().enumerate();
        let agents =
            agents.map(|(place, agent)| TimelineRow::of(&clock, &agent.history, Some(place)));
        let rows = [own].into_iter().chain(agents).map(|row| row.thinned(length)).collect();
        let marks = history.items.iter().filter_map(|item| mark(&clock, item)).collect();
        Self { length, rows, marks, spend: spend(&clock, history) }
    }
}

impl TimelineRow {
    fn of(clock: &WorkClock, history: &SessionHistory, agent: Option<usize>) -> Self {
        let mut row = Self { agent, ..Self::default() };
        for item in &history.items {
            if let Some(at) = item.at {
                row.add(clock, at, &item.event);
            }
        }
        row
    }

    fn add(&mut self, clock: &WorkClock, at: Timestamp, event: &HistoryEvent) {
        let bar = |from: Timestamp, to: Timestamp, content| TimelineBar {
            from: clock.worked_until(from),
            to: clock.worked_until(to),
            content,
        };
        match event {
            HistoryEvent::Turn(turn) => {
                let content = BarContent::Turn { number: turn.number, cost: turn.cost };
                self.turns.push(bar(before(at, turn.took), at, content));
                for (place, tool) in turn.tools.iter().enumerate() {
                    let Some(to) = tool.ended.or(tool.started) else { continue };
                    let content = BarContent::Tool { turn: turn.number, place, state: tool.state };
                    self.tools.push(bar(tool.started.unwrap_or(to), to, content));
                }
            }
            HistoryEvent::Wait(wait) => {
                let to = at.checked_add(wait.waited.unwrap_or_default()).unwrap_or(at);
                self.waits.push(bar(at, to, BarContent::Wait(wait.cause)));
            }
            HistoryEvent::Recovery(record) => {
                let from = before(at, Some(record.took));
                let (class, is_saved) = (record.class.clone(), record.saved);
                self.recoveries.push(bar(from, at, BarContent::Recovery { class, is_saved }));
            }
            HistoryEvent::Failure(failure) => {
                let content = BarContent::FailedRequest { class: failure.class };
                if failure.took.is_some() {
                    self.turns.push(bar(before(at, failure.took), at, content));
                }
            }
            HistoryEvent::Process(_)
            | HistoryEvent::Message(_)
            | HistoryEvent::ModelSwitch { .. }
            | HistoryEvent::Compaction { .. }
            | HistoryEvent::HistoryChange { .. }
            | HistoryEvent::Spend(_)
            | HistoryEvent::Requirement { .. }
            | HistoryEvent::Background(_)
            | HistoryEvent::End(_) => {}
        }
    }

    fn thinned(mut self, length: Duration) -> Self {
        for bars in [&mut self.turns, &mut self.tools, &mut self.waits, &mut self.recoveries] {
            join_neighbours(bars, length);
        }
        self
    }
}

/// Joins bars that almost touch each other, if there are more than [`BARS_MAX`].
fn join_neighbours(bars: &mut Vec<TimelineBar>, length: Duration) {
    bars.sort_by_key(|bar| bar.from);
    if bars.len() <= BARS_MAX {
        return;
    }
    let room = length / u32::try_from(BARS_MAX).unwrap_or(u32::MAX);
    let mut joined: Vec<TimelineBar> = Vec::new();
    for bar in bars.drain(..) {
        match joined.last_mut().filter(|last| bar.from <= last.to + room) {
            Some(last) => {
                last.to = last.to.max(bar.to);
                let count = last.content.count() + bar.content.count();
                let has_failure = last.content.has_failure() || bar.content.has_failure();
                last.content = BarContent::Several { count, has_failure };
            }
            None => joined.push(bar),
        }
    }
    *bars = joined;
}

fn mark(clock: &WorkClock, item: &HistoryItem) -> Option<TimelineMark> {
    let content = match &item.event {
        HistoryEvent::Process(start) if start.epoch > 1 => MarkContent::Resumed,
        HistoryEvent::ModelSwitch { to, .. } => MarkContent::ModelSwitch { to: to.clone() },
        HistoryEvent::Compaction { .. } => MarkContent::Compaction,
        HistoryEvent::End(end) => MarkContent::End(end.reason),
        HistoryEvent::Process(_)
        | HistoryEvent::Message(_)
        | HistoryEvent::Turn(_)
        | HistoryEvent::Failure(_)
        | HistoryEvent::Wait(_)
        | HistoryEvent::Recovery(_)
        | HistoryEvent::HistoryChange { .. }
        | HistoryEvent::Spend(_)
        | HistoryEvent::Requirement { .. }
        | HistoryEvent::Background(_) => return None,
    };
    Some(TimelineMark { at: clock.worked_until(item.at?), content })
}

/// Returns the cumulative costs of a session and its sub-agents over time.
fn spend(clock: &WorkClock, history: &SessionHistory) -> Vec<SpendPoint> {
    let agents = history.agents.iter().map(|agent| &agent.history);
    let items = [history].into_iter().chain(agents).flat_map(|of| &of.items);
    let mut payments: Vec<(Duration, Money)> = items
        .filter_map(|item| {
            let cost = if let HistoryEvent::Spend(spend) = &item.event {
                spend.cost
            } else {
                item.turn().and_then(|turn| turn.cost)
            };
            Some((clock.worked_until(item.at?), cost.filter(|cost| *cost > Money::ZERO)?))
        })
        .collect();
    payments.sort_by_key(|(at, _)| *at);
    let mut spent = Money::ZERO;
    let point = |(at, cost)| {
        spent += cost;
        SpendPoint { at, spent }
    };
    let points: Vec<SpendPoint> = payments.into_iter().map(point).collect();
    let last = points.last().copied();
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let mut points: Vec<SpendPoint> = points.into_iter().step_by(step).collect();
    // The last point is the sum.
    if points.last() != last.as_ref() {
        points.extend(last);
    }
    points
}

/// Returns the start of an event that ended at `at`.
fn before(at: Timestamp, took: Option<Duration>) -> Timestamp {
    at.checked_sub(took.unwrap_or_default()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bars_are_joined_and_still_say_whether_one_failed() {
        let bar = |at: u64, state| TimelineBar {
            from: Duration::from_millis(at),
            to: Duration::from_millis(at + 1),
            content: BarContent::Tool { turn: 1, place: 0, state },
        };
        let count = BARS_MAX as u64 * 10;
        let mut bars: Vec<_> = (0..count).map(|at| bar(at, ToolRunState::Succeeded)).collect();
        bars.push(bar(count * 2, ToolRunState::Failed));
        join_neighbours(&mut bars, Duration::from_millis(count * 2));
        let [first, last] = &bars[..] else { panic!("{} bars", bars.len()) };
        assert_eq!(first.content.count() as u64, count);
        assert!(!first.content.has_failure() && last.content.has_failure());
        assert_eq!(first.to, Duration::from_millis(count));
    }
}
