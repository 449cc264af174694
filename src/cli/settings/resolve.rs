//! Resolves flags, environment and files to the settings of a run.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::chain::{self, ModelChain};
use super::contract::Held;
use super::credential::{self, credential};
use super::file_settings::{FilePermissions, FileSettings};
use super::managed::{self, ManagedSettings};
use super::prices::prices;
use super::repository::RulePaths;
use super::rule_names;
use super::run_limits::{self, time};
use super::sources::{SettingsSources, read_all};
use super::{
    CredentialSource, DEFAULTS, EndpointSettings, OutputSettings, PromptSource, SessionStart,
    Settings, ToolRules, acceptance_checks, agent_list, prompt_tool, sandbox, servers, system,
};
use crate::cli::args::{InputFormat, ModelArgs, OutputFormat, PermissionMode, RunArgs, ToolArgs};
use crate::cli::environment::{self, ProcessEnv, Variables};
use crate::cli::prompts::PromptLibrary;
use crate::cli::stdin::StdinWish;
use crate::cli::usage::UsageError;
use crate::cli::values;
use crate::hooks::{HookHandler, HookSettings};
use crate::journal::{self, OnDamage, SessionFolder, SessionId, Terms};
use crate::model::BaseUrl;
use crate::recovery::{Limits, Money};
use crate::tools::AgentDefinition;

/// Resolves the settings of a run. Reads files, changes nothing.
///
/// # Errors
/// The first mistake found, wherever it is.
pub fn resolve(
    args: &RunArgs,
    variables: impl Into<Variables>,
    cwd: PathBuf,
) -> Result<Settings, UsageError> {
    check_input(args)?;
    let variables = variables.into();
    let terms = read_terms(args, &variables, &cwd);
    let settings = resolve_resumed(&managed::files(), args, variables, cwd, &terms)?;
    check_credential(&settings)?;
    Ok(settings)
}

/// The same with these managed files, and whether there is a credential or not.
///
/// # Errors
/// The first mistake found, wherever it is.
pub fn resolve_with_managed(
    managed: &[PathBuf],
    args: &RunArgs,
    variables: Variables,
    cwd: PathBuf,
) -> Result<Settings, UsageError> {
    resolve_resumed(managed, args, variables, cwd, &Terms::default())
}

/// The same for a session that was started under `terms`.
///
/// # Errors
/// The first mistake found, wherever it is.
pub fn resolve_resumed(
    managed: &[PathBuf],
    args: &RunArgs,
    mut variables: Variables,
    cwd: PathBuf,
    terms: &Terms,
) -> Result<Settings, UsageError> {
    let held = Held::of(terms)?;
    let config_dir = environment::config_dir(&variables);
    let sources = read_all(args, &variables, &config_dir, &cwd, managed, held).into_valid()?;
    let SettingsSources { loaded, managed, ignored, memory, servers, mut library, .. } = sources;
    let file = loaded.layer();
    let taken = (held, managed.clone());
    let (args, role) = &effective_flags(args, taken, &file, &mut library, &mut variables)?;
    environment::check_cloud(&variables)?;
    let mode = permission_mode(&args.tools, &file.permissions);
    let (mut env, home) =
        (ProcessEnv::parse(&variables)?.with_planning_model(mode), environment::home(&variables));
    held.remove_from_environment(&mut env, &managed);
    let endpoint = endpoint(args, &env, &file, &config_dir)?;
    let chain = chain(&args.model, &env, &file, &variables, &endpoint)?;
    let mut warnings = collect_warnings(loaded.warnings, &chain, &args.model, &mut library);
    warnings.extend(credential::empty_variables(&endpoint.credential, &variables));
    warnings.extend(credential::unmasked(&endpoint.credential));
    let mcp = servers::resolve(&args.mcp, &env, &file, servers, &variables, &mut warnings);
    servers::check_named(&mcp, args.tools.permission_prompt_tool.as_deref())?;
    let limits = limits(args, &env, &file, (&chain, &endpoint), role.as_ref());
    let tools = tools((args, &env, &file), (loaded.rules, loaded.forbids_bypass))?;
    warnings.extend(rule_names::check_run_rules(&args.tools, &tools, &mcp)?);
    warnings.extend(sandbox::bypass_warning(&args.tools, &file.sandbox, tools.mode));
    let paths = RulePaths { cwd: &cwd, home: home.as_deref() };
    let (system, tools) = agent_list::apply_prompt_and_tools(
        role.clone(),
        system::resolve(&args.model)?,
        tools,
        &mcp,
        &paths,
    )?;
    let settings = Settings {
        output: output(args, &env)?,
        prompt: prompt(args, &file),
        session: start(args)?,
        on_damage: on_damage(args),
        terms: terms.clone(),
        persist: !args.session.no_session_persistence,
        keep_sessions: run_limits::keep_sessions(&file),
        limits,
        chain,
        fallback_return: args.model.fallback_return || file.fallback_return.unwrap_or_default(),
        fast: args.model.fast || file.fast.unwrap_or_default(),
        auto_compact: compacts(args, &env, &file),
        shared_limits: shares_limits(args, &env, &file),
        compact_at: env.compact_at.or(file.compact_at),
        prices: prices(&args.model.price, file.prices.clone())?,
        endpoint,
        budget: budget(args, &file),
        budget_mode: args.limits.budget_mode.or(file.budget_mode).unwrap_or_default(),
        thinking: thinking(args, &env, &file)?,
        system,
        tools,
        mcp,
        hooks: hooks(&managed, loaded.hooks, &library, role.as_ref(), &file),
        agent: role.as_ref().map(|role| role.name.clone()),
        agents: library.definitions(),
        library,
        demands: acceptance_checks::resolve(&args.acceptance, &env, &file, &cwd)?,
        agent_limits: run_limits::agents(&file),
        subagent_prompt: args.model.append_subagent_system_prompt.clone(),
        hook_depth: environment::hook_depth(&variables)?,
        memory: Some(memory).filter(|_| !args.session.no_memory && !env.no_memory),
        variables,
        config_dir,
        cwd,
        warnings,
        ignored,
        ignored_warning: sources.ignored_line,
    };
    settings.apply(held)
}

/// Warnings about settings files and unknown names.
fn collect_warnings(
    of_files: Vec<String>,
    chain: &ModelChain,
    flags: &ModelArgs,
    library: &mut PromptLibrary,
) -> Vec<String> {
    let of_agents = rule_names::check_agent_tools(&library.definitions());
    [
        of_files,
        chain.unknown_model_warnings(flags),
        std::mem::take(&mut library.warnings),
        of_agents,
    ]
    .concat()
}

/// Returns the hooks of the settings and of agents, unless disabled.
fn hooks(
    managed: &ManagedSettings,
    of_files: HookSettings,
    library: &PromptLibrary,
    role: Option<&AgentDefinition>,
    file: &FileSettings,
) -> Vec<HookHandler> {
    managed.select_hooks([of_files.handlers, library.hooks(role)].concat(), file.disable_all_hooks)
}

/// Returns the effective flags, and the agent that the run works as. Managed settings outrank both.
fn effective_flags(
    args: &RunArgs,
    (held, managed): (Held<'_>, ManagedSettings),
    file: &FileSettings,
    library: &mut PromptLibrary,
    variables: &mut Variables,
) -> Result<(RunArgs, Option<AgentDefinition>), UsageError> {
    let args = managed.apply_variables(&held.merge_into_flags(args), file, variables);
    // The agent of the first command line is part of the contract.
    if held.is_there() && args.prompts.agent.is_none() {
        let role = agent_list::load_for_resume(&args, file, library)?;
        return Ok((args, role));
    }
    let role = agent_list::load(&args, file, library)?;
    Ok((managed.apply_variables(&agent_list::apply(&args, role.as_ref()), file, variables), role))
}

fn endpoint(
    args: &RunArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    config_dir: &Path,
) -> Result<EndpointSettings, UsageError> {
    let credential = credential(&args.model, env, file, config_dir)?;
    let endpoint = run_limits::endpoint(args, env, file, credential);
    check_url(&endpoint.base_url)?;
    Ok(endpoint)
}

fn compacts(args: &RunArgs, env: &ProcessEnv, file: &FileSettings) -> bool {
    let barred = args.model.no_auto_compact || env.no_auto_compact;
    !barred && file.auto_compact_enabled.unwrap_or(true)
}

fn shares_limits(args: &RunArgs, env: &ProcessEnv, file: &FileSettings) -> bool {
    let barred = args.limits.no_shared_limits || env.no_shared_limits;
    !barred && file.shared_limits.unwrap_or(true)
}

fn chain(
    args: &ModelArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    variables: &Variables,
    first: &EndpointSettings,
) -> Result<chain::ModelChain, UsageError> {
    chain::ChainSources { args, env, file, variables, primary: first.clone() }.chain()
}

fn limits(
    args: &RunArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    (chain, endpoint): (&chain::ModelChain, &EndpointSettings),
    role: Option<&AgentDefinition>,
) -> Limits {
    let switches = chain.links.len() - 1;
    let mut limits = run_limits::limits(&args.limits, &args.model, env, file, switches);
    if file.account_kind.is_none() {
        limits.account = endpoint.credential.account();
    }
    agent_list::apply_turn_limit(role, &args.limits, &mut limits);
    limits
}

fn check_input(args: &RunArgs) -> Result<(), UsageError> {
    if args.output.input_format == Some(InputFormat::StreamJson) {
        return Err(UsageError::new(
            "--input-format stream-json is not supported by this version of outlast; give the \
             prompt as text",
        ));
    }
    if args.output.no_stdin && args.prompt.as_deref() == Some("-") {
        return Err(UsageError::new(
            "the prompt - reads standard input, and --no-stdin leaves it alone; leave one of them \
             out",
        ));
    }
    let tools = &args.tools;
    if let Some(mode @ (PermissionMode::Plan | PermissionMode::DontAsk)) = tools.permission_mode
        && tools.dangerously_skip_permissions
    {
        return Err(UsageError::new(format!(
            "--permission-mode {} and --dangerously-skip-permissions contradict each other; leave \
             one of them out",
            mode.name()
        )));
    }
    Ok(())
}

fn check_credential(settings: &Settings) -> Result<(), UsageError> {
    let Settings { endpoint, variables, .. } = settings;
    if endpoint.credential == CredentialSource::Absent && endpoint.base_url == DEFAULTS.base_url {
        let empty = credential::empty_variables(&endpoint.credential, variables);
        let empty = empty.map_or(String::new(), |empty| format!(" ({empty})"));
        return Err(UsageError::credentials(format!(
            "no credential is set{empty}; put an API key in ANTHROPIC_API_KEY or a bearer token \
             in ANTHROPIC_AUTH_TOKEN, or name another server in ANTHROPIC_BASE_URL",
        )));
    }
    Ok(())
}

fn check_url(url: &str) -> Result<(), UsageError> {
    let wrong = "ANTHROPIC_BASE_URL is not an http:// or https:// address; correct it";
    BaseUrl::parse(url).map(drop).map_err(|_| UsageError::new(wrong))
}

fn output(args: &RunArgs, env: &ProcessEnv) -> Result<OutputSettings, UsageError> {
    let output = &args.output;
    for (flag, path) in
        [("--result-file", &output.result_file), ("--heartbeat-file", &output.heartbeat_file)]
    {
        if let Some(path) = path {
            check_writable(flag, path)?;
        }
    }
    let format = output.output_format.unwrap_or_default();
    for (flag, given) in [
        ("--include-partial-messages", output.include_partial_messages),
        ("--include-hook-events", output.include_hook_events),
        ("--forward-subagent-text", output.forward_subagent_text),
    ] {
        if given && format != OutputFormat::StreamJson {
            let line = format!("{flag} needs --output-format stream-json; add it");
            return Err(UsageError::new(line));
        }
    }
    Ok(OutputSettings {
        format,
        verbose: output.verbose,
        log_detail: output.log_detail,
        partial_messages: output.include_partial_messages,
        hook_events: output.include_hook_events,
        subagent_text: output.forward_subagent_text,
        result_file: output.result_file.clone(),
        heartbeat_file: output.heartbeat_file.clone(),
        plain: env.plain,
    })
}

/// Checks whether a file can be written there, without writing it.
fn check_writable(flag: &str, path: &Path) -> Result<(), UsageError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let shown = path.display();
    if path.is_dir() {
        return Err(UsageError::new(format!("{flag} {shown}: is a folder; name a file")));
    }
    if path.exists() && !path.is_file() {
        return Err(UsageError::new(format!(
            "{flag} {shown}: is a device or a pipe; name a regular file"
        )));
    }
    if !folder.is_dir() {
        return Err(UsageError::new(format!("{flag} {shown}: the folder does not exist; make it")));
    }
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).map_err(|error| {
        UsageError::new(format!(
            "{flag} {shown}: the folder cannot be written to: {}; name another",
            error.desc()
        ))
    })
}

fn prompt(args: &RunArgs, file: &FileSettings) -> PromptSource {
    let dash = args.prompt.as_deref() == Some("-");
    PromptSource {
        argument: args.prompt.clone().filter(|_| !dash),
        stdin: match (args.output.no_stdin, dash || args.output.stdin) {
            (true, _) => StdinWish::Refuse,
            (false, true) => StdinWish::Insist,
            (false, false) => StdinWish::Auto,
        },
        may_be_empty: args.session.go_on || args.session.resume.is_some(),
        patience: args.timers.stdin_timeout.or(time(file.stdin_timeout)).unwrap_or(DEFAULTS.stdin),
    }
}

fn start(args: &RunArgs) -> Result<SessionStart, UsageError> {
    let session = &args.session;
    let given = session.session_id.as_deref().map(|id| uuid("--session-id", id)).transpose()?;
    let fresh = || given.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
    let resuming = session.go_on || session.resume.is_some();
    if resuming && given.is_some() && !session.fork_session {
        return Err(UsageError::new(
            "--session-id names a new session; with --resume or --continue add --fork-session",
        ));
    }
    if session.fork_session && !resuming {
        return Err(UsageError::new(
            "--fork-session needs --resume or --continue; add one of them",
        ));
    }
    if session.to_last_intact && !resuming {
        return Err(UsageError::new(
            "--to-last-intact needs --resume or --continue; add one of them",
        ));
    }
    if let Some(id) = &session.resume_or_start {
        return Ok(SessionStart::ResumeOrStart { session_id: uuid("--resume-or-start", id)? });
    }
    let fork = session.fork_session.then(fresh);
    match &session.resume {
        Some(id) => Ok(SessionStart::Resume { session_id: uuid("--resume", id)?, fork }),
        None if session.go_on => Ok(SessionStart::Continue { fork }),
        None => Ok(SessionStart::New { session_id: fresh() }),
    }
}

/// Reads how the session to resume was started. Errors are reported later, when it is opened.
fn read_terms(args: &RunArgs, variables: &Variables, cwd: &Path) -> Terms {
    let Ok(start) = start(args) else { return Terms::default() };
    let place = SessionFolder::new(&environment::config_dir(variables), cwd);
    let id = match start {
        SessionStart::New { .. } => None,
        SessionStart::Resume { session_id, .. } | SessionStart::ResumeOrStart { session_id } => {
            SessionId::parse(&session_id)
        }
        SessionStart::Continue { .. } => journal::latest(&place).ok().flatten(),
    };
    id.and_then(|id| journal::read_terms(&place, &id).ok()).unwrap_or_default()
}

fn on_damage(args: &RunArgs) -> OnDamage {
    if args.session.to_last_intact { OnDamage::UseIntactPart } else { OnDamage::Refuse }
}

fn uuid(flag: &str, id: &str) -> Result<String, UsageError> {
    Uuid::try_parse(id.trim()).map(|uuid| uuid.to_string()).map_err(|_| {
        let shown: String = id.chars().take(60).collect();
        UsageError::new(format!("{flag}: {shown:?} is not the id of a session; it is a UUID"))
    })
}

fn budget(args: &RunArgs, file: &FileSettings) -> Option<Money> {
    args.limits.max_budget_usd.or(file.max_budget_usd.and_then(Money::from_dollars))
}

fn thinking(
    args: &RunArgs,
    env: &ProcessEnv,
    file: &FileSettings,
) -> Result<Option<u32>, UsageError> {
    let tokens =
        args.model.max_thinking_tokens.or(env.max_thinking_tokens).or(file.max_thinking_tokens);
    let wanted = match args.model.thinking.as_deref() {
        Some("disabled") => None,
        Some(_) => Some(tokens.unwrap_or(DEFAULTS.thinking)),
        None => tokens,
    };
    match wanted {
        Some(1..1024) => Err(UsageError::new(
            "--max-thinking-tokens (or MAX_THINKING_TOKENS) must be 0, or at least 1024",
        )),
        Some(0) | None => Ok(None),
        Some(tokens) => Ok(Some(tokens)),
    }
}

/// The permission mode that the run begins in, and stays in.
pub(super) fn permission_mode(flags: &ToolArgs, permissions: &FilePermissions) -> PermissionMode {
    if flags.dangerously_skip_permissions {
        PermissionMode::BypassPermissions
    } else {
        flags.permission_mode.or(permissions.default_mode).unwrap_or_default()
    }
}

/// `places` says where each rule stands, and `forbids_bypass` which file forbids
/// `bypassPermissions`.
fn tools(
    (args, env, file): (&RunArgs, &ProcessEnv, &FileSettings),
    (places, forbids_bypass): (Vec<(String, String)>, Option<String>),
) -> Result<ToolRules, UsageError> {
    let (flags, permissions) = (&args.tools, &file.permissions);
    let mode = permission_mode(flags, permissions);
    if let (PermissionMode::BypassPermissions, Some(file)) = (mode, forbids_bypass) {
        return Err(UsageError::new(format!(
            "the settings forbid bypassPermissions ({file}: disableBypassPermissionsMode); allow \
             tools by rules instead"
        )));
    }
    let mut directories = flags.add_dir.clone();
    if let Some(missing) = directories.iter().find(|path| !path.is_dir()) {
        return Err(UsageError::new(format!(
            "--add-dir {}: is not a folder; name one that exists",
            missing.display()
        )));
    }
    directories.extend(permissions.additional_directories.iter().cloned());
    let joined = |first: &[String], second: &[String]| [first, second].concat();
    let bash_timeout = env.bash_timeout.or(time(file.bash_timeout)).unwrap_or(DEFAULTS.bash);
    let only = flags.tools.as_ref().map(|names| values::list(names));
    let result_chars = env
        .tool_result_chars
        .or(file.max_tool_result_chars)
        .map_or(DEFAULTS.tool_result_chars, u32::from);
    Ok(ToolRules {
        only: only.filter(|names| names.iter().all(|name| name != "default")),
        allow: joined(&permissions.allow, &values::list(&flags.allowed_tools)),
        ask: permissions.ask.clone(),
        deny: joined(&permissions.deny, &values::list(&flags.disallowed_tools)),
        mode,
        places: places.into_iter().collect(),
        prompt_tool: prompt_tool::resolve(flags)?,
        on_denied: flags.on_denied.or(file.on_denied).unwrap_or_default(),
        directories,
        sandbox: sandbox::resolve(flags, &file.sandbox, mode)?,
        child_env: flags.child_env.or(file.child_env).unwrap_or_default(),
        pass_env: joined(&file.pass_env.0, &values::list(&flags.pass_env)),
        bash_timeout,
        bash_max_timeout: env
            .bash_max_timeout
            .or(time(file.bash_max_timeout))
            .unwrap_or(DEFAULTS.bash_max)
            .max(bash_timeout),
        background_lifetime: time(file.background_lifetime).unwrap_or(DEFAULTS.background_lifetime),
        web_timeout: time(file.web_fetch_timeout).unwrap_or(DEFAULTS.web_fetch),
        web_private_hosts: file.web_fetch_private_hosts.0.clone(),
        result_chars,
        mcp_result_chars: env
            .mcp_result_tokens
            .map_or(result_chars, |tokens| tokens.get().saturating_mul(4)),
    })
}
