//! Resolves flags, environment and files to the settings of a run.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::chain::{ChainSources, ModelChain};
use super::contract::ResumedContract;
use super::credential;
use super::endpoint::{EndpointSources, certificate_warnings};
use super::inputs::Inputs;
use super::{
    OutputFiles, OutputSettings, PromptSource, Settings, ToolRules, acceptance_checks, agent_list,
    profile, prompt_tool, rule_names, run_limits, sandbox, servers, system,
};
use crate::cli::args::{OutputFileArgs, OutputFormat, RunArgs, Verbosity};
use crate::cli::chosen_session::session_dir;
use crate::cli::output_file::OutputFile;
use crate::cli::stdin::StdinMode;
use crate::cli::step_summary::StepSummaryFile;
use crate::cli::usage::UsageError;
use crate::config::clouds::CloudSources;
use crate::config::environment::{self, ProcessEnv, Variables};
use crate::config::fold::Fold;
use crate::config::known_variables;
use crate::config::repository::RulePaths;
use crate::config::settings::{BASE_URL, THINKING_TOKENS};
use crate::config::{Config, managed};
use crate::hooks::HookHandler;
use crate::journal::Terms;
use crate::model::{Credential, ModelService, Reasoning, Secret, ThinkingMode, model_facts};
use crate::recovery::Limits;
use crate::text::in_home;
use crate::tools::secret_values;
use crate::types::{ChildEnvironment, PermissionMode};

/// Resolves the settings of a run whose session was started under `terms`. Reads files, changes
/// nothing.
///
/// # Errors
/// All mistakes of the sources; without one, the first mistake found after that.
pub fn resolve(
    args: &RunArgs,
    variables: impl Into<Variables>,
    cwd: PathBuf,
    terms: &Terms,
) -> Result<Settings, UsageError> {
    args.check()?;
    let settings = resolve_resumed(&managed::files(), args, &variables.into(), cwd, terms)?;
    check_credential(&settings)?;
    Ok(settings)
}

/// Like [`resolve`], with these managed files, and without the terms of an earlier session. The
/// credential may be missing.
///
/// # Errors
/// All mistakes of the sources; without one, the first mistake found after that.
pub fn resolve_with_managed(
    managed: &[PathBuf],
    args: &RunArgs,
    variables: &Variables,
    cwd: PathBuf,
) -> Result<Settings, UsageError> {
    resolve_resumed(managed, args, variables, cwd, &Terms::default())
}

/// Like [`resolve_with_managed`], for a session that was started under `terms`.
///
/// # Errors
/// All mistakes of the sources; without one, the first mistake found after that.
pub fn resolve_resumed(
    managed: &[PathBuf],
    args: &RunArgs,
    variables: &Variables,
    cwd: PathBuf,
    terms: &Terms,
) -> Result<Settings, UsageError> {
    let resumed = ResumedContract::of(terms, args.session.gives_options_anew)?;
    let mut inputs = Inputs::read(args, variables, &cwd, managed, resumed);
    UsageError::all(&inputs.mistakes).map_or(Ok(()), Err)?;
    let mut warnings = std::mem::take(&mut inputs.fold.warnings);
    let of_library = inputs.sources.library.warnings.clone();
    let named = std::mem::take(&mut inputs.sources.servers);
    let Inputs { args, config, env, variables, config_dir, role, .. } = &inputs;
    let sources = EndpointSources { args, env, config, config_dir, variables };
    let endpoint = sources.endpoint()?;
    let chain = chain(&inputs, &endpoint, sources.clouds())?;
    warnings.extend(chain.unknown_model_warnings(&args.flags));
    warnings.extend(of_library.into_iter().chain(compatibility_warning(args, variables)));
    warnings.extend(known_variables::zero_warnings(variables));
    warnings.extend(args.encoding_warning.clone());
    warnings.extend(rule_names::check_agent_tools(&inputs.sources.library.definitions()));
    warnings.extend(credential::warnings(&endpoint.credential, variables));
    warnings.extend(certificate_warnings(env));
    let mcp = servers::resolve(args, env, config, named, variables, &cwd).with_named(args)?;
    let mut tools = tools(&inputs)?;
    let home = environment::home(variables);
    let paths = RulePaths { cwd: &cwd, home: home.as_deref() };
    let reasoning =
        Reasoning { thinking: thinking(config, inputs.thinking.as_deref()), ..config.reasoning };
    let budget = chain.links.iter().filter_map(|link| reasoning.budget(&link.model)).max();
    let account = endpoint.credential.account();
    let limits = run_limits::limits(config, env, chain.links.len() - 1, account, budget);
    warnings.extend(thinking_warning(reasoning, &chain.links[0].model, limits.caps.first));
    let mut config = with_derived_defaults(&inputs, limits, &paths)?;
    warnings.extend(drop_missing_folders(&mut config, &inputs.fold, &paths));
    profile::apply(args, &mut config)?;
    let (hooks, rules) = (hooks(&inputs), &config.permissions);
    warnings.extend(rule_names::check_run_rules(args, rules, &hooks, &mcp, &chain)?);
    let (mut system, missing_style) = system::resolve(&inputs)?;
    warnings.extend(sandbox::warnings(&inputs.config, &args.flags).chain(missing_style));
    if let Some(role) = role {
        let deny = &mut config.permissions.deny;
        agent_list::apply_prompt_and_tools(role, &mut system, (&mut tools, deny), &mcp, &paths)?;
    }
    let of_variables = secret_values(variables, Some(&config.commands));
    let secrets = chain.secrets().chain(of_variables).chain(mcp.secrets());
    let settings = Settings {
        secrets: secrets.map(|secret| Secret::new(&secret)).collect(),
        output: output(args, env, step_summary(&config, variables))?,
        prompt: prompt(args, &config),
        given: args.given.clone(),
        session_title: session_title(args),
        terms: terms.clone(),
        persist: !args.session.no_session_persistence,
        chain,
        endpoint,
        system,
        tools,
        mcp,
        hooks,
        agents: inputs.sources.library.definitions(),
        demands: acceptance_checks::resolve(args, &config, &cwd)?,
        subagent_prompt: args.model.append_subagent_system_prompt.clone(),
        hook_depth: environment::hook_depth(variables)?,
        memory: (!args.session.no_memory && !env.no_memory).then_some(inputs.sources.memory),
        session_dir: session_dir(args, &inputs.config_dir),
        state_dir: args.session.state_folder.clone().unwrap_or_else(|| inputs.config_dir.clone()),
        config_dir: inputs.config_dir.clone(),
        cwd,
        warnings,
        ignored: inputs.sources.ignored,
        ignored_warning: inputs.sources.ignored_warning,
        library: inputs.sources.library,
        plugins: inputs.sources.plugins,
        variables: inputs.variables,
        config: Box::new(config),
    };
    settings.apply(resumed)
}

/// Returns the hooks of the settings and of agents, unless disabled.
fn hooks(inputs: &Inputs) -> Vec<HookHandler> {
    let of_agents = inputs.sources.library.hooks(inputs.role.as_ref());
    let all = inputs.fold.hooks.handlers.iter().cloned().chain(of_agents);
    let end_timeout = inputs.env.session_end_timeout;
    let all = all.map(|hook| hook.with_end_timeout(end_timeout)).collect();
    let is_disabled = inputs.args.compatibility.disables_hooks().then_some(true);
    inputs.sources.managed.select_hooks(all, is_disabled.or(inputs.config.disable_all_hooks))
}

/// Returns the thinking that is requested of models. A number of tokens is more exact than the
/// switch.
fn thinking(config: &Config, flag: Option<&str>) -> ThinkingMode {
    match (config.max_thinking_tokens, config.always_thinking) {
        _ if flag == Some("adaptive") => ThinkingMode::Adaptive,
        (Some(0), _) | (None, Some(false)) => ThinkingMode::Off,
        (Some(tokens), _) => ThinkingMode::Budget(tokens),
        (None, Some(true)) => ThinkingMode::Budget(THINKING_TOKENS),
        (None, None) => ThinkingMode::Adaptive,
    }
}

/// Warns if the output cap has no room for the thinking budget of the first model.
fn thinking_warning(reasoning: Reasoning, model: &str, cap: u32) -> Option<String> {
    let cap = cap.min(model_facts(model).max_output);
    let (budget, most) = (reasoning.budget(model)?, Reasoning::budget_max(cap));
    (budget > most).then(|| {
        format!(
            "the thinking budget of {budget} tokens is lowered to {most}: replies of {model} have at most \
             {cap} tokens, thinking included (--max-output-tokens)"
        )
    })
}

fn chain(
    inputs: &Inputs,
    primary: &ModelService,
    clouds: CloudSources<'_>,
) -> Result<ModelChain, UsageError> {
    let Inputs { args, config, windows, variables, env, .. } = inputs;
    let chain = ChainSources {
        config,
        is_flag: args.flags.has("fallback-model"),
        windows,
        aliases: &env.aliases,
        variables,
        clouds,
        primary: primary.clone(),
    };
    chain.chain()
}

/// Warns about flags and variables of the reference that are accepted and have no effect.
fn compatibility_warning(args: &RunArgs, variables: &Variables) -> Option<String> {
    let mut given = args.compatibility.without_effect();
    given.extend(known_variables::without_effect(variables));
    let verb = if given.len() == 1 { "has" } else { "have" };
    (!given.is_empty()).then(|| format!("{} {verb} no effect in outlast", given.join(", ")))
}

fn check_credential(settings: &Settings) -> Result<(), UsageError> {
    let Settings { endpoint, variables, .. } = settings;
    if endpoint.credential == Credential::None && endpoint.base_url == BASE_URL {
        let empty = credential::empty_variables(&endpoint.credential, variables);
        let empty = empty.map_or(String::new(), |empty| format!(" ({empty})"));
        return Err(UsageError::credentials(format!(
            "no credential is set{empty}; put an API key in ANTHROPIC_API_KEY, a bearer token in \
             ANTHROPIC_AUTH_TOKEN or the token of a login in CLAUDE_CODE_OAUTH_TOKEN, or name \
             another server in ANTHROPIC_BASE_URL",
        )));
    }
    Ok(())
}

/// Returns the file for the summary of a CI step, unless the setting disables it.
fn step_summary(config: &Config, variables: &Variables) -> Option<StepSummaryFile> {
    let path = environment::step_summary_file(variables).filter(|_| config.step_summary);
    path.map(|path| StepSummaryFile::new(&path))
}

fn output(
    args: &RunArgs,
    env: &ProcessEnv,
    step_summary: Option<StepSummaryFile>,
) -> Result<OutputSettings, UsageError> {
    let output = &args.output;
    let is_text = output.print || output.unattended;
    let format = output.output_format.unwrap_or_else(|| OutputFormat::default_for(is_text));
    let detail = output.log_detail
        || args.compatibility.logs_detail()
        || output.verbose && format == OutputFormat::Text;
    let verbosity = match (output.unattended, output.quiet, detail) {
        (true, ..) => Some(Verbosity::Failures),
        (false, true, _) => Some(Verbosity::Waits),
        (false, false, true) => Some(Verbosity::Detail),
        (false, false, false) => None,
    };
    if !output.output_fields.is_empty() && format != OutputFormat::Json {
        return Err(UsageError::new("--output-fields needs --output-format json; add it"));
    }
    for (flag, given) in [
        ("--include-partial-messages", output.stream.partial_messages),
        ("--include-hook-events", output.stream.hook_events),
        ("--forward-subagent-text", output.stream.subagent_text),
    ] {
        if given && format != OutputFormat::StreamJson {
            let line = format!("{flag} needs --output-format stream-json; add it");
            return Err(UsageError::new(line));
        }
    }
    Ok(OutputSettings {
        format,
        verbose: output.verbose,
        verbosity,
        stream: output.stream,
        fields: output.output_fields.clone(),
        files: output_files(args, step_summary)?,
        library_log: args.compatibility.library_log(),
        dumb_terminal: env.dumb_terminal,
        colors: env.colors,
        is_ci: env.is_ci,
    })
}

/// Opens the folders of the files, and checks existing files. Rejects a file that two flags name:
/// one output would replace the other.
fn output_files(
    args: &RunArgs,
    step_summary: Option<StepSummaryFile>,
) -> Result<OutputFiles, UsageError> {
    let mut opened: Vec<(&str, OutputFile)> = Vec::new();
    let mut open = |flag, path: Option<&Path>| -> Result<_, UsageError> {
        let Some(path) = path else { return Ok(None) };
        let shown = path.display();
        let file = OutputFile::open(path).with_context(|| format!("{flag} {shown}"))?;
        if let Some((other, _)) = opened.iter().find(|(_, other)| file.is_same(other)) {
            let shown = file.path().display();
            let what = format!("{other} and {flag} both name {shown}; give each a file of its own");
            return Err(UsageError::new(what));
        }
        opened.push((flag, file.clone()));
        Ok(Some(file))
    };
    let OutputFileArgs { result, last_message, heartbeat } = &args.output.files;
    Ok(OutputFiles {
        result: open("--result-file", result.as_deref())?,
        last_message: open("--last-message-file", last_message.as_deref())?,
        heartbeat: open("--heartbeat-file", heartbeat.as_deref())?,
        debug: open("--debug-file", args.compatibility.debug_file.as_deref())?,
        step_summary,
    })
}

/// Returns the variables that commands see: with `bypassPermissions` all but the model's
/// credentials, unless the user chose. A variable can withhold secrets; only the flag outranks it.
fn child_environment(inputs: &Inputs) -> ChildEnvironment {
    let Inputs { args, config, fold, env, .. } = inputs;
    let is_bypassed = config.permissions.mode == PermissionMode::BypassPermissions;
    let is_open = is_bypassed && !fold.is_set("childEnv");
    let own = if is_open { ChildEnvironment::Inherit } else { config.commands.child_environment };
    let is_scrubbed = env.scrubs_commands && !args.flags.has("child-env");
    if is_scrubbed && own == ChildEnvironment::Inherit { ChildEnvironment::Scrub } else { own }
}

/// Returns the name of the session, without the surrounding blanks that `--resume` ignores.
fn session_title(args: &RunArgs) -> Option<String> {
    let name = args.session.name.as_deref().map(str::trim);
    name.filter(|name| !name.is_empty()).map(ToOwned::to_owned)
}

fn prompt(args: &RunArgs, config: &Config) -> PromptSource {
    let dash = args.prompt.as_deref() == Some("-");
    let may_be_empty = args.session.go_on || args.session.resume.is_some();
    PromptSource {
        argument: args.prompt.clone().filter(|_| !dash),
        images: args.prompts.image.clone(),
        stdin: match (args.output.leaves_stdin(dash), dash || args.output.stdin) {
            (true, _) => StdinMode::Refuse,
            (false, true) => StdinMode::Insist,
            (false, false) => StdinMode::Auto,
        },
        may_be_empty,
        stdin_timeout: config.stdin_timeout,
    }
}

fn tools(inputs: &Inputs) -> Result<ToolRules, UsageError> {
    let Inputs { args, config, fold, .. } = inputs;
    if let (PermissionMode::BypassPermissions, Some(file)) =
        (config.permissions.mode, &fold.forbids_bypass)
    {
        return Err(UsageError::new(format!(
            "the settings forbid bypassPermissions ({file}: disableBypassPermissionsMode); allow \
             tools by rules instead"
        )));
    }
    let given = args.flags.texts("add-dir").iter().map(PathBuf::from);
    if let Some(missing) = given.clone().find(|path| !path.is_dir()) {
        return Err(UsageError::new(format!(
            "--add-dir {}: is not a folder; name one that exists",
            missing.display()
        )));
    }
    let only = args.tools.tools.as_deref().map(|names| rule_names::offered_tools(names).0);
    Ok(ToolRules {
        limits: Vec::new(),
        only: only.filter(|names| names.iter().all(|name| name != "default")),
        profile: args.tools.profile,
        prompt_tool: prompt_tool::resolve(args)?,
        aliases: rule_names::tool_aliases(&args.tools.aliases)?,
    })
}

/// Drops the further folders that do not exist, and returns a warning about each. Those of flags
/// exist.
fn drop_missing_folders(config: &mut Config, fold: &Fold, paths: &RulePaths<'_>) -> Vec<String> {
    let folders = &mut config.permissions.additional_directories;
    for folder in folders.iter_mut() {
        if let Some(found) = folder.to_str().and_then(|text| in_home(text, paths.home)) {
            *folder = found;
        }
    }
    let (found, missing): (Vec<PathBuf>, Vec<PathBuf>) =
        folders.drain(..).partition(|folder| paths.cwd.join(folder).is_dir());
    *folders = found;
    let origin = fold.origin(&["permissions", "additionalDirectories"]).unwrap_or_default();
    let warning = |folder: PathBuf| {
        format!(
            "{origin}: \"permissions.additionalDirectories\": {} is not a folder, and not used",
            folder.display()
        )
    };
    missing.into_iter().map(warning).collect()
}

/// Returns the settings with the defaults that depend on other settings, the environment or the
/// machine.
///
/// # Errors
/// The sandbox that the settings require is not possible.
fn with_derived_defaults(
    inputs: &Inputs,
    limits: Limits,
    paths: &RulePaths<'_>,
) -> Result<Config, UsageError> {
    let Inputs { args, fold, sources, role, env, .. } = inputs;
    let mut config = Config { limits, ..inputs.config.clone() };
    config.reasoning.thinking = thinking(&config, inputs.thinking.as_deref());
    config.agent = role.as_ref().map(|role| role.name.clone());
    config.sandbox = sandbox::resolve(&config, (fold, &sources.managed), args, paths)?;
    config.sandbox_mode = Some(config.sandbox.mode);
    config.commands.child_environment = child_environment(inputs);
    config.commands.memory = run_limits::command_memory(&config);
    let external = env.mcp_result_tokens.map(|tokens| tokens.get().saturating_mul(4));
    config.results.external_chars = external;
    Ok(config)
}
