//! Resources of servers, which two tools of outlast list and read.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::transcript::ToolDefinition;
use crate::types::CallPermission;

use super::calls::{RequestError, ServerRequest};
use super::connection::{add_next_cursor, page_params};
use super::content::CallReply;
use super::remote_tool::{RemoteTool, tool_name_prefix};
use super::server_task::ServerTask;
use super::servers::Servers;
use super::state::ServerStatus;

pub(super) const LIST: &str = "ListMcpResources";

pub(super) const READ: &str = "ReadMcpResource";

/// The most resources listed of one server.
const MOST_LISTED: usize = 500;

const MOST_PAGES: usize = 20;

/// A kind of list: the method of its requests, and the key in the answers.
type Listing = (&'static str, &'static str);

const LISTINGS: [Listing; 2] =
    [("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")];

static TOOLS: LazyLock<[RemoteTool; 2]> = LazyLock::new(|| {
    let server = json!({ "type": "string", "description": "A server's name" });
    let uri = json!({ "type": "string", "description": "Its URI, as it is listed" });
    let list = ToolDefinition {
        name: LIST.to_owned(),
        description: "Lists the resources that MCP servers have, one a line: those of one server, \
                      or of all."
            .to_owned(),
        input_schema: json!({ "type": "object", "properties": { "server": server } }),
    };
    let read = ToolDefinition {
        name: READ.to_owned(),
        description: "Reads a resource of an MCP server.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": { "server": server, "uri": uri },
            "required": ["server", "uri"],
        }),
    };
    [RemoteTool::new(LIST, list, true), RemoteTool::new(READ, read, true)]
});

impl Servers {
    /// The definitions of the two tools, if a server has resources.
    pub(super) fn resource_tools(&self) -> &'static [RemoteTool] {
        if self.with_resources().next().is_none() { &[] } else { TOOLS.as_slice() }
    }

    /// One of the two tools, if they are offered.
    pub(super) fn resource_tool(&self, tool: &str) -> Option<&'static RemoteTool> {
        self.resource_tools().iter().find(|offer| offer.definition.name == tool)
    }

    fn with_resources(&self) -> impl Iterator<Item = Arc<ServerTask>> {
        self.members().into_iter().filter(|member| member.info().has_resources)
    }

    /// The servers with resources that an input selects: the one that it names, by the configured
    /// name or as in the names of tools, in any case, or all.
    fn selected_servers(&self, input: &Value) -> Vec<Arc<ServerTask>> {
        let all: Vec<Arc<ServerTask>> = self.with_resources().collect();
        let Some(wanted) = input["server"].as_str().filter(|name| !name.is_empty()) else {
            return all;
        };
        if let Some(exact) = all.iter().find(|member| member.config.name == wanted) {
            return vec![Arc::clone(exact)];
        }
        let wanted = wanted.strip_prefix("mcp__").unwrap_or(wanted).trim_end_matches("__");
        let prefix = tool_name_prefix(wanted);
        let own_prefix = |member: &Arc<ServerTask>| tool_name_prefix(&member.config.name);
        let has_exact = all.iter().any(|member| own_prefix(member) == prefix);
        let is_selected = |member: &Arc<ServerTask>| {
            let own = own_prefix(member);
            own == prefix || (!has_exact && own.eq_ignore_ascii_case(&prefix))
        };
        all.into_iter().filter(is_selected).collect()
    }

    /// The permission that a resource tool needs. Listing needs none; reading is treated like a
    /// tool of the server.
    pub(super) fn resource_tool_permission(&self, tool: &str, input: &Value) -> CallPermission {
        if tool == LIST {
            return CallPermission::NotNeeded;
        }
        let selected = self.selected_servers(input);
        let server = match &selected[..] {
            [member] => member.config.name.as_str(),
            _ => input["server"].as_str().unwrap_or_default(),
        };
        let server = tool_name_prefix(server);
        CallPermission::Rule {
            name: format!("{server}{READ}"),
            own: None,
            server,
            reads_only: true,
        }
    }

    /// Executes one of the two tools.
    pub(super) async fn call_resource_tool(
        &self,
        tool: &str,
        input: &Value,
        may_use: &(dyn Fn(&str) -> bool + Sync),
        cancel: &CancellationToken,
    ) -> CallReply {
        let may_list = |member: &Arc<ServerTask>| may_use(&tool_name_prefix(&member.config.name));
        let members: Vec<Arc<ServerTask>> =
            self.selected_servers(input).into_iter().filter(may_list).collect();
        if members.is_empty() {
            let names: Vec<String> =
                self.with_resources().filter(may_list).map(|it| it.config.name.clone()).collect();
            let names = names.join(", ");
            return CallReply::error(format!("no such server has resources; there are: {names}"));
        }
        if tool == LIST {
            return self.list_resources(&members, cancel).await;
        }
        let (Some(uri), [member]) = (input["uri"].as_str(), &members[..]) else {
            return CallReply::error("\"server\" and \"uri\" must both be given, as texts");
        };
        let request = ServerRequest { method: "resources/read", params: json!({ "uri": uri }) };
        match member.request(READ, &request, self.timers, cancel).await {
            Ok(result) => CallReply::from_resource(&result),
            Err(why) => CallReply::error(why.to_string()),
        }
    }

    async fn list_resources(
        &self,
        members: &[Arc<ServerTask>],
        cancel: &CancellationToken,
    ) -> CallReply {
        let (mut lines, mut failures) = (Vec::new(), Vec::new());
        for member in members {
            let name = &member.config.name;
            let is_gone = matches!(
                member.report().status,
                ServerStatus::Failed | ServerStatus::NeedsAuth | ServerStatus::Disabled
            );
            if is_gone {
                failures.push(format!("{name}: it is no longer available"));
                continue;
            }
            for listing in LISTINGS {
                match self.list_page_entries(member, listing, cancel).await {
                    Ok(found) => lines.extend(found),
                    // Servers need not implement templates.
                    Err(_) if listing.1 != "resources" => {}
                    Err(why) => failures.push(format!("{name}: {why}")),
                }
            }
        }
        if lines.is_empty() && !failures.is_empty() {
            return CallReply::error(failures.join("\n"));
        }
        if lines.is_empty() {
            lines.push("(there are none)".to_owned());
        }
        lines.extend(failures);
        CallReply::from_text(lines.join("\n"))
    }

    /// Reads one list of a server, and returns a line for each entry.
    async fn list_page_entries(
        &self,
        member: &ServerTask,
        (method, key): Listing,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, RequestError> {
        let (mut lines, mut cursors): (Vec<String>, Vec<Value>) = (Vec::new(), Vec::new());
        let mut has_more = true;
        for number in 1..=MOST_PAGES {
            let page = ServerRequest { method, params: page_params(cursors.last()) };
            let page = match member.request(LIST, &page, self.timers, cancel).await {
                // The entries of the earlier pages are returned.
                Err(why) if number > 1 => {
                    lines.push(format!(
                        "({} has more, but not page {number}: {why})",
                        member.config.name
                    ));
                    return Ok(lines);
                }
                page => page?,
            };
            let listed = page[key].as_array().into_iter().flatten();
            lines.extend(listed.map(|resource| format_resource(&member.config.name, resource)));
            has_more = add_next_cursor(&page, &mut cursors);
            if !has_more || lines.len() > MOST_LISTED {
                break;
            }
        }
        if has_more || lines.len() > MOST_LISTED {
            lines.truncate(MOST_LISTED);
            lines.push(format!("({} has more, which are left out)", member.config.name));
        }
        Ok(lines)
    }
}

fn format_resource(server: &str, resource: &Value) -> String {
    let mut shown = json!({ "server": server });
    for key in ["uri", "uriTemplate", "name", "description", "mimeType"] {
        if let Some(text) = resource[key].as_str() {
            shown[key] = json!(text.chars().take(300).collect::<String>());
        }
    }
    shown.to_string()
}
