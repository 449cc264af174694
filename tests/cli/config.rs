//! `outlast config`: what is in force, and where it comes from.

use std::fs;

use serde_json::{Value, json};

use crate::support::{FinishedProcess, RunBuilder};

fn config() -> RunBuilder {
    let trial = RunBuilder::bare("https://gate.test/api?key=query-secret-0123456789");
    fs::create_dir_all(trial.config()).expect("a folder");
    fs::create_dir_all(trial.work().join(".outlast")).expect("a folder");
    trial.args(["config", "--json"])
}

fn object(ended: &FinishedProcess) -> Value {
    let frames = ended.frames();
    let [object] = &frames[..] else { panic!("not one object: {ended:?}") };
    assert_eq!(object["schema_version"], 1, "{ended:?}");
    assert!(!ended.stdout.contains("secret-0123456789"), "a secret was told: {ended:?}");
    assert!(!ended.stdout.contains("test-key"), "the key was told: {ended:?}");
    object.clone()
}

#[track_caller]
fn has(object: &Value, name: &str, value: impl Into<Value>, origin: &str) {
    let settings = object["settings"].as_array().expect("a list");
    let found: Vec<_> = settings.iter().filter(|one| one["name"] == name).collect();
    let [one] = found[..] else { panic!("{name} is not there once: {object:#}") };
    assert_eq!(one["value"], value.into(), "{one}");
    let told = one["origin"].as_str().expect("text");
    assert!(told.ends_with(origin), "{name}: {told:?} is not {origin:?}");
}

#[tokio::test]
async fn each_value_comes_with_the_flag_variable_or_line_that_won() {
    let trial = config().env("CLAUDE_CODE_MAX_TURNS", "7").env("API_TIMEOUT_MS", "90000");
    let user = "{\n  \"model\": \"opus\",\n  \"maxTurns\": 3,\n  \"connectTimeout\": \"5s\",\n  \
        \"env\": { \"MY_KEY\": \"env-secret-0123456789\", \"MAX_THINKING_TOKENS\": \"2048\" },\n  \
        \"permissions\": { \"deny\": [\"Bash(rm *)\"] },\n  \"statusLine\": { \"x\": 1 }\n}";
    fs::write(trial.config().join("settings.json"), user).expect("the folder is ours");
    let own = "{ \"permissions\": { \"deny\": [\"WebFetch\"], \"allow\": [\"Bash\"] } }";
    let project = trial.work().join(".outlast/settings.json");
    fs::write(project, own).expect("the folder is ours");
    let flags = ["--", "--model", "haiku", "--max-retries", "4", "--no-auto-compact"];
    let ended = trial.args(flags).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let object = object(&ended);
    has(&object, "model", "haiku", "--model");
    has(&object, "maxRetries", 4, "--max-retries");
    has(&object, "autoCompactEnabled", false, "--no-auto-compact");
    has(&object, "maxTurns", 7, "env CLAUDE_CODE_MAX_TURNS");
    has(&object, "requestTimeout", "1m30s", "env API_TIMEOUT_MS");
    has(&object, "maxThinkingTokens", 2048, "config/settings.json:5");
    has(&object, "connectTimeout", "5s", "config/settings.json:4");
    has(&object, "firstByteTimeout", "3m00s", "default");
    has(
        &object,
        "emptyReplyRetries",
        Value::from(outlast::recovery::Limits::default().budgets.empty_replies),
        "default",
    );
    has(&object, "maxBudgetUsd", Value::Null, "default");
    has(&object, "fast", false, "default");
    has(&object, "sandbox.mode", "workspace", "default");
    has(&object, "permissions.defaultMode", "default", "default");
    has(&object, "env.MY_KEY", "(not shown)", "config/settings.json:5");
    has(&object, "baseUrl", "https://gate.test/api", "env ANTHROPIC_BASE_URL");
    has(&object, "credential", "API key (not shown)", "ANTHROPIC_API_KEY");
    has(&object, "permissions.deny", json!(["Bash(rm *)", "WebFetch"]), ".outlast/settings.json:1");
    assert_eq!(object["unknown"][0]["key"], "statusLine", "{object:#}");
    assert_eq!(object["ignored_settings"][0]["key"], "permissions.allow", "{object:#}");
}

#[tokio::test]
async fn config_text_output_has_a_line_per_value_and_mistakes_last() {
    let trial =
        RunBuilder::bare("http://h.test").args(["config"]).env("MAX_THINKING_TOKENS", "many");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stdout.contains("\nconnectTimeout = 15s  (default)\n"), "{}", ended.stdout);
    let last = ended.stdout.lines().last().expect("a line");
    assert!(last.starts_with("error: ") && last.contains("MAX_THINKING_TOKENS"), "{last}");
}

#[tokio::test]
async fn config_reports_invalid_flags_like_a_run() {
    let ended = config().args(["--", "--max-turns", "none"]).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    assert!(ended.stderr.contains("--max-turns"), "{ended:?}");
}

#[tokio::test]
async fn servers_of_every_place_are_there_and_the_repository_s_are_its_own() {
    let trial = config();
    let server = |command: &str| json!({ "mcpServers": { "both": { "command": command } } });
    let mut user = server("user");
    user["mcpServers"]["mine"] =
        json!({ "type": "http", "url": "https://h.test/?k=url-secret-0123456789" });
    user["disabledMcpjsonServers"] = json!(["theirs"]);
    fs::write(trial.config().join("settings.json"), user.to_string()).expect("ours");
    let theirs = "{\n \"mcpServers\": {\n  \"theirs\": {\"command\": \"t\"}, \"both\": \
        {\"command\": \"project\", \"env\": {\"K\": \"env-secret-0123456789\"}}}}";
    fs::write(trial.work().join(".mcp.json"), theirs).expect("ours");
    let own = "{\n \"mcpServers\": {\"own\": {\"command\": \"o\"}}}";
    fs::write(trial.work().join(".outlast/settings.json"), own).expect("ours");
    let flag = "{\"mcpServers\": {\"flag\": {\"command\": \"f\"}}}";
    let ended = trial.args(["--", "--trust-project", "--mcp-config", flag]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let object = object(&ended);
    let both = json!({ "command": "project", "env": "(not shown)" });
    has(&object, "mcpServers.both", both, ".mcp.json:3");
    has(&object, "mcpServers.theirs", json!({ "command": "t", "disabled": true }), ".mcp.json:3");
    let mine = json!({ "type": "http", "url": "https://h.test" });
    has(&object, "mcpServers.mine", mine, "config/settings.json:1");
    has(&object, "mcpServers.own", json!({ "command": "o" }), ".outlast/settings.json:2");
    has(&object, "mcpServers.flag", json!({ "command": "f" }), "--mcp-config:1");
}

#[tokio::test]
async fn settings_of_another_tool_are_named_where_they_are_not_read() {
    let trial = config();
    let home = trial.work().with_file_name("home");
    fs::create_dir_all(home.join(".claude")).expect("ours");
    fs::write(home.join(".claude/settings.json"), "{\"maxTurns\": 3}").expect("ours");
    let ended = trial.env("HOME", &home.display().to_string()).run().await;
    let object = object(&ended);
    has(&object, "maxTurns", Value::Null, "default");
    let files = object["files"].as_array().expect("a list");
    let path = home.join(".claude/settings.json").display().to_string();
    let file = files.iter().find(|file| file["path"] == path).expect("it is named");
    assert_eq!(file["state"], "not read; set CLAUDE_CONFIG_DIR=~/.claude to use it");
}
