//! What a run tells whoever watches it. Told once, as facts; words are the watcher's.

use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::delegate::{AgentIdentity, AgentTask};
use crate::hooks::HookProgress;
use crate::mcp::ServerReport;
use crate::recovery::{RecoveryRecord, Fault, Moment, Money, Pause, Transition};
use crate::tools::{BackgroundTask, SandboxState};
use crate::transcript::{Block, Message, Usage};

/// Watches a run. Called from the run's own task, so it must not block for long.
pub trait Observer: Send {
    fn observe(&mut self, notice: &RunNotice<'_>);
}

/// One thing that happened.
#[derive(Debug)]
pub enum RunNotice<'a> {
    /// The run begins: what it works with.
    Init(&'a Init),
    /// The machine took a step. `fault` is the failure's facts, if it was one.
    Step { transition: &'a Transition, fault: Option<&'a Fault> },
    /// A wait begins. Said exactly once for each.
    WaitBegins { pause: Pause, until: Moment, now: Moment, fault: Option<&'a Fault>, spent: Money },
    /// A wait is over.
    WaitEnds { pause: Pause, waited: Duration },
    /// Something takes long. Said every heartbeat at the latest.
    Heartbeat(Heartbeat<'a>),
    /// A raw event of the model's stream.
    StreamEvent(&'a Value),
    /// A block of the reply that streams in is complete: told where raw events are, before the
    /// event that ends it. `id` is that of its line in the transcript.
    Block { block: &'a Block, id: Uuid },
    /// Blocks that were told so are no part of the conversation: their reply was not kept.
    BlocksDropped { ids: &'a [Uuid] },
    /// A reply entered the history. Each part has an id.
    Assistant {
        message: &'a Message,
        ids: &'a [Uuid],
        id: &'a str,
        model: &'a str,
        stop_reason: Option<&'a str>,
        usage: Usage,
        request_id: Option<&'a str>,
    },
    /// What goes back to the model: tool results and notices.
    User { message: &'a Message, details: &'a [Value], ids: &'a [Uuid] },
    /// Another model answers from now on.
    ModelSwitched { from: &'a str, to: &'a str },
    /// A summary has taken the place of the older part of the conversation. In tokens, about.
    Compacted { before: u64, after: u64 },
    /// A recovery is over, one way or the other.
    RecoveryEnds(&'a RecoveryRecord),
    /// A background command was started, or has ended.
    Task(&'a BackgroundTask),
    /// A sub-agent was started, or has ended.
    Agent(&'a AgentTask),
    /// Something that happened to a sub-agent.
    OfAgent { agent: &'a AgentIdentity, notice: &'a RunNotice<'a> },
    /// A tool call was refused.
    Denied { tool: &'a str, id: &'a str, reason: &'a str },
    /// A hook begins, or is over.
    Hook(&'a HookProgress),
    /// What a hook says to people.
    HookSays { event: &'a str, text: &'a str },
    /// Something worth a line to whoever wants to know everything.
    Remark(&'a str),
    /// Something worth a line that is not an error.
    Warning(&'a str),
}

/// What a run works with, as `system`/`init` shows it.
#[derive(Clone, Debug)]
pub struct Init {
    pub session_id: String,
    pub cwd: String,
    pub model: String,
    pub tools: Vec<String>,
    /// The servers of the Model Context Protocol, as they stand when the run begins.
    pub servers: Vec<ServerReport>,
    pub permission_mode: String,
    pub api_key_source: String,
    pub sandbox: SandboxState,
    /// Names of variables that commands do not see.
    pub dropped_variables: Vec<String>,
    /// The memory files that the system prompt holds.
    pub memory_files: Vec<String>,
    /// The kinds of sub-agents there are.
    pub agents: Vec<String>,
    /// What the session cost before what this run counts.
    pub cost_before: Money,
}

/// What is being waited for, and how it stands.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat<'a> {
    pub waiting_for: WaitingFor<'a>,
    /// How long this wait has lasted.
    pub elapsed: Duration,
    /// When it ends, if that is known.
    pub ends_in: Option<Duration>,
    pub turn: u32,
    /// Time spent in retry waits, all in all.
    pub waited_in_all: Duration,
    /// What is known to have been billed.
    pub spent: Money,
    /// Since the model's last byte, while it streams.
    pub since_last_byte: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub enum WaitingFor<'a> {
    Retry(Pause),
    Model(&'a str),
    Tool {
        name: &'a str,
        id: &'a str,
    },
    /// The hooks of an event.
    Hook {
        event: &'a str,
    },
    /// The model is done, and this is not: a line for each background command.
    Work {
        running: &'a str,
    },
    /// Sub-agents: a line for each.
    Agents {
        running: &'a str,
    },
    /// Servers of the Model Context Protocol that start, for the first request.
    Servers {
        names: &'a str,
    },
    /// Other agents' calls, for which so much is reserved that the next one does not fit.
    Money,
}
