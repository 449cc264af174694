//! The `initialize` request of a host.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::text;

/// The mark with which a host separates the constant parts of its system prompt from the others. It
/// is not part of the text.
const PROMPT_BOUNDARY: &str = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__";

/// Options of the reference that are accepted and have no effect here.
const WITHOUT_EFFECT: [&str; 5] = [
    "agentProgressSummaries",
    "excludeDynamicSections",
    "perTaskStopAffordance",
    "planModeInstructions",
    "promptSuggestions",
];

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
    /// The entries of the MCP servers that run in the host, by name.
    pub sdk_servers: Map<String, Value>,
    /// Further MCP servers, by name (`--await-initialize`).
    pub servers: Option<Value>,
    /// Plugins (`--await-initialize`).
    pub plugins: Option<Value>,
    /// The skills that the model may know; `None`: all.
    pub skills: Option<Vec<String>>,
    /// The tools that the model means by other names.
    pub tool_aliases: BTreeMap<String, String>,
    /// The title of a new session.
    pub title: Option<String>,
    pub forwards_subagent_text: bool,
    /// The names of the options that have no effect.
    pub without_effect: Vec<&'static str>,
}

impl Initialize {
    pub(super) fn parse(request: &Value) -> Self {
        let some = |field: &str| Some(request[field].clone()).filter(|value| !value.is_null());
        let is_given = |field: &&str| some(field).is_some_and(|value| value != false);
        Self {
            system_prompt: some("systemPrompt").and_then(|prompt| joined(&prompt)),
            append_system_prompt: text(request, "appendSystemPrompt"),
            agents: some("agents"),
            json_schema: some("jsonSchema"),
            hooks: some("hooks"),
            sdk_servers: sdk_servers(request),
            servers: some("mcpServers"),
            plugins: some("plugins"),
            skills: request["skills"].is_array().then(|| names(&request["skills"])),
            tool_aliases: aliases(&request["toolAliases"]),
            title: text(request, "title"),
            forwards_subagent_text: request["forwardSubagentText"] == true,
            without_effect: WITHOUT_EFFECT.into_iter().filter(is_given).collect(),
        }
    }
}

/// Returns the text of a system prompt, which is a string or a list of strings.
fn joined(prompt: &Value) -> Option<String> {
    match prompt {
        Value::String(prompt) => Some(prompt.clone()),
        Value::Array(parts) => {
            let parts = parts.iter().filter_map(Value::as_str);
            let parts: Vec<&str> = parts.filter(|part| *part != PROMPT_BOUNDARY).collect();
            Some(parts.join("\n\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Returns the entries of the servers that run in the host, each with its own settings.
fn sdk_servers(request: &Value) -> Map<String, Value> {
    let entry = |name: String| {
        let settings = request["sdkMcpServerConfigs"][&name].as_object();
        let mut entry = settings.cloned().unwrap_or_default();
        entry.insert("type".to_owned(), json!("sdk"));
        (name, Value::Object(entry))
    };
    names(&request["sdkMcpServers"]).into_iter().map(entry).collect()
}

fn aliases(given: &Value) -> BTreeMap<String, String> {
    let pairs = given.as_object().into_iter().flatten();
    let pairs = pairs.filter_map(|(name, tool)| Some((name.clone(), tool.as_str()?.to_owned())));
    pairs.collect()
}

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(ToOwned::to_owned).collect()
}
