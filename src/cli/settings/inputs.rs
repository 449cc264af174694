//! All inputs of a run, read and folded once: flags, variables and files, and the run's agent.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::agent_list;
use super::context_windows::ContextWindows;
use super::contract::ResumedContract;
use super::sources::{SettingsSources, read_all};
use crate::cli::args::RunArgs;
use crate::cli::prompts::PromptLibrary;
use crate::config::Config;
use crate::config::environment::{ProcessEnv, Variables, config_dir, path_of_settings};
use crate::config::flags::{FlagValue, SettingFlags, thinking_budget};
use crate::config::fold::Fold;
use crate::config::kinds::UnattendedRetry;
use crate::config::known_variables::variable_names;
use crate::config::registry;
use crate::config::variables;
use crate::tools::AgentDefinition;

/// The inputs of a run. Invalid sources contribute only their mistakes.
pub struct Inputs {
    /// The flags that are not settings, including those of the session's contract.
    pub(super) args: RunArgs,
    /// The settings in force.
    pub config: Config,
    /// The settings in force, each with its source.
    pub fold: Fold,
    /// The environment, with the variables that the settings add.
    pub variables: Variables,
    pub(super) env: ProcessEnv,
    pub config_dir: PathBuf,
    pub sources: SettingsSources,
    /// The run's agent, if it exists.
    pub(super) role: Option<AgentDefinition>,
    pub(super) windows: ContextWindows,
    /// The mode that `--thinking` names, unless managed settings outrank it.
    pub(super) thinking: Option<String>,
    /// Mistakes that prevent a run.
    pub mistakes: Vec<String>,
}

impl Inputs {
    /// Reads everything. Changes nothing, and collects all mistakes.
    pub(super) fn read(
        args: &RunArgs,
        outer: &Variables,
        cwd: &Path,
        managed: &[PathBuf],
        resumed: ResumedContract<'_>,
    ) -> Self {
        let mut args = resumed.merge_into_flags(args);
        let config_dir = config_dir(outer);
        let mut sources = read_all(&args, outer, &config_dir, cwd, managed, resumed);
        let mut mistakes = std::mem::take(&mut sources.mistakes);
        let mut fold = std::mem::take(&mut sources.fold);
        let of_files = config(&fold, &mut mistakes);
        let mut all = outer.clone();
        let added = of_files.env.0.iter();
        all.extend(added.map(|(name, value)| match (name.as_str(), &value.0) {
            ("PATH", value) => ("PATH".into(), path_of_settings(value, outer)),
            (name, value) => (name.into(), value.into()),
        }));
        sources.managed.remove_outranked(&mut args.flags, &mut all);
        add_variables(&mut fold, &args.flags, (outer, &all), &sources, resumed, &mut mistakes);
        let flags = args.flags.values(&mut mistakes);
        let windows = flags.iter().find(|flag| flag.setting.key == "contextWindow");
        let windows = windows.and_then(|flag| serde_json::from_value(flag.value.clone()).ok());
        let windows = ContextWindows::new(windows.as_ref(), of_files.context_window.as_ref());

        let agent = flags.iter().find(|flag| flag.setting.key == "agent");
        let agent = agent.and_then(|flag| flag.value.as_str()).map(|name| ("--agent", name));
        // The agent of the first command line is part of the contract.
        let is_kept = resumed.is_there() && agent.is_none();
        let of_file = || of_files.agent.as_deref().map(|name| ("the setting agent", name));
        let agent = agent.or_else(of_file);
        // Skills are limited before they become parts of the prompts of agents.
        limit_skills(&args, &of_files, &flags, &mut sources.library);
        let role = role(&args, agent, is_kept, &mut sources.library, &mut mistakes);
        if let Some(role) = &role {
            sources.library.limit_skills(None, &role.disallowed_tools);
            let file = file_of(role, &sources.library);
            let managed = |key: &str| sources.managed.determines_key(key);
            let may_set = |key: &str| !is_kept && !managed(key);
            let config = config(&fold, &mut mistakes);
            agent_list::add_to(&mut fold, role, &file, may_set, config.limits.budgets.turns);
        }
        for flag in flags {
            fold.add_flag(flag);
        }
        if args.output.unattended && !sources.managed.determines_key(UNATTENDED_RETRY) {
            add_unattended(&mut fold);
        }
        let managed = sources.managed.determines_key("maxThinkingTokens");
        let thinking = args.flags.thinking_mode().filter(|_| !managed).map(str::to_owned);
        let budget = fold.config().ok().and_then(|config| config.max_thinking_tokens);
        let has_budget = budget.is_some_and(|tokens| tokens != 0);
        if let Some(tokens) = thinking.as_deref().and_then(|mode| thinking_budget(mode, has_budget))
        {
            fold.add_flag(tokens);
        }
        let config = config(&fold, &mut mistakes);
        let env = environment_of(&all, &mut mistakes).with_planning_model(config.permissions.mode);
        let variables = all;
        Self {
            args,
            config,
            fold,
            variables,
            env,
            config_dir,
            sources,
            role,
            windows,
            thinking,
            mistakes,
        }
    }
}

/// Leaves out the skills that the host does not list, and those that rules deny.
fn limit_skills(
    args: &RunArgs,
    of_files: &Config,
    flags: &[FlagValue],
    library: &mut PromptLibrary,
) {
    let of_flags = flags.iter().filter(|flag| flag.setting.key == "permissions.deny");
    let of_flags = of_flags.filter_map(|flag| flag.value.as_array()).flatten();
    let of_flags = of_flags.filter_map(|rule| rule.as_str().map(ToOwned::to_owned));
    let denied: Vec<String> = of_files.permissions.deny.iter().cloned().chain(of_flags).collect();
    library.limit_skills(args.prompts.skills.as_deref(), &denied);
}

/// Returns the settings so far, or the defaults if one of them is invalid, which is recorded as a
/// mistake.
fn config(fold: &Fold, mistakes: &mut Vec<String>) -> Config {
    fold.config().unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        Config::default()
    })
}

/// Adds the variables that neither the contract, nor `--settings`, nor the managed files outrank.
fn add_variables(
    fold: &mut Fold,
    flags: &SettingFlags,
    (outer, all): (&Variables, &Variables),
    sources: &SettingsSources,
    resumed: ResumedContract<'_>,
    mistakes: &mut Vec<String>,
) {
    for assigned in variables::read(all, flags, mistakes) {
        let is_managed = sources.managed.sets(assigned.variable);
        let key = assigned.setting.key;
        let is_outranked = resumed.holds(key) || sources.of_flag.contains(key);
        if is_managed || !is_outranked {
            let file = fold.set_at(assigned.variable, outer, all).map(ToOwned::to_owned);
            fold.add_variable(assigned, file.as_deref());
        }
    }
}

/// The setting that `--unattended` switches on.
const UNATTENDED_RETRY: &str = "unattendedRetry";

/// Enables waiting out overloads and rate limits, unless the settings wait out more.
fn add_unattended(fold: &mut Fold) {
    let setting = registry::find(UNATTENDED_RETRY).expect("it is a row of the registry");
    let is_off = fold.value_below(setting).is_none_or(|value| value == setting.default);
    if is_off {
        fold.replace(setting, json!(UnattendedRetry::On), "--unattended");
    }
}

fn role(
    args: &RunArgs,
    agent: Option<(&str, &str)>,
    is_kept: bool,
    library: &mut PromptLibrary,
    mistakes: &mut Vec<String>,
) -> Option<AgentDefinition> {
    let load = if is_kept { agent_list::load_for_resume } else { agent_list::load };
    load(args, agent, library).unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        None
    })
}

/// Returns the file that defines an agent.
fn file_of(role: &AgentDefinition, library: &PromptLibrary) -> String {
    let definition = library.agents.iter().find(|agent| agent.definition == *role);
    definition.map(|agent| agent.file.clone()).unwrap_or_default()
}

/// Parses the environment without its invalid variables, which are recorded as mistakes.
fn environment_of(variables: &Variables, mistakes: &mut Vec<String>) -> ProcessEnv {
    if let Ok(env) = ProcessEnv::parse(variables) {
        return env;
    }
    let mut good = variables.clone();
    for name in variable_names().flat_map(|name| [name.to_owned(), name.to_ascii_lowercase()]) {
        let Some(value) = variables.get(OsStr::new(&name)) else { continue };
        let alone = Variables::from_iter([(OsString::from(&name), value.clone())]);
        if let Err(error) = ProcessEnv::parse(&alone) {
            mistakes.push(error.to_string());
            good.remove(OsStr::new(&name));
        }
    }
    ProcessEnv::parse(&good).unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        ProcessEnv::default()
    })
}
