//! `--profile untrusted`: a run in a checkout whose authors are not trusted.
//!
//! The flags that it stands for are set where arguments are read
//! ([`crate::cli::args::RunArgs`]): a sandbox that is read-only and required, and no settings of the
//! repository. What depends on the settings is here.

use crate::cli::args::{Profile, RunArgs};
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::types::SandboxMode;

use super::ToolRules;

/// The tools of a run with the profile: no search, and no page where no host is listed.
///
/// # Errors
/// The run has no budget or no time limit, or managed settings set another sandbox.
pub(super) fn apply(
    args: &RunArgs,
    config: &Config,
    mut tools: ToolRules,
) -> Result<ToolRules, UsageError> {
    match args.tools.profile {
        None => return Ok(tools),
        Some(Profile::Untrusted) => {}
    }
    if tools.sandbox.mode != SandboxMode::RequiredReadOnly {
        return Err(UsageError::new(
            "--profile untrusted needs the sandbox read-only,required, and the managed settings set \
             another; ask the administrator",
        ));
    }
    let limits = [
        ("--max-budget-usd", "maxBudgetUsd", config.max_budget_usd.is_some()),
        ("--max-duration", "maxDuration", config.max_duration.is_some()),
    ];
    if let Some((flag, key, _)) = limits.into_iter().find(|(_, _, is_set)| !is_set) {
        return Err(UsageError::new(format!(
            "--profile untrusted needs a limit: add {flag}, or set {key} in your own settings"
        )));
    }
    // The text of a search may carry what was read in the checkout.
    tools.deny.push("WebSearch".to_owned());
    if config.allowed_domains.0.is_empty() {
        tools.deny.push("WebFetch".to_owned());
    }
    Ok(tools)
}
