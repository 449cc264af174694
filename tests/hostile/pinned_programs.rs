//! Programs of the user, changed by a command and run by outlast.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use outlast::process::{Job, LandlockSupport, PinError, PinnedPrograms};
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use crate::mcp::{python, script};
use crate::support::{FinishedProcess, RunBuilder, non_temporary_folder, serve};

/// A guard that allows everything.
const GUARD: &str = "#!/bin/sh\necho ran >> ../guarded\nexit 0\n";

/// What a command wants to have run outside of its sandbox.
const EVIL: &str = "#!/bin/sh\ntouch ../pwned\nexit 0\n";

fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

fn hook(event: &str, command: &str) -> Value {
    json!({ "hooks": { event: [{ "hooks": [{ "type": "command", "command": command }] }] } })
}

/// Puts the guard and its replacement into the working tree.
fn prepare(work: &Path) {
    write_program(&work.join(".claude/hooks/guard.sh"), GUARD);
    write_program(&work.join(".claude/hooks/guard"), GUARD);
    write_program(&work.join("evil/guard.sh"), EVIL);
    write_program(&work.join("evil/guard"), EVIL);
    symlink(".claude/hooks/guard.sh", work.join("link")).expect("a link");
}

/// Runs an attack on a hook, and then the command `touch made`.
async fn attack(settings: &Value, attack: &str) -> FinishedProcess {
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": attack }))
            .tool("Bash", json!({ "command": "touch made" }))
            .reply("Done."),
    );
    let settings = settings.to_string();
    let trial = RunBuilder::against(&server).args(["Do it.", "--settings", &settings]);
    prepare(&trial.work());
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", trial.work().join(".claude/hooks").display());
    let ended = trial.env("PATH", &path).run().await;
    assert_eq!(ended.code, Some(0), "{attack}: {ended:?}");
    assert!(!ended.work().join("../pwned").exists(), "{settings} {attack}: {ended:?}");
    ended
}

/// The guard ran for the attack, and forbade what came after it.
#[track_caller]
fn is_forbidden(ended: &FinishedProcess, case: &str) {
    let ran = fs::read_to_string(ended.work().join("../guarded")).unwrap_or_default();
    assert_eq!(ran, "ran\n", "{case}: {ended:?}");
    assert!(!ended.work().join("made").exists(), "{case}: {ended:?}");
    let result = ended.result();
    assert_eq!(result["permission_denials"].as_array().map(Vec::len), Some(1), "{case}");
    assert_eq!(result["hooks"]["failed"], 1, "{case}: {result}");
    let about = |line: &&str| line.starts_with("outlast: warning: the hook `");
    let told: Vec<&str> = ended.stderr.lines().filter(about).collect();
    assert!(told.len() == 1 && told[0].contains("after the run began"), "{case}: {told:?}");
}

#[tokio::test]
async fn a_guard_that_a_command_changed_does_not_run_and_forbids() {
    let plain = hook("PreToolUse", "\"$CLAUDE_PROJECT_DIR\"/.claude/hooks/guard.sh");
    for change in [
        "cat evil/guard.sh > .claude/hooks/guard.sh",
        "mv evil/guard.sh .claude/hooks/guard.sh",
        "ln -sf ../../evil/guard.sh .claude/hooks/guard.sh",
        "mv .claude/hooks old; cp -r evil .claude/hooks",
        "mv .claude/hooks old; ln -s ../evil .claude/hooks",
        "mv .claude old; mkdir .claude; cp -r evil .claude/hooks",
        "echo 'touch ../pwned' >> .claude/hooks/guard.sh",
        "touch -r .claude/hooks/guard.sh t; sed -i 's/exit/touch ..\\/pwned #/' \
         .claude/hooks/guard.sh; touch -r t .claude/hooks/guard.sh",
        "rm .claude/hooks/guard.sh",
        "rm .claude/hooks/guard.sh; mkfifo .claude/hooks/guard.sh",
    ] {
        let ended = attack(&plain, change).await;
        is_forbidden(&ended, change);
    }
}

#[tokio::test]
async fn a_guard_is_known_however_the_settings_name_it() {
    let change = "cp evil/guard.sh evil/guard .claude/hooks";
    for command in [
        "bash .claude/hooks/guard.sh",
        "sh .claude/hooks/guard --strict",
        "cd .claude/hooks && cd - > log; cd .claude/hooks && cd ../.. && ./.claude/hooks/guard.sh",
        "sh < ${CLAUDE_PROJECT_DIR:-.}/.claude/hooks/guard.sh",
        ". ./.claude/hooks/guard.sh",
        "exec env A=b timeout 60 ./.claude/hooks/guard.sh --strict",
        "x=$(./.claude/hooks/guard.sh) || exit 2; echo \"$x\"",
        "if true; then ( \"./.claude/hooks\"/guard.sh ); fi",
        "bash -ec \"true && sh -c './.claude/hooks/guard.sh --strict'\"",
        "eval './.claude/hooks/guard.sh --strict'",
        "./link",
        // Found through PATH.
        "guard",
    ] {
        let ended = attack(&hook("PreToolUse", command), change).await;
        is_forbidden(&ended, command);
    }
    let place = "${CLAUDE_PROJECT_DIR}/.claude/hooks/guard.sh";
    for (command, arguments) in [(place, json!([])), ("sh", json!([place]))] {
        let mut settings = hook("PreToolUse", command);
        settings["hooks"]["PreToolUse"][0]["hooks"][0]["args"] = arguments;
        is_forbidden(&attack(&settings, change).await, command);
    }
}

#[tokio::test]
async fn a_program_that_was_not_there_at_the_start_is_not_run() {
    for command in ["[ ! -e late.sh ] || ./late.sh", "[ ! -e late ] || sh late", "sh -c ./late.sh"]
    {
        let settings = hook("PostToolUse", command);
        let ended = attack(&settings, "cp evil/guard.sh late.sh; cp evil/guard.sh late").await;
        assert!(ended.work().join("made").exists(), "it is no guard: {ended:?}");
        assert_eq!(ended.result()["hooks"]["failed"], 2, "{command}: {ended:?}");
    }
}

#[tokio::test]
async fn a_missing_program_stays_missing_while_a_command_makes_it() {
    let home = non_temporary_folder();
    let making = "while :; do cp evil.sh x; mv x late.sh; rm late.sh; done";
    let making = json!({ "command": making, "run_in_background": true });
    let mut scenario = Scenario::new().tool("Bash", making);
    for _ in 0..8 {
        scenario = scenario.tool("Bash", json!({ "command": "true" }));
    }
    let line = "sleep 0.01; ./late.sh; ./late.sh; sh late.sh; ./late.sh";
    fenced(scenario.reply("Done."), home.path(), line, GUARD).await;
    assert!(!home.path().join("pwned").exists());
}

#[tokio::test]
async fn another_hook_that_was_changed_counts_as_failed_and_is_told_once() {
    for event in ["PostToolUse", "Stop", "SessionEnd"] {
        let ended = attack(&hook(event, ".claude/hooks/guard.sh"), "cp evil/* .claude/hooks").await;
        assert!(ended.work().join("made").exists(), "{event}: {ended:?}");
        assert!(ended.result()["hooks"]["failed"].as_u64() > Some(0), "{event}: {ended:?}");
        assert_eq!(ended.stderr.matches("was changed after").count(), 1, "{}", ended.stderr);
        let log = fs::read_to_string(ended.config().join("hooks/.logs/hook-log.jsonl"));
        assert!(log.expect("a log").contains("\"kind\":\"changed\""), "{event}");
    }
}

#[tokio::test]
async fn unchanged_hooks_find_what_is_beside_them_and_data_may_change() {
    let text = "#!/bin/sh\n. \"$(dirname \"$0\")/lib.sh\"\ncat \"$(dirname \"$0\")/../../notes\"\n";
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "echo second > notes; rm -f stamp" }))
            .tool("Write", json!({ "file_path": "new", "content": "x" }))
            .reply("Done."),
    );
    let line = ".claude/hooks/x.sh >> ../seen; touch stamp; wc -l notes | tee -a log >> ../seen";
    let settings = hook("PostToolUse", line).to_string();
    let trial = RunBuilder::against(&server).args(["Do it.", "--settings", &settings]);
    write_program(&trial.work().join(".claude/hooks/x.sh"), text);
    fs::write(trial.work().join(".claude/hooks/lib.sh"), "echo library\n").expect("a file");
    fs::write(trial.work().join("notes"), "first\n").expect("a file");
    let ended = trial.run().await;
    let seen = fs::read_to_string(ended.work().join("../seen")).expect("the hook wrote it");
    assert_eq!(seen, "library\nsecond\n1 notes\n".repeat(2), "{ended:?}");
    assert_eq!(ended.result()["hooks"]["failed"], 0);
    let left = fs::read_dir(ended.config().join("pinned")).expect("the folder of copies");
    assert_eq!(left.count(), 0, "the copies are removed with the run");
}

#[tokio::test]
async fn a_key_helper_that_a_command_changed_does_not_run() {
    for change in ["cp evil/guard.sh key.sh", "rm key.sh"] {
        let server = serve(
            Scenario::new()
                .tool("Bash", json!({ "command": change }))
                .status(401)
                .status(401)
                .reply("Done."),
        );
        let trial = RunBuilder::against(&server).without("ANTHROPIC_API_KEY");
        prepare(&trial.work());
        write_program(&trial.work().join("key.sh"), "#!/bin/sh\necho key-0123456789\n");
        let ended = trial.args(["Do it.", "--api-key-helper", "./key.sh"]).run().await;
        assert_eq!(ended.code, Some(77), "{ended:?}");
        assert!(ended.stderr.contains("after the run began"), "{change}: {ended:?}");
        assert!(!ended.work().join("../pwned").exists(), "{change}");
    }
}

#[tokio::test]
async fn a_server_that_a_command_changed_is_not_started_again() {
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "cp evil/guard.sh server/main.py" }))
            .tool("mcp__own__die", json!({}))
            .tool("mcp__own__echo", json!({ "text": "x" }))
            .reply("Done."),
    );
    let trial = RunBuilder::against(&server);
    prepare(&trial.work());
    let folder = trial.work().join("server");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("main.py"), "import beside\n").expect("a file");
    let beside = fs::read_to_string(script()).expect("the server of the tests");
    fs::write(folder.join("beside.py"), beside).expect("a file");
    let log = trial.work().join("../log").display().to_string();
    let servers = json!({ "mcpServers": { "own": {
        "command": python(), "args": ["./server/main.py"], "env": { "SERVER_LOG": log },
    }}});
    let config = servers.to_string();
    let flags = ["Do it.", "--mcp-config", &config, "--mcp-required", "own"];
    let ended = trial.args(flags).run().await;
    assert_eq!(ended.code, Some(0), "it began, with what is beside it: {ended:?}");
    assert!(!ended.work().join("../pwned").exists());
    let requests = server.requests();
    let told = requests.last().expect("a request").body["messages"].to_string();
    assert!(told.contains("was changed after the run began"), "{told}");
    assert_eq!(ended.stderr.matches("was changed after").count(), 1, "{}", ended.stderr);
}

/// The job of `program`, in `work`.
fn job(work: &Path, program: &str) -> Job {
    Job {
        program: work.join(program),
        arguments: Vec::new(),
        cwd: work.to_owned(),
        environment: Vec::new(),
        input: false,
        landlock: None,
        memory: None,
    }
}

#[test]
fn a_link_to_a_program_elsewhere_keeps_its_place_and_may_not_lead_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("it is there");
    let (work, safe) = (folder.join("work"), folder.join("safe"));
    fs::create_dir_all(work.join("venv/bin")).expect("a folder");
    fs::create_dir(&safe).expect("a folder");
    fs::write(work.join("venv/pyvenv.cfg"), "home = /usr/bin").expect("a file");
    let link = work.join("venv/bin/python");
    symlink("/bin/sh", &link).expect("a link");
    let pins = PinnedPrograms::new(vec![work.clone()], vec![safe.clone()]);
    let job = job(&work, "venv/bin/python");
    pins.pin(&job);
    let runs = pins.verify(&job).expect("it is unchanged").program;
    assert!(runs.starts_with(&safe), "{runs:?}");
    assert_eq!(fs::canonicalize(&runs).ok(), fs::canonicalize("/bin/sh").ok());
    let neighbour = runs.parent().expect("a folder").join("../pyvenv.cfg");
    assert_eq!(fs::read_to_string(neighbour).expect("a neighbour"), "home = /usr/bin");
    fs::remove_file(&link).expect("it is there");
    symlink("/bin/true", &link).expect("a link");
    assert!(matches!(pins.verify(&job), Err(PinError::Changed(_))));
}

#[test]
fn a_program_that_cannot_be_copied_does_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path().canonicalize().expect("it is there");
    write_program(&work.join("guard.sh"), GUARD);
    let pins = PinnedPrograms::new(vec![work.clone()], vec![work.join("guard.sh/none")]);
    let job = job(&work, "guard.sh");
    pins.pin(&job);
    assert!(matches!(pins.verify(&job), Err(PinError::Unprotected(..))));
}

#[tokio::test]
async fn copies_in_a_folder_that_commands_write_to_are_told() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let (home, server) = (non_temporary_folder(), serve(Scenario::new().reply("Done.")));
    let own = home.path().display().to_string();
    let mut settings = hook("Stop", "./guard.sh");
    settings["sandbox"] = json!({ "filesystem": { "allowWrite": [own, "/var/lib"] } });
    let trial = RunBuilder::bare(&server.base_url()).env("HOME", &own);
    write_program(&trial.work().join("guard.sh"), "#!/bin/sh\n");
    let trial = trial.env("OUTLAST_CONFIG_DIR", &format!("{own}/config"));
    let ended = trial.args(["Do it.", "--settings", &settings.to_string()]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.matches("there is no other folder for copies").count(), 1, "{ended:?}");
}

/// A run with the sandbox of the kernel, whose home is no temporary folder.
async fn fenced(scenario: Scenario, home: &Path, line: &str, guard: &str) -> FinishedProcess {
    let server = serve(scenario);
    let mut settings = hook("PreToolUse", line);
    settings["backgroundWait"] = json!("1ms");
    let settings = settings.to_string();
    let trial = RunBuilder::bare(&server.base_url())
        .env("HOME", &home.display().to_string())
        .env("OUTLAST_CONFIG_DIR", &home.join("config").display().to_string());
    write_program(&trial.work().join("guard.sh"), guard);
    write_program(&trial.work().join("good.sh"), guard);
    let evil = format!("#!/bin/sh\ntouch {}\n", home.join("pwned").display());
    write_program(&trial.work().join("evil.sh"), &evil);
    trial.args(["Do it.", "--allowedTools", "Bash", "--settings", &settings]).run().await
}

#[tokio::test]
async fn a_command_cannot_change_the_copy_that_runs() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let home = non_temporary_folder();
    let attack = "copy=$(cat copy); chmod u+w \"$copy\"; cat evil.sh > \"$copy\"; \
                  mv evil.sh \"$copy\"; rm -r \"$(dirname \"$copy\")\"";
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "cat copy" }))
        .tool("Bash", json!({ "command": attack }))
        .tool("Bash", json!({ "command": "touch made" }))
        .reply("Done.");
    let guard = "#!/bin/sh\necho \"$0\" > copy\n";
    let ended = fenced(scenario, home.path(), "./guard.sh", guard).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let copy = fs::read_to_string(ended.work().join("copy")).expect("the guard wrote it");
    assert!(copy.contains("/config/pinned/"), "{copy}");
    assert!(ended.work().join("made").exists(), "the guard allows it: {ended:?}");
    assert!(!home.path().join("pwned").exists());
}

#[tokio::test]
async fn a_program_that_is_swapped_all_the_time_never_runs() {
    let home = non_temporary_folder();
    let swap = "while :; do cp evil.sh x; mv x guard.sh; cp good.sh x; mv x guard.sh; done";
    let swapping = json!({ "command": swap, "run_in_background": true });
    let mut scenario = Scenario::new().tool("Bash", swapping);
    for turn in 0..12 {
        scenario = scenario.tool("Bash", json!({ "command": format!("echo {turn} >> made") }));
    }
    let scenario = scenario.reply("Done.");
    let ended = fenced(scenario, home.path(), "sleep 0.01; ./guard.sh", GUARD).await;
    assert_eq!(ended.result()["terminal_reason"], "background_pending", "{ended:?}");
    assert!(!home.path().join("pwned").exists(), "{ended:?}");
}
