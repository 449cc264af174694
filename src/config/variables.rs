//! Variables that set settings: how their texts are read, and the values that they assign.

use std::ffi::OsStr;

use serde_json::{Value, json};

use super::kinds::{Retries, Span, ThinkingTokens, UnattendedRetry};
use super::registry::{Setting, SettingVariable, settings};
use super::values;
use crate::secrets::Variables;

type Read = Result<Option<Value>, String>;

#[expect(clippy::unnecessary_wraps, reason = "the type of all readers")]
pub(super) fn text(text: &str) -> Read {
    Ok(Some(text.into()))
}

pub(super) fn count(text: &str) -> Read {
    values::count(text).map(|count| Some(json!(count)))
}

pub(super) fn millis(text: &str) -> Read {
    values::millis(text).map(|time| Some(json!(Span(time))))
}

pub(super) fn retries(text: &str) -> Read {
    values::retries(text).map(|retries| Some(json!(Retries(retries))))
}

/// Retries of a first try: there is one in any case.
pub(super) fn tries(text: &str) -> Read {
    values::retries(text).map(|retries| Some(json!(retries.max(1))))
}

pub(super) fn per_cent(text: &str) -> Read {
    values::per_cent(text).map(|part| Some(json!(part)))
}

pub(super) fn thinking(text: &str) -> Read {
    ThinkingTokens::parse(text).map(|tokens| Some(json!(tokens)))
}

/// A yes switches the setting off; a no leaves it as it is.
pub(super) fn no(text: &str) -> Read {
    Ok(values::yes_or_no(text)?.then_some(Value::Bool(false)))
}

pub(super) fn unattended(text: &str) -> Read {
    let wanted = match values::yes_or_no(text) {
        Ok(true) => UnattendedRetry::On,
        Ok(false) => UnattendedRetry::Off,
        Err(_) if text.eq_ignore_ascii_case("all") => UnattendedRetry::All,
        Err(_) => return Err("is none of 1, true, yes, on, all, 0, false, no, off".to_owned()),
    };
    Ok(Some(json!(wanted)))
}

/// A value that a variable assigns to a setting.
#[derive(Debug)]
pub struct VariableValue {
    pub setting: &'static Setting,
    pub variable: &'static str,
    pub value: Value,
}

/// Reads the variables of all settings. Collects what is wrong with them.
pub fn read(variables: &Variables, mistakes: &mut Vec<String>) -> Vec<VariableValue> {
    let mut found = Vec::new();
    for setting in settings() {
        for &SettingVariable { name, read, .. } in &setting.variables {
            let text = match variables.get(OsStr::new(name)).map(|value| value.to_str()) {
                None => continue,
                Some(Some(text)) if text.trim().is_empty() => continue,
                Some(Some(text)) => text.trim(),
                Some(None) => {
                    let why = "is not valid UTF-8; set it to text";
                    mistakes.push(format!("the variable {name} {why}"));
                    break;
                }
            };
            match read(text) {
                Ok(Some(value)) => found.push(VariableValue { setting, variable: name, value }),
                Ok(None) => {}
                Err(why) => mistakes.push(format!("the variable {name}: {text:?} {why}")),
            }
            // The first one that is set counts.
            break;
        }
    }
    found
}

/// The variables of settings, and what is said of each in the manual.
pub fn documentation() -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for setting in settings() {
        let mut before: Vec<&str> = Vec::new();
        for &SettingVariable { name, unit, .. } in &setting.variables {
            let text = match &before[..] {
                [] if unit.is_empty() => format!("The setting {}.", setting.key),
                [] => format!("The setting {}, {unit}.", setting.key),
                [one] => format!("Read when {one} is not set."),
                several => format!("Read when none of {} is set.", several.join(" and ")),
            };
            rows.push((name.to_owned(), text));
            before.push(name);
        }
    }
    rows
}
