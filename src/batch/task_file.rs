//! Parses the task file: JSON Lines, one object for each task; or the same objects over several
//! lines or in one list, as other programs print JSON. Lines that are comments and commas after
//! objects are left out. Every mistake is reported with its line.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Map, Value};
use strsim::osa_distance;

use crate::config::spans::JsonPaths;
use crate::config::values::{self, InvalidValue};
use crate::config::without_position;
use crate::json;
use crate::process::file_reads;
use crate::recovery::Money;
use crate::text::in_home;

const TASK_KEYS: [&str; 7] = ["id", "prompt", "prompt_file", "cwd", "git", "flags", "limits"];
const GIT_KEYS: [&str; 2] = ["repository", "ref"];
const LIMIT_KEYS: [&str; 3] = ["max_turns", "max_budget_usd", "max_duration"];

/// A git repository to clone for a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// A URL or a path.
    pub repository: String,
    /// A branch, a tag or a commit. `None`: the repository's own default.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
}

/// Maximum size of a prompt file, in bytes.
const PROMPT_MAX: u64 = 10 << 20;

/// Maximum length of a task id, in characters.
const ID_MAX: usize = 200;

/// Maximum edit distance at which an unknown key counts as a typo. Of short keys, a third of the
/// letters may differ.
const TYPO_MAX: usize = 3;

/// The shape of a task, for messages.
const SHAPE: &str = "a task is a JSON object, such as {\"prompt\": \"Say hello.\"}";

/// Names that similar programs give to keys, in lower case without dashes and underscores: the
/// prefix of the object, the key to use, and the names.
const OTHER_NAMES: [(&str, &str, &[&str]); 13] = [
    ("", "[{\"prompt\": ...}], the list alone", &["tasks", "jobs", "items"]),
    ("", "\"id\"", &["name", "title", "label", "key", "taskid", "taskname"]),
    (
        "",
        "\"prompt\"",
        &[
            "task",
            "text",
            "message",
            "instruction",
            "instructions",
            "input",
            "query",
            "content",
            "description",
            "goal",
        ],
    ),
    ("", "\"prompt_file\"", &["file", "inputfile", "promptpath"]),
    (
        "",
        "\"cwd\"",
        &[
            "dir",
            "directory",
            "folder",
            "path",
            "workdir",
            "workingdir",
            "workingdirectory",
            "project",
        ],
    ),
    ("", "\"git\": {\"repository\": ...}", &["repo", "repository", "branch", "ref", "url"]),
    (
        "",
        "\"flags\": [\"--model\", \"sonnet\"]",
        &[
            "args",
            "arguments",
            "options",
            "model",
            "tools",
            "allowedtools",
            "permissionmode",
            "settings",
        ],
    ),
    (
        "",
        "\"limits\": {\"max_turns\": 20}",
        &["maxturns", "maxbudgetusd", "maxbudget", "budget", "maxduration", "timeout", "deadline"],
    ),
    ("git.", "\"repository\"", &["url", "repo", "remote", "path"]),
    ("git.", "\"ref\"", &["branch", "tag", "commit", "revision", "rev", "sha"]),
    ("limits.", "\"max_turns\"", &["turns"]),
    ("limits.", "\"max_budget_usd\"", &["maxbudget", "budget", "maxcost", "cost", "usd"]),
    ("limits.", "\"max_duration\"", &["timeout", "duration", "time", "maxtime", "deadline"]),
];

/// One task of the task file. Its paths are absolute, and its prompt file has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskLine {
    /// Line number, counted from 1.
    pub line: usize,
    pub id: Option<String>,
    pub prompt: String,
    pub cwd: Option<PathBuf>,
    pub git: Option<GitSource>,
    pub flags: Vec<String>,
    pub limits: TaskLimits,
}

/// The limits that the task file sets for a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskLimits {
    pub max_turns: Option<u32>,
    pub max_budget: Option<Money>,
    /// A valid duration, in the form of the task file.
    pub max_duration: Option<String>,
}

/// A mistake in a line of the task file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFileError {
    pub file: String,
    /// Line number, counted from 1.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for TaskFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for TaskFileError {}

/// Parses the tasks in a text. `name` is the file name for messages; relative paths are relative to
/// `base`, and a `~` at the start of a path is `home`.
///
/// # Errors
/// All mistakes in the text, in the order of the lines.
pub fn read_tasks(
    name: &str,
    text: &str,
    (base, home): (&Path, Option<&Path>),
) -> Result<Vec<TaskLine>, Vec<TaskFileError>> {
    let absolute = |path: String| base.join(in_home(&path, home).unwrap_or_else(|| path.into()));
    let text = without_comments(text.strip_prefix('\u{feff}').unwrap_or(text));
    let (mut tasks, mut errors) = (Vec::new(), Vec::new());
    let mut ids: HashMap<String, usize> = HashMap::new();
    let values = values(&text).or_else(|(line, what)| {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        // The first line is no object of its own, so that neither are the others.
        let is_whole = text.trim_start().starts_with('[')
            || lines.clone().next().is_some_and(|(_, first)| first.trim() == "{");
        let error = TaskFileError { file: name.to_owned(), line, what };
        if is_whole { Err(vec![error]) } else { Ok(lines.collect()) }
    })?;
    for (number, line) in values {
        let mut mistakes = Vec::new();
        if let Some(task) = read_line(line, number, &absolute, &mut mistakes) {
            if let Some(id) = &task.id
                && let Some(first) = ids.insert(id.clone(), number)
            {
                mistakes.push(format!("line {first} has the id \"{id}\", too; ids are unique"));
            }
            tasks.push(task);
        }
        let error = |what| TaskFileError { file: name.to_owned(), line: number, what };
        errors.extend(mistakes.into_iter().map(error));
    }
    if tasks.is_empty() && errors.is_empty() {
        let what = "there is no task; write one JSON object on each line, such as \
                    {\"prompt\": \"Say hello.\"}";
        errors.push(TaskFileError { file: name.to_owned(), line: 1, what: what.to_owned() });
    }
    if errors.is_empty() { Ok(tasks) } else { Err(errors) }
}

/// Empties the lines that are comments, which keeps the numbers of the others. No line of a JSON
/// value begins like a comment.
fn without_comments(text: &str) -> String {
    let is_comment =
        |line: &str| ["#", "//"].iter().any(|mark| line.trim_start().starts_with(mark));
    let lines = text.split('\n').map(|line| if is_comment(line) { "" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// Splits a text into its JSON values, or the members of its one list, each with the number of its
/// first line.
///
/// # Errors
/// The first mistake and its line, if the text is not valid JSON.
fn values(text: &str) -> Result<Vec<(usize, &str)>, (usize, String)> {
    let mut rest = text.trim_start();
    let list = rest.strip_prefix('[');
    rest = list.unwrap_or(rest).trim_start();
    let (mut values, mut line, mut counted) = (Vec::new(), 1, 0);
    loop {
        let begin = text.len() - rest.len();
        line += text[counted..begin].matches('\n').count();
        counted = begin;
        match (list, rest.strip_prefix(']').map(str::trim)) {
            (Some(_), Some("")) => return Ok(values),
            (Some(_), Some(_)) => return Err((line, "more text follows the list".to_owned())),
            (Some(_), None) if rest.is_empty() => {
                return Err((line, "not valid JSON: the list has no closing ]".to_owned()));
            }
            (None, _) if rest.is_empty() => return Ok(values),
            (_, _) => {}
        }
        let mut stream = Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        if let Some(Err(error)) = stream.next() {
            let before = text[..begin].rsplit('\n').next().map_or(0, str::len);
            let column = error.column() + if error.line() == 1 { before } else { 0 };
            let what = format!("column {column}: not valid JSON: {}", without_position(&error));
            return Err((line + error.line() - 1, what));
        }
        let (value, after) = rest.split_at(stream.byte_offset());
        values.push((line, value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
}

fn read_line(
    line: &str,
    number: usize,
    absolute: &impl Fn(String) -> PathBuf,
    mistakes: &mut Vec<String>,
) -> Option<TaskLine> {
    let line = line.trim().trim_end_matches(',');
    // A limit of `NaN` must not become no limit.
    let value = match serde_json::from_str(&json::to_strict(line)) {
        Ok(value) => json::without_nulls(value),
        Err(_) if !line.starts_with('{') => {
            mistakes.push(SHAPE.to_owned());
            return None;
        }
        Err(error) => {
            let (column, why) = (error.column(), without_position(&error));
            mistakes.push(format!("column {column}: not valid JSON: {why}"));
            return None;
        }
    };
    let Value::Object(map) = &value else {
        mistakes.push(SHAPE.to_owned());
        return None;
    };
    let paths = JsonPaths::scan(line);
    for (_first, second) in &paths.repeated {
        mistakes.push(format!("key \"{}\" is given twice", paths.path(*second).join(".")));
    }
    let mut fields = TaskFields { prefix: "", map, mistakes };
    fields.check_keys(&TASK_KEYS);
    let id = fields.name("id").filter(|id| fields.check_id(id));
    let prompt = read_prompt(&mut fields, absolute);
    let cwd = fields.text("cwd").map(absolute);
    let flags = fields.texts("flags");
    let git = fields.object("git", "git.", |fields| read_git(fields, absolute));
    if cwd.is_some() && git.is_some() {
        fields.report("cwd and git exclude each other; a git checkout has a folder of its own");
    }
    let limits = fields.object("limits", "limits.", |fields| Some(read_limits(fields)));
    let limits = limits.unwrap_or_default();
    Some(TaskLine { line: number, id, prompt: prompt?, cwd, git, flags, limits })
}

fn read_prompt(
    fields: &mut TaskFields<'_>,
    absolute: &impl Fn(String) -> PathBuf,
) -> Option<String> {
    let (given, file) = (fields.text("prompt"), fields.text("prompt_file"));
    let prompt = match (fields.map.contains_key("prompt"), fields.map.contains_key("prompt_file")) {
        (true, true) => {
            fields.report("prompt and prompt_file exclude each other; keep one of them");
            return None;
        }
        (false, false) => {
            fields.report("a task needs a prompt or a prompt_file");
            return None;
        }
        (true, false) => given?,
        (false, true) => {
            let path = absolute(file?);
            let read = file_reads::read_bounded(&path, PROMPT_MAX);
            match read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
                Ok(text) => text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text),
                Err(error) => {
                    let path = path.display();
                    fields.report(&format!("prompt_file {path} cannot be read: {error}"));
                    return None;
                }
            }
        }
    };
    let mistake = match prompt.trim() {
        "" => "the prompt is empty; say what is to be done",
        "-" => "the prompt \"-\" would read standard input; write it here, or in a prompt_file",
        _ => return Some(prompt),
    };
    fields.report(mistake);
    None
}

fn read_git(
    fields: &mut TaskFields<'_>,
    absolute: &impl Fn(String) -> PathBuf,
) -> Option<GitSource> {
    fields.check_keys(&GIT_KEYS);
    if !fields.map.contains_key("repository") {
        fields.report("repository is missing");
    }
    let (repository, reference) = (fields.text("repository"), fields.text("ref"));
    let repository = repository?;
    for (key, word) in [("repository", Some(&repository)), ("ref", reference.as_ref())] {
        if word.is_some_and(|word| word.is_empty() || word.starts_with('-')) {
            fields.report(&format!("{key} must not be empty or begin with a dash"));
            return None;
        }
    }
    let is_remote = repository.contains("://")
        // HOST:PATH, as for ssh.
        || repository.split('/').next().is_some_and(|first| first.contains(':'));
    let repository =
        if is_remote { repository } else { absolute(repository).display().to_string() };
    Some(GitSource { repository, reference })
}

fn read_limits(fields: &mut TaskFields<'_>) -> TaskLimits {
    fields.check_keys(&LIMIT_KEYS);
    let turns = fields.map.get("max_turns").map(|value| {
        let turns = json::whole(&number(value)).and_then(|turns| u32::try_from(turns).ok());
        turns.filter(|turns| *turns > 0).ok_or("must be a whole number above 0".into())
    });
    let budget = fields.map.get("max_budget_usd").map(|value| {
        let dollars = number(value).as_f64().and_then(Money::from_dollars);
        let wrong = "must be a number of US dollars above 0, such as 0.5";
        dollars.filter(|dollars| *dollars > Money::ZERO).ok_or(wrong.into())
    });
    let duration = fields.map.get("max_duration").map(|value| {
        let text =
            text_of(value).ok_or("must be a text such as \"45m\", or a number of seconds")?;
        values::duration(&text)?;
        Ok(text)
    });
    TaskLimits {
        max_turns: fields.checked("max_turns", turns),
        max_budget: fields.checked("max_budget_usd", budget),
        max_duration: fields.checked("max_duration", duration),
    }
}

/// Returns the number in a text, as programs write it that take tasks from a table; else the value.
fn number(value: &Value) -> Value {
    let number = value.as_str().and_then(|text| text.trim().parse().ok());
    number.map_or_else(|| value.clone(), Value::Number)
}

/// Reads the keys of one JSON object in a line, and collects mistakes.
struct TaskFields<'a> {
    /// The prefix of its keys in messages, such as `git.`. Empty for the task itself.
    prefix: &'static str,
    map: &'a Map<String, Value>,
    mistakes: &'a mut Vec<String>,
}

impl TaskFields<'_> {
    fn report(&mut self, what: &str) {
        self.mistakes.push(format!("{}{what}", self.prefix));
    }

    fn check_keys(&mut self, known: &[&str]) {
        let unknown: Vec<String> =
            self.map.keys().filter(|key| !known.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            let small = key.to_lowercase();
            let typos = (small.len() / 3).clamp(1, TYPO_MAX);
            let near = known.iter().map(|name| (osa_distance(&small, name), *name));
            let near = near.min().filter(|(distance, _)| *distance <= typos);
            let plain = small.replace(['_', '-'], "");
            let mut rows = OTHER_NAMES.iter().filter(|(prefix, ..)| *prefix == self.prefix);
            let other = rows.find(|(_, _, names)| names.contains(&plain.as_str()));
            let remedy = match (other, near) {
                (Some((_, example, _)), _) => format!("did you mean {example}?"),
                (None, Some((_, near))) => format!("did you mean \"{near}\"?"),
                (None, None) => format!("the keys are {}", known.join(", ")),
            };
            let key: String = key.chars().take(ID_MAX).collect();
            self.mistakes.push(format!("unknown key \"{}{key}\"; {remedy}", self.prefix));
        }
    }

    fn check_id(&mut self, id: &str) -> bool {
        let fits = !id.trim().is_empty() && id.chars().count() <= ID_MAX;
        let is_valid = fits && !id.chars().any(char::is_control);
        if !is_valid {
            let what = "characters, and no control characters";
            self.report(&format!("id must have 1 to {ID_MAX} {what}"));
        }
        is_valid
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let value = self.map.get(key)?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.report(&format!("{key} must be a text, and is {}", kind_of(value)));
        }
        text
    }

    /// A text, or a number as a text.
    fn name(&mut self, key: &str) -> Option<String> {
        self.map.get(key).and_then(text_of).or_else(|| self.text(key))
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.map.get(key) else { return Vec::new() };
        let texts = value
            .as_array()
            .and_then(|items| items.iter().map(text_of).collect::<Option<Vec<_>>>());
        texts.unwrap_or_else(|| {
            let example = "[\"--require\", \"cargo test\"]";
            self.report(&format!("{key} must be a list of texts, such as {example}"));
            Vec::new()
        })
    }

    fn object<T>(
        &mut self,
        key: &str,
        prefix: &'static str,
        read: impl FnOnce(&mut TaskFields<'_>) -> Option<T>,
    ) -> Option<T> {
        let value = self.map.get(key)?;
        let Value::Object(map) = value else {
            self.report(&format!("{key} must be an object, and is {}", kind_of(value)));
            return None;
        };
        read(&mut TaskFields { prefix, map, mistakes: self.mistakes })
    }

    fn checked<T>(&mut self, key: &str, value: Option<Result<T, InvalidValue>>) -> Option<T> {
        match value? {
            Ok(value) => Some(value),
            Err(why) => {
                self.report(&format!("{key} {why}"));
                None
            }
        }
    }
}

/// A text, or a number as a text.
fn text_of(value: &Value) -> Option<String> {
    let number = value.as_number().map(ToString::to_string);
    number.or_else(|| value.as_str().map(str::to_owned))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
