//! The environment variables of commands. Pure.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use parking_lot::Mutex;
use wildmatch::WildMatchPattern;

use crate::process::absolute_path;
use crate::secrets::{PASSWORD_IN_URL, Redactor, is_distinctive};
use crate::types::ChildEnvironment;

use super::credentials::{CredentialSet, owner_of};

/// The environment of commands, and the variables that were left out.
#[derive(Debug)]
pub(super) struct CommandEnv {
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Names that were dropped because they are, or look like, secrets.
    pub(super) dropped: Vec<String>,
    /// Variables that were withheld and are not credentials of the model: a rule for their program
    /// passes them.
    withheld: Vec<(OsString, OsString)>,
    /// Variables that the user's hooks have exported since.
    exports: Mutex<Vec<(OsString, OsString)>>,
}

/// Variables that keep programs from waiting for user input.
const UNATTENDED: &[(&str, &str)] = &[
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("LESS", "-FRX"),
    ("SSH_ASKPASS", "/bin/false"),
    ("SUDO_ASKPASS", "/bin/false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("TERM", "dumb"),
    ("CLAUDECODE", "1"),
    ("OUTLAST", "1"),
];

/// Variables that most programs need.
const ESSENTIAL: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "CI", "PWD"];

/// The minimum length of a recognizable secret, in bytes: shorter values are common, or words.
const SECRET_BYTES_MIN: usize = 12;

/// The minimum length of a credential of the model that is looked for in other variables, in bytes.
const CREDENTIAL_BYTES_MIN: usize = 8;

/// Variables that systemd sets for the main process of a service only.
const OF_SERVICE: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Variables that bind git to one repository: outlast may run in a hook of it, and its commands
/// work in others, too. They are the output of `git rev-parse --local-env-vars` without user
/// settings, and what git sets for a push: with `GIT_QUARANTINE_PATH`, it refuses to change a
/// reference of any repository.
#[rustfmt::skip]
const GIT_REPOSITORY: [&str; 18] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS",
    "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_REFLOG_ACTION", "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
];

/// Variables by which `make` passes its flags, its variables and its job slots to the `make` of its
/// recipes, at the level in `MAKELEVEL`: outlast may run in a recipe, and its commands build
/// something else. Without a level, the user has set them.
const OUTER_MAKE: [&str; 4] = ["MAKEFLAGS", MAKE_LEVEL, "MAKEOVERRIDES", "MFLAGS"];
const MAKE_LEVEL: &str = "MAKELEVEL";

/// Variables that change the meaning of a command for a shell or for a program that needs no rule:
/// `cd` leads elsewhere, patterns match other files, options are set, another program runs
/// first.
#[rustfmt::skip]
const COMMAND_MEANING: [&str; 16] = [
    "BASHOPTS", "BASH_COMPAT", "BASH_ENV", "BASH_XTRACEFD", "CDPATH", "ENV", "EXECIGNORE",
    "GIT_EXTERNAL_DIFF", "GLOBIGNORE", "GREP_OPTIONS", "LESSCLOSE", "LESSOPEN", "POSIXLY_CORRECT",
    "PS4", "RIPGREP_CONFIG_PATH", "SHELLOPTS",
];

/// Prefixes of variables that belong together: git fails when only some of them are set.
const GIT_SETTINGS: [&str; 3] = ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"];

/// A variable of outlast's own environment.
struct OwnVariable<'a> {
    name: Cow<'a, str>,
    value: &'a OsStr,
    /// True if it is a credential of the model.
    is_credential: bool,
    /// True if it is not passed on when it is a secret.
    is_scrubbed: bool,
    looks_secret: bool,
}

/// The rules that decide which variables are passed on.
#[derive(Default)]
struct EnvRules<'a> {
    /// Values of the credentials, which no passed variable may contain.
    credential_values: Vec<&'a OsStr>,
    /// Values of other secrets, which only a variable that is passed by name may contain.
    secret_values: Vec<&'a OsStr>,
    /// True if git's settings hold a secret; then none of them is passed on.
    drops_git_settings: bool,
}

impl EnvRules<'_> {
    /// True if the variable is or contains a credential of the model.
    fn is_of_model(&self, own: &OwnVariable<'_>) -> bool {
        own.is_credential || contains_credential(own.value, &self.credential_values)
    }

    /// True if the variable is, contains or looks like a secret that the policy removes.
    fn drops(&self, own: &OwnVariable<'_>) -> bool {
        let beside = || self.drops_git_settings && is_git_setting(&own.name);
        let is_secret =
            || own.looks_secret || beside() || contains_credential(own.value, &self.secret_values);
        self.is_of_model(own) || own.is_scrubbed && is_secret()
    }
}

/// The environment of hooks: everything but the model's credentials. Hooks are the user's programs.
pub fn hook_environment(
    own: &[(OsString, OsString)],
    credentials: &[String],
    session_id: &str,
) -> Vec<(OsString, OsString)> {
    let policy = ChildEnvironment::Inherit;
    CommandEnv::for_children(own, policy, &[], credentials, session_id).variables
}

impl CommandEnv {
    pub(super) fn for_children(
        own: &[(OsString, OsString)],
        policy: ChildEnvironment,
        pass: &[String],
        credentials: &[String],
        session_id: &str,
    ) -> Self {
        let passes = |name: &str| pass.iter().any(|passed| passed == name);
        let all = own.iter().map(|(name, value)| {
            let name = name.to_string_lossy();
            let is_known = credentials.iter().any(|known| *known == name);
            let is_scrubbed = policy == ChildEnvironment::Scrub && !passes(&name);
            OwnVariable {
                is_credential: is_known || is_credential(&name, value),
                is_scrubbed,
                looks_secret: is_scrubbed && looks_secret(&name, value),
                name,
                value,
            }
        });
        let all: Vec<OwnVariable<'_>> = all.collect();
        let mut rules = EnvRules::default();
        let is_long = |value: &OsStr| {
            let text = value.to_string_lossy();
            text.len() >= CREDENTIAL_BYTES_MIN && is_distinctive(&text)
        };
        let credentials = all.iter().filter(|it| it.is_credential && is_long(it.value));
        let secrets = all.iter().filter(|it| !it.is_credential && it.looks_secret);
        let secrets = secrets.filter(|it| is_telling(it.value));
        rules.credential_values = credentials.map(|it| it.value).collect();
        rules.secret_values = secrets.map(|it| it.value).collect();
        rules.drops_git_settings = all.iter().any(|it| is_git_setting(&it.name) && rules.drops(it));
        let mut environment = Self {
            variables: Vec::new(),
            dropped: Vec::new(),
            withheld: Vec::new(),
            exports: Mutex::default(),
        };
        let is_in_recipe = all.iter().any(|it| it.name == MAKE_LEVEL);
        for (variable, own) in all.iter().zip(own) {
            let name = &*variable.name;
            let is_dropped = rules.drops(variable);
            if is_dropped {
                environment.dropped.push(name.to_owned());
            }
            let is_of_caller =
                GIT_REPOSITORY.contains(&name) || is_in_recipe && OUTER_MAKE.contains(&name);
            if is_of_caller && !passes(name) || is_of_run(name) || rules.is_of_model(variable) {
                continue;
            }
            let is_listed =
                policy != ChildEnvironment::Allowlist || passes(name) || is_essential(name);
            let is_passed_on = !is_dropped && is_listed;
            let list =
                if is_passed_on { &mut environment.variables } else { &mut environment.withheld };
            list.push(own.clone());
        }
        environment.dropped.sort_unstable();
        environment.make_unattended(session_id);
        environment
    }

    pub(super) fn get(&self, wanted: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_os_str())
    }

    /// Adds variables for later commands, and returns the names of those rejected as credentials of
    /// the model.
    pub(super) fn add_exports(&self, mut exports: Vec<(String, String)>) -> Vec<String> {
        exports.retain(|(name, _)| !COMMAND_MEANING.contains(&name.as_str()));
        let (kept, exports): (Vec<_>, Vec<_>) =
            exports.into_iter().partition(|(name, value)| is_credential(name, OsStr::new(value)));
        let exports = exports.into_iter().map(|(name, value)| {
            let value = OsString::from(value);
            let value = if name == "PATH" { absolute_path(Some(&value)) } else { value };
            (OsString::from(name), value)
        });
        self.exports.lock().extend(exports);
        kept.into_iter().map(|(name, _)| name).collect()
    }

    /// Returns all variables of a command that is granted these credentials. Of several values for
    /// a name, the last one takes effect.
    pub(super) fn for_command(&self, granted: &[&CredentialSet]) -> Vec<(OsString, OsString)> {
        let exports = self.exports.lock();
        let is_granted = |(name, _): &&(OsString, OsString)| {
            granted.iter().any(|set| set.has_variable(&name.to_string_lossy()))
        };
        let granted = self.withheld.iter().filter(is_granted);
        self.variables.iter().chain(granted).chain(exports.iter()).cloned().collect()
    }

    /// The secrets that are withheld from commands and that a rule or flag could pass.
    pub(super) fn withheld_secrets(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let names = self.withheld.iter().map(|(name, _)| name.to_string_lossy());
        names.filter(|name| {
            let is_dropped = self.dropped.binary_search_by(|it| it.as_str().cmp(name)).is_ok();
            is_dropped || owner_of(name).is_some()
        })
    }

    fn make_unattended(&mut self, session_id: &str) {
        for (name, value) in UNATTENDED {
            self.set(name, *value);
        }
        self.set("CLAUDE_CODE_SESSION_ID", session_id);
        if self.get("GIT_SSH_COMMAND").is_none() {
            self.set("GIT_SSH_COMMAND", "ssh -oBatchMode=yes");
        }
        // A program in the work tree must not replace a command that may run without permission.
        let path = absolute_path(self.get("PATH"));
        self.set("PATH", path);
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.retain(|(there, _)| there != name);
        self.variables.push((name.into(), value.into()));
    }
}

/// True if a variable concerns this process, or the meaning of commands.
fn is_of_run(name: &str) -> bool {
    name.starts_with("OTEL_") || OF_SERVICE.contains(&name) || COMMAND_MEANING.contains(&name)
}

pub(super) fn is_essential(name: &str) -> bool {
    ESSENTIAL.contains(&name) || name.starts_with("LC_")
}

/// True if this is a credential for the model's service.
pub(super) fn is_credential(name: &str, value: &OsStr) -> bool {
    let service = ["ANTHROPIC_", "CLAUDE_CODE_", "OUTLAST_", "AWS_BEARER_TOKEN"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let text = value.to_string_lossy();
    (service && (is_key(value) || is_secret_name(name, &text)))
        || name == "ANTHROPIC_CUSTOM_HEADERS"
        || (name == "ANTHROPIC_BASE_URL" && text.contains('@'))
        || text.contains("sk-ant-")
}

fn contains_credential(value: &OsStr, credentials: &[&OsStr]) -> bool {
    let value = value.as_encoded_bytes();
    credentials.iter().any(|credential| {
        let credential = credential.as_encoded_bytes();
        value.windows(credential.len()).any(|window| window == credential)
    })
}

/// True if a value is distinguishable from words, numbers, paths and addresses.
pub(super) fn is_telling(value: &OsStr) -> bool {
    let text = value.to_string_lossy();
    let text = text.trim();
    let has = |kind: fn(&u8) -> bool| text.as_bytes().iter().any(kind);
    text.len() >= SECRET_BYTES_MIN
        && !text.starts_with(['/', '.', '~'])
        && !text.contains("://")
        && !text.bytes().any(|byte| byte.is_ascii_whitespace())
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
}

fn is_git_setting(name: &str) -> bool {
    GIT_SETTINGS.iter().any(|begin| name.starts_with(begin))
}

/// Names of secrets that have none of the parts and words below.
const SECRET_NAMES: [&str; 3] =
    ["DOCKER_AUTH_CONFIG", "ACTIONS_ID_TOKEN_REQUEST_URL", "FASTLANE_SESSION"];

/// Names of variables that hold a secret or an ordinary text, so that the value has to look like a
/// secret; `*` stands for any text.
#[rustfmt::skip]
const NAMES_OF_CONTENTS: [&str; 23] = [
    "BW_SESSION", "OP_SESSION_*", "BUNDLE_*__*", "VSS_NUGET_EXTERNAL_FEED_ENDPOINTS", "KUBE_CONFIG",
    "KUBE_CONFIG_DATA", "*KUBECONFIG_CONTENT", "*KUBECONFIG_BASE64", "*KUBECONFIG_DATA", "*_P8",
    "*_P12", "*_PFX", "*P12_BASE64", "*PFX_BASE64", "*KEYSTORE_BASE64", "*ID_RSA", "*ID_ECDSA",
    "*ID_ED25519", "ETH_PRIVATE", "OPENAI_API", "TELEGRAM_BOT", "STRIPE_SK", "TOTP",
];

/// Parts of a name that mark a secret.
#[rustfmt::skip]
const SECRET_PARTS: [&str; 12] = [
    "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "CREDENTIAL", "CONN_STR", "CONNSTR",
    "CONNECTION_STR", "CONNECTIONSTR", "AUTH_HEADER", "SEED_PHRASE",
];

/// Endings of any word of a name that mark a secret: APIKEY, AUTHTOKEN.
#[rustfmt::skip]
const SECRET_ENDINGS: [&str; 14] = [
    "KEY", "KEYS", "TOKEN", "TOKENS", "PASS", "JWT", "COOKIE", "COOKIES", "DSN", "BEARER", "CREDS",
    "SESSIONID", "SESSID", "MNEMONIC",
];

/// The ends of names of keys that are not secrets: of a project, of an entry of a table, and of the
/// header with a secret.
#[rustfmt::skip]
const SETTING_SUFFIXES: [&str; 10] = [
    "KEY_ID", "KEY_HEADER", "TOKEN_HEADER", "PROJECT_KEY", "CACHE_KEY", "SORT_KEY", "PARTITION_KEY",
    "PRIMARY_KEY", "OBJECT_KEY", "FLAG_KEY",
];

/// Last words of names of settings of a login: the secret itself is elsewhere.
#[rustfmt::skip]
const SETTING_LAST_WORDS: [&str; 46] = [
    "URL", "URI", "ENDPOINT", "HOST", "PORT", "REGION", "ISSUER", "AUDIENCE",
    "ALGORITHM", "METHOD", "MODE", "FORMAT", "TYPE", "VERSION", "ENABLED", "REQUIRED",
    "TTL", "TIMEOUT", "EXPIRES", "EXPIRY", "IN", "HOURS", "MINUTES", "SECONDS", "DAYS", "AGE",
    "LENGTH", "SIZE", "COUNT", "LIMIT", "SCOPE", "SCOPES", "PERMISSION", "PERMISSIONS", "POLICY",
    "NAME", "ALIAS", "FILE", "PATH", "DIR",
    "BACKEND", "DRIVER", "MANAGER", "PROVIDER", "STORE", "HELPER",
];

/// Words of a name that say that a key is a secret, however short its value is.
#[rustfmt::skip]
const LOGIN_KEYS: [&str; 12] = [
    "API", "ACCESS", "PRIVATE", "MASTER", "ENCRYPTION", "SIGNING", "LICENSE", "ADMIN", "AUTH",
    "SERVICE", "DEPLOY", "ROOT",
];

/// The length from which the value of a key is a secret whatever it is made of, in bytes.
const NAME_BYTES_MAX: usize = 16;

/// The longest value of a limit that is not a number, in bytes: `many`, `6e5`.
const LIMIT_BYTES_MAX: usize = 8;

/// Last words of a name that mark a secret. `PWD` and `OLDPWD` are folders, and `SSH_AUTH_SOCK`,
/// `XDG_SESSION_ID` and `TERM_SESSION_ID` name no secrets. Jenkins ends the names of passwords in
/// `PSW`.
const SECRET_LAST_WORDS: [&str; 7] = ["PWD", "AUTH", "SAS", "PSK", "PSW", "PW", "AUTHORIZATION"];

/// True if a variable is a secret by its name or its value.
pub(super) fn looks_secret(name: &str, value: &OsStr) -> bool {
    let text = value.to_string_lossy();
    is_key(value) || is_secret_name(name, &text) && !(is_setting(name) && is_plain(&text))
}

/// True if a variable is called as a secret, or as a file with one, and names a file: the private
/// key of a server, the password of a database.
pub(super) fn names_secret_file(name: &str, value: &OsStr) -> bool {
    Path::new(value).is_absolute()
        && !name.to_uppercase().contains("PUB")
        && is_secret_name(name, &value.to_string_lossy())
}

/// True if a variable is secret only because it is called a key, without a word that says of what,
/// and its value is a short name: `LOOKUP_KEYS=name,email`. Commands do not get it, but redaction
/// would make ordinary text useless.
pub(super) fn is_name_of_key(name: &str, value: &OsStr) -> bool {
    let (name, text) = (name.to_uppercase(), value.to_string_lossy());
    let words: Vec<&str> = name.split('_').collect();
    let is_key = |word: &&str| ["KEY", "KEYS"].contains(word);
    let of_login = |word: &&str| LOGIN_KEYS.contains(word) || is_secret_word(word) && !is_key(word);
    let is_named_otherwise = SECRET_PARTS.iter().any(|part| name.contains(part))
        || words.iter().any(of_login)
        || words.len() < 2;
    text.len() < NAME_BYTES_MAX
        && is_plain(&text)
        && !is_named_otherwise
        && words.iter().any(is_key)
}

/// True if a value has the form of a key. A URL with a password is often the database of a program
/// under test.
fn is_key(value: &OsStr) -> bool {
    let kind = Redactor::detect_key_kind(value.as_encoded_bytes());
    kind.is_some_and(|kind| kind != PASSWORD_IN_URL)
}

fn is_secret_name(name: &str, value: &str) -> bool {
    let name = name.to_uppercase();
    if is_git_setting(&name) || (name.ends_with("TOKENS") && is_limit(&name, value)) {
        return false;
    }
    let last = name.rsplit('_').next().filter(|_| name != "PWD" && !is_switch(value));
    let has_name = |pattern: &&str| WildMatchPattern::<'*', '\0'>::new(pattern).matches(&name);
    SECRET_PARTS.iter().any(|part| name.contains(part))
        || SECRET_NAMES.contains(&name.as_str())
        || (name.contains("WEBHOOK") && value.contains("://"))
        || (is_content(value) && NAMES_OF_CONTENTS.iter().any(has_name))
        || last.is_some_and(|last| SECRET_LAST_WORDS.contains(&last))
        || name.split('_').any(is_secret_word)
}

/// True if a variable whose name ends in `TOKENS` is a limit, such as `MAX_THINKING_TOKENS=4000`:
/// its value is a number, or by its name it is a limit and its value is short or a number as people
/// write it (`3_000_000`).
fn is_limit(name: &str, value: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_written_number = || value.bytes().all(|byte| is_digit(byte) || b"_,.".contains(&byte));
    let is_short = || value.len() <= LIMIT_BYTES_MAX && is_plain(value);
    let is_named = || name.split('_').any(|word| ["MAX", "MIN"].contains(&word));
    value.bytes().all(is_digit) || is_named() && (is_short() || is_written_number())
}

/// True if a name that marks a secret is that of a setting: a key into a table, or the lifetime,
/// the place or the name of a secret.
fn is_setting(name: &str) -> bool {
    let name = name.to_uppercase();
    let last = name.rsplit('_').next().unwrap_or_default();
    let is_webhook = name.contains("WEBHOOK");
    let is_of_setting = SETTING_LAST_WORDS.contains(&last)
        || SETTING_SUFFIXES.iter().any(|suffix| {
            name.strip_suffix(suffix).is_some_and(|begin| begin.is_empty() || begin.ends_with('_'))
        });
    is_of_setting && !is_webhook && !SECRET_NAMES.contains(&name.as_str())
}

/// True if a value looks like a word, a number, a path or an address, and no part of it like a
/// secret.
fn is_plain(value: &str) -> bool {
    // The parts of the name of a resource of AWS are looked at below.
    let is_resource = value.starts_with("arn:");
    !value.contains([' ', '\t', '\r', '\n', '@', '?', '='])
        && (is_resource || !is_telling(value.as_ref()))
        && !value.split(['/', ':', '#', ',', ';']).any(|part| is_telling(part.as_ref()))
}

/// True if a value is the text of a file, or looks like a secret and not like a file or an option.
fn is_content(value: &str) -> bool {
    let value = value.trim();
    let is_file = value.rsplit('/').next().is_some_and(|name| name.contains('.'));
    let is_text = value.contains('\n') || value.starts_with('{');
    is_text || is_telling(value.as_ref()) && !is_file && !value.starts_with('-')
}

/// True if a value is a switch, as in `REQUIRE_AUTH=true`.
fn is_switch(value: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "0", "1", ""].contains(&value)
}

fn is_secret_word(word: &str) -> bool {
    word == "PAT"
        || !["COMPASS", "BYPASS"].contains(&word)
            && SECRET_ENDINGS.iter().any(|end| word.ends_with(end))
}
