//! Normalises values of settings to JSON: flags and variables are text, and files may write a
//! duration in two ways.

use std::time::Duration;

use serde_json::Value;

use super::table;
use crate::cli::timestamps::format_duration;
use crate::cli::values;

/// Normalises a value: numbers are numbers, lists are lists, durations are text such as `1m30s`.
/// Invalid values stay as they are.
pub(super) fn normalised(name: &str, value: Value) -> Value {
    let Some(takes) = table::takes(name) else { return value };
    match &value {
        Value::Number(seconds) if takes.starts_with("a duration") => {
            values::duration(&seconds.to_string()).map_or(value, |time| duration(time).into())
        }
        Value::String(text) => text_of(takes, text.trim()).unwrap_or(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value
        }
    }
}

/// Returns the default of a setting as JSON. `Null`: it has none.
pub(super) fn default(name: &str, default: &str) -> Value {
    if default == "none" { Value::Null } else { normalised(name, default.into()) }
}

/// Formats a duration, in milliseconds if it is not a whole number of seconds.
pub(super) fn duration(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format_duration(time),
        _ => format!("{}ms", time.as_millis()),
    }
}

fn text_of(takes: &str, text: &str) -> Option<Value> {
    if takes.starts_with("a duration") {
        return values::duration(text).ok().map(|time| duration(time).into());
    }
    if takes == "true or false" {
        return text.parse::<bool>().ok().map(Value::from);
    }
    if takes.starts_with("a name, or a list") {
        return Some(values::list(&[text]).into());
    }
    if !takes.contains("number") || takes.starts_with("an object") {
        return None;
    }
    let whole = text.parse::<u64>().ok().map(Value::from);
    let tokens = || {
        let count = Some(text).filter(|_| takes.contains("tokens")).map(values::tokens)?;
        Some(count.ok()?.get().into())
    };
    let amount = || text.trim_start_matches('$').parse::<f64>().ok().map(Value::from);
    whole.or_else(tokens).or_else(amount)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn setting_values_are_normalised() {
        let rows = [
            ("maxRetries", json!("4"), json!(4)),
            ("tokenBudget", json!("500k"), json!(500_000)),
            ("maxBudgetUsd", json!("$0.5"), json!(0.5)),
            ("wrapUpAt", json!("0.9"), json!(0.9)),
            ("connectTimeout", json!(90), json!("1m30s")),
            ("connectTimeout", json!("1.5"), json!("1500ms")),
            ("fast", json!("true"), json!(true)),
            ("passEnv", json!("A, B"), json!(["A", "B"])),
            ("require", json!("4"), json!("4")),
            ("contextWindow", json!("m=32k"), json!("m=32k")),
            ("maxTurns", json!("many"), json!("many")),
            ("permissions.defaultMode", json!("7"), json!("7")),
        ];
        for (name, value, wanted) in rows {
            assert_eq!(normalised(name, value), wanted, "{name}");
        }
        assert_eq!(default("maxTurns", "none"), Value::Null);
        assert_eq!(default("maxRetries", "10"), json!(10));
    }
}
