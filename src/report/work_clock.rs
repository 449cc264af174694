//! Time within a session without the gaps between its processes, which may be days long.

use std::time::Duration;

use jiff::Timestamp;

use crate::history::{HistoryEvent, HistoryItem, SessionHistory};

/// Maps timestamps to the working time of processes until then.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkClock {
    spans: Vec<WorkSpan>,
}

/// The time span of one process.
#[derive(Clone, Copy, Debug)]
struct WorkSpan {
    from: Timestamp,
    to: Timestamp,
}

impl WorkSpan {
    fn length(self) -> Duration {
        Duration::try_from(self.to.duration_since(self.from)).unwrap_or_default()
    }
}

impl WorkClock {
    pub(super) fn of(history: &SessionHistory) -> Self {
        let mut clock = Self::default();
        for item in &history.items {
            let Some(at) = item.at else { continue };
            let begins = matches!(item.event, HistoryEvent::Process(_));
            match clock.spans.last_mut().filter(|_| !begins) {
                Some(span) => span.to = span.to.max(last_time(item, at)),
                None => clock.spans.push(WorkSpan { from: at, to: last_time(item, at) }),
            }
        }
        if let Some((last, ended)) = clock.spans.last_mut().zip(history.ended) {
            last.to = last.to.max(ended);
        }
        clock
    }

    /// Returns the total working time of all processes until a time.
    pub(super) fn worked_until(&self, at: Timestamp) -> Duration {
        let until = |span: &WorkSpan| WorkSpan { to: span.to.min(at), ..*span }.length();
        self.spans.iter().map(until).sum()
    }

    pub(super) fn length(&self) -> Duration {
        self.spans.iter().map(|span| span.length()).sum()
    }
}

/// Returns the latest recorded time of an item: the end of its last tool call, or the item's own.
fn last_time(item: &HistoryItem, at: Timestamp) -> Timestamp {
    if let HistoryEvent::Turn(turn) = &item.event {
        let ends = turn.tools.iter().filter_map(|tool| tool.ended);
        return ends.max().map_or(at, |end| end.max(at));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_processes_do_not_count() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let span = |from, to| WorkSpan { from: at(from), to: at(to) };
        let clock = WorkClock { spans: vec![span(100, 110), span(5000, 5030)] };
        for (time, worked) in [(0, 0), (104, 4), (110, 10), (3000, 10), (5005, 15), (9000, 40)] {
            assert_eq!(clock.worked_until(at(time)), Duration::from_secs(worked), "{time}");
        }
        assert_eq!(clock.length(), Duration::from_secs(40));
    }
}
