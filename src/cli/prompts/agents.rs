//! Sub-agent definitions: from files, and from `--agents`.

use std::fmt;

use anyhow::Context;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::config::file::inline_or_file;
use crate::config::written_json;
use crate::hooks::{HookSettings, SkippedHook};
use crate::json;
use crate::mcp::tool_name_prefix;
use crate::tools::{
    AgentDefinition, GENERAL_PURPOSE, PermissionMode, ToolName, classify_tool_name,
};

use super::folders::PromptFile;
use super::library::{LibraryEntry, NamedAgent, PromptLibrary};
use crate::cli::front_matter::{self, FrontMatter};
use crate::cli::usage::UsageError;
use crate::types::Effort;

/// Maximum length of a name, in characters: the model has to repeat it.
const NAME_MAX: usize = 64;

/// Maximum length of a description, in characters. The model reads all descriptions.
const DESCRIPTION_MAX: usize = 4_000;

/// Maximum size of the file that `--agents` names, in bytes.
const FLAG_BYTES_MAX: u64 = 4 << 20;

/// Fields of other tools that have no effect here.
const WITHOUT_EFFECT: [&str; 6] =
    ["memory", "isolation", "initialPrompt", "omitClaudeMd", "autoCompactWindow", "observer"];

/// Fields that only trusted files may set: they extend rights or cost.
const TRUSTED_ONLY: [&str; 5] = ["permissionMode", "hooks", "mcpServers", "model", "effort"];

/// Returns the name of the agent that a file defines: that in its front matter, or of the file.
///
/// # Errors
/// The reason why the file defines no agent. `None`: it is not meant to, like a README.
pub(super) fn name(
    prompt_file: &PromptFile,
    fields: &FrontMatter,
) -> Result<String, Option<String>> {
    let stem = prompt_file.relative.file_stem().unwrap_or_default();
    if stem.eq_ignore_ascii_case("readme") && !fields.has("name") {
        return Err(None);
    }
    let name = fields.text("name").unwrap_or_else(|| stem.to_string_lossy().into_owned());
    if !is_valid_name(&name) {
        return Err(Some(invalid_name()));
    }
    if fields.text("description").is_none() {
        return Err(Some("its front matter has no \"description\"".to_owned()));
    }
    Ok(name)
}

fn is_valid_name(name: &str) -> bool {
    !name.chars().any(char::is_control) && name.chars().count() <= NAME_MAX
}

fn invalid_name() -> String {
    format!("its name is longer than {NAME_MAX} characters, or has control characters")
}

/// Adds the agent that a file defines to the library.
pub(super) fn add_agent(entry: &LibraryEntry, library: &mut PromptLibrary) {
    let LibraryEntry { prompt_file, fields, name } = entry;
    if !prompt_file.is_trusted() && name == GENERAL_PURPOSE {
        // Calls without an agent type use this one.
        return library.withhold(
            prompt_file,
            None,
            "only a trusted file replaces a built-in agent",
        );
    }
    let mut definition = define(name, fields, front_matter::body(&prompt_file.text));
    if let (Some(plugin), Some(servers)) = (&prompt_file.namespace, &mut definition.servers) {
        // The names may be those that the plugin gives its servers.
        let names = fields.words("mcpServers").unwrap_or_default().into_iter();
        servers.extend(names.map(|it| tool_name_prefix(&format!("plugin:{plugin}:{it}"))));
    }
    if let Some(why) = prompt_file.trust.distrust() {
        let harmless = |field: &str| {
            field == "model" && fields.text(field).is_some_and(|model| model == "inherit")
        };
        let withheld = TRUSTED_ONLY.iter().filter(|field| fields.has(field) && !harmless(field));
        for field in withheld {
            library.withhold(prompt_file, Some(field), why);
        }
        (definition.permission_mode, definition.model) = (None, None);
        (definition.servers, definition.effort) = (None, None);
    }
    let file = prompt_file.shown.clone();
    library.warnings.extend(without_effect(&file, fields));
    if prompt_file.is_trusted() {
        library.warnings.extend(inline_servers(&file, fields));
    }
    library.warnings.extend(invalid_values(&file, fields));
    let mut hooks = hooks(name, fields, &file).unwrap_or_else(|why| {
        library.warnings.push(format!("{why:#}, so none of its hooks runs"));
        HookSettings::default()
    });
    if !prompt_file.is_trusted() {
        hooks = HookSettings::default();
    }
    let skills = fields.words("skills").unwrap_or_default();
    library.warnings.extend(hooks.skipped.iter().map(|it| skipped(&file, it)));
    library.agents.push(NamedAgent { definition, file, skills, hooks: hooks.handlers });
}

fn define(name: &str, fields: &FrontMatter, prompt: &str) -> AgentDefinition {
    let is_all = |words: &Vec<String>| words.iter().any(|word| word == "*");
    // Skills and commands call the field `allowed-tools`.
    let tools = fields.words("tools").or_else(|| fields.words("allowed-tools"));
    let tools = tools.filter(|words| !is_all(words)).map(exact_rules);
    let has_pattern = |rules: &&Vec<String>| rules.iter().any(|rule| rule.contains('('));
    let description = fields.text("description").unwrap_or_default();
    AgentDefinition {
        name: name.to_owned(),
        description: description.chars().take(DESCRIPTION_MAX).collect(),
        prompt: prompt.trim().to_owned(),
        tool_rules: tools.as_ref().filter(has_pattern).cloned().unwrap_or_default(),
        tools: tools.map(names),
        disallowed_tools: fields.words("disallowedTools").map(exact_rules).unwrap_or_default(),
        model: fields.text("model").filter(|model| model != "inherit"),
        effort: fields.text("effort").and_then(|level| Effort::parse(&level)),
        max_turns: fields.count("maxTurns").filter(|turns| *turns > 0),
        permission_mode: fields.text("permissionMode").and_then(|m| PermissionMode::parse(&m)),
        background: fields.flag("background").unwrap_or_default(),
        servers: fields
            .words("mcpServers")
            .map(|names| names.iter().map(|it| tool_name_prefix(it)).collect()),
    }
}

/// Corrects misspelled names of tools in rules.
fn exact_rules(rules: Vec<String>) -> Vec<String> {
    let exact = |rule: String| match classify_tool_name(&rule) {
        ToolName::Misspelled(name) => match rule.split_once('(') {
            Some((_, pattern)) => format!("{name}({pattern}"),
            None => name,
        },
        ToolName::Known | ToolName::McpServer(_) | ToolName::Unknown(_) => rule,
    };
    rules.into_iter().map(exact).collect()
}

/// Returns the tool names, each once, without rules in parentheses.
fn names(tools: Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for tool in tools {
        let name = tool.split('(').next().unwrap_or_default().trim();
        if !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Warns about fields of other tools that have no effect.
fn without_effect(file: &str, fields: &FrontMatter) -> Option<String> {
    let given: Vec<&str> = WITHOUT_EFFECT.into_iter().filter(|field| fields.has(field)).collect();
    (!given.is_empty()).then(|| {
        let given = given.join(", ");
        format!("{file}: {given}: not supported for agents by this version of outlast, no effect")
    })
}

/// Returns the hooks of this agent.
///
/// # Errors
/// They are invalid.
fn hooks(kind: &str, fields: &FrontMatter, file: &str) -> anyhow::Result<HookSettings> {
    let Some(value) = fields.value("hooks") else { return Ok(HookSettings::default()) };
    let read = HookSettings::parse(value, file).with_context(|| file.to_owned())?;
    Ok(read.for_agent_type(kind))
}

fn skipped(file: &str, skipped: &SkippedHook) -> String {
    format!("{file}: {}: {}, no effect", skipped.place, skipped.why)
}

/// Warns about inline MCP server definitions, which are not supported.
fn inline_servers(file: &str, fields: &FrontMatter) -> Option<String> {
    fields.holds_more_than_texts("mcpServers").then(|| {
        format!(
            "{file}: mcpServers: only names of servers that are configured elsewhere count for \
             agents; what is defined there has no effect"
        )
    })
}

/// Warns about invalid values.
fn invalid_values(file: &str, fields: &FrontMatter) -> Option<String> {
    let mode = fields.text("permissionMode");
    let bad_mode = mode.is_some_and(|mode| PermissionMode::parse(&mode).is_none());
    let turns = fields.has("maxTurns") && fields.count("maxTurns").is_none_or(|turns| turns == 0);
    let effort = fields.text("effort").is_some_and(|level| Effort::parse(&level).is_none());
    let bad = [(bad_mode, "permissionMode"), (turns, "maxTurns"), (effort, "effort")];
    let bad: Vec<&str> = bad.iter().filter(|(bad, _)| *bad).map(|(_, field)| *field).collect();
    (!bad.is_empty()).then(|| format!("{file}: {} makes no sense, no effect", bad.join(" and ")))
}

/// The members of an object in order, duplicates included.
struct OrderedMembers(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for OrderedMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = OrderedMembers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of agents")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedMembers, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(OrderedMembers(pairs))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// Reads the value of `--agents`: JSON, or a file of it.
///
/// # Errors
/// A mistake in the value, which is a hard error here, unlike in files.
pub(in crate::cli) fn parse_flag(
    given: &str,
) -> Result<(Vec<NamedAgent>, Vec<String>), UsageError> {
    // A list is no object, and rarely the name of a file.
    let is_list = given.trim_start().starts_with('[') && json::read_str::<Value>(given).is_ok();
    let (place, text) = if is_list {
        ("--agents".to_owned(), given.to_owned())
    } else {
        inline_or_file("--agents", given, FLAG_BYTES_MAX)?
    };
    let text = &*written_json(&text);
    let OrderedMembers(all) = json::read_str(text).map_err(|error| {
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or_default();
        let (line, column) = (error.line(), error.column());
        UsageError::new(format!(
            "{place}:{line}:{column}: not an object of agents: {why}; write {{\"name\": \
             {{\"description\": \"...\", \"prompt\": \"...\"}}}}"
        ))
    })?;
    let (mut agents, mut warnings) = (Vec::<NamedAgent>::new(), Vec::new());
    for (name, value) in all {
        let wrong = |what: &str| UsageError::new(format!("{place}: {name:?} {what}"));
        let Value::Object(mut fields) = value else { return Err(wrong("is not an object")) };
        if fields.get("effort").is_some_and(Value::is_number) {
            // The SDKs allow a number, and do not define which level it means.
            fields.shift_remove("effort");
            warnings
                .push(format!("{place}: {name:?}: effort: only names of levels have an effect"));
        }
        let fields = FrontMatter::of(fields);
        for field in ["description", "prompt"] {
            if fields.text(field).is_none() {
                return Err(wrong(&format!("needs a text {field:?}")));
            }
        }
        let about = format!("{place}: {name:?}");
        let name = name.trim();
        if !is_valid_name(name) {
            return Err(wrong(&invalid_name()));
        }
        if name.is_empty() {
            return Err(wrong("is not a name"));
        }
        if agents.iter().any(|agent| agent.definition.name == name) {
            return Err(wrong("is defined twice; take one of them out"));
        }
        if let Some(invalid) = invalid_values(&about, &fields) {
            return Err(UsageError::new(invalid.replace("no effect", "correct it")));
        }
        warnings.extend(without_effect(&about, &fields));
        warnings.extend(inline_servers(&about, &fields));
        let prompt = fields.text("prompt").unwrap_or_default();
        let definition = define(name, &fields, &prompt);
        let hooks = hooks(name, &fields, &about)?;
        let (file, skills) = (place.clone(), fields.words("skills").unwrap_or_default());
        warnings.extend(hooks.skipped.iter().map(|it| skipped(&about, it)));
        agents.push(NamedAgent { definition, file, skills, hooks: hooks.handlers });
    }
    Ok((agents, warnings))
}
