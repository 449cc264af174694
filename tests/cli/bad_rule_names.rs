//! Rules that name no tool: what holds a run back is not lost for a typing mistake.

use super::settings::resolve;

/// The settings of a user with one rule in a list.
fn with(list: &str, rule: &str) -> String {
    format!("{{\n  \"permissions\": {{\"{list}\": [\"Read(x)\",\n    \"{rule}\"]}}\n}}")
}

#[test]
fn a_mistyped_deny_rule_stops_the_run_before_it_starts() {
    for (rule, meant) in [
        ("Raed(./x)", "Read"),
        ("bash(curl *)", "Bash"),
        ("Webfetch(domain:x)", "WebFetch"),
        ("Wirte", "Write"),
        ("grep", "Grep"),
        ("mcp_srv__x", "mcp__srv__x"),
    ] {
        for list in ["deny", "ask"] {
            let error = resolve(&["hi"], &[], &with(list, rule)).unwrap_err();
            let wanted = format!(
                "HOME/.outlast/settings.json:3:5: the rule \"{rule}\" of permissions.{list} names \
                 no tool; did you mean \"{meant}\"?"
            );
            assert_eq!(error, wanted);
        }
        let settings = resolve(&["hi"], &[], &with("allow", rule)).expect("it holds nothing back");
        assert!(settings.warnings[0].contains(meant), "{:?}", settings.warnings);
        let error = resolve(&["--disallowedTools", rule, "hi"], &[], "{}").unwrap_err();
        assert!(error.contains("--disallowedTools") && error.contains(meant), "{error}");
        let settings = resolve(&["--allowedTools", rule, "hi"], &[], "{}").expect("a warning");
        assert!(settings.warnings[0].contains("--allowedTools"), "{:?}", settings.warnings);
        let hook = format!(
            r#"{{"hooks": {{"PreToolUse": [{{"hooks": [{{"type": "command", "command": "x",
                "if": "{rule}"}}]}}]}}}}"#
        );
        let error = resolve(&["hi"], &[], &hook).unwrap_err();
        assert!(error.contains(meant), "{error}");
    }
}

#[test]
fn an_allow_rule_for_an_unknown_tool_is_reported_once() {
    let settings = resolve(&["hi"], &[], &with("deny", "Frobnicate(x)")).expect("a warning");
    let [warning] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
    assert!(warning.contains("settings.json:3:5: the rule \"Frobnicate(x)\""), "{warning}");
    for rule in ["NotebookEdit", "TodoWrite", "Task", "Agent(x)", "LSP", "Skill", "*", "mcp__*"] {
        let settings = resolve(&["hi"], &[], &with("deny", rule)).expect("it is known");
        assert!(settings.warnings.is_empty(), "{rule}: {:?}", settings.warnings);
    }
}

#[test]
fn a_rule_for_an_unknown_mcp_server_is_reported() {
    let server = r#"{"mcpServers": {"github": {"command": "true"}}}"#;
    let warnings = |rule: &str| {
        let flags = ["--mcp-config", server, "--disallowedTools", rule, "hi"];
        resolve(&flags, &[], "{}").expect("a warning").warnings
    };
    for rule in ["mcp__gihub", "mcp__gihub__x", "mcp__gihub__*"] {
        let told = warnings(rule);
        let [warning] = &told[..] else { panic!("{rule}: {told:?}") };
        assert!(warning.contains(rule) && warning.contains("\"mcp__github\"?"), "{warning}");
    }
    for rule in ["mcp__github", "mcp__github__x", "mcp__github__*", "mcp__*", "mcp__git*"] {
        assert!(warnings(rule).is_empty(), "{rule}: {:?}", warnings(rule));
    }
    let dotted = r#"{"mcpServers": {"my.server": {"command": "true"}}}"#;
    for rule in ["mcp__my.server", "mcp__my.server__get.x", "mcp__my_server"] {
        let flags = ["--mcp-config", dotted, "--disallowedTools", rule, "hi"];
        let told = resolve(&flags, &[], "{}").expect("no warning").warnings;
        assert!(told.is_empty(), "{rule}: {told:?}");
    }
    let flags = ["--mcp-config", dotted, "--permission-prompt-tool", "mcp__my.server__ask", "hi"];
    resolve(&flags, &[], "{}").expect("the tool is known");
}

#[test]
fn a_typo_in_a_blocking_hook_setting_stops_the_run_before_it_starts() {
    for key in ["failclosed", "fail_closed", "FailClosed", "fail-closed", "failClose"] {
        let hook = format!(
            r#"{{"hooks": {{"PreToolUse": [{{"hooks": [{{"type": "command", "command": "x",
                "{key}": true}}]}}]}}}}"#
        );
        let error = resolve(&["hi"], &[], &hook).unwrap_err();
        assert!(error.contains(key) && error.contains("did you mean \"failClosed\"?"), "{error}");
    }
}

#[test]
fn a_misspelt_tool_in_a_matcher_of_hooks_is_reported() {
    let with = |event: &str, matcher: &str, more: &str| {
        let hook = format!(
            r#"{{"hooks": {{"{event}": [{{"matcher": "{matcher}", "hooks": [
                {{"type": "command", "command": "x"{more}}},
                {{"type": "command", "command": "y"}}]}}]}}}}"#
        );
        resolve(&["hi"], &[], &hook)
    };
    let wanted = "hooks.PreToolUse[0].matcher: \"bash\" names no tool; did you mean \"Bash\"?";
    let warnings = with("PreToolUse", "Edit|bash", "").expect("a warning").warnings;
    assert!(warnings.len() == 1 && warnings[0].ends_with(wanted), "{warnings:?}");
    let error = with("PreToolUse", "bash", ", \"failClosed\": true").unwrap_err();
    assert!(error.contains(wanted) && error.contains("is a guard"), "{error}");
    for (matcher, said) in [
        ("/Bash/", "matches no tool, so its hooks never run"),
        ("!Edit", "matches no tool, so its hooks never run"),
        ("all", "matches no tool, so its hooks never run"),
        (
            "Bash|mcp__tracker",
            "\"mcp__tracker\" matches no tool of that server; write \"mcp__tracker__.*\"",
        ),
    ] {
        let warnings = with("PreToolUse", matcher, "").expect("a warning").warnings;
        let wanted = format!("hooks.PreToolUse[0].matcher: {said}");
        assert!(warnings.len() == 1 && warnings[0].contains(&wanted), "{matcher}: {warnings:?}");
        let error = with("PreToolUse", matcher, ", \"failClosed\": true").unwrap_err();
        assert!(error.contains(said) && error.contains("is a guard"), "{error}");
    }
    for (event, matcher) in [
        ("PreToolUse", "Bash, Write|mcp__x__y|Agent|Teleport"),
        ("PreToolUse", ".*delete.*"),
        ("PreToolUse", "^(?!Bash)"),
        ("PreToolUse", "MultiEdit|shell"),
        ("PostToolUse", "^bash"),
        ("SessionStart", "bash"),
    ] {
        let warnings = with(event, matcher, "").expect("no mistake").warnings;
        assert_eq!(warnings, [""; 0], "{event} {matcher}");
    }
}

#[test]
fn mcp_servers_under_a_mistyped_key_are_reported() {
    for key in ["mcpServer", "mcpservers", "mcp_servers"] {
        let given = format!("{{\"{key}\": {{\"a\": {{\"command\": \"x\"}}}}}}");
        let error = resolve(&["--mcp-config", &given, "hi"], &[], "{}").unwrap_err();
        let wanted = format!("\"{key}\" holds no servers; did you mean \"mcpServers\"?");
        assert!(error.contains("--mcp-config:1:") && error.contains(&wanted), "{error}");
    }
}

#[test]
fn mcp_servers_are_found_without_their_usual_key_and_their_absence_is_reported() {
    for (given, line) in [
        (r#"{"a": {"command": "x"}}"#, 1),
        (
            "{\n\"inputs\": [],\n\"servers\": {\n\"a\": {\"url\": \"https://x.test\", \"type\": \"http\"}}}",
            4,
        ),
    ] {
        let settings = resolve(&["--mcp-config", given, "hi"], &[], "{}").expect("servers");
        let names: Vec<_> = settings.mcp.servers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a"], "{given}");
        assert_eq!(settings.mcp.places["a"], format!("--mcp-config:{line}"));
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    }
    let twice = r#"{"a": {"command": "x"}, "a": {"command": "y"}}"#;
    let error = resolve(&["--mcp-config", twice, "hi"], &[], "{}").unwrap_err();
    assert!(error.contains("duplicate key \"a\""), "{error}");
    // A file may hold anything else, or nothing.
    for (given, is_reported) in [
        ("{}", false),
        (r#"{"mcpServers": {}}"#, false),
        (r#"{"theme": "dark"}"#, true),
        (r#"{"servers": 3}"#, true),
    ] {
        let settings = resolve(&["--mcp-config", given, "hi"], &[], "{}").expect("no servers");
        assert_eq!(settings.mcp.servers.len(), 0);
        let warnings = settings.warnings.join("\n");
        assert_eq!(warnings.contains("its JSON holds no MCP servers"), is_reported, "{warnings}");
    }
}

#[test]
fn an_unknown_tool_in_an_agent_definition_is_reported() {
    let agents = r#"{"q": {"description": "x", "prompt": "y", "tools": ["Raed", "Grep"],
        "disallowedTools": ["Bsh"]}, "r": {"description": "x", "prompt": "y", "tools": "grep"}}"#;
    let told = resolve(&["--agents", agents, "hi"], &[], "{}").expect("a warning").warnings;
    for wanted in [
        "the agent \"q\": \"Raed\" of tools names no tool; did you mean \"Read\"?",
        "the agent \"q\": \"Bsh\" of disallowedTools names no tool; did you mean \"Bash\"?",
    ] {
        assert!(told.iter().any(|line| line == wanted), "{told:?}");
    }
    assert!(!told.iter().any(|line| line.contains("\"r\"")), "{told:?}");
    let agents = r#"{"q": {"description": "x", "prompt": "y", "tools": ["Bash(git", "Read"]}}"#;
    let refused = resolve(&["--agents", agents, "--agent", "q", "hi"], &[], "{}").expect_err("bad");
    let wanted = "the agent \"q\": \"Bash(git\" in tools is not a rule";
    assert!(refused.contains(wanted), "{refused}");
}

#[test]
fn an_allow_rule_for_all_tools_is_reported() {
    let file = r#"{"permissions": {"allow": ["*"], "deny": []}}"#;
    let told = resolve(&["--allowed-tools", "*", "hi"], &[], file).expect("a warning").warnings;
    for wanted in
        ["--allowedTools: the rule \"*\" has no", ":1:28: the rule \"*\" of permissions.allow"]
    {
        assert!(told.iter().any(|line| line.contains(wanted)), "{told:?}");
    }
    let told = resolve(&["--disallowed-tools", "*", "hi"], &[], "{}").expect("it denies").warnings;
    assert_eq!(told, [""; 0]);
}

#[test]
fn comments_in_lists_of_rules_and_in_names_of_settings_have_no_effect() {
    let file = r##"{
        "//": "a", "//": "b", "_comment": 1, "# x": {}, "$schema": "x", "description": "d",
        "permissions": {
            "_comment": "c", "// allow": 1,
            "allow": ["// Git", "", "Bash(git:*)", "Bash(ls", "Git things", "Bash(:*)"],
            "ask": ["# ask", "=== MCP ==="],
            "deny": ["//Bash(x)", "--- Search (Grep) ---", "Read(./x)", "/* end */"]
        },
        "hooks": {"_comment": "x", "_comment": "y", "Stop": null}
    }"##;
    let settings = resolve(&["hi"], &[], file).expect("comments are no mistakes");
    let rules = &settings.config.permissions;
    assert_eq!(rules.allow, ["Bash(git:*)", "Bash(:*)"]);
    assert!(rules.ask.is_empty(), "{rules:?}");
    assert_eq!(rules.deny, ["Read(./x)"]);
    let [unclosed, words, empty] = &settings.warnings[..] else {
        panic!("{:?}", settings.warnings)
    };
    assert!(
        unclosed.contains("`Bash(ls` is not a rule") && unclosed.contains("no effect"),
        "{unclosed}"
    );
    assert!(words.contains("`Git things` is not a rule"), "{words}");
    assert!(empty.contains("allows only the command `:`"), "{empty}");
}

#[test]
fn what_may_be_meant_as_a_restriction_is_no_comment() {
    for rule in ["- Bash(rm *)", "!Bash(rm *)", "'Bash(rm *)", "rm -rf *", "(rm)"] {
        for list in ["deny", "ask"] {
            let error = resolve(&["hi"], &[], &with(list, rule)).unwrap_err();
            assert!(error.contains(&format!("`{rule}` is not a rule")), "{error}");
        }
    }
    for key in ["_permissions", "// permissions", "# sandbox"] {
        let file = format!(r#"{{"{key}": {{"deny": ["Bash"]}}}}"#);
        let told = resolve(&["hi"], &[], &file).expect("it was taken out").warnings.join("\n");
        assert!(told.contains(&format!("no effect: \"{key}\"")), "{told}");
    }
    resolve(&["hi"], &[], r#"{"-permissions": {"deny": ["Bash"]}}"#).expect_err("a typo");
    resolve(&["hi"], &[], r#"{"hooks": {"-PreToolUse": []}}"#).expect_err("a typo");
}
