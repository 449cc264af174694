//! A login that is renewed: when, by whom, and what is left on the disk.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use outlast::model::{
    ConnectionTerms, Credential, LoginFile, ModelClient, ModelService, Renewal, Transport,
};
use outlast::recovery::{ErrorClass, FailureStage, Fault, classify};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{Act, Server, answer, stream};
use super::{PATIENCE, STREAMING, ask, data, endpoint, recorded};
use crate::support::tokens::{TokenEndpoint, read_login, write_login};

/// A model that answers everyone, a token endpoint, and a login on the disk.
struct OauthFixture {
    model: Server,
    tokens: TokenEndpoint,
    folder: TempDir,
}

impl OauthFixture {
    /// With a login that ends after so many seconds.
    async fn with(seconds: i64) -> Self {
        let model = Server::answering(stream(&recorded("streams/text.sse"))).await;
        let (tokens, folder) =
            (TokenEndpoint::start().await, tempfile::tempdir().expect("a folder"));
        write_login(folder.path(), &tokens.login(seconds));
        Self { model, tokens, folder }
    }

    /// Changes members of the login. Those that become `null` are gone.
    fn change(self, members: Value) -> Self {
        let mut file = read_login(self.folder.path());
        let Value::Object(members) = members else { panic!("an object") };
        for (name, value) in members {
            file["claudeAiOauth"][name] = value;
        }
        write_login(self.folder.path(), &file);
        self
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(".credentials.json")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).expect("the login is never lost")
    }

    fn client(&self) -> ModelClient {
        self.client_by(|_| {})
    }

    fn client_by(&self, change: impl FnOnce(&mut LoginFile)) -> ModelClient {
        let mut file = LoginFile {
            limit: PATIENCE,
            lock_timeout: PATIENCE,
            ..LoginFile::within(self.folder.path())
        };
        change(&mut file);
        let endpoint = ModelService {
            credential: Credential::OAuth { file, login: None },
            ..endpoint(&self.model.url)
        };
        ModelClient::new(endpoint).expect("the endpoint is right")
    }

    /// The bearer token of each request to the model.
    fn sent(&self) -> Vec<String> {
        let token = |request: String| {
            let mut lines = request.lines();
            lines.find_map(|line| Some(line.strip_prefix("authorization: Bearer ")?.to_owned()))
        };
        self.model.requests().into_iter().filter_map(token).collect()
    }

    /// Asks, and fails for want of a token. The file must be as it was.
    async fn fails(&self) -> Fault {
        let before = self.text();
        let fault = ask(&self.client(), STREAMING).await.expect_err("there is no token");
        assert_eq!(self.text(), before);
        assert_eq!(fault.stage, FailureStage::Unsent);
        assert_eq!(self.model.connections(), 0);
        let shown = format!("{fault:?}");
        for secret in ["access-token", "refresh-token"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        let files = fs::read_dir(self.folder.path()).expect("it is there");
        let names: Vec<_> = files.flatten().map(|file| file.file_name()).collect();
        assert!(!names.contains(&".credentials.json.new".into()), "{names:?}");
        fault
    }
}

fn login(file: &Value) -> &Value {
    &file["claudeAiOauth"]
}

#[tokio::test]
async fn a_login_that_lasts_is_used_as_it_is() {
    let stage = OauthFixture::with(3600).await;
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-0"]);
    assert!(stage.tokens.requests().is_empty());
}

#[tokio::test]
async fn an_expired_login_is_renewed_before_anything_is_sent() {
    let stage = OauthFixture::with(-1).await;
    let client = stage.client();
    for _ in 0..2 {
        ask(&client, STREAMING).await.expect("a reply");
    }
    assert_eq!(stage.sent(), ["access-token-1", "access-token-1"]);
    let [request] = &stage.tokens.requests()[..] else { panic!("one grant") };
    assert!(request.starts_with("POST /token HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("content-type: application/x-www-form-urlencoded\r\n"), "{request}");
    let body = "grant_type=refresh_token&refresh_token=refresh-token-0&client_id=outlast-tests";
    assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");

    let file = read_login(stage.folder.path());
    assert_eq!(login(&file)["accessToken"], "access-token-1");
    assert_eq!(login(&file)["refreshToken"], "refresh-token-1");
    assert_eq!(login(&file)["scopes"], json!(["user:inference"]));
    assert_eq!(file["anotherProgram"], json!({ "keep": "this" }));
    let mode = fs::metadata(stage.path()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The expiry is stored for the next process.
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.tokens.requests().len(), 1);
    let end = login(&file)["expiresAt"].as_u64().expect("milliseconds");
    let lasts = stage.tokens.login(3600)["claudeAiOauth"]["expiresAt"].as_u64().expect("a number");
    assert!(end <= lasts && end + 60_000 > lasts, "{end} {lasts}");
}

#[tokio::test]
async fn a_login_without_a_token_fetches_one() {
    let stage = OauthFixture::with(3600).await.change(json!({ "accessToken": null }));
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-1"]);
}

#[tokio::test]
async fn a_login_near_its_end_is_renewed_ahead_of_time() {
    let stage = OauthFixture::with(30).await;
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-1"]);
}

#[tokio::test]
async fn a_renewal_ahead_of_time_may_fail_and_is_not_tried_with_every_request() {
    let stage = OauthFixture::with(30).await;
    stage.tokens.answer_with(503, "");
    let client = stage.client();
    for _ in 0..3 {
        ask(&client, STREAMING).await.expect("the token is still good");
    }
    assert_eq!(stage.sent(), ["access-token-0"; 3]);
    assert_eq!(stage.tokens.requests().len(), 1);
}

#[tokio::test]
async fn a_valid_token_is_used_without_waiting_for_another_process() {
    let stage = OauthFixture::with(30).await;
    let lock = File::create(stage.folder.path().join(".credentials.json.lock")).expect("a file");
    lock.lock().expect("it is free");
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-0"]);
    assert!(stage.tokens.requests().is_empty());
}

#[tokio::test]
async fn a_token_that_lives_shorter_than_the_margin_is_used_while_it_lives() {
    let stage = OauthFixture::with(-1).await;
    let short = json!({ "access_token": "access-token-x", "expires_in": "40" });
    stage.tokens.answer_with(200, &short.to_string());
    let client = stage.client();
    for _ in 0..2 {
        ask(&client, STREAMING).await.expect("a reply");
    }
    assert_eq!(stage.sent(), ["access-token-x"; 2]);
    assert_eq!(stage.tokens.requests().len(), 1);
    // An answer without a refresh token leaves the old one in force.
    let file = read_login(stage.folder.path());
    assert_eq!(login(&file)["refreshToken"], "refresh-token-0");
}

#[tokio::test]
async fn many_requests_at_once_renew_once() {
    let stage = OauthFixture::with(-1).await;
    let client = stage.client();
    // Each finds the token expired before any has another.
    let one = || ask(&client, STREAMING);
    let (first, second, third, fourth) = tokio::join!(one(), one(), one(), one());
    for result in [first, second, third, fourth] {
        result.expect("a reply");
    }
    assert_eq!(stage.tokens.requests().len(), 1);
    assert_eq!(stage.sent(), ["access-token-1"; 4]);
}

#[tokio::test]
async fn a_rejected_token_is_renewed_although_it_has_not_expired() {
    let mut stage = OauthFixture::with(3600).await;
    for status in [401, 403] {
        let body = br#"{"error":{"type":"permission_error","message":"OAuth token revoked"}}"#;
        stage.model = Server::answering(answer(status, "", body)).await;
        let client = stage.client();
        ask(&client, STREAMING).await.expect_err("rejected");
        assert_eq!(client.refresh().await, Renewal::Replaced);
        ask(&client, STREAMING).await.expect_err("rejected as well");
        let [first, second] = &stage.sent()[..] else { panic!("two requests") };
        assert_ne!(first, second);
    }
    assert_eq!(stage.tokens.requests().len(), 2);
}

#[tokio::test]
async fn what_another_process_has_renewed_is_used() {
    let stage = OauthFixture::with(3600).await;
    let client = stage.client();
    ask(&client, STREAMING).await.expect("a reply");
    let stage = stage.change(json!({ "accessToken": "access-token-other" }));
    assert_eq!(client.refresh().await, Renewal::Replaced);
    ask(&client, STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-0", "access-token-other"]);
    assert!(stage.tokens.requests().is_empty());
}

#[tokio::test]
async fn the_same_token_again_is_no_renewal() {
    let stage = OauthFixture::with(3600).await;
    stage.tokens.answer_with(200, r#"{"access_token":"access-token-0"}"#);
    let client = stage.client();
    ask(&client, STREAMING).await.expect("a reply");
    assert_eq!(client.refresh().await, Renewal::Unchanged);
}

#[tokio::test]
async fn a_refusal_is_final_quotes_no_token_and_is_not_provoked_twice() {
    let stage = OauthFixture::with(-1).await;
    let said = json!({
        "error": "invalid_grant",
        "error_description": "refresh-token-0 has expired\u{7}",
    });
    stage.tokens.answer_with(400, &said.to_string());
    let fault = stage.fails().await;
    assert_eq!(classify(&fault).class, ErrorClass::InvalidApiKey);
    let detail = fault.detail();
    assert!(detail.contains("(HTTP 400, invalid_grant: [redacted] has expired)"), "{detail}");
    assert!(detail.contains("log in again"), "{detail}");

    let client = stage.client();
    ask(&client, STREAMING).await.expect_err("refused");
    let asked = stage.tokens.requests().len();
    assert_eq!(client.refresh().await, Renewal::Failed(Box::new(fault)));
    assert_eq!(stage.tokens.requests().len(), asked);
    // A new login is tried.
    let stage = stage.change(json!({ "refreshToken": "refresh-token-new" }));
    let Renewal::Failed(_) = client.refresh().await else { panic!("it is refused too") };
    assert_eq!(stage.tokens.requests().len(), asked + 1);
}

#[tokio::test]
async fn each_failure_of_the_endpoint_has_its_class() {
    let cases = [
        (500, "", ErrorClass::ServerError, "said: "),
        (429, "", ErrorClass::RateLimit, "said: "),
        (200, "<html>log in</html>", ErrorClass::BadResponse, "not a JSON object"),
        (200, "[]", ErrorClass::BadResponse, "not a JSON object"),
        (200, "{}", ErrorClass::InvalidApiKey, "no usable access token"),
        (200, r#"{"access_token":"a\nb"}"#, ErrorClass::InvalidApiKey, "no usable access token"),
        (
            200,
            r#"{"access_token":"access-token-1","token_type":"mac"}"#,
            ErrorClass::InvalidApiKey,
            "not bearer tokens",
        ),
        (400, "nonsense", ErrorClass::InvalidApiKey, "(HTTP 400); check its address"),
        (404, "", ErrorClass::InvalidApiKey, "(HTTP 404); check its address"),
        (302, "", ErrorClass::InvalidApiKey, "(HTTP 302); check its address"),
        (403, "<html>log in</html>", ErrorClass::AuthError, "said: "),
        (
            400,
            r#"{"error":"temporarily_unavailable"}"#,
            ErrorClass::ServerError,
            "said: temporarily_unavailable",
        ),
        (401, r#"{"error":"invalid_client"}"#, ErrorClass::InvalidApiKey, "(HTTP 401, invalid_cl"),
    ];
    for (status, body, class, says) in cases {
        let stage = OauthFixture::with(-1).await;
        stage.tokens.answer_with(status, body);
        let fault = stage.fails().await;
        assert_eq!(classify(&fault).class, class, "{status} {body}");
        assert!(fault.detail().contains(says), "{says}: {}", fault.detail());
        assert!(fault.detail().contains("the token endpoint at 127.0.0.1:"), "{fault:?}");
        assert_eq!(stage.tokens.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_a_fault_of_the_connection() {
    let stage =
        OauthFixture::with(-1).await.change(json!({ "tokenEndpoint": "http://127.0.0.1:9/" }));
    let fault = stage.fails().await;
    assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
    assert!(fault.detail().contains("the token endpoint at 127.0.0.1:9"), "{fault:?}");
}

#[tokio::test]
async fn an_endpoint_that_hangs_or_breaks_off_is_given_up() {
    let hanging = vec![Act::Read, Act::Send(b"HTTP/1.1 200 OK\r\n".to_vec()), Act::Hang];
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"access_token\":\"acc";
    let torn = vec![Act::Read, Act::Send(half.to_vec())];
    for (script, limit, says) in [
        (hanging, Duration::from_millis(200), "did not answer within 0.2 s"),
        (torn, PATIENCE, "the token endpoint at"),
    ] {
        let endpoint = Server::start(vec![script]).await;
        let stage = OauthFixture::with(-1).await.change(json!({ "tokenEndpoint": endpoint.url }));
        let client = stage.client_by(|file| file.limit = limit);
        let fault = ask(&client, STREAMING).await.expect_err("no token");
        assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
        assert!(fault.detail().contains(says), "{fault:?}");
        assert_eq!(login(&read_login(stage.folder.path()))["refreshToken"], "refresh-token-0");
    }
}

#[tokio::test]
async fn an_endpoint_that_wants_json_gets_it() {
    let granted = br#"{"access_token":"access-token-j"}"#;
    let endpoint = Server::start(vec![
        vec![Act::Read, Act::Send(answer(415, "connection: close\r\n", b""))],
        vec![Act::Read, Act::Send(answer(200, "", granted))],
    ]);
    let endpoint = endpoint.await;
    let stage = OauthFixture::with(-1).await.change(json!({ "tokenEndpoint": endpoint.url }));
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-j"]);
    let requests = endpoint.requests();
    let (_, body) = requests[1].split_once("\r\n\r\n").expect("a body");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let wanted = json!({
        "grant_type": "refresh_token",
        "refresh_token": "refresh-token-0",
        "client_id": "outlast-tests",
    });
    assert_eq!(body, wanted);
}

#[tokio::test]
async fn a_lock_that_is_held_too_long_is_named() {
    let stage = OauthFixture::with(-1).await;
    let path = stage.folder.path().join(".credentials.json.lock");
    fs::write(&path, "4321\n").expect("a file can be written");
    let lock = File::open(&path).expect("it was just written");
    lock.lock().expect("it is free");
    let client = stage.client_by(|file| file.lock_timeout = Duration::from_millis(100));
    let fault = ask(&client, STREAMING).await.expect_err("another process refreshes the token");
    assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
    for part in ["by process 4321", ".credentials.json.lock for 0.1 s"] {
        assert!(fault.detail().contains(part), "{fault:?}");
    }
    // A program that another test starts just now has a copy of the descriptor.
    lock.unlock().expect("it is held");
    ask(&client, STREAMING).await.expect("a reply");
    assert_eq!(fs::read_to_string(&path).expect("it stays"), format!("{}\n", std::process::id()));
}

#[tokio::test]
async fn no_token_is_spent_that_could_not_be_replaced() {
    let stage = OauthFixture::with(-1).await;
    fs::create_dir(stage.folder.path().join(".credentials.json.new")).expect("a new folder");
    let fault = ask(&stage.client(), STREAMING).await.expect_err("there is no room");
    assert_eq!(classify(&fault).class, ErrorClass::InvalidApiKey);
    assert!(fault.detail().contains("is not renewed"), "{fault:?}");
    assert!(stage.tokens.requests().is_empty());
}

#[tokio::test]
async fn a_login_that_was_written_but_not_put_in_place_is_found_again() {
    let stage = OauthFixture::with(-1).await;
    let new = stage.folder.path().join(".credentials.json.new");
    let mut file = stage.tokens.login(3600);
    file["claudeAiOauth"]["accessToken"] = json!("access-token-saved");
    // Blanks are what room was made with.
    fs::write(&new, format!("{file}      ")).expect("a file can be written");
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-saved"]);
    assert!(stage.tokens.requests().is_empty());
    assert_eq!(login(&read_login(stage.folder.path()))["accessToken"], "access-token-saved");
}

#[tokio::test]
async fn a_login_that_was_cut_off_while_it_was_overwritten_is_found_again() {
    let stage = OauthFixture::with(-1).await;
    let new = stage.folder.path().join(".credentials.json.new");
    fs::write(&new, stage.text()).expect("a file can be written");
    fs::write(stage.path(), &stage.text()[..40]).expect("a file can be written");
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-1"]);
    assert_eq!(login(&read_login(stage.folder.path()))["refreshToken"], "refresh-token-1");
}

#[tokio::test]
async fn an_older_replacement_of_a_broken_login_is_restored_with_everything_in_it() {
    let stage = OauthFixture::with(-1).await;
    let new = stage.folder.path().join(".credentials.json.new");
    fs::write(&new, stage.text()).expect("a file can be written");
    fs::write(stage.path(), &stage.text()[..40]).expect("a file can be written");
    let broken = fs::metadata(stage.path()).and_then(|it| it.modified()).expect("a time");
    let earlier = broken - Duration::from_secs(1);
    File::options().write(true).open(&new).and_then(|it| it.set_modified(earlier)).expect("ours");
    ask(&stage.client(), STREAMING).await.expect("a reply");
    assert_eq!(stage.sent(), ["access-token-1"]);
    let file = read_login(stage.folder.path());
    assert_eq!(login(&file)["scopes"], json!(["user:inference"]));
    assert_eq!(file["anotherProgram"], json!({ "keep": "this" }));
}

#[tokio::test]
async fn truncated_and_outdated_files_are_not_taken_for_a_login() {
    let overtaken = OauthFixture::with(-1).await;
    let new = overtaken.folder.path().join(".credentials.json.new");
    fs::write(&new, overtaken.text().replace("access-token-0", "overtaken")).expect("a file");
    let before = fs::metadata(overtaken.path()).and_then(|it| it.modified()).expect("a time");
    let earlier = before - Duration::from_secs(1);
    File::options().write(true).open(&new).and_then(|it| it.set_modified(earlier)).expect("ours");
    let torn = OauthFixture::with(-1).await;
    let half = torn.text()[..40].to_owned();
    fs::write(torn.folder.path().join(".credentials.json.new"), half).expect("a file");
    for stage in [overtaken, torn] {
        ask(&stage.client(), STREAMING).await.expect("a reply");
        assert_eq!(stage.sent(), ["access-token-1"]);
    }
}

#[tokio::test]
async fn a_login_behind_a_link_is_renewed_where_it_is() {
    let stage = OauthFixture::with(-1).await;
    let other = tempfile::tempdir().expect("a folder");
    let link = other.path().join(".credentials.json");
    symlink(stage.path(), &link).expect("a new link");
    let client = stage.client_by(|file| file.path = link.clone());
    ask(&client, STREAMING).await.expect("a reply");
    assert!(link.is_symlink());
    assert_eq!(login(&read_login(stage.folder.path()))["accessToken"], "access-token-1");
}

#[tokio::test]
async fn a_cancelled_request_does_not_abort_a_token_refresh() {
    let stage = OauthFixture::with(-1).await;
    stage.tokens.hold();
    let client = stage.client();
    tokio::select! {
        biased;
        _ = ask(&client, STREAMING) => panic!("nothing is answered"),
        () = stage.tokens.wait_for_requests(1) => {}
    }
    // The request was sent, and its caller has been cancelled.
    stage.tokens.release();
    client.finish_renewal(PATIENCE).await;
    assert_eq!(login(&read_login(stage.folder.path()))["refreshToken"], "refresh-token-1");
}

#[tokio::test]
async fn a_token_that_cannot_be_refreshed_is_sent_unchanged() {
    let cases = [
        (json!({ "refreshToken": null }), "holds no refresh token"),
        (json!({ "tokenEndpoint": null }), "OUTLAST_OAUTH_ENDPOINT"),
        (json!({ "tokenEndpoint": "http://example.com/token" }), "not an https:// address"),
    ];
    for (change, says) in cases {
        let stage = OauthFixture::with(-1).await.change(change);
        let client = stage.client();
        ask(&client, STREAMING).await.expect("this service does not care");
        assert_eq!(stage.sent(), ["access-token-0"]);
        let Renewal::Failed(fault) = client.refresh().await else { panic!("{says}") };
        assert_eq!(classify(&fault).class, ErrorClass::InvalidApiKey);
        assert!(fault.detail().contains(says), "{fault:?}");
        assert!(stage.tokens.requests().is_empty());
    }
}

#[tokio::test]
async fn the_settings_outrank_the_file() {
    let stage =
        OauthFixture::with(-1).await.change(json!({ "tokenEndpoint": "http://127.0.0.1:9/" }));
    let client = stage.client_by(|file| {
        file.token_endpoint = Some(stage.tokens.url.clone());
        file.client_id = Some("a&b".to_owned());
    });
    ask(&client, STREAMING).await.expect("a reply");
    assert!(stage.tokens.requests()[0].ends_with("&client_id=a%26b"));
}

#[tokio::test]
async fn the_token_endpoint_is_trusted_by_the_same_authorities() {
    let (url, serving) = super::certificates::serve_once(answer(
        200,
        "connection: close\r\n",
        br#"{"access_token":"access-token-tls"}"#,
    ));
    let stage = OauthFixture::with(-1).await.change(json!({ "tokenEndpoint": url }));
    let file = LoginFile::within(stage.folder.path());
    let endpoint = ModelService {
        credential: Credential::OAuth { file, login: None },
        connection: ConnectionTerms {
            ca_files: vec![data("tls/authority.pem").into()],
            ..ConnectionTerms::default()
        },
        ..endpoint(&stage.model.url)
    };
    let client = ModelClient::new(endpoint).expect("the endpoint is right");
    ask(&client, STREAMING).await.expect("a reply");
    serving.join().expect("the server ended well");
    assert_eq!(stage.sent(), ["access-token-tls"]);
}

#[test]
fn a_broken_login_file_is_described_and_never_quoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = LoginFile::within(folder.path());
    assert_eq!(file.read().expect("no file is no login"), None);
    for nothing in ["", " \n", "{}", r#"{"claudeAiOauth":null}"#, r#"{"claudeAiOauth":{}}"#] {
        fs::write(&file.path, nothing).expect("a file");
        assert_eq!(file.read().expect("no login"), None, "{nothing}");
    }
    let cases = [
        ("{\n\"claudeAiOauth\": \"top-secret\n", "line 2, column"),
        ("[\"top-secret\"]", "line 1, column 1"),
        ("\"top-secret\"", "line 1, column 1"),
        (r#"{"claudeAiOauth":"top-secret"}"#, "\"claudeAiOauth\" is not an object"),
        (r#"{"claudeAiOauth":{"accessToken":["top-secret"]}}"#, "\"accessToken\" is not a text"),
        (r#"{"claudeAiOauth":{"accessToken":"top-secret\n\nx"}}"#, "\"accessToken\" is not plain"),
        (
            r#"{"claudeAiOauth":{"accessToken":"a","expiresAt":"top-secret"}}"#,
            "\"expiresAt\" is not a number of milliseconds since 1970",
        ),
        (r#"{"claudeAiOauth":{"accessToken":"a","expiresAt":-1}}"#, "\"expiresAt\" is not"),
        (r#"{"claudeAiOauth":{"accessToken":"a","expiresAt":1e300}}"#, "\"expiresAt\" is not"),
    ];
    for (text, says) in cases {
        fs::write(&file.path, text).expect("a file");
        let error = file.read().expect_err("it makes no sense").to_string();
        assert!(error.contains(says) && error.contains(".credentials.json"), "{error}");
        assert!(!error.contains("top-secret"), "{error}");
    }
    let login = r#"{"claudeAiOauth":{"accessToken":"top-secret","refreshToken":"secret-too"}}"#;
    fs::write(&file.path, login).expect("a file");
    let login = file.read().expect("it is whole").expect("a login");
    assert!(!format!("{login:?}").contains("secret"), "{login:?}");
}
