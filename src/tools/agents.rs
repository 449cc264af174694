//! Sub-agent definitions, and the `Agent` tool that starts one. The `agent` module runs them: a
//! sub-agent is a run within a run.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::transcript::{Block, ToolDefinition};

use super::background::TaskStops;
use super::catalog::{AGENT, is_agent_tool};
use super::coercion::coerce;
use super::external::{ExternalResult, into_outcome_within};
use super::files_read::FilesRead;
use super::input_names::bare;
use super::outcome::{ToolError, ToolOutcome};
use super::permission::Denial;
use super::settings::{AcceptanceSettings, BadSettings};
use super::structured::STRUCTURED_OUTPUT;
use super::toolbox::Toolbox;
use crate::types::{Effort, PermissionMode};

/// The kind of sub-agent that always exists.
pub const GENERAL_PURPOSE: &str = "general-purpose";

/// The system prompt of the general-purpose kind.
const GENERAL_PROMPT: &str = "You are a sub-agent of outlast: another agent gave you one part of \
    its work. Do that part with the tools you have, and nothing beside it. Questions cannot be \
    answered: where something is left open, take the likeliest reading and say so. Check what \
    you did before you claim it. Your last message is all that the other agent reads of your \
    work: put every finding, path and outcome in it that it needs, say what was not done, and \
    keep it short.";

/// The number of words of the prompt that become the description of a call without one.
const DESCRIPTION_WORDS: usize = 5;

/// A kind of sub-agent, from a file, a flag or built in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentDefinition {
    /// The name that the model uses.
    pub name: String,
    /// The tasks that it is meant for, in a text for the model.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// The only tools it has. `None`: those of the parent.
    pub tools: Option<Vec<String>>,
    /// The list `tools` with the patterns that limit their use, if there are any.
    pub tool_rules: Vec<String>,
    /// Tools that it does not have.
    pub disallowed_tools: Vec<String>,
    /// A model's name or alias. `None`: the model of the parent.
    pub model: Option<String>,
    /// The effort level of its replies. `None`: that of the parent.
    pub effort: Option<Effort>,
    /// The maximum number of turns; a lower limit of the parent applies too.
    pub max_turns: Option<u32>,
    /// The permission mode. Never more permissive than the parent's.
    pub permission_mode: Option<PermissionMode>,
    /// True if it works in the background unless the call says otherwise.
    pub background: bool,
    /// The only servers whose tools it has, besides the tools listed in `tools`; given as prefixes
    /// of tool names. `None`: those of the parent.
    pub servers: Option<Vec<String>>,
}

impl AgentDefinition {
    /// Returns the built-in general-purpose kind.
    pub fn general_purpose() -> Self {
        Self {
            name: GENERAL_PURPOSE.to_owned(),
            description: "for a part of the work that needs several steps: a search that may take \
                          several tries, a question about many files, a change that stands by \
                          itself"
                .to_owned(),
            prompt: GENERAL_PROMPT.to_owned(),
            ..Self::default()
        }
    }

    /// The external tools it may have. `None`: all.
    fn allowed_external(&self) -> Option<Vec<String>> {
        let named = [&self.tools, &self.servers].map(|names| names.iter().flatten().cloned());
        let is_bounded = self.tools.is_some() || self.servers.is_some();
        is_bounded.then(|| named.into_iter().flatten().collect())
    }
}

/// The policy for the other sub-agents of a reply when one of them fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The others continue.
    #[default]
    Continue,
    /// The others are cancelled.
    CancelSiblings,
    /// The others continue, and the failed one is started once more.
    RetryOnce,
}

/// A call of the tool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AgentCall {
    /// A short description of the task.
    pub description: String,
    pub prompt: String,
    #[serde(default = "general_purpose")]
    pub subagent_type: String,
    pub model: Option<String>,
    pub run_in_background: Option<bool>,
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The names of fields that the tool does not have.
    #[serde(skip)]
    pub ignored: Vec<String>,
}

/// The fields of a call.
const FIELDS: [&str; 6] =
    ["description", "prompt", "subagent_type", "model", "run_in_background", "on_failure"];

/// Names that models give to fields, as [`bare`] writes them, and the field that is meant.
const ALIASES: [(&str, &str); 5] = [
    ("agenttype", "subagent_type"),
    ("agent", "subagent_type"),
    ("subagent", "subagent_type"),
    ("task", "prompt"),
    ("instructions", "prompt"),
];

fn general_purpose() -> String {
    GENERAL_PURPOSE.to_owned()
}

impl AgentCall {
    /// Parses the input of a call. A missing description or kind is added to it, and a kind in
    /// other spelling is replaced by the offered name.
    pub(super) fn parse(input: &mut Value, kinds: &[&str]) -> Result<Self, ToolError> {
        if let Some(fields) = input.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
            complete(fields, kinds);
        }
        let mut input = input.clone();
        let flag = json!({ "run_in_background": { "type": "boolean" } });
        coerce(&mut input, &json!({ "type": "object", "properties": flag }));
        let fields = input.as_object().into_iter().flat_map(Map::keys);
        let ignored = fields.filter(|name| !FIELDS.contains(&name.as_str())).cloned().collect();
        let mut call: Self = serde_json::from_value(input)
            .map_err(|error| format!("InputValidationError: {AGENT}: {error}"))?;
        if call.prompt.trim().is_empty() {
            let why = "the field `prompt` is empty: say what the agent is to do";
            return Err(format!("InputValidationError: {AGENT}: {why}").into());
        }
        call.ignored = ignored;
        Ok(call)
    }

    /// The note about fields that the tool does not have, for the model.
    pub fn note(&self) -> Option<String> {
        let names = self.ignored.join("`, `");
        (!self.ignored.is_empty()).then(|| {
            format!(
                "({AGENT} has no `{names}`: ignored. Sub-agents work in the folder of this run.)"
            )
        })
    }
}

/// The field of a call that is meant by a name, which may have another spelling.
fn meant_field(given: &str) -> Option<&'static str> {
    let given = bare(given);
    let alias = || ALIASES.iter().find(|(alias, _)| *alias == given).map(|(_, field)| *field);
    FIELDS.into_iter().find(|field| bare(field) == given).or_else(alias)
}

/// Renames fields, adds a description, and spells the kind as it is offered.
fn complete(fields: &mut Map<String, Value>, kinds: &[&str]) {
    for given in fields.keys().cloned().collect::<Vec<_>>() {
        if let Some(field) = meant_field(&given)
            && !fields.contains_key(field)
            && let Some(value) = fields.remove(&given)
        {
            fields.insert(field.to_owned(), value);
        }
    }
    let is_blank = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
    for name in ["description", "subagent_type"] {
        if fields.get(name).is_some_and(is_blank) {
            fields.remove(name);
        }
    }
    if !fields.contains_key("description")
        && let Some(prompt) = fields.get("prompt").and_then(Value::as_str)
    {
        let words: Vec<&str> = prompt.split_whitespace().take(DESCRIPTION_WORDS).collect();
        let description = words.join(" ");
        fields.insert("description".to_owned(), description.into());
    }
    let spelled = |name: &str| name.to_lowercase().replace(['_', ' '], "-");
    if let Some(Value::String(kind)) = fields.get_mut("subagent_type")
        && !kinds.contains(&kind.as_str())
        && let Some(meant) = kinds.iter().find(|name| spelled(name) == spelled(kind))
    {
        *kind = (*meant).to_owned();
    }
}

/// The tool definition for the model.
fn define(kinds: &[AgentDefinition]) -> ToolDefinition {
    let list: Vec<String> =
        kinds.iter().map(|kind| format!("- {}: {}", kind.name, kind.description)).collect();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    let text = json!({ "type": "string" });
    let about = |what: &str| json!({ "type": "string", "description": what });
    ToolDefinition {
        name: AGENT.to_owned(),
        description: format!(
            "Gives a part of the work to a sub-agent, which has a conversation of its own and \
             sees nothing of this one: say in prompt all that it needs to know. Its last message \
             comes back as the result. Several calls in one reply work side by side. One that \
             fails comes back as an error with what it had finished. With run_in_background the \
             call returns at once, and you are notified when it ends; BashOutput and KillShell look \
             at it and stop it by its id. Kinds:\n{}",
            list.join("\n")
        ),
        input_schema: json!({
            "type": "object",
            "properties": {
                "description": about("what it is for, in 3 to 5 words"),
                "prompt": text,
                "subagent_type": { "type": "string", "enum": names },
                "model": about("another model's name or alias"),
                "run_in_background": { "type": "boolean" },
                "on_failure": {
                    "type": "string",
                    "enum": ["continue", "cancel_siblings", "retry_once"],
                    "description": "if it fails: the other agents of this reply go on (default), \
                                    or are stopped; or it is started once more",
                },
            },
            "required": ["description", "prompt", "subagent_type"],
            "additionalProperties": false,
        }),
    }
}

/// The reason that a sub-agent cannot have any tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubagentToolsError {
    #[error("none of its tools exists here ({})", names.join(", "))]
    NoneExists { names: Vec<String> },
    #[error(transparent)]
    BadSettings(#[from] BadSettings),
}

impl Toolbox {
    /// Offers the tool that starts sub-agents of these kinds, unless the settings leave it out.
    #[must_use]
    pub fn with_agents(mut self, kinds: &[AgentDefinition]) -> Self {
        let denied = self.tools.permissions.forbids_agents(None).is_some();
        if self.settings.offered.names_agents() && !denied {
            let may = |kind: &&AgentDefinition| {
                self.tools.permissions.forbids_agents(Some(&kind.name)).is_none()
            };
            let kinds: Vec<AgentDefinition> = kinds.iter().filter(may).cloned().collect();
            // The structured-output tool, which ends the run, comes last.
            let last = self.definitions.iter().position(|tool| tool.name == STRUCTURED_OUTPUT);
            self.definitions.insert(last.unwrap_or(self.definitions.len()), define(&kinds));
        }
        self
    }

    /// True if sub-agents can be started.
    pub fn offers_agents(&self) -> bool {
        self.definitions.iter().any(|tool| tool.name == AGENT)
    }

    /// The kinds of sub-agents that are offered.
    pub(super) fn offered_kinds(&self) -> Vec<&str> {
        let agent = self.definitions.iter().find(|tool| tool.name == AGENT);
        let kinds = agent.map(|tool| &tool.input_schema["properties"]["subagent_type"]["enum"]);
        kinds.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// True if this is the name of the tool that starts sub-agents. At the maximum nesting depth
    /// the tool is not offered, and a call to it is refused with the reason.
    pub(super) fn is_agent_tool_name(&self, name: &str) -> bool {
        let too_deep = !self.is_root && self.settings.offered.names_agents();
        is_agent_tool(name) && (self.offers_agents() || too_deep)
    }

    /// Checks the permission to start a sub-agent.
    pub(super) fn check_agent(&self, wanted: &AgentCall) -> Result<(), Denial> {
        let permissions = &self.tools.permissions;
        let denied = permissions
            .forbids_agents(None)
            .or_else(|| permissions.forbids_agents(Some(&wanted.subagent_type)));
        match denied {
            Some(rule) => Err(Denial::Agent { kind: wanted.subagent_type.clone(), rule }),
            None => Ok(()),
        }
    }

    /// Derives the toolbox of a sub-agent: a subset of these tools, with its permissions.
    /// Background work that it starts ends no later than this toolbox's own.
    ///
    /// # Errors
    /// None of the requested tools exists, or the settings are invalid.
    pub fn derive_subagent_toolbox(
        &self,
        wanted: &AgentDefinition,
    ) -> Result<Self, SubagentToolsError> {
        let none_exists =
            |names: &[String]| SubagentToolsError::NoneExists { names: names.to_vec() };
        let mut settings = self.settings.clone();
        settings.acceptance = AcceptanceSettings::default();
        // Its conversation is another one.
        settings.files_read = FilesRead::default();
        // Only the run's own commands are reported with their ids: those of sub-agents repeat them.
        settings.stops = TaskStops::default();
        settings.kept_commands = None;
        if let Some(mode) = wanted.permission_mode {
            settings.permissions.mode = settings.permissions.mode.restricted_to(mode);
            settings.live = settings.live.without_mode();
        }
        settings.permissions.deny.extend(wanted.disallowed_tools.iter().cloned());
        if let Some(names) = &wanted.tools {
            let offered = settings.offered.intersection(names);
            settings.offered = offered.ok_or_else(|| none_exists(names))?;
        }
        settings.limits.extend(Some(wanted.tool_rules.clone()).filter(|rules| !rules.is_empty()));
        let mut derived = Self::new(&settings)?;
        derived.foreign.clone_from(&self.foreign);
        derived.only_foreign.clone_from(&self.only_foreign);
        derived.only_foreign.extend(wanted.allowed_external());
        derived.is_root = false;
        let names = wanted.tools.as_deref().unwrap_or_default();
        let has_some =
            !derived.all_definitions().is_empty() || derived.settings.offered.names_agents();
        if names.is_empty() || has_some { Ok(derived) } else { Err(none_exists(names)) }
    }

    /// Prepares a sub-agent's final text for the model: secrets are redacted, and long text is
    /// truncated, with the whole saved in a file.
    pub async fn agent_outcome(&self, text: String, is_error: bool, detail: Value) -> ToolOutcome {
        // Redact before truncating, or half a secret could remain.
        let text = self.redactor.redact(&text);
        let brought = ExternalResult {
            blocks: vec![Block::text(text)],
            is_error,
            ..ExternalResult::default()
        };
        let limit = self.tools.results.built_in();
        let mut outcome = into_outcome_within(brought, limit, &self.tools.shell.scratch).await;
        outcome.detail = detail;
        self.redacted(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_the_tool_does_not_have_are_named() {
        let note = |mut input: Value| {
            AgentCall::parse(&mut input, &[]).expect("a prompt is enough").note()
        };
        assert_eq!(note(json!({ "prompt": "p", "model": "haiku", "isolation": null })), None);
        let note = note(json!({ "prompt": "p", "isolation": "worktree" })).expect("a note");
        assert!(note.contains("Agent has no `isolation`: ignored"), "{note}");
    }

    #[test]
    fn a_call_without_a_description_or_with_a_kind_in_other_spelling_is_completed() {
        let parse = |mut input: Value| {
            AgentCall::parse(&mut input, &[GENERAL_PURPOSE, "Explore"]).map(|call| (call, input))
        };
        for (kind, wanted) in [
            (json!(""), GENERAL_PURPOSE),
            (Value::Null, GENERAL_PURPOSE),
            (json!("General_Purpose"), GENERAL_PURPOSE),
            (json!("explore"), "Explore"),
            (json!("Plan"), "Plan"),
        ] {
            let input =
                json!({ "prompt": "count the files of src, and say so", "subagent_type": kind });
            let (call, input) = parse(input).expect("a call");
            assert_eq!(call.subagent_type, wanted);
            assert_eq!(call.description, "count the files of src,");
            assert_eq!(input["description"], "count the files of src,", "as hooks see it");
        }
        for input in [
            json!({ "task": "p", "agent_type": "Explore" }),
            json!({ "prompt": "p", "agent": "explore" }),
            json!({ "Prompt": "p", "subagentType": "explore" }),
        ] {
            let (call, _) = parse(input).expect("a call");
            assert_eq!((&*call.prompt, &*call.subagent_type, call.note()), ("p", "Explore", None));
        }
        assert!(parse(json!({ "description": "x" })).is_err(), "the prompt is missing");
    }
}
