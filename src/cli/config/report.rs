//! The settings in force as text or JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::doctor::shown;
use crate::cli::output::{Paragraph, Screen, Tone, break_at_separators, columns_of, one_line};
use crate::cli::prompts::PromptLibrary;
use crate::cli::settings::{FileState, SettingsFile, SettingsSurvey};
use crate::cli::version::SCHEMA_VERSION;
use crate::config::fold::{DEFAULT, EffectiveValue};
use crate::config::registry;

/// Maximum width of values that define the column of the origins.
const VALUE_MAX: usize = 26;

/// Indentation of continuation lines.
const CONTINUED: usize = 4;

/// The group of values with a flag or a variable, but without a setting.
const OTHERS: &str = "Other";

/// A line of a group: a name, a value, and its source.
struct ConfigLine {
    name: String,
    value: String,
    origin: String,
    is_changed: bool,
}

/// Renders the settings in groups, then files, definitions, warnings and mistakes. The mistakes are
/// last, because the end stays visible on a terminal.
pub(super) fn text(survey: &SettingsSurvey, only_changed: bool, screen: &Screen) -> String {
    let mut groups: Vec<(&str, Vec<ConfigLine>)> = Vec::new();
    for one in listed(survey, only_changed) {
        let line = ConfigLine {
            name: one_line(&one.name),
            value: one_line(&shown(&one.value)),
            origin: one_line(&one.origin),
            is_changed: is_changed(one),
        };
        let group = group_of(&one.name);
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, lines)) => lines.push(line),
            None => groups.push((group, vec![line])),
        }
    }
    let mut text = String::new();
    if groups.is_empty() {
        text.push_str("All settings are at their defaults.\n");
    }
    let lines = || groups.iter().flat_map(|(_, lines)| lines);
    let names = lines().map(|line| columns_of(&line.name)).max().unwrap_or_default();
    let values = lines().map(|line| columns_of(&line.value)).filter(|width| *width <= VALUE_MAX);
    let values = values.max().unwrap_or_default();
    for (group, lines) in &groups {
        heading(&mut text, group, screen);
        for line in lines {
            text += &setting_line(line, names, values, screen);
        }
    }
    add_rest(&mut text, survey, screen);
    text
}

fn setting_line(line: &ConfigLine, names: usize, values: usize, screen: &Screen) -> String {
    let ConfigLine { name, value, origin, is_changed } = line;
    let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(columns_of(text)));
    let styling = screen.styling;
    let (tone, origin_tone) =
        if *is_changed { (Tone::Strong, Tone::Plain) } else { (Tone::Plain, Tone::Faint) };
    let start = 2 + names + 2;
    let whole = start + columns_of(value).max(values) + 2 + columns_of(origin);
    if screen.is_terminal && whole > screen.columns {
        let room = screen.columns.saturating_sub(start).max(VALUE_MAX);
        let value = break_at_separators(value, room);
        let value = value.iter().map(|piece| styling.paint(tone, piece));
        let origin = break_at_separators(origin, room);
        let origin = origin.iter().map(|piece| styling.paint(origin_tone, piece));
        let lines = value.chain(origin).collect::<Vec<_>>();
        let lines = lines.join(&format!("\n{}", " ".repeat(start)));
        return format!("  {name}{}  {lines}\n", pad(name, names));
    }
    format!(
        "  {name}{}  {}{}  {}\n",
        pad(name, names),
        styling.paint(tone, value),
        pad(value, values),
        styling.paint(origin_tone, origin)
    )
}

fn heading(text: &mut String, name: &str, screen: &Screen) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&screen.styling.paint(Tone::Strong, name));
    text.push('\n');
}

/// Adds the sections after the values: files, definitions, warnings and mistakes.
fn add_rest(text: &mut String, survey: &SettingsSurvey, screen: &Screen) {
    let files = survey.inputs.sources.files.iter().filter(|file| file.state != FileState::Absent);
    let files = files.map(|file| format!("{}  ({})", one_line(&file.path), file.state.describe()));
    let definitions = definitions(&survey.inputs.sources.library).into_iter();
    let definitions = definitions
        .map(|(kind, name, file)| format!("{kind} {}  ({})", one_line(name), one_line(file)));
    let foreign = survey.inputs.fold.foreign.iter();
    let foreign = foreign.map(|(key, place)| format!("{place}: {key}, which has no effect here"));
    for (name, lines, tone) in [
        ("Files, lowest first", files.collect::<Vec<_>>(), Tone::Plain),
        ("Agents, commands and skills", definitions.collect(), Tone::Plain),
        ("Settings of other tools", foreign.map(|it| one_line(&it)).collect(), Tone::Plain),
        ("Warnings", survey.all_warnings().map(|it| one_line(it)).collect(), Tone::Warning),
        (
            "Mistakes, with which no run begins",
            survey.inputs.mistakes.iter().map(|it| one_line(it)).collect(),
            Tone::Failure,
        ),
    ] {
        if lines.is_empty() {
            continue;
        }
        heading(text, name, screen);
        for line in lines {
            // Lines are not broken for programs such as grep.
            let width = if screen.is_terminal { screen.columns - CONTINUED } else { usize::MAX };
            let lines = Paragraph::of(tone, &line).wrap(width, screen.styling);
            let indent = format!("\n{}", " ".repeat(CONTINUED));
            let _ = writeln!(text, "  {}", lines.join(&indent));
        }
    }
}

fn is_changed(one: &EffectiveValue) -> bool {
    one.origin != DEFAULT
}

fn listed(survey: &SettingsSurvey, only_changed: bool) -> impl Iterator<Item = &EffectiveValue> {
    survey.effective.iter().filter(move |one| !only_changed || is_changed(one))
}

/// Returns the group of a value by its name: a setting, or a member of a setting.
fn group_of(name: &str) -> &'static str {
    let has = |key: &str| {
        name.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut topics = registry::topics();
    let found = topics.find(|(_, settings)| settings.iter().any(|setting| has(setting.key)));
    found.map_or(OTHERS, |(topic, _)| topic)
}

/// Lists the kinds, names and files of agents, commands and skills.
fn definitions(library: &PromptLibrary) -> Vec<(&'static str, &str, &str)> {
    let agents = library.agents.iter().map(|it| ("agent", &it.definition.name, &it.file));
    let commands = library.commands.iter().map(|it| (it.kind.into_str(), &it.name, &it.file));
    agents.chain(commands).map(|(kind, name, file)| (kind, name.as_str(), file.as_str())).collect()
}

pub(super) fn object(survey: &SettingsSurvey, only_changed: bool) -> Value {
    let file = |file: &SettingsFile| json!({ "path": file.path, "state": file.state.describe() });
    let definitions = definitions(&survey.inputs.sources.library).into_iter();
    let definitions =
        definitions.map(|(kind, name, file)| json!({ "kind": kind, "name": name, "file": file }));
    let foreign =
        survey.inputs.fold.foreign.iter().map(|(key, place)| json!({ "key": key, "place": place }));
    json!({
        "type": "config",
        "schema_version": SCHEMA_VERSION,
        "files": survey.inputs.sources.files.iter().map(file).collect::<Vec<_>>(),
        "settings": listed(survey, only_changed).collect::<Vec<_>>(),
        "definitions": definitions.collect::<Vec<_>>(),
        "unknown": foreign.collect::<Vec<_>>(),
        "ignored_settings": survey.inputs.sources.ignored,
        "warnings": survey.all_warnings().collect::<Vec<_>>(),
        "errors": survey.inputs.mistakes,
    })
}
