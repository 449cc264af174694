//! The `hooks` of settings files.

use std::time::Duration;

use outlast::hooks::{HookCommand, HookEvent, HookHandler, HookSettings};
use serde_json::{Value, json};

use crate::support::programs::script;

fn read(value: &Value) -> HookSettings {
    HookSettings::parse(value, "settings.json").expect("these are right")
}

fn refused(value: &Value) -> String {
    HookSettings::parse(value, "settings.json").expect_err("these are wrong").to_string()
}

fn one(event: &str, entry: &Value) -> Value {
    json!({ event: [{ "hooks": [entry] }] })
}

#[test]
fn names_of_events_in_another_case_and_a_group_without_a_list_are_read() {
    for name in ["preToolUse", "pre_tool_use", "PRE-TOOL-USE"] {
        let group = json!({ "matcher": "Bash", "hooks": [null, script("x")] });
        let handlers = read(&json!({ name: group })).handlers;
        let [HookHandler { event, place, .. }] = &handlers[..] else { panic!("{handlers:?}") };
        assert_eq!(
            (*event, place.as_str()),
            (HookEvent::PreToolUse, &*format!("hooks.{name}[0].hooks[1]"))
        );
    }
    for none in [json!([]), json!({ "Stop": {} }), json!({ "Stop": [null, { "hooks": null }] })] {
        let settings = read(&none);
        assert!(settings.handlers.is_empty() && settings.skipped.is_empty(), "{none}");
    }
}

/// The keys that make a hook a guard, with their values.
fn guards() -> [(&'static str, Value); 2] {
    [("failClosed", json!(true)), ("onFailure", json!("block"))]
}

#[test]
fn the_effect_of_a_failure_has_the_key_and_the_words_of_the_reference_too() {
    for (on_failure, fail_closed, is_guard) in [
        (json!("block"), false, true),
        (json!("continue"), false, false),
        (Value::Null, false, false),
        // The stricter of two.
        (json!("continue"), true, true),
    ] {
        let mut entry = script("x");
        entry["onFailure"] = on_failure.clone();
        entry["failClosed"] = json!(fail_closed);
        let settings = read(&one("PreToolUse", &entry));
        assert_eq!(settings.handlers[0].fail_closed, is_guard, "{on_failure}");
    }
    for (key, wrong) in [("onFailure", "Block"), ("onFailure", "deny"), ("onfailure", "block")] {
        let mut entry = script("x");
        entry[key] = json!(wrong);
        let error = refused(&one("PreToolUse", &entry));
        let expected =
            if key == "onFailure" { "unknown variant" } else { "did you mean \"onFailure\"?" };
        assert!(error.contains(expected), "{key} {wrong}: {error}");
    }
}

#[test]
fn the_time_of_hooks_for_the_end_of_the_session_can_be_set_for_those_without_one() {
    let (short, long) = (Duration::from_secs(3), Duration::from_hours(1));
    let mut own = script("x");
    own["timeout"] = json!(5);
    for (event, entry, limit, expected) in [
        ("SessionEnd", script("x"), None, Duration::from_millis(1500)),
        ("SessionEnd", script("x"), Some(short), short),
        ("SessionEnd", script("x"), Some(long), Duration::from_mins(1)),
        ("SessionEnd", own, Some(short), Duration::from_secs(5)),
        ("Stop", script("x"), Some(short), Duration::from_mins(10)),
    ] {
        let handler = read(&one(event, &entry)).handlers.remove(0).with_end_timeout(limit);
        assert_eq!(handler.timeout, expected, "{event} {limit:?}");
    }
}

#[test]
fn a_typical_hook_configuration_is_parsed() {
    let settings = read(&json!({
        "PreToolUse": [{
            "matcher": "Bash|Write",
            "hooks": [
                { "type": "command", "command": "./guard.sh", "timeout": 5, "if": "Bash(git *)",
                  "failClosed": true, "statusMessage": "Guarding" },
                { "type": "command", "command": "/bin/tool", "args": ["-x", "a b"] },
            ],
        }],
        "Stop": [{ "hooks": [{ "type": "command", "command": "true", "async": true }] }],
    }));
    let [guard, tool, stop] = &settings.handlers[..] else { panic!("{settings:?}") };
    assert_eq!((guard.event, guard.timeout), (HookEvent::PreToolUse, Duration::from_secs(5)));
    assert!(guard.fail_closed && !tool.fail_closed && !guard.background && stop.background);
    assert_eq!(guard.command, HookCommand::Script("./guard.sh".to_owned()));
    assert_eq!(tool.command.line(), "/bin/tool -x a b");
    assert_eq!(tool.timeout, Duration::from_mins(10));
    assert_eq!(settings.skipped, []);
}

#[test]
fn every_hook_event_has_a_default_timeout() {
    for event in HookEvent::ALL {
        let usual = read(&one(event.name(), &script("true"))).handlers[0].timeout;
        let expected = match event.name() {
            "UserPromptSubmit" => 30.0,
            "StopFailure" => 10.0,
            "SessionEnd" => 1.5,
            _ => 600.0,
        };
        assert!((usual.as_secs_f64() - expected).abs() < 1e-9, "{event:?}: {usual:?}");
        let mut endless = script("true");
        endless["timeout"] = json!(1e12);
        let bounded = read(&one(event.name(), &endless)).handlers[0].timeout;
        let decided = matches!(event, HookEvent::StopFailure | HookEvent::SessionEnd);
        let most = if decided { Duration::from_mins(1) } else { Duration::from_hours(1) };
        assert_eq!(bounded, most, "{event:?}");
    }
}

#[test]
fn a_hook_repeated_in_two_files_runs_once_with_the_stricter_setting() {
    let mut settings = read(&one("PreToolUse", &script("guard")));
    let mut strict = script("guard");
    strict["failClosed"] = json!(true);
    settings.merge(read(&one("PreToolUse", &strict)));
    settings.merge(read(&json!({
        "PreToolUse": [{ "matcher": "Bash", "hooks": [script("guard")] }],
        "PostToolUse": [{ "hooks": [script("guard")] }],
    })));
    assert_eq!(settings.handlers.len(), 3, "another matcher, another event: other hooks");
    assert!(settings.handlers[0].fail_closed);
}

#[test]
fn a_hook_cannot_be_weakened_by_a_repetition_in_another_file() {
    let guard = json!({
        "type": "command", "command": "guard", "failClosed": true, "timeout": 20,
    });
    for weaker in [json!({ "async": true }), json!({ "timeout": 0.001 }), json!({})] {
        let mut other = script("guard");
        other.as_object_mut().expect("an object").extend(weaker.as_object().cloned().unwrap());
        let like = one("PreToolUse", &other);
        let mut settings = HookSettings::parse(&like, "theirs.json").expect("these are right");
        settings.merge(read(&one("PreToolUse", &guard)));
        settings.merge(HookSettings::parse(&like, "last.json").expect("these are right"));
        let [hook] = &settings.handlers[..] else { panic!("{settings:?}") };
        assert!(hook.fail_closed && !hook.background, "{weaker}");
        assert!(hook.timeout >= Duration::from_secs(20), "{weaker}");
        assert_eq!(hook.source, "last.json", "{weaker}");
    }
}

/// The same hook, as other programs and people write it.
#[test]
fn a_hook_may_be_written_in_shorter_forms() {
    let hook = json!({ "type": "command", "command": "x", "timeout": 10 });
    let wanted = &read(&json!({ "PreToolUse": [{ "matcher": "Bash|Edit", "hooks": [hook] }] }));
    for group in [
        json!({ "matcher": ["Bash", "Edit"], "hooks": [{ "command": "x", "timeout": "10s" }] }),
        json!({ "matcher": "Bash|Edit", "type": "command", "command": "x", "timeout": 10 }),
    ] {
        let read = &read(&json!({ "PreToolUse": [group] }));
        assert!(read.skipped.is_empty(), "{group}");
        let [hook] = &read.handlers[..] else { panic!("{group}: {read:?}") };
        let form =
            |hook: &HookHandler| (hook.named_tools().to_vec(), hook.command.clone(), hook.timeout);
        assert_eq!(form(hook), form(&wanted.handlers[0]), "{group}");
    }
}

#[test]
fn a_timeout_that_is_meant_as_milliseconds_is_named() {
    for (timeout, is_named) in [(3600, false), (60_000, true)] {
        let settings = read(&one("Stop", &json!({ "command": "x", "timeout": timeout })));
        let skipped: Vec<_> = settings.skipped.iter().map(|it| (&*it.place, &*it.why)).collect();
        let warning =
            ("hooks.Stop[0].hooks[0].timeout", "it is in seconds, and the longest is 3600");
        assert_eq!(skipped, Vec::from_iter(is_named.then_some(warning)));
    }
}

#[test]
fn mistakes_in_hooks_are_reported_with_file_and_line() {
    let rows = [
        (json!(["x"]), "hooks: must be an object"),
        (json!({ "Stop": "x" }), "hooks.Stop: must be a list"),
        (json!({ "Stop": [{}] }), "hooks.Stop[0]: has no \"hooks\"; write {\"matcher\": "),
        (json!({ "Stop": [{ "hooks": [{}] }] }), "hooks.Stop[0].hooks[0]: has no command"),
        (
            json!({ "Stop": [{ "matcher": 5, "hooks": [] }] }),
            "the matcher must be a text or a list",
        ),
        (json!({ "Stop": [{ "hooks": [{ "type": "command" }] }] }), "hooks[0]: has no command"),
        (one("Stop", &script("  ")), "has no command"),
        (one("Stop", &json!({ "type": "comand", "command": "x" })), "there are no hooks of type"),
        (
            json!({ "PreToolUse": [{ "matcher": "(", "hooks": [] }] }),
            "hooks.PreToolUse[0].matcher: is not a regular expression",
        ),
        (json!({ "PreToolUse": [{ "matcher": "Bash(*)", "hooks": [] }] }), "name tools, such as"),
        (
            one("Stop", &json!({ "type": "command", "command": "x", "timeout": -1 })),
            "invalid timeout -1",
        ),
        (
            one("Stop", &json!({ "type": "command", "command": "x", "timeout": "1m" })),
            "the timeout is not a number of seconds",
        ),
    ];
    for (value, expected) in rows {
        let error = refused(&value);
        assert!(error.contains(expected), "{value}: {error}");
    }
}

#[test]
fn unsupported_hook_types_are_listed_without_an_error() {
    let settings = read(&json!({
        "PostToolBatch": [{ "hooks": [script("x")] }],
        "PostToolUse": [{ "matcher": "Bash(git *)", "hooks": [script("x")] }],
        "PreToolUs": [{ "hooks": [script("x")] }],
        "Stop": [{ "hooks": [
            { "type": "prompt", "prompt": "is it done?" },
            { "type": "http", "url": "http://127.0.0.1:1/" },
            { "type": "command", "command": "x", "if": "Bash" },
            { "type": "command", "command": "awake", "asyncRewake": true },
            { "type": "command", "command": "x", "shell": "powershell" },
            { "type": "command", "command": "y", "shell": "" },
            { "type": "command", "command": "z", "shell": "/bin/dash" },
            script("kept"),
        ] }],
    }));
    assert_eq!(settings.handlers.len(), 6);
    let told: Vec<String> =
        settings.skipped.iter().map(|one| format!("{}: {}", one.place, one.why)).collect();
    let expected = [
        "hooks.PostToolBatch: outlast does not support this event",
        "hooks.PostToolUse[0].matcher: it reads like a permission rule, and as a regular expression \
         it matches no tool, so its hooks never run; name only the tool here, and put the rule \
         into \"if\"",
        "hooks.PreToolUs: there is no such event",
        "hooks.Stop[0].hooks[0]: hooks of type \"prompt\" are not supported; use \"command\"",
        "hooks.Stop[0].hooks[1]: hooks of type \"http\" are not supported; use \"command\"",
        "hooks.Stop[0].hooks[2]: `if` is for tool events, so this Stop never runs",
        "hooks.Stop[0].hooks[3].asyncRewake: it runs in the background and does not wake the model",
        "hooks.Stop[0].hooks[4].shell: the shell \"powershell\" is not supported, so sh runs it; use \
         \"bash\" or \"sh\"",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_blocking_hook_that_could_never_block_is_refused() {
    for (key, value) in guards() {
        refuses_blocking_hooks_that_could_never_block(key, &value);
    }
}

fn refuses_blocking_hooks_that_could_never_block(key: &str, value: &Value) {
    let guard = |mut entry: Value| {
        entry[key] = value.clone();
        entry
    };
    let prompt = json!({ "type": "prompt", "prompt": "is it done?" });
    let mut detached = script("x");
    detached["async"] = json!(true);
    let mut conditional = script("x");
    conditional["if"] = json!("Bash");
    let rows = [
        (one("Stop", &guard(prompt.clone())), "not supported"),
        (one("PreToolUse", &guard(detached.clone())), "a background hook (async)"),
        (one("Stop", &guard(conditional)), "never runs"),
        (
            json!({ "PreToolUse": [{ "matcher": "Bash(rm *)", "hooks": [guard(script("x"))] }] }),
            "hooks.PreToolUse[0].matcher: it reads like a permission rule",
        ),
        (one("PostToolBatch", &guard(script("x"))), "outlast does not support this event"),
        (one("BeforeAll", &guard(script("x"))), "there is no such event"),
    ];
    for (value, expected) in rows {
        let error = refused(&value);
        assert!(error.contains(expected) && error.contains("guard"), "{value}: {error}");
    }
    for harmless in [one("SessionEnd", &guard(detached)), one("SessionEnd", &guard(prompt))] {
        assert!(HookSettings::parse(&harmless, "x").is_ok(), "{harmless}");
    }
}

#[test]
fn comments_in_hooks_are_ignored_and_what_was_taken_out_is_listed() {
    let group = json!({ "hooks": [script("x")] });
    let settings = read(&json!({
        "$schema": "https://x.test",
        "_comment": "ours",
        "// PreToolUse": "before tools",
        "#": ["a", "b"],
        "description": { "of": "all" },
        "Stop": ["// at the end", { "_comment": "y" }, {
            "_comment": "z",
            "hooks": ["# lint", { "//": "only" }, "", script("kept")],
        }],
        "Notification": null,
        "_PreToolUse": [group],
        "PreToolUse_DISABLED": { "matcher": "x" },
        "PreToolUses": "x",
        "Setup": "x",
    }));
    assert_eq!(settings.handlers.len(), 1);
    assert_eq!(settings.handlers[0].place, "hooks.Stop[2].hooks[3]");
    let told: Vec<&str> = settings.skipped.iter().map(|one| one.place.as_str()).collect();
    let expected =
        ["hooks._PreToolUse", "hooks.PreToolUse_DISABLED", "hooks.PreToolUses", "hooks.Setup"];
    assert_eq!(told, expected);
    for (key, value) in guards() {
        let mut guard = script("x");
        guard[key] = value;
        for taken_out in [json!([{ "hooks": [guard] }]), json!({ "hooks": [guard] })] {
            assert!(refused(&json!({ "_PreToolUse": taken_out })).contains("guard"), "{taken_out}");
        }
    }
    for wrong in [json!("lint"), json!({}), json!({ "_comment": "x", "matcher": "Bash" })] {
        refused(&json!({ "Stop": [wrong] }));
        refused(&json!({ "Stop": [{ "hooks": [wrong] }] }));
    }
}
