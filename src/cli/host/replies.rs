//! Replies to control requests.

use crate::agent::agent_kinds;
use crate::cli::prompts::PromptCommand;
use crate::cli::settings::{ChainEntry, Settings};
use crate::cli::version::REFERENCE_VERSION;
use crate::mcp::{ServerReport, Servers, tool_name_prefix};
use crate::messages::{
    AccountEntry, AgentEntry, AppliedParts, CommandEntry, ControlResult, InitializeResult,
    McpServerStatus, McpToolEntry, ModelEntry,
};
use crate::tools::AgentDefinition;

/// Returns the reply to `initialize`.
pub(super) fn initialized(settings: &Settings, applied: AppliedParts) -> ControlResult {
    let models = settings.chain.links.iter().map(|ChainEntry { label, .. }| ModelEntry {
        value: label.clone(),
        display_name: label.clone(),
        description: "",
    });
    let styles = settings.library.styles.iter().map(|style| style.name.clone());
    ControlResult::Initialized(Box::new(InitializeResult {
        commands: settings.library.callable().map(command).collect(),
        agents: agent_kinds(settings.agents.clone()).into_iter().map(agent).collect(),
        output_style: settings.config.output_style.clone(),
        available_output_styles: ["default".to_owned()].into_iter().chain(styles).collect(),
        models: models.collect(),
        account: AccountEntry { api_key_source: settings.endpoint.credential.source().to_owned() },
        claude_code_version: REFERENCE_VERSION,
        pid: std::process::id(),
        current_permission_mode: settings.config.permissions.mode.name(),
        session_state: "idle",
        hook_on_failure_supported: true,
        applied,
    }))
}

fn command(command: &PromptCommand) -> CommandEntry {
    CommandEntry {
        name: command.name.clone(),
        description: command.description.clone(),
        argument_hint: command.hint.clone().unwrap_or_default(),
    }
}

fn agent(agent: AgentDefinition) -> AgentEntry {
    AgentEntry { name: agent.name, description: agent.description, model: agent.model }
}

/// Returns the reply to `mcp_status`.
pub(super) fn mcp_status(servers: &Servers) -> ControlResult {
    let tools = servers.tool_definitions();
    let status = |report: ServerReport| {
        let prefix = tool_name_prefix(&report.name);
        let tools_of_server = tools.iter().filter_map(|tool| {
            let name = tool.name.strip_prefix(&prefix)?.to_owned();
            Some(McpToolEntry { name, description: tool.description.clone() })
        });
        let (server_info, tools) = (report.identity.clone(), tools_of_server.collect());
        McpServerStatus { report, server_info, tools }
    };
    ControlResult::McpStatus { servers: servers.reports().into_iter().map(status).collect() }
}
