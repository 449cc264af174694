//! Lists the largest parts of a request that exceeds the context window.

use std::collections::BTreeMap;

use super::compaction::is_root;
use super::excerpt::excerpt_line;
use super::measure::fixed_bytes;
use super::tool_exchanges::tool_exchanges;
use super::{Block, Message, Role, TokenDensity, ToolDefinition};

/// A part of a request, worded to follow "the largest part is".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contributor {
    pub what: String,
    /// The estimated size.
    pub tokens: u64,
}

/// The `most` largest parts of a request, largest first. Each tool result is a
/// separate part; all model replies together are one.
pub fn largest_parts(
    messages: &[Message],
    system: &str,
    tools: &[ToolDefinition],
    density: TokenDensity,
    most: usize,
) -> Vec<Contributor> {
    let mut parts = Vec::new();
    let mut add = |what: String, tokens| parts.push(Contributor { what, tokens });
    if !system.trim().is_empty() {
        add("the system prompt".to_owned(), density.tokens(fixed_bytes(system, &[])));
    }
    if !tools.is_empty() {
        add(describe_tools(tools), density.tokens(fixed_bytes("", tools)));
    }
    let replies: Vec<&Message> = messages.iter().filter(|m| m.role == Role::Assistant).collect();
    if !replies.is_empty() {
        let tokens = density.of_blocks(replies.iter().flat_map(|message| &message.content));
        let count = match replies.len() {
            1 => "1 reply".to_owned(),
            count => format!("{count} replies"),
        };
        add(format!("what the model said in {count}"), tokens);
    }
    for exchange in tool_exchanges(messages) {
        let what = format!("the result of {}", exchange.call_label());
        add(what, density.of_blocks(exchange.content));
    }
    for (at, message) in messages.iter().enumerate().filter(|(_, m)| m.role == Role::User) {
        let is_text = |block: &&Block| !matches!(block, Block::ToolResult { .. });
        let tokens = density.of_blocks(message.content.iter().filter(is_text));
        let first = message.content.iter().filter(is_text).find_map(Block::as_text);
        let what = match (at, first) {
            (0, _) if is_root(message) => "the task and the summary of earlier work".to_owned(),
            (0, _) => "the task".to_owned(),
            (_, Some(text)) => format!("the message \"{}\"", excerpt_line(text, 60)),
            (_, None) => "media in a message".to_owned(),
        };
        add(what, tokens);
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.tokens));
    parts.truncate(most);
    parts.retain(|part| part.tokens > 0);
    parts
}

/// Describes the tools, and names the MCP server with the most tools.
fn describe_tools(tools: &[ToolDefinition]) -> String {
    let mut servers: BTreeMap<&str, usize> = BTreeMap::new();
    let names = tools.iter().filter_map(|tool| tool.name.strip_prefix("mcp__")?.split_once("__"));
    for (server, _tool) in names {
        *servers.entry(server).or_default() += 1;
    }
    let most = servers.into_iter().max_by_key(|(_, count)| *count);
    let of_server = most.map(|(server, count)| format!(" ({count} from MCP server {server})"));
    format!("the definitions of {} tools{}", tools.len(), of_server.unwrap_or_default())
}
