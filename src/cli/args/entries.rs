//! `outlast help NAME` for a flag or a setting: its row in the tables from which the help and the
//! manual are made.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::argv::kebab;
use crate::cli::manual;
use crate::cli::output::{Paragraph, Styling};
use crate::config::{Setting, registry};

/// The width of the text, and its indentation.
const COLUMNS: usize = 80;
const INDENT: &str = "    ";

/// Describes the flags and the setting of a name: `max-turns`, `--maxTurns`, `-C`, `sandbox.mode`.
/// `None`: there is neither a flag nor a setting of this name.
pub(super) fn find(name: &str, cli: &Command) -> Option<String> {
    let flag = name.trim_start_matches('-');
    let is_short = name.len() == 2 && name.starts_with('-');
    let is_setting = |setting: &&Setting| setting.key.eq_ignore_ascii_case(name);
    let all: &[Setting] = if name.starts_with('-') { &[] } else { registry::settings() };
    let setting = all.iter().find(is_setting);
    let long = setting.and_then(|setting| Some(setting.flag?.long.to_owned()));
    let long = long.unwrap_or_else(|| kebab(flag));
    let is_it = |arg: &&Arg| {
        let is_long = arg.get_long() == Some(&*long)
            || arg.get_all_aliases().into_iter().flatten().any(|alias| alias == long);
        let is_short = is_short && arg.get_short().is_some_and(|short| flag == short.to_string());
        is_short || !is_short_only(name) && is_long
    };
    let mut text = String::new();
    for (path, arg) in flags(cli).filter(|(_, arg)| is_it(arg)) {
        let of = if path.is_empty() { String::new() } else { format!(" (of outlast {path})") };
        let _ = writeln!(text, "{}{of}", spelling(arg));
        write_paragraph(&mut text, &meaning(arg));
    }
    let of_flag = registry::settings()
        .iter()
        .find(|setting| !text.is_empty() && setting.flag.is_some_and(|flag| flag.long == long));
    let setting = setting.or(of_flag);
    if let Some(setting) = setting {
        write_setting(&mut text, setting);
    }
    if text.is_empty() {
        return None;
    }
    let words = [Some(format!("--{long}")), setting.map(|setting| setting.key.to_owned())];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let heading = cli.get_arguments().find(is_it).and_then(Arg::get_help_heading);
    let section =
        heading.map(|heading| heading.to_lowercase().replace(", ", "-").replace(' ', "-"));
    let table = if setting.is_some() { "settings" } else { "options" };
    let page = manual::pages_naming(&words).into_iter().take(1).map(str::to_owned);
    let pages = section.into_iter().chain(page).chain([table.to_owned()]);
    let pages: Vec<String> = pages.map(|page| format!("outlast help {page}")).collect();
    let _ = writeln!(text, "More: {}", pages.join(", "));
    Some(text)
}

fn is_short_only(name: &str) -> bool {
    name.starts_with('-') && !name.starts_with("--")
}

/// Returns all flags that are shown: those of a run, then those of each command with its path.
fn flags(cli: &Command) -> impl Iterator<Item = (String, &Arg)> {
    let of = |path: String, command| {
        let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_positional();
        Command::get_arguments(command).filter(shown).map(move |arg| (path.clone(), arg))
    };
    let commands = cli.get_subcommands().filter(|command| command.get_name() != "run");
    let below = commands.flat_map(move |command| {
        let name = command.get_name().to_owned();
        let inner = command.get_subcommands().map({
            let name = name.clone();
            move |inner| (format!("{name} {}", inner.get_name()), inner)
        });
        std::iter::once((name, command)).chain(inner).collect::<Vec<_>>()
    });
    let all = std::iter::once((String::new(), cli)).chain(below);
    // Flags of all commands are shown once.
    all.flat_map(move |(path, command)| of(path, command))
        .filter(|(path, arg)| path.is_empty() || !arg.is_global_set())
}

/// Formats a flag as it is typed.
pub(super) fn spelling(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let mut text = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    for name in
        arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default()
    {
        // Writing to a string cannot fail.
        let _ = write!(text, " <{name}>");
    }
    text
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let values = arg.get_possible_values();
    let shown = values.iter().filter(|value| !value.is_hide_set());
    let values: Vec<&str> = shown.map(clap::builder::PossibleValue::get_name).collect();
    let default: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    let mut text = format!("{help}.");
    if arg.get_action().takes_values() && !values.is_empty() {
        let _ = write!(text, " One of: {}.", values.join(", "));
    }
    if arg.get_action().takes_values() && !default.is_empty() {
        let _ = write!(text, " Default: {}.", default.join(", "));
    }
    text
}

fn write_setting(text: &mut String, setting: &Setting) {
    let _ = writeln!(text, "{} (in a settings file)", setting.key);
    let mut about = format!("{} It takes {}.", setting.meaning, setting.takes);
    if let Some(default) = setting.shown_default() {
        let _ = write!(about, " Default: {default}.");
    }
    let variables: Vec<&str> = setting.variables.iter().map(|variable| variable.name).collect();
    if !variables.is_empty() {
        let _ = write!(about, " By a variable, too: {}.", variables.join(", "));
    }
    write_paragraph(text, &about);
}

fn write_paragraph(text: &mut String, about: &str) {
    for line in Paragraph::plain(about).wrap(COLUMNS - INDENT.len(), Styling::default()) {
        let _ = writeln!(text, "{INDENT}{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args;

    #[test]
    fn a_flag_and_its_setting_are_found_by_every_name() {
        let cli = args::command();
        let entry = find("max-turns", &cli).expect("a flag");
        for name in ["--max-turns", "maxTurns", "--maxTurns", "maxturns"] {
            assert_eq!(find(name, &cli).as_deref(), Some(&*entry), "{name}");
        }
        for part in
            ["--max-turns <", "\nmaxTurns (in a settings file)\n", "More: outlast help limits, "]
        {
            assert!(entry.contains(part), "{part}: {entry}");
        }
        assert!(find("-C", &cli).expect("a short flag").starts_with("-C"));
        assert!(find("sandbox.mode", &cli).expect("a setting").contains("It takes"));
        assert!(find("nonesuch", &cli).is_none() && find("-max-turns", &cli).is_none());
    }

    #[test]
    fn a_flag_of_several_commands_is_described_for_each() {
        let cli = args::command();
        let budget = find("max-budget-usd", &cli).expect("a flag");
        assert!(budget.starts_with("--max-budget-usd <"), "{budget}");
        assert!(budget.contains("(of outlast batch)"), "{budget}");
        let color = find("--color", &cli).expect("a flag of every command");
        assert!(!color.contains("(of outlast"), "{color}");
    }

    #[test]
    fn every_flag_and_every_setting_has_an_entry() {
        let cli = args::command();
        let longs = cli.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
        for name in longs.map(|long| format!("--{long}")) {
            assert!(find(&name, &cli).is_some(), "{name}");
        }
        for heading in cli.get_arguments().filter_map(Arg::get_help_heading) {
            let topic = heading.to_lowercase().replace(", ", "-").replace(' ', "-");
            assert!(manual::find(&topic).is_some(), "{heading} is not a section of the manual");
        }
        for setting in registry::settings() {
            assert!(find(setting.key, &cli).is_some(), "{}", setting.key);
        }
    }
}
