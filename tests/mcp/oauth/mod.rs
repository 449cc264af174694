//! Servers that want an OAuth login, in runs without a person.

mod authority;
mod logins;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast::mcp::{LoginFolder, LoginState, ServerConfig, ServerStatus, Servers};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::runs::{calls, succeeded};
use super::{McpFixture, long_timers, server_environment, unavailable_reason, words};
use crate::support::scratch::write_file;
use crate::support::{RunBuilder, serve, with_time_limit};
use authority::{Authority, CLIENT_ID, CLIENT_SECRET, METADATA_PATH, access_token, refresh_token};

fn entry(authority: &Authority, oauth: &Value) -> Value {
    json!({ "type": "http", "url": authority.server_url(), "oauth": oauth })
}

fn client_entry(authority: &Authority) -> Value {
    entry(authority, &json!({ "clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET }))
}

/// The server of an entry, with its logins in that folder.
fn fixture(entry: &Value, folder: TempDir) -> McpFixture {
    let servers = servers(entry, folder.path());
    McpFixture { servers, folder }
}

fn servers(entry: &Value, folder: &Path) -> Servers {
    let (config, _) = ServerConfig::parse("test", entry, &|_| None).expect("a valid entry");
    let servers = Servers::new(vec![config], server_environment(folder), long_timers());
    servers.start();
    servers
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a folder can be made")
}

fn login_path(authority: &Authority, folder: &Path) -> PathBuf {
    let path = LoginFolder::within(folder).path("test", &authority.server_url());
    path.expect("the address is one")
}

fn saved(authority: &Authority, folder: &Path) -> Value {
    let text = fs::read(login_path(authority, folder)).expect("it can be read");
    serde_json::from_slice(&text).expect("it is whole")
}

/// Saves a login as `outlast mcp login` does, whose token was given so many seconds ago.
fn save_login(authority: &Authority, folder: &Path, age: u64) {
    let tokens = authority.log_in();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    let login = json!({
        "version": 1, "server": "test", "url": authority.server_url(), "grant": "login",
        "credentials": {
            "client_id": CLIENT_ID, "token_response": tokens, "granted_scopes": ["base"],
            "token_received_at": now.as_secs() - age, "issuer": authority.url,
        },
    });
    write_file(&login_path(authority, folder), login.to_string());
}

/// The server that a login was saved for, and its folder.
fn logged_in(authority: &Authority, age: u64) -> McpFixture {
    let folder = temporary();
    save_login(authority, folder.path(), age);
    fixture(&entry(authority, &json!({})), folder)
}

#[tokio::test]
async fn a_client_with_a_secret_gets_a_token_without_a_person() {
    let authority = Authority::start().await;
    let bench = fixture(&client_entry(&authority), temporary()).ready().await;
    assert!(words(&bench.call("echo", "hi").await).contains("echo: \"hi\""));
    let [request] = &authority.token_requests()[..] else { panic!("{:?}", authority.log()) };
    for part in ["grant_type=client_credentials", "client_secret=", "resource=http"] {
        assert!(request.contains(part), "{part}: {request}");
    }
    let path = login_path(&authority, bench.folder.path());
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    // The next run has the same token.
    let next = servers(&client_entry(&authority), bench.folder.path());
    with_time_limit("the next run", next.wait_until_connected(&[])).await.expect("it connects");
    assert_eq!(authority.token_requests().len(), 1, "{:?}", authority.log());
}

#[tokio::test]
async fn authorization_servers_that_differ_from_the_protocol_in_form_are_understood() {
    let authority = Authority::start().await;
    authority.grants().is_sloppy = true;
    let bench = fixture(&client_entry(&authority), temporary()).ready().await;
    assert!(words(&bench.call("echo", "hi").await).contains("echo: \"hi\""));
    let tokens = &saved(&authority, bench.folder.path())["credentials"]["token_response"];
    assert_eq!(tokens["expires_in"], 3600);
}

#[tokio::test]
async fn the_protocol_without_a_handshake_is_used_where_a_server_offers_it() {
    for is_stateless in [true, false] {
        let authority = Authority::start().await;
        authority.grants().is_stateless = is_stateless;
        let bench = logged_in(&authority, 0).ready().await;
        assert!(words(&bench.call("echo", "hi").await).contains("echo"));
        let log = authority.log();
        assert!(log[0].contains("server/discover"), "{log:?}");
        let has_handshake = log.iter().any(|line| line.contains("\"initialize\""));
        assert_eq!(has_handshake, !is_stateless, "{log:?}");
    }
}

#[tokio::test]
async fn the_metadata_of_the_entry_take_the_place_of_what_would_be_discovered() {
    let authority = Authority::start().await;
    authority.grants().wrong_issuer = Some("https://issuer.example".to_owned());
    let address = format!("{}{METADATA_PATH}", authority.url);
    let client = json!({ "clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET,
        "authServerMetadataUrl": address });
    let bench = fixture(&entry(&authority, &client), temporary()).ready().await;
    assert!(words(&bench.call("echo", "hi").await).contains("echo"));
    let log = authority.log();
    let reads = |path: &str| log.iter().any(|line| line.starts_with(&format!("GET {path} ")));
    assert!(
        reads(METADATA_PATH) && !log.iter().any(|line| line.contains("/.well-known")),
        "{log:?}"
    );
    // What is discovered would not do.
    let bench = fixture(&client_entry(&authority), temporary());
    bench.wait_for_status(ServerStatus::NeedsAuth).await;
}

#[tokio::test]
async fn a_client_that_gets_no_token_is_told_by_whom_and_why() {
    // A sloppy server takes the secret of the second request, and refuses for another reason.
    for (is_sloppy, status, error) in [(false, 401, "invalid_client"), (true, 400, "invalid_scope")]
    {
        let authority = Authority::start().await;
        authority.grants().is_sloppy = is_sloppy;
        authority.grants().refusal = Some((status, error));
        let bench = fixture(&client_entry(&authority), temporary());
        bench.wait_for_status(ServerStatus::NeedsAuth).await;
        let why = unavailable_reason(&bench);
        assert!(why.contains("gives the client no token") && why.contains(error), "{why}");
    }
}

#[tokio::test]
async fn a_saved_login_that_has_ended_is_renewed_before_it_is_sent() {
    let authority = Authority::start().await;
    let bench = logged_in(&authority, 3600).ready().await;
    let log = authority.log();
    assert!(!log.iter().any(|line| line.contains("/mcp access-token-1")), "{log:?}");
    assert_eq!(authority.token_requests().len(), 1, "{log:?}");
    let tokens = &saved(&authority, bench.folder.path())["credentials"]["token_response"];
    assert_eq!(tokens["access_token"], access_token(2));
    assert_eq!(tokens["refresh_token"], refresh_token(2), "the old one is spent");
    let path = login_path(&authority, bench.folder.path());
    let mode = fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let left: Vec<_> = fs::read_dir(path.parent().expect("a folder")).expect("a list").collect();
    assert_eq!(left.len(), 2, "the login and its lock: {left:?}");
}

#[tokio::test]
async fn a_login_that_ends_soon_is_renewed_in_time_and_not_before() {
    let authority = Authority::start().await;
    let young = logged_in(&authority, 3500).ready().await;
    assert_eq!(authority.token_requests().len(), 0, "it has 100 s left");
    drop(young);
    logged_in(&authority, 3550).ready().await;
    assert_eq!(authority.token_requests().len(), 1, "it has 50 s left");
}

#[tokio::test]
async fn an_early_renewal_that_fails_leaves_the_token_in_use() {
    let authority = Authority::start().await;
    authority.grants().refusal = Some((503, "temporarily_unavailable"));
    let bench = logged_in(&authority, 3550).ready().await;
    let before = authority.token_requests().len();
    assert!(before > 0, "{:?}", authority.log());
    assert!(words(&bench.call("echo", "hi").await).contains("echo"));
    assert_eq!(authority.token_requests().len(), before, "not with every request");
}

#[tokio::test]
async fn a_token_that_is_rejected_in_mid_run_is_renewed_and_the_call_repeated() {
    for is_client in [true, false] {
        let authority = Authority::start().await;
        let bench = if is_client {
            fixture(&client_entry(&authority), temporary())
        } else {
            logged_in(&authority, 0)
        };
        let bench = bench.ready().await;
        let before = authority.token_requests().len();
        authority.revoke();
        assert!(words(&bench.call("echo", "hi").await).contains("echo"));
        assert_eq!(authority.token_requests().len(), before + 1, "{:?}", authority.log());
        assert!(words(&bench.call("echo", "hi").await).contains("echo"));
        assert_eq!(authority.token_requests().len(), before + 1, "{:?}", authority.log());
    }
}

#[tokio::test]
async fn a_refused_renewal_says_that_a_person_must_log_in_and_is_not_repeated() {
    let authority = Authority::start().await;
    authority.grants().refusal = Some((400, "invalid_grant"));
    let bench = logged_in(&authority, 3600);
    bench.wait_for_status(ServerStatus::NeedsAuth).await;
    let why = unavailable_reason(&bench);
    assert!(why.contains("refuses to renew the login"), "{why}");
    let warnings = bench.servers.take_warnings().join("\n");
    assert!(warnings.contains("run `outlast mcp login test`"), "{warnings}");
    assert_eq!(authority.token_requests().len(), 1, "{:?}", authority.log());
    let tokens = &saved(&authority, bench.folder.path())["credentials"]["token_response"];
    assert_eq!(tokens["refresh_token"], refresh_token(1), "the login is kept");
}

#[tokio::test]
async fn an_authorization_server_that_is_down_is_asked_again() {
    let authority = Authority::start().await;
    authority.grants().refusal = Some((503, "temporarily_unavailable"));
    let bench = logged_in(&authority, 3600);
    with_time_limit("an attempt", bench.servers.wait_for_starts(Duration::from_mins(1))).await;
    assert_eq!(bench.servers.reports()[0].status, ServerStatus::Pending);
    let why = unavailable_reason(&bench);
    assert!(why.contains("its authorization server") && why.contains("503"), "{why}");
    authority.grants().refusal = None;
    bench.ready().await;
}

#[tokio::test]
async fn two_runs_renew_a_login_once() {
    let authority = Authority::start().await;
    let folder = temporary();
    save_login(&authority, folder.path(), 3600);
    authority.hold();
    let entry = entry(&authority, &json!({}));
    let runs = [servers(&entry, folder.path()), servers(&entry, folder.path())];
    authority.wait_for("POST /token").await;
    authority.release();
    for run in &runs {
        with_time_limit("a run", run.wait_until_connected(&[])).await.expect("it connects");
    }
    assert_eq!(authority.token_requests().len(), 1, "{:?}", authority.log());
}

#[tokio::test]
async fn metadata_of_another_issuer_get_no_secret() {
    let authority = Authority::start().await;
    authority.grants().wrong_issuer = Some("https://elsewhere.example".to_owned());
    for bench in [logged_in(&authority, 3600), fixture(&client_entry(&authority), temporary())] {
        bench.wait_for_status(ServerStatus::NeedsAuth).await;
        let why = unavailable_reason(&bench);
        assert!(why.contains("https://elsewhere.example"), "{why}");
    }
    assert_eq!(authority.token_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_login_is_not_sent_to_another_authorization_server_or_address() {
    let (authority, other) = (Authority::start().await, Authority::start().await);
    let folder = temporary();
    save_login(&authority, folder.path(), 3600);
    let mut login = saved(&authority, folder.path());
    login["credentials"]["issuer"] = json!(other.url);
    fs::write(login_path(&authority, folder.path()), login.to_string()).expect("written");
    let bench = fixture(&entry(&authority, &json!({})), folder);
    bench.wait_for_status(ServerStatus::NeedsAuth).await;
    let why = unavailable_reason(&bench);
    assert!(why.contains("are not sent to another one"), "{why}");
    assert_eq!(authority.token_requests(), Vec::<String>::new());
    // A server of the same name elsewhere has no login.
    let moved = fixture(&entry(&other, &json!({})), bench.folder);
    moved.wait_for_status(ServerStatus::NeedsAuth).await;
    let why = unavailable_reason(&moved);
    assert!(why.contains("it requires an OAuth login"), "{why}");
    assert!(!other.log().iter().any(|line| line.contains("-token-")), "{:?}", other.log());
}

#[tokio::test]
async fn a_demanded_scope_is_asked_for_or_left_to_a_person() {
    let authority = Authority::start().await;
    authority.grants().demanded = Some("write");
    let client = fixture(&client_entry(&authority), temporary()).ready().await;
    assert!(words(&client.call("echo", "hi").await).contains("echo"), "{:?}", authority.log());
    let bench = logged_in(&authority, 0).ready().await;
    let told = words(&bench.call("echo", "hi").await);
    assert!(told.contains("demands the scope \"write\""), "{told}");
    let login = saved(&authority, bench.folder.path());
    assert_eq!(login["wanted_scope"], "write", "for the next login");
    let news = bench.servers.take_warnings().join("\n");
    assert!(news.contains("mcp login test"), "{news}");
    authority.grants().demanded = None;
    assert!(words(&bench.call("echo", "hi").await).contains("echo"), "it is still connected");
    assert_eq!(login["credentials"]["token_response"]["refresh_token"], authority.newest_refresh());
}

#[tokio::test]
async fn a_login_that_has_no_refresh_token_is_used_while_it_lasts() {
    let authority = Authority::start().await;
    let folder = temporary();
    save_login(&authority, folder.path(), 0);
    let mut login = saved(&authority, folder.path());
    login["credentials"]["token_response"]
        .as_object_mut()
        .expect("an object")
        .remove("refresh_token");
    fs::write(login_path(&authority, folder.path()), login.to_string()).expect("written");
    let state = LoginFolder::within(folder.path()).state("test", &authority.server_url());
    assert!(
        matches!(state, LoginState::LoggedIn { ends: Some(_), is_renewable: false }),
        "{state:?}"
    );
    let bench = fixture(&entry(&authority, &json!({})), folder).ready().await;
    authority.revoke();
    let told = words(&bench.call("echo", "hi").await);
    assert!(told.contains("came without a refresh token"), "{told}");
}

#[tokio::test]
async fn a_damaged_login_is_named() {
    let authority = Authority::start().await;
    let folder = temporary();
    save_login(&authority, folder.path(), 0);
    fs::write(login_path(&authority, folder.path()), "{\"version\": 1,").expect("written");
    let bench = fixture(&entry(&authority, &json!({})), folder);
    bench.wait_for_status(ServerStatus::NeedsAuth).await;
    let why = unavailable_reason(&bench);
    assert!(why.contains("mcp-logins/test-") && why.contains("cannot be read"), "{why}");
}

#[tokio::test]
async fn tokens_appear_in_no_output_journal_or_log() {
    let authority = Authority::start().await;
    let server = serve(calls("echo", "hello"));
    let config = json!({ "mcpServers": { "test": client_entry(&authority) } }).to_string();
    let work = temporary();
    let debug = work.path().join("debug.log").display().to_string();
    let ended = RunBuilder::against(&server)
        .args(["go", "--output-format", "stream-json", "--debug-file", &debug])
        .args(["--debug=trace", "--mcp-config", &config, "--permission-mode", "bypassPermissions"])
        .env("MCP_TIMEOUT", "120000")
        .run()
        .await;
    succeeded(&ended);
    let log = fs::read_to_string(&debug).expect("a log");
    assert!(log.contains("rmcp"), "the log has no line of the library");
    let requests: Vec<Value> = server.requests().into_iter().map(|it| it.body).collect();
    let journal = all_files(&ended.config());
    for text in [&ended.stdout, &ended.stderr, &log, &json!(requests).to_string(), &journal] {
        for secret in [&*access_token(1), CLIENT_SECRET] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

/// The text of all files of a folder but logins.
fn all_files(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("mcp-logins") {
            text += &all_files(&path);
        } else if path.is_file() {
            text += &String::from_utf8_lossy(&fs::read(&path).expect("it can be read"));
        }
    }
    text
}
