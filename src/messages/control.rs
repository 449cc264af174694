//! The contents of replies to the requests of a host. Their names are those that SDKs read.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::mcp::{ServerIdentity, ServerReport};
use crate::transcript::Usage;

/// The content of the reply to a request that succeeded.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ControlResult {
    /// Of a request that asks for nothing.
    Done {},
    Initialized(Box<InitializeResult>),
    Interrupted {
        /// The ids of the prompts that follow.
        still_queued: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cancelled: Option<Vec<String>>,
    },
    PermissionMode {
        mode: &'static str,
    },
    Model {
        model: Option<String>,
    },
    ContextUsage(Box<ContextUsage>),
    Rewound(RewindResult),
    McpStatus {
        #[serde(rename = "mcpServers")]
        servers: Vec<McpServerStatus>,
    },
    McpServers {
        added: Vec<String>,
        removed: Vec<String>,
        /// The reason for each server that was not added, by its name.
        errors: Map<String, Value>,
    },
}

/// The reply to `initialize`.
#[derive(Clone, Debug, Serialize)]
pub struct InitializeResult {
    pub commands: Vec<CommandEntry>,
    pub agents: Vec<AgentEntry>,
    pub output_style: String,
    pub available_output_styles: Vec<String>,
    pub models: Vec<ModelEntry>,
    pub account: AccountEntry,
    pub claude_code_version: &'static str,
    pub pid: u32,
    pub current_permission_mode: &'static str,
    pub session_state: &'static str,
    pub hook_on_failure_supported: bool,
    #[serde(flatten)]
    pub applied: AppliedParts,
}

/// The optional parts of `initialize` that were given, and so have been applied.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AppliedParts {
    #[serde(rename = "hooks_applied")]
    pub hooks: bool,
    #[serde(rename = "mcp_servers_applied")]
    pub servers: bool,
    #[serde(rename = "plugins_applied")]
    pub plugins: bool,
}

/// A command or skill that prompts can call.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandEntry {
    pub name: String,
    pub description: String,
    pub argument_hint: String,
}

/// A type of sub-agents.
#[derive(Clone, Debug, Serialize)]
pub struct AgentEntry {
    pub name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEntry {
    pub value: String,
    pub display_name: String,
    pub description: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountEntry {
    pub api_key_source: String,
}

/// The sizes of the parts of the next request, in tokens.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    pub categories: Vec<ContextCategory>,
    pub total_tokens: u64,
    /// The size at which a compaction begins, or of the window.
    pub max_tokens: u64,
    pub raw_max_tokens: u64,
    pub percentage: f64,
    pub model: String,
    pub is_auto_compact_enabled: bool,
    pub memory_files: Vec<ContextMemory>,
    pub mcp_tools: Vec<ContextTool>,
    pub agents: Vec<ContextAgent>,
    /// Always empty: outlast draws no picture.
    pub grid_rows: [(); 0],
    pub api_usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_compact_threshold: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ContextCategory {
    pub name: &'static str,
    pub tokens: u64,
    pub color: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct ContextMemory {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub tokens: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextTool {
    pub name: String,
    pub server_name: String,
    pub tokens: u64,
    pub is_loaded: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextAgent {
    pub agent_type: String,
    /// Its file.
    pub source: String,
    pub tokens: u64,
}

/// The outcome of restoring files.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RewindResult {
    pub can_rewind: bool,
    #[serde(flatten)]
    pub restored: Option<RestoredLines>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredLines {
    pub files_changed: Vec<String>,
    pub insertions: usize,
    pub deletions: usize,
}

/// The status and the tools of an MCP server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerStatus {
    #[serde(flatten)]
    pub report: ServerReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_info: Option<ServerIdentity>,
    pub tools: Vec<McpToolEntry>,
}

#[derive(Clone, Debug, Serialize)]
pub struct McpToolEntry {
    pub name: String,
    pub description: String,
}
