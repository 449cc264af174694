//! The settings of a toolbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;

use super::background::{KeptCommands, TaskStops};
use super::catalog::{BuiltinTool, is_agent_tool};
use super::command_settings::{CommandSettings, InvalidCommand};
use super::domain::InvalidHost;
use super::file_history::FileHistory;
use super::files_read::FilesRead;
use super::offered_name::MCP;
use super::permission::{LivePermissions, RuleError};
use super::sandbox::{SandboxError, SandboxSettings};
use super::schema::AnswerSchema;
use super::web::WebSettings;
use crate::types::{OnDenied, PermissionMode, PermissionPrompt, ToolSearchMode};

/// The built-in tools that the model is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offered {
    #[default]
    All,
    /// The tools with these names, and those that belong to them. No tools if empty.
    Only(Vec<String>),
    /// Exactly these tools: those of a sub-agent that lists them.
    Exactly(Vec<String>),
}

impl Offered {
    /// True if the tool that starts sub-agents is included.
    pub(super) fn names_agents(&self) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) | Self::Exactly(names) => {
                names.iter().any(|name| is_agent_tool(name))
            }
        }
    }

    /// The intersection with `names`, or `None` if none of them is a tool. Names of tools that are
    /// not built in are ignored.
    pub(super) fn intersection(&self, names: &[String]) -> Option<Self> {
        let is_known = |name: &&String| {
            BuiltinTool::named(name).is_some() || is_agent_tool(name) || name.starts_with(MCP)
        };
        if !names.is_empty() && !names.iter().any(|name| is_known(&name)) {
            return None;
        }
        let has = |name: &str| match (self, BuiltinTool::named(name)) {
            (Self::All, _) => true,
            (Self::Only(_) | Self::Exactly(_), Some(tool)) => self.includes(tool),
            (Self::Only(_) | Self::Exactly(_), None) => self.names_agents(),
        };
        let built_in = |name: &&String| BuiltinTool::named(name).is_some() || is_agent_tool(name);
        let both = names.iter().filter(built_in).filter(|name| has(name));
        Some(Self::Exactly(both.cloned().collect()))
    }

    /// True if a built-in tool is offered.
    pub(super) fn includes(&self, tool: BuiltinTool) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => {
                let listed = tool.belongs_to().unwrap_or(tool).name();
                names.iter().any(|name| name == listed)
            }
            Self::Exactly(names) => names.iter().any(|name| name == tool.name()),
        }
    }
}

/// The permissions of the model's calls: the mode, and rules such as `Bash(cargo test *)`.
#[derive(Clone, Debug, Default)]
pub struct PermissionSettings {
    pub mode: PermissionMode,
    pub allow: Vec<String>,
    pub ask: Vec<String>,
    pub deny: Vec<String>,
    /// The consequence of a denied call for the run.
    pub on_denied: OnDenied,
    /// Further folders that the run may work in.
    pub additional_directories: Vec<PathBuf>,
}

/// A command that must pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub command: String,
    /// The maximum running time.
    pub timeout: Duration,
}

/// The usual length of a text of the Read tool, in bytes.
const PAGE_BYTES: usize = 100_000;

/// The maximum length of a result that the model sees, in characters.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    pub chars: u32,
    /// The maximum for tools that are not built in. `None`: `chars`.
    pub external_chars: Option<u32>,
}

impl ResultLimits {
    pub(super) fn built_in(self) -> usize {
        usize::try_from(self.chars).unwrap_or(usize::MAX)
    }

    /// The length of a text of the Read tool, in bytes. It ends at a line, and the model reads on
    /// from there, so it is longer than other results, unless the limit is lower than usual.
    pub(super) fn page(self) -> usize {
        if self.chars < Self::default().chars { self.built_in() } else { PAGE_BYTES }
    }

    pub(super) fn external(self) -> usize {
        usize::try_from(self.external_chars.unwrap_or(self.chars)).unwrap_or(usize::MAX)
    }
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self { chars: 30_000, external_chars: None }
    }
}

/// The configuration of the tools for one run and host.
#[derive(Clone, Debug, Default)]
pub struct ToolSettings {
    /// The working directory. Absolute.
    pub cwd: PathBuf,
    /// The user's home folder, if known.
    pub home: Option<PathBuf>,
    /// Folders in which only reading is allowed, without a rule.
    pub readable: Vec<PathBuf>,
    pub offered: Offered,
    /// The tools that the model means by other names.
    pub aliases: BTreeMap<String, String>,
    pub permissions: PermissionSettings,
    /// The lists of tools in the definitions of the agents that these tools are for, if they have
    /// patterns.
    pub limits: Vec<Vec<String>>,
    /// The changes of the permissions by a host during the run.
    pub live: LivePermissions,
    /// The tasks that a host can stop.
    pub stops: TaskStops,
    /// Background commands that outlive the run. `None`: they end with it.
    pub kept_commands: Option<KeptCommands>,
    /// Keeps the contents of files before the file tools change them.
    pub history: Option<FileHistory>,
    /// The files whose contents are in the conversation.
    pub files_read: FilesRead,
    /// The tool that decides permission prompts.
    pub prompt_tool: Option<PermissionPrompt>,
    pub commands: CommandSettings,
    pub results: ResultLimits,
    /// The environment that outlast was started with.
    pub environment: Vec<(OsString, OsString)>,
    /// Names of variables that hold credentials of the model's services, whatever they are called.
    pub credentials: Vec<String>,
    /// Secrets that are redacted from what the model sees and from saved outputs.
    pub secrets: KnownSecrets,
    /// The session's folder for long outputs. Created when first needed.
    pub scratch: PathBuf,
    pub session_id: String,
    pub acceptance: AcceptanceSettings,
    /// The supervisor that starts commands.
    pub supervisor: Supervisor,
    /// The sandbox for commands.
    pub sandbox: SandboxSettings,
    /// The settings for fetching pages. `None`: web access is off and not offered.
    pub web: Option<WebSettings>,
    /// True if the model's service has a search of the web.
    pub web_search: bool,
    /// The mode in which definitions of external tools are deferred.
    pub tool_search: ToolSearchMode,
}

/// The acceptance checks: the conditions under which a run is a success.
#[derive(Clone, Debug, Default)]
pub struct AcceptanceSettings {
    /// The schema of the structured answer, which the model gives through a tool.
    pub schema: Option<AnswerSchema>,
    /// The command that must pass.
    pub requirement: Option<Requirement>,
}

impl ToolSettings {
    /// The defaults: every tool, mode `default`, no rules, scrubbed environment.
    pub fn new(cwd: &Path, scratch: &Path, session_id: &str) -> Self {
        Self {
            cwd: cwd.to_path_buf(),
            scratch: scratch.to_path_buf(),
            session_id: session_id.to_string(),
            ..Self::default()
        }
    }

    /// True if pages can be fetched. With the network off for commands, a tool with network access
    /// would defeat the sandbox.
    pub(super) fn reaches_web(&self) -> bool {
        self.web.is_some() && !self.sandbox.no_network
    }

    /// True if the service exists that a tool with network access needs.
    pub(super) fn has_service_of(&self, tool: BuiltinTool) -> bool {
        match tool {
            BuiltinTool::WebFetch => self.reaches_web(),
            BuiltinTool::WebSearch => self.web_search && !self.sandbox.no_network,
            // It is offered separately, when definitions are deferred.
            BuiltinTool::ToolSearch => false,
            BuiltinTool::Bash
            | BuiltinTool::BashOutput
            | BuiltinTool::KillShell
            | BuiltinTool::Read
            | BuiltinTool::Write
            | BuiltinTool::Edit
            | BuiltinTool::NotebookEdit
            | BuiltinTool::Glob
            | BuiltinTool::Grep
            | BuiltinTool::TodoWrite => true,
        }
    }
}

/// The reason that a toolbox cannot be created, as one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    #[error("bad permission rule `{rule:.200}`: {why}")]
    Rule { rule: String, why: RuleError },
    #[error("no such folder: {}", path.display())]
    NoFolder { path: PathBuf },
    #[error("the command that must pass cannot be run: {why}")]
    Requirement { why: InvalidCommand },
    #[error("{why}")]
    Sandbox { why: SandboxError },
    #[error("bad entry of webFetchPrivateHosts: {why}")]
    Web { why: InvalidHost },
}
