//! Lines of several commands: all of a line is plain, and the kernel holds it, or all of it has rules.

use outlast::rehearsal::Scenario;
use outlast::tools::{PermissionMode, ToolRefusal, ToolSettings};
use serde_json::json;

use crate::support::{RunBuilder, serve};
use crate::tools::bench::{Bench, call, text};
use crate::tools::sandbox::SandboxFixture;

fn bench(rule: &str) -> Bench {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::DontAsk;
        settings.permissions.allow = vec![rule.to_owned()];
    });
    bench.file("a", "x\n");
    bench.file("sub/b", "x\n");
    bench
}

#[test]
fn a_plain_command_needs_a_rule_beside_one_that_has_a_rule() {
    let bench = bench("Bash(make *)");
    for command in [
        "make x; ls",
        "ls && make x",
        "make x | tail -n 5",
        "make x & wc -l a",
        "cat a | make x",
        "cd sub && make x; ls",
        "make x\ngrep -r x .",
        "make x || head a",
        "make x > /dev/null; stat a",
        "sort < a; make x",
        "make x; git status",
        "make x; diff a sub/b",
        "timeout 5 make x; find .",
    ] {
        let refused = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
        let Err(ToolRefusal::Denied { reason, .. }) = refused else {
            panic!("{command}: {refused:?}")
        };
        assert!(reason.contains("in a call of its own"), "{command}: {reason}");
        assert!(reason.contains("--allowedTools 'Bash("), "{command}: {reason}");
    }
}

#[test]
fn words_that_are_written_out_go_along_with_rules_and_others_do_not() {
    let bench = bench("Bash(make *)");
    for (command, is_allowed) in [
        ("cd sub && make x", true),
        ("make x && echo done", true),
        ("pwd; make x; true", true),
        ("printf '%s\\n' done && make x", true),
        ("make x 2>&1; make y", true),
        ("cd sub && cd .. && make x", true),
        ("cd sub; cd ../.. && make x", false),
        ("cd sub; make x > b", false),
        ("make x; cd sub && make y", true),
        ("cd .. && make x", false),
        ("echo $HOME; make x", false),
        ("echo *; make x", false),
        ("echo {a,b} && make x", false),
        ("echo ~ && make x", false),
        ("echo a=~/x && make x", false),
        ("cd $X && make x", false),
        ("cd - && make x", false),
        ("printf \"$X\"; make x", false),
        ("printf -v x y; make x", false),
        ("printf '%s%n' x PATH; make x", false),
        ("echo x > b; make x", false),
        ("make x; cd sub; make y > b", false),
        ("pwd -P < ../x; make x", false),
        ("true $(make y); make x", false),
    ] {
        let admitted = bench.toolbox.admit(&call("Bash", json!({ "command": command }))).is_ok();
        assert_eq!(admitted, is_allowed, "{command}");
    }
}

/// Continued lines and words that rules look through, in ways that a reader by line misses.
#[test]
fn text_that_a_shell_joins_or_expands_has_no_rule() {
    let bench = bench("Bash(git status *)");
    for command in [
        "git status \"$\\\n(./mark)\"",
        "git status $\\\n(./mark)",
        "git status `\\\n./mark`",
        "git status \"$\\\n\\\n{x:-`./mark`}\"",
        "git status $\\\n'\\x41'",
        "git status <\\\n(./mark)",
        "git status >\\\n(./mark)",
        "git status ;\\\n./mark",
        "git status |\\\n./mark",
        "git status &\\\n& ./mark",
        "git status $\\\n[1 + x[$(./mark)]]",
        "git status # \\\n./mark",
        "timeout {5,./mark} git status",
        "timeout $_ git status",
        "timeout ~ git status",
        "timeout a=~/x git status",
        "timeout * git status",
        "nice -n {5,./mark} git status",
        "nice -n [5] git status",
        "stdbuf -o$_ git status",
        "stdbuf -oL -e{L,./mark} git status",
        "NO_COLOR=$X git status",
        "NO_COLOR={a,b} timeout ?5 git status",
        "LANG=~ git status",
        "nohup {git,./mark} status",
        "command $X git status",
        "xargs {./mark,git} status",
    ] {
        let admitted = bench.toolbox.admit(&call("Bash", json!({ "command": command }))).is_ok();
        assert!(!admitted, "{command:?}");
    }
    for command in ["git \\\n  status", "timeout 5 git status", "nice -n 5 git status -s"] {
        let admitted = bench.toolbox.admit(&call("Bash", json!({ "command": command }))).is_ok();
        assert!(admitted, "{command:?}");
    }
}

/// What runs beside a command that would have a rule is held as if there were none.
#[tokio::test]
async fn plain_lines_read_nothing_outside_although_a_part_has_a_rule() {
    let fixture = SandboxFixture::with(|settings: &mut ToolSettings, root| {
        settings.permissions.mode = PermissionMode::DontAsk;
        settings.permissions.allow = vec!["Bash(git status *)".to_owned()];
        std::os::unix::fs::symlink(root.join("outside"), root.join("work/link")).expect("a link");
    });
    std::fs::write(fixture.root.join("work/a"), "x\n").expect("a file");
    for command in [
        "git status; diff -r . link",
        "git status; diff a link/file",
        "git status; grep -rh kept ../outside",
        "git status; grep -R kept .",
        "git status; cat a=~/x ../outside/file",
        "git status && head -n 1 ../outside/file",
        "git status; cd .. && cat outside/file",
        "git status; sort ../outside/file",
        "git status; cut -c1- < ../outside/file",
        "git status; find -L . -newer a -type f",
        "git diff --no-index a ../outside/file; git status",
        "git status; rg -L kept",
    ] {
        let outcome = fixture.bash(command).await;
        let shown = text(&outcome);
        assert!(!shown.contains("kept\n") && !shown.contains("link/file:"), "{command}: {shown}");
    }
}

/// Takes Landlock away from a program, as an older kernel or a container does.
const WITHOUT_LANDLOCK: &str = r#"exec python3 -I -S -c '
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
def line(code, yes, no, value): return struct.pack("HBBI", code, yes, no, value)
program = line(0x20, 0, 0, 0) + line(0x15, 0, 1, 444) + line(6, 0, 0, 0x50026) + line(6, 0, 0, 0x7fff0000)
held = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]
filters = Filter(4, ctypes.addressof(held))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filters), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
' "$@""#;

#[tokio::test]
async fn without_landlock_no_command_runs_without_a_rule() {
    let commands = [
        "ls",
        "echo x",
        "pwd; true",
        "cat a",
        "git status",
        "cd . && ls",
        "> b",
        "mkdir b",
        "printf x",
        "grep -r x .",
    ];
    for (mode, allowed) in [
        ("default", 0),
        ("acceptEdits", 0),
        ("plan", 0),
        ("dontAsk", 0),
        ("dontAsk --allowedTools=Bash(ls:*)", 2),
        ("bypassPermissions", 10),
    ] {
        let call = |scenario: Scenario, command: &str| {
            scenario.tool("Bash", json!({ "command": command }))
        };
        let scenario = commands.into_iter().fold(Scenario::new(), call).reply("Done.");
        let server = serve(scenario);
        let run = RunBuilder::bare(&server.base_url());
        let work = run.work();
        std::fs::write(work.join("a"), "x\n").expect("a file");
        let flags = ["Do it.", "--output-format", "json", "--permission-mode"];
        let run = run.args(flags).args(mode.split(' '));
        let ended = run.in_shell(WITHOUT_LANDLOCK).run().await;
        let result = ended.result();
        let denials = result["permission_denials"].as_array().map(Vec::len);
        assert_eq!(denials, Some(commands.len() - allowed), "{mode}: {result:#}");
        assert_eq!(work.join("b").exists(), mode == "bypassPermissions", "{mode}");
        let is_told = ended.stderr.contains("no command runs without a rule");
        assert!(is_told || mode == "bypassPermissions", "{mode}: {}", ended.stderr);
    }
}
