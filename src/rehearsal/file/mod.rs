//! Parses and writes scenario files: TOML, without unknown keys. Errors name file, line, column and
//! key.
//! The manual of the keys, outlast-scenario(5), is made of `file/keys.rs`.

mod keys;
mod step;
mod step_error;
mod toml_text;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use serde::Deserialize;
use serde_path_to_error::Segment;
use strsim::osa_distance;
use toml::Spanned;

use super::rules::ServerRules;
use super::scenario::{
    AfterLast, Expectation, MAIN, Scenario, ScratchFile, ScriptStep, ServerPart,
};
use super::scripted_values::above_zero;
pub use keys::{KeyTable, SCENARIO_TABLES, ScenarioKey};
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

/// A mistake, and where it is in the text, in bytes.
type FileMistake = (usize, String);

/// A whole file. Its script is that of the server at the base URL.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    name: String,
    summary: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    args: Vec<Spanned<String>>,
    #[serde(default)]
    env: BTreeMap<String, Spanned<String>>,
    #[serde(default = "real_time", deserialize_with = "above_zero")]
    time_scale: f64,
    #[serde(default)]
    files: BTreeMap<Spanned<String>, ScratchFile>,
    #[serde(default)]
    rules: ServerRules,
    #[serde(default)]
    step: Vec<Spanned<StepTable>>,
    #[serde(default)]
    compaction: Vec<Spanned<StepTable>>,
    #[serde(default)]
    compactions_vary: bool,
    #[serde(default)]
    after: AfterLast,
    #[serde(default)]
    server: BTreeMap<Spanned<String>, ServerTable>,
    #[serde(default)]
    expect: Expectation,
}

fn real_time() -> f64 {
    1.0
}

/// The script of a further server.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerTable {
    rules: ServerRules,
    step: Vec<Spanned<StepTable>>,
    compaction: Vec<Spanned<StepTable>>,
    compactions_vary: bool,
    after: AfterLast,
    requests: Option<usize>,
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
            // How a value with its place is deserialized.
            (Segment::Map { key }, _) if key.starts_with("$__serde_spanned") => {}
            (Segment::Map { key } | Segment::Enum { variant: key }, _) => keys.push(key.clone()),
            (Segment::Seq { .. } | Segment::Unknown, _) => keys.push("NAME".to_owned()),
        }
    }
    keys
}

/// The mistake that the parser found, with the path of its key, and with what was meant in place of an
/// unknown name.
fn mistake(error: &toml::de::Error, keys: &[String]) -> FileMistake {
    let text = error.message();
    // It names the last key itself.
    let keys = if text.starts_with("unknown field") {
        keys.split_last().map_or(keys, |(_, outer)| outer)
    } else {
        keys
    };
    let mut message = in_words_of_the_manual(text);
    if let Some(near) = intended(text) {
        message = format!("{message}; did you mean `{near}`?");
    }
    if !keys.is_empty() {
        message = format!("`{}`: {message}", keys.join("."));
    }
    (error.span().map_or(0, |span| span.start), message)
}

/// Says what was expected as the manual does, in place of the names of types.
fn in_words_of_the_manual(message: &str) -> String {
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

/// The name that comes next to an unknown one, by a message of serde: unknown field `a`, expected one of
/// `b`, `c`.
fn intended(message: &str) -> Option<&str> {
    let is_name = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let mut names = message.split('`').skip(1).step_by(2);
    let given = names.next().filter(|_| is_name)?;
    let (distance, near) = names.map(|known| (osa_distance(given, known), known)).min()?;
    // A third of the letters may be wrong, but no more than three.
    (distance <= (given.len() / 3).clamp(1, 3)).then_some(near)
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
            check_reference(text.get_ref(), text.span().start, &servers)?;
        }
        for (path, file) in &self.files {
            let start = path.span().start;
            if !stays_inside(path.get_ref()) {
                let message = format!("`{}` does not lie below the scratch folder", path.get_ref());
                return Err((start, message));
            }
            check_reference(&file.content, start, &servers)?;
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

/// Checks that each server exists that a text at this place refers to.
fn check_reference(
    text: &str,
    place: usize,
    servers: &BTreeMap<String, ServerPart>,
) -> Result<(), FileMistake> {
    match unknown_server(text, servers) {
        Some(name) => Err((place, format!("there is no `[server.{name}]`"))),
        None => Ok(()),
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

/// Returns true if a path stays below the folder that it is joined to.
fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use serde::de::value::Error;
    use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
    use serde::forward_to_deserialize_any;

    use super::super::rules::{MediaRules, RejectedContent, TokenRules};
    use super::super::scenario::{FaultPosition, ScriptedError, ScriptedUsage, StepCondition};
    use super::step::{FaultTable, ToolTable};
    use super::*;

    /// Records the names that a type reads.
    #[derive(Default)]
    struct Names(&'static [&'static str]);

    impl<'de> Deserializer<'de> for &mut Names {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
            Err(Error::custom("only names are asked for"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            self.0 = fields;
            self.deserialize_any(visitor)
        }

        fn deserialize_enum<V: Visitor<'de>>(
            self,
            name: &'static str,
            variants: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            self.deserialize_struct(name, variants, visitor)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
        }
    }

    /// The names that a type reads, and the first one that must be there.
    fn names<T: DeserializeOwned>() -> (Vec<&'static str>, Option<String>) {
        let mut names = Names::default();
        // It cannot succeed.
        let _ = T::deserialize(&mut names);
        let missing = toml::from_str::<T>("").err().and_then(|error| {
            let name = error.message().strip_prefix("missing field `")?;
            Some(name.trim_end_matches('`').to_owned())
        });
        (names.0.to_vec(), missing)
    }

    #[test]
    fn the_manual_has_the_keys_that_a_scenario_file_may_have() {
        let types = [
            names::<FileTable>(),
            names::<ScratchFile>(),
            names::<StepTable>(),
            names::<StepCondition>(),
            names::<ToolTable>(),
            names::<ScriptedUsage>(),
            names::<ScriptedError>(),
            names::<FaultTable>(),
            names::<FaultPosition>(),
            names::<ServerTable>(),
            names::<ServerRules>(),
            names::<MediaRules>(),
            names::<RejectedContent>(),
            names::<TokenRules>(),
            names::<Expectation>(),
        ];
        for (table, (mut read, required)) in SCENARIO_TABLES.iter().zip(types) {
            // The other positions are texts.
            let texts = ["accept", "request", "half_head", "headers", "delta"];
            read.retain(|name| table.heading != "after" || !texts.contains(name));
            let mut shown: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
            let first = table.keys.iter().find(|key| key.required).map(|key| key.name.to_owned());
            assert_eq!(first, required, "{}", table.heading);
            shown.sort_unstable();
            read.sort_unstable();
            assert_eq!(shown, read, "{}", table.heading);
        }
    }
}
