//! Survey of the settings for `doctor` and `config`: every source, and every mistake.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::contract::ResumedContract;
use super::endpoint::{EndpointSources, certificate_warnings};
use super::inputs::Inputs;
use super::{McpServers, run_limits, sandbox, servers};
use crate::cli::args::RunArgs;
use crate::config::MemorySize;
use crate::config::environment::{Variables, config_dir_variable};
use crate::config::fold::{DEFAULT, EffectiveValue, variable_origin};
use crate::config::kinds::Span;
use crate::config::known_variables::variable_names;
use crate::config::managed;
use crate::config::settings::BASE_URL;
use crate::mcp::ServerConfig;
use crate::model::{BaseUrl, Credential, ModelService};
use crate::recovery::Limits;

/// All facts about the settings. Invalid files contribute only their mistakes.
pub struct SettingsSurvey {
    /// What was read, with all mistakes, and the limits in force.
    pub inputs: Inputs,
    /// The warnings, except those about MCP servers and ignored settings.
    pub warnings: Vec<String>,
    pub server_warnings: Vec<String>,
    pub endpoint: ModelService,
    /// All available credentials, the one in use first: the kind, and the source.
    pub credentials: Vec<(&'static str, String)>,
    /// True if the server is known to require a credential.
    pub needs_credential: bool,
    pub model: String,
    pub effective: Vec<EffectiveValue>,
    /// The MCP servers. They may contain secrets.
    pub servers: Vec<ServerConfig>,
    /// Unknown variables with the prefix `OUTLAST_`.
    pub unknown_variables: Vec<String>,
}

/// Surveys the settings. Reads files, changes nothing, and collects all mistakes.
pub fn survey(args: &RunArgs, variables: &Variables, cwd: &Path) -> SettingsSurvey {
    survey_with_managed(&managed::files(), args, variables, cwd)
}

/// Like [`survey`], with these managed files.
pub fn survey_with_managed(
    managed: &[PathBuf],
    args: &RunArgs,
    variables: &Variables,
    cwd: &Path,
) -> SettingsSurvey {
    let mut inputs = Inputs::read(args, variables, cwd, managed, ResumedContract::default());
    let mut found = credentials(&inputs, variables);
    let sources = EndpointSources {
        args: &inputs.args,
        env: &inputs.env,
        config: &inputs.config,
        config_dir: &inputs.config_dir,
        variables: &inputs.variables,
    };
    let endpoint = sources.endpoint().unwrap_or_else(|error| {
        inputs.mistakes.push(error.to_string());
        sources.with_credential(Credential::None)
    });
    if let Some(of_cloud) = endpoint.cloud_credential() {
        // A cloud does not use the credentials of the Messages API.
        found = vec![of_cloud];
    }
    let mut warnings = std::mem::take(&mut inputs.fold.warnings);
    warnings.append(&mut inputs.sources.library.warnings);
    let named = std::mem::take(&mut inputs.sources.servers);
    let Inputs { args, config, env, .. } = &inputs;
    warnings.extend(certificate_warnings(env));
    let mcp = servers::resolve(args, env, config, named, &inputs.variables, cwd);
    let limits = run_limits::limits(config, env, 0, endpoint.credential.account(), None);
    let alias = config.model.trim().to_ascii_lowercase();
    let model = env.aliases.get(&alias).unwrap_or(&config.model).clone();
    let effective = effective(&inputs, variables, &endpoint, &limits, &found, &mcp);
    let unknown_variables = unknown_variables(&inputs.variables);
    inputs.config.limits = limits;
    SettingsSurvey {
        inputs,
        needs_credential: endpoint.base_url == BASE_URL,
        unknown_variables,
        effective,
        warnings,
        server_warnings: mcp.warnings,
        servers: mcp.servers,
        credentials: found,
        model,
        endpoint,
    }
}

/// Returns all values in force: settings, servers, and values that have only a variable or a flag.
fn effective(
    inputs: &Inputs,
    outer: &Variables,
    endpoint: &ModelService,
    limits: &Limits,
    credentials: &[(&'static str, String)],
    mcp: &McpServers,
) -> Vec<EffectiveValue> {
    let Inputs { fold, config, variables: all, args, .. } = inputs;
    let derived = [
        ("accountKind", json!(limits.account)),
        ("commandMemory", json!(run_limits::command_memory(config).map(MemorySize))),
        ("maxRetryWait", json!(Span(limits.max_retry_wait))),
        ("sandbox.mode", json!(sandbox::default_mode(config))),
    ];
    let mut effective = fold.effective(&derived, all);
    let mut add = |name: &str, value: Value, origin: &str| {
        let (name, origin) = (name.to_owned(), origin.to_owned());
        effective.push(EffectiveValue { name, value, origin });
    };
    for (name, server) in &mcp.shown {
        let origin = mcp.places.get(name).map_or("", String::as_str);
        add(&format!("mcpServers.{name}"), server.clone(), origin);
    }
    let from = |variable: Option<&str>| match variable {
        Some(name) => variable_origin(name, fold.set_at(name, outer, all)),
        None => DEFAULT.to_owned(),
    };
    let url = BaseUrl::parse(&endpoint.base_url).map(|address| address.base());
    let url = url.unwrap_or_else(|_| "(no address)".to_owned());
    add("baseUrl", url.into(), &from(inputs.env.base_url.as_ref().map(|_| "ANTHROPIC_BASE_URL")));
    let folder = inputs.config_dir.display().to_string();
    add("configDir", folder.into(), &from(config_dir_variable(outer)));
    let (kind, source) = credentials.first().map_or(("none", DEFAULT), |(kind, it)| (kind, it));
    add("credential", format!("{kind} (not shown)").into(), source);
    if let Some(tools) = &args.tools.tools {
        add("tools", json!(tools), "--tools");
    }
    if !args.network.ca_file.is_empty() {
        add("caFiles", json!(args.network.ca_file), "--ca-file");
    }
    effective
}

impl SettingsSurvey {
    /// Returns all warnings about the settings.
    pub fn all_warnings(&self) -> impl Iterator<Item = &String> {
        let ignored = &self.inputs.sources.ignored_warning;
        self.warnings.iter().chain(ignored).chain(&self.server_warnings)
    }

    /// Returns the secrets, to be redacted.
    pub fn secrets(&self) -> Vec<String> {
        let Inputs { variables, config, .. } = &self.inputs;
        let mut secrets = crate::tools::secret_values(variables, Some(&config.commands));
        secrets.extend(self.endpoint.credential.secrets().into_iter().map(str::to_owned));
        secrets.extend(self.endpoint.connection.proxies.secrets());
        secrets.extend(self.endpoint.login_secrets());
        let headers = self.endpoint.extra_headers.iter();
        secrets.extend(headers.map(|(_, value)| value.clone()).filter(|value| value.len() > 15));
        secrets
    }
}

/// Returns the unknown variables with the prefix `OUTLAST_`.
fn unknown_variables(all: &Variables) -> Vec<String> {
    let known = |name: &str| variable_names().any(|known| known == name);
    let names = all.keys().filter_map(|name| name.to_str());
    let unknown = names.filter(|name| name.starts_with("OUTLAST_") && !known(name));
    unknown.map(ToOwned::to_owned).collect()
}

/// Returns all credentials, highest precedence first: the kind, and the source.
fn credentials(inputs: &Inputs, outer: &Variables) -> Vec<(&'static str, String)> {
    let Inputs { config, env, fold, variables, .. } = inputs;
    let variable = |name: &str| match fold.set_at(name, outer, variables) {
        Some(place) => format!("the variable {name}, set at {place}"),
        None => format!("the variable {name}"),
    };
    let mut found = Vec::new();
    let helper = config.api_key_helper.as_ref().filter(|command| !command.trim().is_empty());
    if let (Some(_), Some(origin)) = (helper, fold.origin(&["apiKeyHelper"])) {
        let source = if inputs.args.flags.has("api-key-helper") {
            origin.to_owned()
        } else {
            format!("the setting apiKeyHelper at {origin}")
        };
        found.push(("API key helper", source));
    }
    if env.auth_token.is_some() {
        found.push(("bearer token", variable("ANTHROPIC_AUTH_TOKEN")));
    }
    if env.api_key.is_some() {
        found.push(("API key", variable("ANTHROPIC_API_KEY")));
    }
    if env.oauth_token.is_some() {
        found.push(("login token", variable("CLAUDE_CODE_OAUTH_TOKEN")));
    }
    let login = crate::model::LoginFile::within(&inputs.config_dir);
    if matches!(login.read(), Ok(Some(_))) {
        found.push(("login", login.path.display().to_string()));
    }
    found
}
