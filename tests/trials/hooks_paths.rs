//! A guard of files, as people write one, against every way to name a file.

use std::os::unix::fs::symlink;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use crate::support::scratch::write_file;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Forbids what lies in the folder `secrets` of the project, by the field that names a file or a
/// folder in the input of a tool.
const GUARD: &str = r#"path=$(sed -n 's/.*"\(file_path\|path\)":"\([^"]*\)".*/\2/p')
case "$path" in
  "$CLAUDE_PROJECT_DIR"/secrets/*) echo "keep out of $path" >&2; exit 2;;
esac"#;

fn hook(event: &str, script: &str) -> Value {
    json!({ "hooks": { event: [{ "hooks": [{ "type": "command", "command": script }] }] } })
}

/// Runs these calls one after the other under the settings, in a folder with secrets.
async fn run(settings: &Value, calls: Vec<(&str, Value)>) -> FinishedProcess {
    let scenario = calls
        .into_iter()
        .fold(Scenario::new(), |scenario, (name, input)| scenario.tool(name, input));
    let server = serve(scenario.reply("Done."));
    let trial = RunBuilder::against(&server).args(["go", "--settings", &settings.to_string()]);
    let work = trial.work();
    for (name, text) in [("secrets/k.txt", "KEY-1"), ("secrets/n.txt", "KEY-2"), ("open", "KEY-3")]
    {
        write_file(&work.join(name), text);
    }
    symlink("secrets/k.txt", work.join("alias")).expect("a link can be made");
    symlink("secrets", work.join("folder")).expect("a link can be made");
    let ended = trial.args(["--output-format", "stream-json"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    ended
}

#[tokio::test]
async fn a_path_hook_matches_a_file_under_every_name_and_no_other_file() {
    let read = |path: &str| ("Read", json!({ "file_path": path }));
    let guarded = vec![
        read("secrets/k.txt"),
        read("./secrets/../secrets/n.txt"),
        read("~/work/secrets/k.txt"),
        read("alias"),
        read("folder/n.txt"),
        ("Write", json!({ "file_path": "secrets/new.txt", "content": "mine" })),
        ("Edit", json!({ "file_path": "alias", "old_string": "KEY", "new_string": "X" })),
        ("Grep", json!({ "pattern": "KEY", "path": "secrets/n.txt", "output_mode": "content" })),
        ("Bash", json!({ "command": "cd secrets", "description": "Go" })),
        read("k.txt"),
    ];
    let count = guarded.len();
    let open = [read("../open"), ("Grep", json!({ "pattern": "KEY", "path": "../open" }))];
    let calls = guarded.into_iter().chain(open).collect();
    let ended = run(&hook("PreToolUse", GUARD), calls).await;
    let results: Vec<String> = ended.tool_results().iter().map(Value::to_string).collect();
    assert_eq!(results.len(), count + 2, "{results:?}");
    for (index, result) in results.iter().enumerate() {
        let is_guarded = index < count && index != 8;
        assert_eq!(result.contains("keep out of"), is_guarded, "call {index}: {result}");
        assert!(!result.contains("KEY-1") && !result.contains("KEY-2"), "call {index}: {result}");
    }
    assert!(results[count].contains("KEY-3"), "{}", results[count]);
    assert!(!ended.work().join("secrets/new.txt").exists());
    let kept = std::fs::read_to_string(ended.work().join("secrets/k.txt"));
    assert_eq!(kept.expect("it is there"), "KEY-1");
}

#[tokio::test]
async fn a_hook_may_replace_a_path_by_a_relative_or_absolute_one() {
    let change = |path: &str| {
        let specific = json!({ "hookEventName": "PreToolUse", "permissionDecision": "allow",
            "updatedInput": { "file_path": path } });
        format!("echo '{}'", json!({ "hookSpecificOutput": specific }))
    };
    for path in ["./secrets/../open", "~/work/open"] {
        let mut settings = hook("PreToolUse", &change(path));
        settings["hooks"]["PostToolUse"] =
            json!([{ "hooks": [{ "type": "command", "command": "cat > told" }] }]);
        let ended = run(&settings, vec![("Read", json!({ "file_path": "secrets/k.txt" }))]).await;
        let result = ended.tool_results()[0].to_string();
        assert!(result.contains("KEY-3"), "{path}: {result}");
        let told = std::fs::read_to_string(ended.work().join("told")).expect("it was told");
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let open = ended.work().canonicalize().expect("it is there").join("open");
        assert_eq!(told["tool_input"]["file_path"], open.display().to_string(), "{path}");
    }
}
