//! Suggestions for flags and commands that do not exist: by meaning first, then by spelling.

use clap::{Arg, Command, ValueEnum};
use strsim::osa_distance;

use super::{OutputFormat, argv};

/// Flags of other tools, and their equivalents here. If several rows have the same flag, the first
/// equivalent that the command has is suggested.
const FLAGS: &[(&str, &str)] = &[
    ("--approval-mode", "--permission-mode"),
    ("--auto-approve", "--permission-mode acceptEdits"),
    ("--budget", "--max-budget-usd"),
    ("--cd", "-C"),
    ("--check", "--require"),
    ("--colour", "--color"),
    ("--config", "--settings"),
    ("--cost-limit", "--max-budget-usd"),
    ("--cwd", "-C"),
    ("--deadline", "--max-duration"),
    ("--deny", "--disallowed-tools"),
    ("--allow", "--allowed-tools"),
    ("--dir", "-C"),
    ("--directory", "-C"),
    ("--fallback", "--fallback-model"),
    ("--fields", "--output-fields"),
    ("--format", "--output-format"),
    ("--full-auto", "--permission-mode acceptEdits"),
    ("--headless", "--unattended"),
    ("--html", "--format html"),
    ("--json", "--output-format json"),
    ("--json", "--format json"),
    ("--junit", "--format junit"),
    ("--markdown", "--format markdown"),
    ("--max-budget", "--max-budget-usd"),
    ("--max-cost", "--max-budget-usd"),
    ("--max-iterations", "--max-turns"),
    ("--max-steps", "--max-turns"),
    ("--max-time", "--max-duration"),
    ("--max-wall-time", "--max-duration"),
    ("--message", "-p"),
    ("--no-color", "--color never"),
    ("--non-interactive", "--unattended"),
    ("--out", "--result-file"),
    ("--output", "--result-file"),
    ("--output-file", "--result-file"),
    ("--output-last-message", "--last-message-file"),
    ("--output-schema", "--json-schema"),
    ("--prompt", "-p"),
    ("--retries", "--max-retries"),
    ("--sandbox-mode", "--sandbox"),
    ("--schema", "--json-schema"),
    ("--session", "--resume"),
    ("--silent", "--quiet"),
    ("--stream", "--output-format stream-json"),
    ("--stream-json", "--output-format stream-json"),
    ("--system", "--system-prompt"),
    ("--text", "--output-format text"),
    ("--time-limit", "--max-duration"),
    ("--timeout", "--max-duration"),
    ("--turns", "--max-turns"),
    ("--verify", "--require"),
    ("--workdir", "-C"),
    ("--working-dir", "-C"),
    ("--yes", "--permission-mode acceptEdits"),
    ("--yolo", "--dangerously-skip-permissions"),
    ("-m", "--model"),
    ("-y", "--dangerously-skip-permissions"),
];

/// Other names of commands, with the command above them.
const COMMANDS: [(&str, &str, &str); 9] = [
    ("batch", "results", "collect"),
    ("config", "list", ""),
    ("config", "set", "init"),
    ("config", "show", ""),
    ("sessions", "cat", "show"),
    ("sessions", "delete", "prune"),
    ("sessions", "ls", "list"),
    ("sessions", "rm", "prune"),
    ("sessions", "view", "show"),
];

/// First words that are not commands, and the commands that are meant.
const WORDS: [(&str, &str); 10] = [
    ("continue", "outlast --continue"),
    ("credentials", "outlast auth status"),
    ("init", "outlast config init"),
    ("login", "outlast help credentials (there is no login) or outlast auth status"),
    ("logout", "outlast help credentials (there is no login) or outlast auth status"),
    ("resume", "outlast --resume"),
    ("settings", "outlast config"),
    ("signin", "outlast help credentials (there is no login) or outlast auth status"),
    ("status", "outlast batch status or outlast sessions"),
    ("whoami", "outlast auth status"),
];

/// Commands that are not suggested: further names, and those that only answer callers of the
/// reference CLI.
const NOT_SUGGESTED: [&str; 5] = ["install", "plugins", "setup-token", "update", "upgrade"];

/// Returns a suggestion for the first word of a command line that is not a command: by meaning, or
/// else by spelling.
pub(super) fn first_word_for(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    if let Some((_, meant)) = WORDS.iter().find(|(other, _)| *other == lower) {
        return Some((*meant).to_owned());
    }
    misspelled_command(word)
}

/// Returns the commands whose names are spelled nearly like this word.
pub(super) fn misspelled_command(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    let names = argv::commands().filter(|name| !NOT_SUGGESTED.contains(name));
    let ranked = names.map(|name| (osa_distance(&lower, name), name));
    let is_near = |(distance, name): &(usize, &str)| *distance <= name.len().div_ceil(4).min(2);
    let near: Vec<(usize, &str)> = ranked.filter(is_near).collect();
    let least = near.iter().map(|(distance, _)| *distance).min()?;
    let nearest = near.iter().filter(|(distance, _)| *distance == least).map(|(_, name)| *name);
    Some(nearest.collect::<Vec<_>>().join(" or "))
}

/// Returns the suggestion for a flag of a format or a file, by its value: `--output json`, `-o
/// text`.
pub(super) fn format_flag_for(flag: &str, value: &str, command: &Command) -> Option<String> {
    let is_output = ["-o", "--out", "--output", "--output-type", "--format"].contains(&flag);
    let is_format = OutputFormat::from_str(value, false).is_ok();
    let meant = format!("--output-format {value}");
    (is_output && is_format && has_flag(command, &meant)).then_some(meant)
}

/// Returns the innermost command that the words name: `sessions` for `sessions lst`.
pub(super) fn named_command<'a>(cli: &'a Command, words: &[String]) -> &'a Command {
    named_commands(cli, words).last().unwrap_or(cli)
}

/// Returns the commands that the words name, from the outermost.
pub(super) fn named_commands<'a>(
    cli: &'a Command,
    words: &[String],
) -> impl Iterator<Item = &'a Command> {
    words.iter().scan(cli, |command, word| {
        *command = command.find_subcommand(word)?;
        Some(*command)
    })
}

/// Returns a suggestion for a flag that the command does not have: the nearest of the command's
/// flags and of their names in other tools.
pub(super) fn flag_for(flag: &str, command: &Command) -> Option<String> {
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let flags = flags.filter_map(Arg::get_long).map(|long| format!("--{long}"));
    let flags = flags.map(|name| (name.clone(), name));
    let others = FLAGS.iter().filter(|(_, meant)| has_flag(command, meant));
    let others = others.map(|(other, meant)| ((*other).to_owned(), (*meant).to_owned()));
    let ranked = others.chain(flags).filter_map(|(name, meant)| {
        let distance = osa_distance(flag, &name);
        let begins = flag.len() > 4 && name.starts_with(flag);
        let is_near = distance <= (flag.len() / 3).min(4);
        // A common beginning is weaker evidence than a wrong letter.
        (is_near || begins).then_some((!is_near, distance, meant))
    });
    ranked.min_by_key(|(begins, distance, _)| (*begins, *distance)).map(|(_, _, meant)| meant)
}

/// Returns true if a command has the flag that `meant` begins with.
pub(super) fn has_flag(command: &Command, meant: &str) -> bool {
    let name = meant.split(' ').next().unwrap_or_default();
    let is_it = |arg: &Arg| {
        let long = arg.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
        long || arg
            .get_short()
            .is_some_and(|short| name.strip_prefix('-') == Some(&short.to_string()))
    };
    command.get_arguments().any(is_it)
}

/// Returns the suggested command line for a word that is not a subcommand of this command.
pub(super) fn command_for(word: &str, command: &Command) -> Option<String> {
    let outer = command.get_name();
    let names = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let names: Vec<&str> = names.map(Command::get_name).collect();
    let lower = word.to_ascii_lowercase();
    let by_meaning = COMMANDS.iter().find(|(of, other, _)| *of == outer && *other == lower);
    if let Some((_, _, meant)) = by_meaning {
        return Some(format!("outlast {outer} {meant}").trim_end().to_owned());
    }
    let near = names.iter().map(|name| (osa_distance(&lower, name), *name));
    let near = near.filter(|(distance, name)| *distance <= name.len().div_ceil(3)).min();
    near.map(|(_, name)| format!("outlast {outer} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args;

    #[test]
    fn what_is_suggested_exists_in_some_command() {
        let cli = args::command();
        for (other, meant) in FLAGS {
            let exists = [&cli].into_iter().chain(cli.get_subcommands());
            assert!(exists.into_iter().any(|command| has_flag(command, meant)), "{meant}");
            let is_flag_of_run = has_flag(&cli, other);
            assert!(!is_flag_of_run, "{other} is a flag of its own");
        }
        for (outer, other, meant) in COMMANDS {
            let command = cli.find_subcommand(outer).expect("a command");
            assert!(meant.is_empty() || command.find_subcommand(meant).is_some(), "{meant}");
            assert!(command.find_subcommand(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_flag_is_suggested_where_the_command_has_it() {
        let cli = args::command();
        let report = cli.find_subcommand("report").expect("a command");
        let table = [
            ("--json", &cli, Some("--output-format json")),
            ("--json", report, Some("--format json")),
            ("--timeout", &cli, Some("--max-duration")),
            ("--timeout", report, None),
            ("--max-turn", &cli, Some("--max-turns")),
            ("--prompt", &cli, Some("-p")),
            ("--message", &cli, Some("-p")),
            ("--approval-mode", &cli, Some("--permission-mode")),
            ("--max-wall-time", &cli, Some("--max-duration")),
            ("-m", &cli, Some("--model")),
            ("-y", &cli, Some("--dangerously-skip-permissions")),
            ("-z", &cli, None),
            ("--max-budet", &cli, Some("--max-budget-usd")),
            ("--modle", &cli, Some("--model")),
            ("--fallback-mo", &cli, Some("--fallback-model")),
            ("--banana", &cli, None),
        ];
        for (flag, command, meant) in table {
            assert_eq!(flag_for(flag, command).as_deref(), meant, "{flag}");
        }
    }

    #[test]
    fn the_first_word_is_answered_by_what_is_meant() {
        let cli = args::command();
        for (word, meant) in [
            ("session", Some("sessions")),
            ("docter", Some("doctor")),
            ("init", Some("outlast config init")),
            ("plugn", Some("plugin")),
            ("updat", None),
            ("banana", None),
        ] {
            assert_eq!(first_word_for(word).as_deref(), meant, "{word}");
        }
        assert!(first_word_for("login").is_some_and(|it| it.contains("help credentials")));
        for (word, _) in WORDS {
            assert!(cli.find_subcommand(word).is_none(), "{word} is a command");
        }
    }

    #[test]
    fn the_value_tells_a_format_from_a_file() {
        let cli = args::command();
        let meant = |flag, value| format_flag_for(flag, value, &cli);
        assert_eq!(meant("--output", "json").as_deref(), Some("--output-format json"));
        assert_eq!(meant("-o", "stream-json").as_deref(), Some("--output-format stream-json"));
        assert_eq!(meant("--output", "out.json"), None);
        assert_eq!(meant("--model", "json"), None);
    }

    #[test]
    fn a_command_is_suggested_by_meaning_and_by_spelling() {
        let cli = args::command();
        for (outer, word, meant) in [
            ("sessions", "lst", Some("outlast sessions list")),
            ("sessions", "rm", Some("outlast sessions prune")),
            ("batch", "statuss", Some("outlast batch status")),
            ("config", "list", Some("outlast config")),
            ("config", "zzz", None),
        ] {
            let command = cli.find_subcommand(outer).expect("a command");
            assert_eq!(command_for(word, command).as_deref(), meant, "{outer} {word}");
        }
    }
}
