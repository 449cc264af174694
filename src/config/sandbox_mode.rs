//! The three forms of the setting `sandbox.mode` in a file.

use serde_json::{Value, json};

use super::check::FileValue;
use super::registry;
use crate::types::SandboxMode;

const MODE: &str = "sandbox.mode";
const REQUIRED: &str = "sandbox.failIfUnavailable";
const ENABLED: &str = "sandbox.enabled";

/// Replaces the three forms by `sandbox.mode`, so that a file outranks another even if they use
/// different forms. `below` is the mode of the files below.
///
/// Returns the values, and the key that sets the mode.
pub(super) fn unify(
    values: Vec<FileValue>,
    below: Option<&Value>,
) -> (Vec<FileValue>, &'static str) {
    let get = |key: &str| values.iter().find(|it| it.setting.key == key).map(|it| &it.value);
    let yes = |key: &str| get(key).and_then(Value::as_bool);
    let key = [MODE, REQUIRED, ENABLED].into_iter().find(|key| get(key).is_some()).unwrap_or(MODE);
    let mode = |value: &Value| serde_json::from_value(value.clone()).ok();
    let mode = get(MODE).and_then(mode).or(over(yes(ENABLED), yes(REQUIRED), below.and_then(mode)));
    let of_mode = |value: &FileValue| [MODE, REQUIRED, ENABLED].contains(&value.setting.key);
    let mut values: Vec<FileValue> = values.into_iter().filter(|it| !of_mode(it)).collect();
    if let (Some(mode), Some(setting)) = (mode, registry::find(MODE)) {
        values.push(FileValue { setting, value: json!(mode) });
    }
    (values, key)
}

/// Returns the mode that the two other forms mean, given the mode below. `enabled` does not change
/// a sandbox that is already on, since that may be stricter.
fn over(
    enabled: Option<bool>,
    required: Option<bool>,
    below: Option<SandboxMode>,
) -> Option<SandboxMode> {
    let on = below.filter(|mode| *mode != SandboxMode::Off);
    let (yielding, strict) = if on.is_some_and(SandboxMode::is_read_only) {
        (SandboxMode::ReadOnly, SandboxMode::RequiredReadOnly)
    } else {
        (SandboxMode::Workspace, SandboxMode::Required)
    };
    match (enabled, required) {
        (Some(false), _) => Some(SandboxMode::Off),
        (_, Some(true)) => Some(strict),
        (Some(true), None) => on.or(Some(yielding)),
        (Some(true), Some(false)) => Some(yielding),
        (None, Some(false)) if on.is_some_and(SandboxMode::is_required) => Some(yielding),
        (None, Some(false) | None) => None,
    }
}
