//! Variables that set settings, and the values that they assign.

use std::ffi::OsStr;

use serde_json::Value;

use super::flags::SettingFlags;
use super::registry::settings;
use super::setting::{Setting, SettingVariable};
use crate::secrets::Variables;

/// A value that a variable assigns to a setting.
#[derive(Debug)]
pub struct VariableValue {
    pub setting: &'static Setting,
    pub variable: &'static str,
    pub value: Value,
}

/// Reads the variables of all settings that no flag outranks. Collects the mistakes in them.
pub fn read(
    variables: &Variables,
    flags: &SettingFlags,
    mistakes: &mut Vec<String>,
) -> Vec<VariableValue> {
    let mut found = Vec::new();
    for setting in settings().iter().filter(|setting| !flags.outrank_variables(setting)) {
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

/// Returns the variables of settings, each with its description in the manual.
pub fn documentation() -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for setting in settings() {
        let mut before: Vec<&str> = Vec::new();
        for &SettingVariable { name, unit, .. } in &setting.variables {
            let text = match &before[..] {
                [] if unit.is_empty() => format!("The setting {}.", setting.key),
                [] => format!("The setting {}, {unit}.", setting.key),
                [one] => format!("Read if {one} is not set."),
                several => format!("Read if none of {} is set.", several.join(" and ")),
            };
            rows.push((name.to_owned(), text));
            before.push(name);
        }
    }
    rows
}
