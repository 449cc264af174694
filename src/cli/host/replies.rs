//! Replies to control requests.

use serde_json::{Value, json};

use crate::agent::agent_kinds;
use crate::cli::prompts::PromptCommand;
use crate::cli::settings::{ChainEntry, Settings};
use crate::cli::version::REFERENCE_VERSION;
use crate::mcp::{ServerIdentity, ServerReport, Servers, tool_name_prefix};
use crate::tools::AgentDefinition;

/// The optional parts of `initialize` that were given, and so have been applied.
pub(super) struct AppliedParts {
    pub(super) hooks: bool,
    pub(super) servers: bool,
    pub(super) plugins: bool,
}

/// Returns the reply to `initialize`.
pub(super) fn initialized(settings: &Settings, applied: &AppliedParts) -> Value {
    let commands: Vec<Value> = settings.library.callable().map(command).collect();
    let agents: Vec<Value> = agent_kinds(settings.agents.clone()).iter().map(agent).collect();
    let models = settings.chain.links.iter().map(|ChainEntry { label, .. }| {
        json!({ "value": label, "displayName": label, "description": "" })
    });
    let styles = settings.library.styles.iter().map(|style| style.name.as_str());
    let styles = ["default"].into_iter().chain(styles);
    json!({
        "commands": commands,
        "agents": agents,
        "output_style": settings.config.output_style,
        "available_output_styles": styles.collect::<Vec<_>>(),
        "models": models.collect::<Vec<_>>(),
        "account": { "apiKeySource": settings.endpoint.credential.source() },
        "claude_code_version": REFERENCE_VERSION,
        "pid": std::process::id(),
        "current_permission_mode": settings.config.permissions.mode.name(),
        "session_state": "idle",
        "hook_on_failure_supported": true,
        "hooks_applied": applied.hooks,
        "mcp_servers_applied": applied.servers,
        "plugins_applied": applied.plugins,
    })
}

fn command(command: &PromptCommand) -> Value {
    let hint = command.hint.as_deref().unwrap_or_default();
    json!({ "name": command.name, "description": command.description, "argumentHint": hint })
}

fn agent(agent: &AgentDefinition) -> Value {
    let mut value = json!({ "name": agent.name, "description": agent.description });
    if let Some(model) = &agent.model {
        value["model"] = json!(model);
    }
    value
}

/// Returns the reply to `mcp_status`.
pub(super) fn mcp_status(servers: &Servers) -> Value {
    let tools = servers.tool_definitions();
    let status = |report: &ServerReport| {
        let mut server = json!({ "name": report.name, "status": report.status });
        if let Some(why) = &report.why {
            server["error"] = json!(why);
        }
        if let Some(ServerIdentity { name, version }) = &report.identity {
            server["serverInfo"] = json!({ "name": name, "version": version });
        }
        let prefix = tool_name_prefix(&report.name);
        let tools_of_server = tools.iter().filter_map(|tool| {
            let name = tool.name.strip_prefix(&prefix)?;
            Some(json!({ "name": name, "description": tool.description }))
        });
        server["tools"] = tools_of_server.collect();
        server
    };
    json!({ "mcpServers": servers.reports().iter().map(status).collect::<Vec<_>>() })
}
