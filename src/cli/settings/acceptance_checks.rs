//! Acceptance checks: what a run must deliver to succeed.

use std::path::Path;

use super::file_settings::FileSettings;
use super::run_limits::time;
use super::{AcceptanceSettings, DEFAULTS, schema};
use crate::cli::args::AcceptanceArgs;
use crate::cli::environment::ProcessEnv;
use crate::cli::usage::UsageError;
use crate::tools::Requirement;

/// Resolves the acceptance checks from flags, environment and files.
///
/// # Errors
/// An empty command, or an invalid schema.
pub(super) fn resolve(
    flags: &AcceptanceArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    cwd: &Path,
) -> Result<AcceptanceSettings, UsageError> {
    let command = flags.require.as_ref().or(file.require.as_ref());
    if command.is_some_and(|command| command.trim().is_empty()) {
        return Err(UsageError::new(
            "--require (or the setting \"require\") is empty; give a command, or leave it out",
        ));
    }
    if flags.require_timeout.is_some() && command.is_none() {
        return Err(UsageError::new("--require-timeout needs --require; add it"));
    }
    let timeout = flags.require_timeout.or(time(file.require_timeout));
    let tries = env.schema_tries.or(file.schema_tries.map(u8::from));
    Ok(AcceptanceSettings {
        schema: flags
            .json_schema
            .as_ref()
            .map(|given| schema::parse_flag(given, cwd))
            .transpose()?,
        schema_tries: tries.unwrap_or(DEFAULTS.schema_tries).max(1),
        requirement: command.map(|command| Requirement {
            command: command.clone(),
            timeout: timeout.unwrap_or(DEFAULTS.require_timeout),
        }),
        require_retries: file.require_retries.unwrap_or(DEFAULTS.require_retries),
    })
}
