//! Acceptance checks: the conditions under which a run succeeds.

use std::path::Path;

use super::answer_schema;
use crate::cli::args::RunArgs;
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::tools::{AcceptanceSettings, Requirement};

/// Returns true if a demand is dropped, such as that of a resumed session.
fn is_none(given: &str) -> bool {
    given.trim() == "none"
}

/// Resolves the acceptance checks. `none` drops a demand.
///
/// # Errors
/// An empty command, or an invalid schema.
pub(super) fn resolve(
    args: &RunArgs,
    config: &Config,
    cwd: &Path,
) -> Result<AcceptanceSettings, UsageError> {
    let command = config.require.as_ref().filter(|command| !is_none(command));
    if command.is_some_and(|command| command.trim().is_empty()) {
        return Err(UsageError::new(
            "--require (or the setting \"require\") is empty; give a command, leave it out, or give none",
        ));
    }
    if args.flags.has("require-timeout") && command.is_none() {
        return Err(UsageError::new("--require-timeout needs --require; add it"));
    }
    let schema = args.acceptance.json_schema.as_ref().filter(|given| !is_none(given));
    Ok(AcceptanceSettings {
        schema: schema.map(|given| answer_schema::parse_flag(given, cwd)).transpose()?,
        requirement: command.map(|command| Requirement {
            command: command.clone(),
            timeout: config.require_timeout,
        }),
    })
}
