//! Commands and skills: prompts that are called by name.

use std::path::{Component, Path};

use super::folders::PromptFile;
use super::library::{CommandKind, LibraryEntry, PromptCommand, PromptLibrary, RequestedSettings};
use crate::cli::front_matter::{self, FrontMatter};
use crate::config::repository::IgnoredSetting;
use crate::text::words_joined;
use crate::types::Effort;

/// Maximum length of a description that is taken from the first line of the text, in characters.
const DESCRIPTION_MAX: usize = 200;

/// Characters allowed in a name besides letters and digits.
const MARKS: &str = "_-.:";

/// Returns the name of the command that a file defines.
///
/// # Errors
/// The reason why its path is not a valid name.
pub(super) fn command_name(
    prompt_file: &PromptFile,
    _: &FrontMatter,
) -> Result<String, Option<String>> {
    let stem = prompt_file.relative.with_extension("");
    let parts = stem.components().map(|part| match part {
        Component::Normal(part) => part.to_str().filter(|part| is_name(part)),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    });
    let parts: Option<Vec<&str>> = parts.collect();
    parts.map(|parts| parts.join(":")).ok_or_else(|| Some(NO_NAME.to_owned()))
}

/// Returns the name of a skill: that of its folder, which its front matter only repeats.
///
/// # Errors
/// The reason why the name of its folder is not a valid name.
pub(super) fn skill_name(
    prompt_file: &PromptFile,
    _: &FrontMatter,
) -> Result<String, Option<String>> {
    let folder = prompt_file.relative.parent().and_then(Path::to_str);
    let name = folder.filter(|name| is_name(name)).map(ToOwned::to_owned);
    name.ok_or_else(|| Some(NO_NAME.to_owned()))
}

const NO_NAME: &str = "its name has characters other than letters, digits, hyphens and dots";

/// Returns true if this is a valid name.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(char::is_alphanumeric)
        && text.chars().all(|letter| letter.is_alphanumeric() || MARKS.contains(letter))
}

/// Fields of other tools that have no effect here.
const WITHOUT_EFFECT: [&str; 3] = ["hooks", "context", "agent"];

/// Adds the command or skill that a file defines to the library. If it `is_listed`, the model may
/// use it by itself.
pub(super) fn add_command(
    entry: &LibraryEntry,
    kind: CommandKind,
    is_listed: bool,
    library: &mut PromptLibrary,
) {
    let LibraryEntry { prompt_file, fields, name } = entry;
    let body = front_matter::body(&prompt_file.text).trim().to_owned();
    if body.is_empty() {
        library.warnings.push(format!("{} is left out: it says nothing", prompt_file.shown));
        return;
    }
    if fields.text("effort").is_some_and(|level| Effort::parse(&level).is_none()) {
        let file = &prompt_file.shown;
        library.warnings.push(format!("{file}: effort makes no sense, no effect"));
    }
    let description = [fields.text("description"), fields.text("when-to-use")];
    let description = description.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let description = if description.is_empty() { first_line(&body) } else { description };
    library.commands.push(PromptCommand {
        name: name.clone(),
        kind,
        description: words_joined(&description),
        hint: fields.text("argument-hint"),
        path: prompt_file.path.clone(),
        file: prompt_file.shown.clone(),
        body,
        arguments: fields.words("arguments").unwrap_or_default(),
        variables: prompt_file.variables.clone(),
        without_effect: WITHOUT_EFFECT.into_iter().filter(|field| fields.has(field)).collect(),
        requested: requested_settings(prompt_file, fields),
        trusted: prompt_file.is_trusted(),
        user_callable: fields.flag("user-invocable").unwrap_or(true),
        model_callable: is_listed && !fields.flag("disable-model-invocation").unwrap_or_default(),
        rank: prompt_file.rank,
    });
}

fn requested_settings(prompt_file: &PromptFile, fields: &FrontMatter) -> RequestedSettings {
    let grants = fields.words("allowed-tools").unwrap_or_default();
    // Denials need no trust, because they only restrict.
    let denials = fields.words("disallowed-tools").unwrap_or_default();
    let model = fields.text("model").filter(|model| model != "inherit" && model != "default");
    let effort = fields.text("effort").and_then(|level| Effort::parse(&level));
    let Some(why) = prompt_file.trust.distrust() else {
        return RequestedSettings { grants, denials, model, effort, withheld: Vec::new() };
    };
    let wanted = [
        (!grants.is_empty(), "allowed-tools"),
        (model.is_some(), "model"),
        (effort.is_some(), "effort"),
    ];
    let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
    let withheld = wanted.map(|(_, field)| IgnoredSetting {
        file: prompt_file.shown.clone(),
        key: Some(field.to_owned()),
        why: why.to_owned(),
    });
    let withheld = withheld.collect();
    RequestedSettings { denials, withheld, ..RequestedSettings::default() }
}

fn first_line(body: &str) -> String {
    let mut lines = body.lines().map(|line| line.trim_start_matches('#').trim());
    let line = lines.find(|line| !line.is_empty()).unwrap_or("no description");
    line.chars().take(DESCRIPTION_MAX).collect()
}
