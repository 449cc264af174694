//! What a toolbox is made with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;

use super::agents::is_agent_tool;
use super::catalog::BuiltinTool;
use super::environment::ChildEnvironment;
use super::permission::PermissionMode;
use super::require::Requirement;
use super::sandbox::SandboxSettings;
use super::schema::AnswerSchema;
use super::web::WebSettings;

/// Which built-in tools the model is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offered {
    #[default]
    All,
    /// Exactly these, by name. None when empty.
    Only(Vec<String>),
}

impl Offered {
    /// Reads a `--tools` value: empty, `default`, or names with commas or spaces between.
    pub fn parse(value: &str) -> Self {
        let names: Vec<String> = value
            .split([',', ' '])
            .filter(|name| !name.is_empty())
            .map(ToString::to_string)
            .collect();
        if names.iter().any(|name| name == "default") { Self::All } else { Self::Only(names) }
    }

    /// Whether the tool that starts sub-agents is among them.
    pub(super) fn names_agents(&self) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| is_agent_tool(name)),
        }
    }

    /// Those of these that `names` has too. Names of tools that are not built in are left out.
    ///
    /// # Errors
    /// No name is any tool's.
    pub(super) fn intersection(&self, names: &[String]) -> Result<Self, String> {
        let is_known = |name: &&String| {
            BuiltinTool::named(name).is_some() || is_agent_tool(name) || name.starts_with("mcp__")
        };
        if !names.is_empty() && !names.iter().any(|name| is_known(&name)) {
            return Err(format!("none of its tools exists here ({})", names.join(", ")));
        }
        let has = |name: &str| match self {
            Self::All => true,
            Self::Only(own) => {
                own.iter().any(|own| own == name || is_agent_tool(own) && is_agent_tool(name))
            }
        };
        let built_in = |name: &&String| BuiltinTool::named(name).is_some() || is_agent_tool(name);
        let both = names.iter().filter(built_in).filter(|name| has(name));
        Ok(Self::Only(both.cloned().collect()))
    }
}

/// What becomes of a run when a call is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDenied {
    /// The model is told, and makes the best of it.
    #[default]
    Continue,
    /// It ends.
    Fail,
}

/// Everything the tools need to know about the run and its host.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// Where the run works. Absolute.
    pub cwd: PathBuf,
    /// The user's home folder, if anybody knows it.
    pub home: Option<PathBuf>,
    /// Further folders that the run may work in.
    pub additional_dirs: Vec<PathBuf>,
    /// Folders in which reading is free, and nothing else.
    pub readable: Vec<PathBuf>,
    pub offered: Offered,
    pub mode: PermissionMode,
    /// Rules such as `Bash(cargo test *)`, merged from flags and settings.
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub ask: Vec<String>,
    pub on_denied: OnDenied,
    /// The tool that is asked about what the rules leave open, by the name the model would know.
    pub prompt_tool: Option<String>,
    /// How long a command may take when it does not say.
    pub bash_timeout: Duration,
    /// How long a command may ask for.
    pub bash_timeout_max: Duration,
    /// How long a background command may run, and ask for.
    pub background_lifetime: Duration,
    /// How much of a result the model sees, in characters.
    pub output_limit: usize,
    /// The same for tools that are not built in.
    pub external_output_limit: usize,
    /// The environment that outlast was started with.
    pub environment: Vec<(OsString, OsString)>,
    pub child_environment: ChildEnvironment,
    /// Names that commands see although they look like secrets. Never the model's credentials.
    pub pass_env: Vec<String>,
    /// Names of variables that hold credentials of the model's services, whatever they are called.
    pub credentials: Vec<String>,
    /// What neither the model nor a saved output shows.
    pub secrets: KnownSecrets,
    /// A folder of this session's own, for long output. Made when first needed.
    pub scratch: PathBuf,
    pub session_id: String,
    /// The shape of the answer that the run is to give, through a tool of its own.
    pub answer: Option<AnswerSchema>,
    /// The command that must pass before the run is a success.
    pub requirement: Option<Requirement>,
    /// What starts commands.
    pub supervisor: Supervisor,
    /// How far commands are fenced in.
    pub sandbox: SandboxSettings,
    /// How the web is reached. `None`: not at all, and the model is offered no way.
    pub web: Option<WebSettings>,
}

impl ToolSettings {
    /// The defaults: every tool, mode `default`, no rules, scrubbed environment.
    pub fn new(cwd: &Path, scratch: &Path, session_id: &str) -> Self {
        Self {
            cwd: cwd.to_path_buf(),
            home: None,
            additional_dirs: Vec::new(),
            readable: Vec::new(),
            offered: Offered::All,
            mode: PermissionMode::Default,
            allow: Vec::new(),
            deny: Vec::new(),
            ask: Vec::new(),
            on_denied: OnDenied::Continue,
            prompt_tool: None,
            bash_timeout: Duration::from_mins(2),
            bash_timeout_max: Duration::from_mins(10),
            background_lifetime: Duration::from_hours(1),
            output_limit: 30_000,
            external_output_limit: 30_000,
            environment: Vec::new(),
            child_environment: ChildEnvironment::Scrub,
            pass_env: Vec::new(),
            credentials: Vec::new(),
            secrets: KnownSecrets::default(),
            scratch: scratch.to_path_buf(),
            session_id: session_id.to_string(),
            answer: None,
            requirement: None,
            supervisor: Supervisor::with_own_binary(),
            sandbox: SandboxSettings::default(),
            web: None,
        }
    }

    /// Whether pages can be fetched. Commands without a network, and a tool with one, would be no
    /// fence at all.
    pub(super) fn reaches_web(&self) -> bool {
        self.web.is_some() && !self.sandbox.no_network
    }
}

/// Why a toolbox cannot be made. One line for the person who started the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    #[error("bad permission rule `{rule}`: {why}")]
    Rule { rule: String, why: String },
    #[error("no such folder: {}", path.display())]
    NoFolder { path: PathBuf },
    #[error("no such built-in tool: `{name}` (there are {known})")]
    Tool { name: String, known: String },
    #[error("the command that must pass cannot be run: {why}")]
    Requirement { why: String },
    #[error("{why}")]
    Sandbox { why: String },
    #[error("bad entry of webFetchPrivateHosts: {why}")]
    Web { why: String },
}
