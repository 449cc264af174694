//! The tools of a run.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::secrets::Redactor;
use crate::transcript::{Block, ToolDefinition};
use crate::types::ToolSearchMode;

use super::acceptance::AcceptanceDemands;
use super::capture::OutputFolder;
use super::catalog::{AGENT, BuiltinTool, TASK, built_in_names};
use super::external::ExternalTools;
use super::file_history::FileHistory;
use super::files_read::FilesRead;
use super::offered_name::name_here;
use super::outcome::{Effect, ToolOutcome};
use super::paths::WorkFolders;
use super::permission::Permissions;
use super::sandbox::repository_folders;
use super::settings::{BadSettings, ResultLimits, ToolSettings};
use super::shell::ShellSession;
use super::todo::TodoList;
use super::tool_search::DeferredTools;
use super::toolbox_setup::{
    build_permissions, environment, not_removed_by_rules, offered_tools, sandbox,
};
use super::web::WebFetcher;

/// The tools of a run.
pub struct Toolbox {
    pub(super) definitions: Vec<ToolDefinition>,
    pub(super) redactor: Redactor,
    pub(super) tools: Arc<ToolSet>,
    pub(super) foreign: Option<Arc<dyn ExternalTools>>,
    /// The only external tools that are offered, if not all: one list of names for each level of
    /// nested sub-agents.
    pub(super) only_foreign: Vec<Vec<String>>,
    /// The settings of this toolbox, from which those of sub-agents are derived.
    pub(super) settings: ToolSettings,
    /// True if it belongs to the run itself, not to a sub-agent.
    pub(super) is_root: bool,
}

pub(super) struct ToolSet {
    pub(super) offered: Vec<BuiltinTool>,
    pub(super) permissions: Permissions,
    pub(super) places: WorkFolders,
    pub(super) shell: ShellSession,
    pub(super) acceptance: AcceptanceDemands,
    pub(super) web: Option<WebFetcher>,
    /// True if the run can search the web.
    pub(super) searches_web: bool,
    pub(super) seen: FilesRead,
    /// Keeps the contents of files before they are changed.
    pub(super) history: Option<FileHistory>,
    pub(super) todos: TodoList,
    pub(super) results: ResultLimits,
}

impl Toolbox {
    /// Creates the tools. Reads the file system, but changes nothing.
    pub fn new(settings: &ToolSettings) -> Result<Self, BadSettings> {
        let environment = environment(settings);
        let home = settings.home.clone().filter(|home| home.is_absolute());
        let roots = [settings.cwd.clone()]
            .into_iter()
            .chain(settings.permissions.additional_directories.clone());
        let roots: Vec<PathBuf> = roots.map(|root| settings.cwd.join(root)).collect();
        if let Some(path) = roots.iter().find(|root| !root.is_dir()) {
            return Err(BadSettings::NoFolder { path: path.clone() });
        }
        let readable = [&settings.scratch].into_iter().chain(&settings.readable);
        let places = WorkFolders::new(&roots, readable, settings.live.folders(), home);
        let home = places.home.as_deref();
        let permissions = build_permissions(settings, places.cwd(), home)?;
        // Commands may write to folders that a host adds only from the next prompt on.
        let writable = [roots.clone(), settings.live.existing_folders()].concat();
        let sandbox = sandbox(settings, &writable, home, &permissions)?;
        let permissions = permissions.with_sandbox(
            sandbox.secrets(),
            sandbox.can_hold_readers(),
            repository_folders(places.roots(), home),
        );
        let demands = AcceptanceDemands::new(&settings.acceptance)?;
        let offered = offered_tools(&settings.offered);
        let of_sandbox = sandbox.model_description();
        let scratch = OutputFolder::new(&settings.scratch, &settings.secrets);
        let web = WebFetcher::from_settings(settings, &scratch)?;
        let shell = ShellSession::new(settings, environment, places.cwd(), scratch, sandbox);
        let of_shell = shell.program.model_description();
        let describe: Vec<String> = of_shell.into_iter().chain(of_sandbox).collect();
        let define = |tool: &BuiltinTool| tool.define(&settings.commands, &describe);
        let there = |tool: &&BuiltinTool| settings.has_service_of(**tool);
        let remaining = not_removed_by_rules(&offered, &permissions);
        let definitions =
            remaining.iter().filter(there).map(define).chain(demands.define()).collect();
        let tool_set = ToolSet {
            offered,
            permissions,
            places,
            shell,
            acceptance: demands,
            web,
            searches_web: settings.has_service_of(BuiltinTool::WebSearch),
            seen: settings.files_read.clone(),
            history: settings.history.clone(),
            todos: TodoList::default(),
            results: settings.results,
        };
        let redactor = Redactor::for_model(settings.secrets.clone());
        Ok(Self {
            definitions,
            redactor,
            tools: Arc::new(tool_set),
            foreign: None,
            only_foreign: Vec::new(),
            settings: settings.clone(),
            is_root: true,
        })
    }

    /// The definitions of the built-in tools, in a fixed order.
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// The deferred tools of an agent that has this toolbox. If a rule removes the search tool,
    /// nothing is deferred.
    pub fn deferred_tools(&self) -> DeferredTools {
        let is_removed = self.tools.permissions.removes(BuiltinTool::ToolSearch);
        let mode = if is_removed { ToolSearchMode::Off } else { self.settings.tool_search };
        DeferredTools::new(mode)
    }

    /// The possible effect of a call of this tool. An unknown tool is assumed to change something.
    pub fn effect(&self, name: &str) -> Effect {
        BuiltinTool::named(&self.exact_name(name)).map_or(Effect::Changes, BuiltinTool::effect)
    }

    /// The tool for a name as a model writes it: the exact name, or the tool that the host has
    /// called in its place. Not for a name that was resolved before: two tools may be swapped.
    pub fn tool_for<'a>(&'a self, written: &'a str) -> Cow<'a, str> {
        let exact = self.exact_name(written);
        match self.settings.aliases.get(exact.as_ref()) {
            Some(tool) => Cow::Borrowed(tool.as_str()),
            None => exact,
        }
    }

    /// The exact name of the tool that is meant: some models write `bash` for `Bash`, and some
    /// parsers of replies leave marks of their format around it. Case, `_` and `-` do not matter.
    pub(super) fn exact_name<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        let own = self.definitions.iter().map(|tool| tool.name.as_str());
        let mut known = own.chain(built_in_names()).chain([AGENT, TASK]);
        let bare = undecorated_name(name);
        let bare = name_here(bare).unwrap_or(bare);
        for name in [name, bare] {
            let mut built_in = known.clone();
            if built_in.any(|tool| tool == name) || self.source_of(name).is_some() {
                return Cow::Borrowed(name);
            }
        }
        let full = self.foreign.as_ref().and_then(|foreign| foreign.full_name(bare));
        if let Some(full) = full.filter(|full| self.source_of(full).is_some()) {
            return Cow::Owned(full);
        }
        let folded = folded_name(bare);
        if let Some(meant) = known.find(|tool| folded_name(tool) == folded) {
            return Cow::Borrowed(meant);
        }
        let mut external =
            self.external_definitions().filter(|tool| folded_name(&tool.name) == folded);
        match (external.next(), external.next()) {
            (Some(only), None) => Cow::Owned(only.name),
            (_, _) => Cow::Borrowed(name),
        }
    }

    /// Redacts the run's secrets from an outcome, so that no injected instruction can make the
    /// model send them elsewhere.
    pub(super) fn redacted(&self, mut outcome: ToolOutcome) -> ToolOutcome {
        for block in &mut outcome.content {
            if let Block::Text { text } = block {
                self.redactor.redact_in_place(text);
            }
        }
        self.redactor.redact_json(&mut outcome.detail);
        outcome
    }
}

/// The name of a tool without the letters that models confuse.
fn folded_name(name: &str) -> String {
    name.chars().filter(|letter| !"_-".contains(*letter)).flat_map(char::to_lowercase).collect()
}

/// Namespaces that models put before the names of tools: of `OpenAI` and Kimi, of Gemini.
const NAMESPACES: [&str; 2] = ["functions", "default_api"];

/// The name of a tool without a namespace before it, and a number or a token of the model after it:
/// `functions.Bash:0`, `default_api:Bash`, `Bash<|channel|>commentary`.
fn undecorated_name(name: &str) -> &str {
    let name = name.split_once("<|").map_or(name, |(name, _)| name).trim();
    let mut spaces = NAMESPACES.iter();
    let inner = spaces.find_map(|space| name.strip_prefix(space)?.strip_prefix(['.', ':']));
    let name = inner.unwrap_or(name);
    let numbered = name.rsplit_once(':');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    numbered.filter(|(_, number)| is_number(number)).map_or(name, |(name, _)| name)
}
