//! `outlast mcp login`, `logout` and `list`, with a user who is at a terminal and has a browser.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use outlast::mcp::{LoginFolder, LoginState};
use reqwest::Url;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::authority::{Authority, CLIENT_ID, CLIENT_SECRET, access_token, refresh_token};
use super::{entry, login_path, saved, servers, temporary};
use crate::support::terminal::open_terminal;
use crate::support::wire::dead_end;
use crate::support::with_time_limit;

/// The output of a login, and its exit code.
#[derive(Debug)]
struct EndedLogin {
    code: Option<i32>,
    printed: String,
    terminal: String,
}

fn outlast(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    command.current_dir(folder).args(words).env_clear().kill_on_drop(true);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", folder).env("OUTLAST_CONFIG_DIR", folder).stdin(Stdio::null());
    command
}

/// A folder of settings with a server.
fn settings(entry: &Value) -> TempDir {
    let folder = temporary();
    let settings = json!({ "mcpServers": { "test": entry } }).to_string();
    fs::write(folder.path().join("settings.json"), settings).expect("it can be written");
    folder
}

/// Logs in at a terminal. `browse` is what the user does with the page, whose address it gets.
async fn log_in(mut command: Command, browse: impl AsyncFn(Url)) -> EndedLogin {
    let (terminal, screen) = open_terminal(0, 0);
    command.stdin(terminal.try_clone().expect("a second handle")).stderr(terminal);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("outlast starts");
    // Its copies of the terminal must not keep the screen open.
    drop(command);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut printed = String::new();
    while let Some(line) = with_time_limit("a line", lines.next_line()).await.expect("text") {
        printed.extend([&*line, "\n"]);
        if let Some(page) = line.strip_prefix("  http") {
            browse(Url::parse(&format!("http{page}")).expect("an address")).await;
        }
    }
    let code = with_time_limit("the end", child.wait()).await.expect("it ends").code();
    EndedLogin { code, printed, terminal: screen.join().expect("it ends") }
}

fn parameter(page: &Url, name: &str) -> String {
    let mut pairs = page.query_pairs();
    let found = pairs.find(|(key, _)| key == name);
    found.unwrap_or_else(|| panic!("no {name} in {page}")).1.into_owned()
}

/// Comes back to outlast, as the authorization server has the browser do. Returns the answer.
async fn come_back(page: &Url, pairs: &[(&str, &str)]) -> String {
    let mut target = Url::parse(&parameter(page, "redirect_uri")).expect("an address");
    target.query_pairs_mut().extend_pairs(pairs);
    let port = target.port().expect("a port");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("outlast listens");
    let line = format!("GET {}?{} HTTP/1.1\r\n", target.path(), target.query().unwrap_or_default());
    socket.write_all(format!("{line}host: localhost\r\n\r\n").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    answer
}

async fn agree(page: Url) {
    let state = parameter(&page, "state");
    let answer =
        come_back(&page, &[("code", "the-code-of-the-login"), ("state", state.as_str())]).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("close this page"), "{answer}");
}

#[tokio::test]
async fn a_login_in_the_browser_serves_the_runs_that_follow() {
    let authority = Authority::start().await;
    let folder = settings(&entry(&authority, &json!({})));
    let ended = log_in(outlast(folder.path(), &["mcp", "login", "test"]), async |page: Url| {
        assert_eq!(page.path(), "/authorize");
        assert_eq!(parameter(&page, "code_challenge_method"), "S256");
        assert_eq!(parameter(&page, "resource"), authority.server_url());
        assert_eq!(parameter(&page, "client_id"), CLIENT_ID, "it was registered");
        // Another page of the browser, or of an attacker, changes nothing.
        let stray = come_back(&page, &[("code", "x"), ("state", "y")]).await;
        assert!(stray.starts_with("HTTP/1.1 404"), "{stray}");
        agree(page).await;
    })
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.printed.contains("Logged in at test"), "{ended:?}");
    for secret in [access_token(1), refresh_token(1), "the-code-of-the-login".to_owned()] {
        assert!(!format!("{ended:?}").contains(&secret), "{ended:?}");
    }
    let tokens = &saved(&authority, folder.path())["credentials"]["token_response"];
    assert_eq!(tokens["refresh_token"], refresh_token(1));
    let run = servers(&entry(&authority, &json!({})), folder.path());
    with_time_limit("a run", run.wait_until_connected(&[])).await.expect("it connects");
    let listed = outlast(folder.path(), &["mcp", "list"]).output().await.expect("it runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.starts_with("test: http://127.0.0.1") && listed.ends_with("[http, logged in]\n"),
        "{listed}"
    );

    let out = outlast(folder.path(), &["mcp", "logout", "test"]).output().await.expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let state = LoginFolder::within(folder.path()).state("test", &authority.server_url());
    assert_eq!(state, LoginState::None);
    let again = outlast(folder.path(), &["mcp", "logout", "test"]).output().await.expect("it runs");
    assert_eq!(again.status.code(), Some(1), "{again:?}");
}

#[tokio::test]
async fn the_next_login_asks_for_the_scope_that_a_run_lacked() {
    let authority = Authority::start().await;
    let folder = settings(&entry(&authority, &json!({})));
    super::save_login(&authority, folder.path(), 0);
    let mut login = saved(&authority, folder.path());
    login["wanted_scope"] = "write".into();
    fs::write(login_path(&authority, folder.path()), login.to_string()).expect("written");
    let ended = log_in(outlast(folder.path(), &["mcp", "login", "test"]), async |page: Url| {
        assert_eq!(parameter(&page, "scope"), "base write");
        agree(page).await;
    })
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn a_client_that_was_registered_before_keeps_its_secret_and_port() {
    let authority = Authority::start().await;
    let (_reserved, address) = dead_end();
    let oauth = json!({ "clientId": "of-the-company", "callbackPort": address.port() });
    let folder = settings(&entry(&authority, &oauth));
    let mut command = outlast(folder.path(), &["mcp", "login", "test"]);
    command.env("MCP_CLIENT_SECRET", CLIENT_SECRET);
    let ended = log_in(command, async |page: Url| {
        assert_eq!(parameter(&page, "client_id"), "of-the-company");
        let back = parameter(&page, "redirect_uri");
        assert_eq!(back, format!("http://localhost:{}/callback", oauth["callbackPort"]));
        agree(page).await;
    })
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let [request] = &authority.token_requests()[..] else { panic!("{:?}", authority.log()) };
    assert!(request.contains(CLIENT_SECRET), "{request}");
    assert_eq!(saved(&authority, folder.path())["client_secret"], CLIENT_SECRET);
    assert!(
        !authority.log().iter().any(|line| line.contains("/register")),
        "{:?}",
        authority.log()
    );
}

#[tokio::test]
async fn a_refused_or_forgotten_login_changes_nothing() {
    let authority = Authority::start().await;
    let folder = settings(&entry(&authority, &json!({})));
    super::save_login(&authority, folder.path(), 0);
    let refused = log_in(outlast(folder.path(), &["mcp", "login", "test"]), async |page: Url| {
        let state = parameter(&page, "state");
        let error = [("error", "access_denied"), ("error_description", "no"), ("state", &*state)];
        come_back(&page, &error).await;
    })
    .await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.terminal.contains("the login was refused (access_denied: no)"), "{refused:?}");
    let words = ["mcp", "login", "test", "--wait", "10ms"];
    let forgotten = log_in(outlast(folder.path(), &words), async |_| {}).await;
    assert_eq!(forgotten.code, Some(1), "{forgotten:?}");
    assert!(forgotten.terminal.contains("the browser did not come back within"), "{forgotten:?}");
    let tokens = &saved(&authority, folder.path())["credentials"]["token_response"];
    assert_eq!(tokens["refresh_token"], refresh_token(1), "the former login is kept");
}

#[tokio::test]
async fn a_login_by_a_code_needs_no_browser_on_this_machine() {
    let authority = Authority::start().await;
    let folder = settings(&entry(&authority, &json!({})));
    let words = ["mcp", "login", "test", "--device"];
    let ended = log_in(outlast(folder.path(), &words), async |page: Url| {
        assert_eq!(page.path(), "/device-page");
    })
    .await;
    assert_eq!(ended.code, Some(0), "{ended:?} {:?}", authority.log());
    assert!(ended.printed.contains("the code WDJB-MJHT"), "{ended:?}");
    let tokens = &saved(&authority, folder.path())["credentials"]["token_response"];
    assert_eq!(tokens["access_token"], access_token(1));
}

#[tokio::test]
async fn a_login_without_a_terminal_or_at_no_such_server_says_what_to_do() {
    let authority = Authority::start().await;
    let mut with_token = entry(&authority, &Value::Null);
    with_token["headers"] = json!({ "Authorization": "Bearer x" });
    let table = [
        (entry(&authority, &Value::Null), "test", "needs a person at a terminal"),
        (
            entry(&authority, &Value::Null),
            "other",
            "no MCP server is named \"other\" (there are: test)",
        ),
        (with_token, "test", "gets its token from its \"headers\""),
        (json!({ "command": "true" }), "test", "has no \"url\""),
    ];
    for (entry, name, wanted) in table {
        let folder = settings(&entry);
        let ended =
            outlast(folder.path(), &["mcp", "login", name]).output().await.expect("it runs");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(stderr.contains(wanted) && stderr.lines().count() == 1, "{stderr}");
    }
    assert_eq!(authority.log(), Vec::<String>::new());
}

#[tokio::test]
async fn the_list_takes_flags_of_a_run_and_asks_no_server() {
    let authority = Authority::start().await;
    let folder = temporary();
    let client = entry(&authority, &json!({ "clientId": "c", "clientSecret": "s" }));
    let config = json!({ "mcpServers": {
        "a": client, "b": entry(&authority, &Value::Null), "c": { "command": "true" },
    } });
    let words = ["mcp", "list", "--", "--mcp-config", &config.to_string()];
    let ended = outlast(folder.path(), &words).output().await.expect("it runs");
    let listed = String::from_utf8_lossy(&ended.stdout).into_owned();
    let states: Vec<&str> =
        listed.lines().filter_map(|line| line.split_once(") ")).map(|it| it.1).collect();
    assert_eq!(states, ["[http, logs in as a client]", "[http, no login]", "[stdio]"], "{ended:?}");
    assert_eq!(authority.log(), Vec::<String>::new());
}
