//! Settings of any shape: a run, or one mistake with its place.

use std::sync::LazyLock;

use outlast::config::registry;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::settings::resolve;
use crate::support::rotation::property_cases;

static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| registry::names().chain(["hooks", "$schema", "nonsense"]).collect());

fn leaf() -> impl Strategy<Value = Value> {
    let odd = select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(3),
        json!(1024),
        json!(0.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("a"),
        json!("10m"),
        json!("10y"),
        json!("plan"),
        json!("ceiling"),
        json!("a@http://127.0.0.1:1#KEY"),
        json!("a@x:1"),
        json!("https://user:pw@h.example/?q"),
        json!("Bash(ls *)"),
        json!("Read(["),
        json!("é\u{0}"),
        json!("99999999999999999999h"),
        json!({ "model": "b", "baseUrl": "https://h.example" }),
        json!({ "allow": ["Read"], "deny": "x" }),
        json!({ "input": 3, "output": -1 }),
    ]);
    prop_oneof![4 => odd, 1 => "[ -~é😀]{0,9}".prop_map(Value::from)]
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        let entries = prop::collection::vec(("[a-z]{0,4}", inner.clone()), 0..3);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
            entries.prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn file() -> impl Strategy<Value = String> {
    let entry = (select(NAMES.clone()), any_json());
    let object = prop::collection::vec(entry, 0..4).prop_map(|entries| {
        let entries = entries.into_iter().map(|(name, value)| (name.to_owned(), value));
        Value::Object(entries.collect::<Map<_, _>>()).to_string()
    });
    let object = object.boxed();
    let cut = (object.clone(), any::<prop::sample::Index>()).prop_map(|(text, at)| {
        text.chars().take(at.index(text.chars().count() + 1)).collect::<String>()
    });
    prop_oneof![6 => object, 1 => cut, 1 => any_json().prop_map(|json| json.to_string())]
}

proptest! {
    #![proptest_config(property_cases(150))]

    #[test]
    fn any_settings_file_is_accepted_or_refused_with_file_and_line(text in file()) {
        // Settings that do not fit together have no one place.
        if let Err(error) = resolve(&["hi"], &[], &text) {
            prop_assert!(!error.trim().is_empty() && !error.contains("a-key"), "{text}\n{error}");
            let placed = error.strip_prefix("HOME/.outlast/settings.json:");
            if let Some(place) = placed.filter(|_| serde_json::from_str::<Value>(&text).is_err()) {
                let line: Option<usize> = place.split(':').next().and_then(|line| line.parse().ok());
                prop_assert_eq!(line, Some(1), "{}\n{}", text, error);
            }
        }
    }
}
