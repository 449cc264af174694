//! Parses scenario files: TOML, without unknown keys. Errors name file, line and column.
//! The keys are in `file/keys.rs`, and their manual is outlast-scenario(5).

mod check;
mod keys;
mod read;
mod step;
mod step_error;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::scenario::{MAIN, Scenario, ScriptStep, ServerPart};
use check::{FileMistake, check_keys};
pub use keys::{KeyTable, SCENARIO_TABLES, ScenarioKey};
use read::{fields, items, read, read_value};
use step::StepTable;

/// The reason that a scenario file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot read scenario {file}: {source}")]
    Unreadable { file: String, source: std::io::Error },
    #[error("{file}:{line}:{column}: {message}")]
    Wrong { file: String, line: usize, column: usize, message: String },
}

impl Scenario {
    /// Loads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid scenario.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let file = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(source) => Err(ScenarioError::Unreadable { file, source }),
        }
    }

    /// Parses a scenario. Errors name it `file`.
    ///
    /// # Errors
    /// The text is not a valid scenario.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        read_file(text).map_err(|(offset, message)| {
            let before = text.get(..offset).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            ScenarioError::Wrong {
                file: file.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message: message.replace('\n', " ").trim().to_owned(),
            }
        })
    }
}

fn read_file(text: &str) -> Result<Scenario, FileMistake> {
    let file = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        (offset, error.message().to_owned())
    })?;
    check_keys(&file)?;
    let file = file.get_ref();
    let servers = servers(file)?;
    check_references(file, &servers)?;
    let main = part(file)?;
    if main.steps.is_empty() && main.rules.require_key.is_none() {
        return Err((0, "a scenario needs at least one `[[step]]`".to_owned()));
    }
    Ok(Scenario {
        name: read(file, "name")?,
        summary: read(file, "summary")?,
        prompt: read(file, "prompt")?,
        args: read(file, "args")?,
        env: read(file, "env")?,
        time_scale: read::<Option<_>>(file, "time_scale")?.unwrap_or(1.0),
        files: read(file, "files")?,
        main,
        servers,
        expect: read(file, "expect")?,
    })
}

fn servers(file: &DeTable<'_>) -> Result<BTreeMap<String, ServerPart>, FileMistake> {
    let mut servers = BTreeMap::new();
    for (name, value) in fields(file, "server") {
        if !is_server_name(name.get_ref()) {
            let message = format!("`{}` cannot be a further server's name", name.get_ref());
            return Err((name.span().start, message));
        }
        if let DeValue::Table(table) = value.get_ref() {
            servers.insert(name.get_ref().to_string(), part(table)?);
        }
    }
    Ok(servers)
}

/// Reads the script of a server. The file itself is that of the main one.
fn part(table: &DeTable<'_>) -> Result<ServerPart, FileMistake> {
    Ok(ServerPart {
        rules: read(table, "rules")?,
        steps: steps(table, "step")?,
        compactions: steps(table, "compaction")?,
        compactions_vary: read::<Option<_>>(table, "compactions_vary")?.unwrap_or_default(),
        after: read(table, "after")?,
        requests: read(table, "requests")?,
    })
}

fn steps(table: &DeTable<'_>, key: &str) -> Result<Vec<ScriptStep>, FileMistake> {
    let step = |value: &Spanned<DeValue<'_>>| {
        let step = read_value::<StepTable>(value)?.into_step();
        step.map_err(|error| (value.span().start, error.to_string()))
    };
    items(table, key).map(step).collect()
}

/// Checks the paths of files, and that each server exists that a text refers to.
fn check_references(
    file: &DeTable<'_>,
    servers: &BTreeMap<String, ServerPart>,
) -> Result<(), FileMistake> {
    let known = |value: &DeValue<'_>, span: Range<usize>| match value
        .as_str()
        .and_then(|text| unknown_server(text, servers))
    {
        Some(name) => Err((span.start, format!("there is no `[server.{name}]`"))),
        None => Ok(()),
    };
    for value in items(file, "args").chain(fields(file, "env").map(|(_, value)| value)) {
        known(value.get_ref(), value.span())?;
    }
    for (path, value) in fields(file, "files") {
        if !stays_inside(path.get_ref()) {
            let message = format!("`{}` does not lie below the scratch folder", path.get_ref());
            return Err((path.span().start, message));
        }
        if let Some(content) = value.get_ref().get("content") {
            known(content.get_ref(), path.span())?;
        }
    }
    Ok(())
}

fn is_server_name(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || one == '-' || one == '_';
    name != MAIN && !name.is_empty() && name.chars().all(fits)
}

/// The first server that a text refers to but that is not defined.
fn unknown_server<'a>(text: &'a str, servers: &BTreeMap<String, ServerPart>) -> Option<&'a str> {
    let rests = text.split("{server.").skip(1);
    let mut names = rests.filter_map(|rest| rest.split_once(".url}").map(|(name, _)| name));
    names.find(|name| is_server_name(name) && !servers.contains_key(*name))
}

/// Returns true if a path stays below the folder that it is joined to.
fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
