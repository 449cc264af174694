//! Help: `-h` is a summary that fits a screen, `--help` lists everything.

use std::fmt::Write as _;

use clap::builder::Styles;
use clap::builder::styling::Style;
use clap::{Arg, Command};

use super::{compatibility, entries};
use crate::cli::output::{Paragraph, Styling};

/// The options of a run that the summary shows, by their long names.
const MOST_USED: [&str; 11] = [
    "model",
    "permission-mode",
    "allowed-tools",
    "max-turns",
    "max-budget-usd",
    "max-duration",
    "require",
    "output-format",
    "continue",
    "resume",
    "help",
];

/// The width of the summary.
const COLUMNS: usize = 80;

/// The layout of all help.
const TEMPLATE: &str = "{about-with-newline}
{usage-heading} {usage}

{before-help}{all-args}{after-help}";

const EXAMPLES: &str = "
  outlast \"fix the failing test\" --permission-mode acceptEdits
  outlast \"update the docs\" --max-turns 40 --max-budget-usd 2 --max-duration 30m
  outlast \"make the tests pass\" --require 'cargo test' --allowed-tools Bash
  outlast --continue         # after a crash or an outage
  outlast rehearse outage    # without key and cost; first: outlast doctor";

/// Examples of the other commands, by their paths.
const OF_COMMANDS: [(&str, &str); 12] = [
    (
        "rehearse",
        "
  outlast rehearse --list
  outlast rehearse outage
  outlast rehearse --from latest          # the last session again, faults included",
    ),
    (
        "doctor",
        "
  outlast doctor
  outlast doctor --verbose                       # what is in order, too
  outlast doctor -- --model opus --trust-project # the same for these flags",
    ),
    (
        "config",
        "
  outlast config --changed                # what is not at its default, and why
  outlast config get maxTurns
  outlast config init --project           # a file to choose settings from
  outlast config --changed -- --model opus",
    ),
    (
        "config init",
        "
  outlast config init
  outlast config init --project",
    ),
    (
        "config get",
        "
  outlast config get permissions.allow
  outlast config get maxTurns -- --max-turns 3",
    ),
    (
        "sessions",
        "
  outlast sessions
  outlast sessions show latest
  outlast sessions prune --older-than 30d",
    ),
    (
        "sessions show",
        "
  outlast sessions show
  outlast sessions show latest --full",
    ),
    (
        "report",
        "
  outlast report                          # on the last session of this folder
  outlast report --format html --output report.html
  outlast report --all --since 7d",
    ),
    (
        "batch",
        "
  outlast batch tasks.jsonl --jobs 4 --max-budget-usd 20
  outlast batch tasks.jsonl --engine slurm --render",
    ),
    (
        "completions",
        "
  outlast completions bash > ~/.local/share/bash-completion/completions/outlast
  outlast completions zsh > ~/.zfunc/_outlast    # a folder of $fpath
  outlast completions fish > ~/.config/fish/completions/outlast.fish",
    ),
    (
        "schema",
        "
  outlast schema result > result.schema.json",
    ),
    (
        "help",
        "
  outlast help exit-codes
  outlast help settings",
    ),
];

const MORE: &str = "More: outlast --help, outlast help options. Manual: outlast help TOPIC, such as
exit-codes, settings, recipes or hooks; outlast help lists them.";

const BOLD: Style = Style::new().bold();

/// Adds examples and layout to the commands.
pub(super) fn complete(cli: Command) -> Command {
    let styles = Styles::plain().header(BOLD).usage(BOLD).literal(BOLD);
    let more = format!("{}\n\n{MORE}", compatibility::help_line());
    let cli = cli.styles(styles).help_template(TEMPLATE).after_help(&more);
    let cli = cli.before_help(examples(EXAMPLES));
    let cli = cli.mut_subcommand("run", |run| run.help_template(TEMPLATE).after_help(more));
    OF_COMMANDS.iter().fold(cli, |cli, (path, text)| {
        let mut path = path.split(' ');
        let add = |command: Command| command.help_template(TEMPLATE).before_help(examples(text));
        match (path.next(), path.next()) {
            (Some(outer), Some(inner)) => {
                cli.mut_subcommand(outer, |command| command.mut_subcommand(inner, add))
            }
            (Some(name), None) => cli.mut_subcommand(name, add),
            (None, _) => cli,
        }
    })
}

fn examples(text: &str) -> String {
    format!("{}{text}", heading("Examples"))
}

fn heading(name: &str) -> String {
    format!("{BOLD}{name}:{BOLD:#}")
}

/// Replaces the help of a run by a summary that fits a screen.
pub(super) fn summary(cli: Command) -> Command {
    let text = summary_of(&cli);
    cli.mut_subcommand("run", |run| run.override_help(text.clone())).override_help(text)
}

fn summary_of(cli: &Command) -> String {
    let about = cli.get_about().map(ToString::to_string).unwrap_or_default();
    let mut cli = cli.clone();
    let usage = cli.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
    let mut commands: Vec<&Command> = commands.collect();
    // In the order of the parser's help.
    commands.sort_by_key(|command| command.get_display_order());
    let commands = commands.into_iter().map(|command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        (command.get_name().to_owned(), about)
    });
    let option = |name: &str| {
        let arg = cli.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        Some((spelling(arg), first_clause(arg)))
    };
    let options = MOST_USED.iter().filter_map(|name| option(name));
    [
        format!("{about}\n\n{} {usage}\n", heading("Usage")),
        format!("{}\n", examples(EXAMPLES)),
        format!("{}\n{}", heading("Commands"), columns(commands.collect())),
        format!("{}\n{}", heading("Most used options"), columns(options.collect())),
        format!("{MORE}\n"),
    ]
    .join("\n")
}

/// Returns an option as it is typed, indented like the options that have a short form.
fn spelling(arg: &Arg) -> String {
    let indent = if arg.get_short().is_none() { "    " } else { "" };
    format!("{indent}{}", entries::spelling(arg))
}

/// Returns the first clause of an option's help text, preferably of the long text, which does not
/// contain the default.
fn first_clause(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    help.split([';', ':']).next().unwrap_or_default().to_owned()
}

/// Lays out rows in two columns, the second of which is wrapped.
fn columns(rows: Vec<(String, String)>) -> String {
    let first = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 4;
    let mut text = String::new();
    for (name, about) in rows {
        let lines = Paragraph::plain(&about).wrap(COLUMNS - first, Styling::default());
        let padding = " ".repeat(first - 2 - name.len());
        let between = format!("\n{}", " ".repeat(first));
        let _ = writeln!(text, "  {BOLD}{name}{BOLD:#}{padding}{}", lines.join(&between));
    }
    text
}

/// Returns the examples in all help texts, for a test.
pub fn all_examples() -> impl Iterator<Item = &'static str> {
    let texts = [EXAMPLES].into_iter().chain(OF_COMMANDS.iter().map(|(_, text)| *text));
    texts.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty())
}
