//! The types of a session's history.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::journal::{
    BackgroundChanges, Contract, FailedCheck, OpenRecord, RecordedPrompt, SessionTotals,
    SpendRecord, SubagentMeta,
};
use crate::recovery::{
    ErrorClass, Limits, Money, Nudge, Pause, RecoveryPlan, RecoveryRecord, Spending,
    StopHookDecision, StopReason,
};

use super::calls::CallRecord;
use super::turn::{ToolRun, ToolRunState, TurnRecord};

/// The recorded history of a session, or of one of its sub-agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionHistory {
    /// The id of the session or of the sub-agent.
    pub id: String,
    /// The working directory.
    pub project: Option<PathBuf>,
    /// The last name that the user gave it.
    pub title: Option<String>,
    pub started: Option<Timestamp>,
    /// The time of the last line.
    pub ended: Option<Timestamp>,
    /// Working time of all processes: `ended - started` without the gaps between processes.
    pub worked: Duration,
    /// The events, in chronological order.
    pub items: Vec<HistoryItem>,
    /// Turns, usage and costs, without those of sub-agents.
    pub totals: SessionTotals,
    /// The end of the last prompt. `None`: a process is working on it, or was killed.
    pub end: Option<HistoryEnd>,
    /// The recorded state of the last prompt. Empty if another program recorded the session.
    pub recorded: RecordedPrompt,
    /// The requests to the model, in the order of sending.
    pub calls: Vec<CallRecord>,
    /// Decisions of the Stop hooks about the answers to the last prompt.
    pub stop_hooks: Vec<StopHookDecision>,
    /// The last recorded limits, acceptance checks and rules.
    pub contract: Option<Contract>,
    /// The last recorded limits of recovery.
    pub limits: Option<Limits>,
    /// All sub-agents, nested ones included, in the order of their start.
    pub agents: Vec<AgentHistory>,
    /// Lines that could not be read.
    pub problems: Vec<UnreadableLine>,
    /// True if the last line was cut off, as by a kill. It is not listed in `problems`.
    pub is_torn: bool,
    /// True if there are readable lines, and another program wrote all of them.
    pub is_of_others: bool,
    /// True if a process works on the session.
    pub is_running: bool,
    /// The worst-case cost of the call in flight after the last step, and the model of the last
    /// process.
    pub in_flight: (Money, String),
}

/// An event of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryItem {
    /// Time of the record; for an event with a duration, the time at which its recording began.
    pub at: Option<Timestamp>,
    pub event: HistoryEvent,
}

impl HistoryItem {
    pub fn turn(&self) -> Option<&TurnRecord> {
        if let HistoryEvent::Turn(turn) = &self.event { Some(turn) } else { None }
    }
}

/// The kind of an event, with its data.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryEvent {
    /// A process began to work on the session.
    Process(Box<OpenRecord>),
    Message(RecordedMessage),
    Turn(Box<TurnRecord>),
    /// A failure, and the recovery plan for it.
    Failure(FailureRecord),
    Wait(WaitRecord),
    /// The end of a recovery.
    Recovery(Box<RecoveryRecord>),
    /// The change to another model, by API names.
    ModelSwitch {
        from: String,
        to: String,
    },
    /// A summary replaced the older part of the conversation. `messages` remain.
    Compaction {
        messages: usize,
    },
    /// Old content was removed or repaired without a summary. `messages` remain.
    HistoryChange {
        messages: usize,
    },
    /// A cost outside the turns: a dropped or broken-off reply, or a summary.
    Spend(SpendRecord),
    /// The command of `--require` ended.
    Requirement {
        passed: bool,
        /// The record of the failure. `None`: it passed, or no record was written.
        failure: Option<Box<FailedCheck>>,
    },
    Background(BackgroundChanges),
    End(HistoryEnd),
}

impl HistoryEvent {
    /// Drops the contents of a message or a turn.
    pub(super) fn clear(&mut self) {
        if let Self::Message(message) = self {
            message.text = String::new();
        } else if let Self::Turn(turn) = self {
            (turn.content, turn.tools) = (Vec::new(), Vec::new());
        }
    }
}

/// A message to the model, without tool results.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedMessage {
    pub author: MessageAuthor,
    pub text: String,
    /// Number of images and documents.
    pub media: usize,
}

/// The author of a message to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageAuthor {
    User,
    /// A notice by outlast or a hook, or about background work. `None`: its kind is not recorded.
    Outlast(Option<Nudge>),
}

/// A failed request or an unusable reply, and the recovery plan for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    /// An error class, or the name of another kind of failure, such as `empty_response`.
    pub class: &'static str,
    pub plan: RecoveryPlan,
    /// Time from the request to its failure. `None`: no request failed, or the time is unknown.
    pub took: Option<Duration>,
}

/// A wait of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRecord {
    pub cause: WaitCause,
    /// Planned duration.
    pub planned: Duration,
    /// Actual duration. `None`: it is not over, or its process ended first.
    pub waited: Option<Duration>,
}

/// The reason for a wait of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// The pause before a retry, after a failure of this class.
    Retry {
        class: ErrorClass,
        /// Number of the next retry, counted from 1.
        retry: u8,
        /// Maximum number of retries. `None`: they are not counted.
        of: Option<u8>,
    },
    /// A rate limit that the runs on this host share.
    SharedLimit,
    /// Commands and sub-agents that run in the background.
    BackgroundWork,
}

impl From<Pause> for WaitCause {
    fn from(pause: Pause) -> Self {
        if pause.is_for_shared_limit() {
            return Self::SharedLimit;
        }
        Self::Retry { class: pause.class, retry: pause.retry, of: pause.of }
    }
}

/// The end of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEnd {
    pub reason: StopReason,
    /// The message of the service or of the defect that caused it.
    pub error: Option<String>,
    pub at: Option<Timestamp>,
}

impl HistoryEnd {
    /// Returns the exit code of the process. If the process could not deliver its result
    /// afterwards, the actual exit code differs.
    pub fn exit_code(&self) -> u8 {
        self.reason.info().exit_code
    }
}

/// The history of a sub-agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentHistory {
    pub meta: SubagentMeta,
    pub history: SessionHistory,
}

/// A line of a journal that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableLine {
    /// Number of the line, counted from 1; 0 if the whole file could not be read.
    pub line: usize,
    /// The reason.
    pub what: String,
}

impl SessionHistory {
    /// Returns the turns, in order.
    pub fn turns(&self) -> impl DoubleEndedIterator<Item = &TurnRecord> {
        self.items.iter().filter_map(HistoryItem::turn)
    }

    /// Returns the tool calls of all turns.
    pub fn tools(&self) -> impl Iterator<Item = &ToolRun> {
        self.turns().flat_map(|turn| &turn.tools)
    }

    /// Returns the prompts of the user.
    pub fn prompts(&self) -> impl Iterator<Item = &str> {
        self.messages().filter_map(|message| match message.author {
            MessageAuthor::User => Some(message.text.as_str()),
            MessageAuthor::Outlast(_) => None,
        })
    }

    /// True if any message has images or documents.
    pub fn messages_with_media(&self) -> bool {
        self.messages().any(|message| message.media > 0)
    }

    fn messages(&self) -> impl Iterator<Item = &RecordedMessage> {
        self.items.iter().filter_map(|item| {
            if let HistoryEvent::Message(message) = &item.event { Some(message) } else { None }
        })
    }

    /// True if another program recorded the session. A journal without a readable line counts as one
    /// of outlast that was cut off.
    pub fn is_foreign(&self) -> bool {
        self.end.is_none() && self.is_of_others
    }

    /// The end of the last prompt, in a word or two.
    pub fn end_words(&self) -> &'static str {
        match &self.end {
            Some(end) => end.reason.name(),
            None if self.is_running => "running",
            None => "no end recorded",
        }
    }

    /// Marks as running the sub-agents without an end and the calls without a result that the
    /// process at work on the session has started.
    pub(super) fn mark_running(&mut self) {
        let process = |item: &HistoryItem| {
            if let HistoryEvent::Process(start) = &item.event {
                Some((start.epoch, item.at?))
            } else {
                None
            }
        };
        let Some((epoch, began)) = self.items.iter().rev().find_map(process) else { return };
        for AgentHistory { meta, history } in &mut self.agents {
            history.is_running = history.end.is_none() && meta.epoch == epoch;
        }
        let agents = self.agents.iter_mut().flat_map(|agent| &mut agent.history.items);
        for item in self.items.iter_mut().chain(agents) {
            let HistoryEvent::Turn(turn) = &mut item.event else { continue };
            for tool in &mut turn.tools {
                let is_open = tool.state == ToolRunState::Unknown && tool.ended.is_none();
                if is_open && tool.started.is_some_and(|started| started >= began) {
                    tool.state = ToolRunState::Running;
                }
            }
        }
    }

    /// Charges a call that was in flight when its process died, as a resume does: the service may
    /// bill it.
    pub(super) fn charge_call_in_flight(&mut self) {
        let (cost, model) = &self.in_flight;
        if self.end.is_none() && !self.is_running {
            self.totals.add_in_flight(*cost, model);
        }
    }

    /// Returns the cost, sub-agents included. For a session of another program it is partial,
    /// because such a program records costs in its own format.
    pub fn spending(&self) -> Spending {
        let spending = self.totals_with_agents().spending();
        Spending { is_partial: spending.is_partial || self.is_foreign(), ..spending }
    }

    /// Returns the totals, sub-agents included.
    pub fn totals_with_agents(&self) -> SessionTotals {
        let mut totals = self.totals.clone();
        for agent in &self.agents {
            totals.add_subagent(&agent.history.totals);
        }
        totals
    }

    /// Returns the sub-agents that a tool call started. `parent` is the sub-agent that made the
    /// call, or `None` for the run itself.
    pub fn agents_of<'a>(
        &'a self,
        parent: Option<&'a str>,
        call: &'a str,
    ) -> impl Iterator<Item = &'a AgentHistory> {
        self.agents.iter().filter(move |agent| {
            agent.meta.tool_use_id == call && agent.meta.parent_agent_id.as_deref() == parent
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_agents_of_the_process_at_work_are_running_until_they_end() {
        let start = |epoch: u64| HistoryItem {
            at: Some(Timestamp::UNIX_EPOCH),
            event: HistoryEvent::Process(Box::new(OpenRecord { epoch, ..OpenRecord::default() })),
        };
        let agent = |epoch: u64| AgentHistory {
            meta: SubagentMeta { epoch, ..SubagentMeta::default() },
            history: SessionHistory::default(),
        };
        let mut history = SessionHistory {
            items: vec![start(1), start(2)],
            agents: vec![agent(1), agent(2)],
            ..SessionHistory::default()
        };
        history.mark_running();
        let words: Vec<_> = history.agents.iter().map(|agent| agent.history.end_words()).collect();
        assert_eq!(words, ["no end recorded", "running"]);
    }
}
