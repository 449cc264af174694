//! Finds the files that settings run. Who vouches for settings by their content vouches for the
//! scripts that they name, or another commit could change what they do.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The settings whose values are run, or say what is.
const RUN: [&str; 8] = [
    "apiKeyHelper",
    "awsAuthRefresh",
    "awsCredentialExport",
    "env",
    "hooks",
    "mcpServers",
    "require",
    "statusLine",
];

/// Characters that end a word of a command line.
const BETWEEN_WORDS: &str = "\"'`;|&<>(){}=,: \t\r\n";

/// Ways to write the working folder in a command line.
const WORKING_FOLDER: [&str; 3] = ["${CLAUDE_PROJECT_DIR}", "$CLAUDE_PROJECT_DIR", "$PWD"];

/// The files below `root` that the commands in a settings file name, without links. Programs that
/// such a file starts in turn are not looked for.
pub(super) fn named_scripts(settings: &Value, cwd: &Path, root: &Path) -> Vec<PathBuf> {
    let mut texts = Vec::new();
    for key in RUN {
        collect_texts(&settings[key], &mut texts);
    }
    let mut scripts: Vec<PathBuf> = Vec::new();
    for text in texts {
        let here = cwd.to_string_lossy();
        let text = WORKING_FOLDER
            .iter()
            .fold(text.to_owned(), |text, name| text.replace(name, here.as_ref()));
        let unquoted = text.replace(['"', '\''], "");
        let split = |text: &'static str| move |letter: char| text.contains(letter);
        let words = text.split(split(BETWEEN_WORDS)).chain(unquoted.split(split(BETWEEN_WORDS)));
        for word in words.chain([text.as_str()]).filter(|word| !word.is_empty()) {
            let Ok(file) = fs::canonicalize(cwd.join(word)) else { continue };
            if file.is_file() && file.starts_with(root) && !scripts.contains(&file) {
                scripts.push(file);
            }
        }
    }
    scripts
}

fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(members) => members.values().for_each(|inner| collect_texts(inner, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scripts_are_found_however_a_command_names_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it exists");
        fs::create_dir(root.join("bin")).expect("a folder");
        for file in ["check.sh", "bin/a b.sh", "rc"] {
            fs::write(root.join(file), "true").expect("a file");
        }
        let hook = |command: &str| json!({ "hooks": { "Stop": [{ "hooks": [{ "type": "command", "command": command }] }] } });
        let absolute = format!("{}/check.sh --quick", root.display());
        let table = [
            (hook("./check.sh"), vec!["check.sh"]),
            (hook("sh -c 'cd /; \"$CLAUDE_PROJECT_DIR\"/check.sh'"), vec!["check.sh"]),
            (hook("\"${CLAUDE_PROJECT_DIR}/check.sh\" x"), vec!["check.sh"]),
            (hook("$PWD/check.sh && true"), vec!["check.sh"]),
            (hook("bin/../check.sh;rc"), vec!["check.sh", "rc"]),
            (hook(&absolute), vec!["check.sh"]),
            (hook("echo done"), vec![]),
            (hook("ls bin"), vec![]),
            (json!({ "env": { "BASH_ENV": "rc" } }), vec!["rc"]),
            (
                json!({ "mcpServers": { "a": { "command": "sh", "args": ["bin/a b.sh"] } } }),
                vec!["bin/a b.sh"],
            ),
            (json!({ "require": "sh<rc" }), vec!["rc"]),
            (json!({ "permissions": { "deny": ["Read(rc)"] } }), vec![]),
        ];
        for (settings, wanted) in table {
            let wanted: Vec<PathBuf> = wanted.iter().map(|file| root.join(file)).collect();
            assert_eq!(named_scripts(&settings, &root, &root), wanted, "{settings}");
        }
    }
}
