//! Parses scenario files: TOML, without unknown keys. Errors name file, line and column.
//! The keys are in `file/keys.rs`, and their manual is outlast-scenario(5).

mod check;
mod keys;
mod step;
mod step_error;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use serde::Deserialize;
use toml::Spanned;

use super::rules::ServerRules;
use super::scenario::{
    AfterLast, Expectation, MAIN, Scenario, ScratchFile, ScriptStep, ServerPart,
};
use check::{FileMistake, check_names};
pub use keys::{KeyTable, SCENARIO_TABLES, ScenarioKey};
use step::StepTable;

/// Why a scenario file is invalid.
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

    /// Parses a scenario. Errors call it `file`.
    ///
    /// # Errors
    /// The text is not a valid scenario.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        let wrong = |offset: usize, message: String| {
            let before = text.get(..offset).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            ScenarioError::Wrong {
                file: file.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message,
            }
        };
        check_names(text).map_err(|(offset, message)| wrong(offset, message))?;
        let sheet: ScenarioFile = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            wrong(offset, error.message().replace('\n', " ").trim().to_owned())
        })?;
        sheet.into_scenario().map_err(|(offset, message)| wrong(offset, message))
    }
}

/// A scenario as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: String,
    summary: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    args: Vec<Spanned<String>>,
    #[serde(default)]
    env: BTreeMap<String, Spanned<String>>,
    time_scale: Option<Spanned<f64>>,
    #[serde(default)]
    files: BTreeMap<Spanned<String>, ScratchFile>,
    #[serde(default)]
    rules: ServerRules,
    #[serde(default)]
    step: Vec<Spanned<StepTable>>,
    #[serde(default)]
    compaction: Vec<Spanned<StepTable>>,
    #[serde(default)]
    after: AfterLast,
    #[serde(default)]
    server: BTreeMap<Spanned<String>, PartTable>,
    #[serde(default)]
    expect: Expectation,
}

/// A further server as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartTable {
    #[serde(default)]
    rules: ServerRules,
    #[serde(default)]
    step: Vec<Spanned<StepTable>>,
    #[serde(default)]
    compaction: Vec<Spanned<StepTable>>,
    #[serde(default)]
    after: AfterLast,
    requests: Option<usize>,
}

impl PartTable {
    fn into_part(self) -> Result<ServerPart, FileMistake> {
        Ok(ServerPart {
            rules: self.rules,
            steps: steps(self.step)?,
            compactions: steps(self.compaction)?,
            after: self.after,
            requests: self.requests,
        })
    }
}

fn steps(sheets: Vec<Spanned<StepTable>>) -> Result<Vec<ScriptStep>, FileMistake> {
    let step = |sheet: Spanned<StepTable>| {
        let offset = sheet.span().start;
        sheet.into_inner().into_step().map_err(|error| (offset, error.to_string()))
    };
    sheets.into_iter().map(step).collect()
}

fn servers(
    sheets: BTreeMap<Spanned<String>, PartTable>,
) -> Result<BTreeMap<String, ServerPart>, FileMistake> {
    let part = |(name, sheet): (Spanned<String>, PartTable)| {
        if !is_server_name(name.get_ref()) {
            let message = format!("`{}` cannot be a further server's name", name.get_ref());
            return Err((name.span().start, message));
        }
        Ok((name.into_inner(), sheet.into_part()?))
    };
    sheets.into_iter().map(part).collect()
}

impl ScenarioFile {
    fn into_scenario(self) -> Result<Scenario, FileMistake> {
        let time_scale = match self.time_scale {
            None => 1.0,
            Some(scale) if scale.get_ref().is_finite() && *scale.get_ref() > 0.0 => {
                scale.into_inner()
            }
            Some(scale) => {
                return Err((scale.span().start, "`time_scale` must be above zero".to_owned()));
            }
        };
        let servers = servers(self.server)?;
        let known = |text: &str, offset: usize| match unknown_server(text, &servers) {
            Some(name) => Err((offset, format!("there is no `[server.{name}]`"))),
            None => Ok(()),
        };
        let plain = |text: Spanned<String>| {
            known(text.get_ref(), text.span().start).map(|()| text.into_inner())
        };
        let args = self.args.into_iter().map(plain).collect::<Result<_, _>>()?;
        let env = self.env.into_iter().map(|(name, value)| Ok((name, plain(value)?)));
        let env = env.collect::<Result<_, FileMistake>>()?;
        let mut files = BTreeMap::new();
        for (path, file) in self.files {
            if !stays_inside(path.get_ref()) {
                let message = format!("`{}` does not lie below the scratch folder", path.get_ref());
                return Err((path.span().start, message));
            }
            known(&file.content, path.span().start)?;
            files.insert(path.into_inner(), file);
        }
        let (step, compaction) = (self.step, self.compaction);
        let sheet =
            PartTable { rules: self.rules, step, compaction, after: self.after, requests: None };
        let main = sheet.into_part()?;
        if main.steps.is_empty() && main.rules.require_key.is_none() {
            return Err((0, "a scenario needs at least one `[[step]]`".to_owned()));
        }
        Ok(Scenario {
            name: self.name,
            summary: self.summary,
            prompt: self.prompt,
            args,
            env,
            time_scale,
            files,
            main,
            servers,
            expect: self.expect,
        })
    }
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

/// Whether a path stays below the folder it is joined to.
fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
