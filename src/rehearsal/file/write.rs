//! Writes a scenario as a file. A step is written with its tables on one line, which the serializer
//! of `toml` does for values but not for documents.

use std::fmt::Write as _;
use std::mem;

use serde::Serialize;
use serde_json::{Value, json};
use textwrap::{Options, WordSplitter};
use toml::Spanned;
use toml::ser::ValueSerializer;

use crate::scenario::{Scenario, ScriptStep, ServerPart};

use super::step::StepTable;
use super::{FileTable, ServerTable};

/// Comments of a scenario file.
#[derive(Clone, Debug, Default)]
pub struct ScenarioComments {
    /// Comments at the top, one paragraph each.
    pub head: Vec<String>,
    /// Comments before the steps of the main server. There may be fewer than steps.
    pub steps: Vec<String>,
}

impl Scenario {
    /// The text of a file from which [`Scenario::parse`] reads this scenario. Files hold text:
    /// in scripted bytes that are not UTF-8, the replacement character is written.
    pub fn to_toml(&self, comments: &ScenarioComments) -> String {
        let head: Vec<String> = comments.head.iter().map(|words| comment(words)).collect();
        let required = json!({ "name": self.name, "summary": self.summary });
        let mut file = head.join("#\n") + &document(&required) + &document(&self.head());
        // A string accepts every write, here and below.
        for (path, scratch) in &self.files {
            let content = json!({ "files": { path: { "content": scratch.content } } });
            let _ = write!(file, "\n{}mode = 0o{:o}\n", document(&content), scratch.mode);
        }
        write_section(&mut file, "rules", &self.main.rules);
        write_steps(&mut file, "", &self.main, &comments.steps);
        for (name, part) in &self.servers {
            let table = ServerTable {
                rules: part.rules.clone(),
                compactions_vary: part.compactions_vary,
                after: part.after,
                requests: part.requests,
                ..ServerTable::default()
            };
            let table = lines(&table, &ServerTable::default());
            let _ = write!(file, "\n[server.{name}]\n{table}");
            write_steps(&mut file, &format!("server.{name}."), part, &[]);
        }
        write_section(&mut file, "expect", &self.expect);
        file
    }

    /// The optional keys of the file that are not tables, or that need quoted names.
    fn head(&self) -> Value {
        let spanned = |text: &String| Spanned::new(0..0, text.clone());
        let table = FileTable {
            prompt: self.prompt.clone(),
            args: self.args.iter().map(spanned).collect(),
            env: self.env.iter().map(|(name, value)| (name.clone(), spanned(value))).collect(),
            time_scale: self.time_scale,
            compactions_vary: self.main.compactions_vary,
            after: self.main.after,
            ..FileTable::default()
        };
        changed(json(&table), &json(&FileTable::default()))
    }
}

fn write_section<T: Serialize + Default>(file: &mut String, heading: &str, table: &T) {
    let lines = lines(table, &T::default());
    if !lines.is_empty() {
        let _ = write!(file, "\n[{heading}]\n{lines}");
    }
}

/// Writes the steps of a server. `prefix` is the beginning of their headings.
fn write_steps(file: &mut String, prefix: &str, part: &ServerPart, notes: &[String]) {
    for (index, step) in part.steps.iter().enumerate() {
        file.push('\n');
        file.push_str(&notes.get(index).map_or_else(String::new, |note| comment(note)));
        write_step(file, &format!("{prefix}step"), step);
    }
    for step in &part.compactions {
        file.push('\n');
        write_step(file, &format!("{prefix}compaction"), step);
    }
}

fn write_step(file: &mut String, heading: &str, step: &ScriptStep) {
    let mut table = StepTable::from(step);
    let tools = mem::take(&mut table.tool);
    let _ = write!(file, "[[{heading}]]\n{}", lines(&table, &StepTable::default()));
    for tool in &tools {
        let _ = write!(file, "[[{heading}.tool]]\n{}", lines(tool, &()));
    }
}

fn json(table: &impl Serialize) -> Value {
    serde_json::to_value(table).expect("the keys of a file are texts")
}

/// A table as a document of TOML.
fn document(table: &Value) -> String {
    toml::to_string_pretty(table).expect("TOML has all values but null")
}

/// The keys of a table whose values are not the defaults, one per line.
fn lines(table: &impl Serialize, defaults: &impl Serialize) -> String {
    let mut lines = String::new();
    let table = changed(json(table), &json(defaults));
    for (name, value) in table.as_object().into_iter().flatten() {
        let _ = write!(lines, "{name} = ");
        value.serialize(ValueSerializer::new(&mut lines)).expect("TOML has all values but null");
        lines.push('\n');
    }
    lines
}

/// A value as TOML can have it, without fields that are unset or have their default.
fn changed(value: Value, defaults: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_set = |(name, field): &(String, Value)| {
                !field.is_null() && *field != defaults[name.as_str()]
            };
            let fields = fields.into_iter().filter(is_set);
            let changes = fields.map(|(name, field)| {
                let field = changed(field, &defaults[name.as_str()]);
                (name, field)
            });
            changes.collect()
        }
        Value::Array(items) => items.into_iter().map(|item| changed(item, &Value::Null)).collect(),
        // TOML has no larger whole numbers.
        Value::Number(number) if number.is_u64() && !number.is_i64() => i64::MAX.into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Formats a text as lines of comments.
fn comment(words: &str) -> String {
    // A control character would end the comment.
    let words: String = words.chars().filter(|letter| !letter.is_control()).collect();
    if words.is_empty() {
        return words;
    }
    let options = Options::new(COMMENT_WIDTH).word_splitter(WordSplitter::NoHyphenation);
    let marked = options.initial_indent("# ").subsequent_indent("# ");
    textwrap::fill(&words, marked) + "\n"
}

/// The width of comments.
const COMMENT_WIDTH: usize = 98;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::ServerRules;
    use crate::scenario::{ScriptedReply, ScriptedToolCall, StepAnswer};
    use crate::{builtin, list};

    #[test]
    fn a_written_scenario_is_read_as_the_same_scenario() {
        let mut count = 0;
        for listing in list() {
            let scenario = builtin(&listing.name).expect("it is built in").expect("it is valid");
            let (head, steps) = (vec!["One.".into(), "Two.".into()], vec!["A.".into()]);
            let file = scenario.to_toml(&ScenarioComments { head, steps });
            let read = Scenario::parse(&file, "written.toml")
                .unwrap_or_else(|error| panic!("{error}\n{file}"));
            assert_eq!(read, scenario, "{file}");
            count += 1;
        }
        assert!(count > 60, "only {count}");
    }

    #[test]
    fn a_limit_that_toml_cannot_hold_is_written_as_its_largest_number() {
        let rules = ServerRules { max_output: Some(u64::MAX), ..ServerRules::default() };
        let scenario = Scenario::new().rules(rules).reply("Done.");
        let file = scenario.to_toml(&ScenarioComments::default());
        assert!(file.contains("max_output = 9223372036854775807\n"), "{file}");
    }

    #[test]
    fn every_text_is_read_as_it_was_written() {
        let texts = [
            "",
            "'",
            "\"",
            "\\",
            "a'b\"c",
            "one\ntwo",
            "ends with '\n'",
            "it's\n'''quoted'''",
            "\r\n",
            "\u{7f}\u{0}\u{1b}[1m",
            "tab\there",
            "\u{1f600} \u{85}",
            "\n\nfirst",
        ];
        for one in texts {
            let tool = ScriptedToolCall {
                name: one.to_owned(),
                input: serde_json::json!({ one: [one, 1.5, u64::MAX, null], "b": { one: true } }),
                id: None,
                cut: None,
            };
            let reply = ScriptedReply {
                text: Some(one.to_owned()),
                tools: vec![tool],
                ..ScriptedReply::default()
            };
            let mut scenario = Scenario::new().step(ScriptStep::new(StepAnswer::Reply(reply)));
            scenario.env.insert(one.to_owned(), one.to_owned());
            let file = scenario.prompt(one).to_toml(&ScenarioComments::default());
            let read =
                Scenario::parse(&file, "t.toml").unwrap_or_else(|error| panic!("{error}\n{file}"));
            let StepAnswer::Reply(reply) = &read.main.steps[0].answer else { panic!("{file}") };
            assert_eq!((reply.text.as_deref(), read.prompt.as_str()), (Some(one), one), "{file}");
            assert_eq!(reply.tools[0].input["b"][one], true, "{file}");
            assert_eq!(read.env.get(one).map(String::as_str), Some(one), "{file}");
        }
    }
}
