//! The JSON Schema of a settings file, so that editors complete and check it.

use serde_json::{Map, Value, json};

use super::registry;
use super::schema_parts::nullable;
use super::setting::Setting;
use crate::hooks::HookEvent;

/// Returns the schema. Keys of other tools are allowed, since a file may be shared with them.
pub fn schema() -> Value {
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of outlast",
        "type": "object",
        "properties": { "$schema": { "type": "string" } },
    });
    for setting in registry::settings() {
        // The kind of this setting is any JSON.
        let schema = if setting.key == "hooks" { hooks() } else { setting.schema() };
        let mut outer = &mut root;
        let path = setting.path();
        let (name, groups) = path.split_last().expect("a key is not empty");
        for group in groups {
            outer = &mut outer["properties"][group];
            if outer.is_null() {
                *outer = json!({ "type": ["object", "null"], "properties": {} });
            }
        }
        outer["properties"][name] = described(schema, setting);
    }
    root
}

/// Adds the description and the default of a setting, and `null`, which means that it is not set.
fn described(schema: Value, setting: &Setting) -> Value {
    let mut described = Map::new();
    described.insert("description".to_owned(), setting.meaning.as_str().into());
    if !setting.default.is_null() {
        described.insert("default".to_owned(), setting.default.clone());
    }
    if let Value::Object(members) = nullable(schema) {
        described.extend(members);
    }
    described.into()
}

/// Returns the schema of hooks, by event.
fn hooks() -> Value {
    let hook = json!({
        "type": "object",
        "anyOf": [{ "required": ["type"] }, { "required": ["command"] }],
        "properties": {
            "type": { "type": "string" },
            "command": { "type": "string" },
            "args": { "type": "array", "items": { "type": "string" } },
            "shell": { "enum": ["bash", "sh"] },
            "timeout": { "type": "number", "exclusiveMinimum": 0, "description": "In seconds." },
            "if": { "type": "string", "description": "A permission rule." },
            "failClosed": { "type": "boolean" },
            "onFailure": { "enum": ["block", "continue"] },
            "async": { "type": "boolean" },
        },
    });
    let group = json!({
        "type": "object",
        // A group with a command of its own is its only hook.
        "anyOf": [{ "required": ["hooks"] }, { "required": ["command"] }],
        "properties": {
            "matcher": { "type": ["string", "array", "null"], "items": { "type": "string" } },
            "hooks": { "type": ["array", "null"], "items": hook },
        },
    });
    let groups = json!({ "type": ["array", "null"], "items": group });
    let events = HookEvent::ALL.into_iter().map(|event| (event.name().to_owned(), groups.clone()));
    json!({ "type": "object", "properties": events.collect::<Map<_, _>>() })
}

#[cfg(test)]
mod tests {
    use clap::builder::PossibleValue;
    use jsonschema::Validator;

    use super::*;
    use crate::config::file::parse_bytes;

    /// Values of every type, and at the ends of every range.
    const SCALARS: &str = "null true false -1 0 1 0.5 1.5 10 11 100 101 255 256 1023 1024 65535 65536 \
                           67108863 67108864 4294967295 4294967296";
    const COLLECTIONS: &[&str] = &[
        "[]",
        "[1]",
        "[null]",
        "[true]",
        "[[]]",
        "[{}]",
        "{}",
        r#"{"a": null}"#,
        r#"{"a": true}"#,
        r#"{"a": 1023}"#,
        r#"{"a": 1024}"#,
        r#"{"a": {}}"#,
        r#"{"a": "b"}"#,
        r#"{"a": {"input": 0, "output": 1.5}}"#,
        r#"{"a": {"input": 0, "output": 1, "cacheRead": null, "cacheWrite": 1}}"#,
        r#"{"a": {"input": 0, "output": -1}}"#,
        r#"{"a": {"input": 0, "output": 1, "cacheRead": -1}}"#,
        r#"{"a": {"input": 0, "output": 1, "cacheWrite": "1"}}"#,
        r#"{"a": {"input": 0}}"#,
        r#"{"a": {"input": 0, "output": 1, "other": 1}}"#,
        r#"[{"model": "a", "service": "vertex:global/p", "contextWindow": null}]"#,
        r#"[{"model": "a", "baseUrl": "https://a.test", "apiKeyEnv": "A", "headers": {"a": "b"}}]"#,
        r#"[{"model": "a", "authTokenEnv": "A", "contextWindow": 1024}]"#,
        r#"[{"model": "a", "contextWindow": 1023}]"#,
        r#"[{"model": "a", "service": 1}]"#,
        r#"[{"model": "a", "baseUrl": 1}]"#,
        r#"[{"model": "a", "apiKeyEnv": 1}]"#,
        r#"[{"model": "a", "authTokenEnv": 1}]"#,
        r#"[{"model": "a", "headers": {"a": 1}}]"#,
        r#"[{"model": "a", "other": 1}]"#,
        r#"[{"contextWindow": 1024}]"#,
        r#"[{"path": "/a", "sha256": []}]"#,
        r#"[{"path": null, "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}]"#,
        r#"[{"path": "/a", "other": 1}]"#,
        r#"[{"path": 1}]"#,
        r#"[{"path": "/a", "sha256": [1]}]"#,
        r#"{"Stop": []}"#,
        r#"{"Stop": [1]}"#,
        r#"{"Stop": [{"hooks": [{"type": "command", "command": "a"}]}]}"#,
        r#"{"Stop": [{"hooks": [{"command": "a"}]}]}"#,
        r#"{"Stop": [{"hooks": [{"timeout": 1}]}]}"#,
        r#"{"Stop": [{"command": "a"}]}"#,
        r#"{"Stop": [{"matcher": "a"}]}"#,
        r#"{"Stop": [{"matcher": ["a"], "hooks": []}]}"#,
        r#"{"Stop": [{"matcher": [1], "hooks": []}]}"#,
    ];

    /// Texts, and lists of them: which of them a setting takes may depend on a syntax that no
    /// schema shows.
    const TEXTS: [&[&str]; 2] = [
        &[r#""a""#, r#""1""#, r#""90s""#, r#""4GiB""#, r#""true""#, r#""on""#, r#""nonsense""#],
        &[r#"["a"]"#, r#"["/a"]"#, r#"["Read"]"#],
    ];

    /// True if a value is not checked by both the reader of files and the schema: servers are
    /// checked when they are started, and the schema allows events that it does not list.
    fn is_judged_elsewhere(setting: &Setting, value: &str) -> bool {
        match setting.key {
            "mcpServers" => value.starts_with("{\""),
            "hooks" => value.starts_with("{\"a\""),
            _ => false,
        }
    }

    /// True if a program writes a value like this for what is not set: a file may have it, and an
    /// editor that uses the schema does not offer it.
    fn is_unset_in_part(value: &str) -> bool {
        matches!(value, "[]" | "{}") || value.contains("null")
    }

    /// Returns whether a file with this value is read, and whether the schema allows it.
    fn compared(schema: &Validator, setting: &Setting, value: &str) -> (bool, bool) {
        let value: Value = serde_json::from_str(value).expect("the tables hold JSON");
        let file = setting.path().iter().rev().fold(value, |inner, key| json!({ key: inner }));
        let is_read = parse_bytes("settings.json", file.to_string().as_bytes()).is_ok();
        (is_read, schema.is_valid(&file))
    }

    #[test]
    fn the_schema_allows_what_is_read_from_a_file_and_nothing_else() {
        let schema = jsonschema::validator_for(&schema()).expect("it is a schema");
        for setting in registry::settings() {
            let choices = setting.choices();
            let names = choices.iter().flat_map(PossibleValue::get_name_and_aliases);
            let names: Vec<String> = names.map(|name| json!(name).to_string()).collect();
            let mut taken = 0;
            let values = SCALARS.split(' ').chain(COLLECTIONS.iter().copied());
            let values = values.filter(|value| !is_judged_elsewhere(setting, value));
            for value in values.chain(names.iter().map(String::as_str)) {
                let (is_read, is_allowed) = compared(&schema, setting, value);
                let fits = is_allowed == is_read || (is_read && is_unset_in_part(value));
                assert!(fits, "{setting:?}: {value}: read: {is_read}, allowed: {is_allowed}");
                taken += usize::from(is_read && value != "null");
            }
            for texts in TEXTS {
                let each = texts.iter().map(|text| compared(&schema, setting, text));
                let each: Vec<_> = each.collect();
                let has_syntax = choices.is_empty() && each.iter().any(|(is_read, _)| *is_read);
                for (text, (is_read, is_allowed)) in texts.iter().zip(each) {
                    let fits = is_allowed == is_read || (is_allowed && has_syntax);
                    assert!(fits, "{setting:?}: {text}: read: {is_read}, allowed: {is_allowed}");
                    taken += usize::from(is_read);
                }
            }
            assert!(taken > 0, "{setting:?} was given no value that it takes");
        }
    }

    #[test]
    fn the_schema_lists_every_choice_of_a_flag_as_files_write_it() {
        let schema = jsonschema::validator_for(&schema()).expect("it is a schema");
        for setting in registry::settings() {
            for choice in setting.choices() {
                let written = setting.from_texts(&[choice.get_name().to_owned()]);
                let written = written.expect("a choice is accepted").to_string();
                assert_eq!(compared(&schema, setting, &written), (true, true), "{setting:?}");
            }
        }
    }

    #[test]
    fn the_schema_describes_each_setting_as_the_registry_does() {
        let schema = schema();
        for setting in registry::settings() {
            let described =
                setting.path().iter().fold(&schema, |outer, key| &outer["properties"][key]);
            assert_eq!(described["description"], setting.meaning.as_str(), "{setting:?}");
            assert_eq!(described["default"], setting.default, "{setting:?}");
        }
    }
}
