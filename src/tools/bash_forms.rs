//! Changes inputs of Bash that are written in the forms of other shell tools: a folder, a timeout
//! in seconds, a code block around the command. A field that changes the meaning of the command is
//! never ignored: the command is changed, or the call is refused before it runs. Pure.

use serde_json::{Map, Value};

use crate::text::quoted_word;

use super::input_names::bare;
use super::shell_lexer;

/// The field with the folder of a command, once an input is adapted. The command then begins by
/// going there, which is what rules, hooks and the sandbox judge.
const FOLDER: &str = "workdir";

/// The names of that field, as [`bare`] writes them.
#[rustfmt::skip]
const FOLDER_NAMES: [&str; 9] = [
    "workdir", "cwd", "workingdirectory", "workingdir", "directory", "dir", "dirpath",
    "directorypath", "folder",
];

/// Names of fields with a timeout, as [`bare`] writes them, and their unit in milliseconds.
const TIMEOUTS: [(&str, f64); 6] = [
    ("timeoutms", 1.0),
    ("timeoutmillis", 1.0),
    ("timeoutmilliseconds", 1.0),
    ("timeouts", 1_000.0),
    ("timeoutsecs", 1_000.0),
    ("timeoutseconds", 1_000.0),
];

/// A timeout below this is meant in seconds: no command ends that fast for certain.
pub(super) const MILLISECONDS_MIN: u64 = 1_000;

/// Fields that change what a command does and that Bash cannot honour, as [`bare`] writes them, and
/// what to do instead.
const REFUSED: [(&str, &str); 6] = [
    ("env", "write NAME=VALUE before the command"),
    ("environment", "write NAME=VALUE before the command"),
    ("environmentvariables", "write NAME=VALUE before the command"),
    ("stdin", "write the text into the command, as a here-document"),
    ("input", "write the text into the command, as a here-document"),
    ("isinput", "a command that runs takes no input: start it again with its input"),
];

/// Languages of code blocks that are commands for a shell.
const SHELLS: [&str; 6] = ["", "bash", "sh", "shell", "zsh", "console"];

/// Changes an input whose other fields have the names and types of the schema. `absolute` makes a
/// path absolute. Returns notes for the model.
pub(super) fn adapt(
    fields: &mut Map<String, Value>,
    absolute: impl Fn(&str) -> String,
) -> Result<Vec<String>, String> {
    refuse(fields)?;
    // It has no effect, so that its type does not matter.
    fields.retain(|name, value| name != "description" || value.is_string());
    let notes = Vec::from_iter(adapt_timeout(fields));
    let folder = take_folder(fields)?;
    let Some(Value::String(command)) = fields.get_mut("command") else { return Ok(notes) };
    if let Some(inner) = within_code_block(command)? {
        *command = inner;
    }
    if let Some(folder) = folder.filter(|_| !command.trim().is_empty()) {
        let folder = absolute(&folder);
        *command = in_folder(command, &folder);
        fields.insert(FOLDER.to_owned(), folder.into());
    }
    Ok(notes)
}

/// Takes the folder out of an adapted input. True if there is one.
pub(super) fn take_adapted_folder(input: &mut Value) -> bool {
    input.as_object_mut().is_some_and(|fields| fields.remove(FOLDER).is_some())
}

fn refuse(fields: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in fields {
        let given = bare(name);
        let refused = REFUSED.iter().find(|(refused, _)| *refused == given);
        if let Some((_, instead)) = refused.filter(|_| !is_nothing(value)) {
            return Err(format!("Bash has no `{name}`: {instead}; the command was not run"));
        }
    }
    Ok(())
}

/// True if a value has no effect.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty() || text.eq_ignore_ascii_case("false"),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Writes a timeout in milliseconds. Returns a note if its unit was a guess.
fn adapt_timeout(fields: &mut Map<String, Value>) -> Option<String> {
    for name in fields.keys().cloned().collect::<Vec<_>>() {
        let given = bare(&name);
        let unit = TIMEOUTS.iter().find(|(known, _)| *known == given).map(|(_, unit)| *unit);
        let is_free = fields.get("timeout").is_none_or(Value::is_null);
        let (Some(unit), true) = (unit, is_free) else { continue };
        let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        if let Some(number) = fields.get(&name).and_then(number).filter(|number| *number > 0.0) {
            fields.remove(&name);
            #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
            #[expect(clippy::cast_sign_loss, reason = "the number is positive")]
            let milliseconds = (number * unit).ceil() as u64;
            // A hook may change the input, which is then read once more: it must not be a guess.
            fields.insert("timeout".to_owned(), milliseconds.max(MILLISECONDS_MIN).into());
            return None;
        }
    }
    let given = fields.get("timeout").and_then(Value::as_u64);
    let seconds = given.filter(|given| (1..MILLISECONDS_MIN).contains(given))?;
    fields.insert("timeout".to_owned(), (seconds * 1_000).into());
    Some(format!("`timeout` is in milliseconds: {seconds} was taken for seconds"))
}

/// Removes the folder in which the command is to run. `None` if that is the working directory.
fn take_folder(fields: &mut Map<String, Value>) -> Result<Option<String>, String> {
    let mut found: Option<String> = None;
    for name in fields.keys().cloned().collect::<Vec<_>>() {
        if !FOLDER_NAMES.contains(&bare(&name).as_str()) {
            continue;
        }
        let Some(value) = fields.remove(&name) else { continue };
        let folder = match value {
            Value::Null => continue,
            Value::String(folder) => folder.trim().to_owned(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return Err(format!("the field `{name}` is wrong: {value} is not a path"));
            }
        };
        if folder.is_empty() || folder == "." {
            continue;
        }
        if found.as_ref().is_some_and(|other| *other != folder) {
            return Err(format!("the field `{name}` names another folder than the one before it"));
        }
        found = Some(folder);
    }
    Ok(found)
}

/// A command that runs in another folder. If that is not there, nothing of the command runs.
fn in_folder(command: &str, folder: &str) -> String {
    let change = format!("cd {}", quoted_word(folder));
    let forms = [format!("{change} && "), format!("{change} || exit; ")];
    // A hook may have changed the input, which is then adapted once more.
    if forms.iter().any(|form| command.starts_with(form.as_str())) {
        return command.to_owned();
    }
    let form = usize::from(!is_one_chain(command));
    format!("{}{command}", forms[form])
}

/// True if `&&` and pipes join all of a command, so that nothing runs if what stands before it
/// fails.
fn is_one_chain(command: &str) -> bool {
    let Ok(parts) = shell_lexer::split(command) else { return false };
    let is_joined = |pair: &[shell_lexer::SimpleCommand]| pair[0].is_joined || pair[1].is_piped;
    parts.windows(2).all(is_joined)
}

/// The command in a code block, if the whole text is one: a shell would run its output as a
/// command.
fn within_code_block(command: &str) -> Result<Option<String>, String> {
    let inner = command.trim().strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let Some((language, inner)) = inner.and_then(|text| text.split_once('\n')) else {
        return Ok(None);
    };
    let language = language.trim();
    if inner.contains("```") || language.contains(|letter: char| !letter.is_ascii_alphanumeric()) {
        return Ok(None);
    }
    if SHELLS.iter().any(|shell| shell.eq_ignore_ascii_case(language)) {
        return Ok(Some(inner.trim_end().to_owned()));
    }
    Err(format!("the command is a code block of {language}: write a command for bash"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn adapted(given: &Value) -> (Value, Result<Vec<String>, String>) {
        let mut fields = given.as_object().expect("an object").clone();
        let absolute =
            |path: &str| if path.starts_with('/') { path.into() } else { format!("/w/{path}") };
        let notes = adapt(&mut fields, absolute);
        (fields.into(), notes)
    }

    #[test]
    fn where_a_command_runs_and_how_long_is_part_of_it() {
        let rows = json!([
            [{ "workdir": "sub" }, { "command": "cd /w/sub && a", "workdir": "/w/sub" }],
            [{ "cwd": "/b c" }, { "command": "cd '/b c' && a", "workdir": "/b c" }],
            [{ "working_directory": "it's", "command": "a | b && c # d" },
                { "command": r"cd '/w/it'\''s' && a | b && c # d", "workdir": "/w/it's" }],
            [{ "directory": "sub", "command": "a & b", "description": ["x"] },
                { "command": "cd /w/sub || exit; a & b", "workdir": "/w/sub" }],
            [{ "dir": "s", "command": "a || b" },
                { "command": "cd /w/s || exit; a || b", "workdir": "/w/s" }],
            [{ "workdir": "s", "command": "(a)\nb" },
                { "command": "cd /w/s || exit; (a)\nb", "workdir": "/w/s" }],
            [{ "workdir": "/w/s", "command": "cd /w/s && a" },
                { "command": "cd /w/s && a", "workdir": "/w/s" }],
            [{ "workdir": "s", "command": " " }, { "command": " " }],
            [{ "workdir": ".", "cwd": null, "dir": "" }, { "command": "a" }],
            [{ "timeout": 30 }, { "command": "a", "timeout": 30_000 }],
            [{ "timeout": 1_000 }, { "command": "a", "timeout": 1_000 }],
            [{ "timeout_ms": "500" }, { "command": "a", "timeout": 1_000 }],
            [{ "timeout_seconds": 1.5 }, { "command": "a", "timeout": 1_500 }],
            [{ "env": {}, "is_input": "false" },
                { "command": "a", "env": {}, "is_input": "false" }],
            [{ "command": "```bash\na\nb\n```\n" }, { "command": "a\nb" }],
            [{ "command": "```\na\n```" }, { "command": "a" }],
            [{ "command": "```\na\n```\n```\nb\n```" }, { "command": "```\na\n```\n```\nb\n```" }],
        ]);
        for row in rows.as_array().expect("rows") {
            let (given, wanted) = (&row[0], &row[1]);
            let mut whole = json!({ "command": "a" });
            let fields = whole.as_object_mut().expect("an object");
            fields.extend(given.as_object().expect("an object").clone());
            let (input, notes) = adapted(&whole);
            assert_eq!(&input, wanted, "{given}");
            let has_note = given["timeout"] == 30;
            assert_eq!(notes.map(|notes| !notes.is_empty()), Ok(has_note), "{given}");
            assert_eq!(&adapted(&input).0, wanted, "{given}: read once more");
        }
    }

    #[test]
    fn a_field_that_cannot_be_honoured_refuses_the_call() {
        for (given, part) in [
            (json!({ "workdir": 5 }), "`workdir`"),
            (json!({ "cwd": "a", "workdir": "b" }), "another folder"),
            (json!({ "env": { "A": "b" } }), "`env`"),
            (json!({ "stdin": "y" }), "here-document"),
            (json!({ "is_input": "true" }), "`is_input`"),
            (json!({ "command": "```python\na\n```" }), "code block of python"),
        ] {
            let (_, notes) = adapted(&given);
            assert!(notes.as_ref().is_err_and(|why| why.contains(part)), "{given}: {notes:?}");
        }
    }
}
