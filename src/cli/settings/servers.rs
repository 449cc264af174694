//! Which servers of the Model Context Protocol a run is to have, and who says so.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Map, Value};

use super::layer::Layer;
use super::load::{bare, utf8};
use super::locate;
use crate::cli::args::McpArgs;
use crate::cli::environment::{Environment, Variables};
use crate::cli::usage::UsageError;
use crate::mcp::{self, Config, Place, Timers};
use crate::process::reading;
use crate::tools::secret_values;

/// The servers of a run.
#[derive(Clone, Debug, Default)]
pub struct McpServers {
    pub servers: Vec<Config>,
    /// The run does not begin without these; `all` is every one. `None`: nobody said.
    pub required: Option<Vec<String>>,
    /// Entries that were left out: their names, and why.
    pub skipped: Vec<(String, String)>,
    pub timers: Timers,
    /// Who names each server.
    pub places: BTreeMap<String, String>,
}

impl McpServers {
    /// What must not be printed or stored of the configuration.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        self.servers.iter().flat_map(|server| match &server.place {
            Place::Program { variables, .. } => {
                let pair = |(name, value): (&String, &String)| (name.into(), value.into());
                secret_values(&variables.iter().map(pair).collect())
            }
            Place::Http { url, headers } => {
                let values = headers.iter().map(|(_, value)| value);
                let words = values.flat_map(|value| value.split_whitespace());
                let words = words.filter(|word| word.len() >= SECRET_BYTES_MIN);
                words.chain(secret_parts(url)).map(ToOwned::to_owned).collect()
            }
        })
    }
}

/// What of an address may be a secret: user, password, what follows the path, and what looks like
/// no name in the path. Errors of the network quote addresses.
fn secret_parts(url: &str) -> impl Iterator<Item = &str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (user, rest) = rest.split_once('@').unwrap_or(("", rest));
    let (place, query) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
    let coded = |part: &&str| {
        part.len() >= CODE_BYTES_MIN && part.bytes().any(|byte| byte.is_ascii_digit())
    };
    let path = place.split('/').skip(1).filter(coded);
    let values = user.split(':').chain(query.split(['&', '=', '#']));
    values.filter(|value| value.len() >= SECRET_BYTES_MIN).chain(path)
}

/// A longer part of a path that has digits is rather a secret than a name.
const CODE_BYTES_MIN: usize = 20;

/// A shorter word of a header is no secret: `Bearer`, `application/json`.
const SECRET_BYTES_MIN: usize = 12;

/// The entries of one place, by name.
pub(super) struct Entries {
    /// The place's, for messages.
    name: String,
    servers: Map<String, Value>,
    /// Where each begins: line and column, as far as that is known.
    lines: BTreeMap<String, (usize, usize)>,
}

impl Entries {
    /// Reads the text of a file such as `.mcp.json`.
    ///
    /// # Errors
    /// It is no JSON, or holds no servers, and where.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, UsageError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let here = |at: usize| {
            let (line, column) = locate::line_and_column(text, at);
            format!("{name}:{line}:{column}")
        };
        let value: Value = serde_json::from_str(text).map_err(|error| {
            let at = here(locate::offset(text, error.line(), error.column()));
            UsageError::new(format!("{at}: not valid JSON: {}; correct it", bare(&error)))
        })?;
        match value {
            Value::Object(mut members) => match members.remove("mcpServers") {
                Some(Value::Object(servers)) => {
                    let lines = lines(text);
                    Ok(Self { name: name.to_owned(), servers, lines })
                }
                None => Ok(Self::of(name, Map::new())),
                Some(_) => {
                    let places = locate::places(text);
                    let at = places.iter().find(|place| place.path == ["mcpServers"]);
                    let at = here(at.map_or(0, |place| place.value.start));
                    Err(UsageError::new(format!(
                        "{at}: \"mcpServers\" takes an object of servers; correct it"
                    )))
                }
            },
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(UsageError::new(format!(
                "{}: a list of MCP servers is a JSON object; write {{\"mcpServers\": ...}}",
                here(0)
            ))),
        }
    }

    fn of(name: &str, servers: Map<String, Value>) -> Self {
        Self { name: name.to_owned(), servers, lines: BTreeMap::new() }
    }

    /// Where an entry is.
    fn place(&self, server: &str) -> String {
        match self.lines.get(server) {
            Some((line, column)) => format!("{}:{line}:{column}", self.name),
            None => self.name.clone(),
        }
    }

    /// Reads the content of a file.
    pub(super) fn content(name: &str, bytes: Vec<u8>) -> Result<Self, UsageError> {
        Self::parse(name, &utf8(name, bytes)?)
    }

    /// Reads what `--mcp-config` names: JSON when it begins like it, otherwise a file.
    fn flag(given: &str) -> Result<Self, UsageError> {
        if given.trim_start().starts_with('{') {
            return Self::parse("--mcp-config", given);
        }
        let bytes = reading::read(Path::new(given)).map_err(|error| {
            UsageError::new(format!("--mcp-config {given}: cannot be read: {error}; name a file"))
        })?;
        Self::content(given, bytes)
    }
}

/// Where each entry of `mcpServers` begins.
fn lines(text: &str) -> BTreeMap<String, (usize, usize)> {
    let found = locate::places(text).into_iter();
    let entry = found.filter(|place| place.path.len() == 2 && place.path[0] == "mcpServers");
    entry.map(|mut at| (at.path.swap_remove(1), locate::line_and_column(text, at.start))).collect()
}

/// Decides which servers there are. Later ones take the place of earlier ones of the same name:
/// the user's, the repository's if it is trusted, those of the flags. An entry that is no good is
/// left out, and is told of in `warnings`.
///
/// # Errors
/// A configuration that cannot be read at all.
pub(super) fn read(
    args: &McpArgs,
    env: &Environment,
    file: &Layer,
    project: Option<Entries>,
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<McpServers, UsageError> {
    let flags: Vec<Entries> =
        args.mcp_config.iter().map(|given| Entries::flag(given)).collect::<Result<_, _>>()?;
    let approval = Approval::of(file);
    let mut sources = Vec::new();
    if !args.strict_mcp_config {
        let servers = file.mcp_servers.clone().into_iter().collect();
        sources.push((Entries::of("settings", servers), false));
        sources.extend(project.map(|project| (project, true)));
    }
    sources.extend(flags.into_iter().map(|flag| (flag, false)));
    let lookup = |name: &str| {
        variables.get(OsStr::new(name)).and_then(|value| value.to_str()).map(ToOwned::to_owned)
    };
    let mut found: BTreeMap<String, Config> = BTreeMap::new();
    let (mut places, mut skipped) = (BTreeMap::new(), Vec::new());
    for (mut entries, of_project) in sources {
        for (name, entry) in std::mem::take(&mut entries.servers) {
            let at = entries.place(&name);
            match Config::read(&name, &entry, &lookup) {
                Ok((mut config, unset)) => {
                    config.disabled |= of_project && !approval.admits(&name);
                    config.vouched = !of_project;
                    for variable in unset {
                        warnings.push(format!(
                            "{at}: the MCP server {name:?} names the variable {variable}, which \
                             is not set: it stays as it is written"
                        ));
                    }
                    places.insert(name.clone(), entries.name.clone());
                    found.insert(name, config);
                }
                Err(why) => {
                    warnings.push(format!("{at}: the MCP server {name:?} is left out: {why}"));
                    skipped.push((name, format!("{at}: {why}")));
                }
            }
        }
    }
    let defaults = Timers::default();
    let call = env.mcp_call.unwrap_or(defaults.call);
    let timers = Timers { start: env.mcp_start.unwrap_or(defaults.start), call, ..defaults };
    let servers = found.into_values().collect();
    Ok(McpServers { servers, required: required(args), skipped, timers, places })
}

/// Whether the servers are there without which a run makes no sense.
///
/// # Errors
/// One is not, and which there are.
pub(super) fn check_named(mcp: &McpServers, asked: Option<&str>) -> Result<(), UsageError> {
    let there: Vec<&str> = mcp.servers.iter().map(|server| server.name.as_str()).collect();
    let known = || match there.as_slice() {
        [] => "there is none (.mcp.json counts in a trusted repository only)".to_owned(),
        names => format!("there are {}", names.join(", ")),
    };
    let required = mcp.required.iter().flatten().map(String::as_str);
    if let Some(name) = required.filter(|name| *name != "all").find(|name| !there.contains(name)) {
        let why = format!("--mcp-required {name}: no MCP server has this name; {}", known());
        return Err(UsageError::new(why));
    }
    match asked {
        Some(tool) if !there.iter().any(|name| tool.starts_with(&mcp::prefix(name))) => {
            Err(UsageError::new(format!(
                "--permission-prompt-tool {tool}: no MCP server has such a tool; {}",
                known()
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// The servers that `--mcp-required` names. `none` takes back what a session was begun with.
fn required(args: &McpArgs) -> Option<Vec<String>> {
    let names = crate::cli::values::list(&args.mcp_required);
    match names.as_slice() {
        [] => None,
        [none] if none == "none" => Some(Vec::new()),
        _ => Some(names),
    }
}

/// What the settings say of a repository's servers.
struct Approval {
    disabled: Vec<String>,
    /// The only ones, if somebody said that not all of them are wanted.
    enabled: Option<Vec<String>>,
}

impl Approval {
    fn of(file: &Layer) -> Self {
        let names = |key: &str| -> Vec<String> {
            let listed = file.others.get(key).and_then(Value::as_array);
            let texts = listed.into_iter().flatten().filter_map(Value::as_str);
            texts.map(ToOwned::to_owned).collect()
        };
        let all = file.others.get("enableAllProjectMcpServers").and_then(Value::as_bool);
        let enabled = (all == Some(false)).then(|| names("enabledMcpjsonServers"));
        Self { disabled: names("disabledMcpjsonServers"), enabled }
    }

    fn admits(&self, name: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|listed| listed == name);
        !listed(&self.disabled) && self.enabled.as_ref().is_none_or(|enabled| listed(enabled))
    }
}
