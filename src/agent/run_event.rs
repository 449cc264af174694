//! Events that a run reports to its observer, as facts. The wording is the observer's.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::delegate::{AgentIdentity, AgentTask};
use super::setup::RunOutcome;
use super::waiting_for::WaitingFor;
use crate::hooks::{HookEvent, HookProgress};
use crate::journal::{Denial, RecordedPrompt};
use crate::mcp::ServerReport;
use crate::recovery::{Fault, Moment, Money, Pause, RecoveryRecord, Spending, Transition};
use crate::tools::{BackgroundTask, RequirementCheck, SandboxState};
use crate::transcript::{Block, Message, Usage};

/// Watches a run. Called from the run's own task, so it must not block for long.
pub trait Observer: Send {
    fn observe(&mut self, event: &RunEvent);
}

/// An event of a run. Owned, so that a sub-agent's events can be sent to the run that started it;
/// large parts are shared or boxed.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// The run begins, in this environment.
    Init(Box<Init>),
    /// The machine took a step. `fault` has the facts of the failure that it handled, if any.
    Step { transition: Box<Transition>, fault: Option<Box<Fault>> },
    /// A request is sent to the model.
    RequestSent,
    /// A wait begins. Reported exactly once for each.
    WaitBegins {
        pause: Pause,
        until: Moment,
        now: Moment,
        fault: Option<Box<Fault>>,
        spent: Spending,
    },
    /// A wait is over.
    WaitEnds { pause: Pause, waited: Duration },
    /// A wait goes on. Reported every heartbeat at the latest.
    Heartbeat(Heartbeat),
    /// The model is done, and sub-agents go on in the background: the outcome so far.
    AwaitsAgents(Box<RunOutcome>),
    /// A raw event of the model's stream.
    StreamEvent(Value),
    /// A block of the streaming reply is complete. Reported where raw events are, before the event
    /// that ends it. `id` is that of its line in the transcript.
    Block { block: Arc<Block>, id: Uuid },
    /// Blocks that were reported are not part of the conversation: their reply was not kept.
    BlocksDropped { ids: Vec<Uuid> },
    /// A reply entered the history. Each part has an id.
    Assistant {
        message: Arc<Message>,
        ids: Vec<Uuid>,
        id: String,
        model: String,
        stop_reason: Option<String>,
        usage: Usage,
        request_id: Option<String>,
        /// The spending of the run so far, with this reply.
        spent: Spending,
    },
    /// A message to the model: tool results and notices.
    User { message: Arc<Message>, details: Vec<Value>, ids: Vec<Uuid> },
    /// Another model answers from now on.
    ModelSwitched { from: String, to: String },
    /// A summary has replaced the older part of the conversation. The sizes are approximate, in
    /// tokens.
    Compacted { before: u64, after: u64 },
    /// A recovery is over, successfully or not.
    RecoveryEnds(Box<RecoveryRecord>),
    /// A background command was started, or has ended.
    Task(Box<BackgroundTask>),
    /// A sub-agent was started, or has ended.
    Agent(Box<AgentTask>),
    /// An event of a sub-agent.
    OfAgent { agent: Arc<AgentIdentity>, event: Box<RunEvent> },
    /// A tool call that was run has ended.
    ToolEnds(Box<EndedCall>),
    /// The command of `--require` has ended: attempt `attempt` of `of`.
    RequirementEnds { check: Arc<RequirementCheck>, attempt: u32, of: u32 },
    /// A tool call was refused.
    Denied(Box<Denial>),
    /// A hook begins, or has ended.
    Hook(Box<HookProgress>),
    /// A message of a hook to the user.
    HookSays { event: HookEvent, text: String },
    /// A detail for verbose output.
    Note(String),
    /// A warning, which is not an error.
    Warning(String),
}

/// The end of a tool call that was run.
#[derive(Clone, Debug)]
pub struct EndedCall {
    pub name: String,
    pub id: String,
    /// Time since its batch began.
    pub took: Duration,
    pub is_error: bool,
    /// The exit code of a command that has ended by itself.
    pub exit_code: Option<i32>,
    /// The last lines of its output as the model sees it.
    pub tail: String,
}

/// The environment of a run, as `system`/`init` shows it.
#[derive(Clone, Debug)]
pub struct Init {
    pub session_id: String,
    pub cwd: String,
    pub model: String,
    pub tools: Vec<String>,
    /// The MCP servers, with their status when the run begins.
    pub servers: Vec<ServerReport>,
    /// The commands for the prompts of these servers.
    pub server_prompts: Vec<String>,
    pub permission_mode: String,
    pub api_key_source: String,
    pub sandbox: SandboxState,
    /// Names of variables that commands do not see.
    pub dropped_variables: Vec<String>,
    /// The memory files that the system prompt holds.
    pub memory_files: Vec<String>,
    /// The available kinds of sub-agents.
    pub agents: Vec<String>,
    /// The cost of the earlier part of the session, which this run does not count.
    pub cost_before: Money,
    /// The state of the prompt when the run begins, folded from its records.
    pub recorded: RecordedPrompt,
}

/// The subject and the duration of a wait, with the progress of the run.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub waiting_for: WaitingFor,
    /// Duration of this wait so far.
    pub elapsed: Duration,
    /// Time until it ends, if that is known.
    pub ends_in: Option<Duration>,
    pub turn: u32,
    /// Time spent in retry waits, in total.
    pub waited_in_all: Duration,
    /// The known spending so far.
    pub spent: Spending,
    /// Time since the model's last byte, while it streams.
    pub since_last_byte: Option<Duration>,
}
