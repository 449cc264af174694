//! The `hooks` of settings files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::event::{HookEvent, is_unsupported};
use super::failure::HookFailureKind;
use super::matcher::HookMatcher;
use crate::json::{is_comment, is_comment_name};

/// The default timeouts: of hooks in general, of those that delay the user's prompt, of those after
/// a failed run, and of those that run while the process is ending.
const TIMEOUT: Duration = Duration::from_mins(10);
const PROMPT_TIMEOUT: Duration = Duration::from_secs(30);
const FAILURE_TIMEOUT: Duration = Duration::from_secs(10);
const END_TIMEOUT: Duration = Duration::from_millis(1500);

/// The longest timeout that a hook may configure: the default deadline of a run.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_hours(1);

/// The longest timeout for events after the run's result is decided.
const END_TIMEOUT_MAX: Duration = Duration::from_mins(1);

/// The most characters of a command line in a hook's title.
const TITLE_MAX: usize = 120;

/// One configured hook.
#[derive(Clone, Debug)]
pub struct HookHandler {
    pub event: HookEvent,
    pub(super) matcher: HookMatcher,
    /// A permission rule: the hook is only for tool calls that it covers.
    pub condition: Option<String>,
    pub command: HookCommand,
    pub timeout: Duration,
    /// True if a failure of the hook denies the action that it guards.
    pub fail_closed: bool,
    /// True if it runs in the background (`async`), so that its output has no effect.
    pub background: bool,
    /// The sub-agent type that it is limited to. `None` for the run and all sub-agents.
    pub agent_type: Option<String>,
    /// Variables of its own, such as the folder of its plugin.
    pub variables: Vec<(String, String)>,
    /// Its settings file, or the flag.
    pub source: String,
    /// Its path in the settings: `hooks.PreToolUse[0].hooks[1]`.
    pub place: String,
}

/// The command of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookCommand {
    /// A script, which `sh -c` runs.
    Script(String),
    /// A script, which `bash -c` runs.
    Bash(String),
    /// A program, which is run without a shell.
    Program { path: PathBuf, arguments: Vec<String> },
    /// A callback, which the host runs by this identifier.
    Callback { id: String },
}

impl HookCommand {
    pub fn line(&self) -> String {
        match self {
            Self::Script(script) | Self::Bash(script) => script.clone(),
            Self::Program { path, arguments } => {
                let words = std::iter::once(path.display().to_string());
                words.chain(arguments.iter().cloned()).collect::<Vec<_>>().join(" ")
            }
            Self::Callback { id } => format!("callback {id}"),
        }
    }
}

/// An entry of a `hooks` object that is ignored, with a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedHook {
    /// Its path in the settings: `hooks.PreToolUse[0].hooks[1]`.
    pub place: String,
    pub why: String,
    pub source: String,
}

/// An invalid entry of a `hooks` object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct BadHook {
    pub place: String,
    pub why: String,
}

/// The parsed content of one `hooks` object.
#[derive(Clone, Debug, Default)]
pub struct HookSettings {
    pub handlers: Vec<HookHandler>,
    pub skipped: Vec<SkippedHook>,
}

#[derive(Deserialize)]
struct HookGroup {
    #[serde(default, deserialize_with = "names")]
    matcher: Option<String>,
    /// Missing if the group itself is its only hook.
    hooks: Option<Vec<Value>>,
}

/// The effect of a hook's failure on the event (`onFailure`).
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnFailure {
    Continue,
    Block,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookEntry {
    #[serde(rename = "type", default = "command_type")]
    kind: String,
    command: Option<String>,
    args: Option<Vec<String>>,
    shell: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    timeout: Option<f64>,
    #[serde(rename = "if")]
    condition: Option<String>,
    #[serde(default, rename = "async")]
    detached: bool,
    #[serde(default)]
    async_rewake: bool,
    #[serde(default)]
    fail_closed: bool,
    on_failure: Option<OnFailure>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The type of an entry that has none.
fn command_type() -> String {
    "command".to_owned()
}

/// Deserializes a matcher, which may be a list of names.
fn names<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    let value = Value::deserialize(source)?;
    let list = Vec::<String>::deserialize(&value).map(|names| Some(names.join("|")));
    let why = "the matcher must be a text or a list of names";
    list.or_else(|_| Option::deserialize(value)).map_err(|_| D::Error::custom(why))
}

/// Deserializes a number of seconds, which may be written as a text: `10`, `10s`.
pub(super) fn seconds<'de, D: Deserializer<'de>>(source: D) -> Result<Option<f64>, D::Error> {
    let value = Value::deserialize(source)?;
    let number = |text: &str| text.trim().trim_end_matches('s').parse().ok();
    if let Some(number) = value.as_str().and_then(number) {
        return Ok(Some(number));
    }
    let why = "the timeout is not a number of seconds";
    Option::deserialize(value).map_err(|_| D::Error::custom(why))
}

/// Returns the timeout of this many seconds, or the default. The error is a message.
pub(super) fn read_timeout(
    seconds: Option<f64>,
    default: Duration,
    longest: Duration,
) -> Result<Duration, String> {
    let Some(seconds) = seconds else { return Ok(default) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout.min(longest)),
        _ => Err(format!("invalid timeout {seconds}; give seconds above 0")),
    }
}

/// Returns the events of a `hooks` object. An empty list has none, either.
pub(super) fn events_of(hooks: &Value) -> Result<impl Iterator<Item = (&String, &Value)>, BadHook> {
    let why = "must be an object with event names as keys";
    let events = hooks.as_object();
    if events.is_none() && !hooks.as_array().is_some_and(Vec::is_empty) {
        return Err(bad_hook("hooks", why));
    }
    Ok(events.into_iter().flatten())
}

/// Returns the groups of an event, which may be null, or one group without a list.
pub(super) fn groups_of<'a>(groups: &'a Value, place: &str) -> Result<&'a [Value], BadHook> {
    match groups {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        Value::Object(members) if members.is_empty() => Ok(&[]),
        Value::Object(_) => Ok(std::slice::from_ref(groups)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(bad_hook(place, "must be a list"))
        }
    }
}

pub(super) fn read_matcher(matcher: Option<&str>, group: &str) -> Result<HookMatcher, BadHook> {
    HookMatcher::parse(matcher.unwrap_or_default())
        .map_err(|why| bad_hook(&format!("{group}.matcher"), &why.to_string()))
}

/// The name of a shell, which may be written as a path.
fn shell_name(shell: &str) -> &str {
    shell.trim().rsplit('/').next().unwrap_or_default()
}

/// Returns the key of guards that an unknown key is a misspelling of: ignoring it would disable the
/// guard.
fn meant_guard_key(key: &str) -> Option<&'static str> {
    let letters = key.chars().filter(char::is_ascii_alphabetic);
    let letters: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    match letters.as_str() {
        "failclosed" | "failclose" | "failsclosed" | "failcloses" => Some("failClosed"),
        "onfailure" | "onfail" | "onfailures" => Some("onFailure"),
        _ => None,
    }
}

/// The effect of a matcher in the form of a permission rule.
const LIKE_RULE: &str = "it reads like a permission rule, and as a regular expression it matches \
                         no tool, so its hooks never run; name only the tool here, and put the \
                         rule into \"if\"";

/// The variable with the folder of the project.
const PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";

/// Returns the variables for the hooks of a project that is not the working folder.
pub fn project_variables(project: Option<&Path>) -> Vec<(String, String)> {
    let folder = project.map(|folder| folder.display().to_string());
    folder.map(|folder| (PROJECT_DIR.to_owned(), folder)).into_iter().collect()
}

impl HookSettings {
    /// Parses the value of `hooks`, from `source`.
    ///
    /// # Errors
    /// The first entry that is invalid, with its path.
    pub fn parse(value: &Value, source: &str) -> Result<Self, BadHook> {
        let mut settings = Self::default();
        for (name, groups) in events_of(value)? {
            let place = format!("hooks.{name}");
            let Some(event) = HookEvent::from_name(name) else {
                settings.skip_unknown(name, groups, source)?;
                continue;
            };
            for (index, group) in entries(groups_of(groups, &place)?) {
                settings.read_group(event, group, &format!("{place}[{index}]"), source)?;
            }
        }
        Ok(settings)
    }

    /// Ignores a member that is not an event, with a warning unless it is a comment.
    fn skip_unknown(&mut self, name: &str, value: &Value, source: &str) -> Result<(), BadHook> {
        let place = format!("hooks.{name}");
        let groups = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let why = if is_unsupported(name) {
            "outlast does not support this event"
        } else {
            "there is no such event"
        };
        if groups.iter().any(has_guard) {
            return Err(bad_hook(&place, &format!("{why}, so a guard would never run")));
        }
        let has_hooks = groups.iter().any(|group| group.get("hooks").is_some());
        if has_hooks || !is_comment_name(name) {
            self.skip(&place, why, source);
        }
        Ok(())
    }

    fn read_group(
        &mut self,
        event: HookEvent,
        group: &Value,
        place: &str,
        source: &str,
    ) -> Result<(), BadHook> {
        let read = HookGroup::deserialize(group);
        let HookGroup { matcher, hooks } =
            read.map_err(|error| bad_hook(place, &error.to_string()))?;
        let hooks = match hooks {
            Some(hooks) => hooks,
            None if group.get("command").is_some() => vec![group.clone()],
            None if group.get("hooks").is_some_and(Value::is_null) => Vec::new(),
            None => {
                let why = "has no \"hooks\"; write {\"matcher\": \"Bash\", \"hooks\": [{\"type\": \
                           \"command\", \"command\": ...}]}";
                return Err(bad_hook(place, why));
            }
        };
        let matcher = read_matcher(matcher.as_deref(), place)?;
        let is_rule = event.is_tool_event() && matcher.is_like_rule();
        let matcher_place = format!("{place}.matcher");
        if is_rule {
            self.skip(&matcher_place, LIKE_RULE, source);
        }
        for (index, entry) in entries(&hooks) {
            let place = format!("{place}.hooks[{index}]");
            let entry = HookEntry::deserialize(entry)
                .map_err(|error| bad_hook(&place, &error.to_string()))?;
            let mut others = entry.others.keys();
            let misspelt = others.find_map(|key| Some((key, meant_guard_key(key)?)));
            if let Some((key, meant)) = misspelt {
                let why = format!("there is no key \"{key}\"; did you mean \"{meant}\"?");
                return Err(bad_hook(&place, &why));
            }
            let guards = entry.is_guard(event);
            if guards && is_rule {
                let why = format!("{LIKE_RULE}. One of them is a guard (failClosed, onFailure)");
                return Err(bad_hook(&matcher_place, &why));
            }
            if entry.async_rewake {
                let why = "it runs in the background and does not wake the model";
                self.skip(&format!("{place}.asyncRewake"), why, source);
            }
            if let Some(shell) = entry.unknown_shell() {
                let why = format!(
                    "the shell {shell:?} is not supported, so sh runs it; use \"bash\" or \"sh\""
                );
                self.skip(&format!("{place}.shell"), &why, source);
            }
            if entry.timeout.is_some_and(|seconds| seconds > TIMEOUT_MAX.as_secs_f64()) {
                let why = "it is in seconds, and the longest is 3600";
                self.skip(&format!("{place}.timeout"), why, source);
            }
            match entry.into_handler(event, &matcher, (source, &place)) {
                Ok(handler) if guards && handler.background => {
                    let why = "a background hook (async) cannot be a guard (failClosed, onFailure)";
                    return Err(bad_hook(&place, why));
                }
                Ok(handler) => self.add(handler),
                Err(UnusableHook::Unsupported(why)) if guards => {
                    let why = format!("{why}, and this one is a guard (failClosed, onFailure)");
                    return Err(bad_hook(&place, &why));
                }
                Err(UnusableHook::Wrong(why)) => return Err(bad_hook(&place, &why)),
                Err(UnusableHook::Unsupported(why)) => self.skip(&place, &why, source),
            }
        }
        Ok(())
    }

    /// Limits the hooks to sub-agents of one type; `Stop` becomes `SubagentStop`.
    #[must_use]
    pub fn for_agent_type(mut self, kind: &str) -> Self {
        for handler in &mut self.handlers {
            handler.agent_type = Some(kind.to_owned());
            if handler.event == HookEvent::Stop {
                handler.event = HookEvent::SubagentStop;
            }
        }
        self
    }

    /// Sets the variables of the hooks of a plugin.
    #[must_use]
    pub fn with_variables(mut self, variables: &[(String, String)]) -> Self {
        for handler in &mut self.handlers {
            handler.variables = variables.to_vec();
        }
        self
    }

    /// Adds the hooks of another file.
    pub fn merge(&mut self, other: Self) {
        other.handlers.into_iter().for_each(|handler| self.add(handler));
        self.skipped.extend(other.skipped);
    }

    /// Adds a hook, merging it with an equal hook of an earlier file. The merged hook is attributed
    /// to the later file, which the author of the earlier one may not be able to change. Neither
    /// file can disable the other's hook.
    fn add(&mut self, handler: HookHandler) {
        match self.handlers.iter_mut().find(|known| known.is_equivalent(&handler)) {
            Some(known) => {
                *known = HookHandler {
                    timeout: known.timeout.max(handler.timeout),
                    fail_closed: known.fail_closed || handler.fail_closed,
                    background: known.background && handler.background,
                    ..handler
                };
            }
            None => self.handlers.push(handler),
        }
    }

    fn skip(&mut self, place: &str, why: &str, source: &str) {
        let (place, why, source) = (place.to_owned(), why.to_owned(), source.to_owned());
        self.skipped.push(SkippedHook { place, why, source });
    }
}

/// The reason that an entry cannot be used as a hook.
enum UnusableHook {
    /// It is invalid.
    Wrong(String),
    /// It is valid, but of a type that outlast does not support.
    Unsupported(String),
}

impl HookEntry {
    fn fails_closed(&self) -> bool {
        self.fail_closed || self.on_failure == Some(OnFailure::Block)
    }

    /// Returns true if its failure must deny the event.
    fn is_guard(&self, event: HookEvent) -> bool {
        self.fails_closed() && event.can_be_guarded()
    }

    /// The name of the shell for its command line, if that is neither `bash` nor a shell like `sh`.
    fn unknown_shell(&self) -> Option<&str> {
        let is_line = self.kind == "command" && self.args.is_none();
        let shell = self.shell.as_deref().map(shell_name).filter(|_| is_line)?;
        (!matches!(shell, "" | "sh" | "dash" | "ash" | "bash")).then_some(shell)
    }

    fn into_handler(
        self,
        event: HookEvent,
        matcher: &HookMatcher,
        (source, place): (&str, &str),
    ) -> Result<HookHandler, UnusableHook> {
        let (timeout, fail_closed) = (self.timeout_for(event)?, self.fails_closed());
        if self.kind != "command" {
            let known = ["http", "mcp_tool", "prompt", "agent"].contains(&self.kind.as_str());
            let what = format!("hooks of type {:?}", self.kind);
            return Err(if known {
                UnusableHook::Unsupported(format!("{what} are not supported; use \"command\""))
            } else {
                UnusableHook::Wrong(format!("there are no {what}; use \"command\""))
            });
        }
        if self.condition.is_some() && !event.is_tool_event() {
            let why = format!("`if` is for tool events, so this {} never runs", event.name());
            return Err(UnusableHook::Unsupported(why));
        }
        let Some(command) = self.command.filter(|command| !command.trim().is_empty()) else {
            return Err(UnusableHook::Wrong("has no command".to_owned()));
        };
        let command = match (self.args, self.shell.as_deref().map(shell_name)) {
            (Some(arguments), _) => HookCommand::Program { path: command.into(), arguments },
            (None, Some("bash")) => HookCommand::Bash(command),
            (None, None | Some(_)) => HookCommand::Script(command),
        };
        Ok(HookHandler {
            event,
            matcher: if event.has_subject() { matcher.clone() } else { HookMatcher::All },
            condition: self.condition,
            command,
            timeout,
            fail_closed,
            background: self.detached || self.async_rewake,
            agent_type: None,
            variables: Vec::new(),
            source: source.to_owned(),
            place: place.to_owned(),
        })
    }

    fn timeout_for(&self, event: HookEvent) -> Result<Duration, UnusableHook> {
        let (default, longest) = if event == HookEvent::UserPromptSubmit {
            (PROMPT_TIMEOUT, TIMEOUT_MAX)
        } else if event == HookEvent::StopFailure {
            (FAILURE_TIMEOUT, END_TIMEOUT_MAX)
        } else if event == HookEvent::SessionEnd {
            (END_TIMEOUT, END_TIMEOUT_MAX)
        } else {
            (TIMEOUT, TIMEOUT_MAX)
        };
        read_timeout(self.timeout, default, longest).map_err(UnusableHook::Wrong)
    }
}

impl HookHandler {
    /// The folder of the project, if that is not the working folder.
    pub(super) fn project(&self) -> Option<&str> {
        let variable = self.variables.iter().find(|(name, _)| name == PROJECT_DIR);
        variable.map(|(_, folder)| folder.as_str())
    }

    /// Sets the timeout of a hook for the end of the session, unless its settings have a timeout.
    #[must_use]
    pub fn with_end_timeout(mut self, limit: Option<Duration>) -> Self {
        if let Some(limit) = limit
            && self.event == HookEvent::SessionEnd
            && self.timeout == END_TIMEOUT
        {
            self.timeout = limit.min(END_TIMEOUT_MAX);
        }
        self
    }

    /// Adapts the hook of an agent type to a run whose main agent has that type; `SubagentStop`
    /// becomes `Stop`.
    #[must_use]
    pub fn for_main_agent(mut self) -> Self {
        self.agent_type = None;
        if self.event == HookEvent::SubagentStop {
            self.event = HookEvent::Stop;
        }
        self
    }

    /// The tools that its matcher lists by their names.
    pub fn named_tools(&self) -> &[String] {
        match &self.matcher {
            HookMatcher::Names(names) if self.event.is_tool_event() => names,
            HookMatcher::All | HookMatcher::Names(_) | HookMatcher::Pattern(_) => &[],
        }
    }

    /// Returns true if its matcher is for tools, and can match none: none of `known`, and no tool of
    /// an MCP server.
    pub fn matches_no_tool<'a>(&self, mut known: impl Iterator<Item = &'a str>) -> bool {
        self.event.is_tool_event()
            && self.matcher.excludes_mcp()
            && known.all(|tool| matches!(self.matcher.matches_any([tool].into_iter()), Ok(false)))
    }

    /// Returns true if its failure denies the action that it guards.
    pub fn is_guard(&self) -> bool {
        self.fail_closed && self.event.can_be_guarded()
    }

    /// Returns true if a failure of this kind denies the action that the hook could have forbidden.
    pub(super) fn denies_on(&self, failure: HookFailureKind) -> bool {
        let can_forbid = self.event == HookEvent::PreToolUse && !self.background;
        // Changing a hook that may forbid a call must not disable it.
        let is_disabled = can_forbid && failure == HookFailureKind::Changed;
        // A host expects its callbacks to run before a call is made or a prompt is sent.
        let is_unanswered = matches!(
            failure,
            HookFailureKind::TimedOut | HookFailureKind::HostClosed | HookFailureKind::NotSent
        ) && matches!(self.command, HookCommand::Callback { .. })
            && matches!(self.event, HookEvent::PreToolUse | HookEvent::UserPromptSubmit);
        self.is_guard() || is_disabled || is_unanswered
    }

    /// Its command line and source, for users and the model.
    pub(super) fn title(&self) -> String {
        let line = self.command.line();
        let line = match line.char_indices().nth(TITLE_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        };
        format!("the hook `{line}` ({}: {})", self.source, self.place)
    }

    /// Returns true if `other` is the same command for the same calls.
    fn is_equivalent(&self, other: &Self) -> bool {
        self.matcher.is_same(&other.matcher)
            && self.event == other.event
            && self.agent_type == other.agent_type
            && self.condition == other.condition
            && self.command == other.command
            && self.variables == other.variables
    }
}

/// Returns the entries of a list that are not comments, with their indices.
fn entries(list: &[Value]) -> impl Iterator<Item = (usize, &Value)> {
    list.iter().enumerate().filter(|(_, entry)| !is_comment_entry(entry))
}

/// Returns true if an entry of a list is none: a commented text, an object of comments, or null.
fn is_comment_entry(entry: &Value) -> bool {
    match entry {
        Value::String(text) => is_comment(text),
        Value::Object(members) => {
            !members.is_empty() && members.keys().all(|name| is_comment_name(name))
        }
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

/// Returns true if a group contains a fail-closed hook.
fn has_guard(group: &Value) -> bool {
    let hooks = group.get("hooks").and_then(Value::as_array);
    let is_guard = |hook: &Value| hook["failClosed"] == true || hook["onFailure"] == "block";
    hooks.is_some_and(|hooks| hooks.iter().any(is_guard))
}

pub(super) fn bad_hook(place: &str, why: &str) -> BadHook {
    BadHook { place: place.to_owned(), why: why.to_owned() }
}
