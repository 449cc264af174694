//! Changes inputs of built-in tools that are written in the forms of other programs to those of the
//! schema: lists for texts and the reverse, durations, ranges. Pure.

use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use crate::json;
use crate::text::quoted_command;

use super::bash_forms::MILLISECONDS_MIN;
use super::catalog::BuiltinTool;
use super::coercion::PLACEHOLDERS;
use super::glob_readings::split_folder;
use super::input_names::{bare, rename_fields, spell_choices};

/// States of cancelled items.
const CANCELLED: [&str; 3] = ["cancelled", "canceled", "skipped"];

/// Names that models give to kinds of files, and the name that is known.
const KINDS: [(&str, &str); 8] = [
    ("javascript", "js"),
    ("javascriptreact", "jsx"),
    ("typescriptreact", "tsx"),
    ("python3", "py"),
    ("golang", "go"),
    ("c++", "cpp"),
    ("c#", "csharp"),
    ("bash", "sh"),
];

/// Fields that hold one text, for which models give a list of one.
const SINGLE: [&str; 7] = ["file_path", "notebook_path", "path", "pattern", "type", "query", "url"];

/// Adapts the values of an input whose fields are renamed already.
pub(super) fn adapt_values(tool: BuiltinTool, input: &mut Value, schema: &Value) {
    unpack_lists(input);
    rename_fields(input, schema);
    spell_choices(input, schema);
    let Some(fields) = input.as_object_mut() else { return };
    for name in SINGLE {
        adapt(fields, name, |value| match words(value)?[..] {
            [only] => Some(only.to_owned()),
            _ => None,
        });
    }
    match tool {
        BuiltinTool::Bash => {
            adapt_timeout(fields, MILLISECONDS_MIN);
            adapt(fields, "command", |value| words_of(value).map(|words| command_of(&words)));
        }
        BuiltinTool::Edit => {
            take_only_edit(fields);
            adapt(fields, "new_string", |value| value.is_null().then(String::new));
        }
        BuiltinTool::NotebookEdit => {
            adapt(fields, "new_source", |value| words(value).map(|lines| lines.concat()));
            // A number counts from 0, as do the ids of cells that have none.
            adapt(fields, "cell_id", |value| value.as_u64().map(|number| format!("cell-{number}")));
        }
        BuiltinTool::Glob => {
            adapt(fields, "pattern", pattern_of);
            remove_placeholder_path(fields);
            if !fields.contains_key("pattern") {
                split_pattern_path(fields, "pattern");
            }
        }
        BuiltinTool::Grep => {
            adapt(fields, "glob", pattern_of);
            adapt(fields, "type", |value| {
                let bare = value.as_str()?.trim_start_matches("*.").trim_start_matches('.');
                let kind = KINDS.iter().find(|(name, _)| bare.eq_ignore_ascii_case(name));
                Some(kind.map_or(bare, |(_, kind)| kind).to_owned())
            });
            invert_case(fields);
            remove_placeholder_path(fields);
            split_pattern_path(fields, "glob");
        }
        BuiltinTool::ToolSearch => {
            adapt(fields, "query", |value| words(value).map(|words| words.join(" ")));
        }
        BuiltinTool::WebSearch => {
            for name in ["allowed_domains", "blocked_domains"] {
                if let Some(value) = fields.get_mut(name)
                    && let Some(text) = value.as_str()
                {
                    *value = text.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
                }
            }
        }
        BuiltinTool::Read => adapt_range(fields),
        BuiltinTool::TodoWrite => adapt_todos(fields),
        BuiltinTool::BashOutput => {
            adapt_timeout(fields, 0);
            adapt_block(fields);
        }
        BuiltinTool::KillShell | BuiltinTool::Write | BuiltinTool::WebFetch => {}
    }
}

/// The time for which `TaskOutput` of other programs waits, in milliseconds.
const TASK_OUTPUT_WAIT: u64 = 30_000;

/// Takes `block` of that tool: whether it waits.
fn adapt_block(fields: &mut Map<String, Value>) {
    let Some(block) = fields.remove("block") else { return };
    if block != json!(true) && block != json!("true") {
        fields.remove("timeout");
    } else if fields.get("timeout").is_none_or(Value::is_null) {
        fields.insert("timeout".to_owned(), TASK_OUTPUT_WAIT.into());
    }
}

/// Fields that are lists in the schema or in the forms of other programs.
const LISTS: [&str; 4] = ["todos", "edits", "allowed_domains", "blocked_domains"];

/// Replaces a list that is written as text by the list, and a single item by a list of that item.
fn unpack_lists(input: &mut Value) {
    for name in LISTS {
        let Some(value) = input.get_mut(name) else { continue };
        if let Some(text) = value.as_str()
            && let Ok(parsed @ (Value::Array(_) | Value::Object(_))) = json::read_str(text)
        {
            *value = parsed;
        }
        if value.is_object() {
            *value = Value::Array(vec![value.take()]);
        }
    }
}

fn adapt(
    fields: &mut Map<String, Value>,
    name: &str,
    change: impl FnOnce(&Value) -> Option<String>,
) {
    if let Some(value) = fields.get_mut(name)
        && let Some(text) = change(value)
    {
        *value = Value::String(text);
    }
}

/// Moves the fields of the only edit of a list to the call itself. Several edits are refused: rules
/// and hooks judge one.
fn take_only_edit(fields: &mut Map<String, Value>) {
    let has_text = fields.contains_key("old_string");
    let edits = fields.get("edits").and_then(Value::as_array).filter(|_| !has_text);
    let Some([Value::Object(edit)]) = edits.map(Vec::as_slice) else { return };
    let mut edit = Value::Object(edit.clone());
    rename_fields(&mut edit, BuiltinTool::Edit.schema());
    fields.remove("edits");
    if let Value::Object(edit) = edit {
        for (name, value) in edit {
            fields.entry(name).or_insert(value);
        }
    }
}

/// The field whose name is one of these in any spelling.
fn name_of(fields: &Map<String, Value>, names: &[&str]) -> Option<String> {
    fields.keys().find(|name| names.contains(&bare(name).as_str())).cloned()
}

/// A whole number, which may be written as text.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Rewrites `case_sensitive` as its inverse, `-i`.
fn invert_case(fields: &mut Map<String, Value>) {
    let Some(name) = name_of(fields, &["casesensitive"]) else { return };
    let is_sensitive = match &fields[&name] {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.to_ascii_lowercase().parse().ok(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    };
    if let Some(is_sensitive) = is_sensitive.filter(|_| !fields.contains_key("-i")) {
        fields.remove(&name);
        fields.insert("-i".to_owned(), (!is_sensitive).into());
    }
}

/// Rewrites a range of lines, or its last line, as `offset` and `limit`.
fn adapt_range(fields: &mut Map<String, Value>) {
    if fields.get("limit").is_some_and(|limit| !limit.is_null()) {
        return;
    }
    let range = name_of(fields, &["viewrange", "linerange", "lines"]);
    let pair = range.as_ref().and_then(|name| match &fields[name] {
        Value::Array(pair) => {
            let [first, last] = pair.as_slice() else { return None };
            // An end of -1 is the end of the file.
            Some((whole(first)?, whole(last)))
        }
        Value::String(text) => {
            let (first, last) = text.split_once('-')?;
            Some((first.trim().parse().ok()?, Some(last.trim().parse().ok()?)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    });
    let end = name_of(fields, &["endline", "endlineoneindexedinclusive"]);
    let (name, first, last) = match (range, pair, end) {
        (Some(range), Some((first, last)), _) => (range, first, last),
        (_, _, Some(end)) => {
            let first = fields.get("offset").map_or(Some(1), whole);
            let (Some(first), Some(last)) = (first, whole(&fields[&end])) else { return };
            (end, first, Some(last))
        }
        (_, _, None) => return,
    };
    let first = first.max(1);
    if last.is_some_and(|last| last < first) {
        return;
    }
    fields.remove(&name);
    fields.insert("offset".to_owned(), first.into());
    if let Some(last) = last {
        fields.insert("limit".to_owned(), (last - first + 1).into());
    }
}

/// Rewrites a duration with a unit, such as `10s`, in milliseconds: at least `least`, below which a
/// number would be taken for seconds.
fn adapt_timeout(fields: &mut Map<String, Value>, least: u64) {
    if let Some(timeout) = fields.get_mut("timeout")
        && let Some(Ok(duration)) = timeout.as_str().map(str::parse::<SignedDuration>)
        && let Ok(milliseconds) = u64::try_from(duration.as_millis())
    {
        let milliseconds = if milliseconds == 0 { 0 } else { milliseconds.max(least) };
        *timeout = milliseconds.into();
    }
}

/// Turns items that are only a text, or have no state, into pending ones, unless a flag says that
/// they are done, and removes cancelled items.
fn adapt_todos(fields: &mut Map<String, Value>) {
    let Some(Value::Array(items)) = fields.get_mut("todos") else { return };
    items.retain(|item| {
        let status = item["status"].as_str().map(bare);
        status.is_none_or(|status| !CANCELLED.contains(&status.as_str()))
    });
    for item in items.iter_mut().filter(|item| item.is_string()) {
        *item = json!({ "content": item.take() });
    }
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        let other = ["title", "name", "description"].into_iter().find(|it| item.contains_key(*it));
        if !item.contains_key("content")
            && let Some(text) = other.and_then(|name| item.remove(name))
        {
            item.insert("content".to_owned(), text);
        }
        let flag = ["done", "completed"].into_iter().find_map(|name| item.get(name)?.as_bool());
        let status = if flag == Some(true) { "completed" } else { "pending" };
        item.entry("status").or_insert(status.into());
    }
}

/// The items of a list of texts.
fn words(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// Like [`words`], for a list that may be written as text. `[ ]` alone is a command of the shell.
fn words_of(value: &Value) -> Option<Vec<String>> {
    match value.as_str() {
        Some(text) if text.trim_start().starts_with('[') => {
            json::read_str(text).ok().filter(|words: &Vec<String>| !words.is_empty())
        }
        Some(_) | None => words(value).map(|it| it.into_iter().map(str::to_owned).collect()),
    }
}

/// The command of a list of words: the text that it gives to a shell, or its words, quoted.
fn command_of(words: &[String]) -> String {
    if let [shell, option, command] = words
        && ["bash", "sh", "zsh"].contains(&shell.rsplit('/').next().unwrap_or_default())
        && ["-c", "-lc"].contains(&option.as_str())
    {
        return command.clone();
    }
    quoted_command(words)
}

/// The pattern in a text or in a list of patterns.
fn pattern_of(value: &Value) -> Option<String> {
    let list = words_of(value).map(|words| words.join(","));
    let pattern = list.or_else(|| value.as_str().map(str::to_owned))?;
    Some(with_braces(pattern.trim()))
}

/// Writes the alternatives of a shell's extended pattern, `@(a|b)` or `(a|b)`, as `{a,b}`. Others
/// have no such form.
fn with_braces(pattern: &str) -> String {
    let (mut made, mut rest) = (String::new(), pattern);
    while let Some(open) = rest.find('(') {
        let (before, inside) = (&rest[..open], &rest[open + 1..]);
        let Some((list, after)) = inside.split_once(')') else { break };
        let is_other = before.ends_with(['!', '?', '+', '*', '\\']);
        if is_other || list.contains('(') || !(list.contains('|') || before.ends_with('@')) {
            made.push_str(&rest[..=open]);
            rest = inside;
            continue;
        }
        let list = list.replace('|', ",");
        made.extend([before.strip_suffix('@').unwrap_or(before), "{", &list, "}"]);
        rest = after;
    }
    made + rest
}

/// True if a pattern has a form of shells that is not known here, such as `!(x)`.
pub(super) fn has_unknown_form(pattern: &str) -> bool {
    ["!(", "?(", "+(", "*("].iter().any(|begin| {
        pattern.split_once(begin).is_some_and(|(_, rest)| {
            *begin == "!(" || rest.split_once(')').is_some_and(|(list, _)| list.contains('|'))
        })
    })
}

/// Removes an optional path that is a placeholder, such as `undefined`.
fn remove_placeholder_path(fields: &mut Map<String, Value>) {
    let is_placeholder = |path: &str| PLACEHOLDERS.contains(&path);
    if fields.get("path").and_then(Value::as_str).is_some_and(is_placeholder) {
        fields.remove("path");
    }
}

/// Makes a path with wildcards the pattern of a search.
fn split_pattern_path(fields: &mut Map<String, Value>, pattern: &str) {
    let path = fields.get("path").and_then(Value::as_str).filter(|path| path.contains('*'));
    let Some(path) = path.map(str::to_owned) else { return };
    if fields.get(pattern).is_none_or(Value::is_null) {
        fields.remove("path");
        fields.insert(pattern.to_owned(), path.into());
        return;
    }
    let (folder, rest) = split_folder(&path);
    if !folder.is_empty() && rest.chars().all(|letter| "*/".contains(letter)) {
        fields.insert("path".to_owned(), folder.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row has the name of a tool, an input for it, and the input that it is changed to.
    fn assert_changed(table: &Value) {
        for row in table.as_array().expect("rows") {
            let tool = BuiltinTool::named(row[0].as_str().expect("a name")).expect("a tool");
            let (given, wanted) = (&row[1], &row[2]);
            let (mut input, schema) = (given.clone(), tool.schema());
            rename_fields(&mut input, schema);
            adapt_values(tool, &mut input, schema);
            assert_eq!(&input, wanted, "{given}");
        }
    }

    #[test]
    fn inputs_in_the_forms_of_other_programs_are_changed_to_those_of_the_schema() {
        assert_changed(&json!([
            ["Read", { "filePath": "a" }, { "file_path": "a" }],
            ["Read", { "file_path": "a", "path": "b" }, { "file_path": "a", "path": "b" }],
            ["NotebookEdit", { "path": "a" }, { "notebook_path": "a" }],
            ["Glob", { "path": "a" }, { "path": "a" }],
            ["Glob", { "path": "a/*.c" }, { "pattern": "a/*.c" }],
            ["Read", { "file_paths": ["a"] }, { "file_path": "a" }],
            ["Grep", { "paths": ["a", "b"] }, { "path": ["a", "b"] }],
            ["Grep", { "patterns": ["a|b"] }, { "pattern": "a|b" }],
            ["Bash", { "timeout": "90s" }, { "timeout": 90_000 }],
            ["Bash", { "timeout": "2 min" }, { "timeout": 120_000 }],
            ["Bash", { "timeout": "500ms" }, { "timeout": 1_000 }],
            ["BashOutput", { "timeout": "500ms" }, { "timeout": 500 }],
            ["BashOutput", { "block": true }, { "timeout": 30_000 }],
            ["BashOutput", { "block": true, "timeout": 500 }, { "timeout": 500 }],
            ["BashOutput", { "block": false, "timeout": 500 }, {}],
            ["Bash", { "timeout": "90" }, { "timeout": "90" }],
            ["Edit", { "old_str": "a", "newString": null },
                { "old_string": "a", "new_string": "" }],
            ["KillShell", { "task_id": "b" }, { "shell_id": "b" }],
            [
                "Grep",
                { "context": 2, "i": true, "output_mode": "Files With Matches" },
                { "-C": 2, "-i": true, "output_mode": "files_with_matches" },
            ],
            ["Grep", { "type": ".tsx" }, { "type": "tsx" }],
            ["Grep", { "path": "src/*.c" }, { "glob": "src/*.c" }],
            ["Grep", { "path": "src/**", "glob": ["*.c", "*.h"] },
                { "path": "src", "glob": "*.c,*.h" }],
            ["Glob", { "pattern": "**/*.@(c|h)\n", "path": "undefined" },
                { "pattern": "**/*.{c,h}" }],
            ["Glob", { "pattern": "app/(auth)/!(a|b)/*.(c|h)" },
                { "pattern": "app/(auth)/!(a|b)/*.{c,h}" }],
            ["Bash", { "cmd": ["sh", "-c", "a"] }, { "command": "a" }],
            ["Bash", { "command": ["echo", "it's", "-n"] }, { "command": r"echo 'it'\''s' -n" }],
            ["NotebookEdit", { "new_source": ["a\n", "b"] }, { "new_source": "a\nb" }],
            ["WebSearch", { "allowed_domains": "a.test, b.test" },
                { "allowed_domains": ["a.test", "b.test"] }],
            [
                "TodoWrite",
                { "todos": [{ "status": "IN-PROGRESS", "active_form": "x" }] },
                { "todos": [{ "status": "in_progress", "activeForm": "x" }] },
            ],
        ]));
    }

    #[test]
    fn fields_of_the_tools_of_other_agents_are_known() {
        assert_changed(&json!([
            ["Grep", { "search": "a", "output_mode": "files" },
                { "pattern": "a", "output_mode": "files_with_matches" }],
            [
                "Grep",
                { "query": "a", "include": "*.c", "directory": "d", "case_sensitive": false },
                { "pattern": "a", "glob": "*.c", "path": "d", "-i": true },
            ],
            [
                "Grep",
                { "regex": "a", "file_pattern": "*.c", "ignore_case": true, "type": "C++" },
                { "pattern": "a", "glob": "*.c", "-i": true, "type": "cpp" },
            ],
            ["Glob", { "glob": "*.c" }, { "pattern": "*.c" }],
            ["Read", { "target_file": "a", "start_line": 2, "end_line": "3" },
                { "file_path": "a", "offset": 2, "limit": 2 }],
            ["Read", { "end_line": 3 }, { "offset": 1, "limit": 3 }],
            ["Read", { "view_range": [2, 3] }, { "offset": 2, "limit": 2 }],
            ["Read", { "view_range": [2, -1] }, { "offset": 2 }],
            ["Read", { "lines": "2-2" }, { "offset": 2, "limit": 1 }],
            ["Read", { "lines": 5 }, { "lines": 5 }],
            ["Write", { "file_text": "a" }, { "content": "a" }],
            [
                "TodoWrite",
                { "todo": [{ "title": "a" }, { "task": "b", "done": true }] },
                { "todos": [
                    { "content": "a", "status": "pending" },
                    { "content": "b", "status": "completed", "done": true },
                ] },
            ],
            ["Edit", { "before": "a", "after": "b" }, { "old_string": "a", "new_string": "b" }],
            ["Edit", { "search": "a", "replace": "b" }, { "old_string": "a", "new_string": "b" }],
            [
                "Edit",
                { "file_path": "f", "edits": [{ "old_text": "a", "new_string": "b" }] },
                { "file_path": "f", "old_string": "a", "new_string": "b" },
            ],
        ]));
    }

    #[test]
    fn lists_are_known_as_text_and_single_items_as_lists() {
        assert_changed(&json!([
            [
                "Edit",
                { "edits": "[{\"old_text\": \"a\", \"new_string\": \"b\"}]" },
                { "old_string": "a", "new_string": "b" },
            ],
            ["Edit", { "edits": { "old_string": "a", "new_string": "b" } },
                { "old_string": "a", "new_string": "b" }],
            ["Grep", { "glob": "[\"*.c\", \"*.h\"]" }, { "glob": "*.c,*.h" }],
            ["Glob", { "pattern": "[\"*.c\"]" }, { "pattern": "*.c" }],
            ["Glob", { "pattern": "[ab]*" }, { "pattern": "[ab]*" }],
            ["Bash", { "command": "[\"sh\", \"-c\", \"a\"]" }, { "command": "a" }],
            ["Bash", { "command": "[ -e a ]" }, { "command": "[ -e a ]" }],
            ["WebSearch", { "blocked_domains": "[\"a.test\"]" }, { "blocked_domains": ["a.test"] }],
            ["TodoWrite", { "todos": { "step": "b", "status": "Done" } },
                { "todos": [{ "content": "b", "status": "completed" }] }],
            ["TodoWrite", { "todos": "[\"a\"]" },
                { "todos": [{ "content": "a", "status": "pending" }] }],
            [
                "TodoWrite",
                { "todos": ["a", { "step": "b", "status": "Done" }, { "status": "cancelled" }] },
                { "todos": [
                    { "content": "a", "status": "pending" },
                    { "content": "b", "status": "completed" },
                ] },
            ],
        ]));
    }

    #[test]
    fn forms_of_patterns_that_are_not_known_are_found() {
        for (pattern, is_unknown) in
            [("!(a)", true), ("*.+(a|b)", true), ("*(a)", false), ("(a)", false)]
        {
            assert_eq!(has_unknown_form(pattern), is_unknown, "{pattern}");
        }
    }
}
