//! Effort and thinking, as command lines, settings, variables and front matter ask for them.

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::Caller;

/// The fields `thinking` and `output_config.effort` of the last request.
fn asked(caller: &Caller) -> (Value, Value) {
    let last = caller.server().requests().pop().expect("a request");
    (last.body["thinking"]["type"].clone(), last.body["output_config"]["effort"].clone())
}

#[test]
fn flags_settings_and_variables_choose_effort_and_thinking() {
    let caller = Caller::new();
    let (adaptive, disabled) = (json!("adaptive"), json!("disabled"));
    let table = [
        ("claude -p hi", "{}", &adaptive, None),
        ("claude -p hi --effort high", "{}", &adaptive, Some("high")),
        ("claude -p hi --effort max --model opus", "{}", &adaptive, Some("max")),
        ("claude -p hi", r#"{"effortLevel": "low"}"#, &adaptive, Some("low")),
        ("claude -p hi --effort medium", r#"{"effortLevel": "low"}"#, &adaptive, Some("medium")),
        ("CLAUDE_CODE_EFFORT_LEVEL=xhigh claude -p hi", "{}", &adaptive, Some("xhigh")),
        ("CLAUDE_CODE_EFFORT_LEVEL=auto claude -p hi", "{}", &adaptive, None),
        ("claude -p hi --thinking disabled", "{}", &disabled, None),
        ("claude -p hi --thinking adaptive", "{}", &adaptive, None),
        ("MAX_THINKING_TOKENS=0 claude -p hi", "{}", &disabled, None),
        ("claude -p hi --max-thinking-tokens 4096", "{}", &adaptive, None),
        ("claude -p hi", r#"{"alwaysThinkingEnabled": false}"#, &disabled, None),
        ("CLAUDE_CODE_DISABLE_THINKING=1 claude -p hi", "{}", &disabled, None),
        (
            "claude -p hi --thinking adaptive",
            r#"{"alwaysThinkingEnabled": false, "maxThinkingTokens": 0}"#,
            &adaptive,
            None,
        ),
        ("claude -p hi --thinking enabled", r#"{"maxThinkingTokens": 0}"#, &adaptive, None),
        ("claude -p hi --thinking disabled", r#"{"maxThinkingTokens": 9000}"#, &disabled, None),
    ];
    for (line, settings, thinking, effort) in table {
        caller.file("home/.claude/settings.json", settings);
        let (code, _, stderr) = caller.shell(line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        assert_eq!(asked(&caller), (thinking.clone(), json!(effort)), "{line} {settings}");
    }
    let (code, _, stderr) = caller.shell("claude -p hi --effort huge");
    assert_eq!(code, 2, "{stderr}");
    for name in ["low", "medium", "high", "xhigh", "max"] {
        assert!(stderr.contains(name), "{stderr}");
    }
}

#[test]
fn agents_and_commands_have_an_effort_of_their_own() {
    let task = json!({ "description": "look", "prompt": "look", "subagent_type": "scout" });
    let scenario = Scenario::new().tool("Agent", task).reply("seen").reply("done").reply("again");
    let caller = Caller::with(scenario);
    caller.file(
        "home/.claude/agents/scout.md",
        "---\nname: scout\ndescription: looks\neffort: low\n---\nLook.\n",
    );
    caller.file("home/.claude/commands/think.md", "---\neffort: max\n---\nThink.\n");
    let (code, stdout, stderr) = caller.shell("claude -p hi --effort high");
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "done\n", ""));
    let efforts: Vec<Value> = caller
        .server()
        .requests()
        .iter()
        .map(|request| request.body["output_config"]["effort"].clone())
        .collect();
    assert_eq!(efforts, ["high", "low", "high"], "the agent's own");
    let (code, _, stderr) = caller.shell("claude -p /think");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(asked(&caller).1, "max", "the command's own");
}

#[test]
fn hooks_are_told_the_effort() {
    let caller = Caller::new();
    let out = caller.path("seen");
    let command = format!("jq -c .effort > {0}; echo $CLAUDE_EFFORT >> {0}", out.display());
    let hook = json!({ "hooks": { "UserPromptSubmit": [{ "hooks": [
        { "type": "command", "command": command }
    ] }] } });
    caller.file("home/.claude/settings.json", &hook.to_string());
    let (code, _, stderr) = caller.shell("claude -p hi --effort low");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let seen = std::fs::read_to_string(&out).expect("the hook ran");
    assert_eq!(seen, "{\"level\":\"low\"}\nlow\n");
}
