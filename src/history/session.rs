//! The types of a session's history.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::journal::{
    BackgroundChanges, Contract, Damage, FailedCheck, RecordedPrompt, SessionTotals, SubagentMeta,
};
use crate::recovery::{
    ErrorClass, Limits, Money, Nudge, Pause, RecoveryPlan, RecoveryRecord, Spending,
    StopHookDecision, StopReason,
};
use crate::transcript::Usage;

use super::calls::CallRecord;
use super::turn::{ToolRun, TurnRecord};

/// Everything that is recorded of a session, or of one of its sub-agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionHistory {
    /// The id of the session; of a sub-agent, its own.
    pub id: String,
    /// The working directory.
    pub project: Option<PathBuf>,
    /// The name that the user gave it last.
    pub title: Option<String>,
    pub started: Option<Timestamp>,
    /// The time of the last line.
    pub ended: Option<Timestamp>,
    /// How long its processes worked on it: `ended - started` without the time between them.
    pub worked: Duration,
    /// In the order in which they happened.
    pub items: Vec<HistoryItem>,
    /// Turns, usage and costs, without those of sub-agents.
    pub totals: SessionTotals,
    /// The end of the last prompt. `None`: a process works on it, or was killed.
    pub end: Option<HistoryEnd>,
    /// The sum of the records of the last prompt. Empty if another program wrote them.
    pub recorded: RecordedPrompt,
    /// The requests to the model, in the order in which they were sent.
    pub calls: Vec<CallRecord>,
    /// What the Stop hooks decided about the answers to the last prompt.
    pub stop_hooks: Vec<StopHookDecision>,
    /// The limits, acceptance checks and rules in force last.
    pub contract: Option<Contract>,
    /// The limits of recovery in force last.
    pub limits: Option<Limits>,
    /// Its sub-agents and theirs, in the order in which they were started.
    pub agents: Vec<AgentHistory>,
    /// What could not be read.
    pub problems: Vec<UnreadableLine>,
    /// Whether the last line was cut off, as by a kill. It is not among the problems.
    pub is_torn: bool,
}

/// An event of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryItem {
    /// When it was recorded; for what takes time, when it began to be.
    pub at: Option<Timestamp>,
    pub event: HistoryEvent,
}

impl HistoryItem {
    pub fn turn(&self) -> Option<&TurnRecord> {
        if let HistoryEvent::Turn(turn) = &self.event { Some(turn) } else { None }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryEvent {
    /// A process began to work on the session.
    Process(Box<ProcessStart>),
    Message(RecordedMessage),
    Turn(Box<TurnRecord>),
    /// Something went wrong, and what was decided about it.
    Failure(FailureRecord),
    Wait(WaitRecord),
    /// A recovery is over.
    Recovery(Box<RecoveryRecord>),
    /// Another model answers from here on, by the API's names.
    ModelSwitch {
        from: String,
        to: String,
    },
    /// A summary replaced the older part of the conversation, which has this many messages now.
    Compaction {
        messages: usize,
    },
    /// Old content was removed or repaired, without a summary.
    HistoryChange {
        messages: usize,
    },
    /// What was paid for beside the turns: replies that were dropped or broke off, and summaries.
    Spend(SpendRecord),
    /// The command of `--require` ended.
    Requirement {
        passed: bool,
        /// The record of a failure, if there is one.
        failure: Option<Box<FailedCheck>>,
    },
    Background(BackgroundChanges),
    End(HistoryEnd),
}

/// A process that began to work on the session.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessStart {
    /// Its number within the session, from 1.
    pub epoch: u64,
    pub pid: u32,
    pub host: String,
    /// The version of outlast.
    pub version: String,
    pub model: String,
    pub permission_mode: String,
    /// Whether it goes on with the prompt of the process before it.
    pub resumes_prompt: bool,
    pub forked_from: Option<String>,
    /// The damage of the file, if the session continues before it.
    pub damage: Option<Damage>,
}

/// A message to the model, without the results of tools.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedMessage {
    pub author: MessageAuthor,
    pub text: String,
    /// How many images and documents it has.
    pub media: usize,
}

/// Who wrote a message to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageAuthor {
    User,
    /// A notice of outlast, of a hook, or about background work.
    Outlast(Option<Nudge>),
}

/// A setback: a request or an answer that was no success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    /// An error class, or the name of another setback.
    pub class: &'static str,
    pub plan: RecoveryPlan,
    /// From the request to its failure. `None` if no request failed, or the time is not known.
    pub took: Option<Duration>,
}

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRecord {
    pub cause: WaitCause,
    /// How long it was to be.
    pub planned: Duration,
    /// How long it was. `None`: it is not over, or its process ended first.
    pub waited: Option<Duration>,
}

/// Why a run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// To retry a request after a failure of this class.
    Retry {
        class: ErrorClass,
        /// The number of the next retry, from 1.
        retry: u8,
        /// How many are allowed; `None` when they are not counted.
        of: Option<u8>,
    },
    /// For a rate limit that was known on this host.
    SharedLimit,
    /// For commands and sub-agents in the background.
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

/// A cost that no turn accounts for.
#[derive(Clone, Debug, PartialEq)]
pub struct SpendRecord {
    /// `None` when no price is known.
    pub cost: Option<Money>,
    pub usage: Usage,
    pub model: String,
    /// Whether it is an upper bound: the call broke off, or the API reported no usage.
    pub is_upper_bound: bool,
}

/// The end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEnd {
    pub reason: StopReason,
    pub at: Option<Timestamp>,
}

impl HistoryEnd {
    /// The exit code of the process, unless it could not deliver its result afterwards.
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
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

impl SessionHistory {
    /// The turns, from first to last.
    pub fn turns(&self) -> impl DoubleEndedIterator<Item = &TurnRecord> {
        self.items.iter().filter_map(HistoryItem::turn)
    }

    /// The tool calls of all turns.
    pub fn tools(&self) -> impl Iterator<Item = &ToolRun> {
        self.turns().flat_map(|turn| &turn.tools)
    }

    /// The prompts of the user.
    pub fn prompts(&self) -> impl Iterator<Item = &str> {
        self.messages().filter_map(|message| match message.author {
            MessageAuthor::User => Some(message.text.as_str()),
            MessageAuthor::Outlast(_) => None,
        })
    }

    /// Whether a message has images or documents.
    pub fn messages_with_media(&self) -> bool {
        self.messages().any(|message| message.media > 0)
    }

    fn messages(&self) -> impl Iterator<Item = &RecordedMessage> {
        self.items.iter().filter_map(|item| {
            if let HistoryEvent::Message(message) = &item.event { Some(message) } else { None }
        })
    }

    /// Whether another program recorded it.
    pub fn is_foreign(&self) -> bool {
        let is_ours = |item: &HistoryItem| matches!(item.event, HistoryEvent::Process(_));
        self.end.is_none() && !self.items.iter().any(is_ours)
    }

    /// The cost with that of all sub-agents. Other programs record costs in ways of their own.
    pub fn spending(&self) -> Spending {
        let spending = self.totals_with_agents().spending();
        Spending { is_partial: spending.is_partial || self.is_foreign(), ..spending }
    }

    /// The totals with those of all sub-agents.
    pub fn totals_with_agents(&self) -> SessionTotals {
        let mut totals = self.totals.clone();
        for agent in &self.agents {
            totals.add_subagent(&agent.history.totals);
        }
        totals
    }

    /// The sub-agents that a tool call started, where `parent` is the sub-agent that made the call,
    /// or `None` for the run itself.
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
