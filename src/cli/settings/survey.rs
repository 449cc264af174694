//! Survey of the settings for `doctor` and `config`: every source, and every mistake.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::contract::Held;
use super::credential::credential;
use super::file_settings::FileSettings;
use super::managed;
use super::provenance::EffectiveValue;
use super::resolve::permission_mode;
use super::sources::{SettingsFile, SettingsSources, read_all};
use super::{CredentialSource, DEFAULTS, EndpointSettings, IgnoredSetting};
use super::{agent_list, run_limits, servers};
use crate::cli::args::{GivenFlags, RunArgs};
use crate::cli::environment::{self, ProcessEnv, VARIABLES, Variables};
use crate::cli::prompts::{NamedAgent, PromptLibrary};
use crate::recovery::Limits;
use crate::tools::AgentDefinition;

/// All facts about the settings. Invalid files contribute only their mistakes.
#[derive(Clone, Debug)]
pub struct SettingsSurvey {
    pub config_dir: PathBuf,
    pub files: Vec<SettingsFile>,
    /// Mistakes that prevent a run.
    pub mistakes: Vec<String>,
    pub warnings: Vec<String>,
    /// Those of them that are listed elsewhere too: servers, and ignored settings.
    pub listed_apart: Vec<String>,
    pub ignored: Vec<IgnoredSetting>,
    /// The environment, with what the settings add to it.
    pub variables: Variables,
    pub endpoint: EndpointSettings,
    /// Every credential that there is, the one in use first: its kind, and its source.
    pub credentials: Vec<(&'static str, String)>,
    /// Whether the server is known to require a credential.
    pub needs_credential: bool,
    /// Whether a variable selects a cloud service: then no request is made.
    pub selects_cloud: bool,
    pub model: String,
    pub limits: Limits,
    pub effective: Vec<EffectiveValue>,
    /// Keys of other tools, with their places.
    pub foreign: Vec<(String, String)>,
    /// Agents, commands and skills.
    pub library: PromptLibrary,
    /// Unknown variables with a prefix of ours.
    pub unknown_variables: Vec<String>,
}

/// Surveys the settings. Reads files, changes nothing, and collects all mistakes.
pub fn survey(
    args: &RunArgs,
    given: &GivenFlags,
    variables: &Variables,
    cwd: &Path,
) -> SettingsSurvey {
    survey_with_managed(&managed::files(), args, given, variables, cwd)
}

/// The same with these managed files.
pub fn survey_with_managed(
    managed: &[PathBuf],
    args: &RunArgs,
    given: &GivenFlags,
    variables: &Variables,
    cwd: &Path,
) -> SettingsSurvey {
    let config_dir = environment::config_dir(variables);
    let sources = read_all(args, variables, &config_dir, cwd, managed, Held::default());
    let SettingsSources { loaded, managed, files, mut mistakes, ignored, mut origins, .. } =
        sources;
    let (mut library, servers) = (sources.library, sources.servers);
    let file = loaded.layer();
    let mut all = variables.clone();
    all.extend(file.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let (mut args, given) = (args.clone(), &mut given.clone());
    managed.remove_outranked(&mut args, given, &mut all);
    let role = role(&args, &file, &mut library, &mut mistakes);
    args = agent_list::apply(&args, role.as_ref());
    managed.remove_outranked(&mut args, given, &mut all);
    let args = &args;
    let env = environment_of(&all, &mut mistakes);
    let set_at = |name: &str| origins.set_at(name, variables, &all).map(ToOwned::to_owned);
    let found = credentials(args, &env, &file, &config_dir, &set_at);
    let found = with_position(found, origins.place_of("apiKeyHelper"));
    let credential = credential(&args.model, &env, &file, &config_dir).unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        CredentialSource::Absent
    });
    let endpoint = run_limits::endpoint(args, &env, &file, credential);
    let env = env.with_planning_model(permission_mode(&args.tools, &file.permissions));
    let model = args.model.model.clone().or(env.model.clone()).or(file.model.clone());
    let model = model.map(|name| env.aliases.get(name.trim()).cloned().unwrap_or(name));
    let mut warnings = [loaded.warnings, std::mem::take(&mut library.warnings)].concat();
    let mcp = servers::resolve(&args.mcp, &env, &file, servers, &all, &mut warnings);
    let listed_apart = sources.ignored_line.into_iter().chain(mcp.complaints.clone()).collect();
    origins.add_servers(mcp);
    origins.add_environment(variables, &all);
    let limits = limits(args, &env, &file, &endpoint, role.as_ref());
    let selects_cloud = environment::check_cloud(&all).is_err();
    let own = |agent: &&NamedAgent| role.as_ref() == Some(&agent.definition);
    if let Some(role) = library.agents.iter().find(own) {
        origins.add_role(role, args, &limits);
    }
    origins.add_flags(given);
    SettingsSurvey {
        foreign: origins.take_unsupported(),
        needs_credential: endpoint.base_url == DEFAULTS.base_url && !selects_cloud,
        selects_cloud,
        unknown_variables: unknown_variables(&all),
        effective: origins.effective(&endpoint, &limits, &config_dir, &found, &all),
        limits,
        warnings,
        listed_apart,
        credentials: found,
        model: model.unwrap_or_else(|| DEFAULTS.model.to_owned()),
        variables: all,
        config_dir,
        files,
        mistakes,
        ignored,
        endpoint,
        library,
    }
}

/// Returns the agent that the run works as, if it exists.
fn role(
    args: &RunArgs,
    file: &FileSettings,
    library: &mut PromptLibrary,
    mistakes: &mut Vec<String>,
) -> Option<AgentDefinition> {
    let role = agent_list::load(args, file, library);
    role.unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        None
    })
}

fn limits(
    args: &RunArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    endpoint: &EndpointSettings,
    role: Option<&AgentDefinition>,
) -> Limits {
    let mut limits = run_limits::limits(&args.limits, &args.model, env, file, 0);
    if file.account_kind.is_none() {
        limits.account = endpoint.credential.account();
    }
    agent_list::apply_turn_limit(role, &args.limits, &mut limits);
    limits
}

impl SettingsSurvey {
    /// Returns the secrets, to be redacted.
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets = crate::tools::secret_values(&self.variables);
        secrets.extend(self.endpoint.credential.secrets().into_iter().map(str::to_owned));
        secrets.extend(self.endpoint.proxies.secrets());
        let headers = self.endpoint.headers.iter();
        secrets.extend(headers.map(|(_, value)| value.clone()).filter(|value| value.len() > 15));
        secrets
    }
}

/// Parses the environment without its invalid variables, each of which is a mistake.
fn environment_of(variables: &Variables, mistakes: &mut Vec<String>) -> ProcessEnv {
    let mut good = variables.clone();
    let names = VARIABLES.iter().flat_map(|(names, _)| names.split(", "));
    for name in names.flat_map(|name| [name.to_owned(), name.to_ascii_lowercase()]) {
        let Some(value) = variables.get(OsStr::new(&name)) else { continue };
        let alone = Variables::from_iter([(OsString::from(&name), value.clone())]);
        let read = ProcessEnv::parse(&alone).map(drop);
        let read = read.and_then(|()| environment::trusts_project(&alone).map(drop));
        if let Err(error) = read {
            mistakes.push(error.to_string());
            good.remove(OsStr::new(&name));
        }
    }
    ProcessEnv::parse(&good).unwrap_or_default()
}

/// Returns unknown variables with a prefix of ours.
fn unknown_variables(all: &Variables) -> Vec<String> {
    let known =
        |name: &str| VARIABLES.iter().any(|(names, _)| names.split(", ").any(|it| it == name));
    let names = all.keys().filter_map(|name| name.to_str());
    let strange = names.filter(|name| name.starts_with("OUTLAST_") && !known(name));
    strange.map(ToOwned::to_owned).collect()
}

/// The same with the place of the command, where a file names it.
fn with_position(
    found: Vec<(&'static str, String)>,
    helper: Option<&str>,
) -> Vec<(&'static str, String)> {
    let place = |(kind, source): (&'static str, String)| match helper {
        Some(place) if source == HELPER => (kind, format!("{source} at {place}")),
        Some(_) | None => (kind, source),
    };
    found.into_iter().map(place).collect()
}

const HELPER: &str = "the setting apiKeyHelper";

/// Every credential, in the order in which they outrank each other.
fn credentials(
    args: &RunArgs,
    env: &ProcessEnv,
    file: &FileSettings,
    config_dir: &Path,
    set_at: &dyn Fn(&str) -> Option<String>,
) -> Vec<(&'static str, String)> {
    let said =
        |command: &Option<String>| command.as_ref().is_some_and(|one| !one.trim().is_empty());
    let variable = |name: &str| match set_at(name) {
        Some(place) => format!("the variable {name}, set at {place}"),
        None => format!("the variable {name}"),
    };
    let mut found = Vec::new();
    if said(&args.model.api_key_helper) {
        found.push(("API key helper", "--api-key-helper".to_owned()));
    } else if args.model.api_key_helper.is_none() && said(&file.api_key_helper) {
        found.push(("API key helper", HELPER.to_owned()));
    }
    if env.auth_token.is_some() {
        found.push(("bearer token", variable("ANTHROPIC_AUTH_TOKEN")));
    }
    if env.api_key.is_some() {
        found.push(("API key", variable("ANTHROPIC_API_KEY")));
    }
    let login = crate::model::LoginFile::within(config_dir);
    if matches!(login.read(), Ok(Some(_))) {
        found.push(("login", login.path.display().to_string()));
    }
    found
}
