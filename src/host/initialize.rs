//! The `initialize` request of a host.

use serde_json::Value;

use super::fields::text;

/// The options that a host sets before its first prompt. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Initialize {
    /// Replaces the system prompt. An empty text removes it.
    pub system_prompt: Option<String>,
    pub append_system_prompt: Option<String>,
    /// Definitions of sub-agents, by name.
    pub agents: Option<Value>,
    /// The JSON Schema that answers must match.
    pub json_schema: Option<Value>,
    /// Hooks that run in the host, by event.
    pub hooks: Option<Value>,
    /// The names of the MCP servers that run in the host.
    pub sdk_servers: Vec<String>,
    /// Further MCP servers, by name (`--await-initialize`).
    pub servers: Option<Value>,
    /// Plugins (`--await-initialize`).
    pub plugins: Option<Value>,
    /// The skills that the model may know; `None`: all.
    pub skills: Option<Vec<String>>,
    pub forwards_subagent_text: bool,
}

impl Initialize {
    pub(super) fn parse(request: &Value) -> Self {
        let some = |field: &str| Some(request[field].clone()).filter(|value| !value.is_null());
        Self {
            system_prompt: some("systemPrompt").and_then(|prompt| joined(&prompt)),
            append_system_prompt: text(request, "appendSystemPrompt"),
            agents: some("agents"),
            json_schema: some("jsonSchema"),
            hooks: some("hooks"),
            sdk_servers: names(&request["sdkMcpServers"]),
            servers: some("mcpServers"),
            plugins: some("plugins"),
            skills: request["skills"].is_array().then(|| names(&request["skills"])),
            forwards_subagent_text: request["forwardSubagentText"] == true,
        }
    }
}

/// Returns the text of a system prompt, which is a string or a list of strings.
fn joined(prompt: &Value) -> Option<String> {
    match prompt {
        Value::String(prompt) => Some(prompt.clone()),
        Value::Array(parts) => {
            let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
            Some(parts.join("\n\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(ToOwned::to_owned).collect()
}
