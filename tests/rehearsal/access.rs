//! Access tokens that expire, and the endpoint that renews them.

use outlast_rehearsal::{
    AfterLast, Expectation, RehearsalServer, Scenario, ServerRules, TokenGrants, TokenRules,
};
use outlast_rehearsal::{ObservedOutcome, ScratchFolder};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::client::{Response, ask, connect, parse, read_all, respond_to, start};

fn serve(change: impl FnOnce(&mut TokenRules)) -> RehearsalServer {
    start(logins(change))
}

/// A scenario with access tokens that expire after two requests.
fn logins(change: impl FnOnce(&mut TokenRules)) -> Scenario {
    let mut tokens = TokenRules::new("access", "refresh/+=");
    tokens.expire_token_after = Some(2);
    change(&mut tokens);
    let rules = ServerRules { tokens: Some(tokens), ..ServerRules::default() };
    Scenario::new().reply("In.").after(AfterLast::RepeatLast).rules(rules)
}

/// Status and body of the response to a request with this token.
async fn request(server: &RehearsalServer, token: &str) -> (u16, Value) {
    let response = respond_to(server, &ask(), &[&format!("authorization: Bearer {token}")]).await;
    let message = match response.status {
        200 => json!(null),
        _ => response.json()["error"]["message"].clone(),
    };
    (response.status, message)
}

async fn renew(server: &RehearsalServer, path: &str, form: &str) -> Response {
    let mut stream = connect(server).await;
    let request = format!(
        "POST {path} HTTP/1.1\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    );
    stream.write_all(request.as_bytes()).await.expect("writable");
    parse(&read_all(&mut stream).await.0)
}

const FORM: &str = "client_id=x&grant_type=refresh_token&refresh_token=refresh%2F%2B%3d";

fn grants(server: &RehearsalServer) -> (u64, u64) {
    let TokenGrants { asked, granted, .. } = server.grants();
    (asked, granted)
}

#[tokio::test]
async fn an_access_token_expires_after_its_number_of_requests() {
    let server = serve(|_| {});
    assert_eq!(request(&server, "other").await, (401, json!("Invalid bearer token")));
    assert_eq!(request(&server, "access").await.0, 200);
    assert_eq!(request(&server, "access").await.0, 200);
    for _ in 0..2 {
        let (status, message) = request(&server, "access").await;
        assert_eq!(status, 401);
        assert!(message.as_str().unwrap().starts_with("OAuth token has expired."), "{message}");
    }
    assert!(server.violations().is_empty());
}

#[tokio::test]
async fn the_refresh_grant_issues_new_access_and_refresh_tokens() {
    let server = serve(|_| {});
    let answer = renew(&server, "/oauth/token", FORM).await.json();
    assert_eq!(
        answer,
        json!({
            "token_type": "Bearer",
            "access_token": "access.1",
            "refresh_token": "refresh/+=.1",
            "expires_in": 3600,
        })
    );
    assert_eq!(request(&server, "access").await.0, 401);
    assert_eq!(request(&server, "access.1").await.0, 200);
    let again = renew(&server, "/oauth/token", FORM).await;
    assert_eq!((again.status, &again.json()["error"]), (400, &json!("invalid_grant")));
    let json = json!({ "grant_type": "refresh_token", "refresh_token": "refresh/+=.1" });
    let answer = renew(&server, "/oauth/token", &json.to_string()).await.json();
    assert_eq!(answer["access_token"], "access.2");
    assert_eq!(grants(&server), (3, 2));
    for _ in 0..2 {
        assert_eq!(request(&server, "access.2").await.0, 200, "counted anew");
    }
    assert_eq!(request(&server, "access.2").await.0, 401);
}

#[tokio::test]
async fn the_token_endpoint_can_be_moved_broken_or_strict() {
    let server = serve(|tokens| {
        tokens.path = "/t".to_owned();
        tokens.failing_refreshes = 1;
        tokens.expires_in = 7;
    });
    assert_eq!(renew(&server, "/oauth/token", FORM).await.status, 404);
    assert_eq!(renew(&server, "/t", FORM).await.status, 503);
    let odd = renew(&server, "/t", "grant_type=password").await.json();
    assert_eq!(odd["error"], "unsupported_grant_type");
    assert_eq!(renew(&server, "/t", FORM).await.json()["expires_in"], 7);
    assert_eq!(grants(&server), (3, 1));
    let none = start(Scenario::new().reply("In."));
    assert_eq!(renew(&none, "/oauth/token", FORM).await.status, 404);
}

#[tokio::test]
async fn sixteen_concurrent_refreshes_get_different_tokens() {
    let expect = Expectation { refreshes: Some(1), ..Expectation::default() };
    let server = start(logins(|_| {}).expect(expect));
    let answers = all_at_once(&server).await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1);
    assert_eq!(grants(&server), (16, 1));
    let scratch = ScratchFolder::create(server.scenario()).unwrap();
    let outcome =
        ObservedOutcome { exit: 0, terminal_reason: None, folder: scratch.path(), stderr: None };
    let faults = server.verify(&outcome);
    assert!(!faults.iter().any(|fault| fault.contains("tokens granted")), "{faults:?}");
}

async fn all_at_once(server: &RehearsalServer) -> Vec<u16> {
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(connect(server).await);
    }
    let request = format!(
        "POST /oauth/token HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{FORM}",
        FORM.len()
    );
    for stream in &mut streams {
        stream.write_all(request.as_bytes()).await.expect("writable");
    }
    let mut answers = Vec::new();
    for stream in &mut streams {
        answers.push(parse(&read_all(stream).await.0).status);
    }
    answers
}
