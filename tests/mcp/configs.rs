//! Definitions of servers.

use std::time::Duration;

use outlast::mcp::{
    HttpKind, ServerAddress, expand, ineffective_keys, mistyped_keys, tool_names_key,
};
use outlast::types::ToolPolicy;
use serde_json::{Value, json};

use super::entry;

#[test]
fn variables_are_put_in_wherever_they_may_stand() {
    let (config, unset) = entry(&json!({
        "command": "${DIR:-/usr/bin}/srv",
        "args": ["--token=${TOKEN}", "${NONE}", "$TOKEN", "${}", "${TOKEN", 3, true],
        "env": { "T": "${TOKEN}", "N": 3, "none": null },
        "cwd": "${DIR:-tools}",
        "timeout": 1500,
    }))
    .expect("a good entry");
    let ServerAddress::Program { command, arguments, variables, cwd } = config.place else {
        panic!("no program")
    };
    assert_eq!(command, "/usr/bin/srv");
    assert_eq!(arguments, ["--token=abc", "${NONE}", "$TOKEN", "${}", "${TOKEN", "3", "true"]);
    assert_eq!(variables, [("N", "3"), ("T", "abc")].map(|(a, b)| (a.into(), b.into())).into());
    assert_eq!(cwd.as_deref(), Some("tools"));
    assert_eq!(unset, ["NONE"]);
    assert_eq!(config.timeout, Some(Duration::from_millis(1500)));
    let http = json!({
        "type": "http", "url": "https://x.test/${TOKEN}", "headers": { "A": "Bearer ${TOKEN}" }
    });
    let ServerAddress::Http(address) = entry(&http).expect("a good entry").0.place else {
        panic!("no address")
    };
    assert_eq!(address.url, "https://x.test/abc");
    assert_eq!(address.headers, [("A".to_owned(), "Bearer abc".to_owned())]);
    assert_eq!((address.helper, address.kind), (None, HttpKind::Streamable));
    let older = json!({ "type": "sse", "url": "https://x.test", "headersHelper": "x ${TOKEN}" });
    let (config, unset) = entry(&older).expect("a good entry");
    let ServerAddress::Http(address) = config.place else { panic!("no address") };
    assert_eq!(address.kind, HttpKind::Sse);
    assert_eq!(address.helper.as_deref(), Some("x ${TOKEN}"), "the shell expands it");
    assert_eq!(unset, [""; 0]);
}

#[test]
fn a_tilde_at_the_start_of_a_path_is_the_home_folder() {
    let value = json!({ "command": "~/srv", "args": ["~/x"], "cwd": "~/a/~" });
    let ServerAddress::Program { command, arguments, cwd, .. } =
        entry(&value).expect("a good entry").0.place
    else {
        panic!("no program")
    };
    assert_eq!((command.as_str(), cwd.as_deref()), ("/h/srv", Some("/h/a/~")));
    assert_eq!(arguments, ["~/x"], "it may be no path");
}

#[test]
fn types_timeouts_and_switches_are_read_in_the_forms_of_other_programs() {
    for (more, timeout, disabled) in [
        (json!({ "timeout": "1500" }), Some(1500), false),
        (json!({ "timeout": 1500.0, "type": "STDIO" }), Some(1500), false),
        (json!({ "enabled": false, "timeout": null }), None, true),
        (json!({ "url": null, "headers": null, "args": null }), None, false),
        (json!({ "url": "" }), None, false),
        (json!({ "timeout": 0, "transport": "pipes", "serverUrl": "https://x.test" }), None, false),
        (json!({ "disabled": true, "enabled": true }), None, true),
    ] {
        let mut value = more.clone();
        value["command"] = json!("x");
        let (config, _) = entry(&value).expect("a good entry");
        assert_eq!(config.timeout, timeout.map(Duration::from_millis), "{more}");
        assert_eq!(config.disabled, disabled, "{more}");
    }
    for (value, kind) in [
        (json!({ "httpUrl": "https://x.test" }), HttpKind::Streamable),
        (json!({ "serverUrl": "https://x.test", "type": "sse" }), HttpKind::Sse),
        (json!({ "url": "https://x.test", "transport": "sse" }), HttpKind::Sse),
        (json!({ "url": "https://x.test", "transportType": "http" }), HttpKind::Streamable),
    ] {
        let ServerAddress::Http(address) = entry(&value).expect("good").0.place else {
            panic!("{value}")
        };
        assert_eq!((address.url.as_str(), address.kind), ("https://x.test", kind), "{value}");
    }
    for kind in ["HTTP", "streamable_http", "streamableHttp"] {
        let value = json!({ "type": kind, "url": "https://x.test" });
        assert!(matches!(entry(&value).expect("good").0.place, ServerAddress::Http(_)), "{kind}");
    }
}

#[test]
fn a_mistyped_key_is_named_with_the_one_that_is_meant() {
    let mistyped = |value: Value| {
        let keys = mistyped_keys(value.as_object().expect("an object"));
        keys.into_iter().map(|(key, meant)| format!("{key} {meant}")).collect::<Vec<_>>()
    };
    assert_eq!(mistyped(json!({ "arg": [], "header": {} })), ["arg args", "header headers"]);
    assert!(mistyped(json!({ "description": "", "autoApprove": [], "trust": true })).is_empty());
}

#[test]
fn keys_of_other_programs_that_restrict_or_reach_a_server_are_obeyed_or_named() {
    for key in ["disabledTools", "disabled_tools", "excludeTools", "exclude_tools"] {
        let (config, _) = entry(&json!({ "command": "x", key: ["drop", 3] })).expect("good");
        assert_eq!(config.policies, [("drop".to_owned(), ToolPolicy::Deny)], "{key}");
    }
    let object = |value: Value| value.as_object().expect("an object").clone();
    for key in ["enabledTools", "includeTools", "tools"] {
        assert_eq!(tool_names_key(&object(json!({ key: ["x"] }))), Some(key));
        assert_eq!(tool_names_key(&object(json!({ key: ["*"], "trust": true }))), None);
    }
    let given = object(json!({ "envFile": ".env", "http_headers": null, "requestInit": {} }));
    assert_eq!(ineffective_keys(&given).collect::<Vec<_>>(), ["envFile", "requestInit"]);
}

#[test]
fn a_value_is_not_expanded_twice_and_text_around_stays() {
    let lookup = |name: &str| (name == "A").then(|| "${B}".to_owned());
    let mut unset = Vec::new();
    assert_eq!(expand("ä${A}ö${A}", &lookup, &mut unset), "ä${B}ö${B}");
    assert_eq!(expand("${A:-x}${C:-}", &lookup, &mut unset), "${B}");
    assert!(unset.is_empty());
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let lookup = |name: &str| (name == "EMPTY").then(String::new);
    let mut unset = Vec::new();
    assert_eq!(expand("${EMPTY:-there}, ${EMPTY}", &lookup, &mut unset), "there, ${EMPTY}");
    assert_eq!(unset, ["EMPTY"]);
}

#[test]
fn a_wrong_entry_says_what_is_wrong_and_not_what_is_in_it() {
    let table: [(Value, &str); 14] = [
        (json!("secret"), "not an object"),
        (json!({}), "no \"command\""),
        (json!({ "command": " " }), "no \"command\""),
        (json!({ "url": "https://secret" }), "not \"type\": \"http\""),
        (json!({ "type": "ws", "url": "https://secret" }), "not supported"),
        (json!({ "type": "secret" }), "must be \"stdio\", \"http\", \"sse\" or \"sdk\""),
        (json!({ "type": "http", "url": "https://a", "headersHelper": ["secret"] }), "not a text"),
        (json!({ "type": "http", "url": "file:///secret" }), "not an http://"),
        (json!({ "command": "x", "args": "secret" }), "\"args\" is not a list"),
        (json!({ "command": "x", "env": { "A": ["secret"] } }), "\"env\" is not an object"),
        (json!({ "command": "x", "env": { "A=secret": "" } }), "has an invalid name"),
        (json!({ "command": "x", "args": [["secret"]] }), "\"args\" is not a list"),
        (json!({ "command": "x", "timeout": -1 }), "milliseconds above 0"),
        (json!({ "command": "x", "timeout": "secret" }), "milliseconds above 0"),
    ];
    for (value, wanted) in table {
        let why = entry(&value).expect_err("it is wrong");
        assert!(why.contains(wanted) && !why.contains("secret"), "{value}: {why}");
    }
}
