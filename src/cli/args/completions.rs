//! `outlast completions`: scripts with which a shell completes commands, options and their values.

use clap::builder::PossibleValuesParser;
use clap::{Command, ValueEnum};
use clap_complete::{Shell, generate};

use crate::cli::manual;
use crate::rehearsal;

/// A shell whose completions can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// The script for a shell.
pub(super) fn script(shell: CompletionShell, cli: Command) -> String {
    let (shell, more) = match shell {
        CompletionShell::Bash => (Shell::Bash, String::new()),
        CompletionShell::Zsh => (Shell::Zsh, String::new()),
        CompletionShell::Fish => (Shell::Fish, fish_values()),
    };
    let mut bytes = Vec::new();
    generate(shell, &mut with_known_values(cli), "outlast", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned() + &more
}

/// The values of arguments without a flag, which the generator leaves out for fish.
fn fish_values() -> String {
    let line = |command: &str, option: &str, values: &[&str]| {
        let condition = format!("__fish_outlast_using_subcommand {command}");
        format!("complete -c outlast -n \"{condition}\"{option} -a \"{}\"\n", values.join(" "))
    };
    // A scenario may be a file, too.
    line("help", " -f", &help_topics()) + &line("rehearse", "", &scenarios())
}

/// Adds values that are suggested, beside which others are allowed.
fn with_known_values(cli: Command) -> Command {
    cli.mut_subcommand("help", |help| {
        help.mut_arg("topic", |topic| topic.value_parser(PossibleValuesParser::new(help_topics())))
    })
    .mut_subcommand("rehearse", |rehearse| {
        rehearse
            .mut_arg("scenario", |name| name.value_parser(PossibleValuesParser::new(scenarios())))
    })
}

fn help_topics() -> Vec<&'static str> {
    let mut topics = manual::topic_names();
    topics.extend(["config", "doctor", "run"]);
    topics
}

fn scenarios() -> Vec<&'static str> {
    rehearsal::names().collect()
}
