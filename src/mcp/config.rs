//! Parses the configuration of a server. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use strsim::osa_distance;

use super::oauth::{OAuthSettings, is_metadata_address};
use crate::text::in_home;
use crate::types::ToolPolicy;

/// The longest server name, in characters: it is part of every name of its tools.
const LONGEST_NAME: usize = 64;

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    pub name: String,
    pub place: ServerAddress,
    /// The timeout of a call, if this server has its own.
    pub timeout: Option<Duration>,
    /// True if the configuration disables it.
    pub disabled: bool,
    /// True if the user configured it, not a repository. Then its `readOnlyHint` is trusted.
    pub trusted: bool,
    /// The tools whose calls the configuration restricts, by the server's own names.
    pub policies: Vec<(String, ToolPolicy)>,
}

/// Keys of other programs for the `url` of a server over streamable HTTP.
const URLS: [&str; 2] = ["httpUrl", "serverUrl"];

/// Keys of other programs for the `type`.
const TYPES: [&str; 2] = ["transport", "transportType"];

/// Keys of other programs for the names of tools that a server may not offer.
const EXCLUDING: [&str; 4] = ["disabledTools", "disabled_tools", "excludeTools", "exclude_tools"];

/// Keys for the names of the only tools that a server may offer. They have no effect.
const INCLUDING: [&str; 5] =
    ["enabledTools", "enabled_tools", "includeTools", "include_tools", "tools"];

/// Keys of other programs for what `env` and `headers` have here. They have no effect.
const INEFFECTIVE: [&str; 7] = [
    "authorization_token",
    "bearer_token_env_var",
    "envFile",
    "env_http_headers",
    "env_vars",
    "http_headers",
    "requestInit",
];

/// Reads the `tools` of an entry, and the tools that it excludes. An unknown policy asks.
fn tool_policies(entry: &Map<String, Value>) -> Vec<(String, ToolPolicy)> {
    let tools = entry.get("tools").and_then(Value::as_array).into_iter().flatten();
    let policy = |tool: &Value| {
        let policy = tool.get("permission_policy").filter(|policy| !policy.is_null())?;
        let name = tool["name"].as_str().filter(|_| policy != "always_allow")?;
        let is_denied = policy == "always_deny";
        Some((name.to_owned(), if is_denied { ToolPolicy::Deny } else { ToolPolicy::Ask }))
    };
    let excluded = EXCLUDING.iter().filter_map(|key| entry.get(*key)?.as_array()).flatten();
    let excluded = excluded.filter_map(|name| Some((name.as_str()?.to_owned(), ToolPolicy::Deny)));
    tools.filter_map(policy).chain(excluded).collect()
}

/// The transport of a server. Arguments, variables and headers may hold secrets, and are not shown.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// A program with the protocol on standard input and output.
    Program {
        command: String,
        arguments: Vec<String>,
        variables: BTreeMap<String, String>,
        /// The working folder of the program, if it differs from the run's.
        cwd: Option<String>,
    },
    Http(HttpAddress),
    /// It runs in the host that drives the run.
    Host,
}

/// The address of a server over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpAddress {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// The command of the user that prints further headers.
    pub helper: Option<String>,
    /// The `oauth` of the entry.
    pub oauth: Option<OAuthSettings>,
    pub kind: HttpKind,
}

impl HttpAddress {
    /// Returns true if requests get the token of a login: neither the configured headers nor a
    /// helper provide one.
    pub fn takes_login(&self) -> bool {
        let has_token =
            self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        !has_token && self.helper.is_none()
    }
}

/// The form of the exchange of messages over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpKind {
    /// Each message is a request, and the response holds the answer.
    Streamable,
    /// Answers arrive in one stream of events, as in the first version of the protocol.
    Sse,
}

impl HttpKind {
    /// Its name in entries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Streamable => "http",
            Self::Sse => "sse",
        }
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { command, .. } => f.debug_tuple("Program").field(command).finish(),
            Self::Http(address) => {
                let host = reqwest::Url::parse(&address.url);
                let host = host.ok().and_then(|url| url.host_str().map(ToOwned::to_owned));
                f.debug_tuple("Http").field(&host).finish()
            }
            Self::Host => f.write_str("Host"),
        }
    }
}

impl ServerAddress {
    /// Advice for a server of this name that requires a login.
    pub fn login_advice(&self, name: &str) -> String {
        match self {
            Self::Program { .. } => "give it its key in its \"env\"".to_owned(),
            Self::Host => "log in where the host runs it".to_owned(),
            Self::Http(HttpAddress { helper: Some(_), .. }) => {
                "see what its \"headersHelper\" prints".to_owned()
            }
            Self::Http(address) if address.takes_login() => format!(
                "run `outlast mcp login {name}` in a terminal, give \"oauth\" in its entry a \
                 \"clientId\" and a \"clientSecret\", or put a token into its \"headers\", as in \
                 \"Authorization\": \"Bearer ${{TOKEN}}\""
            ),
            Self::Http(_) => "renew the token in its \"headers\"".to_owned(),
        }
    }
}

/// The defect of an entry. It does not contain the value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerConfigError {
    #[error("it is not an object")]
    NoObject,
    #[error("it has no \"command\"")]
    NoCommand,
    #[error("it has a \"url\" but not \"type\": \"http\"; add that")]
    NotHttp,
    #[error(
        "the transport \"ws\" is not supported; if the server speaks streamable HTTP too, use \
         \"type\": \"http\" with that \"url\""
    )]
    WebSocket,
    #[error("its \"type\" must be \"stdio\", \"http\", \"sse\" or \"sdk\"")]
    UnknownType,
    #[error("its \"timeout\" must be a number of milliseconds above 0")]
    Timeout,
    #[error("a server's name has 1 to {LONGEST_NAME} characters")]
    NameLength,
    #[error("its name holds control characters")]
    NameControls,
    #[error("its \"{key}\" holds a NUL character")]
    HoldsNul { key: &'static str },
    #[error("its \"{key}\" is not a text")]
    NoText { key: &'static str },
    #[error("its \"{key}\" is not a list of texts")]
    NoTexts { key: &'static str },
    #[error("its \"{key}\" is not an object of texts")]
    NoPairs { key: &'static str },
    #[error("its \"{key}\" has an invalid name")]
    PairName { key: &'static str },
    #[error("its \"{key}\" is not an object")]
    NoMembers { key: &'static str },
    #[error("its \"scopes\" are neither a text nor a list of texts")]
    Scopes,
    #[error("its \"callbackPort\" is not a port")]
    CallbackPort,
    #[error("its \"clientSecret\" needs a \"clientId\" beside it")]
    SecretWithoutClient,
    #[error("its \"authServerMetadataUrl\" is not an https:// address")]
    MetadataUrl,
    #[error("it has no \"url\"")]
    NoUrl,
    #[error("its \"url\" is not an http:// or https:// address")]
    InvalidUrl,
}

impl ServerConfig {
    /// Parses one entry of `mcpServers`. `lookup` returns the variables that values refer to.
    /// Variables that are not set stay as written, and their names are returned.
    ///
    /// # Errors
    /// The entry is invalid.
    pub fn parse(
        name: &str,
        entry: &Value,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<String>), ServerConfigError> {
        check_name(name)?;
        let entry = entry.as_object().ok_or(ServerConfigError::NoObject)?;
        let mut reader = ConfigReader { entry, lookup, unset: Vec::new() };
        let kind =
            reader.text(reader.type_key())?.map(|kind| kind.to_lowercase().replace(['-', '_'], ""));
        let has_url = reader.get("url").is_some_and(|url| *url != "");
        let is_http = !has_url && reader.get("command").is_none() && reader.url_key() != "url";
        let place = match (kind.as_deref(), has_url) {
            (None, _) if is_http => ServerAddress::Http(reader.http(HttpKind::Streamable)?),
            (Some("http" | "streamablehttp"), _) => {
                ServerAddress::Http(reader.http(HttpKind::Streamable)?)
            }
            (Some("sse"), _) => ServerAddress::Http(reader.http(HttpKind::Sse)?),
            // The host identifies the server by the key of the entry, not by its "name".
            (Some("sdk"), _) => ServerAddress::Host,
            (None | Some("stdio"), false) => ServerAddress::Program {
                command: reader.path("command")?.ok_or(ServerConfigError::NoCommand)?,
                arguments: reader.texts("args")?,
                variables: reader.pairs("env")?,
                cwd: reader.path("cwd")?,
            },
            (None | Some("stdio"), true) => return Err(ServerConfigError::NotHttp),
            (Some("ws"), _) => return Err(ServerConfigError::WebSocket),
            (Some(_), _) => return Err(ServerConfigError::UnknownType),
        };
        let timeout = match reader.get("timeout").map(millis) {
            // A host cannot correct its entry, and its tools also work with the usual limit. Other
            // programs have 0 for that.
            Some(None)
                if place != ServerAddress::Host && entry["timeout"].as_f64() != Some(0.0) =>
            {
                return Err(ServerConfigError::Timeout);
            }
            timeout => timeout.flatten(),
        };
        let disabled = is_disabled(entry);
        let name = name.to_owned();
        let policies = tool_policies(entry);
        Ok((Self { name, place, timeout, disabled, trusted: true, policies }, reader.unset))
    }
}

/// Returns the key that lists the names of the only tools to offer.
pub fn tool_names_key(entry: &Map<String, Value>) -> Option<&'static str> {
    let lists_names = |key: &&str| {
        let tools = entry.get(*key).and_then(Value::as_array).into_iter().flatten();
        tools.filter_map(Value::as_str).any(|name| name != "*")
    };
    INCLUDING.into_iter().find(lists_names)
}

/// Returns the keys of other programs whose values the server does not get.
pub fn ineffective_keys(entry: &Map<String, Value>) -> impl Iterator<Item = &'static str> {
    INEFFECTIVE.into_iter().filter(|key| entry.get(*key).is_some_and(|value| !value.is_null()))
}

/// Returns true if an entry disables its server.
pub fn is_disabled(entry: &Map<String, Value>) -> bool {
    let is_set = |key: &str, to: bool| entry.get(key).is_some_and(|value| *value == to);
    is_set("disabled", true) || is_set("enabled", false)
}

/// A time in milliseconds, as a number or as text.
fn millis(value: &Value) -> Option<Duration> {
    let millis = match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.as_f64()
        }
    };
    let millis = millis.filter(|millis: &f64| *millis >= 1.0)?;
    Duration::try_from_secs_f64(millis / 1000.0).ok()
}

/// A text, or the text form of a number or flag.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.contains('\0')),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The known keys of an entry.
const KEYS: [&str; 13] = [
    "args",
    "command",
    "cwd",
    "disabled",
    "enabled",
    "env",
    "headers",
    "headersHelper",
    "oauth",
    "timeout",
    "tools",
    "type",
    "url",
];

/// Returns the unknown keys of an entry that resemble a known one, each with the known key. Other
/// unknown keys belong to other programs.
pub fn mistyped_keys(entry: &Map<String, Value>) -> Vec<(&str, &'static str)> {
    let nearly = |key: &str| {
        let near = |known: &&&str| osa_distance(key, known) <= known.len().div_ceil(4).min(2);
        KEYS.iter().find(near).copied()
    };
    let unknown = entry.keys().filter(|key| !KEYS.contains(&key.as_str()));
    let unknown = unknown.filter_map(|key| Some((key.as_str(), nearly(key)?)));
    unknown.filter(|(_, known)| !entry.contains_key(*known)).collect()
}

fn check_name(name: &str) -> Result<(), ServerConfigError> {
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        return Err(ServerConfigError::NameLength);
    }
    if name.chars().any(char::is_control) {
        return Err(ServerConfigError::NameControls);
    }
    Ok(())
}

struct ConfigReader<'a> {
    entry: &'a Map<String, Value>,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    unset: Vec<String>,
}

impl<'a> ConfigReader<'a> {
    /// The value of a key. `null` counts as absent.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.entry.get(key).filter(|value| !value.is_null())
    }

    /// The key of the transport. Those of other programs count if there is no command.
    fn type_key(&self) -> &'static str {
        let is_used = |key: &&str| self.get(key).is_some_and(Value::is_string);
        let has_own = ["type", "command"].iter().any(|key| self.get(key).is_some());
        let key = if has_own { None } else { TYPES.into_iter().find(is_used) };
        key.unwrap_or("type")
    }

    /// The key of the address.
    fn url_key(&self) -> &'static str {
        let is_used = |key: &&str| self.get(key).is_some_and(|url| *url != "");
        let has_own = self.get("url").is_some_and(|url| *url != "");
        let key = if has_own { None } else { URLS.into_iter().find(is_used) };
        key.unwrap_or("url")
    }

    fn expanded(&mut self, text: &str) -> String {
        expand(text, self.lookup, &mut self.unset)
    }

    fn text(&mut self, key: &'static str) -> Result<Option<String>, ServerConfigError> {
        self.checked_text(key, Self::expanded)
    }

    fn non_blank(&mut self, key: &'static str) -> Result<Option<String>, ServerConfigError> {
        Ok(self.text(key)?.filter(|text| !text.trim().is_empty()))
    }

    /// Reads a path. A `~` at its start is the home folder.
    fn path(&mut self, key: &'static str) -> Result<Option<String>, ServerConfigError> {
        let text = self.non_blank(key)?;
        let home = (self.lookup)("HOME").map(PathBuf::from);
        let at_home = text.as_deref().and_then(|text| in_home(text, home.as_deref()));
        Ok(at_home.and_then(|path| path.into_os_string().into_string().ok()).or(text))
    }

    /// Reads a command for the shell, which expands variables by itself.
    fn command(&mut self, key: &'static str) -> Result<Option<String>, ServerConfigError> {
        let command = self.checked_text(key, |_, text| text.to_owned())?;
        Ok(command.filter(|command| !command.trim().is_empty()))
    }

    fn checked_text(
        &mut self,
        key: &'static str,
        convert: impl FnOnce(&mut Self, &str) -> String,
    ) -> Result<Option<String>, ServerConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = convert(self, value.as_str().ok_or(ServerConfigError::NoText { key })?);
        let is_valid = !text.contains('\0');
        if is_valid { Ok(Some(text)) } else { Err(ServerConfigError::HoldsNul { key }) }
    }

    fn texts(&mut self, key: &'static str) -> Result<Vec<String>, ServerConfigError> {
        let wrong = || ServerConfigError::NoTexts { key };
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(wrong)?.iter();
        items.map(|item| Ok(self.expanded(&scalar_text(item).ok_or_else(wrong)?))).collect()
    }

    fn pairs(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, ServerConfigError> {
        let wrong = || ServerConfigError::NoPairs { key };
        let mut pairs = BTreeMap::new();
        let Some(value) = self.get(key) else { return Ok(pairs) };
        let members = value.as_object().ok_or_else(wrong)?;
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            let value = self.expanded(&scalar_text(value).ok_or_else(wrong)?);
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(ServerConfigError::PairName { key });
            }
            pairs.insert(name.clone(), value);
        }
        Ok(pairs)
    }

    fn http(&mut self, kind: HttpKind) -> Result<HttpAddress, ServerConfigError> {
        Ok(HttpAddress {
            url: self.address()?,
            headers: self.pairs("headers")?.into_iter().collect(),
            helper: self.command("headersHelper")?,
            oauth: self.oauth()?,
            kind,
        })
    }

    fn oauth(&mut self) -> Result<Option<OAuthSettings>, ServerConfigError> {
        let Some(value) = self.get("oauth") else { return Ok(None) };
        let entry = value.as_object().ok_or(ServerConfigError::NoMembers { key: "oauth" })?;
        let mut reader = ConfigReader { entry, lookup: self.lookup, unset: Vec::new() };
        let client_id = reader.non_blank("clientId")?;
        let client_secret = reader.non_blank("clientSecret")?;
        let metadata_url = reader.non_blank("authServerMetadataUrl")?;
        if client_secret.is_some() && client_id.is_none() {
            return Err(ServerConfigError::SecretWithoutClient);
        }
        if metadata_url.as_ref().is_some_and(|address| !is_metadata_address(address)) {
            return Err(ServerConfigError::MetadataUrl);
        }
        let port = |value: &Value| u16::try_from(value.as_u64()?).ok().filter(|port| *port > 0);
        let callback_port = reader.get("callbackPort");
        let callback_port =
            callback_port.map(|value| port(value).ok_or(ServerConfigError::CallbackPort));
        let callback_port = callback_port.transpose()?;
        let scopes = match reader.get("scopes").and_then(Value::as_str) {
            Some(text) => text.split_whitespace().map(ToOwned::to_owned).collect(),
            None => reader.texts("scopes").map_err(|_| ServerConfigError::Scopes)?,
        };
        self.unset.append(&mut reader.unset);
        Ok(Some(OAuthSettings { client_id, client_secret, callback_port, scopes, metadata_url }))
    }

    fn address(&mut self) -> Result<String, ServerConfigError> {
        let url = self.text(self.url_key())?.ok_or(ServerConfigError::NoUrl)?;
        let is_address = reqwest::Url::parse(&url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
        if is_address { Ok(url) } else { Err(ServerConfigError::InvalidUrl) }
    }
}

/// Returns the servers of a file such as `.mcp.json`, and the key that holds them: `mcpServers`, or
/// `servers` as in files of editors, or `None` if the whole file is the object of servers.
pub fn server_list(
    file: &Map<String, Value>,
) -> Option<(Option<&'static str>, &Map<String, Value>)> {
    if let Some(servers) = file.get("mcpServers") {
        return Some((Some("mcpServers"), servers.as_object()?));
    }
    let is_entry = |entry: &Value| {
        ["command", "url", "type"].iter().chain(&URLS).any(|key| entry[key].is_string())
    };
    let holds_servers =
        |members: &Map<String, Value>| !members.is_empty() && members.values().all(is_entry);
    let servers = file.get("servers").and_then(Value::as_object);
    match servers.filter(|servers| holds_servers(servers)) {
        Some(servers) => Some((Some("servers"), servers)),
        None => holds_servers(file).then_some((None, file)),
    }
}

/// Replaces `${NAME}` and `${NAME:-default}` by values. A variable with neither value nor default
/// stays as written, and is added to `unset`.
pub fn expand(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    unset: &mut Vec<String>,
) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let inside = &rest[start + 2..];
        let Some(end) = inside.find('}') else {
            rest = &rest[start..];
            break;
        };
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inside[..end], None),
        };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let value = if is_name { lookup(name).filter(|value| !value.is_empty()) } else { None };
        match (value, default.filter(|_| is_name)) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => {
                if is_name && !unset.iter().any(|known| known == name) {
                    unset.push(name.to_owned());
                }
                out.push_str(&rest[start..start + end + 3]);
            }
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    out
}
