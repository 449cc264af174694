//! Checks a scenario file against the table of keys before it is read, so that an error names what
//! is allowed there.

use std::ops::Range;

use strsim::osa_distance;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::rehearsal::scripted_duration::ScriptedDuration;

use super::keys::{KeyForm, KeyTable, POSITION, ROOT, ScenarioKey};
use super::read::{fraction, whole};

/// A mistake: its position in the text, in bytes, and its message.
pub(super) type FileMistake = (usize, String);

/// Returns the first mistake in the keys of a file and in the types and choices of their values.
/// Missing keys come last: a missing key may be there under a wrong name.
pub(super) fn check_keys(file: &Spanned<DeTable<'_>>) -> Result<(), FileMistake> {
    let mut mistakes = Mistakes::default();
    mistakes.check_table(file.get_ref(), &file.span(), &ROOT);
    let first = mistakes.wrong.into_iter().min().or(mistakes.missing.into_iter().min());
    first.map_or(Ok(()), Err)
}

#[derive(Default)]
struct Mistakes {
    wrong: Vec<FileMistake>,
    missing: Vec<FileMistake>,
}

impl Mistakes {
    fn check_table(&mut self, table: &DeTable<'_>, span: &Range<usize>, known: &KeyTable) {
        for (name, value) in table {
            let found = known.keys.iter().find(|key| key.name == name.get_ref());
            match found {
                Some(key) => self.check_value(value, key),
                None => self.wrong.push((name.span().start, unknown_key(name.get_ref(), known))),
            }
        }
        for key in known.keys.iter().filter(|key| key.required && !table.contains_key(key.name)) {
            self.missing
                .push((span.start, format!("{} needs the key `{}`", known.heading, key.name)));
        }
    }

    fn check_value(&mut self, value: &Spanned<DeValue<'_>>, key: &ScenarioKey) {
        let span = value.span();
        let mistake = match (key.form, value.get_ref()) {
            (KeyForm::Any, _)
            | (KeyForm::Text, DeValue::String(_))
            | (KeyForm::Flag, DeValue::Boolean(_)) => None,
            (KeyForm::Choice(allowed) | KeyForm::Position(allowed), DeValue::String(text)) => {
                no_choice(key.name, text, allowed)
            }
            (KeyForm::Time, DeValue::String(text)) => ScriptedDuration::parse(text).err(),
            (KeyForm::Whole { from, to }, DeValue::Integer(number)) => {
                outside(number, from, to, key)
            }
            (KeyForm::AboveZero, DeValue::Integer(number)) => outside(number, 1, i64::MAX, key),
            (KeyForm::AboveZero, DeValue::Float(number)) => {
                let is_above = fraction(number).is_some_and(|number| number > 0.0);
                (!is_above).then(|| other_type(value, "this", key))
            }
            (KeyForm::Position(_), DeValue::Table(table)) => {
                self.check_table(table, &span, &POSITION);
                let (name, takes, count) = (key.name, key.takes(), table.len());
                (count != 1).then(|| format!("`{name}` takes {takes}, and this one has {count}"))
            }
            (KeyForm::Table(known), DeValue::Table(table)) => {
                self.check_table(table, &span, known);
                None
            }
            (KeyForm::Texts | KeyForm::Tables(_), DeValue::Array(items)) => {
                for item in items {
                    self.check_part(item, "this item", key);
                }
                None
            }
            (KeyForm::NamedTexts | KeyForm::Named(_), DeValue::Table(table)) => {
                for (name, value) in table {
                    self.check_part(value, &format!("`{}`", name.get_ref()), key);
                }
                None
            }
            (
                KeyForm::Text
                | KeyForm::Texts
                | KeyForm::NamedTexts
                | KeyForm::Flag
                | KeyForm::Whole { .. }
                | KeyForm::AboveZero
                | KeyForm::Time
                | KeyForm::Choice(_)
                | KeyForm::Position(_)
                | KeyForm::Table(_)
                | KeyForm::Named(_)
                | KeyForm::Tables(_),
                _,
            ) => Some(other_type(value, "this", key)),
        };
        self.wrong.extend(mistake.map(|mistake| (span.start, mistake)));
    }

    /// Checks one of the texts or tables in the value of a key.
    fn check_part(&mut self, part: &Spanned<DeValue<'_>>, what: &str, key: &ScenarioKey) {
        match (key.form, part.get_ref()) {
            (KeyForm::Tables(known) | KeyForm::Named(known), DeValue::Table(table)) => {
                self.check_table(table, &part.span(), known);
            }
            (KeyForm::Texts | KeyForm::NamedTexts, DeValue::String(_)) => {}
            (_, _) => self.wrong.push((part.span().start, other_type(part, what, key))),
        }
    }
}

/// The message about a number that is outside of a range. `None` if it is inside.
fn outside(number: &DeInteger<'_>, from: i64, to: i64, key: &ScenarioKey) -> Option<String> {
    let takes = key.takes();
    let size = match whole(number) {
        Some(number) if number < from => "small",
        Some(number) if number <= to => return None,
        None if number.as_str().starts_with('-') => "small",
        Some(_) | None => "large",
    };
    Some(format!("`{}` takes {takes}, and {number} is too {size}", key.name))
}

fn other_type(value: &Spanned<DeValue<'_>>, what: &str, key: &ScenarioKey) -> String {
    let found = match value.get_ref() {
        DeValue::String(_) => "a text".to_owned(),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("`{}` takes {}, and {what} is {found}", key.name, key.takes())
}

fn unknown_key(name: &str, known: &KeyTable) -> String {
    let names = known.keys.iter().map(|key| key.name);
    let near = nearest(name, names.clone());
    let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
    let all = names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    format!("{} has no key `{name}`; {near}its keys are {all}", known.heading)
}

fn no_choice(name: &str, text: &str, allowed: &[&str]) -> Option<String> {
    if allowed.contains(&text) {
        return None;
    }
    let near = nearest(text, allowed.iter().copied());
    let near = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
    let all = allowed.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ");
    Some(format!("\"{text}\" is no value of `{name}`; {near}its values are {all}"))
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, near) = known.map(|known| (osa_distance(name, known), known)).min()?;
    // A third of the letters may be wrong, but no more than three.
    (distance <= (name.len() / 3).clamp(1, 3)).then_some(near)
}
