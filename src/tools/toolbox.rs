//! The tools of a run, and the stages of every call: lookup, validation, permission, execution.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::secrets::Redactor;
use crate::transcript::{Block, ToolCall, ToolDefinition};
use crate::types::ToolSearchMode;

use super::acceptance::AcceptanceDemands;
use super::background;
use super::call_paths::path;
use super::capture::OutputFolder;
use super::catalog::{BuiltinTool, CommandTimes};
use super::edit;
use super::external::{ExternalTools, Permission};
use super::file_history::FileHistory;
use super::file_names;
use super::files_read::FilesRead;
use super::glob;
use super::grep;
use super::input::{self, ParsedInput, ToolRequest};
use super::notebook_edit;
use super::outcome::{Effect, GrantSource, ToolError, ToolOutcome, ToolRefusal};
use super::panic_guard::{catch_panic, run_change, run_guarded, run_read};
use super::paths::{PATH_BYTES_MAX, PathScope, ResolvedPath, WorkFolders, resolve};
use super::permission::{Access, Confinement, Denial, Permissions};
use super::read;
use super::real_paths::RealPaths;
use super::sandbox::{CommandScope, Hides, PlainScope};
use super::settings::{BadSettings, ToolSettings};
use super::shell::{ShellParts, ShellSession, check_command};
use super::todo::TodoList;
use super::tool_search::DeferredTools;
use super::toolbox_setup::{
    background_tasks, build_permissions, environment, not_removed_by_rules, offered_tools, sandbox,
};
use super::walk::{self, SearchBounds};
use super::web::{self, WebFetcher};
use super::write;

/// The tools of a run.
pub struct Toolbox {
    pub(super) definitions: Vec<ToolDefinition>,
    pub(super) mask: Redactor,
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
    offered: Vec<BuiltinTool>,
    pub(super) permissions: Permissions,
    pub(super) places: WorkFolders,
    pub(super) shell: ShellSession,
    pub(super) acceptance: AcceptanceDemands,
    web: Option<WebFetcher>,
    /// True if the run can search the web.
    searches_web: bool,
    pub(super) seen: FilesRead,
    /// Keeps the contents of files before they are changed.
    history: Option<FileHistory>,
    pub(super) todos: TodoList,
    pub(super) output_limit: usize,
    pub(super) foreign_output_limit: usize,
}

/// Checks the access that a tool requests.
type PermissionCheck<'a> = &'a dyn Fn(BuiltinTool, &Access<'_>) -> Result<Confinement, Denial>;

/// A call with valid input and permission.
struct ValidatedCall {
    request: ToolRequest,
    /// The changes of the input, for the model.
    notes: Vec<String>,
    /// The resolved path, if the call has one.
    place: Option<ResolvedPath>,
    /// The confinement, if the call is a command.
    confinement: Confinement,
}

impl Toolbox {
    /// Creates the tools. Reads the file system, but changes nothing.
    ///
    /// # Errors
    /// The settings are not valid; the error names the fault.
    pub fn new(settings: &ToolSettings) -> Result<Self, BadSettings> {
        let environment = environment(settings);
        let home = settings.home.clone().filter(|home| home.is_absolute());
        let roots = [settings.cwd.clone()].into_iter().chain(settings.additional_dirs.clone());
        let roots: Vec<PathBuf> = roots.map(|root| settings.cwd.join(root)).collect();
        if let Some(path) = roots.iter().find(|root| !root.is_dir()) {
            return Err(BadSettings::NoFolder { path: path.clone() });
        }
        let places =
            WorkFolders::new(&roots, &settings.scratch, home).with_readable(&settings.readable);
        let home = places.home.as_deref();
        let permissions = build_permissions(settings, places.cwd(), home)?;
        let sandbox = sandbox(settings, &roots, home, &permissions)?;
        let permissions = permissions.with_sandbox(sandbox.secrets(), sandbox.can_hold_readers());
        let demands = AcceptanceDemands::new(settings)?;
        let offered = offered_tools(&settings.offered);
        let times = CommandTimes {
            default: settings.bash_timeout,
            max: settings.bash_timeout_max,
            background: settings.background_lifetime,
        };
        let define =
            |tool: &BuiltinTool| tool.define(&times, sandbox.model_description().as_deref());
        let there = |tool: &&BuiltinTool| settings.has_service_of(**tool);
        let left = not_removed_by_rules(&offered, &permissions);
        let definitions = left.iter().filter(there).map(define).chain(demands.define()).collect();
        let scratch = OutputFolder::new(&settings.scratch, &settings.secrets);
        let web = WebFetcher::from_settings(settings, &scratch)?;
        let shell = ShellSession::new(ShellParts {
            environment,
            timeout: settings.bash_timeout.min(settings.bash_timeout_max),
            timeout_max: settings.bash_timeout_max,
            lifetime: settings.background_lifetime,
            memory: settings.command_memory,
            output_limit: settings.output_limit,
            scratch,
            cwd: places.cwd().to_path_buf(),
            supervisor: settings.supervisor.clone(),
            sandbox,
            background: background_tasks(settings),
        });
        let tool_set = ToolSet {
            offered,
            permissions,
            places,
            shell,
            acceptance: demands,
            web,
            searches_web: settings.has_service_of(BuiltinTool::WebSearch),
            seen: FilesRead::default(),
            history: settings.history.clone(),
            todos: TodoList::default(),
            output_limit: settings.output_limit,
            foreign_output_limit: settings.external_output_limit,
        };
        let mask = Redactor::for_model(settings.secrets.clone());
        Ok(Self {
            definitions,
            mask,
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

    /// The possible effect of a call. An unknown tool is assumed to change something.
    pub fn effect(&self, call: &ToolCall) -> Effect {
        BuiltinTool::named(&call.name).map_or(Effect::Changes, BuiltinTool::effect)
    }

    /// True if this call can run in parallel with others of its reply: it changes nothing, because
    /// of the kind of tool, because the kernel enforces it, or because a trusted MCP server
    /// declares it. All other calls run one by one, in order.
    pub fn can_run_in_parallel(&self, call: &ToolCall) -> bool {
        if self.effect(call).changes_nothing() {
            return true;
        }
        if let Some(source) = self.source_of(&call.name) {
            return match source.permission_for(call) {
                Permission::NotNeeded => true,
                Permission::Needed { reads_only, .. } => reads_only,
            };
        }
        let Ok(valid) = self.tools.admit(call, GrantSource::Rules) else { return false };
        let in_foreground =
            matches!(&valid.request, ToolRequest::Bash(bash) if !bash.run_in_background);
        in_foreground && self.tools.only_reads(&valid.confinement)
    }

    /// Checks that the tool exists, its input is valid and the call is allowed. Has no effect.
    ///
    /// # Errors
    /// The refusal for the model.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub fn admit(&self, call: &ToolCall) -> Result<(), ToolRefusal> {
        self.admit_with_source(call, GrantSource::Rules)
    }

    /// Like [`Self::admit`], for a call that a hook or a prompt may have allowed.
    ///
    /// # Errors
    /// The refusal for the model.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    pub fn admit_with_source(
        &self,
        call: &ToolCall,
        source: GrantSource,
    ) -> Result<(), ToolRefusal> {
        // An answer is validated when it is stored; validating it here would not be counted.
        if self.tools.acceptance.answers_of(&call.name).is_some() {
            return Ok(());
        }
        if self.is_agent_tool_name(&call.name) {
            return self.admit_agent(call);
        }
        if let Some(foreign) = self.source_of(&call.name) {
            return self.admit_external(foreign.as_ref(), call, source);
        }
        if let Some(why) = self.unavailable_message(&call.name) {
            return Err(ToolRefusal::invalid(why));
        }
        self.tools.admit(call, source).map(drop)
    }

    /// Returns the call with symbolic links in its path resolved, if there are any.
    pub fn with_real_path(&self, call: &ToolCall) -> Option<ToolCall> {
        self.tools.with_path(call, |_, path| {
            let path = file_names::find(Path::new(path));
            let real = resolve(&path);
            (real != path).then_some(real)
        })
    }

    /// True if a permission rule covers this call, or if that cannot be determined.
    pub fn rule_covers(&self, rule: &str, call: &ToolCall) -> bool {
        if BuiltinTool::named(&call.name).is_none() {
            return self.tools.permissions.rule_covers_external(rule, &call.name);
        }
        self.tools.rule_covers(rule, call)
    }

    /// Runs an admitted call. Never fails: every failure, including a panic, is an outcome.
    pub async fn run(&self, call: &ToolCall, cancel: CancellationToken) -> ToolOutcome {
        self.run_with_source(call, GrantSource::Rules, cancel).await
    }

    /// Like [`Self::run`], for a call that something other than the rules may have allowed.
    pub async fn run_with_source(
        &self,
        call: &ToolCall,
        source: GrantSource,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        if let Some(foreign) = self.source_of(&call.name) {
            return self.redacted(self.run_external(Arc::clone(foreign), call, cancel).await);
        }
        let (tool_set, name, call) = (Arc::clone(&self.tools), call.name.clone(), call.clone());
        let outcome =
            run_guarded(
                &name,
                async move { tool_set.recheck_and_run(&call, source, cancel).await },
            )
            .await;
        self.redacted(outcome)
    }

    /// Redacts the run's secrets from an outcome, so that no injected instruction can make the
    /// model send them elsewhere.
    pub(super) fn redacted(&self, mut outcome: ToolOutcome) -> ToolOutcome {
        for block in &mut outcome.content {
            if let Block::Text { text } = block {
                self.mask.redact_in_place(text);
            }
        }
        self.mask.redact_json(&mut outcome.detail);
        outcome
    }
}

impl ToolSet {
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    fn admit(&self, call: &ToolCall, source: GrantSource) -> Result<ValidatedCall, ToolRefusal> {
        let check_permission = |tool: BuiltinTool, access: &Access<'_>| {
            self.permissions.check_call(tool, &call.input, access, source)
        };
        self.validate(call, &check_permission)
    }

    /// The access that a search of the web requests.
    ///
    /// # Errors
    /// The run cannot search.
    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    fn search_access(&self) -> Result<Access<'static>, ToolRefusal> {
        self.searches_web.then_some(Access::Search).ok_or_else(|| Denial::NoSearch.into())
    }

    /// Returns the call with its path replaced. `None` if it has no path, or is not valid.
    pub(super) fn with_path(
        &self,
        call: &ToolCall,
        change: impl FnOnce(&Self, &str) -> Option<PathBuf>,
    ) -> Option<ToolCall> {
        let tool = BuiltinTool::named(&call.name)?;
        let field = tool.path_field()?;
        let request = input::parse(tool, &call.input).ok()?.request;
        Self::check(tool, &request).ok()?;
        let changed = change(self, &path(&request)?)?;
        let mut call = call.clone();
        call.input.as_object_mut()?.insert(field.to_owned(), file_names::shown(&changed).into());
        Some(call)
    }

    fn rule_covers(&self, rule: &str, call: &ToolCall) -> bool {
        let check_permission = |tool: BuiltinTool, access: &Access<'_>| {
            self.permissions.check_against_rule(rule, tool, &call.input, access)
        };
        self.validate(call, &check_permission).is_err()
    }

    #[expect(clippy::result_large_err, reason = "a refusal is rare, and used up at once")]
    fn validate(
        &self,
        call: &ToolCall,
        check_permission: PermissionCheck<'_>,
    ) -> Result<ValidatedCall, ToolRefusal> {
        let Some(tool) = BuiltinTool::named(&call.name).filter(|tool| self.offered.contains(tool))
        else {
            return Err(ToolRefusal::invalid(format!("No such tool available: {}", call.name)));
        };
        let ParsedInput { mut request, mut notes } = input::parse(tool, &call.input)?;
        if let ToolRequest::Bash(bash) = &mut request {
            notes.extend(self.shell.lower_timeout(bash));
        }
        Self::check(tool, &request)?;
        let cwd = self.shell.cwd();
        let place = self.place(&request, &cwd);
        // The words of a command have most of their folders in common.
        let seen = RealPaths::default();
        let find = |path: &str, base: &Path| {
            self.places.resolve_by(path, base, |path| seen.resolve(path, &[]))
        };
        let access = match (&request, &place) {
            (ToolRequest::Bash(bash), _) => {
                Access::Command { command: &bash.command, cwd: &cwd, resolve: &find }
            }
            (
                ToolRequest::Write(_) | ToolRequest::Edit(_) | ToolRequest::NotebookEdit(_),
                Some(place),
            ) => Access::Change(place.clone()),
            (ToolRequest::Read(_) | ToolRequest::Glob(_) | ToolRequest::Grep(_), Some(place)) => {
                Access::Read(place.clone())
            }
            (ToolRequest::WebFetch(fetch), _) => web::requested_access(self.web.as_ref(), fetch)?,
            (ToolRequest::WebSearch(_), _) => self.search_access()?,
            (_, None)
            | (
                ToolRequest::TodoWrite(_)
                | ToolRequest::ToolSearch(_)
                | ToolRequest::BashOutput(_)
                | ToolRequest::KillShell(_),
                _,
            ) => Access::Nothing,
        };
        let confinement = check_permission(tool, &access)?;
        Ok(ValidatedCall { request, notes, place, confinement })
    }

    /// Performs the checks that are specific to the tool. They compile patterns of the model with
    /// third-party parsers, so a panic refuses the call.
    fn check(tool: BuiltinTool, request: &ToolRequest) -> Result<(), ToolError> {
        catch_panic(tool.name(), || Self::check_input(request))
            .unwrap_or_else(|panicked| Err(panicked.to_string().into()))
    }

    fn check_input(request: &ToolRequest) -> Result<(), ToolError> {
        if path(request).is_some_and(|path| path.contains('\0')) {
            return Err("the path contains a NUL character".into());
        }
        if path(request).is_some_and(|path| path.len() > PATH_BYTES_MAX) {
            return Err(format!("the path is longer than {PATH_BYTES_MAX} bytes").into());
        }
        match request {
            ToolRequest::Bash(bash) => {
                check_command(&bash.command).map_err(|why| why.to_string().into())
            }
            ToolRequest::Edit(edit) => edit::check_input(edit),
            ToolRequest::NotebookEdit(edit) => notebook_edit::check_input(edit),
            ToolRequest::Glob(glob) => glob::compile(glob).map(drop),
            ToolRequest::Grep(grep) => {
                grep.kind.as_deref().map_or(Ok(()), |kind| walk::find_types(kind).map(drop))?;
                if let Some(glob) = &grep.glob {
                    walk::compile_globs(Path::new("/"), Some(glob))?;
                }
                grep::compile(grep).map(drop)
            }
            ToolRequest::BashOutput(look) => background::compile_filter(look).map(drop),
            ToolRequest::WebSearch(search) => search.check(),
            ToolRequest::Read(_)
            | ToolRequest::Write(_)
            | ToolRequest::WebFetch(_)
            | ToolRequest::ToolSearch(_)
            | ToolRequest::TodoWrite(_)
            | ToolRequest::KillShell(_) => Ok(()),
        }
    }

    /// Checks the call again, as the file system may have changed since it was admitted, and runs
    /// it.
    async fn recheck_and_run(
        self: Arc<Self>,
        call: &ToolCall,
        source: GrantSource,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        if let Some(answers) = self.acceptance.answers_of(&call.name) {
            let input = call.input.clone();
            return run_read(cancel, move |stop| answers.validate_and_store(&input, stop)).await;
        }
        let valid = match self.admit(call, source) {
            Ok(valid) => valid,
            Err(refusal) => return refusal.into_outcome(),
        };
        let notes = valid.notes.join("; ");
        let mut outcome = self.run_valid(call, valid, cancel).await;
        if !notes.is_empty() {
            outcome.content.push(Block::text(format!("({notes}.)")));
        }
        outcome
    }

    async fn run_valid(
        self: Arc<Self>,
        call: &ToolCall,
        valid: ValidatedCall,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let ValidatedCall { request, notes: _, place, confinement } = valid;
        let Some(place) = place else {
            return match request {
                ToolRequest::Bash(bash) => {
                    let scope = self.command_scope(confinement, &bash.command);
                    if bash.run_in_background {
                        self.shell.start_in_background(&call.id, &bash, scope, &self.places).await
                    } else {
                        self.shell.run(&bash, scope, &self.places, &cancel).await
                    }
                }
                ToolRequest::BashOutput(look) => {
                    background::read_output(&self.shell.background, &look, &cancel).await
                }
                ToolRequest::KillShell(which) => {
                    background::kill(&self.shell.background, &which).await
                }
                ToolRequest::TodoWrite(todo) => self.todos.replace(todo),
                ToolRequest::WebFetch(fetch) => {
                    web::fetch(self.web.as_ref(), &fetch, &cancel).await
                }
                // The run performs these.
                ToolRequest::WebSearch(_) | ToolRequest::ToolSearch(_) => {
                    ToolOutcome::failure("nothing can be searched here")
                }
                ToolRequest::Read(_)
                | ToolRequest::Write(_)
                | ToolRequest::Edit(_)
                | ToolRequest::NotebookEdit(_)
                | ToolRequest::Glob(_)
                | ToolRequest::Grep(_) => ToolOutcome::failure("the call names no path"),
            };
        };
        let effect = BuiltinTool::named(&call.name).map_or(Effect::Changes, BuiltinTool::effect);
        let work = move |stop: &CancellationToken| {
            self.run_file_tool(request, &place, stop).unwrap_or_else(ToolOutcome::from)
        };
        match effect {
            Effect::ReadOnly | Effect::Network => run_read(cancel, work).await,
            Effect::Changes => run_change(cancel, work).await,
        }
    }

    /// True if the kernel keeps a command from every change.
    fn only_reads(&self, confinement: &Confinement) -> bool {
        self.shell.sandbox().can_hold_readers()
            && match confinement {
                Confinement::SandboxReading => true,
                Confinement::Sandbox => false,
                Confinement::Plain { changed, may_move, .. } => changed.is_empty() && !may_move,
            }
    }

    fn command_scope(self: &Arc<Self>, confinement: Confinement, command: &str) -> CommandScope {
        let (named, changed, may_move) = match confinement {
            Confinement::Sandbox => {
                return CommandScope::Sandbox(self.permissions.granted_credentials(command));
            }
            Confinement::SandboxReading => return CommandScope::Reading,
            Confinement::Plain { named, changed, may_move } => (named, changed, may_move),
        };
        let tool_set = Arc::clone(self);
        let folders = self.places.readable_folders();
        let hides_some = folders.iter().chain(&named).any(|folder| {
            let place = ResolvedPath {
                written: folder.clone(),
                real: folder.clone(),
                scope: PathScope::Inside,
            };
            self.permissions.hides_below(&place)
        });
        // A program in a folder of the run could be one that a command has put there.
        let path = self.shell.path_variable();
        let writable = self.shell.sandbox().writable();
        let is_safe = |folder: &PathBuf| {
            let real = resolve(folder);
            !writable.iter().chain(&folders).any(|root| real.starts_with(root))
        };
        let safe = std::env::join_paths(std::env::split_paths(&path).filter(is_safe));
        let path = safe.unwrap_or(path);
        CommandScope::Plain(PlainScope {
            folders,
            named,
            outputs: Vec::new(),
            changed,
            may_move,
            hides: hides_some.then(|| -> Hides {
                Arc::new(move |path| tool_set.permissions.hides(BuiltinTool::Read, path))
            }),
            path,
        })
    }

    /// Runs the part of a call that accesses files. Blocks.
    fn run_file_tool(
        self: Arc<Self>,
        request: ToolRequest,
        place: &ResolvedPath,
        stop: &CancellationToken,
    ) -> Result<ToolOutcome, ToolError> {
        let base = self.shell.cwd();
        let known = (&self.seen, self.history.as_ref());
        match request {
            ToolRequest::Read(read) => read::run(&read, place, &base, &self.seen, stop),
            ToolRequest::Write(write) => write::run(&write, place, known, stop),
            ToolRequest::Edit(edit) => edit::run(&edit, place, &base, known, stop),
            ToolRequest::NotebookEdit(edit) => notebook_edit::run(&edit, place, &base, known, stop),
            ToolRequest::Glob(input) => {
                let matcher = glob::compile(&input)?;
                let scope = self.glob_scope(&input, place)?;
                glob::run(&matcher, &scope, &base, &SearchBounds::new(stop))
            }
            ToolRequest::Grep(input) => {
                let matcher = grep::compile(&input)?;
                let scope = self.grep_scope(&input, place)?;
                let bounds = SearchBounds::new(stop);
                grep::run(&input, &matcher, &scope, &base, self.output_limit, &bounds)
            }
            ToolRequest::Bash(_)
            | ToolRequest::BashOutput(_)
            | ToolRequest::KillShell(_)
            | ToolRequest::WebFetch(_)
            | ToolRequest::WebSearch(_)
            | ToolRequest::ToolSearch(_)
            | ToolRequest::TodoWrite(_) => Err("the call touches no files".into()),
        }
    }
}
