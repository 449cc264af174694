//! Examines a run with `--profile untrusted`. It is built as usual, but goes on after errors that
//! would end it at once.

use std::path::Path;

use super::super::args::{Profile, RunArgs};
use super::super::dry_run::{check_prices, resolve_tools};
use super::super::settings::SettingsSurvey;
use super::super::tool_setup::tool_settings_error;
use super::super::usage::UsageError;
use crate::config::environment::Variables;
use crate::doctor::ProfileFacts;
use crate::secrets::KnownSecrets;
use crate::tools::{BadSettings, SandboxError, SandboxMode, Toolbox};

/// The limits that the profile requires: setting, flag, and a value for the check of the rest.
const LIMITS: [(&str, &str, &str); 2] =
    [("maxBudgetUsd", "max-budget-usd", "1"), ("maxDuration", "max-duration", "1h")];

/// Returns how far this machine supports the profile, with these flags.
///
/// # Errors
/// The reason why no run with it can be set up, apart from the sandbox and the limits.
pub(super) fn examine(
    run: RunArgs,
    survey: &SettingsSurvey,
    (variables, cwd): (&Variables, &Path),
    secrets: &KnownSecrets,
) -> Result<ProfileFacts, UsageError> {
    let mut args = run.with_profile(Profile::Untrusted);
    let mut missing_limits = Vec::new();
    for (name, flag, value) in LIMITS {
        let is_set =
            |name| survey.effective.iter().any(|it| it.name == name && !it.value.is_null());
        if !is_set(name) {
            args.flags.give_default(flag, value);
            missing_limits.push(flag);
        }
    }
    let (settings, mut tools) = resolve_tools(&args, variables, cwd, secrets)?;
    // A required sandbox would end the examination at its first gap.
    tools.sandbox.mode = SandboxMode::ReadOnly;
    let mut no_egress = None;
    let mut toolbox = Toolbox::new(&tools);
    if let Err(BadSettings::Sandbox { why: SandboxError::NoEgress { gap } }) = &toolbox {
        no_egress = Some(gap.clone());
        (tools.sandbox.egress, tools.sandbox.no_network) = (None, true);
        toolbox = Toolbox::new(&tools);
    }
    let toolbox = toolbox.map_err(tool_settings_error)?;
    let (sandbox, gaps) = (toolbox.sandbox().clone(), toolbox.sandbox_gaps().clone());
    let no_price = check_prices(&settings).err().map(|error| error.to_string());
    Ok(ProfileFacts { sandbox, gaps, no_egress, missing_limits, no_price })
}
