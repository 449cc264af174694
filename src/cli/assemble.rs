//! Builds the parts of a run from the settings.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::agent::{
    Clock, Delegation, FolderNote, FolderNotes, Housekeeping, ModelEndpoint, Prompt, Setup,
    agent_kinds, with_mcp_tools,
};
use crate::hooks::{CrashLog, HookEnvironment, Hooks};
use crate::host::UserPrompt;
use crate::journal::{ContentForm, Damage, SessionTotals};
use crate::mcp::{LoginEnvironment, ServerEnvironment, Servers, tool_name_prefix};
use crate::model::limits::SharedLimits;
use crate::model::{
    EndpointError, ModelClient, ModelFacts, ModelService, RequestTimers, Transport,
};
use crate::process::{Supervisor, UserPrograms};
use crate::recovery::{FastMode, Ledger, Limits, Money};
use crate::secrets::{KnownSecrets, Redactor};
use crate::tools::{
    AgentDefinition, ReadDenial, SandboxState, ToolSettings, Toolbox, hook_environment,
};
use crate::transcript::{Block, ToolDefinition};
use crate::types::{Callback, HostChannel, PermissionPrompt};

use super::chosen_session::ChosenSession;
use super::host_turn::HostTurn;
use super::memory::{Memory, MemoryFile, MemorySearch};
use super::model_facts::model_facts;
use super::output::Resumption;
use super::session::{FoundSession, Task};
use super::settings::{ChainEntry, ModelChain, Settings};
use super::subagent_setup::subagent_setup;
use super::system::{EnvironmentFacts, add_acceptance_checks, add_part, compose};
use super::timestamps::WallTime;
use super::tool_setup::{
    live_permissions, prepare_scratch, scratch, tool_settings, tool_settings_error,
};
use super::usage::UsageError;
use super::web::http_clients;
use crate::config::environment;
use crate::config::kinds::BudgetMode;

/// Builds a run. The journal is opened last, so that an error in anything else leaves the disk
/// unchanged. The contract of the session records the given limits; the run gets the rest of them.
///
/// # Errors
/// A budget without a price, a bad rule, an address or certificate that cannot be used, or a
/// session that cannot do the task.
pub(super) fn assemble(
    given: &Settings,
    session: ChosenSession,
    task: &Task,
    clock: Clock,
    now: &WallTime,
    secrets: &KnownSecrets,
    host: Option<&HostTurn>,
) -> Result<(Setup, Resumption), UsageError> {
    let models = models(given)?;
    let mirror = host.and_then(|host| host.mirror.clone());
    let session = FoundSession::new(session, given, task)?.mirrored(mirror);
    let mut settings = given.clone();
    settings.config.limits = session.remaining_limits(&given.config.limits);
    let settings = &settings;
    let here = EnvironmentFacts::new(&settings.cwd, &settings.config, now);
    let supervisor = Supervisor::default();
    let folder_and_id = (scratch(settings, &session), session.id());
    let tools = tool_settings(settings, folder_and_id, secrets, &supervisor, host);
    let toolbox = Toolbox::new(&tools).map_err(tool_settings_error)?;
    let memory = memory(settings, &toolbox);
    let system = system_prompt(settings, &here, &memory);
    let notes = folder_instructions(settings, &toolbox);
    let delegation = Delegation { folder_notes: notes, ..subagent_setup(settings, &here, &memory) };
    // Starts the user's own programs, the one before it the model's commands.
    let supervisor = supervisor.with_programs(&user_programs(settings, &toolbox));
    let endpoints = model_endpoints(settings, models, clock, host, (secrets, &supervisor))?;
    let prompt = session.remaining_prompt(&task.prompt);
    let session_warnings = session.warnings(settings);
    let required = with_prompt_server(settings, session.required_servers(settings));
    let kept_servers = host.and_then(|host| host.resources.servers.clone());
    let (keep_servers, channel) = (kept_servers.is_some(), host.map(|it| Arc::clone(&it.channel)));
    let servers = kept_servers.unwrap_or_else(|| {
        let servers = servers(settings, &toolbox, &supervisor, channel.clone());
        Arc::new(servers.with_required(required))
    });
    let (limits, session_id) = (limits(settings, &endpoints), session.id());
    let moved_folder = session.moved_folder(settings);
    let (journal, resumed) = session.open(given, &limits, &endpoints[0].label, secrets)?;
    record_opened(host, &session_id);
    let damage = resumed.contract.damage.clone();
    let damage_warning = Vec::from_iter(damage.as_ref().map(describe_damage));
    let seed = Uuid::new_v4().as_u64_pair().0;
    // Last, so that an error in the settings does not leave a folder behind.
    prepare_folders(settings, &tools, host)?;
    let setup = Setup {
        hooks: Some(hooks(settings, (&session_id, journal.path()), secrets, &supervisor, host)),
        session_id,
        prompt: user_prompt(prompt, host),
        system,
        cwd: settings.cwd.clone(),
        endpoints,
        toolbox,
        servers,
        keep_servers,
        lifecycle: host.map(|host| host.resources.lifecycle.clone()),
        host: channel,
        limits,
        ledger: ledger(settings, &resumed.totals.prompt, host),
        clock,
        seed,
        permission_mode: settings.config.permissions.mode.name().to_owned(),
        api_key_source: settings.endpoint.credential.source().to_owned(),
        reasoning: settings.config.reasoning,
        stream_events: settings.output.stream.partial_messages,
        stop_after: budget(settings, BudgetMode::After),
        journal,
        shared: shared_limits(settings, clock, seed),
        secrets: secrets.clone(),
        memory_files: memory.files.into_iter().map(|file| file.path).collect(),
        warnings: [memory.warnings, session_warnings, damage_warning].concat(),
        resumed,
        moved_folder,
        gauge: host.map(|host| host.resources.gauge.clone()).unwrap_or_default(),
        agents: settings.agents.clone(),
        delegation,
        housekeeping: Housekeeping::default(),
    };
    Ok((setup, Resumption { changes: given.contract_changes(), damage }))
}

/// Makes the folders for output and, for a host, for the files before they are changed.
fn prepare_folders(
    settings: &Settings,
    tools: &ToolSettings,
    host: Option<&HostTurn>,
) -> Result<(), UsageError> {
    prepare_scratch(settings, &tools.scratch)?;
    if let Some((host, history)) = host.zip(tools.history.as_ref()) {
        // A folder that cannot be written is reported when a file is copied to it.
        let _ = history.begin(&host.prompt.added);
    }
    Ok(())
}

/// Records for the host's later turns that the session exists.
fn record_opened(host: Option<&HostTurn>, session_id: &str) {
    if let Some(host) = host {
        host.resources.opened.record(session_id);
    }
}

/// The head of the requests of a run: the parts that come before the messages.
pub(super) struct RequestHead {
    /// The label of the first model.
    pub model: String,
    /// Its context window in tokens.
    pub window: u64,
    /// The system prompt without the memory files.
    pub system: String,
    pub memory: Memory,
    pub tools: Vec<ToolDefinition>,
    /// The kinds of sub-agents.
    pub agents: Vec<AgentDefinition>,
    pub sandbox: SandboxState,
    /// Names of variables that commands do not see.
    pub dropped_variables: Vec<String>,
    limits: Limits,
    max_output: u32,
}

impl RequestHead {
    /// The number of tokens at which compaction is due, if it is enabled. `fixed` is the size of
    /// the head.
    pub(super) fn compaction_threshold(&self, window: u64, fixed: u64) -> Option<u64> {
        let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let due = self.limits.crowded_from(tokens(window), self.max_output, tokens(fixed));
        self.limits.auto_compact.then_some(due.into())
    }
}

/// Builds the head of the requests of the next run, as [`assemble`] would. Changes nothing.
///
/// # Errors
/// An error that would also prevent the run.
pub(super) fn request_head(
    settings: &Settings,
    servers: &Arc<Servers>,
    secrets: &KnownSecrets,
    now: &WallTime,
) -> Result<RequestHead, UsageError> {
    let first = &settings.chain.links[0];
    let facts = model_facts(first, settings)?;
    let here = EnvironmentFacts::new(&settings.cwd, &settings.config, now);
    let system = system_prompt(settings, &here, &Memory::default());
    let (toolbox, _) = toolbox_without_session(settings, String::new(), secrets)?;
    let toolbox = with_mcp_tools(toolbox, servers);
    let is_offered = settings.config.agents.depth > 0;
    let agents = if is_offered { agent_kinds(settings.agents.clone()) } else { Vec::new() };
    let toolbox = if is_offered { toolbox.with_agents(&agents) } else { toolbox };
    Ok(RequestHead {
        model: first.label.clone(),
        window: facts.context_window,
        system,
        memory: memory(settings, &toolbox),
        tools: toolbox.all_definitions(),
        sandbox: toolbox.sandbox().clone(),
        dropped_variables: toolbox.dropped_variables().to_vec(),
        agents: if toolbox.offers_agents() { agents } else { Vec::new() },
        limits: limits(settings, &[]),
        max_output: facts.max_output,
    })
}

/// Returns the tools of a run, without a usable folder for long output, and their supervisor.
fn toolbox_without_session(
    settings: &Settings,
    session_id: String,
    secrets: &KnownSecrets,
) -> Result<(Toolbox, Supervisor), UsageError> {
    let supervisor = Supervisor::default();
    let folder_and_id = (std::env::temp_dir(), session_id);
    let tools = tool_settings(settings, folder_and_id, secrets, &supervisor, None);
    Ok((Toolbox::new(&tools).map_err(tool_settings_error)?, supervisor))
}

/// Returns the system prompt, with the memory files.
fn system_prompt(settings: &Settings, here: &EnvironmentFacts<'_>, memory: &Memory) -> String {
    let system = add_part(compose(&settings.system, here), settings.instructions());
    add_acceptance_checks(add_part(system, memory.prompt()), &settings.demands)
}

/// Returns the user's message: the text, between the other blocks of a host.
fn user_prompt(text: &str, host: Option<&HostTurn>) -> Prompt {
    let text = (!text.is_empty()).then(|| Block::text(text));
    let prompt = host.map(|host| &host.prompt);
    let blocks = prompt.map(|prompt| (prompt.before.clone(), prompt.after.clone()));
    let (before, after) = blocks.unwrap_or_default();
    let id = prompt.and_then(|prompt| Uuid::try_parse(prompt.uuid.as_deref()?).ok());
    // A message before the prompt would be taken for it.
    let is_text = before.is_empty() && prompt.is_none_or(UserPrompt::is_text);
    let form = if is_text { ContentForm::Text } else { ContentForm::Blocks };
    let content = before.into_iter().chain(text).chain(after).collect();
    Prompt { content, id, form, ..Prompt::default() }
}

/// Describes the damage of a session file and the remaining records, in one line.
fn describe_damage(damage: &Damage) -> String {
    let Damage { line, what, dropped_records, kept_in } = damage;
    let location = match kept_in {
        Some(path) => format!("they are kept in {path}"),
        None => "they stay in that file".to_owned(),
    };
    format!(
        "the session's file is damaged at line {line} ({what}): {dropped_records} records from \
         there on are not used; {location}"
    )
}

/// Returns the budget, if it is checked in this mode.
fn budget(Settings { config, .. }: &Settings, mode: BudgetMode) -> Option<Money> {
    config.max_budget_usd.filter(|_| config.budget_mode == mode)
}

/// Returns the ledger of a prompt. The budget of a host holds for all prompts of its conversation.
fn ledger(settings: &Settings, prompt: &SessionTotals, host: Option<&HostTurn>) -> Ledger {
    Ledger::new(budget(settings, BudgetMode::Ceiling))
        .with_earlier(host.map(|host| host.resources.usage.spent()).unwrap_or_default())
        .with_spent(prompt.spent.minus(prompt.upper_bounds))
        .with_unsettled(prompt.upper_bounds)
}

fn models(settings: &Settings) -> Result<Vec<ModelFacts>, UsageError> {
    settings.chain.links.iter().map(|link| model_facts(link, settings)).collect()
}

/// Reads the memory files (CLAUDE.md, AGENTS.md), once for each process.
fn memory(settings: &Settings, toolbox: &Toolbox) -> Memory {
    search_memory(settings, None, &toolbox.read_denial())
}

/// Reads the memory files of folders below the working one, for a file that the model works on.
fn folder_instructions(settings: &Settings, toolbox: &Toolbox) -> FolderNotes {
    let (settings, denial) = (settings.clone(), toolbox.read_denial());
    Arc::new(move |file: &Path| {
        let found = search_memory(&settings, Some(file), &denial);
        let text = |file: MemoryFile| FolderNote::Text { path: file.path, text: file.text };
        let warnings = found.warnings.into_iter().map(FolderNote::Warning);
        found.files.into_iter().map(text).chain(warnings).collect()
    })
}

/// Searches the memory files of the run, or those in the folders of a file.
fn search_memory(settings: &Settings, file: Option<&Path>, denial: &ReadDenial) -> Memory {
    let Some(sources) = settings.memory else { return Memory::default() };
    let home = environment::home(&settings.variables);
    let folders =
        if sources.user { environment::own_folders(&settings.variables) } else { Vec::new() };
    let search = MemorySearch {
        machine: sources.user.then_some(Path::new(MACHINE_MEMORY)),
        own: &folders,
        home: home.as_deref(),
        cwd: &settings.cwd,
        project: sources.project,
        local: sources.local,
        trusted: sources.trusted,
        denial: denial.as_ref(),
    };
    match file {
        None => search.read(),
        Some(file) => search.read_for_file(file),
    }
}

/// The memory file of the administrator, for every run on this machine.
const MACHINE_MEMORY: &str = "/etc/claude-code/CLAUDE.md";

/// Returns the user's hooks, with the environment that they run in.
fn hooks(
    settings: &Settings,
    (session_id, journal): (&str, &Path),
    secrets: &KnownSecrets,
    supervisor: &Supervisor,
    host: Option<&HostTurn>,
) -> Hooks {
    let variables: Vec<(OsString, OsString)> = settings.variables.clone().into_iter().collect();
    let credentials = &settings.chain.key_variables;
    let mut environment = hook_environment(&variables, credentials, session_id);
    let depth = settings.hook_depth.saturating_add(1).to_string();
    for (name, value) in [
        (environment::HOOK_DEPTH, OsString::from(depth)),
        ("CLAUDE_PROJECT_DIR", settings.cwd.clone().into_os_string()),
    ] {
        environment.retain(|(known, _)| known != name);
        environment.push((name.into(), value));
    }
    let effort = settings.config.reasoning.effort;
    if let Some(effort) = effort {
        environment.push(("CLAUDE_EFFORT".into(), effort.name().into()));
    }
    let (live, own) = (live_permissions(host), settings.config.permissions.mode);
    let context = HookEnvironment {
        session_id: session_id.to_owned(),
        transcript: journal.to_owned(),
        cwd: settings.cwd.clone(),
        permission_mode: Callback(Arc::new(move || live.mode().unwrap_or(own))),
        effort,
        environment,
        log: CrashLog::in_folder(&settings.state_dir),
        state_folder: settings.state_dir.clone(),
        secrets: secrets.clone(),
        shell: "/bin/sh".into(),
        supervisor: supervisor.clone(),
        host: host.map(|host| Arc::clone(&host.channel)),
    };
    Hooks::new(settings.hooks.clone(), context)
}

/// Returns the user's own programs, with the folders in which commands could overwrite some.
pub(super) fn user_programs(settings: &Settings, toolbox: &Toolbox) -> Arc<UserPrograms> {
    let writable = toolbox.writable_places().to_vec();
    let unconfined = settings.config.unconfined_programs.clone();
    Arc::new(UserPrograms::new(writable, unconfined, toolbox.command_sandbox()))
}

/// Builds the model chain, with one client for each endpoint.
fn model_endpoints(
    settings: &Settings,
    models: Vec<ModelFacts>,
    clock: Clock,
    host: Option<&HostTurn>,
    (secrets, supervisor): (&KnownSecrets, &Supervisor),
) -> Result<Vec<ModelEndpoint>, UsageError> {
    let ModelChain { links, endpoints, .. } = &settings.chain;
    let proven = host.map(|host| host.resources.proven.clone()).unwrap_or_default();
    let mut clients: Vec<Arc<dyn Transport>> = Vec::with_capacity(endpoints.len());
    for place in endpoints {
        let (secrets, supervisor) = (secrets.clone(), supervisor.clone());
        let endpoint = ModelService { secrets, supervisor, ..endpoint(place, clock) };
        let client = ModelClient::new(endpoint).map_err(|error| endpoint_error(&error, place))?;
        clients.push(Arc::new(client.sharing(&proven)));
    }
    let endpoint = |(link, facts): (&ChainEntry, ModelFacts)| ModelEndpoint {
        label: link.label.clone(),
        facts,
        client: Arc::clone(&clients[link.endpoint]),
    };
    Ok(links.iter().zip(models).map(endpoint).collect())
}

/// Reports an invalid setting of an endpoint, and where it can be corrected.
fn endpoint_error(error: &EndpointError, endpoint: &ModelService) -> UsageError {
    let source = endpoint.credential.source();
    UsageError::new(match error {
        EndpointError::Credential => format!(
            "{error}; put only the key into {source}, without line ends and other control characters"
        ),
        EndpointError::CaFile { file, .. } => {
            format!("{error}; correct {}", file.variable.unwrap_or("--ca-file"))
        }
        EndpointError::Header { .. } => format!("{error}; correct ANTHROPIC_CUSTOM_HEADERS"),
        EndpointError::BaseUrl { .. } | EndpointError::Proxy(_) => error.to_string(),
    })
}

/// Warns about models of the chain that have no fast mode.
pub(super) fn fast_mode_warning(
    settings: &Settings,
    endpoints: &[ModelEndpoint],
) -> Option<String> {
    let slow = endpoints.iter().filter(|endpoint| endpoint.facts.fast.is_none());
    let slow: Vec<&str> = slow.map(|endpoint| endpoint.label.as_str()).collect();
    (settings.config.fast && !slow.is_empty()).then(|| {
        let (whole, slow) = (slow.len() == endpoints.len(), slow.join(", "));
        let effect = if whole { "has no effect" } else { "has no effect on a part of the chain" };
        format!("fast mode {effect}: none is known of {slow}, so normal speed is requested")
    })
}

/// Scales the timers of a service (rehearsals), but not the connect timeout: no scenario tests that,
/// and a busy machine would exceed it for no other reason.
pub(super) fn endpoint(endpoint: &ModelService, clock: Clock) -> ModelService {
    let timers = endpoint.timers;
    ModelService {
        timers: RequestTimers {
            first_byte: clock.real(timers.first_byte),
            idle: clock.real(timers.idle),
            progress: clock.real(timers.progress),
            reply: clock.real(timers.reply),
            whole: clock.real(timers.whole),
            ..timers
        },
        ..endpoint.clone()
    }
}

/// Returns the limits of the recovery state machine, with those that depend on several settings.
fn limits(settings: &Settings, endpoints: &[ModelEndpoint]) -> Limits {
    let mut limits = settings.config.limits;
    if !settings.chain.can_change_credentials() {
        // A credential that cannot change is never fetched again.
        limits.budgets.refreshes = 0;
    }
    let demands = &settings.demands;
    limits.structured = demands.schema.is_some();
    limits.requirement = demands.requirement.is_some();
    limits.stop_hooks = settings.asks_hooks_to_stop();
    limits.endpoint_changes = settings.chain.endpoint_changes();
    limits.fallback_return = settings.config.fallback_return.then_some(FALLBACK_RETURN);
    let has_fast = endpoints.iter().any(|endpoint| endpoint.facts.fast.is_some());
    limits.fast = (settings.config.fast && has_fast).then(FastMode::default);
    limits
}

/// Time after a fallback at which the first model is tried again.
const FALLBACK_RETURN: Duration = Duration::from_mins(10);

/// Starts the MCP servers, which see the same environment as commands and use the same TLS and
/// proxy settings as the model's client.
pub(super) fn servers(
    settings: &Settings,
    toolbox: &Toolbox,
    supervisor: &Supervisor,
    host: Option<Arc<dyn HostChannel>>,
) -> Servers {
    let environment = ServerEnvironment {
        cwd: settings.cwd.clone(),
        folders: settings.config.permissions.additional_directories.clone(),
        environment: toolbox.environment().to_vec(),
        supervisor: supervisor.clone(),
        login: LoginEnvironment {
            config_dir: settings.config_dir.clone(),
            http: http_clients(&settings.endpoint),
            secrets: toolbox.secrets().clone(),
            redactor: Redactor::new(toolbox.secrets().clone()),
        },
        elicitation: host.clone().filter(|_| settings.mcp.may_ask),
        host,
    };
    Servers::new(settings.mcp.servers.clone(), environment, settings.mcp.timers)
        .with_left_out(settings.mcp.skipped.clone())
}

/// Starts the MCP servers that all turns of a host share.
///
/// # Errors
/// An invalid setting of the tools: the servers have the environment of tools.
pub(super) fn start_shared_servers(
    settings: &Settings,
    session_id: String,
    secrets: &KnownSecrets,
    host: Arc<dyn HostChannel>,
) -> Result<Arc<Servers>, UsageError> {
    let (toolbox, supervisor) = toolbox_without_session(settings, session_id, secrets)?;
    let supervisor = supervisor.with_programs(&user_programs(settings, &toolbox));
    let required = settings.mcp.required.clone().unwrap_or_default();
    let required = with_prompt_server(settings, required);
    let servers = servers(settings, &toolbox, &supervisor, Some(host)).with_required(required);
    Ok(Arc::new(servers))
}

/// Adds the server of the tool that decides on calls, so that no call is denied while the server is
/// still starting. With `--mcp-required none`, the run waits for no server.
fn with_prompt_server(settings: &Settings, mut required: Vec<String>) -> Vec<String> {
    let Some(PermissionPrompt::Tool(tool)) = &settings.tools.prompt_tool else { return required };
    let waits = settings.mcp.required.as_ref().is_none_or(|named| !named.is_empty());
    let servers = settings.mcp.servers.iter().filter(|_| waits);
    let of_tool = servers.filter(|server| tool.starts_with(&tool_name_prefix(&server.name)));
    required.extend(of_tool.max_by_key(|server| server.name.len()).map(|it| it.name.clone()));
    required
}

/// Opens the rate-limit state shared with other runs, if it is enabled and the time is not scaled:
/// other runs have real time.
fn shared_limits(settings: &Settings, clock: Clock, seed: u64) -> Option<SharedLimits> {
    (settings.config.shared_limits && clock.is_real_time())
        .then(|| SharedLimits::new(&environment::limit_folders(&settings.variables), seed))
}
