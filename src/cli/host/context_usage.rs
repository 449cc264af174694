//! The reply to `get_context_usage`: the sizes of the parts of the next request.

use std::sync::Arc;

use crate::agent::{Clock, ContextSize};
use crate::cli::assemble::{RequestHead, request_head};
use crate::cli::memory::{MemoryFile, MemoryOrigin};
use crate::cli::settings::Settings;
use crate::cli::timestamps::WallTime;
use crate::cli::usage::UsageError;
use crate::mcp::{Servers, tool_name_prefix};
use crate::messages::{
    ContextAgent, ContextCategory, ContextMemory, ContextTool, ContextUsage, ControlResult,
};
use crate::secrets::KnownSecrets;
use crate::tools::AgentDefinition;
use crate::transcript::{TokenDensity, ToolDefinition, fixed_bytes};

/// The beginning of the names of tools of MCP servers.
const MCP: &str = "mcp__";

/// Measures the next request of a session. `size` is the size of the conversation, if a turn has
/// begun in this process, and `messages` are the tokens of its messages.
///
/// # Errors
/// An error that would also prevent the next turn.
pub(super) fn measure(
    settings: &Settings,
    servers: &Arc<Servers>,
    secrets: &KnownSecrets,
    size: Option<ContextSize>,
    messages: u64,
) -> Result<ControlResult, UsageError> {
    let now = WallTime::from_clock(&Clock::start(1.0));
    let head = request_head(settings, servers, secrets, &now)?;
    let learned = size.as_ref().filter(|size| size.model == head.model).map(|size| size.window);
    let window = learned.unwrap_or(head.window);
    let (foreign, own): (Vec<&ToolDefinition>, Vec<&ToolDefinition>) =
        head.tools.iter().partition(|tool| tool.name.starts_with(MCP));
    let sum = |tools: &[&ToolDefinition]| tools.iter().map(|tool| tool_tokens(tool)).sum::<u64>();
    let memory: u64 = head.memory.files.iter().map(memory_tokens).sum();
    let part = |name, tokens, color| ContextCategory { name, tokens, color };
    let mut categories = vec![
        part("System prompt", text_tokens(&head.system), "gray"),
        part("System tools", sum(&own), "blue"),
        part("MCP tools", sum(&foreign), "cyan"),
        part("Memory files", memory, "yellow"),
        part("Messages", messages, "magenta"),
    ];
    let total: u64 = categories.iter().map(|part| part.tokens).sum();
    categories.push(part("Free space", window.saturating_sub(total), "white"));
    let threshold = head.compaction_threshold(window, total.saturating_sub(messages));
    Ok(ControlResult::ContextUsage(Box::new(ContextUsage {
        categories,
        total_tokens: total,
        max_tokens: threshold.unwrap_or(window),
        raw_max_tokens: window,
        percentage: percentage(total, window),
        is_auto_compact_enabled: threshold.is_some(),
        memory_files: head.memory.files.iter().map(memory_file).collect(),
        mcp_tools: foreign.iter().map(|tool| mcp_tool(tool, servers)).collect(),
        agents: agents(settings, &head),
        grid_rows: [],
        api_usage: size.and_then(|size| size.last_usage),
        auto_compact_threshold: threshold,
        model: head.model,
    })))
}

fn text_tokens(text: &str) -> u64 {
    TokenDensity::USUAL.of_text(text)
}

fn tool_tokens(tool: &ToolDefinition) -> u64 {
    let (with, without) = (fixed_bytes("", std::slice::from_ref(tool)), fixed_bytes("", &[]));
    TokenDensity::USUAL.tokens(with.saturating_sub(without))
}

fn memory_tokens(file: &MemoryFile) -> u64 {
    text_tokens(&file.text)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of tokens are small")]
fn percentage(total: u64, window: u64) -> f64 {
    let share = total as f64 / window.max(1) as f64 * 100.0;
    (share.min(100.0) * 10.0).round() / 10.0
}

fn memory_file(file: &MemoryFile) -> ContextMemory {
    let kind = match file.origin {
        MemoryOrigin::Machine => "Managed",
        MemoryOrigin::User => "User",
        MemoryOrigin::Project => "Project",
        MemoryOrigin::Local => "Local",
    };
    ContextMemory { path: file.path.display().to_string(), kind, tokens: memory_tokens(file) }
}

fn mcp_tool(tool: &ToolDefinition, servers: &Servers) -> ContextTool {
    let reports = servers.reports();
    let is_of = |name: &&str| tool.name.starts_with(&tool_name_prefix(name));
    // The longer match wins, as with servers named `a` and `a__b`.
    let names = reports.iter().map(|report| report.name.as_str()).filter(is_of);
    let server = names.max_by_key(|name| name.len());
    ContextTool {
        name: tool.name.clone(),
        server_name: server.unwrap_or_default().to_owned(),
        tokens: tool_tokens(tool),
        is_loaded: true,
    }
}

/// Lists the kinds of sub-agents. Their tokens are also counted for the tool that starts them.
fn agents(settings: &Settings, head: &RequestHead) -> Vec<ContextAgent> {
    let agent = |kind: &AgentDefinition| {
        let own = settings.library.agents.iter().find(|own| own.definition.name == kind.name);
        ContextAgent {
            agent_type: kind.name.clone(),
            source: own.map_or("built-in", |own| own.file.as_str()).to_owned(),
            tokens: text_tokens(&kind.name) + text_tokens(&kind.description),
        }
    };
    head.agents.iter().map(agent).collect()
}
