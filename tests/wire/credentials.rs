//! Credentials of requests: headers, key helpers, and rejected keys.

use std::path::PathBuf;
use std::time::Duration;

use outlast::model::{
    Credential, EndpointError, HelperCommand, ModelClient, ModelService, Renewal, Secret, Transport,
};
use outlast::recovery::{ErrorClass, FailureStage, classify};

use crate::support::supervisor;

use super::server::{Server, answer, stream};
use super::{STREAMING, ask, endpoint, recorded};

async fn accepting() -> Server {
    Server::answering(stream(&recorded("streams/text.sse"))).await
}

fn with(server: &Server, credential: Credential) -> ModelClient {
    let endpoint = ModelService { credential, supervisor: supervisor(), ..endpoint(&server.url) };
    ModelClient::new(endpoint).expect("the endpoint is right")
}

/// A helper that prints `key-1`, then `key-2`, and so on.
fn counting(folder: &tempfile::TempDir) -> HelperCommand {
    let file = folder.path().join("count");
    HelperCommand::new(format!("echo x >> {0}; echo key-$(grep -c x {0})", file.display()))
}

#[tokio::test]
async fn each_credential_has_its_header() {
    let server = accepting().await;
    let cases = [
        (Credential::None, vec![]),
        (Credential::ApiKey(Secret::new("k1\n")), vec!["x-api-key: k1"]),
        (Credential::Bearer(Secret::new("t1")), vec!["authorization: Bearer t1"]),
        (
            Credential::Helper(HelperCommand::new("echo h1")),
            vec!["x-api-key: h1", "authorization: Bearer h1"],
        ),
    ];
    for (credential, expected) in cases {
        ask(&with(&server, credential), STREAMING).await.expect("a reply");
        let request = server.requests().pop().expect("it was seen");
        let found: Vec<&str> = request
            .lines()
            .filter(|line| line.starts_with("x-api-key:") || line.starts_with("authorization:"))
            .collect();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn a_login_in_the_address_is_sent_as_a_header_unless_a_bearer_token_is() {
    let server = accepting().await;
    for (login, credential, expected) in [
        ("u:p%20w@", Credential::ApiKey(Secret::new("k1")), "Basic dTpwIHc="),
        ("token@", Credential::None, "Basic dG9rZW46"),
        (":pw@", Credential::None, "Basic OnB3"),
        ("u:p%20w@", Credential::Helper(HelperCommand::new("echo h1")), "Basic dTpwIHc="),
        ("u:p%20w@", Credential::Bearer(Secret::new("t1")), "Bearer t1"),
    ] {
        let base_url = server.url.replace("://", &format!("://{login}"));
        let service = ModelService { credential, supervisor: supervisor(), ..endpoint(&base_url) };
        let client = ModelClient::new(service).expect("the endpoint is right");
        ask(&client, STREAMING).await.expect("a reply");
        client.list_models().await.expect("an answer");
        for request in server.requests().iter().rev().take(2) {
            let sent: Vec<&str> =
                request.lines().filter(|line| line.starts_with("authorization:")).collect();
            assert_eq!(sent, [format!("authorization: {expected}")], "{request}");
        }
    }
}

/// The service refuses such a token without that beta.
#[tokio::test]
async fn the_token_of_a_login_is_sent_with_its_beta_beside_the_others() {
    let server = accepting().await;
    for (betas, expected) in [
        ("", "oauth-2025-04-20"),
        ("one-2025-01-01, two-2025-01-01", "one-2025-01-01,two-2025-01-01,oauth-2025-04-20"),
        ("oauth-2025-04-20,x-2025-01-01", "oauth-2025-04-20,x-2025-01-01"),
    ] {
        let credential = Credential::OAuthToken(Secret::new("t1"));
        let extra_headers = vec![("Anthropic-Beta".to_owned(), betas.to_owned())];
        let service = ModelService { credential, extra_headers, ..endpoint(&server.url) };
        let client = ModelClient::new(service).expect("the endpoint is right");
        ask(&client, STREAMING).await.expect("a reply");
        client.list_models().await.expect("an answer");
        for request in server.requests().iter().rev().take(2) {
            assert!(request.contains("authorization: Bearer t1\r\n"), "{request}");
            assert!(request.contains(&format!("anthropic-beta: {expected}\r\n")), "{request}");
        }
    }
}

#[tokio::test]
async fn a_helper_runs_once_for_many_requests() {
    let (server, folder) = (accepting().await, tempfile::tempdir().unwrap());
    let client = with(&server, Credential::Helper(counting(&folder)));
    for _ in 0..3 {
        ask(&client, STREAMING).await.expect("a reply");
    }
    assert!(server.requests().iter().all(|request| request.contains("x-api-key: key-1\r\n")));
}

#[tokio::test]
async fn a_helper_runs_again_when_its_output_is_old() {
    let (server, folder) = (accepting().await, tempfile::tempdir().unwrap());
    let helper = HelperCommand { ttl: Duration::ZERO, ..counting(&folder) };
    let client = with(&server, Credential::Helper(helper));
    ask(&client, STREAMING).await.expect("a reply");
    ask(&client, STREAMING).await.expect("a reply");
    assert!(server.requests()[1].contains("x-api-key: key-2\r\n"));
}

#[tokio::test]
async fn a_rejected_key_is_fetched_anew() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::answering(answer(401, "", &recorded("bodies/official-401.json"))).await;
    let client = with(&server, Credential::Helper(counting(&folder)));
    ask(&client, STREAMING).await.expect_err("rejected");
    assert_eq!(client.refresh().await, Renewal::Replaced);
    ask(&client, STREAMING).await.expect_err("rejected");
    ask(&client, STREAMING).await.expect_err("rejected");
    let keys = ["key-1", "key-2", "key-3"];
    for (request, key) in server.requests().iter().zip(keys) {
        assert!(request.contains(&format!("x-api-key: {key}\r\n")), "{key}: {request}");
    }
}

#[tokio::test]
async fn the_same_key_again_is_confirmed_by_a_helper_and_by_nothing_else() {
    let server = accepting().await;
    let same = with(&server, Credential::Helper(HelperCommand::new("echo same")));
    ask(&same, STREAMING).await.expect("a reply");
    assert_eq!(same.refresh().await, Renewal::Confirmed);
    let fixed = with(&server, Credential::ApiKey(Secret::new("k")));
    assert_eq!(fixed.refresh().await, Renewal::Unchanged);
}

#[tokio::test]
async fn a_helper_that_fails_counts_as_a_bad_key_and_nothing_is_sent() {
    let server = accepting().await;
    let commands =
        ["exit 3", "true", "printf 'a\\nb'", "echo secret; exit 1", "read line && echo x", "yes"];
    for command in commands {
        let client = with(&server, Credential::Helper(HelperCommand::new(command)));
        let fault = ask(&client, STREAMING).await.expect_err("no key");
        assert_eq!(classify(&fault).class, ErrorClass::InvalidApiKey, "{fault:?}");
        assert_eq!((fault.stage, fault.status()), (FailureStage::Unsent, None));
        assert!(!fault.detail().contains("secret"));
        let Renewal::Failed(again) = client.refresh().await else { panic!("{command}") };
        assert_eq!(*again, fault);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn the_last_words_of_a_helper_that_fails_are_reported_without_keys() {
    let server = accepting().await;
    let key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let long = "word ".repeat(100);
    for (said, wanted) in [
        (
            "no such vault\nvault: permission denied\n\n",
            "failed (exit status: 1); it said: \"vault: permission denied\"",
        ),
        (&format!("{key} is wrong"), "; it said: \"[redacted] is wrong\""),
        (&long, "word word...\""),
        ("", "failed (exit status: 1)"),
    ] {
        let command = format!("printf '%s' '{said}' >&2; exit 1");
        let client = with(&server, Credential::Helper(HelperCommand::new(command)));
        let fault = ask(&client, STREAMING).await.expect_err("no key");
        assert!(fault.detail().ends_with(wanted), "{fault:?}");
        assert!(fault.detail().len() < 300, "{fault:?}");
    }
}

#[tokio::test]
async fn a_helper_that_hangs_is_stopped() {
    let server = accepting().await;
    let limit = Duration::from_millis(100);
    let helper = HelperCommand { limit, ..HelperCommand::new("sleep 1000 & wait") };
    let fault = ask(&with(&server, Credential::Helper(helper)), STREAMING).await.expect_err("none");
    assert!(fault.detail().contains("did not end within"), "{fault:?}");
}

#[test]
fn a_credential_is_never_shown() {
    let secret = Secret::new(" top-secret ");
    let all = [Credential::ApiKey(secret.clone()), Credential::Bearer(secret.clone())];
    assert!(!format!("{all:?} {secret:?}").contains("top-secret"));
    assert_eq!(secret.redact_in("is top-secret, yes"), "is [redacted], yes");
    assert_eq!(Secret::new("").redact_in("kept"), "kept");
}

#[test]
fn an_endpoint_that_cannot_be_right_is_refused_at_once() {
    let wrong = |change: fn(&mut ModelService)| {
        let mut endpoint = ModelService::new("https://api.anthropic.com", Credential::None);
        change(&mut endpoint);
        ModelClient::new(endpoint).err()
    };
    assert_eq!(wrong(|_| {}), None);
    for url in ["", "api.anthropic.com", "ftp://x", "http://", "http://x:99999"] {
        let endpoint = ModelService::new(url, Credential::None);
        assert!(matches!(ModelClient::new(endpoint), Err(EndpointError::BaseUrl { .. })), "{url}");
    }
    assert!(matches!(
        wrong(|endpoint| endpoint.extra_headers = vec![("a b".into(), "c".into())]),
        Some(EndpointError::Header { .. })
    ));
    for of_secret in [Credential::ApiKey, Credential::Bearer, Credential::FoundryKey] {
        let endpoint =
            ModelService::new("https://api.anthropic.com", of_secret(Secret::new("a\nb")));
        assert!(matches!(ModelClient::new(endpoint), Err(EndpointError::Credential)));
    }
    assert!(matches!(
        wrong(|endpoint| endpoint.connection.ca_files =
            vec![PathBuf::from("/no/such/file.pem").into()]),
        Some(EndpointError::CaFile { .. })
    ));
    assert!(matches!(
        wrong(|endpoint| endpoint.connection.ca_files = vec![PathBuf::from("/dev/null").into()]),
        Some(EndpointError::CaFile { .. })
    ));
}

#[test]
fn a_base_url_may_have_a_path() {
    let cases = [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        ("https://x/v1", "https://x/v1/messages"),
        ("\"https://x/v1\"", "https://x/v1/messages"),
        ("https://x/v1/", "https://x/v1/messages"),
        ("https://x/v1/messages", "https://x/v1/messages"),
        ("http://127.0.0.1:8080/s/ok/1", "http://127.0.0.1:8080/s/ok/1/v1/messages"),
        (" https://x/anthropic//?beta=true#f ", "https://x/anthropic/v1/messages?beta=true"),
    ];
    for (base, expected) in cases {
        let url = ModelService::new(base, Credential::None).url().expect(base);
        assert_eq!(url.as_str(), expected);
    }
}
