//! Logins, as real processes share them.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario, ServerRules};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::tokens::{TokenEndpoint, read_login, write_login};
use crate::support::{FinishedProcess, RunBuilder, RunningProcess, serve, with_time_limit};

/// More processes than usually run on one host, and than this one has processors.
const CROWD: usize = 16;

/// A model server that accepts only this token.
fn model(token: &str) -> RehearsalServer {
    let rules = ServerRules { require_key: Some(token.to_owned()), ..ServerRules::default() };
    serve(Scenario::new().reply("Done.").after(AfterLast::RepeatLast).rules(rules))
}

/// A token endpoint, and a folder with a login that ends after so many seconds.
async fn login(seconds: i64) -> (TokenEndpoint, TempDir) {
    let (tokens, folder) = (TokenEndpoint::start().await, tempfile::tempdir().expect("a folder"));
    write_login(folder.path(), &tokens.login(seconds));
    (tokens, folder)
}

/// A run without a key, whose config folder is this one.
fn trial(server: &RehearsalServer, config: &Path) -> RunBuilder {
    RunBuilder::against(server)
        .env("ANTHROPIC_API_KEY", "")
        .env("OUTLAST_CONFIG_DIR", &config.display().to_string())
        .args(["say hello"])
}

async fn end(run: RunningProcess) -> FinishedProcess {
    with_time_limit("the end of a run", run.end()).await
}

/// The contents of all files of a folder except the login.
fn written(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder can be read").flatten() {
            match entry.file_type().expect("it is there") {
                kind if kind.is_dir() => folders.push(entry.path()),
                _ if entry.file_name() == ".credentials.json" => {}
                _ => texts.push(std::fs::read_to_string(entry.path()).unwrap_or_default()),
            }
        }
    }
    texts
}

/// No token is anywhere but in the login.
fn assert_untold(ended: &FinishedProcess, folder: &Path) {
    let written = written(folder);
    assert!(written.len() > 1, "there is a journal and a lock");
    for text in written.iter().chain([&ended.stdout, &ended.stderr]) {
        assert!(!text.contains("access-token") && !text.contains("refresh-token"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_whose_token_is_rejected_renews_it_once() {
    crowd(3600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_whose_token_has_expired_renews_it_once() {
    crowd(-1).await;
}

async fn crowd(seconds: i64) {
    let (tokens, folder) = login(seconds).await;
    let server = model("access-token-1");
    // All are there before the first has its answer.
    tokens.hold();
    let runs: Vec<RunningProcess> =
        (0..CROWD).map(|_| trial(&server, folder.path()).start()).collect();
    tokens.wait_for_requests(1).await;
    if seconds > 0 {
        with_time_limit("a rejection for each", server.wait_for_request(CROWD)).await;
    }
    tokens.release();
    for run in runs {
        let ended = end(run).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.result()["result"], "Done.");
    }
    assert_eq!(tokens.requests().len(), 1);
    assert_eq!(read_login(folder.path())["claudeAiOauth"]["refreshToken"], "refresh-token-1");
    let rejected = if seconds > 0 { CROWD } else { 0 };
    assert_eq!(server.requests().len(), CROWD + rejected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_during_a_token_refresh_blocks_no_other_process() {
    let (tokens, folder) = login(-1).await;
    let server = model("access-token-1");
    tokens.hold();
    let killed = trial(&server, folder.path()).start();
    tokens.wait_for_requests(1).await;
    let waiting = trial(&server, folder.path()).start();
    killed.signal(Signal::SIGKILL);
    assert_eq!(end(killed).await.code, None);
    // The lock died with its process: the one that waits for it asks now.
    tokens.wait_for_requests(2).await;
    tokens.release();
    assert_eq!(end(waiting).await.code, Some(0));
    assert_eq!(end(trial(&server, folder.path()).start()).await.code, Some(0));
    assert_eq!(tokens.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_does_not_lose_a_refreshed_token() {
    let (tokens, folder) = login(-1).await;
    let server = model("access-token-1");
    tokens.hold();
    let run = trial(&server, folder.path()).start();
    tokens.wait_for_requests(1).await;
    run.signal(Signal::SIGTERM);
    // The run is over, but for the token that it has asked for.
    let over = async {
        while !written(folder.path()).iter().any(|text| text.contains("aborted_streaming")) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    with_time_limit("the end of the journal", over).await;
    tokens.release();
    assert_eq!(end(run).await.code, Some(143));
    assert_eq!(read_login(folder.path())["claudeAiOauth"]["refreshToken"], "refresh-token-1");
    assert!(server.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_endpoint_that_is_down_ends_the_run_with_an_accurate_result() {
    let (tokens, folder) = login(-1).await;
    let mut file = tokens.login(-1);
    file["claudeAiOauth"]["tokenEndpoint"] = json!("http://127.0.0.1:9/token");
    write_login(folder.path(), &file);
    let server = model("access-token-1");
    let run = trial(&server, folder.path()).args(["--max-retries", "2", "--time-scale", "20"]);
    let ended = run.run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert_eq!(result["api_error_class"], "connection_error");
    assert!(result.to_string().contains("the token endpoint at 127.0.0.1:9"), "{result}");
    assert_eq!(server.requests().len(), 0);
    assert_eq!(read_login(folder.path()), file);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_outage_of_the_token_endpoint_is_retried() {
    let (tokens, folder) = login(3600).await;
    let server = model("access-token-1");
    tokens.answer_with(503, "");
    let mut run = trial(&server, folder.path()).start();
    run.wait_for_stderr("waiting").await;
    tokens.resume_tokens();
    let ended = end(run).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_untold(&ended, folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_ends_the_run_and_says_why() {
    let (tokens, folder) = login(3600).await;
    tokens
        .answer_with(400, r#"{"error":"invalid_grant","error_description":"for refresh-token-0"}"#);
    let server = model("access-token-1");
    let ended = trial(&server, folder.path()).run().await;
    assert_eq!(ended.code, Some(77), "{ended:?}");
    let result = ended.result();
    assert_eq!(result["api_error_class"], "invalid_api_key");
    let text = result.to_string();
    assert!(
        text.contains("invalid_grant: for [redacted]") && text.contains("log in again"),
        "{text}"
    );
    assert_eq!((tokens.requests().len(), server.requests().len()), (1, 1));
    assert_untold(&ended, folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refreshed_once_before_the_run_fails() {
    let (tokens, folder) = login(3600).await;
    let revoked = "OAuth token access-token-0 has been revoked";
    let server = serve(
        Scenario::new()
            .status(403)
            .error("permission_error", revoked, None)
            .after(AfterLast::RepeatLast),
    );
    let ended = trial(&server, folder.path()).run().await;
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert_eq!(ended.result()["api_error_class"], "token_revoked");
    let sent: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.header("authorization").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(sent, ["Bearer access-token-0", "Bearer access-token-1"]);
    assert_eq!(tokens.requests().len(), 1);
    // Not even what the service quotes.
    let stderr = &ended.stderr;
    assert!(!stderr.contains("access-token-1"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_without_a_refresh_token_fails_the_run() {
    let (tokens, folder) = login(3600).await;
    tokens.answer_with(400, r#"{"error":"invalid_grant"}"#);
    let revoked = "OAuth token has been revoked";
    let server = serve(Scenario::new().status(403).error("permission_error", revoked, None));
    let ended = trial(&server, folder.path()).run().await;
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert_eq!(ended.result()["api_error_class"], "token_revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_the_last_credential_source_and_is_reported() {
    let (_tokens, folder) = login(3600).await;
    let server = model("access-token-0");
    let named = |trial: RunBuilder| async {
        let ended = trial.args(["--output-format", "stream-json"]).run().await;
        (ended.frames()[0]["apiKeySource"].clone(), ended.code)
    };
    let plain = || trial(&server, folder.path());
    assert_eq!(named(plain()).await, (json!("oauth"), Some(0)));
    let others = [
        ("ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    ];
    for (variable, source) in others {
        assert_eq!(named(plain().env(variable, "wrong")).await, (json!(source), Some(77)));
    }
    let helped = plain()
        .env("ANTHROPIC_AUTH_TOKEN", "wrong")
        .args(["--api-key-helper", "echo access-token-0"]);
    assert_eq!(named(helped).await, (json!("apiKeyHelper"), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_not_retried_when_its_limit_is_reached() {
    let (tokens, folder) = login(3600).await;
    let cases = [
        (Value::Null, "{}", 0),
        (json!("max"), "{}", 75),
        (json!("enterprise"), "{}", 0),
        (json!("pro"), r#"{"accountKind":"apiKey"}"#, 0),
    ];
    for (subscription, settings, code) in cases {
        let mut file = tokens.login(3600);
        file["claudeAiOauth"]["subscriptionType"] = subscription.clone();
        write_login(folder.path(), &file);
        let server = serve(Scenario::new().status(429).header("retry-after", "1").reply("Done."));
        let run = trial(&server, folder.path()).args(["--settings", settings]);
        let ended = run.args(["--time-scale", "20"]).run().await;
        assert_eq!(ended.code, Some(code), "{subscription} {settings}");
        let requests = if code == 0 { 2 } else { 1 };
        assert_eq!(server.requests().len(), requests, "{subscription} {settings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_login_file_is_reported_before_any_request() {
    let (_tokens, folder) = login(3600).await;
    let server = model("access-token-0");
    for broken in [
        "{\"claudeAiOauth\": {\"accessToken\": \"access-token-0\"",
        r#"{"claudeAiOauth":{"accessToken":"a","tokenEndpoint":"http://example.com/access-token"}}"#,
    ] {
        std::fs::write(folder.path().join(".credentials.json"), broken).expect("a file");
        let ended = trial(&server, folder.path()).run().await;
        assert_eq!(ended.code, Some(77), "{ended:?}");
        assert_eq!(ended.result()["api_error_class"], "invalid_api_key");
        assert!(!ended.stderr.contains("access-token"), "{ended:?}");
        // A better credential does not need it.
        let ended = trial(&server, folder.path()).env("ANTHROPIC_API_KEY", "access-token-0");
        assert_eq!(ended.run().await.code, Some(0));
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_printed_by_a_helper_is_used_for_its_lifetime() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("count");
    let helper = format!("echo x >> {0}; echo key-number-$(grep -c x {0})", file.display());
    let script = || Scenario::new().tool("Bash", json!({ "command": "sleep 0.01" })).reply("Done.");
    for (ttl, keys) in [("0", 2), ("60000", 1)] {
        let server = serve(script());
        let run = trial(&server, folder.path()).args(["--api-key-helper", &helper]);
        let ended = run.env("CLAUDE_CODE_API_KEY_HELPER_TTL_MS", ttl).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let keys_seen: std::collections::BTreeSet<_> = server
            .requests()
            .iter()
            .map(|request| request.header("x-api-key").unwrap_or_default().to_owned())
            .collect();
        assert_eq!(keys_seen.len(), keys, "{ttl}");
    }
}

/// Secrets learned during the run are redacted like those known before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_login_and_a_printed_key_are_neither_printed_nor_kept() {
    let (tokens, folder) = login(-1).await;
    let path = folder.path().join(".credentials.json");
    let script = |file: &Path| {
        let command = json!({ "command": format!("cat {}", file.display()) });
        serve(Scenario::new().tool("Bash", command).reply("It says access-token-1."))
    };
    let stream = ["--output-format", "stream-json"];
    let ended = trial(&script(&path), folder.path()).args(stream).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(read_login(folder.path())["claudeAiOauth"]["refreshToken"], "refresh-token-1");
    assert!(ended.stdout.contains("tokenEndpoint"), "the file was shown: {ended:?}");
    assert_untold(&ended, folder.path());
    drop(tokens);

    let key = folder.path().join("key");
    std::fs::write(&key, "printed-key-0123456789\n").expect("a file");
    let helper = format!("cat {}", key.display());
    let server = script(&key);
    let run = trial(&server, folder.path()).args(["--api-key-helper", &helper]);
    let ended = run.args(stream).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    std::fs::remove_file(&key).expect("it is there");
    for text in written(folder.path()).iter().chain([&ended.stdout, &ended.stderr]) {
        assert!(!text.contains("printed-key"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_credential_is_not_reported_as_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = model("access-token-0");
    let run = trial(&server, folder.path()).args(["--api-key-helper", "exit 3"]).run().await;
    assert_eq!((run.code, server.requests().len()), (Some(77), 0), "{run:?}");
    for part in ["no credential could be obtained", "exit status: 3", "--api-key-helper"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("rejected"), "{}", run.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_file_that_is_a_pipe_without_a_writer_does_not_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = model("access-token-0");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
    let pipe = pipe.display().to_string();
    let run = trial(&server, folder.path()).args(["--max-duration", "1s", "--settings", &pipe]);
    let ended = run.run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a pipe without a writer"), "{ended:?}");
    assert_eq!(ended.result()["exit_code"], 2);
}
