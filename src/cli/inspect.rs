//! `outlast mcp`, `plugin`, `agents` and `auth`: print the set-up of a run, for scripts written for
//! the reference CLI, and log in at MCP servers. The answer to commands of the reference that would
//! change anything else names the equivalent in outlast.

use serde_json::{Value, json};
use strsim::osa_distance;

use crate::config::fold::EffectiveValue;
use crate::messages::PluginEntry;
use crate::secrets::{KnownSecrets, Redactor};

use super::args::{InspectArgs, InspectSubject, ServersAction, ServersArgs};
use super::config::read_survey;
use super::output::{one_line, print_message};
use super::plugins::Plugin;
use super::run::ProcessContext;
use super::server_login;
use super::settings::SettingsSurvey;
use super::stdout;
use super::usage::UsageError;

/// The requested information, login or logout.
enum Question {
    Plugins { is_json: bool },
    Agents { is_json: bool },
    Credential { is_text: bool },
}

/// Prints the requested part of a run's set-up. The exit code is 1 if there is no such server or no
/// credential.
///
/// # Errors
/// The command is one that outlast does not have, or the settings cannot be read.
pub(super) async fn inspect(args: InspectArgs, process: ProcessContext) -> Result<u8, UsageError> {
    let mut words = args.words.split(|word| word == "--");
    let (question_words, flags) =
        (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let question_words: Vec<&str> = question_words.iter().map(String::as_str).collect();
    let question = question(args.subject, &question_words)?;
    let survey = survey(flags, process).await?;
    let redactor = Redactor::new(KnownSecrets::new(survey.secrets()));
    let (text, code) = answer(&question, &survey);
    stdout::print(&redactor.redact(&text))?;
    Ok(code)
}

/// Lists or shows the MCP servers of a run, or logs in or out at a server. The exit code is 1 if
/// the server or the login does not exist.
///
/// # Errors
/// The command is one that outlast does not have, or the settings cannot be read.
pub(super) async fn servers(args: ServersArgs, process: ProcessContext) -> Result<u8, UsageError> {
    let action = args.action.as_ref();
    let signals = process.signals.clone();
    let survey = survey(args.run_flags(), process).await?;
    let redactor = Redactor::new(KnownSecrets::new(survey.secrets()));
    // They explain why servers in files are missing from the list.
    for warning in survey.inputs.sources.ignored_warning.iter().chain(&survey.server_warnings) {
        print_message(&redactor.redact(&format!("warning: {warning}")));
    }
    let (text, code) = match action {
        None | Some(ServersAction::List(_)) => {
            let line = |(name, it)| line(name, it, &survey);
            let lines: Vec<String> = configured(&survey).map(line).collect();
            (or_none(&lines, "no MCP servers are set; see outlast-mcp(7)"), 0)
        }
        Some(ServersAction::Get(args)) => {
            match configured(&survey).find(|(name, _)| *name == args.server) {
                Some((name, it)) => (format!("{}\n{}", one_line(name), details(it)), 0),
                None => (format!("no MCP server is named {:?}\n", args.server), 1),
            }
        }
        Some(ServersAction::Login(args)) => {
            (String::new(), server_login::login(args, &survey, &signals).await?)
        }
        Some(ServersAction::Logout(args)) => server_login::logout(&args.server, &survey)?,
    };
    stdout::print(&redactor.redact(&text))?;
    Ok(code)
}

/// Reads the settings that a run with these flags would have.
async fn survey(flags: &[String], process: ProcessContext) -> Result<SettingsSurvey, UsageError> {
    let survey = read_survey(flags, process).await?;
    match UsageError::all(&survey.inputs.mistakes) {
        Some(mistakes) => Err(mistakes),
        None => Ok(survey),
    }
}

impl Question {
    /// Returns the options of the command.
    fn options(&self) -> &'static [&'static str] {
        match self {
            Self::Plugins { .. } | Self::Agents { .. } => &["--json"],
            Self::Credential { .. } => &["--json", "--text"],
        }
    }
}

fn question(subject: InspectSubject, words: &[&str]) -> Result<Question, UsageError> {
    let question = of_words(subject, words)?;
    let options = question.options();
    match words.iter().find(|word| word.starts_with("--") && !options.contains(word)) {
        None => Ok(question),
        Some(unknown) => {
            let known = options.join(" and ");
            Err(UsageError::new(format!("unknown option {unknown}; this command takes {known}")))
        }
    }
}

fn of_words(subject: InspectSubject, words: &[&str]) -> Result<Question, UsageError> {
    let has = |flag: &str| words.contains(&flag);
    let (is_json, is_text) = (has("--json"), has("--text"));
    let plain: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with("--")).collect();
    let known = names(subject);
    let mistake =
        known.zip(plain.first()).and_then(|((outer, names), word)| mistyped(outer, names, word));
    if let Some(mistake) = mistake {
        return Err(mistake);
    }
    match (subject, plain.as_slice()) {
        (InspectSubject::Plugin, [] | ["list"]) => Ok(Question::Plugins { is_json }),
        (InspectSubject::Plugin, _) => Err(UsageError::new(
            "outlast has plugin list, and fetches no plugins; unpack one and name its folder with \
             --plugin-dir, see outlast-agents(7)",
        )),
        (InspectSubject::Agents, [] | ["list"]) => Ok(Question::Agents { is_json }),
        (InspectSubject::Agents, _) => Err(UsageError::new(
            "outlast has agents list; define an agent in .claude/agents or with --agents, see \
             outlast-agents(7)",
        )),
        (InspectSubject::Auth, [] | ["status"]) => Ok(Question::Credential { is_text }),
        (InspectSubject::Auth | InspectSubject::SetupToken, _) => Err(UsageError::new(
            "outlast has auth status, and no login of its own; set ANTHROPIC_API_KEY, \
             ANTHROPIC_AUTH_TOKEN or apiKeyHelper, see outlast-settings(5)",
        )),
        (InspectSubject::Install | InspectSubject::Update, _) => Err(UsageError::new(
            "outlast does not install or update itself; replace its program by that of the release",
        )),
    }
}

/// Returns the command for a subject, and its subcommands.
fn names(subject: InspectSubject) -> Option<(&'static str, &'static [&'static str])> {
    match subject {
        InspectSubject::Plugin => Some(("plugin", &["list"])),
        InspectSubject::Agents => Some(("agents", &["list"])),
        InspectSubject::Auth => Some(("auth", &["status"])),
        InspectSubject::Install | InspectSubject::Update | InspectSubject::SetupToken => None,
    }
}

/// Returns the error for a word that resembles one of these commands.
fn mistyped(outer: &str, names: &[&str], word: &str) -> Option<UsageError> {
    let distance = |name: &&&str| osa_distance(&word.to_ascii_lowercase(), name);
    let near = names.iter().min_by_key(distance)?;
    let is_near = (1..=near.len().div_ceil(3)).contains(&distance(&near));
    (is_near && !names.contains(&word)).then(|| {
        let word: String = word.chars().take(60).collect();
        UsageError::new(format!(
            "{word:?} is not a command of outlast {outer}; did you mean outlast {outer} {near}?"
        ))
    })
}

/// Returns the answer and the exit code.
fn answer(question: &Question, survey: &SettingsSurvey) -> (String, u8) {
    match question {
        Question::Plugins { is_json: true } => {
            let list: Vec<PluginEntry> =
                survey.inputs.sources.plugins.iter().map(Plugin::entry).collect();
            (format!("{}\n", json!(list)), 0)
        }
        Question::Plugins { is_json: false } => {
            let lines: Vec<String> =
                survey.inputs.sources.plugins.iter().map(plugin_line).collect();
            (or_none(&lines, "no plugins are used; see --plugin-dir and enabledPlugins"), 0)
        }
        Question::Agents { is_json: true } => {
            let list = survey.inputs.sources.library.agents.iter().map(|agent| {
                let definition = &agent.definition;
                json!({ "name": definition.name, "description": definition.description })
            });
            (format!("{}\n", list.collect::<Value>()), 0)
        }
        Question::Agents { is_json: false } => {
            let lines = survey.inputs.sources.library.agents.iter().map(|agent| {
                let definition = &agent.definition;
                format!("{}: {}", definition.name, definition.description)
            });
            let lines: Vec<String> = lines.collect();
            (or_none(&lines, "no agents are defined beside the built-in one"), 0)
        }
        Question::Credential { is_text } => credential(survey, *is_text),
    }
}

/// Returns the servers of a run, each with the value that is shown.
fn configured(survey: &SettingsSurvey) -> impl Iterator<Item = (&str, &EffectiveValue)> {
    let shown = survey.effective.iter();
    shown.filter_map(|one| Some((one.name.strip_prefix("mcpServers.")?, one)))
}

fn line(name: &str, server: &EffectiveValue, survey: &SettingsSurvey) -> String {
    let state = server_login::state(name, survey);
    let state = state.map_or_else(String::new, |state| format!(" [{state}]"));
    format!("{name}: {} ({}){state}", summary(&server.value), server.origin)
}

/// Returns the command or the address of a server.
fn summary(server: &Value) -> String {
    let text = |key: &str| server[key].as_str().unwrap_or_default();
    let args = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = [text("url"), text("command")].into_iter().chain(args);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() { server.to_string() } else { words.join(" ") }
}

fn details(server: &EffectiveValue) -> String {
    let members = server.value.as_object().into_iter().flatten();
    let lines = members.map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("  {}\n", one_line(&format!("{key}: {value}")))
    });
    format!("  from: {}\n", server.origin) + &lines.collect::<String>()
}

fn plugin_line(plugin: &Plugin) -> String {
    let version = plugin.version.as_deref().map(|version| format!(" {version}"));
    format!("{}{} ({})", plugin.name, version.unwrap_or_default(), plugin.folder.display())
}

fn or_none(lines: &[String], none: &str) -> String {
    if lines.is_empty() {
        return format!("{none}\n");
    }
    lines.iter().map(|line| one_line(line) + "\n").collect()
}

fn credential(survey: &SettingsSurvey, is_text: bool) -> (String, u8) {
    let found = survey.credentials.first();
    let text = match (found, is_text) {
        (Some((kind, source)), true) => format!("credential: {kind}, from {source}\n"),
        (None, true) => "no credential is set; see outlast-settings(5)\n".to_owned(),
        (Some((kind, source)), false) => {
            let status = json!({ "loggedIn": true, "authMethod": kind, "source": source });
            format!("{status}\n")
        }
        (None, false) => format!("{}\n", json!({ "loggedIn": false, "authMethod": "none" })),
    };
    (text, u8::from(found.is_none()))
}
