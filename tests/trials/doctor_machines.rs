//! The doctor on machines that are wrong in ways that people seldom think of.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::unistd::Uid;
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::doctor::{doctor, report, tells, user_settings};
use crate::mcp::script;
use crate::support::python::python;
use crate::support::{RunBuilder, serve};

fn offline() -> RunBuilder {
    doctor("http://127.0.0.1:9").args(["--offline"])
}

fn of_check<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().filter(|one| one["check"] == check).collect()
}

#[tokio::test]
async fn doctor_names_a_configuration_folder_that_is_a_file() {
    let trial = offline();
    let file = trial.work().join("file");
    fs::write(&file, "x").expect("ours");
    let file = file.display().to_string();
    let report = report(&trial.env("OUTLAST_CONFIG_DIR", &file).run().await);
    tells(&report, "store", "problem", &["it is a file", &format!("move the file {file} away")]);
}

#[tokio::test]
async fn doctor_names_missing_home_path_and_temporary_folder() {
    let trial = offline().env("HOME", "/no/such/home").env("PATH", "");
    let lost = report(&trial.env("TMPDIR", "/no/such/folder").run().await);
    tells(&lost, "environment", "warning", &["/no/such/home", "HOME"]);
    tells(&lost, "environment", "warning", &["PATH is not set", "/usr/bin"]);
    tells(&lost, "temporary", "problem", &["/no/such/folder", "TMPDIR"]);
    tells(&lost, "path", "warning", &["no outlast is on PATH"]);
    let unset = report(&offline().without("HOME").run().await);
    tells(&unset, "environment", "warning", &["HOME is not set"]);
}

#[tokio::test]
async fn doctor_counts_ten_thousand_sessions_in_time() {
    let trial = offline();
    let folder = trial.config().join("projects/-work");
    fs::create_dir_all(&folder).expect("ours");
    let session = |number: u32| folder.join(format!("0190a0a0-0000-7000-8000-{number:012}.jsonl"));
    fs::write(session(0), "{}\n").expect("ours");
    // Further names of one file: some file systems search long for ten thousand.
    for number in 1..10_000 {
        fs::hard_link(session(0), session(number)).expect("ours");
    }
    let report = report(&trial.run().await);
    // On a busy machine it may give up before the last one, and says so.
    tells(&report, "sessions", "ok", &[" sessions, "]);
    assert!(report["duration_ms"].as_u64().is_some_and(|took| took < 20_000), "{report:#}");
}

#[tokio::test]
async fn doctor_reads_the_last_failures_of_a_huge_corrupt_crash_log() {
    let trial = offline();
    let folder = trial.config().join("hooks/.logs");
    fs::create_dir_all(&folder).expect("ours");
    let failure = |n: u32| {
        let line = json!({ "time": "2026-01-02T03:04:05Z", "event": "Stop", "kind": "timeout",
            "command": format!("./x{n} {}", "h".repeat(130)),
            "detail": "took 60 s" });
        format!("{line}\n").into_bytes()
    };
    let mut log: Vec<u8> = (0..12_000).flat_map(failure).collect();
    log.extend(b"\xff\xfe rubbish\n{\"time\": 1}\n[]\n");
    assert!(log.len() > 2 << 20);
    log.extend(failure(77_777));
    fs::write(folder.join("hook-log.jsonl"), log).expect("ours");
    let ended = trial.run().await;
    let report = report(&ended);
    tells(&report, "hook log", "warning", &["at least ", "Stop: ./x77777", "hook-log.jsonl"]);
    tells(&report, "hook log", "warning", &["3 lines of ", "cannot be parsed"]);
    assert!(!ended.stdout.contains("hhhhhhhhhh"), "a word was cut: {ended:?}");
}

fn put(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("ours");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
}

#[tokio::test]
async fn doctor_names_each_unrunnable_hook_with_its_cause() {
    let trial = offline();
    let at = |name: &str| trial.work().join(name);
    put(&at("plain.sh"), "#!/bin/sh\n", 0o644);
    put(&at("windows.sh"), "#!/bin/sh\r\nexit 0\r\n", 0o755);
    put(&at("no-shell.sh"), "#!/no/such/sh\n", 0o755);
    put(&at("envless.py"), "#!/usr/bin/env no-such-python-7\n", 0o755);
    put(&at("good.sh"), "#!/usr/bin/env sh\n", 0o755);
    let commands = [
        "\"$CLAUDE_PROJECT_DIR\"/gone.sh --all",
        "$PWD/gone3.sh",
        "X=1 ./plain.sh",
        "./windows.sh",
        "./no-shell.sh",
        "exec ./envless.py",
        "sh ./windows.sh",
        "no-such-program-7 | cat",
        "$CLAUDE_PROJECT_DIR/good.sh",
        "sh plain.sh",
        "test -x ./gone2.sh && ./gone2.sh",
    ];
    let hook = |command: &&str| json!({ "type": "command", "command": command });
    let hooks: Vec<Value> = commands.iter().map(hook).collect();
    user_settings(&trial, &json!({ "hooks": { "PreToolUse": [{ "hooks": hooks }] } }));
    let report = report(&trial.run().await);
    let rows: [&[&str]; 8] = [
        &["/work/gone.sh, which is not there", "install"],
        &["/work/gone3.sh, which is not there", "install"],
        &["./plain.sh, which may not be run", "chmod +x"],
        &["runs ./windows.sh, whose lines end as on Windows"],
        &["./no-shell.sh", "wants /no/such/sh"],
        &["./envless.py", "wants no-such-python-7"],
        &["./windows.sh", "sed -i"],
        &["no-such-program-7, which is not there"],
    ];
    for words in rows {
        tells(&report, "hooks", "problem", words);
    }
    let bad = of_check(&report, "hooks").into_iter().filter(|one| one["status"] == "problem");
    assert_eq!(bad.count(), 8, "{report:#}");
}

#[tokio::test]
async fn doctor_distinguishes_invalid_mcp_output_from_a_missing_server() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url()).env("MCP_TIMEOUT", "2000");
    let rubbish = "while :; do echo 'Welcome! <b>not JSON</b>'; sleep 0.2; done";
    user_settings(
        &trial,
        &json!({ "mcpServers": {
            "babbler": { "command": "sh", "args": ["-c", rubbish] },
            "well": { "command": python(), "args": ["-S", script(), "well"] },
        } }),
    );
    let report = report(&trial.run().await);
    tells(&report, "mcp", "problem", &["babbler", "by hand"]);
    tells(&report, "mcp", "ok", &["well", "connected, 22 tools"]);
}

#[tokio::test]
async fn doctor_suggests_the_name_of_a_misspelt_variable() {
    let trial = offline()
        .env("OUTLAST_CONFIGDIR", "/x")
        .env("ANTHROPIC_APIKEY", "hush-0123456789")
        .env("ANTHROPIC_VERTEX_PROJECT_ID", "p")
        .env("CLAUDE_CODE_MAX_RETRY", "3");
    let ended = trial.run().await;
    let report = report(&ended);
    let wanted = ["no variable OUTLAST_CONFIGDIR; did you mean OUTLAST_CONFIG_DIR?"];
    tells(&report, "environment", "warning", &wanted);
    let meant = "ANTHROPIC_APIKEY; did you mean ANTHROPIC_API_KEY?";
    tells(&report, "environment", "warning", &[meant]);
    let told = ended.stdout.contains("hush") || ended.stdout.contains("VERTEX");
    assert!(!told, "{ended:?}");
}

/// A limit of processes, which the kernel does not hold root to.
const CROWDED: &str = "as=
    if [ \"$(id -u)\" = 0 ]; then
        as='setpriv --reuid 65533 --regid 65533 --clear-groups'
        $as test -x \"$1\" || exit 99
        chown -R 65533:65533 \"$HOME\"
    fi
    exec $as prlimit --nproc=$ROOM \"$@\"";

#[tokio::test]
async fn without_room_for_its_threads_outlast_asks_to_be_started_later() {
    let server = serve(Scenario::new().reply("Done."));
    for room in 1..=8 {
        let run = RunBuilder::against(&server).args(["Do it."]);
        let ended = run.env("ROOM", &room.to_string()).in_shell(CROWDED).run().await;
        if ended.code == Some(99) {
            eprintln!("WARNING: the binary is not open to other users: the limit is not tried");
            return;
        }
        assert!(!ended.stderr.contains("report this"), "{room}: {ended:?}");
        if room < 4 {
            assert_eq!(ended.code, Some(75), "{room}: {ended:?}");
            assert!(ended.stderr.contains("no thread could be started"), "{room}: {ended:?}");
        }
    }
    let report = report(&offline().env("ROOM", "2").in_shell(CROWDED).run().await);
    tells(&report, "limits", "problem", &["cannot start its threads", "ulimit -u"]);
}

#[tokio::test]
async fn a_run_that_cannot_start_leaves_no_older_success_in_its_result_file() {
    const OLD: &str = "{\"exit_code\":0}\n";
    let server = serve(Scenario::new().reply("Done.").times(40));
    for files in [5, 6, 7, 8, 10, 12, 14, 16, 20] {
        let run = RunBuilder::against(&server).args(["Do it.", "--result-file", "result.json"]);
        std::fs::write(run.work().join("result.json"), OLD).expect("the folder is ours");
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let ended = run.args(["--max-retries", "0"]).in_shell(&limited).run().await;
        let Some(code @ (0..=77)) = ended.code else { panic!("{files}: {ended:?}") };
        // Without descriptors, the program is not even loaded, or cannot open the folder.
        if ended.stdout.is_empty() {
            assert_ne!(code, 0, "{files}: {ended:?}");
            continue;
        }
        let kept = std::fs::read_to_string(ended.work().join("result.json"));
        let kept = kept.map(|kept| serde_json::from_str::<Value>(&kept).expect("one object"));
        let kept = kept.map_or(json!(code), |kept| kept["exit_code"].clone());
        assert_eq!(kept, code, "{files}: {ended:?}");
    }
}

/// The sandbox must not lack the rules for which no descriptor was left.
#[tokio::test]
async fn a_command_for_which_no_descriptor_is_left_names_the_limit() {
    let (mut started, mut refused) = (0, 0);
    for files in 20..44 {
        let echo = json!({ "command": "echo hi" });
        let server = serve(Scenario::new().tool("Bash", echo).reply("Done."));
        let limited = format!("ulimit -n {files}; exec \"$@\"");
        let ended = RunBuilder::against(&server).args(["Do it."]).in_shell(&limited).run().await;
        let requests = server.requests();
        let Some(last) = requests.get(1) else { continue };
        let result = &last.body["messages"][2]["content"][0];
        let text = result["content"].to_string();
        if result["is_error"] == true {
            assert!(text.contains("raise the limit of open files (ulimit -n)"), "{files}: {text}");
            refused += 1;
        } else {
            assert!(text.contains("hi"), "{files}: {ended:?}");
            started += 1;
        }
    }
    assert!(started > 0 && refused > 2, "{started}, {refused}");
}

#[tokio::test]
async fn doctor_warns_about_low_limits_and_root_without_permission_prompts() {
    let limited = offline().in_shell("ulimit -n 100; exec \"$@\"").run().await;
    tells(&report(&limited), "ulimit", "warning", &["open files", "only 100", "256"]);
    if Uid::effective().is_root() {
        let flags = ["--", "--permission-mode", "bypassPermissions"];
        let root = report(&offline().args(flags).run().await);
        tells(&root, "environment", "warning", &["as root", "bypassPermissions"]);
    }
}

#[tokio::test]
async fn doctor_names_a_folder_mounted_noexec() {
    let mount = "mount -t tmpfs -o noexec none /mnt";
    let probe = std::process::Command::new("unshare").args(["-rm", "sh", "-c", mount]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("no disk can be mounted here: a noexec folder is not tried");
        return;
    }
    let script =
        "exec unshare -rm sh -c 'mount -t tmpfs -o noexec none /mnt; exec \"$@\"' sh \"$@\"";
    let report = report(&offline().env("TMPDIR", "/mnt").in_shell(script).run().await);
    tells(&report, "temporary", "warning", &["/mnt", "noexec", "TMPDIR"]);
}
