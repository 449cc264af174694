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
        "make x; tail -n 5",
        "make x || cat",
        "make x | tail -n 5 a",
        "make x | tail a -n 5",
        "make x | head -c 5 -- a",
        "make x | cat - a",
        "make x | grep -r x",
        "make x | grep -nr x",
        "make x | grep --recursive x",
        "make x | grep x a",
        "make x | grep -e x a",
        "make x | grep -ne x a",
        "make x | grep --regexp=x a",
        "make x | grep -A 3 x a",
        "make x | sed -n 1p a",
        "make x | sort -k 2 a",
        "make x | cut -d , -f 1 a",
        "make x | uniq a",
        "make x | wc -l a",
        "make x | paste - a",
        "make x | nl a",
        "make x | tail < a",
        "make x | jq env",
        "make x | ls",
        "make x | find .",
        "make x | du",
        "make x | tail; ls",
        "ls | make x | tail",
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

/// They open nothing, whatever their flags.
#[test]
fn filters_of_a_pipe_go_along_with_rules() {
    let bench = bench("Bash(make *)");
    for command in [
        "make x 2>&1 | tail -20",
        "make x | tail -n 3",
        "make x | tail -n -3",
        "make x |& head -c 100",
        "make x |\n head",
        "make x | grep -E '^4' | head",
        "make x | grep -A 3 -e x",
        "make x | grep -nv -- -x",
        "make x | egrep -c x -",
        "make x | wc -l",
        "make x | sort -t , -k 2 | uniq -c | sort -rn",
        "make x | cut -d , -f 1 | tr a-z A-Z",
        "make x | sed -n 1,5p",
        "make x | sed s/a/b/g 2> /dev/null",
        "make x | nl -ba | tac | rev | fold -w 80 | paste -sd , | column -t",
        "make x | cat -A - > /dev/null",
        "make x 2>&1 | tee /dev/null | tail -2",
        "cd sub && make x | tail; make y | head",
        "make x; echo \"exit: $?\"",
        "make x || echo failed: $? && printf '%s %s\\n' $# $!",
        "make x | tail; echo ${PIPESTATUS[0]} \"${PIPESTATUS[@]}\"",
    ] {
        let admitted = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
        assert!(admitted.is_ok(), "{command}: {admitted:?}");
    }
    for command in [
        "make x | tee b",
        "make x | tee -a",
        "make x | tail > b",
        "make x | sort -o b",
        "make x | sed 'w b'",
        "make x | sed -i s/a/b/",
        "make x | tail -f",
        "make x | tail $X",
        "make x | grep $?",
        "make x | xargs touch",
        "make x | ./mark",
        "make x; echo $X",
        "make x; echo $$ $0",
        "make x; echo $?$X",
        "make x; echo ${PIPESTATUS[x]}",
        "make x; echo ${PIPESTATUS[0]:-$(./mark)}",
        "make x; printf \"%$?n\" PATH",
        "make x; $?",
        "make x > $?",
    ] {
        // `tee -a` alone writes nowhere.
        assert_eq!(bench.admits(command), command.ends_with("tee -a"), "{command}");
    }
}

/// A here-document is text if its delimiter is quoted, and it begins and ends where every shell
/// says so.
#[test]
fn here_documents_are_text_where_no_shell_could_see_more_in_them() {
    let bench = bench("Bash(beta *)");
    for command in [
        "beta <<'E'\n$(./mark) `./mark` \"'\nE",
        "beta <<\"E\"\nx\nE\n",
        "beta <<\\E\nx\nE",
        "beta <<-'E'\n\tx\n\t\tE\nbeta y",
        "beta << 'E-O_F1' \nx\nE-O_F1\n",
        "beta <<'E' && beta y\nx\nE\nbeta z",
        "beta <<'E' | beta\nx\nE",
        "beta x; beta <<'E' >/dev/null\nx\nE",
        "beta x |\nbeta 3<<'E'\nx\nE",
        "beta <<'E' <<-'F'\nF\nE\nE\n\tF",
        "beta <<'E' # it's\nx\nE",
        "beta <<'E'\nx\\\nE",
        "cat <<'E' | beta\nx\nE",
        "beta src/[ab] a=[b] <<'E'\nx\nE",
        "beta <<-E\n\tx\n\tE",
        "beta <<E\n; ./mark & (\"'\nE\nbeta y",
        "beta -m \"$(cat <<'E'\n$(./mark) ) ' \\\" `./mark`\n\nE\n)\" y",
        "beta \"a $(cat <<-'E'\n\tx\n\tE\n) b\"; beta",
        "beta \"\\$(cat <<'E'\nx\nE\n)\"",
        "beta \"$(cat <<\"E\"\n$(./mark)\nE\n)\"",
        "beta \"$(cat <<\\E\n`./mark`\nE\n)\"",
        "beta \"$(cat <<E\nx; ./mark & (\nE\n)\" y",
        "beta \"$(cat <<-E\n\tx\n\tE\n)\"",
    ] {
        let admitted = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
        assert!(admitted.is_ok(), "{command:?}: {admitted:?}");
    }
}

#[test]
fn here_documents_in_which_a_shell_could_see_more_are_refused() {
    let bench = bench("Bash(beta *)");
    for command in [
        // What follows it.
        "beta <<'E'\nx\nE\n./mark",
        "beta <<'E'; ./mark\nx\nE",
        "beta <<'E' | ./mark\nx\nE",
        "beta <<-'E'\nx\n\tE\n./mark",
        "beta <<'E' <<'F'\nE\nF\n./mark",
        "beta <<'E' <<'F'\nF\nE\n./mark",
        // Its end.
        "beta <<'E'",
        "beta <<'E'\nx",
        "beta <<'E'\nx\n E\n./mark",
        "beta <<'E'\nx\n\tE\n./mark",
        "beta <<-'E'\nx\n \tE\n./mark",
        "beta <<'E'\nx\nE \n./mark",
        "beta <<'E'\nE) ./mark\nE",
        "beta <<'E'\r\nx\r\nE\r\n",
        "beta <<'E'\nx\r\nE\n",
        "beta <<E\nx\\\nE\n./mark\nE",
        "beta <<E\nx\nE\n./mark",
        // Its delimiter.
        "beta <<E\n$(./mark)\nE",
        "beta <<-E\n\t`./mark`\n\tE",
        "beta <<''\n./mark\n\n",
        "beta <<'a b'\nx\na b",
        "beta <<'a'b\nx\nab",
        "beta <<a'b'\nx\nab",
        "beta <<'a'\"b\"\nx\nab",
        "beta <<\"a\\b\"\nx\na\\b",
        "beta <<\"$X\"\nx\n$X",
        "beta <<\\\\E\nx\n\\E",
        "beta <<\\E\\F\nx\nEF",
        "beta <<$'E'\nx\nE",
        "beta <<'\u{e9}'\nx\n\u{e9}",
        "beta <<'E'#\nx\nE#",
        "beta <<'E'\\\nF\nx\nEF",
        "beta <<\\\nE\n$(./mark)\nE",
        "beta <<<'E'\n./mark\nE",
        "beta << -'E'\nx\n-E",
        // Its beginning.
        "beta <<'E' \\\nbeta\nE\n./mark\nE",
        "beta <<'E' \"a\nE\n\"\n./mark\nE",
        "beta <<'E' 'a\nE\n'\n./mark\nE",
        "beta <<'E' \"$(cat <<'F'\nE\nF\n)\"\n./mark\nE",
        // In a subscript.
        "CI[a=1 beta <<'E'\n$(./mark)\nE\necho ]=1",
        "CI[a=1 beta; beta <<'E'\n$(./mark)\nE\necho ]=1",
        "CI[a=1 beta \"$(cat <<'E'\nx[$(./mark)]\nE\n)\" ]=1",
        "CI[a='x[$(./mark)]' beta ]=1",
        "beta <<'E' CI[\nE\n./mark\n]",
        // A substitution that is more than the text.
        "beta \"$(cat <<'E'; ./mark\nx\nE\n)\"",
        "beta \"$(cat <<'E' | ./mark\nx\nE\n)\"",
        "beta \"$(cat <<'E' <<'F'\nE\nF\n)\"",
        "beta \"$(cat <<'E' a\nx\nE\n)\"",
        "beta \"$(cat a <<'E'\nx\nE\n)\"",
        "beta \"$( cat <<'E'\nx\nE\n)\"",
        "beta \"$(./mark; cat <<'E'\nx\nE\n)\"",
        "beta \"$(./mark <<'E'\nx\nE\n)\"",
        "beta \"$(cat <<'E'\nx\nE\n./mark\n)\"",
        "beta \"$(cat <<'E'\nx\nE\n )\"",
        "beta \"$(cat <<'E'\nx\nE)\"",
        "beta \"$(cat <<'E'\nE) $(./mark)\nE\n)\"",
        "beta \"$(cat <<'E'\nx\n E\n)\"",
        "beta \"$(cat <<'E'\nx\\\nE\n)\"",
        "beta \"$(cat <<E\n$(./mark)\nE\n)\"",
        "beta \"$(cat <<-E\n\t`./mark`\n\tE\n)\"",
        "beta \"$(cat <<E\nx\\\nE\n$X\nE\n)\"",
        "beta \"$(cat <<E\n$X\nE\n)\"",
        "beta \"$(cat <<'E'\nx\nE\n)$(./mark)\"",
        "beta \"$(cat <<'E'\n$(cat <<'F'\nE\nF\n)\nE\n)\"",
        "beta \"`cat <<'E'\nx\nE\n`\"",
        "beta \"$$(cat <<'E'\n$(./mark)\nE\n)\"",
        "beta \"$\\\n$(cat <<'E'\n$(./mark)\nE\n)\"",
        "beta $(cat <<'E'\nx\nE\n)",
        "beta \"$\\\n(./mark <<'E'\nx\nE\n)\"",
        "\"$(cat <<'E'\n./mark\nE\n)\" beta",
    ] {
        assert!(!bench.admits(command), "{command:?}");
    }
}

/// The text reaches the program as it is written.
#[tokio::test]
async fn the_text_of_a_here_document_is_what_the_program_gets() {
    let bench = bench("Bash(/bin/echo *)");
    let text = "a `b` $(c) $d ' \\ \\\\ .\n\n\tx";
    for (command, expected) in [
        (format!("/bin/echo -n \"$(cat <<'E'\n{text}\nE\n)\""), text.to_owned()),
        (format!("/bin/echo x | cat <<'E'\n{text}\nE"), format!("{text}\n")),
        (format!("cat <<'E'\n{text}\nE"), format!("{text}\n")),
        (format!("cat <<'E'\n{}\nE", "x".repeat(9_000)), format!("{}\n", "x".repeat(9_000))),
    ] {
        let outcome = bench.bash(&command).await;
        assert_eq!(outcome.detail["stdout"], expected, "{command}: {outcome:?}");
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
        ("set -e; make x", true),
        ("set -euo pipefail\nmake x | tail -n 3", true),
        ("set -o pipefail -x +e; make x", true),
        ("make x || exit 1", true),
        ("make x; exit $?", true),
        ("make x | tail -n 3; exit ${PIPESTATUS[0]}", true),
        ("make x & make y & wait", true),
        ("make x & wait $!", true),
        (": && sleep 2 && make x || false", true),
        ("set; make x", false),
        ("set -; make x", false),
        ("set -- ./mark; make x", false),
        ("set ./mark; make x", false),
        ("set -e ./mark; make x", false),
        ("set -a; make x", false),
        ("set -k; make x", false),
        ("set -T; make x", false),
        ("set -o; make x", false),
        ("set -o allexport; make x", false),
        ("set -eo posix; make x", false),
        ("set -o pipefail ./mark; make x", false),
        ("set -o $X; make x", false),
        ("set -e$X; make x", false),
        ("set $?; make x", false),
        ("set -e > b; make x", false),
        ("PS4='$(./mark)' set -x; make x", false),
        ("PS4='$(./mark)'; set -x; make x", false),
        ("exit $(./mark); make x", false),
        ("exit `./mark`; make x", false),
        ("exit $((x[$(./mark)])); make x", false),
        ("exit 'x[$(./mark)]'; make x", false),
        ("exit x; make x", false),
        ("exit 1 2; make x", false),
        ("exit $X; make x", false),
        ("wait -p 'x[$(./mark)]'; make x", false),
        ("wait -n -p PATH; make x", false),
        ("wait $(./mark); make x", false),
        ("wait $X; make x", false),
        ("sleep $(./mark); make x", false),
        ("sleep $((x[$(./mark)])); make x", false),
        ("sleep $X; make x", false),
        ("sleep 1 > b; make x", false),
        ("./sleep 1; make x", false),
        ("timeout 5 exit; make x", false),
        (": ${X:=./mark}; make x", false),
        (": $(./mark); make x", false),
        ("unset X; make x", false),
        ("trap ./mark EXIT; make x", false),
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
        assert_eq!(bench.admits(command), is_allowed, "{command}");
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
        assert!(!bench.admits(command), "{command:?}");
    }
    for command in ["git \\\n  status", "timeout 5 git status", "nice -n 5 git status -s"] {
        assert!(bench.admits(command), "{command:?}");
    }
}

/// A command of the same line as one with a rule is restricted as if there were no rule.
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
        "git status; cat l*/file 2> /dev/null",
        "git status; cat l*/f* 2> /dev/null",
        "git status; head -n 1 [l]ink/file 2> /dev/null",
        "git status; timeout 5 cat lin?/file 2> /dev/null",
        "git -C link status; git -C link grep --no-index -h kept",
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
