//! Resolves the MCP servers of a run, with their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Map, Value};
use strsim::osa_distance;

use super::prompt_tool;
use crate::cli::args::{McpArgs, RunArgs};
use crate::cli::usage::UsageError;
use crate::config::environment::{ProcessEnv, Variables};
use crate::config::file::{ParsedSettings, inline_or_file};
use crate::config::spans::JsonPaths;
use crate::config::{Config, is_inline, redact, syntax_error, values, written_json};
use crate::mcp::{self, HttpAddress, McpTimers, ServerAddress, ServerConfig};
use crate::tools::secret_values;

/// The servers of a run.
#[derive(Clone, Debug, Default)]
pub struct McpServers {
    pub servers: Vec<ServerConfig>,
    /// Servers that the run requires; `all` is every one. `None`: not set.
    pub required: Option<Vec<String>>,
    /// Invalid entries, which are not used: their names, and why.
    pub skipped: Vec<(String, String)>,
    pub timers: McpTimers,
    /// True if servers may ask the user of a host.
    pub may_ask: bool,
    /// The source of each server: a file and line, or a flag.
    pub places: BTreeMap<String, String>,
    /// Warnings about some of the entries.
    pub warnings: Vec<String>,
    /// Each entry as written, without values that may be secret.
    pub(super) shown: BTreeMap<String, Value>,
}

impl McpServers {
    /// Checks that the required servers and the server of the permission prompt tool exist, unless
    /// the host may define them later.
    ///
    /// # Errors
    /// A server does not exist; names the known ones.
    pub(super) fn with_named(self, args: &RunArgs) -> Result<Self, UsageError> {
        if args.prompts.more_follows {
            return Ok(self);
        }
        let there: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        let known = || match there.as_slice() {
            [] => "there is none (.mcp.json counts in a trusted repository only)".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        for name in self.required.iter().flatten().filter(|name| !there.contains(&name.as_str())) {
            let left_out =
                self.skipped.iter().find(|(skipped, _)| skipped == name || name == "all");
            let why = match left_out {
                Some((server, why)) => format!("the MCP server {server:?} is left out: {why}"),
                None if name == "all" => continue,
                None => format!("no MCP server has this name; {}", known()),
            };
            return Err(UsageError::new(format!("--mcp-required {name}: {why}")));
        }
        match prompt_tool::mcp_tool(&args.tools) {
            Some(tool)
                if !there.iter().any(|name| tool.starts_with(&mcp::tool_name_prefix(name))) =>
            {
                Err(UsageError::new(format!(
                    "--permission-prompt-tool {tool}: no MCP server has such a tool; {}",
                    known()
                )))
            }
            Some(_) | None => Ok(self),
        }
    }

    /// Returns the secrets of the configuration, to be redacted.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        self.servers.iter().flat_map(|server| match &server.place {
            ServerAddress::Program { variables, .. } => {
                let pair = |(name, value): (&String, &String)| (name.into(), value.into());
                secret_values(&variables.iter().map(pair).collect::<Variables>(), None)
            }
            ServerAddress::Http(HttpAddress { url, headers, oauth, .. }) => {
                let client = oauth.iter().filter_map(|oauth| oauth.client_secret.as_deref());
                let values = headers.iter().map(|(_, value)| value);
                let words = values.flat_map(|value| value.split_whitespace());
                let words = words.filter(|word| word.len() >= SECRET_BYTES_MIN);
                words.chain(secret_parts(url)).chain(client).map(ToOwned::to_owned).collect()
            }
            ServerAddress::Host => Vec::new(),
        })
    }
}

/// Returns the parts of a URL that may be secret: user, password, query, fragment, and path
/// segments that look like tokens. Network errors quote URLs.
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

/// A path segment with digits of at least this length is treated as a secret.
const CODE_BYTES_MIN: usize = 20;

/// Shorter words of a header are not secret: `Bearer`, `application/json`.
const SECRET_BYTES_MIN: usize = 12;

/// The source of a server. If two servers have the same name, the later source wins entirely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerAuthor {
    /// The user's own settings.
    User,
    /// `.mcp.json` of the repository.
    Project,
    /// The repository's own settings.
    ProjectSettings,
    /// `--settings`.
    Settings,
    /// `--mcp-config`.
    Flag,
    /// The administrator of the machine.
    Managed,
}

impl ServerAuthor {
    fn is_repository(self) -> bool {
        matches!(self, Self::Project | Self::ProjectSettings)
    }
}

/// A server of one source.
#[derive(Clone, Debug)]
pub(super) struct NamedServer {
    pub name: String,
    pub entry: Value,
    pub author: ServerAuthor,
    /// The file and the line.
    pub place: String,
    column: usize,
}

/// Returns the servers of a valid settings file.
pub(super) fn from_settings(parsed: &ParsedSettings, author: ServerAuthor) -> Vec<NamedServer> {
    let servers = parsed.value.get("mcpServers").and_then(Value::as_object);
    servers.map_or_else(Vec::new, |servers| {
        named(&parsed.name, &JsonPaths::scan(&parsed.text), (Some("mcpServers"), servers), author)
    })
}

fn named(
    file: &str,
    places: &JsonPaths<'_>,
    (key, servers): (Option<&str>, &Map<String, Value>),
    author: ServerAuthor,
) -> Vec<NamedServer> {
    let one = |(name, entry): (&String, &Value)| {
        let path = key.into_iter().chain([name.as_str()]);
        let (line, column) = places.start(places.nearest(path));
        let place = format!("{file}:{line}");
        NamedServer { name: name.clone(), entry: entry.clone(), author, place, column }
    };
    servers.iter().map(one).collect()
}

/// Reads the text of a file such as `.mcp.json`. `None`: it contains something else than servers.
///
/// # Errors
/// The text is not JSON, or its servers are not an object; with the position.
pub(super) fn parse(
    name: &str,
    text: &str,
    author: ServerAuthor,
) -> Result<Option<Vec<NamedServer>>, UsageError> {
    let text = &*written_json(text);
    let value: Value = serde_json::from_str(text)
        .map_err(|error| UsageError::new(syntax_error(name, text, &error)))?;
    let places = JsonPaths::scan(text);
    let wrong = |index: usize, why: &str| {
        let (line, column) = places.value(index);
        UsageError::new(format!("{name}:{line}:{column}: {why}"))
    };
    let Value::Object(members) = value else {
        return Err(wrong(
            0,
            "a list of MCP servers is a JSON object; write {\"mcpServers\": ...}",
        ));
    };
    // Trust in a repository's file by its content looks for servers under this key only.
    let list = if author.is_repository() {
        members.get("mcpServers").and_then(Value::as_object).map(|list| (Some("mcpServers"), list))
    } else {
        mcp::server_list(&members)
    };
    let key = list.map_or(Some("mcpServers"), |(key, _)| key);
    let again = places.repeated.iter().find(|(_, again)| match (key, &*places.path(*again)) {
        (Some(key), [first] | [first, _]) => *first == key,
        (key, path) => key.is_none() && path.len() == 1,
    });
    if let Some((first, again)) = again {
        let path = places.path(*again).join(".");
        let line = places.line(*first);
        return Err(wrong(
            *again,
            &format!(
                "duplicate key \"{path}\", which line {line} has already; make one of the two"
            ),
        ));
    }
    if let Some(list) = list {
        return Ok(Some(named(name, &places, list, author)));
    }
    if let Some(list) = members.get("mcpServers") {
        if list.is_null() || list.as_array().is_some_and(Vec::is_empty) {
            return Ok(Some(Vec::new()));
        }
        return Err(wrong(
            places.nearest(["mcpServers"]),
            "\"mcpServers\" takes an object of servers; correct it",
        ));
    }
    match members.keys().find(|key| osa_distance(key, "mcpServers") <= TYPO_MAX) {
        Some(key) => Err(wrong(
            places.nearest([key.as_str()]),
            &format!("\"{key}\" holds no servers; did you mean \"mcpServers\"?"),
        )),
        None => Ok(members.is_empty().then(Vec::new)),
    }
}

/// Reads a value of `--mcp-config`: JSON, or the name of a file. Returns the name and the text.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_flag(given: &str) -> Result<(String, String), UsageError> {
    Ok(inline_or_file("--mcp-config", given, FILE_BYTES_MAX)?)
}

/// Returns the warning about a value of `--mcp-config` without servers.
pub(super) fn no_servers_warning(given: &str) -> String {
    let name = if is_inline(given) { "its JSON" } else { given };
    format!("--mcp-config: {name} holds no MCP servers; write {{\"mcpServers\": {{...}}}}")
}

/// The maximum edit distance of a mistyped `mcpServers` key.
const TYPO_MAX: usize = 3;

/// The maximum size of a file of servers, in bytes. Some contain much other data.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Resolves the servers. An invalid entry is not used, with a warning.
pub(super) fn resolve(
    args: &RunArgs,
    env: &ProcessEnv,
    config: &Config,
    mut named: Vec<NamedServer>,
    variables: &Variables,
    cwd: &Path,
) -> McpServers {
    let approval = ServerApproval::of(config);
    named.sort_by_key(|server| server.author);
    let managed = named.iter().filter(|server| server.author == ServerAuthor::Managed);
    let managed: BTreeSet<String> = managed.map(|server| server.name.clone()).collect();
    let lookup = |name: &str| {
        let value = variables.get(OsStr::new(name)).and_then(|value| value.to_str());
        // Servers get it in their environment.
        let value = value.or_else(|| cwd.to_str().filter(|_| name == "CLAUDE_PROJECT_DIR"));
        value.map(ToOwned::to_owned)
    };
    let mut found: BTreeMap<String, ServerConfig> = BTreeMap::new();
    let (mut places, mut shown) = (BTreeMap::new(), BTreeMap::new());
    let (mut skipped, mut warnings) = (Vec::new(), Vec::new());
    for NamedServer { name, entry, author, place, column } in named {
        match ServerConfig::parse(&name, &entry, &lookup) {
            Ok((mut config, unset)) => {
                let at = format!("{place}:{column}");
                warnings.extend(oauth_warnings(&at, &config, &entry));
                warnings.extend(key_warnings(&at, &name, &entry));
                warnings.extend(timeout_warning(&at, &config, &entry));
                config.disabled |= author.is_repository() && !approval.admits(&name);
                config.trusted = !author.is_repository();
                for variable in unset {
                    warnings.push(format!(
                        "{place}:{column}: the MCP server {name:?} names the variable {variable}, \
                         which is not set: it stays as it is written"
                    ));
                }
                places.insert(name.clone(), place);
                shown.insert(name.clone(), redact::redacted_server(&entry, config.disabled));
                found.insert(name, config);
            }
            Err(why) => {
                // A server of the same name with lower precedence is removed as well.
                found.remove(&name);
                shown.remove(&name);
                // A disabled entry needs no further fields.
                if entry.as_object().is_some_and(mcp::is_disabled) {
                    shown.insert(name.clone(), redact::redacted_server(&entry, true));
                } else {
                    let at = format!("{place}:{column}");
                    warnings.push(format!("{at}: the MCP server {name:?} is left out: {why}"));
                    skipped.push((name.clone(), format!("{at}: {why}")));
                }
                places.insert(name, place);
            }
        }
    }
    let defaults = McpTimers::default();
    let call = env.mcp_call.unwrap_or(defaults.call);
    let wait = env.mcp_wait.unwrap_or(defaults.wait);
    let begin = env.mcp_wait.unwrap_or(defaults.begin);
    let start = env.mcp_start.unwrap_or(defaults.start).max(wait);
    let timers = McpTimers { begin, wait, start, call, ..defaults };
    // If two servers have the same tool prefix, the first one is used.
    let (mut servers, others): (Vec<ServerConfig>, Vec<ServerConfig>) =
        found.into_values().partition(|server| managed.contains(&server.name));
    servers.extend(others);
    let may_ask = prompt_tool::may_ask(args);
    let required = required(&args.mcp);
    McpServers { servers, required, skipped, timers, may_ask, places, warnings, shown }
}

/// Returns warnings about mistyped keys, and about keys of other programs that have no effect.
fn key_warnings(at: &str, name: &str, entry: &Value) -> Vec<String> {
    let Some(entry) = entry.as_object() else { return Vec::new() };
    let mistyped = mcp::mistyped_keys(entry).into_iter().map(|(key, meant)| {
        format!("{at}: {key:?} of the MCP server {name:?} is not known; did you mean {meant:?}?")
    });
    let list = mcp::tool_names_key(entry).map(|key| {
        format!(
            "{at}: the names in {key:?} of the MCP server {name:?} have no effect: all its tools \
             are offered; deny the others by rules"
        )
    });
    let ineffective = mcp::ineffective_keys(entry).map(|key| {
        format!(
            "{at}: {key:?} of the MCP server {name:?} has no effect; write the values, or \
             ${{VARIABLE}}, into its \"env\" or \"headers\""
        )
    });
    mistyped.chain(list).chain(ineffective).collect()
}

/// Returns the warning about an invalid `timeout` of a server that is used nevertheless.
fn timeout_warning(at: &str, server: &ServerConfig, entry: &Value) -> Option<String> {
    let is_given = entry.get("timeout").is_some_and(|timeout| !timeout.is_null());
    (is_given && server.timeout.is_none()).then(|| {
        format!(
            "{at}: the timeout of the MCP server {:?} is not a number of milliseconds above 0, and \
             is not used",
            server.name
        )
    })
}

/// Returns warnings about an `oauth` that has no effect, and about its unknown keys.
fn oauth_warnings(at: &str, server: &ServerConfig, entry: &Value) -> Vec<String> {
    if entry.get("oauth").is_none_or(Value::is_null) {
        return Vec::new();
    }
    let name = &server.name;
    let useless = |why: &str| {
        vec![format!("{at}: \"oauth\" of the MCP server {name:?} has no effect: {why}")]
    };
    match &server.place {
        ServerAddress::Program { .. } | ServerAddress::Host => {
            useless("only servers with a \"url\" have logins; remove it")
        }
        ServerAddress::Http(address) if !address.takes_login() => {
            useless("its \"headers\" or \"headersHelper\" give the token; remove one of the two")
        }
        ServerAddress::Http(_) => {
            let unknown = mcp::unknown_oauth_keys(entry).into_iter();
            let reports = unknown.map(|key| {
                format!(
                    "{at}: {key:?} in \"oauth\" of the MCP server {name:?} is not known: remove it"
                )
            });
            reports.collect()
        }
    }
}

/// Returns the servers of `--mcp-required`. `none` removes those of the resumed session.
fn required(args: &McpArgs) -> Option<Vec<String>> {
    let names = values::list(&args.mcp_required);
    match names.as_slice() {
        [] => None,
        [none] if none == "none" => Some(Vec::new()),
        _ => Some(names),
    }
}

/// The approval settings for a repository's servers.
struct ServerApproval {
    disabled: Vec<String>,
    /// The only approved servers, if they are restricted.
    enabled: Option<Vec<String>>,
}

impl ServerApproval {
    fn of(config: &Config) -> Self {
        let enabled = (!config.all_project_servers).then(|| config.enabled_servers.clone());
        Self { disabled: config.disabled_servers.clone(), enabled }
    }

    fn admits(&self, name: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|listed| listed == name);
        !listed(&self.disabled) && self.enabled.as_ref().is_none_or(|enabled| listed(enabled))
    }
}
