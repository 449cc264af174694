//! Whether the programs of hooks are there.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::HookLine;
use crate::hooks::HookCommand;
use crate::process::find_program;
use crate::secrets::Variables;

/// Words that a shell knows without a program.
const BUILT_IN: [&str; 35] = [
    ".", ":", "[", "[[", "case", "cd", "command", "echo", "eval", "exec", "exit", "export",
    "false", "for", "function", "if", "printf", "read", "return", "set", "shift", "source", "test",
    "time", "trap", "true", "type", "ulimit", "umask", "unset", "until", "wait", "while", "{", "!",
];

/// What runs another file, which comes first among its arguments.
const INTERPRETERS: [&str; 9] =
    ["bash", "bun", "deno", "node", "perl", "python", "python3", "ruby", "sh"];

/// A hook whose program is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub event: &'static str,
    pub program: String,
    pub source: String,
}

/// Those whose programs are surely not there, or cannot be run.
pub fn missing(
    hooks: &[HookLine],
    cwd: &Path,
    home: Option<&Path>,
    variables: &Variables,
) -> Vec<Missing> {
    let path = variables.get(OsStr::new("PATH")).map(OsString::as_os_str).unwrap_or_default();
    let is_missing = |file: &File| match file {
        File::ToRun(program) if program.contains('/') => !is_program(&cwd.join(program)),
        File::ToRun(program) => find_program(&[program], path, cwd).is_none(),
        File::ToRead(file) => !cwd.join(file).is_file(),
    };
    let look = |hook: &HookLine| {
        let file = files(&hook.command, cwd, home).into_iter().find(is_missing)?;
        let (File::ToRun(program) | File::ToRead(program)) = file;
        Some(Missing { event: hook.event, program, source: hook.source.clone() })
    };
    hooks.iter().filter_map(look).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// A file that a hook needs.
#[derive(Debug, PartialEq, Eq)]
enum File {
    ToRun(String),
    ToRead(String),
}

/// The program of a hook, and the script that it is given, as far as that can be told without a
/// shell.
fn files(command: &HookCommand, cwd: &Path, home: Option<&Path>) -> Vec<File> {
    let words: Vec<String> = match command {
        HookCommand::Program { path, arguments } => {
            std::iter::once(path.display().to_string()).chain(arguments.iter().cloned()).collect()
        }
        HookCommand::Script(script) => words(script),
    };
    let mut words = words.iter().map(|word| plain(word, cwd, home));
    let Some(Some(program)) = words.next() else { return Vec::new() };
    if BUILT_IN.contains(&program.as_str()) {
        return Vec::new();
    }
    let name = program.rsplit('/').next().unwrap_or_default();
    let runs_another = INTERPRETERS.contains(&name);
    let script = words.next().flatten().filter(|word| runs_another && word.contains('/'));
    let script = script.filter(|word| !word.starts_with('-'));
    [File::ToRun(program)].into_iter().chain(script.map(File::ToRead)).collect()
}

/// The first two words of a command.
fn words(script: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), script.trim_start());
    while words.len() < 2 && !rest.is_empty() {
        let quote = rest.chars().next().filter(|first| ['"', '\''].contains(first));
        let (word, after) = match quote {
            Some(quote) => rest[1..].split_once(quote).unwrap_or((rest, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        let glued = quote.is_some() && !after.is_empty() && !after.starts_with(char::is_whitespace);
        // What is glued together is for a shell to tell.
        words.push(if glued { "$".to_owned() } else { word.to_owned() });
        rest = after.trim_start();
    }
    words
}

/// A word without variables and signs that only a shell understands; `None` if there are others
/// than we know.
fn plain(word: &str, cwd: &Path, home: Option<&Path>) -> Option<String> {
    let cwd = cwd.display().to_string();
    let mut word = word.replace("${CLAUDE_PROJECT_DIR}", &cwd).replace("$CLAUDE_PROJECT_DIR", &cwd);
    if let Some(home) = home.map(|home| home.display().to_string()) {
        word = word.replace("${HOME}", &home).replace("$HOME", &home);
        if let Some(rest) = word.strip_prefix("~/") {
            word = format!("{home}/{rest}");
        }
    }
    let odd = |letter: char| "$`()=;&|<>*?{}[]\\\"'#~!".contains(letter);
    (!word.is_empty() && !word.contains(odd)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts_are_told_from_what_only_a_shell_knows() {
        let run = |word: &str| File::ToRun(word.to_owned());
        let read = |word: &str| File::ToRead(word.to_owned());
        let table = [
            ("./check.sh --fast", vec![run("./check.sh")]),
            ("\"$CLAUDE_PROJECT_DIR\"/x.sh", vec![]),
            ("\"$CLAUDE_PROJECT_DIR/a b.sh\" x", vec![run("/w/a b.sh")]),
            ("${CLAUDE_PROJECT_DIR}/x.sh", vec![run("/w/x.sh")]),
            ("~/x.py", vec![run("/h/x.py")]),
            ("python3 ./x.py", vec![run("python3"), read("./x.py")]),
            ("node -e 'x'", vec![run("node")]),
            ("jq -r .x", vec![run("jq")]),
            ("KEY=1 x", vec![]),
            ("cd /x && y", vec![]),
            ("$HOOK x", vec![]),
            ("", vec![]),
        ];
        for (script, wanted) in table {
            let command = HookCommand::Script(script.to_owned());
            let found = files(&command, Path::new("/w"), Some(Path::new("/h")));
            assert_eq!(found, wanted, "{script}");
        }
    }
}
