//! The parts of a page that the program's own tables fill. They stand between two comments:
//! `<!-- table: NAME -->` and `<!-- end of table -->`.

use std::fmt::Write;

use clap::Arg;
use outlast::cli::{args, exit};
use outlast::config::{Setting, environment, known_variables, registry};
use outlast::rehearsal;

use super::pages::PAGES;
use super::scenario_keys;

const BEGIN: &str = "<!-- table: ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end of table -->";

/// The page with its tables as the program has them.
pub(super) fn fill(page: &str) -> String {
    rewrite(page, |name| format!("\n{}\n", table(name)))
}

/// The page as its authors wrote it.
pub(super) fn without_tables(page: &str) -> String {
    rewrite(page, |_| String::new())
}

fn rewrite(page: &str, content: impl Fn(&str) -> String) -> String {
    let mut parts = page.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(BEGIN_END).expect("the comment ends");
        let (_, rest) = rest.split_once(END).expect("the table ends");
        write!(filled, "{BEGIN}{name}{BEGIN_END}{}{END}{rest}", content(name)).expect("memory");
    }
    filled
}

fn table(name: &str) -> String {
    match name {
        "options" => options(),
        "exit codes" => {
            let rows =
                exit::MEANINGS.iter().map(|(code, text)| vec![format!("`{code}`"), prose(text)]);
            rows_of(&["code", "meaning"], rows)
        }
        "environment" => rows_of(&["variable", "meaning"], pairs(known_variables::variables())),
        "files" => rows_of(&["file", "meaning"], pairs(environment::FILES)),
        "fleet" => include_str!("../recovery/fleet.md").to_owned(),
        "settings" => all_settings(),
        "scenarios" => scenarios(),
        "scenario keys" => scenario_keys::tables(&rehearsal::file_schema()),
        other => panic!("there is no table {other:?}"),
    }
}

pub(super) fn rows_of(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = format!("| {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len()));
    for row in rows {
        writeln!(table, "| {} |", row.join(" | ")).expect("memory");
    }
    table
}

/// Rows of names, several of which may stand before one text.
fn pairs<T: AsRef<str>>(entries: impl IntoIterator<Item = (T, T)>) -> Vec<Vec<String>> {
    let names = |names: &str| names.split(", ").map(code).collect::<Vec<_>>().join(", ");
    let row = |(name, text): (T, T)| vec![names(name.as_ref()), prose(text.as_ref())];
    entries.into_iter().map(row).collect()
}

pub(super) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', r"\|"))
}

/// A sentence of the program as Markdown. Names of pages become links.
pub(super) fn prose(text: &str) -> String {
    let escaped = text.split('`').enumerate().map(|(index, part)| {
        let is_code = index % 2 == 1;
        if is_code { part.to_owned() } else { part.replace('*', r"\*").replace('<', r"\<") }
    });
    let mut text = escaped.collect::<Vec<_>>().join("`").replace('|', r"\|");
    for (name, section) in PAGES {
        let page = format!("{name}({section})");
        text = text.replace(&page, &format!("[{page}]({name}.{section}.md)"));
    }
    text
}

/// One table for each group of flags.
fn options() -> String {
    let command = args::command();
    let mut groups: Vec<(&str, Vec<Vec<String>>)> = Vec::new();
    let hidden = |argument: &Arg| argument.is_hide_set() || argument.is_positional();
    for argument in command.get_arguments().filter(|argument| !hidden(argument)) {
        let group = argument.get_help_heading().unwrap_or("Other");
        let row = vec![flag(argument), meaning(argument)];
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((group, vec![row])),
        }
    }
    let groups = groups
        .into_iter()
        .map(|(group, rows)| format!("### {group}\n\n{}", rows_of(&["option", "meaning"], rows)));
    groups.collect::<Vec<_>>().join("\n")
}

fn flag(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let mut flag = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        for name in names {
            write!(flag, " <{name}>").expect("memory");
        }
    }
    code(&flag)
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let mut text = format!("{}.", prose(&help.map(ToString::to_string).unwrap_or_default()));
    if !argument.get_action().takes_values() {
        return text;
    }
    let values = argument.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set());
    let values: Vec<String> = values
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), prose(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        write!(text, " One of: {}.", values.join(", ")).expect("memory");
    }
    text
}

fn all_settings() -> String {
    let row = |setting: &Setting| {
        let default = setting.shown_default().map(|default| code(&default)).unwrap_or_default();
        vec![code(setting.key), prose(&setting.meaning), prose(&setting.takes), default]
    };
    let rows = registry::settings().iter().map(row);
    rows_of(&["setting", "meaning", "Takes", "Default"], rows)
}

/// One table for each group of scenarios.
fn scenarios() -> String {
    let mut groups: Vec<(&str, Vec<Vec<String>>)> = Vec::new();
    for scenario in rehearsal::list() {
        let exit = scenario.exit.map(|exit| code(&exit.to_string())).unwrap_or_default();
        let row = vec![code(&scenario.name), prose(&scenario.summary), exit];
        match groups.last_mut() {
            Some((group, rows)) if *group == scenario.group => rows.push(row),
            Some(_) | None => groups.push((scenario.group, vec![row])),
        }
    }
    let tables = groups.into_iter().map(|(group, rows)| {
        format!("### {group}\n\n{}", rows_of(&["scenario", "what happens", "Exit code"], rows))
    });
    tables.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_flag_is_in_the_table_of_options() {
    let page = options();
    for argument in args::command().get_arguments().filter(|argument| !argument.is_hide_set()) {
        if let Some(long) = argument.get_long() {
            assert!(page.contains(&format!("--{long}")), "--{long}");
        }
    }
}

#[test]
fn a_table_is_filled_and_taken_out_again() {
    let page = "a\n<!-- table: exit codes -->\nold\n<!-- end of table -->\nb\n";
    let filled = fill(page);
    assert!(filled.contains("| `75` |") && !filled.contains("old"), "{filled}");
    assert_eq!(fill(&filled), filled);
    let bare = "a\n<!-- table: exit codes -->\n<!-- end of table -->\nb\n";
    assert_eq!(without_tables(&filled), bare);
}
