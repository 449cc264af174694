//! Reads settings files of a repository, which are untrusted input.
//!
//! A pull request can put any file there: a pipe, a device, a gigabyte, a link to a private key. So
//! links out of the repository are not followed, large and special files are not read, and messages
//! quote only the names of settings, and values only of files whose own content is trusted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::comments::{FILE_BYTES_MAX, written_json};
use super::file::{ParsedSettings, is_missing};
use super::registry;
use super::setting::{Setting, Untrusted};
use super::trust::{Trust, UntrustedScript, root};
use super::unknown_keys::{self, is_nothing};
use crate::json::{self, is_comment_name};
use crate::process::{TrustedOwners, file_reads};
use crate::text::listed;
use crate::tools::{RuleList, check_rule, is_comment_rule, is_sandbox_path};

/// The file of a repository's MCP servers.
pub const MCP_FILE: &str = ".mcp.json";

/// Longer names of settings are cut, since they are untrusted too. In characters.
const NAME_CHARS_MAX: usize = 64;

/// Longer commands of files whose content is trusted are cut. In characters.
const COMMAND_CHARS_MAX: usize = 120;

/// The maximum number of ignored settings that are listed; further ones are counted.
const LISTED_MAX: usize = 100;

/// The maximum number of rules of an untrusted repository, since each call is matched against all
/// rules. Further rules are ignored.
const RULES_MAX: usize = 1000;

/// The reason given for the ignored settings of an untrusted repository.
pub const UNTRUSTED: &str = "the repository is not trusted";

/// An ignored setting of the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IgnoredSetting {
    /// The path, relative for a file of the working folder.
    pub file: String,
    /// The name of the setting, never its value. `None`: the whole file.
    pub key: Option<String>,
    pub why: String,
}

/// The result of reading a file of the repository.
pub enum RepositoryFile {
    Nothing,
    Content(Vec<u8>),
    /// The reason that it cannot be used.
    Unusable(String),
}

/// Reads a file of the repository. Links out of it are followed only if it is trusted.
pub fn read_file(cwd: &Path, file: &str, trust: &Trust) -> RepositoryFile {
    let is_trusted = *trust == Trust::Full;
    let read = find(cwd, file, is_trusted).and_then(|path| {
        let owners = TrustedOwners::new(cwd, is_trusted);
        file_reads::read_owned(&path, FILE_BYTES_MAX, &owners)
    });
    match read {
        Ok(content) => RepositoryFile::Content(content),
        Err(error) if is_missing(&error) => RepositoryFile::Nothing,
        Err(error) if error.kind() == io::ErrorKind::Other => {
            RepositoryFile::Unusable(error.to_string())
        }
        Err(error) => RepositoryFile::Unusable(format!("it cannot be read ({})", error.kind())),
    }
}

fn find(cwd: &Path, file: &str, anywhere: bool) -> io::Result<PathBuf> {
    let path = file_reads::canonicalize(&cwd.join(file))?;
    if anywhere || path.starts_with(root(&fs::canonicalize(cwd)?)) {
        Ok(path)
    } else {
        Err(io::Error::other("it leads out of the repository"))
    }
}

/// The ignored settings of a repository's files.
#[derive(Debug, Default)]
pub struct IgnoredSettings {
    listed: Vec<IgnoredSetting>,
    more: usize,
}

impl IgnoredSettings {
    pub fn file(&mut self, file: &str, why: &str) {
        self.push(file, None, why);
    }

    fn key(&mut self, file: &str, key: &str, why: &str) {
        self.push(file, Some(printable(key)), why);
    }

    fn push(&mut self, file: &str, key: Option<String>, why: &str) {
        if self.listed.len() < LISTED_MAX {
            self.listed.push(IgnoredSetting { file: file.to_owned(), key, why: why.to_owned() });
        } else {
            self.more += 1;
        }
    }

    /// Returns the settings of an untrusted file that only restrict rights, and records the rest as
    /// ignored. `below` returns the value of a setting that is in force without the file.
    pub fn strip_untrusted(
        &mut self,
        file: &str,
        content: &[u8],
        paths: &RulePaths<'_>,
        below: ValueBelow<'_>,
    ) -> Value {
        let Some(settings) = self.object(file, content) else { return Value::Object(Map::new()) };
        Value::Object(self.restricting(file, "", &settings, (paths, below)))
    }

    /// Returns the members of an object of settings that only restrict rights. `prefix` is its
    /// name.
    fn restricting(
        &mut self,
        file: &str,
        prefix: &str,
        settings: &Map<String, Value>,
        (paths, below): (&RulePaths<'_>, ValueBelow<'_>),
    ) -> Map<String, Value> {
        let mut stricter = Map::new();
        for (name, value) in settings.iter().filter(|(_, value)| !is_nothing(value)) {
            let key = format!("{prefix}{name}");
            let setting = registry::find(&key);
            match (setting.map(|setting| setting.untrusted), value) {
                (None, Value::Object(members)) if registry::is_group(&key) => {
                    let inner = self.restricting(file, &format!("{key}."), members, (paths, below));
                    stricter.insert(name.clone(), Value::Object(inner));
                }
                // Settings of this name have no effect in any file.
                (None, _) if unknown_keys::is_foreign(&key) || is_comment_name(name) => {}
                (Some(Untrusted::Rules), Value::Array(rules)) => {
                    let is_comment = |rule: &Value| rule.as_str().is_some_and(is_comment_rule);
                    let rules: Vec<Value> =
                        rules.iter().filter(|rule| !is_comment(rule)).cloned().collect();
                    let is_good = |rule: &&str| paths.is_valid(rule);
                    let good = self.select(file, &key, &rules, is_good, "rules");
                    stricter.insert(name.clone(), good);
                }
                (Some(Untrusted::Rules), _) => self.key(file, &key, "it is not a list of rules"),
                (Some(Untrusted::Paths), Value::Array(given)) => {
                    let is_good = |path: &&str| is_sandbox_path(path, paths.cwd, paths.home);
                    let good = self.select(file, &key, given, is_good, "plain paths");
                    stricter.insert(name.clone(), good);
                }
                (Some(Untrusted::Only(word)), Value::String(text)) if text == word => {
                    stricter.insert(name.clone(), value.clone());
                }
                (Some(Untrusted::Stricter(is_stricter)), _)
                    if is_stricter(value, setting.map(of_form).and_then(below).as_ref()) =>
                {
                    stricter.insert(name.clone(), value.clone());
                }
                (Some(_), Value::Object(members)) if ["env", "hooks"].contains(&key.as_str()) => {
                    for inner in members.keys() {
                        self.key(file, &format!("{key}.{inner}"), UNTRUSTED);
                    }
                }
                (Some(_), _) if USER_ONLY.contains(&key.as_str()) => {
                    self.key(file, &key, NO_SELF_TRUST);
                }
                (Some(_) | None, _) => self.key(file, &key, UNTRUSTED),
            }
        }
        stricter
    }

    /// Returns the valid items of a list, and records the number of the others.
    fn select(
        &mut self,
        file: &str,
        key: &str,
        items: &[Value],
        is_good: impl Fn(&&str) -> bool,
        what: &str,
    ) -> Value {
        let texts = items.iter().filter_map(Value::as_str).take(RULES_MAX);
        let good: Vec<&str> = texts.filter(is_good).collect();
        if good.len() < items.len() {
            let bad = items.len() - good.len();
            self.key(file, key, &format!("{bad} of it are no {what}"));
        }
        json!(good)
    }

    /// Removes settings that not even a trusted repository may set.
    pub fn strip_never_trusted(&mut self, file: &str, parsed: &mut ParsedSettings) {
        for key in USER_ONLY.into_iter().filter(|key| parsed.remove(key)) {
            self.key(file, key, NO_SELF_TRUST);
        }
    }

    /// Records a file that is trusted for its content and names a script that is not.
    pub fn script(&mut self, file: &str, script: &UntrustedScript, cwd: &Path) {
        self.file(file, &script_reason(script, cwd));
    }

    /// Records the withheld fields of agents and commands.
    pub fn definitions(&mut self, withheld: &[IgnoredSetting]) {
        for IgnoredSetting { file, key, why } in withheld {
            self.push(file, key.as_deref().map(printable), why);
        }
    }

    /// Records the MCP servers of an untrusted repository.
    pub fn servers(&mut self, content: &[u8], why: &str) {
        let Some(settings) = self.object(MCP_FILE, content) else { return };
        match settings.get("mcpServers") {
            Some(Value::Object(servers)) => {
                for name in servers.keys() {
                    self.key(MCP_FILE, &format!("mcpServers.{name}"), why);
                }
            }
            Some(_) => self.key(MCP_FILE, "mcpServers", why),
            None => {}
        }
    }

    fn object(&mut self, file: &str, content: &[u8]) -> Option<Map<String, Value>> {
        let why = match serde_json::from_str(&written_json(&json::decode(content))) {
            Ok(Value::Object(members)) => return Some(members),
            Ok(_) => "it is not a JSON object",
            Err(_) => "it is not valid JSON",
        };
        self.file(file, why);
        None
    }

    /// Returns the ignored settings, and a warning line if there are any.
    pub fn into_report(mut self) -> (Vec<IgnoredSetting>, Option<String>) {
        if self.more > 0 {
            let why = format!("{} more are not listed", self.more);
            self.listed.push(IgnoredSetting { file: "...".to_owned(), key: None, why });
        }
        let line = (!self.listed.is_empty()).then(|| line(&self.listed));
        (self.listed, line)
    }
}

/// Settings that have no effect in a repository, trusted or not.
const USER_ONLY: [&str; 2] = ["trustedProjects", "unconfinedPrograms"];

const NO_SELF_TRUST: &str = "no repository can vouch for one";

/// The setting whose value is in force, if this one is another form of it.
fn of_form(setting: &'static Setting) -> &'static Setting {
    setting.form_of.and_then(registry::find).unwrap_or(setting)
}

/// The value of a setting that is in force without an untrusted file.
type ValueBelow<'a> = &'a dyn Fn(&Setting) -> Option<Value>;

/// The folders that relative rules are resolved against.
pub struct RulePaths<'a> {
    pub cwd: &'a Path,
    pub home: Option<&'a Path>,
}

impl RulePaths<'_> {
    fn is_valid(&self, rule: &str) -> bool {
        check_rule(rule, RuleList::Deny, self.cwd, self.home).is_ok()
    }
}

/// Returns the reason why a file is ignored although its own content is trusted.
pub fn script_reason(script: &UntrustedScript, cwd: &Path) -> String {
    match script {
        UntrustedScript::Unlisted(script) => {
            let script = script.strip_prefix(cwd).unwrap_or(script).display().to_string();
            let script = printable_path(&script);
            format!("it names {script}, whose SHA-256 is not among trustedProjects")
        }
        UntrustedScript::Unclear(command) => {
            let shown: String = command.chars().take(COMMAND_CHARS_MAX).collect();
            format!(
                "its SHA-256 is not enough, since {shown:?} may name scripts that are not found"
            )
        }
    }
}

/// Returns a path safe for logs.
fn printable_path(path: &str) -> String {
    path.split('/').map(printable).collect::<Vec<_>>().join("/")
}

/// Returns a name safe for logs: short, and without control characters.
fn printable(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-$".contains(letter);
    let mut letters = name.chars().map(|letter| if plain(letter) { letter } else { '?' });
    let mut short: String = letters.by_ref().take(NAME_CHARS_MAX).collect();
    if letters.next().is_some() {
        short.push_str("...");
    }
    short
}

/// Formats the files, with the ignored settings in parentheses.
fn line(ignored: &[IgnoredSetting]) -> String {
    const SHOWN_MAX: usize = 8;
    let mut files: Vec<&str> = ignored.iter().map(|one| one.file.as_str()).collect();
    files.dedup();
    let parts = files.iter().map(|file| {
        let in_file = ignored.iter().filter(|one| one.file == *file);
        let names: Vec<&str> = in_file.map(|one| one.key.as_deref().unwrap_or(&one.why)).collect();
        format!("{file} ({})", listed(&names, SHOWN_MAX))
    });
    format!(
        "ignored settings of this repository: {}; --trust-project lets them count, see \
         outlast-security(7)",
        parts.collect::<Vec<_>>().join(", ")
    )
}
