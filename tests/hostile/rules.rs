//! A rule for a program grants what the program can do, other programs included. What the kernel
//! keeps from commands, it keeps from all of them.

use std::fs;

use outlast::tools::{BadSettings, Enforced, PermissionMode, SandboxMode, ToolSettings};
use serde_json::json;

use crate::support::programs::write_program;
use crate::support::rotation::rotating_part;
use crate::tools::bench::{call, text};
use crate::tools::sandbox::{SandboxFixture, singled_out};

/// A program that another program starts: it leaves a mark in the work tree, which is allowed, and
/// then tries forbidden actions.
const ATTACK: &str = r#"#!/bin/sh
: > "$ROOT/work/ran"
echo gone > "$ROOT/outside/file"
rm -f "$ROOT/outside/file"
ln -s x "$ROOT/outside/new"
mkdir "$ROOT/home/.ssh/new"
echo 'x' >> "$ROOT/home/.bashrc"
cat "$ROOT/home/.ssh/id_x" "$ROOT/home/.netrc" "$ROOT/home/.config/gh/hosts.yml"
cat "$ROOT/config/projects/other.jsonl"
exit 0
"#;

/// The program that has a rule, and a command of it that runs `./attack`.
const WAYS: &[(&str, &str)] = &[
    ("git", "git -c alias.x='!./attack' x"),
    ("git", "git -c core.fsmonitor=./attack status"),
    ("git", "git -c diff.external=./attack diff"),
    ("git", "git fetch --upload-pac=./attack ."),
    ("git", "git grep -O./attack kept"),
    ("git", "git rebase -q --autostash --exec ./attack HEAD~1"),
    ("git", "git bisect start HEAD HEAD~1; git bisect run ./attack"),
    ("git", "git config core.hooksPath hooks && git commit -q --allow-empty -m x"),
    ("sed", "sed '1e ./attack' file"),
    ("sed", "sed 's/.*/.\\/attack/e' file"),
    ("awk", "awk 'BEGIN { system(\"./attack\") }'"),
    ("awk", "awk 'BEGIN { \"./attack\" | getline }'"),
    ("make", "make --eval='$(shell ./attack)'"),
    ("make", "make -f Rules"),
    ("find", "find . -maxdepth 0 -exec ./attack ';'"),
    ("find", "find . -maxdepth 0 -execdir sh ./attack ';'"),
    ("tar", "tar cf x.tar file --checkpoint=1 --checkpoint-action=exec=./attack"),
    ("tar", "tar cf x.tar -I ./attack file"),
    ("perl", "perl -e 'system \"./attack\"'"),
    ("python3", "python3 -c 'import os; os.system(\"./attack\")'"),
    ("sort", "sort -S 64K --compress-program=./attack big"),
    ("env", "env ./attack"),
    ("xargs", "xargs -a file ./attack"),
    ("nice", "nice ./attack"),
    ("setsid", "setsid -w ./attack"),
    ("timeout", "timeout 60 ./attack"),
    ("split", "split --filter=./attack file"),
    ("ssh", "ssh -o ProxyCommand=./attack x"),
    ("zip", "zip -q x.zip file -T -TT ./attack"),
    ("wget", "wget --use-askpass=./attack http://127.0.0.1:9"),
    ("vim", "vim -es -c '!./attack' -c 'qa!'"),
    ("gdb", "gdb -batch -ex 'shell ./attack'"),
    ("node", "node -e 'require(\"child_process\").execFileSync(\"./attack\")'"),
    ("cargo", "cargo --config 'build.rustc=\"./attack\"' check"),
];

/// Commands are found by their own name only, so that each has just one rule.
fn fixture(program: &str) -> SandboxFixture {
    let fixture = SandboxFixture::with(|settings: &mut ToolSettings, root| {
        settings.permissions.mode = PermissionMode::DontAsk;
        settings.permissions.allow = vec![format!("Bash({program} *)")];
        settings.environment.push(("ROOT".into(), root.into()));
    });
    let work = fixture.root.join("work");
    fs::write(work.join("file"), "kept\n").expect("a file");
    fs::write(work.join("big"), "some line\n".repeat(20_000)).expect("a file");
    fs::write(work.join("Rules"), "all:\n\t./attack\n").expect("a file");
    fs::write(work.join("Cargo.toml"), "[package]\nname = \"x\"\nversion = \"0.1.0\"\n")
        .expect("a file");
    fs::create_dir(work.join("src")).expect("a folder");
    fs::write(work.join("src/lib.rs"), "").expect("a file");
    for name in ["attack", "hooks/pre-commit"] {
        write_program(&work.join(name), ATTACK);
    }
    fixture
}

fn with_history(fixture: &SandboxFixture) {
    let script = "git init -q && git add file && git commit -qm 1 && echo more >> file \
                  && git commit -qam 2 && echo changed >> file";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).current_dir(fixture.root.join("work"));
    for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.org")] {
        shell.env(format!("GIT_AUTHOR_{name}"), value);
        shell.env(format!("GIT_COMMITTER_{name}"), value);
    }
    assert!(shell.status().expect("a shell").success());
}

#[tokio::test]
async fn a_program_with_a_rule_that_runs_others_stays_inside_the_sandbox() {
    let (ways, mut ran) = (rotating_part(WAYS, 2), Vec::new());
    for (program, command) in &ways {
        if which::which(program).is_err() {
            continue;
        }
        let fixture = fixture(program);
        if !fixture.holds() {
            return;
        }
        if *program == "git" {
            with_history(&fixture);
        }
        let outcome = fixture.bash(command).await;
        assert!(outcome.denied.is_none(), "{command}: {outcome:?}");
        if fixture.root.join("work/ran").exists() {
            ran.push(*command);
        }
        let shown = text(&outcome);
        assert!(!shown.contains("the-secret"), "{command}: {shown}");
        assert_eq!(fixture.read("outside/file"), "kept\n", "{command}");
        for made in ["outside/new", "home/.ssh/new", "home/.bashrc"] {
            assert!(fixture.root.join(made).symlink_metadata().is_err(), "{command}: {made}");
        }
    }
    assert!(ran.len() >= ways.len() / 4, "these ran the attack: {ran:#?}");
}

#[test]
fn a_rule_for_one_program_is_no_rule_for_the_next() {
    let fixture = fixture("git");
    for command in [
        "git status; ./attack",
        "git status && ./attack",
        "git status | ./attack",
        "./attack | git status",
        "git status\n./attack",
        "git log $(./attack)",
        "git log `./attack`",
        "git log <(./attack)",
        "git log \"${x:-`./attack`}\"",
        "git commit -F - <<E\n$(./attack)\nE",
        "GIT_PAGER=./attack git log",
        "PATH=.:$PATH git log",
        "for x in 1; do git log; ./attack; done",
        "git() { ./attack; }; git log",
        "env git log",
        "./git log",
        "git",
        "gitk --all",
        "g\\it log; ./attack",
        "git log > ../outside/file",
    ] {
        let refused = fixture.toolbox.admit(&call("Bash", json!({ "command": command })));
        let is_whole = command == "git";
        assert_eq!(refused.is_ok(), is_whole, "{command}");
    }
}

#[test]
fn plan_mode_has_no_rules_for_programs() {
    let fixture = SandboxFixture::with(|settings: &mut ToolSettings, _| {
        settings.permissions.mode = PermissionMode::Plan;
        settings.permissions.allow = vec!["Bash(git *)".to_owned(), "Bash(make *)".to_owned()];
    });
    for command in ["git -c alias.x='!./attack' x", "git config a.b c", "git push", "make x"] {
        let refused = fixture.toolbox.admit(&call("Bash", json!({ "command": command })));
        assert!(refused.is_err(), "{command}");
    }
}

/// Deny rules for paths hold for every program, whatever it is called, where the kernel can.
#[tokio::test]
async fn a_deny_rule_for_a_path_holds_for_commands_or_is_reported() {
    for (rules, ways, exposed) in [
        // Outside the working directories: the kernel holds it.
        (vec!["Read(//ROOT/outside/**)"], &READS[..], vec![]),
        (vec!["Read(//ROOT/outside/file)"], &READS[..], vec![]),
        (vec!["Read(/ROOT/outside/**)"], &READS[..], vec![]),
        // What may be meant by a path below the working directory is no gap.
        (vec!["Read(/usr/**)", "Edit(/tmp/**)"], &[], vec![]),
        (vec!["Read(~/notes)"], &["cat ../ho*/notes", "p=notes; cat ../ho*/$p"][..], vec![]),
        (vec!["Edit(~/.npm/**)"], &["d=np; mkdir -p ~/.${d}m && echo x > ~/.${d}m/new"], vec![]),
        // Inside, or a pattern, or what programs need: it is reported.
        (vec!["Read(./key)"], &[], vec!["ROOT/work/key"]),
        (vec!["Edit(./key)"], &[], vec!["ROOT/work/key"]),
        (vec!["Edit(./absent)"], &[], vec![]),
        (vec!["Read(**/.env)", "Edit(*.lock)"], &[], vec!["Read(**/.env)", "Edit(*.lock)"]),
        (vec!["Read(//ROOT/outside/*.pem)"], &[], vec!["Read(//ROOT/outside/*.pem)"]),
        (vec!["Edit(//ROOT/outside/*.pem)"], &[], vec![]),
        (vec!["Read(~/.ssh/*)"], &[], vec![]),
        (vec!["Read(//usr/**)", "Read(~/**)"], &[], vec!["Read(//usr/**)", "Read(~/**)"]),
        (vec!["Edit(**)"], &[], vec!["Edit(**)"]),
    ] {
        let with_mode = |mode| {
            let rules = rules.clone();
            SandboxFixture::try_with(move |settings, root| {
                fs::write(root.join("work/key"), "the-key\n").expect("a file");
                let root = root.display().to_string();
                let rule = |rule: &&str| rule.replace("/ROOT", &root);
                settings.permissions.deny = rules.iter().map(rule).collect();
                settings.sandbox.mode = mode;
                // The network would expose the sockets of the machine's services.
                settings.sandbox.no_network = true;
            })
        };
        let fixture = with_mode(SandboxMode::Workspace).map_err(|(why, _)| why).expect("good");
        if !fixture.holds() {
            return;
        }
        for command in ways {
            let outcome = fixture.bash(command).await;
            assert!(
                outcome.is_error && outcome.denied.is_none(),
                "{rules:?} {command}: {outcome:?}"
            );
        }
        let state = fixture.toolbox.sandbox();
        let root = fixture.root.display().to_string();
        let expected: Vec<String> = exposed
            .iter()
            .map(|text| text.replace("/ROOT", &root).replace("ROOT", &root))
            .collect();
        assert_eq!(singled_out(&state.exposed), expected, "{rules:?}");
        let is_full = state.enforced == Enforced::Full;
        assert_eq!(is_full, exposed.is_empty(), "{rules:?}: {state:?}");
        assert_eq!(fixture.toolbox.sandbox_warning().is_none(), is_full, "{rules:?}");
        let works = fixture.bash("python3 -I -S -c 'open(\"new\", \"w\").write(\"x\")'").await;
        assert!(!works.is_error, "{rules:?}: {works:?}");
        match with_mode(SandboxMode::Required) {
            Ok(_) => assert!(is_full, "{rules:?}"),
            Err((BadSettings::Sandbox { why }, _)) => assert!(!is_full, "{rules:?}: {why}"),
            Err((why, _)) => panic!("{rules:?}: {why}"),
        }
    }
}

/// No rule sees these words.
const READS: [&str; 4] = [
    "cat ../out*/file",
    "d=out; cat ../${d}side/file",
    "cd ..; for f in o*; do grep . $f/*; done",
    "python3 -I -S -c 'print(open(\"../out\" + \"side/file\").read())'",
];
