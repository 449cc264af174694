//! Checks the keys and choices of a scenario file before it is read, so that an error names what is
//! allowed there.

use std::ops::Range;

use strsim::osa_distance;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KeyForm, KeyTable, POSITION, ROOT};

/// A mistake, and where it is in the text, in bytes.
pub(super) type FileMistake = (usize, String);

/// Returns the first mistake in the names of a file. What is no TOML has none: its parser tells.
pub(super) fn check_names(text: &str) -> Result<(), FileMistake> {
    let Ok(table) = DeTable::parse(text) else { return Ok(()) };
    let mut mistakes = Vec::new();
    check_table(table.get_ref(), &ROOT, &mut mistakes);
    mistakes.sort_unstable();
    mistakes.into_iter().next().map_or(Ok(()), Err)
}

fn check_table(table: &DeTable<'_>, known: &KeyTable, mistakes: &mut Vec<FileMistake>) {
    for (name, value) in table {
        let found = known.keys.iter().find(|key| key.name == name.get_ref());
        match found {
            Some(key) => check_value(value, name.get_ref(), key.form, mistakes),
            None => mistakes.push((start(&name.span()), unknown_key(name.get_ref(), known))),
        }
    }
}

fn check_value(
    value: &Spanned<DeValue<'_>>,
    name: &str,
    form: KeyForm,
    mistakes: &mut Vec<FileMistake>,
) {
    match (form, value.get_ref()) {
        (KeyForm::Choice(allowed) | KeyForm::Position(allowed), DeValue::String(text)) => {
            if !allowed.contains(&text.as_ref()) {
                mistakes.push((start(&value.span()), no_choice(name, text, allowed)));
            }
        }
        (KeyForm::Position(_), DeValue::Table(table)) => check_table(table, &POSITION, mistakes),
        (KeyForm::Table(known) | KeyForm::Tables(known), DeValue::Table(table)) => {
            check_table(table, known, mistakes);
        }
        (KeyForm::Tables(known), DeValue::Array(items)) => {
            for item in items {
                if let DeValue::Table(table) = item.get_ref() {
                    check_table(table, known, mistakes);
                }
            }
        }
        (KeyForm::Named(known), DeValue::Table(table)) => {
            for value in table.values() {
                if let DeValue::Table(table) = value.get_ref() {
                    check_table(table, known, mistakes);
                }
            }
        }
        // Of the wrong type: reported where it is read.
        (
            KeyForm::Plain
            | KeyForm::Choice(_)
            | KeyForm::Position(_)
            | KeyForm::Table(_)
            | KeyForm::Tables(_)
            | KeyForm::Named(_),
            _,
        ) => {}
    }
}

fn start(span: &Range<usize>) -> usize {
    span.start
}

fn unknown_key(name: &str, known: &KeyTable) -> String {
    let names = known.keys.iter().map(|key| key.name);
    let near = nearest(name, names.clone());
    let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
    let all = names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    format!("{} has no key `{name}`; {near}its keys are {all}", known.heading)
}

fn no_choice(name: &str, text: &str, allowed: &[&str]) -> String {
    let near = nearest(text, allowed.iter().copied());
    let near = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
    let all = allowed.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ");
    format!("\"{text}\" is no value of `{name}`; {near}its values are {all}")
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, near) = known.map(|known| (osa_distance(name, known), known)).min()?;
    // A third of the letters may be wrong, but no more than three.
    (distance <= (name.len() / 3).clamp(1, 3)).then_some(near)
}
