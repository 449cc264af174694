//! Converts a server's tools to tool definitions for the model. Pure.

use std::collections::HashSet;

use serde_json::Value;

use crate::transcript::{ToolDefinition, is_name_letter};

use super::schema;

/// The longest tool name that the API accepts.
const LONGEST_NAME: usize = 128;

/// The longest tool name that every gateway accepts.
const LONGEST_SAFE_NAME: usize = 64;

/// The longest description that is passed on, in characters: some servers send whole manuals.
const LONGEST_DESCRIPTION: usize = 4096;

const MOST_TOOLS: usize = 500;

/// The most bytes of all tool definitions of one server: every request contains them, and the
/// context window must leave room for the work.
const MOST_BYTES: usize = 256 << 10;

/// A server's tool, with its own name and its full name.
#[derive(Debug, PartialEq)]
pub(super) struct RemoteTool {
    /// The server's own name for it.
    pub(super) name: String,
    pub(super) definition: ToolDefinition,
    /// True if the server declares it read-only.
    pub(super) reads_only: bool,
}

impl RemoteTool {
    pub(super) fn new(name: &str, definition: ToolDefinition, reads_only: bool) -> Self {
        Self { name: name.to_owned(), definition, reads_only }
    }

    /// The approximate size in each request.
    fn bytes(&self) -> usize {
        let ToolDefinition { name, description, input_schema } = &self.definition;
        name.len() + description.len() + input_schema.to_string().len()
    }
}

/// Converts a listing. Invalid tools are left out with a warning: one of them would make the API
/// reject every request.
pub(super) fn convert_tools(server: &str, listed: &[Value]) -> (Vec<RemoteTool>, Vec<String>) {
    let (mut tools, mut warnings) = (Vec::new(), Vec::new());
    let (mut full_names, mut own_names, mut bytes) = (HashSet::new(), HashSet::new(), 0);
    let listed_names: HashSet<&str> =
        listed.iter().filter_map(|tool| described(tool)["name"].as_str()).collect();
    for entry in listed.iter().take(MOST_TOOLS) {
        let mut tool = match convert_tool(server, described(entry)) {
            Ok(tool) => tool,
            Err((name, why)) => {
                warnings.push(format!("{name:?} is left out: {why}"));
                continue;
            }
        };
        let name = tool.name.clone();
        if !own_names.contains(&name) {
            warnings.extend(rename_twin(&mut tool, server, &listed_names, &full_names));
        }
        if bytes + tool.bytes() > MOST_BYTES {
            warnings.push(format!(
                "{name:?} is left out: with it the server's tools would take more than {} KiB",
                MOST_BYTES >> 10
            ));
            continue;
        }
        if !full_names.insert(tool.definition.name.clone()) {
            warnings.push(format!("{name:?} is left out: it is listed twice"));
            continue;
        }
        bytes += tool.bytes();
        let length = tool.definition.name.len();
        if length > LONGEST_SAFE_NAME {
            warnings.push(format!(
                "{name:?} has a full name of {length} characters, and some gateways refuse more \
                 than {LONGEST_SAFE_NAME}: if requests fail, give the server a shorter name"
            ));
        }
        own_names.insert(name);
        tools.push(tool);
    }
    if let Some(first) = listed.get(MOST_TOOLS) {
        let (name, more) = (&described(first)["name"], listed.len() - MOST_TOOLS - 1);
        warnings.push(format!(
            "{name} and {more} after it are left out: {MOST_TOOLS} of a server are offered"
        ));
    }
    (tools, warnings)
}

/// Gives a tool another full name if another tool of the server would have the same one. A tool
/// without special characters in its name keeps it. Returns a warning if the name is changed.
fn rename_twin(
    tool: &mut RemoteTool,
    server: &str,
    listed: &HashSet<&str>,
    taken: &HashSet<String>,
) -> Option<String> {
    let plain = sanitize_name(&tool.name);
    let is_twin = |other: &&&str| ***other != *tool.name && sanitize_name(other) == plain;
    let twin = listed.iter().find(is_twin)?;
    if plain == tool.name {
        return None;
    }
    let prefix = tool_name_prefix(server);
    let is_free = |name: &String| {
        !taken.contains(&format!("{prefix}{name}"))
            && !listed.iter().any(|other| sanitize_name(other) == *name)
    };
    let number = (2..=MOST_TOOLS + 2).map(|number| format!("{plain}_{number}"));
    let name = number.into_iter().find(is_free)?;
    let warning = format!(
        "{:?} is offered as {name:?}: without special characters, its name is that of {twin:?}",
        tool.name
    );
    tool.definition.name = format!("{prefix}{name}");
    Some(warning)
}

/// The description of a tool, which some servers put into `function`, as other APIs do.
fn described(entry: &Value) -> &Value {
    let function = &entry["function"];
    if entry["name"].is_null() && function.is_object() { function } else { entry }
}

/// The names of the input schema, of the protocol and as other APIs write them.
const SCHEMA_NAMES: [&str; 3] = ["inputSchema", "input_schema", "parameters"];

fn convert_tool(server: &str, tool: &Value) -> Result<RemoteTool, (String, String)> {
    let name = tool["name"].as_str().unwrap_or_default();
    let short: String = name.chars().take(60).collect();
    let wrong = |why: &str| (short.clone(), why.to_owned());
    if name.is_empty() {
        return Err(wrong("it has no name"));
    }
    if tool["execution"]["taskSupport"] == "required" {
        return Err(wrong("it can only be called as a task, which outlast does not support"));
    }
    let full = format!("{}{}", tool_name_prefix(server), sanitize_name(name));
    if full.len() > LONGEST_NAME {
        return Err(wrong("its name is too long"));
    }
    let input_schema = SCHEMA_NAMES.iter().map(|name| &tool[*name]).find(|it| !it.is_null());
    let input_schema =
        schema::prepare_schema(input_schema.unwrap_or(&Value::Null)).map_err(wrong)?;
    let description = tool["description"].as_str().unwrap_or_default();
    let description = match description.char_indices().nth(LONGEST_DESCRIPTION) {
        Some((end, _)) => format!("{}...", &description[..end]),
        None => description.to_owned(),
    };
    let definition = ToolDefinition { name: full, description, input_schema };
    let reads_only = tool["annotations"]["readOnlyHint"] == Value::Bool(true);
    Ok(RemoteTool::new(name, definition, reads_only))
}

/// The common prefix of the names of a server's tools.
pub fn tool_name_prefix(server: &str) -> String {
    format!("mcp__{}__", sanitize_name(server))
}

/// The prefixes of calls of a server's prompts: with the server's name as configured, and as in the
/// names of tools.
pub fn call_prefixes(server: &str) -> [String; 2] {
    [format!("mcp__{server}__"), tool_name_prefix(server)]
}

/// Replaces characters that the API rejects in a tool name.
pub(super) fn sanitize_name(name: &str) -> String {
    name.chars().map(|letter| if is_name_letter(letter) { letter } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_invalid_mcp_tool_is_left_out_with_a_warning() {
        let object = json!({ "type": "object" });
        let listed = [
            json!({ "name": "list", "inputSchema": [] }),
            json!({ "name": "text", "inputSchema": { "type": "string" } }),
            json!({ "name": "props", "inputSchema": { "type": "object", "properties": [1] } }),
            json!({ "name": "any", "inputSchema": { "type": "object", "anyOf": {} } }),
            json!({ "inputSchema": object }),
            json!({ "name": "x".repeat(128), "inputSchema": object }),
            json!({
                "name": "task",
                "inputSchema": object,
                "execution": { "taskSupport": "required" },
            }),
            json!({
                "name": "get.sum",
                "description": "Adds",
                "inputSchema": object,
                "execution": { "taskSupport": "optional" },
            }),
            json!({ "name": "get.sum", "inputSchema": object }),
        ];
        let (offers, complaints) = convert_tools("my server", &listed);
        let [offer] = &offers[..] else { panic!("{offers:?}") };
        assert_eq!(offer.name, "get.sum");
        assert_eq!(offer.definition.name, "mcp__my_server__get_sum");
        assert_eq!(offer.definition.description, "Adds");
        assert_eq!(complaints.len(), 8, "{complaints:?}");
        assert!(complaints[6].contains("only be called as a task"), "{complaints:?}");
        assert!(complaints[7].contains("listed twice"), "{complaints:?}");
    }

    #[test]
    fn the_description_of_an_mcp_tool_is_read_in_the_forms_of_other_apis() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let function = json!({ "name": "c", "description": "d", "parameters": schema });
        let listed = [
            json!({ "name": "a", "input_schema": schema }),
            json!({ "name": "b", "inputSchema": schema.to_string() }),
            json!({ "type": "function", "function": function }),
        ];
        let (offers, complaints) = convert_tools("s", &listed);
        assert_eq!(complaints, [""; 0]);
        let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(offers.iter().all(|offer| offer.definition.input_schema == schema));
    }

    #[test]
    fn tools_whose_names_differ_in_special_characters_have_different_full_names() {
        let listed = ["get.sum", "get_sum", "get sum", "get_sum_2", "other"]
            .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
        let (offers, complaints) = convert_tools("s", &listed);
        let names: Vec<(&str, &str)> =
            offers.iter().map(|it| (it.name.as_str(), it.definition.name.as_str())).collect();
        assert_eq!(
            names,
            [
                ("get.sum", "mcp__s__get_sum_3"),
                ("get_sum", "mcp__s__get_sum"),
                ("get sum", "mcp__s__get_sum_4"),
                ("get_sum_2", "mcp__s__get_sum_2"),
                ("other", "mcp__s__other"),
            ]
        );
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].starts_with("\"get.sum\" is offered as \"get_sum_3\""));
    }

    #[test]
    fn the_tools_of_an_mcp_server_are_limited_in_total_size() {
        let tool = |name: usize, size: usize| {
            let words = json!({ "type": "string", "description": "x".repeat(size) });
            let schema = json!({ "type": "object", "properties": { "a": words } });
            json!({ "name": format!("t{name}"), "inputSchema": schema })
        };
        let listed: Vec<Value> = (0..10).map(|n| tool(n, 60_000)).chain([tool(10, 10)]).collect();
        let (offers, complaints) = convert_tools("s", &listed);
        let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
        assert_eq!(names, ["t0", "t1", "t2", "t3", "t10"]);
        assert_eq!(complaints.len(), 6, "{complaints:?}");
        assert!(complaints[0].contains("\"t4\" is left out: with it"), "{complaints:?}");
    }

    #[test]
    fn an_mcp_tool_with_a_long_name_is_offered_with_a_warning() {
        let name = "x".repeat(60);
        let listed = [json!({
            "name": name,
            "inputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true },
        })];
        let (offers, complaints) = convert_tools("s", &listed);
        assert!(offers[0].reads_only);
        assert!(complaints[0].contains("a full name of 68 characters"), "{complaints:?}");
    }
}
