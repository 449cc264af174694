//! Tool calls with invalid input, and their error messages.

use clap::ValueEnum as _;
use outlast::process::LandlockSupport;
use outlast::tools::{
    BadSettings, Effect, Offered, PermissionMode, SandboxMode, ToolRefusal, ToolSettings, Toolbox,
};
use outlast::transcript::ToolCall;
use serde_json::{Value, json};

use crate::support::golden;

use super::bench::{Bench, call, search_first, text};
use crate::support::programs::write_program;

fn told(bench: &Bench, name: &str, input: &Value) -> String {
    match bench.toolbox.admit(&call(name, input.clone())) {
        Err(ToolRefusal::Invalid(outcome)) => {
            assert!(outcome.is_error);
            let told = text(&outcome);
            let inner = told
                .strip_prefix("<tool_use_error>")
                .and_then(|told| told.strip_suffix("</tool_use_error>"))
                .expect("wrapped");
            assert_eq!(outcome.detail, Value::String(format!("Error: {inner}")));
            inner.to_string()
        }
        other => panic!("{name} {input}: {other:?}"),
    }
}

#[tokio::test]
async fn an_unknown_tool_is_named() {
    let bench = Bench::open();
    assert_eq!(told(&bench, "Teleport", &json!({})), "No such tool available: Teleport");
    for (name, tool) in [
        ("execute_bash", "Bash"),
        ("str_replace_based_edit_tool", "Edit"),
        ("MultiEdit", "Edit"),
        ("read_file", "Read"),
        ("LS", "Glob"),
        ("grep_search", "Grep"),
        ("AgentOutputTool", "BashOutput"),
        ("NotebookRead", "Read"),
        ("TaskCreate", "TodoWrite"),
        ("Monitor", "Bash"),
    ] {
        let told = told(&bench, name, &json!({}));
        assert_eq!(told, format!("No such tool available: {name}. Use {tool}."));
    }
    let reader = Bench::with(|settings| settings.offered = only(&["Read"]));
    assert_eq!(told(&reader, "shell", &json!({})), "No such tool available: shell");
    assert_eq!(bench.toolbox.effect("Teleport"), Effect::Changes);
    let outcome = bench.run("Teleport", json!({})).await;
    assert!(outcome.is_error && text(&outcome).contains("No such tool available: Teleport"));
}

#[test]
fn every_wrong_input_names_its_field_and_what_was_expected() {
    let bench = Bench::open();
    let table = [
        ("Bash", json!({}), "the required field `command` (a string) is missing"),
        (
            "Bash",
            json!({ "command": 5.5 }),
            "the field `command` is wrong: 5.5 is not of type \"string\"",
        ),
        ("Bash", json!({ "command": "ls", "timeout": "soon" }), "the field `timeout` is wrong"),
        ("Bash", json!({ "command": "ls", "timeout": 1.5 }), "the field `timeout` is wrong"),
        ("Bash", json!({ "run": "ls" }), "Bash has no `run`: ignored; known are command, timeout"),
        (
            "Bash",
            json!({ "command": "ls", "env": { "A": "b" } }),
            "Bash has no `env`: write NAME=VALUE",
        ),
        ("Bash", json!({ "command": "ls", "workdir": 5 }), "the field `workdir` is wrong"),
        ("Bash", json!("ls"), "the input must be a JSON object"),
        ("Bash", Value::Null, "the input must be a JSON object"),
        ("Read", json!({ "target": "a" }), "the required field `file_path` (a string) is missing"),
        ("Read", json!({ "file_path": "" }), "the field `file_path` is wrong"),
        (
            "Write",
            json!({ "file_path": "a" }),
            "the required field `content` (a string) is missing",
        ),
        ("Edit", json!({ "file_path": "a", "old_string": "x" }), "`new_string`"),
        ("Edit", json!({ "file_path": "a", "edits": [] }), "call it once for each of `edits`"),
        (
            "Edit",
            json!({ "file_path": "a", "old_string": "x", "new_string": "y", "replace_all": "some" }),
            "the field `replace_all` is wrong",
        ),
        ("Glob", json!({}), "the required field `pattern` (a string) is missing"),
        (
            "Grep",
            json!({ "pattern": "x", "output_mode": "pages" }),
            "the field `output_mode` is wrong",
        ),
        ("Grep", json!({ "pattern": "x", "-A": "two" }), "the field `-A` is wrong"),
        ("TodoWrite", json!({ "todos": [{ "id": "a" }] }), "`content` is missing in `todos.0`"),
        (
            "TodoWrite",
            json!({ "todos": [{ "content": "a", "status": "later" }] }),
            "the field `todos.0.status` is wrong",
        ),
    ];
    for (name, input, part) in table {
        let told = told(&bench, name, &input);
        assert!(told.starts_with(&format!("InputValidationError: {name}: ")), "{told}");
        assert!(told.contains(part), "{name} {input}: {told}");
    }
}

#[test]
fn constraints_beyond_the_schema_are_checked_too() {
    let bench = Bench::open();
    let edit =
        |old: &str, new: &str| json!({ "file_path": "a", "old_string": old, "new_string": new });
    let table = [
        ("Bash", json!({ "command": " \n" }), "empty"),
        ("Bash", json!({ "command": "echo \0" }), "NUL"),
        ("Bash", json!({ "command": "x".repeat(200_000) }), "200000 bytes"),
        ("Read", json!({ "file_path": "a\0b" }), "NUL"),
        ("Edit", edit("x", "x"), "the same"),
        ("Glob", json!({ "pattern": "\\a{b" }), "pattern is wrong"),
        ("Edit", edit("", ""), "the same"),
        ("Grep", json!({ "pattern": "a(?<=b" }), "pattern is wrong"),
        ("Grep", json!({ "pattern": "((a{1000}){1000}){1000}" }), "pattern is wrong"),
        ("Grep", json!({ "pattern": "a", "type": "klingon" }), "no file type `klingon`"),
    ];
    for (name, input, part) in table {
        let told = told(&bench, name, &input);
        assert!(told.contains(part), "{name}: {told}");
    }
}

#[tokio::test]
async fn nulls_and_whole_floats_are_accepted_as_intended() {
    let bench = Bench::open();
    bench.file("a", "1\n2\n3\n");
    let input = json!({ "file_path": "a", "offset": 2.0, "limit": null });
    assert_eq!(text(&bench.run("Read", input).await), "     2\t2\n     3\t3");
}

#[tokio::test]
async fn inputs_with_one_meaning_are_taken_and_what_is_changed_is_stated() {
    let bench = Bench::open();
    bench.file("a", "1\n2\n3\n");
    bench.file("b", "2\n2\n");
    bench.file("b:2", "named so\n");
    bench.file("plain", "interface{}\n");
    bench.file("c", "hello\\\n");
    bench.file("e", "xyz\n");
    bench.file("m.tsx", "x\n");
    let todo = r#"[{"content": "a", "status": "pending", "id": "1", "priority": "high"}]"#;
    let ignored = "(Bash has no `dangerouslyDisableSandbox`: ignored; known are command, timeout, \
                   description, run_in_background.)";
    for (name, input, wanted) in [
        ("Read", json!({ "file_path": "a", "offset": "2", "limit": "1" }), "     2\t2"),
        ("Bash", json!({ "command": "echo x", "timeout": "5000" }), "x"),
        ("Bash", json!({ "command": "echo x", "run_in_background": "False" }), "x"),
        ("Bash", json!({ "command": "echo x", "dangerouslyDisableSandbox": true }), ignored),
        (
            "Bash",
            json!({ "command": "echo x", "timeout": 900_000 }),
            "(`timeout` was lowered to 600000 ms, the most that is allowed.)",
        ),
        (
            "Bash",
            json!({ "command": "echo x", "timeout": 0 }),
            "(`timeout` was ignored: it is at least 1.)",
        ),
        (
            "Read",
            json!({ "file_path": "a", "offset": -1, "limit": 1 }),
            "(`offset` was ignored: it is at least 0.)",
        ),
        ("Read", json!({ "file_path": " a\n" }), "     1\t"),
        ("Grep", json!({ "pattern": "2", "output_mode": "content", "-n": "true" }), "a:2:2"),
        ("Grep", json!({ "pattern": 2, "output_mode": "content", "head_limit": "" }), "a:2:2"),
        ("Grep", json!({ "pattern": "2", "output_mode": "", "type": "" }), "a"),
        ("Write", json!({ "file_path": "j", "content": { "b": 1, "a": [] } }), "Created"),
        ("Read", json!({ "file_path": "j" }), "     2\t  \"b\": 1,\n     3\t  \"a\": []"),
        ("Read", json!({ "file_path": "\n\"/etc/hostname\"\n", "offset": "" }), "     1\t"),
        ("Read", json!({ "file_path": "file:///etc/hostname" }), "     1\t"),
        ("Read", json!({ "path": "a", "limit": 1 }), "     1\t1"),
        ("Read", json!({ "file_path": "a:3" }), "     3\t3"),
        ("Read", json!({ "file_path": "a:3:1" }), "     3\t3"),
        ("Read", json!({ "file_path": "a#L2-L2" }), "     2\t2"),
        ("Read", json!({ "file_path": bench.cwd.join("a:2-2"), "limit": null }), "     2\t2"),
        ("Read", json!({ "file_path": "b:2" }), "     1\tnamed so"),
        ("Read", json!({ "file": "a", "view_range": [2, 2] }), "     2\t2"),
        ("Bash", json!({ "command": "pwd", "cwd": "/" }), "/"),
        (
            "Bash",
            json!({ "command": "echo x", "timeout": 30 }),
            "(`timeout` is in milliseconds: 30 was",
        ),
        ("Grep", json!({ "pattern": "interface{}" }), "plain\n[the pattern is not a valid regular"),
        ("Grep", json!({ "pattern": "hello\\" }), "c\n[the pattern is not a valid regular"),
        ("Read", json!({ "file_path": "e" }), "xyz"),
        ("Edit", json!({ "filePath": "e", "oldString": "x", "new_str": null }), "yz"),
        ("Bash", json!({ "cmd": ["bash", "-lc", "echo y"] }), "y"),
        (
            "Grep",
            json!({ "pattern": "[123]", "path": "a", "output_mode": "Content", "offset": 1 }),
            "a:2:2\na:3:3",
        ),
        ("Grep", json!({ "pattern": "[123]", "path": "a", "offset": 5 }), "No more matches"),
        ("Grep", json!({ "pattern": "1\\n2", "path": "a" }), "a\n(multiline was set, because"),
        ("Grep", json!({ "pattern": "x", "type": "tsx" }), "m.tsx"),
        ("Grep", json!({ "pattern": "x", "path": "*.tsx" }), "m.tsx"),
        ("Glob", json!({ "pattern": ["*.yml", "*.tsx"] }), "m.tsx"),
        ("Glob", json!({ "pattern": "*.@(tsx|jsx)\n", "path": "undefined" }), "m.tsx"),
        ("Glob", json!({ "pattern": "!(m).tsx" }), "(patterns such as !(x) are not known here"),
        ("TodoWrite", json!({ "todos": todo }), "(TodoWrite has no `id`, `priority`: ignored;"),
    ] {
        let outcome = bench.run(name, input.clone()).await;
        let shown = outcome.visible_text();
        assert!(!outcome.is_error && shown.contains(wanted), "{name} {input}: {shown}");
        let notes = ["ignored", "lowered", "was taken", "multiline was set", "not known here"];
        assert_eq!(notes.iter().any(|note| shown.contains(note)), wanted.contains('('), "{shown}");
    }
    let look = json!({ "bash_id": "bash_9", "timeout": "700000" });
    let shown = bench.run("BashOutput", look).await.visible_text();
    assert!(shown.contains("`timeout` was lowered to 600000, the most"), "{shown}");
}

#[tokio::test]
async fn an_edit_without_old_text_makes_a_file_and_replaces_none() {
    let bench = Bench::open();
    bench.file("full", "text\n");
    bench.file("empty", "");
    let edit = |path: &str| json!({ "file_path": path, "old_string": "", "new_string": "new\n" });
    for (path, wanted) in [("sub/made", "new\n"), ("empty", "new\n"), ("full", "text\n")] {
        let outcome = bench.run("Edit", edit(path)).await;
        assert_eq!(outcome.is_error, path == "full", "{path}: {}", outcome.visible_text());
        assert_eq!(bench.content(path), wanted);
    }
}

#[tokio::test]
async fn a_call_is_normalized_to_the_exact_name_the_types_and_the_absolute_path() {
    let bench = Bench::open();
    for (name, input, wanted_name, wanted) in [
        (
            "bash",
            json!({ "command": "ls", "timeout": "5" }),
            "Bash",
            json!({ "command": "ls", "timeout": 5_000 }),
        ),
        ("TODOWRITE", json!({ "todos": "[]" }), "TodoWrite", json!({ "todos": [] })),
        (
            "functions.Bash:0",
            json!({ "command": "ls", "description": 4 }),
            "Bash",
            json!({ "command": "ls", "description": "4" }),
        ),
        ("default_api.Bash", json!({ "command": "ls" }), "Bash", json!({ "command": "ls" })),
        ("default_api:Bash", json!({ "command": "ls" }), "Bash", json!({ "command": "ls" })),
        ("Bash", json!({ "input": { "cmd": "ls" } }), "Bash", json!({ "command": "ls" })),
        ("Bash", json!({ "args": "{\"script\":\"ls\"}" }), "Bash", json!({ "command": "ls" })),
        ("KillBash", json!({ "shell_id": "b" }), "KillShell", json!({ "shell_id": "b" })),
        ("TaskOutput", json!({ "task_id": "b" }), "BashOutput", json!({ "bash_id": "b" })),
        ("TodoWrite<|channel|>commentary", json!({}), "TodoWrite", json!({})),
        ("todo_write", json!({}), "TodoWrite", json!({})),
        ("bash-output", json!({}), "BashOutput", json!({})),
        ("functions.Teleport", json!({}), "functions.Teleport", json!({})),
        ("task", json!({}), "Task", json!({})),
        ("Teleport", json!({ "x": "1" }), "Teleport", json!({ "x": "1" })),
        (
            "read",
            json!({ "file_path": "a", "limit": "5", "more": "1" }),
            "Read",
            json!({ "file_path": bench.cwd.join("a"), "limit": 5, "more": "1" }),
        ),
    ] {
        let prepared = bench.toolbox.prepare(call(name, input));
        let ToolCall { name, input, .. } = prepared.call();
        assert_eq!((name.as_str(), input), (wanted_name, &wanted));
    }
}

#[test]
fn an_alias_of_the_host_applies_once() {
    let swapped = [("Read", "Glob"), ("Glob", "Read"), ("Edit", "Read")];
    let bench = Bench::with(|settings| {
        settings.aliases = swapped.map(|(name, tool)| (name.to_owned(), tool.to_owned())).into();
    });
    for (written, tool) in swapped.into_iter().chain([("read", "Glob"), ("Write", "Write")]) {
        let prepared = bench.toolbox.prepare(call(written, json!({})));
        assert_eq!(prepared.call().name, tool, "{written}");
        let again = bench.toolbox.prepare_changed(prepared.call().clone());
        assert_eq!(again.call().name, tool, "{written}");
    }
}

/// In the order in which the model is told of them.
const NAMES: [&str; 10] = [
    "Bash",
    "BashOutput",
    "KillShell",
    "Read",
    "Write",
    "Edit",
    "NotebookEdit",
    "Glob",
    "Grep",
    "TodoWrite",
];

#[test]
fn the_definitions_are_in_a_fixed_order_and_small() {
    let bench = Bench::open();
    let names: Vec<&str> =
        bench.toolbox.definitions().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, NAMES);
    let size = serde_json::to_string(bench.toolbox.definitions()).unwrap().len();
    assert!(size < 7_500, "{size} bytes");
}

#[test]
fn calls_are_classified_by_effect() {
    let bench = Bench::open();
    for (name, effect) in [
        ("Read", Effect::ReadOnly),
        ("Glob", Effect::ReadOnly),
        ("Grep", Effect::ReadOnly),
        ("Bash", Effect::Changes),
        ("BashOutput", Effect::Changes),
        ("KillShell", Effect::Changes),
        ("Write", Effect::Changes),
        ("Edit", Effect::Changes),
        ("NotebookEdit", Effect::Changes),
        ("TodoWrite", Effect::Notes),
        ("ToolSearch", Effect::Notes),
    ] {
        assert_eq!(bench.toolbox.effect(name), effect, "{name}");
    }
}

#[test]
fn read_only_commands_run_concurrently_where_the_sandbox_enforces_it() {
    let bench = Bench::open();
    let holds = LandlockSupport::probe().restricts_files();
    for (command, only_reads) in [
        ("ls -la", true),
        ("cat a | head -3 | sort", true),
        ("grep -rn x . 2>/dev/null", true),
        ("git rev-parse HEAD", false),
        ("wc -l < a; echo done", true),
        ("find . -name '*.rs'", true),
        ("cd sub && ls", false),
        ("ls; cd sub", false),
        ("echo x > a", false),
        ("ls >> log", false),
        ("cat a | tee b", false),
        ("rm a", false),
        ("sed -i s/a/b/ a", false),
        ("find . -delete", false),
        ("sort -o a b", false),
        ("git status", false),
        ("cargo test", false),
        ("cat $(rm x)", false),
        ("echo `rm x`", false),
        ("ls \"", false),
        ("X=1", false),
    ] {
        let permit = bench.toolbox.admit(&call("Bash", json!({ "command": command })));
        let permit = permit.expect("everything is allowed");
        assert_eq!(permit.runs_in_parallel(), only_reads && holds, "{command}");
        assert!(permit.prepared().may_run_in_parallel() || !permit.runs_in_parallel());
    }
    let may = |name: &str, input| bench.toolbox.prepare(call(name, input)).may_run_in_parallel();
    let later = json!({ "command": "ls", "run_in_background": true });
    assert!(!may("Bash", later), "it outlives its call");
    assert_eq!(may("Bash", json!({ "command": "git status" })), holds, "its permit decides");
    assert!(may("Read", json!({})));
    assert!(!may("Write", json!({})));
    assert!(!may("Teleport", json!({})));
}

#[tokio::test]
async fn a_program_named_like_a_read_only_one_cannot_write() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    for mode in [SandboxMode::Off, SandboxMode::Workspace] {
        let bench = Bench::with(|settings| {
            settings.permissions.mode = PermissionMode::BypassPermissions;
            settings.sandbox.mode = mode;
            let bin = settings.cwd.join("bin");
            search_first(settings, &bin);
        });
        let program = "#!/bin/sh\necho wrong > \"$1\"\necho ran\n";
        write_program(&bench.cwd.join("bin/cat"), program);
        let outcome = bench.bash("cat escaped").await;
        assert!(text(&outcome).contains("ran"), "{mode:?}: {}", text(&outcome));
        assert!(!bench.cwd.join("escaped").exists(), "{mode:?}: {}", text(&outcome));
        bench.file("kept", "text\n");
        assert!(text(&bench.bash("tail kept").await).contains("text"), "{mode:?}");
        // What is not known to read alone is in the usual sandbox.
        bench.bash("cat escaped; true > other").await;
        assert!(bench.cwd.join("escaped").exists() && bench.cwd.join("other").exists());
    }
}

fn only(names: &[&str]) -> Offered {
    Offered::Only(names.iter().map(ToString::to_string).collect())
}

#[test]
fn calls_of_tools_that_are_not_offered_are_rejected() {
    let table = [
        (only(&[]), vec![]),
        (Offered::All, NAMES.to_vec()),
        (only(&["Grep", "Bash"]), vec!["Bash", "BashOutput", "KillShell", "Grep"]),
        (only(&["Read", "Edit"]), vec!["Read", "Edit"]),
    ];
    for (offered, expected) in table {
        let bench = Bench::with(|settings| settings.offered = offered.clone());
        let names: Vec<&str> =
            bench.toolbox.definitions().iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, expected, "{offered:?}");
    }
    let bench = Bench::with(|settings| settings.offered = only(&["Read"]));
    let told = told(&bench, "Bash", &json!({ "command": "ls" }));
    assert_eq!(told, "No such tool available: Bash");
}

#[test]
fn invalid_tool_settings_are_named() {
    let refused = |arrange: &dyn Fn(&mut ToolSettings)| {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = ToolSettings::new(folder.path(), folder.path(), "a-session");
        arrange(&mut settings);
        Toolbox::new(&settings).err().expect("refused").to_string()
    };
    let rule = |text: &'static str| {
        move |settings: &mut ToolSettings| settings.permissions.allow = vec![text.to_string()]
    };
    for (text, part) in [
        ("Bash(ls", "its parenthesis is not closed"),
        ("(ls)", "it names no tool"),
        ("Ba/sh", "not a tool name"),
        ("Edit(a{b)", "its path pattern is wrong"),
        ("Read(!x)", "cannot begin"),
        ("TodoWrite(x)", "take no pattern"),
    ] {
        let told = refused(&rule(text));
        assert!(told.starts_with(&format!("bad permission rule `{text}`")), "{told}");
        assert!(told.contains(part), "{told}");
    }
    let bench = Bench::with(|settings| settings.offered = only(&["Read", "Fly"]));
    assert_eq!(told(&bench, "Fly", &json!({})), "No such tool available: Fly");
    let error = BadSettings::NoFolder { path: "/x".into() };
    assert_eq!(error.to_string(), "no such folder: /x");
}

#[test]
fn permission_modes_are_parsed_and_displayed() {
    for mode in PermissionMode::value_variants() {
        assert_eq!(PermissionMode::parse(mode.name()), Some(*mode));
    }
    assert_eq!(PermissionMode::parse("manual"), Some(PermissionMode::Default));
    assert_eq!(PermissionMode::parse("yolo"), None);
    assert_eq!(PermissionMode::AcceptEdits.name(), "acceptEdits");
}

#[tokio::test]
async fn a_todo_list_is_kept_and_counted() {
    let bench = Bench::with(|_| {});
    let first =
        json!({ "todos": [{ "content": "a", "status": "in_progress", "activeForm": "A" }] });
    let outcome = bench.run("TodoWrite", first.clone()).await;
    assert_eq!(text(&outcome), "List kept: 0 completed, 1 in progress, 0 pending.");
    let second = json!({ "todos": [{ "content": "a", "status": "completed" }] });
    let outcome = bench.run("TodoWrite", second).await;
    assert_eq!(outcome.detail["oldTodos"], first["todos"]);
    assert_eq!(outcome.detail["newTodos"][0]["status"], "completed");
}

/// The definitions decide how the model uses the tools, and a change of them makes the service's
/// caches useless.
#[test]
fn definitions_of_the_tools_change_only_on_purpose() {
    let bench = Bench::with(|settings| settings.sandbox.mode = SandboxMode::Off);
    let definitions = serde_json::to_string_pretty(bench.toolbox.definitions());
    golden::compare("tests/tools/definitions.json", &(definitions.expect("JSON") + "\n"));
}
