//! Finds the files that settings run. Trust in settings by their content extends to the scripts
//! that they name, since another commit could change those.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::command_words::file_names;

/// The settings whose values are run, or determine what is run.
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

/// Members of hooks and servers that are not run.
const NOT_RUN: [&str; 7] = ["headers", "if", "matcher", "prompt", "statusMessage", "type", "url"];

/// The maximum number of paths that are tried for the commands of one file.
const TRIES_MAX: usize = 200_000;

/// A command, or a part of one, that may name files that are not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} may name files that are not found")]
pub(super) struct UnclearCommand(pub(super) String);

/// Returns the files below `root` that the commands in a settings file name, with links resolved.
/// Each name is looked up in the working folder and in each folder that a command names, since
/// commands change their folder. Programs that such a file starts in turn are not searched for.
///
/// # Errors
/// A command may name files that this search does not find.
pub(super) fn named_scripts(
    settings: &Value,
    cwd: &Path,
    root: &Path,
) -> Result<Vec<PathBuf>, UnclearCommand> {
    let above = cwd.strip_prefix(root).map_or(0, |below| below.iter().count());
    let way_to_root = format!(".{}", "/..".repeat(above));
    let mut names = BTreeSet::new();
    for text in texts(settings) {
        let found = file_names(text, &way_to_root);
        names.extend(found.ok_or_else(|| UnclearCommand(text.to_owned()))?);
    }
    let (mut folders, mut scripts) = (vec![cwd.to_path_buf()], Vec::new());
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        next += 1;
        for name in &names {
            if next * names.len() > TRIES_MAX {
                return Err(UnclearCommand(name.clone()));
            }
            let Ok(path) = fs::canonicalize(folder.join(name)) else { continue };
            let is_within = path.starts_with(root);
            if is_within && path.is_file() && !scripts.contains(&path) {
                scripts.push(path);
            } else if (is_within || root.starts_with(&path))
                && path.is_dir()
                && !folders.contains(&path)
            {
                folders.push(path);
            }
        }
    }
    Ok(scripts)
}

/// Returns the texts of settings that are run, or determine what is run.
fn texts(settings: &Value) -> Vec<&str> {
    let mut texts = Vec::new();
    for key in RUN {
        match (&settings[key], key) {
            (Value::Object(servers), "mcpServers") => {
                servers.values().for_each(|server| collect_texts(server, &NOT_RUN, &mut texts));
            }
            (value, "hooks") => collect_texts(value, &NOT_RUN, &mut texts),
            (value, _) => collect_texts(value, &[], &mut texts),
        }
    }
    texts
}

fn collect_texts<'a>(value: &'a Value, not_run: &[&str], texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, not_run, texts)),
        Value::Object(members) => {
            for (key, inner) in members.iter().filter(|(key, _)| !not_run.contains(&key.as_str())) {
                let not_run = if key == "env" { &[] } else { not_run };
                collect_texts(inner, not_run, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A repository whose commands work in its folder `app`.
    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Self {
            let repository = Self(tempfile::tempdir().expect("a folder"));
            for folder in ["app/bin", "app/.claude/hooks", "tools"] {
                fs::create_dir_all(repository.root().join(folder)).expect("a folder");
            }
            for file in [
                "app/check.sh",
                "app/bin/a b.sh",
                "app/rc",
                "app/.claude/guard.sh",
                "app/.claude/hooks/1.sh",
                "tools/server.py",
            ] {
                fs::write(repository.root().join(file), "true").expect("a file");
            }
            repository
        }

        fn root(&self) -> PathBuf {
            self.0.path().canonicalize().expect("it exists")
        }

        fn named_scripts(&self, settings: &Value) -> Result<Vec<String>, UnclearCommand> {
            let root = self.root();
            let scripts = named_scripts(settings, &root.join("app"), &root)?;
            let name = |file: &PathBuf| {
                file.strip_prefix(&root).expect("it is below").display().to_string()
            };
            let mut names: Vec<String> = scripts.iter().map(name).collect();
            names.sort_unstable();
            Ok(names)
        }
    }

    fn hook(command: &str) -> Value {
        let handler = json!({ "type": "command", "command": command, "if": "Bash(rc *)" });
        json!({ "hooks": { "Stop": [{ "matcher": "*", "hooks": [handler] }] } })
    }

    #[test]
    fn scripts_are_found_however_a_command_names_them() {
        let repository = Repository::new();
        let root = repository.root();
        let absolute = format!("{}/app/check.sh --quick", root.display());
        let parent = root.file_name().expect("a name").to_string_lossy();
        let from_above = format!("cd ../..; {parent}/app/check.sh");
        let table: [(Value, &[&str]); 18] = [
            (hook("./check.sh"), &["app/check.sh"]),
            (hook("sh -c 'cd /; \"$CLAUDE_PROJECT_DIR\"/check.sh'"), &["app/check.sh"]),
            (hook("bin/../check.sh;rc"), &["app/check.sh", "app/rc"]),
            (hook(&absolute), &["app/check.sh"]),
            (hook(&from_above), &["app/check.sh"]),
            (hook("$(git rev-parse --show-toplevel)/app/check.sh"), &["app/check.sh"]),
            (hook("cd .claude && ./guard.sh"), &["app/.claude/guard.sh"]),
            (hook("cd .claude; cd hooks; $PWD/1.sh"), &["app/.claude/hooks/1.sh"]),
            (hook("cd ..; tools/server.py"), &["tools/server.py"]),
            (hook("ls bin"), &[]),
            (
                json!({ "env": { "BASH_ENV": "rc", "url": "check.sh" } }),
                &["app/check.sh", "app/rc"],
            ),
            (
                json!({ "mcpServers": { "url": { "command": "sh", "args": ["bin/a b.sh"] } } }),
                &["app/bin/a b.sh"],
            ),
            (
                json!({ "mcpServers": { "a": { "args": ["--directory", "../tools", "server.py"] } } }),
                &["tools/server.py"],
            ),
            (
                json!({ "mcpServers": { "a": { "env": { "url": "rc", "TOKEN": "${TOKEN}" } } } }),
                &["app/rc"],
            ),
            (
                json!({ "mcpServers": { "a": { "url": "${X:-.}/rc", "headers": { "b": "$X/rc" } } } }),
                &[],
            ),
            (json!({ "require": "sh<rc" }), &["app/rc"]),
            (json!({ "apiKeyHelper": "./check.sh" }), &["app/check.sh"]),
            (json!({ "permissions": { "deny": ["Read(rc)", "Read(*)"] } }), &[]),
        ];
        for (settings, wanted) in table {
            let wanted = wanted.iter().map(ToString::to_string).collect();
            assert_eq!(repository.named_scripts(&settings), Ok(wanted), "{settings}");
        }
    }

    #[test]
    fn commands_that_compute_names_of_files_are_named() {
        let repository = Repository::new();
        let text = "cd x; ${HOOKS:-.claude}/guard.sh";
        for settings in [
            hook(text),
            json!({ "require": [text] }),
            json!({ "mcpServers": { "a": { "args": ["x", text] } } }),
            json!({ "mcpServers": { "a": { "env": { "url": text } } } }),
        ] {
            let unclear = Err(UnclearCommand(text.to_owned()));
            assert_eq!(repository.named_scripts(&settings), unclear, "{settings}");
        }
        let line = |n| (0..150).map(|word| format!("{n}/{word}")).collect::<Vec<_>>().join(" ");
        let many = json!({ "require": (0..18).map(line).collect::<Vec<_>>() });
        let too_many = Err(UnclearCommand("0/0".to_owned()));
        assert_eq!(repository.named_scripts(&many), too_many);
    }
}
