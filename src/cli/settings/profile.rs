//! `--profile untrusted`: a run in a checkout whose authors are not trusted.
//!
//! The flags that it implies are set where arguments are read ([`crate::cli::args::RunArgs`]): a
//! sandbox that is read-only and required, and no settings of the repository. The parts that depend
//! on the settings are here.

use crate::cli::args::{Profile, RunArgs};
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::types::SandboxMode;

/// Denies the tools that a run with the profile does not have: search, and pages unless hosts are
/// listed.
///
/// # Errors
/// The run has no budget or no time limit, or managed settings set another sandbox.
pub(super) fn apply(args: &RunArgs, config: &mut Config) -> Result<(), UsageError> {
    match args.tools.profile {
        None => return Ok(()),
        Some(Profile::Untrusted) => {}
    }
    if config.sandbox.mode != SandboxMode::RequiredReadOnly {
        return Err(UsageError::new(
            "--profile untrusted needs the sandbox read-only,required, and the managed settings set \
             another; ask the administrator",
        ));
    }
    let limits = [
        ("--max-budget-usd", "maxBudgetUsd", config.max_budget_usd.is_some()),
        ("--max-duration", "maxDuration", config.max_duration.is_some()),
    ];
    let missing = limits.into_iter().filter(|(_, _, is_set)| !is_set);
    let (flags, keys): (Vec<_>, Vec<_>) = missing.map(|(flag, key, _)| (flag, key)).unzip();
    if !flags.is_empty() {
        return Err(UsageError::new(format!(
            "--profile untrusted needs a budget and a time limit: add {}, or set {} in your own \
             settings",
            flags.join(" and "),
            keys.join(" and ")
        )));
    }
    // The text of a search may contain content of the checkout.
    config.permissions.deny.push("WebSearch".to_owned());
    if config.allowed_domains.is_empty() {
        config.permissions.deny.push("WebFetch".to_owned());
    }
    Ok(())
}
