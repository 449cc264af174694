//! Reads `--permission-prompt-tool`.

use crate::cli::args::ToolArgs;
use crate::cli::usage::UsageError;

/// Returns the permission prompt tool, if one is set.
///
/// # Errors
/// The name is not that of an MCP tool.
pub(super) fn resolve(flags: &ToolArgs) -> Result<Option<String>, UsageError> {
    let Some(name) = &flags.permission_prompt_tool else { return Ok(None) };
    let parts = name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
    match parts {
        Some((server, tool)) if !server.is_empty() && !tool.is_empty() => Ok(Some(name.clone())),
        _ => Err(UsageError::new(format!(
            "--permission-prompt-tool {name}: is no tool of an MCP server; name one as \
             mcp__SERVER__TOOL"
        ))),
    }
}
