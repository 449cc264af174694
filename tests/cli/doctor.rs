//! `outlast doctor`, the real binary: on a machine in order, and on broken ones.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};

use crate::support::stopwatch::Stopwatch;
use crate::support::wire::dead_end;
use crate::support::{FinishedProcess, RunBuilder, serve};

const KEY: &str = "test-key-0123456789";

/// Parses the doctor's JSON report; asserts that it is the only output and holds no key.
fn parse_report(ended: &FinishedProcess) -> Value {
    let frames = ended.frames();
    let [report] = &frames[..] else { panic!("not one object: {ended:?}") };
    assert_eq!(report["schema_version"], 1, "{ended:?}");
    assert_eq!(ended.stderr, "", "{ended:?}");
    assert!(!ended.stdout.contains(KEY), "the key was told: {ended:?}");
    let healthy = report["healthy"].as_bool().expect("a verdict");
    assert_eq!(ended.code, Some(i32::from(!healthy)), "{ended:?}");
    report.clone()
}

/// Whether a finding of this check and level says all of this, with a reason and a fix.
#[track_caller]
fn has_finding(report: &Value, check: &str, level: &str, words: &[&str]) {
    let findings = report["findings"].as_array().expect("a list");
    let of_it = findings.iter().filter(|one| one["check"] == check && one["status"] == level);
    let fits = |one: &&Value| {
        let all = format!("{} {} {}", one["what"], one["details"], one["fix"]);
        words.iter().all(|word| all.contains(word))
            && (level == "ok" || one["why"].is_string() && one["fix"].is_string())
    };
    assert!(of_it.clone().any(|one| fits(&one)), "{check} {level} {words:?}: {report:#}");
}

fn doctor(base_url: &str) -> RunBuilder {
    RunBuilder::bare(base_url).args(["doctor", "--json"])
}

/// A server on loopback that answers every request with these bytes; with none, never.
fn start_server(answer: Option<String>) -> String {
    start_answering(move |_| answer.clone())
}

/// A server on loopback that answers each request by its beginning.
fn start_answering(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let mut request = [0; 4096];
            // A client that hangs up has its reasons.
            let count = socket.read(&mut request).unwrap_or_default();
            match answer(&String::from_utf8_lossy(&request[..count])) {
                Some(answer) => _ = socket.write_all(answer.as_bytes()),
                None => held.push(socket),
            }
        }
    });
    format!("http://{address}")
}

fn error_response(status: &str, message: &str, headers: &str) -> String {
    start_server(Some(error_text(status, message, headers)))
}

fn error_text(status: &str, message: &str, headers: &str) -> String {
    let body = json!({ "type": "error", "error": { "type": "e", "message": message } }).to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}connection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn doctor_reports_a_healthy_machine_and_changes_nothing() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url());
    fs::create_dir_all(trial.config()).expect("a folder");
    let ended = trial.run().await;
    let report = parse_report(&ended);
    assert_eq!(ended.code, Some(0), "{report:#}");
    has_finding(&report, "version", "ok", &["outlast", "commit"]);
    has_finding(&report, "installation", "ok", &["(development)"]);
    has_finding(&report, "credentials", "ok", &["API key from the variable ANTHROPIC_API_KEY"]);
    has_finding(&report, "acceptance", "ok", &["accepts the API key"]);
    has_finding(
        &report,
        "limits",
        "ok",
        &["connectTimeout 15s", "bashTimeout 2m00s", "MCP_TIMEOUT 30s"],
    );
    for check in ["hooks", "mcp", "store", "sessions", "commands", "ci", "disk"] {
        has_finding(&report, check, "ok", &[]);
    }
    assert!(server.requests().is_empty(), "the model was asked");
    let left: Vec<_> = fs::read_dir(ended.config()).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn doctor_text_output_gives_the_reason_and_the_fix() {
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["doctor"]);
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let beginning = ["Problems", "  service        http://127.0.0.1:9 cannot be reached: "];
    assert!(lines[0] == beginning[0] && lines[1].starts_with(beginning[1]), "{}", ended.stdout);
    let indent = " ".repeat(17);
    for (word, said) in [("why: ", "no request reaches"), ("fix: ", "see whether the server")] {
        let wanted = format!("{indent}{word}{said}");
        assert!(lines.iter().any(|line| line.starts_with(&wanted)), "{}", ended.stdout);
    }
    let details = "maxRetries";
    assert!(!ended.stdout.contains(details), "{}", ended.stdout);
    assert!(lines.last().expect("a line").starts_with("not healthy: 1 problem, "), "{lines:?}");
    let verbose = RunBuilder::bare("http://127.0.0.1:9").args(["doctor", "--verbose"]).run().await;
    assert!(verbose.stdout.contains(details), "{}", verbose.stdout);
}

#[tokio::test]
async fn doctor_reports_a_missing_key_and_sends_nothing_offline() {
    let trial = doctor("").without("ANTHROPIC_API_KEY").without("ANTHROPIC_BASE_URL");
    let report = parse_report(&trial.args(["--offline"]).run().await);
    has_finding(&report, "credentials", "problem", &["no credential", "ANTHROPIC_API_KEY"]);
    has_finding(&report, "service", "ok", &["https://api.anthropic.com", "not asked"]);
    assert_eq!(report["problems"], 1, "{report:#}");
}

#[tokio::test]
async fn doctor_distinguishes_wrong_and_forbidden_keys_without_quoting_them() {
    let wrong = error_response("401 Unauthorized", &format!("no such key: {KEY}"), "");
    let report_of_wrong = parse_report(&doctor(&wrong).run().await);
    has_finding(&report_of_wrong, "acceptance", "problem", &["rejects", "401", "no such key"]);
    let forbidden = error_response("403 Forbidden", "not for you", "");
    let report = parse_report(&doctor(&forbidden).run().await);
    has_finding(&report, "acceptance", "problem", &["forbids", "403", "not for you"]);
}

#[tokio::test]
async fn doctor_reports_a_wrong_clock_and_accepts_a_missing_model_list() {
    let old = "date: Mon, 06 Jan 2020 00:00:00 GMT\r\n";
    let bare = start_answering(move |request| {
        let is_reply = request.starts_with("POST /v1/messages HTTP");
        let status = if is_reply { "400 Bad Request" } else { "404 Not Found" };
        Some(error_text(status, "no", old))
    });
    let report = parse_report(&doctor(&bare).run().await);
    has_finding(&report, "clock", "warning", &["ahead of", "set the clock"]);
    has_finding(&report, "acceptance", "ok", &["first real request"]);
}

#[tokio::test]
async fn doctor_reports_a_base_url_without_a_messages_api_and_a_key_that_only_it_rejects() {
    let nothing = error_response("404 Not Found", "page not found", "");
    let report = parse_report(&doctor(&nothing).run().await);
    let wanted = ["POST /v1/messages ends with HTTP 404", "page not found", "ANTHROPIC_BASE_URL"];
    has_finding(&report, "acceptance", "warning", &wanted);
    let strict = start_answering(|request| {
        let is_reply = request.starts_with("POST /v1/messages HTTP");
        let status = if is_reply { "401 Unauthorized" } else { "404 Not Found" };
        Some(error_text(status, "who are you", ""))
    });
    let report = parse_report(&doctor(&strict).run().await);
    has_finding(&report, "acceptance", "problem", &["rejects", "401", "who are you"]);
}

#[tokio::test]
async fn doctor_names_an_unreachable_proxy() {
    let (_reserved, closed) = dead_end();
    let proxy = format!("http://me:proxy-password-77@{closed}");
    let trial = doctor("http://model.test").env("HTTP_PROXY", &proxy);
    let ended = trial.run().await;
    let report = parse_report(&ended);
    has_finding(&report, "proxy", "problem", &[&closed.to_string(), "refused", "HTTP_PROXY"]);
    has_finding(&report, "environment", "warning", &["HTTP_PROXY", "NO_PROXY"]);
    assert!(!ended.stdout.contains("proxy-password-77"), "{ended:?}");
}

#[tokio::test]
async fn doctor_reports_warnings_regardless_of_their_wording() {
    let trial = doctor("http://127.0.0.1:9").args(["--offline"]);
    let settings = r#"{"ignoredByUs": 1, "the MCP server": 2}"#;
    fs::create_dir_all(trial.config()).expect("a folder");
    fs::write(trial.config().join("settings.json"), settings).expect("the folder is ours");
    let report = parse_report(&trial.run().await);
    has_finding(&report, "settings", "warning", &["ignoredByUs", "the MCP server"]);
}

#[tokio::test]
async fn doctor_reports_every_settings_mistake_and_runs_the_other_checks() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url()).env("API_TIMEOUT_MS", "soon");
    fs::create_dir_all(trial.config()).expect("a folder");
    fs::create_dir_all(trial.work().join(".claude")).expect("a folder");
    let put = |path: &Path, text: &str| fs::write(path, text).expect("the folder is ours");
    put(&trial.config().join("settings.json"), "{\n  \"maxTurn\": 3\n}");
    put(&trial.work().join(".claude/settings.json"), "{ \"model\": ");
    let trial = trial.env("OUTLAST_TRUST_PROJECT", "1");
    let report = parse_report(&trial.run().await);
    has_finding(&report, "settings", "problem", &["config/settings.json:2:3", "maxTurns"]);
    has_finding(&report, "settings", "problem", &[".claude/settings.json:1:", "not valid JSON"]);
    has_finding(&report, "settings", "problem", &["API_TIMEOUT_MS", "soon"]);
    has_finding(&report, "acceptance", "ok", &[]);
    assert_eq!(report["problems"], 3, "{report:#}");
}

#[tokio::test]
async fn doctor_reports_untrusted_settings_and_servers_and_runs_none() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url());
    let servers = json!({ "mcpServers": {
        "evil": { "command": "touch", "args": ["ran", "arg-secret-0123456789"] },
    } });
    fs::write(trial.work().join(".mcp.json"), servers.to_string()).expect("the folder is ours");
    fs::create_dir(trial.work().join(".claude")).expect("a folder");
    let hook = json!([{ "hooks": [{ "type": "command", "command": "touch hook-secret" }] }]);
    let settings = json!({ "env": { "SECRET_ONE": "env-secret-0123456789" },
        "hooks": { "Stop": hook }, "apiKeyHelper": "touch ran-too" });
    let settings = settings.to_string();
    fs::write(trial.work().join(".claude/settings.json"), settings).expect("the folder is ours");
    let ended = trial.run().await;
    let report = parse_report(&ended);
    let wanted = ["env.SECRET_ONE", "hooks.Stop", "mcpServers.evil", "--trust-project"];
    has_finding(&report, "trust", "warning", &wanted);
    has_finding(&report, "mcp", "ok", &["no MCP servers"]);
    has_finding(&report, "hooks", "ok", &["none"]);
    for secret in ["arg-secret", "hook-secret", "env-secret"] {
        assert!(!ended.stdout.contains(secret), "{secret}: {ended:?}");
    }
    assert!(!ended.work().join("ran").exists() && !ended.work().join("ran-too").exists());
}

#[tokio::test]
async fn doctor_reports_a_read_only_state_folder() {
    let server = serve(Scenario::new());
    // Not even root can write there.
    let trial = doctor(&server.base_url()).env("OUTLAST_CONFIG_DIR", "/proc/nowhere");
    let report = parse_report(&trial.run().await);
    has_finding(&report, "store", "problem", &["/proc", "OUTLAST_CONFIG_DIR"]);
    has_finding(&report, "acceptance", "ok", &[]);
}

#[tokio::test]
async fn doctor_reports_two_installations_on_path_and_the_first_one() {
    let server = serve(Scenario::new());
    let trial = doctor(&server.base_url());
    let (one, two) = (trial.work().join("one"), trial.work().join("two"));
    fs::create_dir(&one).expect("a folder");
    fs::create_dir(&two).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_outlast"), one.join("outlast")).expect("a link");
    fs::copy("/bin/true", two.join("outlast")).expect("a copy");
    let path = format!("{}:{}:/usr/bin:/bin", one.display(), two.display());
    let report = parse_report(&trial.env("PATH", &path).run().await);
    let wins = format!("{} wins", one.join("outlast").display());
    let remove = format!("remove {}", two.join("outlast").display());
    has_finding(&report, "path", "warning", &["2 installations", &wins, &remove]);
}

#[tokio::test]
async fn doctor_tells_equal_installations_from_other_ones() {
    let server = serve(Scenario::new());
    let equal = doctor(&server.base_url());
    let copy = equal.work().join("outlast");
    fs::copy(env!("CARGO_BIN_EXE_outlast"), &copy).expect("a copy");
    let path = format!("{}:/usr/bin:/bin", equal.work().display());
    let report = parse_report(&equal.env("PATH", &path).run().await);
    has_finding(&report, "path", "warning", &["an equal outlast", &copy.display().to_string()]);
    assert_eq!(report["problems"], 0, "{report:#}");
    let other = doctor(&server.base_url());
    fs::copy("/bin/true", other.work().join("outlast")).expect("a copy");
    let path = format!("{}:/usr/bin:/bin", other.work().display());
    let report = parse_report(&other.env("PATH", &path).run().await);
    has_finding(&report, "path", "problem", &["PATH leads to another outlast"]);
}

#[tokio::test]
async fn doctor_reports_interrupted_sessions_but_not_finished_ones() {
    let server = serve(Scenario::new().reply("Done.").after(AfterLast::RepeatLast));
    let ended = RunBuilder::against(&server).args(["Say hello."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let url = server.base_url();
    let again = ended.again(&url);
    let projects = again.config().join("projects");
    let folder = fs::read_dir(&projects).expect("one").next().expect("one").expect("one").path();
    let session = fs::read_dir(&folder).expect("one").flatten().map(|entry| entry.path());
    let session = session.into_iter().find(|path| path.is_file()).expect("a journal");
    let whole = fs::read_to_string(&session).expect("text");
    let (before, _) = whole.trim_end().rsplit_once('\n').expect("more than one line");
    let other = folder.join("0190a0a0-0000-7000-8000-000000000000.jsonl");
    fs::write(&other, format!("{before}\n")).expect("the folder is ours");
    let doctor = doctor(&url).env("OUTLAST_CONFIG_DIR", &again.config().display().to_string());
    let report = parse_report(&doctor.run().await);
    has_finding(&report, "sessions", "ok", &["2 sessions"]);
    let id = "0190a0a0-0000-7000-8000-000000000000";
    has_finding(
        &report,
        "sessions",
        "warning",
        &["1 session left open by a crash", &format!("outlast sessions show {id}"), "go on"],
    );
    assert_eq!(report["problems"], 0, "{report:#}");
}

#[tokio::test]
async fn doctor_names_an_unresponsive_mcp_server_within_the_time_limit() {
    let began = Stopwatch::start();
    let report = parse_report(&doctor(&start_server(None)).run().await);
    has_finding(&report, "service", "problem", &["does not answer within 8 s"]);
    let took = report["duration_ms"].as_u64().expect("a number");
    let most = began.scaled_bound(Duration::from_secs(20));
    assert!((Duration::from_secs(8)..most).contains(&Duration::from_millis(took)), "{took} ms");
    began.assert_within(Duration::from_secs(40), "the end");
}

#[tokio::test]
async fn sigint_ends_doctor_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let running = doctor(&url).start();
    // It sends its request now, and no answer comes.
    let socket = tokio::task::spawn_blocking(move || listener.accept());
    let socket = crate::support::with_time_limit("a connection", socket).await.expect("joined");
    let began = Stopwatch::start();
    running.signal(Signal::SIGINT);
    let ended = running.end().await;
    drop(socket);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    began.assert_within(Duration::from_secs(5), "the end");
}
