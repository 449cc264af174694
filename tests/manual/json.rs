//! The JSON that the manual shows: it parses, and settings among it are accepted.

use outlast::config::{registry, schema};
use serde_json::Value;

use super::commands::blocks;
use super::pages::documents;
use crate::cli::settings::resolve;

/// Whether an object is the content of a settings file: its first key is a setting.
fn is_settings(value: &Value) -> bool {
    let first = value.as_object().and_then(|object| object.keys().next());
    first.is_some_and(|first| registry::names().any(|name| name == first))
}

#[test]
fn every_json_example_parses_and_settings_are_accepted() {
    let schema = jsonschema::validator_for(&schema::schema()).expect("it is a schema");
    let mut accepted = 0;
    for (path, text) in documents() {
        for block in blocks(&text, "json") {
            let value: Value = serde_json::from_str(&block)
                .unwrap_or_else(|error| panic!("{path}: {error}\n{block}"));
            if is_settings(&value) {
                let variables = [("GATE_KEY", "another-key-0123456789"), ("TRACKER_TOKEN", "t")];
                let resolved = resolve(&["hi"], &variables, &block);
                let warnings = resolved.map(|settings| settings.warnings);
                assert_eq!(warnings, Ok(Vec::new()), "{path}\n{block}");
                let faults: Vec<_> = schema.iter_errors(&value).map(|it| it.to_string()).collect();
                assert_eq!(faults, [""; 0], "{path}\n{block}");
                accepted += 1;
            }
        }
    }
    assert!(accepted >= 5, "only {accepted} settings");
}
