//! Adversarial commands: the permission check stays fast and cannot be evaded.

use std::time::Duration;

use outlast::tools::{PermissionMode, ToolRefusal};
use serde_json::json;

use super::bench::{Bench, call};

use crate::support::rotation::rotating_part;
use crate::support::stopwatch::processor_time;

/// For one command, where nothing is optimised and others use the processor too.
const SOON: Duration = Duration::from_secs(2);

/// Length of a valid command: the kernel rejects longer arguments.
const VALID_LETTERS: usize = 120_000;

const UNITS: &[&str] = &[
    "(",
    "$(",
    "<<",
    "<<A\n",
    "{ ",
    "if ",
    "if a; then ",
    "for i in ",
    "for i in a; do ",
    "while cd a; do ",
    "f() ",
    "a|",
    "a&&",
    "a=(",
    "a=$(",
    "x <<E; ",
    "`",
    "\"",
    "'",
    "\"$(",
    "\"'",
    "'\"'\"",
    "\"\\\"",
    "${",
    "${a:-",
    "case a in a) ",
    "cd a;",
    "cd a && ",
    "cd a & (",
    "cd a/../..;",
    "cat x; cd b; ",
    "eval '",
    "eval ",
    "eval \"",
    "eval a;",
    "trap ",
    "test $(",
    "test `a` ",
    "env test '$(a)' ",
    "env ",
    "env eval ",
    "env rm ",
    "env rm; (",
    "xargs ",
    "sudo ",
    "sudo -u ",
    "bash ",
    "bash -c ",
    "bash -c \"",
    "bash -c 'a' ",
    "env bash -c \"$a\" ",
    "nice -n 1 ",
    "timeout 5 ",
    "stdbuf -o ",
    "time ",
    "find -exec ",
    "npx ",
    "docker run ",
    "uv run -- ",
    "set -e; ",
    "rm $a/b/* ",
    "x <<E\nE\n",
    "A=1 ",
    "rm a ",
    "rm a; ",
    "rm ../",
    "rm -rf ../a; cd x; (",
    "a/",
    "../",
    "a/../",
    "~/",
    "$a ",
    "* ",
    "> a ",
    "< a ",
    "[[ ",
    "[ ",
    "\\\n",
    "a\\\n",
    "é",
    "((",
    "<(",
    "!",
    "# ",
    "#\n",
    "-c ",
    "-",
    "sed s/a/b/ ",
];

fn benches() -> [(&'static str, Bench); 3] {
    let owned = |rules: &[&str]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let some =
        Bench::with(|settings| settings.permissions.allow = owned(&["Bash(a *)", "Bash(* b)"]));
    let none = Bench::with(|settings| {
        settings.permissions.allow = owned(&["Bash"]);
        settings.permissions.deny =
            owned(&["Bash(rm * b)", "Bash(* c * d)", "Read(.env)", "Edit(/x/*.y)"]);
    });
    let any = Bench::with(|settings| settings.permissions.mode = PermissionMode::BypassPermissions);
    [("none", none), ("some", some), ("any", any)]
}

/// Whether it is allowed, and what it took of a processor's time to say so.
fn judge(bench: &Bench, command: &str) -> (bool, Duration) {
    let before = processor_time();
    let answer = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
    let took = processor_time().saturating_sub(before);
    if let Err(ToolRefusal::Invalid(outcome)) = &answer {
        let text = outcome.visible_text();
        let is_valid = command.len() <= VALID_LETTERS && !text.contains("there is no folder");
        assert!(!is_valid, "{outcome:?}");
    }
    (answer.is_ok(), took)
}

/// Judges it by all sorts of rules, and says who took too long. `TIMES=1` prints how long.
#[expect(clippy::print_stdout, reason = "TIMES=1 asks for the times")]
fn slow(name: &str, command: &str, benches: &[(&str, Bench)]) -> Vec<String> {
    let mut late = Vec::new();
    for (rules, bench) in benches {
        let (allowed, took) = judge(bench, command);
        let told = format!("{took:?} {rules} {allowed} {} {name:?}", command.len());
        if std::env::var_os("TIMES").is_some() {
            println!("{told}");
        }
        late.extend((took > SOON).then_some(told));
    }
    late
}

#[test]
fn adversarial_commands_are_checked_quickly() {
    let benches = benches();
    let before = processor_time();
    let mut late = Vec::new();
    for unit in rotating_part(UNITS, 9) {
        for letters in [100, 9_999, 100_000, 1_000_000] {
            let command = unit.repeat(letters / unit.len());
            // Those that look at everything are enough where it takes longest.
            let benches = if letters < 10_000 { &benches[..] } else { &benches[..1] };
            late.extend(slow(unit, &command, benches));
        }
    }
    assert!(late.is_empty(), "{late:#?}");
    let took = processor_time().saturating_sub(before);
    assert!(took < Duration::from_mins(1), "{took:?}");
}

#[test]
fn commands_with_many_different_words_are_checked_quickly() {
    let benches = benches();
    let numbered =
        ["cd a#;", "cd a#; rm b#; (", "rm a# ", "(rm #) ", "env a# ", "a# ", "> a# ", "(a#/b/c/d "];
    let mut late = Vec::new();
    for pattern in rotating_part(numbered, 7) {
        for letters in [9_900, 119_000] {
            let mut command = String::new();
            for count in 0.. {
                if command.len() + 40 > letters {
                    break;
                }
                command.push_str(&pattern.replace('#', &format!("{count:x}")));
            }
            late.extend(slow(pattern, &command, &benches));
        }
    }
    let scripts = (0..90).map(|count| format!("bash -c 'eval \"eval bash -c a{count}\"'; "));
    late.extend(slow("scripts", &scripts.collect::<String>(), &benches));
    let deep = format!("cd {}; {}", "a/".repeat(2_000), "cd b; cat c; ".repeat(400));
    late.extend(slow("deep", &deep, &benches));
    let wide = format!("{}{}", "cd a;".repeat(5), "cat c d e f g h;".repeat(600));
    late.extend(slow("wide", &wide, &benches));
    assert!(late.is_empty(), "{late:#?}");
}

#[test]
fn a_deny_rule_is_found_in_a_very_long_command() {
    let denied = ["rm -rf /", "rm -rf ~", "rm -rf \"$HOME\""];
    let fillers = [
        "env ",
        "eval ",
        "sudo ",
        "xargs ",
        "cd a; ",
        "cd a && ",
        "bash -c ",
        "(:); ",
        "nice -n 1 ",
        "A=1 ",
        "echo a/b; ",
        "cat <(a); ",
        "eval eval; ",
        "rm a; ",
    ];
    let [_, _, (_, bypass)] = benches();
    let owned = |rules: &[&str]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let ruled = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.permissions.deny = owned(&["Bash(git push *)"]);
    });
    let mut dodged = Vec::new();
    for filler in rotating_part(fillers, 14) {
        for letters in [50, 900, 9_900, 110_000] {
            let filling = filler.repeat(letters / filler.len());
            let ruinous = denied.map(|end| (&bypass, end));
            for (bench, end) in
                ruinous.into_iter().chain([(&ruled, "git push x"), (&ruled, "/bin/git push")])
            {
                if judge(bench, &format!("{filling}{end}")).0 {
                    dodged.push(format!("{letters} letters of {filler:?}, then {end}"));
                }
            }
        }
    }
    assert!(dodged.is_empty(), "{dodged:#?}");
}

#[test]
fn a_long_here_document_is_allowed_when_all_of_bash_is() {
    let line =
        "Then run `cargo test` and remove it: rm target/x; for more time, see https://a.b/c.\n";
    let text = line.repeat(110_000 / line.len());
    let [_, _, (_, bypass)] = benches();
    let owned = |rules: &[&str]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let allowed = Bench::with(|settings| {
        settings.permissions.allow = owned(&["Bash"]);
        settings.permissions.deny = owned(&["Read(.env)"]);
    });
    for bench in [bypass, allowed] {
        let (is_allowed, took) = judge(&bench, &format!("cat > notes <<'END'\n{text}END\n"));
        assert!(is_allowed && took < SOON, "{took:?}");
    }
}
