//! Flags that the agent SDKs and CI actions send to headless agents (PROTOCOL 1.2, 1.3). Some are
//! obeyed; the others are accepted, and a warning says that they have no effect.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct CompatibilityArgs {
    /// Echo each prompt of a host
    #[arg(long, hide = true)]
    pub replay_user_messages: bool,
    /// Let a host choose the mode bypassPermissions later
    #[arg(long, hide = true)]
    pub allow_dangerously_skip_permissions: bool,
    #[arg(long, hide = true)]
    await_initialize: bool,
    #[arg(long, hide = true)]
    bare: bool,
    #[arg(long, hide = true)]
    betas: Vec<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    debug: Option<String>,
    #[arg(long, hide = true)]
    debug_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    debug_to_stderr: bool,
    #[arg(long, hide = true)]
    effort: Option<String>,
    #[arg(long, hide = true)]
    name: Option<String>,
    #[arg(long, hide = true)]
    /// With `none`, calls that need a question are denied and no question is asked
    pub permission_prompts: Option<String>,
    #[arg(long, hide = true)]
    plugin_dir: Vec<PathBuf>,
    /// Send a host copies of the session's journals
    #[arg(long, hide = true)]
    pub session_mirror: bool,
    #[arg(long, hide = true)]
    task_budget: Option<String>,
    #[arg(long, hide = true)]
    thinking_display: Option<String>,
}

impl CompatibilityArgs {
    /// Whether standard error tells what happens, as with `--log-detail`.
    pub fn logs_detail(&self) -> bool {
        self.debug_to_stderr || self.debug.is_some()
    }

    /// The flags that were given and have no effect.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let given = [
            ("--bare", self.bare),
            ("--betas", !self.betas.is_empty()),
            ("--debug-file", self.debug_file.is_some()),
            ("--effort", self.effort.is_some()),
            ("--name", self.name.is_some()),
            (
                "--permission-prompts",
                self.permission_prompts.as_deref().is_some_and(|it| it != "none"),
            ),
            ("--plugin-dir", !self.plugin_dir.is_empty()),
            ("--task-budget", self.task_budget.is_some()),
            ("--thinking-display", self.thinking_display.is_some()),
        ];
        given.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect()
    }
}
