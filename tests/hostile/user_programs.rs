//! Programs of the user, changed by a command and run by outlast.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::{env, fs};

use outlast::process::{LandlockSupport, find_program};
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mcp::script;
use crate::support::programs::write_program;
use crate::support::python::{python, search_path};
use crate::support::rotation::rotating_part;
use crate::support::{FinishedProcess, RunBuilder, non_temporary_folder, serve};

/// A guard that allows everything.
const GUARD: &str = "#!/bin/sh\necho ran >> ../guarded\nexit 0\n";

/// The program that a command tries to have run outside of its sandbox.
const EVIL: &str = "#!/bin/sh\ntouch ../pwned\nexit 0\n";

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
    let path = search_path().display();
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
        "cd \"$CLAUDE_PROJECT_DIR\" && ./.claude/hooks/guard.sh",
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
    assert!(!ended.config().join("pinned").exists(), "it runs where it lies");
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

/// Code that a command puts where the user's programs load it: it reads a key and writes into the
/// home folder, and leaves a mark where commands may write.
const PAYLOAD: &str = "touch ran; cat \"$HOME/.ssh/id\" > leak; touch \"$HOME/pwned\"\n";

/// Runs `attack`, and a second command, with these settings. `PAYLOAD` is in the file `payload`.
async fn poison(settings: &Value, attack: &str, extra: &[&str]) -> (FinishedProcess, TempDir) {
    let home = non_temporary_folder();
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": attack }))
        .tool("Bash", json!({ "command": "true" }))
        .reply("Done.");
    let server = serve(scenario);
    let settings = settings.to_string();
    let own = home.path().display().to_string();
    let trial = RunBuilder::bare(&server.base_url())
        .env("HOME", &own)
        .env("OUTLAST_CONFIG_DIR", &format!("{own}/config"));
    fs::create_dir(home.path().join(".ssh")).expect("a folder");
    fs::write(home.path().join(".ssh/id"), "the-key").expect("a file");
    let work = trial.work();
    fs::write(work.join("payload"), PAYLOAD).expect("a file");
    fs::write(work.join("lib.sh"), ":\n").expect("a file");
    write_program(&work.join("hook.sh"), "#!/bin/sh\n. ./lib.sh\n");
    write_program(&work.join("bin/tool"), "#!/bin/sh\n");
    write_program(&home.path().join("hook.sh"), "#!/bin/sh\ntool\nexit 0\n");
    write_program(&home.path().join("log.sh"), "#!/bin/sh\necho hooked >> \"$HOME/log\"\n");
    let path = search_path().display();
    let trial = if extra.contains(&"--path") {
        trial.env("PATH", &format!("{}:{path}", work.join("bin").display()))
    } else {
        trial
    };
    let extra: Vec<&str> = extra.iter().copied().filter(|it| *it != "--path").collect();
    let flags = ["Do it.", "--allowedTools", "Bash", "--settings", &settings];
    (trial.args(flags).args(extra).run().await, home)
}

#[tokio::test]
async fn code_that_a_command_changed_gains_nothing_whatever_loads_it() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let rows: [(&str, &str, &[&str]); 5] = [
        // A file that the program reads.
        ("./hook.sh", "cat payload >> lib.sh", &[]),
        // A module that hides one of the interpreter.
        (
            "python3 -c 'import json'",
            "printf 'import os\\nos.system(open(\"payload\").read())\\n' > json.py",
            &[],
        ),
        // A program that no word names, before the others in PATH.
        ("$HOME/hook.sh", "cp payload bin/x; cat bin/x >> bin/tool", &["--path"]),
        // What git runs by itself.
        ("git status", "git init -q . && git config core.fsmonitor 'sh ./payload'", &[]),
        // A program that was not there.
        ("[ ! -e late ] || ./late", "cp payload late; chmod +x late; touch ran", &[]),
    ];
    let events = ["PreToolUse", "PostToolUse"];
    let cases = events.into_iter().flat_map(|event| rows.map(|row| (event, row)));
    for (event, (line, attack, extra)) in rotating_part(cases, 2) {
        let (ended, home) = poison(&hook(event, line), attack, extra).await;
        let read = |name: &str| fs::read_to_string(ended.work().join(name)).unwrap_or_default();
        assert!(ended.work().join("ran").exists(), "{event} {line}: the attack works: {ended:?}");
        assert!(!home.path().join("pwned").exists(), "{event} {line}: {ended:?}");
        assert_eq!(read("leak"), "", "{event} {line}");
    }
}

#[tokio::test]
async fn programs_elsewhere_keep_the_rights_of_the_user_and_others_get_them_by_a_setting() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let log = "echo hooked >> \"$HOME/log\"";
    let direct = "cat lib.sh payload >> \"$HOME/log\" || exit 1";
    let rows: [(&str, Value, bool); 7] = [
        (log, json!([]), true),
        ("$HOME/log.sh", json!([]), true),
        ("sh $HOME/log.sh", json!([]), true),
        ("bash -c '~/log.sh'", json!([]), true),
        (direct, json!([]), false),
        (direct, json!(["other"]), false),
        (direct, json!(["./lib.sh"]), true),
    ];
    for (line, unconfined, writes) in rows {
        let mut settings = hook("PostToolUse", line);
        settings["unconfinedPrograms"] = unconfined;
        let (ended, home) = poison(&settings, "true", &[]).await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        assert_eq!(home.path().join("log").exists(), writes, "{settings}: {ended:?}");
        assert_eq!(ended.stderr.contains("unconfinedPrograms"), !writes, "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn a_server_whose_module_a_command_changed_is_confined_unless_the_user_lifts_it() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    for is_lifted in [false, true] {
        let (home, server) = (non_temporary_folder(), {
            let change = "printf 'import os\\nos.system(open(\"payload\").read())\\n' > x; \
                          cat beside.py >> x; mv x beside.py";
            serve(
                Scenario::new()
                    .tool("Bash", json!({ "command": change }))
                    .tool("mcp__own__die", json!({}))
                    .tool("mcp__own__echo", json!({ "text": "x" }))
                    .reply("Done."),
            )
        });
        let own = home.path().display().to_string();
        let trial = RunBuilder::bare(&server.base_url())
            .env("HOME", &own)
            .env("OUTLAST_CONFIG_DIR", &format!("{own}/config"));
        fs::write(trial.work().join("payload"), PAYLOAD).expect("a file");
        fs::write(trial.work().join("main.py"), "import beside\n").expect("a file");
        let beside = fs::read_to_string(script()).expect("the server of the tests");
        fs::write(trial.work().join("beside.py"), beside).expect("a file");
        let servers = json!({ "mcpServers": { "own": {
            "command": python(), "args": ["./main.py"],
            "env": { "SERVER_LOG": trial.work().join("log").display().to_string() },
        }}});
        let settings = if is_lifted { json!({ "unconfinedPrograms": ["own"] }) } else { json!({}) };
        let (config, settings) = (servers.to_string(), settings.to_string());
        let flags = ["Do it.", "--allowedTools", "Bash", "--allowedTools", "mcp__own"];
        let more = ["--mcp-config", &config, "--settings", &settings];
        let ended = trial.args(flags).args(more).run().await;
        assert!(ended.work().join("ran").exists(), "the attack works: {ended:?}");
        assert_eq!(home.path().join("pwned").exists(), is_lifted, "{ended:?}");
    }
}

#[tokio::test]
async fn a_file_of_exports_lies_where_commands_cannot_write_and_is_evaluated_in_the_sandbox() {
    if !LandlockSupport::probe().restricts_files() {
        return;
    }
    let line = "echo \"$CLAUDE_ENV_FILE\" > where; cat payload >> \"$CLAUDE_ENV_FILE\"; \
                echo 'export FOUND=it' >> \"$CLAUDE_ENV_FILE\"; head -c1 > took";
    let settings = hook("SessionStart", line);
    let (ended, home) = poison(&settings, "echo \"$FOUND\" > found", &[]).await;
    let read = |name: &str| fs::read_to_string(ended.work().join(name)).unwrap_or_default();
    let place = read("where");
    assert!(place.starts_with(&home.path().join("config").display().to_string()), "{place}");
    assert!(!Path::new(place.trim()).exists(), "it is removed");
    assert_eq!((read("found").trim(), read("leak").as_str()), ("it", ""), "{ended:?}");
    assert!(ended.work().join("ran").exists() && !home.path().join("pwned").exists());
}

/// `git` and others are looked up by outlast itself: a repository must not put its own in their
/// place, however its folder is named.
#[test]
fn no_program_of_the_repository_is_found_on_the_path() {
    let folder = TempDir::new().expect("a scratch folder");
    let (repository, link) = (folder.path().join("repository"), folder.path().join("link"));
    symlink(&repository, &link).expect("a new link");
    let elsewhere = folder.path().join("elsewhere");
    for bin in [&repository.join("bin"), &elsewhere] {
        fs::create_dir_all(bin).expect("a new folder");
        write_program(&bin.join("git"), "#!/bin/sh\n");
    }
    for tree in [&repository, &link] {
        for bin in [repository.join("bin"), link.join("bin")] {
            let path = env::join_paths([&bin, &elsewhere]).expect("no colons");
            let found = find_program(&["git"], &path, tree);
            assert_eq!(found, Some(elsewhere.join("git")), "{path:?} in {tree:?}");
            assert_eq!(find_program(&["git"], bin.as_os_str(), tree), None, "{bin:?} in {tree:?}");
        }
    }
}
