//! Parses and writes scenario files: TOML, without unknown keys. Errors name file, line, column and
//! key.
//!
//! The manual of the keys, outlast-scenario(5), is generated from the schema of the parsed types,
//! whose texts are the doc comments of the fields.

mod step;
mod step_error;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::Segment;
use strsim::osa_distance;
use toml::Spanned;

use super::rules::ServerRules;
use super::scenario::{
    AfterLast, Expectation, MAIN, Scenario, ScratchFile, ScriptStep, ServerPart,
};
use super::scripted_values::above_zero;
use step::StepTable;
pub use write::ScenarioComments;

/// The reason that a scenario file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read scenario {file}: {source}")]
    Unreadable {
        /// The path.
        file: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The text is not a valid scenario.
    #[error("{file}:{line}:{column}: {message}")]
    Wrong {
        /// The path, or another name of the text.
        file: String,
        /// The line of the mistake, counted from 1.
        line: usize,
        /// Its column in characters, counted from 1.
        column: usize,
        /// The mistake, with the path of its key.
        message: String,
    },
}

/// A mistake: its offset in the text, in bytes, and its message.
type FileMistake = (usize, String);

/// The command line of a run, the answers of the model server, and the expected end.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileTable {
    /// The name of the scenario, for messages.
    name: String,
    /// One sentence that says what happens.
    summary: String,
    /// The prompt of the run. `${cwd}` is replaced by the path of the scratch folder.
    #[serde(default)]
    prompt: String,
    /// Further flags of `outlast run`. `${cwd}` is replaced by the path of the scratch folder,
    /// `{server.NAME.url}` by the address of a server. The server at the base URL is called `main`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    args: Vec<Spanned<String>>,
    /// Environment variables of the run and its commands, with the placeholders of `args`. By
    /// default `HOME` is a scratch folder.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    env: BTreeMap<String, Spanned<String>>,
    /// The number of seconds of the run that pass in one real second. 1 by default.
    #[serde(default = "real_time", deserialize_with = "above_zero")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    time_scale: f64,
    /// The files of the scratch folder, by relative path. `{server.NAME.url}` in their contents is
    /// replaced by the address of a server.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ScratchFile>")]
    files: BTreeMap<Spanned<String>, ScratchFile>,
    /// The answers, in order. A request gets the first remaining step whose `when` matches it.
    #[serde(default)]
    #[schemars(with = "Vec<StepTable>")]
    step: Vec<Spanned<StepTable>>,
    /// Answers to requests for a summary, with the keys of `[[step]]`. If there are none, the steps
    /// answer these requests, too.
    #[serde(default)]
    #[schemars(with = "Vec<StepTable>")]
    compaction: Vec<Spanned<StepTable>>,
    /// Whether the number of summaries depends on the sizes of tool results. Then a
    /// `[[compaction]]` may be left over, and the last one is repeated.
    #[serde(default)]
    compactions_vary: bool,
    /// The answer to requests after the last step.
    #[serde(default)]
    after: AfterLast,
    /// Further rules of the server.
    #[serde(default)]
    rules: ServerRules,
    /// Further servers, by name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ServerTable>")]
    server: BTreeMap<Spanned<String>, ServerTable>,
    /// The expected end of the run.
    #[serde(default)]
    expect: Expectation,
}

fn real_time() -> f64 {
    1.0
}

/// A further server, with its own script.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ServerTable {
    /// As at the top level of the file.
    rules: ServerRules,
    /// As at the top level of the file.
    #[schemars(with = "Vec<StepTable>")]
    step: Vec<Spanned<StepTable>>,
    /// As at the top level of the file.
    #[schemars(with = "Vec<StepTable>")]
    compaction: Vec<Spanned<StepTable>>,
    /// As at the top level of the file.
    compactions_vary: bool,
    /// As at the top level of the file.
    after: AfterLast,
    /// The number of requests that the server must get.
    requests: Option<usize>,
}

/// The JSON Schema of scenario files. It describes each key.
pub fn file_schema() -> Value {
    schema_for!(FileTable).to_value()
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
    let source = toml::Deserializer::parse(text).map_err(|error| mistake(&error, &[]))?;
    let file: FileTable = serde_path_to_error::deserialize(source)
        .map_err(|error| mistake(error.inner(), &key_path(error.path())))?;
    file.into_scenario()
}

/// The keys that lead to a value, outermost first. Names of servers and files are not known here.
fn key_path(path: &serde_path_to_error::Path) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for segment in path {
        match (segment, keys.last_mut()) {
            (Segment::Seq { index }, Some(list)) => list.extend(["[", &index.to_string(), "]"]),
            // The keys with which `Spanned` is deserialized.
            (Segment::Map { key }, _) if key.starts_with("$__serde_spanned") => {}
            (Segment::Map { key } | Segment::Enum { variant: key }, _) => keys.push(key.clone()),
            (Segment::Seq { .. } | Segment::Unknown, _) => keys.push("NAME".to_owned()),
        }
    }
    keys
}

/// Converts an error of the parser: adds the path of its key, and a suggestion for an unknown name.
fn mistake(error: &toml::de::Error, keys: &[String]) -> FileMistake {
    let text = error.message();
    // This message already names the last key.
    let keys = if text.starts_with("unknown field") {
        keys.split_last().map_or(keys, |(_, outer)| outer)
    } else {
        keys
    };
    let mut message = with_terms_of_manual(text);
    if let Some(name) = most_similar_name(text) {
        message = format!("{message}; did you mean `{name}`?");
    }
    if !keys.is_empty() {
        message = format!("`{}`: {message}", keys.join("."));
    }
    (error.span().map_or(0, |span| span.start), message)
}

/// Replaces the name of the expected type in a message by the term of the manual.
fn with_terms_of_manual(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "a map" => "a table",
        "a sequence" => "a list",
        "f64" => "a number above 0",
        "a boolean" => "true or false",
        "i64" => "a whole number",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "a nonzero u64" | "a nonzero usize" => "a whole number from 1",
        of_type if of_type.starts_with("struct ") => "a table",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// The known name that is most similar to the unknown one in a message of serde such as: unknown
/// field `a`, expected one of `b`, `c`.
fn most_similar_name(message: &str) -> Option<&str> {
    let is_name = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let mut names = message.split('`').skip(1).step_by(2);
    let given = names.next().filter(|_| is_name)?;
    let (distance, name) = names.map(|known| (osa_distance(given, known), known)).min()?;
    // At most a third of the letters and at most three may be wrong.
    (distance <= (given.len() / 3).clamp(1, 3)).then_some(name)
}

impl FileTable {
    fn into_scenario(self) -> Result<Scenario, FileMistake> {
        let mut servers = BTreeMap::new();
        for (name, server) in self.server {
            if !is_server_name(name.get_ref()) {
                let message = format!("`{}` cannot be a further server's name", name.get_ref());
                return Err((name.span().start, message));
            }
            servers.insert(name.into_inner(), server.into_part()?);
        }
        for text in self.args.iter().chain(self.env.values()) {
            check_references(text.get_ref(), text.span().start, &servers)?;
        }
        for (path, file) in &self.files {
            let start = path.span().start;
            if !stays_inside(path.get_ref()) {
                let message = format!("`{}` does not lie below the scratch folder", path.get_ref());
                return Err((start, message));
            }
            check_references(&file.content, start, &servers)?;
        }
        let main = ServerTable {
            rules: self.rules,
            step: self.step,
            compaction: self.compaction,
            compactions_vary: self.compactions_vary,
            after: self.after,
            requests: None,
        };
        let main = main.into_part()?;
        if main.steps.is_empty() && main.rules.require_key.is_none() {
            return Err((0, "a scenario needs at least one `[[step]]`".to_owned()));
        }
        let texts = self.args.into_iter().map(Spanned::into_inner);
        let values = self.env.into_iter().map(|(name, value)| (name, value.into_inner()));
        let files = self.files.into_iter().map(|(path, file)| (path.into_inner(), file));
        Ok(Scenario {
            name: self.name,
            summary: self.summary,
            prompt: self.prompt,
            args: texts.collect(),
            env: values.collect(),
            time_scale: self.time_scale,
            files: files.collect(),
            main,
            servers,
            expect: self.expect,
        })
    }
}

impl ServerTable {
    fn into_part(self) -> Result<ServerPart, FileMistake> {
        Ok(ServerPart {
            rules: self.rules,
            steps: steps(self.step)?,
            compactions: steps(self.compaction)?,
            compactions_vary: self.compactions_vary,
            after: self.after,
            requests: self.requests,
        })
    }
}

fn steps(tables: Vec<Spanned<StepTable>>) -> Result<Vec<ScriptStep>, FileMistake> {
    let step = |table: Spanned<StepTable>| {
        let start = table.span().start;
        table.into_inner().into_step().map_err(|error| (start, error.to_string()))
    };
    tables.into_iter().map(step).collect()
}

/// Checks that each server exists that a text at this offset refers to.
fn check_references(
    text: &str,
    offset: usize,
    servers: &BTreeMap<String, ServerPart>,
) -> Result<(), FileMistake> {
    let rests = text.split("{server.").skip(1);
    let mut names = rests.filter_map(|rest| rest.split_once(".url}").map(|(name, _)| name));
    match names.find(|name| is_server_name(name) && !servers.contains_key(*name)) {
        Some(name) => Err((offset, format!("there is no `[server.{name}]`"))),
        None => Ok(()),
    }
}

fn is_server_name(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    name != MAIN && !name.is_empty() && name.chars().all(fits)
}

/// True if a path stays below the folder that it is joined to.
fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
