//! Flags of a run that contradict each other.

use super::{OutputFormat, RunArgs};
use crate::cli::usage::UsageError;
use crate::types::PermissionMode;

impl RunArgs {
    /// Checks the flags of a run for contradictions.
    ///
    /// # Errors
    /// The first one.
    pub fn check(&self) -> Result<(), UsageError> {
        if self.output.is_driven_by_host()
            && self.output.output_format != Some(OutputFormat::StreamJson)
        {
            return Err(UsageError::new(
                "--input-format stream-json needs --output-format stream-json; add it",
            ));
        }
        if self.output.is_driven_by_host() && self.prompt.is_some() {
            return Err(UsageError::new(
                "with --input-format stream-json prompts come from standard input; leave out the one \
                 on the command line",
            ));
        }
        if self.output.no_stdin && self.prompt.as_deref() == Some("-") {
            return Err(UsageError::new(
                "the prompt - reads standard input, and --no-stdin leaves it alone; leave one of them \
                 out",
            ));
        }
        if let Some(missing) = self.prompts.image.iter().find(|path| !path.is_file()) {
            return Err(UsageError::new(format!(
                "--image {}: there is no such file; name one that exists",
                missing.display()
            )));
        }
        let mode = self.flags.texts("permission-mode").last();
        let mode = mode.and_then(|mode| PermissionMode::parse(mode));
        let is_bypass = self.flags.has("dangerously-skip-permissions")
            || mode == Some(PermissionMode::BypassPermissions);
        let restricted = self.compatibility.restricted.then_some("--restricted");
        let restricted = restricted.or(self.tools.profile.map(|_| "--profile"));
        if let Some(flag) = restricted.filter(|_| is_bypass) {
            return Err(UsageError::new(format!(
                "{flag} and bypassPermissions contradict each other; leave one of them out"
            )));
        }
        if let Some(mode @ (PermissionMode::Plan | PermissionMode::DontAsk)) = mode
            && self.flags.has("dangerously-skip-permissions")
        {
            return Err(UsageError::new(format!(
                "--permission-mode {} and --dangerously-skip-permissions contradict each other; leave \
                 one of them out",
                mode.name()
            )));
        }
        Ok(())
    }
}
