//! The settings as a doctor looks at them: every source, and every mistake in any of them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::credential::credential;
use super::layer::Layer;
use super::load::{self, Loaded, Parsed};
use super::origins::{Effective, Origins};
use super::repository::{Found, Leavings, MCP_FILE, Paths, read};
use super::rules;
use super::sources::{OF_THE_REPOSITORY, named, of_the_repository};
use super::trust::Trust;
use super::{Credential, DEFAULTS, Endpoint, Ignored};
use crate::cli::args::{Given, RunArgs};
use crate::cli::environment::{self, Environment, VARIABLES, Variables};
use crate::process::reading;
use crate::recovery::Limits;

/// What became of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    Absent,
    Used,
    /// Only what forbids is used: nobody vouches for the repository.
    Untrusted,
    /// It has a mistake, and a run would not begin.
    Broken,
}

/// One place where settings may be.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    pub path: String,
    pub state: FileState,
    /// Its hooks, as they are written; `Null` without any.
    pub hooks: serde_json::Value,
}

/// Everything there is to say about the settings. What has a mistake is left out of the rest.
#[derive(Clone, Debug)]
pub struct Survey {
    pub config_dir: PathBuf,
    pub files: Vec<SettingsFile>,
    /// Each would keep a run from beginning.
    pub mistakes: Vec<String>,
    pub warnings: Vec<String>,
    pub ignored: Vec<Ignored>,
    /// The environment, with what the settings add to it.
    pub variables: Variables,
    pub endpoint: Endpoint,
    /// Every credential that there is, the one in use first: its kind, and its source.
    pub credentials: Vec<(&'static str, String)>,
    /// Whether the service is one that surely wants a credential.
    pub needs_credential: bool,
    pub model: String,
    pub limits: Limits,
    pub effective: Vec<Effective>,
    /// Keys of other tools, with their places.
    pub foreign: Vec<(String, String)>,
    /// The content of the repository's list of servers.
    pub servers: Option<Vec<u8>>,
}

/// Looks at all of it. Reads files, changes nothing, and stops at no mistake.
pub fn survey(args: &RunArgs, given: &Given, variables: &Variables, cwd: &Path) -> Survey {
    let config_dir = environment::config_dir(variables);
    let mut gathering = Gathering::default();
    gathering.read_all(args, variables, &config_dir, cwd);
    let Gathering { loaded, files, mut mistakes, leavings, mut origins, servers } = gathering;
    let file = loaded.layer();
    let mut all = variables.clone();
    all.extend(file.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let env = environment_of(&all, &mut mistakes);
    let found = credentials(args, &env, &file, &config_dir);
    let credential = credential(&args.model, &env, &file, &config_dir).unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        Credential::Absent
    });
    let endpoint = rules::endpoint(args, &env, &file, credential);
    let model = args.model.model.clone().or(env.model.clone()).or(file.model.clone());
    let (ignored, line) = leavings.told();
    origins.add_environment(variables, &all);
    origins.add_flags(given);
    let foreign = origins.take_foreign();
    let needs_credential = endpoint.base_url == DEFAULTS.base_url;
    Survey {
        effective: origins.effective(&endpoint, &config_dir, &found, &all),
        limits: rules::limits(&args.limits, &args.model, &env, &file, 0),
        warnings: loaded.warnings.into_iter().chain(line).collect(),
        credentials: found,
        model: model.unwrap_or_else(|| DEFAULTS.model.to_owned()),
        variables: all,
        config_dir,
        files,
        mistakes,
        ignored,
        endpoint,
        needs_credential,
        foreign,
        servers,
    }
}

impl Survey {
    /// What must not be printed.
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets = crate::tools::secret_values(&self.variables);
        secrets.extend(self.endpoint.credential.secrets().into_iter().map(str::to_owned));
        secrets.extend(self.endpoint.proxies.secrets());
        let headers = self.endpoint.headers.iter();
        secrets.extend(headers.map(|(_, value)| value.clone()).filter(|value| value.len() > 15));
        secrets
    }
}

#[derive(Default)]
struct Gathering {
    loaded: Loaded,
    files: Vec<SettingsFile>,
    mistakes: Vec<String>,
    leavings: Leavings,
    origins: Origins,
    servers: Option<Vec<u8>>,
}

impl Gathering {
    fn read_all(&mut self, args: &RunArgs, variables: &Variables, config_dir: &Path, cwd: &Path) {
        let vouches = args.session.trust_project
            || environment::trusts_project(variables).unwrap_or_default();
        let home = environment::home(variables);
        let paths = Paths { cwd, home: home.as_deref() };
        let wanted = named(args.session.setting_sources.as_deref()).unwrap_or_else(|error| {
            self.mistakes.push(error.to_string());
            Vec::new()
        });
        let user = config_dir.join("settings.json");
        let user = if wanted.contains(&"user") { self.user(&user) } else { None };
        let flag = args.session.settings.as_deref().and_then(|given| self.flag(given));
        let own = [&user, &flag].into_iter().flatten();
        let trusted: Vec<_> = own.flat_map(|(parsed, _)| parsed.layer().trusted_projects).collect();
        let trust = if vouches { Trust::Full } else { Trust::of(&trusted, cwd, paths.home) };
        if let Some((parsed, text)) = user {
            self.lay(parsed, &text);
        }
        for (_, file) in OF_THE_REPOSITORY.iter().filter(|(source, _)| wanted.contains(source)) {
            self.repository(file, &paths, &trust);
        }
        if wanted.contains(&"project")
            && let Found::Content(content) = read(cwd, MCP_FILE, &trust)
        {
            self.servers = Some(content);
        }
        if let Some((parsed, text)) = flag {
            self.lay(parsed, &text);
        }
    }

    fn user(&mut self, path: &Path) -> Option<(Parsed, String)> {
        let shown = path.display().to_string();
        let read = load::file(path);
        self.note(shown, read, || reading::read(path).unwrap_or_default())
    }

    fn flag(&mut self, given: &str) -> Option<(Parsed, String)> {
        let inline = given.trim_start().starts_with('{');
        let shown = if inline { "--settings" } else { given };
        self.note(shown.to_owned(), load::flag(given).map(Some), || {
            if inline { given.into() } else { reading::read(Path::new(given)).unwrap_or_default() }
        })
    }

    fn note(
        &mut self,
        path: String,
        read: Result<Option<Parsed>, crate::cli::usage::UsageError>,
        text: impl FnOnce() -> Vec<u8>,
    ) -> Option<(Parsed, String)> {
        let (state, parsed) = match read {
            Ok(None) => (FileState::Absent, None),
            Ok(Some(parsed)) => (FileState::Used, Some(parsed)),
            Err(error) => {
                self.mistakes.push(error.to_string());
                (FileState::Broken, None)
            }
        };
        let hooks = parsed.as_ref().and_then(|parsed| parsed.value.get("hooks")).cloned();
        self.files.push(SettingsFile { path, state, hooks: hooks.unwrap_or_default() });
        Some((parsed?, String::from_utf8_lossy(&text()).into_owned()))
    }

    fn repository(&mut self, file: &str, paths: &Paths<'_>, trust: &Trust) {
        let path = paths.cwd.join(file).display().to_string();
        let content = match read(paths.cwd, file, trust) {
            Found::Content(content) => content,
            Found::Nothing | Found::Unusable(_) => Vec::new(),
        };
        let trusted = trust.covers(&content);
        let read = of_the_repository(file, paths, trust, &mut self.leavings);
        let broken = read.is_err();
        let laid = self.note(path, read, || content);
        if let Some(last) = self.files.last_mut()
            && !trusted
            && !broken
            && last.state == FileState::Used
        {
            last.state = FileState::Untrusted;
        }
        if let Some((parsed, text)) = laid {
            self.lay(parsed, &text);
        }
    }

    fn lay(&mut self, parsed: Parsed, text: &str) {
        self.origins.add_file(&parsed, text);
        self.loaded = std::mem::take(&mut self.loaded).lay(parsed);
    }
}

/// The environment without the variables that make no sense, each of which is a mistake.
fn environment_of(variables: &Variables, mistakes: &mut Vec<String>) -> Environment {
    let mut good = variables.clone();
    let names = VARIABLES.iter().flat_map(|(names, _)| names.split(", "));
    for name in names.flat_map(|name| [name.to_owned(), name.to_ascii_lowercase()]) {
        let Some(value) = variables.get(OsStr::new(&name)) else { continue };
        let alone = Variables::from([(OsString::from(&name), value.clone())]);
        let read = Environment::read(&alone).map(drop);
        let read = read.and_then(|()| environment::trusts_project(&alone).map(drop));
        if let Err(error) = read {
            mistakes.push(error.to_string());
            good.remove(OsStr::new(&name));
        }
    }
    Environment::read(&good).unwrap_or_default()
}

/// Every credential, in the order in which they outrank each other.
fn credentials(
    args: &RunArgs,
    env: &Environment,
    file: &Layer,
    config_dir: &Path,
) -> Vec<(&'static str, String)> {
    let said =
        |command: &Option<String>| command.as_ref().is_some_and(|one| !one.trim().is_empty());
    let mut found = Vec::new();
    if said(&args.model.api_key_helper) {
        found.push(("API key helper", "--api-key-helper".to_owned()));
    } else if args.model.api_key_helper.is_none() && said(&file.api_key_helper) {
        found.push(("API key helper", "the setting apiKeyHelper".to_owned()));
    }
    if env.auth_token.is_some() {
        found.push(("bearer token", "the variable ANTHROPIC_AUTH_TOKEN".to_owned()));
    }
    if env.api_key.is_some() {
        found.push(("API key", "the variable ANTHROPIC_API_KEY".to_owned()));
    }
    let login = crate::model::LoginFile::within(config_dir);
    if matches!(login.read(), Ok(Some(_))) {
        found.push(("login", login.path.display().to_string()));
    }
    found
}
