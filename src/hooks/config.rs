//! The `hooks` of settings files.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::event::{HookEvent, ObjectionUse, is_unsupported};
use super::matcher::HookMatcher;

/// How long a hook may take when it does not say.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The same while the user's words wait for it.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// The same when the run has failed already.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(10);

/// The same while the process wants to end.
const END_TIMEOUT: Duration = Duration::from_millis(1500);

/// No hook may ask for more: the deadline of a run without one.
const TIMEOUT_MAX: Duration = Duration::from_hours(1);

/// The same once the run is decided, whatever the hooks ask for.
const END_TIMEOUT_MAX: Duration = Duration::from_mins(1);

/// How much of a command line names it, in characters.
const TITLE_MAX: usize = 120;

/// One hook, ready to be run.
#[derive(Clone, Debug)]
pub struct HookHandler {
    pub event: HookEvent,
    pub(super) matcher: HookMatcher,
    /// A permission rule: the hook is only for tool calls that it covers.
    pub condition: Option<String>,
    pub command: HookCommand,
    pub timeout: Duration,
    /// Whether a guard that fails forbids what it guards.
    pub fail_closed: bool,
    /// Whether nobody waits for it, so that it has no say.
    pub background: bool,
    /// The kind of sub-agents that it is for alone. `None`: for the run and all of them.
    pub agent_type: Option<String>,
    /// Where it is from: a file, or a flag.
    pub source: String,
    /// Where it stands there: `hooks.PreToolUse[0].hooks[1]`.
    pub place: String,
}

/// What a hook runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookCommand {
    /// By `sh -c`.
    Script(String),
    /// Without a shell.
    Program { path: PathBuf, arguments: Vec<String> },
}

impl HookCommand {
    /// As a person would write it.
    pub fn line(&self) -> String {
        match self {
            Self::Script(script) => script.clone(),
            Self::Program { path, arguments } => {
                let words = std::iter::once(path.display().to_string());
                words.chain(arguments.iter().cloned()).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Something in a `hooks` object that will not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedHook {
    /// Where it stands: `hooks.PreToolUse[0].hooks[1]`.
    pub place: String,
    pub why: String,
    pub source: String,
}

/// Something in a `hooks` object that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct BadHook {
    pub place: String,
    pub why: String,
}

/// What one `hooks` object holds.
#[derive(Clone, Debug, Default)]
pub struct HookSettings {
    pub handlers: Vec<HookHandler>,
    pub skipped: Vec<SkippedHook>,
}

#[derive(Deserialize)]
struct HookGroup {
    #[serde(default)]
    matcher: Option<String>,
    hooks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookEntry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default, rename = "if")]
    condition: Option<String>,
    #[serde(default, rename = "async")]
    detached: bool,
    #[serde(default)]
    async_rewake: bool,
    #[serde(default)]
    fail_closed: bool,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Whether a key that there is not was meant to make a guard of a hook: as it is, it does not.
fn means_fail_closed(key: &str) -> bool {
    let letters = key.chars().filter(char::is_ascii_alphabetic);
    let letters: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    matches!(letters.as_str(), "failclosed" | "failclose" | "failsclosed" | "failcloses")
}

impl HookSettings {
    /// Reads the value of `hooks`, from `source`.
    ///
    /// # Errors
    /// The first thing that is not as the format wants it, with its place.
    pub fn parse(value: &Value, source: &str) -> Result<Self, BadHook> {
        let mut settings = Self::default();
        let Some(events) = value.as_object() else {
            return Err(bad_hook("hooks", "is no object of events"));
        };
        for (name, groups) in events {
            let place = format!("hooks.{name}");
            let Some(groups) = groups.as_array() else {
                return Err(bad_hook(&place, "is no list"));
            };
            let Some(event) = HookEvent::from_name(name) else {
                let why = if is_unsupported(name) {
                    "outlast has no such event"
                } else {
                    "there is no such event"
                };
                if groups.iter().any(has_guard) {
                    return Err(bad_hook(&place, &format!("{why}, and so no use for a guard there")));
                }
                settings.skip(&place, why, source);
                continue;
            };
            for (index, group) in groups.iter().enumerate() {
                settings.read_group(event, group, &format!("{place}[{index}]"), source)?;
            }
        }
        Ok(settings)
    }

    fn read_group(
        &mut self,
        event: HookEvent,
        group: &Value,
        place: &str,
        source: &str,
    ) -> Result<(), BadHook> {
        let group = HookGroup::deserialize(group).map_err(|error| bad_hook(place, &error.to_string()))?;
        let matcher = HookMatcher::parse(group.matcher.as_deref().unwrap_or_default())
            .map_err(|why| bad_hook(&format!("{place}.matcher"), &why))?;
        for (index, entry) in group.hooks.iter().enumerate() {
            let place = format!("{place}.hooks[{index}]");
            let entry =
                HookEntry::deserialize(entry).map_err(|error| bad_hook(&place, &error.to_string()))?;
            if let Some(key) = entry.others.keys().find(|key| means_fail_closed(key)) {
                let why = format!("there is no key \"{key}\"; did you mean \"failClosed\"?");
                return Err(bad_hook(&place, &why));
            }
            let (guards, wakes) = (entry.guards(event), entry.async_rewake);
            if wakes {
                let why = "it runs in the background, and wakes nobody";
                self.skip(&format!("{place}.asyncRewake"), why, source);
            }
            match entry.handler(event, &matcher, (source, &place)) {
                Ok(handler) if guards && handler.detached => {
                    let why = "nobody waits for it (async), so that it is no guard (failClosed)";
                    return Err(bad_hook(&place, why));
                }
                Ok(handler) => self.add(handler),
                Err(UnusableHook::Unsupported(why)) if guards => {
                    return Err(bad_hook(
                        &place,
                        &format!("{why}, and this one is a guard (failClosed)"),
                    ));
                }
                Err(UnusableHook::Wrong(why)) => return Err(bad_hook(&place, &why)),
                Err(UnusableHook::Unsupported(why)) => self.skip(&place, &why, source),
            }
        }
        Ok(())
    }

    /// The same for sub-agents of one kind, which end with a stop of their own.
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

    /// Adds the hooks of another file.
    pub fn merge(&mut self, other: Self) {
        other.handlers.into_iter().for_each(|handler| self.add(handler));
        self.skipped.extend(other.skipped);
    }

    /// Adds a hook. The same one of another file is one with it and belongs to the later file,
    /// which may be beyond the reach of whoever wrote the earlier. Neither can disarm the other.
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

/// Why an entry is no hook of ours.
enum UnusableHook {
    /// It is wrong.
    Wrong(String),
    /// It is right, and of a kind that outlast cannot run.
    Unsupported(String),
}

impl HookEntry {
    /// Whether it is to forbid something when it fails.
    fn is_guard(&self, event: HookEvent) -> bool {
        self.fail_closed && event.objection() == ObjectionUse::Prevents
    }

    fn into_handler(
        self,
        event: HookEvent,
        matcher: &HookMatcher,
        (source, place): (&str, &str),
    ) -> Result<HookHandler, UnusableHook> {
        let timeout = self.timeout_for(event)?;
        if self.kind != "command" {
            let known = ["http", "mcp_tool", "prompt", "agent"].contains(&self.kind.as_str());
            let what = format!("hooks of type {:?}", self.kind);
            return Err(if known {
                UnusableHook::Unsupported(format!("{what} are not supported; only \"command\" is"))
            } else {
                UnusableHook::Wrong(format!("there are no {what}; write \"command\""))
            });
        }
        if self.condition.is_some() && !event.is_tool_event() {
            let why = format!("`if` is for tools, so that this {} never runs", event.name());
            return Err(UnusableHook::Unsupported(why));
        }
        let Some(command) = self.command.filter(|command| !command.trim().is_empty()) else {
            return Err(UnusableHook::Wrong("has no command".to_owned()));
        };
        let command = match self.args {
            None => HookCommand::Script(command),
            Some(arguments) => HookCommand::Program { path: command.into(), arguments },
        };
        Ok(HookHandler {
            event,
            matcher: if event.has_subject() { matcher.clone() } else { HookMatcher::All },
            condition: self.condition,
            command,
            timeout,
            fail_closed: self.fail_closed,
            background: self.detached || self.async_rewake,
            agent_type: None,
            source: source.to_owned(),
            place: place.to_owned(),
        })
    }

    fn timeout_for(&self, event: HookEvent) -> Result<Duration, UnusableHook> {
        let (usual, most) = match event {
            HookEvent::UserPromptSubmit => (PROMPT_TIMEOUT, TIMEOUT_MAX),
            HookEvent::StopFailure => (FAILURE_TIMEOUT, END_TIMEOUT_MAX),
            HookEvent::SessionEnd => (END_TIMEOUT, END_TIMEOUT_MAX),
            HookEvent::SessionStart
            | HookEvent::PreToolUse
            | HookEvent::PostToolUse
            | HookEvent::PostToolUseFailure
            | HookEvent::Stop
            | HookEvent::SubagentStart
            | HookEvent::SubagentStop
            | HookEvent::PreCompact
            | HookEvent::Notification => (TIMEOUT, TIMEOUT_MAX),
        };
        let Some(seconds) = self.timeout else { return Ok(usual) };
        let asked = Duration::try_from_secs_f64(seconds).ok().filter(|asked| !asked.is_zero());
        asked.map(|asked| asked.min(most)).ok_or_else(|| {
            UnusableHook::Wrong(format!("a timeout of {seconds} s is none; give seconds above 0"))
        })
    }
}

impl HookHandler {
    /// The same for a run that is such an agent itself.
    #[must_use]
    pub fn for_main_agent(mut self) -> Self {
        self.agent_type = None;
        if self.event == HookEvent::SubagentStop {
            self.event = HookEvent::Stop;
        }
        self
    }

    /// Whether it forbids what it guards when it fails.
    pub(super) fn is_guard(&self) -> bool {
        self.fail_closed && self.event.objection() == ObjectionUse::Prevents
    }

    /// Its command line and where it is from, for people and the model.
    pub(super) fn title(&self) -> String {
        let line = self.command.line();
        let line = match line.char_indices().nth(TITLE_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        };
        format!("the hook `{line}` ({}: {})", self.source, self.place)
    }

    /// Whether it would do the same as `other` for the same calls.
    fn is_equivalent(&self, other: &Self) -> bool {
        let same_matcher = match (&self.matcher, &other.matcher) {
            (HookMatcher::All, HookMatcher::All) => true,
            (HookMatcher::Names(one), HookMatcher::Names(two)) => one == two,
            (HookMatcher::Pattern(one), HookMatcher::Pattern(two)) => one.as_str() == two.as_str(),
            (HookMatcher::All | HookMatcher::Names(_) | HookMatcher::Pattern(_), _) => false,
        };
        same_matcher
            && self.event == other.event
            && self.agent_type == other.agent_type
            && self.condition == other.condition
            && self.command == other.command
    }
}

/// Whether a group holds a guard.
fn has_guard(group: &Value) -> bool {
    let hooks = group.get("hooks").and_then(Value::as_array);
    hooks.is_some_and(|hooks| hooks.iter().any(|hook| hook["failClosed"] == true))
}

fn bad_hook(place: &str, why: &str) -> BadHook {
    BadHook { place: place.to_owned(), why: why.to_owned() }
}
