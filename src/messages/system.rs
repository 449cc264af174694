//! The `system` messages of `stream-json`. Amounts of money are US dollars.

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::repository::IgnoredSetting;
use crate::mcp::ServerReport;
use crate::tools::SandboxState;

use super::names;
use super::result::RecoveryEntry;

/// A message about the state of the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub enum SystemMessage {
    /// The first message of a run, and of each turn of a host.
    Init(Box<InitMessage>),
    /// A notice or a warning.
    Informational(InformationalMessage),
    /// The run waits, and then retries.
    ApiRetry(ApiRetry),
    /// The run waits for a rate limit that another run on this host has met.
    SharedLimitWait {
        /// In milliseconds.
        delay_ms: u64,
    },
    /// A heartbeat during a wait.
    Heartbeat(HeartbeatMessage),
    /// A recovery that is not a wait begins.
    Recovery(RecoveryMessage),
    /// A recovery has ended.
    RecoveryEnd(RecoveryEntry),
    /// Another model answers from now on.
    ModelFallback {
        from_model: String,
        to_model: String,
    },
    /// A summary has replaced the older part of the conversation.
    CompactBoundary {
        compact_metadata: CompactionSizes,
    },
    /// Messages that are not part of the conversation because their reply broke.
    ReplyDropped {
        /// The `uuid` of each.
        uuids: Vec<String>,
    },
    /// A host has changed the permission mode.
    Status {
        /// Always null: nothing is reported about requests.
        status: Option<&'static str>,
        #[serde(rename = "permissionMode")]
        permission_mode: &'static str,
    },
    /// A tool call was denied.
    PermissionDenied {
        tool_name: String,
        tool_use_id: String,
        message: String,
    },
    HookStarted(HookLabel),
    HookResponse(HookResponse),
    /// A sub-agent or background command was started.
    TaskStarted(TaskStarted),
    /// The status of a sub-agent or background command has changed.
    TaskUpdated {
        task_id: String,
        patch: TaskPatch,
    },
    /// A sub-agent or background command has ended.
    TaskNotification(TaskNotification),
    /// The user has completed the page of an MCP server's question.
    ElicitationComplete {
        mcp_server_name: String,
        elicitation_id: String,
    },
    /// The state of a host's session has changed.
    SessionStateChanged {
        /// `running`, `requires_action` or `idle`.
        state: &'static str,
        /// Always true: SDKs do not pass the message on.
        sdk_host_only: bool,
    },
}

/// The configuration of the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InitMessage {
    /// The working directory.
    pub cwd: String,
    pub tools: Vec<String>,
    pub mcp_servers: Vec<ServerReport>,
    /// Servers that were left out.
    pub mcp_server_errors: Vec<ServerError>,
    pub model: String,
    #[serde(rename = "permissionMode")]
    pub permission_mode: String,
    pub slash_commands: Vec<String>,
    /// The source of the credential.
    #[serde(rename = "apiKeySource")]
    pub api_key_source: String,
    /// The version of the interface that hosts compare.
    pub claude_code_version: &'static str,
    pub outlast_version: &'static str,
    /// The commit that the program was built from; `unknown` without git.
    pub outlast_commit: &'static str,
    /// The version of this format. It grows when a field changes its meaning or is removed.
    pub schema_version: u32,
    /// Settings of the repository that were ignored.
    pub ignored_settings: Vec<IgnoredSetting>,
    pub output_style: String,
    /// The types of sub-agents.
    pub agents: Vec<String>,
    pub skills: Vec<String>,
    pub plugins: Vec<PluginEntry>,
    pub sandbox: SandboxState,
    /// Environment variables that commands do not get.
    pub dropped_env: Vec<String>,
    pub memory_files: Vec<String>,
}

/// An MCP server that was left out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ServerError {
    pub name: String,
    /// `invalid_config`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub message: String,
}

/// A plugin of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PluginEntry {
    pub name: String,
    /// The folder of the plugin.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A notice or a warning.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InformationalMessage {
    pub content: String,
    /// `info` or `warning`.
    pub level: &'static str,
    /// The event of the hook that the message is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_event: Option<&'static str>,
}

/// A wait before a retry.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ApiRetry {
    /// The number of the next retry, counted from 1.
    pub attempt: u8,
    /// Null if retries are not limited by number.
    pub max_retries: Option<u8>,
    pub retry_delay_ms: u64,
    /// The HTTP status.
    pub error_status: Option<u16>,
    /// The category of the error that hosts know.
    pub error: &'static str,
    pub error_class: &'static str,
    /// The id of the failed request, from the service.
    pub request_id: Option<String>,
    /// The timer that expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<&'static str>,
}

/// A heartbeat during a wait.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeartbeatMessage {
    pub waiting_for: WaitSubject,
    /// Time of this wait so far, in milliseconds.
    pub elapsed_ms: u64,
    /// Time until the wait ends, in milliseconds, if that is known.
    pub ends_in_ms: Option<u64>,
    /// Time since the last byte of the model, in milliseconds, while it streams.
    pub since_last_byte_ms: Option<u64>,
    pub turn: u32,
    /// Time spent in waits before retries so far, in milliseconds.
    pub waited_ms: u64,
    /// The cost of the session so far. Null if a price is not known.
    pub total_cost_usd: Option<f64>,
}

/// The subject of a wait.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WaitSubject {
    /// A rate limit that another run on this host has met.
    SharedLimit,
    Retry {
        error_class: &'static str,
        attempt: u8,
        max_retries: Option<u8>,
    },
    Model {
        model: String,
    },
    Tool {
        tool_name: String,
        tool_use_id: String,
    },
    /// The answer of the host or of a tool to the question whether a call is allowed.
    Permission {
        tool_name: String,
        tool_use_id: String,
    },
    /// The answer of the host to a question of an MCP server.
    Elicitation {
        server: String,
    },
    Hook {
        event: &'static str,
    },
    /// Background commands, a line for each.
    Background {
        running: String,
    },
    /// Sub-agents, a line for each.
    Agents {
        running: String,
    },
    /// MCP servers that are starting.
    Mcp {
        servers: String,
    },
    /// The disk of the journal at this path.
    Journal {
        path: String,
    },
    /// Calls of other agents that have reserved the rest of the budget.
    Budget,
}

/// A recovery that is not a wait.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecoveryMessage {
    /// The name of the recovery plan.
    pub strategy: &'static str,
    #[schemars(schema_with = "names::error_class_or_null")]
    pub error_class: Option<&'static str>,
    /// The reason of the service to refuse fast mode. Only for the plan that turns it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Option<String>>,
}

/// The size of the conversation around its compaction, in tokens.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CompactionSizes {
    /// `auto`.
    pub trigger: &'static str,
    pub pre_tokens: u64,
    pub post_tokens: u64,
}

/// The identity of a hook run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HookLabel {
    /// The id of the hook run, equal in `hook_started` and `hook_response`.
    pub hook_id: String,
    /// The event and its subject, as `PreToolUse:Bash`.
    pub hook_name: String,
    pub hook_event: &'static str,
}

/// The end of a hook run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HookResponse {
    #[serde(flatten)]
    pub hook: HookLabel,
    /// A copy of `stdout`.
    pub output: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: Option<i32>,
    /// `success`, `error` or `cancelled`.
    pub outcome: &'static str,
}

/// The start of a sub-agent or background command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskStarted {
    pub task_id: String,
    /// The tool call that started it.
    pub tool_use_id: String,
    pub description: String,
    /// `local_agent` or `local_bash`.
    pub task_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    pub is_backgrounded: bool,
    /// The sub-agent that started the sub-agent; null if the run itself did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_agent_id: Option<Option<String>>,
}

/// The new status of a task.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TaskPatch {
    /// `completed`, `failed` or `killed`.
    pub status: &'static str,
}

/// The end of a sub-agent or background command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskNotification {
    pub task_id: String,
    /// The tool call that started it.
    pub tool_use_id: String,
    /// The file with the output; empty if there is none.
    pub output_file: String,
    pub summary: String,
    #[serde(flatten)]
    pub agent: Option<AgentCost>,
    /// `completed`, `failed` or `stopped`.
    pub status: &'static str,
}

/// Usage and cost of a sub-agent.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct AgentCost {
    pub usage: AgentUsage,
    /// Null if a price is not known.
    pub total_cost_usd: Option<f64>,
    /// The part of the cost that is an upper bound.
    pub unsettled_usd: f64,
}

/// Usage of a sub-agent.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct AgentUsage {
    pub total_tokens: u64,
    pub tool_uses: u32,
    pub duration_ms: u64,
}
