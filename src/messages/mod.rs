//! Messages for the programs that read the output of a run: the result object and the lines of
//! `stream-json`. Their JSON Schema is derived from the types.

mod control;
mod names;
mod result;
mod schema;
mod stream;
mod system;

pub use control::{
    AccountEntry, AgentEntry, AppliedParts, CommandEntry, ContextAgent, ContextCategory,
    ContextMemory, ContextTool, ContextUsage, ControlResult, InitializeResult, McpServerStatus,
    McpToolEntry, ModelEntry, RestoredLines, RewindResult,
};
pub use names::{API_ERROR, BUDGET_EXHAUSTED, MCP_UNAVAILABLE};
pub use result::{
    AgentSummary, BackgroundSummary, BudgetSummary, ContractChange, DeferredToolUse, JournalState,
    JournalSummary, ModelUsage, ProbeTotals, RecoveryEntry, RecoverySummary, ResultKind,
    ResultObject, ResumeCommand, RetryAdvice, RunDetails, ServerToolUse, SharedLimitTotals,
    ToolCounts, UsageTotals,
};
pub use schema::{result_fields, result_schema, stream_schema};
pub use stream::{
    AgentOrigin, AssistantMessage, ControlReply, HostMessage, InputBlock, InputMessage,
    MessageBody, ReplyBlock, ReplyUsage, RequestId, RunMessage, StreamEvent, StreamMessage,
    UserMessage,
};
pub use system::{
    AgentCost, AgentUsage, ApiRetry, CompactionSizes, HeartbeatMessage, HookLabel, HookResponse,
    InformationalMessage, InitMessage, PluginEntry, RecoveryMessage, ServerError, SystemMessage,
    TaskNotification, TaskPatch, TaskStarted, WaitSubject,
};
