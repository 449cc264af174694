//! The guard that the manual shows: it is run as it is written there.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::python::python;

const MANUAL: &str = include_str!("../../man/outlast-hooks.7.md");

/// Runs a program once for each command, as Python runs it in a process of its own: a start takes
/// far longer than the program does.
const DRIVER: &str = r#"
import io, json, sys
program, commands = json.load(sys.stdin)
codes = []
for command in commands:
    sys.stdin = io.StringIO(json.dumps({"tool_name": "Bash", "tool_input": {"command": command}}))
    try:
        exec(program, {"__name__": "__main__"})
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code)
print(json.dumps(codes))
"#;

fn guard() -> &'static str {
    let (_, rest) = MANUAL.split_once("```python\n").expect("a program");
    rest.split_once("```").expect("its end").0
}

/// Output of a Python program for this input, without the packages of the site.
fn run(program: &str, input: &Value) -> Output {
    let mut child = Command::new(python())
        .args(["-I", "-S", "-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.to_string().as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// The exit codes of the guard for these commands; for the first one, of a process of its own too.
fn check(commands: &[&str], expected: i32) {
    let event = json!({ "tool_name": "Bash", "tool_input": { "command": commands[0] } });
    assert_eq!(run(guard(), &event).status.code(), Some(expected), "{:?}", commands[0]);
    let output = run(DRIVER, &json!([guard(), commands])).stdout;
    let codes: Vec<i32> = serde_json::from_slice(&output).expect("the codes");
    assert_eq!(codes.len(), commands.len());
    for (command, code) in commands.iter().zip(codes) {
        assert_eq!(code, expected, "{command:?}");
    }
}

#[test]
fn the_guard_of_the_manual_denies_what_pushes() {
    let commands = [
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
        "sh -c 'git pu\"sh\"'",
        "echo push | xargs git",
        "X=git; echo push | xargs $X",
        "printf 'push origin' | xargs git",
        "env -S\"git push\"",
        "env --split-string=\"git push\"",
        "/usr/libexec/git-core/git-push",
        "cat <<X | xargs git\npush\nX",
        "xargs -I{} git {} <<< push",
        "find . -maxdepth 0 -exec git push ';'",
    ];
    check(&commands, 2);
}

#[test]
fn the_guard_of_the_manual_lets_other_commands_pass() {
    let commands = [
        "git status",
        "git log --oneline -5",
        "git commit -m 'more words'",
        "cargo test && git diff",
        "git stash pop",
        "ls *.rs && cat *.md",
        "echo \"$HOME\"",
        "grep 'a$' file | head -n 3",
        "echo push",
    ];
    check(&commands, 0);
}
