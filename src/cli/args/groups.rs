//! The flags in groups. The syntax of each value is checked here; files are read and settings are
//! resolved later.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::cli::values;
use crate::recovery::Money;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The model's last words, and nothing at all when the run failed.
    Text,
    /// One result object on one line.
    #[default]
    Json,
    /// One message a line, the result last.
    StreamJson,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    #[default]
    Text,
    /// Known, so that it is rejected with its own message, but not listed.
    #[value(hide = true)]
    StreamJson,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetMode {
    /// No call is made that could cost more than is left.
    #[default]
    Ceiling,
    /// The cost is checked after each reply.
    After,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "camelCase")]
#[value(rename_all = "camelCase")]
pub enum PermissionMode {
    #[default]
    #[value(alias = "manual")]
    #[serde(alias = "manual")]
    Default,
    AcceptEdits,
    Plan,
    DontAsk,
    BypassPermissions,
}

impl PermissionMode {
    /// The name used on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::DontAsk => "dontAsk",
            Self::BypassPermissions => "bypassPermissions",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnDenied {
    /// The model is told, and makes the best of it.
    #[default]
    Continue,
    /// The run ends.
    Fail,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChildEnv {
    /// Everything but what looks like a secret.
    #[default]
    Scrub,
    /// Everything.
    Inherit,
    /// Only what `--pass-env` names, and what every command needs.
    Allowlist,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands may do what outlast may.
    Off,
    /// They write to the working tree, --add-dir folders, temporary folders and tool caches.
    Workspace,
    /// They write to temporary folders only.
    ReadOnly,
    /// As workspace, and nothing is begun if the kernel cannot hold all of it.
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SandboxNetwork {
    On,
    /// No TCP, not even to local ports. UDP and Unix sockets still work.
    Off,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct OutputArgs {
    /// Accepted for compatibility: outlast never asks questions
    #[arg(short = 'p', long)]
    pub print: bool,
    /// What standard output carries
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<OutputFormat>,
    /// How the prompt is given
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub input_format: Option<InputFormat>,
    /// With json: an array of all messages, the result last
    #[arg(long)]
    pub verbose: bool,
    /// Tell of every turn and tool on standard error
    #[arg(long)]
    pub log_detail: bool,
    /// With stream-json: raw stream events too
    #[arg(long)]
    pub include_partial_messages: bool,
    /// With stream-json: when each hook begins, and how it ends
    #[arg(long)]
    pub include_hook_events: bool,
    /// With stream-json: what sub-agents say and think too
    #[arg(long)]
    pub forward_subagent_text: bool,
    /// Write the result object to this file too, atomically
    #[arg(long, value_name = "PATH")]
    pub result_file: Option<PathBuf>,
    /// Touch this file with every sign of life
    #[arg(long, value_name = "PATH")]
    pub heartbeat_file: Option<PathBuf>,
    /// Read standard input to its end, whatever it is
    #[arg(long)]
    pub stdin: bool,
    /// Leave standard input alone
    #[arg(long, conflicts_with = "stdin")]
    pub no_stdin: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct LimitArgs {
    /// Stop after so many model replies
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub max_turns: Option<NonZeroU32>,
    /// Never spend more than this
    #[arg(long, value_name = "USD", value_parser = values::dollars, allow_negative_numbers = true)]
    pub max_budget_usd: Option<Money>,
    /// Whether the budget is a ceiling, or looked at after each reply
    #[arg(long, value_enum, value_name = "MODE")]
    pub budget_mode: Option<BudgetMode>,
    /// End in time, whatever goes wrong: 45m, 1h30m
    #[arg(long, alias = "deadline", value_name = "TIME", value_parser = values::duration,
          allow_negative_numbers = true)]
    pub max_duration: Option<Duration>,
    /// Go on until about so many output tokens are spent: 500k
    #[arg(long, value_name = "TOKENS", value_parser = values::tokens, allow_negative_numbers = true)]
    pub token_budget: Option<NonZeroU32>,
    /// Tries after the first one, for each request
    #[arg(long, value_name = "N", value_parser = values::retries, allow_negative_numbers = true)]
    pub max_retries: Option<u8>,
    /// End instead of waiting longer than this for the service
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_negative_numbers = true)]
    pub max_retry_wait: Option<Duration>,
    /// Do not share rate-limit state with other runs on this host
    #[arg(long)]
    pub no_shared_limits: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct AcceptanceArgs {
    /// Succeed only if this command passes when the model is done
    #[arg(long, value_name = "COMMAND")]
    pub require: Option<String>,
    /// How long that command may take
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_negative_numbers = true)]
    pub require_timeout: Option<Duration>,
    /// The shape of the answer: a JSON Schema, or a file of it
    #[arg(long, value_name = "JSON|PATH")]
    pub json_schema: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct ModelArgs {
    /// The model, or an alias of one
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// A command that prints the API key; outranks the environment
    #[arg(long, value_name = "COMMAND")]
    pub api_key_helper: Option<String>,
    /// Models to fall back to, best first; elsewhere: MODEL@URL#VARIABLE
    #[arg(long, value_name = "A,B")]
    pub fallback_model: Vec<String>,
    /// Fall back to nothing, whatever the settings say
    #[arg(long, conflicts_with = "fallback_model")]
    pub no_fallback: bool,
    /// After a while, try the first model again
    #[arg(long)]
    pub fallback_return: bool,
    /// Ask for fast answers where the service has them
    #[arg(long)]
    pub fast: bool,
    /// Dollars per million tokens: [MODEL=]IN/OUT[/CACHE-READ/CACHE-WRITE]
    #[arg(long, value_name = "PRICE")]
    pub price: Vec<String>,
    /// How much fits into a model's context window: [MODEL=]TOKENS
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub context_window: Vec<String>,
    /// Never summarise the conversation before it gets too long
    #[arg(long)]
    pub no_auto_compact: bool,
    /// How often a session's conversation may be summarised
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_compactions: Option<u8>,
    /// Replace the system prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,
    /// Replace the system prompt by a file's content
    #[arg(long, value_name = "PATH")]
    pub system_prompt_file: Option<PathBuf>,
    /// Add to the system prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "append_system_prompt_file")]
    pub append_system_prompt: Option<String>,
    /// Add a file's content to the system prompt
    #[arg(long, value_name = "PATH")]
    pub append_system_prompt_file: Option<PathBuf>,
    /// Add to the system prompt of every sub-agent
    #[arg(long, value_name = "TEXT")]
    pub append_subagent_system_prompt: Option<String>,
    /// Let the model think first: enabled, adaptive or disabled
    #[arg(long, value_name = "MODE", value_parser = ["enabled", "adaptive", "disabled"])]
    pub thinking: Option<String>,
    /// How many tokens of thinking a reply may hold; 0 for none
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_thinking_tokens: Option<u32>,
    /// How many tokens a reply may hold
    #[arg(long, value_name = "N", value_parser = values::tokens, allow_negative_numbers = true)]
    pub max_output_tokens: Option<NonZeroU32>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct ToolArgs {
    /// Tools and calls that need no further leave: Read,Bash(git log:*)
    #[arg(long, value_name = "RULES")]
    pub allowed_tools: Vec<String>,
    /// Tools and calls that are refused
    #[arg(long, value_name = "RULES")]
    pub disallowed_tools: Vec<String>,
    /// The only tools there are; "" for none, default for all
    #[arg(long, value_name = "NAMES")]
    pub tools: Option<Vec<String>>,
    /// What is allowed without a rule
    #[arg(long, value_enum, value_name = "MODE")]
    pub permission_mode: Option<PermissionMode>,
    /// The MCP tool that is asked about what the rules leave open, named as in a rule
    #[arg(long, value_name = "TOOL")]
    pub permission_prompt_tool: Option<String>,
    /// What becomes of the run when a tool call is denied
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_denied: Option<OnDenied>,
    /// The same as --permission-mode bypassPermissions
    #[arg(long)]
    pub dangerously_skip_permissions: bool,
    /// A further folder to work in; may be repeated
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,
    /// What commands may touch; off by itself with bypassPermissions
    #[arg(long, value_enum, value_name = "MODE")]
    pub sandbox: Option<SandboxMode>,
    /// Whether sandboxed commands have TCP
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub sandbox_network: Option<SandboxNetwork>,
    /// Which variables commands see
    #[arg(long, value_enum, value_name = "MODE")]
    pub child_env: Option<ChildEnv>,
    /// A variable that commands see in any case; may be repeated
    #[arg(long, value_name = "NAME")]
    pub pass_env: Vec<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct PromptArgs {
    /// Kinds of sub-agents, by name: JSON, or a file of it
    #[arg(long, value_name = "JSON|PATH")]
    pub agents: Option<String>,
    /// Work as an agent of this kind: with its prompt, its tools and its model
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Take /NAME at the beginning of the prompt as it is, and tell the model of no skills
    #[arg(long)]
    pub disable_slash_commands: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct McpArgs {
    /// Servers to start: JSON, or a file like .mcp.json; may be repeated
    #[arg(long, value_name = "JSON|PATH")]
    pub mcp_config: Vec<String>,
    /// No servers but those of --mcp-config
    #[arg(long)]
    pub strict_mcp_config: bool,
    /// Do not begin without these servers; all for every one, none for none
    #[arg(long, value_name = "NAMES")]
    pub mcp_required: Vec<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SessionArgs {
    /// Go on with the newest session of this folder
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub go_on: bool,
    /// Go on with this session
    #[arg(short = 'r', long, value_name = "ID")]
    pub resume: Option<String>,
    /// Go on with this session, or start it: the same command may be run again and again
    #[arg(
        long,
        value_name = "UUID",
        conflicts_with_all = [
            "resume", "go_on", "session_id", "fork_session", "no_session_persistence"
        ]
    )]
    pub resume_or_start: Option<String>,
    /// Where the session's file is damaged, go on from the last intact record before that
    #[arg(long)]
    pub to_last_intact: bool,
    /// Go on under a new id, and leave the old session as it is
    #[arg(long)]
    pub fork_session: bool,
    /// The id of the new session: a UUID
    #[arg(long, value_name = "UUID")]
    pub session_id: Option<String>,
    /// Keep no journal
    #[arg(long)]
    pub no_session_persistence: bool,
    /// More settings: JSON, or a file of it
    #[arg(long, value_name = "JSON|PATH")]
    pub settings: Option<String>,
    /// Which settings files are read: user, project, local
    #[arg(long, value_name = "A,B")]
    pub setting_sources: Option<String>,
    /// Read no CLAUDE.md and AGENTS.md
    #[arg(long)]
    pub no_memory: bool,
    /// Let the repository's own settings do what yours may
    #[arg(long)]
    pub trust_project: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct NetworkArgs {
    /// Certificate authorities to trust beside the system's, a PEM file; may be repeated
    #[arg(long, value_name = "PATH")]
    pub ca_file: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct TimerArgs {
    /// Cut a stream that brings no byte for so long
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub stream_idle_timeout: Option<Duration>,
    /// Cut a stream that brings no content for so long
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub stream_progress_timeout: Option<Duration>,
    /// How long the first byte of an answer may take
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub first_byte_timeout: Option<Duration>,
    /// How long connecting may take
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub connect_timeout: Option<Duration>,
    /// How long a streamed answer may take in all, for every 16,000 tokens it may hold
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub reply_timeout: Option<Duration>,
    /// How long an answer that is not streamed may take
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub request_timeout: Option<Duration>,
    /// How long a connection may show no sign of life, probes included
    #[arg(long, value_name = "TIME", value_parser = values::dead_path)]
    pub dead_path_timeout: Option<Duration>,
    /// How long standard input may stay silent while it is waited for
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub stdin_timeout: Option<Duration>,
    /// For rehearsals: let the run's time pass so many times faster
    #[arg(long, value_name = "X", value_parser = values::time_scale, allow_negative_numbers = true)]
    pub time_scale: Option<f64>,
}
