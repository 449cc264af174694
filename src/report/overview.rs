//! The overview of many sessions: recoveries by class, the runs that they saved, and their cost.

use std::collections::BTreeMap;

use serde::Serialize;

use super::recovery_table::{RecoverySummary, RecoveryTable};
use super::session_report::{
    ConversationChanges, SessionOutcome, SessionReport, SpendSummary, TimeSpent, ToolCounts,
};

/// The sum of the reports on sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionsOverview {
    pub outcomes: OutcomeCounts,
    /// Number of sessions that succeeded after at least one recovery reached its goal.
    pub saved: u32,
    pub turns: u32,
    pub time: TimeSpent,
    pub spending: SpendSummary,
    pub tools: ToolCounts,
    pub recoveries: Vec<RecoveryImpact>,
    pub changes: ConversationChanges,
    pub agents: u32,
    /// Number of sessions whose journals have unreadable lines.
    pub damaged: u32,
}

/// Numbers of sessions by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Number of sessions with each outcome, by the outcome's name.
    pub by_name: BTreeMap<&'static str, u32>,
    pub succeeded: u32,
    pub failed: u32,
    /// Number of sessions that neither succeeded nor failed: they are running, or were recorded by
    /// another program.
    pub others: u32,
}

impl OutcomeCounts {
    /// Returns the number of all sessions.
    pub fn sessions(&self) -> u32 {
        self.succeeded + self.failed + self.others
    }

    /// Returns `number` as a fraction of the sessions.
    pub fn fraction(&self, number: u32) -> f64 {
        f64::from(number) / f64::from(self.sessions().max(1))
    }

    fn add(&mut self, outcome: SessionOutcome) {
        *self.by_name.entry(outcome.name()).or_default() += 1;
        if outcome.is_success() {
            self.succeeded += 1;
        } else if outcome.is_failure() {
            self.failed += 1;
        } else {
            self.others += 1;
        }
    }
}

/// The effect that the recoveries of one class had on sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryImpact {
    #[serde(flatten)]
    pub summary: RecoverySummary,
    /// Number of sessions with at least one recovery of this class.
    pub sessions: u32,
    /// Number of sessions that succeeded after a recovery of this class reached its goal.
    pub saved_sessions: u32,
}

impl SessionsOverview {
    pub fn add(&mut self, report: &SessionReport) {
        let outcome = report.outcome;
        self.outcomes.add(outcome);
        let has_saved = |class: &RecoverySummary| outcome.is_success() && class.saved > 0;
        self.saved += u32::from(report.recoveries.classes().iter().any(has_saved));
        self.turns = self.turns.saturating_add(report.turns);
        self.time.add(report.time);
        self.spending.add(&report.spending);
        self.tools.add(report.tools);
        for class in report.recoveries.classes() {
            self.add_recoveries(class, u32::from(has_saved(class)));
        }
        self.changes.add(report.changes);
        self.agents += u32::try_from(report.agents.len()).unwrap_or(u32::MAX);
        self.damaged += u32::from(report.damage.unreadable_lines > 0);
    }

    fn add_recoveries(&mut self, class: &RecoverySummary, saved_sessions: u32) {
        let known = self.recoveries.iter_mut().find(|known| known.summary.class == class.class);
        if let Some(known) = known {
            known.summary.add(class);
            known.sessions += 1;
            known.saved_sessions += saved_sessions;
        } else {
            let summary = class.clone();
            self.recoveries.push(RecoveryImpact { summary, sessions: 1, saved_sessions });
        }
    }

    /// Sorts the recoveries by frequency, the most frequent class first.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.recoveries.sort_unstable_by(|one, other| {
            let key = |impact: &RecoveryImpact| (impact.sessions, impact.summary.fired);
            key(other).cmp(&key(one)).then_with(|| one.summary.class.cmp(&other.summary.class))
        });
        self
    }

    /// Returns the sum of all recoveries.
    pub fn all_recoveries(&self) -> RecoverySummary {
        let mut table = RecoveryTable::default();
        for impact in &self.recoveries {
            table.add(&impact.summary);
        }
        table.sum()
    }
}
