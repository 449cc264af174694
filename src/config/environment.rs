//! The environment, read once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::num::{NonZeroU8, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use nix::unistd::{Uid, User};

use super::ConfigError;
use super::values::{self, InvalidValue};
use crate::model::{Proxies, limits};
use crate::text::in_home;
use crate::types::PermissionMode;

/// Every file that is read or written, with its description in the manual.
pub const FILES: [(&str, &str); 8] = [
    (
        "/etc/claude-code/managed-settings.json, /etc/outlast/managed-settings.json",
        "Settings of the administrator, with the `*.json` files in `managed-settings.d` beside each. They outrank all other sources; a mistake in them ends outlast.",
    ),
    ("~/.outlast/settings.json", "The user's settings. OUTLAST_CONFIG_DIR sets another folder."),
    (
        "~/.outlast/.credentials.json",
        "A login, used if no key and no token is set: an object \"claudeAiOauth\" with \
         \"accessToken\", \"refreshToken\", \"expiresAt\" (milliseconds since 1970) and \
         optionally \"subscriptionType\", \"tokenEndpoint\" and \"clientId\". It is renewed \
         before it expires, once for all processes, which use the lock file next to it.",
    ),
    (
        "~/.outlast/cloud-tokens/",
        "Temporary tokens of clouds, shared by the runs on a host: one file for each identity, \
         readable only by its owner. May be removed at any time.",
    ),
    (
        ".claude/settings.json, .outlast/settings.json, .claude/settings.local.json, \
         .outlast/settings.local.json",
        "Settings of the repository in whose folder outlast works, lowest rank first, also those \
         of its root and the local ones of the main checkout of a worktree. Restricted \
         unless the repository is trusted; see outlast-security(7).",
    ),
    (
        "~/.outlast/projects/",
        "The journals of sessions, one file for each, by working folder. --resume reads them.",
    ),
    (
        "$XDG_RUNTIME_DIR/outlast/limits/, /tmp/outlast-UID/limits/",
        "Rate limits that the runs of a user on a host share: one file for each service, key and \
         family of models, which the file does not reveal. May be removed at any time.",
    ),
    ("--result-file, --heartbeat-file", "The files that these flags name."),
];

/// A variable of Node.js for further certificates. Node.js only warns if their file is missing, so
/// that images of containers set it for files that may be mounted.
pub const EXTRA_CERTIFICATES: &str = "NODE_EXTRA_CA_CERTS";

/// The environment, parsed. `None`: not set, or empty.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a variable of its own")]
pub struct ProcessEnv {
    pub api_key: Option<String>,
    pub auth_token: Option<String>,
    pub oauth_token: Option<String>,
    pub api_key_helper_ttl: Option<Duration>,
    pub base_url: Option<String>,
    pub custom_headers: Vec<(String, String)>,
    /// The program that uses an SDK.
    pub client_app: Option<String>,
    /// The variables that name files of certificates, with those files.
    pub ca_files: Vec<(&'static str, PathBuf)>,
    /// The variable that names the file of the client certificate, with that file.
    pub client_certificate: Option<(&'static str, PathBuf)>,
    /// The variable that names the file of the key of this certificate, with that file.
    pub client_key: Option<(&'static str, PathBuf)>,
    /// The models that the aliases stand for.
    pub aliases: BTreeMap<String, String>,
    pub mcp_wait: Option<Duration>,
    pub mcp_start: Option<Duration>,
    /// The number of blocks in a row by Stop hooks at which the run ends.
    pub stop_block_cap: Option<NonZeroU8>,
    /// The time limit of `SessionEnd` hooks that have none of their own.
    pub session_end_timeout: Option<Duration>,
    pub mcp_call: Option<Duration>,
    pub mcp_result_tokens: Option<NonZeroU32>,
    pub no_memory: bool,
    /// True if commands get no secrets, whatever the permission mode.
    pub scrubs_commands: bool,
    pub proxies: Proxies,
    /// True if the terminal cannot move its cursor.
    pub dumb_terminal: bool,
    /// True if this is a CI job.
    pub is_ci: bool,
    pub colors: ColorChoice,
}

/// The choice of coloured output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal.
    #[default]
    Auto,
    Always,
    Never,
}

pub use crate::secrets::Variables;

/// Returns the value of a variable that is set and not empty.
fn non_empty<'a>(variables: &'a Variables, name: &str) -> Option<&'a OsString> {
    variables.get(OsStr::new(name)).filter(|value| !value.is_empty())
}

/// Returns the name of this machine in leases, if a variable sets one.
pub fn host_id(variables: &Variables) -> Option<String> {
    let name = variables.get(OsStr::new("OUTLAST_HOST_ID"))?.to_string_lossy().into_owned();
    Some(name).filter(|name| !name.trim().is_empty())
}

/// Returns true if this is a CI job. A cancelled job may kill only the shell that started outlast.
pub fn is_ci(variables: &Variables) -> bool {
    ["CI", "GITHUB_ACTIONS"].iter().any(|name| is_enabled(variables, name))
}

/// Returns the summary file of the step of GitHub Actions that this process runs in, if it does.
pub fn step_summary_file(variables: &Variables) -> Option<PathBuf> {
    non_empty(variables, "GITHUB_ACTIONS").filter(|value| *value == "true")?;
    non_empty(variables, "GITHUB_STEP_SUMMARY").map(PathBuf::from)
}

/// Returns true if errors are to be annotated for the list of errors of a CI job. Applies until the
/// settings are read; then the setting `stepSummary` decides.
pub fn annotates_errors(variables: &Variables) -> bool {
    step_summary_file(variables).is_some() && !is_enabled(variables, "OUTLAST_NO_STEP_SUMMARY")
}

/// Returns true if a variable is set to something other than a false value.
pub(super) fn is_enabled(variables: &Variables, name: &str) -> bool {
    let value = variables.get(OsStr::new(name)).map(|value| value.to_ascii_lowercase());
    value.is_some_and(|value| {
        let no = ["", "0", "false", "no", "off"];
        !no.contains(&value.to_string_lossy().trim())
    })
}

/// Returns the choice of coloured output. Invalid values count as not set.
pub fn colors(variables: &Variables) -> ColorChoice {
    EnvReader(variables).colors().unwrap_or_default()
}

/// Returns the program that shows long texts. `None`: none is named.
pub fn pager(variables: &Variables) -> Option<String> {
    let value = |name: &str| variables.get(OsStr::new(name))?.to_str().map(str::to_owned);
    value("MANPAGER").or_else(|| value("PAGER"))
}

/// Returns true if the variables declare the repository trusted. This is read before the settings,
/// which may be the repository's.
///
/// # Errors
/// The value is invalid.
pub fn trusts_project(variables: &Variables) -> Result<bool, ConfigError> {
    EnvReader(variables).flag("OUTLAST_TRUST_PROJECT")
}

/// The variable that selects coloured output.
pub const COLOR: &str = "OUTLAST_COLOR";

/// The variable that counts the nested hooks around a process.
pub const HOOK_DEPTH: &str = "OUTLAST_HOOK_DEPTH";

/// Returns the number of nested hooks around this process.
///
/// # Errors
/// It is above 1: hooks that start outlast, whose hooks start outlast, never end.
pub fn hook_depth(variables: &Variables) -> Result<u8, ConfigError> {
    let depth = EnvReader(variables)
        .parsed(HOOK_DEPTH, |text| text.parse().map_err(|_| "must be a whole number".into()))?;
    match depth.unwrap_or(0) {
        depth @ 0..=1 => Ok(depth),
        _ => Err(ConfigError::new(
            "this outlast was started by a hook of an outlast that a hook started; end the \
             recursion with disableAllHooks in the settings of the inner one",
        )),
    }
}

/// Returns the user's home folder, from the environment or the user database.
pub fn home(variables: &Variables) -> Option<PathBuf> {
    let listed = || User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir);
    non_empty(variables, "HOME").map(PathBuf::from).or_else(listed)
}

/// Returns the `PATH` that settings give. As in a shell, it may refer to the one that outlast was
/// started with, `outer`, and its parts to the home folder.
pub fn path_of_settings(value: &str, outer: &Variables) -> OsString {
    let own = outer.get(OsStr::new("PATH"));
    let mut parts = Vec::new();
    for part in std::env::split_paths(value) {
        if ["$PATH", "${PATH}"].iter().any(|own| part.as_os_str() == *own) {
            parts.extend(own.map(std::env::split_paths).into_iter().flatten());
            continue;
        }
        let below = ["~", "$HOME", "${HOME}"].iter().find_map(|home| part.strip_prefix(home).ok());
        let at_home = below.and_then(|below| Some(home(outer)?.join(below)));
        parts.push(at_home.unwrap_or(part));
    }
    std::env::join_paths(parts).unwrap_or_else(|_| value.into())
}

/// Variables that name the folder of settings and sessions; the first one that is set counts.
const CONFIG_DIR: [&str; 2] = ["OUTLAST_CONFIG_DIR", "CLAUDE_CONFIG_DIR"];

/// Returns the variable that names the folder of settings and sessions, if one is set.
pub fn config_dir_variable(variables: &Variables) -> Option<&'static str> {
    CONFIG_DIR.into_iter().find(|name| non_empty(variables, name).is_some())
}

/// The name of the folder of settings and sessions in the home folder.
pub const CONFIG_FOLDER: &str = ".outlast";

/// The name of the folder that other tools have in the home folder, with the same kinds of files.
pub const SHARED_FOLDER: &str = ".claude";

/// Returns the folder of settings and sessions. It is determined before the settings are read,
/// which may change other variables.
///
/// Without a home folder it is a path that cannot exist: the run continues and keeps nothing.
pub fn config_dir(variables: &Variables) -> PathBuf {
    let named = config_dir_variable(variables).and_then(|name| variables.get(OsStr::new(name)));
    named.map_or_else(
        || home(variables).unwrap_or_else(|| PathBuf::from("/dev/null")).join(CONFIG_FOLDER),
        |named| named_folder(named, variables),
    )
}

/// Returns the folder in which runs of hosts keep settings and sessions, unless a variable names
/// another one.
pub fn shared_folder(variables: &Variables) -> Option<PathBuf> {
    let home = home(variables).filter(|_| config_dir_variable(variables).is_none());
    home.map(|home| home.join(SHARED_FOLDER))
}

/// Returns the folder that a variable names. A `~` at its start is the home folder: no shell
/// expands it in variables from files for containers and services.
fn named_folder(value: &OsStr, variables: &Variables) -> PathBuf {
    let at_home = value.to_str().and_then(|text| in_home(text, home(variables).as_deref()));
    at_home.unwrap_or_else(|| PathBuf::from(value))
}

/// Returns the folders of the user's own agents, commands and skills, highest precedence first:
/// outlast's own folder, then the one shared with other tools.
pub fn own_folders(variables: &Variables) -> Vec<PathBuf> {
    let shared = || home(variables).map(|home| home.join(SHARED_FOLDER));
    let moved = non_empty(variables, "CLAUDE_CONFIG_DIR");
    let shared = moved.map(|moved| named_folder(moved, variables)).or_else(shared);
    [config_dir(variables)].into_iter().chain(shared).collect()
}

/// Returns the folders in which runs of this host share rate limits, the preferred one first.
pub fn limit_folders(variables: &Variables) -> Vec<PathBuf> {
    let runtime = variables.get(OsStr::new("XDG_RUNTIME_DIR")).map(Path::new);
    // Not `TMPDIR`: jobs of batch systems and logins have one each, and would share nothing.
    limits::folders(runtime, Path::new("/tmp"))
}

/// The alias for one model in plan mode and for another one otherwise.
pub const PLANNING_ALIAS: &str = "opusplan";

/// Returns the alias that [`PLANNING_ALIAS`] stands for in this mode; the mode does not change
/// during a run.
pub fn planning_model(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Plan => "opus",
        PermissionMode::Default
        | PermissionMode::AcceptEdits
        | PermissionMode::DontAsk
        | PermissionMode::BypassPermissions => "sonnet",
    }
}

impl ProcessEnv {
    /// Returns the environment with a model for [`PLANNING_ALIAS`].
    #[must_use]
    pub fn with_planning_model(mut self, mode: PermissionMode) -> Self {
        let stands_for = planning_model(mode);
        let model = self.aliases.get(stands_for).map_or(stands_for, String::as_str).to_owned();
        self.aliases.insert(PLANNING_ALIAS.to_owned(), model);
        self
    }

    /// Parses the variables.
    ///
    /// # Errors
    /// The first variable whose value is invalid.
    pub fn parse(variables: &Variables) -> Result<Self, ConfigError> {
        let vars = EnvReader(variables);
        let alias = |name: &str, variable| Some((name.to_owned(), vars.text(variable).ok()??));
        let file = |name| Some((name, PathBuf::from(non_empty(variables, name)?)));
        Ok(Self {
            api_key: vars.text("ANTHROPIC_API_KEY")?,
            auth_token: vars.text("ANTHROPIC_AUTH_TOKEN")?,
            oauth_token: vars.text("CLAUDE_CODE_OAUTH_TOKEN")?,
            api_key_helper_ttl: vars
                .parsed("CLAUDE_CODE_API_KEY_HELPER_TTL_MS", values::millis_or_none)?,
            base_url: vars.text("ANTHROPIC_BASE_URL")?,
            custom_headers: vars.headers("ANTHROPIC_CUSTOM_HEADERS")?,
            // Only a name in a header: a value that cannot be sent does not end the run.
            client_app: vars.text("CLAUDE_AGENT_SDK_CLIENT_APP").ok().flatten(),
            ca_files: ["SSL_CERT_FILE", EXTRA_CERTIFICATES].into_iter().filter_map(file).collect(),
            client_certificate: file("CLAUDE_CODE_CLIENT_CERT"),
            client_key: file("CLAUDE_CODE_CLIENT_KEY"),
            aliases: [
                alias("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
                alias("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
                alias("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
            ]
            .into_iter()
            .flatten()
            .collect(),
            mcp_wait: vars.unless_zero("MCP_TIMEOUT", values::millis)?,
            mcp_start: vars.parsed("OUTLAST_MCP_START_TIMEOUT", values::millis)?,
            mcp_call: vars.unless_zero("MCP_TOOL_TIMEOUT", values::millis)?,
            stop_block_cap: vars.parsed("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", |text| {
                let cap = values::whole(text).ok_or("must be a whole number")?;
                // 0 is written for no limit.
                Ok(u8::try_from(cap).ok().and_then(NonZeroU8::new).unwrap_or(NonZeroU8::MAX))
            })?,
            session_end_timeout: vars
                .unless_zero("CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS", values::millis)?,
            mcp_result_tokens: vars.unless_zero("MAX_MCP_OUTPUT_TOKENS", values::count)?,
            no_memory: vars.flag("CLAUDE_CODE_DISABLE_CLAUDE_MDS")?,
            scrubs_commands: vars.flag("CLAUDE_CODE_SUBPROCESS_ENV_SCRUB")?,
            proxies: vars.proxies(),
            is_ci: is_ci(vars.0),
            dumb_terminal: vars.is_dumb_terminal()?,
            colors: vars.colors()?,
        })
    }
}

struct EnvReader<'a>(&'a Variables);

impl EnvReader<'_> {
    fn is_dumb_terminal(&self) -> Result<bool, ConfigError> {
        Ok(self.text("TERM")?.is_some_and(|term| term == "dumb"))
    }

    /// Reads the variables about colours. The first that is set decides.
    fn colors(&self) -> Result<ColorChoice, ConfigError> {
        let choice = self.text(COLOR)?.and_then(|word| ColorChoice::from_str(&word, true).ok());
        Ok(if let Some(choice) = choice {
            choice
        } else if self.text("NO_COLOR")?.is_some() {
            ColorChoice::Never
        } else if self.text("CLICOLOR_FORCE")?.is_some_and(|value| value != "0") {
            ColorChoice::Always
        } else if self.text("CLICOLOR")?.is_some_and(|value| value == "0")
            || self.is_dumb_terminal()?
        {
            ColorChoice::Never
        } else {
            ColorChoice::Auto
        })
    }

    fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.0.get(&OsString::from(name)) {
            None => Ok(None),
            Some(value) => match value.to_str() {
                Some(text) => {
                    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
                    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
                }
                None => Err(ConfigError::new(format!(
                    "the variable {name} is not valid UTF-8; set it to text"
                ))),
            },
        }
    }

    fn parsed<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        parse(&text)
            .map(Some)
            .map_err(|why| ConfigError::new(format!("the variable {name}: {text:?} {why}")))
    }

    /// Parses a number that cannot be 0: 0 leaves the default.
    fn unless_zero<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Result<Option<T>, ConfigError> {
        let is_zero = self.text(name)?.is_some_and(|text| values::is_zero(&text));
        if is_zero { Ok(None) } else { self.parsed(name, parse) }
    }

    fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        self.parsed(name, values::yes_or_no).map(Option::unwrap_or_default)
    }

    /// Reads the proxies. Invalid UTF-8 is replaced, so that the value is rejected as a proxy
    /// address.
    fn proxies(&self) -> Proxies {
        Proxies::from_variables(|name| {
            let value = self.0.get(OsStr::new(name))?;
            Some(value.to_string_lossy().into_owned())
        })
    }

    fn headers(&self, name: &str) -> Result<Vec<(String, String)>, ConfigError> {
        let text = self.text(name)?.unwrap_or_default();
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| match line.split_once(':') {
                Some((key, value)) if is_header_name(key.trim()) => {
                    Ok((key.trim().to_owned(), value.trim().to_owned()))
                }
                Some(_) | None => Err(ConfigError::new(format!(
                    "the variable {name}: a line is not a header; write Name: value, one a line"
                ))),
            })
            .collect()
    }
}

fn is_header_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_in_the_variables_for_the_config_folder_is_the_home_folder() {
        let of = |name: &str, value: &str| {
            let variables = [("HOME", "/home/me"), (name, value)];
            variables.map(|(name, value)| (name.into(), value.into())).into_iter().collect()
        };
        for (value, expected) in
            [("~/x/y", "/home/me/x/y"), ("~", "/home/me"), ("~x", "~x"), ("a/~/x", "a/~/x")]
        {
            for name in CONFIG_DIR {
                let variables: Variables = of(name, value);
                assert_eq!(config_dir(&variables), Path::new(expected), "{name} {value}");
            }
            let folders = own_folders(&of("CLAUDE_CONFIG_DIR", value));
            assert_eq!(folders, [expected, expected].map(Path::new));
        }
    }

    #[test]
    fn a_path_of_settings_may_refer_to_the_one_of_the_environment_and_to_the_home_folder() {
        let outer = [("PATH", "/usr/bin:/bin"), ("HOME", "/home/me")];
        let outer: Variables =
            outer.map(|(name, value)| (name.into(), value.into())).into_iter().collect();
        for (value, expected) in [
            ("/opt/x:$PATH", "/opt/x:/usr/bin:/bin"),
            ("${PATH}:/opt/x", "/usr/bin:/bin:/opt/x"),
            ("$HOME/a:${HOME}/b:~/c:$PATH", "/home/me/a:/home/me/b:/home/me/c:/usr/bin:/bin"),
            ("/a$PATH:$HOMES:~x:/b", "/a$PATH:$HOMES:~x:/b"),
        ] {
            assert_eq!(path_of_settings(value, &outer), expected, "{value}");
        }
        assert_eq!(path_of_settings("/a:$PATH:~/b", &Variables::default()), {
            let home = home(&Variables::default()).unwrap_or_else(|| "~".into());
            OsString::from(format!("/a:{}/b", home.display()))
        });
    }
}
