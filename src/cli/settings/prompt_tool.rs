//! Reads `--permission-prompt-tool`.

use crate::cli::args::{RunArgs, ToolArgs};
use crate::cli::usage::UsageError;
use crate::tools::offered_name;
use crate::types::PermissionPrompt;

/// The value of `--permission-prompts` that turns questions off.
const NO_PROMPTS: &str = "none";

/// Returns true if a user may be asked during the run.
pub(super) fn may_ask(args: &RunArgs) -> bool {
    args.compatibility.permission_prompts.as_deref() != Some(NO_PROMPTS)
}

/// Returns the name that must be an MCP tool, if there is one.
pub(super) fn mcp_tool(flags: &ToolArgs) -> Option<String> {
    let name = flags.permission_prompt_tool.as_deref();
    name.filter(|name| *name != PermissionPrompt::Host.name()).map(offered_name)
}

/// Returns the MCP tool or host that decides on calls that no rule decides, if there is one.
///
/// # Errors
/// The name is not that of an MCP tool, or stands for the host of a run without a host.
pub(super) fn resolve(args: &RunArgs) -> Result<Option<PermissionPrompt>, UsageError> {
    let Some(name) = &args.tools.permission_prompt_tool else { return Ok(None) };
    if !may_ask(args) {
        return Ok(None);
    }
    if name == PermissionPrompt::Host.name() {
        if args.output.is_driven_by_host() {
            return Ok(Some(PermissionPrompt::Host));
        }
        return Err(UsageError::new(
            "--permission-prompt-tool stdio asks the host that drives outlast; it needs \
             --input-format stream-json",
        ));
    }
    let parts = name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
    match parts {
        Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
            Ok(Some(PermissionPrompt::Tool(offered_name(name))))
        }
        _ => Err(UsageError::new(format!(
            "--permission-prompt-tool {name}: is not a tool of an MCP server; name one as \
             mcp__SERVER__TOOL"
        ))),
    }
}
