//! `doctor` on broken machines: it names each problem and its remedy, in time, and prints no
//! secret.

use std::fs;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::disks::mounts_disks;
use crate::mcp::script;
use crate::support::python::python;
use crate::support::stopwatch::Stopwatch;
use crate::support::{FinishedProcess, RunBuilder, is_alive, serve};

pub(super) const KEY: &str = "test-key-0123456789";

pub(super) fn doctor(base_url: &str) -> RunBuilder {
    let trial = RunBuilder::bare(base_url).args(["doctor", "--json"]);
    fs::create_dir_all(trial.config()).expect("a folder");
    trial
}

pub(super) fn user_settings(trial: &RunBuilder, settings: &Value) {
    fs::write(trial.config().join("settings.json"), settings.to_string()).expect("ours");
}

pub(super) fn report(ended: &FinishedProcess) -> Value {
    let frames = ended.frames();
    let [report] = &frames[..] else { panic!("not one object: {ended:?}") };
    let healthy = report["healthy"].as_bool().expect("a verdict");
    assert_eq!(ended.code, Some(i32::from(!healthy)), "{ended:?}");
    assert!(!ended.stdout.contains(KEY), "the key was told: {ended:?}");
    report.clone()
}

/// Whether a finding of this check and level says all of this, with a reason and a fix.
#[track_caller]
pub(super) fn tells(report: &Value, check: &str, level: &str, words: &[&str]) {
    let findings = report["findings"].as_array().expect("a list");
    let fits = |one: &&Value| {
        let all = format!("{} {} {}", one["what"], one["details"], one["fix"]);
        one["check"] == check
            && one["status"] == level
            && words.iter().all(|word| all.contains(word))
            && (level == "ok" || one["why"].is_string() && one["fix"].is_string())
    };
    assert!(findings.iter().any(|one| fits(&one)), "{check} {level} {words:?}: {report:#}");
}

/// A server on loopback that answers every request with this, or never. Counts who comes.
pub(super) async fn answering(
    answer: Option<&'static str>,
) -> (String, tokio::sync::watch::Receiver<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let (count, counted) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            count.send_modify(|count| *count += 1);
            if let Some(answer) = answer {
                let mut request = [0; 8192];
                // A client that hangs up has its reasons.
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(answer.as_bytes()).await;
            } else {
                held.push(socket);
            }
        }
    });
    (format!("http://{address}"), counted)
}

const UNAUTHORIZED: &str = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 71\r\n\r\n\
    {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"no\"}}";

#[tokio::test]
async fn doctor_names_broken_mcp_servers_and_leaves_no_process() {
    let server = serve(Scenario::new());
    let (guarded, _) = answering(Some(UNAUTHORIZED)).await;
    let trial = doctor(&server.base_url());
    let program = |mode: &str| json!({ "command": python(), "args": ["-S", script(), mode] });
    let pid = trial.work().join("pid");
    let silent = format!("echo $$ > '{}'; exec sleep 1000", pid.display());
    user_settings(
        &trial,
        &json!({ "mcpServers": {
            "well": program("well"),
            "gone": { "command": "no-such-program-77" },
            "crash": { "command": "sh", "args": ["-c", "echo lost my database >&2; exit 3"] },
            "silent": { "command": "sh", "args": ["-c", silent] },
            "guarded": { "type": "http", "url": guarded, "headers": { "X-Key": "hush-0123456789" } },
            "closed": { "type": "http", "url": "http://127.0.0.1:9/mcp" },
            "odd": { "url": "https://mcp.test" },
        } }),
    );
    let ended = trial.run().await;
    let report = report(&ended);
    tells(&report, "mcp", "ok", &["well", "settings.json:1", "connected, 22 tools"]);
    tells(&report, "mcp", "problem", &["gone", "no-such-program-77 is not there", "install"]);
    tells(&report, "mcp", "problem", &["crash", "lost my database", "by hand"]);
    tells(
        &report,
        "mcp",
        "warning",
        &["silent", "does not answer within 8 s", "waits 30s for it only if it is required"],
    );
    tells(&report, "mcp", "problem", &["guarded", "login", "headers"]);
    tells(&report, "mcp", "problem", &["closed", "http://127.0.0.1:9", "runs"]);
    tells(&report, "mcp", "problem", &["odd", "\\\"type\\\": \\\"http\\\""]);
    assert!(!ended.stdout.contains("hush-0123456789"), "{ended:?}");
    let pid = fs::read_to_string(ended.work().join("pid")).expect("it was started");
    assert!(!is_alive(pid.trim().parse().expect("a number")), "it was left behind");
    let took = report["duration_ms"].as_u64().expect("a number");
    assert!(took < 20_000, "{took} ms");
}

#[tokio::test]
async fn doctor_names_the_source_of_a_wrong_key() {
    let (closed, _) = answering(Some(UNAUTHORIZED)).await;
    let rejected = "rejects the API key";
    let from_variable = report(&doctor(&closed).run().await);
    tells(
        &from_variable,
        "acceptance",
        "problem",
        &[rejected, "from the variable ANTHROPIC_API_KEY (HTTP 401"],
    );

    let trial = doctor(&closed).without("ANTHROPIC_API_KEY");
    let text = "{\n  \"env\": {\n    \"ANTHROPIC_API_KEY\": \"test-key-0123456789\"\n  }\n}";
    fs::write(trial.config().join("settings.json"), text).expect("ours");
    let from_file = report(&trial.run().await);
    let place = "the variable ANTHROPIC_API_KEY, set at ";
    tells(&from_file, "acceptance", "problem", &[rejected, place, "config/settings.json:3"]);

    let trial = doctor(&closed).without("ANTHROPIC_API_KEY");
    user_settings(&trial, &json!({ "apiKeyHelper": "echo test-key-0123456789" }));
    let from_helper = report(&trial.run().await);
    let wanted =
        ["the API key helper from the setting apiKeyHelper", "config/settings.json:1", "401"];
    tells(&from_helper, "acceptance", "problem", &wanted);
}

#[tokio::test]
async fn doctor_names_a_full_disk() {
    if !mounts_disks() {
        println!("no disk can be mounted here: a disk that is really full is not tried");
        return;
    }
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url());
    let disk = trial.config().display().to_string();
    let ended = trial
        .env("DISK", &disk)
        .in_shell(
            "exec unshare -rm sh -c 'mount -t tmpfs -o size=64k none \"$DISK\"; \
             head -c 100000 /dev/zero > \"$DISK/other\" 2> /dev/null; exec \"$@\"' sh \"$@\"",
        )
        .run()
        .await;
    let report = report(&ended);
    tells(&report, "store", "problem", &["No space left", &disk, "make room"]);
    tells(&report, "disk", "problem", &["0 bytes left", &disk, "OUTLAST_CONFIG_DIR"]);
    tells(&report, "acceptance", "ok", &[]);
}

#[tokio::test]
async fn doctor_ends_in_time_and_names_every_hanging_check() {
    let (hole, counted) = answering(None).await;
    let trial = doctor("http://model.test").env("HTTP_PROXY", &hole);
    let servers = json!({ "mcpServers": {
        "far": { "type": "http", "url": format!("{hole}/mcp") },
        "near": { "command": "sh", "args": ["-c", "trap '' TERM; exec sleep 1000"] },
    } });
    user_settings(&trial, &servers);
    mkfifo(&trial.work().join("../.bashrc"), Mode::S_IRUSR).expect("a pipe");
    let watch = Stopwatch::start();
    let ended = trial.run().await;
    let report = report(&ended);
    tells(&report, "service", "problem", &["does not answer within 8 s"]);
    for name in ["far", "near"] {
        tells(&report, "mcp", "warning", &[name, "does not answer within 8 s"]);
    }
    assert!(*counted.borrow() > 0, "the proxy was asked");
    let took = report["duration_ms"].as_u64().expect("a number");
    let most = watch.scaled_bound(Duration::from_secs(20));
    assert!((Duration::from_secs(8)..most).contains(&Duration::from_millis(took)), "{took} ms");
}

#[tokio::test]
async fn doctor_names_a_settings_file_that_is_a_pipe() {
    let trial = doctor("http://127.0.0.1:9").args(["--", "--settings", "pipe"]);
    let pipe = trial.work().join("pipe");
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
    let began = Stopwatch::start();
    let report = report(&trial.run().await);
    tells(&report, "settings", "problem", &["did not end within 9.5 s", "it waits for pipe"]);
    tells(&report, "settings", "warning", &["not checked", "credentials"]);
    let findings = report["findings"].as_array().expect("a list");
    for check in ["credentials", "service", "mcp"] {
        assert!(findings.iter().all(|one| one["check"] != check), "{check}: {report:#}");
    }
    tells(&report, "installation", "ok", &[]);
    began.assert_within(Duration::from_secs(40), "the end");
    let took = Duration::from_millis(report["duration_ms"].as_u64().expect("a number"));
    assert!(took < began.scaled_bound(Duration::from_secs(20)), "{report:#}");
}

#[tokio::test]
async fn doctor_offline_contacts_no_server_and_starts_no_process() {
    let (service, asked) = answering(None).await;
    let (far, called) = answering(None).await;
    let trial = doctor(&service).without("ANTHROPIC_API_KEY").args(["--offline"]);
    let touch = |name: &str| format!("touch '{}'", trial.work().join(name).display());
    let settings = json!({
        "apiKeyHelper": touch("helper"),
        "mcpServers": {
            "near": { "command": "sh", "args": ["-c", touch("server")] },
            "gone": { "command": "no-such-program-77" },
            "far": { "type": "http", "url": far },
        },
    });
    user_settings(&trial, &settings);
    let ended = trial.run().await;
    let report = report(&ended);
    tells(&report, "service", "ok", &["not asked (--offline)"]);
    tells(&report, "mcp", "ok", &["near", "not tried"]);
    tells(&report, "mcp", "ok", &["far", "not tried"]);
    tells(&report, "mcp", "problem", &["gone", "install"]);
    assert_eq!((*asked.borrow(), *called.borrow()), (0, 0), "a server was contacted");
    let exists = |name: &str| ended.work().join(name).exists();
    assert!(!exists("helper") && !exists("server"), "something was started");
}

#[tokio::test]
async fn doctor_shows_missing_hook_programs_and_hook_failures() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url());
    let hook = |command: &str| json!([{ "hooks": [{ "type": "command", "command": command }] }]);
    let settings = json!({ "hooks": {
        "Stop": hook("./no-such-hook.sh hush-0123456789"),
        "SessionStart": hook("echo fine"),
        "PreToolUse": hook("python3 ./gone.py"),
    } });
    user_settings(&trial, &settings);
    let logs = trial.config().join("hooks/.logs");
    fs::create_dir_all(&logs).expect("a folder");
    let failure = |n: u32| {
        json!({ "time": "2026-01-02T03:04:05Z", "event": "Stop", "command": format!("./x{n}"),
            "kind": "timeout", "detail": "took 60 s" })
    };
    let log: Vec<String> = (0..5).map(|n| failure(n).to_string()).collect();
    fs::write(logs.join("hook-log.jsonl"), log.join("\n") + "\n").expect("ours");
    let ended = trial.run().await;
    let report = report(&ended);
    tells(&report, "hooks", "problem", &["Stop", "./no-such-hook.sh", "install"]);
    tells(&report, "hooks", "problem", &["PreToolUse", "./gone.py"]);
    tells(&report, "hooks", "ok", &["SessionStart 1", "SessionStart: at most 10m00s"]);
    let wanted = ["5 failures", "2026-01-02T03:04:05Z Stop: ./x4 (timeout: took 60 s)"];
    tells(&report, "hook log", "warning", &wanted);
    assert!(!ended.stdout.contains("hush-") && !ended.stdout.contains("./x1"), "{ended:?}");
}

#[tokio::test]
async fn doctor_reports_an_invalid_permission_rule() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url());
    user_settings(&trial, &json!({ "permissions": { "deny": ["Bash("] } }));
    let report = report(&trial.run().await);
    tells(&report, "settings", "problem", &["Bash(", "parenthesis"]);
}

/// Secrets wherever people put them.
fn full_of_secrets(trial: &RunBuilder) {
    let hook =
        json!([{ "hooks": [{ "type": "command", "command": "curl -H hush-hook-0123456789" }] }]);
    let settings = json!({
        "apiKeyHelper": "echo hush-helper-0123456789",
        "env": { "MY_TOKEN": "hush-env-0123456789", "ANTHROPIC_AUTH_TOKEN": "hush-auth-0123456789" },
        "hooks": { "Stop": hook },
        "fallbackModel": [{ "model": "b", "baseUrl": "http://127.0.0.1:9",
            "headers": { "X-Key": "hush-fallback-0123456789" } }],
        "mcpServers": {
            "near": { "command": "sh", "args": ["-c", "echo \"I got $SECRET\" >&2; exit 1",
                "hush-argument-0123456789"], "env": { "SECRET": "hush-variable-0123456789" } },
            "far": { "type": "http", "url": "http://u:hush-user-0123456789@127.0.0.1:9/?k=hush-query-0123456789",
                "headers": { "Authorization": "Bearer hush-header-0123456789" } },
        },
    });
    user_settings(trial, &settings);
    let logs = trial.config().join("hooks/.logs");
    fs::create_dir_all(&logs).expect("a folder");
    let failure = json!({ "time": "2026-01-02T03:04:05Z", "event": "Stop", "kind": "exit",
        "command": "post --user me:hush-key-0123456789 --to http://h/", "detail": "exit 1: hush-env-0123456789" });
    fs::write(logs.join("hook-log.jsonl"), format!("{failure}\n")).expect("ours");
}

#[tokio::test]
async fn doctor_and_config_print_no_secret_in_text_or_json() {
    let (closed, _) = answering(Some(UNAUTHORIZED)).await;
    for words in [&["doctor"][..], &["doctor", "--json"], &["config"], &["config", "--json"]] {
        let trial = RunBuilder::bare(&format!("{closed}/?key=hush-base-0123456789"));
        fs::create_dir_all(trial.config()).expect("a folder");
        full_of_secrets(&trial);
        let ended = trial
            .args(words)
            .args(["--", "--fallback-model", "b@http://127.0.0.1:9#SPARE,c@http://127.0.0.1:9/x"])
            .env("SPARE", "hush-spare-0123456789")
            .env("HTTPS_PROXY", "http://me:hush-proxy-0123456789@127.0.0.1:9")
            .env("ANTHROPIC_CUSTOM_HEADERS", "X-Key: hush-custom-0123456789")
            .env("ANTHROPIC_API_KEY", "hush-key-0123456789")
            .run()
            .await;
        assert!(ended.stdout.len() > 500, "{ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        if let Some(at) = said.find("hush") {
            let near: String = said[at.saturating_sub(200)..].chars().take(300).collect();
            panic!("{words:?} told a secret: {near}");
        }
    }
}

#[tokio::test]
async fn doctor_text_is_aligned_with_problems_first() {
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["doctor"]);
    let ended = trial.run().await;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"Problems"), "{}", ended.stdout);
    let in_order = lines.iter().position(|line| *line == "In order").expect("most is in order");
    let (wrong, fine) = lines.split_at(in_order);
    assert!(wrong.iter().any(|line| line.starts_with("                 fix: ")), "{wrong:#?}");
    let fine: Vec<&str> = fine[1..].iter().copied().take_while(|line| !line.is_empty()).collect();
    assert!(fine.len() > 10, "{fine:#?}");
    for line in fine {
        let bytes = line.as_bytes();
        assert!(bytes[2] != b' ' && bytes[16] == b' ' && bytes[17] != b' ', "{line}");
    }
    let long = lines.iter().find(|line| line.chars().count() > 80 && !line.contains('/'));
    assert_eq!(long, None, "{}", ended.stdout);
    assert!(!ended.stdout.contains('\u{1b}'), "colours without a terminal: {}", ended.stdout);
    let last = lines.last().expect("a line");
    assert!(last.starts_with("not healthy: 1 problem, "), "{last}");
}

#[tokio::test]
async fn doctor_waits_for_mcp_servers_as_long_as_a_run_does() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url()).env("MCP_TIMEOUT", "500");
    let silent = json!({ "command": "sh", "args": ["-c", "exec sleep 1000"] });
    user_settings(&trial, &json!({ "mcpServers": { "silent": silent } }));
    let report = report(&trial.run().await);
    tells(&report, "mcp", "problem", &["silent", "does not answer within 0.5 s", "MCP_TIMEOUT"]);
}

/// The checks of problems and warnings, but for the one of PATH: a test is not installed.
fn grave(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("a list").iter();
    // The home of a test is a temporary folder.
    let is_usual = |one: &&Value| one["check"] == "path" || one["check"] == "sandbox";
    let grave = findings.filter(|one| one["status"] != "ok" && !is_usual(one));
    grave.filter_map(|one| one["check"].as_str()).collect()
}

#[tokio::test]
async fn a_network_that_is_down_is_one_problem() {
    // The proxy is closed, so that nothing outside of this machine is reached.
    let trial = doctor("http://model.test").env("HTTP_PROXY", "http://127.0.0.1:9");
    let trial = trial.env("NO_PROXY", "localhost");
    user_settings(
        &trial,
        &json!({
            "fallbackModel": ["b@http://other.test", "c@http://third.test"],
            "mcpServers": { "far": { "type": "http", "url": "http://mcp.test/mcp" } },
        }),
    );
    let report = report(&trial.run().await);
    tells(&report, "proxy", "problem", &["127.0.0.1:9", "far (", "model.test"]);
    assert_eq!(grave(&report), ["proxy"], "{report:#}");
}

#[tokio::test]
async fn a_credential_that_is_none_is_one_problem() {
    let (closed, _) = answering(Some(UNAUTHORIZED)).await;
    let quoted = doctor(&closed).env("ANTHROPIC_API_KEY", "'test-key-0123456789'");
    let ended = quoted.run().await;
    let of_quoted = report(&ended);
    tells(&of_quoted, "environment", "problem", &["quotation marks", "HTTP 401"]);
    let empty = report(&doctor(&closed).env("ANTHROPIC_API_KEY", " ").run().await);
    tells(&empty, "acceptance", "problem", &["HTTP 401", "ANTHROPIC_API_KEY is set, and empty"]);
    assert_eq!(grave(&of_quoted), ["environment"], "{of_quoted:#}");
    assert_eq!(grave(&empty), ["acceptance"], "{empty:#}");
}
