//! Sources of cloud credentials: profiles, logins, containers, metadata servers, and commands.
//! Servers on loopback stand for the services.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use outlast::model::{
    AwsIdentity, CloudIdentity, ConnectionTerms, Credential, EntraIdentity, GoogleIdentity,
    ModelClient, ModelService, Proxies, Renewal, ServiceKind, Transport,
};
use outlast::process::{Supervisor, UserPrograms};
use outlast::recovery::{ErrorClass, classify};
use outlast::secrets::{KnownSecrets, Variables};
use serde_json::json;
use tempfile::TempDir;

use super::server::{Server, stream};
use super::{STREAMING, ask, endpoint, recorded};
use crate::support::responder::Responder;
use crate::support::supervisor;

pub(super) const KEYS: &str = r#"{"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "secret-key-83017",
    "Token": "session-83017", "Expiration": "2099-01-01T00:00:00Z"}"#;

pub(super) fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// A home folder with a file of AWS profiles.
pub(super) fn home(config: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join(".aws/sso/cache")).expect("writable");
    fs::write(folder.path().join(".aws/config"), config).expect("writable");
    folder
}

pub(super) fn aws(home: &Path, pairs: &[(&str, &str)]) -> AwsIdentity {
    AwsIdentity {
        variables: variables(pairs),
        home: Some(home.to_owned()),
        region: "us-east-1".to_owned(),
        auth_refresh: None,
        credential_export: None,
        cache: Some(home.join("cache")),
    }
}

/// Asks once with an identity, and returns the request or the class of the failure, and the detail.
async fn asked(identity: CloudIdentity, kind: ServiceKind) -> Result<String, (ErrorClass, String)> {
    asked_by(supervisor(), identity, kind).await
}

async fn asked_by(
    supervisor: Supervisor,
    identity: CloudIdentity,
    kind: ServiceKind,
) -> Result<String, (ErrorClass, String)> {
    let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
    let secrets = KnownSecrets::default();
    let service = ModelService {
        kind,
        credential: Credential::Cloud(Box::new(identity)),
        supervisor,
        secrets: secrets.clone(),
        ..endpoint(&server.url)
    };
    let client = ModelClient::new(service).expect("the endpoint is right");
    match ask(&client, STREAMING).await {
        Ok(_) => {
            assert!(secrets.count() > 0, "the token is redacted from now on");
            Ok(server.requests().pop().expect("it was seen"))
        }
        Err(fault) => Err((classify(&fault).class, fault.detail().to_owned())),
    }
}

pub(super) async fn at_bedrock(identity: AwsIdentity) -> Result<String, (ErrorClass, String)> {
    let kind = ServiceKind::Bedrock { region: "us-east-1".to_owned() };
    asked(CloudIdentity::Aws(identity), kind).await
}

pub(super) async fn at_vertex(identity: GoogleIdentity) -> Result<String, (ErrorClass, String)> {
    let kind = ServiceKind::Vertex { region: "global".to_owned(), project: "p".to_owned() };
    asked(CloudIdentity::Google(identity), kind).await
}

#[tokio::test]
async fn keys_of_a_profile_sign_requests() {
    let home = home(
        "[profile ci]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = secret-key-83017\n",
    );
    let request = at_bedrock(aws(home.path(), &[("AWS_PROFILE", "ci")])).await.expect("a reply");
    assert!(request.contains("Credential=AKIAPROFILE/"), "{request}");
    assert!(request.contains("/us-east-1/bedrock/aws4_request"), "{request}");
    assert!(request.contains("SignedHeaders=content-type;host;x-amz-date,"), "{request}");
}

#[tokio::test]
async fn blank_keys_of_a_profile_count_as_not_set() {
    let keys = r#"{"Version": 1, "AccessKeyId": "AKIAPROCESS", "SecretAccessKey": "s83017"}"#;
    let home = home(&format!(
        "[default]\naws_access_key_id =\naws_secret_access_key =\n\
         credential_process = printf '{}'\n",
        keys.replace('"', "\\042")
    ));
    let request = at_bedrock(aws(home.path(), &[])).await.expect("a reply");
    assert!(request.contains("Credential=AKIAPROCESS/"), "{request}");
}

#[tokio::test]
async fn a_program_that_commands_can_write_prints_keys() {
    let home = home("");
    let folder = home.path().canonicalize().expect("it is there");
    let program = folder.join("keys.sh");
    let keys = r#"{"Version": 1, "AccessKeyId": "AKIAPROCESS", "SecretAccessKey": "s83017"}"#;
    fs::write(&program, format!("echo '{keys}'")).expect("writable");
    let config = format!("[default]\ncredential_process = sh {}\n", program.display());
    fs::write(folder.join(".aws/config"), config).expect("writable");
    let programs = UserPrograms::new(vec![folder], Vec::new(), Box::new(|| Ok(None)));
    let supervisor = supervisor().with_programs(&Arc::new(programs));
    let kind = ServiceKind::Bedrock { region: "us-east-1".to_owned() };
    let identity = CloudIdentity::Aws(aws(home.path(), &[]));
    let request = asked_by(supervisor, identity, kind).await.expect("a reply");
    assert!(request.contains("Credential=AKIAPROCESS/"), "{request}");
}

#[tokio::test]
async fn a_role_is_assumed_with_the_keys_of_its_source_profile() {
    let sts = Responder::start(|_, request| {
        assert!(request.contains("Action=AssumeRole&"), "{request}");
        assert!(request.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fci"), "{request}");
        assert!(request.contains("ExternalId=e1"), "{request}");
        assert!(request.contains("Credential=AKIABASE/") && request.contains("/sts/"), "{request}");
        Some((
            200,
            "<AssumeRoleResponse><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>\
            <SecretAccessKey>s83017</SecretAccessKey><SessionToken>t83017</SessionToken>\
            <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResponse>"
                .into(),
        ))
    })
    .await;
    let home = home(
        "[default]\nrole_arn = arn:aws:iam::1:role/ci\nsource_profile = base\nexternal_id = e1\n\
         [profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = secret-key-83017\n",
    );
    let identity = aws(home.path(), &[("AWS_ENDPOINT_URL_STS", &sts.url)]);
    let request = at_bedrock(identity.clone()).await.expect("a reply");
    assert!(request.contains("Credential=ASIAROLE/"), "{request}");
    assert!(request.contains("x-amz-security-token: t83017"), "{request}");
    // Another run of this host uses the same keys.
    at_bedrock(identity).await.expect("a reply");
    assert_eq!(sts.requests().len(), 1);
}

#[tokio::test]
async fn a_login_of_the_identity_center_is_exchanged_and_its_end_names_the_command() {
    let config = "[profile ci]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = dev\n\
                  [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example\n";
    let home = home(config);
    let portal = Responder::start(|_, request| {
        let query = "GET /federation/credentials?account_id=123&role_name=dev ";
        assert!(request.starts_with(query), "{request}");
        assert!(request.contains("x-amz-sso_bearer_token: sso-token-83017"), "{request}");
        let keys = json!({ "accessKeyId": "ASIASSO", "secretAccessKey": "s83017",
            "sessionToken": "t83017", "expiration": 4_070_908_800_000_u64 });
        Some((200, json!({ "roleCredentials": keys }).to_string()))
    })
    .await;
    let pairs = [("AWS_PROFILE", "ci"), ("AWS_ENDPOINT_URL_SSO", portal.url.as_str())];
    let (class, detail) = at_bedrock(aws(home.path(), &pairs)).await.expect_err("no login");
    assert_eq!(class, ErrorClass::InvalidApiKey);
    assert!(detail.contains("aws sso login --profile ci"), "{detail}");
    for (ends, works) in [("2099-01-01T00:00:00Z", true), ("2020-01-01T00:00:00Z", false)] {
        let login = json!({ "accessToken": "sso-token-83017", "expiresAt": ends });
        let file = home.path().join(".aws/sso/cache").join(CACHE_FILE);
        fs::write(&file, login.to_string()).expect("writable");
        fs::remove_dir_all(home.path().join("cache")).ok();
        let found = at_bedrock(aws(home.path(), &pairs)).await;
        assert_eq!(found.is_ok(), works, "{ends}: {found:?}");
    }
}

/// The name of the file that the AWS CLI writes: the SHA-1 of the session's name.
pub(super) const CACHE_FILE: &str = "ee0bfd2552fbd840c02cc48b6e823320543c450f.json";

#[tokio::test]
async fn commands_containers_and_instances_give_keys() {
    let home = home("");
    let printed = home.path().join("keys.json");
    fs::write(&printed, KEYS.replacen('{', r#"{"Version": 1, "#, 1)).expect("writable");
    let print = format!("cat {}", printed.display());
    let config = format!("[profile p]\ncredential_process = {print}\n");
    fs::write(home.path().join(".aws/config"), config).expect("writable");
    let server = Responder::start(|_, request| {
        let answer = match request.split(' ').nth(1).unwrap_or_default() {
            "/latest/api/token" if request.starts_with("PUT ") => "imds-83017",
            "/latest/meta-data/iam/security-credentials/" => "the-role",
            "/latest/meta-data/iam/security-credentials/the-role"
                if request.contains("x-aws-ec2-metadata-token: imds-83017") =>
            {
                KEYS
            }
            "/pod" if request.contains("authorization: pod-83017") => KEYS,
            other => panic!("{other} is not expected"),
        };
        Some((200, answer.to_owned()))
    })
    .await;
    let pod = format!("{}/pod", server.url);
    let exported = AwsIdentity {
        credential_export: Some(format!("printf '{{\"Credentials\": %s}}' \"$({print})\"")),
        ..aws(home.path(), &[("AWS_ACCESS_KEY_ID", "AKIAOTHER")])
    };
    for identity in [
        exported,
        aws(home.path(), &[("AWS_PROFILE", "p")]),
        aws(
            home.path(),
            &[
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &pod),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-83017"),
            ],
        ),
        aws(home.path(), &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server.url)]),
    ] {
        let request = at_bedrock(identity.clone()).await.expect("a reply");
        assert!(request.contains("Credential=ASIAEXAMPLE/"), "{identity:?}: {request}");
        assert!(request.contains("x-amz-security-token: session-83017"), "{request}");
    }
    let off = aws(home.path(), &[("AWS_EC2_METADATA_DISABLED", "true")]);
    let (class, detail) = at_bedrock(off).await.expect_err("there is nothing");
    assert_eq!(class, ErrorClass::InvalidApiKey);
    assert!(detail.contains("no AWS credentials"), "{detail}");
}

#[tokio::test]
async fn a_metadata_server_that_refuses_is_not_one_that_is_missing() {
    let home = home("");
    let without_role = Responder::start(|_, request| {
        let has_token = request.starts_with("PUT ");
        Some(if has_token { (200, "imds".to_owned()) } else { (404, "Not Found".to_owned()) })
    })
    .await;
    let instance = aws(home.path(), &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &without_role.url)]);
    let (_, detail) = at_bedrock(instance).await.expect_err("it has no role");
    assert!(detail.contains("attach a role to the instance"), "{detail}");

    let busy = Responder::start(|_, _| Some((429, "{}".to_owned()))).await;
    let host = variables(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", &busy.url)]);
    let machine = CloudIdentity::Entra(EntraIdentity { variables: host, cache: None });
    let kind = ServiceKind::Foundry { resource: "r".to_owned() };
    let (class, detail) = asked(machine, kind).await.expect_err("it is overloaded");
    assert_ne!(class, ErrorClass::InvalidApiKey, "it is asked again: {detail}");
}

#[tokio::test]
async fn a_token_service_that_throttles_is_not_one_that_refuses() {
    for (code, wanted) in [
        ("Throttling", ErrorClass::RateLimit),
        ("IDPCommunicationError", ErrorClass::ServerError),
        ("AccessDenied", ErrorClass::InvalidApiKey),
    ] {
        let body = format!("<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>");
        let sts = Responder::start(move |_, _| Some((400, body.clone()))).await;
        let home = home(
            "[default]\nrole_arn = arn:aws:iam::1:role/ci\nsource_profile = base\n\
             [profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = s83017\n",
        );
        let identity = aws(home.path(), &[("AWS_ENDPOINT_URL_STS", &sts.url)]);
        let (class, detail) = at_bedrock(identity).await.expect_err("it gives no keys");
        assert_eq!(class, wanted, "{code}: {detail}");
        assert!(detail.contains(" at 127.0.0.1"), "{code}: {detail}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let body = json!({ "error": "temporarily_unavailable", "error_description": "later" });
    let busy = Responder::start(move |_, _| Some((400, body.to_string()))).await;
    let found = at_vertex(google(folder.path(), &busy.url)).await;
    assert_eq!(found.expect_err("it gives no token").0, ErrorClass::ServerError);
}

#[tokio::test]
async fn a_login_command_runs_when_there_are_no_keys() {
    let home = home("");
    let file = home.path().join(".aws/credentials");
    let text = "[ci]\\naws_access_key_id = AKIALOGIN\\naws_secret_access_key = secret-key-83017\\n";
    let identity = AwsIdentity {
        auth_refresh: Some(format!("printf '{text}' > {}", file.display())),
        ..aws(home.path(), &[("AWS_PROFILE", "ci")])
    };
    let request = at_bedrock(identity).await.expect("a reply");
    assert!(request.contains("Credential=AKIALOGIN/"), "{request}");
}

fn google(folder: &Path, url: &str) -> GoogleIdentity {
    let file = folder.join("google.json");
    let value = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "client-83017",
        "refresh_token": "refresh-83017", "token_uri": format!("{url}/token"),
        "quota_project_id": "billing-1",
    });
    fs::write(&file, value.to_string()).expect("writable");
    GoogleIdentity {
        variables: variables(&[("GOOGLE_APPLICATION_CREDENTIALS", &file.display().to_string())]),
        home: Some(folder.to_owned()),
        cache: Some(folder.join("cache")),
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_once_when_it_was_rejected() {
    // The first two tokens end within the margin, so that each request fetches another.
    let tokens = Responder::start(|number, _| {
        let lifetime = if number < 3 { 60 } else { 3600 };
        let token = format!("token-83017-{number}");
        Some((200, json!({ "access_token": token, "expires_in": lifetime }).to_string()))
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
    let service = ModelService {
        kind: ServiceKind::Vertex { region: "global".into(), project: "p".into() },
        credential: Credential::Cloud(Box::new(CloudIdentity::Google(google(
            folder.path(),
            &tokens.url,
        )))),
        supervisor: supervisor(),
        ..endpoint(&server.url)
    };
    let client = ModelClient::new(service).expect("the endpoint is right");
    for number in [1, 2, 3, 3] {
        ask(&client, STREAMING).await.expect("a reply");
        let request = server.requests().pop().expect("it was seen");
        let bearer = format!("authorization: Bearer token-83017-{number}\r\n");
        assert!(request.contains(&bearer), "{bearer}: {request}");
        assert!(request.contains("x-goog-user-project: billing-1"), "{request}");
    }
    assert_eq!(client.refresh().await, Renewal::Replaced);
    ask(&client, STREAMING).await.expect("a reply");
    assert!(server.requests().pop().is_some_and(|request| request.contains("token-83017-4")));
}

#[tokio::test]
async fn a_refused_or_unreachable_token_service_is_told_apart_and_no_secret_is_quoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let refusing = Responder::start(|_, _| {
        let body = json!({ "error": "invalid_grant", "error_description": "Bad Request" });
        Some((400, body.to_string()))
    })
    .await;
    let found = at_vertex(google(folder.path(), &refusing.url)).await;
    let (class, detail) = found.expect_err("it is refused");
    assert_eq!(class, ErrorClass::InvalidApiKey);
    assert!(detail.contains("Bad Request") && detail.contains("gcloud auth"));
    assert!(!detail.contains("83017"), "{detail}");
    let found = at_vertex(google(folder.path(), "http://127.0.0.1:1")).await;
    assert_eq!(found.expect_err("no server is there").0, ErrorClass::ConnectionError);
    let plain = at_vertex(google(folder.path(), "http://oauth2.example")).await;
    assert!(plain.expect_err("it would be sent openly").1.contains("https://"));
}

#[tokio::test]
async fn a_credential_file_without_an_end_is_refused() {
    let home = home("");
    let endless = "/dev/zero";
    let token =
        [("AWS_WEB_IDENTITY_TOKEN_FILE", endless), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/ci")];
    let google = GoogleIdentity {
        variables: variables(&[("GOOGLE_APPLICATION_CREDENTIALS", endless)]),
        home: None,
        cache: None,
    };
    for found in [
        at_bedrock(aws(home.path(), &token)).await,
        at_bedrock(aws(home.path(), &[("AWS_CONFIG_FILE", endless)])).await,
        at_vertex(google).await,
    ] {
        let (class, detail) = found.expect_err("it has no end");
        assert_eq!(class, ErrorClass::InvalidApiKey, "{detail}");
        assert!(detail.contains("it is larger than 8192 kB"), "{detail}");
    }
}

#[tokio::test]
async fn the_issuer_of_an_identity_is_asked_through_the_proxy_if_it_is_on_the_internet() {
    let proxy = Responder::start(|_, _| Some((502, String::new()))).await;
    let local = Responder::start(|_, _| Some((200, "subject-83017".to_owned()))).await;
    for (issuer, wanted) in [
        ("https://issuer.example", "CONNECT issuer.example:443 "),
        (&local.url, "CONNECT sts.example:443 "),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("google.json");
        let value = json!({
            "type": "external_account", "audience": "//iam/p", "subject_token_type": "jwt",
            "token_url": "https://sts.example/token",
            "credential_source": { "url": format!("{issuer}/token") },
        });
        fs::write(&file, value.to_string()).expect("writable");
        let file = file.display().to_string();
        let google = GoogleIdentity {
            variables: variables(&[("GOOGLE_APPLICATION_CREDENTIALS", &file)]),
            home: None,
            cache: None,
        };
        let variable =
            |name: &str| (name == "HTTPS_PROXY" || name == "HTTP_PROXY").then(|| proxy.url.clone());
        let service = ModelService {
            kind: ServiceKind::Vertex { region: "global".into(), project: "p".into() },
            credential: Credential::Cloud(Box::new(CloudIdentity::Google(google))),
            supervisor: supervisor(),
            connection: ConnectionTerms {
                proxies: Proxies::from_variables(variable),
                ..ConnectionTerms::default()
            },
            ..endpoint("https://vertex.example")
        };
        let client = ModelClient::new(service).expect("the endpoint is right");
        ask(&client, STREAMING).await.expect_err("the proxy lets nothing through");
        let asked = proxy.requests();
        assert!(asked.last().is_some_and(|last| last.starts_with(wanted)), "{asked:?}");
    }
    assert_eq!(local.requests().len(), 1, "what speaks plain HTTP is asked directly");
}

#[tokio::test]
async fn entra_gives_a_token_for_a_client_secret_and_for_a_managed_identity() {
    let tokens = Responder::start(|_, request| {
        let by_secret = request.starts_with("POST /t/oauth2/v2.0/token ")
            && request.contains("client_secret=client-83017");
        let by_header =
            request.starts_with("GET /msi?") && request.contains("x-identity-header: h");
        assert!(by_secret || by_header, "{request}");
        let body = json!({ "access_token": "token-83017-e", "expires_in": "3600" });
        Some((200, body.to_string()))
    })
    .await;
    let msi = format!("{}/msi", tokens.url);
    let folder = tempfile::tempdir().expect("a folder");
    let mut fetched = Vec::new();
    for pairs in [
        vec![
            ("AZURE_AUTHORITY_HOST", tokens.url.as_str()),
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_CLIENT_ID", "c"),
            ("AZURE_CLIENT_SECRET", "client-83017"),
        ],
        vec![("IDENTITY_ENDPOINT", msi.as_str()), ("IDENTITY_HEADER", "h")],
    ] {
        let before = tokens.requests().len();
        for _ in 0..2 {
            let cache = Some(folder.path().join("cache"));
            let identity = EntraIdentity { variables: variables(&pairs), cache };
            let kind = ServiceKind::Foundry { resource: "r".to_owned() };
            let request = asked(CloudIdentity::Entra(identity), kind).await.expect("a reply");
            assert!(request.contains("authorization: Bearer token-83017-e"), "{request}");
            assert!(!request.contains("api-key"), "{request}");
        }
        fetched.push(tokens.requests().len() - before);
    }
    // Runs share the token of an application; which identity a machine has may change.
    assert_eq!(fetched, [1, 2]);
}
