//! What the README promises: its commands are run, its tables are held against the program's own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use outlast::cli::{args, exit};
use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::json;

use super::exits::every_reason;
use crate::support::{RunBuilder, serve};

const README: &str = include_str!("../../README.md");

/// The commands of each block.
fn blocks() -> Vec<&'static str> {
    let parts = README.split("```sh\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default()).collect()
}

/// Everything between backquotes on the lines that `wanted` picks.
fn quoted(wanted: impl Fn(&str) -> bool) -> BTreeSet<&'static str> {
    let lines = README.lines().filter(|line| wanted(line));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The commands that start outlast, one by one. A line that ends in a backslash goes on.
fn examples() -> Vec<String> {
    let joined = blocks().concat().replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|line| line.contains("outlast ")).map(str::to_owned).collect()
}

/// Every example that starts outlast can be typed as it stands, and works.
#[tokio::test]
async fn every_example_runs() {
    let examples = examples();
    assert!(examples.len() > 8, "{examples:?}");
    for example in examples {
        let content = if example.contains("--json-schema") {
            Scenario::new().tool("StructuredOutput", json!({ "files": [] }))
        } else {
            Scenario::new().reply("Done.")
        };
        let server = serve(content.after(AfterLast::RepeatLast));
        let trial = RunBuilder::bare(&server.base_url());
        let work = trial.work();
        let program = Path::new(env!("CARGO_BIN_EXE_outlast"));
        let bin = work.join("bin");
        fs::create_dir(&bin).expect("the folder is ours");
        std::os::unix::fs::symlink(program, bin.join("outlast")).expect("a link");
        for other in ["git", "cargo"] {
            let path = bin.join(other);
            fs::write(&path, "#!/bin/sh\necho fine\n").expect("the folder is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        fs::write(work.join("task.md"), "Say hello.").expect("the folder is ours");
        let schema = json!({ "type": "object", "required": ["files"] }).to_string();
        fs::write(work.join("answer.schema.json"), schema).expect("the folder is ours");
        let path = std::env::var("PATH").expect("there is one");
        let ended = trial
            .env("PATH", &format!("{}:{path}", bin.display()))
            .env("GATE_KEY", "another-key-0123456789")
            .in_shell(&example)
            .run()
            .await;
        if example.contains("--continue") {
            // There is nothing to go on with in a fresh folder.
            assert_eq!(ended.code, Some(2), "{example}\n{ended:?}");
            assert!(ended.stderr.contains("no session to continue"), "{ended:?}");
        } else {
            assert_eq!(ended.code, Some(0), "{example}\n{ended:?}");
        }
    }
}

#[test]
fn every_flag_that_is_named_is_one() {
    let command = args::command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let known: BTreeSet<String> = commands
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect();
    let foreign = ["--path", "--bench"];
    let letters = |one: char| one.is_ascii_alphabetic() || one == '-';
    for word in README.split(|one: char| !letters(one)).filter(|word| word.starts_with("--")) {
        let capitals = |one: char| one.is_ascii_uppercase();
        let kebab = |one: char| if capitals(one) { vec!['-', one] } else { vec![one] };
        let word: String = word.chars().flat_map(kebab).collect::<String>().to_ascii_lowercase();
        let word = word.as_str();
        let rule = word.chars().all(|one| one == '-');
        assert!(rule || known.contains(word) || foreign.contains(&word), "{word} is no flag");
    }
}

#[test]
fn every_class_of_failure_and_every_end_is_explained() {
    let told = quoted(|line| line.starts_with('|'));
    // They are ends, and told as such.
    let ends = [ErrorClass::Aborted, ErrorClass::Refusal];
    for class in ErrorClass::ALL.into_iter().filter(|class| !ends.contains(class)) {
        assert!(told.contains(class.name()), "{class} is not in the tables");
    }
    for reason in every_reason() {
        if matches!(reason, StopReason::ModelError(class) if StopReason::from_class(class) != reason)
        {
            continue;
        }
        let code = exit::verdict(reason).exit_code();
        let row = README.lines().find(|line| {
            line.starts_with("| `")
                && line
                    .split('|')
                    .nth(1)
                    .is_some_and(|first| first.split('`').any(|name| name == reason.name()))
                && line
                    .split('|')
                    .nth(2)
                    .is_some_and(|codes| codes.split(',').any(|one| one.trim() == code.to_string()))
        });
        assert!(row.is_some(), "{} with exit code {code} has no row", reason.name());
    }
}
