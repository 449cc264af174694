//! `outlast config`: what is in force, and where it comes from.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

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
async fn text_is_grouped_and_aligned_with_mistakes_last() {
    let trial =
        RunBuilder::bare("http://h.test").args(["config"]).env("MAX_THINKING_TOKENS", "many");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let at = |wanted: &str| {
        let found = lines.iter().position(|line| line.starts_with(wanted));
        found.unwrap_or_else(|| panic!("{wanted} is not in {}", ended.stdout))
    };
    let (timers, connect) = (at("Timers"), at("  connectTimeout "));
    assert!(at("Limits") < timers && timers < connect && connect < at("Sandbox"));
    let words: Vec<&str> = lines[connect].split_whitespace().collect();
    assert_eq!(words, ["connectTimeout", "15s", "default"]);
    let column = |line: &str, word: &str| line.find(word).expect("it is there");
    let other = lines[at("  maxTurns ")];
    assert_eq!(column(lines[connect], "15s"), column(other, "none"));
    assert_eq!(column(lines[connect], "default"), column(other, "default"));
    let mistakes = at("Mistakes");
    assert!(lines[mistakes + 1].contains("MAX_THINKING_TOKENS"), "{}", ended.stdout);
    assert_eq!(lines.len(), mistakes + 2);
}

#[tokio::test]
async fn only_what_was_changed_is_shown_on_request() {
    let trial = RunBuilder::bare("").without("ANTHROPIC_BASE_URL").without("ANTHROPIC_API_KEY");
    let quiet = trial.without("OUTLAST_CONFIG_DIR").args(["config", "--changed"]);
    let ended = quiet.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, "All settings are at their defaults.\n");
    let ended = config().args(["--changed", "--", "--max-turns", "3"]).run().await;
    let object = object(&ended);
    has(&object, "maxTurns", 3, "--max-turns");
    let settings = object["settings"].as_array().expect("a list");
    assert!(settings.iter().all(|one| one["origin"] != "default"), "{object:#}");
}

#[tokio::test]
async fn one_setting_can_be_asked_for() {
    let get =
        |words: &[&str]| RunBuilder::bare("http://h.test").args(["config", "get"]).args(words);
    let ended = get(&["connectTimeout"]).run().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "15s\n"), "{ended:?}");
    let ended = get(&["maxTurns", "--json", "--", "--max-turns", "3"]).run().await;
    let wanted = json!({ "name": "maxTurns", "value": 3, "origin": "--max-turns" });
    assert_eq!(ended.frames(), [wanted], "{ended:?}");
    let ended = get(&["sandbox.network"]).run().await;
    assert!(ended.stdout.contains("sandbox.network.enabled = true\n"), "{ended:?}");
    for (key, words) in [
        ("maxTurn", "no setting is named \"maxTurn\"; did you mean maxTurns?"),
        ("allow", "did you mean permissions.allow?"),
        ("prices", "no member of prices is set"),
        ("sandbox.enabled", "ask for sandbox.mode"),
    ] {
        let ended = get(&[key]).run().await;
        if key == "prices" && ended.code == Some(0) {
            assert_eq!(ended.stdout, "none\n", "{ended:?}");
            continue;
        }
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{key}: {ended:?}");
        assert!(ended.stderr.contains(words), "{key}: {ended:?}");
    }
    let ended = get(&["maxTurns"]).env("API_TIMEOUT_MS", "soon").run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("API_TIMEOUT_MS"), "{ended:?}");
}

#[tokio::test]
async fn a_new_settings_file_changes_nothing_and_replaces_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let config_dir = folder.path().join("config");
    let path = config_dir.join("settings.json");
    let run = |words: &[&str]| {
        let trial = RunBuilder::bare("http://h.test").args(["config"]).args(words);
        let trial = trial.env("HOME", &folder.path().display().to_string());
        trial.env("OUTLAST_CONFIG_DIR", &config_dir.display().to_string()).run()
    };
    let before = object(&run(&["--json"]).await);
    let ended = run(&["init"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(&path.display().to_string()), "{ended:?}");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&config_dir)), (0o600, 0o700));

    let with = object(&run(&["--json"]).await);
    assert_eq!(with["settings"], before["settings"]);
    assert_eq!((&with["warnings"], &with["errors"]), (&json!([]), &json!([])), "{with:#}");
    let files = with["files"].as_array().expect("a list");
    let is_it = |file: &&Value| file["path"] == path.display().to_string();
    assert_eq!(files.iter().find(is_it).expect("it is listed")["state"], "used");

    fs::write(&path, "{\"maxTurns\": 3}").expect("ours");
    let refused = run(&["init", "--user"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).expect("text"), "{\"maxTurns\": 3}");
    assert_eq!(run(&["init", "--force"]).await.code, Some(0));
    assert!(fs::read_to_string(&path).expect("text").contains("// \"maxTurns\": null,"));

    let left = fs::read_dir(&config_dir).expect("there").count();
    assert_eq!(left, 1, "nothing is left beside the file");
    let project = run(&["init", "--project"]).await;
    assert_eq!(project.code, Some(0), "{project:?}");
    assert!(project.work().join(".outlast/settings.json").is_file());
}

#[tokio::test]
async fn a_new_settings_file_is_not_written_through_a_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let (target, other) = (folder.path().join("target.json"), folder.path().join("other"));
    fs::write(&target, "kept").expect("ours");
    fs::create_dir(&other).expect("ours");
    for (link, leads_to, words) in [
        (".outlast/settings.json", &target, &["--project", "--force"][..]),
        (".outlast/settings.json", &target, &["--project"]),
        (".outlast/settings.json", &folder.path().join("missing"), &["--project", "--force"]),
        (".outlast", &other, &["--project"]),
        (".outlast", &other, &["--project", "--force"]),
        ("../config/settings.json", &target, &["--force"]),
        ("../config/settings.json", &folder.path().join("missing"), &[]),
    ] {
        let trial = RunBuilder::bare("http://h.test").args(["config", "init"]).args(words);
        let place = trial.work().join(link);
        fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        symlink(leads_to, &place).expect("a link");
        let ended = trial.run().await;
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(2), ""),
            "{link} {words:?}: {ended:?}"
        );
        let [what, remedy] = ["symbolic link", "edit the file that the link leads to"];
        assert!(ended.stderr.contains(what) && ended.stderr.contains(remedy), "{ended:?}");
        assert_eq!(fs::read_to_string(&target).expect("ours"), "kept");
        assert_eq!(fs::read_dir(&other).expect("ours").count(), 0);
        assert!(!folder.path().join("missing").exists());
    }
}

#[tokio::test]
async fn a_settings_file_that_cannot_be_written_is_one_clear_line() {
    let trial = RunBuilder::bare("http://h.test").args(["config", "init"]);
    let ended = trial.env("OUTLAST_CONFIG_DIR", "/proc/nowhere").run().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains("/proc/nowhere/settings.json cannot be written"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
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
async fn settings_of_the_reference_are_named_where_they_are_not_read() {
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
    assert_eq!(file["state"], "not read, because a variable names another folder of settings");
}
