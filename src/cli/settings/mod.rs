//! The settings of a run, resolved from flags, the environment and the settings files, which
//! [`config`](crate::config) folds. All sources are read once, here.

mod acceptance_checks;
mod agent_list;
mod answer_schema;
mod chain;
mod context_windows;
mod contract;
mod credential;
mod endpoint;
mod inputs;
mod library;
mod profile;
mod prompt_tool;
mod repository_files;
mod resolve;
mod rule_names;
mod run_limits;
mod sandbox;
mod servers;
mod sources;
mod survey;
mod system;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use chain::{ChainEntry, ModelChain};
pub(super) use credential::empty_variables;
pub use resolve::{resolve, resolve_resumed, resolve_with_managed};
pub use servers::McpServers;
pub use sources::{FileState, SettingsFile};
pub use survey::{SettingsSurvey, survey, survey_with_managed};

use crate::cli::args::{GivenFlags, LogFilter, OutputFormat, Profile, StreamArgs, Verbosity};
use crate::cli::output_file::OutputFile;
use crate::cli::plugins::Plugin;
use crate::cli::prompts::PromptLibrary;
use crate::cli::stdin::{Need, StdinMode};
use crate::cli::step_summary::StepSummaryFile;
use crate::config::Config;
use crate::config::environment::{ColorChoice, Variables};
use crate::config::repository::IgnoredSetting;
use crate::hooks::{HookEvent, HookHandler};
use crate::journal::Terms;
use crate::model::{ModelService, Secret};
use crate::secrets::KnownSecrets;
use crate::tools::{AcceptanceSettings, AgentDefinition};
use crate::types::PermissionPrompt;

/// All settings of a run, resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings in force, with the defaults that depend on other settings.
    pub config: Box<Config>,
    pub output: OutputSettings,
    pub prompt: PromptSource,
    /// The flags of the command line that the session does not keep.
    pub given: GivenFlags,
    /// The name that the session gets.
    pub session_title: Option<String>,
    /// Terms that the resumed session was started with. Empty for a new session.
    pub terms: Terms,
    /// True if a journal is kept.
    pub persist: bool,
    /// Folder of the settings, and of sessions unless these have a folder of their own.
    pub config_dir: PathBuf,
    /// Folder of the sessions.
    pub session_dir: PathBuf,
    /// Folder for the log of failed hooks and for temporary files with variables that hooks export.
    pub state_dir: PathBuf,
    pub cwd: PathBuf,
    /// The models, the preferred one first, and their endpoints.
    pub chain: ModelChain,
    /// Endpoint of the first model.
    pub endpoint: ModelService,
    pub system: SystemPrompt,
    pub tools: ToolRules,
    pub mcp: McpServers,
    /// The kinds of sub-agents besides the built-in one, by name.
    pub agents: Vec<AgentDefinition>,
    /// Agents, commands, skills and output styles, with their files.
    pub library: PromptLibrary,
    pub plugins: Vec<Plugin>,
    pub demands: AcceptanceSettings,
    /// Text added to the system prompt of each sub-agent.
    pub subagent_prompt: Option<String>,
    /// The configured hooks.
    pub hooks: Vec<HookHandler>,
    /// The nesting depth of hooks that started this process.
    pub hook_depth: u8,
    /// The sources of memory files. `None`: no memory files are read.
    pub memory: Option<MemorySources>,
    /// The environment, with the variables that the settings add.
    pub variables: Variables,
    /// The secrets known before the run, to be redacted.
    pub secrets: Vec<Secret>,
    /// The warnings, except those about MCP servers and ignored settings.
    pub warnings: Vec<String>,
    /// Settings of the repository that were ignored.
    pub ignored: Vec<IgnoredSetting>,
    /// The warning about these ignored settings, if there are any.
    pub ignored_warning: Option<String>,
}

impl Settings {
    /// Returns all warnings about the settings.
    pub fn all_warnings(&self) -> impl Iterator<Item = &String> {
        self.warnings.iter().chain(&self.ignored_warning).chain(&self.mcp.warnings)
    }

    /// Adds the secrets in the settings to those that are redacted.
    pub(super) fn add_secrets(&self, known: &KnownSecrets) {
        for secret in &self.secrets {
            known.add(secret.reveal());
        }
    }

    /// Returns the time for which unused sessions are kept; `None`: for ever.
    pub fn keep_sessions(&self) -> Option<Duration> {
        let days = self.config.cleanup_period_days;
        (days > 0).then(|| Duration::from_hours(24 * u64::from(days)))
    }

    /// Returns true if hooks are asked before a run may end.
    pub fn asks_hooks_to_stop(&self) -> bool {
        self.hooks.iter().any(|hook| hook.event == HookEvent::Stop)
    }
}

/// Output settings.
#[derive(Clone, Debug, Default)]
pub struct OutputSettings {
    pub format: OutputFormat,
    /// True if `json` prints all messages, and not only the result.
    pub verbose: bool,
    /// Level of detail on standard error, if it was requested.
    pub verbosity: Option<Verbosity>,
    pub stream: StreamArgs,
    /// The fields of the result on standard output. Empty: all fields.
    pub fields: Vec<String>,
    pub files: OutputFiles,
    /// Filter for the log messages of libraries. `None`: they are not shown.
    pub library_log: Option<LogFilter>,
    /// True if the terminal cannot move its cursor.
    pub dumb_terminal: bool,
    pub colors: ColorChoice,
    /// True if this is a CI job, whose log users read.
    pub is_ci: bool,
}

/// The files that a run writes besides its output.
#[derive(Clone, Debug, Default)]
pub struct OutputFiles {
    pub result: Option<OutputFile>,
    /// The file for the answer as text.
    pub last_message: Option<OutputFile>,
    pub heartbeat: Option<OutputFile>,
    /// The file for the details of the run.
    pub debug: Option<OutputFile>,
    /// The summary file of a step of GitHub Actions, unless summaries are switched off.
    pub step_summary: Option<StepSummaryFile>,
}

/// The sources of the prompt.
#[derive(Clone, Debug)]
pub struct PromptSource {
    pub argument: Option<String>,
    /// Images that are shown with the prompt.
    pub images: Vec<PathBuf>,
    /// The user's choice whether standard input is read.
    pub stdin: StdinMode,
    /// True if a session is continued, so that no prompt is needed.
    pub may_be_empty: bool,
    /// Time that standard input may stay silent while it is waited for.
    pub stdin_timeout: Duration,
}

impl PromptSource {
    /// Returns the need of a run for standard input.
    pub fn need(&self) -> Need {
        if self.argument.is_none() && !self.may_be_empty { Need::Required } else { Need::Optional }
    }
}

/// The system prompt, before the facts of the run are added.
#[derive(Clone, Debug, Default)]
pub struct SystemPrompt {
    /// Replaces the built-in prompt and the facts.
    pub replaced: Option<String>,
    /// The prompt of the run's agent, which replaces the built-in prompt.
    pub role: Option<String>,
    pub appended: Option<String>,
}

/// The sources of memory files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent source")]
pub struct MemorySources {
    pub user: bool,
    pub project: bool,
    pub local: bool,
    /// True if memory files of the project may import files from outside of it.
    pub trusted: bool,
}

/// The choices of tools that are not settings.
#[derive(Clone, Debug)]
pub struct ToolRules {
    /// The names of the only available tools. `None`: all tools are available.
    pub only: Option<Vec<String>>,
    /// The list of tools of the run's agent, if it has patterns.
    pub limits: Vec<Vec<String>>,
    /// The set of restrictions that a flag selected.
    pub profile: Option<Profile>,
    /// The MCP tool that decides on calls that no permission rule decides.
    pub prompt_tool: Option<PermissionPrompt>,
    /// The tools that the model means by other names.
    pub aliases: BTreeMap<String, String>,
}
