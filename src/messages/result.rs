//! The result object: how a run ended. Amounts of money are US dollars.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::agent::{AgentStatus, HookStats};
use crate::config::repository::IgnoredSetting;
use crate::journal::{Damage, Denial, ModelSpan, ToolStats};
use crate::mcp::McpStats;
use crate::model::RateLimits;
use crate::process::Refusal;
use crate::recovery::RecoveryCounts;
use crate::tools::{RequirementReport, SandboxState};

use super::names;

/// The result of a run, a turn of a host, or a command line that cannot be run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ResultObject {
    #[serde(rename = "type")]
    pub kind: ResultKind,
    /// `success`, or the kind of error.
    #[schemars(schema_with = "names::subtypes")]
    pub subtype: &'static str,
    pub is_error: bool,
    /// The exit code of the process.
    pub exit_code: u8,
    /// The version of this format. It grows when a field changes its meaning or is removed.
    pub schema_version: u32,
    pub outlast_version: &'static str,
    /// The commit that the program was built from; `unknown` without git.
    pub outlast_commit: &'static str,
    /// The id of the session; empty if there is none.
    pub session_id: String,
    /// The id of this result.
    pub uuid: String,
    /// The answer, or the structured output as JSON text. Only on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The received part of the answer. Only on failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<String>,
    /// The errors, a line each. Only on failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<String>>,
    /// The answer to `--json-schema`. Only on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<Value>,
    /// The number of answers that were validated against the schema of `--json-schema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_attempts: Option<u32>,
    /// The command of `--require`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirement: Option<RequirementReport>,
    /// The reason that the run ended. Absent if it did not begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "names::terminal_reasons")]
    pub terminal_reason: Option<&'static str>,
    /// The stop reason of the last reply, as the service gave it.
    pub stop_reason: Option<String>,
    /// The HTTP status of the last failure, if the run ended because of one.
    pub api_error_status: Option<u16>,
    #[serde(flatten)]
    pub retry: Option<RetryAdvice>,
    /// Replies of the model that entered the conversation.
    pub num_turns: u32,
    /// Time of the run, in milliseconds.
    pub duration_ms: u64,
    /// Time spent in requests to the model, in milliseconds.
    pub duration_api_ms: u64,
    /// Time to the first token, in milliseconds.
    pub ttft_ms: Option<u64>,
    /// The cost of the session since its first prompt. Null if a price is not known.
    pub total_cost_usd: Option<f64>,
    pub usage: UsageTotals,
    /// The usage by model, in the order of first use.
    #[serde(rename = "modelUsage", serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, ModelUsage>")]
    pub model_usage: Vec<(String, ModelUsage)>,
    /// Tool calls that were denied, those of sub-agents included.
    pub permission_denials: Vec<Denial>,
    pub recovery: RecoverySummary,
    pub tools: ToolCounts,
    /// The sub-agents that were started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentSummary>,
    #[serde(flatten)]
    pub run: Option<RunDetails>,
    /// Connections that the list of hosts refused to commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_refused: Option<Vec<Refusal>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpStats>,
    /// Terms of the resumed session that flags changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contract_changes: Vec<ContractChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred_tool_use: Option<DeferredToolUse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<RateLimits>,
    /// A description of what standard input added to the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// The id that the host gave the prompt. Only for hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_message_uuid: Option<String>,
    /// The origin of the prompt, as the host stated it. Only for hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
}

impl ResultObject {
    /// Converts the result of a run whose session is deleted when the process ends.
    #[must_use]
    pub fn without_session(mut self) -> Self {
        if let Some(retry) = &mut self.retry {
            retry.resume = None;
        }
        if let Some(run) = &mut self.run {
            run.durable = false;
            run.journal.state = JournalState::Off;
        }
        self
    }

    /// Converts the result to JSON.
    pub fn to_value(&self) -> Value {
        // No field has a type that can fail, as a path does that is not UTF-8.
        serde_json::to_value(self).expect("all keys are strings")
    }
}

/// The `type` of a result.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    #[default]
    Result,
}

/// The failure of the service, and the way to try again.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RetryAdvice {
    /// The class of the last failure, if the run ended because of one.
    #[schemars(schema_with = "names::error_class_or_null")]
    pub api_error_class: Option<&'static str>,
    /// True if the same run may succeed later.
    pub retryable: bool,
    /// The time from which trying again makes sense, as an RFC 3339 timestamp in UTC.
    pub retry_at: Option<String>,
    /// The id of the failed request, from the service.
    pub request_id: Option<String>,
    /// The command that resumes the session after a failure.
    pub resume: Option<ResumeCommand>,
}

/// The way to resume a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResumeCommand {
    pub session_id: String,
    /// A command line for a shell.
    pub command: String,
}

/// Details of a run that began.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunDetails {
    /// The background commands and sub-agents.
    pub background: Vec<BackgroundSummary>,
    pub budget: BudgetSummary,
    /// True if the session is on disk.
    pub durable: bool,
    pub journal: JournalSummary,
    pub warnings: Vec<String>,
    pub sandbox: SandboxState,
    /// Settings of the repository that were ignored.
    pub ignored_settings: Vec<IgnoredSetting>,
    pub hooks: HookStats,
}

/// Token counts of the run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct UsageTotals {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub server_tool_use: ServerToolUse,
    /// Always null.
    pub service_tier: Option<String>,
}

/// Calls of tools that the service runs.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct ServerToolUse {
    pub web_search_requests: u64,
    pub web_fetch_requests: u64,
}

/// Usage of one model. The names of the fields are those of the SDKs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub web_search_requests: u64,
    /// Null if the price of the model is not known.
    #[serde(rename = "costUSD")]
    pub cost_usd: Option<f64>,
    /// In tokens.
    pub context_window: u64,
    /// In tokens.
    pub max_output_tokens: u32,
}

/// Totals of retries and other recoveries, with the latest records.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RecoverySummary {
    /// Requests to the model, failed ones included.
    pub requests: u32,
    /// Failed calls that were recovered from or retried.
    pub retries: u32,
    #[schemars(with = "BTreeMap<String, u32>")]
    pub retries_by_class: RecoveryCounts,
    /// Recovery plans, by name.
    #[schemars(with = "BTreeMap<String, u32>")]
    pub strategies: RecoveryCounts,
    /// Time spent in waits, in milliseconds.
    pub waited_ms: u64,
    pub shared_limits: SharedLimitTotals,
    pub probes: ProbeTotals,
    /// Violations of the message rules that were repaired before a request.
    pub repairs: u32,
    /// Summaries that replaced an older part of the conversation.
    pub compactions: u32,
    /// Changes from one model to another because of a failure.
    pub fallbacks: u32,
    /// Recoveries that reached their goal.
    pub saved: u32,
    /// Recoveries that did not.
    pub lost: u32,
    /// The models that answered, with their first turns.
    pub models: Vec<ModelSpan>,
    /// The latest recoveries.
    pub records: Vec<RecoveryEntry>,
    /// Recoveries that are no longer listed in `records`.
    pub records_dropped: u32,
}

/// Waits for a rate limit that another run on this host has met.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct SharedLimitTotals {
    pub waits: u32,
    /// In milliseconds.
    pub waited_ms: u64,
}

/// Probes whether the service has capacity again.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct ProbeTotals {
    pub sent: u32,
    /// Null if a price is not known.
    pub cost_usd: Option<f64>,
}

/// A finished recovery: all failures of one call until a whole reply came.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecoveryEntry {
    /// The first failure: an error class, or another name.
    pub class: String,
    /// All failures, by class.
    #[schemars(with = "BTreeMap<String, u32>")]
    pub failures: RecoveryCounts,
    /// The last recovery plan.
    pub strategy: String,
    /// All recovery plans, by name.
    #[schemars(with = "BTreeMap<String, u32>")]
    pub strategies: RecoveryCounts,
    /// The reason that the loop continued, if the last plan has a name for it.
    pub transition: Option<String>,
    /// The turn in which the recovery began, counted from 1.
    pub turn: u32,
    /// Requests of the call, or checks of an answer or a command.
    pub attempts: u32,
    /// Time spent in waits, in milliseconds.
    pub waited_ms: u64,
    /// Time from the first failure to the end, in milliseconds.
    pub took_ms: u64,
    /// Input and output tokens that were paid for in addition to the expected reply.
    pub tokens: u64,
    /// The cost of these tokens. Null if a price is not known.
    pub cost_usd: Option<f64>,
    /// True if the goal was reached.
    pub saved: bool,
    /// The `terminal_reason` of the run, if the goal was not reached.
    pub lost_to: Option<String>,
}

/// Counts of tool calls by outcome.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct ToolCounts {
    #[serde(flatten)]
    pub stats: ToolStats,
    /// Calls of an earlier process whose outcome is unknown.
    pub unknown_outcomes: u32,
}

/// A sub-agent, and its costs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentSummary {
    pub id: String,
    /// The tool call that started it.
    pub tool_use_id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub description: String,
    /// The sub-agent that started it. Null if the run itself did.
    pub parent: Option<String>,
    /// 1 if the run itself started it.
    pub depth: u8,
    /// The failed sub-agent that this one retries.
    pub retries: Option<String>,
    /// True if it was started in the background.
    pub background: bool,
    pub status: AgentStatus,
    /// Its `terminal_reason`.
    pub reason: Option<&'static str>,
    #[schemars(schema_with = "names::error_class_or_null")]
    pub error_class: Option<&'static str>,
    /// The error of the service that ended it.
    pub error: Option<String>,
    pub model: String,
    /// Its conversation, as `SESSION/subagents/agent-ID`.
    pub session: String,
    pub num_turns: u32,
    pub tokens: u64,
    pub tool_calls: u32,
    pub requests: u32,
    /// The time from its first step to its last one, in milliseconds.
    pub duration_ms: u64,
    /// Null if a price is not known.
    pub cost_usd: Option<f64>,
    /// The part of the cost that is an upper bound.
    pub unsettled_usd: f64,
}

/// A background command or sub-agent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BackgroundSummary {
    pub id: String,
    /// `command` or `agent`.
    pub kind: &'static str,
    /// The tool call that started it.
    pub tool_use_id: String,
    /// The command line, possibly truncated; for a sub-agent, its type.
    pub command: String,
    /// `running`, `completed`, `failed`, `killed`, `timed_out`, `memory_exceeded`, or `cut` if the
    /// run ended first.
    pub status: &'static str,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub output_bytes: u64,
    /// The file with the output, if that is long.
    pub output_file: Option<String>,
    /// True if the run ended first.
    pub cut: bool,
}

/// The budget of the run.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct BudgetSummary {
    /// The value of `--max-budget-usd`.
    pub ceiling_usd: Option<f64>,
    /// The amount that counts against the budget. Null if a price is not known.
    pub spent_usd: Option<f64>,
    /// The part of it that is an upper bound. Null if a price is not known.
    pub unsettled_usd: Option<f64>,
    /// Replies with impossible token counts, which were cut.
    pub clamped_replies: u32,
}

/// The journal of the session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JournalSummary {
    pub state: JournalState,
    /// The reason that the journal was lost or taken over.
    pub error: Option<String>,
    /// Records dropped as torn when the session was resumed.
    pub dropped_records: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
}

/// The state of the journal at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalState {
    /// All records are on disk.
    Durable,
    /// The session is not kept.
    Off,
    /// A write failed.
    Lost,
    /// Another process took the session over.
    TakenOver,
}

/// A term of a session that flags changed when it was resumed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ContractChange {
    pub name: &'static str,
    pub was: Value,
    pub now: Value,
}

/// A call that a hook deferred.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeferredToolUse {
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// Serializes pairs as an object, in their order.
fn as_map<S: Serializer>(pairs: &[(String, ModelUsage)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}
