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
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut bytes = Vec::new();
    generate(shell, &mut with_known_values(cli), "outlast", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Adds values that are suggested, beside which others are allowed.
fn with_known_values(cli: Command) -> Command {
    let mut topics = manual::topic_names();
    topics.extend(["config", "doctor", "run"]);
    let scenarios: Vec<&str> = rehearsal::names().collect();
    cli.mut_subcommand("help", |help| {
        help.mut_arg("topic", |topic| topic.value_parser(PossibleValuesParser::new(topics)))
    })
    .mut_subcommand("rehearse", |rehearse| {
        rehearse.mut_arg("scenario", |name| name.value_parser(PossibleValuesParser::new(scenarios)))
    })
}
