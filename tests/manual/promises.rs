//! Compares the manual on flags, variables, failures and exit codes with the program's own tables.

use std::collections::BTreeSet;

use outlast::cli::{args, exit};
use outlast::config::known_variables;
use outlast::hooks::HookEvent;
use outlast::messages::result_fields;
use outlast::recovery::{ErrorClass, StopReason};

use super::pages::{documents, read};

/// Flags of other programs, and one that `auth status` reads from its words.
const FOREIGN: [&str; 22] = [
    "--all",
    "--arg",
    "--bench",
    "--binary",
    "--body-file",
    "--cached",
    "--compact-output",
    "--fill",
    "--force-create",
    "--from-env-file",
    "--head",
    "--include-untracked",
    "--init",
    "--message",
    "--namespace",
    "--path",
    "--porcelain",
    "--rm",
    "--short",
    "--show-toplevel",
    "--text",
    "--time",
];

/// Variables that outlast sets, for hooks and in the files of commands.
const GIVEN: [&str; 10] = [
    "CLAUDE_PLUGIN_DATA",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_EFFORT",
    "CLAUDE_CODE_MCP_SERVER_NAME",
    "CLAUDE_CODE_MCP_SERVER_URL",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_SESSION_ID",
    "CLAUDE_SKILL_DIR",
];

/// Everything between backquotes on the lines of tables.
fn quoted(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_flag_that_is_named_is_one() {
    let command = args::command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let known: BTreeSet<String> = commands
        .flat_map(|command| std::iter::once(command).chain(command.get_subcommands()))
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect();
    let letters = |one: char| one.is_ascii_alphabetic() || one == '-';
    for (path, text) in documents() {
        // The comments around tables are no flags.
        let text = text.replace("<!--", "").replace("-->", "");
        for word in text.split(|one: char| !letters(one)).filter(|word| word.starts_with("--")) {
            // Flags may be written in camel case, as other tools have them.
            let kebab = |one: char| {
                if one.is_ascii_uppercase() { vec!['-', one] } else { vec![one] }
            };
            let word = word.chars().flat_map(kebab).collect::<String>().to_ascii_lowercase();
            let is_rule = word.chars().all(|one| one == '-');
            let is_known = known.contains(&word) || FOREIGN.contains(&word.as_str());
            assert!(is_rule || is_known, "{path}: {word} is no flag");
        }
    }
}

#[test]
fn every_variable_that_is_named_is_read_or_set() {
    let read = known_variables::variable_names();
    let known: BTreeSet<&str> = read.chain(GIVEN).collect();
    let letters = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let prefixes = ["ANTHROPIC_", "CLAUDE_", "MCP_", "OUTLAST_"];
    for (path, text) in documents() {
        let words = text.split(|one: char| !letters(one));
        let variables = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
        for word in variables {
            assert!(known.contains(word), "{path}: {word} is no variable");
        }
    }
}

#[test]
fn every_event_of_hooks_is_in_the_table() {
    let page = read("man/outlast-hooks.7.md");
    let told = quoted(&page);
    for event in HookEvent::ALL {
        assert!(told.contains(event.name()), "{} is not in the table", event.name());
    }
}

#[test]
fn every_class_of_failure_is_in_the_table() {
    let page = read("man/outlast-recovery.7.md");
    let told = quoted(&page);
    // These are ends of a run, and stand in the table of ends.
    let ends = [ErrorClass::Aborted, ErrorClass::Refusal];
    for class in ErrorClass::ALL.into_iter().filter(|class| !ends.contains(class)) {
        assert!(told.contains(class.name()), "{class} is not in the table");
    }
}

#[test]
fn every_end_of_a_run_is_in_the_table_with_its_exit_code() {
    let page = read("man/outlast-result.7.md");
    for reason in StopReason::all() {
        if matches!(reason, StopReason::ModelError(class) if StopReason::from_class(class) != reason)
        {
            continue;
        }
        let code = exit::exit_status(reason).exit_code().to_string();
        let is_of_reason = |line: &&str| {
            let mut cells = line.split('|').skip(1);
            let has_name = |cell: &str| cell.split('`').any(|name| name == reason.name());
            let has_code = |cell: &str| cell.split(',').any(|one| one.trim() == code);
            cells.next().is_some_and(has_name) && cells.next().is_some_and(has_code)
        };
        let row = page.lines().filter(|line| line.starts_with("| `")).find(is_of_reason);
        assert!(row.is_some(), "{} with exit code {code} has no row", reason.name());
    }
}

#[test]
fn every_field_of_a_result_is_explained() {
    let page = read("man/outlast-result.7.md");
    let (_, rest) = page.split_once("\n## The result object\n").expect("a section");
    let section = rest.split("\n## ").next().expect("a text");
    for field in result_fields() {
        assert!(section.contains(&format!("`{field}`")), "{field} is not explained");
    }
}

#[test]
fn the_readme_has_every_exit_code() {
    let readme = read("README.md");
    let rows = || readme.lines().filter(|line| line.starts_with("| `"));
    for (code, _) in exit::MEANINGS.iter().filter(|(code, _)| *code < 128) {
        let row = rows().find(|row| row.starts_with(&format!("| `{code}` |")));
        assert!(row.is_some(), "exit code {code} is not in the README");
    }
    assert!(rows().any(|row| row.starts_with("| `128+N` |")), "signals are not in the README");
}
