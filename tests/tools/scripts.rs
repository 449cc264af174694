//! Compares the commands that the permission check finds in a script with those that bash runs.
//!
//! Scripts are put together from commands that only write their own name down. Whatever bash runs
//! of one that was allowed must have been allowed. `CASES=20000` tries more.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use outlast::tools::PermissionMode;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::bench::Bench;
use crate::support::programs::write_program;

/// Commands that log that they ran.
const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// The ways to write a name without saying it.
fn name() -> impl Strategy<Value = String> {
    (select(&NAMES[..]), 0..12_u8).prop_map(|(name, how)| {
        let (first, rest) = name.split_at(2);
        match how {
            0 => format!("{first}\"{rest}\""),
            1 => format!("'{name}'"),
            2 => format!("\\{name}"),
            3 => format!("{first}\\\n{rest}"),
            4 => format!("bin/{name}"),
            5 => format!("./bin/../bin/{name}"),
            6 => format!("{first}''{rest}"),
            7 => format!("$'{name}'"),
            8 => format!("{first}${{NONE}}{rest}"),
            _ => name.to_owned(),
        }
    })
}

fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', "'\\''"))
}

fn simple() -> impl Strategy<Value = String> {
    let runner = select(vec![
        "",
        "",
        "",
        "",
        "X=1 ",
        "env ",
        "env X=1 ",
        "env -u X ",
        "nohup ",
        "timeout 5 ",
        "timeout -k 1 5 ",
        "nice -n 1 ",
        "nice -5 ",
        "command ",
        "command -p ",
        "exec ",
        "xargs ",
        "xargs -n 1 ",
        "time ",
        "time -p ",
        "stdbuf -o0 ",
        "builtin command ",
        "setsid -w ",
        "find . -maxdepth 0 -exec ",
    ]);
    let argument = select(vec![
        "x",
        "-v",
        "'alpha; x'",
        "\"alpha & x\"",
        "#",
        "a#b",
        "$X",
        "*",
        "alpha",
        "{a,b}",
        "$'x'",
        ">out",
        "2>&1",
        ">&2",
        "&>out",
        "<<<x",
        "\\;",
        "'a\nalpha'",
        "\"a\\\"; alpha\"",
        "~",
        "1>out",
        "</dev/null",
        "\\\n",
        "$((1))",
        "'",
        "\"",
    ]);
    (runner, name(), prop::collection::vec(argument, 0..3)).prop_map(|(runner, name, arguments)| {
        let end = if runner.starts_with("find") { " ;" } else { "" };
        let end = end.replace(';', "\\;");
        format!("{runner}{name} {}{end}", arguments.join(" "))
    })
}

/// Harmless commands that the judge knows, with something in an argument.
fn known(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (inner, 0..36_u8).prop_map(|(inner, how)| match how {
        0 => format!("echo $({inner})"),
        1 => format!("echo \"$({inner})\""),
        2 => format!("echo `{}`", inner.replace('`', "")),
        3 => format!("cat <({inner})"),
        4 => format!("echo $['$({inner})']"),
        5 => format!("test -v 'a[$({inner})]'"),
        6 => format!("printf -v 'a[$({inner})]' x"),
        7 => format!("[ -v {} ]", quoted(&format!("a[$({inner})]"))),
        8 => format!("echo \"${{X:-$({inner})}}\""),
        9 => format!("cat <<END\n$({inner})\nEND\n"),
        10 => format!("cat <<'END'\n{inner}\nEND\n"),
        11 => format!("echo {}", quoted(&inner)),
        12 => format!("echo x # {inner}"),
        13 => format!("echo x#; {inner}"),
        14 => format!("ls > >({inner})"),
        15 => format!("cat <<<$({inner})"),
        16 => format!("echo $(( $({inner}) ))"),
        17 => format!("echo \"$[a[\\$({inner})]]\""),
        18 => format!("X=$({inner}) ls"),
        19 => format!("cat <<-\"END\"\n$({inner})\n\tEND\n{inner}"),
        20 => format!("cat <<END\nx\nEND\n{inner}"),
        21 => format!("cat <<'END' | cat\n`{inner}`\nEND\n{inner}"),
        22 => format!("cat <<E\\ND\n{inner}\nEND\n{inner}\nE\\ND"),
        23 => format!("cat <<END\n'$({inner})'\nEND"),
        24 => format!("echo \"$(echo \"$({inner})\")\""),
        25 => format!("echo \"${{X:-'$({inner})'}}\""),
        26 => format!("echo $(( 1 + $({inner}) ))"),
        27 => format!("beta <(beta <({inner}))"),
        28 => format!("echo ${{X/$({inner})/y}} ${{X:$({inner})}}"),
        29 => format!("echo $(cat <<END\n{inner}\nEND\n)"),
        30 => format!("cat <<END; {inner}\nx\nEND"),
        31 => format!("echo ${{ {inner}; }}"),
        32 => format!("echo $(case x in x) {inner};; esac)"),
        33 => format!("cat <<END\nx\\\nEND\n{inner}\nEND"),
        34 => format!("echo \"`echo \\`{}\\``\"", inner.replace('`', "")),
        _ => format!("echo \\$({inner})"),
    })
}

fn script() -> impl Strategy<Value = String> {
    simple().prop_recursive(3, 12, 3, |inner| {
        let joint = select(vec![";", "&&", "||", "|", "|&", "\n", "&", " # c\n", "\\\n;"]);
        let pair = (inner.clone(), joint, inner.clone());
        prop_oneof![
            3 => pair.prop_map(|(one, joint, other)| format!("{one} {joint} {other}")),
            3 => known(inner.clone()),
            4 => (inner, 0..34_u8).prop_map(|(inner, how)| match how {
                0 => format!("( {inner} )"),
                1 => format!("{{ {inner}; }}"),
                2 => format!("if {inner}; then {inner}; fi"),
                3 => format!("while {inner}; do {inner}; break; done"),
                4 => format!("for i in 1; do {inner}; done"),
                5 => format!("! {inner}"),
                6 => format!("time {{ {inner}; }}"),
                7 => format!("time ! {inner}"),
                8 => format!("case x in x) {inner};; esac"),
                9 => format!("f() {{ {inner}; }}; f"),
                10 => format!("eval {}", quoted(&inner)),
                11 => format!("bash -c {}", quoted(&inner)),
                12 => format!("trap {} EXIT", quoted(&inner)),
                13 => format!("until {inner}; do break; done"),
                14 => format!("[[ x ]] && {inner}"),
                15 => format!("function g {{ {inner}; }}; g"),
                16 => format!("env bash -ec {}", quoted(&inner)),
                17 => format!("case x in y|$({inner})) ls;; x) ls;; esac"),
                18 => format!("case $({inner}) in *) ls;& y) {inner};; esac"),
                19 => format!("h() ( {inner} ); h"),
                20 => format!("beta() {{ {inner}; }}; beta x"),
                21 => format!("coproc {inner}"),
                22 => format!("for i in $({inner}); do ls; done"),
                23 => format!("for PATH in bin; do {inner}; done"),
                24 => format!("[[ -n $({inner}) && -f x ]]"),
                25 => format!("if beta; then {inner}; elif {inner}; then ls; fi"),
                26 => format!("( beta && {inner} ) > out 2>&1"),
                27 => format!("{{ beta; {inner}; }} | cat"),
                28 => format!("for i in a b; do beta $i; {inner}; done"),
                29 => format!("beta $(beta x) \"$({inner})\""),
                30 => format!("!({inner})"),
                31 => format!("for ((i=$({inner}); i<1; i++)); do ls; done"),
                32 => format!("(( a[$({inner})] ))"),
                _ => format!("if true; then {inner}; else {inner}; fi"),
            }),
        ]
    })
}

/// Runs a script in bash, and says which of the commands ran.
fn ran(cwd: &Path, script: &str) -> String {
    // A log of its own: what was left running by another script must not write into this one.
    let log = tempfile::NamedTempFile::new().expect("room").into_temp_path();
    let path = format!("{}:/usr/bin:/bin", cwd.join("bin").display());
    let status = Command::new("timeout")
        .args(["-s", "KILL", "20", "bash", "-c", &format!("{script}\nwait")])
        .current_dir(cwd)
        .env_clear()
        .env("PATH", path)
        .env("LOG", log.as_os_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("there is bash");
    fs::read_to_string(&log).expect("a log")
}

#[test]
fn every_command_that_bash_runs_was_found_by_the_permission_check() {
    let allowing =
        Bench::with(|settings| settings.permissions.allow = vec!["Bash(beta *)".to_owned()]);
    let harmless = Bench::with(|_| {});
    let cwd = &harmless.cwd;
    for name in NAMES {
        write_program(&cwd.join("bin").join(name), format!("#!/bin/sh\necho {name} >> $LOG\n"));
    }
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let told = TestRunner::new(config).run(&script(), |script| {
        let all = [&allowing, &harmless].map(|bench| bench.admits(&script));
        if all == [false; 2] {
            return Ok(());
        }
        let ran = ran(cwd, &script);
        let [by_rule, by_itself] = all;
        let others = ran.contains("alpha") || ran.contains("gamma");
        prop_assert!(!(by_rule && others), "no rule allowed it: {}", script);
        prop_assert!(!by_itself || ran.is_empty(), "it was not harmless: {}", script);
        Ok(())
    });
    told.unwrap_or_else(|error| panic!("{error}"));
    // The check is of some use: what it allows runs.
    for script in ["beta x && echo y | beta", "timeout 5 beta 'a; b'; beta \"x\" 2>&1"] {
        assert!(allowing.admits(script) && !ran(cwd, script).is_empty(), "{script}");
    }
}

/// Every place in a compound command where another can stand, as `%`.
const POSITIONS: [&str; 48] = [
    "%",
    "x; %",
    "x && %",
    "x || %",
    "x | %",
    "x |& %",
    "x & %",
    "x\n%",
    "! %",
    "time %",
    "(%)",
    "( x; % )",
    "{ %; }",
    "{ x; %; }",
    "if %; then x; fi",
    "if x; then %; fi",
    "if x; then x; else %; fi",
    "if x; then x; elif %; then x; fi",
    "if x; then x; elif x; then %; fi",
    "while %; do x; done",
    "while x; do %; done",
    "until %; do x; done",
    "until x; do %; done",
    "for i in a b; do %; done",
    "for i in $(%); do x; done",
    "for i in a `%`; do x; done",
    "select i in a; do %; done",
    "case x in x) %;; esac",
    "case x in y) x;; *) %;; esac",
    "case $(%) in x) x;; esac",
    "case x in $(%)) x;; esac",
    "f() { %; }",
    "f() ( % )",
    "function f { %; }",
    "f() { x; }; %",
    "x $(%)",
    "x \"$(%)\"",
    "x `%`",
    "x \"a `%` b\"",
    "x ${y:-$(%)}",
    "x <(%)",
    "x > >(%)",
    "x <<<$(%)",
    "x > \"$(%)\"",
    "y=$(%) x",
    "y=$(%)",
    "x <<E\n$(%)\nE",
    "[[ -n $(%) ]]",
];

#[test]
fn the_permission_check_finds_a_command_in_every_position() {
    let judge = |mode, allow: &[&str], deny: &[&str]| {
        Bench::with(|settings| {
            settings.permissions.mode = mode;
            settings.permissions.allow = allow.iter().map(ToString::to_string).collect();
            settings.permissions.deny = deny.iter().map(ToString::to_string).collect();
        })
    };
    let denying = judge(PermissionMode::BypassPermissions, &["Bash"], &["Bash(evil *)"]);
    let allowing = judge(PermissionMode::Default, &["Bash(x *)"], &[]);
    for outer in POSITIONS {
        for inner in POSITIONS {
            let place = outer.replace('%', inner);
            let script = place.replace('%', "evil 1");
            assert!(!denying.admits(&script), "denied, and run: {script}");
            assert!(!allowing.admits(&script), "no rule allows it: {script}");
        }
    }
    assert!(allowing.admits("x 1; x && x | x") && denying.admits("x 1; x && x | x"));
}
