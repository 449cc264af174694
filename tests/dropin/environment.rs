//! Home folders, environments of jobs and plugins that users of the reference have.

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::Caller;

#[test]
fn the_users_settings_of_the_reference_count() {
    let scenario = Scenario::new()
        .tool("Write", json!({ "file_path": "out.txt", "content": "x" }))
        .reply("written");
    let caller = Caller::with(scenario);
    let ran = caller.path("hook-ran");
    let hook = json!({ "type": "command", "command": format!("touch {}", ran.display()) });
    let settings = json!({
        "model": "haiku",
        "permissions": { "allow": ["Write"] },
        "statusLine": { "type": "command", "command": "true" },
        "hooks": { "PreToolUse": [{ "matcher": "Write", "hooks": [hook] }] },
    });
    caller.file("home/.claude/settings.json", &settings.to_string());
    let (code, stdout, stderr) = caller.shell("claude -p 'write it'");
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "written\n", ""));
    assert!(caller.path("work/out.txt").exists(), "the allow rule counts");
    assert!(ran.exists(), "the hook ran");
    let model = caller.server().requests()[0].body["model"].to_string();
    assert!(model.contains("haiku"), "{model}");
}

#[test]
fn outlasts_own_settings_outrank_them_and_a_mistake_in_them_is_a_warning() {
    let caller = Caller::new();
    caller.file("home/.claude/settings.json", r#"{"model": "haiku"}"#);
    caller.file("home/.outlast/settings.json", r#"{"model": "opus"}"#);
    let (code, _, stderr) = caller.shell("claude -p hi");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(caller.server().requests()[0].body["model"].to_string().contains("opus"));
    caller.file("home/.claude/settings.json", r#"{"model": 7}"#);
    let (code, stdout, stderr) = caller.shell("claude -p hi");
    assert_eq!((code, stdout.as_str()), (0, "feat: add parser\n"), "{stderr}");
    assert!(stderr.contains("settings.json:1:11") && stderr.contains("not used"), "{stderr}");
}

#[test]
fn an_unknown_value_in_them_leaves_the_rest_in_force() {
    // A part of the settings, and what the warning names; or, if it may protect, the mistake.
    let rows = [
        (json!({ "permissions": { "defaultMode": "delegate" } }), "permissions.defaultMode", 0),
        (json!({ "effortLevel": "later" }), "effortLevel", 0),
        (json!({ "cleanupPeriodDays": -1 }), "cleanupPeriodDays", 0),
        (json!({ "env": { "A": [7], "B": "b" } }), "env.A", 0),
        (json!({ "permissions": { "allow": [7, "Read"] } }), "permissions.allow", 0),
        (json!({ "hooks": { "Stop": [{ "hooks": [{ "type": "later" }] }] } }), "hooks.Stop", 2),
        (json!({ "hooks": { "PostToolUse": [{ "hooks": [7] }] } }), "hooks.PostToolUse", 0),
        (json!({ "hooks": { "PreToolUse": [{ "hooks": [7] }] } }), "hooks.PreToolUse", 2),
        (json!({ "permissions": { "deny": [7] } }), "permissions.deny", 2),
        (json!({ "sandbox": { "mode": "later" } }), "sandbox.mode", 2),
    ];
    for ((part, key, exit_code), variable) in
        rows.iter().flat_map(|row| [(row, ""), (row, "CLAUDE_CONFIG_DIR=$HOME/.claude ")])
    {
        let touch = || json!({ "command": "touch denied" });
        let caller = Caller::with(Scenario::new().tool("Bash", touch()).reply("Done."));
        let ran = caller.path("hook-ran");
        let touch = format!("touch {}", ran.display());
        let hook = json!({ "type": "command", "command": touch, "timeout": "10" });
        let mut settings = json!({
            "permissions": { "deny": ["Bash(touch *)"] },
            "hooks": { "SessionStart": [{ "hooks": [hook] }] },
        });
        for (name, value) in part.as_object().expect("an object") {
            match (settings.get_mut(name), value) {
                (Some(Value::Object(known)), Value::Object(more)) => known.extend(more.clone()),
                _ => settings[name] = value.clone(),
            }
        }
        caller.file("home/.claude/settings.json", &settings.to_string());
        let line = format!("{variable}claude -p 'touch it' --allowedTools Bash");
        let (code, _, stderr) = caller.shell(&line);
        assert_eq!(code, *exit_code, "{part}: {stderr}");
        assert!(stderr.contains("settings.json:1:") && stderr.contains(key), "{part}: {stderr}");
        assert_eq!(stderr.contains("is not used"), code == 0, "{part}: {stderr}");
        assert!(!caller.path("work/denied").exists(), "{part}: the deny rule counts");
        assert_eq!(ran.exists(), code == 0, "{part}: the hook runs");
    }
}

#[test]
fn further_folders_in_them_are_below_the_home_and_may_be_missing() {
    let caller = Caller::new();
    caller.file("home/lib/a.txt", "x");
    let folders = r#"{"permissions": {"additionalDirectories": ["~/lib", "../docs/"]}}"#;
    caller.file("home/.claude/settings.json", folders);
    let (code, _, stderr) = caller.shell("claude -p hi");
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("settings.json") && stderr.contains("../docs/ is not a folder"),
        "{stderr}"
    );
    assert!(!stderr.contains("lib"), "{stderr}");
    let sent = caller.server().requests()[0].body["system"].to_string();
    let lib = caller.path("home/lib").display().to_string();
    assert!(sent.contains(&lib), "{sent}");
}

#[test]
fn bare_runs_use_no_hooks_and_no_memory_files() {
    let caller = Caller::new();
    caller.file("work/CLAUDE.md", "PROJECT-MEMORY");
    let ran = caller.path("hook-ran");
    let hook = json!({ "type": "command", "command": format!("touch {}", ran.display()) });
    let settings = json!({ "hooks": { "SessionStart": [{ "hooks": [hook] }] } }).to_string();
    caller.file("home/.claude/settings.json", &settings);
    for (flags, is_bare) in [("", false), ("--bare", true), ("--safe-mode", true)] {
        let _ = std::fs::remove_file(&ran);
        let (code, ..) = caller.shell(&format!("claude -p hi {flags}"));
        assert_eq!(code, 0, "{flags}");
        let last = caller.server().requests().pop().expect("a request");
        assert_eq!(last.body.to_string().contains("PROJECT-MEMORY"), !is_bare, "{flags}");
        assert_eq!(ran.exists(), !is_bare, "{flags}");
    }
}

#[test]
fn a_variable_withholds_secrets_from_commands_in_every_mode() {
    let command = "printenv GH_TOKEN >/dev/null && touch token; true";
    let scenario = Scenario::new().tool("Bash", json!({ "command": command })).reply("done");
    let caller = Caller::with(scenario)
        .env("GH_TOKEN", "ghp_0000000000000000000000000000000000001")
        .env("CLAUDE_CODE_SUBPROCESS_ENV_SCRUB", "1");
    let (code, _, stderr) = caller.shell("claude -p go --dangerously-skip-permissions");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(!caller.path("work/token").exists(), "GH_TOKEN is withheld");
}

#[test]
fn variables_of_the_reference_are_obeyed_or_named() {
    let caller = Caller::new()
        .env("ANTHROPIC_BETAS", "context-1m-2025-08-07, other-2025-01-01")
        .env("CLAUDE_CODE_SHELL_PREFIX", "/bin/audit")
        .env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "0");
    let (code, _, stderr) = caller.shell("claude -p hi");
    assert_eq!(code, 0, "{stderr}");
    let ignored = "CLAUDE_CODE_SHELL_PREFIX has no effect in outlast";
    assert!(stderr.contains(ignored), "{stderr}");
    let request = &caller.server().requests()[0];
    assert_eq!(request.header("anthropic-beta"), Some("context-1m-2025-08-07,other-2025-01-01"));
}

#[test]
fn a_plugin_brings_commands_hooks_and_agents() {
    let caller = Caller::new();
    let manifest = r#"{"name": "kit", "version": "1.0.0", "commands": {"hi": {"source": "./x.md"},
        "ho": {"content": "Make $ARGUMENTS of ${CLAUDE_PLUGIN_ROOT}", "description": "Makes"}}}"#;
    caller.file("kit\"/.claude-plugin/plugin.json", manifest);
    caller.file("kit\"/commands/hello.md", "Do the kit thing");
    caller.file("kit\"/x.md", "Do what x says");
    caller.file("kit\"/agents/helper.md", "---\nname: helper\ndescription: Helps\n---\nYou help.");
    let hook = json!({ "type": "command", "command": "touch '${CLAUDE_PLUGIN_ROOT}/ran'" });
    let hooks = json!({ "hooks": { "SessionStart": [{ "hooks": [hook] }] } }).to_string();
    caller.file("kit\"/hooks/hooks.json", &hooks);
    let line = "claude -p /kit:hello --plugin-dir '../kit\"' --output-format stream-json --verbose";
    let (code, stdout, stderr) = caller.shell(line);
    assert_eq!(code, 0, "{stderr}");
    let sent = caller.server().requests()[0].body["messages"].to_string();
    assert!(sent.contains("Do the kit thing"), "{sent}");
    assert!(caller.path("kit\"/ran").exists(), "the plugin's hook ran");
    assert!(stdout.contains(r#""plugins":[{"name":"kit""#), "{stdout}");
    assert!(stdout.contains("kit:helper"), "{stdout}");
    for (prompt, wanted) in [("/kit:hi", "Do what x says"), ("'/kit:ho soup'", "Make soup of /")] {
        let (code, _, stderr) =
            caller.shell(&format!("claude -p {prompt} --plugin-dir '../kit\"'"));
        assert_eq!(code, 0, "{stderr}");
        let requests = caller.server().requests();
        let sent = requests.last().expect("a request").body["messages"].to_string();
        assert!(sent.contains(wanted), "{sent}");
    }
    let (code, _, stderr) = caller.shell("claude -p hi --plugin-dir nope");
    assert_eq!(code, 2);
    assert!(stderr.contains("--plugin-dir nope"), "{stderr}");
}

#[test]
fn hooks_of_a_plugin_need_no_key_around_their_events() {
    let caller = Caller::new();
    let hook = json!({ "type": "command", "command": "touch '${CLAUDE_PLUGIN_ROOT}/ran'" });
    let events = json!({ "SessionStart": [{ "hooks": [hook] }] }).to_string();
    for (hooks, has_run) in [("null", false), ("[]", false), (events.as_str(), true)] {
        caller.file("kit/hooks/hooks.json", hooks);
        let (code, _, stderr) = caller.shell("claude -p hi --plugin-dir ../kit");
        assert_eq!((code, stderr.as_str()), (0, ""), "{hooks}");
        assert_eq!(caller.path("kit/ran").exists(), has_run, "{hooks}");
    }
}

#[test]
fn a_restricted_run_offers_no_tools_that_run_commands() {
    let caller = Caller::new();
    caller.file("home/.claude/settings.json", r#"{"model": "haiku"}"#);
    let (code, ..) = caller.shell("claude -p hi --restricted");
    assert_eq!(code, 0);
    let body = caller.server().requests()[0].body.clone();
    let tools = body["tools"].to_string();
    assert!(tools.contains("\"Read\"") && !tools.contains("\"Bash\""), "{tools}");
    assert!(!body["model"].to_string().contains("haiku"), "settings files are not read");
    let (code, ..) = caller.shell("claude -p hi --restricted --tools Bash,Read");
    assert_eq!(code, 0);
    let tools = caller.server().requests()[1].body["tools"].to_string();
    assert!(tools.contains("\"Bash\""), "{tools}");
    let (code, ..) = caller.shell("claude -p hi --restricted --dangerously-skip-permissions");
    assert_eq!(code, 2);
}

#[test]
fn guards_of_the_tool_of_sub_agents_may_use_either_of_its_names() {
    let guard = |file: &str, condition: Option<&str>| {
        let command = format!("cat > {file}; exit 2");
        let mut hook = json!({ "type": "command", "command": command });
        if let Some(condition) = condition {
            hook["if"] = json!(condition);
        }
        hook
    };
    for called in ["Agent", "Task"] {
        let input = json!({ "description": "d", "prompt": "p" });
        let caller = Caller::with(Scenario::new().tool(called, input).reply("Done."));
        let names = ["Agent", "Task"];
        let groups = names.map(|name| json!({ "matcher": name, "hooks": [guard(name, None)] }));
        let conditions = names.map(|name| guard(&format!("if-{name}"), Some(name)));
        let mut groups = Vec::from(groups);
        groups.push(json!({ "hooks": conditions }));
        let settings = json!({ "hooks": { "PreToolUse": groups } }).to_string();
        caller.file("home/.claude/settings.json", &settings);
        let (code, _, stderr) = caller.shell("claude -p go");
        assert_eq!(code, 0, "{called}: {stderr}");
        for name in ["Agent", "Task", "if-Agent", "if-Task"] {
            let told = std::fs::read_to_string(caller.path(&format!("work/{name}")));
            let told = told.unwrap_or_else(|error| panic!("{name} for {called}: {error}"));
            assert!(told.contains(r#""tool_name":"Agent""#), "{name} for {called}: {told}");
        }
    }
}

#[test]
fn memory_files_show_nothing_that_rules_deny() {
    let read = json!({ "file_path": "sub/x.txt" });
    let caller = Caller::with(Scenario::new().tool("Read", read).reply("Done."));
    caller.file("work/CLAUDE.md", "see @.env and @notes.md");
    caller.file("work/.env", "SECRET-1");
    caller.file("work/notes.md", "NOTES");
    caller.file("work/sub/CLAUDE.md", "see @.env");
    caller.file("work/sub/.env", "SECRET-2");
    caller.file("work/sub/x.txt", "x");
    let (code, _, stderr) = caller.shell("claude -p go --disallowedTools 'Read(**/.env)'");
    assert!(code == 0 && stderr.contains(".env is left out"), "{stderr}");
    let requests = caller.server().requests();
    let last = requests.last().expect("a request").body.to_string();
    assert!(last.contains("NOTES") && !last.contains("SECRET"), "{last}");
}
