//! Which settings files are read, and in which order they lie over each other.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::load::{self, Loaded, Parsed};
use super::managed::Managed;
use super::naming;
use super::repository::{Found, Leavings, MCP_FILE, Paths, read};
use super::servers::Entries;
use super::trust::Trust;
use super::{Ignored, MemorySources};
use crate::cli::args::RunArgs;
use crate::cli::environment::{self, Variables};
use crate::cli::prompts::{Library, Search};
use crate::cli::usage::UsageError;
use crate::tools::anchor_rule;

/// Files of a repository, lowest first.
pub(super) const OF_THE_REPOSITORY: [(&str, &str); 4] = [
    ("project", ".claude/settings.json"),
    ("project", ".outlast/settings.json"),
    ("local", ".claude/settings.local.json"),
    ("local", ".outlast/settings.local.json"),
];

/// What was read.
pub(super) struct Sources {
    pub(super) loaded: Loaded,
    pub(super) ignored: Vec<Ignored>,
    pub(super) memory: MemorySources,
    /// What whoever keeps the machine says. It is in `loaded` already.
    pub(super) managed: Managed,
    /// The servers that a trusted repository names.
    pub(super) servers: Option<Entries>,
    /// Agents, commands and skills.
    pub(super) library: Library,
}

/// Reads the user's files, what `--settings` names, and the repository's as far as it is trusted:
/// because somebody vouches for it for this run, or because the user's own settings name it.
///
/// # Errors
/// The first mistake in a file that is used.
pub(super) fn read_all(
    args: &RunArgs,
    variables: &Variables,
    config_dir: &Path,
    cwd: &Path,
    managed: &[PathBuf],
) -> Result<Sources, UsageError> {
    let managed = Managed::read(managed)?;
    let session = &args.session;
    let vouches = session.trust_project || environment::trusts_project(variables)?;
    let home = environment::home(variables);
    let paths = Paths { cwd, home: home.as_deref() };
    let wanted = named(session.setting_sources.as_deref())?;
    let wants = |source: &str| wanted.contains(&source);
    let user = config_dir.join("settings.json");
    let user = if wants("user") { load::file(&user)? } else { None };
    let user = user.map(|parsed| anchored(parsed, config_dir));
    let flag = session.settings.as_deref().map(load::flag).transpose()?;

    let own = [&user, &flag].into_iter().flatten().chain(&managed.files);
    let trusted: Vec<_> = own.flat_map(|parsed| parsed.layer().trusted_projects).collect();
    let trust = if vouches { Trust::Full } else { Trust::of(&trusted, cwd, paths.home) };

    let mut leavings = Leavings::default();
    let mut loaded = user.into_iter().fold(Loaded::default(), Loaded::lay);
    for (_, file) in OF_THE_REPOSITORY.iter().filter(|(source, _)| wants(source)) {
        if let Some(parsed) = of_the_repository(file, &paths, &trust, &mut leavings)? {
            loaded = loaded.lay(parsed);
        }
    }
    let servers = if wants("project") { servers(cwd, &trust, &mut leavings)? } else { None };
    let search = Search {
        cwd,
        own: if wants("user") { environment::own_folders(variables) } else { Vec::new() },
        project: wants("project"),
        trusts: &|content| trust.covers(content),
        anywhere: trust == Trust::Full,
        commands: !args.prompts.disable_slash_commands,
    };
    let library = search.read();
    leavings.definitions(&library.withheld);
    let mut loaded = managed.lay_over(flag.into_iter().fold(loaded, Loaded::lay));
    let (ignored, line) = leavings.told();
    loaded.warnings.extend(line);
    let memory = MemorySources {
        user: wants("user"),
        project: wants("project"),
        local: wants("local"),
        trusted: trust == Trust::Full,
    };
    Ok(Sources { loaded, ignored, memory, managed, servers, library })
}

/// What a file says, its path rules as seen from the folder that it is in.
fn anchored(mut parsed: Parsed, root: &Path) -> Parsed {
    for list in ["allow", "ask", "deny"] {
        let pointer = format!("/permissions/{list}");
        let rules = parsed.value.pointer_mut(&pointer).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            if let Some(text) = rule.as_str() {
                *rule = Value::String(anchor_rule(text, root));
            }
        }
    }
    parsed
}

pub(super) fn of_the_repository(
    file: &str,
    paths: &Paths<'_>,
    trust: &Trust,
    leavings: &mut Leavings,
) -> Result<Option<Parsed>, UsageError> {
    let name = paths.cwd.join(file).display().to_string();
    let content = match read(paths.cwd, file, trust) {
        Found::Nothing => return Ok(None),
        Found::Content(content) => content,
        Found::Unusable(why) if *trust == Trust::Full => {
            return Err(UsageError::new(format!("{name}: {why}; correct it, or take it away")));
        }
        Found::Unusable(why) => {
            leavings.file(file, &why);
            return Ok(None);
        }
    };
    if trust.covers(&content) {
        let mut parsed = load::content(&name, content)?;
        leavings.curb(file, &mut parsed.value);
        return Ok(Some(parsed));
    }
    let value = leavings.narrow(file, &content, paths);
    let text = String::from_utf8_lossy(&content).into_owned();
    let warnings = Vec::from_iter(naming::misnamed_by_others(&name, &content));
    Ok(Some(Parsed { name, value, text, warnings }))
}

/// The servers of the repository, if it is trusted with any.
pub(super) fn servers(
    cwd: &Path,
    trust: &Trust,
    leavings: &mut Leavings,
) -> Result<Option<Entries>, UsageError> {
    match read(cwd, MCP_FILE, trust) {
        Found::Nothing => Ok(None),
        Found::Content(content) if trust.covers(&content) => {
            let name = cwd.join(MCP_FILE).display().to_string();
            Entries::content(&name, content).map(Some)
        }
        Found::Content(content) => {
            leavings.servers(&content, "the repository is not trusted");
            Ok(None)
        }
        Found::Unusable(why) => {
            leavings.file(MCP_FILE, &why);
            Ok(None)
        }
    }
}

pub(super) fn named(given: Option<&str>) -> Result<Vec<&str>, UsageError> {
    let Some(given) = given else { return Ok(vec!["user", "project", "local"]) };
    let named: Vec<&str> =
        given.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).collect();
    match named.iter().find(|name| !["user", "project", "local"].contains(name)) {
        Some(name) => Err(UsageError::new(format!(
            "--setting-sources: {name:?} is none of user, project, local"
        ))),
        None => Ok(named),
    }
}
