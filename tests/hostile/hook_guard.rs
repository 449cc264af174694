//! The guard that the manual shows: it is run as it is written there.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

const MANUAL: &str = include_str!("../../man/outlast-hooks.7.md");

/// The exit code of the guard for a command.
fn exit_code(command: &str) -> Option<i32> {
    let (_, rest) = MANUAL.split_once("```python\n").expect("a program");
    let (program, _) = rest.split_once("```").expect("its end");
    let mut guard = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 is installed");
    let event = json!({ "tool_name": "Bash", "tool_input": { "command": command } });
    let mut input = guard.stdin.take().expect("it is piped");
    input.write_all(event.to_string().as_bytes()).expect("it reads");
    drop(input);
    guard.wait().expect("it ends").code()
}

#[test]
fn the_guard_of_the_manual_denies_what_pushes() {
    for command in [
        "git push",
        "git  push",
        "git\tpush origin main",
        "git \\\n  push",
        "git pu\\\nsh",
        "git -C . push",
        "git --no-pager push",
        "g\\it push",
        "gi''t pu\"sh\"",
        "/usr/bin/git push",
        "ls; git push",
        "ls&&git push",
        "git status\ngit push",
        "(git push)",
        "{ git push; }",
        "sh -c 'git push'",
        "sh -c \"sh -c 'git  push'\"",
        "eval \"git pu\"sh",
        "env -i git push",
        "timeout 5 git push",
        "X=push; git $X",
        "X=git; $X push",
        "$(which git) push",
        "`which git` push",
        "git $'\\x70ush'",
        "git p{us,us}h",
        "git pus?",
        "git -c alias.p=push p",
        "git ';' push",
        "git send-pack . x",
        "git \"push",
        "xargs git <<< push",
        "git status # x\ngit push",
        "python3 -c \"import os; os.system('git push')\"",
    ] {
        assert_eq!(exit_code(command), Some(2), "{command:?}");
    }
}

#[test]
fn the_guard_of_the_manual_lets_other_commands_pass() {
    for command in [
        "git status",
        "git log --oneline -5",
        "git commit -m 'more words'",
        "cargo test && git diff",
        "git stash pop",
        "ls *.rs && cat *.md",
        "echo \"$HOME\"",
        "grep 'a$' file | head -n 3",
        "echo push",
    ] {
        assert_eq!(exit_code(command), Some(0), "{command:?}");
    }
}
