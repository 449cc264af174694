//! The report on one session.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::history::{
    AgentHistory, HistoryEvent, SessionHistory, ToolRun, ToolRunState, TurnRecord, WaitCause,
};
use crate::journal::{ModelTotals, SessionTotals};
use crate::recovery::{Money, Spending, StopReason};
use crate::text::shortened_line;
use crate::transcript::Usage;

use super::recovery_table::RecoveryTable;
use super::work_done::WorkDone;

/// Maximum length of a prompt in a report, in characters.
const PROMPT_CHARS: usize = 160;

/// The report on a session: its outcome, times, costs, recoveries and results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    pub subject: SessionSubject,
    pub outcome: SessionOutcome,
    /// The message of the service or of the defect that ended the last prompt.
    pub error: Option<String>,
    /// Number of replies that entered the conversation, sub-agents excluded.
    pub turns: u32,
    pub time: TimeSpent,
    /// Sub-agents included.
    pub spending: SpendSummary,
    /// Sub-agents excluded.
    pub tools: ToolCounts,
    /// Sub-agents included.
    pub recoveries: RecoveryTable,
    pub changes: ConversationChanges,
    pub agents: Vec<AgentSummary>,
    pub damage: JournalDamage,
    pub work: WorkDone,
}

/// The identity of a session: its id, name, project, prompt and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSubject {
    pub id: String,
    /// The working directory.
    pub project: Option<PathBuf>,
    /// The name that the user gave the session, or the id of the task in its batch.
    pub name: Option<String>,
    /// The beginning of the first prompt, in one line.
    pub prompt: Option<String>,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// Number of processes that worked on it.
    pub processes: u32,
}

/// The outcome or the current state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOutcome {
    /// The last prompt ended.
    Ended(StopReason),
    /// A process is working on it.
    Running,
    /// The last process did not record its end: it was killed, or its journal was lost.
    Unfinished,
    /// The run did not begin. This exit code is recorded only in the result of a task.
    NotStarted(u8),
    /// Another program recorded it.
    Foreign,
}

impl SessionOutcome {
    /// Returns the name in JSON, which is the `terminal_reason` of the result if the prompt ended.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended(reason) => reason.name(),
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::NotStarted(_) => "not_started",
            Self::Foreign => "foreign",
        }
    }

    /// Returns the exit code of the last process, if it recorded its end.
    pub fn exit_code(self) -> Option<u8> {
        match self {
            Self::Ended(reason) => Some(reason.info().exit_code),
            Self::NotStarted(exit_code) => Some(exit_code),
            Self::Running | Self::Unfinished | Self::Foreign => None,
        }
    }

    pub fn is_success(self) -> bool {
        self.exit_code() == Some(0)
    }

    /// True if it ended without success, or was cut off.
    pub fn is_failure(self) -> bool {
        match self {
            Self::Ended(_) => !self.is_success(),
            Self::Unfinished | Self::NotStarted(_) => true,
            Self::Running | Self::Foreign => false,
        }
    }
}

/// The working time of a session, and the waits in it by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Working time of all processes, waits included.
    pub worked: Duration,
    /// Pauses before retries.
    pub retries: Duration,
    /// Pauses for rate limits that the runs on the host share.
    pub shared_limits: Duration,
    /// Waits for background work.
    pub background: Duration,
}

impl TimeSpent {
    fn of(history: &SessionHistory) -> Self {
        let mut time = Self { worked: history.worked, ..Self::default() };
        for item in &history.items {
            let HistoryEvent::Wait(wait) = &item.event else { continue };
            let waited = wait.waited.unwrap_or_default();
            match wait.cause {
                WaitCause::Retry { .. } => time.retries += waited,
                WaitCause::SharedLimit => time.shared_limits += waited,
                WaitCause::BackgroundWork => time.background += waited,
            }
        }
        time
    }

    pub fn waited(self) -> Duration {
        self.retries + self.shared_limits + self.background
    }

    pub(super) fn add(&mut self, other: Self) {
        self.worked += other.worked;
        self.retries += other.retries;
        self.shared_limits += other.shared_limits;
        self.background += other.background;
    }
}

/// Costs and tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendSummary {
    pub cost: Spending,
    /// The part of the cost that is an upper bound.
    pub upper_bounds: Money,
    pub usage: Usage,
    /// Totals of each model, in the order of first use.
    pub by_model: Vec<ModelTotals>,
}

impl SpendSummary {
    pub fn new(spent: Money, upper_bounds: Money, by_model: Vec<ModelTotals>) -> Self {
        let mut usage = Usage::default();
        for model in &by_model {
            usage += model.usage;
        }
        let is_partial = by_model.iter().any(|model| model.cost.is_none());
        Self { cost: Spending { amount: spent, is_partial }, upper_bounds, usage, by_model }
    }

    fn of_turn(turn: &TurnRecord) -> Self {
        let (model, usage) = (turn.model.clone(), turn.usage);
        Self::new(Money::ZERO, Money::ZERO, vec![ModelTotals { model, usage, cost: turn.cost }])
    }

    fn of(totals: SessionTotals) -> Self {
        Self::new(totals.spent, totals.upper_bounds, totals.by_model)
    }

    /// Returns the fraction of the input tokens that was read from the cache. `None`: there was no
    /// input.
    pub fn cache_hits(&self) -> Option<f64> {
        let input = self.usage.input();
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = || self.usage.cache_read_input_tokens as f64 / input as f64;
        (input > 0).then(ratio)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.cost.amount += other.cost.amount;
        self.cost.is_partial |= other.cost.is_partial;
        self.upper_bounds += other.upper_bounds;
        self.usage += other.usage;
        for more in &other.by_model {
            match self.by_model.iter_mut().find(|known| known.model == more.model) {
                Some(known) => {
                    known.usage += more.usage;
                    known.cost = known.cost.zip(more.cost).map(|(one, other)| one + other);
                }
                None => self.by_model.push(more.clone()),
            }
        }
    }
}

/// Numbers of tool calls by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCounts {
    pub succeeded: u32,
    pub failed: u32,
    /// Calls that were denied, invalid or cancelled.
    pub not_run: u32,
    /// Calls that run now.
    pub running: u32,
    /// Calls whose outcome was not recorded.
    pub unknown: u32,
}

impl ToolCounts {
    fn of<'a>(tools: impl Iterator<Item = &'a ToolRun>) -> Self {
        let mut counts = Self::default();
        for tool in tools {
            match tool.state {
                ToolRunState::Succeeded => counts.succeeded += 1,
                ToolRunState::Failed => counts.failed += 1,
                ToolRunState::NotRun => counts.not_run += 1,
                ToolRunState::Running => counts.running += 1,
                ToolRunState::Unknown | ToolRunState::Pending => counts.unknown += 1,
            }
        }
        counts
    }

    pub fn calls(self) -> u32 {
        self.succeeded + self.failed + self.not_run + self.running + self.unknown
    }

    pub(super) fn add(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.not_run += other.not_run;
        self.running += other.running;
        self.unknown += other.unknown;
    }
}

/// Numbers of model switches and compactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationChanges {
    /// Number of changes to another model.
    pub model_switches: u32,
    /// Number of summaries that replaced older messages.
    pub compactions: u32,
}

impl ConversationChanges {
    fn of(history: &SessionHistory) -> Self {
        let mut changes = Self::default();
        for item in &history.items {
            let is_switch = matches!(item.event, HistoryEvent::ModelSwitch { .. });
            let is_compaction = matches!(item.event, HistoryEvent::Compaction { .. });
            changes.model_switches += u32::from(is_switch);
            changes.compactions += u32::from(is_compaction);
        }
        changes
    }

    pub(super) fn add(&mut self, other: Self) {
        self.model_switches += other.model_switches;
        self.compactions += other.compactions;
    }
}

/// The summary of a sub-agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSummary {
    pub id: String,
    /// The name of its definition.
    pub kind: String,
    pub description: String,
    pub outcome: SessionOutcome,
    pub turns: u32,
    pub tools: ToolCounts,
    pub cost: Spending,
    pub worked: Duration,
}

/// The unreadable parts of the journals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalDamage {
    /// Number of unreadable lines of the session and of its sub-agents.
    pub unreadable_lines: usize,
    /// True if the last line was cut off, as by a kill.
    pub is_torn: bool,
}

impl SessionReport {
    /// Builds the report on a session.
    pub fn of(history: &SessionHistory) -> Self {
        let agents = history.agents.iter().map(|agent| &agent.history);
        let with_agents = || [history].into_iter().chain(agents.clone());
        let records = with_agents().flat_map(|of| &of.items).filter_map(|item| {
            if let HistoryEvent::Recovery(record) = &item.event { Some(&**record) } else { None }
        });
        let processes = |event: &HistoryEvent| u32::from(matches!(event, HistoryEvent::Process(_)));
        let processes = history.items.iter().map(|item| processes(&item.event)).sum();
        let outcome = match &history.end {
            _ if history.is_running => SessionOutcome::Running,
            Some(end) => SessionOutcome::Ended(end.reason),
            None if history.is_foreign() => SessionOutcome::Foreign,
            None => SessionOutcome::Unfinished,
        };
        let mut spending = SpendSummary::of(history.totals_with_agents());
        if history.is_foreign() {
            // Other programs record the usage with each reply, and no costs.
            history.turns().for_each(|turn| spending.add(&SpendSummary::of_turn(turn)));
        }
        spending.cost = history.spending();
        Self {
            subject: SessionSubject {
                id: history.id.clone(),
                project: history.project.clone(),
                name: history.title.clone(),
                prompt: history.prompts().next().map(shortened_prompt),
                started: history.started,
                ended: history.ended,
                processes,
            },
            outcome,
            error: history.end.as_ref().and_then(|end| end.error.clone()),
            turns: history.totals.turns,
            time: TimeSpent::of(history),
            spending,
            tools: ToolCounts::of(history.tools()),
            recoveries: records.collect(),
            changes: ConversationChanges::of(history),
            agents: history.agents.iter().map(AgentSummary::of).collect(),
            damage: JournalDamage {
                unreadable_lines: with_agents().map(|of| of.problems.len()).sum(),
                is_torn: history.is_torn,
            },
            work: WorkDone::of(history, outcome.is_failure()),
        }
    }
}

impl AgentSummary {
    fn of(AgentHistory { meta, history }: &AgentHistory) -> Self {
        let reason = history.end.as_ref().map(|end| end.reason);
        Self {
            id: meta.agent_id.clone(),
            kind: meta.agent_type.clone(),
            description: meta.description.clone(),
            outcome: reason.map_or(SessionOutcome::Unfinished, SessionOutcome::Ended),
            turns: history.totals.turns,
            tools: ToolCounts::of(history.tools()),
            cost: SpendSummary::of(history.totals.clone()).cost,
            worked: history.worked,
        }
    }
}

/// Returns the beginning of a prompt as one line.
pub fn shortened_prompt(prompt: &str) -> String {
    shortened_line(prompt, PROMPT_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_cut_to_one_line() {
        assert_eq!(shortened_prompt(" Make\n\tit   work "), "Make it work");
        let long = shortened_prompt(&"ä".repeat(1000));
        assert_eq!(long.chars().count(), PROMPT_CHARS + 3);
    }

    #[test]
    fn cache_hits_are_a_part_of_all_input_tokens() {
        let usage = Usage {
            input_tokens: 10,
            output_tokens: 99,
            cache_creation_input_tokens: 10,
            cache_read_input_tokens: 60,
            web_search_requests: 0,
        };
        let model = ModelTotals { model: "m".to_owned(), usage, cost: None };
        let spend = SpendSummary::new(Money::ZERO, Money::ZERO, vec![model]);
        assert_eq!(spend.cache_hits(), Some(0.75));
        assert!(spend.cost.is_partial, "a price is missing");
        assert_eq!(SpendSummary::default().cache_hits(), None);
    }
}
